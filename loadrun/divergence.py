"""Where two runs part: every operator's values compared in order, and the first that is at fault.

An operator is at fault when it differs on equal inputs. Differences that were handed on to it, and
that rounding may have made larger, are told apart by running the operator alone on both sides with
the values of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.closeness import Closeness, closeness
from loadrun.sides import Feeds, Partners, Side, Values, is_operator
from loadrun.tolerances import Rounding, allowed_error, roundings, step
from mgeserial import editing
from mgeserial.diff import changes_of
from mgeserial.dtypes import Array, DType
from mgeserial.errors import MgeError, printable
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Node, Value

__all__ = ["Part", "Suspect", "Walk", "find_cut", "walk"]

Progress = Callable[[str, int, int], None]
# Operators that are run alone at most.
_MOST_ALONE = 200


@dataclass(frozen=True, slots=True)
class Suspect:
    """An operator whose values differ.

    Attributes:
        node: The operator in the first network.
        value: Which of its outputs.
        close: How far the values are apart.
        how: `equal inputs` (it got the same bits on both sides), `other operators` (the second
            network computes the value by others, from equal ones), `alone` (run alone on equal
            inputs it differs), `handed on` (alone it agrees), `fused` (it differs only as part of
            the optimised network) or `unknown` (its inputs cannot be compared).
        alone: How far apart it is when run alone; None where that was not needed.
        changes: In what it and its weights differ between the two files.
    """

    node: Node
    value: Value
    close: Closeness
    how: str
    alone: Closeness | None = None
    changes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        node = self.node
        place = node.origin.index if node.origin is not None else node.index
        return {
            "operator_index": place,
            "type": node.op.name,
            "name": printable(node.display_name),
            "value": printable(self.value.display_name),
            "shape": list(self.value.shape or ()),
            "dtype": str(self.value.dtype),
            "how": self.how,
            "changes": list(self.changes),
            "closeness": self.close.as_json(),
            "alone": None if self.alone is None else self.alone.as_json(),
            "inputs": [printable(v.display_name) for v in node.inputs],
        }


@dataclass(slots=True)
class Walk:
    """What a walk found.

    Attributes:
        compared: Values compared.
        uncomparable: Operators of the first network without a counterpart.
        first_bits: First operator whose bits differ.
        fault: First operator at fault.
        handed_on: First operator beyond its tolerance that agrees when it runs alone.
        rows: Operator, type, name, error, error allowed of each value, in order.
    """

    compared: int = 0
    uncomparable: int = 0
    first_bits: Suspect | None = None
    fault: Suspect | None = None
    handed_on: Suspect | None = None
    rows: list[tuple[int, str, str, float, float]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""

        def plain(suspect: Suspect | None) -> dict[str, Any] | None:
            return None if suspect is None else suspect.as_json()

        return {
            "compared_count": self.compared,
            "uncomparable_count": self.uncomparable,
            "first_with_other_bits": plain(self.first_bits),
            "first_at_fault": plain(self.fault),
            "first_handed_on": plain(self.handed_on),
            "operators": [
                {
                    "operator_index": place,
                    "type": kind,
                    "name": name,
                    "error": error if math.isfinite(error) else None,
                    "allowed_error": allowed,
                }
                for place, kind, name, error, allowed in self.rows
            ],
        }


class Part:
    """Parts of two networks, run on the same values.

    Args:
        a, b: The sides.
        partners: Which values stand for each other.
        values: Inner values of the first side.
        exact: Whether both sides run the same code, so that equal operators on equal inputs must
            give equal bits.
    """

    def __init__(
        self, a: Side, b: Side, partners: Partners, values: Values, *, exact: bool = False
    ) -> None:
        self.a, self.b = a, b
        self._exact = exact
        self.partners = partners
        self.values = values

    def run(
        self, inputs: Sequence[Value], output: Value, *, prepared: bool = False
    ) -> tuple[Array, Array] | None:
        """The output of a part on both sides, fed with the first side's values.

        Args:
            inputs: Values of the first network that become inputs.
            output: Value of the first network that is computed.
            prepared: Whether the part is optimised as a network is before it runs.

        Returns:
            Both arrays; None where the second network has no such part, or the values to feed do
            not exist in this run.
        """
        others = [self.partners.get(v) for v in inputs]
        other = self.partners.get(output)
        arrays = self.values.get(inputs)
        if other is None or any(x is None for x in others) or any(x is None for x in arrays):
            return None
        found = []
        for side, ins, out in ((self.a, inputs, output), (self.b, others, other)):
            part = editing.extract(side.graph, [v for v in ins if v is not None], [out])
            feeds = dict(zip(part.input_names, arrays, strict=True))
            fed = {n: x for n, x in feeds.items() if x is not None}
            found.append(side.run(part, fed, prepared=prepared)[0])
        return found[0], found[1]

    def is_exact(self, node: Node) -> bool:
        """Whether any other bit of an operator's values is a difference."""
        return self._exact and self.partners.is_same(node)

    def compare(
        self, inputs: Sequence[Value], output: Value, allowed: float, *, prepared: bool = False
    ) -> Closeness | None:
        """How far the output of a part is apart; None where it cannot be run (see `run`)."""
        found = self.run(inputs, output, prepared=prepared)
        if found is None:
            return None
        other = self.partners.get(output)
        assert other is not None
        return _close(*found, output.dtype, other.dtype, allowed)


