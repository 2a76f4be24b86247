"""Convolutions of images: plain, with bias and nonlinearity, transposed, masked and restricted."""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.convrules import (
    Geometry,
    Sums,
    conv_dtypes,
    finish,
    forward_reference,
    forward_shapes,
    geometry,
    operand,
    result,
    same_scale,
    sums,
    transposed_reference,
    transposed_shapes,
)
from mgeserial.ops.layouts import TensorLayout
from mgeserial.ops.numerics import to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.windows import Number

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0"
_Nonlinearity = P.ConvBiasV0NonlineMode


def _bias_geometry(call: Call) -> Geometry:
    return geometry(call.param, call.shape(0), call.shape(1))


def _batch_geometry(call: Call) -> Geometry:
    """Each image and its filter are one group of a single image."""
    flt = call.shape(1)
    need(call.param.sparse == P.ConvolutionV0Sparse.DENSE, "BatchConvBias has no groups")
    shape = geometry(call.param, _merged(call), flt, grouped=True)
    if shape.src.axes[:2] != "NC" or shape.dst.axes[:2] != "NC":
        raise UnsupportedError(f"BatchConvBias in {shape.src.name} is not supported")
    need(
        call.shape(0)[0] == flt[0],
        f"BatchConvBias needs one filter for each of {call.shape(0)[0]} images, got {flt[0]}",
    )
    return shape


def _merged(call: Call) -> Shape:
    n, *rest = call.shape(0)
    need(len(rest) > 0, "BatchConvBias needs images, got a vector")
    return (1, n * rest[0], *rest[1:])


def _bias_shapes(call: Call) -> list[ShapeLike]:
    shape = _bias_geometry(call)
    _check_addends(call, shape.dst_shape, shape.dst)
    return [shape.dst_shape]


def _batch_shapes(call: Call) -> list[ShapeLike]:
    shape = _batch_geometry(call)
    stored = (call.shape(0)[0], shape.dst_shape[1] // call.shape(0)[0], *shape.dst_shape[2:])
    _check_addends(call, stored, shape.dst)
    return [stored]


def _check_addends(call: Call, stored: Shape, layout: TensorLayout) -> None:
    """A bias must broadcast to the output, z must have its shape."""
    logical = layout.logical(stored)
    if len(call.inputs) > 2:
        bias = layout.logical(call.shape(2))
        need(
            all(b in (1, n) for b, n in zip(bias, logical, strict=True)),
            f"the bias {call.shape(2)} does not fit an output of shape {stored}",
        )
    if len(call.inputs) > 3:
        need(
            call.shape(3) == stored,
            f"z has shape {call.shape(3)}, but the output has shape {stored}",
        )


def _bias_reference(call: Call, src: Array, flt: Array, *more: Array) -> Array:
    shape = _bias_geometry(call)
    total = sums(call, src, flt, shape)
    maps = total.values.reshape(shape.batch, shape.groups * shape.outputs, *shape.out)
    return _fused(call, Sums(maps, total.dtype), shape.dst, more)


def _batch_reference(call: Call, src: Array, flt: Array, *more: Array) -> Array:
    shape = _batch_geometry(call)
    total = sums(call, src.reshape(shape.src_shape), flt, shape)
    maps = total.values.reshape(shape.groups, shape.outputs, *shape.out)
    return _fused(call, Sums(maps, total.dtype), shape.dst, more)


def _fused(call: Call, total: Sums, layout: TensorLayout, addends: tuple[Array, ...]) -> Array:
    """Add bias and z, apply the nonlinearity, round once; `total` is NCHW."""
    target = result(call)
    values, real = total.values, None
    if addends:
        bias, kind = layout.to_nchw(addends[0]), call.dtype(2)
        if kind.is_float and not total.dtype.is_float:
            real = total.real + to_real(bias, kind)
        else:
            values = values + operand(bias, kind)
    nonlinearity = call.param.nonlineMode
    total = Sums(values, total.dtype)
    has_z = len(addends) > 1
    if real is None and not has_z and stays_integer(total.dtype, target, nonlinearity):
        if nonlinearity == _Nonlinearity.RELU:
            values = np.maximum(values.astype(np.int32), 0)
        return layout.from_nchw(finish(Sums(values, total.dtype), target))
    real = total.real if real is None else real
    if has_z:
        real = real + to_real(layout.to_nchw(addends[1]), call.dtype(3))
    real = activate(real, nonlinearity)
    fill = target.zero_point or 0
    return layout.from_nchw(finish(Sums(real, FLOAT32), target), fill=fill)


def stays_integer(dtype: DType, target: DType, nonlinearity: _Nonlinearity) -> bool:
    """Whether ConvBias of these sums needs no real numbers: the sums are stored as they are."""
    if nonlinearity not in (_Nonlinearity.IDENTITY, _Nonlinearity.RELU) or dtype.is_float:
        return False
    return target.kind in (DTypeEnum.Int32, DTypeEnum.Int16) or same_scale(dtype, target)


def activate(real: Number, nonlinearity: _Nonlinearity) -> Number:
    """The nonlinearity of ConvBias in float32."""
    if nonlinearity == _Nonlinearity.IDENTITY:
        return real
    if nonlinearity == _Nonlinearity.RELU:
        return np.maximum(real, np.float32(0))
    if nonlinearity == _Nonlinearity.SIGMOID:
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-real))
    if nonlinearity == _Nonlinearity.H_SWISH:
        return np.asarray(real * np.clip(real + 3, 0, 6) / 6)
    raise UnsupportedError(f"ConvBias has no nonlinearity {nonlinearity}")


