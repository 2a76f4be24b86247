"""Which candidate computes each convolution and product of matrices.

Without `fast_run` it is the planner's guess, or what the policy file says. With it every candidate
is timed where it will run: as many plans are made as the layer with the most candidates has, the
k-th with the k-th candidate of every layer, and each is run with events between its steps. The
fastest of each layer together must then be faster than the guesses as a whole, replayed, or the
guesses stay. The policy file keeps what was found by layer, so that a layer that another network
shares is measured once.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import numpy as np

from loadrun.backends.base import CompileOptions, LayerChoice
from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.device import Device
from loadrun.backends.cuda.plan import Array, Decision, Place, Plan
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program
from loadrun.backends.cuda.variants import Algorithm, Choice, Target
from loadrun.policy import Choice as Kept
from loadrun.policy import Policy, choices_of, choices_text
from mgeserial.errors import ExecutionError, UnsupportedError

__all__ = ["Planned", "any_batch", "code_version", "plan_for", "scratch_bytes"]

_REPEATS = 5
_WHOLE_RUNS = 12  # of each of the two whole networks, the first three aside
_GAIN = 0.98  # a candidate must be this much faster than the guess
# What a measured time depends on: these modules and kernels.
_MODULES = ("convolution", "emit_", "planner", "products", "variants")
_KERNELS = ("direct", "gemm", "prelude", "tile", "winograd")


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what a person should know about its choice.

    Attributes:
        plan: What to run.
        name: The choices as `CompileOptions.algorithms` takes them; empty where none were made.
        notes: Lines for the report.
        choices: Layers, with what was chosen and the times of their candidates.
        functions: Kernels that are compiled already, by name.
    """

    plan: Plan
    name: str = ""
    notes: tuple[str, ...] = ()
    choices: tuple[LayerChoice, ...] = ()
    functions: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def code_version() -> str:
    """Digest of the code whose speed is measured."""
    package = resources.files(__package__)
    found = hashlib.sha256("\0".join(source.OPTIONS).encode())
    for folder, stems, suffix in (
        (package, _MODULES, ".py"),
        (package / "kernels", _KERNELS, ".cu"),
    ):
        for item in sorted(folder.iterdir(), key=lambda x: x.name):
            if item.name.endswith(suffix) and item.name.startswith(stems):
                found.update(item.read_bytes())
    return found.hexdigest()[:16]


def scratch_bytes(plan: Plan, name: str) -> int:
    """Scratch memory that a layer's steps use between them."""
    steps = {s.name: s for s in plan.steps}
    written = {b for n in plan.decisions[name].steps for b in steps[n].writes}
    own = [plan.buffers[b] for b in written if b.startswith(f"{name}:")]
    return sum(b.nbytes for b in own if b.place is Place.ARENA)


def plan_for(
    network: nd.Network, device: Device, options: CompileOptions, target: Target
) -> Planned:
    """Plan a network as the options ask for.

    Args:
        network: What to compute.
        device: Where; candidates are measured on it.
        options: How to choose.
        target: What is known of the device; its engines are asked for where they are candidates.

    Raises:
        UnsupportedError: No candidate of a layer fits the limit of scratch memory.
        InputError: The policy file cannot be used.
    """
    wanted = options.fast_run or options.policy_file or options.algorithms
    if not wanted and options.workspace_limit is None:
        return Planned(make_plan(network, target))
    return _Tuning(network, device, options, target).result()


def _order(choice: Choice, decision: Decision) -> object:
    """What is equal for candidates that give the same bits."""
    if decision.exact:
        return "exact"
    if choice.algorithm is Algorithm.CUDNN:
        return choice
    parts = (choice.splits, choice.tile.bk if choice.tile else 0) if choice.splits > 1 else ()
    return (choice.algorithm, *parts)