def _close(a: Array, b: Array, dtype: DType, other: DType, allowed: float) -> Closeness:
    """Errors of inner values are relative to the largest one where that is below 1."""
    with np.errstate(all="ignore"):
        size = np.abs(a[np.isfinite(a)]) if a.dtype.kind == "f" else None
        largest = float(size.max()) if size is not None and size.size else 1.0
    floor = min(1.0, largest) or 1.0
    return closeness(a, b, dtype, other, allowed=allowed, floor=floor)


def walk(
    part: Part,
    feeds: Feeds,
    *,
    progress: Progress | None = None,
) -> Walk:
    """Compare every operator's values in order.

    Args:
        part: The two networks.
        feeds: Inputs of the first.
        progress: Told how far it is.
    """
    a, b = part.a, part.b
    other = Values(b, part.partners.feeds(a.graph, feeds), keep=0)
    allowed = roundings(a.graph)
    found = Walk()
    equal: set[Value] = set(a.graph.inputs)
    alone = 0
    nodes = [n for n in a.graph.nodes if is_operator(n)]
    needed = {v for n in a.graph.nodes for v in n.inputs} | set(a.graph.outputs)
    ordered = [
        v for n in nodes for v in n.outputs if v in needed and part.partners.get(v) is not None
    ]
    found.uncomparable = sum(all(part.partners.get(v) is None for v in n.outputs) for n in nodes)
    for stretch in Values.stretches(ordered):
        partners = [p for v in stretch if (p := part.partners.get(v)) is not None]
        pairs = zip(stretch, partners, part.values.get(stretch), other.get(partners), strict=True)
        for value, partner, x, y in pairs:
            if progress is not None:
                progress("compare", found.compared, len(ordered))
            if x is None or y is None:
                continue
            limit = allowed_error(value.dtype, allowed[value])
            close = _close(x, y, value.dtype, partner.dtype, limit)
            _note(found, value, close)
            if close.equal_bits:
                equal.add(value)
                continue
            suspect = Suspect(value.node, value, close, "unknown", changes=_changes(part, value))
            if found.first_bits is None:
                found.first_bits = suspect
            exact = part.is_exact(value.node)
            if found.fault is None and _is_suspicious(close, value, exact=exact):
                alone += 1
                if alone <= _MOST_ALONE:
                    _judge(part, found, suspect, equal, exact=exact)
    return found


