"""Pooling over windows of images, in any layout."""

from __future__ import annotations

import math
from typing import Any

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.conv import image_strides
from mgeserial import params as P
from mgeserial.dtypes import DType
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.layouts import TensorLayout, single_layout
from mgeserial.ops.pooling import (
    ADAPTIVE_POOLING,
    ADAPTIVE_POOLING_BACKWARD,
    POOLING,
    POOLING_BACKWARD,
)

_Mode = P.PoolingV0Mode
_FLOAT = {
    _Mode.MAX_: ("-INFINITY", "v > acc || v != v ? v : acc", "acc"),
    _Mode.AVERAGE: ("0.f", "acc + v", "acc / (float)size"),
    _Mode.AVERAGE_COUNT_EXCLUDE_PADDING: ("0.f", "acc + v", "acc / (float)inside"),
}
_MEAN = "(double)(acc + (i64)zero * (size - inside)) / size"


def _codes(mode: P.PoolingV0Mode, dtype: DType) -> tuple[str, str, str, str]:
    """Type of sums, start, step and result."""
    if dtype.is_float:
        return ("float", *_FLOAT[mode])
    if mode == _Mode.MAX_:
        return "int", "(-2147483647 - 1)", "v > acc ? v : acc", "acc"
    if mode == _Mode.AVERAGE:
        result = f"(int)round({_MEAN})" if dtype.is_quantized else f"(int)({_MEAN})"
        return "i64", "0", "acc + v", result
    return "i64", "0", "acc + v", "(int)round((double)acc / inside)"


def _pool(
    low: Lowering,
    node: Node,
    call: Call,
    layout: TensorLayout,
    window: tuple[int, int, int, int, int, int],
    mode: P.PoolingV0Mode,
) -> None:
    if layout.spatial != "HW" or mode not in _FLOAT:
        raise NotApplicable("not pooling of images")
    given, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    _, c, h, w = layout.logical(given)
    _, _, oh, ow = layout.logical(wanted)
    dtype = call.dtype(0)
    acc, start, step, result = _codes(mode, dtype)
    xn, xc, _, xh, xw = image_strides(layout, given)
    yn, yc, _, yh, yw = image_strides(layout, wanted)
    items = math.prod(wanted)
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    fields = (
        ("XT", c_type(dtype)), ("ACC", acc), ("START", start), ("STEP", step),
        ("RESULT", result), ("L", str(layout.lanes)),
    )  # fmt: skip
    params: tuple[nd.Param, ...] = (
        nd.In(x), nd.Out(y), items, c, h, w, oh, ow, *window, xn, xc, xh, xw, yn, yc, yh, yw,
        dtype.zero_point or 0, *dtype.limits,
    )  # fmt: skip
    low.add(nd.Custom(low.label(node), (y,), "pool", fields, params, items, stem="pool"))


def _window(param: P.Pooling) -> tuple[int, int, int, int, int, int]:
    """Window, stride and padding, each of height and width."""
    return (
        int(param.window_h), int(param.window_w), int(param.stride_h), int(param.stride_w),
        int(param.pad_h), int(param.pad_w),
    )  # fmt: skip


def _adaptive(
    layout: TensorLayout, given: Shape, wanted: Shape
) -> tuple[int, int, int, int, int, int]:
    """The window that gives the wanted size."""
    _, _, h, w = layout.logical(given)
    _, _, oh, ow = layout.logical(wanted)
    sh, sw = h // oh, w // ow
    return h - (oh - 1) * sh, w - (ow - 1) * sw, sh, sw, 0, 0


@lowers(POOLING)
def pooling(low: Lowering, node: Node, call: Call) -> None:
    """Maximum and both averages, any type and layout."""
    p = call.param
    _pool(low, node, call, single_layout(p.format), _window(p), p.mode)


@lowers(ADAPTIVE_POOLING)
def adaptive_pooling(low: Lowering, node: Node, call: Call) -> None:
    """As Pooling, with stride and window from the sizes."""
    layout = single_layout(call.param.format)
    window = _adaptive(layout, low.shape(node.inputs[0]), low.shape(node.outputs[0]))
    _pool(low, node, call, layout, window, call.param.mode)


_TERMS = {
    _Mode.MAX_: "acc = acc + (widen(x[at]) == widen(y[w]) ? widen(dy[w]) : 0.f);",
    _Mode.AVERAGE: "acc = acc + widen(dy[w]) / (float)(kh * kw);",
    _Mode.AVERAGE_COUNT_EXCLUDE_PADDING: """int t = max(oy * sh - ph, 0), l = max(ox * sw - pw, 0);
      int count = (min(oy * sh - ph + kh, H) - t) * (min(ox * sw - pw + kw, W) - l);
      acc = acc + widen(dy[w]) / (float)count;""",
}


def _pool_backward(
    low: Lowering,
    node: Node,
    call: Call,
    values: tuple[Value, Value, Value],
    window: tuple[int, int, int, int, int, int],
) -> None:
    """The gradient of (x, y, dy) for x."""
    layout, mode = single_layout(call.param.format), call.param.mode
    if layout.spatial != "HW" or mode not in _TERMS:
        raise NotApplicable("not pooling of images")
    low.need_float(*values)
    given, pooled = low.shape(values[0]), low.shape(values[2])
    _, c, h, w = layout.logical(given)
    _, _, oh, ow = layout.logical(pooled)
    xn, xc, _, xh, xw = image_strides(layout, given)
    yn, yc, _, yh, yw = image_strides(layout, pooled)
    items = math.prod(given)
    params: list[nd.Param] = [
        *(nd.In(low.name(v)) for v in values), nd.Out(low.out(node.outputs[0])), items, c, h, w,
        oh, ow, *window, xn, xc, xh, xw, yn, yc, yh, yw,
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "XT": c_type(call.dtype(0)), "L": layout.lanes, "TERM": _TERMS[mode]
    }  # fmt: skip
    low.kernel(node, "pool_back", params, items, **fields)


@lowers(POOLING_BACKWARD)
def pooling_backward(low: Lowering, node: Node, call: Call) -> None:
    """Maximum and both averages, any layout."""
    x, y, dy = node.inputs
    _pool_backward(low, node, call, (x, y, dy), _window(call.param))


@lowers(ADAPTIVE_POOLING_BACKWARD)
def adaptive_pooling_backward(low: Lowering, node: Node, call: Call) -> None:
    """As PoolingBackward, with stride and window from the sizes."""
    x, _, y, dy = node.inputs
    layout = single_layout(call.param.format)
    _pool_backward(low, node, call, (x, y, dy), _adaptive(layout, low.shape(x), low.shape(dy)))
