"""Which algorithms a network runs with: the planner's choice, or what is fastest on this machine.

With `fast_run` the candidates below are built and timed as whole networks, because what one step
costs depends on what the step before left in the caches; the fastest is kept, and remembered in
the policy file if there is one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu import probe
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Options
from loadrun.backends.cpu.plan import Array, Plan
from loadrun.backends.cpu.planner import make_plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import Target
from mgeserial.errors import InputError, UnsupportedError
from mgeserial.format.atomic import write_atomic

__all__ = ["CANDIDATES", "Planned", "plan_for"]

# By name; the first is what is used without measuring.
CANDIDATES = {
    "default": Options(),
    "no-bands": Options(bands=False),
    "no-winograd": Options(winograd=False),
    "no-winograd-no-bands": Options(winograd=False, bands=False),
}
_KIND = "loadrun.policy"
_ROUNDS = 5
_LEAST_S = 0.02
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what a person should know about its choice."""

    plan: Plan
    name: str
    notes: tuple[str, ...] = ()


def plan_for(
    network: nd.Network,
    target: Target,
    threads: int,
    options: CompileOptions,
    contents: Contents,
) -> Planned:
    """Plan a network as the options ask for; `contents` gives the keys of its constants.

    Raises:
        UnsupportedError: No candidate fits the limit of scratch memory.
        InputError: The policy file is not readable or is something else.
    """
    limit = options.workspace_limit
    plans: dict[str, Plan] = {}
    scratch: list[int] = []
    measured = options.fast_run and not options.reproducible
    for name, choice in CANDIDATES.items():
        plan = make_plan(network, target, threads=threads, options=choice, contents=contents)
        scratch.append(probe.workspace(plan))
        if limit is None or scratch[-1] <= limit:
            plans[name] = plan if options.memory_plan else probe.unshared(plan)
            if not (measured or options.policy_file or options.algorithms):
                break
    if not plans:
        raise UnsupportedError(
            f"the model needs {min(scratch)} bytes of scratch memory, more than the limit of "
            f"{limit}",
            hint="raise --workspace-limit, or use fewer threads: each has its own",
        )
    if options.algorithms in plans:
        return Planned(plans[options.algorithms], options.algorithms)
    found = _policy(options.policy_file)
    key = digest(target.key(), str(threads), *(str(p) for p in plans.values()))
    name, note = found.get(key, ""), "algorithms of the policy file"
    if name not in plans and measured:
        name, note = _fastest(plans, network, target, contents, options)
        if options.policy_file:
            write_atomic(options.policy_file, _document({**found, key: name}).encode("ascii"))
    if name not in plans:
        first = next(iter(plans))
        return Planned(plans[first], first)
    return Planned(plans[name], name, (f"{note}: {name}",))


def _document(choices: dict[str, str]) -> str:
    return json.dumps({"kind": _KIND, "schema": 1, "choices": choices}, indent=1) + "\n"


def _policy(path: str | None) -> dict[str, str]:
    """Choices of a policy file; none where there is no file yet."""
    if path is None or not os.path.exists(path):
        return {}
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise ValueError("it is too large")
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
        if not isinstance(root, dict) or root.get("kind") != _KIND or root.get("schema") != 1:
            raise ValueError(f'it has no "kind": "{_KIND}", "schema": 1')
        return {str(k): str(v) for k, v in dict(root.get("choices", {})).items()}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"not a policy file of loadrun: {error}",
            path=path,
            hint="name a new file: --fast-run writes it (load_and_run's caches are of no use here)",
        ) from error


def _fastest(
    plans: dict[str, Plan],
    network: nd.Network,
    target: Target,
    contents: Contents,
    options: CompileOptions,
) -> tuple[str, str]:
    """Time each plan, in turns; the one of the least median."""
    feeds = _ones(network)
    times: dict[str, list[int]] = {name: [] for name in plans}
    built: dict[str, Program] = {}
    same: dict[str, str] = {}
    try:
        for done, (name, plan) in enumerate(plans.items()):
            if options.progress is not None:
                options.progress("fast run", done, len(plans))
            twin = same.setdefault(str(plan), name)
            if twin == name:
                built[name] = Program(plan, target, contents.cache, contents=contents)
        until = time.perf_counter() + _LEAST_S
        while len(next(iter(times.values()))) < _ROUNDS or time.perf_counter() < until:
            for name, program in built.items():
                start = time.perf_counter_ns()
                program.run(feeds)
                times[name].append(time.perf_counter_ns() - start)
    finally:
        for program in built.values():
            program.close()
    medians = {name: float(np.median(found[1:])) for name, found in times.items() if found}
    best = min(medians, key=lambda name: medians[name])
    shown = ", ".join(f"{name} {ns / 1e6:.3f} ms" for name, ns in medians.items())
    return best, f"fast run ({shown})"


def _ones(network: nd.Network) -> Sequence[Array]:
    """Inputs to time with: ones, which no kernel takes a short cut for."""
    return [np.ones(network.shapes[n], network.dtype(n)) for n in network.inputs]
