"""Quantised operators on whole numbers held in float32.

A quantised tensor is kept as float32 codes less the zero point. Sums of products of such numbers
are exact while they stay below 2**24, which is checked against the actual filter; so results are
those of integer arithmetic, at the speed of float32. Convolutions of bytes use byte products where
the processor has them, exact below 2**31. An operator that could exceed its bound is left to the
reference code.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu import steps_conv
from loadrun.backends.cpu.expr import Expr, Op, chain, inline, merge_inputs
from loadrun.backends.cpu.kernels import deconv
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.rules.conv import NONLINEAR, POOL_MODES, conv_spec
from loadrun.backends.cpu.rules.elemwise import MODES
from loadrun.backends.cpu.target import detect
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.conv import CONV_BIAS_FORWARD, CONVOLUTION, CONVOLUTION_BACKWARD_DATA
from mgeserial.ops.convrules import geometry, product_dtype, same_scale
from mgeserial.ops.elemwise import ELEMWISE
from mgeserial.ops.layouts import single_layout
from mgeserial.ops.linalg import MATRIX_MUL
from mgeserial.ops.multitype import ELEMWISE_MULTI_TYPE
from mgeserial.ops.pooling import POOLING
from mgeserial.ops.typecvt import TYPE_CVT

_LIMIT = 1 << 24
# Codes of four bits are kept one in a byte.
_BYTES = {
    DTypeEnum.QuantizedS8: (-128, 127),
    DTypeEnum.Quantized8Asymm: (0, 255),
    DTypeEnum.QuantizedS4: (-8, 7),
    DTypeEnum.Quantized4Asymm: (0, 15),
}
_WORD = DTypeEnum.QuantizedS32


def _type(low: Lowering, value: Value) -> DType:
    return low.inference.types[value].dtype


def _range(dtype: DType) -> tuple[int, int]:
    """Lowest and highest code less the zero point, of a byte type."""
    if dtype.kind not in _BYTES:
        raise NotApplicable(f"{dtype.name} is not a quantised byte type")
    low, high = _BYTES[dtype.kind]
    zero = dtype.zero_point or 0
    return low - zero, high - zero


def _quantize(dtype: DType) -> Expr:
    """Real numbers to codes less the zero point."""
    low, high = _range(dtype)
    scale = float(np.float32(dtype.scale))
    return chain(("div", scale), ("round",), ("atleast", low), ("atmost", high))


def _after(first: Expr, *more: Expr) -> Expr:
    """Programs of one input applied to a program's result."""
    for expr in more:
        first = inline(expr, 0, first)
    return first


def _scaled(dtype: DType) -> Expr:
    """Codes less the zero point to real numbers."""
    return chain(("mul", float(np.float32(dtype.scale))))


def _apply(low: Lowering, node: Node, expr: Expr, inputs: tuple[str, ...]) -> str:
    """Add an Eltwise whose result has the shape of inputs[0]."""
    expr, names = merge_inputs(expr, inputs)
    out = low.temp(low.shapes[inputs[0]])
    low.add(nd.Eltwise(low.label(node), names, (out,), expr))
    return out


def _finish(sums: DType, target: DType, nonlinear: Expr | None, addend: DType | None) -> Expr:
    """From exact sums (and codes of an addend) to the output's codes or reals.

    Raises:
        NotApplicable: The output type is none of float32, a byte type, or what the sums are.
    """
    if addend is None and (same_scale(sums, target) or target.kind is DTypeEnum.Int32):
        if nonlinear is not None and [o.kind for o in nonlinear.ops] != ["relu"]:
            raise NotApplicable(f"a nonlinearity before {target.name}")
        return nonlinear or Expr(1)
    real = Expr(1) if sums.scale is None else _scaled(sums)
    if addend is not None:
        scale = float(np.float32(addend.scale))
        by = float(np.float32(sums.scale))
        ops = (Op("const", (), by), Op("mul", (0, 2)), Op("const", (), scale))
        real = Expr(2, (*ops, Op("mul", (1, 4)), Op("add", (3, 5))))
    steps = [nonlinear] if nonlinear is not None else []
    if target.kind is not DTypeEnum.Float32:
        steps.append(_quantize(target))
    for expr in steps:
        real = _join(expr, real)
    return real


def _join(outer: Expr, inner: Expr) -> Expr:
    return inline(outer, 0, inner)


