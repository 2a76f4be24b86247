from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import apply_one, apply_op
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops.cells import Elman, Lstm, Stack

MODES = list(P.RNNCellNonlineMode)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 2


def flat(gates: int, layers: int, two: bool, bias: bool, inputs: int, hidden: int) -> np.ndarray:
    cell = Lstm() if gates == 4 else Elman(MODES[0])
    size = Stack(cell, layers, 1 + two, inputs, hidden, bias).weight_size
    return numbers(gates * hidden, size // (gates * hidden), seed=5)


def test_an_lstm_of_one_step_is_its_cell() -> None:
    x, h, c = numbers(1, 2, 4), numbers(1, 2, 3, seed=1), numbers(1, 2, 3, seed=2)
    w = flat(4, 1, False, True, 4, 3)
    param = P.LSTM(hidden_size=3)
    y, hy, cy, reserve = apply_op("LSTMForward", x, h, c, w, param=param, count=4)
    one = w.reshape(-1)
    parts = (one[:48].reshape(12, 4), one[84:96], h[0], one[48:84].reshape(12, 3), one[96:])
    h1, c1, gates = apply_op("LSTMCellForward", x[0], *parts, c[0], param=P.Empty(), count=3)
    np.testing.assert_allclose(y[0], h1, atol=1e-6)
    np.testing.assert_array_equal(hy[0], y[0])
    np.testing.assert_allclose(cy[0], c1, atol=1e-6)
    assert reserve.shape == (2 * 3 * 4 * 2,)
    wih, bih, _, whh, bhh = parts
    pre = x[0] @ wih.T + bih + h[0] @ whh.T + bhh
    np.testing.assert_allclose(gates.reshape(4, 2, 3)[1], pre[:, 3:6], atol=1e-6)


def test_rnn_cell_by_hand() -> None:
    x, w, h = (
        np.array([[1.0]], np.float32),
        np.array([[2.0]], np.float32),
        np.ones((1, 1), np.float32),
    )
    b = np.array([-5.0], np.float32)
    for mode, want in ((MODES[0], -5), (MODES[1], 0), (MODES[2], np.tanh(-5))):
        y = apply_one("RNNCellForward", x, w, b, h, w, b + 1, param=P.RNNCell(nonlineMode=mode))
        np.testing.assert_allclose(y, [[want]], rtol=1e-6)


def test_the_second_direction_reads_time_backwards() -> None:
    x, h = numbers(4, 2, 3), np.zeros((2, 2, 3), np.float32)
    one = numbers(18, seed=3)
    param = P.RNN(hidden_size=3, bias=False, bidirectional=True, nonlineMode=MODES[2])
    both = np.concatenate([one, one]).reshape(3, 12)
    y, hy, _ = apply_op("RNNForward", x, h, both, param=param, count=3)
    turned = apply_op("RNNForward", x[::-1].copy(), h, both, param=param, count=3)[0]
    np.testing.assert_allclose(y[..., 3:], turned[::-1, :, :3], atol=1e-6)
    np.testing.assert_array_equal(hy, np.stack([y[-1, :, :3], y[0, :, 3:]]))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.booleans(), st.booleans(), st.sampled_from(MODES))
def test_gradient_of_rnn(layers: int, two: bool, bias: bool, mode: P.RNNCellNonlineMode) -> None:
    x, h = numbers(3, 2, 4), numbers(layers * (1 + two), 2, 3, seed=1)
    w = flat(1, layers, two, bias, 4, 3)
    param = P.RNN(num_layers=layers, bidirectional=two, bias=bias, hidden_size=3, nonlineMode=mode)
    dy, dh = numbers(3, 2, 3 * (1 + two), seed=7), numbers(*h.shape, seed=8)

    def loss(x: np.ndarray, h: np.ndarray, w: np.ndarray) -> float:
        y, hy, _ = apply_op("RNNForward", x, h, w, param=param, count=3)
        return float((y.astype(np.float64) * dy).sum() + (hy.astype(np.float64) * dh).sum())

    y, _, reserve = apply_op("RNNForward", x, h, w, param=param, count=3)
    grads = apply_op("RNNBackward", x, y, h, dy, dh, w, reserve, param=param, count=3)
    # A kink of RELU within the step spoils a difference a little.
    kinks = mode == P.RNNCellNonlineMode.RELU
    assert_gradient(loss, (x, h, w), grads, tolerance=5e-2 if kinks else 1e-2)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 3), st.booleans(), st.booleans())
def test_gradient_of_lstm(layers: int, two: bool, bias: bool) -> None:
    x, h, c = (numbers(3, 2, 4), *(numbers(layers * (1 + two), 2, 3, seed=i) for i in (1, 2)))
    w = flat(4, layers, two, bias, 4, 3)
    param = P.LSTM(num_layers=layers, bidirectional=two, bias=bias, hidden_size=3)
    dy = numbers(3, 2, 3 * (1 + two), seed=7)
    dh, dc = numbers(*h.shape, seed=8), numbers(*h.shape, seed=9)

    def loss(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray) -> float:
        y, hy, cy, _ = apply_op("LSTMForward", x, h, c, w, param=param, count=4)
        pairs = ((y, dy), (hy, dh), (cy, dc))
        return float(sum((a.astype(np.float64) * b).sum() for a, b in pairs))

    y, _, _, reserve = apply_op("LSTMForward", x, h, c, w, param=param, count=4)
    grads = apply_op("LSTMBackward", x, y, h, c, dy, dh, dc, w, reserve, param=param, count=4)
    assert_gradient(loss, (x, h, c, w), grads)


def test_errors_say_what_does_not_fit() -> None:
    x, h = numbers(3, 2, 4), numbers(1, 2, 3)
    with pytest.raises(ShapeError, match="flatten_weights must have 27 elements, got 10"):
        apply_op("RNNForward", x, h, numbers(1, 10), param=P.RNN(hidden_size=3), count=3)
    layers = P.RNN(hidden_size=3, num_layers=2)
    with pytest.raises(ShapeError, match=r"hx must have shape \(2, 2, 3\)"):
        apply_op("RNNForward", x, h, numbers(1, 10), param=layers, count=3)
    projected = P.LSTM(hidden_size=3, proj_size=2)
    with pytest.raises(UnsupportedError, match="proj_size 2 is not supported"):
        apply_op("LSTMForward", x, h, h, numbers(1, 10), param=projected, count=4)
    cell = (x[0], numbers(4, 4), numbers(3), h[0], numbers(3, 3), numbers(3))
    with pytest.raises(ShapeError, match=r"weight_ih must have shape \(3, 4\)"):
        apply_one("RNNCellForward", *cell, param=P.RNNCell())
