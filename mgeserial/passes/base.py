"""Passes: what one is, what it reports, and the runner that checks it.

A pass is given a graph and returns a new one; it never changes its input. It declares facts that it
needs, ensures and spoils, and the runner keeps account of them. After each pass the runner infers
all types anew and checks links, order, inputs and outputs; on demand it compares computed results.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mgeserial.errors import MgeError, PassError
from mgeserial.ir.graph import Graph, Node, input_name
from mgeserial.ir.inference import infer
from mgeserial.ir.types import TensorType
from mgeserial.passes.census import census, weight_bytes

__all__ = [
    "Check",
    "Fact",
    "Log",
    "NearMiss",
    "Pass",
    "PassResult",
    "Place",
    "Rewrite",
    "run_passes",
    "verify",
]


class Fact(enum.Enum):
    """Something that holds for a graph between passes."""

    NO_DEAD_CODE = "every operator is needed by an output"
    CONSTANTS_FOLDED = "no operator works on constants alone (but those over the bound)"
    NO_INFERENCE_NORM = "BatchNorm with fixed statistics is arithmetic"
    CONV_BIAS = "convolutions, their bias and nonlinearity are one operator where they can be"
    NCHW4 = "quantised convolutions work in NCHW4 where they can"
    FLOAT16 = "float32 values are stored as float16"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was done: operator name, shown name, index in the graph of before."""

    op: str
    name: str
    index: int

    @classmethod
    def of(cls, node: Node) -> Place:
        """Place of a node in its graph (the file's index when it comes from a file)."""
        index = node.origin.index if node.origin is not None else node.index
        return cls(node.op.name, node.display_name, index)

    def __str__(self) -> str:
        return f'operator {self.index} "{self.name}" ({self.op})'


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One change: the pass and its rule, where, and what became of it."""

    pass_name: str
    rule: str
    place: Place
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.place}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A place where a rule's pattern stood but its check did not hold, with the reason."""

    pass_name: str
    rule: str
    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass did.

    Attributes:
        name: The pass.
        rewrites, near_misses: In order of the graph.
        before, after: Operators by kind (`census`).
        weight_bytes_before, weight_bytes_after: Bytes of weights and constants.
        seconds: Time of the pass without its verification.
    """

    name: str
    rewrites: tuple[Rewrite, ...]
    near_misses: tuple[NearMiss, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    weight_bytes_before: int
    weight_bytes_after: int
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the pass did anything."""
        return bool(self.rewrites)


@dataclass(slots=True)
class Log:
    """Where a pass writes down what it does and what it leaves, with the reason."""

    pass_name: str
    rewrites: list[Rewrite] = field(default_factory=list)
    near_misses: dict[NearMiss, None] = field(default_factory=dict)

    def rewrite(self, rule: str, node: Node, detail: str = "") -> None:
        """Note a change at `node` (a node of the graph before it)."""
        self.rewrites.append(Rewrite(self.pass_name, rule, Place.of(node), detail))

    def miss(self, rule: str, node: Node, reason: str) -> None:
        """Note that a rule does not apply at `node`, and why; said twice it counts once."""
        self.near_misses[NearMiss(self.pass_name, rule, Place.of(node), reason)] = None


