from __future__ import annotations

import numpy as np
import pytest
from corpus_cases import compact_root

import mgeserial
from loadrun.session import Session
from mgeserial import dtypes as D
from mgeserial.author import GraphBuilder
from mgeserial.errors import GraphError, InputError, UnsupportedError
from mgeserial.ir.graph import Metadata, input_name
from mgeserial.saving import dumps
from mgeserial.testcases import (
    Case,
    assert_outputs,
    cases_of,
    checked_name,
    make_model,
    plain_model,
    strip_asserts,
    tolerances,
)

CONTAINERS = compact_root() / "containers"
TYPES = {
    "Float32": D.FLOAT32,
    "Float16": D.FLOAT16,
    "BFloat16": D.BFLOAT16,
    "Int32": D.INT32,
    "Int8": D.INT8,
    "Uint8": D.UINT8,
    "Bool": D.BOOL,
    "QuantizedS8": D.quantized("QuantizedS8", 0.1),
    "Quantized8Asymm": D.quantized("Quantized8Asymm", 0.1, 3),
    "QuantizedS32": D.quantized("QuantizedS32", 0.01),
    "QuantizedS4": D.quantized("QuantizedS4", 0.5),
    "Quantized4Asymm": D.quantized("Quantized4Asymm", 0.5, 3),
}


def network(dtype=D.FLOAT32, outputs=("out",)):
    b = GraphBuilder()
    x = b.input("x", (2, 4))
    for k, name in enumerate(outputs):
        y = b.mul(x, 3.0 + k)
        b.output(y if dtype == D.FLOAT32 else b.type_cvt(y, dtype=dtype), name)
    return b.graph()


def feed(seed=0):
    return {"x": np.random.default_rng(seed).random((2, 4), np.float32)}


def case_for(graph, inputs):
    with Session(graph, "reference") as session:
        return Case(inputs).with_expected(session.run(inputs))


def operators(graph):
    return [(n.op.name, n.params, tuple(v.node.index for v in n.inputs)) for n in graph.nodes]


# -- the network -----------------------------------------------------------------------------------


def test_the_layout_is_that_of_0_5_1():
    checked = assert_outputs(network(), {"out": (2, 4)}, maxerr=0.25, verbose=False)
    assert checked.input_names == ("x", "out:expect")
    assert checked.inputs[1].type == checked.nodes[checked.inputs[1].node.index].outputs[0].type
    (check,) = [n for n in checked.nodes if n.op.name == "AssertEqual"]
    assert checked.outputs == check.outputs
    assert (check.param.maxerr, check.param.verbose) == (0.25, False)
    expect, real, err = check.inputs
    assert input_name(expect) == "out:expect"
    assert real.name == "out"
    # err = Reduce MAX to shape [1] of |expect - real| / max(1, min(|expect|, |real|))
    reduce = err.node
    assert (reduce.op.name, reduce.param.mode.name.rstrip("_")) == ("Reduce", "MAX")
    assert reduce.inputs[1].node.tensors[0].numpy().tolist() == [1]
    divide = reduce.inputs[0].node
    modes = [divide.param.mode.name, *(v.node.param.mode.name for v in divide.inputs)]
    assert [m.rstrip("_") for m in modes] == ["TRUE_DIV", "ABS", "MAX"]
    difference = divide.inputs[0].node.inputs[0].node
    assert difference.param.mode.name == "SUB"
    assert difference.inputs == (expect, real)
    smaller, one = divide.inputs[1].node.inputs
    assert one.node.tensors[0].numpy().tolist() == [1.0]
    assert smaller.node.param.mode.name.rstrip("_") == "MIN"
    assert {v.node.inputs[0] for v in smaller.node.inputs} == {expect, real}


def test_the_layout_has_the_operators_of_a_file_of_megengine():
    theirs = mgeserial.load(CONTAINERS / "testcases_0_5_1_assert" / "model.v1.mge").graph
    ours = assert_outputs(strip_asserts(theirs), {"out": (1, 2)})

    def counted(graph):
        return sorted(str((n.op.name, n.params)) for n in graph.nodes)

    checks = [n for n in ours.nodes if n.op.name == "AssertEqual"]
    ours.set_params(checks[0], (checks[0].param.replace(verbose=False),))
    assert counted(ours) == counted(theirs)
    assert tolerances(theirs) == tolerances(ours)


@pytest.mark.parametrize("name", TYPES)
def test_right_values_pass_and_wrong_ones_fail_for_each_type(name):
    dtype = TYPES[name]
    plain = network(dtype)
    case = case_for(plain, feed())
    checked = assert_outputs(plain, {"out": (2, 4)})
    wrong = case.expected["out"].copy()
    wrong[1, 2] = (
        ~wrong[1, 2] if name == "Bool" else wrong[1, 2] + (100 if name == "BFloat16" else 1)
    )
    with Session(checked, "reference") as session:
        assert session.check_asserts(case.arrays) == []
        (failure,) = session.check_asserts(case.with_expected({"out": wrong}).arrays)
    assert failure.output == "out"
    assert failure.index == (1, 2)
    assert failure.mismatches == 1


