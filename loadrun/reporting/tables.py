"""What the documents hold as tables: the page shows them, CSV files hold them with their units."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadrun.reporting.markup import Markup, tag
from loadrun.reporting.units import bytes_label, number, percent, time_label

__all__ = ["Column", "Table", "as_csv", "as_html", "case_title", "profile_rows", "tables"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key with the unit, its title, and how its values are shown.

    `kind` is `text`, `number`, `ns`, `ms`, `bytes`, `percent` or `flag`.
    """

    key: str
    title: str
    kind: str = "number"


@dataclass(frozen=True, slots=True)
class Table:
    """A table; rows hold plain values in the unit of the column's key."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    marked: int | None = None


def tables(document: Mapping[str, Any]) -> list[Table]:
    """All tables of a document, the main one first."""
    makers = {"loadrun.run": _run, "loadrun.compare": _compare, "loadrun.sweep": _sweep}
    found = makers[document["kind"]](document)
    return [t for t in [*found, environment(document)] if t.rows]


def _rows(
    records: object, columns: Sequence[Column], **constant: Any
) -> tuple[tuple[Any, ...], ...]:
    if not isinstance(records, Sequence):
        return ()
    known = [r for r in records if isinstance(r, Mapping)]
    return tuple(tuple({**r, **constant}.get(c.key) for c in columns) for r in known)


def _present(key: str, title: str, columns: Sequence[Column], records: Any) -> Table:
    """A table of the columns for which any record has a value."""
    records = [r for r in records or () if isinstance(r, Mapping)]
    shown = tuple(c for c in columns if any(r.get(c.key) not in (None, "") for r in records))
    return Table(key, title, shown, _rows(records, shown))


# -- runs -----------------------------------------------------------------------------------------

_STATS = (
    Column("case", "case", "text"),
    Column("count", "runs"),
    Column("min_ms", "min", "ms"),
    Column("median_ms", "median", "ms"),
    Column("median_low_ms", "95 % low", "ms"),
    Column("median_high_ms", "95 % high", "ms"),
    Column("mean_ms", "mean", "ms"),
    Column("sd_ms", "sd", "ms"),
    Column("mad_ms", "MAD", "ms"),
    Column("p90_ms", "p90", "ms"),
    Column("p95_ms", "p95", "ms"),
    Column("p99_ms", "p99", "ms"),
    Column("max_ms", "max", "ms"),
    Column("throughput_per_s", "inferences/s"),
    Column("samples_per_s", "samples/s"),
    Column("mean_host_ms", "host", "ms"),
    Column("mean_device_ms", "device", "ms"),
    Column("mean_copy_ms", "copies", "ms"),
)


def case_title(case: Mapping[str, Any]) -> str:
    """What a person calls a case; documents of older versions do not say."""
    if case.get("title"):
        session = case.get("session")
        return f"{case['title']}, session {session}" if session else str(case["title"])
    if case.get("source") == "testcase":
        return f"test case {case.get('index')}"
    inputs = case.get("inputs") or ()
    made_up = [str(i.get("from", "")).startswith("random") for i in inputs]
    if not inputs:
        return "no inputs"
    return "random inputs" if all(made_up) else "given inputs"


def _run(document: Mapping[str, Any]) -> list[Table]:
    cases = document.get("cases") or []
    stats = [{**(c.get("stats") or {}), "case": case_title(c)} for c in cases if c.get("stats")]
    samples = [
        {"case": case_title(c), "run": k, "time_ns": ns, "device_ns": _nth(c, "device_ns", k)}
        for c in cases
        for k, ns in enumerate(c.get("samples_ns") or ())
    ]
    outputs = [{**o, "case": case_title(c)} for c in cases for o in c.get("outputs") or ()]
    for output in outputs:
        output["shape"] = _shape(output.get("shape"))
    sampled = (
        Column("case", "case", "text"),
        Column("run", "run"),
        Column("time_ns", "time", "ns"),
        Column("device_ns", "device", "ns"),
    )
    shown = (
        Column("case", "case", "text"),
        Column("name", "output", "text"),
        Column("dtype", "type", "text"),
        Column("shape", "shape", "text"),
        *(Column(n, n) for n in ("min", "max", "mean", "rms")),
    )
    return [
        _present("statistics", "Latency", _STATS, stats),
        *profile_tables(document),
        memory_table(document),
        _present("algorithms", "Algorithms", _CHOICES, list(_choices(document))),
        _present("outputs", "Outputs", shown, outputs),
        _present("samples", "Samples", sampled, samples),
    ]


_CHOICES = (
    Column("layer", "layer", "text"),
    Column("layers_count", "layers"),
    Column("choice", "choice", "text"),
    Column("source", "chosen by", "text"),
    Column("choice_ns", "time", "ns"),
    Column("default_ns", "default", "ns"),
    Column("others", "candidates, the fastest first", "text"),
)


def _choices(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Layers whose algorithm was chosen, with the times that were measured."""
    found = document.get("algorithms")
    for record in found if isinstance(found, list) else ():
        if not isinstance(record, Mapping):
            continue
        names, measured = record.get("names"), record.get("candidates")
        known = measured if isinstance(measured, list) else ()
        pairs = [(c.get("name"), c.get("time_ns")) for c in known if isinstance(c, Mapping)]
        taken = {str(name): ns for name, ns in pairs if isinstance(ns, (int, float))}
        ranked = sorted(taken.items(), key=lambda item: item[1])
        yield {
            **record,
            "layers_count": len(names) if isinstance(names, list) else None,
            "choice_ns": taken.get(str(record.get("choice"))),
            "default_ns": taken.get("default"),
            "others": ", ".join(f"{name} {time_label(ns)}" for name, ns in ranked),
        }


