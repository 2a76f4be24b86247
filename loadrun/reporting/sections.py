"""Sections of the page, made from one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadrun.reporting import charts
from loadrun.reporting.markup import Markup, join, tag
from loadrun.reporting.tables import Table, as_html, case_title, profile_rows, tables
from loadrun.reporting.treemap import Item, treemap
from loadrun.reporting.units import NONE, bytes_label, number, percent, time_label
from mgeserial.view.families import FAMILIES, family_of

__all__ = ["Section", "name_of", "sections", "several"]

# Rows of a table on the page; JSON and CSV hold all.
_MOST_ROWS = 2000
_TONES = {f.key: f"f{i}" for i, f in enumerate(FAMILIES)}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its title and what is in it."""

    key: str
    title: str
    body: Markup


def name_of(document: Mapping[str, Any]) -> str:
    """What a result is called on the page."""
    if document["kind"] == "loadrun.compare":
        return " and ".join(_side_name(s) for s in document.get("sides") or ())
    model = document.get("model") or {}
    return str(model.get("path") or "model").replace("\\", "/").rpartition("/")[2]


def _threads(found: Mapping[str, Any]) -> str:
    count = found.get("threads")
    return f"{count} thread" if count == 1 else f"{count} threads"


def _side_name(side: Mapping[str, Any]) -> str:
    path = str((side.get("model") or {}).get("path") or "").replace("\\", "/")
    return f"{path.rpartition('/')[2]} on {side.get('backend')}"


def sections(document: Mapping[str, Any], *, frame: Markup | None = None) -> list[Section]:
    """All sections of one document.

    Args:
        document: A result, checked by `files.check`.
        frame: The picture of the graph, where it is at hand.
    """
    makers = {"loadrun.run": _run, "loadrun.compare": _compare, "loadrun.sweep": _sweep}
    found = makers[document["kind"]](document, {t.key: t for t in tables(document)})
    if frame is not None:
        found.append(Section("graph", "Graph", frame))
    known = {t.key: t for t in tables(document)}
    found.append(Section("environment", "Environment", _plain(known.get("environment"))))
    return [s for s in found if s.body]


def _plain(table: Table | None, *, most: int | None = _MOST_ROWS) -> Markup:
    if table is None or not table.rows:
        return Markup("")
    shown = as_html(table, sortable=len(table.rows) > 2, most=most)
    if most is not None and len(table.rows) > most:
        rest = f"The first {most} of {len(table.rows)} rows; JSON and CSV hold all."
        return join(shown, tag("p", rest, class_="soft"))
    return shown


def _folded(title: str, *body: object) -> Markup:
    inside = join(*body)
    return tag("details", tag("summary", title), inside) if inside else Markup("")


def _figures(rows: Sequence[tuple[str, str, str]], *, wide: bool = False) -> Markup:
    """Figures at a glance: value, what it is, and more in a few words."""
    cards = [
        tag("div", tag("b", value), tag("span", name), tag("small", more) if more else None)
        for value, name, more in rows
        if value != NONE
    ]
    return tag("div", *cards, class_="figures wide" if wide else "figures")


def _badge(tone: str, *words: object) -> Markup:
    return tag("p", *words, class_=f"badge {tone}")


# -- runs -----------------------------------------------------------------------------------------


def _run(document: Mapping[str, Any], known: Mapping[str, Table]) -> list[Section]:
    cases = document["cases"]
    timed = [c for c in cases if c.get("samples_ns")]
    found = [Section("summary", "Summary", _summary(document, cases))]
    found.append(Section("latency", "Latency", _latency(timed, known.get("statistics"))))
    found.append(Section("operators", "Operators", _operators(document, known)))
    found.append(Section("memory", "Memory", _memory(document, known)))
    found.append(Section("algorithms", "Algorithms", _plain(known.get("algorithms"))))
    found.append(Section("outputs", "Outputs", _plain(known.get("outputs"))))
    return found


