"""The native CPU backend: graph -> nodes -> plan -> program."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadrun.backends.base import (
    CompileOptions,
    LayerChoice,
    MemoryPlan,
    Parts,
    ProgramReport,
    StepSpans,
)
from loadrun.backends.cpu import jit, lower, probe, runtime, tuning
from loadrun.backends.cpu.cache import Cache, CacheError, default_folder
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.llvm import CodegenError
from loadrun.backends.cpu.plan import HostStep, Plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import detect
from loadrun.backends.reference import ReferenceProgram, missing_reference, refuse_missing
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import Inference

__all__ = ["CpuBackend", "CpuProgram"]

# A value whose branch is not taken has no array, so these graphs run node by node.
_CONDITIONAL = "CondExec"


class CpuProgram:
    """A compiled graph for one set of input shapes."""

    def __init__(self, graph: Graph, inference: Inference, options: CompileOptions) -> None:
        """Compile; see `CpuBackend.compile`."""
        target = detect()
        threads = options.threads or jit.processors()
        notes: list[str] = []
        cache = _cache(options, notes)
        contents = Contents(cache, verify=options.verify_cache)
        contents.begin(t.raw for n in graph.params for t in n.tensors)
        with jit.Compiler(target, cache, progress=options.progress) as compiler:
            compiler.also([functools.partial(runtime.prepare, target)])
            lowered = lower.lower(graph, inference)
            self._inputs = [k for k, name in enumerate(lowered.inputs) if name]
            planned = tuning.plan_for(
                lowered.network, target, threads, options, contents, ahead=compiler.add
            )
            plan = planned.plan
            self._program = Program(plan, target, cache, contents=contents, compiler=compiler)
        notes += planned.notes + _halves(inference)
        _begin_anew(plan)
        if options.core_ids and (reason := probe.pin(self._program, options.core_ids)):
            notes.append(reason)
        self._labels, self._nodes = lowered.labels, graph.nodes
        self._values = lowered.values
        self._remembering: dict[Node, Any] = {
            lowered.labels[step.name]: step.run
            for step in plan.steps
            if isinstance(step, HostStep) and hasattr(step.run, "before")
        }
        order = {name: k for k, name in enumerate(plan.outputs)}
        self._outputs = [order[name] for name in lowered.outputs]
        self._checks = [order[name] for name in lowered.checks]
        self._graph, self._inference = graph, inference
        self._tail = lowered.tail
        if self._tail is not None:
            part = replace(options, fast_run=False, progress=None, policy_file=None)
            self._tail.open(lambda graph, types: _compiled(graph, types, part))
        stats = self._program.stats
        if lowered.fallback:
            total = sum(lowered.fallback.values())
            notes.append(f"{total} operators run by reference code")
            notes.extend(lowered.reasons)
        self.report = ProgramReport(
            threads=threads,
            notes=notes,
            fallback=dict(lowered.fallback),
            weight_bytes=stats.const_bytes,
            arena_bytes=stats.arena_bytes,
            algorithms=planned.name,
            workspace_bytes=probe.workspace(plan),
            choices=[self._named(choice) for choice in planned.choices],
            plan=[target.key(), *str(plan).splitlines()],
        )
        if planned.choices:
            self.report.plan += ["choices:", *(f"  {choice}" for choice in self.report.choices)]

    def _named(self, choice: LayerChoice) -> LayerChoice:
        names = [
            " + ".join(probe.display_name(part, self._labels, self._values) for part in parts)
            for parts in (name.split(" + ") for name in choice.names)
        ]
        return replace(choice, names=tuple(names))

    @property
    def native(self) -> Program:
        """The engine's program, for profiles."""
        return self._program

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Compute the graph's outputs from its inputs, both in order; results are new arrays."""
        results = self._program.run([feeds[k] for k in self._inputs])
        return self._accepted(results, feeds)

    def _accepted(self, results: Sequence[Array], feeds: Sequence[Array]) -> list[Array]:
        """The outputs; where native code met what it does not judge, those of reference code.

        Raises:
            MgeError: What the reference code says of an index or a region that does not exist.
        """
        if any(results[k].any() for k in self._checks):
            program = ReferenceProgram(self._graph, self._inference)
            # Random numbers are those that this run has drawn.
            program.resume({n: step.before() for n, step in self._remembering.items()})
            return program.run(feeds)
        return [results[k] for k in self._outputs]

    def run_parts(self, feeds: Sequence[Array]) -> tuple[list[Array], Parts]:
        """See `Program` of the backends: `run`, and the time of its kernels."""
        results, parts = probe.run_parts(self._program, [feeds[k] for k in self._inputs])
        return self._accepted(results, feeds), parts

    def profile(self, feeds: Sequence[Array], repeat: int) -> list[StepSpans]:
        """See `Program` of the backends."""
        names = [s.name for s in self._program.plan.steps]
        origin = probe.attribute(names, self._labels, self._nodes)
        mine = [feeds[k] for k in self._inputs]
        spans = probe.timed_steps(self._program, mine, repeat, origin)
        return [probe.renamed(found, self._labels, self._values) for found in spans]

    def memory(self) -> MemoryPlan:
        """See `Program` of the backends."""
        return probe.memory(self._program)

    def close(self) -> None:
        """Stop the threads and free code and memory."""
        self._program.close()
        if self._tail is not None:
            self._tail.close()


