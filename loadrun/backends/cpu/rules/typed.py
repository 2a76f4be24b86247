"""Element by element on any types: integers, bools, codes, mixtures, and conversions between them.

Rules of `rules.elemwise` and `rules.quantized` come first: they keep float32 images in their layout
and byte codes as floats. Here tensors are read as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from loadrun.backends.cpu import modes
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import Builder, convert, dequantize, narrowed, program, quantize
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.elemwise import MODES
from mgeserial import params as P
from mgeserial.dtypes import BOOL, FLOAT32, INT16, INT32, DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.elemwise import AFFINE_INT, ELEMWISE, MASKED_FILL, POW_C, WHERE, WHERE_BACKWARD
from mgeserial.ops.fakequant import FAKE_QUANT, LSQ, TQT
from mgeserial.ops.multitype import ELEMWISE_MULTI_TYPE, elemwise_mode
from mgeserial.ops.numerics import narrow, promote, truncate
from mgeserial.ops.typecvt import TYPE_CVT

__all__ = ["add_pointwise"]

_M = P.ElemwiseMode
_T = P.ElemwiseMultiTypeMode
_DIVISIONS = frozenset({_M.FLOOR_DIV, _M.MOD})
_BYTE_LIMITS = "-128 127"
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
_TO_INT8 = ("p = mul f k", "s = add p b", "n = rint s", f"r = saturate n {_BYTE_LIMITS}")
_AFFINE = program("xkb", "f = to_real x", *_TO_INT8)
_PLAIN: dict[P.ElemwiseMultiTypeMode, Expr] = {
    _T.FUSE_MUL_ADD3_INT16x32x32x32: program("xyz", "p = imul x y", "r = iadd p z"),
    _T.FUSE_MUL_ADD3_IXxF32xF32xI8: _AFFINE,
    _T.FUSE_MUL_ADD3_INT16xF32xF32xF32: program(
        "xyz", "f = to_real x", "p = mul f y", "r = add p z"
    ),
    _T.FUSE_MUL_ADD3_UINT8xF32xF32xF32: program(
        "xyz", "f = to_real x", "p = mul f y", "r = add p z"
    ),
    _T.MUL_INT16xF32xF32: program("xy", "f = to_real x", "r = mul f y"),
    _T.ROUND_SHR_SATURATE_IXxI8xI8: program("xk", f"r = shift_rounded x k {_BYTE_LIMITS}"),
    _T.ROUND_SHR_SATURATE_IXxI8xI16: program("xk", "r = shift_rounded x k -32768 32767"),
}
_ADD_MULH = {
    _T.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8: INT16,
    _T.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8: INT32,
}
# Where a mode's shift counts are: the reference code refuses those beyond 0 to 63.
_SHIFT_AT = {
    _T.ROUND_SHR_SATURATE_IXxI8xI8: 1,
    _T.ROUND_SHR_SATURATE_IXxI8xI16: 1,
    **dict.fromkeys(_ADD_MULH, 3),
}


def add_pointwise(
    low: Lowering,
    node: Node,
    value: Value,
    inputs: Sequence[Value],
    make: Callable[..., int],
    names: Sequence[str] = (),
) -> None:
    """Add a node: `make(builder, *elements)` gives the output's element.

    `names` are tensors to read where they are not those of the inputs.
    """
    for v in (value, *inputs):
        low.shape(v)
        if low.inference.types[v].dtype.kind is DTypeEnum.Complex64:
            raise NotApplicable("Complex64 has no native code")
    b = Builder(len(inputs))
    expr = b.done(make(b, *range(len(inputs))))
    names = tuple(names or (low.name(v) for v in inputs))
    low.add(nd.Eltwise(low.label(node), names, (low.out(value),), expr))


def _high_product(b: Builder, dtype: DType, x: int, y: int) -> int:
    limits = np.iinfo(dtype.storage.name)
    drop = limits.bits - (1 if limits.min < 0 else 0)
    numbers = (b.whole(n) for n in (int(drop), int(limits.min), int(limits.max)))
    return b.op("high_product", x, y, *numbers)


def evaluate(b: Builder, mode: P.ElemwiseMode, dtype: DType, *x: int) -> int:
    """A mode applied to elements of a type; the result is of that type but for half precision."""
    if mode is _M.RMULH and dtype.storage.kind in "iu":
        return _high_product(b, dtype, *x)
    if dtype.is_float:
        expr = MODES.get(mode) or modes.REAL.get(mode)
    else:
        expr = (modes.BOOLEAN if dtype.storage.kind == "b" else modes.WHOLE).get(mode)
    if expr is None or expr.inputs != len(x):
        raise NotApplicable(f"mode {mode} of {dtype.name}")
    result = b.apply(expr, *x)
    return result if dtype.is_float else narrowed(b, result, dtype)


def _common(call: Call) -> DType:
    try:
        return promote([t.dtype for t in call.inputs])
    except MgeError as error:
        raise NotApplicable("no common type") from error


def _order(low: Lowering, node: Node, mode: P.ElemwiseMode) -> list[int]:
    """The operands in order; of MAX and MIN one of a single element decides which NaN is lost."""
    sizes = [math.prod(low.shape(v)) for v in node.inputs]
    swapped = mode in (_M.MAX_, _M.MIN_) and sizes[0] == 1 != sizes[1]
    return [1, 0] if swapped else list(range(len(sizes)))


def _watched(low: Lowering, value: Value, wrong: Expr) -> None:
    """Let the reference code judge a run where `wrong` is 1 for an element of a value."""
    shape = low.shape(value)
    flags = low.temp(shape)
    low.dtypes[flags] = "int32"
    low.add(nd.Eltwise(low.unique("wrong"), (low.name(value),), (flags,), wrong))
    sizes = (1, math.prod(shape), 1)
    low.add(nd.Fold(low.unique("wrong"), (flags,), (low.check(1),), "max", sizes))


@lowers(ELEMWISE)
def elemwise(low: Lowering, node: Node, call: Call) -> None:
    """All modes and element types but Complex64, numpy broadcasting."""
    mode, dtype = call.param.mode, _common(call)
    target = call.output_types[0].dtype
    if dtype.is_integer and target == FLOAT32:
        dtype = target  # a mode for floats only converts integers
    order = _order(low, node, mode)

    def make(b: Builder, *x: int) -> int:
        return evaluate(b, mode, dtype, *(convert(b, x[k], call.dtype(k), dtype) for k in order))

    make(Builder(len(order)), *range(len(order)))  # it may not apply
    if mode in _DIVISIONS and not dtype.is_float:
        divisor = low.array(node.inputs[1])
        if divisor is not None and not np.all(divisor):
            raise NotApplicable("a division by zero must be noticed")
        if divisor is None:
            _watched(low, node.inputs[1], program("x", "r = ieq x 0"))
    add_pointwise(low, node, node.outputs[0], node.inputs, make)


@lowers(TYPE_CVT)
def type_cvt(low: Lowering, node: Node, call: Call) -> None:
    """Conversions between all types but Complex64, and but to low-bit integers."""
    source, target = call.dtype(0), call.param.dtype
    add_pointwise(
        low, node, node.outputs[0], node.inputs, lambda b, x: convert(b, x, source, target)
    )


_MOST_FACTORS = 8  # of a power written as products


@lowers(POW_C)
def pow_c(low: Lowering, node: Node, call: Call) -> None:
    """Floats to a constant power."""
    exponent = float(np.float32(call.param.exp))
    if not math.isfinite(exponent):
        raise NotApplicable(f"power {exponent}")
    add_pointwise(
        low, node, node.outputs[0], node.inputs, lambda b, x: _constant_power(b, x, exponent)
    )


def _constant_power(b: Builder, x: int, exponent: float) -> int:
    """x to a power; signs of negative x apart, so that -0 counts as 0."""
    if abs(exponent) == 0.5:
        root = b.op("root", x)
        return root if exponent > 0 else b.op("div", b.real(1.0), root)
    whole = float(np.rint(exponent))
    if abs(exponent - whole) >= np.finfo(np.float32).eps:
        return b.op("pow", x, b.real(exponent))
    size = b.op("abs", x)
    if 0 < abs(whole) <= _MOST_FACTORS:
        power = _product(b, size, int(abs(whole)))
        power = power if whole > 0 else b.op("div", b.real(1.0), power)
    else:
        power = b.op("pow", size, b.real(whole))
    if not whole % 2:
        return power
    return b.op("where", b.op("flag_lt", x, b.real(0.0)), b.op("neg", power), power)


def _product(b: Builder, x: int, count: int) -> int:
    """x * x * ... by squares."""
    if count == 1:
        return x
    half = _product(b, x, count // 2)
    square = b.op("mul", half, half)
    return b.op("mul", square, x) if count % 2 else square


@lowers(ELEMWISE_MULTI_TYPE)
def elemwise_multi_type(low: Lowering, node: Node, call: Call) -> None:
    """All modes: quantised ones through float32 as they are defined, comparisons, mixed types."""
    mode = call.param.mode
    inner = elemwise_mode(mode)
    make: Callable[..., int]
    if inner is None:
        make = _mixed(mode)
        _check_shifts(low, node, mode)
    elif call.output_types[0].dtype == BOOL:
        make = _compared(call, inner)
    else:
        make = _quantized(call, inner, _order(low, node, inner))
    add_pointwise(low, node, node.outputs[0], node.inputs, make)


def _quantized(call: Call, mode: P.ElemwiseMode, order: list[int]) -> Callable[..., int]:
    def make(b: Builder, *x: int) -> int:
        reals = [dequantize(b, x[k], call.dtype(k)) for k in order]
        return quantize(b, evaluate(b, mode, FLOAT32, *reals), call.output_types[0].dtype)

    return make


_REAL_FLAGS = {_M.LT: "flag_lt", _M.LEQ: "flag_leq", _M.EQ: "flag_eq", _M.NEQ: "flag_neq"}


def _compared(call: Call, mode: P.ElemwiseMode) -> Callable[..., int]:
    dtype = _common(call)

    def make(b: Builder, *x: int) -> int:
        args = [convert(b, a, t.dtype, dtype) for a, t in zip(x, call.inputs, strict=True)]
        if dtype.is_float and mode in _REAL_FLAGS:
            return b.op(_REAL_FLAGS[mode], *args)
        result = evaluate(b, mode, dtype, *args)
        if dtype.is_float:
            return b.op("flag_neq", result, b.real(0.0))
        return b.op("ineq", result, b.whole(0))

    return make


def _mixed(mode: P.ElemwiseMultiTypeMode) -> Callable[..., int]:
    if mode in _PLAIN:
        return lambda b, *x: b.apply(_PLAIN[mode], *x)
    if mode not in _ADD_MULH:
        raise NotApplicable(f"mode {mode}")
    dtype = _ADD_MULH[mode]

    def make(b: Builder, x: int, y: int, m: int, k: int, least: int, most: int) -> int:
        total = narrowed(b, b.op("iadd", x, y), dtype)
        product = _high_product(b, dtype, total, m)
        short = b.op("shift_rounded", product, k, b.whole(-128), b.whole(127))
        return b.op("imax", b.op("imin", short, most), least)

    return make


def _check_shifts(low: Lowering, node: Node, mode: P.ElemwiseMultiTypeMode) -> None:
    at = _SHIFT_AT.get(mode)
    if at is None:
        return
    counts = low.array(node.inputs[at])
    if counts is not None:
        if counts.size and not 0 <= int(np.min(counts)) <= int(np.max(counts)) < 64:
            raise NotApplicable("a shift count out of range must be noticed")
        return
    _watched(low, node.inputs[at], program("k", "a = ilt k 0", "b = ileq 64 k", "r = ior a b"))


@lowers(AFFINE_INT)
def affine_int(low: Lowering, node: Node, call: Call) -> None:
    """int8 of x * k + b, rounded half to even."""
    add_pointwise(low, node, node.outputs[0], node.inputs, lambda b, *x: b.apply(_AFFINE, *x))


def _clipped(b: Builder, x: int, call: Call) -> int:
    """Limited to the operator's codes; NaN stays, as the second operand of both."""
    low, high = b.real(float(call.param.qmin)), b.real(float(call.param.qmax))
    return b.op("max", b.op("min", high, x), low)


