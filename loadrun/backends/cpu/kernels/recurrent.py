"""One direction of one recurrent layer over all of its time steps.

The part of the pre-activations that comes from the input is computed before, for all steps at once;
here each step adds the product of the state with the recurrent weights and applies the cell. A unit
is a panel of hidden values with all their gates, of some rows of the batch, at one step. Where the
weights are large, threads share the panels of a step and meet before the next, so that each keeps
its part of the weights in its own cache.

Argument table: 0 input part (steps, batch, gates * hidden), 1 packed recurrent weights, 2 first h
and 3 first c (batch, hidden), 4 y (steps, batch, hidden), 5 last h, 6 last c, 7 taps; 3 and 6 are
unused without c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from loadrun.backends.cpu import emit_math
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target

GATES = {"lstm": 4, "relu": 1, "tanh": 1, "identity": 1}
_SHARED = 256 << 10  # bytes of weights: reading fewer takes hardly longer than meeting
_MOST_PHASES = 4096
_ACTIVATIONS: dict[str, Callable[[Func, str], str]] = {
    "relu": lambda f, x: f.fmax(x, f.const(0.0)),
    "tanh": emit_math.tanh,
    "identity": lambda f, x: x,
}


class Recurrent:
    """The kernel, its taps and how recurrent weights are packed."""

    def __init__(
        self,
        kind: str,
        steps: int,
        batch: int,
        hidden: int,
        target: Target,
        *,
        reverse: bool,
        threads: int = 1,
    ) -> None:
        """Generate the code; `kind` is a key of GATES, `reverse` walks time backwards."""
        self.kind, self.hidden, self.batch, self.target = kind, hidden, batch, target
        self.steps, self.reverse, self.gates = steps, reverse, GATES[kind]
        whole, self.rest = divmod(hidden, target.lanes)
        vectors = whole + bool(self.rest)  # of hidden values
        self.each = max(min(4 // self.gates, vectors), 1)  # of them in a panel
        self.panels = -(-vectors // self.each)
        self.nb = self.each * self.gates
        self.depth = math.gcd(hidden, micro.MAX_DEPTH)
        self.taps: Array = np.arange(0, hidden, self.depth, dtype=np.int32) * 4
        self.packed_bytes = hidden * self.panels * self.nb * target.vector_bytes
        # Rows of the batch that share a tile: the weights are read once for all of them.
        parts = -(-batch // target.tile(min(self.nb, 4)))
        self.rows = -(-batch // parts)
        groups = -(-batch // self.rows)
        self._tiles = {n: self._tile(n) for n in {self.rows, batch - (groups - 1) * self.rows}}
        f = common.entry("", target)
        p = [f.load_ptr("%args", k) for k in range(8)]
        p.append(micro.frame(f))
        step = groups * self.panels
        with f.loop("%begin", "%end") as unit:
            time, rest = f.div(unit.i, step), f.mod(unit.i, step)
            self._unit(f, p, time, f.div(rest, groups), f.mod(rest, groups))
        kernel = common.finish(
            f"recurrent_f32_{kind}",
            [*self._tiles.values(), f],
            [(f, steps * step)],
            scratch=self.rows * self.nb * target.vector_bytes,
            words=(len(self.taps), target.vector_bytes, 0, 1),  # micro.SIZES
        )
        (entry,) = kernel.entries
        if threads > 1 and step > 1 and steps <= _MOST_PHASES and self.packed_bytes >= _SHARED:
            phases = tuple(replace(entry, units=step, first=t * step) for t in range(steps))
        else:
            phases = (replace(entry, ordered=True),)
        self.kernel: Kernel = replace(kernel, entries=phases)

    def _tile(self, rows: int) -> Func:
        """States of some rows times one panel of weights, into the scratch memory."""
        out = self.nb * self.target.vector_bytes
        tile = micro.Tile(1, rows, (0, 4 * self.hidden), (0, out), self.nb, self.depth, bias=False)
        return micro.emit_tile(f"step{rows}", tile, self.target)

    def _unit(self, f: Func, p: list[str], step: Int, panel: Int, group: Int) -> None:
        """One panel of hidden values of one group of rows at one step."""
        low = f.mul(group, self.rows)
        whole, rest = divmod(self.batch, self.rows)
        if whole:
            with f.when(f.icmp("slt", group, whole)):
                self._group(f, p, step, panel, low, self.rows)
        if rest:
            with f.when(f.icmp("eq", group, whole)):
                self._group(f, p, step, panel, low, rest)

    def _group(self, f: Func, p: list[str], step: Int, panel: Int, low: Int, rows: int) -> None:
        """The same for rows [low, low + rows)."""
        hidden, vb = self.hidden, self.target.vector_bytes
        time = f.sub(self.steps - 1, step) if self.reverse else step
        before = f.add(time, 1 if self.reverse else -1)
        first, last = f.icmp("eq", step, 0), f.icmp("eq", step, self.steps - 1)

        def row_of(base: str, time: Int, row: Int, values: int = hidden) -> str:
            return f.gep(base, f.mul(f.add(f.mul(time, self.batch), row), 4 * values))

        h = _choose(f, first, row_of(p[2], 0, low), row_of(p[4], before, low))
        weights = f.gep(p[1], f.mul(panel, hidden * self.nb * vb))
        self._product(f, rows, h, weights, p[7], p[8])
        start = f.mul(panel, self.each * vb)
        # The last panel may be narrower, and its last vector partly filled.
        full = hidden // (self.each * self.target.lanes)
        with f.loop(0, rows) as r:
            row = f.add(low, r.i)
            cell = old = p[6]
            if self.kind == "lstm":
                cell = row_of(p[6], 0, row)
                old = _choose(f, first, row_of(p[3], 0, row), cell)
            places = _Places(
                f.gep("%scratch", f.mul(r.i, self.nb * vb)),
                row_of(p[0], time, row, hidden * self.gates),
                row_of(p[4], time, row),
                row_of(p[5], 0, row),
                old,
                cell,
            )
            if full:
                with f.when(f.icmp("slt", panel, full)):
                    self._cells(f, places, start, last, self.each, 0)
            if full < self.panels:
                with f.when(f.icmp("eq", panel, full)):
                    left = -(-hidden // self.target.lanes) - full * self.each
                    self._cells(f, places, start, last, left, self.rest)

    def _product(self, f: Func, rows: int, h: str, weights: str, taps: str, frame: str) -> None:
        micro.fill_frame(f, frame, w=weights, taps=taps)
        places = (h, "%scratch", frame, common.table(f))
        f.call(self._tiles[rows].name, [("ptr", v) for v in places])

    def _cells(
        self, f: Func, places: _Places, start: Int, last: str, count: int, rest: int
    ) -> None:
        """`count` vectors of hidden values, of the last one only `rest` values if that is not 0."""
        vb = self.target.vector_bytes
        found = []
        for k in range(count):
            mask = f.first_lanes(rest) if rest and k == count - 1 else ""
            at = f.add(start, k * vb)
            value = self._cell(f, places, k, at, mask)
            _put(f, value, places.out, at, mask)
            found.append((value, at, mask))
        with f.when(last):
            for value, at, mask in found:
                _put(f, value, places.last, at, mask)

    def _cell(self, f: Func, places: _Places, vector: int, at: Int, mask: str) -> str:
        """The new h of one vector; writes the new c, if there is one."""

        def gate(k: int) -> str:
            product = f.load(places.product, (k * self.each + vector) * self.target.vector_bytes)
            return f.fadd(product, _get(f, places.given, f.add(at, 4 * k * self.hidden), mask))

        if self.kind != "lstm":
            return _ACTIVATIONS[self.kind](f, gate(0))
        i, forget = emit_math.sigmoid(f, gate(0)), emit_math.sigmoid(f, gate(1))
        g, o = emit_math.tanh(f, gate(2)), emit_math.sigmoid(f, gate(3))
        c = f.fadd(f.fmul(forget, _get(f, places.old, at, mask)), f.fmul(i, g))
        _put(f, c, places.cell, at, mask)
        return f.fmul(o, emit_math.tanh(f, c))

    def pack(self, weights: Array, out: Array) -> None:
        """Write (gates * hidden, hidden) as [panel][hidden][gate][vector of the panel][lane]."""
        width = self.each * self.target.lanes
        grown = np.zeros((self.gates, self.panels * width, self.hidden), np.float32)
        grown[:, : self.hidden] = weights.reshape(self.gates, self.hidden, self.hidden)
        panels = grown.reshape(self.gates, self.panels, width, self.hidden)
        panels = panels.transpose(1, 3, 0, 2)
        out.reshape(panels.shape)[...] = panels


@dataclass(frozen=True, slots=True)
class _Places:
    """Pointers to one row at one step: product, input part, y, last h, c before and after."""

    product: str
    given: str
    out: str
    last: str
    old: str
    cell: str


def _choose(f: Func, condition: str, a: str, b: str) -> str:
    return f.op(f"select i1 {condition}, ptr {a}, ptr {b}")


def _get(f: Func, base: str, at: Int, mask: str) -> str:
    return f.load_masked(base, at, mask) if mask else f.load(base, at, align=4)


def _put(f: Func, value: str, base: str, at: Int, mask: str) -> None:
    if mask:
        f.store_masked(value, base, at, mask)
    else:
        f.store(value, base, at, align=4)
