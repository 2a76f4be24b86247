"""One direction of one recurrent layer over all of its time steps.

The part of the pre-activations that comes from the input is computed before, for all steps at once;
here each step adds the product of the state with the recurrent weights and applies the cell. Units
are rows of the batch. Argument table: 0 input part (steps, batch, gates * hidden), 1 packed
recurrent weights, 2 first h and 3 first c (batch, hidden), 4 y (steps, batch, hidden), 5 last h,
6 last c, 7 taps; 3 and 6 are unused without c.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loadrun.backends.cpu import emit_math
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.kernels.conv import pack_panels
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target

GATES = {"lstm": 4, "relu": 1, "tanh": 1, "identity": 1}
_ACTIVATIONS: dict[str, Callable[[Func, str], str]] = {
    "relu": lambda f, x: f.fmax(x, f.const(0.0)),
    "tanh": emit_math.tanh,
    "identity": lambda f, x: x,
}


class Recurrent:
    """The kernel, its taps and how recurrent weights are packed."""

    def __init__(
        self, kind: str, steps: int, batch: int, hidden: int, target: Target, *, reverse: bool
    ) -> None:
        """Generate the code; `kind` is a key of GATES, `reverse` walks time backwards."""
        self.kind, self.hidden, self.batch, self.target = kind, hidden, batch, target
        self.steps, self.reverse = steps, reverse
        self.columns = GATES[kind] * hidden
        vectors = -(-self.columns // target.lanes)
        self.nb = min(4, vectors)
        self.panels = -(-vectors // self.nb)
        self.width = self.panels * self.nb * target.lanes  # columns with padding
        self.depth = math.gcd(hidden, micro.MAX_DEPTH)
        self.taps: Array = np.arange(0, hidden, self.depth, dtype=np.int32) * 4
        self.packed_bytes = hidden * self.width * 4
        tile = micro.Tile((0,), (0,), self.nb, self.depth, bias=False)
        self._tile = micro.emit_tile("step", tile, target)
        f = common.entry("", target)
        p = [f.load_ptr("%args", k) for k in range(8)]
        with f.loop("%begin", "%end") as row:
            self._sequence(f, p, row.i)
        scratch = 4 * (self.width + hidden + 2 * target.lanes)
        self.kernel: Kernel = common.finish(
            f"recurrent_f32_{kind}", [self._tile, f], [(f, batch)], scratch=scratch
        )

    def _sequence(self, f: Func, p: list[str], row: Int) -> None:
        """All steps of one row of the batch."""
        hidden, lstm = self.hidden, self.kind == "lstm"
        state = f.mul(row, 4 * hidden)
        pre = "%scratch"
        cell = f.gep(pre, 4 * self.width)
        if lstm:
            first = f.gep(p[3], state)
            self._each(f, lambda at, mask: _put(f, _get(f, first, at, mask), cell, at, mask))
        start = f.gep(p[2], state)
        with f.loop(0, self.steps, 1, [("ptr", start)]) as t:
            time = f.sub(self.steps - 1, t.i) if self.reverse else t.i
            place = f.add(f.mul(time, self.batch), row)
            given = f.gep(p[0], f.mul(place, 4 * self.columns))
            out = f.gep(p[4], f.mul(place, 4 * hidden))
            self._product(f, t.v[0], p[1], pre, p[7])
            self._each(f, lambda at, mask: self._cell(f, pre, given, cell, out, at, mask))
            t.next = [out]
        last = f.gep(p[5], state)
        self._each(f, lambda at, mask: _put(f, _get(f, t.out[0], at, mask), last, at, mask))
        if lstm:
            end = f.gep(p[6], state)
            self._each(f, lambda at, mask: _put(f, _get(f, cell, at, mask), end, at, mask))

    def _product(self, f: Func, h: str, weights: str, pre: str, taps: str) -> None:
        vb = self.target.vector_bytes
        with f.loop(0, self.panels) as panel:
            w = f.gep(weights, f.mul(panel.i, self.hidden * self.nb * vb))
            to = f.gep(pre, f.mul(panel.i, self.nb * vb))
            f.call(
                self._tile.name,
                [
                    ("ptr", h),
                    ("ptr", w),
                    ("ptr", w),
                    ("ptr", to),
                    ("ptr", w),
                    ("ptr", taps),
                    ("i64", len(self.taps)),
                    ("i64", vb),
                    ("i64", 0),
                    ("ptr", w),
                ],
            )

    def _cell(self, f: Func, pre: str, given: str, cell: str, out: str, at: Int, mask: str) -> None:
        def gate(k: int) -> str:
            where = f.add(at, 4 * k * self.hidden)
            return f.fadd(_get(f, pre, where, mask), _get(f, given, where, mask))

        if self.kind != "lstm":
            _put(f, _ACTIVATIONS[self.kind](f, gate(0)), out, at, mask)
            return
        i, forget = emit_math.sigmoid(f, gate(0)), emit_math.sigmoid(f, gate(1))
        g, o = emit_math.tanh(f, gate(2)), emit_math.sigmoid(f, gate(3))
        c = f.fadd(f.fmul(forget, _get(f, cell, at, mask)), f.fmul(i, g))
        _put(f, c, cell, at, mask)
        _put(f, f.fmul(o, emit_math.tanh(f, c)), out, at, mask)

    def _each(self, f: Func, body: Callable[[Int, str], None]) -> None:
        """Run `body(byte offset, mask)` over the hidden units."""
        lanes = self.target.lanes
        whole, rest = divmod(self.hidden, lanes)
        if whole:
            with f.loop(0, whole) as k:
                body(f.mul(k.i, 4 * lanes), "")
        if rest:
            body(4 * lanes * whole, f.first_lanes(rest))

    def pack(self, weights: Array) -> Array:
        """(gates * hidden, hidden) in the order the kernel reads."""
        grown = np.zeros((1, self.hidden, self.width), np.float32)
        grown[0, :, : self.columns] = weights.T
        return pack_panels(grown, self.nb * self.target.lanes)


def _get(f: Func, base: str, at: Int, mask: str) -> str:
    return f.load_masked(base, at, mask) if mask else f.load(base, at, align=4)


def _put(f: Func, value: str, base: str, at: Int, mask: str) -> None:
    if mask:
        f.store_masked(value, base, at, mask)
    else:
        f.store(value, base, at, align=4)
