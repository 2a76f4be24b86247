"""Images filtered: Gaussian blur, and block cosine transforms with a choice of coefficients."""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.imaging import Float32
from mgeserial.ops.numerics import quantize
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.sampling import bordered

__all__ = [
    "DCT_CHANNEL_SELECT",
    "GAUSSIAN_BLUR",
    "KERNEL_BITS",
    "blur_lines",
    "cosines",
    "selected",
]

# Kernels of small sizes where no deviation is given.
_FIXED = {
    1: (1.0,),
    3: (0.25, 0.5, 0.25),
    5: (0.0625, 0.25, 0.375, 0.25, 0.0625),
    7: (0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125),
}
KERNEL_BITS = 8
_N = TypeVar("_N", np.float32, np.int64)


def _blur_dtypes(call: Call) -> list[DType]:
    if call.dtype(0).kind not in (DTypeEnum.Uint8, DTypeEnum.Float32):
        raise UnsupportedError(f"GaussianBlur needs Uint8 or Float32 images, got {call.dtype(0)}")
    return [call.dtype(0)]


def _blur_shapes(call: Call) -> list[ShapeLike]:
    shape = call.shape(0)
    need(
        len(shape) == 4 and shape[3] in (1, 3) and min(shape[1:3]) > 0,
        f"images (n, h, w, 1 or 3) are needed, got shape {shape}",
    )
    _kernel_size(call.param.kernel_height, _sigmas(call)[1], call.dtype(0))
    _kernel_size(call.param.kernel_width, _sigmas(call)[0], call.dtype(0))
    return [shape]


def _sigmas(call: Call) -> tuple[float, float]:
    x, y = float(call.param.sigma_x), float(call.param.sigma_y)
    return x, y if y > 0 else x


def _kernel_size(size: int, sigma: float, dtype: DType) -> int:
    need(math.isfinite(sigma), f"the deviation must be a number, got {sigma}")
    if size == 0 and sigma > 0:
        reach = 3 if dtype.kind is DTypeEnum.Uint8 else 4
        size = round(sigma * reach * 2 + 1) | 1
    need(size % 2 == 1, f"kernel sizes must be odd, or 0 with a deviation; got {size}")
    need(size < 1 << 15, f"a kernel of {size} pixels is too large")
    return size


def _kernel(size: int, sigma: float, dtype: DType) -> npt.NDArray[np.float64]:
    """Weights (size,) that add up to 1."""
    size = _kernel_size(size, sigma, dtype)
    if sigma <= 0 and size in _FIXED:
        return np.array(_FIXED[size])
    deviation = sigma if sigma > 0 else ((size - 1) * 0.5 - 1) * 0.3 + 0.8
    distance = np.arange(size) - (size - 1) * 0.5
    weight = np.exp(-(distance**2) / (2 * deviation**2))
    return np.asarray(weight / weight.sum())


