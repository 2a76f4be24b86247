from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one, apply_op, make_call

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import BFLOAT16, FLOAT32, DTypeEnum
from mgeserial.errors import ExecutionError, ShapeError
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import Call
from mgeserial.ops import registry
from mgeserial.ops.control import assert_errors
from mgeserial.ops.numerics import bfloat16_to_float32

MERGE = P.CondExecMergeMode


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def flag(value: int) -> np.ndarray:
    return np.array([value], np.int32)


def scalar(number: float) -> P.PersistentDTypeScalar:
    return P.PersistentDTypeScalar(dtype=DTypeEnum.Float32, storage=f32(number).tobytes())


@pytest.mark.parametrize(
    "name", ["Identity", "Copy", "MarkDynamicVar", "MarkNoBroadcastElemwise", "Sleep"]
)
def test_plumbing_passes_its_input(name: str) -> None:
    param = P.MGBSleep(seconds=1e9) if name == "Sleep" else P.Empty()
    np.testing.assert_array_equal(apply_one(name, f32(1, 2), param=param), [1, 2])


def test_constants_and_holders_give_their_tensors() -> None:
    tensors = (Tensor.of(f32(1, 2), FLOAT32), Tensor.of(np.uint16([16256]), BFLOAT16))
    op = registry.by_name("MultipleDeviceTensorHolder")
    call = Call(op=op, count=2, tensors=tensors)
    assert op.dtypes is not None
    assert op.shapes is not None
    assert op.reference is not None
    assert list(op.dtypes(call)) == [FLOAT32, BFLOAT16]
    assert list(op.shapes(call)) == [(2,), (1,)]
    first, second = op.reference(call)
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(bfloat16_to_float32(second), [1])


def test_an_input_of_length_zero_shape_has_any_shape() -> None:
    op = registry.by_name("Host2DeviceCopy")
    assert op.shapes is not None
    call = Call(op=op, tensors=(Tensor(shape=(), dtype=FLOAT32),))
    assert list(op.shapes(call)) == [None]


def test_assert_equal_returns_the_expected_value() -> None:
    expect, get = f32(1, 20), f32(1.5, 22)
    for err in ((), (f32(0.25),)):
        call = make_call("AssertEqual", expect, get, *err, param=P.AssertEqual())
        assert call.op.reference is not None
        assert call.op.reference(call, expect, get, *err) is expect


def test_the_error_is_relative_above_one_and_nan_stays() -> None:
    found = assert_errors(f32(0.5, -10, np.nan, np.inf), f32(0.25, -8, 2, np.inf))
    np.testing.assert_array_equal(found, [0.25, 0.25, np.nan, np.nan])
    assert found.dtype == np.float64
    assert assert_errors(f32(), f32()).shape == (0,)


def test_assert_equal_needs_equal_shapes() -> None:
    with pytest.raises(ShapeError, match=r"has shape \(1,\), the value checked \(2,\)"):
        apply_one("AssertEqual", f32(1), f32(1, 2), param=P.AssertEqual())


def test_add_update_goes_on_from_run_to_run() -> None:
    param = P.MGBAddUpdate(alpha=scalar(0.5), beta=scalar(2), bias=scalar(1))
    call = make_call("AddUpdate", f32(4, 8), f32(1), param=param)
    assert call.op.reference is not None
    np.testing.assert_array_equal(call.op.reference(call, f32(4, 8), f32(1)), [5, 7])
    np.testing.assert_array_equal(call.op.reference(call, f32(4, 8), f32(1)), [5.5, 6.5])


def test_check_non_finite_scales_finite_elements() -> None:
    x, y = f32(2, np.inf, np.nan), f32(4)
    a, b, found = apply_op("CheckNonFinite", x, y, param=P.CheckNonFinite(scale=0.5), count=3)
    np.testing.assert_array_equal(a, [1, np.inf, np.nan])
    np.testing.assert_array_equal(b, [2])
    np.testing.assert_array_equal(found, [1])
    np.testing.assert_array_equal(apply_one("CheckNonFinite", y, param=P.Empty()), [0])
    np.testing.assert_array_equal(apply_one("CheckHasInf", f32(np.nan), param=P.Empty()), [0])


def test_param_pack_leaves_gaps_zero() -> None:
    table = np.array([0, 2, 4, 5], np.int32)
    y = apply_one("ParamPackConcat", f32(1, 2), f32(3), table, param=P.Empty())
    np.testing.assert_array_equal(y, [1, 2, 0, 0, 3])


