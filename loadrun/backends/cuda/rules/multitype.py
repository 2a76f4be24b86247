"""ElemwiseMultiType: mixed element types, quantised arithmetic, comparisons."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cuda.elements import convert, dequantize, evaluate, quantize
from loadrun.backends.cuda.expr import Builder, Ref
from loadrun.backends.cuda.linked import verify
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rules.elemwise import code_of, pointwise, rmulh
from mgeserial import params as P
from mgeserial.dtypes import BOOL, FLOAT32, INT16, INT32
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.multitype import ELEMWISE_MULTI_TYPE, elemwise_mode
from mgeserial.ops.numerics import promote

_M = P.ElemwiseMultiTypeMode
_SHIFTED = "clamp64(shift_rounded({0}, {1} & 63), %d, %d)"
_PLAIN = {
    _M.FUSE_MUL_ADD3_INT16x32x32x32: ("int", "(int)((u32){0} * (u32){1} + (u32){2})"),
    _M.FUSE_MUL_ADD3_IXxF32xF32xI8: (
        "int",
        "saturate(rintf((float){0} * {1} + {2}), -128, 127)",
    ),
    _M.FUSE_MUL_ADD3_INT16xF32xF32xF32: ("float", "((float){0} * {1} + {2})"),
    _M.FUSE_MUL_ADD3_UINT8xF32xF32xF32: ("float", "((float){0} * {1} + {2})"),
    _M.MUL_INT16xF32xF32: ("float", "((float){0} * {1})"),
    _M.ROUND_SHR_SATURATE_IXxI8xI8: ("int", _SHIFTED % (-128, 127)),
    _M.ROUND_SHR_SATURATE_IXxI8xI16: ("int", _SHIFTED % (-32768, 32767)),
}
_ADD_MULH = {
    _M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8: INT16,
    _M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8: INT32,
}
_SHIFT_AT = {
    _M.ROUND_SHR_SATURATE_IXxI8xI8: 1,
    _M.ROUND_SHR_SATURATE_IXxI8xI16: 1,
    **dict.fromkeys(_ADD_MULH, 3),
}


def _quantized(low: Lowering, node: Node, call: Call, mode: P.ElemwiseMode) -> None:
    order = list(range(len(node.inputs)))
    if mode in (P.ElemwiseMode.MAX_, P.ElemwiseMode.MIN_):
        sizes = [math.prod(low.shape(v)) for v in node.inputs]
        order = [1, 0] if sizes[0] == 1 != sizes[1] else order
    code = code_of(mode, FLOAT32)

    def make(b: Builder, *x: Ref) -> Ref:
        reals = [dequantize(b, x[k], call.dtype(k)) for k in order]
        return quantize(b, b.op("float", code, *reals), call.output_types[0].dtype)

    pointwise(low, node, node.outputs[0], list(node.inputs), make)


def _compared(low: Lowering, node: Node, call: Call, mode: P.ElemwiseMode) -> None:
    try:
        dtype = promote([t.dtype for t in call.inputs])
    except MgeError as error:
        raise NotApplicable("no common type") from error
    code = code_of(mode, dtype)

    def make(b: Builder, *x: Ref) -> Ref:
        args = [convert(b, x[k], call.dtype(k), dtype) for k in range(len(x))]
        return b.op("int", "(int)({0} != 0)", evaluate(b, code, dtype, *args))

    pointwise(low, node, node.outputs[0], list(node.inputs), make)


def _check_shifts(low: Lowering, node: Node, mode: P.ElemwiseMultiTypeMode) -> None:
    """Counts out of range end the run."""
    at = _SHIFT_AT.get(mode)
    if at is None:
        return
    counts = low.array(node.inputs[at])
    if counts is None or not 0 <= int(np.min(counts)) <= int(np.max(counts)) < 64:
        for value in (*node.inputs, *node.outputs):
            low.shape(value)
        name = low.name(node.inputs[at])
        verify(low, node, name, "v >= 0 && v < 64", "shift counts must be 0 to 63")


@lowers(ELEMWISE_MULTI_TYPE)
def elemwise_multi_type(low: Lowering, node: Node, call: Call) -> None:
    """All modes: quantised ones through float32 as they are defined, comparisons, mixed types."""
    mode = call.param.mode
    inner = elemwise_mode(mode)
    if inner is not None:
        if call.output_types[0].dtype == BOOL:
            _compared(low, node, call, inner)
        else:
            _quantized(low, node, call, inner)
        return
    _check_shifts(low, node, mode)
    if mode in _PLAIN:
        register, code = _PLAIN[mode]
        pointwise(
            low, node, node.outputs[0], list(node.inputs), lambda b, *x: b.op(register, code, *x)
        )
        return
    if mode not in _ADD_MULH:
        raise NotApplicable(f"mode {mode}")
    dtype = _ADD_MULH[mode]

    def make(b: Builder, x: Ref, y: Ref, m: Ref, k: Ref, least: Ref, most: Ref) -> Ref:
        total = evaluate(b, "(int)((u32){0} + (u32){1})", dtype, x, y)
        product = b.op("int", rmulh(dtype), total, m)
        short = b.op("int", _SHIFTED % (-128, 127), product, k)
        return b.op("int", "max(min({0}, {1}), {2})", short, most, least)

    pointwise(low, node, node.outputs[0], list(node.inputs), make)