def _largest(weights: Array, bias: Array | None, dtype: DType) -> float:
    """The largest partial sum of filters (groups, oc, terms)."""
    low, high = _range(dtype)
    sums = np.abs(weights.astype(np.int64)).sum(axis=tuple(range(2, weights.ndim)))
    bound = max(-low, high) * sums.reshape(-1)
    if bias is not None:
        bound = bound + np.abs(bias.astype(np.float64)).reshape(-1).max(initial=0)
    return float(bound.max(initial=0))


def _bounded(weights: Array, bias: Array | None, dtype: DType) -> float:
    """The largest partial sum; raises NotApplicable unless it is exact in float32."""
    most = _largest(weights, bias, dtype)
    if most >= _LIMIT:
        raise NotApplicable(f"sums may reach 2**{math.log2(most):.1f}, beyond 2**24")
    return most


@lowers(CONVOLUTION, CONV_BIAS_FORWARD)
def convolution(low: Lowering, node: Node, call: Call) -> None:
    """Quantised codes of 8 and 4 bits, constant filter and bias, sums below 2**24, any layout."""
    src, flt, *more = node.inputs
    a, b, target = _type(low, src), _type(low, flt), _type(low, node.outputs[0])
    _range(a)
    mode = getattr(call.param, "nonlineMode", P.ConvBiasV0NonlineMode.IDENTITY)
    nonlinear = NONLINEAR.get(mode)
    if mode != P.ConvBiasV0NonlineMode.IDENTITY and nonlinear is None:
        raise NotApplicable(f"nonlinearity {mode}")
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    g = geometry(call.param, call.shape(0), call.shape(1))
    spec = conv_spec(g)
    codes = low.need_array(flt, "the filter").astype(np.int32) - (b.zero_point or 0)
    weights = np.ascontiguousarray(g.kernel(codes))
    bias = None
    if more:
        if _type(low, more[0]).kind not in (_WORD, DTypeEnum.Int32):
            raise NotApplicable(f"a bias of {_type(low, more[0]).name}")
        full = g.dst.to_nchw(low.need_array(more[0], "the bias"))
        if full.size != spec.groups * spec.oc:
            raise NotApplicable("a bias that is not one number per channel")
        bias = full.reshape(-1).astype(np.float32)
    kernel = weights.astype(np.float32)
    fits = _range(a)[0] >= -128 and _range(a)[1] <= 127 and np.abs(weights + 0.5).max() < 128
    conv = nd.Conv("", ("",), ("",), spec, kernel, bias, exact=True, byte=bool(fits))
    bound = _largest(weights.reshape(spec.groups, spec.oc, -1), bias, a)
    if bound >= _LIMIT and not (bound < 1 << 31 and steps_conv.uses_bytes(detect(), conv)):
        raise NotApplicable(f"sums may reach 2**{math.log2(bound):.1f}, beyond 2**24")
    low.bounds[node.outputs[0]] = bound
    addend = _type(low, more[1]) if len(more) > 1 else None
    if addend is not None:
        _range(addend)
    last = _finish(product_dtype(a, b), target, nonlinear, addend)
    if bound >= _LIMIT and all(o.kind == "relu" for o in last.ops):
        raise NotApplicable("integers that may be wider than 24 bits")
    x = low.codes(src, g.src)
    y = low.temp((g.batch, g.groups * g.outputs, *g.out))
    low.add(replace(conv, name=low.label(node), inputs=(x,), outputs=(y,)))
    names = (y, low.codes(more[1], g.dst)) if addend is not None else (y,)
    out = _apply(low, node, last, names) if last.ops else y
    low.set_codes(node.outputs[0], out, g.dst)  # of a float32 output: its values


