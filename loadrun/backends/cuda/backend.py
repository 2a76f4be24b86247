"""The CUDA backend: graph -> nodes -> plan -> program on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadrun.backends.base import CompileOptions, ProgramReport
from loadrun.backends.cuda import device as devices
from loadrun.backends.cuda import lower
from loadrun.backends.cuda.plan import Plan
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program, Times
from loadrun.backends.reference import ReferenceProgram, missing_reference
from mgeserial.dtypes import Array
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import Inference

__all__ = ["CudaBackend", "CudaProgram", "plan_graph"]

# A value whose branch is not taken has no array, so these graphs run node by node.
_CONDITIONAL = "CondExec"


def plan_graph(graph: Graph, inference: Inference) -> tuple[Plan, lower.Lowered]:
    """The plan of a graph for the shapes of an inference; it needs no device."""
    lowered = lower.lower(graph, inference)
    return make_plan(lowered.network), lowered


class CudaProgram:
    """A compiled graph for one set of input shapes."""

    def __init__(self, graph: Graph, inference: Inference, options: CompileOptions) -> None:
        """Compile; see `CudaBackend.compile`."""
        plan, lowered = plan_graph(graph, inference)
        device = devices.open_device(options.device)
        try:
            self._program = Program(plan, device)
        except BaseException:
            device.close()
            raise
        notes = [f"device: {device.name}"]
        if device.emulated:
            notes.append("the device is emulated: times mean nothing")
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
            return [r.view() for r in self._program.run(feeds)]

    def close(self) -> None:
        """Free the device's memory."""
        self._program.close()


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
