"""Statistics of a run in normalisations, and the gradients of softmax and of normalisations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import Builder, Ref, c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.activation import SOFTMAX_BACKWARD
from mgeserial.ops.norm import (
    BATCH_NORM,
    GENERAL_NORM,
    batch_axes,
    general_axes,
    group_count,
    layer_axes,
)
from mgeserial.ops.normgrad import (
    BATCH_NORM_BACKWARD,
    GENERAL_NORM_BACKWARD,
    GROUP_NORM_BACKWARD,
    INSTANCE_NORM_BACKWARD,
    LAYER_NORM_BACKWARD,
    LRN_BACKWARD,
)

_STORED = "widen(second[row])"
_FROM_VARIANCE = "(float)(1.0 / sqrt((double)widen(second[row]) + (double)eps))"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the elements of a row of statistics lie, and those of a channel of weights.

    Element k of a row is at `row // split * far + row % split * near + k // n1 * r0 + k % n1 * r1`,
    element j of a channel at `j // m1 * q0 + channel * q1 + j % m1`.

    Attributes:
        rows, count: Rows and elements of each.
        place: (split, far, near, n1, r0, r1).
        channels: Channels of weights.
        walk: (m1, q0, q1).
        channel: C code of the channel of element k of `row`.
        row: C code of the row of element j of channel `c`.
        groups, each, plane: Numbers that the code reads.
    """

    rows: int
    count: int
    place: tuple[int, int, int, int, int, int]
    channels: int
    walk: tuple[int, int, int]
    channel: str = "row"
    row: str = "c"
    groups: int = 1
    each: int = 1
    plane: int = 1

    @property
    def of_channel(self) -> int:
        """Elements of a channel."""
        return self.rows * self.count // self.channels