class _Tuning:
    """One search; see the module."""

    def __init__(
        self, network: nd.Network, device: Device, options: CompileOptions, target: Target
    ) -> None:
        self._network, self._device, self._options = network, device, options
        self._policy = Policy(options.policy_file)
        rounding = " tf32" if target.tf32 else ""
        self._place = f"cuda {device.model} {target.capability}{rounding}"
        self._notes: list[str] = []
        self._given = choices_of(options.algorithms)
        self._times: dict[str, dict[str, int]] = {}
        self._sources: dict[str, str] = {}
        self._functions: dict[str, Any] = {}
        self._target = self._with_engines(target)
        # Plan k takes the k-th candidate of every layer.
        self._plans = self._every_plan()
        self._allowed = self._allowed_choices()

    # -- candidates
    def _with_engines(self, target: Target) -> Target:
        """The target with cuDNN's engines, where they are to be measured or were chosen before."""
        options = self._options
        wanted = options.fast_run
        if not wanted:
            names = list(self._given.values())
            for decision in make_plan(self._network, target).decisions.values():
                kept = self._policy.get(self._place, decision.layer, code_version())
                names += [kept.name] if kept is not None else []
            wanted = any(name.startswith(Algorithm.CUDNN.value) for name in names)
        if not wanted:
            return target
        reason = self._device.no_convolutions()
        if reason is not None:
            self._notes.append(f"cuDNN's convolutions are no candidates: {reason}")
            return target
        return replace(target, engines=self._device.engines)

    def _every_plan(self) -> list[Plan]:
        plans: list[Plan] = []
        while True:
            number = len(plans)

            def choose(_: str, found: tuple[Choice, ...], k: int = number) -> Choice:
                return found[min(k, len(found) - 1)]

            plans.append(make_plan(self._network, self._target, choose=choose))
            most = max((len(d.candidates) for d in plans[0].decisions.values()), default=0)
            if len(plans) >= most:
                return plans

    def _allowed_choices(self) -> dict[str, list[Choice]]:
        """For each layer its candidates that may be used, the guess first."""
        limit = self._options.workspace_limit
        found: dict[str, list[Choice]] = {}
        for name, decision in self._plans[0].decisions.items():
            needs = {p.decisions[name].choice: scratch_bytes(p, name) for p in self._plans}
            fitting = [c for c in decision.candidates if limit is None or needs[c] <= limit]
            if not fitting:
                raise UnsupportedError(
                    f"{name} needs {min(needs.values())} bytes of scratch memory, more than the "
                    f"limit of {limit}",
                    hint="raise --workspace-limit",
                )
            if not self._options.full_run:
                fitting = _likely(fitting)
            if self._options.reproducible:
                order = _order(fitting[0], decision)
                fitting = [c for c in fitting if _order(c, decision) == order]
            found[decision.layer] = fitting
        return found

    def _known(self, layer: str) -> Choice | None:
        """The caller's or the policy file's choice for a layer, of those that may be used."""
        name, source = self._given.get(any_batch(layer)), "as given"
        if name is None:
            kept = self._policy.get(self._place, layer, code_version())
            if kept is None:
                return None
            name, source = kept.name, "policy file"
            self._times[layer] = dict(kept.times_ns)
        found = next((c for c in self._allowed[layer] if str(c) == name), None)
        if found is not None:
            self._sources[layer] = source
        return found

    # -- the search
    def result(self) -> Planned:
        """Choose, measuring what is missing where that was asked for."""
        known = {layer: self._known(layer) for layer in self._allowed}
        chosen = {layer: choice or self._allowed[layer][0] for layer, choice in known.items()}
        missing = [n for n, c in known.items() if c is None and len(self._allowed[n]) > 1]
        if self._options.fast_run and missing:
            chosen = self._measured(chosen, missing)
        if self._options.policy_file:
            used = sum(s == "policy file" for s in self._sources.values())
            self._notes.append(f"algorithms of {used} of {len(known)} layers by the policy file")
        name = choices_text({any_batch(layer): str(c) for layer, c in chosen.items()})
        plan = self._plan(chosen)
        return Planned(plan, name, tuple(self._notes), self._choices(plan), self._functions)

    def _plan(self, chosen: Mapping[str, Choice]) -> Plan:
        return make_plan(self._network, self._target, choose=lambda layer, _: chosen[layer])

    def _measured(self, chosen: dict[str, Choice], missing: Sequence[str]) -> dict[str, Choice]:
        """The fastest candidates; the policy file is told."""
        most = max(len(self._allowed[layer]) for layer in missing)
        plans = [
            self._plan(
                {
                    **chosen,
                    **{n: self._allowed[n][min(k, len(self._allowed[n]) - 1)] for n in missing},
                }
            )
            for k in range(most)
        ]
        try:
            kernels = {n: kernel for p in plans for n, kernel in p.kernels().items()}
            self._functions = self._device.build(list(kernels.values()))
            for k, plan in enumerate(plans):
                if self._options.progress is not None:
                    self._options.progress("fast run", k, len(plans))
                self._time_layers(plan, missing)
            best = {**chosen, **{layer: self._fastest(layer) for layer in missing}}
            best = self._whole(chosen, best)
        except ExecutionError as error:
            self._functions = {}
            self._notes.append(f"fast run: nothing was chosen: {error.message}")
            return chosen
        for layer in missing:
            self._sources[layer] = "measured"
            entry = Kept(str(best[layer]), code_version(), self._times[layer])
            self._policy.put(self._place, layer, entry)
        self._policy.save()
        return best

    def _program(self, plan: Plan) -> Program:
        return Program(plan, self._device, owner=False, functions=self._functions)

    def _time_layers(self, plan: Plan, missing: Sequence[str]) -> None:
        """Run a plan and note the median time of its choice for each layer."""
        program = self._program(plan)
        try:
            spans = program.profile(_ones(plan), _REPEATS)
        finally:
            program.close()
        by_step = {s.name: [ns for _, ns in x] for s, x in zip(plan.steps, spans, strict=True)}
        sums: dict[str, list[float]] = {}
        for decision in plan.decisions.values():
            runs = np.sum([by_step[name] for name in decision.steps], axis=0)
            sums.setdefault(decision.layer, []).append(float(np.median(runs)))
        for decision in plan.decisions.values():
            if decision.layer in missing:
                times = self._times.setdefault(decision.layer, {})
                times.setdefault(str(decision.choice), round(np.mean(sums[decision.layer])))

    def _fastest(self, layer: str) -> Choice:
        guess, *others = self._allowed[layer]
        times = self._times[layer]
        best = min(others, key=lambda c: times[str(c)])
        return best if times[str(best)] < _GAIN * times[str(guess)] else guess

    def _whole(self, before: dict[str, Choice], after: dict[str, Choice]) -> dict[str, Choice]:
        """What was chosen, or what was before where the network as a whole is not faster."""
        changed = sum(before[n] != after[n] for n in after)
        if not changed:
            self._notes.append(f"fast run: the guess is the fastest for all {len(after)} layers")
            return after
        programs = [self._program(self._plan(c)) for c in (before, after)]
        times: list[list[int]] = [[], []]
        try:
            for turn in range(_WHOLE_RUNS + 3):
                for k, program in enumerate(programs):
                    program.run(_ones(program.plan))
                    if turn >= 3:
                        times[k].append(program.times.device)
        finally:
            for program in programs:
                program.close()
        old, new = (float(np.median(t)) / 1e6 for t in times)
        text = f"fast run: {changed} of {len(after)} layers have another algorithm"
        if new < old:
            self._notes.append(f"{text}: {old:.3f} to {new:.3f} ms of the device")
            return after
        self._notes.append(f"{text}, which is no gain ({old:.3f} to {new:.3f} ms): not used")
        return before

    def _choices(self, plan: Plan) -> tuple[LayerChoice, ...]:
        names: dict[str, list[str]] = {}
        for name, decision in plan.decisions.items():
            names.setdefault(decision.layer, []).append(name)
        chosen = {d.layer: str(d.choice) for d in plan.decisions.values()}
        return tuple(
            LayerChoice(
                layer, tuple(found), chosen[layer], self._sources.get(layer, "cost model"),
                self._times.get(layer, {}),
            )
            for layer, found in names.items()
        )  # fmt: skip


def any_batch(layer: str) -> str:
    """A layer's signature without the number of images."""
    kind, types, sizes, rest = layer.split(" ", 3)
    return f"{kind} {types} {sizes.partition('x')[2]} {rest}"


def _likely(found: list[Choice]) -> list[Choice]:
    """Candidates without those that hardly ever win: the library's sums where it could do all."""
    if any(c.engine is not None and c.fused for c in found):
        return [c for c in found if c.engine is None or c.fused]
    return found


def _ones(plan: Plan) -> list[Array]:
    """Inputs to time with: ones, which no kernel takes a short cut for."""
    return [
        np.ones(plan.buffers[n].shape, plan.buffers[n].dtype) if n else np.ones(1, np.float32)
        for n in plan.inputs
    ]
