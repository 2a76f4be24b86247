"""The loop that measures: a first inference, a warm-up, then exactly as many samples as asked for.

Only the call itself lies between the two readings of the clock; what listens to the samples
(`on_sample`: printed lines, a progress bar) runs between calls.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from loadrun.stats import Stats

__all__ = ["OnSample", "Phase", "Sample", "Warmup", "measure"]

_NS_PER_UNIT = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_COUNT = re.compile(r"[0-9]{1,9}")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(us|ms|s)")


class Phase(enum.Enum):
    """What a measured call was made for."""

    FIRST = "first"
    WARMUP = "warmup"
    TIMED = "timed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured call.

    Attributes:
        phase: What it was made for.
        index: Number of the call within its phase, from 0.
        ns: Wall-clock time of the call, ns.
    """

    phase: Phase
    index: int
    ns: int


OnSample = Callable[[Sample], None]


@dataclass(frozen=True, slots=True)
class Warmup:
    """How long to warm up: a number of calls, or a time after which no further call starts.

    Attributes:
        count: Number of calls; 0 where a time is given.
        ns: Least time to spend, ns; 0 where a count is given.
    """

    count: int = 0
    ns: int = 0

    @classmethod
    def parse(cls, text: str) -> Warmup:
        """Read `10` (calls), `500ms`, `2s` or `800us` (time).

        Raises:
            ValueError: Anything else: `0.5` could mean a time as well as a number of calls.
        """
        if _COUNT.fullmatch(text):
            return cls(count=int(text))
        found = _TIME.fullmatch(text)
        if found is None:
            raise ValueError(
                f"a warm-up is a number of runs such as `10` or a time such as `500ms`, "
                f"got `{text}`"
            )
        return cls(ns=round(float(found[1]) * _NS_PER_UNIT[found[2]]))

    def __str__(self) -> str:
        return f"{self.ns / 1e6:g}ms" if self.ns else str(self.count)


def measure(
    call: Callable[[], object],
    *,
    iters: int,
    warmup: int | Warmup = 1,
    first: bool = False,
    on_sample: OnSample | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Stats:
    """Time `call`: once apart if asked for, then the warm-up, then `iters` samples.

    Args:
        call: The inference; what it returns is dropped after the clock was read.
        iters: Number of samples; 0 measures nothing but still warms up.
        warmup: Number of calls before the samples, or a time (at least one call).
        first: Whether to make one call ahead of the warm-up and keep its time apart.
        on_sample: Told about every call, outside the measured time.
        clock: Nanoseconds of a clock that never goes back.

    Returns:
        Exactly `iters` samples, with the warm-up and the first call apart.

    Raises:
        ValueError: `iters` or the warm-up is negative.
    """
    limit = warmup if isinstance(warmup, Warmup) else Warmup(count=warmup)
    if iters < 0 or limit.count < 0 or limit.ns < 0:
        raise ValueError(f"a number of runs is not negative, got {iters} and warm-up {limit}")

    def timed(phase: Phase, index: int) -> int:
        start = clock()
        call()
        ns = clock() - start
        if on_sample is not None:
            on_sample(Sample(phase, index, ns))
        return ns

    first_ns = timed(Phase.FIRST, 0) if first else None
    warm: list[int] = []
    until = clock() + limit.ns
    while len(warm) < limit.count or (limit.ns and (not warm or clock() < until)):
        warm.append(timed(Phase.WARMUP, len(warm)))
    samples = tuple(timed(Phase.TIMED, index) for index in range(iters))
    return Stats(samples=samples, warmup=tuple(warm), first_inference_ns=first_ns)
