"""Operators composed of elementwise programs and reductions: gradients, statistics of the run.

`Composer` writes such compositions down one line an operation; elementwise neighbours are joined
afterwards, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.reduce import together
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.activation import SOFTMAX_BACKWARD
from mgeserial.ops.fakequant import FAKE_QUANT_BACKWARD, LSQ_BACKWARD, TQT_BACKWARD
from mgeserial.ops.norm import BATCH_NORM, batch_axes, general_axes, group_count, layer_axes
from mgeserial.ops.normgrad import (
    BATCH_NORM_BACKWARD,
    GENERAL_NORM_BACKWARD,
    GROUP_NORM_BACKWARD,
    INSTANCE_NORM_BACKWARD,
    LAYER_NORM_BACKWARD,
)


@dataclass(frozen=True, slots=True)
class Composer:
    """Adds nodes for one operator; tensors are float32 names of the network."""

    low: Lowering
    node: Node

    def take(self, value: Value) -> str:
        """An input."""
        self.low.shape(value)
        return self.low.name(value)

    def map(self, names: Sequence[str], *lines: str, to: Value | None = None) -> str:
        """A program (see `elements.program`) of inputs a, b, c ...; broadcasts like numpy.

        With `to`, the result is that output, which must have its shape.
        """
        low = self.low
        shape = np.broadcast_shapes(*(low.shapes[n] for n in names))
        if to is not None:
            assert shape == low.shape(to)
            out = low.out(to)
        else:
            out = low.temp(shape)
        letters = "abcdefgh"[: len(names)]
        low.add(nd.Eltwise(low.label(self.node), tuple(names), (out,), program(letters, *lines)))
        return out

    def total(self, name: str, axes: Sequence[int], mode: str = "sum") -> str:
        """Sum or mean over axes, which stay with size 1."""
        low = self.low
        shape = low.shapes[name]
        kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
        gathered, (outer, n, inner) = together(low, name, sorted(axes))
        flat = low.temp((outer, inner))
        label = low.label(self.node)
        low.add(nd.Reduce(label, (gathered,), (flat,), mode, outer, n, inner))
        return self.shaped(flat, kept)

    def shaped(self, name: str, shape: Shape, to: Value | None = None) -> str:
        """The same elements in another shape."""
        low = self.low
        out = low.temp(shape) if to is None else low.out(to)
        low.add(nd.Reshape(low.label(self.node), (name,), (out,)))
        return out


@lowers(BATCH_NORM)
def batch_norm(low: Lowering, node: Node, call: Call) -> None:
    """float32 with statistics of the run: given ones, or in training those of the input."""
    c = Composer(low, node)
    *others, y = node.outputs
    if len(others) in (3, 5):
        others.pop()  # the reserve has no elements
    low.need_float32(*node.inputs, *others, y)
    training = call.param.fwd_mode == P.BNFwdMode.TRAINING
    _, axes = batch_axes(call)
    count = math.prod(call.shape(0)[k] for k in axes)
    if training and len(others) == 4 and (count < 2 or len(node.inputs) != 5):
        raise NotApplicable("a step over single elements, or without statistics before it")
    x, scale, bias, *running = (c.take(v) for v in node.inputs)
    if training:
        mean = c.total(x, axes, "mean")
        variance = c.total(c.map((x, mean), "d = sub a b", "r = mul d d"), axes, "mean")
    else:
        mean, variance = running
    epsilon = f"{float(call.param.epsilon)!r}"
    rstd_lines = (f"v = add a {epsilon}", "s = sqrt v", "r = div 1.0 s")
    rstd = c.map((variance,), *rstd_lines)
    if len(others) == 4:
        factor = float(np.float32(call.param.avg_factor)) if training else 0.0
        _running(c, others[:2], running, (mean, variance), (factor, count))
    for value, name in zip(others[-2:], (mean, rstd), strict=True):
        c.map((name,), "r = copy a", to=value)
    lines = ("n = sub a b", "g = mul c d", "s = mul n g", "r = add s e")
    c.map((x, mean, rstd, scale, bias), *lines, to=y)


def _running(
    c: Composer,
    outs: Sequence[Value],
    old: Sequence[str],
    new: tuple[str, str],
    step: tuple[float, int],
) -> None:
    """Running statistics after a step, of the variance the unbiased one; (factor, elements)."""
    factor, count = step
    unbiased = float(np.float32(count) / np.float32(max(count - 1, 1)))
    for value, before, name, times in zip(outs, old, new, (1.0, unbiased), strict=True):
        lines = (f"u = mul b {times!r}", f"n = mul u {factor!r}", f"o = mul a {1 - factor}")
        if factor:
            c.map((before, name), *lines, "r = add o n", to=value)
        else:
            c.map((before,), "r = copy a", to=value)


def _input_gradient(
    c: Composer, parts: tuple[str, str, str], axes: Sequence[int], to: Value | None
) -> str:
    """rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat)); parts are dxhat, xhat, rstd."""
    dxhat, xhat, rstd = parts
    first = c.total(dxhat, axes, "mean")
    second = c.total(c.map((dxhat, xhat), "r = mul a b"), axes, "mean")
    lines = ("m = sub a d", "p = mul b e", "n = sub m p", "r = mul c n")
    return c.map((dxhat, xhat, rstd, first, second), *lines, to=to)


@lowers(BATCH_NORM_BACKWARD)
def batch_norm_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of scale, bias and input."""
    c = Composer(low, node)
    low.need_float32(*node.inputs[:5], *node.outputs)
    _, axes = batch_axes(call)
    x, dy, mean, rstd, scale = (c.take(v) for v in node.inputs[:5])
    xhat = c.map((x, mean, rstd), "d = sub a b", "r = mul d c")
    product = c.map((dy, xhat), "r = mul a b")
    d_scale, d_bias, dx = node.outputs
    for name, value in ((product, d_scale), (dy, d_bias)):
        c.shaped(c.total(name, axes), low.shape(value), to=value)
    _input_gradient(c, (c.map((dy, scale), "r = mul a b"), xhat, rstd), axes, dx)


