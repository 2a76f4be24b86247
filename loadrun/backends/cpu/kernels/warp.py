"""Images read at other positions: warps by matrices, and maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.backends.cpu.kernels.interpolate import PLAIN, Planes, Result, weighted
from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor, Value
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_FAR = float(1 << 30)  # positions beyond are outside of every image


@dataclass(frozen=True, slots=True)
class Warp:
    """Where outputs read their images, and how.

    Attributes:
        kind: affine or perspective (matrices), or map (coordinates of each output).
        x, y: Source and result.
        border: replicate, reflect, reflect101, wrap or constant.
        fill: Value outside, for constant.
        dtypes: Of the images, of the matrices or the map, of the result.
        index: Type of the images' numbers, '' when output k reads image k.
        mode: linear, nearest; steps or steps_nearest (positions cut to 1/32 pixel or whole ones).
        taps: Of steps.
        result: What becomes of the sums; `fixed` says that weights are integers.
    """

    kind: str
    x: Planes
    y: Planes
    border: str
    fill: float
    dtypes: tuple[str, str, str]
    index: str = ""
    mode: str = "linear"
    taps: int = 2
    result: Result = PLAIN

    @property
    def name(self) -> str:
        """Short."""
        return f"{self.kind}_{self.mode}_{self.border}_{self.dtypes[0]}"


def whole(nest: Nest, x: Num) -> Num:
    """An integer of a float without fraction; what is no number or far away is far away."""
    return nest.clamp(x, -_FAR, _FAR).whole()


def _bordered(nest: Nest, position: Num, size: int, border: str) -> Num:
    """The pixel that stands for a position; outside ones stay outside for constant."""
    if border == "replicate":
        return nest.clamp(position, 0, size - 1)
    if border == "constant":
        return position
    if border == "wrap":
        return nest.floor_mod(position, size)
    if border == "reflect":
        folded = nest.floor_mod(position, 2 * size)
        return nest.minimum(folded, 2 * size - 1 - folded)
    if size == 1:
        return position - position
    folded = nest.floor_mod(position, 2 * size - 2)
    return nest.minimum(folded, 2 * size - 2 - folded)


class Axis:
    """Pixels of one axis for all taps: their offset, and whether they exist."""

    def __init__(
        self, nest: Nest, first: Num, taps: int, size: int, stride: int, border: str
    ) -> None:
        self.offsets: list[Num] = []
        self.inside: list[Num | None] = []
        for k in range(taps):
            at = _bordered(nest, first + k, size, border)
            exists = None
            if border == "constant":
                exists = (at >= 0) & (at < size)
                at = nest.select(exists, at, 0)
            self.offsets.append(at * stride)
            self.inside.append(exists)


def products(matrix: Tensor, lines: int, at: tuple[Num, Num], kind: str) -> list[Num]:
    """Products of a matrix (lines, 3) with (x, y, 1) at the pixel (row, column)."""
    m = [matrix[k].to(kind) for k in range(3 * lines)]
    y, x = (v.to(kind) for v in at)
    return [(x * m[3 * k] + m[3 * k + 1] * y) + m[3 * k + 2] for k in range(lines)]


def position(
    kind: str, matrix: Tensor, image: Num, at: tuple[Num, Num], size: tuple[int, int]
) -> tuple[Num, Num]:
    """Row and column in the source, float32, of a pixel of an output of a size; see `Warp.kind`."""
    if kind == "map":
        row = matrix.move((image * size[0] + at[0]) * (2 * size[1]))
        return row[at[1] * 2 + 1], row[at[1] * 2]
    lines = 2 if kind == "affine" else 3
    found = products(matrix.move(image * (3 * lines)), lines, at, "float")
    if kind == "affine":
        return found[1], found[0]
    return found[1] / found[2], found[0] / found[2]


class _Warper:
    """One kernel under construction."""

    def __init__(self, how: Warp, target: Target) -> None:
        self.how = how
        fixed = how.mode == "steps" and how.result.how == "fixed"
        tables = [("int32" if fixed else "float32")] if how.mode == "steps" else []
        index = [how.index] if how.index else []
        dtypes = [*how.dtypes[:2], *index, *tables, how.dtypes[2], "int32"]
        self.nest = nest = Nest(dtypes, target)
        self.x, self.matrix, *rest, self.y, self.status = nest.arrays
        self.index = rest.pop(0) if how.index else None
        self.table = rest.pop(0) if tables else None
        self.fixed = fixed

    def build(self) -> Kernel:
        """The kernel; units are rows of outputs, with all their planes."""
        nest, how = self.nest, self.how
        units = how.y.images * how.y.h
        with nest.each_unit(units) as unit:
            self.status.put(unit, 0)
            image, row = unit // how.y.h, unit % how.y.h
            which = image if self.index is None else self._image(self.index[image], unit)
            source = self.x.move(which * how.x.image)
            to = self.y.move(image * how.y.image + row * how.y.line)
            nest.lines(how.y.row, lambda p: self._positions(p, image, row, source, to))
        return nest.finish(how.name)

    def _image(self, which: Num, unit: Num) -> Num:
        nest = self.nest
        wrong = (which < 0) | (which >= self.how.x.images)
        with nest.when(wrong):
            self.status.put(unit, 1)
        return nest.select(wrong, 0, which)

    def _positions(self, p: Lanes, image: Num, row: Num, source: Tensor, to: Tensor) -> None:
        how, nest = self.how, self.nest
        column = p.at // how.y.inner if how.y.inner > 1 else p.at
        rest = p.at % how.y.inner if how.y.inner > 1 else None
        if how.mode in ("steps", "steps_nearest"):
            y, x = self._steps(image, row, column)
        else:
            y, x = self._exact(image, row, column)
        if how.mode == "steps":
            taps = how.taps
            base = taps // 2 - 1
            rows, columns = self._axes((y >> 5) - base, (x >> 5) - base, taps)
            weights = self._table_weights(y & 31, x & 31)
        elif how.mode == "linear":
            low_y, low_x = nest.unary("floor", y), nest.unary("floor", x)
            far_y, far_x = y - low_y, x - low_x
            rows, columns = self._axes(whole(nest, low_y), whole(nest, low_x), 2)
            by_y, by_x = [1.0 - far_y, far_y], [1.0 - far_x, far_x]
            weights = [by_y[s] * by_x[t] for s in range(2) for t in range(2)]
        else:
            if how.mode == "nearest":
                y, x = (whole(nest, nest.unary("rint", v)) for v in (y, x))
            rows, columns = self._axes(y, x, 1)
            weights = []
        self._write(p, rest, rows, columns, weights, source, to)

    def _axes(self, y: Num, x: Num, taps: int) -> tuple[Axis, Axis]:
        how = self.how
        return (
            Axis(self.nest, y, taps, how.x.h, how.x.line, how.border),
            Axis(self.nest, x, taps, how.x.w, how.x.pixel, how.border),
        )

    def _table_weights(self, fy: Num, fx: Num) -> list[Num]:
        assert self.table is not None
        taps, table = self.how.taps, self.table
        if self.fixed:
            base = (fy * 32 + fx) * (taps * taps)
            return [table[base + k] for k in range(taps * taps)]
        by_y = [table[fy * taps + s] for s in range(taps)]
        by_x = [table[fx * taps + t] for t in range(taps)]
        return [a * b for a in by_y for b in by_x]

    def _exact(self, image: Num, row: Num, column: Num) -> tuple[Num, Num]:
        """Row and column in the source, float32."""
        how = self.how
        return position(how.kind, self.matrix, image, (row, column), (how.y.h, how.y.w))

    def _steps(self, image: Num, row: Num, column: Num) -> tuple[Num, Num]:
        """Row and column in 1/32 pixel, or whole pixels."""
        how, nest = self.how, self.nest
        nearest = how.mode == "steps_nearest"
        if how.kind == "perspective":
            x, y, divisor = products(self.matrix.move(image * 9), 3, (row, column), "double")
            unit = nest.splat(nest.number(1.0 if nearest else 32.0, "double"))
            scale = nest.select(~divisor.eq(0.0), unit / divisor, 0.0)
            return (
                whole(nest, nest.unary("rint", y * scale)),
                whole(nest, nest.unary("rint", x * scale)),
            )
        at = self.matrix.move(image * 6)
        m = [at[k].to("double") for k in range(6)]
        across, down = column.to("double"), row.to("double")
        shift = 10 if nearest else 5
        found = []
        for k in (1, 0):
            by_x = whole(nest, nest.unary("rint", across * m[3 * k] * 1024.0)).to("i64")
            start = m[3 * k + 1] * down + m[3 * k + 2]
            by_y = whole(nest, nest.unary("rint", start * 1024.0)) + (1 << (shift - 1))
            found.append(((by_x + by_y) >> shift).to("i32"))
        return found[0], found[1]

    def _write(
        self,
        p: Lanes,
        rest: Num | None,
        rows: Axis,
        columns: Axis,
        weights: Sequence[Num],
        source: Tensor,
        to: Tensor,
    ) -> None:
        """The mixed pixels of all planes at the positions of `p`."""
        how, nest = self.how, self.nest
        places: list[tuple[Num, Num | None]] = []
        for down, a in zip(rows.offsets, rows.inside, strict=True):
            for across, b in zip(columns.offsets, columns.inside, strict=True):
                at = down + across if rest is None else down + across + rest
                places.append((at, a & b if a is not None and b is not None else None))
        with nest.loop(0, how.x.planes) as plane, nest.loop(0, how.x.middle) as mid:
            given = source.move(plane.i * how.x.plane + mid.i * how.x.row)
            out = to.move(plane.i * how.y.plane + mid.i * how.y.row)
            total: Num | None = None
            for k, (at, inside) in enumerate(places):
                found = given[at]
                if not self.fixed and how.result.how != "fixed":
                    found = found.to("float")
                if inside is not None:
                    fill: Value = how.fill if found.kind == "float" else int(how.fill)
                    found = nest.select(inside, found, fill)
                if not weights:
                    total = found
                    break
                total = weighted(total, found, weights[k])
            assert total is not None
            exact = how.mode in ("linear", "nearest")
            if how.border == "constant" and exact:
                finite = nest.unary("fabs", total) < float("inf")
                total = nest.select(finite, total, how.fill)
            out.put(p, how.result(nest, total))


def warp(how: Warp, target: Target) -> Kernel:
    """Images read at positions that matrices or a map say.

    Argument table: x, matrices (m, 2|3, 3) or map (n, h, w, 2), maybe the images' numbers (m,),
    for steps the weights (32, taps) as float32 or (32, 32, taps, taps) as int32, y, status. An
    image that does not exist marks its unit.
    """
    return _Warper(how, target).build()
