"""Normalisations over groups, instances, any axes, and near channels."""

from __future__ import annotations

import functools
import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.expr import Expr, Op
from loadrun.backends.cpu.kernels import moments as kernels
from loadrun.backends.cpu.kernels.moments import Normalising
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.norm import GENERAL_NORM, GROUP_NORM, INSTANCE_NORM, LRN, group_count
from mgeserial.ops.normgrad import LRN_BACKWARD


def _add(low: Lowering, node: Node, how: Normalising) -> None:
    low.need_float32(*node.inputs, *node.outputs)
    if len(node.outputs) != 3 or len(node.inputs) not in (1, 3):
        raise NotApplicable("an unexpected number of inputs or outputs")
    for value in node.inputs:
        need_positions(low.shape(value))
    names = tuple(low.name(v) for v in node.inputs)
    outs = tuple(low.out(v) for v in node.outputs)
    make = functools.partial(kernels.normalise, how)
    low.add(nd.Loops(low.label(node), names, outs, "normalise", make))


@lowers(GROUP_NORM, INSTANCE_NORM)
def group_norm(low: Lowering, node: Node, call: Call) -> None:
    """float32 over groups of channels, with or without weight and bias."""
    shape = low.shape(node.inputs[0])
    groups = group_count(call, shape)
    pixels = math.prod(shape[2:])
    how = Normalising(
        shape[0] * groups,
        shape[1] // groups * pixels,
        1,
        float(call.param.eps),
        "channel" if len(node.inputs) == 3 else "none",
        pixels,
        groups,
        deviation=False,
    )
    _add(low, node, how)


@lowers(GENERAL_NORM)
def general_norm(low: Lowering, node: Node, call: Call) -> None:
    """float32 over axes next to each other, with or without weight and bias."""
    shape, p = low.shape(node.inputs[0]), call.param
    start, end = int(p.axis_start), int(p.axis_end)
    sizes = (math.prod(shape[:start]), math.prod(shape[start:end]), math.prod(shape[end:]))
    weights = "element" if len(node.inputs) == 3 else "none"
    _add(low, node, Normalising(*sizes, float(p.eps), weights))


def _near(low: Lowering, node: Node, call: Call, name: str, *, squares: bool) -> str:
    """Sums over near channels: of squares with LRN's k and alpha, or plain ones."""
    shape = low.shape(node.inputs[0])
    need_positions(shape)
    n, c, h, w = shape
    p = call.param
    out = low.temp(shape)
    affine = (float(p.k), float(p.alpha)) if squares else (0.0, 1.0)
    make = functools.partial(kernels.near_sums, (n, c, h * w), int(p.n), affine, squares=squares)
    low.add(nd.Loops(low.label(node), (name,), (out,), "near channels", make))
    return out


@lowers(LRN)
def lrn(low: Lowering, node: Node, call: Call) -> None:
    """float32 images."""
    low.need_float32(node.inputs[0], node.outputs[0])
    x = low.name(node.inputs[0])
    base = _near(low, node, call, x, squares=True)
    power = low.constant(np.full(1, -call.param.beta, np.float32))
    y = low.out(node.outputs[0])
    expr = Expr(3, (Op("pow", (1, 2)), Op("mul", (0, 3))))
    low.add(nd.Eltwise(low.label(node), (x, base, power), (y,), expr))


@lowers(LRN_BACKWARD)
def lrn_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32 images."""
    low.need_float32(*node.inputs, *node.outputs)
    x, y, diff = (low.name(v) for v in node.inputs)
    base = _near(low, node, call, x, squares=True)
    share = low.temp(low.shapes[x])
    part = program("dyb", "p = mul d y", "r = div p b")
    low.add(nd.Eltwise(low.unique("share"), (diff, y, base), (share,), part))
    near = _near(low, node, call, share, squares=False)
    alpha, beta = np.float32(call.param.alpha), np.float32(call.param.beta)
    power = low.constant(np.full(1, -beta, np.float32))
    expr = program(
        "dbpxs", "w = pow b p", "f = mul d w", f"a = mul x {float(2 * alpha * beta)!r}",
        "g = mul a s", "r = sub f g",
    )  # fmt: skip
    out = low.out(node.outputs[0])
    low.add(nd.Eltwise(low.label(node), (diff, base, power, x, near), (out,), expr))
