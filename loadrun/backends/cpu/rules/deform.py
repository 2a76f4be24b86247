"""Deformable convolution and correlation."""

from __future__ import annotations

import functools
import math

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import deform as kernels
from loadrun.backends.cpu.kernels.deform import Comparing, Moved
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.product import filter_of, multiply, need_room, repeated
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.correlation import CORRELATION_FORWARD, correlation_of
from mgeserial.ops.deformable import DEFORMABLE_CONV_FORWARD, deformed


@lowers(DEFORMABLE_CONV_FORWARD)
def deformable(low: Lowering, node: Node, call: Call) -> None:
    """float32: taps read where they are moved to, then a product of matrices."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    shape = deformed(call)
    g = shape.conv
    (h, w), (oh, ow) = g.sizes, g.out
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        g.window.kernel,
        g.window.stride,
        g.window.pad,
        g.window.dilate,
    )
    how = Moved(
        *(g.batch, shape.moving, shape.channels, (h, w), (oh, ow)),
        *((kh, kw), (sh, sw), (ph, pw), (dh, dw)),
    )
    weights = filter_of(low, node.inputs[1], g, adjoint=False)
    k, pixels = g.depth * shape.taps, math.prod(g.out)
    dims = (g.batch, g.groups, k, pixels)
    need_room(*dims)
    found = low.temp(dims)
    reads = tuple(low.name(node.inputs[i]) for i in (0, 2, 3))
    make = functools.partial(kernels.moved_columns, how)
    low.add(nd.Loops(low.unique("moved"), reads, (found,), "moved windows", make))
    left = repeated(low, weights, g.batch, g.groups * g.outputs * k)
    y = low.out(node.outputs[0])
    sizes = (g.batch * g.groups, g.outputs, k, pixels)
    multiply(low, (left, found), sizes, y, low.label(node))


@lowers(CORRELATION_FORWARD)
def correlation(low: Lowering, node: Node, call: Call) -> None:
    """float32, products and distances."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    plan = correlation_of(call, 0, 1)
    if len(plan.shape) != 4:
        raise NotApplicable("not an image")
    n, displacements, oh, ow = plan.shape
    how = Comparing(
        (n, displacements, oh, ow),
        low.shape(node.inputs[0])[1],
        *(plan.size, plan.reach, plan.kernel, plan.stride, plan.step, plan.first),
        bool(call.param.is_multiply),
    )
    names = tuple(low.name(v) for v in node.inputs)
    y = low.out(node.outputs[0])
    make = functools.partial(kernels.compare, how)
    low.add(nd.Loops(low.label(node), names, (y,), "correlation", make))
