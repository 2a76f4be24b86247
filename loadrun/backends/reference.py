"""The reference backend: each operator's numpy code, node by node. The meaning, not the speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from loadrun.backends.base import (
    CompileOptions,
    MemoryBlock,
    MemoryPlan,
    Parts,
    ProgramReport,
    StepSpans,
)
from mgeserial.dtypes import Array
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.inference import Inference, call_of
from mgeserial.ir.running import run_node
from mgeserial.ir.types import ABSENT, Call

__all__ = [
    "ReferenceBackend",
    "ReferenceProgram",
    "missing_reference",
    "refuse_missing",
    "run_node",
]

_INPUT = "Host2DeviceCopy"


def missing_reference(graph: Graph) -> list[tuple[Node, str]]:
    """Nodes without reference code, each with the reason its record gives."""
    found = []
    for node in graph.nodes:
        op: Any = node.op
        if op.reference is None and op.name != _INPUT:
            reasons = [g.reason for g in getattr(op, "gaps", ()) if g.backend in ("*", "reference")]
            found.append((node, "; ".join(reasons) or "no reference code yet"))
    return found


def refuse_missing(graph: Graph, missing: list[tuple[Node, str]]) -> set[Node]:
    """Refuse a graph whose outputs need operators that cannot run; return the nodes they need.

    Raises:
        UnsupportedError: Names every such operator once, with its reason.
    """
    used = reachable(graph.outputs)
    needed = [(n, r) for n, r in missing if n in used]
    if needed:
        names = sorted({f"{n.op.name} ({r})" for n, r in needed})
        raise UnsupportedError(
            f"{len(needed)} operators cannot run: {'; '.join(names)}",
            path=graph.path,
            hint="`mgeserial check` lists every one and the outputs it blocks",
        )
    return used


class ReferenceProgram:
    """Runs the nodes in order and frees each value after its last use.

    Args:
        graph: What to run.
        inference: Types at the shapes to run with.
        frees: Whether values are freed after their last use, or kept until the run ends.
    """

    def __init__(self, graph: Graph, inference: Inference, *, frees: bool = True) -> None:
        used = refuse_missing(graph, missing_reference(graph))
        self.report = ProgramReport()
        self._inputs = graph.inputs
        self._outputs = graph.outputs
        self._steps: list[tuple[Node, Call, tuple[Value, ...]]] = []
        last: dict[Value, Node] = {}
        for node in graph.nodes:
            for value in node.inputs:
                last[value] = node
        keep = set(self._outputs)
        for node in graph.nodes:
            if node not in used or node.is_input:
                continue
            call = call_of(node, inference)
            call.state.clear()
            dead = {v for v in node.inputs if last[v] is node and v not in keep}
            dead |= {v for v in node.outputs if v not in last and v not in keep}
            self._steps.append((node, call, tuple(dead) if frees else ()))
        self.report.weight_bytes = sum(t.nbytes for n in graph.params for t in n.tensors)

    def resume(self, states: Mapping[Node, Mapping[str, Any]]) -> None:
        """Let operators go on from these states (`Call.state`), where there are any."""
        for node, call, _ in self._steps:
            call.state.update(states.get(node, {}))

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Compute the outputs from the inputs, both in the graph's order."""
        values: dict[Value, Array] = dict(zip(self._inputs, feeds, strict=True))
        for step in self._steps:
            _run_step(step, values)
        return self._found(values)

    def run_parts(self, feeds: Sequence[Array]) -> tuple[list[Array], Parts]:
        """See `Program`: everything but the bookkeeping of values is the operators' own time."""
        values: dict[Value, Array] = dict(zip(self._inputs, feeds, strict=True))
        begin = time.perf_counter_ns()
        for step in self._steps:
            _run_step(step, values)
        spent = time.perf_counter_ns() - begin
        return self._found(values), Parts(spent)

    def profile(self, feeds: Sequence[Array], repeat: int) -> list[StepSpans]:
        """See `Program`: the same run, with a clock round each operator."""
        spans: list[list[tuple[int, int]]] = [[] for _ in self._steps]
        for _ in range(repeat):
            values: dict[Value, Array] = dict(zip(self._inputs, feeds, strict=True))
            begin = time.perf_counter_ns()
            for step, found in zip(self._steps, spans, strict=True):
                start = time.perf_counter_ns()
                _run_step(step, values)
                found.append((start - begin, time.perf_counter_ns() - start))
        return [
            StepSpans(node.display_name or node.op.name, "python", "", (node,), tuple(found))
            for (node, _, _), found in zip(self._steps, spans, strict=True)
        ]

    def memory(self) -> MemoryPlan:
        """See `Program`: arrays on the heap, freed after their last use; views count as arrays."""
        position = {node: k for k, (node, _, _) in enumerate(self._steps)}
        ends = {v: k for k, (_, _, dead) in enumerate(self._steps) for v in dead}
        last = max(len(self._steps) - 1, 0)
        blocks = []
        for node, call, _ in self._steps:
            if node.tensors:
                continue
            for value, found in zip(node.outputs, call.output_types, strict=False):
                nbytes = found.size * found.dtype.storage.itemsize if found.is_static else 0
                first, end = position[node], ends.get(value, last)
                blocks.append(MemoryBlock(value.display_name, nbytes, first, end, None))
        live = [0] * (last + 1)
        for block in blocks:
            for k in range(block.first, block.last + 1):
                live[k] += block.nbytes
        names = tuple(n.display_name or n.op.name for n, _, _ in self._steps)
        return MemoryPlan(names, tuple(blocks), max(live), self.report.weight_bytes)

    def _found(self, values: dict[Value, Array]) -> list[Array]:
        found = [values[v] for v in self._outputs]
        for value, array in zip(self._outputs, found, strict=True):
            if array is ABSENT:
                raise ExecutionError(
                    f"output {value.display_name!r} has no value: its branch was not executed"
                )
        return found

    def close(self) -> None:
        """Free everything."""
        self._steps = []


def _run_step(step: tuple[Node, Call, tuple[Value, ...]], values: dict[Value, Array]) -> None:
    node, call, dead = step
    results = run_node(node, call, [values[v] for v in node.inputs])
    values.update(zip(node.outputs, results, strict=True))
    for value in dead:
        values.pop(value, None)


class ReferenceBackend:
    """Numpy, one operator at a time, on one thread."""

    name = "reference"

    def unavailable(self) -> str | None:
        """Always usable."""
        return None

    def missing(self, graph: Graph) -> list[tuple[Node, str]]:
        """Nodes without reference code."""
        return missing_reference(graph)

    def compile(
        self, graph: Graph, inference: Inference, options: CompileOptions
    ) -> ReferenceProgram:
        """Make a program (nothing is compiled)."""
        return ReferenceProgram(graph, inference, frees=options.memory_plan)
