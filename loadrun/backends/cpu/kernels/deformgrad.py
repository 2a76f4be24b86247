"""Gradients of windows whose taps are moved, and of comparisons of two maps."""

from __future__ import annotations

from loadrun.backends.cpu.kernels.deform import Comparing, Moved, each_part, moved_positions, sides
from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num
from loadrun.backends.cpu.kernels.windows import window_at
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target


def moved_gradients(how: Moved, target: Target) -> Kernel:
    """Gradients by moves and masks, and what each tap gives to which pixels.

    Argument table: x (batch, groups * channels, h, w), moves (batch, groups, taps, 2, pixels),
    mask (batch, groups, taps, pixels), gradients of the windows (batch, groups, channels, taps,
    pixels), gradients by moves and by the mask, places within an image or -1, and weights times
    mask (batch, groups, 4, taps, pixels). Units: parts of the pixels of a tap.
    """
    nest = Nest([*["float32"] * 6, "int32", "float32"], target)
    x, moves, mask, given, by_move, by_mask, places, weights = nest.arrays
    (h, w), pixels, taps = how.size, how.out[0] * how.out[1], how.taps
    with each_part(nest, how.batch * how.groups * taps, pixels) as (which, over):
        tap, image = which % taps, which // taps

        def columns(p: Lanes) -> None:
            axes, inside = moved_positions(nest, how, moves, which, p)
            pairs = sides(nest, axes, inside, (h, w))
            corners = [(a, b) for a in pairs[0] for b in pairs[1]]
            heavy = mask.move(which * pixels).line(p)
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, how.channels, [zero] * 5) as c:
                channel = image * how.channels + c.i
                source = x.move(channel * (h * w))
                share = given.move((channel * taps + tap) * pixels).line(p)
                exact = (share * heavy).to("double")
                c.next, value = [], nest.splat(nest.number(0.0, "float"))
                for total, (a, b) in zip(c.v, corners, strict=False):
                    found = nest.select(a[2] & b[2], source[a[0] * w + b[0]], 0.0)
                    value = value + (a[1] * b[1]) * found
                    c.next.append(total + found.to("double") * exact)
                c.next.append(c.v[4] + (share * value).to("double"))
            by_mask.move(which * pixels).put(p, c.out[4].to("float"))
            slopes: list[Num] = [zero, zero]
            for k, (a, b) in enumerate(corners):
                i, j = divmod(k, 2)
                down, side = b[1].to("double") * c.out[k], a[1].to("double") * c.out[k]
                slopes[0] = slopes[0] + down if i else slopes[0] - down
                slopes[1] = slopes[1] + side if j else slopes[1] - side
                start = ((image * 4 + k) * taps + tap) * pixels
                place = nest.select(a[2] & b[2], a[0] * w + b[0], -1)
                places.move(start).put(p, place)
                weights.move(start).put(p, a[1] * b[1] * heavy)
            for k, slope in enumerate(slopes):
                result = nest.select(inside, slope, 0.0).to("float")
                by_move.move((which * 2 + k) * pixels).put(p, result)

        over(columns)
    return nest.finish("moved_gradients_f32")


def compare_gradient(how: Comparing, target: Target, *, first: bool) -> Kernel:
    """The gradient of a comparison by the first or the second map.

    Argument table: gradients (n, displacements, oh, ow), the maps and result (n, c, h, w). Units:
    rows of the result. Sums are in float64. By the first map, displacements count column by column.
    """
    nest = Nest(["float32"] * 4, target)
    diff, a, b, y = nest.arrays
    n, displacements, oh, ow = how.shape
    (h, w), c = how.size, how.channels
    width = 2 * how.reach + 1
    own, other = (a, b) if first else (b, a)
    with nest.each_unit(n * c * h) as unit:
        plane, row = unit // h, unit % h
        mine, beside = own.move(unit * w), other.move(plane * (h * w))
        given = diff.move(plane // c * (displacements * oh * ow))

        def line(p: Lanes) -> None:
            value = mine.line(p).to("double")
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, displacements, [zero]) as d:
                steps = [
                    (d.i // width - how.reach) * how.step,
                    (d.i % width - how.reach) * how.step,
                ]
                steps = steps[::-1] if first else steps
                far = steps if first else [0 - s for s in steps]
                # Pixels of the other map that lie beside these, and whether they exist.
                down, across = row + far[0], p.at + far[1]
                exists = nest.splat((down >= 0) & (down < h)) & (across >= 0) & (across < w)
                at = down * w + across
                there = nest.select(exists, beside[nest.select(exists, at, 0)], 0.0).to("double")
                slope = there if how.multiplied else _sign(nest, value - there)
                gradient = given.move(d.i * (oh * ow))
                with nest.loop(0, how.kernel, d.v) as i:
                    start = row - (i.i + how.first) - (0 if first else steps[0])
                    top, high = window_at(nest, start, how.stride, oh)
                    with nest.loop(0, how.kernel, i.v) as j:
                        begin = p.at - (j.i + how.first) - (0 if first else steps[1])
                        left, inside = window_at(nest, begin, how.stride, ow)
                        share = nest.select(inside & nest.splat(high), gradient[left + top * ow], 0)
                        j.next = [j.v[0] + share.to("double") * slope]
                    i.next = j.out
                d.next = i.out
            mean = d.out[0] / float(how.kernel**2 * max(c, 1))
            y.move(unit * w).put(p, mean.to("float"))

        nest.lines(w, line)
    return nest.finish(f"compare_gradient_{1 if first else 2}")


def _sign(nest: Nest, x: Num) -> Num:
    """1, 0, -1, or NaN of one."""
    one = nest.number(1.0, "double")
    return nest.select(x > 0.0, one, nest.select(x < 0.0, 0.0 - one, x))