@pytest.mark.parametrize("table", [[0, 2, 1, 2], [0, 1, 2, 3], [0, 2, 1 << 30, (1 << 30) + 1]])
def test_a_wrong_pack_table_is_refused_before_memory_is_asked_for(table: list[int]) -> None:
    with pytest.raises(ShapeError, match=r"cannot lie at \["):
        apply_one("ParamPackConcat", f32(1, 2), f32(3), np.array(table, np.int32), param=P.Empty())


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=4, unique=True), st.integers(-4, 4))
def test_predicates_choose_branches(keys: list[int], value: int) -> None:
    arrays = [flag(k) for k in sorted(keys)]
    modes = P.CondExecPredMode
    case = apply_op(
        "CondExecPred", *arrays, flag(value), param=P.CondExecPred(mode=modes.CASE),
        count=len(keys),
    )  # fmt: skip
    assert [int(p[0]) for p in case] == [int(k == value) for k in sorted(keys)]
    for mode in (modes.CASE_FALLBACK, modes.PIECEWISE):
        ppvs = apply_op(
            "CondExecPred", *arrays, flag(value), param=P.CondExecPred(mode=mode),
            count=len(keys) + 1,
        )  # fmt: skip
        assert sum(int(p[0]) for p in ppvs) == 1
        if mode == modes.PIECEWISE:
            assert int(ppvs[sum(k <= value for k in keys)][0]) == 1


@pytest.mark.parametrize(
    ("mode", "want"),
    [("OR", 1), ("AND", 0), ("XOR", 0), ("NOR", 0), ("NAND", 1), ("XNOR", 1)],
)
def test_logic_of_predicates(mode: str, want: int) -> None:
    param = P.CondExecPredLogical(mode=P.CondExecPredLogicalMode[mode])
    y = apply_one("CondExecPredLogical", flag(1), flag(0), flag(1), param=param)
    np.testing.assert_array_equal(y, [want])


def branches(mode: P.CondExecMergeMode) -> Session:
    """y = x + 1 where which is 0, x * 2 where it is 1; other values enable neither."""
    b = GraphBuilder()
    x, which = b.input("x", (2,)), b.input("which", (1,), "int32")
    ppvs = b.cond_exec_pred(flag(0), flag(1), which)
    (first,) = b.cond_exec_mark(x, ppvs[0])
    (second,) = b.cond_exec_mark(x, ppvs[1])
    values = [b.add(first, f32(1)), b.mul(second, f32(2))]
    if mode == MERGE.SUM:
        values.append(b.const(np.array([2], np.int32)))
    if mode == MERGE.SUM_COND_OUT:
        values.append(b.cond_exec_pred_logical(*ppvs))
    (y,) = b.cond_exec_merge(*values, mode=mode)
    b.output(y, "y")
    return Session(b.graph(), "reference")


@pytest.mark.parametrize("mode", list(MERGE))
def test_only_the_enabled_branch_runs(mode: P.CondExecMergeMode) -> None:
    with branches(mode) as session:
        x = f32(3, 5)
        np.testing.assert_array_equal(session.run({"x": x, "which": flag(0)})["y"], [4, 6])
        np.testing.assert_array_equal(session.run({"x": x, "which": flag(1)})["y"], [6, 10])
        feeds = {"x": x, "which": flag(7)}
        if mode == MERGE.SUM:
            np.testing.assert_array_equal(session.run(feeds)["y"], [0, 0])
        elif mode == MERGE.SUM_COND_OUT:
            with pytest.raises(ExecutionError, match="'y' has no value: its branch"):
                session.run(feeds)
        else:
            with pytest.raises(ExecutionError, match="exactly one enabled branch of 2, got 0"):
                session.run(feeds)


def test_merge_refuses_numbers_of_inputs_that_make_no_branches() -> None:
    param = P.CondExecMerge(nr_output=2)
    with pytest.raises(ShapeError, match="2 outputs cannot have 3 inputs"):
        apply_op("CondExecMerge", f32(1), f32(1), f32(1), param=param, count=2)


def test_operators_without_meaning_here_say_why() -> None:
    for op in registry.every():
        if op.reference is None and "input" not in op.tags:
            assert any(gap.backend in ("reference", "*") for gap in op.gaps), op.name
