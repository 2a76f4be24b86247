"""Convolutions whose filter or whose products depend on the place, and their gradients."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.convrules import Geometry, geometry, geometry_of_gradient
from mgeserial.ops.local import (
    GROUP_LOCAL,
    GROUP_LOCAL_BACKWARD_DATA,
    GROUP_LOCAL_BACKWARD_FILTER,
    LOCAL,
    LOCAL_BACKWARD_DATA,
    LOCAL_BACKWARD_FILTER,
    LOCAL_SHARE_BACKWARD_DATA,
    LOCAL_SHARE_BACKWARD_FILTER,
    LOCAL_SHARE_FORWARD,
    LocalGeometry,
    local_geometry,
)
from mgeserial.ops.maskconv import (
    MASK_PROPAGATE,
    REGION_RESTRICTED_CONVOLUTION,
    REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA,
    REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER,
)

_PLAIN = frozenset({"OIHW", "GOIHW"})


def _numbers(g: LocalGeometry | Geometry) -> list[nd.Param]:
    """`CONVOLUTION_2D` of the kernels."""
    window = g.window
    return [
        g.groups, g.outputs, g.depth, *window.kernel, *g.sizes, *g.out, *window.stride,
        *window.pad, *window.dilate, int(g.flip),
    ]  # fmt: skip


def _add(
    low: Lowering, node: Node, template: str, g: LocalGeometry, reads: tuple[Value, Value],
    *more: int,
) -> None:  # fmt: skip
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    low.need_float(*reads)
    items = math.prod(low.shape(node.outputs[0]))
    a, b = (low.name(v) for v in reads)
    y = low.out(node.outputs[0])
    params: list[nd.Param] = [nd.In(a), nd.In(b), nd.Out(y), items, *_numbers(g), *g.tiles, *more]
    low.kernel(node, template, params, items, XT=low.tensors[a].ctype)


@lowers(LOCAL, GROUP_LOCAL, LOCAL_SHARE_FORWARD)
def local(low: Lowering, node: Node, call: Call) -> None:
    """A filter for each pixel or tile, with or without groups."""
    g = local_geometry(call, low.shape(node.inputs[0]), low.shape(node.inputs[1]))
    _add(low, node, "local", g, (node.inputs[0], node.inputs[1]))


@lowers(LOCAL_BACKWARD_DATA, GROUP_LOCAL_BACKWARD_DATA, LOCAL_SHARE_BACKWARD_DATA)
def local_backward_data(low: Lowering, node: Node, call: Call) -> None:
    """The gradient by the image, gathered."""
    g = local_geometry(call, low.shape(node.inputs[2]), low.shape(node.inputs[0]))
    _add(low, node, "local_data", g, (node.inputs[0], node.inputs[1]))


@lowers(LOCAL_BACKWARD_FILTER, GROUP_LOCAL_BACKWARD_FILTER, LOCAL_SHARE_BACKWARD_FILTER)
def local_backward_filter(low: Lowering, node: Node, call: Call) -> None:
    """The gradient by the filters, gathered."""
    g = local_geometry(call, low.shape(node.inputs[0]), low.shape(node.inputs[2]))
    _add(low, node, "local_filter", g, (node.inputs[0], node.inputs[1]), g.batch)


# -- products that count within a region only


def _regions(
    low: Lowering, node: Node, call: Call, template: str, g: Geometry, per_block: int, *more: int
) -> None:
    """Add a kernel of (two tensors, regions of the input, regions of the output)."""
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    low.need_float(*node.inputs[:2])
    for k in (2, 3):
        dtype = low.dtype(node.inputs[k])
        if dtype.is_float or dtype.is_quantized or dtype.kind is DTypeEnum.Complex64:
            raise NotApplicable(f"regions of {dtype.name}")
    if g.filter.axes not in _PLAIN or g.src.name != "NCHW":
        raise NotApplicable(f"filter {g.filter.name}")
    items = math.prod(low.shape(node.outputs[0]))
    names = [low.name(v) for v in node.inputs[:4]]
    y = low.out(node.outputs[0])
    params: list[nd.Param] = [*map(nd.In, names), nd.Out(y), items, *_numbers(g), *more]
    kinds = [low.tensors[n].ctype for n in (*names, y)]
    low.kernel(
        node, template, params, items, per_block=per_block, XT=kinds[0], RT=kinds[2], ST=kinds[3],
        YT=kinds[4],
    )  # fmt: skip


@lowers(REGION_RESTRICTED_CONVOLUTION)
def region_convolution(low: Lowering, node: Node, call: Call) -> None:
    """Images NCHW with groups, regions of integers."""
    g = geometry(call.param, low.shape(node.inputs[0]), low.shape(node.inputs[1]))
    _regions(low, node, call, "region_conv", g, 256)


@lowers(REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA)
def region_backward_data(low: Lowering, node: Node, call: Call) -> None:
    """The gradient by the image, gathered."""
    given = low.shape(node.inputs[4]) if len(node.inputs) > 4 else None
    flt, diff = low.shape(node.inputs[0]), low.shape(node.inputs[1])
    _regions(
        low, node, call, "region_data", geometry_of_gradient(call.param, flt, diff, given), 256
    )


@lowers(REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER)
def region_backward_filter(low: Lowering, node: Node, call: Call) -> None:
    """The gradient by the filter, summed by a warp each."""
    g = geometry(call.param, low.shape(node.inputs[0]), low.shape(node.inputs[4]))
    _regions(low, node, call, "region_filter", g, 8, g.batch)


@lowers(MASK_PROPAGATE)
def mask_propagate(low: Lowering, node: Node, call: Call) -> None:
    """Which windows hold something of a mask."""
    x, p = node.inputs[0], call.param
    low.need_real(x)
    h, w = low.shape(x)
    oh, ow = low.shape(node.outputs[0])
    name, y = low.name(x), low.out(node.outputs[0])
    params: list[nd.Param] = [
        nd.In(name), nd.Out(y), oh * ow, h, w, ow, int(p.kernel_h), int(p.kernel_w),
        int(p.stride_h), int(p.stride_w), int(p.pad_h), int(p.pad_w), int(p.dilate_h),
        int(p.dilate_w),
    ]  # fmt: skip
    low.kernel(node, "mask_propagate", params, oh * ow, XT=low.tensors[name].ctype)
