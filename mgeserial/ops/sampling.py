"""Reading images between and beyond their pixels: border modes, bilinear weights, their adjoints.

Coordinates count from the centre of pixel 0. Images are rows of a table (n * h * w, k), so that all
values of a pixel are taken at once.

Source: semantics section 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import UnsupportedError
from mgeserial.ops.imaging import Float32, Floats

__all__ = [
    "Border",
    "Index",
    "Points",
    "Taps",
    "bilinear",
    "bordered",
    "chunks",
    "interpolate",
    "scatter",
    "slopes",
    "whole",
]

Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Border = P.WarpPerspectiveV1BorderMode
# Coordinates beyond this are outside of every image; what follows stays inside integers.
_FAR = float(1 << 30)
_CHUNK_BYTES = 64 << 20


def whole(coordinates: Floats) -> Index:
    """Integer coordinates of float ones; infinities and NaN become far-away pixels."""
    safe = np.nan_to_num(coordinates.astype(np.float64), nan=-_FAR, posinf=_FAR, neginf=-_FAR)
    return np.clip(safe, -_FAR, _FAR).astype(np.intp)


def bordered(position: Index, size: int, mode: P.WarpPerspectiveV1BorderMode) -> Index:
    """Pixel that stands for a position of an axis of `size` pixels; -1: none, for CONSTANT.

    REPLICATE repeats the edge pixel, REFLECT mirrors with it twice, REFLECT_101 with it once, WRAP
    repeats the image; all as often as needed.

    Raises:
        UnsupportedError: TRANSPARENT, ISOLATED or an unknown mode.
    """
    if mode == Border.REPLICATE:
        return np.clip(position, 0, size - 1)
    if mode == Border.CONSTANT:
        return np.where((position >= 0) & (position < size), position, -1)
    if mode == Border.WRAP:
        return np.asarray(np.mod(position, size))
    if mode == Border.REFLECT:
        folded = np.mod(position, 2 * size)
        return np.asarray(np.minimum(folded, 2 * size - 1 - folded))
    if mode == Border.REFLECT_101:
        if size == 1:
            return np.zeros_like(position)
        folded = np.mod(position, 2 * size - 2)
        return np.asarray(np.minimum(folded, 2 * size - 2 - folded))
    raise UnsupportedError(f"border mode {mode} is not supported")


@dataclass(frozen=True, slots=True)
class Taps:
    """Pixels and weights for one axis of a grid of coordinates.

    Attributes:
        index: (..., t) pixels after the border mode, -1 for none.
        weight: (..., t) their weights.
    """

    index: Index
    weight: Float32


def bilinear(coordinates: Floats, size: int, mode: P.WarpPerspectiveV1BorderMode) -> Taps:
    """The two pixels around each coordinate, with weights that add up to 1."""
    low = np.floor(coordinates)
    far = (coordinates - low).astype(np.float32)
    first = whole(low)
    index = bordered(np.stack([first, first + 1], axis=-1), size, mode)
    return Taps(index, np.stack([np.float32(1) - far, far], axis=-1))


def chunks(count: int, bytes_each: int) -> Iterator[slice]:
    """Parts of 0..count whose intermediates stay within a bound."""
    step = max(1, _CHUNK_BYTES // max(bytes_each, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


@dataclass(frozen=True, slots=True)
class Points:
    """Where a list of p points reads its images.

    Attributes:
        image: (p,) number of the image.
        y, x: Taps of the rows and columns, (p, t).
        size: Height and width of the images.
    """

    image: Index
    y: Taps
    x: Taps
    size: tuple[int, int]

    @property
    def count(self) -> int:
        """Number of points."""
        return int(self.image.shape[0])

    def corners(self, part: slice) -> Iterator[tuple[Index, Mask, int, int]]:
        """For each pair of taps: table rows, which are inside, and the two tap numbers."""
        height, width = self.size
        for i in range(self.y.index.shape[-1]):
            for j in range(self.x.index.shape[-1]):
                y, x = self.y.index[part, i], self.x.index[part, j]
                inside = (y >= 0) & (x >= 0)
                flat = (self.image[part] * height + y) * width + x
                yield np.where(inside, flat, 0), inside, i, j


def _table(x: Array) -> Array:
    n, k, h, w = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(n * h * w, k)


def interpolate(x: Array, points: Points, *, fill: float = 0.0) -> Float32:
    """Weighted sums of pixels.

    Args:
        x: Images (n, k, h, w), float or integer.
        points: p points.
        fill: Value of pixels outside.

    Returns:
        (p, k) in float32.
    """
    rows, k = _table(x), x.shape[1]
    result = np.zeros((points.count, k), np.float32)
    for part in chunks(points.count, 16 * k):
        for flat, inside, i, j in points.corners(part):
            weight = (points.y.weight[part, i] * points.x.weight[part, j])[:, None]
            values = rows[flat].astype(np.float32, copy=False)
            if not inside.all():
                values = np.where(inside[:, None], values, np.float32(fill))
            result[part] += weight * values
    return result


def scatter(diff: Floats, points: Points, count: int) -> npt.NDArray[np.float64]:
    """Adjoint of `interpolate`: gradients (p, k) of the points to those of `count` images.

    Returns:
        (count, k, h, w) in float64.
    """
    (height, width), k = points.size, diff.shape[1]
    total = np.zeros((count * height * width, k))
    for part in chunks(points.count, 24 * k):
        for flat, inside, i, j in points.corners(part):
            weight = (points.y.weight[part, i] * points.x.weight[part, j] * inside).astype(float)
            np.add.at(total, flat, diff[part].astype(np.float64) * weight[:, None])
    return total.reshape(count, height, width, k).transpose(0, 3, 1, 2)


def slopes(
    x: Array, diff: Floats, points: Points, *, fill: float = 0.0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Gradients (p,) by the row and by the column coordinate of bilinear points.

    Args:
        x: Images (n, k, h, w).
        diff: Gradients (p, k) of the interpolated values.
        points: p points made by `bilinear`.
        fill: Value of pixels outside.
    """
    rows = _table(x)
    by_y, by_x = np.zeros(points.count), np.zeros(points.count)
    sign = (-1.0, 1.0)
    for part in chunks(points.count, 24 * diff.shape[1]):
        for flat, inside, i, j in points.corners(part):
            values = np.where(inside[:, None], rows[flat].astype(np.float64), np.float64(fill))
            each = (values * diff[part].astype(np.float64)).sum(axis=1)
            by_y[part] += sign[i] * points.x.weight[part, j] * each
            by_x[part] += sign[j] * points.y.weight[part, i] * each
    return by_y, by_x
