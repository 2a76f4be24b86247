from __future__ import annotations

import json

import numpy as np
import pytest
from planted import (
    change_rounding,
    change_weight,
    fusing_backend,
    network,
    registered,
    rounding_backend,
)

import mgeserial
from loadrun.cli import main
from loadrun.compare import Speed, compare, interleaved
from loadrun.schema import validate
from loadrun.sides import Partners, Side, Values
from loadrun.stats import Stats
from mgeserial import dtypes, editing
from mgeserial.author import GraphBuilder

INPUT = np.random.default_rng(0).random((1, 4, 8, 8), np.float32)
CASES = [("here", {"data": INPUT})]


def optimised(graph):
    from mgeserial.passes.options import OptimizeOptions
    from mgeserial.passes.pipeline import optimize

    return optimize(graph, OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True))[0]


def side(label, graph, backend="reference", prepare=lambda graph: graph):
    return Side(label, f"{label}.mge", graph, backend, None, prepare)


@pytest.fixture(scope="module")
def whole():
    return network()


@pytest.fixture(scope="module")
def small():
    return network(2)


def test_network_has_the_size_of_a_real_one(whole):
    assert len(whole.nodes) > 450


@pytest.mark.parametrize(
    ("fault", "name", "says"),
    [
        (lambda g: change_weight(g, "block9.conv1.w", 4), "block9.conv1", "max abs difference 4"),
        (change_rounding, "round", "ROUND -> FLOOR"),
    ],
)
def test_planted_fault_is_named_and_cut_out_of_450_operators(whole, tmp_path, fault, name, says):
    other = network()
    fault(other)
    path = tmp_path / "part.mge"
    found = compare(side("A", whole), side("B", other), CASES, iters=0, bisect_to=str(path))
    assert not found.passed
    assert found.fault.node.display_name == name
    assert found.fault.how == "equal inputs"
    assert says in found.fault.changes[0]
    assert len(found.reduced.nodes) < 5
    assert found.reduced.reproduces
    assert len(mgeserial.load(path).testcases) == 1
    assert main([str(path), "--iter", "1", "-q"]) == 1
    assert main([found.reduced.files[1], "--iter", "1", "-q"]) == 0


def test_wrong_rounding_of_a_backend_is_named(whole, tmp_path):
    with registered(rounding_backend()) as name:
        found = compare(
            side("A", whole),
            side("B", whole, name),
            CASES,
            iters=0,
            bisect_to=str(tmp_path / "part.mge"),
        )
    assert found.fault.node.display_name == "quantise"
    assert [n.display_name for n in found.reduced.nodes] == ["quantise"]
    assert found.reduced.reproduces


def test_fault_of_fused_operators_only_is_cut_out_with_what_it_needs(small, tmp_path):
    with registered(fusing_backend()) as name:
        found = compare(
            side("A", small, prepare=optimised),
            side("B", small, name, optimised),
            CASES,
            iters=0,
            bisect_to=str(tmp_path / "part.mge"),
        )
    assert found.walk.fault is None  # operators by themselves are right
    assert found.cut.how == "fused"
    kinds = [n.op.name for n in found.reduced.nodes]
    assert kinds == ["Convolution", "BatchNorm", "Elemwise"]
    assert found.reduced.reproduces


def test_equal_networks_are_equal_to_the_bit(small):
    found = compare(side("A", small), side("B", network(2)), CASES, iters=0)
    assert found.passed
    assert all(o.close.equal_bits for o in found.outputs)
    assert found.walk is None
    assert not found.notes


def test_difference_that_inputs_do_not_show_is_told(small):
    b = GraphBuilder()
    x = b.input("x", (1, 2))
    b.output(b.mul(x, b.const(np.zeros(2, np.float32))), "y")
    graphs = [b.graph(), b.graph()]
    weight = next(n for n in graphs[1].nodes if n.tensors and n.tensors[0].has_value)
    editing.replace_weight(graphs[1], weight, np.full((2,), -0.0, np.float32))
    cases = [("here", {"x": np.zeros((1, 2), np.float32)})]
    found = compare(side("A", graphs[0]), side("B", graphs[1]), cases, iters=0)
    assert found.values()["max_abs"] == 0


