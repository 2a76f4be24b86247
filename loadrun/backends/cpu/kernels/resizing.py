"""Images resized by tables of elements and weights of both axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from loadrun.backends.cpu.kernels.interpolate import PLAIN, Planes, Result, weighted
from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor, Value
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_UNROLLED = 16  # pairs of taps that are written out
_IN_LINE = 8  # taps of a row that are


@dataclass(frozen=True, slots=True)
class Resizing:
    """Two axes mixed by tables of elements and weights, (outputs, taps) each.

    Attributes:
        x, y: Source and result.
        taps: Along rows and along columns.
        crossed: Each element times its row's weight, times its column's, all summed up, rows
            first; else columns are summed within rows.
        fixed: Weights and sums are integers.
        truncating: Sums of columns lose 4 bits, products with rows 16.
        rows_only: Columns stay as they are; there are no tables for them.
        result: What becomes of the sums.
    """

    x: Planes
    y: Planes
    taps: tuple[int, int]
    dtypes: tuple[str, str]
    crossed: bool = False
    fixed: bool = False
    truncating: bool = False
    result: Result = PLAIN
    rows_only: bool = False


def resize(how: Resizing, target: Target) -> Kernel:
    """Rows of the result, position by position.

    Argument table: x; for rows (h, taps) the element as int32 and its weight; for columns
    (taps, w * inner) the same, the element's offset within its row; y. Weights are float32, or
    int32 when fixed. Units: rows of all planes.
    """
    weight = "int32" if how.fixed else "float32"
    tables = ("int32", weight) * (1 if how.rows_only else 2)
    nest = Nest((how.dtypes[0], *tables, how.dtypes[1]), target)
    x, rows, row_weights, *more, y = nest.arrays
    outer = how.x.images * how.x.planes
    down, across = how.taps
    acc = "i64" if how.fixed else "float"
    in_line, unrolled = across <= _IN_LINE, down * across <= _UNROLLED

    def value(source: Tensor, p: Lanes, k: Value) -> tuple[Num, Num]:
        """Element and weight of a tap of the columns."""
        start = nest.number(k, "i64") * how.y.row
        at = replace(p, start=start + p.start)
        found = source[more[0].line(at)].to(acc)
        return found, more[1].line(at).to(acc)

    with nest.each_unit(outer * how.y.h * how.y.middle) as unit:
        mid, rest = unit % how.y.middle, unit // how.y.middle
        row, plane = rest % how.y.h, rest // how.y.h
        source = x.move(plane * (how.x.h * how.x.line) + mid * how.x.row)
        to = y.move(unit * how.y.row)

        def lifted(line: Tensor, heavy: Num, p: Lanes, t: Value, so_far: Num | None) -> Num:
            found, weight = value(line, p, t)
            return weighted(so_far, found * heavy, weight)

        def mixed(p: Lanes) -> None:
            def one_row(s: Value, total: Num | None) -> Num:
                at = row * down + s
                line = source.move(rows[at] * how.x.line)
                heavy = row_weights[at]
                if how.crossed:
                    return _columns(
                        nest,
                        across,
                        in_line,
                        total,
                        lambda t, so_far: lifted(line, heavy, p, t, so_far),
                    )
                part = (
                    line.line(p).to(acc)
                    if how.rows_only
                    else _columns(
                        nest,
                        across,
                        in_line,
                        None,
                        lambda t, sum_: weighted(sum_, *value(line, p, t)),
                    )
                )
                if how.truncating:
                    part = (part >> 4) * heavy >> 16
                    return part if total is None else total + part
                return weighted(total, part, heavy)

            if unrolled:
                total = None
                for s in range(down):
                    total = one_row(s, total)
            else:
                zero = nest.splat(nest.number(0, acc))
                with nest.loop(0, down, [zero]) as turn:
                    turn.next = [one_row(turn.i, turn.v[0])]
                total = turn.out[0]
            assert total is not None
            to.put(p, how.result(nest, total))

        nest.lines(how.y.row, mixed)
    return nest.finish(f"resize_{how.dtypes[0]}_{down}x{across}")


def _columns(
    nest: Nest,
    taps: int,
    unrolled: bool,
    total: Num | None,
    add: Callable[[Value, Num | None], Num],
) -> Num:
    """A sum over the taps of the columns, on top of `total`."""
    if unrolled:
        for t in range(taps):
            total = add(t, total)
        assert total is not None
        return total
    start = add(0, total)
    with nest.loop(1, taps, [start]) as turn:
        turn.next = [add(turn.i, turn.v[0])]
    return turn.out[0]
