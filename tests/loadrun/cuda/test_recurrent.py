"""Gradients of recurrent layers against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_check import check, graph_of

from mgeserial import params as P

pytestmark = pytest.mark.usefixtures("device")


def _inputs(gates: int, layers: int, both: bool, bias: bool) -> list[np.ndarray[Any, Any]]:
    """x, y, hx, cx, dy, dhy, dcy and the flat weights of 4 steps of a batch of 3."""
    random = np.random.default_rng(layers)
    steps, batch, depth, hidden = 4, 3, 5, 6
    directions = 2 if both else 1
    rows, width = gates * hidden, directions * hidden
    count = sum(
        directions * rows * ((depth if k == 0 else width) + hidden + 2 * bias)
        for k in range(layers)
    )
    states, sequence = (layers * directions, batch, hidden), (steps, batch, width)
    shapes = [(steps, batch, depth), sequence, states, states, sequence, states, states, (count,)]
    return [random.standard_normal(s).astype(np.float32) * np.float32(0.5) for s in shapes]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("layers", "both", "bias"), [(1, False, True), (2, True, True), (2, False, False)]
)
def test_gradients_of_lstm_agree(layers: int, both: bool, bias: bool, constant: bool) -> None:
    arrays = _inputs(4, layers, both, bias)
    param = P.LSTM(num_layers=layers, bidirectional=both, bias=bias, hidden_size=6)
    feeds = [*arrays, np.zeros(10, np.float32)]
    graph = graph_of("LSTMBackward", feeds, param, constant=[7] if constant else [])
    given = [a for k, a in enumerate(feeds) if k != 7 or not constant]
    check(graph, given, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", list(P.RNNCellNonlineMode)[:3])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
def test_gradients_of_plain_layers_agree(
    mode: P.RNNCellNonlineMode, layers: int, both: bool
) -> None:
    x, y, hx, _, dy, dhy, _, flat = _inputs(1, layers, both, True)
    param = P.RNN(num_layers=layers, bidirectional=both, bias=True, hidden_size=6, nonlineMode=mode)
    feeds = [x, y, hx, dy, dhy, flat, np.zeros(10, np.float32)]
    check(graph_of("RNNBackward", feeds, param), feeds, rtol=1e-4, atol=1e-5)


def test_reserve_of_the_forward_layers_can_be_asked_for() -> None:
    x, _, hx, cx, _, _, _, flat = _inputs(4, 1, False, True)
    param = P.LSTM(num_layers=1, bias=True, hidden_size=6)
    feeds = [x, hx, cx, flat]
    graph = graph_of("LSTMForward", feeds, param, constant=[3])
    check(graph, feeds[:3], rtol=1e-5, atol=1e-6)