class Pass(Protocol):
    """One transformation.

    Attributes:
        name: Short name, as reports show it.
        needs: Facts that must hold before.
        ensures: Facts that hold after it.
        spoils: Facts that need not hold any more after it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 (see the class)
    @property
    def needs(self) -> frozenset[Fact]: ...  # noqa: D102
    @property
    def ensures(self) -> frozenset[Fact]: ...  # noqa: D102
    @property
    def spoils(self) -> frozenset[Fact]: ...  # noqa: D102

    def run(self, graph: Graph, log: Log) -> Graph:
        """Return the transformed graph; `graph` stays as it is.

        When there is nothing to do the input itself may be returned. Running a pass on its own
        result must change nothing.
        """
        ...


# Compares the graph before with the one after; returns what differs, None when nothing does.
Check = Callable[[Graph, Graph], str | None]


def run_passes(
    graph: Graph,
    passes: Sequence[Pass],
    *,
    check: Check | None = None,
    facts: frozenset[Fact] = frozenset(),
) -> tuple[Graph, list[PassResult]]:
    """Run passes one after another, verifying each.

    Args:
        graph: The graph; it stays as it is.
        passes: In order.
        check: Further comparison of the graph before and after each pass, such as
            `mgeserial.passes.evaluate.OutputCheck`.
        facts: What holds for `graph` already.

    Raises:
        PassError: A pass failed, was run without what it needs, or left a graph that is not
            sound; names the passes already run.
    """
    results: list[PassResult] = []
    held = set(facts)
    for item in passes:
        missing = sorted(f.value for f in item.needs - held)
        if missing:
            raise _error(item, results, f"needs that {missing[0]}")
        log = Log(item.name)
        start = time.perf_counter()
        try:
            new = item.run(graph, log)
        except PassError:
            raise
        except MgeError as error:
            raise _error(item, results, error.message) from error
        seconds = time.perf_counter() - start
        problem = verify(graph, new)
        if problem is None and check is not None and new is not graph:
            problem = check(graph, new)
        if problem is not None:
            raise _error(item, results, problem)
        results.append(_result(item.name, log, graph, new, seconds))
        held = (held - item.spoils) | item.ensures
        graph = new
    return graph, results


def _result(name: str, log: Log, before: Graph, after: Graph, seconds: float) -> PassResult:
    return PassResult(
        name,
        tuple(log.rewrites),
        tuple(log.near_misses),
        census(before),
        census(after),
        weight_bytes(before),
        weight_bytes(after),
        seconds,
    )


def _error(item: Pass, results: Sequence[PassResult], problem: str) -> PassError:
    done = ", ".join(r.name for r in results) or "none"
    return PassError(f"pass {item.name}: {problem}", hint=f"passes already run: {done}")


def verify(before: Graph, after: Graph) -> str | None:
    """Check that a graph is sound and has the inputs and outputs of another; say what is wrong.

    Checked: each input stands before its user, users are counted right, types can be inferred,
    inputs have the same names and types, outputs the same names and types (a shape that was not
    known may be known now).
    """
    if after is before:
        return None
    return _unsound(after) or _inputs_differ(before, after) or _outputs_differ(before, after)


def _unsound(graph: Graph) -> str | None:
    seen: dict[Any, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value not in seen:
                return f"{node.describe()} uses a value that does not stand before it"
            seen[value] += 1
        seen.update(dict.fromkeys(node.outputs, 0))
    for value, count in seen.items():
        if count != sum(value._users.values()):
            return f"{value!r} has {count} uses, but {sum(value._users.values())} are noted"
    lost = [o for o in graph.output_list if o.value not in seen]
    if lost:
        return f"output {lost[0].name!r} is not computed in the graph"
    try:
        # Not `graph.inference`: a pass may have left its own there.
        infer(graph)
    except MgeError as error:
        return f"left a graph that does not fit together: {error.message}"
    return None


def _inputs_differ(before: Graph, after: Graph) -> str | None:
    old = [(input_name(v), v.type) for v in before.inputs]
    new = [(input_name(v), v.type) for v in after.inputs]
    if old == new:
        return None
    changed = [f"{n}: {t}" for n, t in old if (n, t) not in new]
    return f"changed inputs: {', '.join(changed) or 'there are more than before'}"


def _outputs_differ(before: Graph, after: Graph) -> str | None:
    old, new = before.output_names, after.output_names
    if old != new:
        return f"changed outputs: {', '.join(old)} became {', '.join(new)}"
    for name, a, b in zip(old, before.outputs, after.outputs, strict=True):
        if not _same_type(a.type, b.type):
            return f"output {name!r} was {a.type} and is {b.type}"
    return None


def _same_type(a: TensorType, b: TensorType) -> bool:
    if a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    same_rank = len(a.shape) == len(b.shape)
    return same_rank and all(
        n == m or n is None or m is None for n, m in zip(a.shape, b.shape, strict=True)
    )