def _weights(c: Composer, diff: str, xhat: str, others: Sequence[int]) -> None:
    """Gradients of weight and bias, sums over the axes that have none."""
    for name, value in zip(
        (c.map((diff, xhat), "r = mul a b"), diff), c.node.outputs[1:], strict=False
    ):
        c.shaped(c.total(name, others), c.low.shape(value), to=value)


@lowers(LAYER_NORM_BACKWARD, GENERAL_NORM_BACKWARD)
def axes_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of input, weight and bias."""
    c = Composer(low, node)
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[1])
    is_layer = node.op.name == LAYER_NORM_BACKWARD.name
    axes = layer_axes(call, shape) if is_layer else general_axes(call, shape)
    diff, x, *weight, mean, rstd = (c.take(v) for v in node.inputs)
    stat = tuple(1 if k in axes else n for k, n in enumerate(shape))
    mean, rstd = (c.shaped(name, stat) for name in (mean, rstd))
    xhat = c.map((x, mean, rstd), "d = sub a b", "r = mul d c")
    dxhat = diff
    if weight:
        own = tuple(n if k in axes else 1 for k, n in enumerate(shape))
        dxhat = c.map((diff, c.shaped(weight[0], own)), "r = mul a b")
    _input_gradient(c, (dxhat, xhat, rstd), axes, node.outputs[0])
    _weights(c, diff, xhat, [k for k in range(len(shape)) if k not in axes])


@lowers(GROUP_NORM_BACKWARD, INSTANCE_NORM_BACKWARD)
def group_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of input, weight and bias; the variance is given."""
    c = Composer(low, node)
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[1])
    groups = group_count(call, shape)
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    stat = (*split[:2], *(1,) * (len(split) - 2))
    diff, x, *weight, mean, variance = (c.take(v) for v in node.inputs)
    mean, variance = (c.shaped(name, stat) for name in (mean, variance))
    eps = f"{float(call.param.eps)!r}"
    rstd = c.map((variance,), f"v = add a {eps}", "s = sqrt v", "r = div 1.0 s")
    xhat = c.map((c.shaped(x, split), mean, rstd), "d = sub a b", "r = mul d c")
    dxhat = diff
    if weight:
        per_channel = c.shaped(weight[0], (1, shape[1], *(1,) * (len(shape) - 2)))
        dxhat = c.map((diff, per_channel), "r = mul a b")
    axes = range(2, len(split))
    dx = _input_gradient(c, (c.shaped(dxhat, split), xhat, rstd), axes, None)
    c.shaped(dx, shape, to=node.outputs[0])
    _weights(c, diff, c.shaped(xhat, shape), [0, *range(2, len(shape))])


@lowers(SOFTMAX_BACKWARD)
def softmax_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: y * (dy - sum(y * dy))."""
    c = Composer(low, node)
    low.need_float32(*node.inputs, *node.outputs)
    y, dy = (c.take(v) for v in node.inputs)
    axis = int(call.param.axis) % len(low.shapes[y])
    total = c.total(c.map((y, dy), "r = mul a b"), (axis,))
    c.map((y, dy, total), "d = sub b c", "r = mul a d", to=node.outputs[0])


def _limits(call: Call) -> tuple[float, float]:
    return float(np.float32(call.param.qmin)), float(np.float32(call.param.qmax))


@lowers(FAKE_QUANT_BACKWARD)
def fake_quant_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: the gradient where the codes were inside."""
    c = Composer(low, node)
    least, most = _limits(call)
    names = [c.take(v) for v in node.inputs]  # dy, x, scale, zero point
    lines = (
        "s = div b c", "n = round s", "k = add n d",
        f"l = flag_leq {least} k", f"m = flag_leq k {most}", "i = iand l m", "r = where i a 0.0",
    )  # fmt: skip
    c.map(names, *lines, to=node.outputs[0])


@lowers(TQT_BACKWARD)
def tqt_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of the input and of the exponent."""
    c = Composer(low, node)
    least, most = _limits(call)
    names = [c.take(v) for v in node.inputs]  # dy, x, exponent
    outside = (
        "step = exp2 c", "q = div b step",
        f"l = flag_lt q {least - 0.5}", f"m = flag_lt {most + 0.5} q", "o = ior l m",
    )  # fmt: skip
    c.map(names, *outside, "r = where o 0.0 a", to=node.outputs[0])
    lines = (
        "n = round q", f"k = min {most} n", f"j = max k {least}", "t = sub j q",
        "w = where o j t", "u = mul a w", "v = mul u step", f"r = mul v {math.log(2)!r}",
    )  # fmt: skip
    c.map(names, *outside, *lines, to=node.outputs[1])


@lowers(LSQ_BACKWARD)
def lsq_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of the input and of the scale."""
    c = Composer(low, node)
    least, most = _limits(call)
    names = [c.take(v) for v in node.inputs]  # dy, x, scale, zero point, factor
    outside = (
        "s = div b c", "k = add s d",
        f"l = flag_lt k {least}", f"m = flag_lt {most} k", "o = ior l m",
    )  # fmt: skip
    c.map(names[:4], *outside, "r = where o 0.0 a", to=node.outputs[0])
    lines = (
        "n = round k", "t = sub n k", f"w = where m {most} t", f"u = where l {least} w",
        "v = mul u e", "r = mul v a",
    )  # fmt: skip
    c.map(names, *outside, *lines, to=node.outputs[1])
