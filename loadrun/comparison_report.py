"""Comparisons as text for people and as one JSON document for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadrun.compare import CONFIDENCE, Comparison, Speed
from loadrun.divergence import Suspect
from loadrun.report import duration
from loadrun.sides import Side
from mgeserial.errors import printable

__all__ = ["KIND", "SCHEMA", "CompareReport", "document", "to_json", "to_text"]

SCHEMA = 1
KIND = "loadrun.compare"


@dataclass(slots=True)
class CompareReport:
    """All that is known after a comparison.

    Attributes:
        comparisons: The first side against each other one.
        cases: Titles of the cases.
        inputs: Name, dtype, shape and source of the inputs of the first case.
        failed: Conditions that hold and end the command with 1, as they were written.
        files: Bytes and SHA-256 by path of a model.
        iters, warmup, seed: As asked for.
        environment: Where it was measured.
        command: Arguments of the command.
    """

    comparisons: Sequence[Comparison]
    cases: Sequence[str]
    inputs: Sequence[Mapping[str, Any]]
    failed: Sequence[str] = ()
    files: Mapping[str, tuple[int | None, str | None]] = field(default_factory=dict)
    iters: int = 0
    warmup: str = ""
    seed: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: Sequence[str] = ()

    @property
    def sides(self) -> list[tuple[Side, int]]:
        """Every side once, with its threads."""
        first = self.comparisons[0]
        return [(first.a, first.threads[0]), *((c.b, c.threads[1]) for c in self.comparisons)]

    @property
    def passed(self) -> bool:
        """Whether all outputs agree within what is allowed, and no condition holds."""
        return not self.failed and all(c.passed for c in self.comparisons)


# -- text ----------------------------------------------------------------------------------------


def to_text(report: CompareReport, *, verbose: int = 0) -> str:
    """What a person wants to know: outputs, where they part, speed, verdict."""
    lines = []
    for side, threads in report.sides:
        plural = "thread" if threads == 1 else "threads"
        lines.append(f"{side.label}  {printable(side.path)} on {side.backend}, {threads} {plural}")
    for found in report.comparisons:
        lines += ["", f"{found.a.label} and {found.b.label}: outputs"]
        lines += _outputs(found)
        lines += _walk(found, verbose)
        lines += _reduced(found)
        lines += _speed(found)
        lines += [f"  note: {printable(n, limit=300)}" for n in found.notes]
    lines += ["", _verdict(report)]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"


def _outputs(found: Comparison) -> list[str]:
    head = ["output", "max abs", "max rel", "ULP", "cosine", "worst at", "A", "B", "error"]
    rows = [[*head, "allowed", ""]]
    titles = dict.fromkeys(o.case for o in found.outputs)
    for pair in found.outputs:
        close = pair.close
        name = printable(pair.name, limit=40)
        rows.append(
            [
                f"{pair.case}: {name}" if len(titles) > 1 else name,
                _number(close.max_abs),
                _number(close.max_rel),
                "n/a" if close.max_ulp is None else str(close.max_ulp),
                "n/a" if close.cosine is None else f"{close.cosine:.9f}",
                str(list(close.index)),
                f"{close.first:.6g}",
                f"{close.second:.6g}",
                _number(close.error),
                _number(close.allowed),
                close.note or ("same bits" if close.equal_bits else _mark(close.passed)),
            ]
        )
    lines = _columns(rows)
    if len(titles) == 1:
        lines.append(f"  ({next(iter(titles))}; error = |a - b| / max(1, min(|a|, |b|)), which is")
        lines.append("  the tolerance that would have passed)")
    return lines


def _mark(passed: bool) -> str:
    return "ok" if passed else "DIFFERS"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  " + "  ".join([*cells, row[-1]]).rstrip())
    return lines


def _walk(found: Comparison, verbose: int) -> list[str]:
    walk = found.walk
    if walk is None and found.cut is None:
        return []
    lines = ["", f"{found.a.label} and {found.b.label}: operators in order"]
    if walk is not None:
        text = f"  {walk.compared} values compared"
        if walk.uncomparable:
            text += f", {walk.uncomparable} operators without a counterpart"
        lines.append(text)
        if walk.first_bits is not None and walk.first_bits.node is not _node(found.fault):
            lines.append(f"  first with other bits: {_named(walk.first_bits)}")
    if found.fault is not None:
        lines += _fault(found.fault)
    elif walk is not None and walk.handed_on is not None:
        lines.append(f"  first beyond its tolerance: {_named(walk.handed_on)}")
        lines.append("  alone it agrees: small differences before it add up, none is at fault")
    elif walk is not None:
        lines.append("  every operator is within its tolerance")
    if verbose and walk is not None:
        rows = [["operator", "error", "allowed", ""]]
        for place, kind, name, error, allowed in walk.rows:
            label = f"[{place}] {kind} {printable(name, limit=48)}"
            rows.append([label, _number(error), _number(allowed), "" if error <= allowed else "!"])
        lines += _columns(rows)
    return lines


def _node(suspect: Suspect | None) -> Any:
    return None if suspect is None else suspect.node


_HOW = {
    "equal inputs": "its inputs have the same bits on both sides",
    "other operators": "other operators compute it from values that are equal",
    "alone": "run alone on equal inputs it differs too",
    "fused": "alone it agrees: it differs as part of the optimised network",
    "unknown": "its inputs cannot be compared",
}


def _fault(suspect: Suspect) -> list[str]:
    close = suspect.alone or suspect.close
    place = list(close.index)
    lines = [f"  first operator that diverges: {_named(suspect)}"]
    lines.append(
        f"    {_HOW[suspect.how]}; error {_number(close.error)} at {place}: "
        f"{close.first:.6g} and {close.second:.6g} (allowed {_number(close.allowed)})"
    )
    lines += [f"    {printable(change, limit=200)}" for change in suspect.changes]
    sources = ", ".join(printable(v.display_name, limit=40) for v in suspect.node.inputs[:4])
    if sources:
        lines.append(f"    computed from {sources}")
    return lines


def _named(suspect: Suspect) -> str:
    return f"{suspect.node.describe()}, value {printable(suspect.value.display_name)!r}"


def _reduced(found: Comparison) -> list[str]:
    part = found.reduced
    if part is None:
        return []
    noun = "operator" if len(part.nodes) == 1 else "operators"
    lines = [
        "",
        f"smallest part that differs: {len(part.nodes)} {noun}, found in {part.trials} runs",
    ]
    lines += [f"  {node.describe()}" for node in part.nodes[:12]]
    lines += [f"  saved as {printable(path)}" for path in part.files]
    if part.reproduces is not None:
        text = "fails its test case" if part.reproduces else "passes its test case"
        lines.append(f"  read back, it {text} on {found.b.backend}")
    return lines + [f"  note: {note}" for note in part.notes]


def _speed(found: Comparison) -> list[str]:
    speed = found.speed
    if speed is None:
        return []
    like = max((s.median_ns or 0 for s in (speed.a, speed.b)), default=0)
    rows = [["", "min", "median", "p90", "max", ""]]
    for side, stats in ((found.a, speed.a), (found.b, speed.b)):
        numbers = (stats.min_ns, stats.median_ns, stats.percentile_ns(90), stats.max_ns)
        rows.append([side.label, *(duration(ns, like=like) for ns in numbers), ""])
    lines = ["", f"{found.a.label} and {found.b.label}: speed, {speed.a.count} runs each in turns"]
    return [*lines, *_columns(rows), f"  {speed_text(speed, found.a.label, found.b.label)}"]


def speed_text(speed: Speed, a: str, b: str) -> str:
    """The ratio in words."""
    if speed.ratio is None:
        return "the ratio is n/a"
    text = f"{b} is {speed.ratio:.3g} times as fast as {a}"
    if speed.low is None or speed.high is None:
        return f"{text} (too few samples for an interval: --iter 5 or more)"
    text += f" ({CONFIDENCE:.0%} interval {speed.low:.3g} to {speed.high:.3g})"
    return f"{text}: no clear difference" if speed.low <= 1 <= speed.high else text


def _verdict(report: CompareReport) -> str:
    parts = []
    for found in report.comparisons:
        label = f"{found.b.label}: " if len(report.comparisons) > 1 else ""
        if all(o.close.equal_bits for o in found.outputs):
            parts.append(f"{label}outputs are equal to the bit")
        elif found.passed:
            text = f"{label}outputs agree"
            if found.fault is not None:
                text += f", though {found.fault.node.describe()} differs"
            parts.append(text)
        else:
            count = sum(not o.close.passed for o in found.outputs)
            parts.append(f"{label}outputs differ ({count} of {len(found.outputs)})")
    parts += [f"{text} holds" for text in report.failed]
    return f"verdict: {'passed' if report.passed else 'FAILED'}: {'; '.join(parts)}"


# -- JSON ----------------------------------------------------------------------------------------


def document(report: CompareReport) -> dict[str, Any]:
    """The document; see docs/compare.md for its keys."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "command": list(report.command),
        "sides": [
            {
                "label": side.label,
                "model": {
                    "path": side.path,
                    "file_bytes": report.files.get(side.path, (None, None))[0],
                    "sha256": report.files.get(side.path, (None, None))[1],
                },
                "backend": side.backend,
                "threads": threads,
                "operator_count": len(side.graph.nodes),
            }
            for side, threads in report.sides
        ],
        "iter": report.iters,
        "warmup_iter": report.warmup,
        "seed": report.seed,
        "cases": list(report.cases),
        "inputs": [dict(i) for i in report.inputs],
        "comparisons": [_comparison(c) for c in report.comparisons],
        "failed_conditions": list(report.failed),
        "passed": report.passed,
        "verdict": _verdict(report),
        "environment": dict(report.environment),
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        "a": found.a.label,
        "b": found.b.label,
        "outputs": [o.as_json() for o in found.outputs],
        "outputs_agree": found.passed,
        "walk": None if found.walk is None else found.walk.as_json(),
        "cut": None if found.cut is None else found.cut.as_json(),
        "reduced": None if found.reduced is None else found.reduced.as_json(),
        "speed": None if found.speed is None else found.speed.as_json(),
        "values": {
            name: value if value is None or math.isfinite(value) else None
            for name, value in found.values().items()
        },
        "notes": list(found.notes),
    }


def to_json(report: CompareReport) -> str:
    """The document as text, ending in a newline."""
    return json.dumps(document(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
