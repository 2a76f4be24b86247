"""The loop that measures: a first inference, a warm-up, then as many samples as asked for.

Only the call itself lies between the two readings of the clock; what listens to the samples
(`on_sample`: printed lines, a progress bar) runs between calls.
"""

from __future__ import annotations

import enum
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadrun.stats import Stats
from mgeserial.arguments import whole
from mgeserial.errors import InputError

if TYPE_CHECKING:
    from loadrun.backends.base import Parts

__all__ = ["OnSample", "Pacing", "Phase", "Sample", "Warmup", "measure", "parse_time"]

_NS_PER_UNIT = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
# Warm until stable: the medians of two windows of so many runs differ by less than the limit.
_WINDOW = 5
_STABLE = 0.02
_MOST_WARM_RUNS = 1000
_MOST_WARM_NS = 10 * _NS_PER_UNIT["s"]
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
        device_ns: The part of it in kernels; None where the backend does not say.
        copy_ns: The part of it in copies from and to the device.
    """

    phase: Phase
    index: int
    ns: int
    device_ns: int | None = None
    copy_ns: int = 0


OnSample = Callable[[Sample], None]


@dataclass(frozen=True, slots=True)
class Warmup:
    """How long to warm up: a number of calls, a time, or until the times are stable.

    Attributes:
        count: Number of calls; 0 where something else is given.
        ns: Time after which no further call starts, ns; 0 where something else is given.
        stable: Whether to go on until the medians of the last two windows of 5 calls differ by
            less than 2 %, for at most 1000 calls or 10 s.
    """

    count: int = 0
    ns: int = 0
    stable: bool = False

    @classmethod
    def parse(cls, text: str) -> Warmup:
        """Read `10` (calls), `500ms`, `2s` or `800us` (time), or `stable`.

        Raises:
            ValueError: Anything else: `0.5` could mean a time as well as a number of calls.
        """
        if _COUNT.fullmatch(text):
            return cls(count=int(text))
        if text == "stable":
            return cls(stable=True)
        try:
            return cls(ns=parse_time(text))
        except ValueError:
            raise ValueError(
                f"a warm-up is a number of runs such as `10` or a time such as `500ms`, "
                f"or `stable`, got `{text}`"
            ) from None

    def __str__(self) -> str:
        if self.stable:
            return "stable"
        return f"{self.ns / 1e6:g}ms" if self.ns else str(self.count)

    @property
    def most_ns(self) -> int:
        """Time after which no further call starts, ns; 0 where only calls are counted."""
        return _MOST_WARM_NS if self.stable else self.ns

    def wants(self, taken: list[int], now: int, until: int) -> bool:
        """Whether one more call is to be made after those in `taken`."""
        if self.stable:
            late = len(taken) >= _MOST_WARM_RUNS or now >= until
            return not late and not is_stable(taken)
        return len(taken) < self.count or bool(self.ns and (not taken or now < until))


def parse_time(text: str, *, unit: str = "") -> int:
    """Read a time such as `500ms`, `2s`, `1.5s` or `800us`; ns.

    Args:
        text: The time.
        unit: What a bare number is in; empty: a bare number is an error.

    Raises:
        ValueError: It is something else.
    """
    found = _TIME.fullmatch(f"{text}{unit}" if unit and text[-1:].isdigit() else text)
    if found is None:
        raise ValueError(f"a time is a number and a unit such as `500ms` or `2s`, got `{text}`")
    return round(float(found[1]) * _NS_PER_UNIT[found[2]])


def is_stable(taken: list[int]) -> bool:
    """Whether the last two windows of calls have about the same median."""
    if len(taken) < 2 * _WINDOW:
        return False
    before = statistics.median(taken[-2 * _WINDOW : -_WINDOW])
    after = statistics.median(taken[-_WINDOW:])
    return abs(after - before) <= _STABLE * before


@dataclass(frozen=True, slots=True)
class Pacing:
    """How samples are taken, beside their number.

    Attributes:
        duration_ns: Samples are taken until this much time has passed, and until their number is
            reached, whichever is later.
        interval_ns: Time to sleep before each sample, outside the measured time.
        first: Whether to make one call ahead of the warm-up and keep its time apart.
        copy_outputs: Whether a sample includes a copy of the outputs to memory of the caller.
        before_samples: Called once between the warm-up and the samples.
    """

    duration_ns: int = 0
    interval_ns: int = 0
    first: bool = True
    copy_outputs: bool = False
    before_samples: Callable[[], object] | None = None


def measure(
    call: Callable[[], object],
    *,
    iters: int,
    warmup: int | Warmup = 1,
    first: bool = False,
    on_sample: OnSample | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    pacing: Pacing | None = None,
    parts: Callable[[], Parts] | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Stats:
    """Time `call`: once apart if asked for, then the warm-up, then `iters` samples.

    Args:
        call: The inference; what it returns is dropped after the clock was read.
        iters: Number of samples; 0 measures nothing but still warms up.
        warmup: Number of calls before the samples, a time (at least one call), or until stable.
        first: Whether to make one call ahead of the warm-up and keep its time apart.
        on_sample: Told about every call, outside the measured time.
        clock: Nanoseconds of a clock that never goes back.
        pacing: More than a number of samples; its `first` is not looked at.
        parts: Parts of the last call, asked for after the clock was read.
        sleep: Waits so many seconds.

    Returns:
        Exactly `iters` samples (more where the pacing has a duration), with the warm-up and the
        first call apart.

    Raises:
        InputError: `iters` or the warm-up is negative or no number.
    """
    iters = whole(iters, "the number of runs", least=0)
    if not isinstance(warmup, Warmup):
        warmup = Warmup(count=whole(warmup, "the number of warm-up runs", least=0))
    limit = warmup
    if limit.count < 0 or limit.ns < 0:
        raise InputError(f"a warm-up is not negative, got {limit}")
    pace = pacing or Pacing()
    device: list[int] = []
    copies: list[int] = []

    def timed(phase: Phase, index: int) -> int:
        start = clock()
        call()
        ns = clock() - start
        found = parts() if parts is not None else None
        if found is not None and phase is Phase.TIMED:
            device.append(found.device_ns)
            copies.append(found.copy_ns)
        if on_sample is not None:
            told = (None, 0) if found is None else (found.device_ns, found.copy_ns)
            on_sample(Sample(phase, index, ns, *told))
        return ns

    first_ns = timed(Phase.FIRST, 0) if first else None
    warm: list[int] = []
    until = clock() + limit.most_ns
    while limit.wants(warm, clock(), until):
        warm.append(timed(Phase.WARMUP, len(warm)))
    if pace.before_samples is not None:
        pace.before_samples()
    samples: list[int] = []
    begin = clock()
    while len(samples) < iters or (iters and clock() - begin < pace.duration_ns):
        if pace.interval_ns:
            sleep(pace.interval_ns / 1e9)
        samples.append(timed(Phase.TIMED, len(samples)))
    return Stats(
        samples=tuple(samples),
        warmup=tuple(warm),
        first_inference_ns=first_ns,
        device=tuple(device),
        copies=tuple(copies),
        elapsed_ns=clock() - begin,
        warmup_stable=is_stable(warm) if limit.stable else None,
    )