@lowers(CONVOLUTION_BACKWARD_DATA)
def transposed(low: Lowering, node: Node, call: Call) -> None:
    """Quantised codes of 8 and 4 bits, constant filter, sums below 2**24, any layout."""
    flt, diff, out = node.inputs[0], node.inputs[1], node.outputs[0]
    a, b = _type(low, diff), _type(low, flt)
    _range(a)
    g = geometry(call.param, low.shape(out), low.shape(flt))
    if g.dst_shape != low.shape(diff):
        raise NotApplicable("an output that the filter does not fill")
    spec = conv_spec(g)
    if spec.sh * spec.sw > 64 or not deconv.suits(spec, 16):
        raise NotApplicable("groups smaller than a vector, or a wide stride")
    codes = low.need_array(flt, "the filter").astype(np.int32) - (b.zero_point or 0)
    weights = np.ascontiguousarray(g.kernel(codes))
    by_input = weights.transpose(0, 2, 1, 3, 4).reshape(spec.groups, spec.ic, -1)
    low.bounds[out] = _bounded(by_input, None, a)
    last = _finish(product_dtype(b, a), _type(low, out), None, None)
    x = low.codes(diff, g.dst)
    y = low.temp((g.batch, spec.groups * spec.ic, *g.sizes))
    kernel = weights.astype(np.float32)
    low.add(nd.TransposedConv(low.label(node), (x,), (y,), spec, kernel, exact=True))
    low.set_codes(out, _apply(low, node, last, (y,)) if last.ops else y, g.src)


@lowers(MATRIX_MUL)
def matrix_mul(low: Lowering, node: Node, call: Call) -> None:
    """QuantizedS8 and Quantized8Asymm, right operand constant, sums below 2**24."""
    p = call.param
    a, b = (_type(low, v) for v in node.inputs)
    _range(a)
    if p.format != P.MatrixMulFormat.DEFAULT or p.transposeA:
        raise NotApplicable("a packed format or a transposed left operand")
    low.shape(node.outputs[0])
    codes = low.need_array(node.inputs[1], "the right operand").astype(np.int32)
    codes = codes - (b.zero_point or 0)
    weights = np.ascontiguousarray(codes.T if p.transposeB else codes)
    low.bounds[node.outputs[0]] = _bounded(np.ascontiguousarray(weights.T)[None], None, a)
    last = _finish(product_dtype(a, b), _type(low, node.outputs[0]), None, None)
    x = low.codes(node.inputs[0])
    y = low.temp(low.shape(node.outputs[0]))
    low.add(nd.Dense(low.label(node), (x,), (y,), weights.astype(np.float32), exact=True))
    low.set_codes(node.outputs[0], _apply(low, node, last, (y,)) if last.ops else y)


def _narrow(low: Lowering, value: Value) -> float:
    """Largest code of a value; raises NotApplicable unless float32 holds it exactly."""
    kind = _type(low, value).kind
    if kind in _BYTES:
        return 255.0
    array = low.array(value)
    bound = low.bounds.get(value, math.inf)
    if array is not None:
        bound = float(np.abs(array.astype(np.float64)).max(initial=0))
    if bound >= _LIMIT:
        raise NotApplicable("integers that may be wider than 24 bits")
    return bound


@lowers(TYPE_CVT)
def convert(low: Lowering, node: Node, call: Call) -> None:
    """float32, quantised bytes and QuantizedS32, in any direction that needs no wide integers."""
    value, out = node.inputs[0], node.outputs[0]
    a, b = _type(low, value), _type(low, out)
    low.shape(value)
    if b.kind is DTypeEnum.Float32 and (a.kind in _BYTES or a.kind is _WORD):
        _narrow(low, value)
        low.same(out, _apply(low, node, _scaled(a), (low.codes(value),)))
        return
    if a.kind is DTypeEnum.Float32 and b.kind in _BYTES:
        low.set_codes(out, _apply(low, node, _quantize(b), (low.name(value),)))
        return
    if (a.kind in _BYTES or a.kind is _WORD) and b.kind in _BYTES:
        _narrow(low, value)
        expr = _join(_quantize(b), _scaled(a))
        low.set_codes(out, _apply(low, node, expr, (low.codes(value),)))
        return
    raise NotApplicable(f"from {a.name} to {b.name}")


@lowers(ELEMWISE_MULTI_TYPE)
def multi_type(low: Lowering, node: Node, call: Call) -> None:
    """Q modes on quantised bytes of one shape or with constants: real numbers in between."""
    mode = str(call.param.mode.name)
    plain = {"QMAX_": "MAX_", "QMIN_": "MIN_"}.get(mode, mode[1:])
    expr = MODES.get(P.ElemwiseMode[plain]) if plain in P.ElemwiseMode.__members__ else None
    target = _type(low, node.outputs[0])
    if not mode.startswith("Q") or expr is None or expr.inputs != len(node.inputs):
        raise NotApplicable(f"mode {mode}")
    shape = low.shape(node.outputs[0])
    for value in node.inputs:
        _range(_type(low, value))
        if low.shape(value) != shape:
            raise NotApplicable("operands of different shapes")
    for k in range(len(node.inputs) - 1, -1, -1):
        expr = inline(expr, k, _scaled(_type(low, node.inputs[k])))
    # `inline` appends: the inputs now stand in reverse order.
    values = tuple(reversed(node.inputs))
    expr = _join(_quantize(target), expr)
    layouts = {low.packed(v) for v in values}
    layout = layouts.pop() if len(layouts) == 1 else None
    names = tuple(low.codes(v, layout) if layout else low.codes(v) for v in values)
    out = _apply(low, node, expr, names)
    if layout is None:
        low.set_codes(node.outputs[0], out)
    else:
        low.set_codes(node.outputs[0], out, layout)


