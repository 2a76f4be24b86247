"""Convolutions of images and volumes, and transposed ones, in any layout and element type."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import dequantize, from_real, narrowed, to_real
from loadrun.backends.cuda.emit_conv import extra_code
from loadrun.backends.cuda.expr import ACC, Builder, Expr, Ref, c_type, register_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rearranged import rearranged
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.conv import (
    BATCH_CONV_BIAS_FORWARD,
    CONV_BIAS_FORWARD,
    CONVOLUTION,
    CONVOLUTION_BACKWARD_DATA,
    stays_integer,
)
from mgeserial.ops.conv3d import CONVOLUTION3_D, CONVOLUTION3_D_BACKWARD_DATA
from mgeserial.ops.convrules import (
    Geometry,
    geometry,
    geometry_of_gradient,
    product_dtype,
    same_scale,
)
from mgeserial.ops.layouts import TensorLayout
from mgeserial.ops.maskconv import MASK_CONVOLUTION

__all__ = ["image_strides", "real_sum", "roles_of", "volume"]

_NONLINEAR = P.ConvBiasV0NonlineMode
_ACTIVATE = {
    _NONLINEAR.RELU: "({0} > 0.f || {0} != {0} ? {0} : 0.f)",
    _NONLINEAR.SIGMOID: "(1.f / (1.f + expf(-{0})))",
    _NONLINEAR.H_SWISH: "({0} * clip({0} + 3.f, 0.f, 6.f) / 6.f)",
}
# Channels from which on filters are packed by places of the window.
_MANY = 8
# Stored filters whose (channel, taps) are next to each other, so that they need no packing.
_PLAIN = frozenset({"OIHW", "GOIHW", "OIDHW", "GOIDHW"})


def image_strides(layout: TensorLayout, stored: Shape) -> tuple[int, int, int, int, int]:
    """Strides of image, block of channels, d, h, w in a stored shape, in elements."""
    found = dict(zip(layout.axes, nd.contiguous(stored), strict=True))
    return found["N"], found["C"], found.get("D", 0), found["H"], found["W"]


def volume(sizes: Shape, fill: int = 1) -> tuple[int, int, int]:
    """(d, h, w) of spatial sizes."""
    d, h, w = (fill,) * (3 - len(sizes)) + tuple(sizes)
    return d, h, w


def roles_of(layout: TensorLayout) -> nd.Roles:
    """Which dimensions of a stored shape are channels."""
    axes = layout.axes
    lane = axes.index("c") if "c" in axes else -1
    return nd.Roles(axes.index("C"), lane, layout.lanes)


def real_sum(b: Builder, total: Ref, dtype: DType) -> Ref:
    """Float32 value of a sum of products of a type."""
    if dtype.is_float:
        return total
    if dtype.is_quantized:
        return dequantize(b, total, dtype)
    return b.op("float", "(float){0}", total)


def _finish(b: Builder, total: Ref, dtype: DType, target: DType) -> Ref:
    """Sums in the target's storage, as `convrules.finish`."""
    if not dtype.is_float and (
        dtype.kind is target.kind is DTypeEnum.Int32
        or target.kind is DTypeEnum.Int16
        or same_scale(dtype, target)
    ):
        return narrowed(b, total, target)
    return from_real(b, real_sum(b, total, dtype), target)


def _group_stride(channels: int, lanes: int, block: int) -> int:
    """Distance of two groups; 0 where groups do not begin at a block (only `direct` can do it)."""
    return channels // lanes * block if channels % lanes == 0 else 0


def _weights(
    low: Lowering, node: Node, value: Value, g: Geometry, *, transposed: bool
) -> tuple[str, tuple[int, int, int], bool]:
    """The filter's tensor, its strides of group, output channel and place in the sum, and order.

    Filters are packed as (group, place in the sum, output channel): constant ones ahead of the run,
    others by a copy, unless they can be read as they are. Where there are enough channels to fill
    a slice, places of the window come first.
    """
    channels, outputs = (g.outputs, g.depth) if transposed else (g.depth, g.outputs)
    taps = math.prod(g.window.kernel)
    inner = channels * taps
    array = low.array(value)
    if array is None and g.filter.axes in _PLAIN and not g.flip and not transposed:
        return low.name(value), (outputs * inner, inner, 1), False
    taps_first = channels >= _MANY and taps > 1

    def pack(stored: Array) -> Array:
        kernel: Any = g.kernel(stored).reshape(g.groups, g.outputs, g.depth, -1)
        if transposed:
            kernel = kernel.swapaxes(1, 2)
        packed: Array = kernel.transpose((0, 3, 2, 1) if taps_first else (0, 2, 3, 1))
        return packed

    if array is None:
        name = rearranged(low, node, low.name(value), pack)
    else:
        name = low.constant(np.ascontiguousarray(pack(np.asarray(array))), low.dtype(value))
    return name, (inner * outputs, 1, outputs), taps_first


