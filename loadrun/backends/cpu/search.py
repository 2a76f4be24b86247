"""Measuring which candidates are the fastest.

Plans are made in which every layer takes its k-th candidate, and each is timed against the plan of
the cost model, layer by layer in the course of whole runs (`trials`). Chains of layers that would
run in bands are timed both ways. Then

1. a layer takes another candidate where that is faster by more than a few percent;
2. the plan with all these choices is timed against the cost model's, and a layer whose choice does
   not hold among its new neighbours goes back;
3. where whole runs are not faster, all go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu import planner, probe, trials
from loadrun.backends.cpu.candidates import Layer
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Ahead, Options
from loadrun.backends.cpu.plan import Array, Plan, Step
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.trials import Trial, Unit, Whole
from loadrun.backends.cpu.ways import APART, DEFAULT, Way

__all__ = ["Bench", "Group", "Job", "Search", "Ways"]

_GAIN = 0.97  # a candidate must be this much faster than the cost model's choice
_DISTURBED = 1.1  # median over lower quartile
Ways = dict[str, Way]  # by the layer's key


@dataclass(slots=True)
class Group:
    """Layers that are known by the same key.

    Attributes:
        layer: One of them.
        units: All of them.
        times_ns: Of one layer, by the names of its ways.
        ratios: Times of ways over that of the first.
        source: Where the choice comes from; empty: nobody chose.
    """

    layer: Layer
    units: list[Unit] = field(default_factory=list)
    times_ns: dict[str, int] = field(default_factory=dict)
    ratios: dict[Way, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be planned: a network, where it will run, and as the caller asks for it.

    Attributes:
        network: As it was lowered.
        target: The processor.
        threads: Threads of a run.
        options: How to choose.
        contents: Keys of the network's constants, and the cache.
    """

    network: nd.Network
    target: Target
    threads: int
    options: CompileOptions
    contents: Contents


class Bench:
    """Makes plans and programs of one network, and compares them."""

    def __init__(self, job: Job) -> None:
        """Simplify the network."""
        self.network = planner.simplify(job.network)
        self._nodes = [node.name for node in self.network.nodes]
        self._job = job

    def plan(self, ways: Ways, ahead: Ahead | None = None) -> Plan:
        """The plan with these choices; `ahead` gets the code of its steps."""
        choice = Options(bands=self._job.options.memory_plan, ways=ways)
        plan = planner.plan_simplified(
            self.network, self._job.target, self._job.threads, choice, self._job.contents, ahead
        )
        return plan if self._job.options.memory_plan else probe.unshared(plan)

    def groups(self, *, full: bool) -> dict[str, Group]:
        """Layers by key; chains come last, their layers are there as well."""
        choice = Options(bands=self._job.options.memory_plan)
        found: dict[str, Group] = {}
        every = planner.layers(self.network, self._job.target, self._job.threads, choice, full=full)
        for layer in every:
            kept = layer.same_sums() if self._job.options.reproducible else layer
            found.setdefault(layer.key, Group(kept)).units.append(layer.nodes)
        return found

    def needs(self, plan: Plan) -> dict[Unit, int]:
        """Scratch memory by unit, in bytes."""
        found: dict[Unit, int] = {}
        for unit, steps in self._native(plan):
            needs = max((probe.workspace_of(plan, s) for s in steps), default=0)
            found[unit] = max(found.get(unit, 0), needs)
        return found

    def allowed(self, plan: Plan) -> set[Unit]:
        """Units within the limit of scratch memory."""
        limit = self._job.options.workspace_limit
        return {u for u, n in self.needs(plan).items() if limit is None or n <= limit}

    def code(self, plan: Plan) -> dict[Unit, object]:
        """What is equal for units that are computed in the same way."""
        return {
            unit: tuple((s.kernel.name, s.kernel.entries) for s in steps)
            for unit, steps in self._native(plan)
        }

    def _native(self, plan: Plan) -> Iterator[tuple[Unit, list[Step]]]:
        for unit, steps in trials.units_of(plan, self._nodes):
            found = [plan.steps[k] for k in steps]
            yield unit, [s for s in found if isinstance(s, Step)]

    def program(self, plan: Plan) -> Program:
        """A plan made ready, for measuring."""
        # Without contents: packed weights of candidates are not worth keeping.
        return Program(plan, self._job.target, self._job.contents.cache)

    def compare(self, base: Program, other: Program, joined: Sequence[Unit] = ()) -> Trial:
        """Times of the units of both; those in `joined` together."""
        return trials.compare(base, other, self._feeds(), self._nodes, joined)

    def compare_whole(self, base: Program, other: Program) -> Whole:
        """Times of whole runs."""
        return trials.compare_whole(base, other, self._feeds())

    def _feeds(self) -> Sequence[Array]:
        """Inputs to time with: ones, which no kernel takes a short cut for."""
        net = self.network
        return [np.ones(net.shapes.get(n, (1,)), net.dtype(n)) for n in net.inputs]

    def told(self, done: int, total: int) -> None:
        """Progress of the search."""
        if self._job.options.progress is not None:
            self._job.options.progress("fast run", done, total)


