"""Element by element, of one type; conversions; choices by a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import convert, evaluate
from loadrun.backends.cuda.expr import Builder, Ref
from loadrun.backends.cuda.functions import CODES
from loadrun.backends.cuda.linked import verify
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, DType
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.elemwise import AFFINE_INT, ELEMWISE, MASKED_FILL, POW_C, WHERE, WHERE_BACKWARD
from mgeserial.ops.numerics import narrow, promote, truncate
from mgeserial.ops.typecvt import TYPE_CVT

__all__ = ["pointwise", "rmulh"]

_M = P.ElemwiseMode
_DIVISIONS = frozenset({_M.FLOOR_DIV, _M.MOD})


def pointwise(
    low: Lowering, node: Node, value: Value, inputs: list[Value], make: Callable[..., Ref]
) -> None:
    """Add a node: `make(builder, *elements)` gives the output's element."""
    shape = low.shape(value)
    for v in (value, *inputs):
        low.shape(v)
        low.need_real(v)
    b = Builder()
    result = make(b, *(("i", k) for k in range(len(inputs))))
    accesses = tuple(low.access(v, shape) for v in inputs)
    low.add(nd.Pointwise(low.label(node), (low.out(value),), accesses, b.done(result)))


def rmulh(dtype: DType) -> str:
    """Code of RMULH for a type."""
    limits: Any = np.iinfo(dtype.storage.name)
    drop = limits.bits - (1 if limits.min < 0 else 0)
    return f"(int)rounding_mulh({{0}}, {{1}}, {drop}, {int(limits.min)}LL, {int(limits.max)}LL)"


def code_of(mode: P.ElemwiseMode, dtype: DType) -> str:
    """C code of a mode for elements of a type."""
    if mode is _M.RMULH and not dtype.is_float:
        return rmulh(dtype)
    codes = CODES.get(mode)
    kind = dtype.storage.kind
    found = None
    if codes is not None:
        found = codes.real if dtype.is_float else codes.boolean if kind == "b" else codes.integer
    if found is None:
        raise NotApplicable(f"mode {mode} for {dtype.name}")
    return found


def _checked_divisor(low: Lowering, node: Node, mode: P.ElemwiseMode, code: str) -> str:
    """The code of an integer division; a division by zero ends the run."""
    divisor = low.array(node.inputs[1])
    if divisor is not None and np.all(divisor):
        return code
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    name = low.name(node.inputs[1])
    verify(low, node, name, "v != 0", f"{mode.name} of integers divides by zero")
    return f"({{1}} ? {code} : 0)"


@lowers(ELEMWISE)
def elemwise(low: Lowering, node: Node, call: Call) -> None:
    """All modes and element types but Complex64, numpy broadcasting."""
    mode = call.param.mode
    try:
        dtype = promote([t.dtype for t in call.inputs])
    except MgeError as error:
        raise NotApplicable("no common type") from error
    target = call.output_types[0].dtype
    if dtype.is_integer and target == FLOAT32:
        dtype = target  # a mode for floats only converts integers
    code = code_of(mode, dtype)
    if mode in _DIVISIONS and not dtype.is_float:
        code = _checked_divisor(low, node, mode, code)
    order = list(range(len(node.inputs)))
    sizes = [math.prod(low.shape(v)) for v in node.inputs]
    if mode in (_M.MAX_, _M.MIN_) and sizes[0] == 1 != sizes[1]:
        order = [1, 0]  # the one with a single element decides which NaN is lost

    def make(b: Builder, *x: Ref) -> Ref:
        args = [convert(b, x[k], call.dtype(k), dtype) for k in order]
        return evaluate(b, code, dtype, *args)

    pointwise(low, node, node.outputs[0], list(node.inputs), make)


@lowers(TYPE_CVT)
def type_cvt(low: Lowering, node: Node, call: Call) -> None:
    """Conversions between all types but Complex64 and to low-bit integers."""
    source, target = call.dtype(0), call.param.dtype
    if source == target:
        low.shape(node.inputs[0])
        low.same(node.outputs[0], low.name(node.inputs[0]))
        return
    pointwise(
        low,
        node,
        node.outputs[0],
        [node.inputs[0]],
        lambda b, x: convert(b, x, source, target),
    )


@lowers(POW_C)
def pow_c(low: Lowering, node: Node, call: Call) -> None:
    """A constant power, in float64 where it takes more than one product or root."""
    dtype, exponent = call.dtype(0), float(np.float32(call.param.exp))
    whole = float(np.rint(exponent))
    simple = {1.0: "{0}", 2.0: "({0} * {0})", -1.0: "(1.f / {0})"}
    if exponent in simple:
        code = simple[exponent]
    elif exponent == 0.5:
        code = "({0} == -INFINITY ? INFINITY : sqrtf({0} + 0.f))"
    elif abs(exponent - whole) < np.finfo(np.float32).eps:
        power = f"pow(fabs((double){{0}}), {whole!r})"
        code = f"(float)({{0}} < 0.f ? -{power} : {power})" if whole % 2 else f"(float){power}"
    else:
        code = f"(float)pow((double){{0}}, {exponent!r})"
    if not math.isfinite(exponent):
        raise NotApplicable(f"power {exponent}")
    pointwise(
        low, node, node.outputs[0], [node.inputs[0]], lambda b, x: evaluate(b, code, dtype, x)
    )


@lowers(AFFINE_INT)
def affine_int(low: Lowering, node: Node, call: Call) -> None:
    """int8 of x * k + b, rounded half to even."""
    code = "saturate(rintf((float){0} * {1} + {2}), -128, 127)"
    pointwise(low, node, node.outputs[0], list(node.inputs), lambda b, *x: b.op("int", code, *x))


def _register(dtype: DType) -> str:
    return "float" if dtype.is_float else "int"


@lowers(WHERE)
def where(low: Lowering, node: Node, call: Call) -> None:
    """Of two tensors, by a mask."""
    register = _register(call.dtype(1))
    pointwise(
        low,
        node,
        node.outputs[0],
        list(node.inputs),
        lambda b, m, x, y: b.op(register, "({0} ? {1} : {2})", m, x, y),
    )


@lowers(WHERE_BACKWARD)
def where_backward(low: Lowering, node: Node, call: Call) -> None:
    """A gradient where the mask is set, and where it is not."""
    register = _register(call.dtype(0))
    for value, code in zip(node.outputs, ("({1} ? {0} : 0)", "({1} ? 0 : {0})"), strict=False):
        pointwise(
            low,
            node,
            value,
            list(node.inputs),
            lambda b, d, m, code=code: b.op(register, code, d, m),
        )


@lowers(MASKED_FILL)
def masked_fill(low: Lowering, node: Node, call: Call) -> None:
    """A number where the mask of the first dimensions is set."""
    x, mask = node.inputs
    dtype, shape = call.dtype(0), low.shape(x)
    fill = np.array([call.param.value], np.float32)
    number = narrow(fill, dtype) if dtype.is_float else truncate(fill, dtype)
    name = low.constant(number, dtype)
    b = Builder()
    result = b.op(_register(dtype), "({1} ? {2} : {0})", ("i", 0), ("i", 1), ("i", 2))
    given = low.shape(mask)
    strides = nd.contiguous(given) + (0,) * (len(shape) - len(given))
    accesses = (
        low.access(x, shape),
        nd.Access(low.name(mask), strides),
        nd.Access(name, (0,) * len(shape)),
    )
    low.add(nd.Pointwise(low.label(node), (low.out(node.outputs[0]),), accesses, b.done(result)))