@lowers(FAKE_QUANT, TQT, LSQ)
def fake_quant(low: Lowering, node: Node, call: Call) -> None:
    """float32 rounded to the grid of a quantised type; scales and zero points broadcast."""
    name = node.op.name

    def make(b: Builder, x: int, scale: int, *zero: int) -> int:
        if name == "TQT":
            step = b.op("exp2", scale)
            return b.op("mul", _clipped(b, b.op("round", b.op("div", x, step)), call), step)
        steps = b.op("div", x, scale)
        if name == "LSQ":
            codes = b.op("round", _clipped(b, b.op("add", steps, zero[0]), call))
        else:
            codes = _clipped(b, b.op("add", b.op("round", steps), zero[0]), call)
        return b.op("mul", b.op("sub", codes, zero[0]), scale)

    add_pointwise(low, node, node.outputs[0], node.inputs[:3], make)


def _where(dtype: DType) -> str:
    return "where" if dtype.is_float else "iwhere"


@lowers(WHERE)
def where(low: Lowering, node: Node, call: Call) -> None:
    """Of two tensors, by a mask."""
    kind = _where(call.dtype(1))
    add_pointwise(low, node, node.outputs[0], node.inputs, lambda b, *x: b.op(kind, *x))


def _zero(b: Builder, dtype: DType) -> int:
    return b.real(0.0) if dtype.is_float else b.whole(0)


