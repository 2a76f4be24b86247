"""Values of options from their text; what does not fit is an error that says what would."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mgeserial._command_line import count, from_zero, positive

__all__ = [
    "batch",
    "cores",
    "count",
    "milliseconds",
    "percentiles",
    "positive",
    "real",
    "size",
    "some",
    "steps",
    "threads",
    "time_ns",
    "warmup",
]

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def threads(text: str) -> int | None:
    """A number of threads; -1, load_and_run's default, is None."""
    return None if text == "-1" else positive(text)


def batch(text: str) -> int | None:
    """A batch size; -1 and 0, load_and_run's defaults, are None."""
    return None if text in ("-1", "0") else positive(text)


def some(text: str) -> str | None:
    """Any text; the empty one, load_and_run's default, is None."""
    return text or None


def size(text: str) -> int:
    """Bytes: a number, with K, M or G for powers of 1024."""
    number, unit = text.rstrip("bB"), ""
    if number[-1:].lower() in ("k", "m", "g"):
        number, unit = number[:-1], number[-1].lower()
    if not (number.isascii() and number.isdigit() and len(number) < 21):
        raise argparse.ArgumentTypeError(f"a size is bytes such as 1048576 or 1M, got `{text}`")
    return int(number) * _UNITS[unit]


def real(text: str) -> float | None:
    """A finite number from 0; 0, load_and_run's default, is None."""
    return from_zero(text, most=sys.float_info.max) or None


def cores(text: str) -> tuple[int, ...]:
    """Numbers of cores with commas between, as load_and_run takes them."""
    return tuple(count(part.strip()) for part in text.split(",")) if text else ()


def steps(text: str) -> tuple[int, int] | None:
    """`INTERVAL` or `INTERVAL:START`, as load_and_run's --check-var-value takes it."""
    if not text:
        return None
    interval, colon, start = text.partition(":")
    return positive(interval), count(start) if colon else 0


def percentiles(text: str) -> tuple[float, ...]:
    """Percentiles with commas between, such as `50,90,99.9`."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= p <= 100 for p in found):
        raise argparse.ArgumentTypeError(f"percentiles are numbers from 0 to 100, got `{text}`")
    return found


def warmup(text: str) -> Any:
    """A number of runs, a time, or `stable`."""
    from loadrun.measure import Warmup

    try:
        return Warmup.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def time_ns(text: str) -> int:
    """A time with its unit (a bare number is seconds), in ns."""
    return _time(text, "s")


def milliseconds(text: str) -> int:
    """A time with its unit (a bare number is milliseconds), in ns."""
    return _time(text, "ms")


def _time(text: str, unit: str) -> int:
    from loadrun.measure import parse_time

    try:
        return parse_time(text, unit=unit)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
