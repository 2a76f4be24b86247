"""All that is known after a run, and how it reads as text (`document` makes JSON of it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadrun.backends.base import LayerChoice
from loadrun.figures import output_figures
from loadrun.parallel import Concurrency
from loadrun.profiler import Profile
from loadrun.runner import CaseResult, Outcome
from loadrun.stats import CONFIDENCE_PERCENT, PERCENTILES, Stats
from loadrun.texttable import aligned, text_table
from loadrun.trust import Finding, judge, level
from mgeserial.errors import printable
from mgeserial.ir.types import TensorType

__all__ = ["RunReport", "bytes_text", "duration", "findings_of", "numbers", "to_text"]

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
        duration_ns, interval_ns: Least time to measure, pause before each sample, as asked for.
        percentiles: Percentiles to show.
        batch: First dimension that all inputs share; None where there is none.
        workspace_bytes: Scratch memory of all threads, as the backend says.
        choices: Layers whose algorithm was chosen, where that was asked for.
        copies_outputs: Whether samples include a copy of the outputs.
        concurrency: What several sessions did together; None for one.
        profile: The profile, where one was asked for.
        memory: Document of the memory plan, where it was asked for.
        checks: Results of checks of all values, by option.
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
    duration_ns: int = 0
    interval_ns: int = 0
    percentiles: Sequence[float] = PERCENTILES
    batch: int | None = None
    workspace_bytes: int | None = None
    choices: Sequence[LayerChoice] = ()
    copies_outputs: bool = False
    concurrency: Concurrency | None = None
    profile: Profile | None = None
    memory: Mapping[str, Any] | None = None
    checks: Mapping[str, Sequence[str]] = field(default_factory=dict)


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


def _rate(per_s: float | None, batch: int | None) -> str:
    if per_s is None:
        return "n/a"
    images = f", {per_s * batch:.2f} samples/s" if batch and batch > 1 else ""
    return f"{per_s:.2f} inferences/s{images}"


def to_text(report: RunReport, *, verbose: int = 0) -> str:
    """A summary to read: where, load, preparation, first inference, then the distribution.

    Args:
        report: The run.
        verbose: 1 and more adds inputs, outputs and notes.
    """
    outcome = report.outcome
    title = f"summary of {printable(report.model)}"
    lines = [f"{title} (interrupted)" if outcome.interrupted else title]
    lines += aligned(_head(report))
    if verbose:
        lines += _facts(report)
    timed = [r for r in outcome.results if r.stats is not None]
    lines += _table(report, timed) if len(timed) > 1 else _list(report, timed)
    together = report.concurrency
    if together is not None:
        lines.append(
            f"  {together.sessions} sessions together: {together.samples} inferences in "
            f"{duration(together.wall_ns)}, {_rate(together.throughput_per_s, report.batch)}"
        )
    lines += _verdict(outcome)
    if verbose:
        lines += [
            f"  {option}: {line}" for option, found in report.checks.items() for line in found
        ]
    return "\n".join(lines)


def _head(report: RunReport) -> list[tuple[str, str]]:
    """What was measured, where, and what came before the samples."""
    first = report.outcome.results[0] if report.outcome.results else None
    stats = first.stats if first else None
    rows = []
    if report.sha256 or report.model_bytes:
        digest = f", sha256 {report.sha256[:12]}" if report.sha256 else ""
        rows.append(("model", f"{bytes_text(report.model_bytes)}{digest}"))
    if report.environment:
        rows.append(("machine", _machine(report.environment)))
    rows += [
        ("backend", f"{report.backend}, {_count(report.threads, 'thread')}"),
        ("load", duration(report.load_ns)),
        ("prepare", duration(first.prepare_ns if first else None)),
        ("first inference", duration(stats.first_inference_ns if stats else None)),
    ]
    if report.peak_memory_bytes is not None:
        rows.append(("peak memory", f"{bytes_text(report.peak_memory_bytes)}{_memory(report)}"))
    if report.interval_ns:
        rows.append(("pauses", f"{duration(report.interval_ns)} before each sample"))
    return rows


def _memory(report: RunReport) -> str:
    parts = [("weights", report.weight_bytes), ("arena", report.arena_bytes)]
    shown = [f"{name} {bytes_text(size)}" for name, size in parts if size]
    return f" ({', '.join(shown)})" if shown else ""


def _machine(found: Mapping[str, Any]) -> str:
    """One line: processor, cores, limits, governor."""
    quota = found.get("cpu_quota_cores")
    parts = [
        str(found.get("cpu") or found.get("machine") or "unknown processor"),
        f"{found.get('usable_cores', '?')} of {found.get('cores', '?')} cores",
    ]
    if quota is not None:
        parts.append(f"limit {quota:g} cores")
    parts.append(f"governor {found.get('frequency_governor') or 'n/a'}")
    return ", ".join(parts)


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
            for o in output_figures(result, report.outputs)
        ]
    lines += [
        f"  {name} {found}"
        for name in ("mgeserial", "python", "numpy", "llvmlite", "system")
        if (found := report.environment.get(name))
    ]
    return lines + [f"  note: {printable(note, limit=300)}" for note in report.notes]


def _short(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.6g}"


def numbers(
    stats: Stats, percentiles: Sequence[float] = PERCENTILES
) -> list[tuple[str, float | None]]:
    """The distribution in the order it is shown, ns."""
    return [
        ("min", stats.min_ns),
        ("median", stats.median_ns),
        ("mean", stats.mean_ns),
        ("sd", stats.sd_ns),
        *((f"p{p:g}", stats.percentile_ns(p)) for p in percentiles),
        ("max", stats.max_ns),
    ]


def _list(report: RunReport, results: Sequence[CaseResult]) -> list[str]:
    """One number a line, all in the unit of the median."""
    lines = []
    for result in results:
        assert result.stats is not None
        stats = result.stats
        lines.append(f"  inference ({_count(stats.count, 'run')}, {result.case.title})")
        like = stats.median_ns
        rows = [(name, duration(ns, like=like)) for name, ns in numbers(stats, report.percentiles)]
        width = max(len(value) for _, value in rows)
        rows = [(name, value.rjust(width)) for name, value in rows]
        ends = stats.median_interval_ns
        if ends is not None:
            low, high = (duration(ns, like=like) for ns in ends)
            rows.insert(2, ("", f"{low} to {high} ({CONFIDENCE_PERCENT} % confidence)"))
        rows.append(("throughput", _rate(stats.throughput_per_s, report.batch).rjust(width)))
        lines += aligned(rows, "    ")
        lines += _parts(report, stats)
        lines += _trust(result)
    return lines


def _parts(report: RunReport, stats: Stats) -> list[str]:
    """Means of the parts, which add up to the mean of the whole."""
    if not stats.device or not stats.total_ns:
        return []
    like = stats.mean_ns
    copied = "outputs to the caller" if report.copies_outputs else "to and from the device"
    parts = [
        ("host", sum(stats.host), "the call: checks, pointers, memory for outputs"),
        ("device", sum(stats.device), "kernels, first start to last end"),
        ("copy", sum(stats.copies), f"copies {copied}"),
    ]
    lines = ["    parts of the mean, which add up to it"]
    for name, total, legend in parts:
        mean = duration(total / stats.count, like=like)
        lines.append(f"      {name:<6}  {mean:>12}  {total / stats.total_ns:6.1%}  {legend}")
    return lines


def findings_of(result: CaseResult) -> list[Finding]:
    """What speaks against a case's numbers; see `trust.judge`."""
    if result.stats is None:
        return []
    varying = result.case.varying if result.case.random else ()
    return judge(result.stats, result.noise, varying)


