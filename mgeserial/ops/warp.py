"""Images resampled at given, affine or perspective positions.

Matrices map pixels of the output, as (x, y, 1), to positions in the source. Images of 8-bit or
float32 elements with the channels last (up to 3) are read at steps of 1/32 pixel (`subpixel`), all
others at exact positions (`sampling`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.imaging import (
    Floats,
    Layout,
    as_elements,
    as_values,
    layout_of,
    planes,
    unplanes,
)
from mgeserial.ops.numerics import rhte
from mgeserial.ops.operands import as_index, dims, during, known_dims, ruled_shape
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, output_or
from mgeserial.ops.sampling import (
    Border,
    Index,
    Points,
    Taps,
    bilinear,
    bordered,
    interpolate,
    whole,
)
from mgeserial.ops.subpixel import FRACTIONS, Mode, resample

_F = P.ConvolutionFormat
_KINDS = DTypeEnum
# Formats of two layouts: how the source and the result lie.
_MIXED = {
    _F.NHWC_NCHW: (_F.NHWC, _F.NCHW),
    _F.NHWC_NCHW4_IC_SMALL: (_F.NHWC, _F.NCHW4),
    _F.NCHW_NCHW4_IC_SMALL: (_F.NCHW, _F.NCHW4),
}
# Fixed point of affine positions before they are cut to 1/32 pixel.
_AFFINE_BITS = 10


@dataclass(frozen=True, slots=True)
class Warp:
    """Which input of a warp is what: sources, matrices, indices of sources, output shape."""

    sources: tuple[int, ...]
    matrix: int
    index: int | None
    shape: int


def roles(call: Call) -> Warp:
    """Which input is what: sources come first, then matrices (rank 3), maybe indices, the shape."""
    last = len(call.inputs) - 1
    ranks = [None if t.shape is None else len(t.shape) for t in call.inputs]
    matrix = next((i for i in range(1, last) if ranks[i] == 3), 1)
    need(last - matrix in (1, 2), f"inputs must end with mat[, mat_idx], out_shape; got {last + 1}")
    return Warp(tuple(range(matrix)), matrix, matrix + 1 if last - matrix == 2 else None, last)


def _layouts(format_: P.ConvolutionFormat) -> tuple[Layout, Layout]:
    source, result = _MIXED.get(format_, (format_, format_))
    return layout_of(source), layout_of(result)


def matrix_count(call: Call, place: int, rows: int) -> int:
    """Number of matrices in an input (m, rows, 3) of float32."""
    shape = call.shape(place)
    need(
        len(shape) == 3 and shape[1:] == (rows, 3),
        f"matrices must have shape (m, {rows}, 3), got {shape}",
    )
    _check_positions(call.dtype(place), "matrices")
    return shape[0]


def _check_positions(dtype: DType, what: str) -> None:
    need(dtype.kind in (_KINDS.Float32, _KINDS.Float16), f"{what} must be Float32, got {dtype}")


def _warp_shapes(call: Call) -> list[ShapeLike]:
    role = roles(call)
    source, result = _layouts(call.param.format)
    shape = call.shape(0)
    source.size(shape)
    for other in role.sources[1:]:
        need(call.shape(other) == shape, f"sources differ: {shape} and {call.shape(other)}")
    rows = 2 if call.op.name == "WarpAffine" else 3
    count, images = matrix_count(call, role.matrix, rows), shape[0] * len(role.sources)
    if role.index is None:
        need(count == images, f"{count} matrices for {images} images")
    else:
        index = call.shape(role.index)
        need(index == (count,), f"mat_idx must have shape {(count,)}, got {index}")
    return [_warp_dims(source, result, shape, count, dims(call, role.shape, count=2))]


def _warp_dims(
    source: Layout, result: Layout, shape: Shape, count: int, size: ShapeLike
) -> ShapeLike:
    h, w = size or (None, None)
    if source == result:
        return (count, *source.resized(shape, h, w)[1:])
    channels = shape[3] if source.h == 1 else shape[1]
    if result.rank == 4:
        return (count, channels, h, w)
    need(channels <= 4, f"at most 4 channels go into one pack, got {channels}")
    return (count, 1, h, w, 4)


def grid(h: int, w: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Row and column (h * w,) of the pixels of an image."""
    y, x = np.indices((h, w), dtype=np.float32)
    return y.reshape(-1), x.reshape(-1)


