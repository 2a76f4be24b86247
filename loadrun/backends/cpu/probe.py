"""Looking at a program from outside: parts of a run, times of its steps, its memory.

What a run computes is not changed by any of this: the same phases run in the same order on the same
buffers.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from loadrun.backends.base import MemoryBlock, MemoryPlan, Parts, StepSpans
from loadrun.backends.cpu.placing import lifetimes
from loadrun.backends.cpu.plan import Array, HostStep, Place, Plan, Step
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.runtime import Turn
from mgeserial.errors import InputError
from mgeserial.ir.graph import Node

__all__ = [
    "Attribution",
    "Stepper",
    "attribute",
    "display_name",
    "label_of",
    "memory",
    "pin",
    "renamed",
    "run_parts",
    "timed_steps",
    "unshared",
    "workspace",
    "workspace_of",
]

# For each name of a native node the operators of the graph that it computes.
Attribution = Mapping[str, tuple[Node, ...]]


def run_parts(program: Program, feeds: Sequence[Array]) -> tuple[list[Array], Parts]:
    """`Program.run`, with the time from the first kernel's start to the last one's end."""
    arrays = program._check(feeds)
    program._allocate(arrays)
    with program._team.turn() as turn:
        program._patch(arrays)
        begin = time.perf_counter_ns()
        for segment in program._segments:
            turn.run(segment.first, segment.last)
            if segment.host is not None:
                program._run_host(segment.host, arrays)
        spent = time.perf_counter_ns() - begin
    return [arrays[name] for name in program.plan.outputs], Parts(spent)


class Stepper:
    """One run of a program, whose phases the caller asks for in parts."""

    def __init__(self, program: Program, feeds: Sequence[Array]) -> None:
        """Begin; use it as a context: other callers wait until it ends."""
        self._program, self._arrays = program, program._check(feeds)
        program._allocate(self._arrays)
        self._turn = program._team.turn()
        self._at, self._segment = 0, 0

    def __enter__(self) -> Stepper:
        """Wait for the turn."""
        self._turn.__enter__()
        self._program._patch(self._arrays)
        return self

    def __exit__(self, *_: object) -> None:
        """End the turn."""
        self._turn.__exit__(*_)

    def settle(self) -> None:
        """Run the Python steps that stand before the next phase, or at the end."""
        segments = self._program._segments
        while self._segment < len(segments) and segments[self._segment].last == self._at:
            host = segments[self._segment].host
            if host is not None:
                self._program._run_host(host, self._arrays)
            self._segment += 1

    def run(self, last: int) -> None:
        """Run phases up to `last`, and the Python steps between them."""
        while self._at < last:
            self.settle()
            stop = min(last, self._program._segments[self._segment].last)
            self._turn.run(self._at, stop)
            self._at = stop


def timed_steps(
    program: Program, feeds: Sequence[Array], repeat: int, origin: Attribution
) -> list[StepSpans]:
    """Run `repeat` times with a clock round each phase; successive phases of a label are one step.

    The label is that of the operator: a step's own packing and further kernels belong to it.
    """
    groups = _groups(program.plan)
    labels = {name: label_of(name, origin) for name in groups}
    order: list[list[str]] = []
    spans: list[list[tuple[int, int]]] = []
    for _ in range(repeat):
        at, before = -1, None
        arrays = program._check(feeds)
        program._allocate(arrays)
        with program._team.turn() as turn:
            program._patch(arrays)
            begin = time.perf_counter_ns()
            for name, work in _pieces(program, turn, arrays):
                start = time.perf_counter_ns()
                work()
                spent = time.perf_counter_ns() - start
                label = labels[name]
                at += label != before
                if at == len(order):
                    order.append([])
                    spans.append([])
                if name not in order[at]:
                    order[at].append(name)
                if label == before:
                    first, so_far = spans[at][-1]
                    spans[at][-1] = (first, so_far + spent)
                else:
                    spans[at].append((start - begin, spent))
                before = label
    named: set[Node] = set()
    found = []
    for names, times in zip(order, spans, strict=True):
        steps = [step for name in names for step in groups[name]]
        found.append(_spans_of(program.plan, steps, tuple(times), origin, named))
    return found


def _pieces(
    program: Program, turn: Turn, arrays: dict[str, Array]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Phases and Python steps in order; each must be called before the next is asked for."""
    for segment in program._segments:
        for k in range(segment.first, segment.last):
            yield program._phases[k][0], functools.partial(turn.run, k, k + 1)
        if segment.host is not None:
            yield segment.host.name, functools.partial(program._run_host, segment.host, arrays)


