"""Loops over elementwise expressions: broadcast contiguous arrays, and blocked images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.backends.cpu import expr as ex
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Kernel, Rows
from loadrun.backends.cpu.target import Target

_CHUNK = 4096  # elements of a work unit


def broadcast_strides(shape: Sequence[int], out: Sequence[int]) -> list[int]:
    """Strides in elements of a contiguous array seen with the shape `out`, right aligned."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step if size != 1 else 0)
        step *= size
    strides += [0] * (len(out) - len(shape))
    return strides[::-1]


def collapse(
    out: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Join neighbouring dimensions that every operand walks as one; drops dimensions of 1."""
    dims: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for k, size in enumerate(out):
        if size == 1:
            continue
        if dims and all(s[-1] == t[k] * size for s, t in zip(kept, strides, strict=True)):
            dims[-1] *= size
            for s, t in zip(kept, strides, strict=True):
                s[-1] = t[k]
        else:
            dims.append(size)
            for s, t in zip(kept, strides, strict=True):
                s.append(t[k])
    return (dims, kept) if dims else ([1], [[0] for _ in strides])


@dataclass(frozen=True, slots=True)
class Walk:
    """Loops over arrays: outer dimensions by work units, the innermost one in chunks.

    Attributes:
        dims: Joined dimensions, the innermost one last.
        strides: For each array its strides, in elements.
        sizes: For each array the bytes of an element.
    """

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls, dims: Sequence[int], strides: Sequence[Sequence[int]], sizes: Sequence[int]
    ) -> Walk:
        """The loops over arrays of one shape with these strides."""
        joined, kept = collapse(dims, strides)
        return cls(tuple(joined), tuple(map(tuple, kept)), tuple(sizes))

    @property
    def inner(self) -> int:
        """Size of the innermost dimension."""
        return self.dims[-1]

    @property
    def steps(self) -> list[int]:
        """Strides of the innermost dimension."""
        return [s[-1] for s in self.strides]

    @property
    def units(self) -> int:
        """Number of work units."""
        return math.prod(self.dims[:-1]) * self._chunks

    @property
    def _chunks(self) -> int:
        return -(-self.inner // _CHUNK)

    def stretch(self, f: Func, unit: Int, pointers: Sequence[str]) -> tuple[list[str], Int, Int]:
        """Where a unit's row begins in each array, and which part of the row is the unit's."""
        row, chunk = f.div(unit, self._chunks), f.mod(unit, self._chunks)
        bases, rest = list(pointers), row
        for k in range(len(self.dims) - 2, -1, -1):
            size = self.dims[k]
            index, rest = (f.mod(rest, size), f.div(rest, size)) if k else (rest, 0)
            bases = [
                f.gep(b, f.mul(index, item * s[k]))
                for b, s, item in zip(bases, self.strides, self.sizes, strict=True)
            ]
        low = f.mul(chunk, _CHUNK)
        high = f.min(f.add(low, _CHUNK), self.inner) if self._chunks > 1 else self.inner
        return bases, low, high


def elementwise(
    out: Sequence[int], shapes: Sequence[Sequence[int]], expr: Expr, target: Target
) -> Kernel:
    """Contiguous float32 arrays, numpy broadcasting.

    Argument table: the inputs in order, then the output. Units are chunks of the innermost
    dimension (up to 4096 elements) of each combination of the outer ones.
    """
    strides = [broadcast_strides(s, out) for s in (*shapes, out)]
    walk = Walk.of(out, strides, [4] * len(strides))
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(len(strides))]
    with f.loop("%begin", "%end") as unit:
        bases, low, high = walk.stretch(f, unit.i, p)
        steps = walk.steps
        bases = [f.gep(b, f.mul(low, 4 * s)) for b, s in zip(bases, steps, strict=True)]
        whole = walk.inner % target.lanes == 0
        _run(f, bases, steps, f.sub(high, low), expr, whole=whole)
    return common.finish(f"eltwise_f32{expr.tag()}", [f], [(f, walk.units)])


def _run(
    f: Func, bases: Sequence[str], steps: Sequence[int], count: Int, expr: Expr, *, whole: bool
) -> None:
    """One stretch of `count` elements; operands step by 1 or stay."""
    lanes = f.lanes
    fixed = [f.broadcast(b) if not s else "" for b, s in zip(bases[:-1], steps[:-1], strict=True)]

    def body(at: Int, mask: str) -> None:
        values = []
        for base, constant in zip(bases[:-1], fixed, strict=True):
            if constant:
                values.append(constant)
            elif mask:
                values.append(f.load_masked(base, at, mask))
            else:
                values.append(f.load(base, at, align=4))
        result = ex.emit(f, expr, values)
        if mask:
            f.store_masked(result, bases[-1], at, mask)
        else:
            f.store(result, bases[-1], at, align=4)

    vectors = f.div(count, lanes)
    unroll = 1 if ex.heavy(expr) else 4
    groups = f.div(vectors, unroll)
    with f.loop(0, groups) as g:
        for k in range(unroll):
            body(f.add(f.mul(g.i, unroll * 4 * lanes), k * 4 * lanes), "")
    if unroll > 1:
        with f.loop(f.mul(groups, unroll), vectors) as v:
            body(f.mul(v.i, 4 * lanes), "")
    if not whole:
        left = f.sub(count, f.mul(vectors, lanes))
        with f.when(f.icmp("sgt", left, 0)):
            body(f.mul(vectors, 4 * lanes), f.first_lanes(left))


@dataclass(frozen=True, slots=True)
class Operand:
    """How a blocked loop reads an input.

    `kind`: full (an image of the output's shape), channel (one pixel per image: an image with
    h = w = 1; n may be 1), scalar (one float), spatial (one channel, plain; n may be 1).
    """

    kind: str
    image: Image | None = None


def blocked_elementwise(
    out: Image, operands: Sequence[Operand], expr: Expr, target: Target
) -> tuple[Kernel, Rows]:
    """Blocked images; units are rows of an image, all channel blocks.

    Argument table: the inputs in order, then the output.
    """
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(len(operands) + 1)]
    lanes = [f.broadcast(p[k]) if o.kind == "scalar" else "" for k, o in enumerate(operands)]
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, out.h), f.mod(unit.i, out.h)
        with f.loop(0, out.blocks) as block:
            to = f.gep(p[-1], _at(f, out, image, block.i, row))
            bases, fixed = [], []
            for k, o in enumerate(operands):
                if o.image is None:
                    bases.append("")
                    fixed.append(lanes[k])
                    continue
                i = image if o.image.n > 1 else 0
                b: Int = block.i if o.kind != "spatial" else 0
                y: Int = row if o.kind != "channel" else 0
                base = f.gep(p[k], _at(f, o.image, i, b, y))
                bases.append(base)
                fixed.append(f.load(base) if o.kind == "channel" else "")

            def pixel(
                x: Int, to: str = to, bases: list[str] = bases, fixed: list[str] = fixed
            ) -> None:
                values = []
                for k, o in enumerate(operands):
                    if fixed[k]:
                        values.append(fixed[k])
                    elif o.kind == "spatial":
                        values.append(f.broadcast(bases[k], f.mul(x, 4)))
                    else:
                        values.append(f.load(bases[k], f.mul(x, out.pixel)))
                f.store(ex.emit(f, expr, values), to, f.mul(x, out.pixel))

            unroll = 1 if ex.heavy(expr) else 4
            groups = out.w // unroll
            if groups:
                with f.loop(0, groups) as g:
                    for k in range(unroll):
                        pixel(f.add(f.mul(g.i, unroll), k))
            for x in range(groups * unroll, out.w):
                pixel(x)
    kernel = common.finish(f"eltwise_blocked_f32{expr.tag()}", [f], [(f, out.n * out.h)])
    return kernel, Rows(out.h)


def _at(f: Func, image: Image, n: Int, block: Int, row: Int) -> Int:
    offset = f.add(f.mul(n, image.image), f.mul(block, image.block))
    return f.add(f.add(offset, f.mul(row, image.row)), image.origin)
