"""Profiles as documents: ours (JSON), Chrome's trace events, and reading load_and_run's.

Source of load_and_run's form: MegEngine 1.13.4 src/plugin/impl/profiler.cpp (to_json of
GraphProfiler; times in seconds from the run's start) and
imperative/python/megengine/utils/profile_analyzer.py (`graph_exec` with `operator` and `var`,
`profiler` with `device`, `host` and `opr_footprint`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from loadrun.peaks import Peaks
from loadrun.profiler import OperatorRef, Profile, Row, rows_by_type
from mgeserial.errors import InputError

__all__ = [
    "PROFILE_SCHEMA",
    "chrome_trace",
    "profile_document",
    "profile_of_document",
    "read_profile",
]

PROFILE_SCHEMA = 1
_KIND = "loadrun.profile"
_MOST_BYTES = 512 << 20


def profile_document(found: Profile, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A profile for JSON.

    Args:
        found: The profile.
        about: Further entries of the document: the model, the environment.
    """
    peaks = found.peaks
    return {
        "schema": PROFILE_SCHEMA,
        "kind": _KIND,
        **(about or {}),
        "source": found.source,
        "backend": found.backend,
        "threads_count": found.threads,
        "runs_count": found.runs,
        "wall_ns": found.wall_ns,
        "sum_ns": found.sum_ns,
        "gap_ns": found.gap_ns,
        "peak": None
        if peaks is None
        else {
            "flop_per_s": peaks.flop_per_s,
            "bytes_per_s": peaks.bytes_per_s,
            "threads_count": peaks.threads,
            "how": peaks.how,
        },
        "steps": [_row_document(row, peaks) for row in found.rows],
        "types": [
            {
                "type": row.type,
                "steps_count": row.count,
                "median_ns": row.median_ns,
                "share_percent": row.share * 100,
                "flops_count": row.flops,
            }
            for row in rows_by_type(found)
        ],
    }


def _row_document(row: Row, peaks: Peaks | None) -> dict[str, Any]:
    return {
        "name": row.name,
        "type": row.type,
        "operators": [
            {"operator_index": o.index, "name": o.name, "type": o.type} for o in row.operators
        ],
        "kernel": row.kernel,
        "algorithm": row.algorithm,
        "inputs": list(row.inputs),
        "outputs": list(row.outputs),
        "median_ns": row.median_ns,
        "share_percent": row.share * 100,
        "flops_count": row.flops,
        "read_bytes": row.read_bytes,
        "written_bytes": row.written_bytes,
        "flop_per_s": row.flop_per_s,
        "bytes_per_s": row.bytes_per_s,
        "flop_peak_percent": _percent(row.flop_per_s, peaks.flop_per_s if peaks else None),
        "bytes_peak_percent": _percent(row.bytes_per_s, peaks.bytes_per_s if peaks else None),
        "starts_ns": list(row.starts_ns),
        "times_ns": list(row.times_ns),
    }


def _percent(value: float | None, peak: float | None) -> float | None:
    return value * 100 / peak if value is not None and peak else None


