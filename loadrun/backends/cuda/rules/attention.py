"""Multi-head attention and its gradient, of products, softmax and elementwise steps.

Heads are kept as (n, heads, s, depth). To a product such a tensor is an image whose channels lie in
blocks of `depth`, one block a head, so that projections write and read heads without copies.
Everything between inputs and outputs is float32, as in the reference code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import ACC, Builder, Expr, Ref, c_type
from loadrun.backends.cuda.flat import Piece, column_sums, joined, part, sums
from loadrun.backends.cuda.linked import fill
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.matrix import product
from loadrun.backends.cuda.rules.random import UNIFORM, Stream
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.attention import (
    MULTI_HEAD_ATTN,
    MULTI_HEAD_ATTN_BACKWARD,
    adds_mask,
    attention_of,
    mask_bytes,
)
from mgeserial.ops.heads import Attention

_SUMS = Expr((), ACC)
_KEPT = "({1} ? {0} * {2} : 0.f)"


@dataclass(slots=True)
class _Parts:
    """What both directions compute: names of float32 tensors.

    Attributes:
        weights: Softmaxed scores (n * heads, sq, sk).
        used: The same after dropout.
        heads: q, k, v as (n, heads, s, depth).
    """

    weights: str
    used: str
    heads: list[str]


@dataclass(slots=True)
class _Work:
    """One operator on its way: `first` is the number of input q."""

    low: Lowering
    node: Node
    call: Call
    sizes: Attention
    first: int

    # -- inputs
    def name(self, k: int) -> str:
        """The tensor of q, k, v (0 to 2), the flat weights (3) or the mask (4)."""
        return self.low.name(self.node.inputs[self.first + k])

    def slice(self, begin: int, count: int) -> str:
        """A part of the flat weights as a tensor of its own."""
        return part(self.low, self.node, self.node.inputs[self.first + 3], begin, count)

    def places(self) -> tuple[list[int], list[int]]:
        """Where the four matrices and the four biases begin in the flat weights."""
        matrices, biases, at = [], [], 0
        for one in self.sizes.maps:
            matrices.append(at)
            at += one.weights
        for one in self.sizes.maps:
            biases.append(at)
            at += one.biases
        return matrices, biases

    def matrix(self, which: int) -> str:
        """A weight matrix (depth, size)."""
        return self.slice(self.places()[0][which], self.sizes.maps[which].weights)

    def bias(self, which: int) -> str:
        """A bias (size,)."""
        return self.slice(self.places()[1][which], self.sizes.maps[which].biases)

    # -- steps
    def spread(self, access: nd.Access, shape: Shape) -> str:
        """A float32 copy of what an access reads."""
        low = self.low
        out = low.temp(shape)
        expr = Expr((), ("i", 0))
        low.add(nd.Pointwise(low.label(self.node), (out,), (access,), expr))
        return out

    def pointwise(self, code: str, shape: Shape, *inputs: nd.Access, number: float = 0.0) -> str:
        """An expression of elements, in which the argument behind the inputs is a number."""
        b, low = Builder(), self.low
        refs = [("i", k) for k in range(len(inputs))]
        result = b.op("float", code, *refs, b.scalar(number))
        out = low.temp(shape)
        low.add(nd.Pointwise(low.label(self.node), (out,), inputs, b.done(result)))
        return out

    def product(
        self, a: str, b: str, shape: Shape, size: tuple[int, int, int], *, scale: float = 1.0,
        turned: tuple[bool, bool] = (False, False),
    ) -> str:  # fmt: skip
        """Products of matrices of every head, times a factor."""
        low, expr = self.low, _SUMS
        if scale != 1.0:
            builder = Builder()
            scaled = builder.op("float", "({0} * {1})", ACC, builder.scalar(scale))
            expr = builder.done(scaled)
        out = low.temp(shape)
        batch = self.sizes.batch * self.sizes.heads
        product(low, low.label(self.node), (a, b), out, size, expr, batch=batch, turned=turned)
        return out

    def plain(self, name: str, shape: Shape, offset: int = 0) -> nd.Access:
        """A whole tensor, under a shape."""
        return nd.Access(name, nd.contiguous(shape), offset)

    # -- attention
    @property
    def scores(self) -> Shape:
        """(n * heads, sq, sk)."""
        return self.sizes.weight_shape

    def length(self, which: int) -> int:
        """Length of the sequence of q (0), k or v."""
        return self.sizes.keys if which else self.sizes.queries

    def heads_shape(self, which: int) -> Shape:
        """(n, heads, s, depth) of q, k or v."""
        sizes = self.sizes
        return sizes.batch, sizes.heads, self.length(which), sizes.depth(which)

    def split(self, which: int) -> str:
        """Heads of q, k or v: a projection, or a copy for each head."""
        sizes, low = self.sizes, self.low
        shape, one = self.heads_shape(which), sizes.maps[which]
        batch, _, s, depth = shape
        x, e = self.name(which), one.depth
        if not one.size:
            return self.spread(nd.Access(x, (s * e, 0, e, 1)), shape)
        extras: tuple[nd.Access, ...] = ()
        b = Builder()
        total = ACC
        if one.bias:
            extras = (nd.Access(self.bias(which), (0, depth, 0, 1)),)
            total = b.op("float", "({0} + {1})", ACC, ("i", 0))
        out = low.temp(shape)
        self.linear(
            x, self.matrix(which), out, (batch, s, e, one.size), b.done(total),
            x_strides=(s * e, 0, 1, 0, 0, e), w_strides=(0, 1, one.size),
            y_lanes=depth, roles=nd.Roles(1, 3, depth), extras=extras,
        )  # fmt: skip
        return out

    def linear(
        self, x: str, w: str, y: str, size: tuple[int, int, int, int], expr: Expr, *,
        x_strides: tuple[int, ...], w_strides: tuple[int, int, int], roles: nd.Roles,
        x_lanes: int = 1, y_lanes: int = 1, extras: tuple[nd.Access, ...] = (),
    ) -> None:  # fmt: skip
        """A linear map of (batch, s, depth) to (batch, s, size), of blocks of lanes where asked."""
        batch, s, depth, out = size
        one, low = (1, 1, 1), self.low
        row = (s * out, 0, 1, 0, 0, out)
        y_strides = (s * out, 0, s * y_lanes, 0, 0, y_lanes) if roles.lane >= 0 else row
        a, b, c, d, e, f = x_strides
        low.add(
            nd.Conv(
                low.label(self.node), (y,), x, w, batch, 1, out, depth, (1, 1, s), (1, 1, s), one,
                one, (0, 0, 0), one, (a, b, c, d, e, f), w_strides, y_strides, expr,
                x_lanes=x_lanes, y_lanes=y_lanes, roles=roles, extras=extras, label="matmul",
            )
        )  # fmt: skip

    def attend(self, kept: str | None) -> _Parts:
        """Heads, softmaxed scores, and these after dropout."""
        sizes, low = self.sizes, self.low
        heads = [self.split(k) for k in range(3)]
        size = (sizes.queries, sizes.depth(0), sizes.keys)
        scores = self.product(
            heads[0], heads[1], self.scores, size, scale=float(np.float32(sizes.scale)),
            turned=(False, True),
        )  # fmt: skip
        if adds_mask(self.call) and len(self.node.inputs) > (8 if self.first else 4):
            low.need_float(self.node.inputs[self.first + 4])
            mask = low.access(self.node.inputs[self.first + 4], self.scores)
            whole = self.plain(scores, self.scores)
            scores = self.pointwise("({0} + {1})", self.scores, whole, mask)
        weights = low.temp(self.scores)
        rows = math.prod(self.scores[:2])
        params: list[nd.Param] = [nd.In(scores), nd.Out(weights), rows, sizes.keys, 1]
        low.kernel(self.node, "softmax", params, rows, per_block=8, XT="f32")
        used = weights
        if kept is not None:
            used = self.drop(weights, self.scores, kept, 0, self.call.param.attn_prob)
        return _Parts(weights, used, heads)

    def drop(self, x: str, shape: Shape, kept: str, begin: int, prob: float) -> str:
        """x where the mask's bytes from `begin` on say so, scaled up; else 0."""
        both = (self.plain(x, shape), self.plain(kept, shape, begin))
        return self.pointwise(_KEPT, shape, *both, number=_gain(prob))

    def merged(self, x: str, which: int) -> str:
        """Heads (n, heads, s, depth) as (n, s, heads * depth)."""
        n, heads, s, depth = self.heads_shape(which)
        access = nd.Access(x, (heads * s * depth, depth, s * depth, 1))
        return self.spread(access, (n, s, heads, depth))

    def store(self, x: str, shape: Shape, value: Value) -> None:
        """An output of a float32 tensor."""
        low = self.low
        b = Builder()
        result = b.done(narrowed(b, ("i", 0), low.dtype(value)))
        access = self.plain(x, shape)
        low.add(nd.Pointwise(low.label(self.node), (low.out(value),), (access,), result))


