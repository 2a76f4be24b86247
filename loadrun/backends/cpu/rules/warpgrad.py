"""Gradients of images read at other positions: by the images, and by maps and matrices."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels import giving, points
from loadrun.backends.cpu.kernels.giving import Giving
from loadrun.backends.cpu.kernels.interpolate import Planes
from loadrun.backends.cpu.kernels.points import Reading
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.image import border_name, image_layout, planes_of
from loadrun.backends.cpu.rules.index import need_indices, need_positions
from loadrun.backends.cpu.rules.product import view
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.imaging import Layout
from mgeserial.ops.subpixel import Mode
from mgeserial.ops.warpgrad import (
    REMAP_BACKWARD_DATA,
    REMAP_BACKWARD_MAT,
    WARP_PERSPECTIVE_BACKWARD_DATA,
    WARP_PERSPECTIVE_BACKWARD_MAT,
)

_ORDER = (0, 2, 4, 1, 3, 5)  # of the axes of `Planes`, channels last


def _sizes(p: Planes) -> Shape:
    return (p.images, p.planes, p.h, p.middle, p.w, p.inner)


def channels_of(p: Planes) -> int:
    """All that is neither image nor pixel."""
    return p.planes * p.middle * p.inner


def channels_last(low: Lowering, name: str, p: Planes) -> str:
    """Images as (images, pixels, channels)."""
    given = _sizes(p)
    strides = contiguous(given)
    return view(low, name, tuple(given[k] for k in _ORDER), [strides[k] for k in _ORDER])


def bring_back(low: Lowering, value: Value, name: str, p: Planes) -> None:
    """Let images be those of a tensor (images, pixels, channels)."""
    wanted = _sizes(p)
    strides = contiguous([wanted[k] for k in _ORDER])
    steps = tuple(strides[_ORDER.index(k)] for k in range(6))
    out = low.out(value)
    if steps == contiguous(wanted):
        low.add(nd.Reshape(low.unique("images"), (name,), (out,)))
        return
    apart = low.temp(wanted)
    low.add(nd.View(low.unique("images"), (name,), (apart,), steps))
    low.add(nd.Reshape(low.unique("images"), (apart,), (out,)))


def add_give(low: Lowering, node: Node, how: Giving, reads: tuple[str, str, str, str]) -> str:
    """Add a node that sums what points give: values, places, weights, images; see `giving.give`."""
    shape = (how.images, how.pixels, how.channels)
    need_positions(shape, (how.groups, how.points, max(how.channels, how.taps)))
    y, sums = low.temp(shape), low.temp(shape)
    low.dtypes[sums] = "float64"
    make = functools.partial(giving.give, how)
    low.add(nd.Loops(low.label(node), reads, (sums, y), "give", make))
    return y


def numbered(low: Lowering, count: int) -> str:
    """Group k belongs to image k."""
    return low.constant(np.arange(count, dtype=np.int32))


def _by_image(
    low: Lowering,
    node: Node,
    how: Reading,
    coordinates: tuple[str, ...],
    images: tuple[Value, Layout],
    diff: Value,
) -> None:
    """The gradient of images, from that of the outputs."""
    wanted = node.outputs[0]
    layout = images[1]
    source, given = planes_of(layout, low.shape(wanted)), planes_of(layout, low.shape(diff))
    values = channels_last(low, low.name(diff), given)
    places, weights = (low.temp((how.groups, how.taps, how.points)) for _ in range(2))
    low.dtypes[places] = "int32"
    need_positions(low.shapes[places])
    status = low.check(how.rows)
    make = functools.partial(points.taps, how, low.dtype_name(coordinates[0]))
    outs = (places, weights, status)
    low.add(nd.Loops(low.unique("taps"), coordinates, outs, "taps", make))
    numbers = coordinates[1] if how.index else numbered(low, how.groups)
    pixels = how.size[0] * how.size[1]
    count = channels_of(source)
    index = low.dtype_name(numbers)
    spec = Giving(how.images, pixels, count, how.groups, how.points, how.taps, index)
    y = add_give(low, node, spec, (values, places, weights, numbers))
    bring_back(low, wanted, y, source)


def _slopes(
    low: Lowering,
    how: Reading,
    coordinates: tuple[str, ...],
    images: tuple[Value, Value],
    layout: Layout,
    *,
    dtype: str,
) -> str:
    """Gradients by rows and columns, (2, groups, points); `images` are the images and `diff`."""
    shapes = [planes_of(layout, low.shape(v)) for v in images]
    x, given = (channels_last(low, low.name(v), p) for v, p in zip(images, shapes, strict=True))
    found = low.temp((2, how.groups, how.points))
    low.dtypes[found] = dtype
    need_positions(low.shapes[found])
    status = low.check(how.rows)
    kinds = (low.dtype_name(coordinates[0]), dtype)
    make = functools.partial(points.slopes, how, channels_of(shapes[0]), kinds)
    reads = (x, *coordinates, given)
    low.add(nd.Loops(low.unique("slopes"), reads, (found, status), "slopes", make))
    return found


def _remapped(low: Lowering, node: Node, call: Call, images: Value, map_: Value) -> Reading:
    low.need_float32(*node.inputs, *node.outputs)
    layout, p = image_layout(call.param.format), call.param
    if p.imode not in (Mode.LINEAR, Mode.NEAREST) or layout.rank != 4:
        raise NotApplicable(f"interpolation {p.imode} in {layout.name}")
    shape, (n, h, w, _) = low.shape(images), low.shape(map_)
    nearest = p.imode == Mode.NEAREST
    border, fill = border_name(p.border_type), float(np.float32(p.scalar))
    size = layout.size(shape)
    return Reading("map", n, (h, w), n, size, border, nearest=nearest, fill=fill)


@lowers(REMAP_BACKWARD_DATA)
def remap_image_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: each pixel gets what the points that read it give, in order."""
    map_, diff, source = node.inputs
    how = _remapped(low, node, call, source, map_)
    layout = image_layout(call.param.format)
    _by_image(low, node, how, (low.name(map_),), (source, layout), diff)


