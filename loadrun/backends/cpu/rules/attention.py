"""Multi-head attention, composed of products, scores and softmax."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.expr import Expr, Op, chain
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.product import multiply, view
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.attention import MULTI_HEAD_ATTN, adds_mask, attention_of

_ADD = Expr(2, (Op("add", (0, 1)),))


def _reshaped(low: Lowering, name: str, dims: Shape) -> str:
    if low.shapes[name] == dims:
        return name
    out = low.temp(dims)
    low.add(nd.Reshape(low.unique("rows"), (name,), (out,)))
    return out


def _applied(low: Lowering, expr: Expr, names: tuple[str, ...], dims: Shape) -> str:
    out = low.temp(dims)
    low.add(nd.Eltwise(low.unique("scores"), names, (out,), expr))
    return out


def _linear(
    low: Lowering, x: str, rows: int, matrix: Array | None, bias: Array | None, label: str
) -> str:
    """Rows of x times a matrix, plus a bias; x where there is no matrix."""
    if matrix is None:
        return x
    depth, size = matrix.shape
    given = _reshaped(low, x, (rows, depth))
    out = low.temp((rows, size))
    low.add(nd.Dense(label, (given,), (out,), matrix, bias))
    return out


def _heads(low: Lowering, x: str, sizes: Shape, *, shared: bool) -> str:
    """Heads (n, heads, s, d) of rows (n, s, heads, d); `shared`: every head is (n, s, d)."""
    _, heads, s, d = sizes
    if shared:
        return view(low, x, sizes, (s * d, 0, d, 1))
    return view(low, x, sizes, (s * heads * d, d, heads * d, 1))


@lowers(MULTI_HEAD_ATTN)
def attention(low: Lowering, node: Node, call: Call) -> None:
    """float32 without dropout; the projections are constant."""
    if call.param.training:
        raise NotApplicable("training mode")
    out, used, kept, reserve = node.outputs
    low.need_float32(*node.inputs, out, used)
    sizes = attention_of(call, 0)
    n, heads, sq, sk = sizes.batch, sizes.heads, sizes.queries, sizes.keys
    for value in (*node.inputs, out, used):
        need_positions(low.shape(value))
    need_positions(low.dims(reserve), sizes.weight_shape)
    flat = low.need_array(node.inputs[3], "the projections").reshape(-1)
    matrices, biases = sizes.unpack(flat)
    given = [low.name(v) for v in node.inputs[:3]]
    parts = []
    for i, (x, length) in enumerate(zip(given, (sq, sk, sk), strict=True)):
        rows = _linear(low, x, n * length, matrices[i], biases[i], low.unique("projection"))
        dims = (n, heads, length, sizes.depth(i))
        parts.append(_heads(low, rows, dims, shared=matrices[i] is None))
    scores = low.temp((n, heads, sq, sk))
    places = (n * heads, sq, sizes.depth(0), sk)
    multiply(low, (parts[0], parts[1]), places, scores, low.label(node), transposed=True)
    dims = (n, heads, sq, sk)
    scores = _applied(low, chain(("mul", float(np.float32(sizes.scale)))), (scores,), dims)
    if len(node.inputs) > 4 and adds_mask(call):
        mask = low.name(node.inputs[4])
        if len(low.shapes[mask]) != 2:
            mask = _reshaped(low, mask, dims)
        scores = _applied(low, _ADD, (scores, mask), dims)
    weights = low.out(used)
    low.add(nd.Softmax(low.label(node), (scores,), (weights,), n * heads * sq, sk, 1))
    mixed = low.temp((n, heads, sq, sizes.depth(2)))
    multiply(low, (weights, parts[2]), (n * heads, sq, sk, sizes.depth(2)), mixed, low.label(node))
    steps = contiguous(low.shapes[mixed])
    merged = view(
        low,
        mixed,
        (n, sq, heads, sizes.depth(2)),
        (steps[0], steps[2], steps[1], steps[3]),
    )
    y = _linear(low, merged, n * sq, matrices[3], biases[3], low.unique("projection"))
    y = _reshaped(low, y, sizes.out_shape)
    if sizes.reslink:
        y = _applied(low, _ADD, (y, given[0]), sizes.out_shape)
    low.same(out, y)
    low.keep_empty(kept)
    low.keep(reserve, np.zeros(math.prod(low.dims(reserve)), np.float32))
