"""Products of matrices: a library's for large float32 ones, else the convolutions' kernel."""

from __future__ import annotations

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import from_real, narrowed
from loadrun.backends.cuda.expr import ACC, Builder, Expr
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Gemm
from loadrun.backends.cuda.rules.conv import real_sum
from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT32, DType, DTypeEnum, quantized
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.convrules import product_dtype
from mgeserial.ops.linalg import BATCHED_MATRIX_MUL, MATRIX_MUL

__all__ = ["product"]

_LOWBIT = frozenset({DTypeEnum.QuantizedS4, DTypeEnum.Quantized4Asymm})


def _sum_dtype(a: DType, b: DType) -> DType:
    if a.kind == b.kind and a.kind in _LOWBIT and a.scale is not None and b.scale is not None:
        return quantized(DTypeEnum.QuantizedS16, a.scale * b.scale)
    if a.kind is b.kind is DTypeEnum.Int16:
        return INT32
    try:
        return product_dtype(a, b)
    except MgeError as error:
        raise NotApplicable("no such product") from error


def product(
    low: Lowering,
    name: str,
    operands: tuple[str, str],
    y: str,
    size: tuple[int, int, int],
    expr: Expr,
    extras: tuple[nd.Access, ...] = (),
    *,
    batch: int = 1,
    turned: tuple[bool, bool] = (False, True),
) -> None:
    """Add y (m, n) = expr of a (m, k) times b (k, n), with float32 sums.

    Args:
        low: The lowering.
        name: Of the node.
        operands: Tensors a and b.
        y: Tensor that is written.
        size: m, k, n.
        expr: What becomes of each sum.
        extras: What else it reads.
        batch: Number of such products, all tensors one after the other.
        turned: Whether a is stored as (k, m), and b as (n, k).
    """
    (a, b), (m, k, n) = operands, size
    one = (1, 1, 1)
    row = (m * k, 1, m) if turned[0] else (m * k, k, 1)
    column = (1, k) if turned[1] else (n, 1)
    matrix = batch == 1 and len(low.tensors[y].shape) == 2
    float32 = all(low.tensors[t].ctype == "f32" for t in operands)
    low.add(
        nd.Conv(
            name, (y,), b, a, 1, batch, m, k, (1, 1, n), (1, 1, n), one, one, (0, 0, 0), one,
            (0, k * n, column[0], 0, 0, column[1]), row, (0, m * n, n, 0, 0, 1), expr,
            roles=nd.Roles(0, column=1) if matrix else nd.Roles(-9), label="matmul", extras=extras,
            gemm=Gemm(batch, m, n, k, *turned) if float32 else None,
        )
    )  # fmt: skip


@lowers(MATRIX_MUL, BATCHED_MATRIX_MUL)
def matrix_mul(low: Lowering, node: Node, call: Call) -> None:
    """Any type, transposed or not, of a batch; exact sums of integers."""
    p = call.param
    if p.format != P.MatrixMulFormat.DEFAULT:
        raise NotApplicable(f"format {p.format}")
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
        low.need_real(value)
    a, b = call.dtype(0), call.dtype(1)
    kind, out = _sum_dtype(a, b), call.output_types[0].dtype
    shape = low.shape(node.outputs[0])
    left = call.shape(0)
    m, n = shape[-2:]
    k = left[-2] if p.transposeA else left[-1]
    batch = shape[0] if len(shape) == 3 else 1
    builder = Builder()
    if kind.is_float:
        result = from_real(builder, ACC, out)
    elif out.is_float or (out.scale is not None and out.scale != kind.scale):
        wide = kind
        if kind.kind is DTypeEnum.QuantizedS16 and kind.scale is not None:
            wide = quantized(DTypeEnum.QuantizedS32, kind.scale)
        result = from_real(builder, real_sum(builder, ACC, wide), out)
    else:
        result = narrowed(builder, ACC, out)
    row = (m * k, 1, m) if p.transposeA else (m * k, k, 1)
    column = (1, k) if p.transposeB else (n, 1)
    plain = a == b == FLOAT32 and kind == FLOAT32
    rank = len(shape)
    one = (1, 1, 1)
    name = low.label(node)
    left_name, right_name = low.name(node.inputs[0]), low.name(node.inputs[1])
    low.add(
        nd.Conv(
            name, (low.out(node.outputs[0]),), right_name, left_name, 1, batch, m, k,
            (1, 1, n), (1, 1, n), one, one, (0, 0, 0), one,
            (0, k * n, column[0], 0, 0, column[1]), row, (0, m * n, n, 0, 0, 1),
            builder.done(result), x_zero=b.zero_point or 0, w_zero=a.zero_point or 0,
            accumulator="float" if kind.is_float else "int",
            roles=nd.Roles(-9 if batch > 1 else rank - 2, column=rank - 1), label="matmul",
            gemm=Gemm(batch, m, n, k, bool(p.transposeA), bool(p.transposeB)) if plain else None,
        )
    )  # fmt: skip
