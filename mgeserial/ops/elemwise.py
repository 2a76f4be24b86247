"""Element by element, of one type: Elemwise, powers by a constant, choices by a mask.

What each Elemwise mode computes is the table in `mgeserial.ops.functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT8, Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import functions
from mgeserial.ops.numerics import convert, narrow, promote, rhte, saturate_to, truncate, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import broadcast_known, need, shape_of

__all__ = [
    "AFFINE_INT",
    "ELEMWISE",
    "MASKED_FILL",
    "POW_C",
    "WHERE",
    "WHERE_BACKWARD",
    "broadcast",
    "multiply_add_to_int8",
]

# Quantised inputs are computed on as these integers: scales do not matter to the modes allowed.
_CODE_KINDS = frozenset({DTypeEnum.QuantizedS32, DTypeEnum.QuantizedS8})
_CODE_MODES = frozenset(
    {
        P.ElemwiseMode.ADD,
        P.ElemwiseMode.SUB,
        P.ElemwiseMode.NEGATE,
        P.ElemwiseMode.RELU,
        P.ElemwiseMode.MAX_,
        P.ElemwiseMode.MIN_,
    }
)


def broadcast(call: Call) -> list[ShapeLike]:
    """Shape rule: the common shape of all inputs, where known."""
    return [broadcast_known([t.shape for t in call.inputs])]


def _elemwise_dtypes(call: Call) -> list[DType]:
    mode = call.param.mode
    function = functions.function_of(mode)
    need(
        len(call.inputs) == function.arity,
        f"mode {mode} needs {function.arity} inputs, got {len(call.inputs)}",
    )
    dtype = promote([t.dtype for t in call.inputs])
    if dtype.is_quantized:
        if dtype.kind not in _CODE_KINDS or mode not in _CODE_MODES:
            raise UnsupportedError(
                f"Elemwise mode {mode} is not defined for {dtype.name}",
                hint="use ElemwiseMultiType with the mode's Q form",
            )
        return [dtype]
    if dtype.is_integer and function.compute_for(dtype.storage) is None and function.real:
        dtype = FLOAT32  # a mode for floats only converts integers
    if function.compute_for(np.dtype(np.float32) if dtype.is_float else dtype.storage) is None:
        raise UnsupportedError(f"Elemwise mode {mode} is not defined for {dtype.name}")
    return [dtype]


def _elemwise(call: Call, *arrays: Array) -> Array:
    (dtype,) = _elemwise_dtypes(call)
    values = [
        widen(convert(x, t.dtype, dtype), dtype) for x, t in zip(arrays, call.inputs, strict=True)
    ]
    return narrow(functions.evaluate(call.param.mode, *values), dtype)


def _pow_dtypes(call: Call) -> list[DType]:
    if not call.dtype(0).is_float:
        raise UnsupportedError(f"PowC needs a floating input, got {call.dtype(0).name}")
    return [call.dtype(0)]


def _pow(call: Call, x: Array) -> Array:
    dtype = call.dtype(0)
    base = widen(x, dtype).astype(np.float64)
    exponent = np.float32(call.param.exp)
    whole = np.rint(exponent)
    with np.errstate(all="ignore"):
        if abs(exponent - whole) < np.finfo(np.float32).eps:
            powers = np.power(np.abs(base), np.float64(whole))
            if whole % 2:
                powers = np.where(base < 0, -powers, powers)
        else:
            powers = np.power(base, np.float64(exponent))
    return narrow(powers, dtype)


def multiply_add_to_int8(x: Array, k: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> Array:
    """int8 of x * k + b in float32: rounded half to even, saturated; NaN gives -128."""
    with np.errstate(all="ignore"):
        return saturate_to(rhte(x.astype(np.float32) * k + b), INT8)


def _affine_int_dtypes(call: Call) -> list[DType]:
    need(call.dtype(0).is_integer, f"x must be of integers, got {call.dtype(0).name}")
    for i, name in ((1, "k"), (2, "b")):
        need(call.dtype(i) == FLOAT32, f"{name} must be Float32, got {call.dtype(i).name}")
    return [INT8]


def _same_shape(call: Call, first: int, second: int) -> None:
    a, b = call.shape(first), call.shape(second)
    names = call.op.input_names
    need(a == b, f"{names[first]} and {names[second]} must have equal shapes, got {a} and {b}")


def _need_mask(call: Call, index: int) -> None:
    kind = call.dtype(index).kind
    need(kind is DTypeEnum.Bool, f"the mask must be Bool, got {kind.name}")


def _where_dtypes(call: Call) -> list[DType]:
    _need_mask(call, 0)
    x, y = call.dtype(1), call.dtype(2)
    need(x == y, f"x and y must have equal types, got {x} and {y}")
    return [x]


def _where_shapes(call: Call) -> list[ShapeLike]:
    _same_shape(call, 0, 1)
    _same_shape(call, 1, 2)
    return [call.shape(1)]


def _where(call: Call, mask: Array, x: Array, y: Array) -> Array:
    return np.where(mask, x, y)


def _where_backward_dtypes(call: Call) -> list[DType]:
    _need_mask(call, 1)
    return [call.dtype(0)] * call.count


def _where_backward_shapes(call: Call) -> list[ShapeLike]:
    _same_shape(call, 0, 1)
    return [call.shape(0)] * call.count


def _where_backward(call: Call, diff: Array, mask: Array) -> Sequence[Array]:
    zero = diff.dtype.type(0)
    return np.where(mask, diff, zero), np.where(mask, zero, diff)


def _masked_fill_dtypes(call: Call) -> list[DType]:
    _need_mask(call, 1)
    dtype = call.dtype(0)
    if not (dtype.is_float or dtype.is_integer):
        raise UnsupportedError(f"MaskedFill is not defined for {dtype.name}")
    return [dtype]


def _masked_fill_shapes(call: Call) -> list[ShapeLike]:
    x, mask = call.shape(0), call.shape(1)
    need(
        x[: len(mask)] == mask,
        f"the mask's shape must be the first dimensions of x, got {mask} and {x}",
    )
    return [x]


def _masked_fill(call: Call, x: Array, mask: Array) -> Array:
    dtype = call.dtype(0)
    fill = np.array([call.param.value], dtype=np.float32)
    value = narrow(fill, dtype) if dtype.is_float else truncate(fill, dtype)
    wide = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    return np.where(wide, value[0], x)


ELEMWISE = register(
    OpSpec(
        name="Elemwise",
        runtime_name="Elemwise",
        names=(Name("Elemwise", "v0.3.1", 16984089995691734746),),
        old_id=15475644582354676744,
        v2=(V2Id("Elemwise", 1, 15475644582354676744),),
        params=(P.Elemwise,),
        inputs=("x", "y", "z", "w"),
        min_inputs=1,
        dtypes=_elemwise_dtypes,
        shapes=broadcast,
        reference=_elemwise,
        partial=True,
        source="semantics sections 1 and 2; MegEngine v1.13 src/opr/impl/basic_arith.cpp",
    )
)

POW_C = register(
    OpSpec(
        name="PowC",
        runtime_name="PowC",
        names=(Name("PowC", "v0.3.1", 14403559926765625169),),
        old_id=18093854633143090602,
        v2=(V2Id("PowC", 1, 18093854633143090602),),
        params=(P.PowC,),
        inputs=("x",),
        dtypes=_pow_dtypes,
        shapes=shape_of(0),
        reference=_pow,
        partial=True,
        source="semantics section 2, checked against MegEngine 1.13.0",
    )
)

AFFINE_INT = register(
    OpSpec(
        name="AffineInt",
        runtime_name="AffineInt",
        names=(Name("AffineInt", "v0.3.1", 15863023442333772220),),
        old_id=6347830066644993788,
        v2=(V2Id("AffineInt", 1, 6347830066644993788),),
        params=(P.Empty,),
        inputs=("x", "k", "b"),
        dtypes=_affine_int_dtypes,
        shapes=broadcast,
        reference=lambda call, x, k, b: multiply_add_to_int8(x, k, b),
        partial=True,
        source="MegEngine v1.13 nn_int.h: another name of FUSE_MUL_ADD3_IXxF32xF32xI8",
    )
)

WHERE = register(
    OpSpec(
        name="Where",
        runtime_name="WhereForward",
        names=(Name("Where", "v1.13.2", 5325506513733584871),),
        old_id=12119744632192557544,
        v2=(V2Id("Where", 1, 12119744632192557544),),
        params=(P.Empty,),
        inputs=("mask", "x", "y"),
        dtypes=_where_dtypes,
        shapes=_where_shapes,
        reference=_where,
        source="semantics section 7; MegEngine v1.13 dnn/src/naive/where",
    )
)

# the registered loader asserts 4 inputs while the operator has 2, so MegEngine itself cannot
# reload it
WHERE_BACKWARD = register(
    OpSpec(
        name="WhereBackward",
        runtime_name="WhereBackward",
        names=(Name("WhereBackward", "v1.13.2", 9925050812022941076),),
        old_id=5963893961076172924,
        v2=(V2Id("WhereBackward", 1, 5963893961076172924),),
        params=(P.Empty,),
        inputs=("diff", "mask"),
        outputs=("grad_x", "grad_y"),
        output_count=2,
        dtypes=_where_backward_dtypes,
        shapes=_where_backward_shapes,
        reference=_where_backward,
        source="MegEngine v1.13 dnn/src/naive/where",
    )
)

MASKED_FILL = register(
    OpSpec(
        name="MaskedFill",
        runtime_name="MaskedFill",
        names=(Name("MaskedFill", "v1.12.0", 4550643088314486861),),
        old_id=15590661434745340494,
        v2=(V2Id("MaskedFill", 1, 15590661434745340494),),
        params=(P.Fill,),
        inputs=("x", "mask"),
        dtypes=_masked_fill_dtypes,
        shapes=_masked_fill_shapes,
        reference=_masked_fill,
        source="semantics section 7, checked against MegEngine 1.13.0",
    )
)
