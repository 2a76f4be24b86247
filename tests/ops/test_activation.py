from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one, apply_op
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial.errors import ShapeError


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_softmax_sums_to_one_along_its_axis(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    y = apply_one("Softmax", numbers(*shape) * 50, param=P.Softmax(axis=axis))
    if shape[axis]:
        np.testing.assert_allclose(y.sum(axis=axis, dtype=np.float64), 1, atol=1e-6)


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    x = np.array([[1000, 1000, -1000]], np.float32)
    np.testing.assert_array_equal(apply_one("Softmax", x, param=P.Softmax(axis=1)), [[0.5, 0.5, 0]])


def test_gradient_of_softmax() -> None:
    x, dy, param = numbers(3, 4, 2), numbers(3, 4, 2, seed=1), P.Softmax(axis=1)

    def loss(x: np.ndarray) -> float:
        return float((apply_one("Softmax", x, param=param).astype(np.float64) * dy).sum())

    grads = apply_op("SoftmaxBackward", apply_one("Softmax", x, param=param), dy, param=param)
    assert_gradient(loss, (x,), grads)


def test_softmax_names_a_wrong_axis() -> None:
    with pytest.raises(ShapeError, match="axis 2 is outside a tensor of 2 dimensions"):
        apply_one("Softmax", numbers(2, 2), param=P.Softmax(axis=2))


def test_dropout_scales_what_it_keeps_and_its_gradient_uses_the_mask() -> None:
    x, param = numbers(30, 40) + 10, P.Dropout(drop_prob=0.25, seed=7)
    y, mask = apply_op("Dropout", x, param=param, count=2)
    assert mask.shape == (1200,)
    assert 0.7 < mask.mean() < 0.8
    kept = mask.reshape(x.shape) == 1
    np.testing.assert_allclose(y, np.where(kept, x / np.float32(0.75), 0), rtol=1e-6)
    dx = apply_one("DropoutBackward", np.ones_like(x), mask, param=param)
    np.testing.assert_allclose(dx, np.where(kept, 1 / np.float32(0.75), 0), rtol=1e-6)


def test_dropout_refuses_to_drop_everything() -> None:
    with pytest.raises(ShapeError, match="below 1, got 1"):
        apply_op("Dropout", numbers(2), param=P.Dropout(drop_prob=1.0), count=2)
