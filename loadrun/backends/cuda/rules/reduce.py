"""Reductions along any axes."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.emit_pointwise import collapse
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.reduce import REDUCE

_M = P.ReduceMode
_STEPS = {
    _M.SUM: ("0", "acc + v"),
    _M.SUM_SQR: ("0", "acc + v * v"),
    _M.PRODUCT: ("1", "acc * v"),
    _M.MEAN: ("0", "acc + v"),
}
# How parts of a sum of squares are joined.
_EXTREMES = {
    (_M.MIN_, True): ("INFINITY", "v < acc || v != v ? v : acc"),
    (_M.MAX_, True): ("-INFINITY", "v > acc || v != v ? v : acc"),
    (_M.MIN_, False): ("9223372036854775807LL", "v < acc ? v : acc"),
    (_M.MAX_, False): ("(-9223372036854775807LL - 1)", "v > acc ? v : acc"),
}


def _codes(mode: P.ReduceMode, source: DType, target: DType) -> dict[str, str]:
    """Fields of the template."""
    real = target.is_float
    if (mode, real) in _EXTREMES:
        start, step = _EXTREMES[mode, real]
    else:
        start, step = _STEPS[mode]
    value = "(f64)e" if real else "(i64)e"
    if source.is_quantized:
        value = "(f64)((float)(e - zero) * scale)" if real else "(i64)(e - zero)"
    if mode is _M.SUM_SQR:
        value, step = f"{value} * ({value})", "acc + v"
    result = "acc / count" if mode is _M.MEAN else "acc"
    if real:
        result = f"(float)({result})"
    elif source.is_quantized:
        low, high = (f"({n})" if n > -(1 << 31) else "(-2147483647 - 1)" for n in target.limits)
        mean = "(i64)round((f64)acc / count)" if mode is _M.MEAN else "acc"
        result = f"clamp64({mean} + shift, {low}, {high})"
    elif target.kind is DTypeEnum.Bool:
        result = f"(int)(({result}) != 0)"
    else:
        result = f"(int)({result})"
    acc = "f64" if real else "i64"
    return {"ACC": acc, "START": start, "STEP": step, "VALUE": value, "RESULT": result}


def _nest(sizes: Shape, strides: Shape) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Three nested dimensions."""
    if len(sizes) > 3:
        raise NotApplicable("more than three separate runs of axes")
    a, b, c = (1,) * (3 - len(sizes)) + sizes
    s, t, u = (0,) * (3 - len(sizes)) + strides
    return (a, b, c), (s, t, u)


@lowers(REDUCE)
def reduce(low: Lowering, node: Node, call: Call) -> None:
    """All modes and types, sums in float64 or int64; a warp or a thread an output."""
    p = call.param
    shape, out = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    low.need_real(node.inputs[0])
    source, target = call.dtype(0), call.output_types[0].dtype
    if source.is_quantized and not target.is_float and p.mode in (_M.SUM_SQR, _M.PRODUCT):
        raise NotApplicable(f"mode {p.mode} of {source.name}")
    if p.mode not in (*_STEPS, _M.MIN_, _M.MAX_):
        raise NotApplicable(f"mode {p.mode}")
    full = (1,) * (len(shape) - len(out)) + out
    if len(full) != len(shape):
        raise NotApplicable("a larger rank than the input's")
    plain = nd.contiguous(shape)
    kept = [k for k, n in enumerate(full) if n == shape[k]]
    gone = [k for k, n in enumerate(full) if n != shape[k]]
    sizes, (strides,) = collapse([shape[k] for k in kept], [[plain[k] for k in kept]])
    (_, d1, d2), (s0, s1, s2) = _nest(sizes, strides)
    inner, (steps,) = collapse([shape[k] for k in gone], [[plain[k] for k in gone]])
    (_, n1, n2), (r0, r1, r2) = _nest(inner, steps)
    items, count = math.prod(out), math.prod(inner)
    lanes = 32 if count >= 32 and (r2 == 1 or items < 1 << 14) else 1
    codes = _codes(p.mode, source, target)
    fields = {
        "XT": c_type(source), "YT": c_type(target), "LANES": str(lanes),
        "SCALARS": ", int zero, float scale, int shift", **codes,
    }  # fmt: skip
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    params: tuple[nd.Param, ...] = (
        nd.In(x), nd.Out(y), items, count, d1, d2, s0, s1, s2, n1, n2, r0, r1, r2,
        source.zero_point or 0, float(source.scale or 0.0), target.zero_point or 0,
    )  # fmt: skip
    low.add(
        nd.Custom(
            low.label(node), (y,), "reduce", tuple(fields.items()), params, items,
            per_block=256 // lanes, stem=f"reduce_{p.mode.name.lower().rstrip('_')}",
        )
    )  # fmt: skip
