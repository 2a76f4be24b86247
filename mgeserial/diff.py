"""Structural differences of two graphs: operators, parameters, weights, wiring, inputs and outputs.

Operators are aligned in file order by what they are (type, parameters, types of stored tensors), so
that one changed weight or parameter does not make everything after it look different.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgeserial.errors import printable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import TensorType

__all__ = ["Change", "Difference", "diff"]

# Sequences longer than this are aligned with difflib's heuristic for frequent elements.
_EXACT = 4000


@dataclass(frozen=True, slots=True)
class Change:
    """One aspect in which two aligned things differ.

    Attributes:
        kind: `parameter`, `weight`, `inputs`, `type`, `dtype`, `name`, `order` ...
        what: Which one: a field, a tensor, an input.
        before: Text of it in the first graph.
        after: Text of it in the second.
        max_abs: For weights: largest absolute difference, where the types allow it.
    """

    kind: str
    what: str
    before: str
    after: str
    max_abs: float | None = None

    def __str__(self) -> str:
        more = "" if self.max_abs is None else f" (max abs difference {self.max_abs:.6g})"
        return f"{self.kind} {self.what}: {self.before} -> {self.after}{more}"


@dataclass(slots=True)
class Difference:
    """What differs between two graphs.

    `changed` pairs the place and name of an operator with its changes; `interface` holds changes
    of inputs and outputs.
    """

    same: int = 0
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changed: list[tuple[str, tuple[Change, ...]]] = field(default_factory=list)
    interface: list[Change] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the graphs are equal."""
        return not (self.removed or self.added or self.changed or self.interface)

    def as_json(self) -> dict[str, Any]:
        """Plain data for JSON."""

        def plain(change: Change) -> dict[str, Any]:
            return {
                "kind": change.kind,
                "what": change.what,
                "before": change.before,
                "after": change.after,
                "max_abs": change.max_abs,
            }

        return {
            "equal": self.is_empty,
            "operators_same": self.same,
            "operators_removed": self.removed,
            "operators_added": self.added,
            "operators_changed": [
                {"operator": name, "changes": [plain(c) for c in changes]}
                for name, changes in self.changed
            ],
            "interface": [plain(c) for c in self.interface],
        }

    def lines(self) -> list[str]:
        """Text for people, one difference a line."""
        text = [str(c) for c in self.interface]
        text += [f"- {name}" for name in self.removed]
        text += [f"+ {name}" for name in self.added]
        for name, changes in self.changed:
            text.append(f"~ {name}")
            text += [f"    {change}" for change in changes]
        return text


def diff(before: Graph, after: Graph, *, names: bool = False) -> Difference:
    """Compare two graphs.

    Args:
        before: The first graph.
        after: The second one.
        names: Whether names of operators and inner values count.

    Returns:
        What differs; empty when nothing does.
    """
    found = Difference()
    _interface(before, after, found)
    left, right = before.nodes, after.nodes
    pairs = _align(left, right, found)
    partner = dict(pairs)
    for a, b in pairs:
        changes = [*_parameters(a, b), *_weights(a, b), *_wiring(a, b, partner)]
        changes += _attributes(a, b, names=names)
        if changes:
            found.changed.append((_label(a), tuple(changes)))
        else:
            found.same += 1
    return found


def _label(node: Node) -> str:
    return f"[{node.index}] {node.op.name} {printable(node.display_name)!r}"


def _signature(node: Node) -> tuple[Any, ...]:
    tensors = tuple((t.dtype, t.shape) for t in node.tensors)
    return (node.op.name, repr(node.params), node.output_dtype, tensors, len(node.inputs))


def _align(
    left: Sequence[Node], right: Sequence[Node], found: Difference
) -> list[tuple[Node, Node]]:
    """Pairs of nodes that stand for each other; the rest is noted as removed or added."""
    ids: dict[tuple[Any, ...], int] = {}
    a = [ids.setdefault(_signature(n), len(ids)) for n in left]
    b = [ids.setdefault(_signature(n), len(ids)) for n in right]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=max(len(a), len(b)) > _EXACT)
    pairs = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs += list(zip(left[i1:i2], right[j1:j2], strict=True))
        else:
            pairs += _align_changed(left[i1:i2], right[j1:j2], found)
    return pairs


