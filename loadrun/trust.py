"""Whether the numbers of a measurement can be trusted, and what to do where they cannot.

Rules, each a finding with its figures and the way out; the limits are stated beside them:

* few: less than 10 samples.
* unstable: the median distance to the median is above 5 % of the median.
* drift: the last third of at least 12 samples is 5 % slower or faster than the first third, and by
  more than twice the median distance to the median inside a third.
* tail: of at least 20 samples, p99 is above twice the median.
* cold: the first sample is above twice the median (of at least 5).
* short: the median is below 10 us, where the clock's own cost shows.
* made-up: random inputs meet operators whose work depends on values.
* not-warm: a warm-up "until stable" ended without being so.
* throttled, steal, crowded, governor, busy: what the system says of the time it was measured in.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadrun.stats import Stats

__all__ = ["Finding", "Noise", "NoiseProbe", "judge", "level"]

_FEW = 10
_SPREAD = 0.05
_DRIFT = 0.05
_TAIL = 2.0
_SHORT_NS = 10_000
_STEAL = 0.01
_SWITCHES = 20
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to doubt the numbers.

    Attributes:
        code: Its name, for programs.
        text: What was found, with figures.
        hint: What to do.
        figures: The numbers, with their units in the keys.
    """

    code: str
    text: str
    hint: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}"


@dataclass(frozen=True, slots=True)
class Noise:
    """What the system counted while samples were taken; None for what it does not say."""

    wall_ms: float = 0.0
    involuntary_switches: int | None = None
    steal_ms: float | None = None
    throttled_ms: float | None = None
    load_average_1min: float | None = None
    usable_cores: int | None = None
    governor: str | None = None


class NoiseProbe:
    """Reads the system's counters when made and when asked."""

    def __init__(self) -> None:
        self._before = _counters()

    def read(self) -> Noise:
        """What happened since."""
        from loadrun.environment import frequency_governor, usable_cores

        now = _counters()
        found = {k: now[k] - v for k, v in self._before.items() if k in now}
        load = None
        with contextlib.suppress(OSError, AttributeError):
            load = os.getloadavg()[0]
        switches = found.get("switches")
        return Noise(
            wall_ms=found["wall"] * 1e3,
            involuntary_switches=None if switches is None else int(switches),
            steal_ms=None if "steal" not in found else found["steal"] * 1e3,
            throttled_ms=None if "throttled" not in found else found["throttled"] * 1e3,
            load_average_1min=load,
            usable_cores=usable_cores(),
            governor=frequency_governor(),
        )


def _counters() -> dict[str, float]:
    """Seconds, and numbers of events, since the system or the process started."""
    found = {"wall": time.monotonic()}
    with contextlib.suppress(ImportError):
        import resource

        found["switches"] = float(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
        found["steal"] = int(fields[8]) / os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError, ValueError):
        text = Path("/sys/fs/cgroup/cpu.stat").read_text(encoding="ascii")
        counts = dict(line.split(" ", 1) for line in text.splitlines())
        if "throttled_usec" in counts:
            found["throttled"] = int(counts["throttled_usec"]) / 1e6
    return found


def judge(stats: Stats, noise: Noise | None = None, varying: Sequence[str] = ()) -> list[Finding]:
    """Everything that speaks against the numbers, worst first.

    Args:
        stats: The samples.
        noise: What the system counted meanwhile.
        varying: Kinds of operators that were given random values and whose work depends on them.
    """
    if not stats.samples:
        return []
    found = [
        _unstable(stats),
        _drift(stats),
        _tail(stats),
        _cold(stats),
        _few(stats),
        _made_up(varying),
        _not_warm(stats),
        _short(stats),
    ]
    if noise is not None:
        found += _system(noise, stats)
    return [item for item in found if item is not None]


def level(findings: list[Finding]) -> str:
    """`good`, `fair` (single numbers are rough) or `poor` (do not compare with them)."""
    bad = {"unstable", "drift", "throttled", "not-warm"} & {f.code for f in findings}
    if bad or len(findings) > 2:
        return "poor"
    return "fair" if findings else "good"


def _few(stats: Stats) -> Finding | None:
    if stats.count >= _FEW:
        return None
    return Finding(
        "few",
        f"too few samples: {stats.count}",
        "raise --iter to 50 or more, or give --duration 3s",
        {"samples_count": stats.count},
    )