def _conv(
    low: Lowering,
    node: Node,
    call: Call,
    g: Geometry,
    expr: Any,
    *,
    extras: tuple[nd.Access, ...] = (),
    roles: nd.Roles | None = None,
    y: str = "",
) -> None:
    """Add a forward convolution of inputs 0 and 1; it writes the output, or `y`."""
    xn, xc, xd, xh, xw = image_strides(g.src, g.src_shape)
    yn, yc, yd, yh, yw = image_strides(g.dst, g.dst_shape)
    w, w_strides, taps_first = _weights(low, node, node.inputs[1], g, transposed=False)
    window = g.window
    a, b = call.dtype(0), call.dtype(1)
    conv = nd.Conv(
        low.label(node), (), low.name(node.inputs[0]), w, g.batch, g.groups, g.outputs, g.depth,
        volume(g.sizes), volume(g.out), volume(window.kernel), volume(window.stride),
        volume(window.pad, 0), volume(window.dilate),
        (xn, _group_stride(g.depth, g.src.lanes, xc), xc, xd, xh, xw), w_strides,
        (yn, _group_stride(g.outputs, g.dst.lanes, yc), yc, yd, yh, yw), expr,
        x_lanes=g.src.lanes, y_lanes=g.dst.lanes, x_zero=a.zero_point or 0,
        w_zero=b.zero_point or 0, accumulator="float" if a.is_float else "int",
        roles=roles or roles_of(g.dst), extras=extras, taps_first=taps_first,
    )  # fmt: skip
    _add(low, node, conv, y)


def _add(low: Lowering, node: Node, conv: nd.Conv, y: str = "") -> None:
    low.add(replace(conv, outputs=(y or low.out(node.outputs[0]),)))


def _product(call: Call) -> DType:
    try:
        return product_dtype(call.dtype(0), call.dtype(1))
    except MgeError as error:
        raise NotApplicable("no such product") from error


def _check(low: Lowering, node: Node) -> None:
    for value in (*node.inputs[:2], *node.outputs):
        low.shape(value)
        low.need_real(value)


@lowers(CONVOLUTION, CONVOLUTION3_D)
def convolution(low: Lowering, node: Node, call: Call) -> None:
    """Any type, stride, padding, dilation, groups and layout; implicit GEMM or direct."""
    _check(low, node)
    if len(node.inputs) != 2:
        raise NotApplicable("an unexpected number of inputs")
    g = geometry(call.param, call.shape(0), call.shape(1))
    b = Builder()
    result = _finish(b, ACC, _product(call), call.output_types[0].dtype)
    _conv(low, node, call, g, b.done(result))


@lowers(MASK_CONVOLUTION)
def mask_convolution(low: Lowering, node: Node, call: Call) -> None:
    """A convolution whose outputs count where the mask is set; zero elsewhere."""
    _check(low, node)
    mask = node.inputs[2]
    low.need_real(mask)
    g = geometry(call.param, call.shape(0), call.shape(1))
    target, shape = call.output_types[0].dtype, low.shape(node.outputs[0])
    if 0 in low.shape(mask):
        raise NotApplicable("a mask without elements")
    b = Builder()
    result = b.done(_finish(b, ACC, _product(call), target))
    y = low.temp(shape, target.storage.name, c_type(target))
    _conv(low, node, call, g, result, y=y)
    b = Builder()
    chosen = b.op(register_of(c_type(target)), "({1} ? {0} : 0)", ("i", 0), ("i", 1))
    places = dict(zip(("H", "W"), nd.contiguous(g.out), strict=True))
    strides = tuple(places.get(a, 0) for a in g.dst.axes)
    accesses = (nd.Access(y, nd.contiguous(shape)), nd.Access(low.name(mask), strides))
    low.add(nd.Pointwise(low.label(node), (low.out(node.outputs[0]),), accesses, b.done(chosen)))


def _addend(
    low: Lowering, value: Value, shape: Shape, roles: nd.Roles, extras: list[nd.Access]
) -> Ref:
    access = low.access(value, shape)
    if extra_code(access, shape, roles) is None:
        # Neither one per channel nor whole: made whole first.
        info = low.tensors[access.tensor]
        whole = low.temp(shape, info.dtype, info.ctype)
        low.add(nd.Pointwise(low.unique("spread"), (whole,), (access,), Expr((), ("i", 0))))
        access = nd.Access(whole, nd.contiguous(shape))
    extras.append(access)
    return ("i", len(extras) - 1)


