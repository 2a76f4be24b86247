"""Build a plan into something that runs: place memory, pack weights, compile, start threads."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadrun.backends.cpu import jit, rings, schedule
from loadrun.backends.cpu.cache import Cache, digest
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.memory import Block
from loadrun.backends.cpu.placing import GUARD, place
from loadrun.backends.cpu.plan import Array, Const, HostStep, Place, Plan, Step
from loadrun.backends.cpu.runtime import Call, Team
from loadrun.backends.cpu.target import Target

_LOG = logging.getLogger(__name__)
_ALIGN = 64
_LEAST_KEPT = 1 << 20  # smaller constants are packed in less time than files take


@dataclass(frozen=True, slots=True)
class BuildStats:
    """What a load cost, in seconds, and sizes in bytes.

    `weights_s` is for packed weights that the cache had; others are packed beside compiling.
    """

    compile: jit.CompileStats
    weights_s: float
    total_s: float
    weights_cached: bool
    arena_bytes: int
    const_bytes: int


@dataclass(frozen=True, slots=True)
class _Phase:
    """Chunks of ranges of the steps that it is named after."""

    name: str
    chunks: list[list[tuple[Step, schedule.Range]]]


@dataclass(slots=True)
class _Segment:
    """Native phases [first, last), then a Python step, if any."""

    first: int
    last: int
    host: HostStep | None = None


@dataclass(slots=True)
class _Patch:
    """Words of the argument table that hold a caller's pointer, with offsets in bytes."""

    words: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    base: int = -1  # of the array whose pointers they hold


