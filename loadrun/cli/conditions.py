"""`--fail-if` for runs: conditions over the numbers of each case."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadrun.gates import Condition
    from loadrun.report import RunReport

__all__ = ["RUN", "hold", "read"]

# What a condition of a run may name, with what it is.
RUN = {
    "min_ms": "smallest sample, ms",
    "median_ms": "median, ms",
    "mean_ms": "mean, ms",
    "sd_ms": "standard deviation, ms",
    "p90_ms": "90th percentile, ms",
    "p95_ms": "95th percentile, ms",
    "p99_ms": "99th percentile, ms",
    "max_ms": "largest sample, ms",
    "first_ms": "first inference, ms",
    "load_ms": "time to load, ms",
    "throughput_per_s": "inferences a second",
    "peak_memory_bytes": "most memory of the process, bytes",
    "arena_bytes": "memory for activations, bytes",
}


def read(texts: Sequence[str], names: Mapping[str, object]) -> list[Condition]:
    """Conditions as they were written.

    Raises:
        InputError: One cannot be read, or names what does not exist.
    """
    from loadrun.gates import Condition

    found = [Condition.parse(text) for text in texts]
    for condition in found:
        condition.check_names(names)
    return found


def hold(conditions: Sequence[Condition], report: RunReport) -> bool:
    """Whether any condition holds for any case; says which, on stderr."""
    found = False
    for result in report.outcome.results:
        stats = result.stats
        if stats is None:
            continue

        def ms(ns: float | None) -> float | None:
            return None if ns is None else ns / 1e6

        values = {
            "min_ms": ms(stats.min_ns),
            "median_ms": ms(stats.median_ns),
            "mean_ms": ms(stats.mean_ns),
            "sd_ms": ms(stats.sd_ns),
            **{f"p{p}_ms": ms(stats.percentile_ns(p)) for p in (90, 95, 99)},
            "max_ms": ms(stats.max_ns),
            "first_ms": ms(stats.first_inference_ns),
            "load_ms": ms(report.load_ns),
            "throughput_per_s": stats.throughput_per_s,
            "peak_memory_bytes": report.peak_memory_bytes,
            "arena_bytes": report.arena_bytes,
        }
        for condition in conditions:
            if condition.holds(values):
                found = True
                print(f"--fail-if: {condition.text} ({result.case.title})", file=sys.stderr)
    return found
