"""Normalisation, softmax and reductions of float32."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.expr import Expr, Op
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.activation import SOFTMAX
from mgeserial.ops.norm import BATCH_NORM, LAYER_NORM
from mgeserial.ops.reduce import REDUCE

REDUCE_MODES = {
    P.ReduceMode.SUM: "sum",
    P.ReduceMode.SUM_SQR: "sum_sqr",
    P.ReduceMode.PRODUCT: "product",
    P.ReduceMode.MIN_: "min",
    P.ReduceMode.MAX_: "max",
    P.ReduceMode.MEAN: "mean",
}


@lowers(BATCH_NORM)
def batch_norm(low: Lowering, node: Node, call: Call) -> None:
    """float32 inference with constant statistics: one multiply-add per element."""
    if call.param.fwd_mode != P.BNFwdMode.INFERENCE or len(node.inputs) != 5:
        raise NotApplicable("training mode")
    x, y = node.inputs[0], node.outputs[-1]
    low.need_float32(*node.inputs, y)
    low.shape(x)
    if any(v.users for v in node.outputs[:-1]) or any(
        v in low.graph.outputs for v in node.outputs[:-1]
    ):
        raise NotApplicable("its statistics are used")
    arrays = [low.need_array(v, "a statistic").astype(np.float64) for v in node.inputs[1:]]
    scale, bias, mean, var = arrays
    gain = scale / np.sqrt(var + float(call.param.epsilon))
    shift = bias - mean * gain
    names = [low.constant(np.ascontiguousarray(a.astype(np.float32))) for a in (gain, shift)]
    out = low.out(y)
    expr = Expr(3, (Op("fma", (0, 1, 2)),))
    low.add(nd.Eltwise(low.label(node), (low.name(x), *names), (out,), expr))


@lowers(LAYER_NORM)
def layer_norm(low: Lowering, node: Node, call: Call) -> None:
    """float32 over the last axes, with or without weight and bias."""
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[0])
    n = int(call.param.normalized_size)
    outer = math.prod(shape) // n
    if len(node.outputs) != 3 or len(node.inputs) not in (1, 3):
        raise NotApplicable("an unexpected number of inputs or outputs")
    names = tuple(low.name(v) for v in node.inputs)
    outs = tuple(low.out(v) for v in node.outputs)
    low.add(nd.LayerNorm(low.label(node), names, outs, outer, n, float(call.param.eps)))


@lowers(SOFTMAX)
def softmax(low: Lowering, node: Node, call: Call) -> None:
    """float32 along any axis."""
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[0])
    axis = int(call.param.axis) % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    low.add(nd.Softmax(low.label(node), (x,), (y,), outer, shape[axis], inner))


@lowers(REDUCE)
def reduce(low: Lowering, node: Node, call: Call) -> None:
    """float32 along axes that are next to each other; over whole images in their layout."""
    p = call.param
    low.need_float32(node.inputs[0], node.outputs[0])
    if p.data_type not in (P.ReduceDataType.DEFAULT, P.ReduceDataType.FLOAT_O32xC32):
        raise NotApplicable(f"data type {p.data_type}")
    shape, out = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    if len(out) < len(shape):
        out = (1,) * (len(shape) - len(out)) + out
    axes = [k for k, (a, b) in enumerate(zip(shape, out, strict=True)) if a != b]
    mode = REDUCE_MODES[p.mode]
    if not axes:
        raise NotApplicable("nothing is reduced")
    first, last = axes[0], axes[-1] + 1
    if any(shape[k] != 1 for k in range(first, last) if k not in axes):
        raise NotApplicable("axes apart from each other")
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    n = math.prod(shape[first:last])
    if len(shape) == 4 and axes == [2, 3] and mode in ("mean", "sum", "max"):
        low.add(nd.GlobalPooling(low.label(node), (x,), (y,), mode))
        return
    outer, inner = math.prod(shape[:first]), math.prod(shape[last:])
    low.add(nd.Reduce(low.label(node), (x,), (y,), mode, outer, n, inner))
