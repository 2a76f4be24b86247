"""The CUDA backend: graph -> nodes -> plan -> program on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadrun.backends.base import (
    CompileOptions,
    MemoryBlock,
    MemoryPlan,
    Parts,
    ProgramReport,
    StepSpans,
)
from loadrun.backends.cuda import device as devices
from loadrun.backends.cuda import lower
from loadrun.backends.cuda.plan import (
    Convolve,
    Host,
    Launch,
    Library,
    Plan,
    Step,
    lifetimes,
    segments,
)
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program, Times
from loadrun.backends.cuda.tuning import plan_for, scratch_bytes
from loadrun.backends.cuda.variants import Target
from loadrun.backends.reference import ReferenceProgram, missing_reference, refuse_missing
from mgeserial.dtypes import Array
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import Inference

__all__ = ["CudaBackend", "CudaProgram", "plan_graph"]

# A value whose branch is not taken has no array, so these graphs run node by node.
_CONDITIONAL = "CondExec"


def plan_graph(
    graph: Graph, inference: Inference, target: Target | None = None
) -> tuple[Plan, lower.Lowered]:
    """The plan of a graph for the shapes of an inference; it needs no device."""
    lowered = lower.lower(graph, inference)
    return make_plan(lowered.network, target), lowered


class CudaProgram:
    """A compiled graph for one set of input shapes."""

    def __init__(self, graph: Graph, inference: Inference, options: CompileOptions) -> None:
        """Compile; see `CudaBackend.compile`."""
        device = devices.open_device(options.device, cache=options.cache)
        record = options.record != 0
        try:
            target = Target(device.capability, options.tf32, device.library)
            lowered = lower.lower(graph, inference)
            planned = plan_for(lowered.network, device, options, target)
            plan = planned.plan
            self._program = Program(
                plan, device, record=record, share=options.memory_plan, functions=planned.functions
            )
        except BaseException:
            device.close()
            raise
        notes = [f"device: {device.name}"]
        if device.emulated:
            notes.append("the device is emulated: times mean nothing")
        notes.append(_replay_note(plan, record=record))
        notes.extend(planned.notes)
        if lowered.fallback:
            total = sum(lowered.fallback.values())
            notes.append(f"{total} operators run by reference code, with copies")
            notes.extend(lowered.reasons)
        self.report = ProgramReport(
            threads=1,
            notes=notes,
            fallback=dict(lowered.fallback),
            weight_bytes=self._program.const_bytes,
            arena_bytes=self._program.arena_bytes,
            workspace_bytes=max((scratch_bytes(plan, n) for n in plan.decisions), default=0),
            algorithms=planned.name,
            choices=list(planned.choices),
            plan=str(plan).splitlines(),
        )

    @property
    def native(self) -> Program:
        """The engine's program."""
        return self._program

    @property
    def times(self) -> Times:
        """Where the time of the last run went."""
        return self._program.times

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Compute the graph's outputs from its inputs; results are overwritten by the next run."""
        with np.errstate(all="ignore"):
            # Views: whoever gets them must copy.
            results = [r.view() for r in self._program.run(feeds)]
        if self._program.notes:  # what showed itself in the run only
            self.report.notes += self._program.notes
            self._program.notes.clear()
        return results

    def run_parts(self, feeds: Sequence[Array]) -> tuple[list[Array], Parts]:
        """As `run`, and where the time went: events of the device, copies by the host's clock."""
        results = self.run(feeds)
        times = self.times
        return results, Parts(times.device, times.copy_in + times.copy_out)

    def profile(self, feeds: Sequence[Array], repeat: int) -> list[StepSpans]:
        """Run step by step, timed by events of the device."""
        plan = self._program.plan
        with np.errstate(all="ignore"):
            found = self._program.profile(feeds, repeat)
        return [
            StepSpans(
                step.name,
                _kernel_name(step),
                _algorithm(step),
                plan.origins.get(step.name, ()),
                tuple(spans),
                sum(plan.buffers[n].nbytes for n in step.reads),
                sum(plan.buffers[n].nbytes for n in step.writes),
            )
            for step, spans in zip(plan.steps, found, strict=True)
        ]

    def memory(self) -> MemoryPlan:
        """What lives in the arena, when."""
        program = self._program
        blocks = tuple(
            MemoryBlock(x.name, x.nbytes, x.first, x.last, program.offsets.get(x.name))
            for x in lifetimes(program.plan)
        )
        return MemoryPlan(
            tuple(s.name for s in program.plan.steps),
            blocks,
            program.arena_bytes,
            program.const_bytes,
        )

    def close(self) -> None:
        """Free the device's memory."""
        self._program.close()


def _kernel_name(step: Step) -> str:
    if isinstance(step, Launch):
        return step.kernel.name
    return "library" if isinstance(step, (Library, Convolve)) else "python"


def _algorithm(step: Step) -> str:
    if isinstance(step, Convolve):
        return step.engine.name
    return step.algorithm if isinstance(step, Launch) else ""


def _replay_note(plan: Plan, *, record: bool) -> str:
    """How launches reach the device."""
    if not record:
        return "launches are started one by one, as was asked for"
    parts = len(segments(plan))
    if not parts:
        return "nothing is replayed: all operators run by reference code"
    hosts = sum(isinstance(s, Host) for s in plan.steps)
    between = f", {hosts} steps of the host between them" if hosts else ""
    graphs = "a CUDA graph" if parts == 1 else f"{parts} CUDA graphs"
    return f"launches are replayed as {graphs} from the third run on{between}"


class CudaBackend:
    """Kernels of our own for NVIDIA GPUs, compiled when a model is loaded."""

    name = "cuda"

    def unavailable(self) -> str | None:
        """Why it cannot run here: CuPy, the driver or a device is missing."""
        return devices.reason_missing()

    @property
    def automatic(self) -> bool:
        """Whether `auto` may choose it: never the emulated device."""
        return not devices.mode().emulated

    def lowered(self) -> frozenset[str]:
        """Names of operators with a rule; needs no device."""
        return frozenset(lower.rules())

    def missing(self, graph: Graph) -> list[tuple[Node, str]]:
        """Nodes that have neither a rule nor reference code."""
        known = lower.rules()
        return [(n, r) for n, r in missing_reference(graph) if n.op.name not in known]

    def by_reference(self, graph: Graph) -> list[tuple[Node, str]]:
        """Nodes that run by reference code with copies, each with the reason; needs no device.

        Raises:
            MgeError: The graph's types cannot be inferred.
        """
        live = refuse_missing(graph, self.missing(graph))
        if any(n.op.name.startswith(_CONDITIONAL) for n in live):
            return [(n, "conditional execution") for n in graph.nodes if n in live and n.inputs]
        return list(lower.lower(graph, graph.inference).host)

    def compile(
        self, graph: Graph, inference: Inference, options: CompileOptions
    ) -> CudaProgram | ReferenceProgram:
        """Make a program for the shapes of `inference`.

        Raises:
            UnsupportedError: The graph holds something that cannot run at all.
        """
        live = reachable(graph.outputs)
        if any(n.op.name.startswith(_CONDITIONAL) for n in live):
            program = ReferenceProgram(graph, inference)
            program.report.notes.append("conditional execution: all operators by reference code")
            return program
        return CudaProgram(graph, inference, options)