def _begin_anew(plan: Plan) -> None:
    """Forget what Python steps remember of the runs that candidates were measured with."""
    for step in plan.steps:
        reset = getattr(step.run, "reset", None) if isinstance(step, HostStep) else None
        if reset is not None:
            reset()


def _compiled(
    graph: Graph, inference: Inference, options: CompileOptions
) -> CpuProgram | ReferenceProgram:
    """A program; by reference code, with a note, where the engine cannot plan it."""
    try:
        return CpuProgram(graph, inference, options)
    except (ValueError, OverflowError, MemoryError, CodegenError) as error:
        # Sizes beyond what the engine plans for; the reference code says if they are too much.
        program = ReferenceProgram(graph, inference)
        why = f"{type(error).__name__}: {error}"
        program.report.notes.append(f"no native code ({why}): all operators by reference code")
        return program


def _halves(inference: Inference) -> tuple[str, ...]:
    """What is done about values of half precision, which processors do not compute with."""
    found = {t.dtype.name for t in inference.types.values()} & {"Float16", "BFloat16"}
    if not found:
        return ()
    names = " and ".join(sorted(found))
    return (f"{names}: computed in Float32, each result rounded once",)


def _cache(options: CompileOptions, notes: list[str]) -> Cache:
    if not options.cache:
        return Cache(None)
    folder: Path = default_folder()
    try:
        cache = Cache(folder)
        cache.read("0" * 40, "o")
    except (CacheError, OSError) as error:
        notes.append(f"no cache: {error}")
        return Cache(None)
    cache.hits = cache.misses = 0
    return cache


class CpuBackend:
    """Native code for x86-64 and AArch64, generated when a model is loaded."""

    name = "cpu"
    concurrent = True

    def unavailable(self) -> str | None:
        """Why it cannot run here: llvmlite missing, or another kind of processor."""
        try:
            detect()
        except ImportError as error:
            return f"llvmlite is not installed ({error}); run `pip install llvmlite`"
        except (ValueError, RuntimeError, OSError) as error:
            return str(error)
        if os.name not in ("posix", "nt"):
            return f"operating system {os.name} is not supported"
        return None

    def lowered(self) -> frozenset[str]:
        """Names of the operators that have rules."""
        return frozenset(lower.rules())

    def missing(self, graph: Graph) -> list[tuple[Node, str]]:
        """Nodes that have neither a native rule nor reference code."""
        absent = missing_reference(graph)
        known = lower.rules() if absent else {}
        return [(n, r) for n, r in absent if n.op.name not in known]

    def compile(
        self, graph: Graph, inference: Inference, options: CompileOptions
    ) -> CpuProgram | ReferenceProgram:
        """Make a program for the shapes of `inference`.

        Raises:
            UnsupportedError: The graph holds something that cannot run at all.
        """
        live = refuse_missing(graph, self.missing(graph))
        if any(n.op.name.startswith(_CONDITIONAL) for n in live):
            program = ReferenceProgram(graph, inference, frees=options.memory_plan)
            program.report.notes.append("conditional execution: all operators by reference code")
            return program
        return _compiled(graph, inference, options)