def _gain(prob: float) -> float:
    return float(np.float32(1) / (np.float32(1) - np.float32(prob)))


def _begin(low: Lowering, node: Node, call: Call, first: int) -> _Work:
    for value in node.inputs[: first + 3]:
        low.shape(value)
    low.dims(node.inputs[first + 3])  # no elements where there are no projections
    low.need_float(*node.inputs[: first + 4])
    sizes = attention_of(call, first)
    if min(*sizes.weight_shape, *sizes.out_shape) == 0:
        raise NotApplicable("a tensor has no elements")
    return _Work(low, node, call, sizes, first)


def _is_used(low: Lowering, value: Value) -> bool:
    return bool(value.users) or value in low.graph.outputs


def _draw(work: _Work, kept: str) -> None:
    """What dropout keeps, first of the attention weights, then of the output."""
    low, call, sizes = work.low, work.call, work.sizes
    fill(low, work.node, kept, mask_bytes(call, sizes) // 4, 0x01010101)
    stream = Stream(low, work.node, call.param.seed)
    pairs = (
        (0, work.scores, call.param.attn_prob),
        (sizes.mask_parts[0], sizes.out_shape, call.param.out_prob),
    )
    for begin, shape, prob in pairs:
        code = f"{UNIFORM} kept[begin + at] = u >= dropped;"
        numbers: dict[str, int | float] = {"begin": begin, "dropped": float(np.float32(prob))}
        stream.draw(math.prod(shape), code, {"kept": nd.Out(kept)}, numbers)


@lowers(MULTI_HEAD_ATTN)
def multi_head_attention(low: Lowering, node: Node, call: Call) -> None:
    """All that the reference code does: masks, dropout, any projection left out, reslink."""
    work = _begin(low, node, call, 0)
    sizes, training = work.sizes, bool(call.param.training)
    if len(node.outputs) != 4:
        raise NotApplicable("an unexpected number of outputs")
    kept = None
    if training:
        kept = low.out(node.outputs[2])
        _draw(work, kept)
    else:
        low.keep(node.outputs[2], np.empty(0, np.uint8))
    parts = work.attend(kept)
    _finish(work, parts, kept)
    if _is_used(low, node.outputs[1]):
        work.store(parts.used, work.scores, node.outputs[1])
    if _is_used(low, node.outputs[3]):
        count = sizes.reserve(training=training)
        zero = low.constant(np.zeros(1, low.dtype(node.outputs[3]).storage), call.dtype(0))
        out = low.out(node.outputs[3])
        access = (nd.Access(zero, (0,)),)
        assert low.tensors[out].shape == (count,)
        low.add(nd.Pointwise(low.label(node), (out,), access, Expr((), ("i", 0))))


def _finish(work: _Work, parts: _Parts, kept: str | None) -> None:
    """Weights times v, the last projection, dropout and reslink."""
    low, node, sizes = work.low, work.node, work.sizes
    n, heads, s, depth = sizes.batch, sizes.heads, sizes.queries, sizes.depth(2)
    size = (s, sizes.keys, depth)
    found = work.product(parts.used, parts.heads[2], (n, heads, s, depth), size)
    last = sizes.maps[3]
    value = node.outputs[0]
    shape = sizes.out_shape if last.size else (n, s, heads, depth)
    b = Builder()
    extras: list[nd.Access] = []
    total: Ref = ACC
    if not last.size:
        extras.append(nd.Access(found, (heads * s * depth, depth, s * depth, 1)))
        total = ("i", 0)
    if last.size and last.bias:
        extras.append(nd.Access(work.bias(3), (0, 0, 1)))
        total = b.op("float", "({0} + {1})", total, ("i", len(extras) - 1))
    if kept is not None:
        extras.append(work.plain(kept, shape, sizes.mask_parts[0]))
        gain = b.scalar(_gain(work.call.param.out_prob))
        total = b.op("float", _KEPT, total, ("i", len(extras) - 1), gain)
    if sizes.reslink:
        extras.append(work.plain(work.name(0), shape))
        total = b.op("float", "({0} + {1})", total, ("i", len(extras) - 1))
    expr = b.done(narrowed(b, total, low.dtype(value)))
    if not last.size:
        dtype = low.dtype(value)
        y = low.temp(shape, dtype.storage.name, c_type(dtype))
        low.add(nd.Pointwise(low.label(node), (y,), tuple(extras), expr))
        low.alias(node, value, y)
        return
    y = low.out(value)
    work.linear(
        found, work.matrix(3), y, (n, s, last.depth, last.size), expr,
        x_strides=(heads * s * depth, 0, s * depth, 0, 0, depth), w_strides=(0, 1, last.size),
        roles=nd.Roles(2), x_lanes=depth, extras=tuple(extras),
    )  # fmt: skip


@lowers(MULTI_HEAD_ATTN_BACKWARD)
def multi_head_attention_backward(low: Lowering, node: Node, call: Call) -> None:
    """Gradients of q, k, v and all weights; scores are computed again, as in the reference code."""
    work = _begin(low, node, call, 1)
    sizes, training = work.sizes, bool(call.param.training)
    low.need_float(node.inputs[0])
    kept = low.name(node.inputs[-2]) if training else None
    parts = work.attend(kept)
    n, heads, sq, sk = sizes.batch, sizes.heads, sizes.queries, sizes.keys
    out = sizes.out_shape
    back = work.spread(work.plain(low.name(node.inputs[0]), out), out)
    if kept is not None:
        back = work.drop(back, out, kept, sizes.mask_parts[0], call.param.out_prob)
    pieces: list[Piece] = []
    d_heads = _to_heads(work, parts, back, pieces)
    depth, value = sizes.depth(0), sizes.depth(2)
    d_used = work.product(
        d_heads, parts.heads[2], work.scores, (sq, value, sk), turned=(False, True)
    )
    if kept is not None:
        d_used = work.drop(d_used, work.scores, kept, 0, call.param.attn_prob)
    d_scores = low.temp(work.scores)
    rows = math.prod(work.scores[:2])
    params: list[nd.Param] = [
        nd.In(parts.weights), nd.In(d_used), nd.Out(d_scores), rows, sk, 1,
    ]  # fmt: skip
    low.kernel(node, "softmax_back", params, rows, per_block=8, XT="f32", GT="f32")
    scale = float(np.float32(sizes.scale))
    scaled = work.pointwise("({0} * {1})", work.scores, work.plain(d_scores, work.scores),
                            number=scale)  # fmt: skip
    d_parts = (
        work.product(scaled, parts.heads[1], (n, heads, sq, depth), (sq, sk, depth)),
        work.product(
            scaled, parts.heads[0], (n, heads, sk, depth), (sk, sq, depth), turned=(True, False)
        ),
        work.product(
            parts.used, d_heads, (n, heads, sk, value), (sk, sq, value), turned=(True, False)
        ),
    )
    for which, d_part in enumerate(d_parts):
        _to_input(work, which, d_part, pieces)
    joined(low, node, node.outputs[3], pieces)
    for unused in node.outputs[4:]:
        low.keep(unused, np.empty(0, low.dtype(unused).storage))


def _gradients(work: _Work, which: int, x: str, diff: str, rows: int, pieces: list[Piece]) -> None:
    """Gradients of the weights of y = x W + b, for x (rows, depth) and the gradient of y."""
    one, low = work.sizes.maps[which], work.low
    matrices, biases = work.places()
    by_weight = low.temp((one.depth, one.size))
    size = (one.depth, rows, one.size)
    product(low, low.label(work.node), (x, diff), by_weight, size, _SUMS, turned=(True, False))
    pieces.append((matrices[which], by_weight, one.weights))
    if one.bias:
        pieces.append((biases[which], column_sums(low, work.node, diff, rows, one.size), one.size))


def _to_heads(work: _Work, parts: _Parts, back: str, pieces: list[Piece]) -> str:
    """The gradient of the heads (n, heads, sq, depth) of that of the output."""
    low, sizes = work.low, work.sizes
    n, heads, s, depth = sizes.batch, sizes.heads, sizes.queries, sizes.depth(2)
    shape, last = (n, heads, s, depth), sizes.maps[3]
    if not last.size:
        access = nd.Access(back, (s * heads * depth, depth, heads * depth, 1))
        return work.spread(access, shape)
    found = work.product(parts.used, parts.heads[2], shape, (s, sizes.keys, depth))
    access = nd.Access(found, (heads * s * depth, depth, s * depth, 1))
    merged = work.spread(access, (n, s, heads, depth))
    _gradients(work, 3, merged, back, n * s, pieces)
    out = low.temp(shape)
    work.linear(
        back, work.matrix(3), out, (n, s, last.size, last.depth), _SUMS,
        x_strides=(s * last.size, 0, 1, 0, 0, last.size), w_strides=(0, last.size, 1),
        roles=nd.Roles(1, 3, depth), y_lanes=depth,
    )  # fmt: skip
    return out


def _to_input(work: _Work, which: int, d_part: str, pieces: list[Piece]) -> None:
    """The gradient of q, k or v of that of its heads, and those of its projection."""
    low, node, sizes = work.low, work.node, work.sizes
    n, heads, s, depth = work.heads_shape(which)
    one, value = sizes.maps[which], node.outputs[which]
    shape = (n, s, one.depth)
    if one.size:
        merged = work.merged(d_part, which)
        _gradients(work, which, work.name(which), merged, n * s, pieces)
        found = low.temp((n * s, one.depth))
        size = (n * s, one.size, one.depth)
        product(
            low, low.label(node), (merged, work.matrix(which)), found, size, _SUMS,
            turned=(False, True),
        )  # fmt: skip
    else:
        found = sums(low, node, d_part, (n, s * depth), heads, (heads * s * depth, 1), s * depth)
    if which == 0 and sizes.reslink:
        diff = work.plain(low.name(node.inputs[0]), shape)
        found = work.pointwise("({0} + {1})", shape, work.plain(found, shape), diff)
    work.store(found, shape, value)
