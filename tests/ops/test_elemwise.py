from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_calls import apply_one, apply_op

from mgeserial import dtypes as D
from mgeserial import params as P
from mgeserial.errors import ExecutionError, ShapeError, UnsupportedError
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops import functions, numerics, registry
from mgeserial.ops.rules import broadcast_known, broadcast_shapes

M = P.ElemwiseMode
MT = P.ElemwiseMultiTypeMode
S8 = D.quantized("QuantizedS8", 0.5)
S32 = D.quantized("QuantizedS32", 0.25)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def elemwise(mode: M, *arrays: np.ndarray, **options: object) -> np.ndarray:
    return apply_one("Elemwise", *arrays, param=P.Elemwise(mode=mode), **options)


def multi(mode: MT, *arrays: np.ndarray, **options: object) -> np.ndarray:
    return apply_one("ElemwiseMultiType", *arrays, param=P.ElemwiseMultiType(mode=mode), **options)


def test_every_mode_has_a_function() -> None:
    assert set(functions.FUNCTIONS) == set(M)


@pytest.mark.parametrize("mode", list(M), ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rules_agree_with_results(mode: M, data: st.DataObject) -> None:
    function = functions.FUNCTIONS[mode]
    kinds = [
        k
        for k, f in (("f4", function.real), ("i1", function.integer), ("?", function.boolean))
        if f is not None
    ]
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=function.arity, min_dims=1))
    kind = data.draw(st.sampled_from(kinds))
    arrays = [data.draw(hnp.arrays(kind, shape)) for shape in shapes.input_shapes]
    if mode in (M.FLOOR_DIV, M.MOD) and kind == "i1":
        arrays[1] = np.where(arrays[1] == 0, 1, arrays[1]).astype("i1")
    result = elemwise(mode, *arrays)
    assert result.shape == shapes.result_shape
    assert result.dtype == kind


@pytest.mark.parametrize(
    ("mode", "inputs", "want"),
    [
        (M.ROUND, (2.5,), 3.0),
        (M.MOD, (-5.5, 3.0), -2.5),
        (M.FLOOR_DIV, (-5.5, 3.0), -2.0),
        (M.ATAN2, (1.0, 0.0), math.pi / 2),
        (M.COND_LEQ_MOV, (1.0, 1.0, 7.0), 7.0),
        (M.COND_LT_MOV, (1.0, 1.0, 7.0), 0.0),
        (M.FUSE_MUL_ADD4, (2.0, 3.0, 4.0, 5.0), 26.0),
        (M.H_SWISH_GRAD, (3.5, 2.0), 2.0),
        (M.LOG_SUM_EXP, (0.0, 0.0), math.log(2)),
        (M.CLIP, (5.0, -1.0, 1.0), 1.0),
        (M.PRELU, (-2.0, 0.5), -1.0),
        (M.SIGN, (-0.1,), -1.0),
        (M.GELU, (-8.0,), -8.0 * 0.5 * math.erfc(8 / math.sqrt(2))),
        (M.ERFINV, (0.5,), 0.4769362762044699),
        (M.ERFCINV, (1e-30,), 8.14861623146198),
        (M.SOFTPLUS, (-100.0,), 3.783506e-44),
        (M.EQ, (1.0, 1.0), 1.0),
    ],
)
def test_facts_of_float_modes(mode: M, inputs: tuple[float, ...], want: float) -> None:
    (got,) = elemwise(mode, *(f32(x) for x in inputs))
    assert got == pytest.approx(want, rel=2e-6)


def test_nan_goes_the_way_of_the_x86_kernels() -> None:
    nan, one = f32(math.nan, math.nan), f32(1)
    assert elemwise(M.RELU, nan).tolist() == [0, 0]
    assert elemwise(M.RELU6, nan).tolist() == [6, 6]
    assert elemwise(M.SIGN, nan).tolist() == [0, 0]
    assert elemwise(M.CLIP, nan, f32(0), one).tolist() == [1, 1]
    for pair in ((nan, one), (one, nan)):
        assert elemwise(M.MIN_, *pair).tolist() == [1, 1]
        assert np.isnan(elemwise(M.MAX_, *pair)).all()


