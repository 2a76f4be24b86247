"""Gradients that spread numbers over an axis, or bring them back: of resizing, pooling, sorting.

What is linear along each axis is the same table turned round (`adjoint`), so that each element
gathers what it is due, in a fixed order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels.index import Lookup, Selection
from loadrun.backends.cpu.kernels.interpolate import PLAIN, Planes
from loadrun.backends.cpu.kernels.windows import Adding, give_to_largest
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.image import Tables, add_resize, image_layout, planes_of
from loadrun.backends.cpu.rules.index import need_indices, need_positions, put_into_zeros
from mgeserial import params as P
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops import lines
from mgeserial.ops.create import DIAG_BACKWARD
from mgeserial.ops.layouts import single_layout
from mgeserial.ops.lines import Line
from mgeserial.ops.padding import PADDING_BACKWARD, offsets, origins
from mgeserial.ops.pooling import ADAPTIVE_POOLING_BACKWARD, POOLING_BACKWARD
from mgeserial.ops.random import SHUFFLE_RNG_BACKWARD
from mgeserial.ops.resize import RESIZE_BACKWARD
from mgeserial.ops.sorting import ARGSORT_BACKWARD
from mgeserial.ops.subpixel import Mode

_MOST_TAPS = 1 << 20
_LINES = {Mode.LINEAR: lines.linear, Mode.NEAREST: lines.nearest, Mode.CUBIC: lines.cubic}


def adjoint(line: Line, size: int) -> Line:
    """For each of `size` inputs of a line the outputs that read it, with their weights."""
    out, taps = line.index.shape
    source, weight = line.index.reshape(-1), line.weight.reshape(-1)
    used = np.flatnonzero(weight != 0)
    order = used[np.argsort(source[used], kind="stable")]
    counts = np.bincount(source[order], minlength=size)
    most = max(int(counts.max(initial=0)), 1)
    if most * size > _MOST_TAPS:
        raise NotApplicable("tables would be too large")
    index, weights = np.zeros((size, most), np.intp), np.zeros((size, most), np.float32)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    index[source[order], place] = np.repeat(np.arange(out), taps)[order]
    weights[source[order], place] = weight[order]
    return Line(index, weights)


@lowers(RESIZE_BACKWARD)
def resize_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: the tables of the interpolation, turned round."""
    low.need_float32(node.inputs[0], node.outputs[0])
    diff, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    layout, make = image_layout(call.param.format), _LINES.get(call.param.imode)
    if make is None:
        raise NotApplicable(f"interpolation {call.param.imode}")
    rows, columns = (
        adjoint(make(o, n), n) for o, n in zip(layout.size(diff), layout.size(wanted), strict=True)
    )
    sizes = (planes_of(layout, diff), planes_of(layout, wanted))
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    add_resize(low, node, x, y, sizes, Tables(rows, columns, PLAIN))


@lowers(PADDING_BACKWARD)
def padding_gradient(low: Lowering, node: Node, call: Call) -> None:
    """A part of any dtype for CONSTANT; float32 sums of what was repeated, axis by axis."""
    diff, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    pairs = offsets(call, len(diff))
    if call.param.padding_mode == P.PaddingPaddingMode.CONSTANT:
        strides = contiguous(diff)
        first = sum(front * s for (front, _), s in zip(pairs, strides, strict=True))
        x, y = low.name(node.inputs[0]), low.out(node.outputs[0])
        low.add(nd.View(low.label(node), (x,), (y,), strides, first))
        return
    low.need_float32(node.inputs[0], node.outputs[0])
    axes = [a for a, pair in enumerate(pairs) if any(pair)]
    if not axes:
        raise NotApplicable("nothing is padded")
    tables = [_origin(call, wanted[a], pairs[a]) for a in axes]
    current, name = list(diff), low.name(node.inputs[0])
    one = Line(np.zeros((1, 1), np.intp), np.ones((1, 1), np.float32))
    for axis, line in zip(axes, tables, strict=True):
        outer, inner = math.prod(current[:axis]), math.prod(current[axis + 1 :])
        source = Planes(outer, 1, 1, 1, current[axis], inner)
        current[axis] = wanted[axis]
        y = low.out(node.outputs[0]) if axis == axes[-1] else low.temp(tuple(current))
        to = replace(source, w=wanted[axis])
        add_resize(low, node, name, y, (source, to), Tables(one, line, PLAIN))
        name = y


def _origin(call: Call, size: int, pair: tuple[int, int]) -> Line:
    if size + sum(pair) > _MOST_TAPS:
        raise NotApplicable("tables would be too large")
    found = origins(call, size, pair)[:, None]
    return adjoint(Line(found, np.ones(found.shape, np.float32)), size)


