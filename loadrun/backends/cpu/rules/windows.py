"""Convolutions whose filter depends on place or region, their gradients, and sums of windows."""

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
    add_filter_gradient,
    columns,
    filter_of,
    multiply,
    need_room,
    repeated,
    spaced,
    view,
    window_gradient,
)
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.convrules import Geometry, geometry
from mgeserial.ops.image import IMAGES2_NEIBS_BACKWARD, SLIDING_WINDOW_TRANSPOSE
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
    REGION_RESTRICTED_CONVOLUTION,
    REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA,
    REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER,
)
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
    g = _local(low, node, call, 0, 1)
    x, length = _seen(low, node.inputs[0], g)
    k = g.depth * math.prod(g.window.kernel)
    tiles, pixels = math.prod(g.tiles), math.prod(g.out) // math.prod(g.tiles)
    seen = _tiles(low, x, g, length)
    flt = _turned(low, low.name(node.inputs[1]), g)
    found = low.temp((g.groups, *g.tiles, g.batch, *_tile(g), g.outputs))
    sizes = (g.groups * tiles, g.batch * pixels, k, g.outputs)
    multiply(low, (seen, flt), sizes, found, low.label(node))
    _give_maps(low, node.outputs[0], found, g)


def _give_maps(low: Lowering, value: Value, found: str, g: LocalGeometry) -> None:
    """Let a value be the maps of rows (G, SH, SW, N, th, tw, O)."""
    s = contiguous(low.shapes[found])
    dims = (g.batch, g.groups, g.outputs, g.tiles[0], _tile(g)[0], g.tiles[1], _tile(g)[1])
    apart = low.temp(dims)
    steps = (s[3], s[0], s[6], s[1], s[4], s[2], s[5])
    low.add(nd.View(low.unique("maps"), (found,), (apart,), steps))
    y = low.out(value)
    low.add(nd.Reshape(low.unique("maps"), (apart,), (y,)))


def _rows(low: Lowering, name: str, g: LocalGeometry) -> str:
    """Maps (N, G, O, *out) as rows (G, SH, SW, N, th, tw, O): the inverse of `_give_maps`."""
    (sh, sw), (th, tw) = g.tiles, _tile(g)
    s = contiguous((g.batch, g.groups, g.outputs, sh, th, sw, tw))
    dims = (g.groups, sh, sw, g.batch, th, tw, g.outputs)
    return view(low, name, dims, (s[1], s[3], s[5], s[0], s[4], s[6], s[2]))


def _tile(g: LocalGeometry) -> tuple[int, int]:
    """Rows and columns of pixels of a tile."""
    return g.out[0] // g.tiles[0], g.out[1] // g.tiles[1]


def _tiles(
    low: Lowering, x: str, g: LocalGeometry, length: Shape, *, taps_first: bool = False
) -> str:
    """What the windows see: (G, SH, SW, N, th, tw, I, FH, FW); or N, th and tw are last."""
    n, grp, dep, row, col = contiguous((g.batch, g.groups, g.depth, *length))
    (sh, sw), (dh, dw), (th, tw) = g.window.stride, g.window.dilate, _tile(g)
    down, across = row * sh, col * sw
    tiles = [(g.groups, grp), (g.tiles[0], down * th), (g.tiles[1], across * tw)]
    pixels = [(g.batch, n), (th, down), (tw, across)]
    kernel = g.window.kernel
    taps = [(g.depth, dep), (kernel[0], row * dh), (kernel[1], col * dw)]
    axes = [*tiles, *(taps + pixels if taps_first else pixels + taps)]
    dims = tuple(size for size, _ in axes)
    need_room(*dims)
    return view(low, x, dims, [step for _, step in axes])


def _turned(low: Lowering, name: str, g: LocalGeometry) -> str:
    """Filters (G, SH, SW, I, FH, FW, O), turned round if the mode says so."""
    if not g.flip:
        return name
    steps = list(contiguous(g.filter))
    offset = sum((g.filter[a] - 1) * steps[a] for a in (4, 5))
    steps[4:6] = [-s for s in steps[4:6]]
    return view(low, name, g.filter, steps, offset)


