"""Normalisation by mean and variance of any block of axes, and of near channels.

Sums are in float64, as the operators define them; what is normalised is float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor, Value, chunks
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_PART = 512  # inner positions of a work unit


@dataclass(frozen=True, slots=True)
class Normalising:
    """Normalisation of x (outer, n, inner) over n.

    Attributes:
        outer, n, inner: Sizes.
        eps: Added to the variance.
        weights: none; element (n,) each; or channel: row r has channels r % groups * (n // each)
            and following ones, of `each` elements.
        each, groups: See weights.
        deviation: Whether the third result is 1 / deviation, not the variance.
    """

    outer: int
    n: int
    inner: int
    eps: float
    weights: str = "none"
    each: int = 1
    groups: int = 1
    deviation: bool = True


def _moments(nest: Nest, count: int, total: Num, squares: Num, eps: float) -> tuple[Num, Num, Num]:
    """Mean, variance, 1 / deviation in float32, of sums in float64."""
    mean = (total / float(count)).to("float")
    variance = (squares / float(count)).to("float")
    deviation = nest.unary("sqrt", variance.to("double") + eps)
    one = nest.number(1.0, "double")
    return mean, variance, ((nest.splat(one) if deviation.wide else one) / deviation).to("float")


def normalise(how: Normalising, target: Target) -> Kernel:
    """Argument table: x, maybe weight and bias; y, mean, third result. Units: rows or parts."""
    affine = how.weights != "none"
    nest = Nest(["float32"] * (6 if affine else 4), target)
    if how.inner == 1:
        _by_rows(nest, how)
    else:
        _by_columns(nest, how)
    return nest.finish("normalise_f32")


def _by_rows(nest: Nest, how: Normalising) -> None:
    x, *affine, y, means, thirds = nest.arrays
    zero = nest.number(0.0, "double")
    with nest.each_unit(how.outer) as row:
        source, to = x.move(row * how.n), y.move(row * how.n)

        def add(p: Lanes, state: list[Num]) -> list[Num]:
            value = source[p.at] if p.mask else source.line(p)
            return [state[0] + nest.kept(p, value, 0.0).to("double")]

        total = nest.total(nest.folded(how.n, [zero], add)[0])
        middle = total / float(how.n)

        def spread(p: Lanes, state: list[Num]) -> list[Num]:
            far = (source[p.at] if p.mask else source.line(p)).to("double") - middle
            return [state[0] + nest.kept(p, far * far, 0.0)]

        squares = nest.total(nest.folded(how.n, [zero], spread)[0])
        mean, variance, scale = _moments(nest, how.n, total, squares, how.eps)
        means.put(row, mean)
        thirds.put(row, scale if how.deviation else variance)

        def write(p: Lanes, weight: Value | None, bias: Value, at: Tensor, out: Tensor) -> None:
            value = (at.line(p) - mean) * scale
            out.put(p, value if weight is None else value * weight + bias)

        if how.weights == "none":
            nest.lines(how.n, lambda p: write(p, None, 0.0, source, to))
        elif how.weights == "element":
            w, b = affine
            nest.lines(how.n, lambda p: write(p, w.line(p), b.line(p), source, to))
        else:
            channels = how.n // how.each
            with nest.loop(0, channels) as channel:
                k = row % how.groups * channels + channel.i
                weight, bias = affine[0][k], affine[1][k]
                at, out = (t.move(channel.i * how.each) for t in (source, to))
                nest.lines(how.each, lambda p: write(p, weight, bias, at, out))


def _by_columns(nest: Nest, how: Normalising) -> None:
    x, *affine, y, means, thirds = nest.arrays
    parts, size = chunks(how.inner, _PART), how.n * how.inner
    with nest.each_unit(how.outer * parts) as unit:
        row, low = unit // parts, unit % parts * _PART
        source, to = x.move(row * size), y.move(row * size)

        def columns(p: Lanes) -> None:
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, how.n, [zero]) as k:
                k.next = [k.v[0] + source.move(k.i * how.inner).line(p).to("double")]
            total = k.out[0]
            middle = total / float(how.n)
            with nest.loop(0, how.n, [zero]) as k:
                far = source.move(k.i * how.inner).line(p).to("double") - middle
                k.next = [k.v[0] + far * far]
            mean, variance, scale = _moments(nest, how.n, total, k.out[0], how.eps)
            means.move(row * how.inner).put(p, mean)
            thirds.move(row * how.inner).put(p, scale if how.deviation else variance)
            with nest.loop(0, how.n) as k:
                value = (source.move(k.i * how.inner).line(p) - mean) * scale
                if affine:
                    value = value * affine[0][k.i] + affine[1][k.i]
                to.move(k.i * how.inner).put(p, value)

        high = nest.minimum(low + _PART, how.inner)
        nest.by_lanes(low, high, columns, -1 if how.inner % nest.lanes else 0)


def near_sums(
    sizes: tuple[int, int, int],
    window: int,
    affine: tuple[float, float],
    target: Target,
    *,
    squares: bool,
) -> Kernel:
    """k + alpha * (sum of channels at most window // 2 away, or of their squares).

    x is (n, c, pixels), `affine` (k, alpha).

    Argument table: x, y. Units: parts of the pixels of an image.
    """
    n, c, pixels = sizes
    nest = Nest(("float32", "float32"), target)
    x, y = nest.arrays
    parts = chunks(pixels, _PART)
    far = min(window // 2, c - 1)
    with nest.each_unit(n * parts) as unit:
        image, low = unit // parts, unit % parts * _PART
        source, to = x.move(image * (c * pixels)), y.move(image * (c * pixels))

        def every_channel(p: Lanes) -> None:
            zero = nest.splat(nest.number(0.0, "double"))
            with nest.loop(0, c) as channel:
                first = nest.maximum(channel.i - far, 0)
                end = nest.minimum(channel.i + far + 1, c)
                with nest.loop(first, end, [zero]) as near:
                    value = source.move(near.i * pixels).line(p)
                    near.next = [near.v[0] + (value * value if squares else value).to("double")]
                base = near.out[0].to("float") * affine[1] + affine[0]
                to.move(channel.i * pixels).put(p, base)

        high = nest.minimum(low + _PART, pixels)
        nest.by_lanes(low, high, every_channel, -1 if pixels % nest.lanes else 0)
    return nest.finish("near_sums_f32")
