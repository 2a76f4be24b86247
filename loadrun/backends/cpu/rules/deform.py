"""Deformable convolution and correlation, and their gradients."""

from __future__ import annotations

import functools
import math

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import deform as kernels
from loadrun.backends.cpu.kernels import deformgrad as gradients
from loadrun.backends.cpu.kernels.deform import Comparing, Moved
from loadrun.backends.cpu.kernels.giving import Giving
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.product import (
    add_filter_gradient,
    filter_of,
    multiply,
    need_room,
    repeated,
    view,
    window_gradient,
)
from loadrun.backends.cpu.rules.warpgrad import add_give, numbered
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.correlation import (
    CORRELATION_BACKWARD_DATA1,
    CORRELATION_BACKWARD_DATA2,
    CORRELATION_FORWARD,
    correlation_of,
)
from mgeserial.ops.deformable import (
    DEFORMABLE_CONV_BACKWARD_DATA,
    DEFORMABLE_CONV_BACKWARD_FILTER,
    DEFORMABLE_CONV_FORWARD,
    Deformed,
    deformed,
)

_FAR = 1 << 30


def _moved(low: Lowering, node: Node, call: Call) -> tuple[Deformed, Moved]:
    """Geometry of an operator whose first inputs are images, filter, moves and mask."""
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
    return shape, how


def _windows(low: Lowering, node: Node, shape: Deformed, how: Moved) -> str:
    """What the moved taps read, times the mask: (batch, G, I * taps, pixels)."""
    g = shape.conv
    dims = (g.batch, g.groups, g.depth * shape.taps, math.prod(g.out))
    need_room(*dims)
    found = low.temp(dims)
    reads = tuple(low.name(node.inputs[i]) for i in (0, 2, 3))
    make = functools.partial(kernels.moved_columns, how)
    low.add(nd.Loops(low.unique("moved"), reads, (found,), "moved windows", make))
    return found


@lowers(DEFORMABLE_CONV_FORWARD)
def deformable(low: Lowering, node: Node, call: Call) -> None:
    """float32: taps read where they are moved to, then a product of matrices."""
    shape, how = _moved(low, node, call)
    g = shape.conv
    weights = filter_of(low, node.inputs[1], g, adjoint=False)
    found = _windows(low, node, shape, how)
    k, pixels = g.depth * shape.taps, math.prod(g.out)
    left = repeated(low, weights, g.batch, g.groups * g.outputs * k)
    y = low.out(node.outputs[0])
    sizes = (g.batch * g.groups, g.outputs, k, pixels)
    multiply(low, (left, found), sizes, y, low.label(node))


def _comparing(low: Lowering, node: Node, call: Call, place: int) -> Comparing:
    """Geometry of a comparison whose maps are the inputs `place` and the next."""
    plan = correlation_of(call, place, place + 1)
    if len(plan.shape) != 4:
        raise NotApplicable("not an image")
    n, displacements, oh, ow = plan.shape
    if max((plan.reach + 1) * plan.step, abs(plan.first), plan.stride * max(oh, ow)) >= _FAR:
        raise NotApplicable("positions beyond 2**30")
    return Comparing(
        (n, displacements, oh, ow),
        low.shape(node.inputs[place])[1],
        *(plan.size, plan.reach, plan.kernel, plan.stride, plan.step, plan.first),
        bool(call.param.is_multiply),
    )


@lowers(CORRELATION_FORWARD)
def correlation(low: Lowering, node: Node, call: Call) -> None:
    """float32, products and distances."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    how = _comparing(low, node, call, 0)
    names = tuple(low.name(v) for v in node.inputs)
    y = low.out(node.outputs[0])
    make = functools.partial(kernels.compare, how)
    low.add(nd.Loops(low.label(node), names, (y,), "correlation", make))


@lowers(DEFORMABLE_CONV_BACKWARD_DATA)
def deformable_gradients(low: Lowering, node: Node, call: Call) -> None:
    """float32: by the images, the moves and the mask; what windows get, and then their pixels."""
    shape, how = _moved(low, node, call)
    g, taps = shape.conv, shape.taps
    pixels = math.prod(g.out)
    given = window_gradient(low, node, g, node.inputs[1], low.name(node.inputs[4]))
    src, _, moves, mask, _ = node.inputs
    groups, points, c = g.batch * shape.moving, taps * pixels, shape.channels
    places, weights = (low.temp((groups, 4, points)) for _ in range(2))
    low.dtypes[places] = "int32"
    need_positions(low.shapes[places])
    reads = (*(low.name(v) for v in (src, moves, mask)), given)
    by_src, by_moves, by_mask = node.outputs
    writes = (low.out(by_moves), low.out(by_mask), places, weights)
    make = functools.partial(gradients.moved_gradients, how)
    low.add(nd.Loops(low.label(node), reads, writes, "moved gradients", make))
    values = view(low, given, (groups, points, c), (c * points, 1, points))
    image = math.prod(g.sizes)
    spec = Giving(groups, image, c, groups, points, 4)
    y = add_give(low, node, spec, (values, places, weights, numbered(low, groups)))
    apart = low.temp((groups, c, image))
    low.add(nd.View(low.unique("images"), (y,), (apart,), (image * c, 1, c)))
    low.add(nd.Reshape(low.unique("images"), (apart,), (low.out(by_src),)))


@lowers(DEFORMABLE_CONV_BACKWARD_FILTER)
def deformable_filter_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: the gradient times what the moved taps read."""
    shape, how = _moved(low, node, call)
    g = shape.conv
    found = _windows(low, node, shape, how)
    add_filter_gradient(low, node, g, found, low.name(node.inputs[4]))


@lowers(CORRELATION_BACKWARD_DATA1, CORRELATION_BACKWARD_DATA2)
def correlation_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32, products and distances: each pixel looks up what it is due."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    how = _comparing(low, node, call, 1)
    first = node.op.name == CORRELATION_BACKWARD_DATA1.name
    names = tuple(low.name(v) for v in node.inputs)
    y = low.out(node.outputs[0])
    make = functools.partial(gradients.compare_gradient, how, first=first)
    low.add(nd.Loops(low.label(node), names, (y,), "correlation gradient", make))
