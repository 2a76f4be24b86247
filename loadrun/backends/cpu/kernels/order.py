"""Positions of extremes, sorting of rows, suppression of boxes.

Ties are decided as the operators define them: the first extreme, a stable order. NaN counts as the
greatest, and as an extreme of both kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import RAW, Lanes, Nest, Num, Tensor, chunks
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_DIGIT = 8  # bits of a key that one pass of sorting looks at
_BUCKETS = 1 << _DIGIT
_BITS = {"int8": 8, "uint8": 8, "bool": 8, "int16": 16, "uint16": 16, "int32": 32, "float32": 32}
_PART = 2048


def extreme(sizes: tuple[int, int, int], dtype: str, target: Target, *, largest: bool) -> Kernel:
    """Position (int32) of the first extreme along n of x (outer, n, inner).

    Argument table: x, y. Units: rows; stretches of inner positions; or chunks of all lines.
    """
    outer, n, inner = sizes
    nest = Nest((dtype, "int32"), target)
    x, y = nest.arrays

    def step(v: Num, at: Num | int, state: list[Num]) -> list[Num]:
        best, place = state
        better = v > best if largest else v < best
        if dtype == "float32":
            better = better | (v.is_nan() & ~best.is_nan())
        return [nest.select(better, v, best), nest.select(better, at, place)]

    def along(read: Tensor, p: Lanes | None, at: Num, stride: int) -> Num:
        """The extremes of the lines that begin at `at`, one per lane."""
        first = read.line(p) if p else read[at]
        with nest.loop(1, n, [first, nest.splat(nest.number(0, "i32"))]) as turn:
            row = read.move(turn.i * stride)
            turn.next = step(row.line(p) if p else row[at], turn.i, turn.v)
        return turn.out[1]

    if inner == 1 and n >= target.lanes:
        with nest.each_unit(outer) as unit:
            row = x.move(unit * n)
            first = [row[nest.ramp()], nest.ramp()]
            best, place = nest.folded(n, first, lambda p, s: step(row[p.at], p.at, s))
            y.put(unit, _best_lane(nest, best, place, largest))
    elif inner >= target.lanes:
        parts = chunks(inner, _PART)
        with nest.each_unit(outer * parts) as unit:
            a, low = unit // parts, unit % parts * _PART
            source, to = x.move(a * (n * inner)), y.move(a * inner)
            nest.by_lanes(
                low,
                nest.minimum(low + _PART, inner),
                lambda p: to.put(p, along(source, p, p.at, inner)),
                -1 if inner % target.lanes else 0,
            )
    else:

        def line(p: Lanes, _: Num) -> None:
            base = p.at // inner * (n * inner) + p.at % inner
            y.put(p, along(x, None, base, inner))

        nest.chunked(outer * inner, line, size=256)
    return nest.finish(f"arg{'max' if largest else 'min'}_{dtype}")


def _best_lane(nest: Nest, best: Num, place: Num, largest: bool) -> Num:
    """The position of the best of all lanes; of equals the first."""
    v, at = nest.lane(best, 0), nest.lane(place, 0)
    for k in range(1, nest.lanes):
        u, other = nest.lane(best, k), nest.lane(place, k)
        better = u > v if largest else u < v
        same = u.eq(v)
        if u.kind == "float":
            better = better | (u.is_nan() & ~v.is_nan())
            same = same | (u.is_nan() & v.is_nan())
        take = better | (same & (other < at))
        v, at = nest.select(take, u, v), nest.select(take, other, at)
    return at


@dataclass(frozen=True, slots=True)
class Sorting:
    """Sorting of rows of n: how many are kept, of what, whether only the last kept is wanted."""

    rows: int
    n: int
    kept: int
    dtype: str
    descending: bool
    only_last: bool = False


def _key(nest: Nest, x: Num, dtype: str) -> Num:
    """A number from 0 on that orders as x does; equal for equal x."""
    if dtype == "float32":
        bits = nest.select(x.eq(0.0), 0.0, x).bits()
        bits = nest.select(bits < 0, bits ^ 0x7FFFFFFF, bits)
        bits = nest.select(x.is_nan(), 0x7FFFFFFF, bits)
        return bits + (1 << 31)
    return x if dtype in ("uint8", "uint16", "bool") else x + (1 << (_BITS[dtype] - 1))


def sort(how: Sorting, target: Target) -> Kernel:
    """Stable sorting of rows by digits of their keys, the least first.

    Argument table: x (rows, n), values (rows, kept) or (rows,), indices (rows, kept) unless only
    the last is wanted. Units: rows. Scratch: two lists of key and position in one word, and the
    numbers of each digit's values.
    """
    n, passes = how.n, _BITS[how.dtype] // _DIGIT
    raw = RAW[_BITS[how.dtype] // 8]
    nest = Nest((how.dtype, raw, *(() if how.only_last else ("int32",))), target)
    x, values = nest.arrays[:2]
    lists = [nest.scratch(8 * n * k, "int64") for k in range(2)]
    counts = [nest.scratch(16 * n + 8 * _BUCKETS * k, "int64") for k in range(passes)]
    with nest.each_unit(how.rows) as row:
        source = x.move(row * n)
        with nest.loop(0, passes * _BUCKETS) as turn:
            counts[0].put(turn.i, 0)
        with nest.loop(0, n) as turn:
            key = _key(nest, source[turn.i], how.dtype)
            lists[0].put(turn.i, (key << 32) | turn.i)
            for k, count in enumerate(counts):
                digit = (key >> (_DIGIT * k)) & (_BUCKETS - 1)
                count.put(digit, count[digit] + 1)
        for k, count in enumerate(counts):
            given, to = lists[k % 2], lists[1 - k % 2]
            with nest.loop(0, _BUCKETS, [nest.number(0, "i64")]) as turn:
                here = count[turn.i]
                count.put(turn.i, turn.v[0])
                turn.next = [turn.v[0] + here]
            with nest.loop(0, n) as turn:
                entry = given[turn.i]
                digit = (entry >> (32 + _DIGIT * k)) & (_BUCKETS - 1)
                place = count[digit]
                to.put(place, entry)
                count.put(digit, place + 1)
        found = lists[passes % 2]
        whole = Tensor(nest, source.base, raw)

        def write(rank: Num | int, at: Num) -> None:
            place = found[n - 1 - rank if how.descending else rank] & 0xFFFFFFFF
            values.put(at, whole[place])
            if not how.only_last:
                nest.arrays[2].put(at, place)

        if how.only_last:
            write(how.kept - 1, row)
        else:
            with nest.loop(0, how.kept) as turn:
                write(turn.i, row * how.kept + turn.i)
    return nest.finish(f"sort_{how.dtype}", scratch=16 * n + 8 * _BUCKETS * passes)


def nms(batch: int, n: int, limit: int, threshold: float, target: Target) -> Kernel:
    """Greedy suppression of boxes (batch, n, 4), best first.

    A box stays unless one kept before overlaps it by more than `threshold`. Argument table: boxes,
    kept ones (batch, limit), filled up with the last, and their number (batch,). Units: batches.
    Scratch: corners and areas apart from each other, and which boxes are gone, in whole vectors.
    """
    nest = Nest(("float32", "int32", "int32"), target)
    boxes, kept, sizes = nest.arrays
    full = -(-n // target.lanes) * target.lanes
    corners = [nest.scratch(4 * full * k, "float32") for k in range(5)]
    gone = nest.scratch(20 * full, "int32")
    room = nest.scratch(24 * full, "int64")
    with nest.each_unit(batch) as unit:
        source, to = boxes.move(unit * (4 * n)), kept.move(unit * limit)

        def spread(p: Lanes) -> None:
            whole = Lanes(p.start, p.at)
            box = [source[p.at * 4 + k] for k in range(4)]
            for list_, value in zip(corners, [*box, _area(box)], strict=True):
                list_.put(whole, value)
            gone.put(whole, 0)

        nest.lines(n, spread)
        room.put(0, 0)
        with nest.loop(0, n) as turn:
            number = room[0]
            with nest.when(gone[turn.i].eq(0) & (number < limit)):
                to.put(number, turn.i)
                room.put(0, number + 1)
                one = [list_[turn.i] for list_ in corners]
                start = (turn.i + 1) // target.lanes * target.lanes
                with nest.loop(start, full, step=target.lanes) as other:
                    p = Lanes(other.i, nest.ramp())
                    near = _overlaps(nest, one, [list_.line(p) for list_ in corners], threshold)
                    gone.put(p, gone.line(p) | near.to("i32"))
        number = room[0]
        with nest.when(number > 0):  # else the 0 that is there
            room.put(0, to[number - 1])
        last = room[0]
        with nest.loop(number, limit) as turn:
            to.put(turn.i, last)
        sizes.put(unit, number)
    return nest.finish("nms_f32", scratch=24 * full + 8)


def _area(box: list[Num]) -> Num:
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlaps(nest: Nest, a: list[Num], b: list[Num], threshold: float) -> Num:
    """Whether intersection over union exceeds the threshold; NaN gets through minima and maxima."""

    def lesser(x: Num, y: Num) -> Num:
        return nest.select((x < y) | x.is_nan(), x, y)

    def greater(x: Num, y: Num) -> Num:
        return nest.select((x > y) | x.is_nan(), x, y)

    wide = [nest.splat(v) for v in a]
    zero = nest.splat(nest.number(0.0, "float"))
    width = greater(lesser(wide[2], b[2]) - greater(wide[0], b[0]), zero)
    height = greater(lesser(wide[3], b[3]) - greater(wide[1], b[1]), zero)
    inner = width * height
    return inner > (wide[4] + b[4] - inner) * threshold
