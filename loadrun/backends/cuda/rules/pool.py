"""Pooling over windows of images, in any layout."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.conv import image_strides
from mgeserial import params as P
from mgeserial.dtypes import DType
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.layouts import TensorLayout, single_layout
from mgeserial.ops.pooling import ADAPTIVE_POOLING, POOLING

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


@lowers(POOLING)
def pooling(low: Lowering, node: Node, call: Call) -> None:
    """Maximum and both averages, any type and layout."""
    p = call.param
    sizes = (p.window_h, p.window_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w)
    kh, kw, sh, sw, ph, pw = (int(v) for v in sizes)
    _pool(low, node, call, single_layout(p.format), (kh, kw, sh, sw, ph, pw), p.mode)


@lowers(ADAPTIVE_POOLING)
def adaptive_pooling(low: Lowering, node: Node, call: Call) -> None:
    """As Pooling, with stride and window from the sizes."""
    layout = single_layout(call.param.format)
    _, _, h, w = layout.logical(low.shape(node.inputs[0]))
    _, _, oh, ow = layout.logical(low.shape(node.outputs[0]))
    sh, sw = h // oh, w // ow
    window = (h - (oh - 1) * sh, w - (ow - 1) * sw, sh, sw, 0, 0)
    _pool(low, node, call, layout, window, call.param.mode)
