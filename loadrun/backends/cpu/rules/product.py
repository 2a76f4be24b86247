"""Convolutions as products of matrices: filters of the run, volumes, gradients.

What the convolution kernels do not do is composed of what there is: padding by tables, windows as a
strided copy, and a product. Maps are (N, G, I, *sizes), filters (G, O, I, *kernel).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels.move import NONE, Moves
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.move import add_move
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.conv import CONVOLUTION, CONVOLUTION_BACKWARD_DATA
from mgeserial.ops.conv3d import CONVOLUTION3_D, CONVOLUTION3_D_BACKWARD_DATA
from mgeserial.ops.convgrad import CONVOLUTION3_D_BACKWARD_FILTER, CONVOLUTION_BACKWARD_FILTER
from mgeserial.ops.convrules import Geometry, geometry, geometry_of_gradient
from mgeserial.ops.layouts import TensorLayout
from mgeserial.ops.windows import Window

_MOST = 1 << 26  # elements of what lies between operands and results; reference code takes parts


@dataclass(frozen=True, slots=True)
class Sides:
    """How maps grow along their spatial axes.

    Attributes:
        before: Elements before the first one; negative ones cut.
        gaps: Distance of neighbours; 1 without gaps.
        length: Of the result.
    """

    before: Shape
    gaps: Shape
    length: Shape


def need_room(*dims: int) -> None:
    """Refuse a tensor between operands and results that would be too large."""
    if math.prod(dims) >= _MOST:
        raise NotApplicable("its windows would need too much memory")


def spaced(
    low: Lowering, name: str, channels: Shape, sizes: Shape, sides: Sides, *, fill: int = 0
) -> str:
    """Maps (*channels, *sizes) with zeros (`fill`) before, between and behind elements."""
    if sizes == sides.length and not any(sides.before) and max(sides.gaps) == 1:
        return name
    need_room(*channels, *sides.length)
    strides = contiguous((*channels, *sizes))
    tables = [np.arange(n) * s for n, s in zip(channels, strides, strict=False)]
    for n, s, before, gap, length in zip(
        sizes, strides[len(channels) :], sides.before, sides.gaps, sides.length, strict=True
    ):
        at = np.arange(length) - before
        exists = (at >= 0) & (at % gap == 0) & (at // gap < n)
        tables.append(np.where(exists, at // gap * s, NONE))
    out = low.temp((*channels, *sides.length))
    low.dtypes[out] = low.dtype_name(name)
    add_move(low, low.unique("pad"), name, out, Moves(tuple(tables)), fill)
    return out


def view(low: Lowering, name: str, dims: Shape, strides: Sequence[int], offset: int = 0) -> str:
    """A strided copy, or the tensor where it is contiguous already."""
    if tuple(strides) == contiguous(dims) and offset == 0:
        return name
    out = low.temp(dims)
    low.dtypes[out] = low.dtype_name(name)
    low.add(nd.View(low.unique("view"), (name,), (out,), tuple(strides), offset))
    return out


def columns(
    low: Lowering, name: str, maps: Shape, window: Window, out: Shape, *, batch_inside: bool = False
) -> str:
    """The windows of padded maps (N, G, I, *sizes): (N, G, I * kernel, out).

    With `batch_inside` as (G, I * kernel, N, out).
    """
    n, g, depth, *_ = maps
    need_room(*maps[:3], *window.kernel, *out)
    strides = contiguous(maps)
    taps = [s * d for s, d in zip(strides[3:], window.dilate, strict=True)]
    steps = [s * t for s, t in zip(strides[3:], window.stride, strict=True)]
    if batch_inside:
        dims = (g, depth, *window.kernel, n, *out)
        return view(low, name, dims, (*strides[1:3], *taps, strides[0], *steps))
    dims = (n, g, depth, *window.kernel, *out)
    return view(low, name, dims, (*strides[:3], *taps, *steps))


def multiply(
    low: Lowering,
    names: tuple[str, str],
    sizes: tuple[int, int, int, int],
    out: str,
    label: str,
    *,
    transposed: bool = False,
) -> None:
    """Add a batch of products (m, k) times (k, n), or (n, k) if transposed."""
    batch, m, k, n = sizes
    need_room(batch, max(m * k, k * n))
    low.add(nd.MatMul(label, names, (out,), batch, m, k, n, transposed))


def _maps(low: Lowering, value: Value, layout: TensorLayout) -> str:
    """A value as maps, channels first."""
    if layout.spatial == "HW":
        return low.image(value, layout)
    if layout.axes != "NCDHW":
        raise NotApplicable(f"volumes in {layout.name}")
    return low.name(value)


def _give(low: Lowering, value: Value, name: str, layout: TensorLayout) -> None:
    """Let a value be the maps of a tensor, channels first."""
    logical = layout.logical(low.shape(value))
    out = low.temp(logical)
    low.add(nd.Reshape(low.unique("maps"), (name,), (out,)))
    if layout.name in ("NCHW", "NCDHW"):
        low.same(value, out)
    else:
        low.same_image(value, out, layout)


def filter_of(low: Lowering, value: Value, g: Geometry, *, adjoint: bool) -> str:
    """(G, O, I, *kernel) of a cross-correlation; of its adjoint (G, I, O, *kernel)."""
    kernel = g.window.kernel
    given = low.array(value)
    if given is not None:
        w = np.asarray(g.kernel(given))
        if adjoint:
            w = np.flip(w.swapaxes(1, 2), tuple(range(3, w.ndim)))
        return low.constant(np.ascontiguousarray(w, np.float32 if low.is_float32(value) else None))
    name = _natural(low, value, g)
    strides = list(contiguous((g.groups, g.outputs, g.depth, *kernel)))
    dims: Shape = (g.groups, g.outputs, g.depth, *kernel)
    offset = 0
    if adjoint != g.flip:
        offset = sum((n - 1) * s for n, s in zip(kernel, strides[3:], strict=True))
        strides[3:] = [-s for s in strides[3:]]
    if adjoint:
        strides[1:3] = strides[2:0:-1]
        dims = (g.groups, g.depth, g.outputs, *kernel)
    return view(low, name, dims, strides, offset)


def _natural(low: Lowering, value: Value, g: Geometry) -> str:
    """The name of a filter of the run as (G, O, I, *kernel), with or without groups."""
    axes = g.filter.axes.replace("1", "")
    if axes in ("OIHW", "GOIHW", "OIDHW", "GOIDHW"):
        return low.name(value)
    if axes not in ("OIHWi", "GOIHWi"):
        raise NotApplicable(f"a filter of the run in {g.filter.name}")
    shape = low.shape(value)
    size = dict(zip(g.filter.axes, shape, strict=True))
    step = dict(zip(g.filter.axes, contiguous(shape), strict=True))
    order = [a for a in "GOIiHW" if a in size]
    dims = tuple(size[a] for a in order)
    split = view(low, low.name(value), dims, [step[a] for a in order])
    whole = low.temp((g.groups, g.outputs, g.depth, *g.window.kernel))
    low.dtypes[whole] = low.dtype_name(split)
    low.add(nd.Reshape(low.unique("filter"), (split,), (whole,)))
    return whole


def repeated(low: Lowering, name: str, batch: int, size: int) -> str:
    """A matrix once per image."""
    return name if batch == 1 else view(low, name, (batch, size), (0, 1))


def _convolve(
    low: Lowering,
    node: Node,
    x: str,
    w: str,
    maps: Shape,
    window: Window,
    outputs: int,
    out: Shape,
) -> str:
    """Windows of padded maps (N, G, I, *sizes) times filters (G, outputs, I, *kernel)."""
    n, g, depth, *_ = maps
    k, pixels = depth * math.prod(window.kernel), math.prod(out)
    seen = columns(low, x, maps, window, out)
    left = repeated(low, w, n, g * outputs * k)
    y = low.temp((n, g * outputs, *out))
    multiply(low, (left, seen), (n * g, outputs, k, pixels), y, low.label(node))
    return y


def sided(window: Window, sizes: Shape) -> Sides:
    """Padding on both sides."""
    length = tuple(n + 2 * p for n, p in zip(sizes, window.pad, strict=True))
    return Sides(window.pad, (1,) * len(sizes), length)


def _padded(low: Lowering, value: Value, g: Geometry) -> tuple[str, Shape]:
    """The input with its padding, and its shape as maps."""
    channels = (g.batch, g.groups * g.depth)
    sides = sided(g.window, g.sizes)
    x = spaced(low, _maps(low, value, g.src), channels, g.sizes, sides)
    return x, (g.batch, g.groups, g.depth, *sides.length)


def _check(low: Lowering, node: Node) -> None:
    low.need_float32(*node.inputs[:2], *node.outputs)
    for value in (*node.inputs[:2], *node.outputs):
        low.shape(value)


@lowers(CONVOLUTION, CONVOLUTION3_D)
def convolution(low: Lowering, node: Node, call: Call) -> None:
    """float32, filters of the run, and volumes."""
    _check(low, node)
    g = geometry(call.param, call.shape(0), call.shape(1))
    w = filter_of(low, node.inputs[1], g, adjoint=False)
    x, maps = _padded(low, node.inputs[0], g)
    y = _convolve(low, node, x, w, maps, g.window, g.outputs, g.out)
    _give(low, node.outputs[0], y, g.dst)


@lowers(CONVOLUTION_BACKWARD_DATA, CONVOLUTION3_D_BACKWARD_DATA)
def transposed(low: Lowering, node: Node, call: Call) -> None:
    """float32: a convolution of the gradient, spread by the stride, with the filter turned."""
    _check(low, node)
    given = low.shape(node.outputs[0])
    g = geometry(call.param, given, call.shape(0))
    if g.dst_shape != low.shape(node.inputs[1]):
        raise NotApplicable("an output that the filter does not fill")
    w = filter_of(low, node.inputs[0], g, adjoint=True)
    reach = [(k - 1) * d for k, d in zip(g.window.kernel, g.window.dilate, strict=True)]
    before = tuple(r - p for r, p in zip(reach, g.window.pad, strict=True))
    length = tuple(n + r for n, r in zip(g.sizes, reach, strict=True))
    channels = (g.batch, g.groups * g.outputs)
    diff = _maps(low, node.inputs[1], g.dst)
    z = spaced(low, diff, channels, g.out, Sides(before, g.window.stride, length))
    window = replace(g.window, stride=(1,) * len(reach), pad=(0,) * len(reach))
    maps = (g.batch, g.groups, g.outputs, *length)
    y = _convolve(low, node, z, w, maps, window, g.depth, g.sizes)
    _give(low, node.outputs[0], y, g.src)


@lowers(CONVOLUTION_BACKWARD_FILTER, CONVOLUTION3_D_BACKWARD_FILTER)
def filter_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: the gradient times the windows of the input, summed over the images."""
    _check(low, node)
    g = geometry_of_gradient(call.param, call.shape(2), call.shape(1), call.shape(0))
    axes = g.filter.axes.replace("1", "")
    if axes not in ("OIHW", "GOIHW", "OIDHW", "GOIDHW"):
        raise NotApplicable(f"a filter in {g.filter.name}")
    x, maps = _padded(low, node.inputs[0], g)
    pixels, k = math.prod(g.out), g.depth * math.prod(g.window.kernel)
    seen = columns(low, x, maps, g.window, g.out, batch_inside=True)
    diff = _maps(low, node.inputs[1], g.dst)
    order = _batch_inside(g, g.outputs, pixels)
    left = view(low, diff, (g.groups, g.outputs, g.batch, pixels), order)
    found = low.temp((g.groups, g.outputs, g.depth, *g.window.kernel))
    sizes = (g.groups, g.outputs, g.batch * pixels, k)
    multiply(low, (left, seen), sizes, found, low.label(node), transposed=True)
    _give_filter(low, node.outputs[0], found, g)


