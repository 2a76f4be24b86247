"""Gradients of stacks of recurrent layers of float32: all steps again, then back step by step.

Tensors over all steps are in natural order of time, also for layers that run backwards in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import ACC, Builder, Expr
from loadrun.backends.cuda.flat import Piece, column_sums, joined, part
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.matrix import product
from loadrun.backends.cuda.rules.recurrent import need_float32, state, total
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.cells import Stack
from mgeserial.ops.recurrent import LSTM_BACKWARD, RNN_BACKWARD, stack_of

_MOST_STEPS = 4096
_SUMS = Expr((), ACC)
_LSTM = """const float *at = pre + (i64)b * 4 * hidden + k;
  float in = sigmoid(at[0]), forget = sigmoid(at[hidden]);
  float fresh = tanhf(at[2 * hidden]), out = sigmoid(at[3 * hidden]);
  float cell = forget * c[i] + in * fresh, squashed = tanhf(cell), h = out * squashed;
  float all[6] = {in, forget, fresh, out, c[i], squashed};
  for (int p = 0; p < 6; p++) keep[(i64)p * items] = all[p];"""
_LSTM_BACK = """float all[6];
  for (int p = 0; p < 6; p++) all[p] = keep[(i64)p * items];
  float in = all[0], forget = all[1], fresh = all[2], out = all[3], squashed = all[5];
  dc = dc + dh * out * (1.f - squashed * squashed);
  to[0] = dc * fresh * in * (1.f - in);
  to[hidden] = dc * all[4] * forget * (1.f - forget);
  to[2 * hidden] = dc * in * (1.f - fresh * fresh);
  to[3 * hidden] = dh * squashed * out * (1.f - out);
  dc = dc * forget;"""
_MODES = P.RNNCellNonlineMode
_RNN = {
    _MODES.IDENTITY: ("pre[i]", "dh"),
    _MODES.RELU: ("greater(pre[i], 0.f)", "dh * (keep[0] > 0.f ? 1.f : 0.f)"),
    _MODES.TANH: ("tanhf(pre[i])", "dh * (1.f - keep[0] * keep[0])"),
}


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of one layer: its weights, and what its steps left.

    Attributes:
        ih, hh: Weights (rows, depth) and (rows, hidden).
        places: Where ih, hh and the two biases begin in the flat weights.
        x, depth: Its input (steps, batch, depth).
        before, kept: States before each step, and the numbers of each step.
    """

    ih: str
    hh: str
    places: tuple[int, ...]
    x: str
    depth: int
    before: str
    kept: str


@dataclass(slots=True)
class _Work:
    low: Lowering
    node: Node
    call: Call
    stack: Stack
    steps: int
    batch: int

    @property
    def lstm(self) -> bool:
        return self.node.op.name.startswith("LSTM")

    @property
    def rows(self) -> int:
        """Pre-activations of an element."""
        return self.stack.cell.gates * self.stack.hidden

    @property
    def size(self) -> tuple[int, int]:
        """Shape of a state."""
        return self.batch, self.stack.hidden

    @property
    def codes(self) -> tuple[str, str, int]:
        """C code of a step and of its gradient, and planes that a step keeps."""
        if self.lstm:
            return _LSTM, _LSTM_BACK, 6
        forward, backward = _RNN[self.call.param.nonlineMode]
        return f"float h = {forward}, cell = c[i]; keep[0] = h;", f"to[0] = {backward};", 1

    def order(self, direction: int) -> range:
        """Steps in the order in which a direction takes them."""
        return range(self.steps - 1, -1, -1) if direction else range(self.steps)

    def name(self, k: int) -> str:
        return self.low.name(self.node.inputs[k])

    def product(
        self,
        operands: tuple[str, str],
        y: str,
        size: tuple[int, int, int],
        turned: tuple[bool, bool] = (False, False),
    ) -> str:
        product(self.low, self.low.label(self.node), operands, y, size, _SUMS, turned=turned)
        return y


@lowers(RNN_BACKWARD, LSTM_BACKWARD)
def layers_backward(low: Lowering, node: Node, call: Call) -> None:
    """Any number of layers and directions; weights of the run, too."""
    need_float32(low, node)
    stack = stack_of(call)
    steps, batch, _ = low.shape(node.inputs[0])
    if steps > _MOST_STEPS:
        raise NotApplicable(f"more than {_MOST_STEPS} steps")
    work = _Work(low, node, call, stack, steps, batch)
    sides = _forward(work)
    lstm = work.lstm
    dy, dhy = work.name(4 if lstm else 3), work.name(5 if lstm else 4)
    states = low.shape(node.inputs[2])
    dcy = work.name(6) if lstm else low.constant(np.zeros(states, np.float32))
    d_h = low.out(node.outputs[1])
    d_c = low.out(node.outputs[2]) if lstm else low.temp(states)
    pieces: list[Piece] = []
    for layer in reversed(range(stack.layers)):
        parts = []
        for direction in range(stack.directions):
            k = layer * stack.directions + direction
            begin = (state(low, node, dhy, k, work.size), state(low, node, dcy, k, work.size))
            every, ends = _back(work, sides[k], dy, begin, direction)
            for end, y in zip(ends, (d_h, d_c), strict=True):
                count = math.prod(work.size)
                params: list[nd.Param] = [
                    nd.In(end), nd.Out(y), count, count, count, k * count,
                ]  # fmt: skip
                low.kernel(node, "copy2d", params, count, stem="join", T="u32")
            parts.append(_gradients(work, sides[k], every, pieces))
        dy = parts[0]
        if len(parts) > 1:
            dy = _added(work, parts, (steps * batch, sides[layer * stack.directions].depth))
    low.alias(node, node.outputs[0], dy)
    joined(low, node, node.outputs[-1], pieces)