def _note(found: Walk, value: Value, close: Closeness) -> None:
    node = value.node
    place = node.origin.index if node.origin is not None else node.index
    found.compared += 1
    found.rows.append(
        (place, node.op.name, printable(node.display_name), close.error, close.allowed)
    )


def _is_suspicious(close: Closeness, value: Value, *, exact: bool) -> bool:
    """Whole numbers have no rounding of their own: one step is a fault or was handed on."""
    return exact or not close.passed or not value.dtype.is_float


def _judge(part: Part, found: Walk, suspect: Suspect, equal: set[Value], *, exact: bool) -> None:
    """Decide whether an operator is at fault or got its difference from others."""
    node, value = suspect.node, suspect.value
    inputs = [v for v in dict.fromkeys(node.inputs) if is_operator(v.node) or _is_input(v)]
    if all(v in equal for v in inputs):
        alike = part.partners.has_same_inputs(node)
        found.fault = _with(suspect, "equal inputs" if alike else "other operators", None)
        return
    if suspect.changes:
        found.fault = _with(suspect, "equal inputs" if exact else "unknown", None)
    own = step(node, node.graph.inference.types)
    limit = 0.0 if exact else allowed_error(value.dtype, own)
    try:
        close = part.compare(inputs, value, limit)
    except MgeError:
        close = None  # it cannot run on its own, such as a branch of conditional execution
    if close is None:
        found.fault = found.fault or _with(suspect, "unknown", None)
    elif not close.passed or (exact and not close.equal_bits):
        found.fault = _with(suspect, "alone", close)
    else:
        found.fault = None
        found.handed_on = found.handed_on or _with(suspect, "handed on", close)


def _is_input(value: Value) -> bool:
    return value.node.is_input


def _with(suspect: Suspect, how: str, alone: Closeness | None) -> Suspect:
    return Suspect(suspect.node, suspect.value, suspect.close, how, alone, suspect.changes)


def _changes(part: Part, value: Value) -> tuple[str, ...]:
    """In what an operator and the weights it uses differ between the two networks."""
    node, other = value.node, part.partners.node(value.node)
    if other is None or other is node:
        return ()
    found = [str(c) for c in changes_of(node, other)]
    for mine, theirs in zip(node.inputs, other.inputs, strict=False):
        if not is_operator(mine.node) and not _is_input(mine):
            found += [str(c) for c in changes_of(mine.node, theirs.node)]
    return tuple(found)


def find_cut(
    part: Part,
    output: Value,
    allowed: dict[Value, Rounding],
    *,
    progress: Progress | None = None,
) -> Suspect | None:
    """The operator up to which the optimised networks must go to differ.

    Networks are cut behind an operator, optimised as they are before a run, and compared at the
    cut: for what only differs when operators are fused. Bisection: about log2(operators) runs; the
    cut one value before agrees.

    Args:
        part: The two networks.
        output: A value of the first that differs in the optimised networks.
        allowed: What rounding may have done to each value.
        progress: Told how far it is.
    """
    ancestors = reachable([output])
    used = {v for n in ancestors for v in n.inputs} | {output}
    candidates = [
        v
        for n in part.a.graph.nodes
        if n in ancestors and is_operator(n)
        for v in n.outputs
        if v in used and part.partners.get(v) is not None
    ]
    if not candidates:
        return None
    inputs = list(part.a.graph.inputs)
    low, high = -1, len(candidates) - 1
    best: Suspect | None = None
    while low + 1 < high or best is None:
        middle = high if best is None else (low + high) // 2
        value = candidates[middle]
        if progress is not None:
            progress("cut", len(candidates) - (high - low), len(candidates))
        limit = allowed_error(value.dtype, allowed[value])
        close = part.compare(inputs, value, limit, prepared=True)
        if close is not None and not close.passed:
            high = middle
            best = Suspect(value.node, value, close, "fused", changes=_changes(part, value))
        elif best is None:
            return None
        else:
            low = middle
    return best
