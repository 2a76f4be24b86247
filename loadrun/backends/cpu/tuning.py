"""Which algorithms a network runs with: the cost model's, or for each layer what is fastest here.

With `fast_run` plans are made in which every layer takes its k-th candidate, and each is timed
against the plan of the cost model, layer by layer in the course of whole runs (`trials`). Chains of
layers that would run in bands are timed both ways. Then

1. a layer takes another candidate where that is faster by more than a few percent;
2. the plan with all these choices is timed against the cost model's, and a layer whose choice does
   not hold among its new neighbours goes back;
3. where whole runs are not faster, all go back.

The policy file keeps the outcome by layer, so that nothing is measured twice. `reproducible` leaves
candidates out that add in another order than the cost model's choice, and a limit of scratch memory
those that need more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from loadrun.backends.base import CompileOptions, LayerChoice
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu import planner, probe, trials
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.candidates import Layer, any_batch
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Options
from loadrun.backends.cpu.plan import Array, Plan, Step
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import Target, describe
from loadrun.backends.cpu.trials import Trial, Unit
from loadrun.backends.cpu.ways import APART, DEFAULT, Way
from loadrun.policy import Choice, Policy, choices_of, choices_text
from mgeserial._version import __version__
from mgeserial.errors import UnsupportedError

__all__ = ["Planned", "plan_for"]

# What measured times depend on.
_MODULES = ("banding", "candidates", "emit", "planner", "runtime", "schedule", "steps_conv", "ways")
_KERNELS = ("common", "conv", "depthwise", "matmul", "micro", "pool", "tiled", "winograd")
_GAIN = 0.97  # a candidate must be this much faster than the cost model's choice
Ways = dict[str, Way]  # by the layer's key


@functools.cache
def code_version() -> str:
    """Digest of the code whose speed is measured."""
    here = Path(__file__).parent
    found = [p for p in here.glob("*.py") if p.name.startswith(_MODULES)]
    found += [p for p in here.glob("kernels/*.py") if p.name.startswith(_KERNELS)]
    # None in a zipped package: then the version tells.
    return digest(__version__, *(p.read_bytes() for p in sorted(found)))[:16]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what a person should know about its choice.

    Attributes:
        plan: What to run.
        name: The choices as `CompileOptions.algorithms` takes them; empty for the cost model's.
        notes: Lines for the report.
        choices: Layers that had a choice.
    """

    plan: Plan
    name: str = ""
    notes: tuple[str, ...] = ()
    choices: tuple[LayerChoice, ...] = ()


def plan_for(
    network: nd.Network,
    target: Target,
    threads: int,
    options: CompileOptions,
    contents: Contents,
) -> Planned:
    """Plan a network as the options ask for; `contents` gives the keys of its constants.

    Raises:
        UnsupportedError: No candidate of a layer fits the limit of scratch memory.
        InputError: The policy file or the choice that is given is something else.
    """
    tuning = _Tuning(network, target, threads, options, contents)
    if options.fast_run or options.policy_file or options.algorithms:
        return tuning.chosen()
    if options.workspace_limit is not None:
        return Planned(tuning.fitting({})[1])
    return Planned(tuning.plan({}))


@dataclass(slots=True)
class _Group:
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

    def parts(self) -> list[Unit]:
        """The nodes of all its layers, each alone."""
        return [(name,) for unit in self.units for name in unit]