def _forward(work: _Work) -> list[_Side]:
    """Run all layers and keep what gradients need."""
    low, node, stack = work.low, work.node, work.stack
    value = node.inputs[7 if work.lstm else 5]
    numbers: Any = np.arange(stack.weight_size)  # views of them tell where the weights lie
    at = stack.weights(numbers)
    x, depth = work.name(0), stack.inputs
    width = stack.directions * stack.hidden
    sides = []
    for layer in range(stack.layers):
        to = low.temp((work.steps, work.batch, width))
        for direction in range(stack.directions):
            views = at[layer * stack.directions + direction]
            places = tuple(int(v.flat[0]) for v in views if v is not None)
            ih = part(low, node, value, places[0], work.rows * depth)
            hh = part(low, node, value, places[1], work.rows * stack.hidden)
            biases = [part(low, node, value, p, work.rows) for p in places[2:]]
            before = low.temp((work.steps, *work.size))
            kept = low.temp((work.steps, work.codes[2], *work.size))
            side = _Side(ih, hh, places, x, depth, before, kept)
            _run(work, side, biases, to, layer * stack.directions + direction)
            sides.append(side)
        x, depth = to, width
    return sides


def _run(work: _Work, side: _Side, biases: list[str], to: str, k: int) -> None:
    """All steps of one direction of one layer."""
    low, node, hidden = work.low, work.node, work.stack.hidden
    flat = work.steps * work.batch
    fed = low.temp((flat, work.rows))
    extras = tuple(nd.Access(b, (0, 1)) for b in biases)
    b = Builder()
    whole = ACC
    if extras:
        bias = b.op("float", "({0} + {1})", ("i", 0), ("i", 1))
        whole = b.op("float", "({0} + {1})", ACC, bias)
    product(
        low, low.label(node), (side.x, side.ih), fed, (flat, side.depth, work.rows), b.done(whole),
        extras,
    )  # fmt: skip
    h = state(low, node, work.name(2), k, work.size)
    c = state(low, node, work.name(3), k, work.size) if work.lstm else h
    code, _, planes = work.codes
    direction = k % work.stack.directions
    width = work.stack.directions * hidden
    for step in work.order(direction):
        pre, h_new, c_new = (low.temp((work.batch, n)) for n in (work.rows, hidden, hidden))
        access = (nd.Access(fed, (work.rows, 1), step * work.batch * work.rows),)
        size = (work.batch, hidden, work.rows)
        product(low, low.label(node), (h, side.hh), pre, size, total(1), access)
        items = math.prod(work.size)
        params: list[nd.Param] = [
            *map(nd.In, (pre, h, c)), *map(nd.Out, (h_new, c_new, to, side.before, side.kept)),
            items, hidden, width, step * work.batch * width + direction * hidden, step,
        ]  # fmt: skip
        low.kernel(node, "cell_trace", params, items, BODY=code, PLANES=planes)
        h, c = h_new, c_new


def _back(
    work: _Work, side: _Side, dy: str, begin: tuple[str, str], direction: int
) -> tuple[str, tuple[str, str]]:
    """Gradients of the pre-activations of all steps, and of the first states h and c."""
    low, node, hidden = work.low, work.node, work.stack.hidden
    every = low.temp((work.steps * work.batch, work.rows))
    dh, dc = begin
    _, code, planes = work.codes
    width = work.stack.directions * hidden
    items = math.prod(work.size)
    for step in reversed(work.order(direction)):
        d_pre, dc_old = low.temp((work.batch, work.rows)), low.temp(work.size)
        params: list[nd.Param] = [
            *map(nd.In, (dh, dy, dc, side.kept)), *map(nd.Out, (d_pre, every, dc_old)), items,
            hidden, width, step * work.batch * width + direction * hidden, step,
        ]  # fmt: skip
        low.kernel(
            node, "cell_back", params, items, BODY=code, PLANES=planes, GATES=work.stack.cell.gates
        )
        size = (work.batch, work.rows, hidden)
        dh, dc = work.product((d_pre, side.hh), low.temp(work.size), size), dc_old
    return every, (dh, dc)


def _gradients(work: _Work, side: _Side, every: str, pieces: list[Piece]) -> str:
    """The gradient of the input (steps * batch, depth); those of the weights become pieces."""
    low, node, hidden = work.low, work.node, work.stack.hidden
    flat, rows = work.steps * work.batch, work.rows
    turned = (True, False)
    by_ih = work.product(
        (every, side.x), low.temp((rows, side.depth)), (rows, flat, side.depth), turned
    )
    by_hh = work.product(
        (every, side.before), low.temp((rows, hidden)), (rows, flat, hidden), turned
    )
    pieces += [(side.places[0], by_ih, rows * side.depth), (side.places[1], by_hh, rows * hidden)]
    if len(side.places) > 2:
        bias = column_sums(low, node, every, flat, rows)
        pieces += [(place, bias, rows) for place in side.places[2:]]
    return work.product((every, side.ih), low.temp((flat, side.depth)), (flat, rows, side.depth))


def _added(work: _Work, names: list[str], shape: tuple[int, int]) -> str:
    """The sum of two tensors."""
    b = Builder()
    result = b.op("float", "({0} + {1})", ("i", 0), ("i", 1))
    accesses = tuple(nd.Access(n, nd.contiguous(shape)) for n in names)
    out = work.low.temp(shape)
    work.low.add(nd.Pointwise(work.low.label(work.node), (out,), accesses, b.done(result)))
    return out