def _nth(case: Mapping[str, Any], key: str, k: int) -> Any:
    found = case.get(key)
    return found[k] if isinstance(found, list) and k < len(found) else None


def _shape(shape: Any) -> str:
    return "×".join(map(str, shape)) if isinstance(shape, list) else ""


_STEPS = (
    Column("step", "step"),
    Column("name", "operator", "text"),
    Column("type", "type", "text"),
    Column("output", "output", "text"),
    Column("kernel", "kernel", "text"),
    Column("time_ms", "time", "ms"),
    Column("share_percent", "share", "percent"),
    Column("gflop_per_s", "GFLOP/s"),
    Column("gbyte_per_s", "GB/s"),
    Column("flop_peak_percent", "of FLOP peak", "percent"),
    Column("bytes_peak_percent", "of GB peak", "percent"),
)
_TYPES = (
    Column("type", "type", "text"),
    Column("steps_count", "steps"),
    Column("time_ms", "time", "ms"),
    Column("share_percent", "share", "percent"),
)


def profile_tables(document: Mapping[str, Any]) -> list[Table]:
    """Operators and types of operators with their times."""
    profile = document.get("profile")
    if not isinstance(profile, Mapping):
        return []
    types = [{**t, "time_ms": _over(t, "median_ns", 1e6)} for t in profile.get("types") or ()]
    types.sort(key=lambda t: -(t["time_ms"] or 0))
    return [
        _present("operators", "Operators", _STEPS, profile_rows(profile)),
        _present("types", "Types of operators", _TYPES, types),
    ]


