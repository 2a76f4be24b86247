"""Sums of windows at their places, and windows of which only one region counts."""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Adding:
    """Windows (planes, rows, columns, kernel) that images (planes, h, w) are the sum of.

    Attributes:
        planes: Images times channels.
        windows: Rows and columns of windows.
        size: Height and width of the images.
        kernel, stride, pad, dilate: Of the windows.
        dtype: Of the elements: float32, summed in float64, or whole numbers, which wrap.
    """

    planes: int
    windows: Pair
    size: Pair
    kernel: Pair
    stride: Pair
    pad: Pair
    dilate: Pair
    dtype: str


def add_windows(how: Adding, target: Target) -> Kernel:
    """Argument table: windows, images. Units: rows of images."""
    nest = Nest((how.dtype, how.dtype), target)
    x, y = nest.arrays
    real = how.dtype == "float32"
    (rows, columns), (h, w), (kh, kw) = how.windows, how.size, how.kernel
    zero = nest.splat(nest.number(0, "double" if real else "i32"))
    with nest.each_unit(how.planes * h) as unit:
        plane, row = unit // h, unit % h
        source = x.move(plane * (rows * columns * kh * kw))

        def pixels(p: Lanes) -> None:
            with nest.loop(0, kh, [zero]) as i:
                down = row + how.pad[0] - i.i * how.dilate[0]
                top, high = window_at(nest, down, how.stride[0], rows)
                with nest.loop(0, kw, i.v) as j:
                    across = p.at + how.pad[1] - j.i * how.dilate[1]
                    left, inside = window_at(nest, across, how.stride[1], columns)
                    at = (top * columns + left) * (kh * kw) + (i.i * kw + j.i)
                    found = nest.select(inside & nest.splat(high), source[at], 0)
                    j.next = [j.v[0] + (found.to("double") if real else found)]
                i.next = j.out
            y.move(unit * w).put(p, i.out[0].to("float") if real else i.out[0])

        nest.lines(w, pixels)
    return nest.finish(f"add_windows_{how.dtype}")


def window_at(nest: Nest, at: Num, stride: int, count: int) -> tuple[Num, Num]:
    """The window that begins at a position, and whether there is one."""
    safe = nest.maximum(at, 0)
    place = safe // stride
    good = (at >= 0) & (place < count)
    if stride > 1:
        good = good & (place * stride).eq(safe)
    return nest.select(good, place, 0), good


def same_region(batch: int, each: int, kinds: Pair, target: Target, *, dtype: str) -> Kernel:
    """Windows (batch, inputs, taps, pixels), zero where their pixel is of another region.

    Argument table: windows, regions that the taps see (batch, taps, pixels), regions of the
    outputs (batch, pixels), result. `each` is the number of inputs, `kinds` taps and pixels.
    Units: taps of an input.
    """
    taps, pixels = kinds
    nest = Nest(("float32", dtype, dtype, "float32"), target)
    x, seen, own, y = nest.arrays
    with nest.each_unit(batch * each * taps) as unit:
        image, tap = unit // (each * taps), unit % taps
        given, to = x.move(unit * pixels), y.move(unit * pixels)
        there, here = seen.move((image * taps + tap) * pixels), own.move(image * pixels)

        def keep(p: Lanes) -> None:
            same = there.line(p).eq(here.line(p)).to("float")
            to.put(p, given.line(p) * same)

        nest.lines(pixels, keep)
    return nest.finish("same_region_f32")


def give_to_largest(how: Adding, target: Target) -> Kernel:
    """The gradient of maxima: each element gets those of all windows that it is the largest of.

    Argument table: images, maxima and their gradients (planes, rows, columns), result as the
    images. Units: rows of images.
    """
    nest = Nest(["float32"] * 4, target)
    x, best, diff, y = nest.arrays
    (rows, columns), (h, w), (kh, kw) = how.windows, how.size, how.kernel
    zero = nest.splat(nest.number(0.0, "float"))
    with nest.each_unit(how.planes * h) as unit:
        plane, row = unit // h, unit % h
        maxima, given = (t.move(plane * (rows * columns)) for t in (best, diff))
        line = x.move(unit * w)

        def pixels(p: Lanes) -> None:
            own = line.line(p)
            with nest.loop(0, kh, [zero]) as i:
                top, high = window_at(nest, row + how.pad[0] - i.i, how.stride[0], rows)
                with nest.loop(0, kw, i.v) as j:
                    left, inside = window_at(nest, p.at + how.pad[1] - j.i, how.stride[1], columns)
                    at = left + top * columns
                    largest = inside & nest.splat(high) & own.eq(maxima[at])
                    j.next = [j.v[0] + nest.select(largest, given[at], 0.0)]
                i.next = j.out
            y.move(unit * w).put(p, i.out[0])

        nest.lines(w, pixels)
    return nest.finish("give_to_largest_f32")
