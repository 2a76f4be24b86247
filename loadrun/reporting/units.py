"""Numbers of the documents as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["best_unit", "bytes_label", "number", "percent", "plain", "ticks", "time_label"]

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
NONE = "n/a"


def number(value: Any, digits: int = 4) -> str:
    """A number with so many digits that count; `n/a` for None."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return NONE
    size = abs(value)
    if size and not 1e-3 <= size < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0) if size else 0
    return f"{value:,.{decimals}f}"


def plain(value: float) -> str:
    """A round number, as the ticks of an axis are."""
    return f"{value:,.10g}" if abs(value) < 1e7 else f"{value:g}"


def percent(part: float | None) -> str:
    """A part of 1 as percent."""
    return NONE if part is None else f"{part:.1%}"


def best_unit(value: float, units: Sequence[tuple[float, str]] = _TIMES) -> tuple[float, str]:
    """The unit a value is best shown in, and its size."""
    return next(((s, u) for s, u in units if abs(value) >= s), units[-1])


def time_label(ns: float | None, *, like: float | None = None) -> str:
    """A time in ns with its unit."""
    if ns is None:
        return NONE
    size, unit = best_unit(ns if like is None else like)
    return f"{number(ns / size)} {unit}"


def bytes_label(count: float | None, *, like: float | None = None) -> str:
    """A number of bytes with its unit."""
    if count is None:
        return NONE
    size, unit = best_unit(count if like is None else like, _SIZES)
    return f"{number(count / size)} {unit}" if size > 1 else f"{number(int(count))} {unit}"


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers at equal distances that reach from below `low` to above `high`."""
    if not high > low:
        low, high = (low - 1, high + 1) if low else (0.0, 1.0)
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]