class Program:
    """A compiled plan with its memory and threads.

    Runs from several threads take turns. `close` stops the workers and frees the code.
    """

    def __init__(
        self,
        plan: Plan,
        target: Target,
        cache: Cache,
        *,
        contents: Contents | None = None,
        compiler: jit.Compiler | None = None,
    ) -> None:
        """Compile and load.

        Args:
            plan: What to run.
            target: Instruction set; the plan was made for it.
            cache: Objects and packed weights.
            contents: What gave the plan's constants their keys.
            compiler: Compiles the plan's code already, for this target and cache.
        """
        if compiler is None:
            with jit.Compiler(target, cache) as compiler:
                self._build(plan, target, cache, contents, compiler)
        else:
            self._build(plan, target, cache, contents, compiler)

    def _build(
        self,
        plan: Plan,
        target: Target,
        cache: Cache,
        contents: Contents | None,
        compiler: jit.Compiler,
    ) -> None:
        begin = time.perf_counter()
        self.plan = plan
        self._bases: dict[str, int] = {}
        self._views: dict[str, Array] = {}
        self._segments: list[_Segment] = []
        phases = self._cut_phases(target)
        copies = [r.copy for p in phases for chunk in p.chunks for _, r in chunk]
        self.placed = place(plan, max(copies, default=0) + 1)
        self._arena = Block(self.placed.nbytes + GUARD)
        for name, offset in self.placed.offsets.items():
            self._bases[name] = self._arena.address + offset
            self._views[name] = self._arena.array(offset, plan.buffers[name].nbytes)
        loading = time.perf_counter()
        packing = self._load_consts(cache, contents)
        loaded = time.perf_counter()
        for step in plan.steps:
            if isinstance(step, Step):
                compiler.add(step.kernel.modules())
        compiler.also(packing)
        self._image, compiled = compiler.finish()
        self._make_args(phases)
        self._phases = [
            (p.name, [[self._call(*c) for c in chunk] for chunk in p.chunks]) for p in phases
        ]
        scratch = max([s.kernel.scratch for s in plan.steps if isinstance(s, Step)] + [0])
        self._team = Team(
            [chunks for _, chunks in self._phases],
            target,
            threads=plan.threads,
            scratch=scratch + GUARD,
        )
        if compiled.cached < compiled.modules and cache.folder is not None:
            self._late.insert(0, compiler.keep)
        # Nothing of this process waits for it; a thread that is no daemon ends in its time.
        self._keeper = threading.Thread(target=_do_all, args=(self._late,)) if self._late else None
        if self._keeper is not None:
            self._keeper.start()
        self.stats = BuildStats(
            compiled,
            loaded - loading,
            time.perf_counter() - begin,
            not packing,
            self.placed.nbytes,
            self._consts.nbytes,
        )

    def _load_consts(self, cache: Cache, contents: Contents | None) -> list[Callable[[], None]]:
        """Place the constants and read them from the cache; what is left to do if it has none.

        The plan lets go of what they are made from.
        """
        self._late: list[Callable[[], None]] = []
        consts = self.plan.consts
        self.plan = replace(self.plan, consts={})
        offsets, top = {}, 0
        for name, const in consts.items():
            offsets[name] = top
            top += -(-const.nbytes // _ALIGN) * _ALIGN
        self._consts = Block(top + GUARD)
        for name, offset in offsets.items():
            self._bases[name] = self._consts.address + offset
            self._views[name] = self._consts.array(offset, consts[name].nbytes)
        whole = self._consts.array(0, top)
        if contents is not None and cache.folder is not None and top >= _LEAST_KEPT:
            verify = contents.verify
            known = top in cache.sizes("w")
            if known and cache.read_into(_key(consts), "w", whole.data, check=verify):
                return []
            self._late.append(functools.partial(_keep, cache, contents, consts, whole))

        def pack(name: str) -> None:
            at = offsets[name]
            consts[name].write(whole[at : at + consts[name].nbytes])

        return [functools.partial(pack, name) for name in consts]

    def _make_args(self, phases: Sequence[_Phase]) -> None:
        """Tables of pointers, one for a step and the moves of its pointers in rings.

        Callers' buffers are patched before each run. The word before a step's pointers points to
        its kernel's own table, which kernels of one name share.
        """
        calls = [call for phase in phases for chunk in phase.chunks for call in chunk]
        uses = {(step.name, r.copy, r.moves): step for step, r in calls}
        kernels = {s.kernel.name: s.kernel for s in uses.values()}
        total = sum(1 + len(s.args) for s in uses.values())
        total += sum(len(k.words) for k in kernels.values())
        self._tables = Block(8 * total + 8)
        self._words = self._tables.array(0, 8 * total).view(np.int64)
        self._table_of: dict[tuple[str, int, schedule.Moves], int] = {}
        ends = (*self.plan.inputs, *self.plan.outputs)
        self._patches = {n: _Patch() for n in ends}
        known = self.plan.buffers
        self._dtypes = {n: np.dtype(known[n].dtype) for n in ends if n in known}
        at = 0
        shared: dict[str, int] = {}
        address = functools.cache(self._image.address)
        for kernel in kernels.values():
            shared[kernel.name] = self._tables.address + 8 * at
            for word in kernel.words:
                self._words[at] = address(word) if isinstance(word, str) else word
                at += 1
        for (name, copy, moves), step in uses.items():
            self._words[at] = shared[step.kernel.name]
            at += 1
            self._table_of[name, copy, moves] = self._tables.address + 8 * at
            move = dict(moves)
            for arg in step.args:
                root = self.plan.buffers[arg.buffer].alias or arg.buffer
                offset = arg.offset + move.get(arg.buffer, 0)
                if root in self._patches:
                    self._patches[root].words.append(at)
                    self._patches[root].offsets.append(offset)
                else:
                    if self.plan.buffers[root].place is Place.RING:
                        offset += copy * self.placed.between
                    self._words[at] = self._bases[root] + offset
                at += 1

    def _cut_phases(self, target: Target) -> list[_Phase]:
        """Phases of the native steps, cut where a Python step comes between."""
        plan, steps = self.plan, self.plan.steps
        band_at = dict(plan.bands)
        phases: list[_Phase] = []
        start = index = 0
        while index < len(steps):
            step = steps[index]
            if isinstance(step, HostStep):
                self._segments.append(_Segment(start, len(phases), step))
                start = len(phases)
                index += 1
                continue
            stop = band_at.get(index, index + 1)
            group = [s for s in steps[index:stop] if isinstance(s, Step)]
            if stop - index == 1:
                ranges = [
                    [[r] for r in schedule.ranges(e, k, plan.threads)]
                    for k, e in enumerate(step.kernel.entries)
                ]
            else:
                size = schedule.band_bytes(target)
                found = schedule.bands(group, plan.buffers, plan.threads, size)
                ranges = [rings.cut(group, plan.buffers, found, plan.threads)]
            for chunks in ranges:
                calls = [[(group[r.step], r) for r in chunk] for chunk in chunks]
                phases.append(_Phase("+".join(s.name for s in group), calls))
            index = stop
        self._segments.append(_Segment(start, len(phases)))
        return phases

    def _call(self, step: Step, r: schedule.Range) -> Call:
        address = self._image.address(step.kernel.entries[r.entry].symbol)
        return Call(address, self._table_of[step.name, r.copy, r.moves], r.begin, r.end)

    # -- running
    def run(self, feeds: Sequence[Array] | Mapping[str, Array]) -> list[Array]:
        """Compute the outputs.

        Args:
            feeds: Inputs in the plan's order or by name; exact shapes and dtypes.

        Returns:
            New arrays, in the plan's order.

        Raises:
            ValueError: An input is missing or differs in shape or dtype.
            RuntimeError: The program is closed.
        """
        arrays = self._check(feeds)
        self._allocate(arrays)
        with self._team.turn() as turn:
            self._patch(arrays)
            for segment in self._segments:
                turn.run(segment.first, segment.last)
                if segment.host is not None:
                    self._run_host(segment.host, arrays)
        return [arrays[name] for name in self.plan.outputs]

    def _allocate(self, arrays: dict[str, Array]) -> None:
        """Memory for the outputs; those of unknown shape are made by Python steps."""
        for name in self.plan.outputs:
            b = self.plan.buffers.get(name)
            if b is not None:
                arrays[name] = np.empty(b.shape, self._dtypes[name])

    def _check(self, feeds: Sequence[Array] | Mapping[str, Array]) -> dict[str, Array]:
        names = self.plan.inputs
        if not isinstance(feeds, Mapping):
            if len(feeds) != len(names):
                raise ValueError(f"the model takes {len(names)} inputs; got: {len(feeds)}")
            feeds = dict(zip(names, feeds, strict=True))
        arrays = {}
        for name in names:
            if name not in feeds:
                raise ValueError(f"input {name} is missing")
            a = feeds[name]
            b = self.plan.buffers.get(name)
            if b is None:
                arrays[name] = a
                continue
            if a.shape != b.shape or a.dtype != self._dtypes[name]:
                raise ValueError(
                    f"input {name} must be {b.dtype}{list(b.shape)}; got: {a.dtype}{list(a.shape)}"
                )
            arrays[name] = np.ascontiguousarray(a)
        return arrays

    def _patch(self, arrays: Mapping[str, Array]) -> None:
        for name, patch in self._patches.items():
            if not patch.words:
                continue
            base = arrays[name].__array_interface__["data"][0]
            if base == patch.base:
                continue
            patch.base = base
            for word, offset in zip(patch.words, patch.offsets, strict=True):
                self._words[word] = base + offset

    def _view(self, name: str, arrays: Mapping[str, Array]) -> Array:
        if name in arrays:
            return arrays[name]
        b = self.plan.buffers[name]
        root = b.alias or name
        if root in arrays:
            return arrays[root].reshape(b.shape)
        count = int(np.prod(b.shape)) * np.dtype(b.dtype).itemsize
        return self._views[root][:count].view(b.dtype).reshape(b.shape)

    def _run_host(self, step: HostStep, arrays: dict[str, Array]) -> None:
        with np.errstate(all="ignore"):
            results = step.run([self._view(n, arrays) for n in step.reads])
        for name, value in zip(step.writes, results, strict=True):
            if name in self.plan.buffers:
                self._view(name, arrays)[...] = value
            else:
                arrays[name] = value

    def profile(self, feeds: Sequence[Array], *, repeat: int = 20) -> list[tuple[str, float]]:
        """Seconds of each phase (median over `repeat` runs), run one after the other.

        With one thread no worker disturbs; Python steps are included under their name.
        """
        arrays = self._check(feeds)
        self._allocate(arrays)
        names: list[str] = []
        samples: list[list[float]] = []
        for round_ in range(repeat):
            with self._team.turn() as turn:
                self._patch(arrays)
                at = 0
                for segment in self._segments:
                    for k in range(segment.first, segment.last):
                        begin = time.perf_counter()
                        turn.run(k, k + 1)
                        spent = time.perf_counter() - begin
                        if round_ == 0:
                            names.append(self._phases[k][0])
                            samples.append([])
                        samples[at].append(spent)
                        at += 1
                    if segment.host is not None:
                        begin = time.perf_counter()
                        self._run_host(segment.host, arrays)
                        if round_ == 0:
                            names.append(segment.host.name)
                            samples.append([])
                        samples[at].append(time.perf_counter() - begin)
                        at += 1
        return [(n, float(np.median(s))) for n, s in zip(names, samples, strict=True)]

    def close(self) -> None:
        """Stop the threads, then free the code. Safe to call twice."""
        self._team.close()
        self._image.close()
        if self._keeper is not None:
            self._keeper.join()


def _do_all(tasks: list[Callable[[], None]]) -> None:
    """Do each and let go of it."""
    while tasks:
        tasks.pop(0)()


def _key(consts: Mapping[str, Const]) -> str:
    """What packed weights are kept under."""
    return digest("weights", jit.code_version(), *(c.key() for c in consts.values()))


def _keep(cache: Cache, contents: Contents, consts: Mapping[str, Const], whole: Array) -> None:
    """Write packed weights to the cache."""
    key = _key(consts)
    if contents.unchanged():
        cache.write(key, "w", whole.data)
        cache.trim()