def _summary(document: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> Markup:
    first = cases[0] if cases else {}
    stats = first.get("stats") or {}

    def ms(key: str, of: Mapping[str, Any] = stats) -> str:
        value = of.get(key)
        return time_label(None if value is None else value * 1e6)

    low, high = stats.get("median_low_ms"), stats.get("median_high_ms")
    interval = "" if low is None else f"95 %: {number(low)} to {number(high)} ms"
    title = case_title(first) if len(cases) > 1 else ""
    where = f"{document.get('backend')}, {_threads(document)}"
    figures = [
        (ms("median_ms"), "median latency", interval or title),
        (ms("p99_ms"), "99th percentile", f"of {number(stats.get('count'))} runs"),
        (number(stats.get("throughput_per_s")), "inferences per second", where),
        (ms("first_inference_ms", first), "first inference", "in no statistic"),
        (ms("load_ms", document), "load", ""),
        (ms("prepare_ms", first), "prepare", ""),
        (bytes_label(document.get("peak_memory_bytes")), "peak memory", "of the process"),
        (bytes_label(document.get("weight_bytes")), "weights", ""),
        (bytes_label(document.get("arena_bytes")), "activations", ""),
    ]
    notes = [tag("li", n) for n in document.get("notes") or ()]
    return join(_verdict(document, cases), _figures(figures), tag("ul", *notes) if notes else None)


_LEVELS = {
    "good": ("good", "The numbers can be trusted"),
    "fair": ("fair", "Trust these numbers with care"),
    "poor": ("poor", "Do not trust these numbers"),
}


def _verdict(document: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> Markup:
    lines = []
    failures = [f for c in cases for f in c.get("assert_failures") or ()]
    if failures:
        texts = [tag("li", f.get("text")) for f in failures[:20]]
        lines.append(_badge("poor", "Outputs are not as the model expects"))
        lines.append(tag("ul", *texts))
    if document.get("interrupted"):
        lines.append(_badge("fair", "The run was interrupted: what was measured until then"))
    for case in cases:
        trust = case.get("trust") or {}
        findings = trust.get("findings") or []
        plain = (case.get("stats") or {}).get("notes") or []
        if not findings and not plain and not trust:
            continue
        level = str(trust.get("level") or ("fair" if plain else "good"))
        tone, words = _LEVELS.get(level, ("fair", level))
        where = f" ({case_title(case)})" if len(cases) > 1 else ""
        lines.append(_badge(tone, words + where))
        items = [tag("li", tag("b", f.get("text")), f": {f.get('hint')}") for f in findings]
        items += [tag("li", text) for text in plain]
        lines.append(tag("ul", *items) if items else Markup(""))
    return join(*lines)


def _latency(cases: Sequence[Mapping[str, Any]], table: Table | None) -> Markup:
    if not cases:
        return Markup("")
    series = [(case_title(c), c["samples_ns"]) for c in cases[:6]]
    parts = [charts.latency(series, title="Time of each run, in order")]
    for title, samples in series[:3]:
        stats = next(c.get("stats") or {} for c in cases if case_title(c) == title)
        marks = [(n, stats[f"{n}_ms"] * 1e6) for n in ("median", "p99") if stats.get(f"{n}_ms")]
        name = f"Histogram: {title}" if len(series) > 1 else "Histogram of the times"
        parts.append(charts.histogram(samples, marks, title=name))
    return join(tag("div", *parts, class_="charts"), _plain(table))


def _operators(document: Mapping[str, Any], known: Mapping[str, Table]) -> Markup:
    profile = document.get("profile")
    if not isinstance(profile, Mapping):
        return Markup("")
    rows = [r for r in profile_rows(profile) if r["time_ms"] is not None]
    items = [
        Item(
            size=r["time_ms"],
            title=str(r.get("name") or ""),
            detail=f"{r.get('type')} {percent((r.get('share_percent') or 0) / 100)}",
            tone=_TONES[family_of(_main_type(r)).key],
            label=f"{r.get('name')} ({r.get('type')}): {time_label(r['time_ms'] * 1e6)}, "
            f"{percent((r.get('share_percent') or 0) / 100)}, {r['output']}",
        )
        for r in rows
    ]
    tones = sorted({i.tone for i in items}, key=lambda t: int(t[1:]))
    legend = [tag("span", tag("i", class_=f"key {t}"), FAMILIES[int(t[1:])].title) for t in tones]
    sums = [
        (time_label(profile.get("sum_ns")), "sum of the steps", ""),
        (time_label(profile.get("wall_ns")), "a whole run", "not profiled"),
        (time_label(profile.get("gap_ns")), "gap", "below 0: the clocks' own cost"),
        (number(_scaled(profile, "flop_per_s")), "GFLOP/s at most", "measured here"),
        (number(_scaled(profile, "bytes_per_s")), "GB/s at most", "measured here"),
    ]
    return join(
        _figures(sums),
        treemap(items, title="Time by operator"),
        tag("p", *legend, class_="legend"),
        _folded("By type", _plain(known.get("types"))),
        _plain(known.get("operators")),
    )


def _scaled(profile: Mapping[str, Any], key: str) -> float | None:
    value = (profile.get("peak") or {}).get(key)
    return None if value is None else value / 1e9


def _main_type(row: Mapping[str, Any]) -> str:
    """Type whose colour a step has; changes of layout have none of their own."""
    name = str(row.get("type") or "")
    return "RelayoutFormat" if name.startswith("(") else name


def _memory(document: Mapping[str, Any], known: Mapping[str, Table]) -> Markup:
    plan = document.get("memory")
    if not isinstance(plan, Mapping):
        return Markup("")
    arena, total = plan.get("arena_bytes"), plan.get("sum_of_values_bytes")
    saved = f"{percent(1 - arena / total)} less than one after another" if arena and total else ""
    figures = [
        (bytes_label(plan.get("weight_bytes")), "weights", ""),
        (bytes_label(arena), "activations", saved),
        (bytes_label(plan.get("most_alive_bytes")), "most alive at a time", ""),
        (bytes_label(plan.get("workspace_bytes")), "workspace", "of all threads"),
    ]
    table = _folded("Values in memory, the largest first", _plain(known.get("memory")))
    return join(_figures(figures), charts.memory(dict(plan)), table)


# -- comparisons and sweeps -----------------------------------------------------------------------


def _compare(document: Mapping[str, Any], known: Mapping[str, Table]) -> list[Section]:
    passed = bool(document.get("passed"))
    sides = [
        (
            str(s.get("label")),
            _side_name(s),
            f"{_threads(s)}, {number(s.get('operator_count'))} operators",
        )
        for s in document.get("sides") or ()
    ]
    summary = join(
        _badge("good" if passed else "poor", document.get("verdict") or ""),
        _figures(sides, wide=True),
    )
    found = [Section("summary", "Summary", summary)]
    found.append(Section("outputs", "Outputs", _plain(known.get("outputs"))))
    walks, speeds = [], []
    for k, pair in enumerate(document["comparisons"]):
        walks.append(_walk(pair))
        speeds.append(_speed(pair, k))
    found.append(Section("walk", "Where they part", join(*walks, _walk_table(known))))
    found.append(Section("speed", "Speed", join(*speeds, _plain(known.get("speed")))))
    return found


def _walk_table(known: Mapping[str, Table]) -> Markup:
    return _folded("Error of every operator", _plain(known.get("walk")))


def _walk(pair: Mapping[str, Any]) -> Markup:
    walk = pair.get("walk") or {}
    fault = walk.get("first_at_fault") or pair.get("cut")
    parts: list[Markup] = []
    if fault:
        close = fault.get("alone") or fault.get("closeness") or {}
        parts.append(
            _badge(
                "poor",
                f"{pair.get('b')}: first operator that diverges: [{fault.get('operator_index')}] "
                f"{fault.get('type')} {fault.get('name')}",
            )
        )
        index = ", ".join(map(str, close.get("worst_index") or ()))
        lines = [
            f"error {number(close.get('error'))} at [{index}]: {number(close.get('worst_a'))} and "
            f"{number(close.get('worst_b'))}, allowed {number(close.get('allowed_error'))}",
            *(fault.get("changes") or ()),
        ]
        reduced = pair.get("reduced")
        if reduced:
            names = ", ".join(str(o.get("name")) for o in reduced.get("operators") or ())
            lines.append(
                f"smallest part that differs: {number(reduced.get('operator_count'))} operators "
                f"({names}), saved as {', '.join(reduced.get('files') or ['nothing'])}"
            )
        parts.append(tag("ul", *[tag("li", line) for line in lines]))
    elif walk:
        parts.append(_badge("good", f"{pair.get('b')}: no operator is at fault"))
    parts.append(charts.errors(walk.get("operators") or ()))
    notes = [tag("li", n) for n in pair.get("notes") or ()]
    return join(*parts, tag("ul", *notes) if notes else None)


def _speed(pair: Mapping[str, Any], _: int) -> Markup:
    speed = pair.get("speed")
    if not speed:
        return Markup("")
    a, b = str(pair.get("a")), str(pair.get("b"))
    low, high = speed.get("low_ratio"), speed.get("high_ratio")
    more = "" if low is None else f"95 % interval {number(low, 3)} to {number(high, 3)}"
    series = [(a, speed.get("a_samples_ns") or ()), (b, speed.get("b_samples_ns") or ())]
    return join(
        _figures(
            [(number(speed.get("speed_ratio"), 3), f"times as fast: {b} against {a}", more)],
            wide=True,
        ),
        charts.latency(series, title=f"{a} and {b}, in turns"),
    )


def _sweep(document: Mapping[str, Any], known: Mapping[str, Table]) -> list[Section]:
    table = known.get("combinations")
    rows = document["combinations"]
    best = document.get("best_index")
    found = []
    if isinstance(best, int) and 0 <= best < len(rows):
        row = rows[best]
        figures = [
            (str(row.get("label") or f"combination {best}"), "best combination", ""),
            (
                time_label(None if row.get("median_ms") is None else row["median_ms"] * 1e6),
                "median latency",
                "",
            ),
            (number(row.get("samples_per_s")), "samples per second", ""),
        ]
        found.append(Section("summary", "Summary", _figures(figures, wide=True)))
    bars = [
        (str(r.get("label")), r["median_ms"] * 1e6, k == best)
        for k, r in enumerate(rows)
        if r.get("median_ms") is not None
    ]
    body = join(charts.speeds(bars[:100]), _plain(table))
    found.append(Section("combinations", "Combinations", body))
    return found


# -- several results ------------------------------------------------------------------------------


def several(named: Sequence[tuple[str, Mapping[str, Any]]]) -> Section:
    """Results against the first of them."""
    runs = [(n, d) for n, d in named if d["kind"] == "loadrun.run" and _median(d) is not None]
    base = _median(runs[0][1]) if runs else None
    best = min((_median(d) or 0 for _, d in runs), default=0)
    bars = [(n, (_median(d) or 0) * 1e6, _median(d) == best) for n, d in runs]
    head = [tag("th", t, scope="col", class_=c) for t, c in _SEVERAL]
    rows = []
    for name, document in runs:
        stats = document["cases"][0]["stats"]
        median = _median(document)
        ratio = base / median if base and median else None
        cells = [
            tag("td", name),
            tag("td", f"{document.get('backend')}, {_threads(document)}"),
            tag("td", time_label((median or 0) * 1e6), class_="num", data_v=median),
            tag("td", number(stats.get("p99_ms")) + " ms", class_="num"),
            tag("td", number(stats.get("throughput_per_s")), class_="num"),
            tag("td", number(ratio, 3), class_="num", data_v=ratio),
            tag("td", bytes_label(document.get("peak_memory_bytes")), class_="num"),
        ]
        rows.append(tag("tr", *cells))
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), data_table="several")
    series = [(n, d["cases"][0]["samples_ns"]) for n, d in runs[:6]]
    body = join(
        charts.speeds(bars),
        tag("div", table, class_="scroll", tabindex="0"),
        charts.latency(series, title="Time of each run, in order"),
        tag(
            "p",
            "Results of different times and machines are compared as they are; "
            "--compare measures two models in turns.",
            class_="soft",
        ),
    )
    return Section("several", "Results", body if runs else Markup(""))


_SEVERAL = (
    ("result", None),
    ("on", None),
    ("median", "num"),
    ("p99", "num"),
    ("inferences/s", "num"),
    ("times as fast as the first", "num"),
    ("peak memory", "num"),
)


def _median(document: Mapping[str, Any]) -> float | None:
    cases = document.get("cases") or []
    stats = (cases[0].get("stats") or {}) if cases else {}
    value = stats.get("median_ms")
    return float(value) if isinstance(value, (int, float)) else None
