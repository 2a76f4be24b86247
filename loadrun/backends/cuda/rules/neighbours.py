"""Correlation of two maps, and windows of images as tensors, with their gradients."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, lowers
from loadrun.backends.cuda.rearranged import RAW
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.correlation import (
    CORRELATION_BACKWARD_DATA1,
    CORRELATION_BACKWARD_DATA2,
    CORRELATION_FORWARD,
    Correlation,
    correlation_of,
)
from mgeserial.ops.image import (
    IMAGES2_NEIBS_BACKWARD,
    SLIDING_WINDOW_TRANSPOSE,
    SLIDING_WINDOW_TRANSPOSE_BACKWARD,
)


def _numbers(plan: Correlation, shape: Shape) -> list[nd.Param]:
    return [
        *shape[1:], *plan.shape[2:], plan.reach, plan.kernel, plan.stride, plan.step, plan.first,
    ]  # fmt: skip


def _kinds(low: Lowering, *values: Value) -> list[str]:
    for value in values:
        low.shape(value)
    low.need_float(*values)
    return [c_type(low.dtype(v)) for v in values]


@lowers(CORRELATION_FORWARD)
def correlation(low: Lowering, node: Node, call: Call) -> None:
    """Products or distances, of any floating type."""
    kinds = _kinds(low, *node.inputs)
    plan = correlation_of(call, 0, 1)
    shape, items = low.shape(node.inputs[0]), math.prod(low.shape(node.outputs[0]))
    a, b = (low.name(v) for v in node.inputs)
    y = low.out(node.outputs[0])
    params: list[nd.Param] = [nd.In(a), nd.In(b), nd.Out(y), items, *_numbers(plan, shape)]
    multiply = int(bool(call.param.is_multiply))
    low.kernel(node, "correlation", params, items, XT=kinds[0], BT=kinds[1], MULTIPLY=multiply)


@lowers(CORRELATION_BACKWARD_DATA1, CORRELATION_BACKWARD_DATA2)
def correlation_backward(low: Lowering, node: Node, call: Call) -> None:
    """Gradients by one of the maps, gathered by pixel."""
    kinds = _kinds(low, *node.inputs)
    plan = correlation_of(call, 1, 2)
    shape = low.shape(node.inputs[1])
    items = math.prod(shape)
    names = [low.name(v) for v in node.inputs]
    y = low.out(node.outputs[0])
    params: list[nd.Param] = [*map(nd.In, names), nd.Out(y), items, *_numbers(plan, shape)]
    low.kernel(
        node, "correlation_back", params, items, DT=kinds[0], XT=kinds[1], BT=kinds[2],
        YT=low.tensors[y].ctype, MULTIPLY=int(bool(call.param.is_multiply)),
        FIRST=int(node.op.name == "CorrelationBackwardData1"),
    )  # fmt: skip


def _window(call: Call, windows: Shape, images: Shape) -> list[nd.Param]:
    p = call.param
    return [
        *windows[2:], *images[2:], int(p.stride_h), int(p.stride_w), int(p.pad_h), int(p.pad_w),
        int(p.dilate_h), int(p.dilate_w),
    ]  # fmt: skip


@lowers(IMAGES2_NEIBS_BACKWARD, SLIDING_WINDOW_TRANSPOSE)
def windows_sum(low: Lowering, node: Node, call: Call) -> None:
    """Sums of windows at their places, of any type; gathered by pixel."""
    x, y = node.inputs[0], node.outputs[0]
    low.need_real(x)
    windows, images, dtype = low.shape(x), low.shape(y), call.dtype(0)
    items = math.prod(images)
    name = low.name(x)
    params: list[nd.Param] = [
        nd.In(name), nd.Out(low.out(y)), items, *_window(call, windows, images),
    ]  # fmt: skip
    whole = "(int)(total != 0)" if dtype.storage.kind == "b" else "(int)total"
    low.kernel(
        node, "windows_sum", params, items, XT=low.tensors[name].ctype,
        ACC="f64" if dtype.is_float else "i64", RESULT="(float)total" if dtype.is_float else whole,
    )  # fmt: skip


@lowers(SLIDING_WINDOW_TRANSPOSE_BACKWARD)
def windows_take(low: Lowering, node: Node, call: Call) -> None:
    """What windows see, of any type."""
    x, y = node.inputs[0], node.outputs[0]
    low.need_real(x)
    images, windows = low.shape(x), low.shape(y)
    items = math.prod(windows)
    name = low.name(x)
    params: list[nd.Param] = [
        nd.In(name), nd.Out(low.out(y)), items, *_window(call, windows, images),
    ]  # fmt: skip
    low.kernel(node, "windows_take", params, items, T=RAW[call.dtype(0).storage.itemsize])