def test_the_error_is_that_of_real_values():
    plain = network(TYPES["QuantizedS8"])
    case = case_for(plain, feed())
    wrong = case.expected["out"] + np.int8(1)
    with Session(assert_outputs(plain, {"out": None}, maxerr=0.11), "reference") as session:
        assert session.check_asserts(case.with_expected({"out": wrong}).arrays) == []


def test_types_without_an_error_are_refused():
    b = GraphBuilder()
    b.output(b.input("x", (2,), D.COMPLEX64), "out")
    with pytest.raises(UnsupportedError, match="output 'out' is Complex64"):
        assert_outputs(b.graph(), {"out": (2,)})


def test_each_output_has_its_tolerance():
    checked = assert_outputs(network(outputs=("a", "b")), {"a": None, "b": None}, maxerr={"b": 0.5})
    assert tolerances(checked) == pytest.approx({"a": 1e-4, "b": 0.5})
    with pytest.raises(InputError, match="no output is called 'c'"):
        assert_outputs(network(), {"out": None}, maxerr={"c": 1})
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="maxerr"):
            assert_outputs(network(), {"out": None}, maxerr=bad)


def test_a_network_is_checked_once():
    checked = assert_outputs(network(), {"out": None})
    with pytest.raises(GraphError, match="checks its outputs already"):
        assert_outputs(checked, {"out": None})


def test_one_value_that_is_two_outputs_has_two_checks():
    b = GraphBuilder()
    y = b.relu(b.input("x", (2, 4)))
    b.output(y, "y")
    graph = b.graph()
    graph.set_outputs([*graph.output_list, graph.output_list[0]])
    assert graph.output_names == ("y", "y#1")
    checked = assert_outputs(graph, {"y": None, "y#1": None})
    assert checked.input_names == ("x", "y:expect", "y#1:expect")
    assert strip_asserts(checked).output_names == ("y", "y#1")
    assert [o.name for o in strip_asserts(checked).output_list] == ["y", "y"]


def test_an_output_without_a_name_gets_it_back():
    graph = network()
    graph.outputs[0].name = None
    graph.set_outputs([type(o)(o.value, None, o.original_id) for o in graph.output_list])
    checked = assert_outputs(graph, {"unnamed0": None})
    assert checked.input_names == ("x", "unnamed0:expect")
    assert strip_asserts(checked).output_list[0].name is None


def test_an_output_that_is_an_input_is_checked():
    b = GraphBuilder()
    b.output(b.input("x", (2,)), "x")
    plain = b.graph()
    checked = assert_outputs(plain, {"x": (2,)})
    x = np.ones(2, np.float32)
    with Session(checked, "reference") as session:
        assert session.check_asserts({"x": x, "x:expect": x}) == []
        assert len(session.check_asserts({"x": x, "x:expect": x + 1})) == 1
    assert operators(strip_asserts(checked)) == operators(plain)


@pytest.mark.parametrize("dtype", [D.FLOAT32, D.INT32, TYPES["QuantizedS8"]])
def test_strip_undoes_it(dtype):
    plain = network(dtype, ("a", "b"))
    plain.metadata = Metadata(True, user_info=b"hello")
    again = strip_asserts(assert_outputs(plain, {"a": (2, 4), "b": None}))
    assert operators(again) == operators(plain)
    assert again.output_names == plain.output_names
    assert again.metadata == plain.metadata
    assert dumps(plain_model(again)) == dumps(plain_model(plain))


@pytest.mark.parametrize("layout", ["0_5_1_assert", "1_13_assert"])
@pytest.mark.parametrize("tag", ["v1", "v2"])
def test_files_of_megengine_are_stripped(layout, tag):
    model = mgeserial.load(CONTAINERS / f"testcases_{layout}" / f"model.{tag}.mge")
    plain = strip_asserts(model.graph)
    assert plain.input_names == ("data",)
    assert plain.output_names == ("out",)
    assert not [n for n in plain.nodes if n.op.name in ("AssertEqual", "Elemwise:ABS")]
    assert [n for n in plain.nodes if not any(v.users for v in n.outputs)] == [plain.nodes[-1]]
    for case in cases_of(model):
        with Session(plain, "reference") as session:
            out = session.run(case.inputs)["out"]
        np.testing.assert_allclose(out, case.expected["out"], rtol=1e-5, atol=1e-6)


def test_strip_keeps_an_input_that_the_network_never_used():
    b = GraphBuilder()
    b.input("unused", (3,))
    b.output(b.relu(b.input("x", (2,))), "y")
    checked = assert_outputs(b.graph(), {"y": (2,)})
    assert strip_asserts(checked).input_names == ("unused", "x")


def test_strip_of_a_plain_network_changes_nothing():
    plain = network()
    assert operators(strip_asserts(plain)) == operators(plain)