def _fused(
    low: Lowering, node: Node, call: Call, roles: nd.Roles
) -> tuple[Any, tuple[nd.Access, ...]]:
    """Bias, z and nonlinearity as `conv._fused` does them."""
    mode = call.param.nonlineMode
    if mode != _NONLINEAR.IDENTITY and mode not in _ACTIVATE:
        raise NotApplicable(f"nonlinearity {mode}")
    target, product = call.output_types[0].dtype, _product(call)
    shape = low.shape(node.outputs[0])
    b = Builder()
    extras: list[nd.Access] = []
    total, real = ACC, None
    if len(node.inputs) > 2:
        kind = call.dtype(2)
        bias = _addend(low, node.inputs[2], shape, roles, extras)
        if kind.is_float and not product.is_float:
            real = b.op("float", "({0} + {1})", real_sum(b, ACC, product), bias)
        elif product.is_float:
            total = b.op("float", "({0} + {1})", ACC, bias)
        else:
            zero = b.scalar(kind.zero_point or 0)
            total = b.op("int", "(int)((u32){0} + (u32)({1} - {2}))", ACC, bias, zero)
    has_z = len(node.inputs) > 3
    if real is None and not has_z and stays_integer(product, target, mode):
        if mode == _NONLINEAR.RELU:
            total = b.op("int", "max({0}, 0)", total)
        return b.done(_finish(b, total, product, target)), tuple(extras)
    real = real_sum(b, total, product) if real is None else real
    if has_z:
        z = _addend(low, node.inputs[3], shape, roles, extras)
        real = b.op("float", "({0} + {1})", real, to_real(b, z, call.dtype(3)))
    if mode != _NONLINEAR.IDENTITY:
        real = b.op("float", _ACTIVATE[mode], real)
    return b.done(from_real(b, real, target)), tuple(extras)


@lowers(CONV_BIAS_FORWARD)
def conv_bias(low: Lowering, node: Node, call: Call) -> None:
    """As Convolution, with a bias, an addend z and a nonlinearity in the same kernel."""
    _check(low, node)
    for value in node.inputs[2:]:
        low.shape(value)
    g = geometry(call.param, call.shape(0), call.shape(1))
    expr, extras = _fused(low, node, call, roles_of(g.dst))
    _conv(low, node, call, g, expr, extras=extras)


@lowers(BATCH_CONV_BIAS_FORWARD)
def batch_conv_bias(low: Lowering, node: Node, call: Call) -> None:
    """A filter for each image: images are groups."""
    _check(low, node)
    for value in node.inputs[2:]:
        low.shape(value)
    n, *rest = call.shape(0)
    g = geometry(call.param, (1, n * rest[0], *rest[1:]), call.shape(1), grouped=True)
    roles = nd.Roles(-9)
    expr, extras = _fused(low, node, call, roles)
    _conv(low, node, call, g, expr, extras=extras, roles=roles)


@lowers(CONVOLUTION_BACKWARD_DATA, CONVOLUTION3_D_BACKWARD_DATA)
def transposed(low: Lowering, node: Node, call: Call) -> None:
    """Transposed convolution of any type and layout."""
    _check(low, node)
    given = low.shape(node.inputs[2]) if len(node.inputs) > 2 else None
    g = geometry_of_gradient(call.param, call.shape(0), call.shape(1), given)
    w, w_strides, taps_first = _weights(low, node, node.inputs[0], g, transposed=True)
    xn, xc, xd, xh, xw = image_strides(g.dst, g.dst_shape)
    yn, yc, yd, yh, yw = image_strides(g.src, g.src_shape)
    b = Builder()
    result = _finish(b, ACC, _product(call), call.output_types[0].dtype)
    window = g.window
    flt, diff = call.dtype(0), call.dtype(1)
    conv = nd.Conv(
        low.label(node), (), low.name(node.inputs[1]), w, g.batch, g.groups, g.depth, g.outputs,
        volume(g.out), volume(g.sizes), volume(window.kernel), volume(window.stride),
        volume(window.pad, 0), volume(window.dilate),
        (xn, _group_stride(g.outputs, g.dst.lanes, xc), xc, xd, xh, xw), w_strides,
        (yn, _group_stride(g.depth, g.src.lanes, yc), yc, yd, yh, yw), b.done(result),
        x_lanes=g.dst.lanes, y_lanes=g.src.lanes, x_zero=diff.zero_point or 0,
        w_zero=flt.zero_point or 0, accumulator="float" if diff.is_float else "int",
        transposed=True, roles=roles_of(g.src), taps_first=taps_first, label="deconv",
    )  # fmt: skip
    _add(low, node, conv)
