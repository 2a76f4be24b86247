"""Which algorithms a network runs with: the cost model's, or for each layer what is fastest here.

With `fast_run` the candidates of every layer are measured (`search`). The policy file keeps the
outcome by layer, so that nothing is measured twice. `reproducible` leaves candidates out that add
in another order than the cost model's choice, and a limit of scratch memory those that need more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadrun.backends.base import CompileOptions, LayerChoice
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu import probe
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.candidates import any_batch
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Ahead
from loadrun.backends.cpu.plan import Plan
from loadrun.backends.cpu.search import Bench, Group, Job, Search, Ways
from loadrun.backends.cpu.target import Target, describe
from loadrun.backends.cpu.ways import DEFAULT
from loadrun.policy import Choice, Policy, choices_of, choices_text
from mgeserial._version import __version__
from mgeserial.errors import UnsupportedError

__all__ = ["Planned", "plan_for"]

# What measured times depend on.
_MODULES = ("banding", "candidates", "emit", "planner", "runtime", "schedule", "steps_conv", "ways")
_KERNELS = ("common", "conv", "depthwise", "matmul", "micro", "pool", "tiled", "winograd")


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
    *,
    ahead: Ahead | None = None,
) -> Planned:
    """Plan a network as the options ask for; `contents` gives the keys of its constants.

    `ahead` gets the code of steps while they are planned, where the first plan is what will run.

    Raises:
        UnsupportedError: No candidate of a layer fits the limit of scratch memory.
        InputError: The policy file or the choice that is given is something else.
    """
    tuning = _Tuning(Job(network, target, threads, options, contents))
    if options.fast_run or options.policy_file or options.algorithms:
        return tuning.chosen()
    if options.workspace_limit is not None:
        return Planned(tuning.fitting({})[1])
    return Planned(tuning.bench.plan({}, ahead))


class _Tuning:
    """One search; see the module."""

    def __init__(self, job: Job) -> None:
        self.bench = Bench(job)
        self._options = job.options
        self._place = f"cpu {describe(job.target)} threads {job.threads}"

    def fitting(self, ways: Ways) -> tuple[Ways, Plan]:
        """The choices, with others for layers that need more scratch memory than is allowed.

        Raises:
            UnsupportedError: A layer has none.
        """
        limit = self._options.workspace_limit
        plan = self.bench.plan(ways)
        if limit is None or probe.workspace(plan) <= limit:
            return ways, plan
        groups = self.bench.groups(full=True)
        by_unit = {unit: g.layer for g in groups.values() for unit in g.units}
        ways, tried, least = dict(ways), dict.fromkeys(groups, 0), 0
        while True:
            over = {u: n for u, n in self.bench.needs(plan).items() if n > limit}
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
            plan = self.bench.plan(ways)

    # -- choices
    def chosen(self) -> Planned:
        """Choices of the caller, of the policy file, and what is measured."""
        groups = self.bench.groups(full=self._options.full_run)
        policy = Policy(self._options.policy_file)
        ways = self._known(groups, policy)
        missing = {k: g for k, g in groups.items() if not g.source and len(g.layer.ways) > 1}
        ways, plan = self.fitting(ways)
        notes = []
        if self._options.fast_run and missing:
            search = Search(self.bench, ways, missing)
            found = search.run()
            notes.append(search.note)
            self._keep(policy, missing, found)
            ways, plan = self.fitting({**ways, **found})
        used = sum(g.source == "policy file" for g in groups.values())
        if self._options.policy_file:
            notes.append(f"algorithms of {used} of {len(groups)} layers by the policy file")
        return Planned(plan, _text(groups, ways), tuple(notes), _choices(groups, ways))

    def _known(self, groups: Mapping[str, Group], policy: Policy) -> Ways:
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

    def _keep(self, policy: Policy, missing: Mapping[str, Group], ways: Ways) -> None:
        for key, group in missing.items():
            group.source = "measured"
            name = str(ways.get(key, DEFAULT))
            policy.put(self._place, key, Choice(name, code_version(), group.times_ns))
        policy.save()


def _text(groups: Iterable[str], ways: Ways) -> str:
    """The choices as `CompileOptions.algorithms` takes them."""
    return choices_text({any_batch(key): str(ways.get(key, DEFAULT)) for key in groups})


def _choices(groups: Mapping[str, Group], ways: Ways) -> tuple[LayerChoice, ...]:
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