def profile_rows(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One record a step of a profile, in order, with the columns of its table."""
    rows = []
    for k, step in enumerate(profile.get("steps") or ()):
        if isinstance(step, Mapping):
            outputs = step.get("outputs") or ()
            rows.append(
                {
                    **step,
                    "step": k,
                    "output": ", ".join(map(str, outputs)),
                    "kernel": " ".join(
                        str(step[n]) for n in ("kernel", "algorithm") if step.get(n)
                    ),
                    "time_ms": _over(step, "median_ns", 1e6),
                    "gflop_per_s": _over(step, "flop_per_s", 1e9),
                    "gbyte_per_s": _over(step, "bytes_per_s", 1e9),
                }
            )
    return rows


def _over(record: Mapping[str, Any], key: str, unit: float) -> float | None:
    value = record.get(key)
    return value / unit if isinstance(value, (int, float)) else None


def memory_table(document: Mapping[str, Any]) -> Table:
    """Values in memory, the largest first."""
    plan = document.get("memory")
    values = plan.get("values") or [] if isinstance(plan, Mapping) else []
    columns = (
        Column("name", "value", "text"),
        Column("size_bytes", "size", "bytes"),
        Column("offset_bytes", "offset", "bytes"),
        Column("first_step_index", "first step"),
        Column("last_step_index", "last step"),
    )
    ordered = sorted(values, key=lambda v: -(v.get("size_bytes") or 0))
    return _present("memory", "Values in memory", columns, ordered)


# -- comparisons and sweeps -----------------------------------------------------------------------


def _compare(document: Mapping[str, Any]) -> list[Table]:
    outputs, speeds, operators = [], [], []
    for found in document.get("comparisons") or ():
        pair = f"{found.get('a')}, {found.get('b')}"
        outputs += [
            {**o, "sides": pair, "shape": _shape(o.get("shape"))}
            for o in found.get("outputs") or ()
        ]
        if found.get("speed"):
            speeds.append({**found["speed"], "sides": pair})
        walk = found.get("walk") or {}
        operators += [{**o, "sides": pair} for o in walk.get("operators") or ()]
    for output in outputs:
        output["worst"] = ", ".join(map(str, output.get("worst_index") or ()))
    sides = Column("sides", "sides", "text")
    compared = (
        sides,
        Column("case", "case", "text"),
        Column("name", "output", "text"),
        Column("dtype", "type", "text"),
        Column("shape", "shape", "text"),
        Column("max_abs", "max abs"),
        Column("max_rel", "max rel"),
        Column("max_ulp_count", "ULP"),
        Column("cosine", "cosine"),
        Column("worst", "worst at", "text"),
        Column("worst_a", "A"),
        Column("worst_b", "B"),
        Column("error", "would have passed"),
        Column("allowed_error", "allowed"),
        Column("passed", "agrees", "flag"),
    )
    timed = (
        sides,
        Column("sample_count", "runs each"),
        Column("a_median_ms", "median A", "ms"),
        Column("b_median_ms", "median B", "ms"),
        Column("a_p90_ms", "p90 A", "ms"),
        Column("b_p90_ms", "p90 B", "ms"),
        Column("speed_ratio", "A / B"),
        Column("low_ratio", "95 % low"),
        Column("high_ratio", "95 % high"),
    )
    walked = (
        sides,
        Column("operator_index", "place"),
        Column("type", "type", "text"),
        Column("name", "operator", "text"),
        Column("error", "error"),
        Column("allowed_error", "allowed"),
    )
    return [
        _present("outputs", "Outputs", compared, outputs),
        _present("speed", "Speed, in turns", timed, speeds),
        _present("walk", "Operators in order", walked, operators),
    ]


_SWEPT = (
    Column("shapes", "shapes", "text"),
    Column("batch", "batch"),
    Column("threads", "threads"),
    Column("backend", "backend", "text"),
    Column("switches", "switches", "text"),
    Column("median_ms", "median", "ms"),
    Column("p90_ms", "p90", "ms"),
    Column("samples_per_s", "samples/s"),
    Column("prepare_ms", "prepare", "ms"),
    Column("arena_bytes", "activations", "bytes"),
    Column("state", "state", "text"),
)


def _sweep(document: Mapping[str, Any]) -> list[Table]:
    table = _present("combinations", "Combinations", _SWEPT, document.get("combinations"))
    best = document.get("best_index")
    return [Table(table.key, table.title, table.columns, table.rows, best)]


_SETTINGS = (
    "backend", "threads", "sessions", "batch", "iter", "duration_ms", "interval_ms",
    "warmup_iter", "seed", "copies_outputs", "verdict",
)  # fmt: skip


def environment(document: Mapping[str, Any]) -> Table:
    """Where it was measured, what with, and the settings."""
    rows: list[tuple[str, Any]] = []
    rows += [(key, document[key]) for key in _SETTINGS if document.get(key) is not None]
    rows += list(_flat("", document.get("environment") or {}))
    rows += list(_flat("model.", document.get("model") or {}))
    rows.append(("command", " ".join(map(str, document.get("command") or ()))))
    columns = (Column("what", "what", "text"), Column("value", "value", "text"))
    shown = tuple((k, "n/a" if v is None else str(v)) for k, v in rows)
    return Table("environment", "Environment", columns, shown)


def _flat(prefix: str, found: Any) -> list[tuple[str, Any]]:
    if not isinstance(found, Mapping):
        return [(prefix.rstrip("."), found)]
    rows: list[tuple[str, Any]] = []
    for key, value in found.items():
        if isinstance(value, Mapping):
            rows += _flat(f"{prefix}{key}.", value)
        else:
            rows.append((f"{prefix}{key}", value))
    return rows


# -- forms ----------------------------------------------------------------------------------------

_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "number": number,
    "ns": time_label,
    "bytes": bytes_label,
    "percent": lambda value: percent(None if value is None else value / 100),
}


def shown(value: Any, kind: str, unit: float | None = None) -> str:
    """A value as a person reads it."""
    if kind == "text":
        return "" if value is None else str(value)
    if kind == "flag":
        return "yes" if value else "no"
    if kind == "ms":
        return time_label(None if value is None else value * 1e6, like=unit)
    return _SHOWN[kind](value)


def as_html(table: Table, *, sortable: bool = True, most: int | None = None) -> Markup:
    """A table; a head that is pressed sorts by its column."""
    units = [_unit(table, k) for k in range(len(table.columns))]
    heads = []
    for column in table.columns:
        side = None if column.kind == "text" else "num"
        title = tag("button", column.title, type="button") if sortable else column.title
        heads.append(tag("th", title, scope="col", class_=side, data_key=column.key))
    rows = []
    for place, row in enumerate(table.rows[:most]):
        cells = []
        for value, column, unit in zip(row, table.columns, units, strict=True):
            plain = None if column.kind == "text" else value
            cells.append(
                tag(
                    "td",
                    shown(value, column.kind, unit),
                    class_=None if column.kind == "text" else "num",
                    data_v=plain,
                )
            )
        rows.append(tag("tr", *cells, class_="best" if place == table.marked else None))
    head = tag("thead", tag("tr", *heads))
    body = tag("table", head, tag("tbody", *rows), data_table=table.key)
    return tag("div", body, class_="scroll", tabindex="0")


def _unit(table: Table, place: int) -> float | None:
    """One unit for a column of times: that of its middle one."""
    if table.columns[place].kind != "ms":
        return None
    values = sorted(abs(r[place]) for r in table.rows if r[place])
    return values[len(values) // 2] * 1e6 if values else None


def as_csv(table: Table) -> str:
    """A table as CSV with keys that carry units, comma-separated, CRLF as RFC 4180 has it.

    Text that a spreadsheet would take for a formula gets a `'` in front.
    """
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow([c.key for c in table.columns])
    for row in table.rows:
        writer.writerow([_cell(v, c.kind) for v, c in zip(row, table.columns, strict=True)])
    return target.getvalue()


def _cell(value: Any, kind: str) -> Any:
    if value is None:
        return ""
    if kind == "text" and str(value)[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