def transformed(matrix: Floats, h: int, w: int) -> tuple[Floats, Floats, Floats]:
    """Row, column and divisor (m, h * w) of the pixels of an output under matrices (m, 2|3, 3).

    The divisor is 1 for affine matrices; rows and columns are not divided yet. The type is that
    of `matrix`.
    """
    y, x = (a.astype(matrix.dtype) for a in grid(h, w))
    lines = [
        matrix[:, i, 0, None] * x + matrix[:, i, 1, None] * y + matrix[:, i, 2, None]
        for i in range(matrix.shape[1])
    ]
    column, row = lines[0], lines[1]
    return row, column, lines[2] if len(lines) > 2 else np.ones_like(row)


def exact_points(
    matrix: Array, image: Index, size: tuple[int, int], out: tuple[int, int], border: Border
) -> Points:
    """Where the pixels of outputs of size `out` read sources of size `size`.

    Args:
        matrix: (m, 2, 3) or (m, 3, 3) float32.
        image: (m,) source image of each output.
        size: Height and width of the sources.
        out: Height and width of the outputs.
        border: Border mode.
    """
    with np.errstate(all="ignore"):
        row, column, divisor = transformed(matrix.astype(np.float32), *out)
        y, x = (row / divisor).reshape(-1), (column / divisor).reshape(-1)
        taps = bilinear(y, size[0], border), bilinear(x, size[1], border)
    return Points(np.repeat(image, out[0] * out[1]), *taps, size)


def source_images(index: Array | None, count: int, images: int) -> Index:
    """Source image (count,) of each output.

    Raises:
        ShapeError: An index is outside the images.
    """
    if index is None:
        return np.arange(count)
    found = as_index(index).reshape(-1)
    if found.size:
        low, high = int(found.min()), int(found.max())
        wrong = low if low < 0 else high
        need(low >= 0 and high < images, f"mat_idx {wrong} is outside {images} images")
    return found


def _warp(call: Call, *arrays: Array) -> Array:
    role = roles(call)
    source, _ = _layouts(call.param.format)
    x = arrays[0] if len(role.sources) == 1 else np.concatenate([arrays[i] for i in role.sources])
    matrix = as_values(arrays[role.matrix], call.dtype(role.matrix))
    result = ruled_shape(call, *arrays)
    if 0 in result:
        return np.empty(result, call.output_types[0].dtype.storage)
    h, w = known_dims(during(call, *arrays), role.shape, count=2)
    index = None if role.index is None else arrays[role.index]
    image = source_images(index, matrix.shape[0], x.shape[0])
    border, fill = _border(call)
    if _in_steps(call, x):
        position = _positions(call, matrix, h, w)
        flat = resample(
            x, np.repeat(image, h * w), position, mode=call.param.imode, border=border, fill=fill
        )
        return _finished(call, flat, x.shape, (h, w))
    if call.param.imode != Mode.LINEAR:
        raise UnsupportedError(
            f"interpolation {call.param.imode} needs channels last, 1 to 3 of them, "
            f"8-bit or float32; got {call.inputs[0]}"
        )
    points = exact_points(matrix, image, source.size(x.shape), (h, w), border)
    values = planes(as_values(x, call.dtype(0)), source)
    mixed = interpolate(values, points, fill=fill)
    if border == Border.CONSTANT:
        mixed = np.where(np.isfinite(mixed), mixed, np.float32(fill))
    elements = _converted(mixed, call.dtype(0), call.output_types[0].dtype)
    return _finished(call, elements, x.shape, (h, w))


def _border(call: Call) -> tuple[P.WarpPerspectiveV1BorderMode, float]:
    param = call.param
    mode = param.bmode if isinstance(param, P.WarpPerspective) else param.border_mode
    return mode, param.border_val


