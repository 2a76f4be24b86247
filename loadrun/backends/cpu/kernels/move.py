"""Elements brought to other places by tables: permutations, windows, padding, gaps.

The source of each element of the result is a sum of one number per axis (`Moves`), so tables are as
long as the axes, not as the result; some numbers say that there is no source.
Argument table: source, outer tables one after the other, inner table, destination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.backends.cpu.kernels.index import decode
from loadrun.backends.cpu.kernels.nest import RAW, Lanes, Nest, Num, chunks
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target

NONE = -(1 << 31)  # no source
_LINE = 256  # elements that the inner table has at least, if there are as many
_LONGEST = 1 << 16  # a longer inner table is not made of several axes
_UNIT = 4096  # elements of a work unit, about


@dataclass(frozen=True, slots=True)
class Moves:
    """For each axis of the result what its coordinate adds to the source's position, or NONE."""

    tables: tuple[Array, ...] = field(repr=False)

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(len(t) for t in self.tables)

    def merged(self) -> tuple[list[Array], Array]:
        """Tables of outer axes, and one of all inner ones."""
        outer, inner = list(self.tables), np.zeros(1, np.int64)
        while outer and len(inner) < _LINE:
            longer = len(inner) * len(outer[-1])
            if len(inner) > 1 and longer > _LONGEST:
                break
            inner = added(outer.pop(), inner).reshape(-1)
        return outer, inner


def added(a: Array, b: Array) -> Array:
    """All sums of two tables, (len(a), len(b)); NONE where either is."""
    total = a.astype(np.int64)[:, None] + b
    return np.where((a == NONE)[:, None] | (b == NONE), NONE, total)


def factored(positions: Array) -> Moves | None:
    """The tables that give these positions (-1: none), or None where there are none that do."""
    found = np.argwhere(positions >= 0)
    if not len(found):
        return Moves(tuple(np.full(n, NONE, np.int64) for n in positions.shape))
    anchor = tuple(int(k) for k in found[0])
    base = int(positions[anchor])
    tables = []
    for axis in range(positions.ndim):
        along: Any = (*anchor[:axis], slice(None), *anchor[axis + 1 :])
        line = positions[along].astype(np.int64)
        exists = line >= 0
        least = int(line[exists].min())
        tables.append(np.where(exists, line - least, NONE))
        base += least - int(positions[anchor])
    if base:
        tables[0] = np.where(tables[0] == NONE, NONE, tables[0] + base)
    total: Array = np.zeros(1, np.int64)
    for table in tables:
        total = added(total, table).reshape(-1)
    total = np.where(total == NONE, -1, total)
    return Moves(tuple(tables)) if (total == positions.reshape(-1)).all() else None


def move(moves: Moves, fill: int, itemsize: int, target: Target) -> Kernel:
    """Elements of `itemsize` bytes; `fill` is the integer with the bits of what has no source."""
    outer, inner = moves.merged()
    n, lines = len(inner), math.prod(len(t) for t in outer)
    raw = RAW[itemsize]
    nest = Nest((raw, "int32", "int32", raw), target)
    x, tables, steps, y = nest.arrays
    gaps = bool((inner == NONE).any()) or any((t == NONE).any() for t in outer)
    rows = max(1, _UNIT // n)
    with nest.each_unit(chunks(lines, rows)) as unit:
        low = unit * rows
        with nest.loop(low, nest.minimum(low + rows, lines)) as line:
            base: Num = nest.number(0, "i64")
            first = 0
            good: Num = nest.number(1, "i1")
            for table, c in zip(outer, decode(line.i, [len(t) for t in outer]), strict=True):
                step = tables[c + first]
                first += len(table)
                if (table == NONE).any():
                    good = good & (step >= 0)
                    step = nest.maximum(step, 0)
                base = base + step

            def elements(p: Lanes, base: Num = base, good: Num = good, at: Num = line.i) -> None:
                to = y.move(at * n)
                place = steps.line(p)
                if not gaps:
                    to.put(p, x[place + base])
                    return
                exists = (place >= 0) & nest.splat(good)
                found = x[nest.select(exists, place + base, 0)]
                to.put(p, nest.select(exists, found, fill))

            nest.lines(n, elements)
    return nest.finish(f"move_{itemsize}byte")


def table_of(outer: Sequence[Array]) -> Array:
    """The outer tables as the kernel reads them."""
    return np.concatenate([np.zeros(1, np.int64), *outer])[1:] if outer else np.zeros(1, np.int64)