def _local(low: Lowering, node: Node, call: Call, src: int, flt: int) -> LocalGeometry:
    """Geometry of an operator whose image and filters are the inputs of these numbers."""
    low.need_float32(*node.inputs, *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_positions(low.shape(value))
    return local_geometry(call, call.shape(src), call.shape(flt))


def _seen(low: Lowering, value: Value, g: LocalGeometry) -> tuple[str, Shape]:
    """An image with its padding, and the sizes of that."""
    return _grown(low, low.name(value), (g.batch, g.groups * g.depth), g.sizes, g.window)


@lowers(LOCAL_BACKWARD_DATA, GROUP_LOCAL_BACKWARD_DATA, LOCAL_SHARE_BACKWARD_DATA)
def local_image_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: a product for each tile of pixels, then sums of windows."""
    g = _local(low, node, call, 2, 0)
    taps, (th, tw) = math.prod(g.window.kernel), _tile(g)
    k, tiles = g.depth * taps, math.prod(g.tiles)
    rows = _rows(low, low.name(node.inputs[1]), g)
    flt = _turned(low, low.name(node.inputs[0]), g)
    found = low.temp((g.groups, *g.tiles, g.batch, th, tw, g.depth, taps))
    need_room(*low.shapes[found])
    sizes = (g.groups * tiles, g.batch * th * tw, g.outputs, k)
    multiply(low, (rows, flt), sizes, found, low.label(node), transposed=True)
    s = contiguous(low.shapes[found])
    dims = (g.batch, g.groups, g.depth, g.tiles[0], th, g.tiles[1], tw, taps)
    windows = view(low, found, dims, (s[3], s[0], s[6], s[1], s[4], s[2], s[5], s[7]))
    planes = g.batch * g.groups * g.depth
    _sum_windows(low, node, windows, planes, g.sizes, g.out, g.window)


@lowers(LOCAL_BACKWARD_FILTER, GROUP_LOCAL_BACKWARD_FILTER, LOCAL_SHARE_BACKWARD_FILTER)
def local_filter_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: a product for each tile of pixels."""
    g = _local(low, node, call, 0, 2)
    x, length = _seen(low, node.inputs[0], g)
    (th, tw), k, tiles = _tile(g), g.depth * math.prod(g.window.kernel), math.prod(g.tiles)
    seen = _tiles(low, x, g, length, taps_first=True)
    rows = _rows(low, low.name(node.inputs[1]), g)
    found = low.temp(g.filter)
    sizes = (g.groups * tiles, k, g.batch * th * tw, g.outputs)
    multiply(low, (seen, rows), sizes, found, low.label(node))
    out = low.out(node.outputs[0])
    low.add(nd.Reshape(low.unique("filter"), (_turned(low, found, g),), (out,)))


def _sum_windows(
    low: Lowering,
    node: Node,
    windows: str,
    planes: int,
    sizes: Shape,
    out: Shape,
    window: Window,
) -> None:
    """Let the first output be images as sums of windows (planes, *out, taps)."""
    (h, w), (oh, ow), (kh, kw), (sh, sw) = sizes, out, window.kernel, window.stride
    (ph, pw), (dh, dw) = window.pad, window.dilate
    how = Adding(
        planes, (oh, ow), (h, w), (kh, kw), (sh, sw), (ph, pw), (dh, dw), "float32"
    )  # fmt: skip
    y = low.out(node.outputs[0])
    make = functools.partial(kernels.add_windows, how)
    low.add(nd.Loops(low.unique("windows"), (windows,), (y,), "sum of windows", make))


def _restricted(
    low: Lowering, node: Node, g: Geometry, windows: str, regions: tuple[Value, Value]
) -> str:
    """Windows (N, G * I, taps, pixels), zero where a tap is of another region than its output."""
    names = [low.name(v) for v in regions]
    dtype = low.dtype_name(names[0])
    if low.dtype_name(names[1]) != dtype or dtype == "float32":
        raise NotApplicable("regions of different types")
    # A region in the padding may be any: what is read there is zero, what is given is dropped.
    wide, length = _grown(low, names[0], (g.batch, 1), g.sizes, g.window)
    seen = columns(low, wide, (g.batch, 1, 1, *length), g.window, g.out)
    taps, pixels = math.prod(g.window.kernel), math.prod(g.out)
    kept = low.temp((g.batch, g.groups, g.depth * taps, pixels))
    make = functools.partial(
        kernels.same_region, g.batch, g.groups * g.depth, (taps, pixels), dtype=dtype
    )
    low.add(nd.Loops(low.unique("regions"), (windows, seen, names[1]), (kept,), "regions", make))
    return kept


def _region_geometry(low: Lowering, node: Node, call: Call, src: Shape, flt: Shape) -> Geometry:
    low.need_float32(*node.inputs[:2], *node.outputs)
    for value in (*node.inputs, *node.outputs):
        need_plain(low, value)
    g = geometry(call.param, src, flt)
    if g.src.name != "NCHW":
        raise NotApplicable(f"images in {g.src.name}")
    return g


def _region_windows(low: Lowering, value: Value, g: Geometry) -> str:
    """What the windows of an image see."""
    x, length = _grown(low, low.name(value), (g.batch, g.groups * g.depth), g.sizes, g.window)
    return columns(low, x, (g.batch, g.groups, g.depth, *length), g.window, g.out)


@lowers(REGION_RESTRICTED_CONVOLUTION)
def restricted(low: Lowering, node: Node, call: Call) -> None:
    """float32: taps of another region than their output count as zero."""
    src, flt, rin, rout = node.inputs
    g = _region_geometry(low, node, call, call.shape(0), call.shape(1))
    w = filter_of(low, flt, g, adjoint=False)
    kept = _restricted(low, node, g, _region_windows(low, src, g), (rin, rout))
    k, pixels = g.depth * math.prod(g.window.kernel), math.prod(g.out)
    left = repeated(low, w, g.batch, g.groups * g.outputs * k)
    y = low.out(node.outputs[0])
    multiply(low, (left, kept), (g.batch * g.groups, g.outputs, k, pixels), y, low.label(node))


@lowers(REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA)
def restricted_image_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: what windows get from outputs of their regions, then sums of windows."""
    flt, diff, rin, rout = node.inputs[:4]
    g = _region_geometry(low, node, call, low.shape(node.outputs[0]), call.shape(0))
    given = window_gradient(low, node, g, flt, low.name(diff))
    kept = _restricted(low, node, g, given, (rin, rout))
    taps, pixels = math.prod(g.window.kernel), math.prod(g.out)
    planes = g.batch * g.groups * g.depth
    windows = view(low, kept, (planes, pixels, taps), (taps * pixels, 1, pixels))
    _sum_windows(low, node, windows, planes, g.sizes, g.out, g.window)


@lowers(REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER)
def restricted_filter_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: the gradient times the taps of its regions."""
    src, diff, rin, rout, _ = node.inputs
    g = _region_geometry(low, node, call, call.shape(0), call.shape(4))
    kept = _restricted(low, node, g, _region_windows(low, src, g), (rin, rout))
    add_filter_gradient(low, node, g, kept, low.name(diff))


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
