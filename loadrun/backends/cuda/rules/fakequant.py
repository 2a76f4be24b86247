"""Values rounded to the grid of a quantised type, in float32."""

from __future__ import annotations

from loadrun.backends.cuda.expr import Builder, Ref
from loadrun.backends.cuda.lower import Lowering, lowers
from loadrun.backends.cuda.rules.elemwise import pointwise
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.fakequant import (
    FAKE_QUANT,
    FAKE_QUANT_BACKWARD,
    LSQ,
    LSQ_BACKWARD,
    TQT,
    TQT_BACKWARD,
)

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


# Gradients for values and, where there is one, for scales: of dy, x, scale, what is left, limits.
_LN2 = 0.6931471824645996  # in float32
_STEPS = "(roundf({1} / {2}) + {3})"
_SCALED = "({1} / exp2f({2}))"
_OUTSIDE = f"({_SCALED} < {{3}} - 0.5f || {_SCALED} > {{4}} + 0.5f)"
_CLIPPED = f"clip(roundf({_SCALED}), {{3}}, {{4}})"
_CODE = "({1} / {2} + {3})"
_GRADIENTS = {
    "FakeQuantBackward": (f"({_STEPS} >= {{4}} && {_STEPS} <= {{5}} ? {{0}} : 0.f)",),
    "TQTBackward": (
        f"({_OUTSIDE} ? 0.f : {{0}})",
        f"({{0}} * ({_OUTSIDE} ? {_CLIPPED} : {_CLIPPED} - {_SCALED}) * exp2f({{2}}) * {{5}})",
    ),
    "LSQBackward": (
        f"({_CODE} < {{5}} || {_CODE} > {{6}} ? 0.f : {{0}})",
        f"(({_CODE} < {{5}} ? {{5}} : {_CODE} > {{6}} ? {{6}} : roundf({_CODE}) - {_CODE}) * {{4}} "
        "* {0})",
    ),
}


@lowers(FAKE_QUANT_BACKWARD, TQT_BACKWARD, LSQ_BACKWARD)
def fake_quant_backward(low: Lowering, node: Node, call: Call) -> None:
    """Gradients element by element; who uses those of the scale sums them."""
    for value, code in zip(node.outputs, _GRADIENTS[node.op.name], strict=True):

        def make(b: Builder, *x: Ref, code: str = code) -> Ref:
            limits = (b.scalar(float(call.param.qmin)), b.scalar(float(call.param.qmax)))
            return b.op("float", code, *x, *limits, b.scalar(_LN2))

        pointwise(low, node, value, list(node.inputs), make)