def _unstable(stats: Stats) -> Finding | None:
    spread = stats.spread
    if spread is None or spread <= _SPREAD:
        return None
    return Finding(
        "unstable",
        f"unstable: the median distance to the median is {spread:.0%} of it",
        "close other programs, or raise --iter and --warmup-iter",
        {"spread_percent": spread * 100},
    )


def _drift(stats: Stats) -> Finding | None:
    third = stats.count // 3
    if third < 4:
        return None
    ends = Stats(stats.samples[:third]), Stats(stats.samples[-third:])
    first, last = (end.median_ns or 0.0 for end in ends)
    change = (last - first) / first if first else 0.0
    noise = max(end.mad_ns or 0.0 for end in ends)
    if abs(change) <= _DRIFT or abs(last - first) <= 2 * noise:
        return None
    hint = (
        "the machine may be getting hot: pause with --interval 50 and compare"
        if change > 0
        else "the machine was still speeding up: --warmup-iter stable"
    )
    return Finding(
        "drift", f"drift {change:+.0%} over the run", hint, {"drift_percent": change * 100}
    )


def _tail(stats: Stats) -> Finding | None:
    middle, high = stats.median_ns, stats.percentile_ns(99)
    if stats.count < 20 or not middle or high is None or high <= _TAIL * middle:
        return None
    ratio = high / middle
    slow = sum(x > _TAIL * middle for x in stats.samples)
    return Finding(
        "tail",
        f"p99/p50 = {ratio:.1f}, {slow} of {stats.count} samples above twice the median",
        "compare medians, not means; use fewer threads than cores",
        {"p99_to_p50_ratio": ratio, "slow_samples_count": slow},
    )


def _cold(stats: Stats) -> Finding | None:
    middle = stats.median_ns
    if stats.count < 5 or not middle or stats.samples[0] <= 2 * middle:
        return None
    ratio = stats.samples[0] / middle
    return Finding(
        "cold",
        f"the first sample took {ratio:.1f} times the median",
        "warm up longer: --warmup-iter stable",
        {"first_to_median_ratio": ratio},
    )


def _made_up(varying: Sequence[str]) -> Finding | None:
    if not varying:
        return None
    return Finding(
        "made-up",
        f"random inputs: the work of {', '.join(varying)} depends on the values",
        "give real ones with --input, or a model with test cases",
        {"operator_kinds_count": len(varying)},
    )


def _not_warm(stats: Stats) -> Finding | None:
    if stats.warmup_stable is not False:
        return None
    return Finding(
        "not-warm",
        f"times were not stable after {len(stats.warmup)} warm-up runs",
        "close other programs",
        {"warmup_count": len(stats.warmup)},
    )


def _short(stats: Stats) -> Finding | None:
    middle = stats.median_ns
    if middle is None or middle >= _SHORT_NS:
        return None
    return Finding(
        "short",
        "short: below 10 us the clock's own cost is part of each number",
        "raise --batch-size",
        {"median_ns": middle},
    )


def _system(noise: Noise, stats: Stats) -> list[Finding | None]:
    found: list[Finding | None] = []
    if noise.throttled_ms:
        found.append(
            Finding(
                "throttled",
                f"the control group's limit stopped the process for {noise.throttled_ms:.0f} ms",
                "use fewer threads than the limit grants cores, or raise the limit",
                {"throttled_ms": noise.throttled_ms},
            )
        )
    # The kernel counts in ticks of 10 ms: a single one means nothing.
    if noise.steal_ms and noise.steal_ms > max(_STEAL * noise.wall_ms, 20.0):
        found.append(
            Finding(
                "steal",
                f"noisy neighbours: the host took the cores away for {noise.steal_ms:.0f} ms",
                "measure again, or on a machine of your own",
                {"steal_ms": noise.steal_ms},
            )
        )
    switches = noise.involuntary_switches
    if switches and switches > max(stats.count, _SWITCHES):
        found.append(
            Finding(
                "crowded",
                f"other programs took a core {switches} times during {stats.count} samples",
                "close them, or use fewer threads",
                {"involuntary_switches_count": switches},
            )
        )
    if noise.governor == "powersave":
        found.append(
            Finding(
                "governor",
                "the frequency governor is `powersave`",
                "set it to `performance` for measurements",
            )
        )
    return found