def _trust(result: CaseResult) -> list[str]:
    """The verdict, and what to do about it."""
    if result.stats is None or not result.stats.samples:
        return []
    found = findings_of(result)
    return [f"    trust: {level(found)}", *(f"      {finding}" for finding in found)]


def _table(report: RunReport, results: Sequence[CaseResult]) -> list[str]:
    """One case a row."""
    medians = [r.stats.median_ns for r in results if r.stats and r.stats.median_ns is not None]
    like = max(medians, default=None)
    names = [name for name, _ in numbers(Stats(()), report.percentiles)]
    rows, notes = [], []
    for result in results:
        assert result.stats is not None
        title = result.case.title
        if report.concurrency is not None:
            title = f"session {result.session}, {title}"
        times = [duration(ns, like=like) for _, ns in numbers(result.stats, report.percentiles)]
        rate = _rate(result.stats.throughput_per_s, report.batch)
        rows.append([title, str(result.stats.count), *times, rate])
        notes += [f"  {title}: {line.strip()}" for line in _trust(result)[1:]]
    return [*text_table(["", "runs", *names, "throughput"], rows), *notes]


def _verdict(outcome: Outcome) -> list[str]:
    checked = [r for r in outcome.results if r.failures]
    if not checked:
        return []
    total = len(outcome.results)
    return [f"  outputs differ from the expected ones in {len(checked)} of {total} cases"]
