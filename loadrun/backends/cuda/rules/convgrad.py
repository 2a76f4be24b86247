"""Gradients of convolutions for their filters, of images and volumes in any layout.

A gradient for a filter is a convolution of the images with the gradients of the outputs, in which
images and channels, and strides and dilations, have changed places.
"""

from __future__ import annotations

import math
from typing import Any

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import ACC, Builder, c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rearranged import rearranged
from loadrun.backends.cuda.rules.conv import image_strides, volume
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.convgrad import CONVOLUTION3_D_BACKWARD_FILTER, CONVOLUTION_BACKWARD_FILTER
from mgeserial.ops.convrules import Geometry, geometry_of_gradient

# Stored filters that are (groups, outputs, depth, taps) as they are.
_PLAIN = frozenset({"OIHW", "GOIHW", "OIDHW", "GOIDHW"})
# Groups of fewer output channels, or of few images, leave a tile of the product mostly idle.
_FEW = 8


def _images(low: Lowering, node: Node, g: Geometry) -> tuple[str, tuple[int, ...]]:
    """The images and their strides of image, channel, d, h, w."""
    x = node.inputs[0]
    if g.src.lanes == 1:
        return low.name(x), image_strides(g.src, g.src_shape)
    plain = nd.contiguous((g.batch, g.groups * g.depth, *volume(g.sizes)))
    return rearranged(low, node, low.name(x), g.src.to_nchw), plain


def _gradients(low: Lowering, node: Node, g: Geometry) -> str:
    """The gradients as (groups, outputs, images, d, h, w)."""

    def make(array: Array) -> Array:
        maps = g.dst_maps(array)
        return maps.transpose(1, 2, 0, *range(3, maps.ndim))

    return rearranged(low, node, low.name(node.inputs[1]), make)


@lowers(CONVOLUTION_BACKWARD_FILTER, CONVOLUTION3_D_BACKWARD_FILTER)
def filter_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Any stride, padding, dilation, groups and layout."""
    src, diff, _ = node.inputs
    low.need_float(src, diff)
    for value in (src, diff, *node.outputs):
        low.shape(value)
    g = geometry_of_gradient(call.param, call.shape(2), call.shape(1), call.shape(0))
    x, strides = _images(low, node, g)
    dy = _gradients(low, node, g)
    if low.tensors[x].ctype != low.tensors[dy].ctype:
        raise NotApplicable("images and gradients of different types")
    kernel = g.window.kernel
    shape: Shape = (g.groups, g.outputs, g.depth, *kernel)
    out = node.outputs[0]
    found = low.inference.types[out].dtype
    direct = g.filter.axes in _PLAIN and not g.flip
    y = low.out(out) if direct else low.temp(shape, found.storage.name, c_type(found))
    sizes = (*volume(g.sizes), *volume(g.out))
    window = g.window
    if g.groups > 1 and min(g.outputs, 2 * g.batch) < _FEW:
        items = math.prod(shape)
        params: list[nd.Param] = [
            nd.In(x), nd.In(dy), nd.Out(y), items, g.outputs, g.depth, g.batch, *sizes,
            *volume(kernel), *volume(window.stride), *volume(window.pad, 0),
            *volume(window.dilate), *strides,
        ]  # fmt: skip
        kinds: dict[str, Any] = {
            "XT": low.tensors[x].ctype, "GT": low.tensors[dy].ctype, "YT": low.tensors[y].ctype
        }  # fmt: skip
        low.kernel(node, "filter_grad", params, items, per_block=1, **kinds)
    else:
        _product(low, node, g, x, strides, dy, y)
    if not direct:
        rearranged(low, node, y, g.stored_filter, low.out(out))


def _product(
    low: Lowering,
    node: Node,
    g: Geometry,
    x: str,
    strides: tuple[int, ...],
    dy: str,
    y: str,
) -> None:
    """The convolution whose images are the channels, and whose channels are the images."""
    xn, xc, xd, xh, xw = strides
    pixels, taps = math.prod(g.out), math.prod(g.window.kernel)
    window = g.window
    b = Builder()
    result = narrowed(b, ACC, low.dtype(node.outputs[0]))
    along_d, along_h, along_w = nd.contiguous(volume(window.kernel))
    row = g.batch * pixels
    conv = nd.Conv(
        low.label(node), (y,), x, dy, g.depth, g.groups, g.outputs, g.batch,
        volume(g.sizes), volume(window.kernel), volume(g.out), volume(window.dilate),
        volume(window.pad, 0), volume(window.stride),
        (xc, g.depth * xc, xn, xd, xh, xw), (g.outputs * row, row, 1),
        (taps, g.outputs * g.depth * taps, g.depth * taps, along_d, along_h, along_w),
        b.done(result),
        roles=nd.Roles(-9), label="conv_grad",
    )  # fmt: skip
    low.add(conv)
