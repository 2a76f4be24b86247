"""Gradients of Remap and WarpPerspective by their images and by their positions.

All images are (n, c, h, w) of floating type.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.imaging import Float32, as_values, planes, unplanes
from mgeserial.ops.numerics import narrow
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, need_gradient
from mgeserial.ops.sampling import scatter, slopes
from mgeserial.ops.subpixel import Mode
from mgeserial.ops.warp import (
    exact_points,
    grid,
    matrix_count,
    remap_layout,
    remap_points,
    source_images,
    transformed,
)


def _rows(diff: Array, call: Call, index: int) -> Float32:
    """Gradients (n, c, h, w) of input `index` as (n * h * w, c)."""
    values = as_values(diff, call.dtype(index))
    return values.transpose(0, 2, 3, 1).reshape(-1, diff.shape[1])


def _remap_data_shapes(call: Call) -> list[ShapeLike]:
    layout = remap_layout(call, 2, 0)
    _, h, w, _ = call.shape(0)
    need_gradient(call, 1, layout.resized(call.shape(2), h, w))
    return [call.shape(2)]


def _remap_data(call: Call, coordinates: Array, diff: Array, source: Array) -> Array:
    layout = remap_layout(call, 2, 0)
    if diff.size == 0:
        return np.zeros(source.shape, source.dtype)
    points = remap_points(call, coordinates, layout.size(source.shape))
    flat = planes(as_values(diff, call.dtype(1)), layout)
    rows = flat.transpose(0, 2, 3, 1).reshape(-1, flat.shape[1])
    total = scatter(rows, points, source.shape[0])
    return narrow(unplanes(total, source.shape, layout), call.dtype(1))


def _remap_map_shapes(call: Call) -> list[ShapeLike]:
    layout = remap_layout(call, 0, 1)
    _, h, w, _ = call.shape(1)
    need_gradient(call, 2, layout.resized(call.shape(0), h, w))
    return [call.shape(1)]


def _remap_map(call: Call, source: Array, coordinates: Array, diff: Array) -> Array:
    if call.param.imode != Mode.LINEAR or diff.size == 0:
        return np.zeros_like(coordinates)
    layout = remap_layout(call, 0, 1)
    points = remap_points(call, coordinates, layout.size(source.shape))
    flat = planes(as_values(diff, call.dtype(2)), layout)
    rows = flat.transpose(0, 2, 3, 1).reshape(-1, flat.shape[1])
    values = planes(as_values(source, call.dtype(0)), layout)
    by_y, by_x = slopes(values, rows, points, fill=call.param.scalar)
    found = np.stack([by_x, by_y], axis=-1).reshape(coordinates.shape)
    return narrow(found, call.dtype(1))


def _check_warp(call: Call) -> None:
    if call.param.format != P.ConvolutionFormat.NCHW or call.param.imode != Mode.LINEAR:
        raise UnsupportedError(
            f"gradients need format NCHW and LINEAR, got {call.param.format}, {call.param.imode}"
        )


def _warp_fits(call: Call, matrix: int, diff: int, shape: tuple[int, ...]) -> None:
    _check_warp(call)
    count = matrix_count(call, matrix, 3)
    given = call.shape(diff)
    need(
        len(given) == 4 and len(shape) == 4 and given[:2] == (count, shape[1]),
        f"the gradient must have shape ({count}, c, h, w) for images {shape}, got {given}",
    )
    need(min(shape[2:]) > 0, f"images of shape {shape} have no pixels")
    if diff - matrix == 1:
        need(count == shape[0], f"{count} matrices for {shape[0]} images")


def _last_dtype(call: Call) -> list[DType]:
    return [call.inputs[-1].dtype]


def _warp_data_shapes(call: Call) -> list[ShapeLike]:
    last = len(call.inputs) - 1
    _warp_fits(call, 0, last - 1, call.shape(last))
    return [call.shape(last)]


def _warp_data(call: Call, matrix: Array, *rest: Array) -> Array:
    *index, diff, source = rest
    if diff.size == 0:
        return np.zeros(source.shape, source.dtype)
    image = source_images(index[0] if index else None, matrix.shape[0], source.shape[0])
    points = exact_points(matrix, image, source.shape[2:], diff.shape[2:], call.param.bmode)
    place = len(rest) - 1
    total = scatter(_rows(diff, call, place), points, source.shape[0])
    return narrow(total, call.dtype(place))


def _warp_matrix_shapes(call: Call) -> list[ShapeLike]:
    _warp_fits(call, 1, len(call.inputs) - 1, call.shape(0))
    return [call.shape(1)]


def _warp_matrix(call: Call, source: Array, matrix: Array, *rest: Array) -> Array:
    *index, diff = rest
    if diff.size == 0:
        return np.zeros_like(matrix)
    image = source_images(index[0] if index else None, matrix.shape[0], source.shape[0])
    h, w = diff.shape[2:]
    points = exact_points(matrix, image, source.shape[2:], (h, w), call.param.bmode)
    values = as_values(source, call.dtype(0))
    rows = _rows(diff, call, len(rest) + 1)
    by_y, by_x = (
        a.reshape(-1, h * w) for a in slopes(values, rows, points, fill=call.param.border_val)
    )
    row, column, divisor = transformed(matrix.astype(np.float64), h, w)
    y, x = grid(h, w)
    place = np.stack([x, y, np.ones_like(x)], axis=-1).astype(np.float64)
    with np.errstate(all="ignore"):
        lines = (
            by_x / divisor,
            by_y / divisor,
            -(by_x * column + by_y * row) / (divisor * divisor),
        )
        found = np.stack([line @ place for line in lines], axis=1)
    return narrow(found, call.dtype(1))


REMAP_BACKWARD_DATA = register(
    OpSpec(
        name="RemapBackwardData",
        runtime_name="RemapBackwardData",
        names=(
            Name("RemapBackwardData", "v1.0.0-rc1", 4207226166622651297, until="v1.2.0"),
            Name("RemapBackwardDataV1", "v1.3.0", 9803018275425671754),
        ),
        old_id=15284773977311085522,
        v2=(V2Id("RemapBackwardDataV1", 1, 15284773977311085522),),
        params=(P.Remap,),
        inputs=("map", "diff", "src_for_shape"),
        dtypes=dtype_of(1),
        shapes=_remap_data_shapes,
        reference=_remap_data,
        source="adjoint of Remap; operators.json",
    )
)


REMAP_BACKWARD_MAT = register(
    OpSpec(
        name="RemapBackwardMat",
        runtime_name="RemapBackwardMat",
        names=(
            Name("RemapBackwardMat", "v1.0.0-rc1", 3961377066792436854, until="v1.2.0"),
            Name("RemapBackwardMatV1", "v1.3.0", 226402808098342309),
        ),
        old_id=12515271734490684168,
        v2=(V2Id("RemapBackwardMatV1", 1, 12515271734490684168),),
        params=(P.Remap,),
        inputs=("src", "map", "diff"),
        dtypes=dtype_of(1),
        shapes=_remap_map_shapes,
        reference=_remap_map,
        source="derivative of Remap; operators.json",
    )
)


WARP_PERSPECTIVE_BACKWARD_DATA = register(
    OpSpec(
        name="WarpPerspectiveBackwardData",
        runtime_name="WarpPerspectiveBackwardData",
        names=(
            Name("WarpPerspectiveBackwardData", "v0.3.1", 3911261122463308011, until="v1.2.0"),
            Name("WarpPerspectiveBackwardDataV2", "v1.3.0", 18000364362725739548),
        ),
        old_id=13816326393352931122,
        v2=(V2Id("WarpPerspectiveBackwardDataV2", 1, 13816326393352931122),),
        params=(P.WarpPerspective,),
        inputs=("mat", "mat_idx", "diff", "src_for_shape"),
        min_inputs=3,
        dtypes=_last_dtype,
        shapes=_warp_data_shapes,
        reference=_warp_data,
        source="adjoint of WarpPerspective; operators.json",
    )
)


WARP_PERSPECTIVE_BACKWARD_MAT = register(
    OpSpec(
        name="WarpPerspectiveBackwardMat",
        runtime_name="WarpPerspectiveBackwardMat",
        names=(
            Name("WarpPerspectiveBackwardMat", "v0.3.1", 1255483842699455490, until="v1.2.0"),
            Name("WarpPerspectiveBackwardMatV2", "v1.3.0", 7736426435595744048),
        ),
        old_id=3146398449590768814,
        v2=(V2Id("WarpPerspectiveBackwardMatV2", 1, 3146398449590768814),),
        params=(P.WarpPerspective,),
        inputs=("src", "mat", "mat_idx", "diff"),
        min_inputs=3,
        dtypes=dtype_of(1),
        shapes=_warp_matrix_shapes,
        reference=_warp_matrix,
        source="derivative of WarpPerspective; operators.json",
    )
)