def _align_changed(
    left: Sequence[Node], right: Sequence[Node], found: Difference
) -> list[tuple[Node, Node]]:
    """Within a stretch that differs: operators of one type are the same one, changed."""
    matcher = difflib.SequenceMatcher(
        None, [n.op.name for n in left], [n.op.name for n in right], autojunk=False
    )
    pairs = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pairs += list(zip(left[i1:i2], right[j1:j2], strict=True))
        else:
            found.removed += [_label(n) for n in left[i1:i2]]
            found.added += [_label(n) for n in right[j1:j2]]
    return pairs


def _parameters(a: Node, b: Node) -> list[Change]:
    changes = []
    for x, y in zip(a.params, b.params, strict=False):
        if type(x) is not type(y):
            changes.append(Change("parameter", "kind", type(x).__name__, type(y).__name__))
            continue
        if not hasattr(x, "as_items"):
            continue
        for name, value in x.as_items():
            other = getattr(y, name)
            if repr(value) != repr(other):
                changes.append(Change("parameter", name, str(value), str(other)))
    return changes


def _weights(a: Node, b: Node) -> list[Change]:
    changes = []
    if len(a.tensors) != len(b.tensors):
        return [Change("tensors", "number", str(len(a.tensors)), str(len(b.tensors)))]
    for i, (x, y) in enumerate(zip(a.tensors, b.tensors, strict=True)):
        what = printable(x.name) if x.name else str(i)
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            changes.append(Change("weight", what, _kind(x), _kind(y)))
        elif x.has_value != y.has_value:
            changes.append(Change("weight", what, _presence(x), _presence(y)))
        elif x.has_value and not _equal(x, y):
            changes.append(Change("weight", what, _kind(x), _kind(y), _max_abs(x, y)))
    return changes


def _kind(tensor: Tensor) -> str:
    return str(TensorType(tensor.dtype, tensor.shape))


def _presence(tensor: Tensor) -> str:
    return "stored" if tensor.has_value else "not stored"


def _equal(x: Tensor, y: Tensor) -> bool:
    if x.raw is not None and y.raw is not None and x.row_packed == y.row_packed:
        return x.raw == y.raw
    return x.numpy().tobytes() == y.numpy().tobytes()


def _max_abs(x: Tensor, y: Tensor) -> float | None:
    a, b = x.numpy(), y.numpy()
    if a.dtype.kind not in "fiu" or not a.size:
        return None
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))


def _wiring(a: Node, b: Node, partner: dict[Node, Node]) -> list[Change]:
    if len(a.inputs) != len(b.inputs):
        return [Change("inputs", "number", str(len(a.inputs)), str(len(b.inputs)))]
    changes = []
    for i, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
        if partner.get(x.node) is not y.node or x.index != y.index:
            changes.append(Change("inputs", str(i), _value(x), _value(y)))
    return changes


def _value(value: Value) -> str:
    return printable(value.display_name)


def _attributes(a: Node, b: Node, *, names: bool) -> list[Change]:
    changes = []
    if a.output_dtype != b.output_dtype:
        changes.append(Change("dtype", "output", str(a.output_dtype), str(b.output_dtype)))
    if a.priority != b.priority:
        changes.append(Change("priority", "", str(a.priority), str(b.priority)))
    if names:
        pairs = [("operator", a.name, b.name)]
        pairs += [
            (f"output {i}", x.name, y.name)
            for i, (x, y) in enumerate(zip(a.outputs, b.outputs, strict=False))
        ]
        changes += [Change("name", w, str(p), str(q)) for w, p, q in pairs if p != q]
    return changes


def _interface(before: Graph, after: Graph, found: Difference) -> None:
    for kind, a, b in (
        ("input", _described(before, outputs=False), _described(after, outputs=False)),
        ("output", _described(before, outputs=True), _described(after, outputs=True)),
    ):
        for name in a.keys() | b.keys():
            x, y = a.get(name, "absent"), b.get(name, "absent")
            if x != y:
                found.interface.append(Change(kind, repr(printable(name)), x, y))
        if not found.interface and list(a) != list(b):
            found.interface.append(Change(kind, "order", ", ".join(a), ", ".join(b)))


def _described(graph: Graph, *, outputs: bool) -> dict[str, str]:
    types = graph.inference.types
    if outputs:
        pairs = zip(graph.output_names, graph.outputs, strict=True)
    else:
        pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {name: str(types[value]) for name, value in pairs}
