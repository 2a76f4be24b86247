"""Convolutions that leave out outputs (masks) or products (regions), and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.convrules import (
    Geometry,
    conv_dtypes,
    finish,
    geometry,
    geometry_of_gradient,
    result,
    sums,
)
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need
from mgeserial.ops.windows import Number, Window, batches, columns, scatter

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0"


def _mask_shapes(call: Call) -> list[ShapeLike]:
    shape = geometry(call.param, call.shape(0), call.shape(1))
    need(
        call.shape(2) == shape.out,
        f"the mask has shape {call.shape(2)}, but the output has {shape.out} pixels",
    )
    return [shape.dst_shape]


def _mask_reference(call: Call, src: Array, flt: Array, mask: Array) -> Array:
    shape = geometry(call.param, src.shape, flt.shape)
    total = finish(sums(call, src, flt, shape), result(call))
    return shape.stored_dst(np.where(mask != 0, total, total.dtype.type(0)))


def _propagate_window(call: Call) -> Window:
    param = call.param
    return Window.of(param, (int(param.kernel_h), int(param.kernel_w)))


def _propagate_shapes(call: Call) -> list[ShapeLike]:
    need(call.inputs[0].rank == 2, f"the mask must have two dimensions, got {call.shape(0)}")
    return [_propagate_window(call).output(call.shape(0))]


def _propagate_reference(call: Call, mask: Array) -> Array:
    window = _propagate_window(call)
    seen = mask != 0
    # A rectangle of taps is a row of columns: one axis after the other.
    for axis in range(2):
        seen = _any_along(seen, window, axis)
    return np.asarray(seen, call.dtype(0).storage)


def _any_along(seen: Number, window: Window, axis: int) -> Number:
    """Whether any tap of the window along one axis is set, with the axis as outputs."""
    seen = seen.swapaxes(0, axis)
    size = seen.shape[0]
    kernel, stride = window.kernel[axis], window.stride[axis]
    pad, dilate = window.pad[axis], window.dilate[axis]
    out = (size + 2 * pad - window.extent[axis]) // stride + 1
    result = np.zeros((out, *seen.shape[1:]), bool)
    for k in range(out):
        start = k * stride - pad
        first = start if start >= 0 else start % dilate
        stop = max(0, start + (kernel - 1) * dilate + 1)
        result[k] = seen[first:stop:dilate].any(axis=0)
    return result.swapaxes(0, axis)


def _region_geometry(call: Call, src: Shape, flt: Shape, rin: Shape, rout: Shape) -> Geometry:
    shape = geometry(call.param, src, flt)
    if shape.src.name != "NCHW":
        raise UnsupportedError(f"{call.op.name} is NCHW only, got {shape.src.name}")
    for name, got, wanted in (("rin", rin, shape.sizes), ("rout", rout, shape.out)):
        need(
            got == (shape.batch, *wanted),
            f"{name} needs a region number for each pixel, {(shape.batch, *wanted)}, got {got}",
        )
    return shape


def _region_shapes(call: Call) -> list[ShapeLike]:
    a, b, c, d = (call.shape(k) for k in range(4))
    return [_region_geometry(call, a, b, c, d).dst_shape]


def _region_dtypes(call: Call) -> list[DType]:
    names = {call.dtype(k).name for k in (0, 1)}
    if not (call.dtype(0).is_float and len(names) == 1):
        raise UnsupportedError(f"{call.op.name} needs one floating type, got {sorted(names)}")
    return [call.output_dtype or call.dtype(0)]


def _same_region(rin: Array, rout: Array, shape: Geometry) -> Number:
    """(N, 1, 1, *kernel, *out): whether a tap's input lies in the region of the output.

    Taps in the padding may say yes: there is nothing to add.
    """
    seen = columns(rin, shape.window, shape.out)
    return np.asarray(seen == rout[:, None, None])[:, None, None]


def _region_reference(call: Call, src: Array, flt: Array, rin: Array, rout: Array) -> Array:
    shape = _region_geometry(call, src.shape, flt.shape, rin.shape, rout.shape)
    x = shape.src_maps(widen(src, call.dtype(0)))
    w = shape.kernel(widen(flt, call.dtype(1)))
    matrix = w.reshape(shape.groups, shape.outputs, -1)
    total = np.empty((shape.batch, shape.groups, shape.outputs, *shape.out), np.float32)
    for images in _images(shape):
        cols = columns(x[images], shape.window, shape.out)
        cols *= _same_region(rin[images], rout[images], shape)
        part = matrix @ cols.reshape(cols.shape[0], shape.groups, matrix.shape[2], -1)
        total[images] = part.reshape(-1, *total.shape[1:])
    return shape.stored_dst(narrow(total, result(call)))


def _images(shape: Geometry) -> Iterator[slice]:
    """Parts of the batch whose columns stay small."""
    taps = math.prod((shape.groups, shape.depth, *shape.window.kernel, *shape.out))
    return batches(4 * taps, shape.batch)


def _region_back_geometry(call: Call) -> Geometry:
    flt, diff, rin, rout = (call.shape(k) for k in range(4))
    if len(call.inputs) > 4:
        src = call.shape(4)
    else:
        src = geometry_of_gradient(call.param, flt, diff, None).src_shape
    shape = _region_geometry(call, src, flt, rin, rout)
    need(
        shape.dst_shape == diff,
        f"the gradient has shape {diff}, but the convolution has {shape.dst_shape}",
    )
    return shape


def _region_back_shapes(call: Call) -> list[ShapeLike]:
    return [_region_back_geometry(call).src_shape]


def _region_back_reference(
    call: Call, flt: Array, diff: Array, rin: Array, rout: Array, *_: Array
) -> Array:
    shape = _region_back_geometry(call)
    dy = shape.dst_maps(widen(diff, call.dtype(1)))
    w = shape.kernel(widen(flt, call.dtype(0)))
    matrix = w.reshape(shape.groups, shape.outputs, -1).swapaxes(1, 2)
    total = np.empty((shape.batch, shape.groups, shape.depth, *shape.sizes), np.float32)
    for images in _images(shape):
        flat = dy[images].reshape(-1, shape.groups, shape.outputs, math.prod(shape.out))
        cols = (matrix @ flat).reshape(
            -1, shape.groups, shape.depth, *shape.window.kernel, *shape.out
        )
        cols *= _same_region(rin[images], rout[images], shape)
        total[images] = scatter(cols, shape.window, shape.sizes)
    return shape.stored_src(narrow(total, result(call)))


def _region_filter_geometry(call: Call) -> Geometry:
    src, diff, rin, rout, flt = (call.shape(k) for k in range(5))
    shape = _region_geometry(call, src, flt, rin, rout)
    need(
        shape.dst_shape == diff,
        f"the gradient has shape {diff}, but the convolution has {shape.dst_shape}",
    )
    return shape


def _region_filter_shapes(call: Call) -> list[ShapeLike]:
    _region_filter_geometry(call)
    return [call.shape(4)]


def _region_filter_reference(
    call: Call, src: Array, diff: Array, rin: Array, rout: Array, _: Array
) -> Array:
    shape = _region_filter_geometry(call)
    x = shape.src_maps(widen(src, call.dtype(0)))
    dy = shape.dst_maps(widen(diff, call.dtype(1)))
    total = np.zeros((shape.groups, shape.outputs, shape.depth * math.prod(shape.window.kernel)))
    for images in _images(shape):
        cols = columns(x[images], shape.window, shape.out)
        cols *= _same_region(rin[images], rout[images], shape)
        flat = cols.reshape(cols.shape[0], shape.groups, total.shape[2], -1).swapaxes(2, 3)
        given = dy[images].reshape(-1, shape.groups, shape.outputs, flat.shape[2])
        total += (given @ flat).sum(axis=0)
    kernel = total.reshape(shape.groups, shape.outputs, shape.depth, *shape.window.kernel)
    return shape.stored_filter(narrow(kernel.astype(np.float32), result(call)))


MASK_CONVOLUTION = register(
    OpSpec(
        name="MaskConvolution",
        runtime_name="MaskConvolutionForward",
        names=(
            Name("MaskConvolutionV1", "v0.3.1", 2177457174929155043, until="v1.2.0"),
            Name("MaskConvolutionV2", "v1.3.0", 16385007121447595423),
        ),
        old_id=11635562412200372474,
        v2=(V2Id("MaskConvolutionV2", 1, 11635562412200372474),),
        params=(P.Convolution,),
        inputs=("src", "filter", "mask"),
        dtypes=conv_dtypes(),
        shapes=_mask_shapes,
        reference=_mask_reference,
        source=_SOURCE,
    )
)

MASK_PROPAGATE = register(
    OpSpec(
        name="MaskPropagate",
        runtime_name="MaskPropagate",
        names=(Name("MaskPropagate", "v0.3.1", 1779450258821787737),),
        old_id=835626953800924164,
        v2=(V2Id("MaskPropagate", 1, 835626953800924164),),
        params=(P.MaskPropagate,),
        inputs=("mask",),
        dtypes=dtype_of(0),
        shapes=_propagate_shapes,
        reference=_propagate_reference,
        source=_SOURCE,
    )
)

REGION_RESTRICTED_CONVOLUTION = register(
    OpSpec(
        name="RegionRestrictedConvolution",
        runtime_name="RegionRestrictedConvolutionForward",
        names=(Name("RegionRestrictedConvolution", "v1.11.1", 7732187763437231794),),
        old_id=7048724479251623914,
        v2=(V2Id("RegionRestrictedConvolution", 1, 7048724479251623914),),
        params=(P.Convolution,),
        inputs=("src", "filter", "rin", "rout"),
        dtypes=_region_dtypes,
        shapes=_region_shapes,
        reference=_region_reference,
        source=_SOURCE,
    )
)

REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA = register(
    OpSpec(
        name="RegionRestrictedConvolutionBackwardData",
        runtime_name="RegionRestrictedConvolutionBackwardData",
        names=(Name("RegionRestrictedConvolutionBackwardData", "v1.11.1", 6435244233096308347),),
        old_id=11192933842546897750,
        v2=(V2Id("RegionRestrictedConvolutionBackwardData", 1, 11192933842546897750),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "rin", "rout", "src_for_shape"),
        min_inputs=4,
        dtypes=_region_dtypes,
        shapes=_region_back_shapes,
        reference=_region_back_reference,
        source=_SOURCE,
    )
)

REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER = register(
    OpSpec(
        name="RegionRestrictedConvolutionBackwardFilter",
        runtime_name="RegionRestrictedConvolutionBackwardFilter",
        names=(Name("RegionRestrictedConvolutionBackwardFilter", "v1.11.1", 647397193138151111),),
        old_id=5310852910838690953,
        v2=(V2Id("RegionRestrictedConvolutionBackwardFilter", 1, 5310852910838690953),),
        params=(P.Convolution,),
        inputs=("src", "diff", "rin", "rout", "filter_for_shape"),
        dtypes=_region_dtypes,
        shapes=_region_filter_shapes,
        reference=_region_filter_reference,
        source=_SOURCE,
    )
)