def _middle(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int]:
    """Sizes before, of and after axes next to each other."""
    first, last = axes[0], axes[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def _batch_rows(call: Call) -> _Rows:
    _, gone = batch_axes(call)
    kept = tuple(k for k in range(4) if k not in gone)
    outer, size, inner = _middle(call.shape(0), kept)
    place = (size, 0, inner, inner, size * inner, 1)
    return _Rows(size, outer * inner, place, size, (inner, size * inner, inner))


def _axes_rows(shape: Shape, axes: tuple[int, ...]) -> _Rows:
    outer, size, inner = _middle(shape, axes)
    place = (inner, size * inner, 1, 1, inner, 0)
    return _Rows(
        outer * inner, size, place, size, (inner, size * inner, inner), channel="k", row="j"
    )


def _group_rows(call: Call, shape: Shape) -> _Rows:
    groups = group_count(call, shape)
    each, plane = shape[1] // groups, math.prod(shape[2:])
    count = each * plane
    rows = shape[0] * groups
    return _Rows(
        rows, count, (rows, 0, count, count, 0, 1), shape[1], (plane, shape[1] * plane, plane),
        "row % groups * each + k / plane", "j / n1 * groups + c / each", groups, each, plane,
    )  # fmt: skip


def _stats(low: Lowering, node: Node, rows: _Rows) -> tuple[str, str]:
    """Mean and biased variance of rows, float32."""
    x = node.inputs[0]
    names = low.temp((rows.rows,)), low.temp((rows.rows,))
    params: list[nd.Param] = [
        nd.In(low.name(x)), *(nd.Out(n) for n in names), rows.rows, rows.count, *rows.place
    ]  # fmt: skip
    low.kernel(node, "stats", params, rows.rows, per_block=1, XT=c_type(low.dtype(x)))
    return names


def _inverse_std(b: Builder, variance: Ref, eps: float) -> Ref:
    return b.op("float", f"(float)(1.0 / sqrt((double){{0}} + {eps!r}))", variance)


def _used(low: Lowering, value: Value) -> bool:
    return bool(value.users) or value in low.graph.outputs


@lowers(BATCH_NORM)
def batch_norm(low: Lowering, node: Node, call: Call) -> None:
    """Training, and statistics that are computed at run time."""
    low.need_float(*node.inputs)
    training = call.param.fwd_mode == P.BNFwdMode.TRAINING
    outputs = len(node.outputs)
    if outputs not in (3, 4, 5, 6) or (outputs > 4 and len(node.inputs) != 5):
        raise NotApplicable("an unexpected number of outputs")
    for value in (*node.inputs, node.outputs[-1]):
        low.shape(value)
    rows = _batch_rows(call)
    eps = float(call.param.epsilon)
    if training:
        mean, variance = _stats(low, node, rows)
    else:
        mean, variance = (low.name(v) for v in node.inputs[3:])
    _batch_statistics(low, node, call, rows, (mean, variance))
    shape, (stat, _) = low.shape(node.inputs[0]), batch_axes(call)
    strides = tuple(0 if n == 1 else s for n, s in zip(stat, nd.contiguous(stat), strict=True))
    accesses = [low.access(node.inputs[0], shape)]
    names = (mean, variance, low.name(node.inputs[1]), low.name(node.inputs[2]))
    accesses += [nd.Access(name, strides) for name in names]
    b = Builder()
    x, centre, spread, scale, bias = (("i", k) for k in range(5))
    gain = b.op("float", "({0} * {1})", _inverse_std(b, spread, eps), scale)
    y = b.op("float", "(({0} - {1}) * {2} + {3})", x, centre, gain, bias)
    result = narrowed(b, y, call.dtype(0))

    out = (low.out(node.outputs[-1]),)
    low.add(nd.Pointwise(low.label(node), out, tuple(accesses), b.done(result)))


def _batch_statistics(
    low: Lowering, node: Node, call: Call, rows: _Rows, names: tuple[str, str]
) -> None:
    """The outputs before y: running statistics, mean, 1 / std, the empty reserve."""
    kind, training = call.dtype(1), call.param.fwd_mode == P.BNFwdMode.TRAINING
    count = len(node.outputs)
    values = list(node.outputs[:-1])
    if count in (4, 6):
        reserve = values.pop()
        low.keep(reserve, np.empty(low.dims(reserve), np.uint8))
    mean, variance = names
    factor = np.float32(call.param.avg_factor)
    with np.errstate(all="ignore"):
        unbiased = float(np.float32(rows.count) / np.float32(rows.count - 1))
    jobs: list[tuple[tuple[str, ...], str]] = []
    if count in (5, 6):
        olds = [low.name(v) for v in node.inputs[3:]]
        mixed = "({2} * {0} + {3} * {1})"
        jobs += [((olds[0], mean), mixed if training else "{0}")]
        jobs += [((olds[1], variance), mixed.replace("{1}", "({1} * {4})") if training else "{0}")]
    jobs += [((mean,), "{0}"), ((variance,), "std")]
    for value, (sources, code) in zip(values, jobs, strict=True):
        if not _used(low, value):
            continue
        b = Builder()
        slots: list[Ref] = [("i", k) for k in range(len(sources))]
        if code == "std":
            result = _inverse_std(b, slots[0], float(call.param.epsilon))
        elif code == "{0}":
            result = slots[0]
        else:
            weights = (float(1 - factor), float(factor), unbiased)
            result = b.op("float", code, *slots, *(b.scalar(w) for w in weights))
        accesses = tuple(nd.Access(n, nd.contiguous(low.shape(value))) for n in sources)
        done = b.done(narrowed(b, result, kind))
        low.add(nd.Pointwise(low.label(node), (low.out(value),), accesses, done))


@lowers(GENERAL_NORM)
def general_norm(low: Lowering, node: Node, call: Call) -> None:
    """Over axes that are not the last ones."""
    low.need_float(*node.inputs)
    shape = low.shape(node.inputs[0])
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    axes = general_axes(call, shape)
    rows = _axes_rows(shape, axes)
    mean, variance = _stats(low, node, rows)
    plain = nd.contiguous(tuple(1 if k in axes else n for k, n in enumerate(shape)))
    along = tuple(
        0 if k in axes or n == 1 else s for k, (n, s) in enumerate(zip(shape, plain, strict=True))
    )
    weights = nd.contiguous(tuple(n if k in axes else 1 for k, n in enumerate(shape)))
    each = tuple(
        s if k in axes and n > 1 else 0 for k, (n, s) in enumerate(zip(shape, weights, strict=True))
    )
    accesses = [
        low.access(node.inputs[0], shape),
        nd.Access(mean, along),
        nd.Access(variance, along),
    ]
    accesses += [nd.Access(low.name(v), each) for v in node.inputs[1:]]
    b = Builder()
    eps = float(call.param.eps)
    y = b.op("float", "(({0} - {1}) * {2})", ("i", 0), ("i", 1), _inverse_std(b, ("i", 2), eps))
    if len(node.inputs) == 3:
        y = b.op("float", "({0} * {1} + {2})", y, ("i", 3), ("i", 4))
    out = (low.out(node.outputs[0]),)
    result = narrowed(b, y, call.dtype(0))
    low.add(nd.Pointwise(low.label(node), out, tuple(accesses), b.done(result)))
    for value, name in zip(node.outputs[1:], (mean, variance), strict=True):
        b = Builder()
        found: Ref = ("i", 0) if name == mean else _inverse_std(b, ("i", 0), eps)
        access = (nd.Access(name, nd.contiguous(low.shape(value))),)
        low.add(nd.Pointwise(low.label(node), (low.out(value),), access, b.done(found)))


# -- gradients


@lowers(SOFTMAX_BACKWARD)
def softmax_backward(low: Lowering, node: Node, call: Call) -> None:
    """Along any axis, a warp a row."""
    y, dy = node.inputs
    low.need_float(y, dy)
    shape = low.shape(y)
    axis = int(call.param.axis) % len(shape)
    rows = math.prod(shape) // shape[axis]
    params: list[nd.Param] = [
        nd.In(low.name(y)), nd.In(low.name(dy)), nd.Out(low.out(node.outputs[0])), rows,
        shape[axis], math.prod(shape[axis + 1 :]),
    ]  # fmt: skip
    kinds: dict[str, Any] = {"XT": c_type(call.dtype(0)), "GT": c_type(call.dtype(1))}
    low.kernel(node, "softmax_back", params, rows, per_block=8, **kinds)


def _backward(
    low: Lowering,
    node: Node,
    rows: _Rows,
    inputs: tuple[Value, Value, Value | None, Value, Value],
    outputs: tuple[Value, Value | None, Value | None],
    factor: str,
    eps: float,
) -> None:
    """The kernels of a normalisation's gradients.

    Args:
        low: The walk.
        node: The operator.
        rows: Where elements lie.
        inputs: Gradient, input, weight or None, mean, 1 / std (or variance).
        outputs: Gradients of the input, the weight and the bias.
        factor: C code of 1 / std of `row`.
        eps: What the code adds to a variance.
    """
    dy, x, weight, mean, second = inputs
    given = [v for v in inputs if v is not None]
    low.need_float(*given)
    for value in (*given, *(v for v in outputs if v is not None)):
        low.shape(value)
    kinds: dict[str, Any] = {
        "GT": c_type(low.dtype(dy)), "XT": c_type(low.dtype(x)), "MT": c_type(low.dtype(mean)),
        "ST": c_type(low.dtype(second)), "FACTOR": factor,
    }  # fmt: skip
    names = [low.name(v) for v in given]
    head: list[nd.Param] = [nd.In(n) for n in names]
    scaled, declared = "widen(dy[at])", ""
    if weight is not None:
        declared = f"const {c_type(low.dtype(weight))} *__restrict__ weight,"
        scaled = "widen(dy[at]) * widen(weight[c])"
    dx, dweight, dbias = outputs
    if dweight is not None and dbias is not None:
        tail: list[nd.Param] = [
            nd.Out(low.out(dweight)), nd.Out(low.out(dbias)), rows.channels, rows.of_channel,
            *rows.walk, rows.groups, rows.each, eps,
        ]  # fmt: skip
        low.kernel(
            node, "norm_back_weight", [*head[:2], *head[-2:], *tail], rows.channels, per_block=1,
            WT=c_type(low.dtype(dweight)), ROW=rows.row, **kinds,
        )  # fmt: skip
    tail = [
        nd.Out(low.out(dx)), rows.rows, rows.count, *rows.place, rows.groups, rows.each,
        rows.plane, eps,
    ]  # fmt: skip
    low.kernel(
        node, "norm_back", [*head, *tail], rows.rows, per_block=1, WEIGHT=declared,
        SCALED=scaled, CHANNEL=rows.channel, **kinds,
    )  # fmt: skip


@lowers(BATCH_NORM_BACKWARD)
def batch_norm_backward(low: Lowering, node: Node, call: Call) -> None:
    """Of a step in training mode."""
    x, dy, mean, rstd, scale = node.inputs[:5]
    d_scale, d_bias, dx = node.outputs
    inputs = (dy, x, scale, mean, rstd)
    _backward(low, node, _batch_rows(call), inputs, (dx, d_scale, d_bias), _STORED, 0.0)


def _norm_backward(low: Lowering, node: Node, rows: _Rows, factor: str, eps: float) -> None:
    dy, x, *weight, mean, second = node.inputs
    if len(node.outputs) != (3 if weight else 1) and len(node.outputs) != 1:
        raise NotApplicable("an unexpected number of outputs")
    more = node.outputs[1:] if len(node.outputs) == 3 and weight else (None, None)
    inputs = (dy, x, weight[0] if weight else None, mean, second)
    _backward(low, node, rows, inputs, (node.outputs[0], *more), factor, eps)


@lowers(LAYER_NORM_BACKWARD, GENERAL_NORM_BACKWARD)
def layer_norm_backward(low: Lowering, node: Node, call: Call) -> None:
    """Over the last axes, or any that are next to each other."""
    shape = low.shape(node.inputs[1])
    layer = node.op.name.startswith("Layer")
    axes = layer_axes(call, shape) if layer else general_axes(call, shape)
    _norm_backward(low, node, _axes_rows(shape, axes), _STORED, 0.0)


@lowers(GROUP_NORM_BACKWARD, INSTANCE_NORM_BACKWARD)
def group_norm_backward(low: Lowering, node: Node, call: Call) -> None:
    """Over groups of channels."""
    rows = _group_rows(call, low.shape(node.inputs[1]))
    _norm_backward(low, node, rows, _FROM_VARIANCE, float(np.float32(call.param.eps)))


@lowers(LRN_BACKWARD)
def lrn_backward(low: Lowering, node: Node, call: Call) -> None:
    """Local response normalisation across channels, in two steps."""
    low.need_float(*node.inputs)
    shape = low.shape(node.inputs[0])
    p, items = call.param, math.prod(shape)
    x, y, dy = (low.name(v) for v in node.inputs)
    base, part = low.temp(shape), low.temp(shape)
    kinds: dict[str, Any] = {n: c_type(call.dtype(k)) for k, n in enumerate(("XT", "YT", "GT"))}
    sizes = (items, shape[1], shape[2] * shape[3], int(p.n) // 2)
    alpha, beta = np.float32(p.alpha), np.float32(p.beta)
    first: list[nd.Param] = [nd.In(x), nd.In(y), nd.In(dy), nd.Out(base), nd.Out(part)]
    low.kernel(node, "lrn_back_part", [*first, *sizes, float(p.k), float(alpha)], items, **kinds)
    second: list[nd.Param] = [
        nd.In(x), nd.In(dy), nd.In(base), nd.In(part), nd.Out(low.out(node.outputs[0]))
    ]  # fmt: skip
    slope = float(np.float32(2) * alpha * beta)
    del kinds["YT"]
    low.kernel(node, "lrn_back", [*second, *sizes, slope, float(beta)], items, **kinds)