def _averaged(size: int, out: int, window: tuple[int, int, int], *, inside: bool) -> Line:
    """What each element is due of the averages along one axis; window: kernel, stride, padding."""
    kernel, stride, pad = window
    if out * kernel > _MOST_TAPS:
        raise NotApplicable("tables would be too large")
    at = np.arange(out)[:, None] * stride - pad + np.arange(kernel)
    exists = (at >= 0) & (at < size)
    count = exists.sum(axis=1, keepdims=True) if inside else np.full((out, 1), kernel)
    weight = np.where(exists, 1 / np.maximum(count, 1), 0)
    return adjoint(Line(np.clip(at, 0, size - 1), weight.astype(np.float32)), size)


@lowers(POOLING_BACKWARD)
def pooling_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32 maximum and both averages, any layout."""
    p = call.param
    window = tuple(
        (
            int(getattr(p, f"window_{a}")),
            int(getattr(p, f"stride_{a}")),
            int(getattr(p, f"pad_{a}")),
        )
        for a in "hw"
    )
    _pooled(low, node, (0, 1, 2), window, p)


@lowers(ADAPTIVE_POOLING_BACKWARD)
def adaptive_gradient(low: Lowering, node: Node, call: Call) -> None:
    """As of Pooling, with stride and window from the sizes."""
    layout = single_layout(call.param.format)
    sizes = layout.logical(low.shape(node.inputs[0]))[2:]
    out = layout.logical(low.shape(node.inputs[3]))[2:]
    window = tuple((n - (o - 1) * (n // o), n // o, 0) for n, o in zip(sizes, out, strict=True))
    _pooled(low, node, (0, 2, 3), window, call.param)


def _pooled(
    low: Lowering,
    node: Node,
    places: tuple[int, int, int],
    window: tuple[tuple[int, int, int], ...],
    param: P.Pooling | P.AdaptivePooling,
) -> None:
    given = [node.inputs[k] for k in places]
    low.need_float32(*given, node.outputs[0])
    for value in (*given, *node.outputs):
        need_positions(low.shape(value))
    try:
        layout = single_layout(param.format)
    except MgeError as error:
        raise NotApplicable(f"format {param.format}") from error
    if layout.spatial != "HW":
        raise NotApplicable("not pooling of images")
    n, c, h, w = layout.logical(low.shape(node.outputs[0]))
    _, _, rows, columns = layout.logical(low.shape(given[2]))
    (kh, sh, ph), (kw, sw, pw) = window
    mode = P.PoolingV0Mode
    if param.mode == mode.MAX_:
        how = Adding(
            n * c, (rows, columns), (h, w), (kh, kw), (sh, sw), (ph, pw), (1, 1), "float32"
        )
        names = tuple(low.image(v, layout) for v in given)
        y = low.out_image(node.outputs[0], layout)
        make = functools.partial(give_to_largest, how)
        low.add(nd.Loops(low.label(node), names, (y,), "gradient of maxima", make))
        return
    inside = param.mode == mode.AVERAGE_COUNT_EXCLUDE_PADDING
    lines_ = [
        _averaged(size, out, part, inside=inside)
        for size, out, part in zip((h, w), (rows, columns), window, strict=True)
    ]
    x = low.image(given[2], layout)
    y = low.out_image(node.outputs[0], layout)
    source = Planes(n * c, 1, rows, 1, columns, 1)
    sizes = (source, replace(source, h=h, w=w))
    add_resize(low, node, x, y, sizes, Tables(lines_[0], lines_[1], PLAIN))


@lowers(ARGSORT_BACKWARD)
def sorted_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: sorted numbers go back to their places in rows of zeros."""
    diff, index = node.inputs[:2]
    rows, kept = low.shape(diff)
    wanted: Shape = low.shape(node.outputs[0])
    need_positions(wanted)
    need_indices(low, index)
    dtype = low.inference.types[index].dtype.storage.name
    lookup = Lookup(dtype, (kept, 1), wanted[1], 1, wraps=False)
    put_into_zeros(low, node, Selection((rows, kept), (wanted[1], 0), 0, (lookup,)), diff, [index])


@lowers(SHUFFLE_RNG_BACKWARD)
def shuffled_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: rows go back to where they came from."""
    diff, index = node.inputs[:2]
    rows, each = low.shape(diff)[0], math.prod(low.shape(diff)[1:])
    need_indices(low, index)
    dtype = low.inference.types[index].dtype.storage.name
    lookup = Lookup(dtype, (1, 0), rows, each, wraps=False)
    put_into_zeros(low, node, Selection((rows, each), (0, 1), 0, (lookup,)), diff, [index])


@lowers(DIAG_BACKWARD)
def diagonal_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: a diagonal taken, or set in zeros."""
    diff, k = node.inputs[1], int(call.param.k)
    wanted, given = low.shape(node.outputs[0]), low.shape(diff)
    columns = wanted[1] if len(wanted) == 2 else given[1]
    first = max(-k, 0) * columns + max(k, 0)
    if len(wanted) == 2:
        put_into_zeros(low, node, Selection(given, (columns + 1,), first, ()), diff)
        return
    x, y = low.name(diff), low.out(node.outputs[0])
    low.add(nd.View(low.label(node), (x,), (y,), (columns + 1,), first))
