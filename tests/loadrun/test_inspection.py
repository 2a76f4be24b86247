from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from corpus_cases import compact_root, iter_cases

import mgeserial
from loadrun.inputs import random_inputs
from loadrun.inspection import (
    check_batches,
    check_declared,
    check_range,
    check_repeated,
    dump_binary,
    lines_of,
    observe,
)
from loadrun.profiler import profile
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import InputError
from mgeserial.ir.types import TensorType

NET = compact_root() / "nets" / "mobilenet_v1_optimized" / "model.v2.mge"
BACKENDS = ["cpu", "reference"]


def graph_of(path=NET):
    return mgeserial.load(path).graph


def runs_of(backend="reference", path=NET):
    graph = graph_of(path)
    with Session(graph, "reference") as session:
        feeds = random_inputs(session.inputs)
    return observe(graph, backend, feeds)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_value_but_weights_is_seen_in_order(backend):
    graph = graph_of()
    observed = next(runs_of(backend))
    assert [o.index for o in observed] == list(range(len(observed)))
    names = [o.name for o in observed]
    for node in graph.nodes:
        if node.op.name == "ConvBiasForward":
            assert node.outputs[0].display_name in names
    assert not any(o.node.op.name in ("ImmutableTensor", "SharedDeviceTensor") for o in observed)


def test_backends_see_the_same_values():
    one, two = (next(runs_of(backend)) for backend in BACKENDS)
    for a, b in zip(one, two, strict=True):
        assert a.name == b.name
        np.testing.assert_allclose(a.array, b.array, rtol=1e-4, atol=1e-5)


def test_outputs_among_the_values_are_those_of_a_run():
    with Session(graph_of(), "reference") as session:
        feeds = random_inputs(session.inputs)
        want = session.run(feeds)["out"]
    (got,) = [o.array for o in next(runs_of()) if o.name == "out"]
    assert got.tobytes() == want.tobytes()


def branches():
    """y = x + 1 where which is 0, x * 2 where it is 1."""
    b = GraphBuilder()
    x, which = b.input("x", (2,)), b.input("which", (1,), "int32")
    zero, one = np.array([0], np.int32), np.array([1], np.int32)
    ppvs = b.cond_exec_pred(zero, one, which)
    (first,) = b.cond_exec_mark(x, ppvs[0])
    (second,) = b.cond_exec_mark(x, ppvs[1])
    more, twice = b.add(first, np.ones(1, np.float32)), b.mul(second, np.full(1, 2, np.float32))
    (y,) = b.cond_exec_merge(more, twice, mode=P.CondExecMergeMode.EXACT_ONE)
    b.output(y, "y")
    return b.graph()


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_branches_that_are_not_taken_are_left_out(backend):
    x = np.array([3, 5], np.float32)
    seen = []
    for which in (0, 1):
        feeds = {"x": x, "which": np.array([which], np.int32)}
        observed = next(observe(branches(), backend, feeds))
        assert check_declared(observed) == []
        arithmetic = [o.array.tolist() for o in observed if o.node.op.name == "Elemwise"]
        assert arithmetic == [[[4, 6]], [[6, 10]]][which]
        seen.append(len(observed))
        with Session(branches(), backend) as session:
            found = profile(session, feeds, repeat=2, peaks=False)
            assert len(found.rows) > 3
            assert session.memory(feeds).steps
    computed = [n for n in branches().nodes if n.inputs or n.op.name == "Host2DeviceCopy"]
    # The mark and the arithmetic of the other branch have no value.
    assert seen[0] == seen[1] == sum(len(n.outputs) for n in computed) - 2


# -- planted faults ------------------------------------------------------------------------------


def test_range_names_operator_place_and_value():
    observed = next(runs_of())
    observed[3].array.reshape(-1)[5] = np.nan
    observed[4].array.reshape(-1)[7] = -1e6
    first, second = check_range(observed, 1e5)
    assert observed[3].node.describe() in first
    assert first.endswith(": nan")
    assert "1 of " in second
    assert second.endswith(": -1000000.0")
    assert len(check_range(observed, 1e7)) == 1


def test_wrong_shapes_and_types_are_named():
    observed = next(runs_of())
    item = observed[2]
    wrong = type(item)(2, item.name, item.node, item.declared, item.array.astype(np.float64)[:1])
    problems = check_declared([*observed[:2], wrong])
    assert len(problems) == 2
    assert "inferred shape" in problems[0]
    assert "computed float64" in problems[1]


def test_values_that_change_between_runs_are_named():
    def changing():
        for run, observed in enumerate(runs_of()):
            observed[4].array.reshape(-1)[0] += run
            yield observed

    count, problems = check_repeated(changing(), 1, 0)
    assert count == len(next(runs_of()))
    (problem,) = problems
    assert "run 1 gives other bits than run 0" in problem
    assert check_repeated(changing(), 2, 1)[1] == []
    assert len(check_repeated(changing(), 2, 0)[1]) == 1


def test_random_operators_and_what_depends_on_them_are_left_out():
    seen = 0
    for case in iter_cases(compact_root()):
        for model in case.models()[:1]:
            try:
                graph = mgeserial.load(model.path).graph
            except mgeserial.MgeError:
                continue
            if not any("RNG" in n.op.name for n in graph.nodes):
                continue
            feeds = {n: case.arrays("inputs.npz")[n] for n in graph.input_names}
            _, problems = check_repeated(observe(graph, "reference", feeds), 1, 0)
            assert problems == []
            seen += 1
    assert seen


class Batched:
    """A session whose output depends on the batch, or not."""

    def __init__(self, function):
        self._function = function

    def run(self, feeds):
        return {"y": self._function(feeds["x"])}


def test_images_that_depend_on_the_batch_are_named():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert check_batches(Batched(lambda a: a * 2), {"x": x}) == (3, [])
    size, problems = check_batches(Batched(lambda a: a - a.mean()), {"x": x})
    assert size == 3
    assert problems[0] == "output `y`: image 0 of 3 alone gives other bits"
    with pytest.raises(InputError, match="no first dimension in common"):
        check_batches(Batched(lambda a: a), {"x": x, "y": x[:2]})


# -- dumps ---------------------------------------------------------------------------------------


def test_dump_has_all_values_and_types_without_a_number_only_in_the_index(tmp_path):
    observed = next(runs_of())
    item = observed[0]
    complex_type = TensorType(mgeserial.dtypes.DType(mgeserial.dtypes.DTypeEnum.Complex64), (2,))
    other = type(item)(99, "c", item.node, complex_type, np.zeros(2, np.complex64))
    assert dump_binary([*observed, other], str(tmp_path)) == len(observed)
    index = json.loads((tmp_path / "index.json").read_text())["values"]
    assert [v["file"] for v in index][-2:] == [f"var{observed[-1].index:06d}", None]
    for value, seen in zip(index, observed, strict=False):
        array, name = mgeserial.load_tensor_binary(tmp_path / value["file"])
        assert name == seen.name
        assert array.tobytes() == seen.array.tobytes()


def test_lines_never_carry_control_characters():
    item = next(runs_of())[0]
    evil = type(item)(0, "a\x1b[2J\n", item.node, item.declared, item.array)
    (line,) = itertools.islice(lines_of([evil]), 1)
    assert "\x1b" not in line
    assert "\n" not in line
