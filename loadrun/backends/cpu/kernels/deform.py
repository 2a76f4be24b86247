"""Windows whose taps are moved, and comparisons of two maps over displacements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor, chunks
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_PART = 1024  # pixels of a work unit

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Moved:
    """Windows of images with a move of each tap, shared by `channels` channels of a group.

    Attributes:
        batch, groups, channels: Images, groups that move together, channels of each.
        size, out: Of the images and of the result, height and width.
        kernel, stride, pad, dilate: Of the windows.
    """

    batch: int
    groups: int
    channels: int
    size: Pair
    out: Pair
    kernel: Pair
    stride: Pair
    pad: Pair
    dilate: Pair

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return self.kernel[0] * self.kernel[1]


@contextmanager
def each_part(
    nest: Nest, lines: int, pixels: int
) -> Iterator[tuple[Num, Callable[[Callable[[Lanes], None]], None]]]:
    """The loop over work units that are parts of the pixels of `lines` lines.

    Gives the line's number, and what runs a body over the unit's pixels.
    """
    parts = chunks(pixels, _PART)
    with nest.each_unit(lines * parts) as unit:
        low, which = unit % parts * _PART, unit // parts

        def over(body: Callable[[Lanes], None]) -> None:
            high = nest.minimum(low + _PART, pixels)
            nest.by_lanes(low, high, body, -1 if pixels % nest.lanes else 0)

        yield which, over


def moved_columns(how: Moved, target: Target) -> Kernel:
    """Bilinear values of all taps, times the mask: (batch, groups, channels, taps, pixels).

    Argument table: x (batch, groups * channels, h, w), moves (batch, groups, taps, 2, pixels) as
    (y, x), mask (batch, groups, taps, pixels), result. Units: parts of the pixels of a tap.
    """
    nest = Nest(["float32"] * 4, target)
    x, moves, mask, y = nest.arrays
    (h, w), pixels, taps = how.size, how.out[0] * how.out[1], how.taps
    with each_part(nest, how.batch * how.groups * taps, pixels) as (which, over):
        tap, image = which % taps, which // taps

        def columns(p: Lanes) -> None:
            axes, inside = moved_positions(nest, how, moves, which, p)
            corners = _corners(nest, axes, inside, (h, w))
            heavy = mask.move(which * pixels).line(p)
            with nest.loop(0, how.channels) as c:
                channel = image * how.channels + c.i
                source = x.move(channel * (h * w))
                total: Num | None = None
                for at, weight, exists in corners:
                    part = nest.select(exists, source[at], 0.0) * weight
                    total = part if total is None else total + part
                assert total is not None
                y.move((channel * taps + tap) * pixels).put(p, total * heavy)

        over(columns)
    return nest.finish("moved_columns_f32")


def moved_positions(
    nest: Nest, how: Moved, moves: Tensor, which: Num, p: Lanes
) -> tuple[list[Num], Num]:
    """Row and column that a tap reads for the pixels `p`, and whether that is near the image.

    `which` counts the taps of all images and groups.
    """
    (h, w), pixels, tap = how.size, how.out[0] * how.out[1], which % how.taps
    start = [tap // how.kernel[1] * how.dilate[0], tap % how.kernel[1] * how.dilate[1]]
    places = [p.at // how.out[1], p.at % how.out[1]]
    axes = []
    for k in range(2):
        base = places[k] * how.stride[k] + (start[k] - how.pad[k])
        axes.append(moves.move((which * 2 + k) * pixels).line(p) + base.to("float"))
    inside = (axes[0] > -1.0) & (axes[0] < float(h)) & (axes[1] > -1.0)
    return axes, inside & (axes[1] < float(w))


Side = tuple[Num, Num, Num]  # a pixel of an axis, its weight and existence


def sides(nest: Nest, axes: list[Num], inside: Num, size: Pair) -> list[list[Side]]:
    """The two pixels around positions that are inside, along both axes."""
    each = []
    for at, n in zip(axes, size, strict=True):
        safe = nest.select(inside, at, -2.0)
        low = nest.unary("floor", safe)
        far = safe - low
        first = low.whole()
        pair = []
        for k, weight in enumerate((1.0 - far, far)):
            pixel = first + k
            exists = (pixel >= 0) & (pixel < n)
            pair.append((nest.select(exists, pixel, 0), weight, exists))
        each.append(pair)
    return each


def _corners(nest: Nest, axes: list[Num], inside: Num, size: Pair) -> list[Side]:
    """Place, weight and existence of the four pixels around positions that are inside."""
    rows, columns = sides(nest, axes, inside, size)
    return [(a * size[1] + b, wa * wb, ea & eb) for a, wa, ea in rows for b, wb, eb in columns]


@dataclass(frozen=True, slots=True)
class Comparing:
    """Comparison of windows of two maps over displacements; see `ops.correlation.Correlation`."""

    shape: tuple[int, int, int, int]  # of the result
    channels: int  # of the maps
    size: Pair
    reach: int
    kernel: int
    stride: int
    step: int
    first: int
    multiplied: bool


def compare(how: Comparing, target: Target) -> Kernel:
    """Mean product, or distance, of two windows for each displacement.

    Argument table: both maps (n, c, h, w), result (n, displacements, oh, ow). Units: parts of the
    pixels of a displacement. Sums are in float64.
    """
    nest = Nest(["float32"] * 3, target)
    a, b, y = nest.arrays
    n, displacements, oh, ow = how.shape
    (h, w), c = how.size, how.channels
    width, pixels = 2 * how.reach + 1, oh * ow

    def place(at: Num, start: Num, size: int) -> tuple[Num, Num]:
        pixel = at * how.stride + start
        exists = (pixel >= 0) & (pixel < size)
        return nest.select(exists, pixel, 0), exists

    with each_part(nest, n * displacements, pixels) as (which, over):
        channel, image = which % displacements, which // displacements
        moves = [
            (channel // width - how.reach) * how.step,
            (channel % width - how.reach) * how.step,
        ]
        maps = [t.move(image * (c * h * w)) for t in (a, b)]

        def pixels_of(p: Lanes) -> None:
            row, column = p.at // ow, p.at % ow
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, how.kernel, [zero]) as i:
                with nest.loop(0, how.kernel, i.v) as j:
                    found = []
                    for down, across in ((0, 0), (moves[0], moves[1])):
                        top, in_y = place(row, i.i + how.first + down, h)
                        left, in_x = place(column, j.i + how.first + across, w)
                        found.append((top * w + left, in_y & in_x))
                    with nest.loop(0, c, j.v) as k:
                        values = [
                            nest.select(exists, t.move(k.i * (h * w))[at], 0.0).to("double")
                            for t, (at, exists) in zip(maps, found, strict=True)
                        ]
                        both = (
                            values[0] * values[1]
                            if how.multiplied
                            else nest.unary("fabs", values[0] - values[1])
                        )
                        k.next = [k.v[0] + both]
                    j.next = k.out
                i.next = j.out
            mean = i.out[0] / float(how.kernel**2 * max(c, 1))
            y.move(which * pixels).put(p, mean.to("float"))

        over(pixels_of)
    return nest.finish("compare_f32")
