"""Where the time of a network goes: each step of its program, timed in runs of their own.

The timed runs of a measurement are never profiled; a profile's own cost shows as the gap between
the sum of its steps and the time of the whole without a clock in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadrun.backends.base import StepSpans
from loadrun.measure import Warmup
from loadrun.peaks import Peaks, measure_peaks
from loadrun.session import Session
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Node
from mgeserial.ir.inference import Inference, call_of, infer
from mgeserial.ir.types import TensorType
from mgeserial.ops.costs import Cost, cost_of

__all__ = ["OperatorRef", "Profile", "Row", "TypeRow", "profile", "rows_by_type"]

# Backends whose device is the processor.
_PROCESSORS = frozenset({"cpu", "reference"})
# Type of steps that stand for no operator of the graph.
NO_OPERATOR = "(layout and copies)"


@dataclass(frozen=True, slots=True)
class OperatorRef:
    """An operator of the graph that a step computes."""

    index: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Row:
    """One step.

    Attributes:
        name: The step's name.
        type: Type of the operator that costs most in it.
        operators: All operators that it computes.
        kernel: What computes it.
        algorithm: For people; or empty.
        inputs, outputs: Types that go in and come out, such as `Float32 (1, 3, 224, 224)`.
        starts_ns, times_ns: Start (counted from that of the run) and duration in each run.
        median_ns: Median duration.
        share: Part of the sum of all steps.
        flops: Arithmetic operations; None where that is not known.
        read_bytes, written_bytes: Bytes that must move; None where that is not known.
    """

    name: str
    type: str
    operators: tuple[OperatorRef, ...]
    kernel: str
    algorithm: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    starts_ns: tuple[int, ...]
    times_ns: tuple[int, ...]
    median_ns: float
    share: float
    flops: int | None
    read_bytes: int | None
    written_bytes: int | None

    @property
    def flop_per_s(self) -> float | None:
        """Arithmetic speed; None where the count or the time is missing."""
        return _rate(self.flops, self.median_ns)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes moved a second; None where the count or the time is missing."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return _rate(self.read_bytes + self.written_bytes, self.median_ns)


def _rate(amount: int | None, ns: float) -> float | None:
    return amount * 1e9 / ns if amount and ns else None


@dataclass(frozen=True, slots=True)
class TypeRow:
    """All steps of one type.

    Attributes:
        type: The type.
        count: Number of steps.
        median_ns: Sum of their medians.
        share: Part of the sum of all steps.
        flops: Sum of their operations; None where one is not known.
    """

    type: str
    count: int
    median_ns: float
    share: float
    flops: int | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of all steps.

    Attributes:
        backend: What computed.
        threads: Threads it ran on.
        runs: Number of profiled runs.
        rows: Steps in the order they run.
        wall_ns: Median time of a run that is not profiled; None where it is not known.
        peaks: What the machine can do; None where it was not measured.
        source: Where the numbers come from, if not from here.
    """

    backend: str
    threads: int
    runs: int
    rows: tuple[Row, ...]
    wall_ns: float | None
    peaks: Peaks | None = None
    source: str = "loadrun"

    @property
    def sum_ns(self) -> float:
        """Sum of the steps' medians."""
        return sum(row.median_ns for row in self.rows)

    @property
    def gap_ns(self) -> float | None:
        """What a whole run takes beyond its steps; below 0: the clocks' own cost."""
        return None if self.wall_ns is None else self.wall_ns - self.sum_ns


