"""Reductions along axes, positions of extremes, running sums.

Sums are accumulated in float64 or int64 and rounded or wrapped once at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT16, FLOAT32, INT32, Array, DType, DTypeEnum, quantized
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.numerics import (
    accumulator,
    narrow,
    quantize,
    rhaz,
    saturate_to,
    to_real,
    widen,
)
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import fixed_dtype, need, normal_axis

__all__ = ["ARGMAX", "ARGMIN", "CUMSUM", "REDUCE", "target_axes"]

M = P.ReduceMode
T = P.ReduceDataType
A = npt.NDArray[Any]

# The axis of a Reduce whose second input is the target shape.
BY_SHAPE = 2147483647
# Modes that can keep a quantised type; the others would need another scale.
_CODE_MODES = frozenset({M.SUM, M.MEAN, M.MIN_, M.MAX_})
_WIDE_KINDS = {
    T.QUINT_I8xO32: DTypeEnum.Quantized8Asymm,
    T.QINT_I8xO32: DTypeEnum.QuantizedS8,
}


def _reduce_dtypes(call: Call) -> list[DType]:
    source, data_type, mode = call.dtype(0), call.param.data_type, call.param.mode
    if not mode.is_known:
        raise UnsupportedError(f"Reduce mode {mode} is not known")
    if source.kind is DTypeEnum.Complex64:
        raise UnsupportedError("Reduce is not defined for Complex64")
    if data_type in _WIDE_KINDS:
        wanted = _WIDE_KINDS[data_type]
        need(source.kind is wanted, f"data_type {data_type} needs {wanted.name}, got {source}")
        return [quantized(DTypeEnum.QuantizedS32, source.scale or 0.0)]
    if data_type == T.FLOAT_O32xC32:
        return [FLOAT32]
    if data_type == T.FLOAT_O16xC32:
        need(source.is_float, f"data_type FLOAT_O16xC32 needs floats, got {source.name}")
        return [FLOAT16]
    if data_type != T.DEFAULT:
        raise UnsupportedError(f"Reduce with data_type {data_type} has no meaning in any release")
    if source.is_quantized:
        _need_code_mode(source, mode)
    return [source]


def _need_code_mode(source: DType, mode: P.ReduceMode) -> None:
    # An asymmetric sum has another zero point than its type says: MegEngine refuses it, too.
    if mode not in _CODE_MODES or (mode is M.SUM and source.is_asymmetric):
        raise UnsupportedError(
            f"Reduce mode {mode} is not defined for {source.name}",
            hint="convert to Float32 with TypeCvt first",
        )


def target_axes(shape: Shape, target: Shape) -> tuple[int, ...]:
    """Axes to reduce so that `shape` becomes `target`, aligned at the right.

    Raises:
        ShapeError: A dimension of the target is neither 1 nor that of the input.
    """
    skip = len(shape) - len(target)
    need(skip >= 0, f"cannot reduce {shape} to the larger rank of {target}")
    for n, t in zip(shape[skip:], target, strict=True):
        need(t in (1, n), f"cannot reduce {shape} to {target}: each must be kept or 1")
    changed = [i + skip for i, t in enumerate(target) if t != shape[i + skip]]
    return (*range(skip), *changed)


def _target(call: Call, value: Array) -> Shape:
    need(value.ndim == 1, f"the target shape must be a vector, got {value.shape}")
    return tuple(int(n) for n in value)


def _by_shape(call: Call) -> bool:
    by_shape = len(call.inputs) == 2
    axis = call.param.axis
    need(by_shape or axis != BY_SHAPE, "without a target shape an axis is needed")
    need(not by_shape or axis == BY_SHAPE, f"axis {axis} and a target shape exclude each other")
    return by_shape


def _reduce_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    if not _by_shape(call):
        if x is None:
            return [None]
        axis = normal_axis(call.param.axis, len(x))
        return [(*x[:axis], 1, *x[axis + 1 :])]
    value = call.value(1)
    if value is None:
        # The vector's length is the rank; tensors have at most seven dimensions.
        length = (call.inputs[1].shape or (None,))[0]
        return [(None,) * length if length is not None and 0 < length < 8 else None]
    target = _target(call, value)
    if call.inputs[0].is_static:
        target_axes(call.shape(0), target)
    return [target]


def _mean_of_integers(x: A, axes: tuple[int, ...], count: int) -> A:
    total = np.sum(x, axis=axes, keepdims=True)
    # C division: toward zero.
    return np.asarray(np.sign(total) * (np.abs(total) // count))


def _mean(x: A, axes: tuple[int, ...]) -> A:
    count = max(1, int(np.prod([x.shape[a] for a in axes])))
    if x.dtype.kind == "f":
        return np.asarray(np.sum(x, axis=axes, keepdims=True) / count)
    return _mean_of_integers(x, axes, count)


def _extreme(pick: Callable[..., Any]) -> Callable[[A, tuple[int, ...]], A]:
    def compute(x: A, axes: tuple[int, ...]) -> A:
        need(
            all(x.shape[a] for a in axes),
            f"no least or greatest element along an empty axis of {x.shape}",
        )
        return np.asarray(pick(x, axis=axes, keepdims=True))

    return compute


_COMPUTE: dict[P.ReduceMode, Callable[[A, tuple[int, ...]], A]] = {
    M.SUM: lambda x, axes: np.asarray(np.sum(x, axis=axes, keepdims=True)),
    M.SUM_SQR: lambda x, axes: np.asarray(np.sum(x * x, axis=axes, keepdims=True)),
    M.PRODUCT: lambda x, axes: np.asarray(np.prod(x, axis=axes, keepdims=True)),
    M.MIN_: _extreme(np.min),
    M.MAX_: _extreme(np.max),
    M.MEAN: _mean,
}


def _reduce(call: Call, x: Array, *target: Array) -> Array:
    source, result = call.dtype(0), call.output_types[0].dtype
    mode = call.param.mode
    if _by_shape(call):
        shape = _target(call, target[0])
        axes = target_axes(x.shape, shape)
    else:
        axis = normal_axis(call.param.axis, x.ndim)
        axes, shape = (axis,), (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    with np.errstate(all="ignore"):
        if source.is_quantized:
            values = _reduce_codes(x, axes, mode, source, result)
        elif result.is_float:
            wide = to_real(x, source).astype(np.float64)
            values = narrow(_COMPUTE[mode](wide, axes).astype(np.float32), result)
        else:
            sums = _COMPUTE[mode](x.astype(accumulator(source)), axes)
            values = sums.astype(result.storage)
    return values.reshape(shape)


def _reduce_codes(
    x: Array, axes: tuple[int, ...], mode: P.ReduceMode, source: DType, result: DType
) -> Array:
    zero = source.zero_point or 0
    steps = x.astype(np.int64) - zero
    if result.is_float:
        return narrow(_COMPUTE[mode](to_real(x, source).astype(np.float64), axes), result)
    if mode not in _CODE_MODES:
        return quantize(_COMPUTE[mode](to_real(x, source).astype(np.float64), axes), result)
    if mode is M.MEAN:
        values: A = rhaz(_mean(steps.astype(np.float64), axes)).astype(np.int64)
    else:
        values = _COMPUTE[mode](steps, axes)
    return saturate_to(values + (result.zero_point or 0), result)


def _arg_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    if x is None:
        return [None]
    axis = normal_axis(call.param.axis, len(x))
    need(x[axis] != 0, f"axis {axis} of {x} is empty")
    return [(*x[:axis], 1, *x[axis + 1 :])]


def _arg(call: Call, x: Array, pick: Callable[..., Any]) -> Array:
    values = widen(x, call.dtype(0))
    # The first extreme; NaN counts as one.
    found = pick(values, axis=normal_axis(call.param.axis, x.ndim), keepdims=True)
    return np.asarray(found).astype(np.int32)


def _argmax(call: Call, x: Array) -> Array:
    return _arg(call, x, np.argmax)


def _argmin(call: Call, x: Array) -> Array:
    return _arg(call, x, np.argmin)


def _cumsum_dtypes(call: Call) -> list[DType]:
    dtype = call.dtype(0)
    if not (dtype.is_float or dtype.is_integer):
        raise UnsupportedError(f"Cumsum is not defined for {dtype.name}")
    return [dtype]


def _cumsum_shapes(call: Call) -> list[ShapeLike]:
    x = call.inputs[0].shape
    if x is not None:
        normal_axis(call.param.axis, len(x))
    return [x]


def _cumsum(call: Call, x: Array) -> Array:
    dtype, axis = call.dtype(0), normal_axis(call.param.axis, x.ndim)
    values: A = widen(x, dtype).astype(accumulator(dtype))
    if call.param.reverse:
        values = np.flip(values, axis)
    with np.errstate(all="ignore"):
        sums = np.cumsum(values, axis=axis)
        if call.param.exclusive:
            sums = np.roll(sums, 1, axis=axis)
            if sums.size:
                np.moveaxis(sums, axis, 0)[0] = 0
        if call.param.reverse:
            sums = np.flip(sums, axis)
        return narrow(sums.astype(np.float32), dtype) if dtype.is_float else narrow(sums, dtype)


REDUCE = register(
    OpSpec(
        name="Reduce",
        runtime_name="Reduce",
        names=(Name("ReduceV2", "v0.3.1", 16798497759448275553),),
        old_id=16815269931273165784,
        v2=(V2Id("ReduceV2", 1, 16815269931273165784),),
        params=(P.Reduce,),
        inputs=("x", "target_shape"),
        min_inputs=1,
        dtypes=_reduce_dtypes,
        shapes=_reduce_shapes,
        reference=_reduce,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

ARGMAX = register(
    OpSpec(
        name="Argmax",
        runtime_name="Argmax",
        names=(Name("Argmax", "v0.3.1", 11529728997699271527),),
        old_id=13058155132752716377,
        v2=(V2Id("Argmax", 1, 13058155132752716377),),
        params=(P.Axis,),
        inputs=("x",),
        dtypes=fixed_dtype(INT32),
        shapes=_arg_shapes,
        reference=_argmax,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

ARGMIN = register(
    OpSpec(
        name="Argmin",
        runtime_name="Argmin",
        names=(Name("Argmin", "v0.3.1", 4505624168907520755),),
        old_id=7101073215918429656,
        v2=(V2Id("Argmin", 1, 7101073215918429656),),
        params=(P.Axis,),
        inputs=("x",),
        dtypes=fixed_dtype(INT32),
        shapes=_arg_shapes,
        reference=_argmin,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)

CUMSUM = register(
    OpSpec(
        name="Cumsum",
        runtime_name="Cumsum",
        names=(Name("CumsumV1", "v0.3.1", 4254094950660026616),),
        old_id=4881526395661771330,
        v2=(V2Id("CumsumV1", 1, 4881526395661771330),),
        params=(P.Cumsum,),
        inputs=("x",),
        dtypes=_cumsum_dtypes,
        shapes=_cumsum_shapes,
        reference=_cumsum,
        partial=True,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)
