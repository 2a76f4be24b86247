"""Two models, or one model on several backends: what they compute, then how fast.

Outputs come first: a faster model that computes something else is not faster. Times are taken in
turns, so that whatever else the machine does meets both sides alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.bisect import Reduced, reduce_part, save_part
from loadrun.closeness import Closeness, closeness
from loadrun.divergence import Part, Progress, Suspect, Walk, find_cut, walk
from loadrun.measure import Warmup
from loadrun.sides import Feeds, Partners, Side, Values, is_operator
from loadrun.stats import Stats
from loadrun.tolerances import Rounding, allowed_error, roundings
from loadrun.trust import judge
from mgeserial.diff import diff
from mgeserial.dtypes import Array
from mgeserial.errors import InputError, MgeError
from mgeserial.ir.graph import Value

__all__ = ["GATES", "Comparison", "OutputPair", "Speed", "compare", "interleaved"]

CONFIDENCE = 0.95
_RESAMPLES = 2000
# Backends that compute an operator the same way each time: one algorithm, sums in one order.
_SAME_BITS = ("cpu", "reference")
# Numbers of one resampling held at a time.
_AT_ONCE = 4_000_000
# What a condition may name, with what it is.
GATES = {
    "ratio": "median time of A / median time of B: above 1 B is faster",
    "ratio_low": "lower end of the ratio's interval",
    "ratio_high": "upper end of the ratio's interval",
    "a_ms": "median time of A, ms",
    "b_ms": "median time of B, ms",
    "max_abs": "largest absolute difference of the outputs",
    "max_rel": "largest relative difference of the outputs",
    "max_ulp": "most representable values between two outputs",
    "cosine": "smallest cosine of two outputs",
    "error": "largest |a - b| / max(1, min(|a|, |b|)) of the outputs",
}


@dataclass(frozen=True, slots=True)
class OutputPair:
    """One output of one case on both sides."""

    case: str
    name: str
    other_name: str
    types: tuple[str, str]
    shape: tuple[int, ...]
    close: Closeness

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "case": self.case,
            "name": self.name,
            "name_b": self.other_name,
            "dtype": self.types[0],
            "dtype_b": self.types[1],
            "shape": list(self.shape),
            **self.close.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Speed:
    """Times of both sides, taken in turns.

    Attributes:
        a, b: Samples; the k-th of both were taken one after the other.
        ratio: Median of a / median of b: above 1 the second side is faster.
        low, high: Interval of the ratio at `CONFIDENCE`, by resampling pairs of samples; None
            below 5 pairs.
    """

    a: Stats
    b: Stats
    ratio: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, a: Stats, b: Stats, *, seed: int = 0) -> Speed:
        """The ratio of two measurements and its interval.

        Source: Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), percentile interval.
        """
        first, second = a.median_ns, b.median_ns
        ratio = first / second if first is not None and second else None
        if ratio is None or a.count < 5:
            return cls(a, b, ratio, None, None)
        x, y = (np.asarray(s.samples, np.float64) for s in (a, b))
        generator = np.random.default_rng(seed)
        rows = max(_AT_ONCE // x.size, 1)
        ratios: list[Array] = []
        for start in range(0, _RESAMPLES, rows):
            picks = generator.integers(0, x.size, (min(rows, _RESAMPLES - start), x.size))
            with np.errstate(all="ignore"):
                ratios.append(np.median(x[picks], axis=1) / np.median(y[picks], axis=1))
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(np.concatenate(ratios), [tail, 1 - tail])
        return cls(a, b, ratio, float(low), float(high))

    def as_json(self) -> dict[str, Any]:
        """Plain data."""

        def ms(ns: float | None) -> float | None:
            return None if ns is None else ns / 1e6

        return {
            "sample_count": self.a.count,
            "a_median_ms": ms(self.a.median_ns),
            "b_median_ms": ms(self.b.median_ns),
            "a_p90_ms": ms(self.a.percentile_ns(90)),
            "b_p90_ms": ms(self.b.percentile_ns(90)),
            "speed_ratio": self.ratio,
            "low_ratio": self.low,
            "high_ratio": self.high,
            "confidence_percent": CONFIDENCE * 100,
            "a_samples_ns": list(self.a.samples),
            "b_samples_ns": list(self.b.samples),
        }


@dataclass(slots=True)
class Comparison:
    """All that was found about two sides.

    Attributes:
        a, b: The sides.
        outputs: Every output of every case.
        walk: Operators compared in order; None: not looked at.
        cut: Where the optimised networks part, when their operators alone do not.
        reduced: The smallest part that differs; None: not asked for, or nothing differs.
        speed: Times; None: not measured.
        threads: Threads of both sides.
        notes: What a reader should know.
    """

    a: Side
    b: Side
    outputs: list[OutputPair] = field(default_factory=list)
    walk: Walk | None = None
    cut: Suspect | None = None
    reduced: Reduced | None = None
    speed: Speed | None = None
    threads: tuple[int, int] = (1, 1)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all outputs agree within what is allowed."""
        return all(o.close.passed for o in self.outputs)

    @property
    def fault(self) -> Suspect | None:
        """The first operator at fault, however it was found."""
        return (self.walk.fault if self.walk is not None else None) or self.cut

    def values(self) -> dict[str, float | None]:
        """Numbers that a condition may name (`GATES`)."""
        closes = [o.close for o in self.outputs]
        ulps = [c.max_ulp for c in closes]
        cosines = [c.cosine for c in closes if c.cosine is not None]
        speed = self.speed.as_json() if self.speed is not None else {}
        return {
            "ratio": speed.get("speed_ratio"),
            "ratio_low": speed.get("low_ratio"),
            "ratio_high": speed.get("high_ratio"),
            "a_ms": speed.get("a_median_ms"),
            "b_ms": speed.get("b_median_ms"),
            "max_abs": max((c.max_abs for c in closes), default=0.0),
            "max_rel": max((c.max_rel for c in closes), default=0.0),
            "max_ulp": None if None in ulps else max((u or 0 for u in ulps), default=0),
            "cosine": min(cosines, default=None),
            "error": max((c.error for c in closes), default=0.0),
        }