class Search:
    """Measures the candidates of the groups that nobody has chosen for.

    Attributes:
        note: What came of it, in a line.
    """

    def __init__(self, bench: Bench, ways: Ways, missing: Mapping[str, Group]) -> None:
        """Search among `missing`; other layers are computed as `ways` says."""
        self._bench, self._before = bench, ways
        self.note = ""
        self._chains = {k: g for k, g in missing.items() if g.layer.chain}
        self._single = {k: g for k, g in missing.items() if not g.layer.chain}
        self._most = max((len(g.layer.ways) for g in self._single.values()), default=1)
        self._total = self._most + 2
        # Layers are compared outside of bands; chains with the sum of their layers.
        self._apart: Ways = {**ways, **dict.fromkeys(self._chains, APART)}

    def _say(self, text: str) -> None:
        self.note = f"fast run: {text}"

    def run(self) -> Ways:
        """The choices that hold."""
        base = self._bench.program(self._bench.plan(self._apart))
        try:
            self._time_chains(base)
            for number in range(1, self._most):
                self._bench.told(number, self._total)
                self._time_ways(base, number)
        finally:
            base.close()
        return self._verified(self._picks())

    def _against(self, base: Program, ways: Ways) -> Trial:
        """A plan with other choices, in which chains are timed as a whole."""
        other = self._bench.program(self._bench.plan(ways))
        joined = [unit for group in self._chains.values() for unit in group.units]
        try:
            return self._bench.compare(base, other, joined)
        finally:
            other.close()

    def _time_chains(self, base: Program) -> None:
        if not self._chains:
            return
        trial = self._against(base, self._before)
        for group in self._chains.values():
            apart = sum(trial.base.get(u, 0.0) for u in group.units)
            banded = sum(trial.other.get(u, 0.0) for u in group.units)
            if apart and banded:
                group.ratios[APART] = apart / banded
                group.times_ns[str(DEFAULT)] = round(banded / len(group.units))
                group.times_ns[str(APART)] = round(apart / len(group.units))

    def _time_ways(self, base: Program, number: int) -> None:
        """Time the candidates of one number, those that differ from earlier ones."""
        some = {k: g for k, g in self._single.items() if number < len(g.layer.ways)}
        plan = self._bench.plan(
            {**self._apart, **{k: g.layer.ways[number] for k, g in some.items()}}
        )
        allowed, codes = self._bench.allowed(plan), self._bench.code(plan)
        old = self._bench.code(base.plan)
        new = {
            k: g
            for k, g in some.items()
            if g.units[0] in allowed and codes[g.units[0]] != old[g.units[0]]
        }
        if not new:
            return
        other = self._bench.program(plan)
        try:
            trial = self._bench.compare(base, other)
        finally:
            other.close()
        for group in new.values():
            way, ratio = group.layer.ways[number], trial.ratio(group.units)
            group.ratios[way] = ratio
            mine = sum(trial.base[u] for u in group.units) / len(group.units)
            group.times_ns.setdefault(str(DEFAULT), round(mine))
            group.times_ns[str(way)] = round(group.times_ns[str(DEFAULT)] * ratio)

    def _picks(self) -> Ways:
        """The fastest candidates, where they beat the cost model's choice clearly."""
        found: Ways = {}
        for key, group in self._single.items():
            if group.ratios:
                best = min(group.ratios, key=lambda w: group.ratios[w])
                if group.ratios[best] < _GAIN:
                    found[key] = best
        for key, group in self._chains.items():
            if group.ratios.get(APART, 1.0) < _GAIN:
                found[key] = APART
        return found

    def _verified(self, picks: Ways) -> Ways:
        """Those choices that are faster together."""
        if not picks:
            self._say("the cost model's choices are the fastest")
            return {}
        base = self._bench.program(self._bench.plan(self._before))
        try:
            self._bench.told(self._most, self._total)
            trial = self._against(base, {**self._before, **picks})
            kept = {k: w for k, w in picks.items() if self._holds(k, trial)}
            if not kept:
                self._say("the cost model's choices are the fastest")
                return {}
            self._bench.told(self._most + 1, self._total)
            other = self._bench.program(self._bench.plan({**self._before, **kept}))
            try:
                whole = self._bench.compare_whole(base, other)
            finally:
                other.close()
        finally:
            base.close()
        text = f"other algorithms for {len(kept)} of {self._count()} kinds of layers"
        times = f"{whole.base / 1e6:.3f} to {whole.other / 1e6:.3f} ms"
        if whole.spread > _DISTURBED:
            times += "; other programs disturbed the measurement"
        if whole.other >= whole.base:
            self._say(f"{text} are no gain ({times})")
            return {}
        self._say(f"{text}: {times}")
        return kept

    def _count(self) -> int:
        return len(self._chains) + len(self._single)

    def _holds(self, key: str, trial: Trial) -> bool:
        """Whether a choice is still faster among its new neighbours."""
        if key in self._chains:
            return trial.ratio(self._chains[key].units) < 1.0
        units = [u for u in self._single[key].units if u in trial.base and u in trial.other]
        # Layers of a chain are part of it.
        return not units or trial.ratio(units) < 1.0
