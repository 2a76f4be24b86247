"""Values rounded to the grid of a quantised type, in float32."""

from __future__ import annotations

from loadrun.backends.cuda.expr import Builder, Ref
from loadrun.backends.cuda.lower import Lowering, lowers
from loadrun.backends.cuda.rules.elemwise import pointwise
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.fakequant import FAKE_QUANT, LSQ, TQT

_CODES = {
    "FakeQuant": "((clip(roundf({0} / {1}) + {2}, {3}, {4}) - {2}) * {1})",
    "TQT": "(clip(roundf({0} / exp2f({1})), {2}, {3}) * exp2f({1}))",
    "LSQ": "((roundf(clip({0} / {1} + {2}, {4}, {5})) - {2}) * {1})",
}


@lowers(FAKE_QUANT, TQT, LSQ)
def fake_quant(low: Lowering, node: Node, call: Call) -> None:
    """Scales and zero points broadcast."""
    code = _CODES[node.op.name]

    def make(b: Builder, *x: Ref) -> Ref:
        limits = (b.scalar(float(call.param.qmin)), b.scalar(float(call.param.qmax)))
        return b.op("float", code, *x, *limits)

    pointwise(low, node, node.outputs[0], list(node.inputs), make)
