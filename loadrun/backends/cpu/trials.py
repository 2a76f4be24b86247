"""Timing plans against each other, layer by layer, in the course of whole runs.

What a layer costs depends on what the layers before it left in the caches, so layers are timed
where they stand. Two programs take turns, which leaves slow changes of the machine out of the
comparison, and the lower quartile is taken, since what disturbs only ever adds time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loadrun.backends.cpu import probe
from loadrun.backends.cpu.plan import Array, Plan, Step
from loadrun.backends.cpu.program import Program

__all__ = ["Trial", "Whole", "compare", "compare_whole", "units_of"]

_ROUNDS = (5, 40)
_TRIAL_S = 0.4
_WHOLE_S = 0.6
_PAUSE_S = 0.002  # workers sleep within 1 ms of a run
Unit = tuple[str, ...]  # names of nodes that are timed together


@dataclass(frozen=True, slots=True)
class Trial:
    """Times of two programs, in ns by unit."""

    base: Mapping[Unit, float]
    other: Mapping[Unit, float]

    def ratio(self, units: Iterable[Unit], others: Iterable[Unit] | None = None) -> float:
        """Time of units in the other program, over that of the same ones in the base."""
        units = list(units)
        return sum(self.other[u] for u in others or units) / sum(self.base[u] for u in units)


class Whole(NamedTuple):
    """Times of whole runs of two programs, in ns.

    Attributes:
        base, other: Lower quartiles.
        spread: Median of the base over its lower quartile; near 1 where nothing disturbs.
    """

    base: float
    other: float
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Phases [first, last) that make up a unit; `copies` come before their node."""

    unit: Unit
    first: int
    last: int


def units_of(plan: Plan, nodes: Sequence[str]) -> list[tuple[Unit, list[int]]]:
    """Steps of a plan by the nodes that they belong to, in order.

    A step that only moves data belongs to the node that comes after it.
    """
    known = set(nodes)
    band_of = {k: span for span in plan.bands for k in range(*span)}
    found: list[tuple[Unit, list[int]]] = []
    waiting: list[int] = []
    for k, step in enumerate(plan.steps):
        label = probe.label_of(step.name, known)
        if k in band_of:
            first, last = band_of[k]
            names = [probe.label_of(s.name, known) for s in plan.steps[first:last]]
            unit = tuple(dict.fromkeys(n for n in names if n in known))
        elif label in known:
            unit = (label,)
        else:
            waiting.append(k)
            continue
        if not found or found[-1][0] != unit:
            found.append((unit, []))
        found[-1][1].extend([*waiting, k])
        waiting = []
    if waiting:
        found.append(((), waiting))
    return found


def _pieces(plan: Plan, nodes: Sequence[str], joined: Sequence[Unit]) -> list[_Piece]:
    """Units as ranges of phases; those of `joined` in one range where they follow each other.

    A Python step has no phases and is timed with those before it.
    """
    chain_of = {name: chain for chain in joined for name in chain}
    inside = {k for first, last in plan.bands for k in range(first + 1, last)}
    banded = {k for first, last in plan.bands for k in range(first, last)}
    pieces: list[_Piece] = []
    at = 0
    for unit, steps in units_of(plan, nodes):
        first = at
        for k in steps:
            step = plan.steps[k]
            if isinstance(step, Step) and k not in inside:
                at += 1 if k in banded else len(step.kernel.entries)
        if at == first:
            continue
        chain = chain_of.get(unit[0]) if unit else None
        if chain is not None and set(unit) <= set(chain):
            unit = chain
            if pieces and pieces[-1].unit == chain:
                first = pieces.pop().first
        pieces.append(_Piece(unit, first, at))
    return pieces


def _round(program: Program, feeds: Sequence[Array], pieces: Sequence[_Piece]) -> list[int]:
    """One run; ns of each piece. Python steps are run where they stand, outside the clock."""
    spent: list[int] = []
    clock = time.perf_counter_ns
    with probe.Stepper(program, feeds) as stepper:
        for piece in pieces:
            stepper.run(piece.first)
            stepper.settle()
            start = clock()
            stepper.run(piece.last)
            spent.append(clock() - start)
    return spent


def compare(
    base: Program,
    other: Program,
    feeds: Sequence[Array],
    nodes: Sequence[str],
    joined: Sequence[Unit] = (),
) -> Trial:
    """Time the units of two programs of one network in turns.

    Args:
        base: The one that others are compared with.
        other: The other one.
        feeds: Inputs of the plan.
        nodes: Names of the network's nodes.
        joined: Nodes to time as one unit, although a program may run them one by one: what each
            range of phases costs by itself is left out of the comparison.
    """
    both = [(p, _pieces(p.plan, nodes, joined)) for p in (base, other)]
    times: tuple[list[list[int]], list[list[int]]] = ([], [])
    for _ in _rounds(_TRIAL_S):
        for (program, pieces), found in zip(both, times, strict=True):
            _settle(program, feeds)
            found.append(_round(program, feeds, pieces))
    sides = []
    for (_, pieces), found in zip(both, times, strict=True):
        quartiles = np.percentile(np.array(found[1:]), 25, axis=0)
        side: dict[Unit, float] = {}
        for piece, ns in zip(pieces, quartiles, strict=True):
            side[piece.unit] = side.get(piece.unit, 0.0) + float(ns)
        sides.append(side)
    return Trial(*sides)


def _settle(program: Program, feeds: Sequence[Array]) -> None:
    """Let the other program's workers fall asleep, wake this one's, and fill the caches."""
    time.sleep(_PAUSE_S if program.plan.threads > 1 else 0)
    program.run(feeds)


def compare_whole(base: Program, other: Program, feeds: Sequence[Array]) -> Whole:
    """Times of whole runs of two programs."""
    rounds = [(_whole(base, feeds), _whole(other, feeds)) for _ in _rounds(_WHOLE_S)]
    times = np.array(rounds[1:])
    one, two = np.percentile(times, 25, axis=0)
    return Whole(float(one), float(two), float(np.median(times[:, 0]) / one))


def _whole(program: Program, feeds: Sequence[Array]) -> int:
    _settle(program, feeds)
    start = time.perf_counter_ns()
    program.run(feeds)
    return time.perf_counter_ns() - start


def _rounds(seconds: float) -> Iterator[int]:
    """At least a few rounds, more while there is time; the first one warms up."""
    until = time.perf_counter() + seconds
    for k in range(_ROUNDS[1] + 1):
        if k > _ROUNDS[0] and time.perf_counter() > until:
            return
        yield k