def test_handed_on_difference_is_no_fault(small):
    other = network(2)
    change_weight(other, "block0.conv0.w", 2)
    found = compare(side("A", small), side("B", other), CASES, iters=0)
    assert found.fault.node.display_name == "block0.conv0"
    beyond = [row for row in found.walk.rows if row[3] > row[4]]
    assert len(beyond) > 3  # all that follows differs, one is named


def test_other_operators_for_one_value_may_round_but_not_err():
    def graph(limit):
        b = GraphBuilder()
        x = b.input("x", (1, 4))
        y = b.relu(x) if limit is None else b.elemwise(x, b.const(np.float32([limit])), mode="MAX_")
        b.output(y, "y")
        return b.graph()

    cases = [("here", {"x": np.array([[-1, 0.25, 1, 2]], np.float32)})]
    a = graph(None)
    assert compare(side("A", a), side("B", graph(0.0)), cases, iters=0).fault is None
    found = compare(side("A", a), side("B", graph(0.5)), cases, iters=0)
    assert found.fault.how == "other operators"
    assert found.fault.value.node.op.name == "Elemwise"


def test_partners_follow_wiring_and_names():
    def graph(extra):
        b = GraphBuilder()
        x = b.input("x", (1, 4))
        if extra:
            x = b.sigmoid(x)
        b.output(b.relu(x), "last")
        return b.graph()

    a, b = graph(False), graph(True)
    partners = Partners(a, b)
    # Both are the last operator, but not of the same value: only the output's name joins them.
    assert partners.get(a.outputs[0]) is b.outputs[0]
    assert partners.get(a.inputs[0]) is b.inputs[0]


def test_inputs_of_other_names_are_fed_in_order(small):
    other = network(2)
    editing.rename(other, other.inputs[0], "image")
    assert compare(side("A", small), side("B", other), CASES, iters=0).passed


def test_marked_values_are_those_of_the_operators(small):
    values = Values(side("A", small), {"data": INPUT})
    first = next(n for n in small.nodes if n.op.name == "Convolution").outputs[0]
    (array,) = values.get([first])
    assert array.shape == first.shape
    (again,) = values.get([first])
    assert again is array


def test_calls_are_timed_in_turns():
    order: list[str] = []
    clock = iter(range(0, 10_000, 10))
    a, b = interleaved(
        lambda: order.append("a"),
        lambda: order.append("b"),
        iters=4,
        warmup=1,
        clock=lambda: next(clock),
    )
    assert "".join(order) == "ab" + "abbaabba"
    assert a.samples == b.samples == (10, 10, 10, 10)
    assert len(a.warmup) == 1