def _in_steps(call: Call, x: Array) -> bool:
    """Whether positions are cut to 1/32 pixel: channels last, few of them, simple elements."""
    if call.param.format != _F.NHWC or call.output_types[0].dtype != call.dtype(0):
        return False
    simple = call.dtype(0).kind in (_KINDS.Uint8, _KINDS.Float32)
    return simple and 1 <= x.shape[3] <= 3


def _positions(call: Call, matrix: Array, h: int, w: int) -> tuple[Index, Index]:
    """Rows and columns (m * h * w,) in 1/32 pixel, or whole pixels for NEAREST."""
    nearest = call.param.imode == Mode.NEAREST
    wide = matrix.astype(np.float64)
    if matrix.shape[1] == 2:
        return _affine_positions(wide, h, w, nearest=nearest)
    row, column, divisor = transformed(wide, h, w)
    unit = 1.0 if nearest else float(FRACTIONS)
    with np.errstate(all="ignore"):
        scale = np.where(divisor != 0, unit / divisor, 0.0)
        y, x = whole(rhte(row * scale)), whole(rhte(column * scale))
    return y.reshape(-1), x.reshape(-1)


def _affine_positions(
    matrix: npt.NDArray[np.float64], h: int, w: int, *, nearest: bool
) -> tuple[Index, Index]:
    one = 1 << _AFFINE_BITS
    step = one if nearest else one // FRACTIONS
    found = []
    for line in (1, 0):
        by_x = whole(rhte(matrix[:, line, 0, None] * np.arange(w) * one))
        start = matrix[:, line, 1, None] * np.arange(h) + matrix[:, line, 2, None]
        by_y = whole(rhte(start * one)) + step // 2
        found.append(((by_y[:, :, None] + by_x[:, None, :]) // step).reshape(-1))
    return found[0], found[1]


def _finished(call: Call, y: Array, shape: Shape, size: tuple[int, int]) -> Array:
    """Results (m * h * w, k) as the output's tensor; `shape` is that of the sources."""
    source, result = _layouts(call.param.format)
    whole_ = y.reshape(-1, *size, y.shape[1])
    if source == result:
        return unplanes(whole_.transpose(0, 3, 1, 2), shape, source)
    if result.rank == 4:
        return whole_.transpose(0, 3, 1, 2)
    return np.pad(whole_, ((0, 0), (0, 0), (0, 0), (0, 4 - y.shape[1])))[:, None]


def _converted(values: Floats, given: DType, wanted: DType) -> Array:
    """Interpolated numbers of type `given` as elements of the output.

    Bytes may become real numbers (not rounded before), or codes around their zero point, which is
    128 for plain bytes; codes keep the low bits of what does not fit.
    """
    if given == wanted:
        return as_elements(values, given)
    if given.kind not in (_KINDS.Uint8, _KINDS.Quantized8Asymm):
        raise UnsupportedError(f"{given} cannot become {wanted} in a warp")
    if wanted.kind is _KINDS.QuantizedS8:
        middle = 128 if given.zero_point is None else given.zero_point
        return (as_elements(values, given).astype(np.int16) - np.int16(middle)).astype(np.int8)
    if wanted.kind is not _KINDS.Float32:
        raise UnsupportedError(f"{given} cannot become {wanted} in a warp")
    zero = np.float32(given.zero_point or 0)
    return np.asarray((values - zero) * np.float32(given.scale or 1.0), dtype=np.float32)


def remap_layout(call: Call, source: int, coordinates: int) -> Layout:
    """Layout of a remap's images, after a check of the map's shape."""
    layout = layout_of(call.param.format)
    if layout.rank != 4:
        raise UnsupportedError(f"images in format {layout.name} cannot be remapped")
    shape, given = call.shape(source), call.shape(coordinates)
    layout.size(shape)
    need(
        len(given) == 4 and given[0] == shape[0] and given[3] == 2,
        f"the map must have shape ({shape[0]}, h, w, 2), got {given}",
    )
    _check_positions(call.dtype(coordinates), "the map")
    return layout


def _remap_shapes(call: Call) -> list[ShapeLike]:
    layout = remap_layout(call, 0, 1)
    _, h, w, _ = call.shape(1)
    return [layout.resized(call.shape(0), h, w)]


def remap_points(call: Call, coordinates: Array, size: tuple[int, int]) -> Points:
    """Where the outputs of a remap read; `coordinates` is (n, h, w, 2) as (x, y)."""
    n, h, w, _ = coordinates.shape
    x, y = (coordinates[..., i].reshape(-1).astype(np.float32) for i in (0, 1))
    image = np.repeat(np.arange(n), h * w)
    border = call.param.border_type
    with np.errstate(invalid="ignore"):
        if call.param.imode == Mode.LINEAR:
            return Points(image, bilinear(y, size[0], border), bilinear(x, size[1], border), size)
        if call.param.imode != Mode.NEAREST:
            raise UnsupportedError(f"interpolation {call.param.imode} is not supported by remap")
        taps = [
            Taps(
                bordered(whole(rhte(a)), length, border)[:, None],
                np.ones((a.shape[0], 1), np.float32),
            )
            for a, length in zip((y, x), size, strict=True)
        ]
    return Points(image, taps[0], taps[1], size)


def _remap(call: Call, source: Array, coordinates: Array) -> Array:
    layout, dtype = remap_layout(call, 0, 1), call.dtype(0)
    result = ruled_shape(call, source, coordinates)
    if 0 in result:
        return np.empty(result, source.dtype)
    points = remap_points(call, coordinates, layout.size(source.shape))
    mixed = interpolate(planes(as_values(source, dtype), layout), points, fill=call.param.scalar)
    if call.param.border_type == Border.CONSTANT:
        mixed = np.where(np.isfinite(mixed), mixed, np.float32(call.param.scalar))
    n, h, w, _ = coordinates.shape
    y = as_elements(mixed, dtype).reshape(n, h, w, -1).transpose(0, 3, 1, 2)
    return unplanes(y, source.shape, layout)


REMAP = register(
    OpSpec(
        name="Remap",
        runtime_name="RemapForward",
        names=(
            Name("Remap", "v0.5.0", 2374822762628946951, until="v1.2.0"),
            Name("RemapV1", "v1.3.0", 17329299439164282474),
        ),
        old_id=7991894348397599907,
        v2=(V2Id("RemapV1", 1, 7991894348397599907),),
        params=(P.Remap,),
        inputs=("src", "map_xy"),
        dtypes=dtype_of(0),
        shapes=_remap_shapes,
        reference=_remap,
        source="semantics section 10, operators.json",
    )
)

WARP_AFFINE = register(
    OpSpec(
        name="WarpAffine",
        runtime_name="WarpAffineForward",
        names=(
            Name("WarpAffineV1", "v0.3.1", 6359070352970611271, until="v1.2.0"),
            Name("WarpAffineV2", "v1.3.0", 4229707358715931568),
        ),
        old_id=4439108789117598576,
        v2=(V2Id("WarpAffineV2", 1, 4439108789117598576),),
        params=(P.WarpAffine,),
        inputs=("src", "mat", "out_shape"),
        dtypes=dtype_of(0),
        shapes=_warp_shapes,
        reference=_warp,
        source="semantics section 10, operators.json",
    )
)

WARP_PERSPECTIVE = register(
    OpSpec(
        name="WarpPerspective",
        runtime_name="WarpPerspectiveForward",
        names=(
            Name("WarpPerspective", "v0.3.1", 1939340553450215799, until="v1.2.0"),
            Name("WarpPerspectiveV2", "v1.3.0", 16071922779227072566),
        ),
        old_id=7748309056852641149,
        v2=(V2Id("WarpPerspectiveV2", 1, 7748309056852641149),),
        params=(P.WarpPerspective,),
        inputs=("src", "mat", "out_shape"),
        min_inputs=3,
        max_inputs=None,
        dtypes=output_or(0),
        shapes=_warp_shapes,
        reference=_warp,
        source="semantics section 10, operators.json",
    )
)
