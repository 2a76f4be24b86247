"""Interpolation at positions in steps of 1/32 pixel, for images (n, h, w, c) of 1 to 3 channels.

Weights come from a table with one row for each of the 32 fractions: 2 taps for LINEAR, 4 for CUBIC,
8 for LANCZOS4. Images of 8 bits use products of two weights rounded to 15 bits and made to add up
to one; others use float32.

Source: semantics section 10; checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import UnsupportedError
from mgeserial.ops.imaging import Float32, Floats
from mgeserial.ops.sampling import Border, Index, bordered, chunks

__all__ = [
    "FRACTIONS",
    "Mode",
    "axis_weights",
    "cubic_weights",
    "fixed_weights",
    "lanczos_weights",
    "resample",
]

Mode = P.WarpPerspectiveV1InterpolationMode
FRACTIONS = 32
_FIXED_BITS = 15


def cubic_weights(fraction: Floats) -> Float32:
    """Weights (..., 4) of cubic convolution with A = -0.75 for positions between taps 1 and 2."""
    a, x = np.float32(-0.75), fraction.astype(np.float32)
    one = np.float32(1)
    y = one - x
    weights = np.empty((*x.shape, 4), np.float32)
    weights[..., 0] = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    weights[..., 1] = ((a + 2) * x - (a + 3)) * x * x + one
    weights[..., 2] = ((a + 2) * y - (a + 3)) * y * y + one
    weights[..., 3] = one - weights[..., 0] - weights[..., 1] - weights[..., 2]
    return weights


def lanczos_weights(fraction: Floats) -> Float32:
    """Weights (..., 8) of a Lanczos window of 4 for positions between taps 3 and 4; sum 1."""
    x = fraction.astype(np.float64)[..., None]
    distance = x - np.arange(-3, 5)
    weight = np.sinc(distance) * np.sinc(distance / 4)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True), dtype=np.float32)


@functools.cache
def axis_weights(mode: P.WarpPerspectiveV1InterpolationMode) -> Float32:
    """Weights (32, t) of one axis."""
    fraction = np.arange(FRACTIONS, dtype=np.float32) / np.float32(FRACTIONS)
    if mode == Mode.LINEAR:
        return np.stack([1 - fraction, fraction], axis=-1)
    if mode == Mode.CUBIC:
        return cubic_weights(fraction)
    if mode == Mode.LANCZOS4:
        return lanczos_weights(fraction)
    raise UnsupportedError(f"interpolation {mode} is not supported here")


@functools.cache
def fixed_weights(mode: P.WarpPerspectiveV1InterpolationMode) -> npt.NDArray[np.int32]:
    """Integer weights (32, 32, t, t) of both axes; each adds up to 2**15."""
    line = axis_weights(mode)
    exact = line[:, None, :, None] * line[None, :, None, :]
    one = 1 << _FIXED_BITS
    fixed = np.clip(np.rint(exact * np.float32(one)), -one, one - 1).astype(np.int32)
    taps = line.shape[1]
    missing = one - fixed.sum(axis=(2, 3))
    # What rounding lost goes to the largest of the four middle weights, what it won comes off
    # the smallest.
    half = taps // 2
    middle = slice(half, half + 2)
    inner = fixed[:, :, middle, middle]
    flat = inner.reshape(FRACTIONS, FRACTIONS, -1)
    place = np.where(missing > 0, flat.argmax(-1), flat.argmin(-1))
    rows, columns = half + place // inner.shape[3], half + place % inner.shape[3]
    y, x = np.indices((FRACTIONS, FRACTIONS))
    fixed[y, x, rows, columns] += missing.astype(np.int32)
    return np.asarray(fixed)


def resample(
    x: Array,
    image: Index,
    position: tuple[Index, Index],
    *,
    mode: P.WarpPerspectiveV1InterpolationMode,
    border: P.WarpPerspectiveV1BorderMode,
    fill: float,
) -> Array:
    """Values of images at positions of 1/32 pixel (whole pixels for NEAREST).

    Args:
        x: (n, h, w, c) uint8 or float32.
        image: (p,) number of the image of each point.
        position: Rows and columns (p,), in pixels for NEAREST, else in 1/32 pixel.
        mode: NEAREST, LINEAR, CUBIC or LANCZOS4.
        border: Border mode.
        fill: Value outside, for CONSTANT.

    Returns:
        (p, c) of x's type.
    """
    n, h, w, c = x.shape
    rows = x.reshape(n * h * w, c)
    outside = _element(fill, x.dtype)
    result = np.empty((image.shape[0], c), x.dtype)
    for part in chunks(image.shape[0], 64 * c):
        y, z, which = position[0][part], position[1][part], image[part]
        if mode == Mode.NEAREST:
            result[part] = _pixels(rows, which, y, z, (h, w), border, outside)
            continue
        fixed = x.dtype == np.uint8
        taps = axis_weights(mode).shape[1]
        total = np.zeros((which.shape[0], c), np.int64 if fixed else np.float32)
        base = taps // 2 - 1
        fy, fx = y % FRACTIONS, z % FRACTIONS
        for i in range(taps):
            for j in range(taps):
                at = (y // FRACTIONS + i - base, z // FRACTIONS + j - base)
                values = _pixels(rows, which, *at, (h, w), border, outside)
                if fixed:
                    weight = fixed_weights(mode)[fy, fx, i, j].astype(np.int64)
                else:
                    weight = axis_weights(mode)[fy, i] * axis_weights(mode)[fx, j]
                total += weight[:, None] * values
        if fixed:
            total = np.clip((total + (1 << (_FIXED_BITS - 1))) >> _FIXED_BITS, 0, 255)
        result[part] = total
    return result


def _element(fill: float, storage: npt.DTypeLike) -> Array:
    limited = np.clip(np.rint(fill), 0, 255) if storage == np.uint8 else fill
    return np.asarray(limited).astype(storage)


def _pixels(
    rows: Array,
    image: Index,
    y: Index,
    x: Index,
    size: tuple[int, int],
    border: P.WarpPerspectiveV1BorderMode,
    outside: Array,
) -> Array:
    y, x = bordered(y, size[0], border), bordered(x, size[1], border)
    inside = (y >= 0) & (x >= 0)
    values = rows[np.where(inside, (image * size[0] + y) * size[1] + x, 0)]
    if border == Border.CONSTANT and not inside.all():
        values = np.where(inside[:, None], values, outside)
    return values