@lowers(REMAP_BACKWARD_MAT)
def remap_map_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32, linear."""
    source, map_, diff = node.inputs
    how = _remapped(low, node, call, source, map_)
    layout, out = image_layout(call.param.format), node.outputs[0]
    if how.nearest:
        zero = low.constant(np.zeros(1, np.float32))
        still = (0,) * len(low.shape(out))
        low.add(nd.View(low.label(node), (zero,), (low.out(out),), still))
        return
    found = _slopes(low, how, (low.name(map_),), (source, diff), layout, dtype="float32")
    # (row, column) planes as (x, y) pairs.
    total = how.groups * how.points
    pairs = low.temp((total, 2))
    low.add(nd.View(low.label(node), (found,), (pairs,), (1, -total), total))
    low.add(nd.Reshape(low.unique("map"), (pairs,), (low.out(out),)))


def _warped(
    low: Lowering, node: Node, call: Call, images: Value, diff: Value
) -> tuple[Reading, Layout]:
    layout, p = image_layout(call.param.format), call.param
    if layout.name != "NCHW" or p.imode != Mode.LINEAR:
        raise NotApplicable(f"interpolation {p.imode} in {layout.name}")
    (n, _, h, w), (m, _, oh, ow) = low.shape(images), low.shape(diff)
    border, fill = border_name(p.bmode), float(np.float32(p.border_val))
    return Reading("perspective", m, (oh, ow), n, (h, w), border, fill=fill), layout


def _coordinates(
    low: Lowering, values: tuple[Value, ...], how: Reading
) -> tuple[Reading, tuple[str, ...]]:
    """Names of matrices and, where they are given, of the images' numbers."""
    low.need_float32(values[0])
    low.shape(values[0])
    need_indices(low, *values[1:])
    names = tuple(low.name(v) for v in values)
    index = low.dtype_name(names[1]) if len(names) > 1 else ""
    return replace(how, index=index), names


@lowers(WARP_PERSPECTIVE_BACKWARD_DATA)
def warp_image_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32 NCHW, linear: each pixel gets what the points that read it give, in order."""
    *given, diff, source = node.inputs
    low.need_float32(diff, source, *node.outputs)
    how, layout = _warped(low, node, call, source, diff)
    how, names = _coordinates(low, tuple(given), how)
    _by_image(low, node, how, names, (source, layout), diff)


@lowers(WARP_PERSPECTIVE_BACKWARD_MAT)
def warp_matrix_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32 NCHW, linear."""
    source, *given, diff = node.inputs
    low.need_float32(diff, source, *node.outputs)
    how, layout = _warped(low, node, call, source, diff)
    how, names = _coordinates(low, tuple(given), how)
    found = _slopes(low, how, names, (source, diff), layout, dtype="float64")
    rows = low.temp((how.rows, 6))
    low.dtypes[rows] = "float64"
    make = functools.partial(points.matrix_sums, how.groups, how.out, low.dtype_name(names[0]))
    y = low.out(node.outputs[0])
    low.add(nd.Loops(low.label(node), (names[0], found), (rows, y), "matrix sums", make))
