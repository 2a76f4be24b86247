"""Selections of a tensor: slices and index tensors that are read at run time, taken, set or added.

A `Selection` says which element of x each position of the selection is: a strided part plus, for
each index tensor, a step times the number found there. An index outside of its axis marks the work
unit in `status` and is read as 0, or not written.

Argument tables: taking x, index tensors, y, status; putting x, value, index tensors, y, status.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadrun.backends.cpu.kernels.elementwise import collapse
from loadrun.backends.cpu.kernels.nest import RAW, Lanes, Nest, Num, Tensor, chunks
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_LINE = 2048  # elements of a work unit, about
_LEAST = 8  # elements of a line that is moved by whole vectors


@dataclass(frozen=True, slots=True)
class Lookup:
    """An index tensor: its element first + sum(coordinate * stride) is a position of an axis.

    Attributes:
        dtype: Of its elements.
        strides: For each dimension of the selection.
        size: Positions of the axis.
        step: Elements of x from one position to the next.
        wraps: Whether negative positions count from the end.
        first: First element.
    """

    dtype: str
    strides: tuple[int, ...]
    size: int
    step: int
    wraps: bool = True
    first: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected of x: `dims` positions, `steps` elements of x apart, from `offset` on."""

    dims: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int
    lookups: tuple[Lookup, ...]

    def collapsed(self) -> Selection:
        """The same with fewer dimensions, where all operands walk some as one."""
        strides = [self.steps, *(k.strides for k in self.lookups)]
        dims, (steps, *others) = collapse(self.dims, strides)
        lookups = (replace(k, strides=tuple(s)) for k, s in zip(self.lookups, others, strict=True))
        return Selection(tuple(dims), tuple(steps), self.offset, tuple(lookups))

    @property
    def in_lines(self) -> bool:
        """Whether the innermost dimension is a line of x."""
        fixed = all(k.strides[-1] == 0 for k in self.lookups)
        return fixed and self.steps[-1] == 1 and self.dims[-1] >= _LEAST

    @property
    def rows(self) -> int:
        """Lines of a work unit that works by lines."""
        return max(1, _LINE // self.dims[-1])


def take_units(selection: Selection) -> int:
    """Work units of `take`."""
    s = selection.collapsed()
    if s.in_lines:
        return chunks(math.prod(s.dims[:-1]), s.rows)
    return chunks(math.prod(s.dims))


class _Reader:
    """Turns coordinates of a selection into positions of x."""

    def __init__(
        self, nest: Nest, selection: Selection, indices: Sequence[Tensor], bad: Callable[[Num], Num]
    ) -> None:
        self.nest, self.selection, self.indices, self.bad = nest, selection, indices, bad

    def position(self, coordinates: Sequence[Num | int]) -> Num | int:
        """Element of x; `bad` gets the condition of each index that is outside."""
        s = self.selection
        at: Num | int = s.offset + _dot(coordinates, s.steps)
        for lookup, index in zip(s.lookups, self.indices, strict=True):
            found = index[_dot(coordinates, lookup.strides) + lookup.first]
            if lookup.wraps:
                found = self.nest.select(found < 0, found + lookup.size, found)
            outside = (found < 0) | (found >= lookup.size)
            at = self.nest.select(self.bad(outside), 0, found) * lookup.step + at
        return at


def _dot(coordinates: Sequence[Num | int], strides: Sequence[int]) -> Num | int:
    total: Num | int = 0
    for c, s in zip(coordinates, strides, strict=True):
        if s:
            total = c * s + total
    return total


def decode(flat: Num, dims: Sequence[int]) -> list[Num | int]:
    """Coordinates of a flat position, uniform or wide."""
    found: list[Num | int] = []
    for k in range(len(dims) - 1, -1, -1):
        found.append(flat % dims[k] if k else flat)
        if k:
            flat = flat // dims[k]
    return found[::-1]


def take(selection: Selection, itemsize: int, target: Target) -> Kernel:
    """y = the selection of x; units are parts of the selection (`take_units`)."""
    s = selection.collapsed()
    raw = RAW[itemsize]
    nest = Nest((raw, *(k.dtype for k in s.lookups), raw, "int32"), target)
    x, *indices, y, status = nest.arrays
    if not s.in_lines:

        def element(p: Lanes, unit: Num) -> None:
            reader = _Reader(nest, s, indices, lambda c: _mark(nest, c, status, unit))
            at = reader.position(decode(p.at, s.dims))
            y.put(p, x[at])

        nest.chunked(math.prod(s.dims), element, before=lambda unit: status.put(unit, 0))
        return nest.finish(f"take_{itemsize}byte")
    outer, n = math.prod(s.dims[:-1]), s.dims[-1]
    with nest.each_unit(chunks(outer, s.rows)) as unit:
        status.put(unit, 0)
        low = unit * s.rows
        with nest.loop(low, nest.minimum(low + s.rows, outer)) as row:
            reader = _Reader(nest, s, indices, lambda c: _mark(nest, c, status, unit))
            source = x.move(reader.position([*decode(row.i, s.dims[:-1]), 0]))
            to = y.move(row.i * n)
            nest.lines(n, lambda p: to.put(p, source.line(p)))
    return nest.finish(f"take_lines_{itemsize}byte")


def _mark(nest: Nest, outside: Num, status: Tensor, unit: Num) -> Num:
    with nest.when(nest.any(outside)):
        status.put(unit, 1)
    return outside


def put(selection: Selection, size: int, dtype: str, target: Target, *, add: bool) -> Kernel:
    """y = x with `value` set at the selection, or added to it, one position after the other.

    `size` is the number of elements of x, `dtype` that of its elements (a raw one unless `add`).
    The first entry copies, in parts; the second puts, on one thread: `status` has one element.
    """
    s = selection.collapsed()
    dtypes = (dtype, dtype, *(k.dtype for k in s.lookups), dtype, "int32")
    copy = Nest(dtypes, target)
    x, y = copy.arrays[0], copy.arrays[-2]
    copy.chunked(size, lambda p, _: y.put(p, x.line(p)))
    nest = Nest(dtypes, target, entry="put")
    with nest.each_unit(1):
        nest.arrays[-1].put(0, 0)
        _Put(nest, s, add).walk([], 0)
    return copy.finish(f"{'add' if add else 'set'}_{dtype}", nest)


class _Put:
    """The loops over a selection, in order."""

    def __init__(self, nest: Nest, selection: Selection, add: bool) -> None:
        self.nest, self.s, self.add = nest, selection, add
        _, self.value, *self.indices, self.y, self.status = nest.arrays
        self.lines = selection.in_lines

    def walk(self, coordinates: list[Num | int], flat: Num | int) -> None:
        """All positions that begin with these coordinates; `flat` is the first one's number."""
        depth = len(coordinates)
        if depth == len(self.s.dims) - self.lines:
            self._place(coordinates, flat)
            return
        after = math.prod(self.s.dims[depth + 1 :])
        with self.nest.loop(0, self.s.dims[depth]) as turn:
            self.walk([*coordinates, turn.i], turn.i * after + flat)

    def _place(self, coordinates: list[Num | int], flat: Num | int) -> None:
        nest = self.nest
        good = nest.number(1, "i1")

        def bad(outside: Num) -> Num:
            nonlocal good
            good = good & ~outside
            return outside

        reader = _Reader(nest, self.s, self.indices, bad)
        at = reader.position([*coordinates, *([0] if self.lines else [])])
        if not self.s.lookups:
            self._write(at, flat)
            return
        with nest.when(~good):
            self.status.put(0, 1)
        with nest.when(good):
            self._write(at, flat)

    def _write(self, at: Num | int, flat: Num | int) -> None:
        if not self.lines:
            new = self.value[flat]
            self.y.put(at, self.y[at] + new if self.add else new)
            return
        to, value = self.y.move(at), self.value.move(flat)
        self.nest.lines(
            self.s.dims[-1],
            lambda p: to.put(p, to.line(p) + value.line(p) if self.add else value.line(p)),
        )
