"""Regions (image, x0, y0, x1, y1) of images brought to a fixed size.

Argument table: x (n, h, w, c), regions (m, 5), y (m, oh, ow, c), index of the same shape, status.
Units: regions and rows of bins. Lanes are channels, which come last, so that a bin has one shape
for all of them and each of its pixels is a line.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_FAR = float(1 << 30)
_UNROLLED = 16  # samples of a bin that are written out


@dataclass(frozen=True, slots=True)
class Regions:
    """Sizes of images (n, c, h, w), number of regions, bins (oh, ow) and the coordinates' scale."""

    images: tuple[int, int, int, int]
    count: int
    out: tuple[int, int]
    scale: float
    maximum: bool
    offset: float = 0.0
    samples: tuple[int, int] = (1, 1)


def image_of(nest: Nest, region: Tensor, images: int, mark: Tensor) -> Num:
    """A region's image; one that does not exist sets `mark`, and counts as the first."""
    which = region[0]
    # Cut towards zero: what is above -1 is image 0.
    good = (which > -1.0) & (which < float(images))
    with nest.when(~good):
        mark.put(0, 1)
    return nest.select(good, which, 0.0).whole()


class _Bins:
    """What both operators share: units, images, and results of all channels of a bin."""

    def __init__(self, how: Regions, target: Target) -> None:
        self.how = how
        self.nest = Nest(("float32", "float32", "float32", "int32", "int32"), target)
        self.x, self.regions, self.y, self.index, self.status = self.nest.arrays

    def image(self, region: Tensor, unit: Num) -> Tensor:
        """The region's image; one that does not exist marks the unit."""
        nest, (n, c, h, w) = self.nest, self.how.images
        self.status.put(unit, 0)
        return self.x.move(image_of(nest, region, n, self.status.move(unit)) * (c * h * w))

    def put(self, p: Lanes, bin_: Num, value: Num, index: Num) -> None:
        """Results of the channels `p`; bins are counted over all regions."""
        c = self.how.images[1]
        self.y.move(bin_ * c).put(p, value)
        self.index.move(bin_ * c).put(p, index)


@dataclass(frozen=True, slots=True)
class AlignLine:
    """Samples along one axis of a region: of bins from `low` on, `step` apart."""

    low: Num
    step: Num
    samples: int
    size: int

    def taps(self, nest: Nest, bin_: Num, sample: Num) -> list[Tap]:
        """The pixels that a sample of a bin reads."""
        inner = (sample.to("float") + 0.5) / float(self.samples)
        at = (self.low + bin_.to("float") * self.step) + inner * self.step
        return axis_taps(nest, at, self.size)


def align_lines(nest: Nest, how: Regions, region: Tensor) -> tuple[AlignLine, AlignLine]:
    """Where ROIAlign samples a region along height and width."""
    x0, y0, x1, y1 = (region[k] * how.scale - how.offset for k in range(1, 5))
    found = []
    for k, (low, high) in enumerate(((y0, y1), (x0, x1))):
        length = nest.select(high - low < 0.0, nest.number(0.0, "float"), high - low)
        step = length / float(how.out[k])
        found.append(AlignLine(low, step, how.samples[k], how.images[2 + k]))
    return found[0], found[1]


