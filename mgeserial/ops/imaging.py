"""Images in any layout as (n, k, h, w), and results of interpolation as elements.

Interpolation treats everything but batch, height and width alike, so packed layouts need no code of
their own: `planes` brings height and width to the end, `unplanes` puts them back.

Source: layouts of semantics section 4, rounding of section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Shape
from mgeserial.ops.numerics import narrow, rhaz, saturate_to, truncate, widen
from mgeserial.ops.rules import need

__all__ = [
    "Float32",
    "Floats",
    "Layout",
    "as_elements",
    "as_values",
    "layout_of",
    "planes",
    "unplanes",
]

Float32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating[Any]]
_S = TypeVar("_S", bound=np.generic)
_F = P.ConvolutionFormat
# Layout: (rank, axis of height, axis of width). The batch is axis 0.
_AXES = {
    _F.NCHW: (4, 2, 3),
    _F.NHWC: (4, 1, 2),
    _F.NHWCD4: (5, 1, 3),
    _F.NCHW4: (5, 2, 3),
    _F.NCHW8: (5, 2, 3),
    _F.NCHW32: (5, 2, 3),
    _F.NCHW44: (5, 2, 3),
    _F.NCHW64: (5, 2, 3),
    _F.NCHW88: (5, 2, 3),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where height and width are in a tensor of images."""

    name: str
    rank: int
    h: int
    w: int

    def size(self, shape: Shape) -> tuple[int, int]:
        """Height and width of a tensor of this layout.

        Raises:
            ShapeError: It has another rank or no pixels.
        """
        need(
            len(shape) == self.rank, f"a {self.name} image has {self.rank} axes, got shape {shape}"
        )
        h, w = shape[self.h], shape[self.w]
        need(h > 0 and w > 0, f"images of shape {shape} have no pixels")
        return h, w

    def resized(self, shape: Shape, h: int | None, w: int | None) -> tuple[int | None, ...]:
        """The shape with another height and width."""
        result: list[int | None] = list(shape)
        result[self.h], result[self.w] = h, w
        return tuple(result)


def layout_of(format_: P.ConvolutionFormat) -> Layout:
    """Facts of an image layout.

    Raises:
        UnsupportedError: The format is not the layout of one tensor.
    """
    found = _AXES.get(format_)
    if found is None:
        raise UnsupportedError(f"images in format {format_} are not supported")
    return Layout(str(format_), *found)


def planes(x: npt.NDArray[_S], layout: Layout) -> npt.NDArray[_S]:
    """View (or copy) of images as (n, k, h, w), k all that is neither batch, height nor width."""
    moved = np.moveaxis(x, (layout.h, layout.w), (-2, -1))
    # Not -1: nothing can be inferred of an empty batch.
    return moved.reshape(x.shape[0], math.prod(moved.shape[1:-2]), *moved.shape[-2:])


def unplanes(y: npt.NDArray[_S], shape: Shape, layout: Layout) -> npt.NDArray[_S]:
    """Bring (m, k, h, w) into the layout; k splits as in `shape`, a tensor of that layout."""
    rest = [n for axis, n in enumerate(shape) if axis not in (0, layout.h, layout.w)]
    split = y.reshape(y.shape[0], *rest, *y.shape[-2:])
    return np.moveaxis(split, (-2, -1), (layout.h, layout.w))


def as_values(x: Array, dtype: DType) -> Float32:
    """Elements as float32 numbers; quantised types as their codes, not as real values.

    Raises:
        UnsupportedError: The elements are complex.
    """
    if dtype.kind is DTypeEnum.Complex64:
        raise UnsupportedError("images of Complex64 are not supported")
    return widen(x, dtype).astype(np.float32, copy=False)


def as_elements(values: Floats, dtype: DType) -> Array:
    """Elements of interpolated numbers: integers and codes are rounded half away.

    What does not fit is clamped, but Int8 keeps the low bits of it.
    """
    if dtype.is_float:
        return narrow(values, dtype)
    if dtype.kind is DTypeEnum.Bool or dtype.kind is DTypeEnum.Complex64:
        raise UnsupportedError(f"{dtype.name} images cannot be interpolated")
    rounded = rhaz(values.astype(np.float32, copy=False))
    if dtype.kind is DTypeEnum.Int8:
        return truncate(rounded, dtype)
    return saturate_to(rounded, dtype)
