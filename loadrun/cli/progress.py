"""A progress line on a terminal, for work that takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["ProgressLine"]

_AFTER_S = 1.0
_EVERY_S = 0.1
_WIDTH = 30
_ERASE = "\r\x1b[K"


class ProgressLine:
    """One line at the bottom of a terminal, redrawn at most ten times a second.

    Nothing is written when the stream is not a terminal, or in the first second.

    Args:
        stream: Where to draw; stderr, so that stdout stays clean.
        enabled: Whether to draw at all.
        clock: Seconds of a clock that never goes back.
    """

    def __init__(
        self, stream: TextIO, *, enabled: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._enabled = enabled and stream.isatty()
        self._clock = clock
        self._start = clock()
        self._drawn_at: float | None = None
        self._visible = False

    def update(self, label: str, done: int, total: int) -> None:
        """Show `done` of `total` with the time left, if it is time to."""
        if not self._enabled or total <= 0:
            return
        now = self._clock()
        spent = now - self._start
        if spent < _AFTER_S or (self._drawn_at is not None and now - self._drawn_at < _EVERY_S):
            return
        self._drawn_at = now
        part = min(done / total, 1.0)
        bar = "#" * round(part * _WIDTH)
        left = f", {spent / part - spent:.0f} s left" if part else ""
        self._stream.write(f"{_ERASE}{label} [{bar:<{_WIDTH}}] {done}/{total}{left}")
        self._stream.flush()
        self._visible = True

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self._visible:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._visible = False
