"""Deformable convolution and its gradients, deformable pooling of regions.

What the moved taps read is written as columns of a plain convolution of one tap, whose products
are those of the implicit GEMM. Gradients by the image are gathered by lists of what was read from
each pixel, so that they are the same in every run.
"""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import ACC, Builder, Expr, c_type
from loadrun.backends.cuda.linked import link
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.matrix import product
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.deformable import (
    DEFORMABLE_CONV_BACKWARD_DATA,
    DEFORMABLE_CONV_BACKWARD_FILTER,
    DEFORMABLE_CONV_FORWARD,
    Deformed,
    deformed,
)

_IDENTITY = Expr((), ("i", 0))
_MOST = (1 << 31) - 1


def _numbers(shape: Deformed) -> list[nd.Param]:
    """Geometry as the kernels take it: taps, pixels, widths, stride, padding, dilation."""
    conv = shape.conv
    window = conv.window
    pixels = math.prod(conv.out)
    return [
        shape.taps, pixels, window.kernel[1], *conv.sizes, conv.out[1], *window.stride,
        *window.pad, *window.dilate,
    ]  # fmt: skip


def _checked(low: Lowering, node: Node, call: Call) -> Deformed:
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    low.need_float(*node.inputs)
    shape = deformed(call)
    conv = shape.conv
    columns = math.prod((conv.batch, conv.groups, conv.depth, shape.taps, *conv.out))
    if columns > _MOST or 4 * math.prod(low.shape(node.inputs[3])) > _MOST:
        raise NotApplicable("more elements are read than 31 bits count")
    return shape


def _columns(low: Lowering, node: Node, shape: Deformed, *, images_inside: bool) -> str:
    """(n, C * taps, pixels), or (C * taps, n, pixels) with `images_inside`, in float32."""
    conv = shape.conv
    count, pixels = conv.groups * conv.depth, math.prod(conv.out)
    columns = low.temp((conv.batch, count * shape.taps, pixels))
    src, offset, mask = (low.name(node.inputs[k]) for k in (0, 2, 3))
    strides = (count * shape.taps * pixels, pixels)
    if images_inside:
        strides = (pixels, conv.batch * pixels)
    items = conv.batch * count * shape.taps * pixels
    params = [
        nd.In(src), nd.In(offset), nd.In(mask), nd.Out(columns), items, count, shape.channels,
        *strides, *_numbers(shape),
    ]  # fmt: skip
    kind = low.tensors[src].ctype
    low.kernel(node, "deform_columns", params, items, XT=kind, POINT=source.text("deform_point"))
    return columns


@lowers(DEFORMABLE_CONV_FORWARD)
def deformable_conv(low: Lowering, node: Node, call: Call) -> None:
    """Any geometry and groups; columns, then a product."""
    shape = _checked(low, node, call)
    conv = shape.conv
    columns = _columns(low, node, shape, images_inside=False)
    (oh, ow), pixels = conv.out, math.prod(conv.out)
    depth = conv.depth * shape.taps
    b = Builder()
    result = b.done(narrowed(b, ACC, call.output_types[0].dtype))
    one = (1, 1, 1)
    low.add(
        nd.Conv(
            low.label(node), (low.out(node.outputs[0]),), columns, low.name(node.inputs[1]),
            conv.batch, conv.groups, conv.outputs, depth, (1, oh, ow), (1, oh, ow), one, one,
            (0, 0, 0), one,
            (conv.groups * depth * pixels, depth * pixels, pixels, 0, ow, 1),
            (conv.outputs * depth, depth, 1),
            (conv.groups * conv.outputs * pixels, conv.outputs * pixels, pixels, 0, ow, 1),
            result, roles=nd.Roles(1),
        )
    )  # fmt: skip


@lowers(DEFORMABLE_CONV_BACKWARD_DATA)
def deformable_conv_backward_data(low: Lowering, node: Node, call: Call) -> None:
    """Gradients by image, offsets and mask, from those of the columns."""
    shape = _checked(low, node, call)
    conv = shape.conv
    src, flt, offset, mask, diff = (low.name(v) for v in node.inputs)
    (oh, ow), pixels = conv.out, math.prod(conv.out)
    rows = conv.depth * shape.taps
    given = low.temp((conv.batch, conv.groups * rows, oh, ow))
    one = (1, 1, 1)
    low.add(
        nd.Conv(
            low.label(node), (given,), diff, flt, conv.batch, conv.groups, rows, conv.outputs,
            (1, oh, ow), (1, oh, ow), one, one, (0, 0, 0), one,
            (conv.groups * conv.outputs * pixels, conv.outputs * pixels, pixels, 0, ow, 1),
            (conv.outputs * rows, 1, rows),
            (conv.groups * rows * pixels, rows * pixels, pixels, 0, ow, 1),
            Expr((), ACC), roles=nd.Roles(1), label="matmul",
        )
    )  # fmt: skip
    by_src, by_offset, by_mask = (low.out(v) for v in node.outputs)
    kind, point, numbers = c_type(call.dtype(0)), source.text("deform_point"), _numbers(shape)
    points = conv.batch * shape.moving * shape.taps * pixels
    params: list[nd.Param] = [
        nd.In(src), nd.In(offset), nd.In(mask), nd.In(given), nd.Out(by_offset), nd.Out(by_mask),
        points, shape.channels, *numbers,
    ]  # fmt: skip
    low.kernel(node, "deform_slopes", params, points, XT=kind, POINT=point)
    keys, weights = low.temp((4 * points,), "int32", "i32"), low.temp((4 * points,))
    params = [nd.In(offset), nd.Out(keys), nd.Out(weights), points, *numbers]
    low.kernel(node, "deform_keys", params, points, XT=kind, POINT=point)
    size = math.prod(conv.sizes)
    heads, after = link(low, node, keys, 4 * points, conv.batch * shape.moving * size)
    items = math.prod(conv.src_shape)
    params = [
        *map(nd.In, (heads, after, weights, given, mask)), nd.Out(by_src), items, shape.channels,
        size, shape.taps * pixels,
    ]  # fmt: skip
    low.kernel(
        node, "collect", params, items, YT=kind, SCALARS=", int reads",
        INPUTS=f"const float *__restrict__ columns, const {kind} *__restrict__ mask,",
        VALUE="columns[(i64)map * reads + (point - part * reads)] * widen(mask[point])",
    )  # fmt: skip


@lowers(DEFORMABLE_CONV_BACKWARD_FILTER)
def deformable_conv_backward_filter(low: Lowering, node: Node, call: Call) -> None:
    """Columns times gradients, summed over images and pixels."""
    shape = _checked(low, node, call)
    conv = shape.conv
    columns = _columns(low, node, shape, images_inside=True)
    n, pixels = conv.batch, math.prod(conv.out)
    outputs = conv.groups * conv.outputs
    diff = low.name(node.inputs[4])
    if n > 1:
        info = low.tensors[diff]
        turned = low.temp((outputs, n, pixels), info.dtype, info.ctype)
        access = nd.Access(diff, (pixels, outputs * pixels, 1))
        low.add(nd.Pointwise(low.label(node), (turned,), (access,), _IDENTITY))
        diff = turned
    b = Builder()
    result = b.done(narrowed(b, ACC, call.output_types[0].dtype))
    size = (conv.outputs, n * pixels, conv.depth * shape.taps)
    y = low.out(node.outputs[0])
    product(low, low.label(node), (diff, columns), y, size, result, batch=conv.groups)
