"""Reductions and running sums of any type along any axes, dot products, finiteness.

Contiguous axes of float32 are in `rules.norm`. Here axes apart from each other are brought together
by a copy, integers and codes are summed in 64 bits, and other types pass through float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import Builder, program, to_real
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.norm import REDUCE_MODES
from loadrun.backends.cpu.rules.typed import add_pointwise
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.control import CHECK_HAS_INF, CHECK_NON_FINITE
from mgeserial.ops.linalg import DOT
from mgeserial.ops.reduce import CUMSUM, REDUCE

_M = P.ReduceMode
_CODE_MODES = frozenset({_M.SUM, _M.MEAN, _M.MIN_, _M.MAX_})


def _sizes(shape: Shape, gone: Sequence[int]) -> tuple[int, int, int]:
    """(outer, n, inner) of axes that are next to each other."""
    if not gone:
        return math.prod(shape), 1, 1
    first, last = gone[0], gone[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def together(low: Lowering, name: str, gone: Sequence[int]) -> tuple[str, tuple[int, int, int]]:
    """The tensor with the axes in `gone` next to each other, and its sizes."""
    shape = low.shapes[name]
    wide = [k for k in gone if shape[k] != 1]
    if not wide or all(shape[k] == 1 or k in wide for k in range(wide[0], wide[-1])):
        return name, _sizes(shape, wide)
    order = [k for k in range(len(shape)) if k not in wide] + wide
    strides = contiguous(shape)
    moved = low.temp(tuple(shape[k] for k in order))
    low.dtypes[moved] = low.dtype_name(name)
    low.add(nd.View(low.unique("axes"), (name,), (moved,), tuple(strides[k] for k in order)))
    return moved, _sizes(low.shapes[moved], range(len(order) - len(wide), len(order)))


def _as_float(low: Lowering, value: Value) -> str:
    """A value's real numbers as float32."""
    dtype = low.inference.types[value].dtype
    name = low.name(value)
    if dtype.is_float:
        return name
    b = Builder(1)
    expr = b.done(to_real(b, 0, dtype))
    out = low.temp(low.shapes[name])
    low.add(nd.Eltwise(low.unique("real"), (name,), (out,), expr))
    return out


@lowers(REDUCE)
def reduce(low: Lowering, node: Node, call: Call) -> None:
    """All types and axes."""
    value, out = node.inputs[0], node.outputs[0]
    mode = call.param.mode
    shape, given = low.shape(value), low.shape(out)
    if mode not in REDUCE_MODES:
        raise NotApplicable(f"mode {mode}")
    full = (1,) * (len(shape) - len(given)) + given
    if len(full) != len(shape):
        raise NotApplicable("a larger rank than the input's")
    gone = [k for k, (a, b) in enumerate(zip(shape, full, strict=True)) if a != b]
    source, target = call.dtype(0), call.output_types[0].dtype
    if DTypeEnum.Complex64 in (source.kind, target.kind):
        raise NotApplicable("Complex64 has no native code")
    if target.is_float:
        name, (outer, n, inner) = together(low, _as_float(low, value), gone)
        y = low.out(out)
        low.add(nd.Reduce(low.label(node), (name,), (y,), REDUCE_MODES[mode], outer, n, inner))
        return
    how = _whole(mode, source, target)
    name, sizes = together(low, low.name(value), gone)
    low.add(nd.Fold(low.label(node), (name,), (low.out(out),), how[0], sizes, *how[1:]))


def _whole(
    mode: P.ReduceMode, source: DType, target: DType
) -> tuple[str, int, int, tuple[int, int] | None]:
    """Mode, zero, shift and limits of a Fold."""
    name = REDUCE_MODES[mode]
    if not source.is_quantized:
        return name, 0, 0, None
    if mode not in _CODE_MODES:
        raise NotApplicable(f"mode {mode} of {source.name}")
    name = "mean_code" if name == "mean" else name
    return name, source.zero_point or 0, target.zero_point or 0, target.limits


@lowers(CUMSUM)
def cumsum(low: Lowering, node: Node, call: Call) -> None:
    """Floats and integers, either direction."""
    value, p = node.inputs[0], call.param
    shape = low.shape(value)
    if call.dtype(0).kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    sizes = _sizes(shape, [int(p.axis) % len(shape)])
    x, y = low.name(value), low.out(node.outputs[0])
    label = low.label(node)
    low.add(nd.Cumulate(label, (x,), (y,), sizes, bool(p.reverse), bool(p.exclusive)))


