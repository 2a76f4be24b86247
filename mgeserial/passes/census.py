"""What a graph is made of: operators counted by kind and format, and the bytes of its weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mgeserial.ir.graph import Graph, Node

__all__ = ["census", "kind_of", "weight_bytes"]

# Operators whose mode says what they do; of all others only name and format are told apart.
_WITH_MODE = frozenset({"Elemwise", "ElemwiseMultiType", "RelayoutFormat"})


def kind_of(node: Node) -> str:
    """`Convolution[NCHW4]`, `Elemwise:ADD`, `Reshape`: what the census counts a node as."""
    text = node.op.name
    params: tuple[Any, ...] = node.params
    if text in _WITH_MODE and params:
        return f"{text}:{str(params[0].mode).rstrip('_')}"
    for record in params:
        # Unknown operators may have what is no record.
        if "format" in getattr(record, "FIELDS", ()):
            return f"{text}[{record.format}]"
    return text


def census(graph: Graph) -> dict[str, int]:
    """Number of operators of each kind, in order of names."""
    counts = Counter(kind_of(node) for node in graph.nodes)
    return dict(sorted(counts.items()))


def weight_bytes(graph: Graph) -> int:
    """Bytes of all weights and constants of a graph in a file."""
    return sum(t.nbytes for node in graph.params for t in node.tensors)