@lowers(WHERE_BACKWARD)
def where_backward(low: Lowering, node: Node, call: Call) -> None:
    """A gradient where the mask is set, and where it is not."""
    dtype = call.dtype(0)
    kind = _where(dtype)
    add_pointwise(
        *(low, node, node.outputs[0], node.inputs),
        lambda b, d, m: b.op(kind, m, d, _zero(b, dtype)),
    )
    add_pointwise(
        *(low, node, node.outputs[1], node.inputs),
        lambda b, d, m: b.op(kind, m, _zero(b, dtype), d),
    )


@lowers(MASKED_FILL)
def masked_fill(low: Lowering, node: Node, call: Call) -> None:
    """A number where the mask of the first dimensions is set."""
    x, mask = node.inputs
    dtype, shape, given = call.dtype(0), low.shape(x), low.shape(mask)
    if dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    fill = np.array([call.param.value], np.float32)
    number = narrow(fill, dtype) if dtype.is_float else truncate(fill, dtype)
    wide = low.temp((*given, *(1,) * (len(shape) - len(given))))
    low.dtypes[wide] = "bool"
    low.add(nd.Reshape(low.unique("mask"), (low.name(mask),), (wide,)))

    def make(b: Builder, value: int, flag: int) -> int:
        code = b.real(float(fill[0])) if dtype.is_float else b.whole(int(number[0]))
        return b.op(_where(dtype), flag, code, value)

    add_pointwise(low, node, node.outputs[0], node.inputs, make, (low.name(x), wide))
