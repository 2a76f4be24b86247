"""Products of matrices of integers, summed in 32 bits (they wrap).

Lanes are neighbouring columns of the result; what is left of a row is done element by element.
Argument table: 0 left (batch, m, k), 1 right (batch, k, n), 2 result (batch, m, n) of int32.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, typed
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_VECTORS = 4  # of columns that share the elements of the left row


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: its stored type, and what is taken off its elements."""

    dtype: str
    zero: int = 0


def product(left: Side, right: Side, sizes: tuple[int, int, int, int], target: Target) -> Kernel:
    """(batch, m, k) times (batch, k, n); `sizes` are batch, m, k, n. Units are rows."""
    batch, m, k, n = sizes
    f = common.entry("", target)
    a, b, c = (f.load_ptr("%args", i) for i in range(3))
    size_a, size_b = (typed.STORED[s.dtype].size for s in (left, right))

    def columns(row: str, base: str, out: str, at: Int, count: int) -> None:
        start = [(f.it, "zeroinitializer")] * count
        with f.loop(0, k, 1, start) as i:
            x = _element(f, left, row, i.i, step=0)
            first = f.add(f.mul(i.i, n), at)
            following = []
            for v, total in enumerate(i.v):
                y = _element(f, right, base, f.add(first, v * f.lanes))
                part = f.op(f"mul {f.it} {x}, {y}")
                following.append(f.op(f"add {f.it} {total}, {part}"))
            i.next = following
        for v, total in enumerate(i.out):
            typed.store(f, total, "int32", out, f.add(at, v * f.lanes))

    with f.loop("%begin", "%end") as unit:
        row = f.gep(a, f.mul(unit.i, k * size_a))
        base = f.gep(b, f.mul(f.div(unit.i, m), k * n * size_b))
        out = f.gep(c, f.mul(unit.i, 4 * n))
        wide = _VECTORS * f.lanes
        whole = n // wide * wide
        with f.loop(0, whole, wide) as j:
            columns(row, base, out, j.i, _VECTORS)
        typed.each(f, whole, n, lambda at: columns(row, base, out, at, 1))
    return common.finish(f"product_{left.dtype}_{right.dtype}", [f], [(f, batch * m)])


def _element(f: Func, side: Side, base: str, at: Int, *, step: int = 1) -> str:
    if step == 0:
        base = f.gep(base, f.mul(at, typed.STORED[side.dtype].size))
    value = typed.load(f, side.dtype, base, at, step)
    return f.op(f"sub {f.it} {value}, {f.iconst(side.zero)}") if side.zero else value
