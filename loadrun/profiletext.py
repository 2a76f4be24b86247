"""A profile as tables to read: by operator, by type, then sum, wall and gap."""

from __future__ import annotations

from collections.abc import Sequence

from loadrun.profiler import Profile, Row, rows_by_type
from loadrun.texttable import text_table
from mgeserial.errors import printable

__all__ = ["profile_text"]

_NAME = 44
_SHAPES = 40


def profile_text(found: Profile, *, top: int = 20) -> str:
    """Tables of a profile.

    Args:
        found: The profile.
        top: Rows of the table by operator, the longest first; 0: all.
    """
    peaks = found.peaks
    lines = [
        f"profile ({found.runs} runs of their own, {found.backend}, "
        f"{found.threads} {'thread' if found.threads == 1 else 'threads'})"
    ]
    if peaks is not None:
        lines.append(
            f"  measured peak: {peaks.flop_per_s / 1e9:.1f} GFLOP/s ({peaks.how}), "
            f"{peaks.bytes_per_s / 1e9:.1f} GB/s (copies of large arrays)"
        )
    ordered = sorted(found.rows, key=lambda row: -row.median_ns)
    shown = ordered[:top] if top else ordered
    lines += text_table(
        ["operator", "type", "kernel", "in -> out", "time", "share", "GFLOP/s", "GB/s"],
        [_cells(row, found) for row in shown],
        left=(0, 1, 2, 3),
    )
    rest = ordered[len(shown) :]
    if rest:
        time = sum(row.median_ns for row in rest)
        share = sum(row.share for row in rest)
        lines.append(
            f"  and {len(rest)} more: {time / 1e6:.3f} ms, {share:.1%} (--profile-top 0: all)"
        )
    lines += ["", *_by_type(found), "", *_ends(found)]
    return "\n".join(lines)


def _cells(row: Row, found: Profile) -> Sequence[str]:
    peaks = found.peaks
    return (
        _cut(printable(row.name), _NAME),
        row.type,
        _cut(row.algorithm or row.kernel, 24),
        _cut(f"{', '.join(row.inputs)} -> {', '.join(row.outputs)}", _SHAPES),
        f"{row.median_ns / 1e6:.4f} ms",
        f"{row.share:.1%}",
        _speed(row.flop_per_s, peaks.flop_per_s if peaks else None),
        _speed(row.bytes_per_s, peaks.bytes_per_s if peaks else None),
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _speed(value: float | None, peak: float | None) -> str:
    """Speed and what part of the peak it is; above 100 % of the bandwidth: data from caches."""
    if value is None:
        return "n/a"
    part = f" ({value / peak:.0%})" if peak else ""
    return f"{value / 1e9:.2f}{part}"


def _by_type(found: Profile) -> list[str]:
    rows = [
        (
            row.type,
            str(row.count),
            f"{row.median_ns / 1e6:.4f} ms",
            f"{row.share:.1%}",
            "n/a" if row.flops is None else f"{row.flops / 1e6:.3f}",
        )
        for row in rows_by_type(found)
    ]
    return text_table(["type", "steps", "time", "share", "MFLOP"], rows)


def _ends(found: Profile) -> list[str]:
    wall, gap = found.wall_ns, found.gap_ns
    lines = [f"  sum of steps  {found.sum_ns / 1e6:.4f} ms"]
    if wall is None or gap is None:
        return [*lines, "  wall          n/a", "  gap           n/a"]
    why = "between steps, and the call itself" if gap >= 0 else "the cost of the clocks"
    return [
        *lines,
        f"  wall          {wall / 1e6:.4f} ms (a run without clocks inside)",
        f"  gap           {gap / 1e6:.4f} ms ({why})",
    ]
