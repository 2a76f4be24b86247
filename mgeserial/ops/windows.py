"""Sliding windows over any number of spatial axes: sizes, convolution and its two adjoints.

One core for every operator with windows. Feature maps are (N, G, I, *sizes), filters
(G, O, I, *kernel), results (N, G, O, *out), in the dtype given: float32 through BLAS. Padding is
never written out: each tap of the kernel knows which outputs it reaches inside the input, so that a
hostile padding or stride costs nothing.

Integers are exact: `convolve_exact` picks the smallest floating type that holds every partial sum
(2**24 in float32, 2**53 in float64) and falls back to int64.

Source: semantics section 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.errors import ShapeError
from mgeserial.ir.types import Shape
from mgeserial.ops.rules import need

__all__ = [
    "Tap",
    "Window",
    "batches",
    "columns",
    "convolve",
    "convolve_exact",
    "exact_type",
    "filter_gradient",
    "input_gradient",
    "input_gradient_exact",
    "scatter",
    "reach",
    "taps",
]

Number = npt.NDArray[Any]
# Bytes of im2col matrices made at a time: large enough for BLAS, small enough for a cache.
_CHUNK = 32 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel size, stride, padding (both sides) and dilation, one number per spatial axis."""

    kernel: Shape
    stride: Shape
    pad: Shape
    dilate: Shape

    @classmethod
    def of(cls, param: Any, kernel: Shape, *, axes: str = "hw") -> Window:
        """The window of a parameter record with fields `stride_h`, `pad_h`, `dilate_h`, ...

        Raises:
            ShapeError: A stride, a dilation or a kernel size is zero.
        """
        stride, pad = (
            tuple(int(getattr(param, f"{field}_{a}")) for a in axes) for field in ("stride", "pad")
        )
        dilate = tuple(int(getattr(param, f"dilate_{a}", 1)) for a in axes)
        window = cls(kernel, stride, pad, dilate)
        need(min(stride) > 0, f"strides must be positive, got {stride}")
        need(min(dilate) > 0, f"dilations must be positive, got {dilate}")
        need(min(kernel) > 0, f"kernel sizes must be positive, got {kernel}")
        need(min(pad) >= 0, f"padding must not be negative, got {pad}")
        return window

    @property
    def extent(self) -> Shape:
        """Elements from the first to the last tap, per axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilate, strict=True))

    @property
    def is_point(self) -> bool:
        """Whether every output reads just the input at its own place."""
        return max(*self.kernel, *self.stride) == 1 and not any(self.pad)

    def output(self, sizes: Shape) -> Shape:
        """Number of windows that fit into the padded input, per axis.

        Raises:
            ShapeError: The padded input is smaller than the window.
        """
        for n, e, p in zip(sizes, self.extent, self.pad, strict=True):
            if n + 2 * p < e:
                raise ShapeError(
                    f"the window covers {self.extent} elements, but the padded input has only "
                    f"{tuple(s + 2 * q for s, q in zip(sizes, self.pad, strict=True))}"
                )
        return tuple(
            (n + 2 * p - e) // s + 1
            for n, e, p, s in zip(sizes, self.extent, self.pad, self.stride, strict=True)
        )

    def input(self, sizes: Shape) -> Shape:
        """Smallest input that has this many windows (transposed convolution).

        Raises:
            ShapeError: Padding takes everything away.
        """
        result = tuple(
            (n - 1) * s + e - 2 * p
            for n, e, p, s in zip(sizes, self.extent, self.pad, self.stride, strict=True)
        )
        need(
            min(result, default=1) > 0,
            f"padding {self.pad} leaves nothing of a transposed convolution: {result}",
        )
        return result


@dataclass(frozen=True, slots=True)
class Tap:
    """One element of the kernel: its index and which outputs read which inputs through it."""

    index: Shape
    outputs: tuple[slice, ...]
    inputs: tuple[slice, ...]

    @property
    def seen(self) -> tuple[Any, ...]:
        """Subscript of the inputs, behind any leading axes."""
        return (..., *self.inputs)

    @property
    def given(self) -> tuple[Any, ...]:
        """Subscript of the outputs, behind any leading axes."""
        return (..., *self.outputs)

    @property
    def column(self) -> tuple[Any, ...]:
        """Subscript of its part of (..., *kernel, *out)."""
        return (..., *self.index, *self.outputs)

    @property
    def weight(self) -> tuple[Any, ...]:
        """Subscript of its (G, O, I) of a filter."""
        return (..., *self.index)


def reach(offset: int, stride: int, size: int, first: int, last: int) -> tuple[slice, slice]:
    """Outputs first..last-1 whose input `output * stride + offset` exists, and those inputs."""
    low = max(first, -(offset // stride))
    high = min(last, (size - 1 - offset) // stride + 1)
    if high <= low:
        return slice(0, 0), slice(0, 0)
    start = low * stride + offset
    return (
        slice(low - first, high - first),
        slice(start, start + (high - low - 1) * stride + 1, stride),
    )


def taps(window: Window, sizes: Shape, out: Shape, rows: tuple[int, int]) -> Iterator[Tap]:
    """The taps that reach inputs, for output rows rows[0]..rows[1]-1 of the first spatial axis.

    `outputs` count from rows[0] on that axis. Taps that only see padding are left out.
    """
    limits = [rows, *((0, n) for n in out[1:])]
    reached = [
        [(k, *reach(k * d - p, s, n, *limit)) for k in _useful(count, d, p, n, s, limit)]
        for count, d, p, n, s, limit in zip(
            window.kernel, window.dilate, window.pad, sizes, window.stride, limits, strict=True
        )
    ]
    for parts in product(*reached):
        if all(outputs.stop > outputs.start for _, outputs, _ in parts):
            index, outputs, inputs = zip(*parts, strict=True)
            yield Tap(index, outputs, inputs)


def _useful(
    count: int, dilate: int, pad: int, size: int, stride: int, limit: tuple[int, int]
) -> Iterable[int]:
    """Kernel indices k with an input at output * stride + k * dilate - pad for some output."""
    low = max(0, -((limit[1] * stride - pad) // dilate))
    high = min(count, (size - 1 + pad - limit[0] * stride) // dilate + 1)
    outputs = range(*limit)
    if high - low <= 64 or high - low <= size * len(outputs):
        return range(low, max(low, high))
    # A large stride leaves gaps between the inputs of outputs: far fewer taps than indices.
    found: set[int] = set()
    for output in outputs:
        gap = pad - output * stride
        found.update(range(max(0, -(-gap // dilate)), min(count, (size - 1 + gap) // dilate + 1)))
    return sorted(found)


def _blocks(item: int, images: int, rows: int) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Split work into (images, rows) parts of at most about 32 MB; `item` is bytes of one row."""
    per_image = max(1, item * rows)
    if per_image <= _CHUNK:
        step = max(1, _CHUNK // per_image)
        for n in range(0, images, step):
            yield slice(n, min(n + step, images)), (0, rows)
        return
    step = max(1, _CHUNK // max(1, item))
    for n in range(images):
        for r in range(0, rows, step):
            yield slice(n, n + 1), (r, min(r + step, rows))


def batches(bytes_each: int, images: int) -> Iterator[slice]:
    """Parts of a batch whose columns stay small; at least one image at a time."""
    step = max(1, _CHUNK // max(1, bytes_each))
    for start in range(0, images, step):
        yield slice(start, min(start + step, images))


def columns(x: Number, window: Window, out: Shape, rows: tuple[int, int] | None = None) -> Number:
    """What every window sees: (..., *sizes) to (..., *kernel, *out), zeros outside.

    Args:
        x: Array whose last axes are the spatial ones.
        window: The window.
        out: Number of windows per axis (`window.output`, or less).
        rows: Only these windows of the first axis.
    """
    rank = len(window.kernel)
    rows = (0, out[0]) if rows is None else rows
    lead, sizes = x.shape[:-rank], x.shape[-rank:]
    result = np.zeros((*lead, *window.kernel, rows[1] - rows[0], *out[1:]), x.dtype)
    for tap in taps(window, sizes, out, rows):
        result[tap.column] = x[tap.seen]
    return result


def scatter(cols: Number, window: Window, sizes: Shape) -> Number:
    """Adjoint of `columns`: (..., *kernel, *out) summed into (..., *sizes)."""
    rank = len(window.kernel)
    out = cols.shape[-rank:]
    result = np.zeros((*cols.shape[: -2 * rank], *sizes), cols.dtype)
    for tap in taps(window, sizes, out, (0, out[0])):
        result[tap.seen] += cols[tap.column]
    return result


def convolve(x: Number, w: Number, window: Window) -> Number:
    """Cross-correlation: (N, G, I, *sizes) with (G, O, I, *kernel) to (N, G, O, *out).

    float32 and float64 sums are made by BLAS in blocks; integers in their own type.
    """
    n, groups = x.shape[:2]
    sizes = x.shape[3:]
    out = window.output(sizes)
    outputs, depth = w.shape[1:3]
    if window.is_point:
        flat = w.reshape(groups, outputs, depth) @ x.reshape(n, groups, depth, math.prod(out))
        return flat.reshape(n, groups, outputs, *out)
    if depth == 1:
        return _depthwise(x, w, window, out)
    result = np.empty((n, groups, outputs, *out), x.dtype)
    matrix = w.reshape(groups, outputs, -1)
    row = matrix.shape[2] * groups * math.prod(out[1:]) * x.itemsize
    for images, (first, last) in _blocks(row, n, out[0]):
        cols = columns(x[images], window, out, (first, last))
        part = matrix @ cols.reshape(cols.shape[0], groups, matrix.shape[2], -1)
        result[images, :, :, first:last] = part.reshape(-1, groups, outputs, last - first, *out[1:])
    return result


def _depthwise(x: Number, w: Number, window: Window, out: Shape) -> Number:
    """One input channel a group: multiply and add tap by tap, without im2col."""
    n, groups = x.shape[:2]
    result = np.zeros((n, groups, w.shape[1], *out), x.dtype)
    ones = (1,) * len(out)
    for tap in taps(window, x.shape[3:], out, (0, out[0])):
        weight = w[tap.weight].reshape(groups, -1, *ones)
        result[tap.given] += x[tap.seen] * weight
    return result


def _largest(x: Number) -> int:
    return max(abs(int(x.max())), abs(int(x.min()))) if x.size else 0


def exact_type(bound: int) -> npt.DTypeLike:
    """The fastest dtype whose sums of integers up to `bound` are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def convolve_exact(x: Number, w: Number, window: Window) -> npt.NDArray[np.int64]:
    """`convolve` of integer arrays, exact (modulo 2**64 when sums do not fit)."""
    bound = _largest(x) * _largest(w) * math.prod(w.shape[2:])
    kind = exact_type(bound)
    return convolve(x.astype(kind), w.astype(kind), window).astype(np.int64)


def input_gradient(dy: Number, w: Number, window: Window, sizes: Shape) -> Number:
    """Adjoint of `convolve` for its input (transposed convolution).

    Args:
        dy: (N, G, O, *out).
        w: (G, O, I, *kernel), the filter of the forward convolution.
        window: Window of the forward convolution.
        sizes: Spatial sizes of the result; `window.output(sizes)` must be `out`.

    Returns:
        (N, G, I, *sizes).
    """
    n, groups, outputs = dy.shape[:3]
    out = dy.shape[3:]
    depth = w.shape[2]
    result = np.zeros((n, groups, depth, *sizes), dy.dtype)
    flat = dy.reshape(n, groups, outputs, math.prod(out))
    for tap in taps(window, sizes, out, (0, out[0])):
        weight = w[tap.weight].swapaxes(1, 2)
        part = (weight @ flat).reshape(n, groups, depth, *out)
        result[tap.seen] += part[tap.given]
    return result


def input_gradient_exact(
    dy: Number, w: Number, window: Window, sizes: Shape
) -> npt.NDArray[np.int64]:
    """`input_gradient` of integer arrays, exact."""
    bound = _largest(dy) * _largest(w) * w.shape[1] * math.prod(window.kernel)
    kind = exact_type(bound)
    return input_gradient(dy.astype(kind), w.astype(kind), window, sizes).astype(np.int64)


def filter_gradient(x: Number, dy: Number, window: Window) -> Number:
    """Adjoint of `convolve` for its filter, of x (N, G, I, *sizes) and dy (N, G, O, *out).

    Returns:
        (G, O, I, *kernel).
    """
    n, groups, depth = x.shape[:3]
    outputs, out = dy.shape[2], dy.shape[3:]
    result = np.zeros((groups, outputs, depth, *window.kernel), x.dtype)
    for tap in taps(window, x.shape[3:], out, (0, out[0])):
        pixels = math.prod(part.stop - part.start for part in tap.outputs)
        seen = x[tap.seen].reshape(n, groups, depth, pixels)
        given = dy[tap.given].reshape(n, groups, outputs, pixels)
        result[tap.weight] = (given @ seen.swapaxes(2, 3)).sum(axis=0)
    return result
