from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_calls import apply_one

from mgeserial import dtypes as D
from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError

M = P.ReduceMode
T = P.ReduceDataType
S8 = D.quantized("QuantizedS8", 0.5)
U8 = D.quantized("Quantized8Asymm", 0.5, 3)


def reduce(x: np.ndarray, mode: M, axis: int = 0, **options: object) -> np.ndarray:
    data_type = options.pop("data_type", T.DEFAULT)
    param = P.Reduce(mode=mode, axis=axis, data_type=data_type)
    return apply_one("Reduce", x, param=param, **options)


shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)


@given(hnp.arrays(np.int32, shapes, elements=st.integers(-50, 50)), st.data())
def test_sums_of_integers_along_any_axis(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    np.testing.assert_array_equal(reduce(x, M.SUM, axis), x.sum(axis=axis, keepdims=True))
    np.testing.assert_array_equal(reduce(x, M.MAX_, axis), x.max(axis=axis, keepdims=True))


@given(hnp.arrays(np.float32, shapes, elements=st.integers(-9, 9)), st.data())
def test_a_target_shape_reduces_what_it_makes_one(x: np.ndarray, data: st.DataObject) -> None:
    target = [n if data.draw(st.booleans()) else 1 for n in x.shape]
    target = target[data.draw(st.integers(0, x.ndim - 1)) :]
    param = P.Reduce(mode=M.SUM)
    got = apply_one("Reduce", x, np.array(target, np.int32), param=param)
    assert got.shape == tuple(target)
    assert got.sum() == x.sum()
    np.testing.assert_array_equal(np.broadcast_to(got, x.shape).shape, x.shape)


def test_integers_wrap_and_means_are_cut_toward_zero() -> None:
    assert reduce(np.array([100, 100, 100, 101], np.int8), M.SUM).tolist() == [-111]
    assert reduce(np.array([100, 101], np.int8), M.SUM_SQR).tolist() == [-23]
    assert reduce(np.array([-3, -4], np.int32), M.MEAN).tolist() == [-3]


def test_quantised_sums_saturate_and_means_round() -> None:
    codes = np.array([100, 100, 101], np.int8)
    assert reduce(codes, M.SUM, dtypes=(S8,)).tolist() == [127]
    assert reduce(np.array([1, 2], np.int8), M.MEAN, dtypes=(S8,)).tolist() == [2]
    assert reduce(np.array([-1, -2], np.int8), M.MEAN, dtypes=(S8,)).tolist() == [-2]
    wide = reduce(np.array([4, 5], np.uint8), M.SUM, dtypes=(U8,), data_type=T.QUINT_I8xO32)
    assert wide.tolist() == [3]
    with pytest.raises(UnsupportedError, match="SUM is not defined for Quantized8Asymm"):
        reduce(np.array([4, 5], np.uint8), M.SUM, dtypes=(U8,))
    with pytest.raises(UnsupportedError, match="PRODUCT is not defined for QuantizedS8"):
        reduce(codes, M.PRODUCT, dtypes=(S8,))


def test_extremes_keep_nan() -> None:
    x = np.array([1, math.nan, 3], np.float32)
    assert np.isnan(reduce(x, M.MIN_))[0]
    assert np.isnan(reduce(x, M.MAX_))[0]


def test_half_may_give_float32() -> None:
    x = np.array([1.5, 2.5, 3], np.float16)
    wide = reduce(x, M.PRODUCT, data_type=T.FLOAT_O32xC32)
    assert wide.dtype == np.float32
    assert wide.tolist() == [11.25]
    assert reduce(x, M.SUM, data_type=T.FLOAT_O16xC32).dtype == np.float16


def test_errors_name_axis_and_shapes() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match="axis 2 is outside a tensor of 2 dimensions"):
        reduce(x, M.SUM, 2)
    with pytest.raises(ShapeError, match="without a target shape an axis is needed"):
        reduce(x, M.SUM, 2147483647)
    with pytest.raises(ShapeError, match=r"cannot reduce \(2, 3\) to \(2, 2\)"):
        apply_one("Reduce", x, np.array([2, 2], np.int32), param=P.Reduce())
    with pytest.raises(ShapeError, match="empty axis"):
        reduce(np.ones((0, 3), np.float32), M.MAX_)
    with pytest.raises(UnsupportedError, match="FLOAT_IO16xC32"):
        reduce(x, M.SUM, data_type=T.FLOAT_IO16xC32)


def test_first_extreme_wins() -> None:
    x = np.array([[1, 3, 3], [0, 0, 5]], np.float32)
    assert apply_one("Argmax", x, param=P.Axis(axis=1)).tolist() == [[1], [2]]
    assert apply_one("Argmin", x, param=P.Axis(axis=-1)).tolist() == [[0], [0]]
    with pytest.raises(ShapeError, match="axis 0 of"):
        apply_one("Argmax", np.ones((0, 3), np.float32), param=P.Axis(axis=0))


@pytest.mark.parametrize(
    ("exclusive", "reverse", "want"),
    [
        (False, False, [1, 3, 6]),
        (True, False, [0, 1, 3]),
        (False, True, [6, 5, 3]),
        (True, True, [5, 3, 0]),
    ],
)
def test_running_sums(exclusive: bool, reverse: bool, want: list[int]) -> None:
    x = np.array([[1, 2, 3]], np.int32)
    param = P.Cumsum(axis=-1, exclusive=exclusive, reverse=reverse)
    assert apply_one("Cumsum", x, param=param).tolist() == [want]
