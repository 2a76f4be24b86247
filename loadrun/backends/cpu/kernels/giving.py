"""Numbers given to pixels: sums of what many points add at places that only a run knows.

Sums are float64 in memory of their own, channels last. A work unit owns a block of the channels of
an image and walks all points in order, so no two threads write to one place and results do not
depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_VECTORS = 2  # of channels in a block


@dataclass(frozen=True, slots=True)
class Blocks:
    """How channels are divided among work units: vectors where there are enough, else one each."""

    channels: int
    size: int

    @classmethod
    def of(cls, channels: int, lanes: int) -> Blocks:
        """For vectors of `lanes` elements."""
        return cls(channels, _VECTORS * lanes if channels >= lanes else 1)

    @property
    def count(self) -> int:
        """Blocks of an image."""
        return -(-self.channels // self.size)

    def each(self, nest: Nest, block: Num, body: Callable[[Lanes], None]) -> None:
        """Run `body` over the channels of a block."""
        low = block * self.size
        if self.size == 1:
            body(nest.one(low))
            return
        high = nest.minimum(low + self.size, self.channels)
        nest.by_lanes(low, high, body, -1 if self.channels % nest.lanes else 0)


def add_to(sums: Tensor, at: Num, channels: int, p: Lanes, value: Num) -> None:
    """Add numbers (float64) of the channels `p` to a pixel of the sums."""
    pixel = sums.move(at * channels)
    pixel.put(p, pixel.line(p) + value)


def summing(
    dtypes: Sequence[str], total: int, target: Target, add: Callable[[Nest], None]
) -> tuple[Nest, Nest, Nest]:
    """Entries that set sums to zero, add to them, and round them.

    Of the argument table, typed by `dtypes`, the last but one are the sums (float64), the last one
    the results (float32), both of `total` elements; `add` writes the entry between.
    """
    zero = Nest(dtypes, target)
    zero.chunked(total, lambda p, _: zero.arrays[-2].put(p, 0.0))
    middle = Nest(dtypes, target, entry="add")
    add(middle)
    last = Nest(dtypes, target, entry="round")
    sums, y = last.arrays[-2:]
    last.chunked(total, lambda p, _: y.put(p, sums.line(p).to("float")))
    return zero, middle, last


@dataclass(frozen=True, slots=True)
class Giving:
    """Points that give their numbers to pixels.

    Attributes:
        images, pixels, channels: Of what is given to.
        groups, points: Groups of points, each of which gives to one image, and points of a group.
        taps: Places of a point.
        index: Element type of the groups' images.
    """

    images: int
    pixels: int
    channels: int
    groups: int
    points: int
    taps: int
    index: str = "int32"


def give(how: Giving, target: Target) -> Kernel:
    """Sum of weight * value over all points, for each pixel and channel.

    Argument table: values (groups, points, channels), places (groups, taps, points), -1 for none,
    weights of the same shape, images (groups,), sums and result (images, pixels, channels).
    """
    k = how.channels
    dtypes = ("float32", "int32", "float32", how.index, "float64", "float32")

    def add(nest: Nest) -> None:
        values, places, weights, images, sums, _ = nest.arrays
        blocks = Blocks.of(k, nest.lanes)
        with nest.each_unit(how.images * blocks.count) as unit:
            image, block = unit // blocks.count, unit % blocks.count
            own = sums.move(image * (how.pixels * k))
            with nest.loop(0, how.groups) as group, nest.when(images[group.i].eq(image)):
                first = group.i * (how.taps * how.points)
                lines = [
                    (places.move(first + t * how.points), weights.move(first + t * how.points))
                    for t in range(how.taps)
                ]
                given = values.move(group.i * (how.points * k))
                with nest.loop(0, how.points) as point:
                    value = given.move(point.i * k)
                    for place, weight in lines:
                        at, factor = place[point.i], weight[point.i].to("double")

                        def channels(
                            p: Lanes, value: Tensor = value, at: Num = at, factor: Num = factor
                        ) -> None:
                            add_to(own, at, k, p, value.line(p).to("double") * factor)

                        with nest.when(at >= 0):
                            blocks.each(nest, block, channels)

    first, *rest = summing(dtypes, how.images * how.pixels * k, target, add)
    return first.finish("give_f32", *rest)
