"""Elementwise float32 operators."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.expr import Expr, Op, chain
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.elemwise import ELEMWISE, POW_C
from mgeserial.ops.layouts import TensorLayout
from mgeserial.ops.typecvt import TYPE_CVT

_M = P.ElemwiseMode
_UNARY = {
    _M.RELU: "relu",
    _M.ABS: "abs",
    _M.CEIL: "ceil",
    _M.COS: "cos",
    _M.EXP: "exp",
    _M.EXPM1: "expm1",
    _M.FLOOR: "floor",
    _M.LOG: "log",
    _M.LOG1P: "log1p",
    _M.NEGATE: "neg",
    _M.SIGMOID: "sigmoid",
    _M.SIN: "sin",
    _M.TANH: "tanh",
    _M.FAST_TANH: "fast_tanh",
    _M.ROUND: "round",
    _M.ERF: "erf",
    _M.H_SWISH: "hswish",
    _M.SILU: "silu",
    _M.GELU: "gelu",
    _M.SOFTPLUS: "softplus",
    _M.HSIGMOID: "hsigmoid",
    _M.LOGSIGMOID: "logsigmoid",
    _M.SQRT: "sqrt",
    _M.SQUARE: "square",
    _M.SIGN: "sign",
}
_BINARY = {
    _M.ADD: "add",
    _M.SUB: "sub",
    _M.MUL: "mul",
    _M.TRUE_DIV: "div",
    _M.FLOOR_DIV: "floor_div",
    _M.MAX_: "max",
    _M.MIN_: "min",
    _M.POW: "pow",
    _M.LOG_SUM_EXP: "log_sum_exp",
    _M.LT: "lt",
    _M.LEQ: "leq",
    _M.EQ: "eq",
    _M.SWITCH_GT0: "switch_gt0",
    _M.ABS_GRAD: "abs_grad",
    _M.PRELU: "leaky",
}
_TERNARY = {
    _M.FUSE_MUL_ADD3: "fma",
    _M.COND_LEQ_MOV: "cond_leq_mov",
    _M.COND_LT_MOV: "cond_lt_mov",
    _M.CLIP: "clip",
}
MODES: dict[P.ElemwiseMode, Expr] = {
    **{m: chain((k,)) for m, k in _UNARY.items()},
    **{m: Expr(2, (Op(k, (0, 1)),)) for m, k in _BINARY.items()},
    **{m: Expr(3, (Op(k, (0, 1, 2)),)) for m, k in _TERNARY.items()},
    _M.RELU6: chain(("clip", 0.0, 6.0)),
    _M.FUSE_ADD_RELU: Expr(2, (Op("add", (0, 1)), Op("relu", (2,)))),
    _M.FUSE_ADD_SIGMOID: Expr(2, (Op("add", (0, 1)), Op("sigmoid", (2,)))),
    _M.FUSE_ADD_TANH: Expr(2, (Op("add", (0, 1)), Op("tanh", (2,)))),
    _M.FUSE_ADD_H_SWISH: Expr(2, (Op("add", (0, 1)), Op("hswish", (2,)))),
    _M.FUSE_MUL_ADD4: Expr(4, (Op("mul", (0, 1)), Op("mul", (2, 3)), Op("add", (4, 5)))),
}


def _add(low: Lowering, node: Node, expr: Expr) -> None:
    """Add the node, on NCHW where its tensors are packed images that exist as NCHW."""
    layout = _layout(low, node)
    if layout is None:
        names = tuple(low.name(v) for v in node.inputs)
        y = low.out(node.outputs[0])
    else:
        names = tuple(_as_nchw(low, node, k, layout) for k in range(len(node.inputs)))
        y = low.out_image(node.outputs[0], layout)
    low.add(nd.Eltwise(low.label(node), names, (y,), expr))


def _layout(low: Lowering, node: Node) -> TensorLayout | None:
    """The packed layout that all full inputs share, if every other input is a constant."""
    shape = low.shape(node.outputs[0])
    found: set[TensorLayout] = set()
    for value in node.inputs:
        layout = low.packed(value)
        if layout is not None and low.shape(value) == shape:
            found.add(layout)
        elif low.array(value) is None:
            return None
    return found.pop() if len(found) == 1 else None


def _as_nchw(low: Lowering, node: Node, index: int, layout: TensorLayout) -> str:
    value = node.inputs[index]
    if low.packed(value) is not None:
        return low.image(value, layout)
    array = low.need_array(value, "an operand")
    if array.size == 1:
        return low.constant(np.ascontiguousarray(array.reshape(1)))
    full = np.broadcast_to(array, low.shape(node.outputs[0]))
    logical = layout.to_nchw(full)
    # Keep what repeats along images and pixels as one value per channel.
    if array.size == np.prod(
        [n for a, n in zip(layout.axes, full.shape, strict=True) if a in "Cc"]
    ):
        logical = logical[:1, :, :1, :1]
    return low.constant(np.ascontiguousarray(logical))


@lowers(ELEMWISE)
def elemwise(low: Lowering, node: Node, call: Call) -> None:
    """float32, most modes, numpy broadcasting."""
    low.need_float32(*node.inputs, *node.outputs)
    expr = MODES.get(call.param.mode)
    if expr is None or expr.inputs != len(node.inputs):
        raise NotApplicable(f"mode {call.param.mode}")
    sizes = [math.prod(low.shape(value)) for value in node.inputs]
    if call.param.mode in (_M.MAX_, _M.MIN_) and sizes[0] == 1 < sizes[1]:
        # MegEngine takes a single element as the second operand, which decides about NaN.
        expr = Expr(2, (Op(expr.ops[0].kind, (1, 0)),))
    _add(low, node, expr)


@lowers(POW_C)
def pow_c(low: Lowering, node: Node, call: Call) -> None:
    """float32 x to a constant power 1, 2 or 0.5."""
    low.need_float32(*node.inputs, *node.outputs)
    kinds = {1.0: "copy", 2.0: "square", 0.5: "sqrt"}
    kind = kinds.get(float(call.param.exp))
    if kind is None:
        raise NotApplicable(f"power {call.param.exp}")
    _add(low, node, chain((kind,)))


@lowers(TYPE_CVT)
def same_type(low: Lowering, node: Node, call: Call) -> None:
    """A conversion to the type that the input has, or between float16 and float32."""
    if low.half and low.is_float32(*node.inputs, *node.outputs):
        low.shape(node.outputs[0])
        low.same(node.outputs[0], low.name(node.inputs[0]))
        return
    if call.dtype(0) != call.output_types[0].dtype:
        raise NotApplicable(f"from {call.dtype(0)} to {call.output_types[0].dtype}")
    low.same(node.outputs[0], low.name(node.inputs[0]))
