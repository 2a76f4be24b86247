"""Points at which images are read between their pixels, for gradients by images and positions.

Points come in groups, one for each output image: all pixels of it. Images and gradients are
(..., pixels, channels) here. `warp` is the operator itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.kernels.warp import Axis, position, products, whole
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """Where outputs read their images.

    Attributes:
        kind: perspective (matrices) or map (coordinates of each output).
        groups, out: Output images and their size.
        images, size: Images and their size.
        border: As of `warp.Warp`.
        index: Element type of the images' numbers, '' where output k reads image k.
        nearest: Whether a point reads one pixel, not four.
        fill: What pixels outside are, for constant.
    """

    kind: str
    groups: int
    out: Pair
    images: int
    size: Pair
    border: str
    index: str = ""
    nearest: bool = False
    fill: float = 0.0

    @property
    def taps(self) -> int:
        """Pixels that a point reads."""
        return 1 if self.nearest else 4

    @property
    def points(self) -> int:
        """Points of a group."""
        return self.out[0] * self.out[1]

    @property
    def rows(self) -> int:
        """Work units: rows of outputs."""
        return self.groups * self.out[0]


@dataclass(frozen=True, slots=True)
class _Corners:
    """Both axes of points: pixels, existence and weights."""

    rows: Axis
    columns: Axis
    by_y: list[Num]
    by_x: list[Num]

    def each(self) -> list[tuple[int, int, Num, Num | None]]:
        """For each pair of pixels their numbers along both axes, place and existence."""
        found = []
        for i, (down, a) in enumerate(zip(self.rows.offsets, self.rows.inside, strict=True)):
            for j, (side, b) in enumerate(
                zip(self.columns.offsets, self.columns.inside, strict=True)
            ):
                found.append(
                    (i, j, down + side, a & b if a is not None and b is not None else None)
                )
        return found


def _corners(nest: Nest, how: Reading, coordinates: Tensor, at: tuple[Num, Num, Num]) -> _Corners:
    """What the pixels `at` (group, row, columns) of outputs read."""
    group, row, columns = at
    axes, weights = [], []
    found = position(how.kind, coordinates, group, (row, columns), how.out)
    for x, size, step in zip(found, how.size, (how.size[1], 1), strict=True):
        if how.nearest:
            first, each = nest.unary("rint", x), [nest.splat(nest.number(1.0, "float"))]
        else:
            first = nest.unary("floor", x)
            far = x - first
            each = [1.0 - far, far]
        axes.append(Axis(nest, whole(nest, first), len(each), size, step, how.border))
        weights.append(each)
    return _Corners(axes[0], axes[1], weights[0], weights[1])


def _own_image(nest: Nest, how: Reading, index: Tensor | None, group: Num, mark: Tensor) -> Num:
    """The image that a group reads; one that does not exist marks the unit of `mark`."""
    if index is None:
        return group
    which = index[group]
    wrong = (which < 0) | (which >= how.images)
    with nest.when(wrong):
        mark.put(0, 1)
    return nest.select(wrong, 0, which)


def taps(how: Reading, dtype: str, target: Target) -> Kernel:
    """Places (groups, taps, points) within images, -1 for none, and their weights.

    Argument table: matrices or map (of `dtype`), maybe the images' numbers (groups,), places,
    weights, status. Units: rows of outputs.
    """
    index = (how.index,) if how.index else ()
    nest = Nest((dtype, *index, "int32", "float32", "int32"), target)
    coordinates, *numbers, places, weights, status = nest.arrays
    h, w = how.out
    with nest.each_unit(how.rows) as unit:
        group, row = unit // h, unit % h
        status.put(unit, 0)
        if numbers:
            _own_image(nest, how, numbers[0], group, status.move(unit))

        def line(p: Lanes) -> None:
            found = _corners(nest, how, coordinates, (group, row, p.at))
            for k, (i, j, at, inside) in enumerate(found.each()):
                start = (group * how.taps + k) * how.points + row * w
                place = at if inside is None else nest.select(inside, at, -1)
                places.move(start).put(p, place)
                weights.move(start).put(p, found.by_y[i] * found.by_x[j])

        nest.lines(w, line)
    return nest.finish(f"taps_{how.kind}_{how.border}")


def slopes(how: Reading, channels: int, dtypes: tuple[str, str], target: Target) -> Kernel:
    """Gradients by the row and the column of each point, (2, groups, points).

    Argument table: x (images, pixels, channels), matrices or map, maybe the images' numbers,
    gradients (groups, points, channels), result, status. `dtypes` are those of the matrices or the
    map, and of the result. Units: rows of outputs.
    """
    index = (how.index,) if how.index else ()
    nest = Nest(("float32", dtypes[0], *index, "float32", dtypes[1], "int32"), target)
    x, coordinates, *numbers, diff, y, status = nest.arrays
    (h, w), pixels = how.out, how.size[0] * how.size[1]
    with nest.each_unit(how.rows) as unit:
        group, row = unit // h, unit % h
        status.put(unit, 0)
        number = numbers[0] if numbers else None
        image = _own_image(nest, how, number, group, status.move(unit))
        source = x.move(image * (pixels * channels))
        given = diff.move((group * how.points + row * w) * channels)

        def line(p: Lanes) -> None:
            found = _corners(nest, how, coordinates, (group, row, p.at))
            each = found.each()
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, channels, [zero] * len(each)) as c:
                share = given[p.at * channels + c.i].to("double")
                c.next = []
                for total, (_, _, at, inside) in zip(c.v, each, strict=True):
                    value = source[at * channels + c.i]
                    value = value if inside is None else nest.select(inside, value, how.fill)
                    c.next.append(total + value.to("double") * share)
            sums: list[Num] = [zero, zero]
            for total, (i, j, _, _) in zip(c.out, each, strict=True):
                by_y, by_x = found.by_x[j].to("double") * total, found.by_y[i].to("double") * total
                sums[0] = sums[0] + by_y if i else sums[0] - by_y
                sums[1] = sums[1] + by_x if j else sums[1] - by_x
            for axis, total in enumerate(sums):
                start = (axis * how.groups + group) * how.points + row * w
                result = total.to("float") if dtypes[1] == "float32" else total
                y.move(start).put(p, result)

        nest.lines(w, line)
    return nest.finish(f"slopes_{how.kind}_{how.border}")


def matrix_sums(groups: int, size: Pair, dtype: str, target: Target) -> Kernel:
    """Gradients of perspective matrices (groups, 3, 3) from those of rows and columns.

    Argument table: matrices (of `dtype`), slopes (2, groups, points) of float64, sums of rows
    (groups, h, 6) of float64, result. Units: rows, then matrices.
    """
    dtypes = (dtype, "float64", "float64", "float32")
    (h, w), points = size, size[0] * size[1]
    nest = Nest(dtypes, target)
    matrices, moved, sums, _ = nest.arrays
    with nest.each_unit(groups * h) as unit:
        group, row = unit // h, unit % h
        matrix = matrices.move(group * 9)
        by_y, by_x = (moved.move((k * groups + group) * points + row * w) for k in range(2))

        def line(p: Lanes) -> list[Num]:
            column, down, divisor = products(matrix, 3, (row, p.at), "double")
            a, b = by_x.line(p), by_y.line(p)
            both = 0.0 - (a * column + b * down) / (divisor * divisor)
            each = [a / divisor, b / divisor, both]
            x = p.at.to("double")
            return [*(e * x for e in each), *each]

        for k, total in enumerate(nest.summed(w, 6, line)):
            sums.put(unit * 6 + k, total)
    last = Nest(dtypes, target, entry="last")
    _, _, sums, y = last.arrays
    with last.each_unit(groups) as unit:
        start = [last.number(0.0, "double")] * 9
        with last.loop(0, h, start) as row_:
            part = sums.move((unit * h + row_.i) * 6)
            lines = [part[k] for k in range(6)]
            down = row_.i.to("double")
            row_.next = [
                v + new
                for k in range(3)
                for v, new in zip(
                    row_.v[3 * k : 3 * k + 3],
                    (lines[k], lines[3 + k] * down, lines[3 + k]),
                    strict=True,
                )
            ]
        for k, total in enumerate(row_.out):
            y.put(unit * 9 + k, total.to("float"))
    return nest.finish("matrix_sums_f32", last)
