"""Recurrent layers and cells of float32 with constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.cells import Elman, Lstm, Stack, Weights
from mgeserial.ops.recurrent import (
    LSTM_CELL_FORWARD,
    LSTM_FORWARD,
    RNN_CELL_FORWARD,
    RNN_FORWARD,
)

_KINDS = {
    P.RNNCellNonlineMode.IDENTITY: "identity",
    P.RNNCellNonlineMode.RELU: "relu",
    P.RNNCellNonlineMode.TANH: "tanh",
}
_MOST_STEPS = 1 << 16


def _unused(low: Lowering, value: Value) -> None:
    if value.users or value in low.graph.outputs:
        raise NotApplicable("an output for training is used")


def _slice(low: Lowering, name: str, k: int, shape: tuple[int, ...]) -> str:
    """Part k along the first axis of a tensor."""
    out = low.temp(shape)
    strides = contiguous(shape)
    at = k * int(np.prod(shape))
    low.add(nd.View(low.unique("part"), (name,), (out,), strides, at))
    return out


def _reshaped(low: Lowering, name: str, shape: tuple[int, ...]) -> str:
    out = low.temp(shape)
    low.add(nd.Reshape(low.unique("shape"), (name,), (out,)))
    return out


def _layer(
    low: Lowering,
    node: Node,
    x: str,
    states: list[str],
    weights: Weights,
    kind: str,
    reverse: bool,
) -> list[str]:
    """One direction of one layer on x (s, b, i): y (s, b, h) and the last states (b, h)."""
    steps, batch, depth = low.shapes[x]
    rows, hidden = weights.hh.shape
    parts = [b for b in (weights.bias_ih, weights.bias_hh) if b is not None]
    bias: Array | None = None
    if parts:
        bias = np.sum([np.asarray(b, np.float64) for b in parts], axis=0).astype(np.float32)
    flat = _reshaped(low, x, (steps * batch, depth))
    pre = low.temp((steps * batch, rows))
    ih = np.ascontiguousarray(weights.ih.T)
    low.add(nd.Dense(low.unique(f"{node.display_name}:input"), (flat,), (pre,), ih, bias))
    outs = [low.temp((steps, batch, hidden)), *(low.temp((batch, hidden)) for _ in states)]
    low.add(
        nd.Recurrent(
            low.label(node),
            (pre, *states),
            tuple(outs),
            kind,
            np.ascontiguousarray(weights.hh),
            steps,
            batch,
            reverse,
        )
    )
    return outs


def _join(low: Lowering, names: list[str], axis: int) -> str:
    if len(names) == 1:
        return names[0]
    shape = list(low.shapes[names[0]])
    shape[axis] *= len(names)
    out = low.temp(tuple(shape))
    low.add(nd.Join(low.unique("join"), tuple(names), (out,), axis))
    return out


@lowers(LSTM_FORWARD, RNN_FORWARD)
def stack(low: Lowering, node: Node, call: Call) -> None:
    """float32, constant weights; any number of layers, one or two directions."""
    lstm = call.op.name.startswith("LSTM")
    low.need_float32(*node.inputs, *node.outputs)
    p: Any = call.param
    if getattr(p, "proj_size", 0) or (not lstm and p.nonlineMode not in _KINDS):
        raise NotApplicable("a projection or an unknown nonlinearity")
    steps, batch, inputs = low.shape(node.inputs[0])
    if steps > _MOST_STEPS:
        raise NotApplicable(f"{steps} steps")
    _unused(low, node.outputs[-1])
    flat = low.need_array(node.inputs[-1], "the weights").reshape(-1)
    kind = "lstm" if lstm else _KINDS[p.nonlineMode]
    cell = Lstm() if lstm else Elman(p.nonlineMode)
    directions = 2 if p.bidirectional else 1
    shape = Stack(cell, p.num_layers, directions, inputs, p.hidden_size, bool(p.bias))
    weights = shape.weights(np.asarray(flat, np.float32))
    x = low.name(node.inputs[0])
    given = [low.name(v) for v in node.inputs[1:-1]]
    last: list[list[str]] = [[] for _ in given]
    for layer in range(p.num_layers):
        sides = []
        for direction in range(directions):
            k = layer * directions + direction
            states = [_slice(low, g, k, (batch, p.hidden_size)) for g in given]
            y, *ends = _layer(low, node, x, states, weights[k], kind, bool(direction))
            sides.append(y)
            for part, end in zip(last, ends, strict=True):
                part.append(_reshaped(low, end, (1, batch, p.hidden_size)))
        x = _join(low, sides, 2)
    low.same(node.outputs[0], x)
    for value, parts in zip(node.outputs[1:], last, strict=False):
        low.same(value, _join(low, parts, 0))


@lowers(LSTM_CELL_FORWARD, RNN_CELL_FORWARD)
def cell(low: Lowering, node: Node, call: Call) -> None:
    """float32, constant weights: a layer of one step."""
    lstm = call.op.name.startswith("LSTM")
    low.need_float32(*node.inputs, *node.outputs)
    x, w_ih, b_ih, h, w_hh, b_hh, *more = node.inputs
    arrays = [low.need_array(v, "a weight") for v in (w_ih, w_hh, b_ih, b_hh)]
    weights = Weights(
        *(np.asarray(a, np.float32) for a in arrays[:2]),
        *(np.asarray(a, np.float32).reshape(-1) for a in arrays[2:]),
    )
    if lstm:
        _unused(low, node.outputs[2])
    elif call.param.nonlineMode not in _KINDS:
        raise NotApplicable("an unknown nonlinearity")
    kind = "lstm" if lstm else _KINDS[call.param.nonlineMode]
    batch, depth = low.shape(x)
    steps = _reshaped(low, low.name(x), (1, batch, depth))
    states = [low.name(v) for v in (h, *more)]
    _, *ends = _layer(low, node, steps, states, weights, kind, False)
    for value, name in zip(node.outputs, ends, strict=False):
        low.same(value, name)