def test_integers_wrap_shift_and_multiply_high_as_in_c() -> None:
    i8 = np.array([100, -100], np.int8)
    assert elemwise(M.ADD, i8, i8).tolist() == [-56, 56]
    assert elemwise(M.FUSE_ADD_RELU, i8, i8).tolist() == [-56, 0]
    assert elemwise(M.SHL, np.array([-100], np.int32), np.array([-100], np.int32)) == -(2**30)
    assert elemwise(M.SHR, i8, np.array([4], np.int8)).tolist() == [6, -7]
    assert elemwise(M.RMULH, i8, i8).tolist() == [78, 78]
    low = np.array([-128], np.int8)
    assert elemwise(M.RMULH, low, low) == 127
    assert elemwise(M.MOD, np.array([-7, 7], np.int32), np.array([3, -3], np.int32)).tolist() == [
        2,
        -2,
    ]


def test_integers_become_float32_where_a_mode_knows_only_floats() -> None:
    got = elemwise(M.TRUE_DIV, np.array([1], np.int32), np.array([2], np.int32))
    assert got.dtype == np.float32
    assert got == 0.5


def test_half_is_computed_in_float32_and_rounded_once_ties_away() -> None:
    x, y = np.array([1], np.float16), np.array([2.0**-11], np.float16)
    assert elemwise(M.ADD, x, y)[0] == np.float16(1 + 2**-10)


def test_bfloat16_is_computed_in_float32() -> None:
    x = numerics.float32_to_bfloat16(f32(3))
    got = elemwise(M.MUL, x, x, dtypes=(D.BFLOAT16, D.BFLOAT16))
    assert numerics.bfloat16_to_float32(got) == 9


def test_codes_of_one_scale_can_be_added_but_not_multiplied() -> None:
    codes = np.array([5, 7], np.int32)
    assert elemwise(M.ADD, codes, codes, dtypes=(S32, S32)).tolist() == [10, 14]
    with pytest.raises(UnsupportedError, match="MUL is not defined for QuantizedS32"):
        elemwise(M.MUL, codes, codes, dtypes=(S32, S32))


def test_errors_name_the_mode_and_what_was_found() -> None:
    with pytest.raises(ShapeError, match="mode ADD needs 2 inputs, got 1"):
        elemwise(M.ADD, f32(1))
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\) do not broadcast"):
        elemwise(M.ADD, f32(1, 2), f32(1, 2, 3))
    with pytest.raises(UnsupportedError, match="mode AND is not defined for Float32"):
        elemwise(M.AND, f32(1), f32(2))
    with pytest.raises(UnsupportedError, match="mode UNKNOWN_200 is not known"):
        elemwise(M(200), f32(1))
    with pytest.raises(ExecutionError, match="MOD of integers divides by zero"):
        elemwise(M.MOD, np.array([1], np.int32), np.array([0], np.int32))


@given(hnp.mutually_broadcastable_shapes(num_shapes=3), st.data())
def test_partly_known_shapes_never_contradict_the_known_ones(
    shapes: hnp.BroadcastableShapes, data: st.DataObject
) -> None:
    holes = [tuple(None if data.draw(st.booleans()) else n for n in s) for s in shapes.input_shapes]
    got = broadcast_known(holes)
    assert got is not None
    full = broadcast_shapes(shapes.input_shapes)
    assert all(n in (None, m) for n, m in zip(got, full, strict=True))
    assert broadcast_known(shapes.input_shapes) == full
    assert broadcast_known([*holes, None]) is None


