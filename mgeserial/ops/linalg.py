"""Linear algebra: products of matrices and vectors, inverse, singular values, cross product.

Source: semantics section 8, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType, DTypeEnum, quantized
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops import counts
from mgeserial.ops.convrules import operand, product_dtype
from mgeserial.ops.numerics import from_real, narrow, to_real
from mgeserial.ops.registry import Gap, Name, OpSpec, V2Id, register
from mgeserial.ops.rules import broadcast_shapes, dtype_of, need, normal_axis, of_floats

_SECTION = "semantics section 8"
_Format = P.MatrixMulFormat
# Rows and columns of A's blocks, and whether lanes of k or of m come first in a block.
_PACKED = {_Format.MK4: (4, "km"), _Format.MK8: (8, "km"), _Format.MK4_DOT: (4, "mk")}
_UNPACKED = Gap("reference", "the layout is not known", when="format N32K4_DOT")


def _sum_dtype(call: Call) -> DType:
    """Element type of the sums of products, before the stored output dtype is asked."""
    a, b = call.dtype(0), call.dtype(1)
    lowbit = {DTypeEnum.QuantizedS4, DTypeEnum.Quantized4Asymm}
    if a.kind == b.kind and a.kind in lowbit and a.scale is not None and b.scale is not None:
        scale = float(np.float32(a.scale) * np.float32(b.scale))
        return quantized(DTypeEnum.QuantizedS16, scale)
    if a.kind is b.kind is DTypeEnum.Int16:
        return INT32
    return product_dtype(a, b)


def _product_dtypes(call: Call) -> list[DType]:
    product = _sum_dtype(call)
    return [call.output_dtype or product]


def _multiply(call: Call, a: Array, b: Array) -> Array:
    """Product of stacks of matrices: float32 sums, or exact integers that wrap in the result."""
    product = _sum_dtype(call)
    out = call.output_dtype or product
    left: npt.NDArray[Any] = operand(a, call.dtype(0))
    right: npt.NDArray[Any] = operand(b, call.dtype(1))
    if product.is_float:
        return from_real(np.asarray(np.matmul(left, right)), out)
    # float64 is exact up to 2**53: products of 16 bits, 2**22 of them.
    exact = left.shape[-1] < 1 << 22
    kind = np.float64 if exact else np.int64
    sums = np.matmul(left.astype(kind), right.astype(kind)).astype(np.int64)
    if out.is_float or (out.scale is not None and out.scale != product.scale):
        return from_real(to_real(sums.astype(np.int32), product), out)
    return np.asarray(sums.astype(out.storage))


def _turned(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _product_shapes(call: Call, rank: int) -> list[ShapeLike]:
    a, b = call.shape(0), call.shape(1)
    need(
        len(a) == len(b) == rank,
        f"{call.op.name} needs {rank} dimensions on both sides, got {a} and {b}",
    )
    need(a[:-2] == b[:-2], f"batches differ: {a[0]} and {b[0]}")
    left, right = _turned(a, call.param.transposeA), _turned(b, call.param.transposeB)
    need(
        left[-1] == right[-2],
        f"inner sizes differ: A {a}{' transposed' * call.param.transposeA} has {left[-1]} columns, "
        f"B {b}{' transposed' * call.param.transposeB} has {right[-2]} rows",
    )
    return [(*left[:-1], right[-1])]


def _lanes(call: Call) -> tuple[int, str]:
    """Block size and order of lanes of a packed format."""
    if call.param.format not in _PACKED:
        raise UnsupportedError(f"{call.op.name} format {call.param.format} is not understood")
    if call.param.transposeA or call.param.transposeB:
        raise UnsupportedError(f"{call.op.name} format {call.param.format} cannot be transposed")
    return _PACKED[call.param.format]


def _matmul_shapes(call: Call) -> list[ShapeLike]:
    if call.param.format == _Format.DEFAULT:
        return _product_shapes(call, 2)
    lanes, _ = _lanes(call)
    a, b = call.shape(0), call.shape(1)
    need(
        len(a) == 4 and len(b) == 3 and a[2:] == (lanes, lanes) and b[2] == lanes,
        f"format {call.param.format} needs A (m/{lanes}, k/{lanes}, {lanes}, {lanes}) and "
        f"B (k/{lanes}, n, {lanes}), got {a} and {b}",
    )
    need(a[1] == b[0], f"inner sizes differ: A has {a[1]} blocks of k, B has {b[0]}")
    return [(a[0], b[1], lanes)]


def _matmul(call: Call, a: Array, b: Array) -> Array:
    if call.param.format == _Format.DEFAULT:
        return _multiply(call, *_oriented(call, a, b))
    lanes, order = _lanes(call)
    rows, inner = a.shape[0], a.shape[1]
    axes = (0, 3, 1, 2) if order == "km" else (0, 2, 1, 3)
    plain_a = a.transpose(axes).reshape(rows * lanes, inner * lanes)
    plain_b = b.transpose(0, 2, 1).reshape(inner * lanes, b.shape[1])
    c = _multiply(call, plain_a, plain_b)
    return np.ascontiguousarray(c.reshape(rows, lanes, -1).transpose(0, 2, 1))


def _oriented(call: Call, a: Array, b: Array) -> tuple[Array, Array]:
    left = a.swapaxes(-1, -2) if call.param.transposeA else a
    return left, b.swapaxes(-1, -2) if call.param.transposeB else b


def _batched_shapes(call: Call) -> list[ShapeLike]:
    if call.param.format != _Format.DEFAULT:
        raise UnsupportedError(f"BatchedMatrixMul format {call.param.format} is not understood")
    return _product_shapes(call, 3)


def _batched(call: Call, a: Array, b: Array) -> Array:
    return _multiply(call, *_oriented(call, a, b))


def _dot_shapes(call: Call) -> list[ShapeLike]:
    a, b = call.shape(0), call.shape(1)
    need(
        len(a) == len(b) == 1 and (a == b or 1 in (*a, *b)),
        f"Dot needs two vectors of one length, got {a} and {b}",
    )
    return [(1,)]


def _dot_dtypes(call: Call) -> list[DType]:
    a, b = call.dtype(0), call.dtype(1)
    need(a.kind == b.kind, f"operands must have one element type, got {a} and {b}")
    return [call.output_dtype or a]


def _dot(call: Call, a: Array, b: Array) -> Array:
    """Sum of products; a vector of one element is repeated."""
    dtype = call.dtype(0)
    if dtype.is_float:
        left, right = to_real(a, dtype).astype(np.float64), to_real(b, dtype).astype(np.float64)
        return from_real(np.sum(left * right).reshape(1), _dot_dtypes(call)[0])
    need(dtype.is_integer, f"Dot of {dtype.name} is not defined")
    total = np.sum(a.astype(np.int64) * b.astype(np.int64)).reshape(1)
    return total.astype(_dot_dtypes(call)[0].storage)


def _inverse_shapes(call: Call) -> list[ShapeLike]:
    shape = call.shape(0)
    need(len(shape) >= 2 and shape[-1] == shape[-2], f"needs (..., n, n), got {shape}")
    return [shape]


def _inverse(call: Call, x: Array) -> Array:
    real = to_real(x, call.dtype(0)).astype(np.float64)
    try:
        inverse = np.linalg.inv(real)
    except np.linalg.LinAlgError as error:
        raise ExecutionError("a matrix to invert is singular") from error
    return narrow(inverse.astype(np.float32), call.dtype(0))


def _svd_dtypes(call: Call) -> list[DType]:
    return [call.dtype(0)] * call.count


def _svd_shapes(call: Call) -> list[ShapeLike]:
    """U, S and Vt of x (..., m, n); without compute_uv only S has an id."""
    shape = call.shape(0)
    need(len(shape) >= 2, f"needs (..., m, n), got {shape}")
    *batch, m, n = shape
    k = min(m, n)
    if not call.param.compute_uv:
        return [(*batch, k)]
    full = call.param.full_matrices
    return [(*batch, m, m if full else k), (*batch, k), (*batch, n if full else k, n)]


def _svd(call: Call, x: Array) -> list[Array]:
    real = to_real(x, call.dtype(0)).astype(np.float64)
    try:
        if call.param.compute_uv:
            parts = list(np.linalg.svd(real, full_matrices=bool(call.param.full_matrices)))
        else:
            parts = [np.linalg.svd(real, compute_uv=False)]
    except np.linalg.LinAlgError as error:
        raise ExecutionError("the singular values did not converge") from error
    return [narrow(part.astype(np.float32), call.dtype(0)) for part in parts]


def _cross_axes(call: Call) -> tuple[int, int]:
    a, b = call.shape(0), call.shape(1)
    first, second = normal_axis(call.param.axisa, len(a)), normal_axis(call.param.axisb, len(b))
    need(
        a[first] == 3 and b[second] == 3,
        f"cross products need 3 elements: axis {first} of {a}, axis {second} of {b}",
    )
    return first, second


def _cross_shapes(call: Call) -> list[ShapeLike]:
    a, b = call.shape(0), call.shape(1)
    first, second = _cross_axes(call)
    rest = broadcast_shapes([a[:first] + a[first + 1 :], b[:second] + b[second + 1 :]])
    axis = normal_axis(call.param.axisc, len(rest) + 1)
    return [(*rest[:axis], 3, *rest[axis:])]


def _cross(call: Call, a: Array, b: Array) -> Array:
    first, second = _cross_axes(call)
    x = np.moveaxis(to_real(a, call.dtype(0)), first, -1)
    y = np.moveaxis(to_real(b, call.dtype(1)), second, -1)
    parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    stacked = np.stack(parts, axis=normal_axis(call.param.axisc, parts[0].ndim + 1))
    return from_real(stacked, call.dtype(0))


# no ExecutionPolicy is stored
MATRIX_MUL = register(
    OpSpec(
        name="MatrixMul",
        runtime_name="MatrixMul",
        names=(Name("MatrixMulV2", "v0.3.1", 13377158960990194401),),
        old_id=3532845811984360002,
        v2=(V2Id("MatrixMulV2", 1, 3532845811984360002),),
        params=(P.MatrixMul,),
        inputs=("A", "B"),
        dtypes=_product_dtypes,
        shapes=_matmul_shapes,
        reference=_matmul,
        gaps=(_UNPACKED,),
        source=_SECTION,
    )
)

# no ExecutionPolicy is stored
BATCHED_MATRIX_MUL = register(
    OpSpec(
        name="BatchedMatrixMul",
        runtime_name="BatchedMatrixMul",
        names=(Name("BatchedMatrixMulV2", "v0.3.1", 15207233433500908970),),
        old_id=11589553432132359716,
        v2=(V2Id("BatchedMatrixMulV2", 1, 11589553432132359716),),
        params=(P.MatrixMul,),
        inputs=("A", "B"),
        dtypes=_product_dtypes,
        shapes=_batched_shapes,
        reference=_batched,
        source=_SECTION,
    )
)

DOT = register(
    OpSpec(
        name="Dot",
        runtime_name="Dot",
        names=(Name("Dot", "v0.3.1", 3099084962463867228),),
        old_id=340606220358368278,
        v2=(V2Id("Dot", 1, 340606220358368278),),
        params=(P.Empty,),
        inputs=("a", "b"),
        dtypes=_dot_dtypes,
        shapes=_dot_shapes,
        reference=_dot,
        source=_SECTION,
    )
)

MATRIX_INVERSE = register(
    OpSpec(
        name="MatrixInverse",
        runtime_name="MatrixInverse",
        names=(Name("MatrixInverse", "v0.3.1", 14266367287542129641),),
        old_id=11443491517330739703,
        v2=(V2Id("MatrixInverse", 1, 11443491517330739703),),
        params=(P.Empty,),
        inputs=("x",),
        dtypes=of_floats(dtype_of(0)),
        shapes=_inverse_shapes,
        reference=_inverse,
        source=_SECTION,
    )
)

SVD = register(
    OpSpec(
        name="SVD",
        runtime_name="SVD",
        names=(Name("SVD", "v0.3.1", 16260873349419550612),),
        old_id=17913310092296533718,
        v2=(V2Id("SVD", 1, 17913310092296533718),),
        params=(P.SVD,),
        inputs=("x",),
        outputs=("U", "S", "Vt"),
        output_count=counts.singular_values,
        dtypes=of_floats(_svd_dtypes),
        shapes=_svd_shapes,
        reference=_svd,
        source=_SECTION,
    )
)

CROSS = register(
    OpSpec(
        name="Cross",
        runtime_name="Cross",
        names=(Name("Cross", "v1.13.1", 7645316536660532094),),
        old_id=7937603198344284949,
        v2=(V2Id("Cross", 1, 7937603198344284949),),
        params=(P.Cross,),
        inputs=("a", "b"),
        dtypes=of_floats(dtype_of(0)),
        shapes=_cross_shapes,
        reference=_cross,
        source=_SECTION,
    )
)
