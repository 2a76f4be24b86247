"""Convolutions whose filter depends on the place or on regions, and sums of windows."""

from __future__ import annotations

import functools
import math

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels import windows as kernels
from loadrun.backends.cpu.kernels.windows import Adding
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.order import need_plain
from loadrun.backends.cpu.rules.product import (
    Sides,
    columns,
    filter_of,
    multiply,
    need_room,
    repeated,
    spaced,
    view,
)
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.convrules import geometry
from mgeserial.ops.image import IMAGES2_NEIBS_BACKWARD, SLIDING_WINDOW_TRANSPOSE
from mgeserial.ops.local import (
    GROUP_LOCAL,
    LOCAL,
    LOCAL_SHARE_FORWARD,
    LocalGeometry,
    local_geometry,
)
from mgeserial.ops.maskconv import REGION_RESTRICTED_CONVOLUTION
from mgeserial.ops.windows import Window


def _grown(
    low: Lowering, name: str, channels: Shape, sizes: Shape, window: Window
) -> tuple[str, Shape]:
    """Maps with their padding, and the sizes of that."""
    length = tuple(n + 2 * p for n, p in zip(sizes, window.pad, strict=True))
    sides = Sides(window.pad, (1,) * len(sizes), length)
    return spaced(low, name, channels, sizes, sides), length


@lowers(LOCAL, GROUP_LOCAL, LOCAL_SHARE_FORWARD)
def local(low: Lowering, node: Node, call: Call) -> None:
    """float32: a product for each tile of pixels."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    g = local_geometry(call, call.shape(0), call.shape(1))
    channels = (g.batch, g.groups * g.depth)
    x, length = _grown(low, low.name(node.inputs[0]), channels, g.sizes, g.window)
    k = g.depth * math.prod(g.window.kernel)
    tiles, pixels = math.prod(g.tiles), math.prod(g.out) // math.prod(g.tiles)
    seen = _tiles(low, x, g, length)
    flt = _local_filter(low, node, g)
    found = low.temp((g.groups, *g.tiles, g.batch, *_tile(g), g.outputs))
    sizes = (g.groups * tiles, g.batch * pixels, k, g.outputs)
    multiply(low, (seen, flt), sizes, found, low.label(node))
    # (G, SH, SW, N, th, tw, O) as (N, G, O, SH, th, SW, tw).
    s = contiguous(low.shapes[found])
    dims = (g.batch, g.groups, g.outputs, g.tiles[0], _tile(g)[0], g.tiles[1], _tile(g)[1])
    apart = low.temp(dims)
    steps = (s[3], s[0], s[6], s[1], s[4], s[2], s[5])
    low.add(nd.View(low.unique("maps"), (found,), (apart,), steps))
    y = low.out(node.outputs[0])
    low.add(nd.Reshape(low.unique("maps"), (apart,), (y,)))


def _tile(g: LocalGeometry) -> tuple[int, int]:
    """Rows and columns of pixels of a tile."""
    return g.out[0] // g.tiles[0], g.out[1] // g.tiles[1]


def _tiles(low: Lowering, x: str, g: LocalGeometry, length: Shape) -> str:
    """What the windows see: (G, SH, SW, N, th, tw, I, FH, FW)."""
    n, grp, dep, row, col = contiguous((g.batch, g.groups, g.depth, *length))
    (sh, sw), (dh, dw), (th, tw) = g.window.stride, g.window.dilate, _tile(g)
    dims = (g.groups, *g.tiles, g.batch, th, tw, g.depth, *g.window.kernel)
    need_room(*dims)
    down, across = row * sh, col * sw
    return view(
        low,
        x,
        dims,
        (grp, down * th, across * tw, n, down, across, dep, row * dh, col * dw),
    )


def _local_filter(low: Lowering, node: Node, g: LocalGeometry) -> str:
    """(G, S, I * FH * FW, O), turned round if the mode says so."""
    name = low.name(node.inputs[1])
    if not g.flip:
        return name
    steps = list(contiguous(g.filter))
    offset = sum((g.filter[a] - 1) * steps[a] for a in (4, 5))
    steps[4:6] = [-s for s in steps[4:6]]
    return view(low, name, g.filter, steps, offset)


@lowers(REGION_RESTRICTED_CONVOLUTION)
def restricted(low: Lowering, node: Node, call: Call) -> None:
    """float32: taps of another region than their output count as zero."""
    low.need_float32(*node.inputs[:2], *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_plain(low, value)
    g = geometry(call.param, call.shape(0), call.shape(1))
    regions = [low.name(v) for v in node.inputs[2:4]]
    dtype = low.dtype_name(regions[0])
    if g.src.name != "NCHW" or low.dtype_name(regions[1]) != dtype or dtype == "float32":
        raise NotApplicable("regions of different types")
    w = filter_of(low, node.inputs[1], g, adjoint=False)
    x, length = _grown(
        low, low.name(node.inputs[0]), (g.batch, g.groups * g.depth), g.sizes, g.window
    )
    maps = (g.batch, g.groups, g.depth, *length)
    cols = columns(low, x, maps, g.window, g.out)
    # A region in the padding may be any: what is read there is zero.
    wide, _ = _grown(low, regions[0], (g.batch, 1), g.sizes, g.window)
    seen = columns(low, wide, (g.batch, 1, 1, *length), g.window, g.out)
    taps, pixels = math.prod(g.window.kernel), math.prod(g.out)
    k = g.depth * taps
    kept = low.temp((g.batch, g.groups, k, pixels))
    make = functools.partial(
        kernels.same_region, g.batch, g.groups * g.depth, (taps, pixels), dtype=dtype
    )
    low.add(nd.Loops(low.unique("regions"), (cols, seen, regions[1]), (kept,), "regions", make))
    left = repeated(low, w, g.batch, g.groups * g.outputs * k)
    y = low.out(node.outputs[0])
    multiply(low, (left, kept), (g.batch * g.groups, g.outputs, k, pixels), y, low.label(node))


@lowers(SLIDING_WINDOW_TRANSPOSE, IMAGES2_NEIBS_BACKWARD)
def add_windows(low: Lowering, node: Node, call: Call) -> None:
    """float32 and whole numbers: images as sums of windows."""
    x, y = node.inputs[0], node.outputs[0]
    need_plain(low, x)
    dtype = low.inference.types[x].dtype
    if dtype.is_quantized or dtype.kind is DTypeEnum.Bool:
        raise NotApplicable(f"sums of {dtype}")
    shape, wanted = low.shape(x), low.shape(y)
    need_positions(shape, wanted)
    if len(shape) != 6 or len(wanted) != 4:
        raise NotApplicable("not windows of images")
    p = call.param
    name = low.name(x)
    how = Adding(
        math.prod(wanted[:2]),
        (shape[2], shape[3]),
        (wanted[2], wanted[3]),
        (int(p.window_h), int(p.window_w)),
        (int(p.stride_h), int(p.stride_w)),
        (int(p.pad_h), int(p.pad_w)),
        (int(p.dilate_h), int(p.dilate_w)),
        low.dtype_name(name),
    )
    if max(*how.pad, *how.stride, *how.dilate, 1) * max(*how.kernel, 1) >= 1 << 30:
        raise NotApplicable("positions beyond 2**30")
    out = low.out(y)
    make = functools.partial(kernels.add_windows, how)
    low.add(nd.Loops(low.label(node), (name,), (out,), "sum of windows", make))
