"""A progress bar on a terminal, for work that takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["ProgressLine"]

_AFTER_S = 1.0
_EVERY_S = 0.1


class ProgressLine:
    """One line at the bottom of a terminal, redrawn at most ten times a second.

    Nothing is written when the stream is not a terminal, or in the first second; only then is rich,
    which draws it, imported.

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
        self._bar: tuple[Progress, TaskID] | None = None

    def update(self, label: str, done: int, total: int) -> None:
        """Show `done` of `total` with the time left, if it is time to."""
        if not self._enabled or total <= 0:
            return
        now = self._clock()
        spent = now - self._start
        if spent < _AFTER_S or (self._drawn_at is not None and now - self._drawn_at < _EVERY_S):
            return
        self._drawn_at = now
        left = f"{spent / done * (total - done):.0f} s left" if done else ""
        if self._bar is None:
            self._bar = self._make(label, done, total, left)
            return
        bar, task = self._bar
        bar.update(task, description=label, completed=done, total=total, left=left)
        bar.refresh()

    def _make(self, label: str, done: int, total: int, left: str) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(file=self._stream),
            auto_refresh=False,
            transient=True,
        )
        task = progress.add_task(label, completed=done, total=total, left=left)
        progress.start()  # draws it
        return progress, task

    def clear(self) -> None:
        """Take the line away, before something else is printed."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
