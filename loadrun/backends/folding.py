"""What backends compute ahead of a run while they lower a graph: constants of constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.inference import Inference
from mgeserial.ir.running import run_node
from mgeserial.ir.types import ABSENT, Call

__all__ = ["Constants", "fold", "is_known"]

# Bytes of a result that is still computed ahead.
_LIMIT = 64 << 20


class Constants(Protocol):
    """What a lowering knows of constants."""

    @property
    def inference(self) -> Inference:
        """Types of all values."""
        ...

    def array(self, value: Value) -> Array | None:
        """The value where it is known ahead of the run."""
        ...

    def keep(self, value: Value, array: Array) -> None:
        """Note a value computed ahead of the run."""
        ...


def is_known(low: Constants, node: Node) -> bool:
    """Whether inference knows all outputs (shapes and arithmetic on them)."""
    return bool(node.outputs) and all(low.inference.value(v) is not None for v in node.outputs)


def fold(low: Constants, node: Node, call: Call) -> bool:
    """Compute a node of constants ahead of the run; whether that was possible."""
    op: Any = node.op
    if not op.is_pure or op.reference is None or not node.outputs:
        return False
    found = [low.array(v) for v in node.inputs]
    arrays = [a for a in found if a is not None]
    if len(arrays) < len(found) or not _is_small(low, node):
        return False
    results: Sequence[Array] = run_node(node, call, arrays)
    if any(r is ABSENT for r in results):
        return False
    for value, result in zip(node.outputs, results, strict=True):
        low.keep(value, np.ascontiguousarray(result))
    return True


def _is_small(low: Constants, node: Node) -> bool:
    types = [low.inference.types[v] for v in node.outputs]
    if not all(t.is_static for t in types):
        return False
    if not node.inputs:
        return bool(node.tensors)  # weights: their own size
    return all(t.size * t.dtype.storage.itemsize <= _LIMIT for t in types)
