"""Recurrent cells and stacks of layers of them, forwards and backwards in time, with gradients.

Arrays are float32. Gates of an LSTM are in the order input, forget, cell, output.
Source: semantics section 11, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Shape

__all__ = ["Cell", "Elman", "Gradients", "Lstm", "Result", "Stack", "sigmoid"]

Float32 = npt.NDArray[np.float32]


def sigmoid(x: Float32) -> Float32:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


class Cell(Protocol):
    """One step of a recurrent layer: from pre-activations (b, gates * h) to the new state.

    `c` and its gradient mean something for an LSTM only; a plain cell passes them through.
    """

    gates: int

    def forward(self, pre: Float32, c: Float32) -> tuple[Float32, Float32, Any]:
        """New h and c, and what `backward` needs."""
        ...

    def backward(self, dh: Float32, dc: Float32, kept: Any) -> tuple[Float32, Float32]:
        """Gradients of the pre-activations and of the old c."""
        ...


class Elman:
    """h = activation(pre)."""

    gates = 1

    def __init__(self, mode: P.RNNCellNonlineMode) -> None:
        if not mode.is_known:
            raise UnsupportedError(f"nonlineMode {mode} is not known")
        self._mode = mode

    def forward(self, pre: Float32, c: Float32) -> tuple[Float32, Float32, Any]:
        """New h; c passes through."""
        modes = P.RNNCellNonlineMode
        h = pre
        if self._mode == modes.RELU:
            h = np.maximum(pre, np.float32(0))
        elif self._mode == modes.TANH:
            h = np.tanh(pre)
        return h, c, h

    def backward(self, dh: Float32, dc: Float32, kept: Any) -> tuple[Float32, Float32]:
        """Gradient of the pre-activation, from the output kept."""
        modes = P.RNNCellNonlineMode
        if self._mode == modes.RELU:
            return dh * (kept > 0), dc
        if self._mode == modes.TANH:
            return dh * (1 - kept * kept), dc
        return dh, dc


class Lstm:
    """c' = sig(f) c + sig(i) tanh(g); h' = sig(o) tanh(c')."""

    gates = 4

    def forward(self, pre: Float32, c: Float32) -> tuple[Float32, Float32, Any]:
        """New h and c."""
        i, f, g, o = np.split(pre, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        new = f * c + i * g
        squashed = np.tanh(new)
        return o * squashed, new, (i, f, g, o, c, squashed)

    def backward(self, dh: Float32, dc: Float32, kept: Any) -> tuple[Float32, Float32]:
        """Gradients of the four pre-activations, side by side, and of the old c."""
        i, f, g, o, c, squashed = kept
        dc = dc + dh * o * (1 - squashed * squashed)
        parts = (
            dc * g * i * (1 - i),
            dc * c * f * (1 - f),
            dc * i * (1 - g * g),
            dh * squashed * o * (1 - o),
        )
        return np.concatenate(parts, axis=-1), dc * f


class Weights(NamedTuple):
    """Views of one direction of one layer in the flat array of weights."""

    ih: Float32
    hh: Float32
    bias_ih: Float32 | None
    bias_hh: Float32 | None


class Trace(NamedTuple):
    """What one direction of one layer leaves for its gradient, in its order of time."""

    x: Float32
    h: Float32
    kept: list[Any]


class Result(NamedTuple):
    """y (s, b, d * h), hy and cy (l * d, b, h), and traces for the gradient."""

    y: Float32
    hy: Float32
    cy: Float32
    traces: list[Trace]


class Gradients(NamedTuple):
    """Gradients of x, the initial states and the flat weights."""

    x: Float32
    h: Float32
    c: Float32
    weights: Float32


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of recurrent cells; state l * directions + d is that of direction d of layer l.

    Attributes:
        cell: What happens in one step.
        layers: Number of layers.
        directions: 1, or 2 with one that runs backwards in time; outputs stand side by side.
        inputs: Size of an element of x.
        hidden: Size of h.
        bias: Whether weights hold the two biases.
    """

    cell: Cell
    layers: int
    directions: int
    inputs: int
    hidden: int
    bias: bool

    def _parts(self, layer: int) -> list[Shape]:
        rows = self.cell.gates * self.hidden
        depth = self.inputs if layer == 0 else self.directions * self.hidden
        return [(rows, depth), (rows, self.hidden), *([(rows,), (rows,)] if self.bias else [])]

    @property
    def weight_size(self) -> int:
        """Elements of the flat array: layer by layer, direction by direction ih, hh, biases."""
        rows, both = self.cell.gates * self.hidden, self.directions * self.hidden
        depths = self.inputs + (self.layers - 1) * both
        one = self.layers * (self.hidden + 2 * self.bias)
        return self.directions * rows * (depths + one)

    def weights(self, flat: Float32) -> list[Weights]:
        """Views of the flat array, in the order of states."""
        found, place = [], 0
        for layer in range(self.layers):
            for _ in range(self.directions):
                parts: list[Float32 | None] = []
                for shape in self._parts(layer):
                    size = int(np.prod(shape))
                    parts.append(flat[place : place + size].reshape(shape))
                    place += size
                ih, hh, *biases = parts
                bias_ih, bias_hh = biases or (None, None)
                assert ih is not None and hh is not None  # noqa: PT018 - our own layout
                found.append(Weights(ih, hh, bias_ih, bias_hh))
        return found

    def run(self, x: Float32, hx: Float32, cx: Float32, flat: Float32) -> Result:
        """Run over x (s, b, i) from the states hx and cx (l * d, b, h)."""
        weights, traces = self.weights(flat), []
        hy, cy = np.empty_like(hx), np.empty_like(cx)
        for layer in range(self.layers):
            sides = []
            for direction in range(self.directions):
                k = layer * self.directions + direction
                # A direction sees time in its own order; its outputs are turned back.
                order = x[::-1] if direction else x
                trace, hy[k], cy[k] = self._run_one(order, hx[k], cx[k], weights[k])
                traces.append(trace)
                sides.append(trace.h[:0:-1] if direction else trace.h[1:])
            x = np.concatenate(sides, axis=-1) if len(sides) > 1 else sides[0]
        return Result(x, hy, cy, traces)

    def _run_one(
        self, x: Float32, h: Float32, c: Float32, weights: Weights
    ) -> tuple[Trace, Float32, Float32]:
        steps, batch = x.shape[:2]
        fed = np.matmul(x.reshape(steps * batch, -1), weights.ih.T).reshape(steps, batch, -1)
        if weights.bias_ih is not None and weights.bias_hh is not None:
            fed += weights.bias_ih + weights.bias_hh
        states = np.empty((steps + 1, *h.shape), np.float32)
        states[0] = h
        kept = []
        for t in range(steps):
            h, c, cache = self.cell.forward(fed[t] + h @ weights.hh.T, c)
            states[t + 1] = h
            kept.append(cache)
        return Trace(x, states, kept), h, c

    def gradient(
        self, result: Result, dy: Float32, dhy: Float32, dcy: Float32, flat: Float32
    ) -> Gradients:
        """Gradients from those of y, hy and cy."""
        weights, grads = self.weights(flat), np.zeros_like(flat)
        places = self.weights(grads)
        dhx, dcx = np.empty_like(dhy), np.empty_like(dcy)
        for layer in reversed(range(self.layers)):
            dx: Float32 | None = None
            for direction in range(self.directions):
                k = layer * self.directions + direction
                part = dy[..., direction * self.hidden : (direction + 1) * self.hidden]
                part = part[::-1] if direction else part
                one, dhx[k], dcx[k] = self._gradient_one(
                    result.traces[k], part, dhy[k], dcy[k], weights[k], places[k]
                )
                one = one[::-1] if direction else one
                dx = one if dx is None else dx + one
            assert dx is not None
            dy = dx
        return Gradients(dy, dhx, dcx, grads)

    def _gradient_one(
        self,
        trace: Trace,
        dy: Float32,
        dh: Float32,
        dc: Float32,
        weights: Weights,
        place: Weights,
    ) -> tuple[Float32, Float32, Float32]:
        """Gradients of x and the initial state; those of the weights are written to `place`."""
        steps, batch = dy.shape[:2]
        dpre = np.empty((steps, batch, weights.hh.shape[0]), np.float32)
        for t in reversed(range(steps)):
            dpre[t], dc = self.cell.backward(dh + dy[t], dc, trace.kept[t])
            dh = dpre[t] @ weights.hh
        flat = dpre.reshape(steps * batch, -1)
        place.ih[...] = flat.T @ trace.x.reshape(steps * batch, -1)
        place.hh[...] = flat.T @ trace.h[:-1].reshape(steps * batch, -1)
        if place.bias_ih is not None and place.bias_hh is not None:
            place.bias_ih[...] = place.bias_hh[...] = flat.sum(axis=0, dtype=np.float64)
        return (flat @ weights.ih).reshape(trace.x.shape), dh, dc
