"""Images and volumes resized to another height and width (and depth), and the gradient.

With the channels last (1 or 3 of them) CUBIC, LANCZOS4 and AREA work in another arithmetic: scales
in double, 8-bit images with weights of 11 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import lines
from mgeserial.ops.imaging import (
    Float32,
    Layout,
    as_elements,
    as_values,
    layout_of,
    planes,
    unplanes,
)
from mgeserial.ops.lines import Line
from mgeserial.ops.numerics import narrow
from mgeserial.ops.operands import dims, ruled_shape
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need
from mgeserial.ops.subpixel import Mode

_FIXED_BITS = 11
_TAPS = {Mode.CUBIC: 4, Mode.LANCZOS4: 8}


def _resize_shapes(call: Call) -> list[ShapeLike]:
    layout, shape = layout_of(call.param.format), call.shape(0)
    layout.size(shape)
    h, w = dims(call, 1, count=2) or (None, None)
    need(h != 0 and w != 0, f"images cannot be resized to {h} x {w}")
    return [layout.resized(shape, h, w)]


def _is_fine(call: Call, layout: Layout, channels: int) -> bool:
    """Whether the arithmetic for channels last is used: see the module."""
    return (
        layout.name == "NHWC"
        and channels in (1, 3)
        and call.param.imode not in (Mode.LINEAR, Mode.NEAREST)
        and call.dtype(0).kind in (DTypeEnum.Uint8, DTypeEnum.Float32)
    )


def _line(mode: P.WarpPerspectiveV1InterpolationMode, out: int, size: int) -> Line:
    if mode == Mode.LINEAR:
        return lines.linear(out, size)
    if mode == Mode.NEAREST:
        return lines.nearest(out, size)
    if mode == Mode.CUBIC:
        return lines.cubic(out, size)
    raise UnsupportedError(
        f"interpolation {mode} needs 8-bit or float32 images with 1 or 3 channels last"
    )


def _resize(call: Call, x: Array, out_shape: Array) -> Array:
    layout, dtype = layout_of(call.param.format), call.dtype(0)
    result = ruled_shape(call, x, out_shape)
    if 0 in result:
        return np.empty(result, x.dtype)
    wanted, size = layout.size(result), layout.size(x.shape)
    if _is_fine(call, layout, x.shape[-1]):
        return unplanes(_fine(call, planes(x, layout), wanted), x.shape, layout)
    values = planes(as_values(x, dtype), layout)
    rows, columns = (
        _line(call.param.imode, out, given) for out, given in zip(wanted, size, strict=True)
    )
    if call.param.imode == Mode.LINEAR:
        values = lines.crossed(values, rows, columns)
    else:
        values = lines.mixed(lines.mixed(values, -1, columns), -2, rows)
    return unplanes(as_elements(values, dtype), x.shape, layout)


def _fine(call: Call, x: Array, wanted: tuple[int, int]) -> Array:
    """Resize images (n, c, h, w) of uint8 or float32 as is done with the channels last."""
    mode, (h, w) = call.param.imode, x.shape[2:]
    if mode == Mode.AREA:
        return _area(x, wanted)
    if mode not in _TAPS:
        raise UnsupportedError(f"interpolation {mode} is not supported")
    rows = lines.smooth(wanted[0], h, taps=_TAPS[mode])
    columns = lines.smooth(wanted[1], w, taps=_TAPS[mode])
    if x.dtype != np.uint8:
        return lines.mixed(lines.mixed(x.astype(np.float32), -1, columns), -2, rows)
    total = lines.mixed(x.astype(np.int64), -1, _fixed(columns))
    total = lines.mixed(total, -2, _fixed(rows))
    half = 1 << (2 * _FIXED_BITS - 1)
    return np.asarray(np.clip((total + half) >> (2 * _FIXED_BITS), 0, 255)).astype(np.uint8)


def _area(x: Array, wanted: tuple[int, int]) -> Array:
    """Means over areas (n, c, h, w); linear with flat parts where an axis grows."""
    h, w = x.shape[2:]
    shrink = h >= wanted[0] and w >= wanted[1]
    rows = lines.area(wanted[0], h, shrink=shrink)
    columns = lines.area(wanted[1], w, shrink=shrink)
    if x.dtype == np.uint8 and not shrink:
        return _truncating(lines.mixed(x.astype(np.int64), -1, _fixed(columns)), _fixed(rows))
    if (h, w) == (2 * wanted[0], 2 * wanted[1]) and x.dtype == np.uint8:
        n, c = x.shape[:2]
        fours = x.reshape(n, c, wanted[0], 2, wanted[1], 2).sum(axis=(3, 5), dtype=np.int32)
        return np.asarray((fours + 2) >> 2).astype(np.uint8)
    if h % wanted[0] == 0 and w % wanted[1] == 0:
        whole = x.reshape(*x.shape[:2], wanted[0], h // wanted[0], wanted[1], w // wanted[1])
        sums: Float32 = whole.sum(axis=(3, 5), dtype=np.float32)
        values = sums * (np.float32(1) / np.float32(whole.shape[3] * whole.shape[5]))
    else:
        values = lines.mixed(lines.mixed(x.astype(np.float32), -1, columns), -2, rows)
    # Bytes are cut, not rounded.
    return np.clip(values, 0, 255).astype(np.uint8) if x.dtype == np.uint8 else values


def _truncating(x: npt.NDArray[np.int64], line: Line) -> Array:
    """Pairs of rows mixed with 11-bit weights, low bits cut before and after the product."""
    total = np.zeros((*x.shape[:2], line.index.shape[0], x.shape[3]), np.int64)
    for tap in (0, 1):
        weight = line.weight[:, tap, None].astype(np.int64)
        total += (weight * (x.take(line.index[:, tap], axis=-2) >> 4)) >> 16
    return np.asarray(np.clip((total + 2) >> 2, 0, 255)).astype(np.uint8)


def _fixed(line: Line) -> Line:
    """Weights in 1/2048."""
    return Line(line.index, np.rint(line.weight * (1 << _FIXED_BITS)).astype(np.int64))


def _resize_backward_shapes(call: Call) -> list[ShapeLike]:
    layout = layout_of(call.param.format)
    diff, shape = call.shape(0), call.shape(1)
    layout.size(shape)
    wanted = layout.resized(shape, *layout.size(diff))
    need(diff == wanted, f"the gradient {diff} does not fit images of shape {shape}")
    return [shape]


def _resize_backward(call: Call, diff: Array, source: Array) -> Array:
    layout, dtype = layout_of(call.param.format), call.dtype(0)
    if diff.size == 0:
        return np.zeros(source.shape, diff.dtype)
    total = planes(as_values(diff, dtype), layout).astype(np.float64)
    for axis, out, size in zip(
        (-1, -2),
        reversed(layout.size(diff.shape)),
        reversed(layout.size(source.shape)),
        strict=True,
    ):
        total = lines.spread(total, axis, _line(call.param.imode, out, size), size)
    return narrow(unplanes(total, source.shape, layout), dtype)


def _check_volume(call: Call) -> None:
    if call.param.format != P.Convolution3DFormat.NCDHW or call.param.imode != Mode.LINEAR:
        raise UnsupportedError(
            f"volumes need format NCDHW and LINEAR, got {call.param.format}, {call.param.imode}"
        )


def _resize3d_shapes(call: Call) -> list[ShapeLike]:
    _check_volume(call)
    shape, wanted = call.shape(0), dims(call, 1, count=3) or (None, None, None)
    need(len(shape) == 5, f"a volume has shape (n, c, d, h, w), got {shape}")
    need(min(shape[2:]) > 0 and 0 not in wanted, f"volumes {shape} cannot become {wanted}")
    return [(*shape[:2], *wanted)]


def _resize3d(call: Call, x: Array, out_shape: Array) -> Array:
    wanted, dtype = ruled_shape(call, x, out_shape), call.dtype(0)
    if 0 in wanted:
        return np.empty(wanted, x.dtype)
    values = as_values(x, dtype)
    for axis in (-1, -2, -3):
        line = lines.stretched(wanted[axis], x.shape[axis], align_corners=call.param.align_corners)
        values = lines.mixed(values, axis, line)
    return as_elements(values, dtype)


RESIZE = register(
    OpSpec(
        name="Resize",
        runtime_name="ResizeForward",
        names=(
            Name("ResizeV1", "v0.3.1", 14078310589763744241, until="v1.2.0"),
            Name("ResizeV2", "v1.3.0", 4257660177517047913),
        ),
        old_id=2961320257790257266,
        v2=(V2Id("ResizeV2", 1, 2961320257790257266),),
        params=(P.Resize,),
        inputs=("src", "out_shape"),
        dtypes=dtype_of(0),
        shapes=_resize_shapes,
        reference=_resize,
        source="semantics section 10, operators.json",
    )
)

RESIZE_BACKWARD = register(
    OpSpec(
        name="ResizeBackward",
        runtime_name="ResizeBackward",
        names=(Name("ResizeBackward", "v0.3.1", 3188226525864456664),),
        old_id=3880986046901157242,
        v2=(V2Id("ResizeBackward", 1, 3880986046901157242),),
        params=(P.Resize,),
        inputs=("diff", "src_for_shape"),
        dtypes=dtype_of(0),
        shapes=_resize_backward_shapes,
        reference=_resize_backward,
        source="adjoint of Resize; operators.json",
    )
)

RESIZE3_D = register(
    OpSpec(
        name="Resize3D",
        runtime_name="Resize3DForward",
        names=(Name("Resize3D", "v1.13.0", 6980080426312782729),),
        old_id=11217925156219843625,
        v2=(V2Id("Resize3D", 1, 11217925156219843625),),
        params=(P.Resize3D,),
        inputs=("src", "out_shape"),
        dtypes=dtype_of(0),
        shapes=_resize3d_shapes,
        reference=_resize3d,
        source="semantics section 10, operators.json",
    )
)
