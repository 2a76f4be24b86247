"""Sums and maxima over windows, one axis after the other.

A rectangle is a row of columns, so windows of any size cost as much as their two sides; along each
axis the shorter of "every window" and "every tap" is walked.

Source: semantics section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgeserial.ir.types import Shape
from mgeserial.ops.windows import Number, Window, reach

__all__ = ["Axis", "axes_of", "slide", "spread"]


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows along one axis: elements, windows, and window size, stride and padding."""

    size: int
    out: int
    kernel: int
    stride: int
    pad: int

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First and one past the last element of each window, inside the axis."""
        for k in range(self.out):
            start = k * self.stride - self.pad
            low = min(max(start, 0), self.size)
            yield low, max(low, min(start + self.kernel, self.size))


def axes_of(window: Window, sizes: Shape, out: Shape) -> tuple[Axis, ...]:
    """The window along each axis alone; it must not be dilated."""
    return tuple(
        Axis(*facts)
        for facts in zip(sizes, out, window.kernel, window.stride, window.pad, strict=True)
    )


def slide(ufunc: np.ufunc, x: Number, axis: Axis, at: int) -> Number:
    """`ufunc` (np.add or np.maximum) over the windows along axis `at`, padding left out.

    A window without elements gives zero for np.add and the lowest value for np.maximum.
    """
    x = x.swapaxes(0, at)
    identity = 0 if ufunc is np.add else _lowest(x.dtype)
    result = np.full((axis.out, *x.shape[1:]), identity, x.dtype)
    if axis.out <= axis.kernel:
        for k, (low, high) in enumerate(axis.ranges()):
            if high > low:
                ufunc.reduce(x[low:high], axis=0, out=result[k])
    else:
        for k in range(axis.kernel):
            outputs, inputs = reach(k - axis.pad, axis.stride, axis.size, 0, axis.out)
            ufunc(result[outputs], x[inputs], out=result[outputs])
    return result.swapaxes(0, at)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def spread(dy: Number, axis: Axis, at: int) -> Number:
    """Adjoint of `slide(np.add, ...)`."""
    dy = dy.swapaxes(0, at)
    result = np.zeros((axis.size, *dy.shape[1:]), dy.dtype)
    if axis.out <= axis.kernel:
        for k, (low, high) in enumerate(axis.ranges()):
            result[low:high] += dy[k]
    else:
        for k in range(axis.kernel):
            outputs, inputs = reach(k - axis.pad, axis.stride, axis.size, 0, axis.out)
            result[inputs] += dy[outputs]
    return result.swapaxes(0, at)