class _Tuning:
    """One search; see the module."""

    def __init__(
        self,
        network: nd.Network,
        target: Target,
        threads: int,
        options: CompileOptions,
        contents: Contents,
    ) -> None:
        self._network = planner.simplify(network)
        self._nodes = [node.name for node in self._network.nodes]
        self._target, self._threads, self._options = target, threads, options
        self._contents = contents
        self._place = f"cpu {describe(target)} threads {threads}"
        self._notes: list[str] = []

    # -- plans
    def plan(self, ways: Ways) -> Plan:
        """The plan with these choices."""
        choice = Options(bands=self._options.memory_plan, ways=ways)
        plan = planner.plan_simplified(
            self._network, self._target, self._threads, choice, self._contents
        )
        return plan if self._options.memory_plan else probe.unshared(plan)

    def _groups(self, *, full: bool) -> dict[str, _Group]:
        """Layers by key; of those in a chain, the chain comes first."""
        choice = Options(bands=self._options.memory_plan)
        found: dict[str, _Group] = {}
        every = planner.layers(self._network, self._target, self._threads, choice, full=full)
        for layer in every:
            kept = layer.same_sums() if self._options.reproducible else layer
            found.setdefault(layer.key, _Group(kept)).units.append(layer.nodes)
        return found

    def _needs(self, plan: Plan) -> dict[Unit, int]:
        """Scratch memory by unit, in bytes."""
        found: dict[Unit, int] = {}
        for unit, steps in trials.units_of(plan, self._nodes):
            native = [s for s in (plan.steps[k] for k in steps) if isinstance(s, Step)]
            needs = max((probe.workspace_of(plan, s) for s in native), default=0)
            found[unit] = max(found.get(unit, 0), needs)
        return found

    def fitting(self, ways: Ways) -> tuple[Ways, Plan]:
        """The choices, with others for layers that need more scratch memory than is allowed.

        Raises:
            UnsupportedError: A layer has none.
        """
        limit = self._options.workspace_limit
        plan = self.plan(ways)
        if limit is None or probe.workspace(plan) <= limit:
            return ways, plan
        groups = self._groups(full=True)
        by_unit = {unit: g.layer for g in groups.values() for unit in g.units}
        ways, tried, least = dict(ways), dict.fromkeys(groups, 0), 0
        while True:
            over = {u: n for u, n in self._needs(plan).items() if n > limit}
            if not over:
                return ways, plan
            for unit, needs in over.items():
                layer = by_unit.get(unit)
                least = max(least, needs)
                if layer is None or tried[layer.key] + 1 >= len(layer.ways):
                    raise UnsupportedError(
                        f"the model needs {least} bytes of scratch memory, more than the limit of "
                        f"{limit}",
                        hint="raise --workspace-limit, or use fewer threads: each has its own",
                    )
            for key in {by_unit[unit].key for unit in over}:
                tried[key] += 1
                ways[key] = groups[key].layer.ways[tried[key]]
            plan = self.plan(ways)

    # -- choices
    def chosen(self) -> Planned:
        """Choices of the caller, of the policy file, and what is measured."""
        groups = self._groups(full=self._options.full_run)
        policy = Policy(self._options.policy_file)
        ways = self._known(groups, policy)
        missing = {k: g for k, g in groups.items() if not g.source and len(g.layer.ways) > 1}
        ways, plan = self.fitting(ways)
        if self._options.fast_run and missing:
            found = _Search(self, ways, missing).run()
            self._keep(policy, missing, found)
            ways, plan = self.fitting({**ways, **found})
        used = sum(g.source == "policy file" for g in groups.values())
        if self._options.policy_file:
            self._notes.append(f"algorithms of {used} of {len(groups)} layers by the policy file")
        return Planned(plan, _text(groups, ways), tuple(self._notes), _choices(groups, ways))

    def _known(self, groups: Mapping[str, _Group], policy: Policy) -> Ways:
        given = choices_of(self._options.algorithms)
        ways: Ways = {}
        for key, group in groups.items():
            kept = policy.get(self._place, key, code_version())
            name = given.get(any_batch(key))
            group.source = "as given"
            if name is None and kept is not None:
                name, group.source = kept.name, "policy file"
                group.times_ns = dict(kept.times_ns)
            named = {str(way): way for way in group.layer.ways}
            if name not in named:
                group.source = ""
            elif named[name] != DEFAULT:
                ways[key] = named[name]
        return ways

    def _keep(self, policy: Policy, missing: Mapping[str, _Group], ways: Ways) -> None:
        for key, group in missing.items():
            group.source = "measured"
            name = str(ways.get(key, DEFAULT))
            policy.put(self._place, key, Choice(name, code_version(), group.times_ns))
        policy.save()

    # -- for the search
    def note(self, text: str) -> None:
        """Add a line to the report."""
        self._notes.append(text)

    def told(self, done: int, total: int) -> None:
        """Progress of the search."""
        if self._options.progress is not None:
            self._options.progress("fast run", done, total)

    def allowed(self, plan: Plan) -> set[Unit]:
        """Units within the limit of scratch memory."""
        limit = self._options.workspace_limit
        return {u for u, n in self._needs(plan).items() if limit is None or n <= limit}

    def compare(self, base: Program, other: Program) -> Trial:
        """Times of the units of both."""
        return trials.compare(base, other, self.feeds(), self._nodes)

    def program(self, plan: Plan) -> Program:
        """A plan made ready, for measuring."""
        # Without contents: packed weights of candidates are not worth keeping.
        return Program(plan, self._target, self._contents.cache)

    def code(self, plan: Plan) -> dict[Unit, object]:
        """What is equal for units that are computed in the same way."""
        found: dict[Unit, object] = {}
        for unit, steps in trials.units_of(plan, self._nodes):
            native = [s for s in (plan.steps[k] for k in steps) if isinstance(s, Step)]
            found[unit] = tuple((s.kernel.name, s.kernel.entries) for s in native)
        return found

    def feeds(self) -> Sequence[Array]:
        """Inputs to time with: ones, which no kernel takes a short cut for."""
        net = self._network
        return [np.ones(net.shapes.get(n, (1,)), net.dtype(n)) for n in net.inputs]