def chrome_trace(found: Profile, *, title: str = "") -> dict[str, Any]:
    """Events of the run whose time is the median, for chrome://tracing and ui.perfetto.dev."""
    totals = [sum(row.times_ns[k] for row in found.rows) for k in range(_whole_runs(found))]
    run = sorted(range(len(totals)), key=lambda k: totals[k])[len(totals) // 2] if totals else 0
    meta = {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": title}}
    events: list[dict[str, Any]] = [meta]
    for row in found.rows:
        if run >= len(row.times_ns):
            continue
        events.append(
            {
                "name": row.name,
                "cat": row.type,
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": row.starts_ns[run] / 1e3,
                "dur": row.times_ns[run] / 1e3,
                "args": {
                    "type": row.type,
                    "kernel": row.kernel,
                    "algorithm": row.algorithm,
                    "inputs": list(row.inputs),
                    "outputs": list(row.outputs),
                    "flops_count": row.flops,
                },
            }
        )
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _whole_runs(found: Profile) -> int:
    return min((len(row.times_ns) for row in found.rows), default=0)


# -- reading -------------------------------------------------------------------------------------


def read_profile(path: str) -> Profile:
    """Read a profile: ours, or one that load_and_run wrote with `--profile`.

    Raises:
        InputError: The file cannot be read or is neither.
    """
    from mgeserial.arrayfiles import read_bytes

    try:
        root = json.loads(read_bytes(path).decode("utf-8-sig"))
        return profile_of_document(root)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"not a profile: {error!s:.200}",
            path=path,
            hint="profiles are written by `loadrun --profile FILE` and load_and_run's --profile",
        ) from error


def profile_of_document(root: Any) -> Profile:
    """The profile of a document that was read from JSON.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: It is no profile.
    """
    if not isinstance(root, dict):
        raise ValueError("the document is no object")
    if "profiler" in root and "graph_exec" in root:
        return _of_load_and_run(root)
    if root.get("kind") != _KIND:
        raise ValueError(f'its "kind" is not `{_KIND}`')
    if root.get("schema") != PROFILE_SCHEMA:
        raise ValueError(f'its "schema" is {root.get("schema")!r}, known: {PROFILE_SCHEMA}')
    peak = root["peak"]
    total = sum(float(item["median_ns"]) for item in root["steps"])
    return Profile(
        backend=str(root["backend"]),
        threads=int(root["threads_count"]),
        runs=int(root["runs_count"]),
        rows=tuple(_row_of(item, total) for item in root["steps"]),
        wall_ns=root["wall_ns"],
        peaks=None
        if peak is None
        else Peaks(
            float(peak["flop_per_s"]),
            float(peak["bytes_per_s"]),
            str(peak["how"]),
            int(peak["threads_count"]),
        ),
        source=str(root["source"]),
    )


def _row_of(item: Mapping[str, Any], total: float) -> Row:
    median = float(item["median_ns"])
    return Row(
        name=str(item["name"]),
        type=str(item["type"]),
        operators=tuple(
            OperatorRef(int(o["operator_index"]), str(o["name"]), str(o["type"]))
            for o in item["operators"]
        ),
        kernel=str(item["kernel"]),
        algorithm=str(item["algorithm"]),
        inputs=tuple(map(str, item["inputs"])),
        outputs=tuple(map(str, item["outputs"])),
        starts_ns=tuple(map(int, item["starts_ns"])),
        times_ns=tuple(map(int, item["times_ns"])),
        median_ns=median,
        share=median / total if total else 0.0,
        flops=item["flops_count"],
        read_bytes=item["read_bytes"],
        written_bytes=item["written_bytes"],
    )


def _of_load_and_run(root: Mapping[str, Any]) -> Profile:
    """One run, in seconds; the device's times where there are any, else the host's."""
    operators, variables = root["graph_exec"]["operator"], root["graph_exec"].get("var", {})
    prints = root["profiler"].get("opr_footprint", {})
    device, host = root["profiler"].get("device", {}), root["profiler"].get("host", {})
    found: list[tuple[int, int, str]] = []
    for key in operators:
        spans = [*device.get(key, {}).values()] or [*host.get(key, {}).values()]
        if spans:
            start = min(float(s["start"]) for s in spans)
            end = max(float(s["end"]) for s in spans)
            found.append((round(start * 1e9), round((end - start) * 1e9), key))
    total = sum(ns for _, ns, _ in found) or 1
    rows = []
    for start_ns, ns, key in sorted(found):
        about, footprint = operators[key], prints.get(key, {})
        kind = str(about.get("type", "?"))
        flops = footprint.get("computation")
        rows.append(
            Row(
                name=str(about.get("name", key)),
                type=kind,
                operators=(OperatorRef(int(key), str(about.get("name", key)), kind),),
                kernel="megengine",
                algorithm="",
                inputs=_shapes(about.get("input", ()), variables),
                outputs=_shapes(about.get("output", ()), variables),
                starts_ns=(start_ns,),
                times_ns=(ns,),
                median_ns=float(ns),
                share=ns / total,
                flops=None if flops is None else int(flops),
                read_bytes=None,
                written_bytes=None,
            )
        )
    return Profile("megengine", 1, 1, tuple(rows), None, source="load_and_run")


def _shapes(ids: Sequence[Any], variables: Mapping[str, Any]) -> tuple[str, ...]:
    shown = []
    for item in ids:
        shape = variables.get(str(item), {}).get("shape") or ()
        shown.append("x".join(str(n) for n in shape) if isinstance(shape, list) else "?")
    return tuple(shown)
