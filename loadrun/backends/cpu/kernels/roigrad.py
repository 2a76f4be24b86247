"""Gradients of regions of images brought to a fixed size: what bins give back to their pixels.

As in `giving`, sums are float64, and a work unit owns channels of an image and walks all regions in
order. Channels are last but for ROIPooling, whose places differ from channel to channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loadrun.backends.cpu.kernels import roi
from loadrun.backends.cpu.kernels.giving import Blocks, add_to, summing
from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.kernels.roi import Moving, Regions, Tap
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class _Own:
    """What a work unit gives to: sums of an image, channels last, and a block of channels."""

    nest: Nest
    how: Regions
    sums: Tensor
    blocks: Blocks
    block: Num

    def give(self, rows: list[Tap], columns: list[Tap], value: Callable[[Lanes], Num]) -> None:
        """Add numbers, by weight, to the pixels of a sample."""
        _, c, _, w = self.how.images
        for row in rows:
            for column in columns:
                weight = (row.weight * column.weight).to("double")
                at = row.at * w + column.at

                def channels(p: Lanes, weight: Num = weight, at: Num = at) -> None:
                    add_to(self.sums, at, c, p, value(p) * weight)

                with self.nest.when(row.inside & column.inside):
                    self.blocks.each(self.nest, self.block, channels)


@contextmanager
def _each_region(
    nest: Nest,
    how: Regions,
    arrays: tuple[Tensor, Tensor, Tensor],
    image_of: Callable[[Nest, Tensor, int, Tensor], Num],
) -> Iterator[tuple[Num, Tensor, _Own]]:
    """For each block of channels of an image, its regions: number, position, and what they give to.

    `arrays` are regions, sums (n, h, w, c) and status; `image_of` reads a region's image.
    """
    (n, c, h, w), (regions, sums, status) = how.images, arrays
    blocks = Blocks.of(c, nest.lanes)
    with nest.each_unit(n * blocks.count) as unit:
        image, block = unit // blocks.count, unit % blocks.count
        own = _Own(nest, how, sums.move(image * (h * w * c)), blocks, block)
        status.put(unit, 0)
        with nest.loop(0, how.count) as m:
            region = regions.move(m.i * 5)
            which = image_of(nest, region, n, status.move(unit))
            with nest.when(which.eq(image)):
                yield m.i, region, own


def roi_align_gradient(how: Regions, target: Target) -> Kernel:
    """Argument table: gradients and positions (m, oh, ow, c), regions, sums and result, status.

    Sums and result are (n, h, w, c). Units of `status`: images times blocks of channels.
    """
    (n, c, h, w), (ph, pw), (sh, sw) = how.images, how.out, how.samples
    dtypes = ("float32", "int32", "float32", "int32", "float64", "float32")

    def add(nest: Nest) -> None:
        diff, index, regions, status, sums, _ = nest.arrays
        with _each_region(nest, how, (regions, sums, status), roi.image_of) as (m, region, own):
            lines = roi.align_lines(nest, how, region)
            with nest.loop(0, ph) as row, nest.loop(0, sh) as s:
                rows = lines[0].taps(nest, row.i, s.i)
                with nest.loop(0, pw) as column, nest.loop(0, sw) as t:
                    columns = lines[1].taps(nest, column.i, t.i)
                    at = ((m * ph + row.i) * pw + column.i) * c
                    number = s.i * sw + t.i

                    def value(p: Lanes, at: Num = at, number: Num = number) -> Num:
                        given = diff.move(at).line(p)
                        if not how.maximum:
                            return (given / float(sh * sw)).to("double")
                        chosen = index.move(at).line(p).eq(number)
                        return nest.select(chosen, given, 0.0).to("double")

                    own.give(rows, columns, value)

    first, *rest = summing(dtypes, n * h * w * c, target, add)
    return first.finish(f"roi_align_gradient_{'max' if how.maximum else 'mean'}", *rest)


def roi_pooling_gradient(how: Regions, index: str, target: Target) -> Kernel:
    """Argument table: gradients, positions (m, c, oh, ow), regions, status, sums, result.

    Sums and result are (n, c, h, w); `index` is the element type of the positions. Units of
    `status`: images times channels. Regions that end before they begin give nothing.
    """
    (n, c, h, w), (oh, ow) = how.images, how.out
    dtypes = ("float32", index, "float32", "int32", "float64", "float32")

    def add(nest: Nest) -> None:
        diff, places, regions, status, sums, _ = nest.arrays
        with nest.each_unit(n * c) as unit:
            image, channel = unit // c, unit % c
            own = sums.move(unit * (h * w))
            status.put(unit, 0)
            with nest.loop(0, how.count) as m:
                region = regions.move(m.i * 5)
                which = roi.image_of(nest, region, n, status.move(unit))
                with nest.when(which.eq(image)):
                    corners = [nest.round_away(region[k] * how.scale) for k in range(1, 5)]
                    proper = (corners[2] >= corners[0]) & (corners[3] >= corners[1])
                    start = (m.i * c + channel) * (oh * ow)
                    given = diff.move(start)
                    if how.maximum:
                        at = places.move(start)
                        _give_largest(nest, how, (given, at, own), proper, status.move(unit))
                    else:
                        with nest.when(proper):
                            _give_means(nest, how, region, given, own)

    first, *rest = summing(dtypes, n * c * h * w, target, add)
    return first.finish(f"roi_pooling_gradient_{'max' if how.maximum else 'mean'}", *rest)


def _give_largest(
    nest: Nest, how: Regions, arrays: tuple[Tensor, Tensor, Tensor], proper: Num, mark: Tensor
) -> None:
    """Each bin's gradient to the pixel that was its largest; -1: none."""
    diff, places, own = arrays
    _, _, h, w = how.images
    with nest.loop(0, how.out[0] * how.out[1]) as bin_:
        at = places[bin_.i]
        with nest.when(at >= h * w):
            mark.put(0, 1)
        with nest.when((at >= 0) & (at < h * w) & proper):
            own.put(at, own[at] + diff[bin_.i].to("double"))