def test_a_check_in_the_middle_is_taken_out():
    b = GraphBuilder()
    x, e = b.input("x", (2,)), b.input("y:expect", (2,))
    y = b.mul(x, 2.0, name="y")
    b.output(b.relu(b.assert_equal(e, y)), "z")
    graph = b.graph()
    assert tolerances(graph).keys() == {"y"}
    plain = strip_asserts(graph)
    assert plain.input_names == ("x",)
    assert [n.op.name for n in plain.nodes][-2:] == ["Elemwise", "Elemwise"]


def test_the_name_of_a_check_without_expected_input_is_the_values_own():
    b = GraphBuilder()
    b.output(b.assert_equal(b.input("e", (2,)), b.relu(b.input("x", (2,)), name="y")), "z")
    (check,) = [n for n in b.graph().nodes if n.op.name == "AssertEqual"]
    assert checked_name(check) == "y"


# -- the cases -------------------------------------------------------------------------------------


def written(cases, plain=None, **options):
    plain = plain or network()
    checked = assert_outputs(plain, {"out": None})
    return mgeserial.load(dumps(make_model(checked, cases), **options))


@pytest.mark.parametrize("format", ["v1", "v2", "mgbs"])
def test_cases_are_read_back(format):
    cases = [case_for(network(), feed(k)) for k in range(3)]
    model = written(cases, format=format, keep_var_name=2)
    assert model.info.testcases == 3
    assert len({g.container for g in model.info.graphs}) == 1
    for old, new in zip(cases, cases_of(model), strict=True):
        assert new.arrays.keys() == {"x", "out:expect"}
        for name, array in old.arrays.items():
            assert np.array_equal(array, new.arrays[name])
    with Session(model) as session:
        assert [session.check_asserts(c) for c in model.testcases] == [[], [], []]


def test_values_are_in_order_of_names_by_bytes():
    b = GraphBuilder()
    names = ["b", "a", "Z", "ä", "a:b"]
    total = b.input(names[0], (1,))
    for name in names[1:]:
        total = b.add(total, b.input(name, (1,)))
    b.output(total, "out")
    arrays = {n: np.full(1, i, np.float32) for i, n in enumerate(names)}
    model = mgeserial.load(dumps(make_model(b.graph(), [Case(arrays)])))
    case = model.graphs[1]
    assert [o.name for o in case.output_list] == ["Z", "a", "a:b", "b", "ä"]
    assert {n.op.name for n in case.nodes} == {"SharedDeviceTensor"}
    assert {n.tensors[0].comp_node for n in case.nodes} == {"cpux:0"}
    assert {n.tensors[0].name for n in case.nodes} == {None}
    assert {n: a.tolist() for n, a in model.testcases[0].items()} == {
        n: a.tolist() for n, a in arrays.items()
    }


def test_the_seed_is_in_the_metadata_as_plain_json():
    case = case_for(network(), feed())
    noted = Case(case.arrays, 7, {"x": "#rand(0,1)"})
    model = written([noted, case])
    info = model.graphs[1].metadata.user_info
    assert info.startswith(b"{")
    assert b'"seed": 7' in info
    assert [(c.seed, dict(c.random)) for c in cases_of(model)] == [
        (7, {"x": "#rand(0,1)"}),
        (None, {}),
    ]


@pytest.mark.parametrize(
    "info",
    [
        b"\x80\x04N.",
        b"{",
        b"{}",
        b"[1]",
        b'{"mgeserial_testcase": 1}',
        b'{"mgeserial_testcase": 1, "seed": "x"}',
        b'{"mgeserial_testcase": 1, "seed": 1, "random": 3}',
        b'{"mgeserial_testcase": 2, "seed": 1}',
        b'{"a":' * 20_000,
        b'{"\xff": 1}',
        b"{" + b" " * 100_000,
    ],
)
def test_notes_that_are_not_ours_say_nothing(info):
    model = written([case_for(network(), feed())])
    model.graphs[1].metadata = Metadata(True, user_info=info)
    (case,) = cases_of(model)
    assert case.seed is None


def test_cases_must_fit_the_network():
    checked = assert_outputs(network(), {"out": None})
    with pytest.raises(InputError, match="test case 0 has no value for 'out:expect'"):
        make_model(checked, [Case(feed())])
    case = case_for(network(), feed())
    with pytest.raises(InputError, match="test case 1 has a value for 'y'"):
        make_model(checked, [case, Case({**case.arrays, "y": np.ones(1, np.float32)})])
    with pytest.raises(InputError, match="needs one at least"):
        make_model(checked, [])


def test_quantised_inputs_keep_their_type():
    b = GraphBuilder()
    dtype = D.quantized("QuantizedS4", 0.5)
    b.output(b.type_cvt(b.input("x", (1, 3), dtype), dtype=D.FLOAT32), "out")
    codes = np.array([[-8, 0, 7]], np.int8)
    model = mgeserial.load(dumps(make_model(b.graph(), [Case({"x": codes})])))
    assert model.graphs[1].nodes[0].tensors[0].dtype == dtype
    assert np.array_equal(model.testcases[0]["x"], codes)
