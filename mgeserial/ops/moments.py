"""What the normalisations share: means and variances, the affine step and their gradients.

Arrays here are float32; sums are taken in float64 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.ir.types import Shape
from mgeserial.ops.rules import need

__all__ = [
    "Float32",
    "affine_shape",
    "grouped",
    "inverse_std",
    "moments",
    "normalise_gradient",
    "total",
    "without",
]

Float32 = npt.NDArray[np.float32]
Axes = tuple[int, ...]


def moments(x: Float32, axes: Axes) -> tuple[Float32, Float32]:
    """Mean and biased variance over `axes`, which stay with size 1."""
    mean = x.mean(axis=axes, keepdims=True, dtype=np.float64)
    spread = x - mean
    np.multiply(spread, spread, out=spread)
    variance = spread.mean(axis=axes, keepdims=True)
    return mean.astype(np.float32), variance.astype(np.float32)


def inverse_std(variance: npt.NDArray[Any], eps: float) -> Float32:
    """1 / sqrt(variance + eps), computed in float64."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1 / np.sqrt(variance.astype(np.float64) + eps)).astype(np.float32)


def total(x: npt.NDArray[Any], axes: Axes, *, keep: bool = False) -> Float32:
    """Sum over `axes`, in float64; `keep`: they stay with size 1."""
    return np.asarray(x.sum(axis=axes, keepdims=keep, dtype=np.float64)).astype(np.float32)


def normalise_gradient(dxhat: Float32, xhat: Float32, rstd: Float32, axes: Axes) -> Float32:
    """Gradient with respect to x of xhat = (x - mean) * rstd, all of one rank.

    rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat)), means over `axes`.
    """
    count = max(math.prod(xhat.shape[a] for a in axes), 1)
    first = total(dxhat, axes, keep=True) / np.float32(count)
    second = total(dxhat * xhat, axes, keep=True) / np.float32(count)
    return np.asarray(rstd * (dxhat - first - xhat * second))


def grouped(shape: Shape, groups: int) -> Shape:
    """Shape (n, groups, c / groups, ...) of a tensor (n, c, ...) split in groups of channels."""
    need(len(shape) >= 3, f"channels are split in groups of (n, c, ...) tensors, got {shape}")
    need(groups > 0 and shape[1] % groups == 0, f"{shape[1]} channels are not {groups} groups")
    return (shape[0], groups, shape[1] // groups, *shape[2:])


def without(shape: Shape, axes: Axes) -> Shape:
    """The shape with `axes` taken out; (1,) when nothing is left, as there are no 0-d tensors."""
    return tuple(n for i, n in enumerate(shape) if i not in axes) or (1,)


def affine_shape(shape: Shape, want: Shape, what: str) -> None:
    """Check the shape of a weight or bias."""
    need(shape == want, f"{what} must have shape {want}, got {shape}")
