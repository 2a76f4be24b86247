"""The optimiser as a whole: report, metadata, command line, networks from the corpus."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from corpus_cases import compact_root, compare, iter_cases
from pass_nets import of, text, uniform

import mgeserial
from mgeserial.author import GraphBuilder
from mgeserial.cli import main
from mgeserial.ir.graph import Metadata
from mgeserial.passes import OptimizeOptions, OutputCheck, optimize, passes_of
from mgeserial.passes.evaluate import compute

FUSED = OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)


def _network(b: GraphBuilder):
    x = b.input("data", (1, 3, 8, 8))
    for i, channels in enumerate((4, 4)):
        shape = (channels, 3 if i == 0 else 4, 3, 3)
        x = b.conv2d(x, uniform(*shape, seed=i), padding=1)
        stats = [uniform(channels, seed=s) for s in range(3)]
        x = b.batch_norm2d(x, *stats, np.abs(uniform(channels)) + 1)
        x = b.relu(x)
    return b.softmax_last(b.flatten(b.global_avg_pool2d(x)))


def test_golden_text_of_a_small_network():
    new, _ = optimize(of(_network), FUSED)
    assert text(new) == (
        "v0 = ConvBiasForward(data, (4, 3, 3, 3), (1, 4, 1, 1))\n"
        "v1 = ConvBiasForward(v0, (4, 4, 3, 3), (1, 4, 1, 1))\n"
        "v2 = Pooling(v1)\n"
        "v3 = Reshape(v2, (2,))\n"
        "v4 = Softmax(v3)"
    )


def test_golden_report():
    _, report = optimize(of(_network), FUSED)
    lines = report.text().splitlines()
    assert lines[0] == "operators: 21 -> 10"
    assert "  BatchNorm                                    2 ->     0" in lines
    assert "  batch-norm/expand: 2" in lines
    assert "  conv-bias/bias: 2" in lines
    verbose = report.text(verbose=True)
    assert 'expand: operator 7 "BatchNorm[7]" (BatchNorm)' in verbose


def test_the_report_as_data():
    _, report = optimize(of(_network), FUSED)
    data = json.loads(json.dumps(report.as_data()))
    assert data["schema"] == 1
    assert data["optimize_options"] == 68
    assert data["operators"] == {"before": 21, "after": 10}
    assert data["census"]["after"]["ConvBiasForward[NCHW]"] == 2
    entry = next(p for p in data["passes"] if p["rewrites"])
    assert {"rule", "place", "detail"} == set(entry["rewrites"][0])


def test_near_misses_are_told_with_their_reason():
    b = GraphBuilder()
    conv = b.conv2d(b.input("x", (1, 3, 8, 8)), uniform(4, 3, 3, 3))
    b.output(b.relu(conv), "a")
    b.output(conv, "b")
    _, report = optimize(b.graph(), FUSED)
    assert "not done:" in report.text()
    assert "1 x 'b' is an output of the network" in report.text()


def test_the_given_graph_stays_and_every_pass_is_checked():
    graph = of(_network)
    before = text(graph)
    inputs = {"data": uniform(1, 3, 8, 8, seed=5)}
    new, _ = optimize(graph, FUSED, check=OutputCheck(inputs))
    assert text(graph) == before
    np.testing.assert_allclose(
        compute(new, inputs)[0], compute(graph, inputs)[0], rtol=1e-4, atol=1e-6
    )


def test_metadata_say_what_was_done_now_and_before():
    graph = of(_network)
    graph.metadata = Metadata(is_valid=True, user_info=b"mine", optimize_options=3 << 32 | 1)
    new, _ = optimize(graph, FUSED)
    assert new.metadata.optimize_options == 3 << 32 | 69
    assert new.metadata.user_info == b"mine"
    assert graph.metadata.optimize_options == 3 << 32 | 1


def test_nothing_is_done_when_nothing_is_asked():
    graph = of(_network)
    new, report = optimize(graph, OptimizeOptions(optimize_for_inference=False))
    assert passes_of(report.options) == []
    assert text(new) == text(graph)
    assert new is not graph


def _seconds_for_a_chain(length: int) -> float:
    """Processor time of optimising `length` times three operators, of which two are left."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 2, 2))
    for _ in range(length):
        x = b.tanh(b.add(b.mul(x, 2.0), uniform(1, 4, 1, 1)))
    b.output(x, "out")
    graph = b.graph()
    start = time.process_time()
    new, _ = optimize(graph, FUSED)
    spent = time.process_time() - start
    assert len([n for n in new.nodes if n.inputs]) == 2 * length
    return spent


def test_thousands_of_operators_in_linear_time():
    short = min(_seconds_for_a_chain(50) for _ in range(2))
    assert _seconds_for_a_chain(400) < 8 * short * 2.5


CASES = [c for c in iter_cases(compact_root()) if c.family in ("nets", "layout", "conv", "random")]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_networks_of_the_corpus_keep_their_outputs(case):
    model = case.models()[0]
    for run in case.runs(model)[:1]:
        graph = mgeserial.load(model.path).graphs[run.graph_index]
        if run.shape_only or run.output_layout:
            continue
        new, _ = optimize(graph, FUSED)
        results = compute(new, run.inputs)
        assert compare(run, dict(zip(new.output_names, results, strict=True))) == []


# -- command line ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.mge"
    mgeserial.save(of(_network), path)
    return path


def test_optimize_writes_a_model(file, tmp_path, capsys):
    out = tmp_path / "fast.mge"
    words = ["optimize", str(file), str(out), "--enable-fuse-conv-bias-nonlinearity", "--check"]
    assert main(words) == 0
    assert "operators: 21 -> 10" in capsys.readouterr().out
    graph = mgeserial.load(out).graph
    assert graph.metadata.optimize_options == 68
    assert text(graph) == text(optimize(of(_network), FUSED)[0])


def test_optimize_says_what_and_why(file, tmp_path, capsys):
    assert main(["optimize", str(file), str(tmp_path / "a.mge"), "--report", "-v"]) == 0
    assert "batch-norm/expand: 2" in capsys.readouterr().out
    assert main(["optimize", str(file), str(tmp_path / "b.mge"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"]["before"] == 21


def test_optimize_replaces_nothing_unasked(file, tmp_path, capsys):
    out = tmp_path / "fast.mge"
    out.write_bytes(b"mine")
    assert main(["optimize", str(file), str(out)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert main(["optimize", str(file), str(out), "--force", "-q"]) == 0
    assert out.read_bytes() != b"mine"


def test_optimize_refuses_contradictions(file, tmp_path, capsys):
    words = ["optimize", str(file), str(tmp_path / "o.mge"), "--enable-nchw4", "--enable-chwn4"]
    assert main(words) == 2
    assert "a graph has one layout" in capsys.readouterr().err