@lowers(DOT)
def dot(low: Lowering, node: Node, call: Call) -> None:
    """Two vectors of floats or integers; a vector of one element is repeated."""
    kinds = [call.dtype(0), call.dtype(1), call.output_types[0].dtype]
    real = kinds[0].is_float
    if any(d.is_float != real or not (d.is_float or d.is_integer) for d in kinds):
        raise NotApplicable(f"{kinds[0].name} to {kinds[2].name}")
    shapes = [low.shape(v) for v in node.inputs]
    n = max(s[0] for s in shapes)
    names = tuple(low.name(v) for v in node.inputs)
    products = low.temp((n,))
    low.dtypes[products] = "float32" if real else "int32"
    expr = program("xy", "r = mul x y" if real else "r = imul x y")
    low.add(nd.Eltwise(low.unique("products"), names, (products,), expr))
    y, label = low.out(node.outputs[0]), low.label(node)
    if real:
        low.add(nd.Reduce(label, (products,), (y,), "sum", 1, n, 1))
    else:
        low.add(nd.Fold(label, (products,), (y,), "sum", (1, n, 1)))


_NOT_FINITE = ("a = abs x", "below = flag_lt a inf", "bad = ixor below 1")


@lowers(CHECK_NON_FINITE)
def check_non_finite(low: Lowering, node: Node, call: Call) -> None:
    """Floats: scaled copies, and whether any element is infinite or NaN."""
    *copies, flag = node.outputs
    if not all(t.dtype.is_float for t in call.inputs):
        raise NotApplicable("only floats are native")
    if copies and len(copies) != len(node.inputs):
        raise NotApplicable("an unexpected number of outputs")
    found = []
    for value in node.inputs:
        size = math.prod(low.shape(value))
        flags, worst = low.temp(low.shape(value)), low.temp((1,))
        low.dtypes[flags] = low.dtypes[worst] = "int32"
        expr = program("x", *_NOT_FINITE)
        low.add(nd.Eltwise(low.unique("finite"), (low.name(value),), (flags,), expr))
        low.add(nd.Fold(low.unique("finite"), (flags,), (worst,), "max", (1, size, 1)))
        found.append(worst)
    _any(low, node, found, flag)
    scale = float(np.float32(call.param.scale))
    for value, copy in zip(node.inputs, copies, strict=False):
        add_pointwise(low, node, copy, [value], lambda b, x: _scaled(b, x, scale))


@lowers(CHECK_HAS_INF)
def check_has_inf(low: Lowering, node: Node, call: Call) -> None:
    """Floats: whether any element is infinite."""
    (value,) = node.inputs
    if not call.dtype(0).is_float:
        raise NotApplicable("only floats are native")
    shape = low.shape(value)
    flags, worst = low.temp(shape), low.temp((1,))
    low.dtypes[flags] = low.dtypes[worst] = "int32"
    expr = program("x", "a = abs x", "bad = flag_leq inf a")
    low.add(nd.Eltwise(low.unique("infinite"), (low.name(value),), (flags,), expr))
    sizes = (1, math.prod(shape), 1)
    low.add(nd.Fold(low.unique("infinite"), (flags,), (worst,), "max", sizes))
    _any(low, node, [worst], node.outputs[0])


def _any(low: Lowering, node: Node, flags: list[str], out: Value) -> None:
    """Whether one of several flags is set."""
    while len(flags) > 1:
        both = low.temp((1,))
        low.dtypes[both] = "int32"
        expr = program("xy", "r = ior x y")
        low.add(nd.Eltwise(low.unique("finite"), (flags[0], flags[1]), (both,), expr))
        flags = [*flags[2:], both]
    low.add(nd.Eltwise(low.label(node), (flags[0],), (low.out(out),), Expr(1)))


def _scaled(b: Builder, x: int, scale: float) -> int:
    if scale == 1:
        return x
    below = b.op("flag_lt", b.op("abs", x), b.real(math.inf))
    return b.op("where", below, b.op("mul", x, b.real(scale)), x)
