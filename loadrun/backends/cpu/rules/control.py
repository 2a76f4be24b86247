"""Operators that give their first input as it is."""

from __future__ import annotations

from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.registry import by_name

_SAME = (
    "Identity",
    "Copy",
    "VirtualDep",
    "MarkDynamicVar",
    "MarkNoBroadcastElemwise",
    "AssertEqual",  # gives what was expected; whoever compares has both values
)


@lowers(*(by_name(name) for name in _SAME))
def same(low: Lowering, node: Node, call: Call) -> None:
    """The first input itself."""
    value, out = node.inputs[0], node.outputs[0]
    low.shape(value)
    if call.dtype(0) != call.output_types[0].dtype or len(node.outputs) != 1:
        raise NotApplicable("not the input itself")
    low.same(out, low.name(value))
