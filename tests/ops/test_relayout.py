from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import apply_one

from mgeserial import dtypes as D
from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError

M = P.RelayoutFormatV0Mode
U8 = D.quantized("Quantized8Asymm", 0.5, 100)


def relayout(x: np.ndarray, mode: M, *, oc: int = 0, group: int = 1, **options: Any) -> np.ndarray:
    param = P.RelayoutFormat(mode=mode, oc=oc, group=group)
    return apply_one("RelayoutFormat", x, param=param, **options)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (M.NCHW_NHWC, M.NHWC_NCHW),
        (M.NCHW_NHWCD4, M.NHWCD4_NCHW),
        (M.NCHW_NHWCD4I, M.NHWCD4I_NCHW),
        (M.NCHW_NCHW88, M.NCHW88_NCHW),
        (M.NCHW_NCHW4, M.NCHW4_NCHW),
        (M.NCHW_NCHW64, M.NCHW64_NCHW),
    ],
)
@settings(max_examples=10, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 6)] * 4))
def test_there_and_back(there: M, back: M, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    found = relayout(relayout(x, there), back)
    np.testing.assert_array_equal(found[:, : shape[1]], x)
    assert not found[:, shape[1] :].any()


def test_every_mode_has_a_rule() -> None:
    shapes = [
        (4, 4, 3, 4),
        (8, 4, 3, 3),
        (8, 1, 1, 3, 3),
        (2, 8, 8, 3, 3),
        (2, 2, 3, 4, 4),
        (2, 3, 2, 2, 8),
        (1, 1, 2, 2, 64),
    ]
    done = set()
    for mode in M:
        for shape in shapes:
            with contextlib.suppress(ShapeError):
                relayout(numbers(*shape), mode)
                done.add(mode)
    assert done == set(M)


def test_groups_are_padded_one_by_one() -> None:
    x = numbers(1, 6, 1, 1)
    packed = relayout(x, M.NCHW_NCHW4, group=2)
    assert packed.reshape(2, 4).tolist() == [[1, 2, 3, 0], [4, 5, 6, 0]]
    np.testing.assert_array_equal(relayout(packed, M.NCHW4_NCHW, oc=6, group=2), x)


def test_padding_is_the_zero_point() -> None:
    x = np.full((1, 1, 1, 1), 7, np.uint8)
    assert relayout(x, M.NCHW_NCHW4, dtypes=(U8,)).reshape(-1).tolist() == [7, 100, 100, 100]


def test_uint8_is_shifted_into_quantized_values() -> None:
    x = np.array([128, 130, 0], np.uint8).reshape(1, 3, 1, 1)
    half = D.quantized("QuantizedS8", 0.5)
    y = relayout(x, M.NCHW_NCHW4_IC_SMALL, output_dtype=half)
    assert y.reshape(-1).tolist() == [0, 4, -128, 0]


def test_requantisation_on_the_way() -> None:
    x = np.array([10, -7], np.int8).reshape(1, 1, 1, 2)
    y = relayout(
        x, M.NCHW_NHWC, dtypes=(D.quantized("QuantizedS8", 0.5),),
        output_dtype=D.quantized("QuantizedS8", 1.0),
    )  # fmt: skip
    assert y.reshape(-1).tolist() == [5, -4]


def test_filters_fill_up_channels_where_the_mode_says_so() -> None:
    x = numbers(3, 2, 1, 1)
    y = relayout(x, M.NCHW_NCHW4_WEIGHT)
    assert y.shape == (4, 1, 1, 1, 4)
    assert y[1, 0, 0, 0].tolist() == [3, 4, 0, 0]
    assert relayout(numbers(4, 3, 1, 1), M.INTER_WEIGHT_DENSE).shape == (1, 1, 1, 4, 4)
    chan = relayout(numbers(8, 1, 1, 3, 3), M.INTER_WEIGHT_CHAN)
    assert chan.shape == (2, 1, 3, 3, 4)


def test_errors_say_what_the_mode_wants() -> None:
    with pytest.raises(ShapeError, match="blocks of 4, got 6"):
        relayout(numbers(1, 2, 2, 6), M.NHWC_NHWCD4)
    with pytest.raises(ShapeError, match="at most 4 channels, got 5"):
        relayout(numbers(1, 5, 2, 2), M.NCHW_NCHW4_IC_SMALL)
    with pytest.raises(ShapeError, match="do not make 4 groups"):
        relayout(numbers(1, 6, 2, 2), M.NCHW_NCHW4, group=4)
    with pytest.raises(ShapeError, match="output channels in blocks of 8, got 4"):
        relayout(numbers(4, 8, 1, 1), M.NCHW_NCHW88_CONV_DENSE_WEIGHT)
    with pytest.raises(UnsupportedError, match="does not convert Float32 to QuantizedS8"):
        relayout(numbers(1, 1, 1, 1), M.NCHW_NHWC, output_dtype=D.quantized("QuantizedS8", 1.0))
    with pytest.raises(UnsupportedError, match="mode UNKNOWN_77 is not known"):
        relayout(numbers(1, 1, 1, 1), M(77))
