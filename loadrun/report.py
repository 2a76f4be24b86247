"""Results as text for people and as one JSON document for programs.

The JSON document has a schema number; keys carry their units (`_ns`, `_ms`, `_bytes`, `_per_s`); a
number that does not exist is null. Within one schema number keys are only ever added.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadrun.asserts import AssertFailure
from loadrun.runner import CaseResult, Outcome
from loadrun.stats import PERCENTILES, Stats
from mgeserial.dtypes import Array
from mgeserial.errors import printable
from mgeserial.ir.types import TensorType

__all__ = ["SCHEMA", "RunReport", "bytes_text", "duration", "to_json", "to_text"]

SCHEMA = 1
# Above this spread (MAD / median) single numbers of a measurement say little.
_UNSTABLE = 0.05
# Below this the clock's own cost is a visible part of a sample.
_SHORT_NS = 10_000
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


@dataclass(slots=True)
class RunReport:
    """All that is known after a run.

    Attributes:
        model: Path of the model.
        model_bytes: Size of the file.
        sha256: Of the file, where it was asked for.
        backend: Name of the backend.
        threads: Threads it ran on.
        load_ns: Time to read the file and make the session, ns.
        seed: Seed of random inputs.
        iters: Samples asked for in each case.
        warmup: Warm-up asked for, as on the command line.
        outcome: Results of all cases.
        outputs: Types of the outputs by name.
        environment: Where it was measured.
        peak_memory_bytes: Most memory the process held.
        weight_bytes: Memory for weights, as the backend says.
        arena_bytes: Memory for activations, as the backend says.
        notes: What the backend wants people to know.
        command: Arguments of the command.
    """

    model: str
    backend: str
    threads: int
    outcome: Outcome
    outputs: Mapping[str, TensorType]
    iters: int
    warmup: str
    load_ns: int = 0
    seed: int = 0
    model_bytes: int | None = None
    sha256: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    weight_bytes: int | None = None
    arena_bytes: int | None = None
    notes: Sequence[str] = ()
    command: Sequence[str] = ()


# -- text ----------------------------------------------------------------------------------------


def duration(ns: float | None, *, like: float | None = None) -> str:
    """A time with its unit, `n/a` for None.

    Args:
        ns: The time, ns.
        like: A time whose unit is to be used, so that a column has one unit.
    """
    if ns is None:
        return "n/a"
    scale = abs(ns if like is None else like)
    size, unit = next(((s, u) for s, u in _UNITS if scale >= s), _UNITS[-1])
    return f"{ns / size:.3f} {unit}"


def bytes_text(count: int | None) -> str:
    """A number of bytes with its unit, `n/a` for None."""
    if count is None:
        return "n/a"
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rate(per_s: float | None) -> str:
    return "n/a" if per_s is None else f"{per_s:.2f} inferences/s"


def to_text(report: RunReport, *, verbose: int = 0) -> str:
    """A summary to read: load, preparation, first inference, then the distribution.

    Args:
        report: The run.
        verbose: 1 and more adds inputs, outputs and notes.
    """
    outcome = report.outcome
    first = outcome.results[0] if outcome.results else None
    rows = [
        ("backend", f"{report.backend}, {_count(report.threads, 'thread')}"),
        ("load", duration(report.load_ns)),
        ("prepare", duration(first.prepare_ns if first else None)),
        (
            "first inference",
            duration(first.stats.first_inference_ns if first and first.stats else None),
        ),
    ]
    if report.peak_memory_bytes is not None:
        rows.append(("peak memory", bytes_text(report.peak_memory_bytes)))
    title = f"summary of {printable(report.model)}"
    lines = [f"{title} (interrupted)" if outcome.interrupted else title]
    lines += _aligned(rows)
    if verbose:
        lines += _facts(report)
    timed = [r for r in outcome.results if r.stats is not None]
    lines += _table(timed) if len(timed) > 1 else _list(timed)
    lines += _verdict(outcome)
    return "\n".join(lines)


def _aligned(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{indent}{name:<{width}}  {value}" for name, value in rows]


def _facts(report: RunReport) -> list[str]:
    lines = []
    for result in report.outcome.results:
        lines += [
            f"  {result.case.title}: input {printable(name)} {a.dtype} {a.shape}: "
            f"{printable(result.case.feeds.sources.get(name, ''))}"
            for name, a in result.case.feeds.arrays.items()
        ]
        lines += [
            f"  {result.case.title}: output {printable(o['name'])} {o['dtype']} "
            f"{tuple(o['shape'])}: min {_short(o['min'])}, max {_short(o['max'])}, "
            f"mean {_short(o['mean'])}, rms {_short(o['rms'])}"
            for o in _outputs(result, report.outputs)
        ]
    lines += [f"  weights {bytes_text(report.weight_bytes)}"] if report.weight_bytes else []
    lines += [f"  activations {bytes_text(report.arena_bytes)}"] if report.arena_bytes else []
    return lines + [f"  note: {printable(note, limit=300)}" for note in report.notes]


def _short(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.6g}"


def _numbers(stats: Stats) -> list[tuple[str, float | None]]:
    """The distribution in the order it is shown, ns."""
    return [
        ("min", stats.min_ns),
        ("median", stats.median_ns),
        ("mean", stats.mean_ns),
        ("sd", stats.sd_ns),
        *((f"p{p}", stats.percentile_ns(p)) for p in PERCENTILES),
        ("max", stats.max_ns),
    ]


def _list(results: Sequence[CaseResult]) -> list[str]:
    """One number a line, all in the unit of the median."""
    lines = []
    for result in results:
        assert result.stats is not None
        stats = result.stats
        lines.append(f"  inference ({_count(stats.count, 'run')}, {result.case.title})")
        like = stats.median_ns
        rows = [(name, duration(ns, like=like)) for name, ns in _numbers(stats)]
        width = max(len(value) for _, value in rows)
        rows = [(name, value.rjust(width)) for name, value in rows]
        rows.append(("throughput", _rate(stats.throughput_per_s).rjust(width)))
        lines += _aligned(rows, "    ")
        lines += [f"    {text}" for text in _advice(stats)]
    return lines


def _table(results: Sequence[CaseResult]) -> list[str]:
    """One case a row."""
    medians = [r.stats.median_ns for r in results if r.stats and r.stats.median_ns is not None]
    like = max(medians, default=None)
    rows = [["", "runs", *(name for name, _ in _numbers(Stats(()))), "throughput"]]
    notes = []
    for result in results:
        assert result.stats is not None
        times = [duration(ns, like=like) for _, ns in _numbers(result.stats)]
        rate = _rate(result.stats.throughput_per_s)
        rows.append([result.case.title, str(result.stats.count), *times, rate])
        notes += [f"  {result.case.title}: {text}" for text in _advice(result.stats)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  " + "  ".join(cells))
    return lines + notes


def _advice(stats: Stats) -> list[str]:
    """What a reader should know before trusting the numbers."""
    advice = []
    if stats.spread is not None and stats.spread > _UNSTABLE:
        advice.append(
            f"unstable: the median distance to the median is {stats.spread:.0%} of it; "
            "close other programs, or raise --iter and --warmup-iter"
        )
    if stats.median_ns is not None and stats.median_ns < _SHORT_NS:
        advice.append("short: below 10 us the clock's own cost is part of each number")
    return advice


def _verdict(outcome: Outcome) -> list[str]:
    checked = [r for r in outcome.results if r.failures]
    if not checked:
        return []
    total = len(outcome.results)
    return [f"  outputs differ from the expected ones in {len(checked)} of {total} cases"]


# -- JSON ----------------------------------------------------------------------------------------


def to_json(report: RunReport) -> str:
    """The document as text, ending in a newline."""
    return json.dumps(_document(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _document(report: RunReport) -> dict[str, Any]:
    outcome = report.outcome
    return {
        "schema": SCHEMA,
        "kind": "loadrun.run",
        "command": list(report.command),
        "model": {
            "path": report.model,
            "file_bytes": report.model_bytes,
            "sha256": report.sha256,
        },
        "backend": report.backend,
        "threads": report.threads,
        "iter": report.iters,
        "warmup_iter": report.warmup,
        "seed": report.seed,
        "load_ms": _ms(report.load_ns),
        "load_ns": report.load_ns,
        "total_ms": _ms(outcome.total_ns),
        "interrupted": outcome.interrupted,
        "asserts_ok": not outcome.failed,
        "peak_memory_bytes": report.peak_memory_bytes,
        "weight_bytes": report.weight_bytes,
        "arena_bytes": report.arena_bytes,
        "notes": list(report.notes),
        "cases": [_case(result, report.outputs) for result in outcome.results],
        "environment": dict(report.environment),
    }


def _case(result: CaseResult, types: Mapping[str, TensorType]) -> dict[str, Any]:
    feeds, stats = result.case.feeds, result.stats
    return {
        "source": result.case.kind.value,
        "index": result.case.index,
        "inputs": [
            {
                "name": name,
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "from": feeds.sources.get(name),
            }
            for name, array in feeds.arrays.items()
        ],
        "outputs": _outputs(result, types),
        "assert_failures": [_failure(f) for f in result.failures],
        "prepare_ms": _ms(result.prepare_ns),
        "prepare_ns": result.prepare_ns,
        "first_inference_ms": _ms(stats.first_inference_ns) if stats else None,
        "first_inference_ns": stats.first_inference_ns if stats else None,
        "warmup_ns": list(stats.warmup) if stats else [],
        "samples_ns": list(stats.samples) if stats else [],
        "stats": _stats(stats) if stats else None,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _stats(stats: Stats) -> dict[str, Any]:
    return {
        "count": stats.count,
        "total_ms": _ms(stats.total_ns),
        **{f"{name}_ms": _ms(ns) for name, ns in _numbers(stats)},
        "mad_ms": _ms(stats.mad_ns),
        "throughput_per_s": stats.throughput_per_s,
        "notes": _advice(stats),
    }


def _failure(failure: AssertFailure) -> dict[str, Any]:
    return {
        "output": failure.output,
        "index": list(failure.index),
        "expected": _finite(failure.expected),
        "got": _finite(failure.got),
        "error": _finite(failure.error),
        "max_error": _finite(failure.maxerr),
        "mismatches": failure.mismatches,
        "size": failure.size,
        "text": str(failure),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _outputs(result: CaseResult, types: Mapping[str, TensorType]) -> list[dict[str, Any]]:
    """Type, shape and a few numbers of each output: enough to see that two runs agree."""
    return [
        {
            "name": name,
            "dtype": str(types[name].dtype),
            "shape": list(array.shape),
            **_figures(array, types[name]),
        }
        for name, array in (result.outputs or {}).items()
    ]


def _figures(array: Array, declared: TensorType) -> dict[str, float | None]:
    """Smallest, largest, mean and root mean square of the real values; null for NaN or nothing."""
    import numpy as np

    from mgeserial.ops.numerics import to_real

    if not array.size or array.dtype.kind == "c":
        return dict.fromkeys(("min", "max", "mean", "rms"))
    plain = declared.dtype.is_integer
    real = np.asarray(array if plain else to_real(array, declared.dtype), np.float64)
    with np.errstate(all="ignore"):
        numbers = {
            "min": real.min(),
            "max": real.max(),
            "mean": real.mean(),
            "rms": np.sqrt(np.mean(real * real)),
        }
    return {name: _finite(float(value)) for name, value in numbers.items()}
