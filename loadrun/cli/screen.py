"""What a person sees of a run: lines on stdout; problems and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from loadrun.asserts import AssertFailure
from loadrun.cli.interrupts import note_last_words
from loadrun.cli.progress import ProgressLine
from loadrun.environment import versions
from loadrun.lines import LoadAndRunLines, NewerLines, ms
from loadrun.measure import Phase, Sample
from loadrun.runner import Case, Listener, Outcome
from loadrun.stats import Stats
from mgeserial.ir.types import TensorType

__all__ = ["Screen"]


class Screen(Listener):
    """The lines of load_and_run, with failures and a progress line on stderr.

    Args:
        iters: Samples for each case.
        lines: Whether to print the lines.
        progress: Whether a progress line may be drawn.
        newer: Whether the lines are those of load_and_run 1.13.
    """

    def __init__(self, iters: int, *, lines: bool, progress: bool, newer: bool = False) -> None:
        form = NewerLines if newer else LoadAndRunLines
        self._write = self._print if lines else _nothing
        self._lines = form(self._write, iters)
        self._iters = iters
        self._progress = ProgressLine(sys.stderr, enabled=progress)
        self._total = 0
        self._taken: list[int] = []
        note_last_words(self._last_words)

    def _last_words(self) -> str:
        """What is known when the process ends in the middle of an inference."""
        stats = Stats(tuple(self._taken))
        return f"{stats.count} samples so far, median {ms(stats.median_ns)} ms"

    def opened(self, load_ns: int) -> None:
        """The model is there."""
        self._lines.loaded(versions(), load_ns)

    def line(self, text: str) -> None:
        """One line among the lines of the run (nothing where those are not printed)."""
        self._write(text)

    def say(self, text: str) -> None:
        """One line on stderr."""
        self.clear()
        print(text, file=sys.stderr)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Progress of a long preparation."""
        self._progress.update(what, done, total)

    def clear(self) -> None:
        """Take the progress line away."""
        self._progress.clear()

    def planned(self, cases: Sequence[Case], outputs: Mapping[str, TensorType]) -> None:
        """See `Listener`."""
        self._total = len(cases) * self._iters
        self._lines.planned(cases, outputs)

    def prepared(self, case: Case, ns: int) -> None:
        """See `Listener`."""
        self._lines.prepared(case, ns)

    def failure(self, case: Case, failure: AssertFailure) -> None:
        """Say what differs, where all problems are said."""
        self.say(f"{case.title}: {failure}")

    def sample(self, case: Case, sample: Sample) -> None:
        """See `Listener`; the progress line comes back after the line was printed."""
        self._lines.sample(case, sample)
        if sample.phase is Phase.TIMED:
            self._taken.append(sample.ns)
            done = case.index * self._iters + sample.index + 1
            self._progress.update(case.title, done, self._total)

    def measured(self, case: Case, stats: Stats) -> None:
        """See `Listener`."""
        self._lines.measured(case, stats)

    def finished(self, outcome: Outcome) -> None:
        """See `Listener`."""
        self._lines.finished(outcome)

    def _print(self, line: str) -> None:
        if sys.stdout.isatty():  # else the line goes elsewhere and the bar may stay
            self.clear()
        print(line, flush=True)


def _nothing(line: str) -> None:
    """Print nothing."""