def test_ratio_has_an_interval_that_holds_it():
    random = np.random.default_rng(1)
    a = Stats(tuple(int(x) for x in random.normal(2e6, 1e4, 60)))
    b = Stats(tuple(int(x) for x in random.normal(1e6, 1e4, 60)))
    speed = Speed.of(a, b)
    assert speed.low < speed.ratio < speed.high
    assert speed.ratio == pytest.approx(2, rel=0.02)
    assert speed.high - speed.low < 0.05
    assert Speed.of(a, b) == speed  # the same numbers give the same interval


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_samples_have_no_interval(count):
    stats = Stats(tuple([1000] * count))
    speed = Speed.of(stats, stats)
    assert speed.low is None
    assert (speed.ratio is None) == (count == 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    graph, other = network(1), network(1)
    change_rounding(other)
    mgeserial.save(graph, folder / "a.mge")
    mgeserial.save(other, folder / "b.mge")
    return str(folder / "a.mge"), str(folder / "b.mge")


def test_exit_codes_are_for_scripts(files, capsys):
    a, b = files
    quick = ("--iter", "5", "--backend", "reference")
    assert main([a, "--compare", a, *quick]) == 0
    assert "equal to the bit" in capsys.readouterr().out
    assert main([a, "--compare", b, *quick]) == 1
    assert '"round" (Elemwise)' in capsys.readouterr().out
    assert main([a, "--compare", b, *quick, "--max-err", "inf"]) == 0
    assert "nearly any output passes" in capsys.readouterr().out
    assert main([a, "--compare", a, *quick, "--fail-if", "ratio>0"]) == 1
    assert main([a, "--compare", a, *quick, "--fail-if", "ratio<0 and a_ms>0"]) == 0
    assert main([a, "--compare", a, *quick, "--fail-if", "speed<1"]) == 2
    assert main([a, "--compare", a, *quick, "--profile"]) == 2
    assert main([a, "--backends", "reference"]) == 2


def test_networks_without_a_value_in_common_are_compared_by_their_outputs(tmp_path, capsys):
    b = GraphBuilder()
    b.output(b.relu(b.input("x", (2, 1))), "y")
    mgeserial.save(b.graph(), tmp_path / "a.mge")
    b = GraphBuilder()
    b.output(b.mul(b.input("x", (2, 1)), np.ones((1, 3), np.float32)), "y")
    mgeserial.save(b.graph(), tmp_path / "b.mge")
    words = [str(tmp_path / "a.mge"), "--compare", str(tmp_path / "b.mge"), "--iter", "1"]
    assert main(words) == 1
    assert "shapes (2, 1) and (2, 3) differ" in capsys.readouterr().out


def test_zero_error_allowed_asks_for_equal_values(files):
    a, b = files
    assert main([a, "--compare", b, "--iter", "0", "--max-err", "0", "-q"]) == 1
    assert main([a, "--compare", a, "--iter", "0", "--max-err", "0", "-q"]) == 0


def test_document_is_as_its_schema_says(files, tmp_path, capsys):
    a, b = files
    path = tmp_path / "c.json"
    part = tmp_path / "part.mge"
    words = [a, "--compare", b, "--iter", "6", "--bisect", str(part), "--json", str(path)]
    assert main(words) == 1
    document = json.loads(path.read_text())
    assert validate(document) == []
    found = document["comparisons"][0]
    assert found["walk"]["first_at_fault"]["name"] == "round"
    assert len(found["speed"]["a_samples_ns"]) == 6
    assert document["passed"] is False


def test_test_cases_of_a_file_are_its_inputs(tmp_path, capsys):
    from mgeserial.testcases import Case, assert_outputs, make_model

    graph = network(1)
    checked = assert_outputs(graph, {"prob": (1, 10)})
    arrays = {"data": INPUT, "prob:expect": np.zeros((1, 10), np.float32)}
    path = tmp_path / "cases.mge"
    mgeserial.save(make_model(checked, [Case(arrays), Case({**arrays, "data": INPUT * 2})]), path)
    assert main([str(path), "--backends", "reference,cpu", "--iter", "2"]) == 0
    out = capsys.readouterr().out
    assert "test case 0: prob" in out
    assert "test case 1: prob" in out


def test_quantised_outputs_of_exact_operators_must_be_equal():
    def graph(mode):
        b = GraphBuilder()
        x = b.input("x", (1, 4))
        y = b.elemwise(x, mode=mode, name="rounds")
        b.output(b.type_cvt(y, dtype=dtypes.INT32), "y")
        return b.graph()

    cases = [("here", {"x": np.array([[0.5, 1.2, 1.7, -0.6]], np.float32)})]
    found = compare(side("A", graph("CEIL")), side("B", graph("ROUND")), cases, iters=0)
    assert found.fault.node.name == "rounds"
    assert not found.passed
