"""Tensors made from numbers: ranges, identity and diagonal matrices, storage."""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.numerics import from_real, to_real
from mgeserial.ops.operands import MOST_ELEMENTS, dims, number, ruled_shape
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, fixed_dtype, need, need_gradient


def _linspace_shapes(call: Call) -> list[ShapeLike]:
    for index in (0, 1):
        need(call.inputs[index].size == 1, f"input {index} must be one number")
    count = number(call, 2)
    need(count is None or count > 0, f"the number of points must be above zero, got {count}")
    return [(count,)]


def _linspace(call: Call, start: Array, stop: Array, num: Array) -> Array:
    (count,) = ruled_shape(call, start, stop, num)
    first, last = (
        float(to_real(a, t.dtype).reshape(-1)[0])
        for a, t in zip((start, stop), call.inputs, strict=False)
    )
    step = (last - first) / max(count - 1 if call.param.endpoint else count, 1)
    return (first + np.arange(count) * step).astype(np.float32)


def _named_dtype(call: Call) -> list[DType]:
    dtype = DType(call.param.dtype)
    if dtype.is_quantized:
        raise UnsupportedError(f"{dtype.name} needs a scale, which this operator does not store")
    return [dtype]


def _eye_shapes(call: Call) -> list[ShapeLike]:
    wanted = dims(call, 0)
    if wanted is None:
        return [(None, None)]
    need(len(wanted) in (1, 2), f"a matrix has 1 or 2 dimensions, got {wanted}")
    rows, columns = wanted if len(wanted) == 2 else wanted * 2
    size = (rows or 0) * (columns or 0)
    need(size <= MOST_ELEMENTS, f"a matrix of shape ({rows}, {columns}) is too large")
    return [(rows, columns)]


def _eye(call: Call, shape: Array) -> Array:
    rows, columns = ruled_shape(call, shape)
    ones = np.eye(rows, columns, call.param.k, dtype=np.float32)
    return from_real(ones, _named_dtype(call)[0])


def _alloc_shapes(call: Call) -> list[ShapeLike]:
    return [dims(call, 0)]


def _alloc(call: Call, shape: Array) -> Array:
    # Contents are not defined; zeros are the same in every run.
    return np.zeros(ruled_shape(call, shape), _named_dtype(call)[0].storage)


def _diag_dims(shape: Shape, k: int) -> Shape:
    """Shape of the diagonal of a matrix, or of the matrix with that diagonal."""
    need(len(shape) in (1, 2), f"a vector or a matrix is needed, got shape {shape}")
    if len(shape) == 1:
        return (shape[0] + abs(k), shape[0] + abs(k))
    length = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
    need(length > 0, f"a matrix of shape {shape} has no diagonal {k}")
    return (length,)


def _diag_shapes(call: Call) -> list[ShapeLike]:
    return [_diag_dims(call.shape(0), call.param.k)]


def _diag(call: Call, x: Array) -> Array:
    return np.diag(x, call.param.k)


def _diag_backward_shapes(call: Call) -> list[ShapeLike]:
    wanted = dims(call, 0)
    if wanted is None:
        return [None]
    shape = tuple(n or 0 for n in wanted)
    if None in wanted:
        return [wanted]
    fits = _diag_dims(shape, call.param.k)
    need_gradient(call, 1, fits)
    return [shape]


def _diag_backward(call: Call, shape: Array, diff: Array) -> Array:
    wanted, k = ruled_shape(call, shape, diff), call.param.k
    if len(wanted) == 1:
        return np.diagonal(diff, k)
    dx = np.zeros(wanted, diff.dtype)
    position = np.arange(diff.shape[0])
    dx[position + max(-k, 0), position + max(k, 0)] = diff
    return dx


LINSPACE = register(
    OpSpec(
        name="Linspace",
        runtime_name="Linspace",
        names=(Name("Linspace", "v0.3.1", 16502420122900532397),),
        old_id=5790229234089783718,
        v2=(V2Id("Linspace", 1, 5790229234089783718),),
        params=(P.Linspace,),
        inputs=("start", "stop", "num"),
        dtypes=fixed_dtype(FLOAT32),
        shapes=_linspace_shapes,
        reference=_linspace,
        source="semantics section 9, operators.json",
    )
)

EYE = register(
    OpSpec(
        name="Eye",
        runtime_name="Eye",
        names=(Name("Eye", "v0.3.1", 5478303782874675494),),
        old_id=7647302513250927550,
        v2=(V2Id("Eye", 1, 7647302513250927550),),
        params=(P.Eye,),
        inputs=("shape",),
        dtypes=_named_dtype,
        shapes=_eye_shapes,
        reference=_eye,
        source="semantics section 9, operators.json",
    )
)

# uninitialised tensor
ALLOC = register(
    OpSpec(
        name="Alloc",
        runtime_name="Alloc",
        names=(Name("Alloc", "v0.3.1", 1483949363830661953),),
        old_id=18066725298356410135,
        v2=(V2Id("Alloc", 1, 18066725298356410135),),
        params=(P.DType,),
        inputs=("shape",),
        dtypes=_named_dtype,
        shapes=_alloc_shapes,
        reference=_alloc,
        source="semantics section 9, operators.json",
    )
)

DIAG = register(
    OpSpec(
        name="Diag",
        runtime_name="Diag",
        names=(Name("Diag", "v1.8.0", 4968175436772524515),),
        old_id=12690908018650202336,
        v2=(V2Id("Diag", 1, 12690908018650202336),),
        params=(P.Diag,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=_diag_shapes,
        reference=_diag,
        source="semantics section 9, operators.json",
    )
)

DIAG_BACKWARD = register(
    OpSpec(
        name="DiagBackward",
        runtime_name="DiagBackward",
        names=(Name("DiagBackward", "v1.8.0", 15038791977102327311),),
        old_id=7184430178028550410,
        v2=(V2Id("DiagBackward", 1, 7184430178028550410),),
        params=(P.Diag,),
        inputs=("shape", "diff"),
        dtypes=dtype_of(1),
        shapes=_diag_backward_shapes,
        reference=_diag_backward,
        source="semantics section 9, operators.json",
    )
)
