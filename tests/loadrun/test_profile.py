from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from corpus_cases import compact_root

import loadrun
import mgeserial
from loadrun.backends.base import CompileOptions
from loadrun.inputs import random_inputs
from loadrun.memorymap import memory_document, memory_svg
from loadrun.optimization import optimized
from loadrun.peaks import Peaks, measure_peaks
from loadrun.profilefile import chrome_trace, profile_document, profile_of_document, read_profile
from loadrun.profiler import profile, rows_by_type
from loadrun.profiletext import profile_text
from loadrun.schema import validate
from mgeserial.errors import InputError
from mgeserial.passes.options import OptimizeOptions

NETS = compact_root() / "nets"
BACKENDS = ["cpu", "reference"]
NAMES = [
    "mobilenet_v1_optimized",
    "lstm_classifier_cells",
    "detector_static",
    "transformer_static",
    "unet_optimized",
    "yolox_nano_optimized",
]


def session_of(name, backend, **options):
    graph = mgeserial.load(NETS / name / "model.v2.mge").graph
    made = optimized(graph, OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)).graph
    return loadrun.Session(made, backend, options=CompileOptions(**options))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_profiles_of_networks(name, backend):
    with session_of(name, backend, threads=1) as session:
        feeds = random_inputs(session.inputs)
        before = {k: v.tobytes() for k, v in session.run(feeds).items()}
        found = profile(session, feeds, repeat=3, peaks=False)
        after = {k: v.tobytes() for k, v in session.run(feeds).items()}
    assert before == after
    assert len(found.rows) > 3
    assert all(len(row.times_ns) == 3 and min(row.times_ns) >= 0 for row in found.rows)
    assert all(min(row.starts_ns) >= 0 for row in found.rows)
    assert sum(row.share for row in found.rows) == pytest.approx(1)
    assert found.wall_ns - found.gap_ns == pytest.approx(found.sum_ns)
    document = profile_document(found)
    assert validate(document) == []
    back = profile_of_document(json.loads(json.dumps(document)))
    assert [r.times_ns for r in back.rows] == [r.times_ns for r in found.rows]
    assert profile_document(back) == document
    assert "sum of steps" in profile_text(found, top=3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_computing_operator_is_in_one_step_and_kernels_are_named(backend):
    with session_of("mobilenet_v1_optimized", backend) as session:
        feeds = random_inputs(session.inputs)
        found = profile(session, feeds, repeat=2, peaks=False)
        wanted = {n.display_name for n in session.graph.nodes if n.op.name == "ConvBiasForward"}
    named = [o.name for row in found.rows for o in row.operators if o.type == "ConvBiasForward"]
    assert sorted(named) == sorted(wanted)
    kernels = {row.kernel for row in found.rows if row.type == "ConvBiasForward"}
    assert kernels == {"python"} if backend == "reference" else len(kernels) > 3
    assert all(row.flops for row in found.rows if row.type == "ConvBiasForward")


def test_backends_agree_on_operations():
    counts = []
    for backend in BACKENDS:
        with session_of("mobilenet_v1_optimized", backend) as session:
            found = profile(session, random_inputs(session.inputs), repeat=1, peaks=False)
        rows = {r.type: r.flops for r in rows_by_type(found)}
        counts.append(rows["ConvBiasForward"])
    assert counts[0] == counts[1] > 100_000


def test_rows_by_type_add_up():
    with session_of("unet_optimized", "cpu") as session:
        found = profile(session, random_inputs(session.inputs), repeat=2, peaks=False)
    joined = rows_by_type(found)
    assert sum(r.median_ns for r in joined) == pytest.approx(found.sum_ns)
    assert sum(r.count for r in joined) == len(found.rows)
    assert [r.median_ns for r in joined] == sorted((r.median_ns for r in joined), reverse=True)


def test_peaks_are_those_of_a_machine_that_exists():
    found = measure_peaks(1)
    assert 1e8 < found.flop_per_s < 1e13
    assert 1e8 < found.bytes_per_s < 1e13
    assert measure_peaks(1) is found


def test_speed_is_given_as_part_of_the_peak():
    with session_of("mobilenet_v1_optimized", "cpu") as session:
        found = profile(session, random_inputs(session.inputs), repeat=2, peaks=True)
    assert isinstance(found.peaks, Peaks)
    steps = [s for s in profile_document(found)["steps"] if s["type"] == "ConvBiasForward"]
    assert all(s["flop_peak_percent"] > 0 for s in steps)


def test_trace_has_the_steps_of_one_run_in_order():
    with session_of("mobilenet_v1_optimized", "reference") as session:
        found = profile(session, random_inputs(session.inputs), repeat=3, peaks=False)
    events = [e for e in chrome_trace(found)["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(found.rows)
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    for first, then in itertools.pairwise(events):
        assert first["ts"] + first["dur"] <= then["ts"] + 1e-3


# -- load_and_run's files ------------------------------------------------------------------------

LAR = {
    "graph_exec": {
        "operator": {
            "3": {"name": "conv", "type": "Convolution", "input": ["0", "1"], "output": ["2"]},
            "7": {"name": "relu", "type": "Elemwise", "input": ["2"], "output": ["4"]},
            "9": {"name": "none", "type": "Reshape", "input": [], "output": []},
        },
        "var": {"2": {"shape": [1, 8, 4, 4]}},
    },
    "profiler": {
        "device": {
            "3": {"cpu:default": {"start": 0.001, "kern": 0.0012, "end": 0.003}},
            "7": {"cpu:default": {"start": 0.003, "kern": 0.003, "end": 0.0035}},
        },
        "host": {"9": {"main": {"start": 0.0, "kern": 0.0, "end": 0.0001}}},
        "opr_footprint": {"3": {"computation": 4611686018427387904, "memory": 1}},
        "opr_internal_pf": {},
    },
}


def test_profile_of_load_and_run_is_read(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(LAR))
    found = read_profile(str(path))
    assert [(r.name, r.median_ns) for r in found.rows] == [
        ("none", 100_000),
        ("conv", 2_000_000),
        ("relu", 500_000),
    ]
    assert found.rows[1].flops == 1 << 62
    assert found.rows[1].outputs == ("1x8x4x4",)
    assert found.source == "load_and_run"
    assert validate(profile_document(found)) == []
    assert "Convolution" in profile_text(found)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"kind": "loadrun.profile"}', '{"kind": "loadrun.profile", "schema": 9}',
     '{"graph_exec": [], "profiler": {}}', '{"graph_exec": {"operator": {"1": 2}}, "profiler": 3}',
     "[" * 100_000],
)  # fmt: skip
def test_what_is_no_profile_is_one_error(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a profile"):
        read_profile(str(path))


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_plans_never_overlap(name, backend):
    with session_of(name, backend) as session:
        plan = session.memory(random_inputs(session.inputs))
    document = memory_document(plan, backend=backend)
    assert validate(document) == []
    assert memory_svg(plan).count("<rect") >= len(plan.blocks)
    if backend == "reference":
        return
    for k, a in enumerate(plan.blocks):
        assert 0 <= a.offset <= a.offset + a.nbytes <= plan.arena_bytes
        for b in plan.blocks[k + 1 :]:
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or a.last < b.first or b.last < a.first


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_memory_of_its_own_keeps_every_bit(name, backend):
    with session_of(name, backend) as plain, session_of(name, backend, memory_plan=False) as own:
        feeds = random_inputs(plain.inputs)
        want, got = plain.run(feeds), own.run(feeds)
        assert [x.tobytes() for x in want.values()] == [x.tobytes() for x in got.values()]
        blocks = own.memory(feeds).blocks
        assert all(b.first == 0 for b in blocks) or backend == "reference"


@pytest.mark.parametrize("name", NAMES)
def test_parts_give_the_same_results_as_a_run(name):
    with session_of(name, "cpu") as session:
        feeds = list(random_inputs(session.inputs).values())
        session.prepare(feeds)
        program = session.program
        whole = [np.array(a) for a in program.run(feeds)]
        results, parts = program.run_parts(feeds)
        assert [a.tobytes() for a in whole] == [np.asarray(a).tobytes() for a in results]
        assert parts.device_ns > 0