def window_gradient(low: Lowering, node: Node, g: Geometry, flt: Value, diff: str) -> str:
    """What gradients (N, G, O, pixels) give to the windows: (N, G, I * taps, pixels)."""
    k, pixels = g.depth * math.prod(g.window.kernel), math.prod(g.out)
    dims = (g.batch, g.groups, k, pixels)
    need_room(*dims)
    w = filter_of(low, flt, g, adjoint=False)
    turned = view(low, w, (g.groups, k, g.outputs), (g.outputs * k, 1, k))
    left = repeated(low, turned, g.batch, g.groups * g.outputs * k)
    given = low.temp(dims)
    sizes = (g.batch * g.groups, k, g.outputs, pixels)
    multiply(low, (left, diff), sizes, given, low.label(node))
    return given


def add_filter_gradient(low: Lowering, node: Node, g: Geometry, seen: str, diff: str) -> None:
    """Let the first output be the gradient (N, G, O, pixels) times windows (N, G, k, pixels)."""
    pixels, k = math.prod(g.out), g.depth * math.prod(g.window.kernel)
    inside = [
        view(low, name, (g.groups, rows, g.batch, pixels), _batch_inside(g, rows, pixels))
        for name, rows in ((diff, g.outputs), (seen, k))
    ]
    found = low.temp((g.groups, g.outputs, g.depth, *g.window.kernel))
    sizes = (g.groups, g.outputs, g.batch * pixels, k)
    multiply(low, (inside[0], inside[1]), sizes, found, low.label(node), transposed=True)
    _give_filter(low, node.outputs[0], found, g)


def _batch_inside(g: Geometry, rows: int, pixels: int) -> Shape:
    strides = contiguous((g.batch, g.groups, rows, pixels))
    return (strides[1], strides[2], strides[0], strides[3])


def _give_filter(low: Lowering, value: Value, found: str, g: Geometry) -> None:
    """Let a value be a filter (G, O, I, *kernel) of a cross-correlation."""
    if g.flip:
        steps = list(contiguous((g.groups, g.outputs, g.depth, *g.window.kernel)))
        offset = sum((n - 1) * s for n, s in zip(g.window.kernel, steps[3:], strict=True))
        steps[3:] = [-s for s in steps[3:]]
        found = view(low, found, low.shapes[found], steps, offset)
    out = low.temp(low.shape(value))
    low.add(nd.Reshape(low.unique("filter"), (found,), (out,)))
    low.same(value, out)
