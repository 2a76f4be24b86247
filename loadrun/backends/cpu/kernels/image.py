"""Images read at other positions: resizing by tables, warps and maps.

Tensors of images are (images, planes, h, middle, w, inner) in any layout: what lies before, between
and behind height and width is treated alike. Numbers are combined in the order of the operators'
definition, because ties of rounded results depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor, Value
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_FAR = float(1 << 30)  # positions beyond are outside of every image
_UNROLLED = 16  # pairs of taps that are written out
_IN_LINE = 8  # taps of a row that are


@dataclass(frozen=True, slots=True)
class Planes:
    """Sizes of a tensor of images: images, planes before the height, h, middle, w, inner.

    With `woven` the planes are the elements of a pixel, and `inner` is 1.
    """

    images: int
    planes: int
    h: int
    middle: int
    w: int
    inner: int
    woven: bool = False

    @property
    def pixel(self) -> int:
        """Elements from a pixel to the next in its row."""
        return self.planes if self.woven else self.inner

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.w * self.pixel

    @property
    def plane(self) -> int:
        """Elements from a plane to the next."""
        return 1 if self.woven else self.h * self.line

    @property
    def image(self) -> int:
        """Elements of an image."""
        return self.h * self.line * (1 if self.woven else self.planes)

    @property
    def line(self) -> int:
        """Elements from a row to the next."""
        return self.middle * self.row


# -- results as elements


@dataclass(frozen=True, slots=True)
class Result:
    """How an interpolated number becomes an element.

    Attributes:
        how: float; away (rounded half away, limited to low..high); wrapped (rounded half away,
            then the low bits of a 32-bit integer); cut (limited, then cut); fixed (an integer,
            rounded by `shift` bits, then limited).
        low, high: Limits.
        shift: Of fixed numbers.
        factor: What the number is multiplied by before.
        zero: Taken off: of floats before that, of integers in the end.
    """

    how: str = "float"
    low: int = 0
    high: int = 255
    shift: int = 0
    factor: float = 1.0
    zero: int = 0

    def __call__(self, nest: Nest, value: Num) -> Num:
        """The element."""
        if self.how == "float" and self.zero:
            value = value - float(self.zero)
        found = self._element(nest, value)
        return found if self.how == "float" else found - self.zero

    def _element(self, nest: Nest, value: Num) -> Num:
        if self.how == "fixed":
            if self.shift:
                value = (value + (1 << (self.shift - 1))) >> self.shift
            return nest.clamp(value, self.low, self.high).to("i32")
        if self.factor != 1.0:
            value = value * self.factor
        if self.how == "float":
            return value
        if self.how == "wrapped":
            value = nest.round_away(value)
            fits = (value > -2147483904.0) & (value < 2147483648.0)
            low = nest.select(fits, value, 0.0).whole()
            return nest.select(fits, low, -(1 << 31))
        if self.how == "away":
            value = nest.round_away(value)
        # The largest float32 below 2**31 stands for it while in floats.
        top = min(float(self.high), 2147483520.0)
        kept = nest.clamp(value, float(self.low), top).whole()
        return nest.select(value >= float(self.high), self.high, kept)


# -- resizing


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
    result: Result = Result()
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
            return _sum(so_far, found * heavy, weight)

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
                        nest, across, in_line, None, lambda t, sum_: _sum(sum_, *value(line, p, t))
                    )
                )
                if how.truncating:
                    part = (part >> 4) * heavy >> 16
                    return part if total is None else total + part
                return _sum(total, part, heavy)

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


def _sum(total: Num | None, value: Num, weight: Num) -> Num:
    return value * weight if total is None else total + value * weight


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


# -- warps


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
    result: Result = Result()

    @property
    def name(self) -> str:
        """Short."""
        return f"{self.kind}_{self.mode}_{self.border}_{self.dtypes[0]}"


def _whole(nest: Nest, x: Num) -> Num:
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


class _Axis:
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
            rows, columns = self._axes(_whole(nest, low_y), _whole(nest, low_x), 2)
            by_y, by_x = [1.0 - far_y, far_y], [1.0 - far_x, far_x]
            weights = [by_y[s] * by_x[t] for s in range(2) for t in range(2)]
        else:
            if how.mode == "nearest":
                y, x = (_whole(nest, nest.unary("rint", v)) for v in (y, x))
            rows, columns = self._axes(y, x, 1)
            weights = []
        self._write(p, rest, rows, columns, weights, source, to)

    def _axes(self, y: Num, x: Num, taps: int) -> tuple[_Axis, _Axis]:
        how = self.how
        return (
            _Axis(self.nest, y, taps, how.x.h, how.x.line, how.border),
            _Axis(self.nest, x, taps, how.x.w, how.x.pixel, how.border),
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
        if how.kind == "map":
            at = self.matrix.move((image * how.y.h + row) * (2 * how.y.w))
            return at[column * 2 + 1], at[column * 2]
        found = self._lines(image, row, column, "float")
        if how.kind == "affine":
            return found[1], found[0]
        return found[1] / found[2], found[0] / found[2]

    def _lines(self, image: Num, row: Num, column: Num, kind: str) -> list[Num]:
        """Products of the matrix with (x, y, 1)."""
        lines = 2 if self.how.kind == "affine" else 3
        at = self.matrix.move(image * (3 * lines))
        m = [at[k].to(kind) for k in range(3 * lines)]
        x, y = column.to(kind), row.to(kind)
        return [(x * m[3 * k] + m[3 * k + 1] * y) + m[3 * k + 2] for k in range(lines)]

    def _steps(self, image: Num, row: Num, column: Num) -> tuple[Num, Num]:
        """Row and column in 1/32 pixel, or whole pixels."""
        how, nest = self.how, self.nest
        nearest = how.mode == "steps_nearest"
        if how.kind == "perspective":
            x, y, divisor = self._lines(image, row, column, "double")
            unit = nest.splat(nest.number(1.0 if nearest else 32.0, "double"))
            scale = nest.select(~divisor.eq(0.0), unit / divisor, 0.0)
            return (
                _whole(nest, nest.unary("rint", y * scale)),
                _whole(nest, nest.unary("rint", x * scale)),
            )
        at = self.matrix.move(image * 6)
        m = [at[k].to("double") for k in range(6)]
        across, down = column.to("double"), row.to("double")
        shift = 10 if nearest else 5
        found = []
        for k in (1, 0):
            by_x = _whole(nest, nest.unary("rint", across * m[3 * k] * 1024.0)).to("i64")
            start = m[3 * k + 1] * down + m[3 * k + 2]
            by_y = _whole(nest, nest.unary("rint", start * 1024.0)) + (1 << (shift - 1))
            found.append(((by_x + by_y) >> shift).to("i32"))
        return found[0], found[1]

    def _write(
        self,
        p: Lanes,
        rest: Num | None,
        rows: _Axis,
        columns: _Axis,
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
                total = _sum(total, found, weights[k])
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