def _groups(plan: Plan) -> dict[str, list[Step | HostStep]]:
    """Steps by the name of the phases that run them: one, or those of a band."""
    inside = {k for first, last in plan.bands for k in range(first, last)}
    found: dict[str, list[Step | HostStep]] = {
        step.name: [step] for k, step in enumerate(plan.steps) if k not in inside
    }
    for first, last in plan.bands:
        band = list(plan.steps[first:last])
        found["+".join(step.name for step in band)] = band
    return found


def label_of(name: str, labels: Container[str]) -> str:
    """Label of the operator that a step or a band is part of; its own name where there is none."""
    stem = _stem(name)
    head = stem
    while head:
        if head in labels:
            return head
        head = head.rpartition(":")[0]
    return stem


def _spans_of(
    plan: Plan,
    steps: Sequence[Step | HostStep],
    spans: tuple[tuple[int, int], ...],
    origin: Attribution,
    named: set[Node],
) -> StepSpans:
    """What is known of steps that were timed together; an operator is listed once (`named`)."""
    native = [s for s in steps if isinstance(s, Step)]
    labels = dict.fromkeys(label_of(s.name, origin) for s in steps)
    nodes = [n for label in labels for n in origin.get(label, ()) if n not in named]
    named.update(nodes)
    made = {name for s in steps for name in s.writes}
    reads = {name for s in steps for name in s.reads} - made
    weights = {a.buffer for s in native for a in s.args}
    reads |= {name for name in weights if plan.buffers[name].place is Place.CONST}
    # What one step leaves to the next one stays in the cache.
    used = {name for s in steps[1:] for name in s.reads}
    return StepSpans(
        " + ".join(labels),
        " + ".join(dict.fromkeys(s.kernel.name for s in native)) or "python",
        " + ".join(dict.fromkeys(s.algorithm for s in native if s.algorithm)),
        tuple(nodes),
        spans,
        _size(plan, reads),
        _size(plan, made - used if made - used else made),
    )


def renamed(found: StepSpans, labels: Mapping[str, Node], values: Mapping[str, str]) -> StepSpans:
    """The same under names that a person knows: of operators, or of the value that is moved."""
    parts = found.name.split(" + ")
    return replace(found, name=" + ".join(display_name(part, labels, values) for part in parts))


def display_name(part: str, labels: Mapping[str, Node], values: Mapping[str, str]) -> str:
    """A step's name as a person knows it."""
    node = labels.get(part)
    if node is not None:
        return node.display_name or node.op.name
    tensor, colon, what = part.rpartition(":")
    return f"{values.get(tensor, tensor)}{colon}{what}" if colon else values.get(part, part)


def _size(plan: Plan, names: Iterable[str]) -> int | None:
    """Bytes of buffers, each memory once; None where one has no size ahead of the run."""
    found = {}
    for name in names:
        buffer = plan.buffers.get(name)
        if buffer is None:
            return None
        found[buffer.alias or name] = buffer.nbytes
    return sum(found.values())


def _stem(name: str) -> str:
    """A step's name without the mark of a second use."""
    return name.partition("#")[0]