@lowers(ELEMWISE)
def word_sum(low: Lowering, node: Node, call: Call) -> None:
    """Sum of two QuantizedS32 whose codes stay below 2**24."""
    if call.param.mode != P.ElemwiseMode.ADD:
        raise NotApplicable(f"mode {call.param.mode}")
    if any(_type(low, v).kind is not _WORD for v in (*node.inputs, *node.outputs)):
        raise NotApplicable("only float32 is native")
    bound = sum(_narrow(low, v) for v in node.inputs)
    if bound >= _LIMIT:
        raise NotApplicable("integers that may be wider than 24 bits")
    shape = low.shape(node.outputs[0])
    names = tuple(low.codes(v) for v in node.inputs)
    out = low.temp(shape)
    low.add(nd.Eltwise(low.label(node), names, (out,), MODES[P.ElemwiseMode.ADD]))
    low.bounds[node.outputs[0]] = bound
    low.set_codes(node.outputs[0], out)


@lowers(ELEMWISE)
def whole_numbers(low: Lowering, node: Node, call: Call) -> None:
    """RELU, MAX and MIN of quantised bytes on their codes."""
    target = _type(low, node.outputs[0])
    kinds = {P.ElemwiseMode.RELU, P.ElemwiseMode.MAX_, P.ElemwiseMode.MIN_}
    if call.param.mode not in kinds or target.zero_point:
        raise NotApplicable(f"mode {call.param.mode} of {target.name}")
    _range(target)
    shape = low.shape(node.outputs[0])
    if any(low.shape(v) != shape or _type(low, v) != target for v in node.inputs):
        raise NotApplicable("operands of different types")
    names = tuple(low.codes(v) for v in node.inputs)
    low.set_codes(node.outputs[0], _apply(low, node, MODES[call.param.mode], names))


@lowers(POOLING)
def pooling(low: Lowering, node: Node, call: Call) -> None:
    """QuantizedS8 and Quantized8Asymm of any mode and layout."""
    p = call.param
    dtype = _type(low, node.inputs[0])
    _range(dtype)
    mode = POOL_MODES[p.mode]
    layout = single_layout(p.format)
    if layout.spatial != "HW":
        raise NotApplicable(f"format {p.format}")
    sizes = (p.window_h, p.window_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w)
    spec = PoolSpec(mode, *(int(v) for v in sizes))
    n, c, h, w = layout.logical(low.shape(node.inputs[0]))
    if mode != "max" and spec.kh * spec.kw >= 1 << 15:
        raise NotApplicable("a mean of 2**15 codes or more")
    if spec.ph >= spec.kh or spec.pw >= spec.kw:
        raise NotApplicable("a window lies in the padding")
    if max(spec.kw, spec.sw) > 32:
        raise NotApplicable(f"a window {spec.kw} wide would need too much code")
    oh, ow = spec.out_size(h, w)
    if (oh - 1) * spec.sh - spec.ph >= h or (ow - 1) * spec.sw - spec.pw >= w:
        raise NotApplicable("a window lies in the padding")
    x = low.codes(node.inputs[0], layout)
    y = low.temp((n, c, oh, ow))
    low.add(nd.Pooling(low.label(node), (x,), (y,), spec))
    zero = dtype.zero_point or 0
    # Codes themselves are rounded, half away from zero. A mean of fewer than 2**15 is no nearer to
    # a half than float32 can tell.
    steps = (("add", zero), ("round",), ("sub", zero)) if zero else (("round",),)
    out = y if mode == "max" else _apply(low, node, chain(*steps), (y,))
    low.set_codes(node.outputs[0], out, layout)