def roi_align(how: Regions, target: Target) -> Kernel:
    """Average or maximum of bilinear samples of each bin; zero outside of the image."""
    bins = _Bins(how, target)
    nest, (_, c, _, w) = bins.nest, how.images
    (ph, pw), (sh, sw) = how.out, how.samples

    with nest.each_unit(how.count * ph) as unit:
        region, row = bins.regions.move(unit // ph * 5), unit % ph
        plane = bins.image(region, unit)
        lines = align_lines(nest, how, region)

        def down(s: Num) -> list[Tap]:
            return lines[0].taps(nest, row, s)

        with nest.loop(0, pw) as column:

            def across(t: Num, column: Num = column.i) -> list[Tap]:
                return lines[1].taps(nest, column, t)

            few = sh * sw <= _UNROLLED
            samples = [nest.number(k, "i64") for k in range(max(sh, sw))] if few else []
            rows = [down(s) for s in samples[:sh]]
            columns = [across(t) for t in samples[:sw]]

            def add(p: Lanes, a: list[Tap], b: list[Tap], k: Num, state: list[Num]) -> list[Num]:
                value = _bilinear(nest, plane, p, a, b, (w, c))
                if not how.maximum:
                    return [state[0] + value.to("double")]
                best, at = state
                better = ((value > best) | value.is_nan()) & ~best.is_nan()
                return [nest.select(better, value, best), nest.select(better, k, at)]

            def channels(p: Lanes, bin_: Num = unit * pw + column.i) -> None:
                state = [_least(nest), _index(nest, 0)]
                if not how.maximum:
                    state = [nest.splat(nest.number(0.0, "double"))]
                if few:
                    for s in range(sh):
                        for t in range(sw):
                            number = nest.number(s * sw + t, "i64")
                            state = add(p, rows[s], columns[t], number, state)
                else:
                    with nest.loop(0, sh, state) as i:
                        with nest.loop(0, sw, i.v) as j:
                            j.next = add(p, down(i.i), across(j.i), i.i * sw + j.i, j.v)
                        i.next = j.out
                    state = i.out
                if how.maximum:
                    bins.put(p, bin_, *state)
                else:
                    mean = (state[0] / float(sh * sw)).to("float")
                    bins.put(p, bin_, mean, _index(nest, 0))

            nest.lines(c, channels)
    return nest.finish(f"roi_align_{'max' if how.maximum else 'mean'}")


@dataclass(frozen=True, slots=True)
class Tap:
    """A pixel of an axis and its weight, both uniform; `inside` says whether it exists."""

    at: Num
    weight: Num
    inside: Num


def axis_taps(nest: Nest, position: Num, size: int) -> list[Tap]:
    """The two pixels around a position; those beyond the edge do not exist."""
    low = nest.unary("floor", position)
    far = position - low
    found = []
    for k, weight in enumerate((1.0 - far, far)):
        pixel = low + float(k)
        inside = (pixel >= 0.0) & (pixel < float(size))
        found.append(Tap(nest.select(inside, pixel, 0.0).whole(), weight, inside))
    return found


def _bilinear(
    nest: Nest,
    plane: Tensor,
    p: Lanes,
    rows: list[Tap],
    columns: list[Tap],
    size: tuple[int, int],
) -> Num:
    """The sample of all channels of `p` at one position; `size` is (w, c)."""
    total: Num | None = None
    for row in rows:
        for column in columns:
            pixel = plane.move((row.at * size[0] + column.at) * size[1]).line(p)
            value = nest.select(nest.splat(row.inside & column.inside), pixel, 0.0)
            part = value * (row.weight * column.weight)
            total = part if total is None else total + part
    assert total is not None
    return total


def _least(nest: Nest) -> Num:
    return nest.splat(nest.number(float("-inf"), "float"))


def _index(nest: Nest, value: int) -> Num:
    return nest.splat(nest.number(value, "i32"))


def roi_pooling(how: Regions, target: Target) -> Kernel:
    """Largest value of the pixels of each bin with its position, or their mean; empty: 0 and -1."""
    bins = _Bins(how, target)
    nest, (_, c, h, w) = bins.nest, how.images
    oh, ow = how.out
    with nest.each_unit(how.count * oh) as unit:
        region, row = bins.regions.move(unit // oh * 5), unit % oh
        plane = bins.image(region, unit)
        x0, y0, x1, y1 = (region[k] * how.scale for k in range(1, 5))
        top, bottom = span(nest, y0, y1, row, oh, h)
        with nest.loop(0, ow) as column:
            left, right = span(nest, x0, x1, column.i, ow, w)

            def channels(p: Lanes, left: Num = left, right: Num = right) -> None:
                start = [nest.splat(nest.number(0.0, "double")), _least(nest), _index(nest, -1)]
                with nest.loop(top, bottom, start) as i:
                    with nest.loop(left, right, i.v) as j:
                        total, best, at = j.v
                        pixel = i.i * w + j.i
                        value = plane.move(pixel * c).line(p)
                        better = value > best
                        j.next = [
                            total + value.to("double"),
                            nest.select(better, value, best),
                            nest.select(better, pixel, at),
                        ]
                    i.next = j.out
                total, best, at = i.out
                where = unit * ow + column.i
                if how.maximum:
                    bins.put(p, where, nest.select(at < 0, 0.0, best), at)
                    return
                sides = (nest.maximum(v, 0) for v in (bottom - top, right - left))
                count = nest.maximum(next(sides) * next(sides), 1)
                mean = (total / count.to("double")).to("float")
                bins.put(p, where, mean, _index(nest, -1))

            nest.lines(c, channels)
    return nest.finish(f"roi_pooling_{'max' if how.maximum else 'mean'}")


def span(nest: Nest, low: Num, high: Num, bin_: Num, bins: int, size: int) -> tuple[Num, Num]:
    """First and end pixel of a bin of a region along one axis, within the image."""
    first, last = (nest.clamp(nest.round_away(v), -_FAR, _FAR).whole() for v in (low, high))
    length = nest.maximum(last - first + 1, 1).to("float")
    step = length / float(bins)
    place = bin_.to("float")
    start = nest.unary("floor", place * step).whole() + first
    end = nest.unary("ceil", (place + 1.0) * step).whole() + first
    return nest.clamp(start, 0, size), nest.clamp(end, 0, size)


@dataclass(frozen=True, slots=True)
class Moving:
    """Bins that are moved by offsets.

    Attributes:
        samples: Samples of a bin along each axis.
        parts: Offsets along each axis, shared by neighbouring bins; 0 without offsets.
        strength: Factor of the offsets.
    """

    samples: int
    parts: int
    strength: float


def exact_image_of(nest: Nest, region: Tensor, images: int, mark: Tensor) -> Num:
    """As `image_of`, for numbers that must be whole."""
    image = region[0]
    good = (image >= 0.0) & (image < float(images)) & nest.unary("floor", image).eq(image)
    with nest.when(~good):
        mark.put(0, 1)
    return nest.select(good, image, 0.0).whole()


@dataclass(frozen=True, slots=True)
class MovingBins:
    """The bins of a region: start and extent along height and width, and its offsets."""

    how: Regions
    moving: Moving
    starts: list[Num]
    extents: list[Num]
    offsets: Tensor

    def part(self, nest: Nest, at: tuple[Num, Num]) -> Num:
        """Number of a bin's offset along one axis."""
        places = [
            nest.unary("floor", k.to("float") / float(bins) * float(self.moving.parts)).whole()
            for k, bins in zip(at, self.how.out, strict=True)
        ]
        return places[0] * self.moving.parts + places[1]

    def moves(self, nest: Nest, at: tuple[Num, Num]) -> list[Num | float]:
        """How far a bin is moved down and to the right."""
        parts = self.moving.parts
        if not parts:
            return [0.0, 0.0]
        part = self.part(nest, at)
        return [
            self.offsets[part + (1 - k) * parts**2] * self.moving.strength * self.extents[k]
            for k in range(2)
        ]

    def taps(
        self, nest: Nest, k: int, at: tuple[Num, Num], move: list[Num | float], sample: Num
    ) -> tuple[list[Tap], Num]:
        """Pixels of a sample of a bin along axis k, and whether it lies in the image."""
        each, size = self.extents[k] / float(self.how.out[k]), self.how.images[2 + k]
        place = (self.starts[k] + at[k].to("float") * each) + move[k]
        place = place + sample.to("float") * (each / float(self.moving.samples))
        inside = (place >= -0.5) & (place <= float(size) - 0.5)
        return edged(nest, place, inside, size), inside


def moving_bins(
    nest: Nest, how: Regions, moving: Moving, region: Tensor, offsets: Tensor
) -> MovingBins:
    """The bins of a region with its offsets (2, parts, parts)."""
    left, top, right, bottom = (
        (nest.round_away(region[k]) + float(k > 2)) * how.scale - 0.5 for k in range(1, 5)
    )
    lengths = [bottom - top, right - left]
    extents = [nest.select((v > 0.1) | v.is_nan(), v, 0.1) for v in lengths]
    return MovingBins(how, moving, [top, left], extents, offsets)


def moved_pooling(how: Regions, moving: Moving, target: Target) -> Kernel:
    """Mean of the samples of a bin that lie in the image, and their number.

    Argument table: x (n, h, w, c), regions (m, 5), offsets (m, 2, parts, parts) as (x, y), mean
    and number (m, oh, ow, c), status. Units: regions and rows of bins.
    """
    nest = Nest(["float32"] * 5 + ["int32"], target)
    x, regions, offsets, y, numbers, status = nest.arrays
    (n, c, h, w), (ph, pw), parts = how.images, how.out, moving.parts
    with nest.each_unit(how.count * ph) as unit:
        which, row = unit // ph, unit % ph
        region = regions.move(which * 5)
        status.put(unit, 0)
        image = exact_image_of(nest, region, n, status.move(unit))
        plane = x.move(image * (c * h * w))
        bins = moving_bins(nest, how, moving, region, offsets.move(which * (2 * parts**2)))
        with nest.loop(0, pw) as column:
            at = (row, column.i)
            move = bins.moves(nest, at)

            def channels(
                p: Lanes,
                bin_: Num = unit * pw + column.i,
                at: tuple[Num, Num] = at,
                move: list[Num | float] = move,
            ) -> None:
                zero = nest.number(0.0, "float")
                with nest.loop(0, moving.samples, [nest.splat(zero), zero]) as i:
                    rows, in_y = bins.taps(nest, 0, at, move, i.i)
                    with nest.loop(0, moving.samples, i.v) as j:
                        columns, in_x = bins.taps(nest, 1, at, move, j.i)
                        value = _bilinear(nest, plane, p, rows, columns, (w, c))
                        counted = nest.select(in_y & in_x, nest.number(1.0, "float"), 0.0)
                        j.next = [j.v[0] + value * counted, j.v[1] + counted]
                    i.next = j.out
                total, number = i.out
                y.move(bin_ * c).put(p, total / nest.maximum(number, 1.0))
                numbers.move(bin_ * c).put(p, number)

            nest.lines(c, channels)
    return nest.finish("moved_pooling_f32")


def edged(nest: Nest, position: Num, inside: Num, size: int) -> list[Tap]:
    """The pixels around a position, those beyond the edge being the edge's."""
    safe = nest.select(inside, nest.clamp(position, 0.0, float(size - 1)), 0.0)
    low = nest.unary("floor", safe)
    far, first = safe - low, low.whole()
    exists = nest.number(1, "i1")
    return [
        Tap(nest.minimum(first + k, size - 1), weight, exists)
        for k, weight in enumerate((1.0 - far, far))
    ]
