"""Gradients of images that were resized, padded, or read at other positions.

Every element gathers what belongs to it, so that sums are the same in every run; what belongs to
an element is known ahead of the run (tables) or found by it (linked lists).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.linked import link, name_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rearranged import rearranged
from loadrun.backends.cuda.rules.image import BORDERS, MAP, PERSPECTIVE, nest
from mgeserial import params as P
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops import lines
from mgeserial.ops.imaging import Layout, layout_of
from mgeserial.ops.lines import Line
from mgeserial.ops.padding import PADDING_BACKWARD, offsets, origins
from mgeserial.ops.resize import RESIZE_BACKWARD
from mgeserial.ops.subpixel import Mode
from mgeserial.ops.warpgrad import (
    REMAP_BACKWARD_DATA,
    REMAP_BACKWARD_MAT,
    WARP_PERSPECTIVE_BACKWARD_DATA,
    WARP_PERSPECTIVE_BACKWARD_MAT,
)

_LINES = {Mode.LINEAR: lines.linear, Mode.NEAREST: lines.nearest, Mode.CUBIC: lines.cubic}
_NO_IMAGE = "an image that does not exist is asked for"


def _spread(
    low: Lowering, node: Node, x: str, shape: Shape, axis: int, line: Line, size: int, out: str = ""
) -> str:
    """The adjoint of mixing an axis by a table: each element gathers from those that read it.

    Args:
        low: The walk.
        node: The operator.
        x: Tensor of gradients.
        shape: Its shape.
        axis: The axis.
        line: For each element of the axis which ones of the longer tensor it was made of.
        size: Length of the axis of the result.
        out: The tensor to write; a new one of float32 without.
    """
    taps = line.index.shape[1]
    places = line.index.reshape(-1)
    order = np.argsort(places, kind="stable")
    begin = np.searchsorted(places[order], np.arange(size + 1)).astype(np.int32)
    index = (order // taps).astype(np.int32)
    weight = line.weight.reshape(-1)[order].astype(np.float32)
    wanted = (*shape[:axis], size, *shape[axis + 1 :])
    out = out or low.temp(wanted)
    items = math.prod(wanted)
    params: list[nd.Param] = [
        nd.In(x), *(nd.In(low.constant(a)) for a in (begin, index, weight)), nd.Out(out), items,
        shape[axis], size, math.prod(shape[axis + 1 :]),
    ]  # fmt: skip
    kinds: dict[str, Any] = {"XT": low.tensors[x].ctype, "YT": low.tensors[out].ctype}
    low.kernel(node, "spread", params, items, **kinds)
    return out


@lowers(RESIZE_BACKWARD)
def resize_backward(low: Lowering, node: Node, call: Call) -> None:
    """Linear, nearest and cubic, in all layouts."""
    diff, out = node.inputs[0], node.outputs[0]
    low.need_float(diff)
    given, wanted = low.shape(diff), low.shape(out)
    if call.param.imode not in _LINES:
        raise NotApplicable(f"interpolation {call.param.imode}")
    make = _LINES[call.param.imode]
    layout = _layout(call.param.format)
    x = low.name(diff)
    middle = (*given[: layout.w], wanted[layout.w], *given[layout.w + 1 :])
    columns = make(given[layout.w], wanted[layout.w])
    rows = make(given[layout.h], wanted[layout.h])
    x = _spread(low, node, x, given, layout.w, columns, wanted[layout.w])
    _spread(low, node, x, middle, layout.h, rows, wanted[layout.h], low.out(out))


def _layout(fmt: P.ConvolutionFormat) -> Layout:
    try:
        return layout_of(fmt)
    except MgeError as error:
        raise NotApplicable(f"format {fmt}") from error


@lowers(PADDING_BACKWARD)
def padding_backward(low: Lowering, node: Node, call: Call) -> None:
    """All modes: the middle, or an axis after the other added up."""
    diff, out = node.inputs[0], node.outputs[0]
    low.need_float(diff)
    shape, wanted = low.shape(diff), low.shape(out)
    pairs = offsets(call, len(shape))
    x = low.name(diff)
    axes = [a for a, pair in enumerate(pairs) if any(pair)]
    if call.param.padding_mode == P.PaddingPaddingMode.CONSTANT or not axes:
        inner = tuple(slice(f, f + n) for n, (f, _) in zip(wanted, pairs, strict=True))

        def middle(array: Array) -> Array:
            return array[inner]

        rearranged(low, node, x, middle, low.out(out))
        return
    for axis in axes:
        index = origins(call, wanted[axis], pairs[axis])[:, None]
        line = Line(index, np.ones(index.shape, np.float32))
        last = low.out(out) if axis == axes[-1] else ""
        x = _spread(low, node, x, shape, axis, line, wanted[axis], last)
        shape = (*shape[:axis], wanted[axis], *shape[axis + 1 :])


# -- positions


def _index(low: Lowering, index: Value | None) -> tuple[str, list[nd.Param], str]:
    """Parameters and code of the image of output `m`."""
    if index is None:
        return "", [], "m"
    low.shape(index)
    name = low.name(index)
    code = f"const {low.tensors[name].ctype} *__restrict__ which,"
    return code, [nd.In(name)], "(int)which[m]"


def _border(mode: Any) -> int:
    if mode not in BORDERS:
        raise NotApplicable(f"border mode {mode}")
    return BORDERS[mode]


def _data_gradient(
    low: Lowering,
    node: Node,
    layout: Layout,
    inputs: tuple[Value, Value | None, Value],
    position: str,
    border: Any,
    *,
    nearest: bool = False,
) -> None:
    """The gradient of (matrix or map, image indices, gradients) for the images."""
    matrix, index, diff = inputs
    out = node.outputs[0]
    low.need_float(matrix, diff)
    given, wanted = low.shape(diff), low.shape(out)
    low.shape(matrix)
    (h, w), (oh, ow) = layout.size(wanted), layout.size(given)
    outer, middle, inner = nest(layout, wanted)
    points, taps = given[0] * oh * ow, 1 if nearest else 2
    entries = points * taps * taps
    keys, weights = low.temp((entries,), "int32", "i32"), low.temp((entries,))
    code, more, image = _index(low, index)
    check = nd.Check(f"{name_of(node)}: {_NO_IMAGE}")
    params: list[nd.Param] = [
        nd.In(low.name(matrix)), *more, nd.Out(keys), nd.Out(weights), check, points, wanted[0], h,
        w, oh, ow, _border(border),
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "MT": c_type(low.dtype(matrix)), "EXTRA": code, "IMAGE": image, "POSITION": position,
        "TAPS": taps, "FLOOR": "rintf" if nearest else "floorf", "BORDER": source.text("border"),
    }  # fmt: skip
    low.kernel(node, "warp_taps", params, points, **fields)
    heads, after = link(low, node, keys, entries, wanted[0] * h * w)
    items = math.prod(wanted)
    dy = low.name(diff)
    dx = low.out(out)
    params = [
        nd.In(dy), nd.In(heads), nd.In(after), nd.In(weights), nd.Out(dx), items, taps * taps,
        outer // wanted[0], h, middle, w, inner, oh, ow,
    ]  # fmt: skip
    kinds: dict[str, Any] = {"GT": low.tensors[dy].ctype, "YT": low.tensors[dx].ctype}
    low.kernel(node, "warp_back", params, items, **kinds)


_EACH_PIXEL = """int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / OW, ox = i - r * OW, m = r / OH, oy = r - m * OH;"""
_STORE_PIXEL = "narrow(y[i * 2], (float)by_x);\n  narrow(y[i * 2 + 1], (float)by_y);"
_EACH_MATRIX = """__shared__ double sums[8];
  int m = (int)blockIdx.x, tid = (int)threadIdx.x;
  double g[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  for (int p = tid; p < OH * OW; p += 256) {
  int oy = p / OW, ox = p - oy * OW;"""
_STORE_MATRIX = """double ax = ox, ay = oy;
  double column = ((double)widen(mm[0]) * ax + (double)widen(mm[1]) * ay) + (double)widen(mm[2]);
  double row = ((double)widen(mm[3]) * ax + (double)widen(mm[4]) * ay) + (double)widen(mm[5]);
  double divisor = ((double)widen(mm[6]) * ax + (double)widen(mm[7]) * ay) + (double)widen(mm[8]);
  double by[3] = {by_x / divisor, by_y / divisor,
                  -(by_x * column + by_y * row) / (divisor * divisor)};
#pragma unroll
  for (int k = 0; k < 3; k++) {
    g[k * 3] += by[k] * ax;
    g[k * 3 + 1] += by[k] * ay;
    g[k * 3 + 2] += by[k];
  }
  }
#pragma unroll
  for (int k = 0; k < 9; k++) {
    double total = block_total(g[k], sums);
    __syncthreads();
    if (tid == 0) narrow(y[m * 9 + k], (float)total);
  }"""


def _slopes(
    low: Lowering,
    node: Node,
    layout: Layout,
    inputs: tuple[Value, Value, Value | None, Value],
    border: Any,
    fill: float,
    *,
    of_map: bool,
) -> None:
    """The gradient of (images, matrix or map, image indices, gradients) for the positions."""
    x, matrix, index, diff = inputs
    low.need_float(x, matrix, diff)
    shape, given = low.shape(x), low.shape(diff)
    positions = low.shape(matrix)
    (h, w), (oh, ow) = layout.size(shape), layout.size(given)
    outer, middle, inner = nest(layout, shape)
    code, more, image = _index(low, index)
    names = [low.name(v) for v in (x, matrix, diff)]
    y = low.out(node.outputs[0])
    items = given[0] * oh * ow if of_map else positions[0]
    check = nd.Check(f"{name_of(node)}: {_NO_IMAGE}")
    params: list[nd.Param] = [
        nd.In(names[0]), nd.In(names[1]), *more, nd.In(names[2]), nd.Out(y), check, items,
        shape[0], outer // shape[0], h, middle, w, inner, oh, ow, _border(border), fill,
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "XT": low.tensors[names[0]].ctype, "MT": low.tensors[names[1]].ctype,
        "GT": low.tensors[names[2]].ctype, "YT": low.tensors[y].ctype, "EXTRA": code,
        "IMAGE": image, "POSITION": MAP if of_map else PERSPECTIVE,
        "BEGIN": _EACH_PIXEL if of_map else _EACH_MATRIX,
        "END": _STORE_PIXEL if of_map else _STORE_MATRIX,
        "HOW": "a thread a pixel" if of_map else "a block a matrix",
        "BORDER": source.text("border"),
    }  # fmt: skip
    low.kernel(node, "warp_slope", params, items, per_block=256 if of_map else 1, **fields)


@lowers(REMAP_BACKWARD_DATA)
def remap_backward_data(low: Lowering, node: Node, call: Call) -> None:
    """Linear and nearest, images of four axes."""
    coordinates, diff, _ = node.inputs
    mode = call.param.imode
    layout = _layout(call.param.format)
    if mode not in (Mode.LINEAR, Mode.NEAREST) or layout.rank != 4:
        raise NotApplicable(f"interpolation {mode} in {layout.name}")
    inputs = (coordinates, None, diff)
    _data_gradient(
        low, node, layout, inputs, MAP, call.param.border_type, nearest=mode == Mode.NEAREST
    )


@lowers(REMAP_BACKWARD_MAT)
def remap_backward_map(low: Lowering, node: Node, call: Call) -> None:
    """Linear; there is none of nearest pixels."""
    x, coordinates, diff = node.inputs
    layout = _layout(call.param.format)
    if call.param.imode != Mode.LINEAR:
        out = node.outputs[0]
        low.keep(out, np.zeros(low.shape(out), low.dtype(out).storage))
        return
    if layout.rank != 4:
        raise NotApplicable(f"images in {layout.name}")
    fill = float(call.param.scalar)
    inputs = (x, coordinates, None, diff)
    _slopes(low, node, layout, inputs, call.param.border_type, fill, of_map=True)


@lowers(WARP_PERSPECTIVE_BACKWARD_DATA)
def warp_backward_data(low: Lowering, node: Node, call: Call) -> None:
    """Linear, channels first."""
    matrix, *index, diff, _ = node.inputs
    layout = _layout(call.param.format)
    inputs = (matrix, index[0] if index else None, diff)
    _data_gradient(low, node, layout, inputs, PERSPECTIVE, call.param.bmode)


@lowers(WARP_PERSPECTIVE_BACKWARD_MAT)
def warp_backward_matrix(low: Lowering, node: Node, call: Call) -> None:
    """Linear, channels first; sums over the pixels of an output."""
    x, matrix, *index, diff = node.inputs
    layout = _layout(call.param.format)
    inputs = (x, matrix, index[0] if index else None, diff)
    fill = float(call.param.border_val)
    _slopes(low, node, layout, inputs, call.param.bmode, fill, of_map=False)