def profile(
    session: Session, feeds: Mapping[str, Array], *, repeat: int = 20, peaks: bool = True
) -> Profile:
    """Profile a session with these inputs.

    Args:
        session: The model.
        feeds: Inputs by name.
        repeat: Number of profiled runs; as many plain ones are timed, half before, half after.
        peaks: Whether to measure what the machine can do.

    Raises:
        UnsupportedError: The backend cannot say what its steps take.
    """
    half = max(repeat // 2, 1)
    plain = [*session.benchmark(half, Warmup(count=3), feeds).samples]
    spans = session.profile(feeds, repeat=repeat)
    plain += session.benchmark(half, 0, feeds).samples
    graph = session.graph
    shapes = {v: feeds[n].shape for n, v in zip(graph.input_names, graph.inputs, strict=True)}
    inference = infer(graph, shapes)
    place = {node: k for k, node in enumerate(graph.nodes)}
    medians = [statistics.median(ns for _, ns in s.spans) for s in spans]
    total = sum(medians)
    rows = tuple(
        _row(step, inference, place, median, median / total if total else 0.0)
        for step, median in zip(spans, medians, strict=True)
    )
    return Profile(
        session.backend,
        session.threads,
        repeat,
        rows,
        statistics.median(plain),
        _peaks(session) if peaks else None,
    )


def _peaks(session: Session) -> Peaks | None:
    """What the device can do: as its program says, for processors measured here; else None."""
    told = getattr(session.program, "peaks", None)
    if told is not None:
        found: Peaks = told()
        return found
    return measure_peaks(session.threads) if session.backend in _PROCESSORS else None


def _row(
    step: StepSpans,
    inference: Inference,
    place: Mapping[Node, int],
    median: float,
    share: float,
) -> Row:
    costs = [cost_of(call_of(node, inference)) for node in step.nodes]
    known = [c.flops for c in costs]
    flops = None if any(f is None for f in known) else sum(f for f in known if f is not None)
    read, written = step.read_bytes, step.written_bytes
    if read is None or written is None:
        read, written = _sum([c.read_bytes for c in costs]), _sum([c.written_bytes for c in costs])
    inputs, outputs = _ends(step.nodes, inference)
    return Row(
        name=step.name,
        type=_main_type(step.nodes, costs),
        operators=tuple(OperatorRef(place[n], n.display_name, n.op.name) for n in step.nodes),
        kernel=step.kernel,
        algorithm=step.algorithm,
        inputs=inputs,
        outputs=outputs,
        starts_ns=tuple(start for start, _ in step.spans),
        times_ns=tuple(ns for _, ns in step.spans),
        median_ns=median,
        share=share,
        flops=flops if step.nodes else 0,
        read_bytes=read,
        written_bytes=written,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    if not counts or any(c is None for c in counts):
        return None
    return sum(c for c in counts if c is not None)


def _main_type(nodes: Sequence[Node], costs: Sequence[Cost]) -> str:
    if not nodes:
        return NO_OPERATOR
    most = max(range(len(nodes)), key=lambda k: (costs[k].flops or 0, -k))
    return nodes[most].op.name


def _ends(nodes: Sequence[Node], inference: Inference) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Types of the values that enter and leave a group of operators; weights are left out."""
    inside = set(nodes)
    entering = dict.fromkeys(
        v for n in nodes for v in n.inputs if v.node not in inside and not v.node.tensors
    )
    leaving = [
        v for n in nodes for v in n.outputs if not v.users or any(u not in inside for u in v.users)
    ]
    types = inference.types
    return tuple(_shown(types[v]) for v in entering), tuple(_shown(types[v]) for v in leaving)


def _shown(found: TensorType) -> str:
    shape = (
        "?" if found.shape is None else "x".join("?" if n is None else str(n) for n in found.shape)
    )
    return f"{found.dtype.kind.name} {shape}"


def rows_by_type(found: Profile) -> list[TypeRow]:
    """Steps joined by type, the longest first."""
    groups: dict[str, list[Row]] = {}
    for row in found.rows:
        groups.setdefault(row.type, []).append(row)
    joined = [
        TypeRow(
            kind,
            len(rows),
            sum(r.median_ns for r in rows),
            sum(r.share for r in rows),
            _sum([r.flops for r in rows]),
        )
        for kind, rows in groups.items()
    ]
    return sorted(joined, key=lambda r: -r.median_ns)