def _give_means(nest: Nest, how: Regions, region: Tensor, diff: Tensor, own: Tensor) -> None:
    """Each bin's gradient to all of its pixels, in equal parts."""
    _, _, h, w = how.images
    x0, y0, x1, y1 = (region[k] * how.scale for k in range(1, 5))
    with nest.loop(0, how.out[0]) as row:
        top, bottom = roi.span(nest, y0, y1, row.i, how.out[0], h)
        with nest.loop(0, how.out[1]) as column:
            left, right = roi.span(nest, x0, x1, column.i, how.out[1], w)
            area = (bottom - top) * (right - left)
            some = (bottom > top) & (right > left)
            count = nest.select(some, area, nest.number(1, "i64")).to("double")
            share = nest.splat(diff[row.i * how.out[1] + column.i].to("double") / count)
            with nest.when(some), nest.loop(top, bottom) as y:
                line = own.move(y.i * w)

                def pixels(p: Lanes, line: Tensor = line, share: Num = share) -> None:
                    line.put(p, line.line(p) + share)

                nest.by_lanes(left, right, pixels, -1)


@dataclass(frozen=True, slots=True)
class _Shares:
    """What samples of bins get: the gradient divided by how many of them lie in the image."""

    nest: Nest
    diff: Tensor
    counts: Tensor

    def of(self, at: Num, p: Lanes) -> Num:
        """Of a bin, whose numbers begin at an element."""
        count, given = self.counts.move(at).line(p), self.diff.move(at).line(p)
        share = given / self.nest.maximum(count, 1.0)
        return self.nest.select(count > 0.0, share, 0.0)

    def at(self, at: Num) -> Callable[[Lanes], Num]:
        """As `of`, in float64, as a function of channels."""
        return lambda p: self.of(at, p).to("double")