def blur_lines(call: Call) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Weights of a blur along the height and the width.

    They are float32 for Float32 images, else int64 in steps of 1 / 2**KERNEL_BITS.
    """
    sigma_x, sigma_y = _sigmas(call)
    dtype = call.dtype(0)
    rows = _kernel(call.param.kernel_height, sigma_y, dtype)
    columns = _kernel(call.param.kernel_width, sigma_x, dtype)
    if dtype.kind is DTypeEnum.Float32:
        return rows.astype(np.float32), columns.astype(np.float32)
    one = 1 << KERNEL_BITS
    return np.trunc(rows * one).astype(np.int64), np.trunc(columns * one).astype(np.int64)


def _blur(call: Call, x: Array) -> Array:
    rows, columns = blur_lines(call)
    if x.dtype == np.uint8:
        total = x.astype(np.int64)
        for axis, line in ((2, columns), (1, rows)):
            total = _filtered(total, axis, line, call.param.border_mode)
        half = 1 << (2 * KERNEL_BITS - 1)
        return np.asarray(np.clip((total + half) >> (2 * KERNEL_BITS), 0, 255)).astype(np.uint8)
    values: Float32 = x.astype(np.float32, copy=False)
    for axis, weights in ((2, columns), (1, rows)):
        values = _filtered(values, axis, weights, call.param.border_mode)
    return values


def _filtered(
    x: npt.NDArray[_N], axis: int, line: npt.NDArray[_N], border: P.WarpPerspectiveV1BorderMode
) -> npt.NDArray[_N]:
    """Correlation with `line` along an axis; pixels outside of CONSTANT are 0."""
    size, reach = x.shape[axis], line.shape[0] // 2
    total = np.zeros_like(x)
    shape = [1] * x.ndim
    shape[axis] = size
    for tap in range(line.shape[0]):
        place = bordered(np.arange(size) + tap - reach, size, border)
        weight = np.where(place >= 0, line[tap], 0).astype(line.dtype).reshape(shape)
        total += x.take(np.maximum(place, 0), axis=axis) * weight
    return total


# DctChannelSelect


def _dct_dtypes(call: Call) -> list[DType]:
    need(call.dtype(0).kind is DTypeEnum.Uint8, f"images must be Uint8, got {call.dtype(0)}")
    return [call.output_dtype or FLOAT32]


def _dct_blocks(call: Call) -> tuple[int, int, int, int, int]:
    """(n, c, rows of blocks, columns of blocks, block size)."""
    shape, size = call.shape(0), call.param.dct_block_size
    need(len(call.inputs) != 2, "mask_offset needs mask_val beside it")
    need(len(shape) == 4, f"images (n, c, h, w) are needed, got shape {shape}")
    need(size > 0, f"the block size must be above zero, got {size}")
    n, c, h, w = shape
    need(h > 0 and w > 0, f"images of shape {shape} have no pixels")
    need(h % size == 0 and w % size == 0, f"{h} x {w} does not divide into blocks of {size}")
    return n, c, h // size, w // size, size


def _dct_shapes(call: Call) -> list[ShapeLike]:
    n, c, h, w, size = _dct_blocks(call)
    channels = c * size * size
    if len(call.inputs) == 3:
        need(call.shape(1) == (c + 1,), f"mask_offset needs {c + 1} numbers, got {call.shape(1)}")
        need(len(call.shape(2)) == 1, f"mask_val must be 1-d, got {call.shape(2)}")
        channels = call.shape(2)[0]
    if call.param.format == P.ConvolutionFormat.NCHW4:
        need(channels % 4 == 0, f"{channels} channels do not divide into packs of 4")
        return [(n, channels // 4, h, w, 4)]
    if call.param.format != P.ConvolutionFormat.NCHW:
        raise UnsupportedError(f"format {call.param.format} is not supported")
    return [(n, channels, h, w)]


@functools.cache
def cosines(size: int) -> Float32:
    """Orthonormal DCT-II matrix (size, size)."""
    row, column = np.arange(size)[:, None], np.arange(size)
    found = np.cos((2 * column + 1) * row * np.pi / (2 * size)) * np.sqrt(2 / size)
    found[0] *= np.sqrt(0.5)
    return np.asarray(found, dtype=np.float32)


def _dct(call: Call, x: Array, *masks: Array) -> Array:
    n, c, h, w, size = _dct_blocks(call)
    matrix = cosines(size).astype(np.float64)
    blocks = x.reshape(n, c, h, size, w, size).astype(np.float64)
    found = np.einsum("ui,ncyixj,vj->ncuvyx", matrix, blocks, matrix, optimize=True)
    channels = found.reshape(n, c * size * size, h, w).astype(np.float32)
    if masks:
        channels = channels[:, selected(c, size * size, *masks)]
    dtype = call.output_types[0].dtype
    y: Array = quantize(channels, dtype) if dtype.is_quantized else channels
    if call.param.format == P.ConvolutionFormat.NCHW4:
        y = y.reshape(n, channels.shape[1] // 4, 4, h, w).transpose(0, 1, 3, 4, 2)
    return y


def selected(c: int, each: int, offset: Array, value: Array) -> npt.NDArray[np.intp]:
    """Coefficients that the masks choose, as channels of the whole transform."""
    bounds = offset.astype(np.intp)
    need(
        bool(bounds[0] == 0 and bounds[-1] == value.shape[0] and (np.diff(bounds) >= 0).all()),
        f"mask_offset must rise from 0 to {value.shape[0]}",
    )
    chosen = value.astype(np.intp)
    need(
        not chosen.size or bool(chosen.min() >= 0 and chosen.max() < each),
        f"mask_val must hold coefficients 0 to {each - 1}",
    )
    image = np.repeat(np.arange(c), np.diff(bounds))
    return np.asarray(image * each + chosen)


GAUSSIAN_BLUR = register(
    OpSpec(
        name="GaussianBlur",
        runtime_name="GaussianBlur",
        names=(Name("GaussianBlur", "v0.3.1", 7781154096106722127),),
        old_id=7386526580224061398,
        v2=(V2Id("GaussianBlur", 1, 7386526580224061398),),
        params=(P.GaussianBlur,),
        inputs=("src",),
        dtypes=_blur_dtypes,
        shapes=_blur_shapes,
        reference=_blur,
        source="semantics section 10, operators.json",
    )
)

DCT_CHANNEL_SELECT = register(
    OpSpec(
        name="DctChannelSelect",
        runtime_name="DctChannelSelect",
        names=(
            Name("DctChannelSelect", "v1.1.0", 10714849499801178988, until="v1.2.0"),
            Name("DctChannelSelectV1", "v1.3.0", 16452824271152006323),
        ),
        old_id=16182254079565348335,
        v2=(V2Id("DctChannelSelectV1", 1, 16182254079565348335),),
        params=(P.DctChannelSelect,),
        inputs=("src", "mask_offset", "mask_val"),
        min_inputs=1,
        dtypes=_dct_dtypes,
        shapes=_dct_shapes,
        reference=_dct,
        source="semantics section 10, operators.json",
    )
)