CONVOLUTION = register(
    OpSpec(
        name="Convolution",
        runtime_name="ConvolutionForward",
        names=(
            Name("ConvolutionV1", "v0.3.1", 15423559447313452543, until="v1.2.0"),
            Name("ConvolutionV2", "v1.3.0", 398888935463796127),
        ),
        old_id=1005859804226725325,
        v2=(
            V2Id("ConvolutionV2", 1, 1005859804226725325),
            V2Id("Convolution", 2, 13553933750987029374, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter"),
        dtypes=conv_dtypes(),
        shapes=forward_shapes,
        reference=forward_reference,
        source=_SOURCE,
    )
)

# output dtype = Operator.output_dtype when set
CONV_BIAS_FORWARD = register(
    OpSpec(
        name="ConvBiasForward",
        runtime_name="ConvBiasForward",
        names=(
            Name("ConvBiasForwardV3", "v0.3.1", 16937884875251053145, until="v1.2.0"),
            Name("ConvBiasForwardV4", "v1.3.0", 3637775072465142873),
        ),
        old_id=17532003616627982465,
        v2=(
            V2Id("ConvBiasForwardV4", 1, 17532003616627982465),
            V2Id("ConvBiasForward", 2, 14020002824874596106, since="v1.10.0"),
        ),
        params=(P.ConvBias, P.ExecutionPolicy),
        inputs=("src", "filter", "bias", "z"),
        min_inputs=2,
        dtypes=conv_dtypes(),
        shapes=_bias_shapes,
        reference=_bias_reference,
        source=_SOURCE,
    )
)

# transposed convolution; note the order filter first
CONVOLUTION_BACKWARD_DATA = register(
    OpSpec(
        name="ConvolutionBackwardData",
        runtime_name="ConvolutionBackwardData",
        names=(
            Name("ConvolutionBackwardDataV1", "v0.3.1", 15097092262997302774, until="v1.2.0"),
            Name("ConvolutionBackwardDataV2", "v1.3.0", 9995886723833562949),
        ),
        old_id=16334703432944436329,
        v2=(
            V2Id("ConvolutionBackwardDataV2", 1, 16334703432944436329),
            V2Id("ConvolutionBackwardData", 2, 13385245508966352414, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("filter", "diff", "src_for_shape"),
        min_inputs=2,
        dtypes=conv_dtypes(),
        shapes=transposed_shapes,
        reference=transposed_reference,
        source=_SOURCE,
    )
)

BATCH_CONV_BIAS_FORWARD = register(
    OpSpec(
        name="BatchConvBiasForward",
        runtime_name="BatchConvBiasForward",
        names=(
            Name("BatchConvBiasForward", "v0.3.1", 4072610153149334073, until="v1.2.0"),
            Name("BatchConvBiasForwardV1", "v1.3.0", 18160310046911419454),
        ),
        old_id=7642445736364092188,
        v2=(
            V2Id("BatchConvBiasForwardV1", 1, 7642445736364092188),
            V2Id("BatchConvBiasForward", 2, 4072610153149334073, since="v1.10.0"),
        ),
        params=(P.BatchConvBias, P.ExecutionPolicy),
        inputs=("src", "filter", "bias", "z"),
        min_inputs=2,
        dtypes=conv_dtypes(),
        shapes=_batch_shapes,
        reference=_batch_reference,
        source=_SOURCE,
    )
)

# v0.3.1..v1.1.0 only; union 21 (param.Winograd: slot0 output_block_size uint=0, slot1 format
# MatrixMulFormat, slot2 compute_mode since v0.5.0)
WINOGRAD_FILTER_PREPROCESS = register(
    OpSpec(
        name="WinogradFilterPreprocess",
        runtime_name="WinogradFilterPreprocess",
        names=(Name("WinogradFilterPreprocess", "v0.3.1", 2222007361463953785, until="v1.1.0"),),
        old_id=16864803776621971166,
        v2=(),
        params=(P.DeprecatedParam,),
        inputs=("filter",),
        gaps=(Gap("reference", "its output only means something to kernels of v0.3.1 to v1.1.0"),),
        source="operators.json",
    )
)
