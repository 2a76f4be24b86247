"""Inverses of small matrices: Gauss and Jordan in place, in float64, with the largest pivots."""

from __future__ import annotations

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

# A pivot this much smaller than the largest element: whether the matrix is singular, and what its
# inverse is, depends on how it is computed, so the reference code says.
_LEAST = 1e-9


def inverse(batch: int, n: int, target: Target) -> Kernel:
    """Argument table: matrices (batch, n, n), results, status. Units: matrices.

    A unit of `status` is 1 where a pivot is too small, or not a number.
    """
    nest = Nest(("float32", "float32", "int32"), target)
    x, y, status = nest.arrays
    stride = -(-n // nest.lanes) * nest.lanes
    a, order = nest.scratch(0, "float64"), nest.scratch(8 * n * stride, "int64")
    with nest.each_unit(batch) as unit:
        status.put(unit, 0)
        limit = _load(nest, x.move(unit * (n * n)), a, n, stride) * _LEAST
        with nest.loop(0, n) as k:
            pivot = _largest(nest, a, k.i, n, stride)
            order.put(k.i, pivot)
            _swap_rows(nest, a, (k.i, pivot), stride)
            row = a.move(k.i * stride)
            middle = row[k.i]
            with nest.when(~(nest.unary("fabs", middle) > limit)):
                status.put(unit, 1)
            row.put(k.i, 1.0)
            factor = nest.splat(nest.number(1.0, "double") / middle)
            nest.lines(stride, lambda p: row.put(p, row.line(p) * factor))
            with nest.loop(0, n) as i, nest.when(~i.i.eq(k.i)):
                _eliminate(nest, a.move(i.i * stride), row, k.i, stride)
        # Rows that changed places are columns of the inverse that do so, the last ones first.
        with nest.loop(0, n) as back:
            k_ = n - 1 - back.i
            _swap_columns(nest, a, (k_, order[k_]), n, stride)
        to = y.move(unit * (n * n))
        with nest.loop(0, n) as i:
            source, line = a.move(i.i * stride), to.move(i.i * n)
            nest.lines(n, lambda p: line.put(p, source.line(p).to("float")))
    return nest.finish(f"inverse_{n}x{n}", scratch=8 * (n * stride + n))


def _load(nest: Nest, x: Tensor, a: Tensor, n: int, stride: int) -> Num:
    """Copy a matrix, with zeros behind its rows; its largest size."""
    zero = nest.number(0.0, "double")
    with nest.loop(0, n, [zero]) as i:
        row, source = a.move(i.i * stride), x.move(i.i * n)
        if stride > n:
            nest.lines(stride, lambda p: row.put(p, 0.0))

        def copy(p: Lanes) -> None:
            row.put(p, source.line(p).to("double"))

        nest.lines(n, copy)
        with nest.loop(0, n, i.v) as j:
            j.next = [nest.maximum(nest.unary("fabs", row[j.i]), j.v[0])]
        i.next = j.out
    return i.out[0]


def _largest(nest: Nest, a: Tensor, k: Num, n: int, stride: int) -> Num:
    """The row at or below k whose element in column k is largest."""
    start = [nest.number(-1.0, "double"), k]
    with nest.loop(k, n, start) as i:
        size = nest.unary("fabs", a[i.i * stride + k])
        better = size > i.v[0]
        i.next = [nest.select(better, size, i.v[0]), nest.select(better, i.i, i.v[1])]
    return i.out[1]


def _swap_rows(nest: Nest, a: Tensor, rows: tuple[Num, Num], stride: int) -> None:
    first, second = (a.move(r * stride) for r in rows)

    def swap(p: Lanes) -> None:
        upper, lower = first.line(p), second.line(p)
        first.put(p, lower)
        second.put(p, upper)

    with nest.when(~rows[0].eq(rows[1])):
        nest.lines(stride, swap)


def _swap_columns(nest: Nest, a: Tensor, columns: tuple[Num, Num], n: int, stride: int) -> None:
    with nest.when(~columns[0].eq(columns[1])), nest.loop(0, n) as i:
        row = a.move(i.i * stride)
        left, right = (row[c] for c in columns)
        row.put(columns[0], right)
        row.put(columns[1], left)


def _eliminate(nest: Nest, row: Tensor, pivot: Tensor, k: Num, stride: int) -> None:
    """Take a multiple of the pivot's row off another, so that column k of it becomes the result."""
    factor = row[k]
    row.put(k, 0.0)
    many = nest.splat(factor)
    nest.lines(stride, lambda p: row.put(p, row.line(p) - many * pivot.line(p)))