def moved_image_gradient(how: Regions, moving: Moving, target: Target) -> Kernel:
    """The gradient of deformable pooling by the images.

    Argument table: regions, offsets (m, 2, parts, parts), gradients and numbers of samples
    (m, oh, ow, c), status, sums and result (n, h, w, c). Units of `status`: images times blocks.
    """
    (n, c, h, w), (ph, pw), parts = how.images, how.out, moving.parts
    dtypes = (*["float32"] * 4, "int32", "float64", "float32")

    def add(nest: Nest) -> None:
        regions, offsets, diff, counts, status, sums, _ = nest.arrays
        shares = _Shares(nest, diff, counts)
        arrays = (regions, sums, status)
        with _each_region(nest, how, arrays, roi.exact_image_of) as (m, region, own):
            moves = offsets.move(m * (2 * parts**2))
            bins = roi.moving_bins(nest, how, moving, region, moves)
            with nest.loop(0, ph) as row, nest.loop(0, pw) as column:
                at, first = (row.i, column.i), ((m * ph + row.i) * pw + column.i) * c
                move = bins.moves(nest, at)
                with nest.loop(0, moving.samples) as i:
                    rows, in_y = bins.taps(nest, 0, at, move, i.i)
                    with nest.loop(0, moving.samples) as j:
                        columns, in_x = bins.taps(nest, 1, at, move, j.i)
                        with nest.when(in_y & in_x):
                            own.give(rows, columns, shares.at(first))

    first, *rest = summing(dtypes, n * h * w * c, target, add)
    return first.finish("moved_image_gradient_f32", *rest)


def moved_offset_gradient(how: Regions, moving: Moving, size: int, target: Target) -> Kernel:
    """The gradient of deformable pooling by the offsets.

    Argument table: x (n, h, w, c), regions, offsets, gradients and numbers of samples
    (m, oh, ow, c), status, sums and result of `size` elements, of which the first are
    (m, 2, parts, parts). Units of `status`: regions.
    """
    (n, c, h, w), (ph, pw), parts = how.images, how.out, moving.parts
    dtypes = (*["float32"] * 5, "int32", "float64", "float32")

    def add(nest: Nest) -> None:
        x, regions, offsets, diff, counts, status, sums, _ = nest.arrays
        shares = _Shares(nest, diff, counts)
        with nest.each_unit(how.count) as unit:
            region = regions.move(unit * 5)
            status.put(unit, 0)
            which = roi.exact_image_of(nest, region, n, status.move(unit))
            bins = roi.moving_bins(nest, how, moving, region, offsets.move(unit * (2 * parts**2)))
            plane, own = x.move(which * (h * w * c)), sums.move(unit * (2 * parts**2))
            with nest.loop(0, ph) as row, nest.loop(0, pw) as column:
                at, first = (row.i, column.i), ((unit * ph + row.i) * pw + column.i) * c
                zero = nest.number(0.0, "double")
                move, part = bins.moves(nest, at), bins.part(nest, at)
                with nest.loop(0, moving.samples, [zero, zero]) as i:
                    rows, in_y = bins.taps(nest, 0, at, move, i.i)
                    with nest.loop(0, moving.samples, i.v) as j:
                        columns, in_x = bins.taps(nest, 1, at, move, j.i)
                        found = _sample_slopes(
                            nest, (plane, w, c), rows, columns, lambda p: shares.of(first, p)
                        )
                        counted = in_y & in_x
                        j.next = [
                            v + nest.select(counted & ~taps[1].weight.eq(0.0), slope, zero)
                            for v, slope, taps in zip(j.v, found, (rows, columns), strict=True)
                        ]
                    i.next = j.out
                for k, total in enumerate(i.out):
                    place = part + (1 - k) * parts**2
                    step = total * bins.extents[k].to("double") * moving.strength
                    own.put(place, own[place] + step)

    first, *rest = summing(dtypes, size, target, add)
    return first.finish("moved_offset_gradient_f32", *rest)


def _sample_slopes(
    nest: Nest,
    image: tuple[Tensor, int, int],
    rows: list[Tap],
    columns: list[Tap],
    share: Callable[[Lanes], Num],
) -> list[Num]:
    """Gradients by the row and the column of a sample, over all channels; image: x, w, c."""
    x, w, c = image

    def corners(p: Lanes) -> list[Num]:
        given = share(p).to("double")
        return [
            x.move((row.at * w + column.at) * c).line(p).to("double") * given
            for row in rows
            for column in columns
        ]

    each = nest.summed(c, len(rows) * len(columns), corners)
    by_y, by_x = nest.number(0.0, "double"), nest.number(0.0, "double")
    for k, total in enumerate(each):
        i, j = divmod(k, len(columns))
        down, side = columns[j].weight.to("double") * total, rows[i].weight.to("double") * total
        by_y = by_y + down if i else by_y - down
        by_x = by_x + side if j else by_x - side
    return [by_y, by_x]
