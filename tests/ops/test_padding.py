from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one

from mgeserial import params as P
from mgeserial.dtypes import quantized
from mgeserial.errors import ShapeError

MODES = {
    P.PaddingPaddingMode.CONSTANT: "constant",
    P.PaddingPaddingMode.REPLICATE: "edge",
    P.PaddingPaddingMode.REFLECT: "reflect",
}


def padding(
    pairs: list[tuple[int, int]], mode: P.PaddingPaddingMode, value: float = 0
) -> P.Padding:
    offsets = {f"front_offset_dim{i}": front for i, (front, _) in enumerate(pairs)}
    offsets |= {f"back_offset_dim{i}": back for i, (_, back) in enumerate(pairs)}
    return P.Padding(padding_mode=mode, padding_val=value, **offsets)  # type: ignore[arg-type]


@st.composite
def padded(draw: st.DrawFn) -> tuple[np.ndarray, list[tuple[int, int]], P.PaddingPaddingMode]:
    shape = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    pairs = [(draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))) for n in shape]
    x = np.random.default_rng(draw(st.integers(0, 9))).standard_normal(shape)
    return x.astype(np.float32), pairs, draw(st.sampled_from(list(MODES)))


@given(padded())
def test_padding_is_numpys_and_its_gradient_the_adjoint(
    case: tuple[np.ndarray, list[tuple[int, int]], P.PaddingPaddingMode],
) -> None:
    x, pairs, mode = case
    param = padding(pairs, mode)
    y = apply_one("Padding", x, param=param)
    np.testing.assert_array_equal(y, np.pad(x, pairs, mode=MODES[mode]))  # type: ignore[call-overload]
    g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    dx = apply_one("PaddingBackward", g, x, param=param)
    np.testing.assert_allclose((dx * x).sum(), (g * y).sum(), rtol=1e-3, atol=1e-4)


def test_the_padding_value_is_cut_to_an_integer() -> None:
    x = np.ones(1, np.uint8)
    y = apply_one("Padding", x, param=padding([(1, 0)], P.PaddingPaddingMode.CONSTANT, 2.6))
    np.testing.assert_array_equal(y, [2, 1])


def test_padding_says_what_does_not_fit() -> None:
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(ShapeError, match="axis 1 of length 2 is too short to reflect 2 elements"):
        apply_one("Padding", x, param=padding([(0, 0), (2, 0)], P.PaddingPaddingMode.REFLECT))
    three = padding([(0, 0), (0, 0), (1, 0)], P.PaddingPaddingMode.CONSTANT)
    with pytest.raises(ShapeError, match="more than the 2 dimensions"):
        apply_one("Padding", x, param=three)
    param = padding([(1, 0), (0, 0)], P.PaddingPaddingMode.CONSTANT)
    with pytest.raises(ShapeError, match=r"the gradient must have shape \(3, 2\)"):
        apply_one("PaddingBackward", x, x, param=param)


def test_flip_mirrors_rows_and_columns() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    both = apply_one("Flip", x, param=P.Flip(vertical=True, horizontal=True))
    np.testing.assert_array_equal(both, x[:, ::-1, ::-1])
    np.testing.assert_array_equal(apply_one("Flip", x, param=P.Flip()), x)


def test_rotation_is_clockwise_unless_told() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.uint8).reshape(1, 2, 3, 1)
    right = apply_one("Rotate", x, param=P.Rotate())
    np.testing.assert_array_equal(right[0, :, :, 0], [[4, 1], [5, 2], [6, 3]])
    back = apply_one("Rotate", np.ascontiguousarray(right), param=P.Rotate(clockwise=False))
    np.testing.assert_array_equal(back, x)
    with pytest.raises(ShapeError, match=r"images \(n, h, w, c\) are needed"):
        apply_one("Rotate", x[0], param=P.Rotate())


def test_padding_of_codes_is_in_codes() -> None:
    x = np.ones(1, np.int8)
    param = padding([(1, 0)], P.PaddingPaddingMode.CONSTANT, 2.0)
    kind = quantized("QuantizedS8", 0.5)
    np.testing.assert_array_equal(apply_one("Padding", x, param=param, dtypes=(kind,)), [2, 1])
