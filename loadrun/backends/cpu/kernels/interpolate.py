"""What kernels of images share: sizes in any layout, weighted sums, results as elements.

Tensors of images are (images, planes, h, middle, w, inner) in any layout: what lies before, between
and behind height and width is treated alike. Numbers are combined in the order of the operators'
definition, because ties of rounded results depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.nest import Nest, Num


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


PLAIN = Result()  # float32 as it is


def weighted(total: Num | None, value: Num, weight: Num) -> Num:
    """A sum with one more product; None is no sum yet."""
    return value * weight if total is None else total + value * weight
