"""Matrix products of float32."""

from __future__ import annotations

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.linalg import BATCHED_MATRIX_MUL, MATRIX_MUL


def turned(low: Lowering, value: Value, transposed: bool) -> str:
    """An operand, transposed if asked."""
    name = low.name(value)
    if not transposed:
        return name
    shape = low.shape(value)
    strides = contiguous(shape)
    out = low.temp((*shape[:-2], shape[-1], shape[-2]))
    low.dtypes[out] = low.dtype_name(name)
    low.add(
        nd.View(low.unique("transpose"), (name,), (out,), (*strides[:-2], strides[-1], strides[-2]))
    )
    return out


@lowers(MATRIX_MUL)
def constant_right(low: Lowering, node: Node, call: Call) -> None:
    """float32, right operand constant: packed ahead of the run."""
    p = call.param
    low.need_float32(*node.inputs, *node.outputs)
    if p.format != P.MatrixMulFormat.DEFAULT:
        raise NotApplicable(f"format {p.format}")
    low.shape(node.outputs[0])
    weights = low.need_array(node.inputs[1], "the right operand")
    weights = weights.T if p.transposeB else weights  # a view: packing reads it
    x = turned(low, node.inputs[0], p.transposeA)
    y = low.out(node.outputs[0])
    low.add(nd.Dense(low.label(node), (x,), (y,), weights))


@lowers(MATRIX_MUL, BATCHED_MATRIX_MUL)
def computed(low: Lowering, node: Node, call: Call) -> None:
    """float32, both operands computed; a batch of matrices."""
    p = call.param
    low.need_float32(*node.inputs, *node.outputs)
    if p.format != P.MatrixMulFormat.DEFAULT:
        raise NotApplicable(f"format {p.format}")
    out = low.shape(node.outputs[0])
    a = low.shape(node.inputs[0])
    low.shape(node.inputs[1])
    k = a[-2] if p.transposeA else a[-1]
    batch = out[0] if len(out) == 3 else 1
    x = turned(low, node.inputs[0], p.transposeA)
    names = (x, low.name(node.inputs[1]))
    y = low.out(node.outputs[0])
    low.add(nd.MatMul(low.label(node), names, (y,), batch, out[-2], k, out[-1], bool(p.transposeB)))
