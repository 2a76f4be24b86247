"""Inverses of matrices, and cross products."""

from __future__ import annotations

import functools
import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.kernels import inverse as kernels
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.linalg import CROSS, MATRIX_INVERSE

_LARGEST = 256  # rows; beyond, blocks as in LAPACK are faster


@lowers(MATRIX_INVERSE)
def matrix_inverse(low: Lowering, node: Node, call: Call) -> None:
    """float32, up to 256 rows."""
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[0])
    need_positions(shape)
    n = shape[-1]
    if n > _LARGEST:
        raise NotApplicable(f"a matrix of {n} rows: the reference code's LAPACK is faster")
    batch = math.prod(shape[:-2])
    x = low.name(node.inputs[0])
    writes = (low.out(node.outputs[0]), low.check(batch))
    make = functools.partial(kernels.inverse, batch, n)
    low.add(nd.Loops(low.label(node), (x,), writes, "inverse", make))


@lowers(CROSS)
def cross(low: Lowering, node: Node, call: Call) -> None:
    """float32, along any axes, broadcast."""
    low.need_float32(*node.inputs, *node.outputs)
    out = low.shape(node.outputs[0])
    sides = []
    for value, axis in zip(node.inputs, (call.param.axisa, call.param.axisb), strict=True):
        shape, strides = low.shape(value), contiguous(low.shape(value))
        at = int(axis) % len(shape)
        name, parts = low.name(value), []
        for k in range(3):
            part = low.temp((*shape[:at], *shape[at + 1 :]) or (1,))
            rest = (*strides[:at], *strides[at + 1 :]) or (1,)
            low.add(nd.View(low.unique("part"), (name,), (part,), rest, k * strides[at]))
            parts.append(part)
        sides.append(parts)
    a, b = sides
    to = int(call.param.axisc) % len(out)
    expr = program("abcd", "p = mul a b", "q = mul c d", "r = sub p q")
    found = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        names = (a[i], b[j], a[j], b[i])
        one = low.temp(np.broadcast_shapes(*(low.shapes[n] for n in names)))
        low.add(nd.Eltwise(low.unique("cross"), names, (one,), expr))
        thin = low.temp((*out[:to], 1, *out[to + 1 :]))
        low.add(nd.Reshape(low.unique("cross"), (one,), (thin,)))
        found.append(thin)
    low.add(nd.Join(low.label(node), tuple(found), (low.out(node.outputs[0]),), to))
