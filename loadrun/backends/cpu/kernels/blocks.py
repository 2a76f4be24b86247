"""Cosine transforms of blocks of images, and masks that spread through windows."""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Transform:
    """Blocks of images of bytes.

    Attributes:
        images, channels: Of the source (images, channels, h * size, w * size).
        blocks: Rows and columns of blocks, h and w.
        size: Side of a block.
        chosen: Coefficients of the result (images, chosen, h, w).
    """

    images: int
    channels: int
    blocks: Pair
    size: int
    chosen: int


def transform(how: Transform, target: Target) -> Kernel:
    """Chosen coefficients of all blocks, summed in float64.

    Argument table: x, matrix (size, size) of float64, for each coefficient its channel times
    size**2 plus its number, result. Units: rows of blocks of a coefficient.
    """
    nest = Nest(("uint8", "float64", "int32", "float32"), target)
    x, matrix, chosen, y = nest.arrays
    (h, w), s = how.blocks, how.size
    with nest.each_unit(how.images * how.chosen * h) as unit:
        row, which = unit % h, unit // h
        image, number = which // how.chosen, chosen[which % how.chosen]
        channel, coefficient = number // (s * s), number % (s * s)
        down, across = matrix.move(coefficient // s * s), matrix.move(coefficient % s * s)
        line = ((image * how.channels + channel) * h + row) * (s * s * w)
        source = x.move(line)

        def columns(p: Lanes) -> None:
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, s, [zero]) as i:
                with nest.loop(0, s, [zero]) as j:
                    pixel = source[p.at * s + (i.i * (s * w) + j.i)].to("double")
                    j.next = [j.v[0] + across[j.i] * pixel]
                i.next = [i.v[0] + down[i.i] * j.out[0]]
            y.move(unit * w).put(p, i.out[0].to("float"))

        nest.lines(w, columns)
    return nest.finish(f"cosines_{s}x{s}")


@dataclass(frozen=True, slots=True)
class Spreading:
    """Windows over a mask: sizes of mask and result, kernel, stride, padding and dilation."""

    size: Pair
    out: Pair
    kernel: Pair
    stride: Pair
    pad: Pair
    dilate: Pair


def spread_mask(how: Spreading, dtype: str, target: Target) -> Kernel:
    """1 where a window sees anything but zeros. Argument table: mask, result. Units: rows."""
    nest = Nest((dtype, dtype), target)
    x, y = nest.arrays
    (h, w), (oh, ow) = how.size, how.out
    with nest.each_unit(oh) as row:

        def columns(p: Lanes) -> None:
            none = nest.splat(nest.number(0, "i32"))
            with nest.loop(0, how.kernel[0], [none]) as i:
                down = row * how.stride[0] - how.pad[0] + i.i * how.dilate[0]
                high = (down >= 0) & (down < h)
                with nest.loop(0, how.kernel[1], i.v) as j:
                    side = p.at * how.stride[1] - how.pad[1] + j.i * how.dilate[1]
                    exists = nest.splat(high) & (side >= 0) & (side < w)
                    value = x[nest.select(exists, side + down * w, 0)]
                    seen = exists & ~value.eq(0)
                    j.next = [nest.select(seen, 1, j.v[0])]
                i.next = j.out
            found = i.out[0]
            y.move(row * ow).put(p, found.to("float") if dtype == "float32" else found)

        nest.lines(ow, columns)
    return nest.finish(f"spread_mask_{dtype}")
