"""Products of matrices of integers and codes."""

from __future__ import annotations

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import Builder, from_real, narrowed, to_real
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.matrix import turned
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.convrules import product_dtype
from mgeserial.ops.linalg import BATCHED_MATRIX_MUL, MATRIX_MUL


def _sums(a: DType, b: DType) -> DType:
    """Element type of the sums."""
    if a.kind is b.kind is DTypeEnum.Int16:
        raise NotApplicable("sums of Int16 may be wider than 32 bits before they are converted")
    try:
        return product_dtype(a, b)
    except MgeError as error:
        raise NotApplicable(f"{a.name} times {b.name}") from error


@lowers(MATRIX_MUL, BATCHED_MATRIX_MUL)
def product(low: Lowering, node: Node, call: Call) -> None:
    """Int8 and quantised bytes, exact sums of 32 bits."""
    p, (a, b) = call.param, node.inputs
    if p.format != P.MatrixMulFormat.DEFAULT:
        raise NotApplicable(f"format {p.format}")
    kinds = call.dtype(0), call.dtype(1)
    if any(d.is_float or d.storage.itemsize != 1 for d in kinds):
        raise NotApplicable(f"{kinds[0].name} times {kinds[1].name}")
    sums, target = _sums(*kinds), call.output_types[0].dtype
    shape, given = low.shape(node.outputs[0]), low.shape(a)
    low.shape(b)
    k = given[-2] if p.transposeA else given[-1]
    names = (turned(low, a, p.transposeA), turned(low, b, p.transposeB))
    total = low.temp(shape)
    low.dtypes[total] = "int32"
    sizes = (shape[0] if len(shape) == 3 else 1, shape[-2], k, shape[-1])
    zeros = (kinds[0].zero_point or 0, kinds[1].zero_point or 0)
    low.add(nd.WholeProduct(low.label(node), names, (total,), sizes, zeros))
    builder = Builder(1)
    if target.is_float or (target.scale is not None and target.scale != sums.scale):
        result = from_real(builder, to_real(builder, 0, sums), target)
    else:
        result = narrowed(builder, 0, target)
    expr = builder.done(result)
    low.add(nd.Eltwise(low.unique("sums"), (total,), (low.out(node.outputs[0]),), expr))
