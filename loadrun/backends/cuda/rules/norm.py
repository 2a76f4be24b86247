"""Softmax and normalisations of floating types."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import Builder, c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.activation import SOFTMAX
from mgeserial.ops.norm import (
    BATCH_NORM,
    GENERAL_NORM,
    GROUP_NORM,
    INSTANCE_NORM,
    LAYER_NORM,
    LRN,
    batch_axes,
    general_axes,
    group_count,
    layer_axes,
)
from mgeserial.ops.numerics import to_real


@lowers(SOFTMAX)
def softmax(low: Lowering, node: Node, call: Call) -> None:
    """Along any axis, a warp a row."""
    x = node.inputs[0]
    low.need_float(x)
    shape = low.shape(x)
    axis = int(call.param.axis) % len(shape)
    rows = math.prod(shape) // shape[axis]
    name = low.name(x)
    y = low.out(node.outputs[0])
    params = (nd.In(name), nd.Out(y), rows, shape[axis], math.prod(shape[axis + 1 :]))
    fields = (("XT", c_type(call.dtype(0))),)
    low.add(
        nd.Custom(
            low.label(node), (y,), "softmax", fields, params, rows, per_block=8, stem="softmax"
        )
    )


@lowers(BATCH_NORM)
def batch_norm(low: Lowering, node: Node, call: Call) -> None:
    """Inference with constant statistics: a sum and a product an element."""
    if call.param.fwd_mode != P.BNFwdMode.INFERENCE or len(node.inputs) != 5:
        raise NotApplicable("training mode")
    x, y = node.inputs[0], node.outputs[-1]
    low.need_float(x, *node.inputs[1:])
    shape = low.shape(x)
    if any(v.users or v in low.graph.outputs for v in node.outputs[:-1]):
        raise NotApplicable("its statistics are used")
    stat, _ = batch_axes(call)
    scale, bias, mean, variance = (
        to_real(low.need_array(v, "a statistic"), low.dtype(v)).reshape(stat)
        for v in node.inputs[1:]
    )
    with np.errstate(all="ignore"):
        rstd = (1 / np.sqrt(variance.astype(np.float64) + call.param.epsilon)).astype(np.float32)
        gain = rstd * scale
    strides = tuple(0 if n == 1 else s for n, s in zip(stat, nd.contiguous(stat), strict=True))
    accesses = [low.access(x, shape)]
    for array in (mean, gain, bias):
        name = low.constant(np.ascontiguousarray(array))
        accesses.append(nd.Access(name, strides))
    b = Builder()
    slots = (("i", 0), ("i", 1), ("i", 2), ("i", 3))
    result = narrowed(b, b.op("float", "(({0} - {1}) * {2} + {3})", *slots), call.dtype(0))
    low.add(nd.Pointwise(low.label(node), (low.out(y),), tuple(accesses), b.done(result)))


def _moments(
    low: Lowering,
    node: Node,
    call: Call,
    rows: int,
    count: int,
    channel: str,
    groups: tuple[int, int],
    second: str,
) -> None:
    low.need_float(*node.inputs)
    if len(node.outputs) != 3 or len(node.inputs) not in (1, 3):
        raise NotApplicable("an unexpected number of inputs or outputs")
    names = [low.name(v) for v in node.inputs]
    outs = [low.out(v) for v in node.outputs]
    weights, affine = "", "v"
    if len(names) == 3:
        kinds = [c_type(call.dtype(k)) for k in (1, 2)]
        weights = f"const {kinds[0]} *__restrict__ weight, const {kinds[1]} *__restrict__ bias,"
        affine = "v * widen(weight[c]) + widen(bias[c])"
    fields = (
        ("XT", c_type(call.dtype(0))), ("WEIGHTS", weights), ("CHANNEL", channel),
        ("AFFINE", affine), ("SECOND", second),
    )  # fmt: skip
    params: tuple[nd.Param, ...] = (
        *(nd.In(n) for n in names), *(nd.Out(n) for n in outs), rows, count, *groups,
        float(np.float32(call.param.eps)),
    )  # fmt: skip
    low.add(
        nd.Custom(
            low.label(node), tuple(outs), "moments", fields, params, rows, per_block=1,
            stem="moments",
        )
    )  # fmt: skip


@lowers(LAYER_NORM, GENERAL_NORM)
def layer_norm(low: Lowering, node: Node, call: Call) -> None:
    """Over the last axes, with or without weight and bias; a block a row."""
    shape = low.shape(node.inputs[0])
    axes = layer_axes(call, shape) if node.op.name == "LayerNorm" else general_axes(call, shape)
    if axes[-1] != len(shape) - 1:
        raise NotApplicable("axes that are not the last ones")
    count = math.prod(shape[a] for a in axes)
    _moments(low, node, call, math.prod(shape) // count, count, "k", (1, 1), "scale")


@lowers(GROUP_NORM, INSTANCE_NORM)
def group_norm(low: Lowering, node: Node, call: Call) -> None:
    """Over groups of channels, with or without weight and bias; a block a group."""
    shape = low.shape(node.inputs[0])
    groups = group_count(call, shape)
    each = shape[1] // groups
    count = each * math.prod(shape[2:])
    channel = "row % channels * each + k / (count / each)"
    rows = shape[0] * groups
    _moments(low, node, call, rows, count, channel, (groups, each), "(float)variance")


@lowers(LRN)
def lrn(low: Lowering, node: Node, call: Call) -> None:
    """Local response normalisation across channels."""
    x = node.inputs[0]
    low.need_float(x)
    shape = low.shape(x)
    p = call.param
    name = low.name(x)
    y = low.out(node.outputs[0])
    items = math.prod(shape)
    params: tuple[nd.Param, ...] = (
        nd.In(name), nd.Out(y), items, shape[1], shape[2] * shape[3], int(p.n) // 2,
        float(p.k), float(p.alpha), float(p.beta),
    )  # fmt: skip
    fields = (("XT", c_type(call.dtype(0))),)
    low.add(nd.Custom(low.label(node), (y,), "lrn", fields, params, items, stem="lrn"))
