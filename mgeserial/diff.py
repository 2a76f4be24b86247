"""Structural differences of two graphs: operators, parameters, weights, wiring, inputs and outputs.

Operators are aligned in file order by what they are (type, parameters, types of stored tensors), so
that one changed weight or parameter does not make everything after it look different.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgeserial._record import Params
from mgeserial.alignment import common
from mgeserial.dtypes import Array, DTypeEnum
from mgeserial.errors import MgeError, printable
from mgeserial.format.opaque import opaque_bytes
from mgeserial.format.raw import Opaque
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import TensorType
from mgeserial.ops.numerics import bfloat16_to_float32

__all__ = ["Change", "Difference", "align", "changes_of", "diff"]

# Elements of two weights that are compared at a time.
_STRETCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """One aspect in which two aligned things differ.

    Attributes:
        kind: `parameter`, `weight`, `blob`, `inputs`, `outputs`, `dtype`, `priority`, `name` of
            operators; `input`, `output`, `order`, `metadata` of graphs.
        what: Which one: a field, a tensor, an input.
        before: Text of it in the first graph.
        after: Text of it in the second.
        max_abs: For weights: largest absolute difference (of the stored integers for quantised
            types), NaN where one of two values is; None where the type has no difference.
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
            largest = change.max_abs
            return {
                "kind": change.kind,
                "what": change.what,
                "before": change.before,
                "after": change.after,
                # JSON has no NaN and no infinities.
                "max_abs": largest if largest is None or math.isfinite(largest) else str(largest),
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
    _results(before, after, partner, found)
    for a, b in pairs:
        changes = [*_parameters(a, b), *_weights(a, b), *_blobs(a, b), *_wiring(a, b, partner)]
        changes += _attributes(a, b, names=names)
        if changes:
            found.changed.append((_label(a), tuple(changes)))
        else:
            found.same += 1
    return found


def align(before: Graph, after: Graph) -> list[tuple[Node, Node]]:
    """Pairs of operators of two graphs that stand for each other, in file order."""
    return _align(before.nodes, after.nodes, Difference())


def changes_of(a: Node, b: Node) -> list[Change]:
    """In what two operators that stand for each other differ, wiring and names apart."""
    return [*_parameters(a, b), *_weights(a, b), *_blobs(a, b), *_attributes(a, b, names=False)]


def _label(node: Node) -> str:
    return f"[{node.index}] {node.op.name} {printable(node.display_name)!r}"


def _signature(node: Node) -> tuple[Any, ...]:
    tensors = tuple((t.dtype, t.shape) for t in node.tensors)
    params = tuple(repr(p) if isinstance(p, Params) else type(p) for p in node.params)
    return (node.op.name, params, node.output_dtype, tensors, len(node.inputs))


def _align(
    left: Sequence[Node], right: Sequence[Node], found: Difference
) -> list[tuple[Node, Node]]:
    """Pairs of nodes that stand for each other; the rest is noted as removed or added.

    Equal ones first; between these, operators of one type are the same one, changed.
    """
    ids: dict[tuple[Any, ...], int] = {}
    a = [ids.setdefault(_signature(n), len(ids)) for n in left]
    b = [ids.setdefault(_signature(n), len(ids)) for n in right]
    equal = common(a, b)
    pairs: list[tuple[Node, Node]] = []
    for before, after, pair in _stretches(left, right, equal):
        changed = common([n.op.name for n in before], [n.op.name for n in after])
        for gone, new, same in _stretches(before, after, changed):
            found.removed += [_label(n) for n in gone]
            found.added += [_label(n) for n in new]
            pairs += same
        pairs += pair
    return pairs


def _stretches(
    left: Sequence[Node], right: Sequence[Node], pairs: Sequence[tuple[int, int]]
) -> Iterator[tuple[Sequence[Node], Sequence[Node], list[tuple[Node, Node]]]]:
    """What lies before each pair of places on both sides, and its two nodes; then the rest."""
    i = j = 0
    for x, y in pairs:
        yield left[i:x], right[j:y], [(left[x], right[y])]
        i, j = x + 1, y + 1
    yield left[i:], right[j:], []


def _parameters(a: Node, b: Node) -> list[Change]:
    changes = []
    if len(a.params) != len(b.params):
        changes.append(Change("parameters", "number", str(len(a.params)), str(len(b.params))))
    for x, y in zip(a.params, b.params, strict=False):
        if type(x) is not type(y):
            changes.append(Change("parameter", "kind", _record_kind(x), _record_kind(y)))
            continue
        if isinstance(x, Opaque):
            before, after = opaque_bytes(x), opaque_bytes(y)
            if before != after:
                what = "of a newer release (not understood, its bytes)"
                changes.append(Change("parameter", what, _digest(before), _digest(after)))
            continue
        for name, value in x.as_items():
            other = getattr(y, name)
            if repr(value) != repr(other):
                changes.append(Change("parameter", name, str(value), str(other)))
    return changes


def _record_kind(record: object) -> str:
    return "of a newer release" if isinstance(record, Opaque) else type(record).__name__


def _digest(content: bytes) -> str:
    return f"{len(content)} bytes, CRC-32 {zlib.crc32(content):08x}"


def _weights(a: Node, b: Node) -> list[Change]:
    changes = []
    if len(a.tensors) != len(b.tensors):
        return [Change("tensors", "number", str(len(a.tensors)), str(len(b.tensors)))]
    for i, (x, y) in enumerate(zip(a.tensors, b.tensors, strict=True)):
        what = repr(printable(x.name)) if x.name else str(i)
        if a.is_input and not (x.has_value or y.has_value):
            continue  # its type stands among the inputs
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            changes.append(Change("weight", what, _kind(x), _kind(y)))
        elif x.has_value != y.has_value:
            changes.append(Change("weight", what, _presence(x), _presence(y)))
        elif x.has_value and not _equal(x, y):
            changes.append(Change("weight", what, _kind(x), _kind(y), _max_abs(x, y)))
    return changes


def _blobs(a: Node, b: Node) -> list[Change]:
    if len(a.blobs) != len(b.blobs):
        return [Change("blobs", "number", str(len(a.blobs)), str(len(b.blobs)))]
    return [
        Change("blob", str(i), f"{len(x)} bytes", f"{len(y)} bytes")
        for i, (x, y) in enumerate(zip(a.blobs, b.blobs, strict=True))
        if x != y
    ]


def _kind(tensor: Tensor) -> str:
    return str(TensorType(tensor.dtype, tensor.shape))


def _presence(tensor: Tensor) -> str:
    return "stored" if tensor.has_value else "not stored"


def _equal(x: Tensor, y: Tensor) -> bool:
    if x.raw is not None and y.raw is not None and x.row_packed == y.row_packed:
        # As arrays: comparing memoryviews visits byte by byte.
        return np.array_equal(np.frombuffer(x.raw, np.uint8), np.frombuffer(y.raw, np.uint8))
    return x.numpy().tobytes() == y.numpy().tobytes()


def _max_abs(x: Tensor, y: Tensor) -> float | None:
    """Largest difference of two tensors of one type and shape."""
    if x.dtype.kind in (DTypeEnum.Complex64, DTypeEnum.Bool) or not x.size:
        return None
    a, b = x.numpy().reshape(-1), y.numpy().reshape(-1)
    largest = 0.0
    for start in range(0, a.size, _STRETCH):
        with np.errstate(all="ignore"):  # signalling NaNs are NaNs
            first, second = (_real(t[start : start + _STRETCH], x) for t in (a, b))
            distance = np.where(first == second, 0.0, np.abs(first - second))
        # NaN against NaN differs in its bits at most.
        distance[np.isnan(first) & np.isnan(second)] = 0.0
        largest = max(largest, float(np.max(distance)), key=_nan_first)
    return largest


def _nan_first(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _real(values: Array, like: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Stored elements as float64; bfloat16 by its meaning."""
    if like.dtype.kind is DTypeEnum.BFloat16:
        values = bfloat16_to_float32(values)
    return values.astype(np.float64)


def _wiring(a: Node, b: Node, partner: dict[Node, Node]) -> list[Change]:
    if len(a.inputs) != len(b.inputs):
        return [Change("inputs", "number", str(len(a.inputs)), str(len(b.inputs)))]
    changes = []
    if len(a.outputs) != len(b.outputs):
        changes.append(Change("outputs", "number", str(len(a.outputs)), str(len(b.outputs))))
    for i, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
        if partner.get(x.node) is not y.node or x.index != y.index:
            changes.append(Change("inputs", str(i), _value(x), _value(y)))
    return changes


def _results(before: Graph, after: Graph, partner: dict[Node, Node], found: Difference) -> None:
    """Note outputs of one name that are no longer the same value."""
    others = dict(zip(after.output_names, after.outputs, strict=True))
    for name, value in zip(before.output_names, before.outputs, strict=True):
        other = others.get(name)
        if other is None:
            continue
        if partner.get(value.node) is not other.node or value.index != other.index:
            what = f"{printable(name)!r} is computed by"
            found.interface.append(Change("output", what, _label(value.node), _label(other.node)))


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
        names = dict.fromkeys([*a, *b])
        changes = [
            Change(kind, repr(printable(n)), a.get(n, "absent"), b.get(n, "absent"))
            for n in names
            if a.get(n) != b.get(n)
        ]
        if not changes and list(a) != list(b):
            changes = [Change("order", f"of {kind}s", _listed(a), _listed(b))]
        found.interface += changes


def _listed(names: dict[str, str]) -> str:
    return ", ".join(printable(n) for n in names)


def _described(graph: Graph, *, outputs: bool) -> dict[str, str]:
    """Type by name; graphs whose shapes do not fit together are compared without types."""
    try:
        types = graph.inference.types
    except MgeError:
        types = {}
    names = graph.output_names if outputs else graph.input_names
    values = graph.outputs if outputs else graph.inputs
    return {
        name: str(types[value]) if value in types else "type not known"
        for name, value in zip(names, values, strict=True)
    }
