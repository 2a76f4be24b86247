"""What a backend is, and how backends are found by name.

A backend turns a graph at given input shapes into a `Program`. Packages of their own register one
through the entry point group `loadrun.backends` (name -> a callable that makes the backend).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mgeserial.dtypes import Array
from mgeserial.errors import InputError, UnsupportedError
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import Inference

__all__ = [
    "Backend",
    "CompileOptions",
    "LayerChoice",
    "MemoryBlock",
    "MemoryPlan",
    "Parts",
    "Program",
    "ProgramReport",
    "StepSpans",
    "backend_names",
    "choose",
    "find_backend",
    "get_backend",
    "lowered_operators",
    "register_backend",
]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile.

    Attributes:
        threads: Number of threads; None: the backend's choice.
        reproducible: Same bits in every run, whatever the number of threads.
        fast_run: Measure candidate algorithms on this machine.
        full_run: Measure all there are, also those that hardly ever win; with `fast_run`.
        cache: Whether compiled code may be kept on disk.
        verify_cache: Whether what is kept on disk is checked in full before it is used.
        policy_file: Where measured choices are kept.
        core_ids: Cores that worker threads are pinned to.
        device: Number of the device.
        tf32: Whether a device may round float32 factors to TF32's 10 bits of fraction.
        memory_plan: Whether values whose lives do not overlap may share memory.
        workspace_limit: Most bytes of scratch memory for all threads; None: no limit.
        record: Record launches and replay them: 1, 2: as load_and_run's `--record-comp-seq`; 0:
            never; None: where it is safe.
        algorithms: The backend's own choice of algorithms to use, as `ProgramReport` tells it,
            maybe that of another batch size; None: chosen as the other options say.
        progress: Told (what, done, total) during long preparations.
    """

    threads: int | None = None
    reproducible: bool = False
    fast_run: bool = False
    full_run: bool = False
    cache: bool = True
    verify_cache: bool = False
    policy_file: str | None = None
    core_ids: tuple[int, ...] = ()
    device: int = 0
    tf32: bool = False
    memory_plan: bool = True
    workspace_limit: int | None = None
    record: int | None = None
    algorithms: str | None = None
    progress: Callable[[str, int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """Which algorithm was chosen for layers that are alike.

    Attributes:
        layer: What they are known by in a policy file.
        names: The layers; operators that are computed together are joined by ` + `.
        choice: Name of the candidate; `default` where it is the cost model's.
        source: `measured`, `policy file`, `as given`, or `cost model`.
        times_ns: Time of one layer in ns, by candidate, where they were measured.
    """

    layer: str
    names: tuple[str, ...]
    choice: str
    source: str
    times_ns: Mapping[str, int]

    def __str__(self) -> str:
        """One line."""
        times = sorted(self.times_ns.items(), key=lambda item: item[1])
        shown = ", ".join(f"{name} {ns / 1e3:.1f} us" for name, ns in times)
        count = f" ({len(self.names)} layers)" if len(self.names) > 1 else ""
        return f"{self.layer}{count}: {self.choice}, {self.source}" + (shown and f": {shown}")


@dataclass(slots=True)
class ProgramReport:
    """What a compiled program says about itself.

    Attributes:
        threads: Threads it runs on.
        notes: Lines a person should see: fallbacks and their reasons.
        fallback: Names of operators that run on the reference backend, with counts.
        weight_bytes, arena_bytes: Memory held for weights and for activations.
        workspace_bytes: Scratch memory of all threads; 0 where the backend does not say.
        algorithms: The choice of algorithms, as `CompileOptions.algorithms` takes it; empty
            where none was made.
        choices: Layers that had a choice of algorithms, where one was asked for.
        plan: Lines that describe the plan, for `--verbose`.
    """

    threads: int = 1
    notes: list[str] = field(default_factory=list)
    fallback: dict[str, int] = field(default_factory=dict)
    weight_bytes: int = 0
    arena_bytes: int = 0
    workspace_bytes: int = 0
    algorithms: str = ""
    choices: list[LayerChoice] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)


class Parts(NamedTuple):
    """Parts of one run's time; what is left of the whole is the host's.

    A tuple, since it is made inside the timed call: a frozen dataclass takes three times as long.

    Attributes:
        device_ns: From the start of the first kernel to the end of the last, ns.
        copy_ns: Copies to and from the device, ns.
    """

    device_ns: int
    copy_ns: int = 0


@dataclass(frozen=True, slots=True)
class StepSpans:
    """One step of a program as a profile saw it.

    Attributes:
        name: The step's name.
        kernel: What computes it: a kernel's name, `python` for reference code.
        algorithm: For people: `direct`, `winograd4`, ...; or empty.
        nodes: Operators of the graph that it computes; empty for changes of layout and the like.
        spans: For each run (start, duration) in ns, the start counted from that of the run.
        read_bytes, written_bytes: What it reads and writes; None where that is not known.
    """

    name: str
    kernel: str
    algorithm: str
    nodes: tuple[Node, ...]
    spans: tuple[tuple[int, int], ...]
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A value in memory.

    Attributes:
        name: The value's.
        nbytes: Its size.
        first, last: Steps it lives through, inclusive.
        offset: Place in the arena; None where there is no arena.
    """

    name: str
    nbytes: int
    first: int
    last: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of one run, step by step.

    Attributes:
        steps: Names of the steps in order.
        blocks: Values that live in the arena, or on the heap where offsets are None.
        arena_bytes: Size of the arena; where there is none, the most that lives at one time.
        weight_bytes: Memory for weights.
        workspace_bytes: Scratch memory of all threads.
    """

    steps: tuple[str, ...]
    blocks: tuple[MemoryBlock, ...]
    arena_bytes: int
    weight_bytes: int
    workspace_bytes: int = 0


class Program(Protocol):
    """A graph made ready for one set of input shapes; the session serialises calls.

    A program may have more methods, which are looked for by name:

    * `run_parts(feeds) -> (results, Parts)`: as `run`, and where the time went;
    * `profile(feeds, repeat) -> list[StepSpans]`: run `repeat` times with a clock round each step;
    * `memory() -> MemoryPlan`: what lives where, when;
    * `peaks() -> loadrun.peaks.Peaks`: what its device can do at most.
    """

    report: ProgramReport

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Compute the graph's outputs, in order, from its inputs, in order.

        Feeds are C-contiguous arrays of the planned shapes and storage dtypes, owned by the
        caller. Results may be views of buffers that the next run overwrites: the session copies.
        """
        ...

    def close(self) -> None:
        """Free threads, code and memory; further runs are errors."""
        ...


class Backend(Protocol):
    """Compiles graphs. One object serves any number of sessions.

    A backend may have a method `by_reference(graph) -> list[tuple[Node, str]]` that names the nodes
    it hands to reference code, each with the reason; it needs no device. One whose `compile` may
    run in several threads at once has `concurrent = True`; others are called one at a time.
    """

    name: str

    def unavailable(self) -> str | None:
        """Why the backend cannot be used here, with the way out; None: it can."""
        ...

    def missing(self, graph: Graph) -> list[tuple[Node, str]]:
        """Nodes it cannot run at all, each with the reason."""
        ...

    def compile(self, graph: Graph, inference: Inference, options: CompileOptions) -> Program:
        """Make a program for the input shapes that `inference` was made with.

        Raises:
            UnsupportedError: The graph holds something the backend cannot run.
        """
        ...


_factories: dict[str, Callable[[], Backend]] = {}
_made: dict[str, Backend] = {}
# Order of preference of `auto`.
_AUTO = ("cuda", "cpu", "reference")


def register_backend(name: str, factory: Callable[[], Backend]) -> None:
    """Make a backend known under `name`; `factory` is called when it is first used."""
    _factories[name] = factory
    _made.pop(name, None)


def _reference() -> Backend:
    from loadrun.backends.reference import ReferenceBackend

    return ReferenceBackend()


def _cpu() -> Backend:
    from loadrun.backends.cpu.backend import CpuBackend

    return CpuBackend()


def _cuda() -> Backend:
    from loadrun.backends.cuda.backend import CudaBackend

    return CudaBackend()


register_backend("reference", _reference)
register_backend("cpu", _cpu)
register_backend("cuda", _cuda)


def backend_names() -> list[str]:
    """Names of all backends, built in and from entry points, without importing them."""
    return sorted(_factories.keys() | _entry_points().keys())


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {e.name: e for e in importlib.metadata.entry_points(group="loadrun.backends")}


def find_backend(name: str) -> Backend:
    """The backend of that name, whether or not it can be used here.

    Raises:
        InputError: There is none; the known ones are listed.
    """
    found = _made.get(name)
    if found is None:
        factory = _factories.get(name)
        if factory is None:
            entry = _entry_points().get(name)
            if entry is None:
                known = ", ".join(["auto", *backend_names()])
                raise InputError(f"no backend is called {name!r}", hint=f"known: {known}")
            factory = entry.load()
        found = _made[name] = factory()
    return found


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        InputError: There is none; the known ones are listed.
        UnsupportedError: It cannot be used here.
    """
    found = find_backend(name)
    reason = found.unavailable()
    if reason is not None:
        raise UnsupportedError(f"backend {name} cannot be used here: {reason}")
    return found


def choose() -> Backend:
    """The backend that `auto` means: the first of cuda, cpu, reference that can be used here."""
    for name in _AUTO:
        if name in _factories:
            try:
                found = get_backend(name)
            except UnsupportedError:
                continue
            # An emulated device is used only when it is asked for.
            if getattr(found, "automatic", True):
                return found
    return get_backend("reference")


def lowered_operators(name: str) -> frozenset[str]:
    """Names of the operators that a backend has rules for; empty for one that is not there.

    A backend that lowers operators has a method `lowered() -> frozenset[str]`; it needs no device.
    """
    factory = _factories.get(name)
    found = getattr(factory(), "lowered", None) if factory is not None else None
    return frozenset(found()) if found is not None else frozenset()