@pytest.mark.parametrize(
    ("exponent", "want"),
    [(3.0, [-8.0, 8.0]), (2.0, [4.0, 4.0]), (0.5, [math.nan, math.sqrt(2)]), (-1.0, [-0.5, 0.5])],
)
def test_powers_by_a_constant(exponent: float, want: list[float]) -> None:
    got = apply_one("PowC", f32(-2, 2), param=P.PowC(exp=exponent))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_masks_choose_and_fill() -> None:
    mask = np.array([True, False])
    assert apply_one("Where", mask, f32(1, 2), f32(3, 4)).tolist() == [1, 4]
    first, second = apply_op("WhereBackward", f32(5, 6), mask, count=2)
    assert (first.tolist(), second.tolist()) == ([5, 0], [0, 6])
    x = np.arange(4, dtype=np.int8).reshape(2, 2)
    filled = apply_one("MaskedFill", x, mask, param=P.Fill(value=-7.9))
    assert filled.tolist() == [[-7, -7], [2, 3]]
    with pytest.raises(ShapeError, match="the mask must be Bool, got Int8"):
        apply_one("Where", x, x, x)
    with pytest.raises(ShapeError, match=r"first dimensions of x, got \(1,\) and \(2, 2\)"):
        apply_one("MaskedFill", x, mask[:1], param=P.Fill())


def test_affine_int_rounds_to_even_and_saturates() -> None:
    x = np.array([1, 3, 300, -300], np.int32)
    assert apply_one("AffineInt", x, f32(0.5), f32(0)).tolist() == [0, 2, 127, -128]


def test_quantised_modes_round_once() -> None:
    a, b = np.array([3, 127], np.int8), np.array([4, 127], np.int8)
    out = D.quantized("QuantizedS8", 1.0)
    got = multi(MT.QADD, a, b, dtypes=(S8, S8), output_dtype=out)
    assert got.tolist() == [4, 127]
    with pytest.raises(ShapeError, match="mode QADD needs a quantised output dtype"):
        multi(MT.QADD, a, b, dtypes=(S8, S8))
    with pytest.raises(ShapeError, match="input 0 of mode QADD must be quantized, got Int8"):
        multi(MT.QADD, a, b, output_dtype=out)


def test_every_multi_type_mode_is_described() -> None:
    from mgeserial.ops import multitype

    assert set(multitype.MODES) == set(MT)


@pytest.mark.parametrize(("mode", "want"), [(MT.LT, [True, False]), (MT.NEQ, [True, False])])
def test_comparisons_give_bool(mode: MT, want: list[bool]) -> None:
    assert multi(mode, f32(1, 2), f32(2, 2), output_dtype=D.BOOL).tolist() == want


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 31))
def test_round_shift_is_division_rounded_away_and_saturated(x: int, k: int) -> None:
    got = multi(MT.ROUND_SHR_SATURATE_IXxI8xI16, np.array([x], np.int32), np.array([k], np.int8))
    exact = (2 * abs(x) + (1 << k)) >> (k + 1)
    want = exact if x >= 0 else -exact
    assert got == min(max(want, -32768), 32767)


def test_fused_add_multiply_high_shift() -> None:
    i16, i8 = np.int16, np.int8
    got = multi(
        MT.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8,
        np.array([1000, 32767], i16),
        np.array([24, 1], i16),
        np.array([16384], i16),
        np.array([2], i8),
        np.array([-100], i8),
        np.array([120], i8),
    )
    # (1024 * 16384 + 2**14) >> 15 = 512; 512 / 4 = 128 -> 127 -> 120. 32768 wraps to -32768.
    assert got.tolist() == [120, -100]


def test_type_conversion_says_its_target() -> None:
    got = apply_one("TypeCvt", f32(1.26, -9), param=P.ElementType(dtype=S8))
    assert got.tolist() == [3, -18]


def test_unknown_shapes_still_give_types() -> None:
    op = registry.by_name("Elemwise")
    types = (TensorType(D.INT8, None), TensorType(D.FLOAT16, (None, 3)))
    call = Call(op=op, params=(P.Elemwise(mode=M.ADD),), inputs=types)
    assert op.dtypes is not None
    assert op.shapes is not None
    assert op.dtypes(call) == [D.FLOAT16]
    assert op.shapes(call) == [None]
