"""A run as one JSON document.

The document has a schema number; keys carry their units; a number that does not exist is null.
Within one schema number keys are only ever added. `schema.FIELDS` describes every key, and
docs/json.md is generated from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadrun.asserts import AssertFailure
from loadrun.figures import finite, output_figures
from loadrun.parallel import Concurrency
from loadrun.profilefile import profile_document
from loadrun.report import RunReport, findings_of, numbers
from loadrun.runner import CaseResult
from loadrun.stats import CONFIDENCE_PERCENT, Stats
from loadrun.trust import Noise, level
from mgeserial.ir.types import TensorType

__all__ = ["SCHEMA", "run_document", "to_json"]

SCHEMA = 1
_KIND = "loadrun.run"


def to_json(report: RunReport) -> str:
    """The document as text, ending in a newline."""
    return json.dumps(run_document(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def run_document(report: RunReport) -> dict[str, Any]:
    """The document."""
    outcome = report.outcome
    return {
        "schema": SCHEMA,
        "kind": _KIND,
        "command": list(report.command),
        "model": {
            "path": report.model,
            "file_bytes": report.model_bytes,
            "sha256": report.sha256,
        },
        "backend": report.backend,
        "threads": report.threads,
        "sessions": report.concurrency.sessions if report.concurrency else 1,
        "batch": report.batch,
        "iter": report.iters,
        "duration_ms": _ms(report.duration_ns),
        "interval_ms": _ms(report.interval_ns),
        "warmup_iter": report.warmup,
        "seed": report.seed,
        "copies_outputs": report.copies_outputs,
        "load_ms": _ms(report.load_ns),
        "load_ns": report.load_ns,
        "total_ms": _ms(outcome.total_ns),
        "interrupted": outcome.interrupted,
        "asserts_ok": not outcome.failed,
        "peak_memory_bytes": report.peak_memory_bytes,
        "weight_bytes": report.weight_bytes,
        "arena_bytes": report.arena_bytes,
        "workspace_bytes": report.workspace_bytes,
        "notes": list(report.notes),
        "algorithms": [
            {
                "layer": c.layer,
                "names": list(c.names),
                "choice": c.choice,
                "source": c.source,
                "candidates": [{"name": n, "time_ns": ns} for n, ns in c.times_ns.items()],
            }
            for c in report.choices
        ],
        "checks": {name: list(found) for name, found in report.checks.items()},
        "cases": [_case(result, report) for result in outcome.results],
        "together": _together(report.concurrency),
        "profile": None if report.profile is None else profile_document(report.profile),
        "memory": None if report.memory is None else dict(report.memory),
        "environment": dict(report.environment),
    }


def _together(found: Concurrency | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "sessions": found.sessions,
        "samples_count": found.samples,
        "wall_ns": found.wall_ns,
        "throughput_per_s": found.throughput_per_s,
    }


def _case(result: CaseResult, report: RunReport) -> dict[str, Any]:
    feeds, stats = result.case.feeds, result.stats
    return {
        "source": result.case.kind.value,
        "index": result.case.index,
        "session": result.session,
        "title": result.case.title,
        "inputs": [
            {
                "name": name,
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "from": feeds.sources.get(name),
            }
            for name, array in feeds.arrays.items()
        ],
        "outputs": _outputs(result, report.outputs),
        "assert_failures": [_failure(f) for f in result.failures],
        "prepare_ms": _ms(result.prepare_ns),
        "prepare_ns": result.prepare_ns,
        "first_inference_ms": _ms(stats.first_inference_ns) if stats else None,
        "first_inference_ns": stats.first_inference_ns if stats else None,
        "warmup_ns": list(stats.warmup) if stats else [],
        "warmup_stable": stats.warmup_stable if stats else None,
        "samples_ns": list(stats.samples) if stats else [],
        "host_ns": list(stats.host) if stats else [],
        "device_ns": list(stats.device) if stats else [],
        "copy_ns": list(stats.copies) if stats else [],
        "elapsed_ns": stats.elapsed_ns if stats else 0,
        "stats": _stats(stats, report) if stats else None,
        "trust": _trust(result) if stats else None,
        "system": _noise(result.noise),
    }


def _outputs(result: CaseResult, types: Mapping[str, TensorType]) -> list[dict[str, Any]]:
    return output_figures(result, types)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _stats(stats: Stats, report: RunReport) -> dict[str, Any]:
    ends = stats.median_interval_ns
    rate = stats.throughput_per_s
    means = {
        f"mean_{name}_ms": _ms(sum(part) / stats.count) if part else None
        for name, part in (
            ("host", stats.host),
            ("device", stats.device),
            ("copy", stats.copies),
        )
    }
    return {
        "count": stats.count,
        "total_ms": _ms(stats.total_ns),
        **{f"{name}_ms": _ms(ns) for name, ns in numbers(stats)},
        "mad_ms": _ms(stats.mad_ns),
        "percentiles": [
            {"percent": p, "time_ms": _ms(stats.percentile_ns(p))} for p in report.percentiles
        ],
        "median_low_ms": _ms(ends[0]) if ends else None,
        "median_high_ms": _ms(ends[1]) if ends else None,
        "confidence_percent": CONFIDENCE_PERCENT,
        **means,
        "throughput_per_s": rate,
        "samples_per_s": rate * report.batch if rate is not None and report.batch else None,
    }


def _trust(result: CaseResult) -> dict[str, Any]:
    found = findings_of(result)
    return {
        "level": level(found) if result.stats and result.stats.samples else None,
        "findings": [
            {"code": f.code, "text": f.text, "hint": f.hint, "figures": dict(f.figures)}
            for f in found
        ],
    }


def _noise(noise: Noise | None) -> dict[str, Any] | None:
    if noise is None:
        return None
    return {
        "wall_ms": noise.wall_ms,
        "involuntary_switches_count": noise.involuntary_switches,
        "steal_ms": noise.steal_ms,
        "throttled_ms": noise.throttled_ms,
        "load_average_1min": noise.load_average_1min,
    }


def _failure(failure: AssertFailure) -> dict[str, Any]:
    return {
        "output": failure.output,
        "index": list(failure.index),
        "expected": finite(failure.expected),
        "got": finite(failure.got),
        "error": finite(failure.error),
        "max_error": finite(failure.maxerr),
        "mismatches": failure.mismatches,
        "size": failure.size,
        "text": str(failure),
    }