def attribute(
    steps: Iterable[str], labels: Mapping[str, Node], order: Sequence[Node]
) -> Attribution:
    """Which operators each step computes, those that were fused into it included.

    Operators have a label each; one whose label names no step was fused. It belongs to the step of
    the elementwise operator that alone reads it, else to the step that makes its first input, as
    `fusion` does it.

    Args:
        steps: Names of the steps.
        labels: Operator by the name of its node.
        order: The graph's operators in order.
    """
    present = {label_of(name, labels) for name in steps}
    home = {node: label for label, node in labels.items() if label in present}
    fused = {node for node in labels.values() if node not in home}
    for node in reversed(order):
        users = {u for v in node.outputs for u in v.users}
        if node in fused and len(users) == 1:
            user = next(iter(users))
            if user in home and user.op.name.startswith("Elemwise"):
                home[node] = home[user]
    for node in order:
        if node in fused and node not in home:
            before = [home[v.node] for v in node.inputs if v.node in home]
            if before:
                home[node] = before[0]
    found: dict[str, list[Node]] = {}
    for node in order:
        if node in home:
            found.setdefault(home[node], []).append(node)
    return {label: tuple(nodes) for label, nodes in found.items()}


def memory(program: Program) -> MemoryPlan:
    """What lives in the arena, when and where."""
    plan = program.plan
    placed = program.placed
    blocks = tuple(
        MemoryBlock(x.name, x.nbytes, x.first, x.last, placed.offsets[x.name])
        for x in lifetimes(plan)
    )
    names = tuple(_stem(s.name) for s in plan.steps)
    return MemoryPlan(names, blocks, placed.nbytes, program.stats.const_bytes, workspace(plan))


def workspace(plan: Plan) -> int:
    """Most scratch memory of any step, in bytes."""
    return max([workspace_of(plan, s) for s in plan.steps if isinstance(s, Step)] + [0])


def workspace_of(plan: Plan, step: Step) -> int:
    """Scratch memory of a step: of each thread, and what its threads share."""
    shared = {n for n in (*step.reads, *step.writes) if n in plan.buffers}
    return plan.threads * step.kernel.scratch + sum(
        plan.buffers[n].nbytes for n in shared if plan.buffers[n].scratch
    )


def unshared(plan: Plan) -> Plan:
    """The same plan, where every value has memory of its own through the whole run.

    Values in the arena count as read by the first and by the last step, so that all lives overlap.

    Raises:
        ValueError: The plan has bands, which keep rows of values only.
    """
    if plan.bands:
        raise ValueError("values of a band have no memory of their own")
    names = tuple(
        b.name
        for b in plan.buffers.values()
        if b.place in (Place.ARENA, Place.HALO) and not b.alias
    )
    if not plan.steps or not names:
        return plan
    steps = list(plan.steps)
    for k in {0, len(steps) - 1}:
        steps[k] = _reading(steps[k], names)
    return replace(plan, steps=tuple(steps))


def _reading(step: Step | HostStep, names: tuple[str, ...]) -> Step | HostStep:
    if isinstance(step, Step):
        return replace(step, reads=(*step.reads, *names))
    count, run = len(step.reads), step.run
    return replace(step, reads=(*step.reads, *names), run=lambda arrays: run(arrays[:count]))


def pin(program: Program, cores: Sequence[int]) -> str | None:
    """Pin the caller and the workers to cores, in order; the reason when that cannot be done.

    The calling thread stays pinned, as with load_and_run.

    Raises:
        InputError: A core that this process may not use.
    """
    if not hasattr(os, "sched_setaffinity"):
        return f"threads cannot be pinned on {sys.platform}"
    allowed = os.sched_getaffinity(0)
    wrong = [core for core in cores if core not in allowed]
    if wrong:
        raise InputError(
            f"core {wrong[0]} cannot be used here",
            hint=f"cores of this process: {', '.join(map(str, sorted(allowed)))}",
        )
    threads = [0, *(t.native_id or 0 for t in program._team._workers)]
    # The workers first: a thread that starts later takes over the caller's cores.
    for thread, core in reversed(list(zip(threads, cores, strict=False))):
        os.sched_setaffinity(thread, {core})
    return None
