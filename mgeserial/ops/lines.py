"""Resizing of one axis at a time: which elements of a line are mixed, with what weights.

Source: semantics section 10; coordinates and weights in float32 unless said otherwise.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.ops.imaging import Floats
from mgeserial.ops.sampling import Index, bordered
from mgeserial.ops.subpixel import cubic_weights, lanczos_weights

__all__ = [
    "Line",
    "area",
    "correlated",
    "crossed",
    "cubic",
    "linear",
    "mixed",
    "nearest",
    "smooth",
    "spread",
    "stretched",
]

_N = TypeVar("_N", np.float32, np.float64, np.int64)


@dataclass(frozen=True, slots=True)
class Line:
    """For each of o outputs along an axis: t elements of the input and their weights, (o, t)."""

    index: Index
    weight: npt.NDArray[np.number[Any]]


def _scale(out: int, size: int) -> np.float32:
    return np.float32(out) / np.float32(size)


def nearest(out: int, size: int) -> Line:
    """Element floor(o / scale) for output o."""
    position = np.arange(out, dtype=np.float32) / _scale(out, size)
    index = np.minimum(position.astype(np.intp), size - 1)
    return Line(index[:, None], np.ones((out, 1), np.float32))


def _two(position: Floats, size: int) -> Line:
    """Two neighbours of float positions; beyond the ends the end element alone."""
    low = np.floor(position)
    far = (position - low).astype(np.float32)
    first = low.astype(np.intp)
    if size == 1:
        first, far = np.zeros_like(first), np.zeros_like(far)
    else:
        far = np.where(first < 0, np.float32(0), far)
        far = np.where(first + 1 >= size, np.float32(1), far)
        first = np.clip(first, 0, size - 2)
    index = np.stack([first, np.minimum(first + 1, size - 1)], axis=-1)
    return Line(index, np.stack([np.float32(1) - far, far], axis=-1))


def _centres(out: int, size: int) -> npt.NDArray[np.float32]:
    half = np.float32(0.5)
    return (np.arange(out, dtype=np.float32) + half) / _scale(out, size) - half


def linear(out: int, size: int) -> Line:
    """Linear between pixel centres."""
    return _two(_centres(out, size), size)


def cubic(out: int, size: int) -> Line:
    """Cubic convolution, A = -0.75, ends repeated."""
    position = _centres(out, size)
    low = np.floor(position)
    index = low.astype(np.intp)[:, None] + np.arange(-1, 3)
    return Line(np.clip(index, 0, size - 1), cubic_weights(position - low))


def stretched(out: int, size: int, *, align_corners: bool) -> Line:
    """Linear between pixel centres, or between the centres of the first and the last element."""
    o = np.arange(out, dtype=np.float32)
    if align_corners:
        step = np.float32(size - 1) / np.float32(out - 1) if out > 1 else np.float32(0)
        position = o * step
    else:
        step = np.float32(size) / np.float32(out)
        position = np.maximum((o + np.float32(0.5)) * step - np.float32(0.5), np.float32(0))
    first = np.minimum(position.astype(np.intp), size - 1)
    far = (position - first).astype(np.float32)
    index = np.stack([first, np.minimum(first + 1, size - 1)], axis=-1)
    return Line(index, np.stack([np.float32(1) - far, far], axis=-1))


def smooth(out: int, size: int, *, taps: int) -> Line:
    """Cubic (4 taps) or Lanczos (8 taps); the scale in double, ends repeated."""
    position = ((np.arange(out) + 0.5) * (size / out) - 0.5).astype(np.float32)
    low = np.floor(position)
    weight = cubic_weights(position - low) if taps == 4 else lanczos_weights(position - low)
    index = low.astype(np.intp)[:, None] + np.arange(taps) - (taps // 2 - 1)
    return Line(np.clip(index, 0, size - 1), weight)


def correlated(
    weights: npt.NDArray[np.number], size: int, border: P.WarpPerspectiveV1BorderMode
) -> Line:
    """A correlation along an axis; weights of pixels outside of CONSTANT are 0.

    Raises:
        UnsupportedError: A border mode without a meaning.
    """
    at = np.arange(size)[:, None] + np.arange(len(weights)) - len(weights) // 2
    place = bordered(at, size, border)
    return Line(np.maximum(place, 0), np.where(place >= 0, weights, 0).astype(weights.dtype))


def area(out: int, size: int, *, shrink: bool) -> Line:
    """Mean over the part of the line that an output covers, or what AREA does when enlarging.

    Args:
        out: Length of the output.
        size: Length of the input.
        shrink: Whether both axes shrink; else the line is linear with flat parts.
    """
    scale = 1.0 / (out / size)
    if not shrink:
        low = np.floor(np.arange(out) * scale)
        far = (np.arange(1, out + 1) - (low + 1) / scale).astype(np.float32)
        far = np.where(far <= 0, np.float32(0), far - np.floor(far))
        first = low.astype(np.intp)
        far = np.where(first >= size - 1, np.float32(0), far)
        index = np.stack([first, first + 1], axis=-1)
        weight = np.stack([np.float32(1) - far, far], axis=-1)
        return Line(np.clip(index, 0, size - 1), weight)
    start = np.arange(out) * scale
    end = np.minimum(start + scale, size)
    first = np.floor(start).astype(np.intp)
    taps = int(np.max(np.ceil(end).astype(np.intp) - first))
    index = first[:, None] + np.arange(taps)
    covered = np.minimum(index + 1, end[:, None]) - np.maximum(index, start[:, None])
    # Slivers of less than a thousandth of an element do not count.
    covered = np.where(covered > 1e-3, covered, 0.0)
    weight = (covered / np.minimum(scale, size - start)[:, None]).astype(np.float32)
    return Line(np.clip(index, 0, size - 1), weight)


def mixed(x: npt.NDArray[_N], axis: int, line: Line) -> npt.NDArray[_N]:
    """Weighted sums along an axis (counted from the back)."""
    shape = [1] * -axis
    shape[0] = line.index.shape[0]
    parts = (
        x.take(line.index[:, tap], axis=axis) * line.weight[:, tap].reshape(shape).astype(x.dtype)
        for tap in range(line.index.shape[1])
    )
    return functools.reduce(operator.add, parts)


def crossed(x: npt.NDArray[np.float32], rows: Line, columns: Line) -> npt.NDArray[np.float32]:
    """Images (n, k, h, w) mixed along both axes at once.

    Each element is multiplied by the weight of its row, then of its column, and rows are summed
    first: in float32 ties of 8-bit results depend on it.
    """
    total = np.zeros((*x.shape[:2], rows.index.shape[0], columns.index.shape[0]), np.float32)
    for i in range(rows.index.shape[1]):
        lifted = x.take(rows.index[:, i], axis=2) * rows.weight[:, i, None].astype(np.float32)
        for j in range(columns.index.shape[1]):
            weight = columns.weight[:, j].astype(np.float32)
            total += lifted.take(columns.index[:, j], axis=3) * weight
    return total


def spread(diff: npt.NDArray[_N], axis: int, line: Line, size: int) -> npt.NDArray[_N]:
    """Adjoint of `mixed`: gradients along an axis to those of an input of length `size`."""
    moved: npt.NDArray[_N] = np.moveaxis(diff, axis, 0)
    total = np.zeros((size, *moved.shape[1:]), moved.dtype)
    shape = (-1,) + (1,) * (moved.ndim - 1)
    for tap in range(line.index.shape[1]):
        weight = line.weight[:, tap].reshape(shape).astype(moved.dtype)
        np.add.at(total, line.index[:, tap], moved * weight)
    return np.moveaxis(total, 0, axis)
