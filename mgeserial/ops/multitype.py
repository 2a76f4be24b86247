"""ElemwiseMultiType: element by element with mixed input types, quantised arithmetic, comparisons.

A mode's entry in `MODES` says which element types it takes and gives, and how it is computed. The
Q modes compute the Elemwise mode of the same name on real values and quantise the result once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, UINT8, Array, DType
from mgeserial.errors import ExecutionError, ShapeError, UnsupportedError
from mgeserial.ir.types import Call
from mgeserial.ops import functions
from mgeserial.ops.elemwise import broadcast, multiply_add_to_int8
from mgeserial.ops.numerics import convert, dequantize, promote, quantize, saturate_to, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need

__all__ = ["ELEMWISE_MULTI_TYPE", "MODES", "Mode", "elemwise_mode"]

M = P.ElemwiseMultiTypeMode
A = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Mode:
    """What one mode takes, gives and computes.

    Attributes:
        takes: For each input a DType, or the name of a kind: integer, float, quantized, any.
        gives: The output's type; None: the type stored with the operator, which must be quantised.
        compute: Result from the call and the input arrays.
    """

    takes: tuple[DType | str, ...]
    gives: DType | None
    compute: Callable[..., Array]


# Names that the generated enums end with an underscore.
_ESCAPED = {"MIN": P.ElemwiseMode.MIN_, "MAX": P.ElemwiseMode.MAX_}


def elemwise_mode(mode: P.ElemwiseMultiTypeMode) -> P.ElemwiseMode | None:
    """The Elemwise mode inside a Q mode or a comparison; None for modes with their own formula."""
    name = mode.name.removeprefix("Q")
    return _ESCAPED.get(name) or P.ElemwiseMode.__members__.get(name)


def _inner(call: Call) -> P.ElemwiseMode:
    mode = elemwise_mode(call.param.mode)
    if mode is None:
        raise UnsupportedError(f"ElemwiseMultiType mode {call.param.mode} is not known")
    return mode


def _quantized(call: Call, *codes: Array) -> Array:
    reals = [dequantize(x, t.dtype) for x, t in zip(codes, call.inputs, strict=True)]
    return quantize(functions.evaluate(_inner(call), *reals), call.output_types[0].dtype)


def _compared(call: Call, *arrays: Array) -> Array:
    dtype = promote([t.dtype for t in call.inputs])
    values = [
        widen(convert(x, t.dtype, dtype), dtype) for x, t in zip(arrays, call.inputs, strict=True)
    ]
    return functions.evaluate(_inner(call), *values).astype(np.bool_)


def _multiply_add_i32(call: Call, x: A, y: A, z: A) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x.astype(np.int32) * y + z)


def _multiply_add_f32(call: Call, x: A, y: A, z: A) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(np.float32) * y + z)


def _multiply_f32(call: Call, x: A, y: A) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(np.float32) * y)


def _shift_right_rounded(x: A, k: A) -> A:
    """Compute x / 2**k rounded half away from zero, as int64."""
    if k.size and not 0 <= int(k.min()) <= int(k.max()) < 64:
        raise ExecutionError(f"shift counts must be 0 to 63, got {k.min()} to {k.max()}")
    wide, count = x.astype(np.int64), k.astype(np.int64)
    mask = (np.int64(1) << count) - 1
    return np.asarray((wide >> count) + ((wide & mask) > (mask >> 1) + (wide < 0)))


def _shift_to_int8(call: Call, x: A, k: A) -> Array:
    return saturate_to(_shift_right_rounded(x, k), INT8)


def _shift_to_int16(call: Call, x: A, k: A) -> Array:
    return saturate_to(_shift_right_rounded(x, k), INT16)


def _add_mulh_shift(call: Call, x: A, y: A, m: A, k: A, low: A, high: A) -> Array:
    with np.errstate(over="ignore"):
        product = functions.rounding_mulh(x + y, m)
    narrow = saturate_to(_shift_right_rounded(product, k), INT8)
    return np.asarray(np.maximum(np.minimum(narrow, high), low))


_TABLE: dict[P.ElemwiseMultiTypeMode, Mode] = {
    M.FUSE_MUL_ADD3_INT16x32x32x32: Mode((INT16, INT32, INT32), INT32, _multiply_add_i32),
    M.FUSE_MUL_ADD3_IXxF32xF32xI8: Mode(
        ("integer", FLOAT32, FLOAT32), INT8, lambda call, x, k, b: multiply_add_to_int8(x, k, b)
    ),
    M.ROUND_SHR_SATURATE_IXxI8xI8: Mode(("integer", INT8), INT8, _shift_to_int8),
    M.ROUND_SHR_SATURATE_IXxI8xI16: Mode(("integer", INT8), INT16, _shift_to_int16),
    M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8: Mode(
        (INT16, INT16, INT16, INT8, INT8, INT8), INT8, _add_mulh_shift
    ),
    M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8: Mode(
        (INT32, INT32, INT32, INT8, INT8, INT8), INT8, _add_mulh_shift
    ),
    M.FUSE_MUL_ADD3_INT16xF32xF32xF32: Mode((INT16, FLOAT32, FLOAT32), FLOAT32, _multiply_add_f32),
    M.FUSE_MUL_ADD3_UINT8xF32xF32xF32: Mode((UINT8, FLOAT32, FLOAT32), FLOAT32, _multiply_add_f32),
    M.MUL_INT16xF32xF32: Mode((INT16, FLOAT32), FLOAT32, _multiply_f32),
}


def _mode(mode: P.ElemwiseMultiTypeMode) -> Mode | None:
    inner = elemwise_mode(mode)
    if inner is None:
        return _TABLE.get(mode)
    arity = functions.FUNCTIONS[inner].arity
    if mode.name.startswith("Q"):
        return Mode(("quantized",) * arity, None, _quantized)
    return Mode(("float" if arity == 1 else "any",) * arity, BOOL, _compared)


MODES: dict[P.ElemwiseMultiTypeMode, Mode] = {
    mode: found for mode in P.ElemwiseMultiTypeMode if (found := _mode(mode)) is not None
}


def _fits(dtype: DType, wanted: DType | str) -> bool:
    if isinstance(wanted, DType):
        return dtype == wanted
    checks = {
        "any": True,
        "float": dtype.is_float,
        "integer": dtype.is_integer,
        "quantized": dtype.is_quantized,
    }
    return checks[wanted]


def _dtypes(call: Call) -> list[DType]:
    number = call.param.mode
    mode = MODES.get(number)
    if mode is None:
        raise UnsupportedError(f"ElemwiseMultiType mode {number} is not known")
    arity = len(mode.takes)
    need(len(call.inputs) == arity, f"mode {number} needs {arity} inputs, got {len(call.inputs)}")
    for i, (t, wanted) in enumerate(zip(call.inputs, mode.takes, strict=True)):
        need(
            _fits(t.dtype, wanted),
            f"input {i} of mode {number} must be {wanted}, got {t.dtype.name}",
        )
    if mode.gives is not None:
        return [mode.gives]
    stored = call.output_dtype
    if stored is None or not stored.is_quantized:
        shown = "none" if stored is None else stored.name
        raise ShapeError(
            f"mode {number} needs a quantised output dtype stored with the operator, got {shown}"
        )
    return [stored]


def _reference(call: Call, *arrays: Array) -> Array:
    return MODES[call.param.mode].compute(call, *arrays)


# output dtype = Operator.output_dtype. In v1.11.0 v2 files type_id is the NUL-terminated hash
# (persist form) although opr_version is 1
ELEMWISE_MULTI_TYPE = register(
    OpSpec(
        name="ElemwiseMultiType",
        runtime_name="ElemwiseMultiType",
        names=(Name("ElemwiseMultiType", "v0.3.1", 5459241759317220529),),
        old_id=7505243245230068554,
        v2=(
            V2Id("ElemwiseMultiType", 1, 7505243245230068554),
            V2Id("ElemwiseMultiType", 1, 5459241759317220529),  # only in files written by v1.11.0
        ),
        v2_written=0,
        params=(P.ElemwiseMultiType,),
        inputs=("x", "y", "z", "shift", "low", "high"),
        min_inputs=1,
        dtypes=_dtypes,
        shapes=broadcast,
        reference=_reference,
        partial=True,
        source="semantics section 3; MegEngine v1.13 dnn/src/common/elemwise_multi_type",
    )
)