class _Search:
    """Measures the candidates of the groups that nobody has chosen for."""

    def __init__(self, tuning: _Tuning, ways: Ways, missing: Mapping[str, _Group]) -> None:
        self._tuning, self._before = tuning, ways
        self._chains = {k: g for k, g in missing.items() if g.layer.chain}
        self._single = {k: g for k, g in missing.items() if not g.layer.chain}
        self._most = max((len(g.layer.ways) for g in self._single.values()), default=1)
        self._total = self._most + 2
        # Layers are compared outside of bands; chains with the sum of their layers.
        self._apart: Ways = {**ways, **dict.fromkeys(self._chains, APART)}

    def run(self) -> Ways:
        """The choices that hold."""
        base = self._tuning.program(self._tuning.plan(self._apart))
        try:
            self._time_chains(base)
            for number in range(1, self._most):
                self._tuning.told(number, self._total)
                self._time_ways(base, number)
        finally:
            base.close()
        return self._verified(self._picks())

    def _against(self, base: Program, ways: Ways) -> Trial:
        other = self._tuning.program(self._tuning.plan(ways))
        try:
            return self._tuning.compare(base, other)
        finally:
            other.close()

    def _time_chains(self, base: Program) -> None:
        if not self._chains:
            return
        trial = self._against(base, self._before)
        for group in self._chains.values():
            apart = sum(trial.base.get(u, 0.0) for u in group.parts())
            banded = sum(trial.other.get(u, 0.0) for u in group.units)
            if apart and banded:
                group.ratios[APART] = apart / banded
                group.times_ns[str(DEFAULT)] = round(banded / len(group.units))
                group.times_ns[str(APART)] = round(apart / len(group.units))

    def _time_ways(self, base: Program, number: int) -> None:
        """Time the candidates of one number, those that differ from earlier ones."""
        some = {k: g for k, g in self._single.items() if number < len(g.layer.ways)}
        plan = self._tuning.plan(
            {**self._apart, **{k: g.layer.ways[number] for k, g in some.items()}}
        )
        allowed, codes = self._tuning.allowed(plan), self._tuning.code(plan)
        old = self._tuning.code(base.plan)
        new = {
            k: g
            for k, g in some.items()
            if g.units[0] in allowed and codes[g.units[0]] != old[g.units[0]]
        }
        if not new:
            return
        other = self._tuning.program(plan)
        try:
            trial = self._tuning.compare(base, other)
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
            self._tuning.note("fast run: the cost model's choices are the fastest")
            return {}
        base = self._tuning.program(self._tuning.plan(self._before))
        try:
            self._tuning.told(self._most, self._total)
            trial = self._against(base, {**self._before, **picks})
            kept = {k: w for k, w in picks.items() if self._holds(k, trial)}
            self._tuning.told(self._most + 1, self._total)
            other = self._tuning.program(self._tuning.plan({**self._before, **kept}))
            try:
                old, new = trials.compare_whole(base, other, self._tuning.feeds())
            finally:
                other.close()
        finally:
            base.close()
        text = f"fast run: other algorithms for {len(kept)} of {self._count()} kinds of layers"
        if new >= old:
            self._tuning.note(f"{text} are no gain ({old / 1e6:.3f} to {new / 1e6:.3f} ms)")
            return {}
        self._tuning.note(f"{text}: {old / 1e6:.3f} to {new / 1e6:.3f} ms")
        return kept

    def _count(self) -> int:
        return len(self._chains) + len(self._single)

    def _holds(self, key: str, trial: Trial) -> bool:
        """Whether a choice is still faster among its new neighbours."""
        if key in self._chains:
            group = self._chains[key]
            apart = sum(trial.other.get(u, 0.0) for u in group.parts())
            return apart < sum(trial.base.get(u, 0.0) for u in group.units)
        units = [u for u in self._single[key].units if u in trial.base and u in trial.other]
        # Layers in bands, or in a chain that is no longer one, have nothing to compare with.
        return not units or trial.ratio(units) < 1.0


def _text(groups: Iterable[str], ways: Ways) -> str:
    """The choices as `CompileOptions.algorithms` takes them."""
    return choices_text({any_batch(key): str(ways.get(key, DEFAULT)) for key in groups})


def _choices(groups: Mapping[str, _Group], ways: Ways) -> tuple[LayerChoice, ...]:
    return tuple(
        LayerChoice(
            key,
            tuple(" + ".join(unit) for unit in group.units),
            str(ways.get(key, DEFAULT)),
            group.source or "cost model",
            group.times_ns,
        )
        for key, group in groups.items()
    )