def compare(
    a: Side,
    b: Side,
    cases: Sequence[tuple[str, Feeds]],
    *,
    iters: int = 10,
    warmup: Warmup | int = 1,
    max_err: float | None = None,
    look: bool = True,
    bisect_to: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two sides: outputs, then operators where outputs differ, then speed.

    Args:
        a: The first side, which says what is right.
        b: The second.
        cases: Title and inputs of the first network, of each case.
        iters: Samples of each side, taken in turns; 0: speed is not measured.
        warmup: Runs of each side before, or a time.
        max_err: Error allowed in outputs; None: by type, length of sums and depth.
        look: Whether to look for the first operator that diverges where an output does.
        bisect_to: File for the smallest part that differs; None: none is looked for.
        seed: Seed of the resampling.
        progress: Told how far it is.

    Raises:
        InputError: The networks have not the same inputs and outputs.
    """
    found = Comparison(a, b)
    partners = Partners(a.graph, b.graph)
    rounding = roundings(a.graph)
    with a.session() as first, b.session() as second:
        for title, feeds in cases:
            theirs = partners.feeds(a.graph, feeds)
            x, y = first.run(dict(feeds)), second.run(theirs)
            found.outputs += _outputs(found, title, x, y, rounding, max_err)
        differing = _differing(found, cases)
        if differing is not None and (look or bisect_to):
            _look(found, partners, differing, bisect_to, rounding, progress)
        title, feeds = cases[0]
        found.threads = (first.threads, second.threads)
        if iters:
            calls = (first.caller(dict(feeds)), second.caller(partners.feeds(a.graph, feeds)))
            times = interleaved(*calls, iters=iters, warmup=warmup, progress=progress)
            found.speed = Speed.of(*times, seed=seed)
            for side, stats in zip((a, b), times, strict=True):
                found.notes += [f"{side.label}: {doubt}" for doubt in judge(stats)[:1]]
    _advise(found)
    if a.graph is not b.graph and differing is None:
        _unseen(found)
    return found


def _unseen(found: Comparison) -> None:
    """Say what differs between the files where the outputs do not show it."""
    known = diff(found.a.graph, found.b.graph)
    names = [name for name, _ in known.changed] + known.removed + known.added
    if names:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        found.notes.append(
            f"the networks differ in {len(names)} operators ({shown}), which these inputs do not "
            "show: try others with --input or --seed; `mgeserial diff` lists all"
        )


def _outputs(
    found: Comparison,
    title: str,
    x: dict[str, Array],
    y: dict[str, Array],
    rounding: dict[Value, Rounding],
    max_err: float | None,
) -> list[OutputPair]:
    """Outputs by name; by order where names differ and there are equally many."""
    a, b = found.a.graph, found.b.graph
    mine = dict(zip(a.output_names, a.outputs, strict=True))
    others = dict(zip(b.output_names, b.outputs, strict=True))
    names = {n: n for n in mine if n in others}
    if len(names) < len(mine) and len(mine) == len(others):
        names = dict(zip(mine, others, strict=True))
    if not names:
        raise InputError(
            f"the models have no output in common: {', '.join(mine)} and {', '.join(others)}",
            hint="`mgeserial edit MODEL --rename-output OLD=NEW` gives an output another name",
        )
    left_out = len(mine) + len(others) - 2 * len(names)
    if left_out and not found.outputs:
        found.notes.append(f"{left_out} outputs that only one side has are not compared")
    pairs = []
    for name, other in names.items():
        value, partner = mine[name], others[other]
        limit = allowed_error(value.dtype, rounding[value]) if max_err is None else max_err
        close = closeness(x[name], y[other], value.dtype, partner.dtype, allowed=limit)
        types = (str(value.dtype), str(partner.dtype))
        pairs.append(OutputPair(title, name, other, types, tuple(x[name].shape), close))
    return pairs


def _differing(found: Comparison, cases: Sequence[tuple[str, Feeds]]) -> Feeds | None:
    """Inputs of the case whose outputs are furthest apart; None where all bits agree."""
    if all(o.close.equal_bits for o in found.outputs):
        return None
    worst = max(found.outputs, key=lambda o: (not o.close.passed, o.close.error))
    return dict(cases)[worst.case]


def _look(
    found: Comparison,
    partners: Partners,
    feeds: Feeds,
    bisect_to: str | None,
    rounding: dict[Value, Rounding],
    progress: Progress | None,
) -> None:
    """Find the operator that diverges, and the smallest part that does."""
    a, b = found.a, found.b
    exact = _is_exact(a) and (a.backend, a.threads) == (b.backend, b.threads)
    part = Part(a, b, partners, Values(a, feeds), exact=exact)
    try:
        found.walk = walk(part, feeds, progress=progress)
    except MgeError as error:
        found.notes.append(f"operators could not be compared one by one: {error.message}")
    if found.fault is None and not found.passed:
        worst = max(found.outputs, key=lambda o: (not o.close.passed, o.close.error))
        value = dict(zip(a.graph.output_names, a.graph.outputs, strict=True))[worst.name]
        found.cut = find_cut(part, value, rounding, progress=progress)
    if bisect_to is None or found.fault is None:
        return
    found.reduced = reduce_part(part, found.fault, progress=progress)
    if found.reduced is None:
        found.notes.append("no part of the optimised networks differs: nothing to reduce")
    else:
        save_part(part, found.reduced, bisect_to)


def _is_exact(side: Side) -> bool:
    """Whether equal operators on equal inputs give equal bits whatever stands around them."""
    measured = side.options is not None and side.options.fast_run
    return side.backend in _SAME_BITS and not measured


def _advise(found: Comparison) -> None:
    allowed = max((o.close.allowed for o in found.outputs), default=0.0)
    if allowed > 0.5:
        found.notes.append(
            f"an error of {allowed:g} is allowed: nearly any output passes; lower --max-err"
        )
    for node in found.a.graph.nodes:
        if is_operator(node) and not getattr(node.op, "is_pure", True):
            found.notes.append(f"{node.describe()} is random or has a state: sides may differ")
            break


def interleaved(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    iters: int,
    warmup: Warmup | int = 1,
    progress: Progress | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> tuple[Stats, Stats]:
    """Time two calls in turns: a b, b a, a b, ...

    Args:
        a: The first call.
        b: The second.
        iters: Samples of each.
        warmup: Calls of each before, or a time for each.
        progress: Told how far it is.
        clock: Nanoseconds of a clock that never goes back.
    """
    limit = warmup if isinstance(warmup, Warmup) else Warmup(count=warmup)
    calls = (a, b)
    samples: tuple[list[int], list[int]] = ([], [])
    warm: tuple[list[int], list[int]] = ([], [])

    def timed(side: int, into: tuple[list[int], list[int]]) -> None:
        start = clock()
        calls[side]()
        into[side].append(clock() - start)

    until = clock() + 2 * limit.most_ns
    while limit.wants(warm[1], clock(), until):
        timed(0, warm)
        timed(1, warm)
    for index in range(iters):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            timed(side, samples)
        if progress is not None:
            progress("measure", index + 1, iters)
    first, second = (Stats(tuple(s), tuple(w)) for s, w in zip(samples, warm, strict=True))
    return first, second
