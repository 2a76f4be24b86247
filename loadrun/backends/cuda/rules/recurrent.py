"""Recurrent cells and stacks of layers of float32: products, then one kernel a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import ACC, Builder, Expr
from loadrun.backends.cuda.linked import fill
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.matrix import product
from mgeserial import params as P
from mgeserial.dtypes import FLOAT32
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.cells import Stack
from mgeserial.ops.cells import Weights as CellWeights
from mgeserial.ops.recurrent import (
    LSTM_CELL_FORWARD,
    LSTM_FORWARD,
    RNN_CELL_FORWARD,
    RNN_FORWARD,
    stack_of,
)

__all__ = ["need_float32", "state", "total"]

_LSTM = """const float *at = pre + (i64)b * 4 * hidden + k;
  float in = sigmoid(at[0]), forget = sigmoid(at[hidden]);
  float fresh = tanhf(at[2 * hidden]), out = sigmoid(at[3 * hidden]);
  float cell = forget * c[i] + in * fresh, h = out * tanhf(cell);"""
_GATES = """
  for (int g = 0; g < 4; g++) gates[(i64)g * items + i] = at[g * hidden];"""
_NONLINE = {
    P.RNNCellNonlineMode.IDENTITY: "pre[i]",
    P.RNNCellNonlineMode.RELU: "greater(pre[i], 0.f)",
    P.RNNCellNonlineMode.TANH: "tanhf(pre[i])",
}
_MOST_STEPS = 4096


def _body(call: Call, lstm: bool, *, gates: bool = False) -> str:
    if lstm:
        return _LSTM + (_GATES if gates else "")
    mode = call.param.nonlineMode
    if mode not in _NONLINE:
        raise NotApplicable(f"nonlinearity {mode}")
    return f"float h = {_NONLINE[mode]}, cell = c[i];"


def total(count: int) -> Expr:
    """The accumulator plus all extras, in order."""
    b = Builder()
    total = ACC
    for k in range(count):
        total = b.op("float", "({0} + {1})", total, ("i", k))
    return b.done(total)


def need_float32(low: Lowering, node: Node) -> None:
    """Raise NotApplicable for other inputs."""
    for value in node.inputs:
        low.shape(value)
        if low.dtype(value) != FLOAT32:
            raise NotApplicable(f"only Float32 has kernels, got {low.dtype(value)}")


@lowers(RNN_CELL_FORWARD, LSTM_CELL_FORWARD)
def cell(low: Lowering, node: Node, call: Call) -> None:
    """Single cells."""
    need_float32(low, node)
    lstm = node.op.name.startswith("LSTM")
    x, wih, bih, h, whh, bhh = (low.name(v) for v in node.inputs[:6])
    (batch, depth), (_, hidden) = low.shape(node.inputs[0]), low.shape(node.inputs[3])
    rows = low.shape(node.inputs[1])[0]
    body = _body(call, lstm, gates=True)
    fed, pre = low.temp((batch, rows)), low.temp((batch, rows))
    bias = (nd.Access(bih, (0, 1)),)
    product(low, low.label(node), (x, wih), fed, (batch, depth, rows), total(1), bias)
    more = (nd.Access(fed, (rows, 1)), nd.Access(bhh, (0, 1)))
    product(low, low.label(node), (h, whh), pre, (batch, hidden, rows), total(2), more)
    # Outputs that the cell does not have, or nobody asks for, go to scratch.
    outs = [low.out(v) for v in node.outputs]
    spare = low.temp((batch, hidden))
    wide = outs[2] if len(outs) > 2 else low.temp((batch, rows))
    c = low.name(node.inputs[6]) if lstm else h
    c_out = outs[1] if len(outs) > 1 else spare
    _step(low, node, body, (pre, c), (outs[0], c_out, spare, spare, spare, wide), (batch, hidden))


def _step(
    low: Lowering,
    node: Node,
    body: str,
    reads: tuple[str, str],
    writes: tuple[str, ...],
    size: tuple[int, int],
    *,
    pitch: int = 0,
    base: int = 0,
    state: int = 0,
) -> None:
    batch, hidden = size
    items = batch * hidden
    params: tuple[nd.Param, ...] = (
        *(nd.In(n) for n in reads), *(nd.Out(n) for n in writes), items, hidden,
        pitch or hidden, base, state,
    )  # fmt: skip
    outs = tuple(dict.fromkeys(writes))
    fields = (("BODY", body),)
    low.add(nd.Custom(low.label(node), outs, "cell", fields, params, items, stem="cell"))


@dataclass(frozen=True, slots=True)
class _Layers:
    """A stack on its way: where its states begin and end."""

    stack: Stack
    body: str
    steps: int
    batch: int
    hx: str
    cx: str
    hy: str
    cy: str
    gates: str

    @property
    def size(self) -> tuple[int, int]:
        """Batch and size of a state."""
        return self.batch, self.stack.hidden


@lowers(RNN_FORWARD, LSTM_FORWARD)
def layers(low: Lowering, node: Node, call: Call) -> None:
    """Stacks of layers, forwards and backwards in time, constant weights."""
    need_float32(low, node)
    lstm = node.op.name.startswith("LSTM")
    flat = low.need_array(node.inputs[3 if lstm else 2], "the weights")
    stack = stack_of(call)
    steps, batch, depth = low.shape(node.inputs[0])
    if steps > _MOST_STEPS:
        raise NotApplicable(f"more than {_MOST_STEPS} steps")
    weights = stack.weights(np.asarray(flat, np.float32).reshape(-1))
    body = _body(call, lstm)
    x, hx = low.name(node.inputs[0]), low.name(node.inputs[1])
    cx = low.name(node.inputs[2]) if lstm else hx
    y, hy = low.out(node.outputs[0]), low.out(node.outputs[1])
    states = low.shape(node.inputs[1])
    cy = low.out(node.outputs[2]) if lstm else low.temp(states)
    for reserve in node.outputs[3 if lstm else 2 :]:
        if reserve.users or reserve in low.graph.outputs:
            # Its contents are the operator's own affair; gradients compute it again.
            fill(low, node, low.out(reserve), math.prod(low.shape(reserve)), 0)
    plan = _Layers(stack, body, steps, batch, hx, cx, hy, cy, low.temp((1,)))
    width = stack.directions * stack.hidden
    for layer in range(stack.layers):
        to = y if layer == stack.layers - 1 else low.temp((steps, batch, width))
        for direction in range(stack.directions):
            k = layer * stack.directions + direction
            _direction(low, node, plan, weights[k], (x, depth), to, k, direction)
        x, depth = to, width


def _direction(
    low: Lowering,
    node: Node,
    plan: _Layers,
    weights: CellWeights,
    source: tuple[str, int],
    to: str,
    k: int,
    direction: int,
) -> None:
    """One direction of one layer."""
    x, depth = source
    batch, hidden = plan.size
    rows = weights.hh.shape[0]
    fed = low.temp((plan.steps * batch, rows))
    whole = low.temp((plan.steps * batch, depth))
    low.add(nd.Alias(low.label(node), (whole,), x))
    extras: tuple[nd.Access, ...] = ()
    if weights.bias_ih is not None and weights.bias_hh is not None:
        bias = low.constant(np.ascontiguousarray(weights.bias_ih + weights.bias_hh))
        extras = (nd.Access(bias, (0, 1)),)
    ih = low.constant(np.ascontiguousarray(weights.ih))
    hh = low.constant(np.ascontiguousarray(weights.hh))
    product(
        low, low.label(node), (whole, ih), fed, (plan.steps * batch, depth, rows),
        total(len(extras)), extras,
    )  # fmt: skip
    h, c = (state(low, node, n, k, plan.size) for n in (plan.hx, plan.cx))
    width = plan.stack.directions * hidden
    for t in range(plan.steps):
        at = plan.steps - 1 - t if direction else t
        pre, h_new, c_new = (low.temp((batch, n)) for n in (rows, hidden, hidden))
        step = (nd.Access(fed, (rows, 1), at * batch * rows),)
        product(low, low.label(node), (h, hh), pre, (batch, hidden, rows), total(1), step)
        writes = (h_new, c_new, to, plan.hy, plan.cy, plan.gates)
        _step(
            low, node, plan.body, (pre, c), writes, plan.size,
            pitch=width, base=at * batch * width + direction * hidden,
            state=k * math.prod(plan.size),
        )  # fmt: skip
        h, c = h_new, c_new


def state(low: Lowering, node: Node, name: str, k: int, size: tuple[int, int]) -> str:
    """State k of (layers * directions, b, h) as a tensor of its own."""
    out = low.temp(size)
    access = nd.Access(name, (size[1], 1), k * math.prod(size))
    low.add(nd.Pointwise(low.label(node), (out,), (access,), Expr((), ("i", 0))))
    return out
