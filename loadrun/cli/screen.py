"""What a person sees of a run: lines on stdout; problems and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from loadrun.asserts import AssertFailure
from loadrun.cli.progress import ProgressLine
from loadrun.environment import versions
from loadrun.lines import LoadAndRunLines
from loadrun.measure import Phase, Sample
from loadrun.runner import Case
from mgeserial.ir.types import TensorType

__all__ = ["Screen"]


class Screen(LoadAndRunLines):
    """The lines of load_and_run, with failures and a progress line on stderr.

    Args:
        iters: Samples for each case.
        lines: Whether to print the lines.
        progress: Whether a progress line may be drawn.
    """

    def __init__(self, iters: int, *, lines: bool, progress: bool) -> None:
        super().__init__(self._print if lines else _nothing, iters)
        self._progress = ProgressLine(sys.stderr, enabled=progress)
        self._total = 0

    def opened(self, load_ns: int) -> None:
        """The model is there."""
        self.loaded(versions(), load_ns)

    def say(self, text: str) -> None:
        """One line on stderr."""
        self.clear()
        print(text, file=sys.stderr)

    def clear(self) -> None:
        """Take the progress line away."""
        self._progress.clear()

    def planned(self, cases: Sequence[Case], outputs: Mapping[str, TensorType]) -> None:
        """See `Listener`."""
        self._total = len(cases) * self._iters
        super().planned(cases, outputs)

    def failure(self, case: Case, failure: AssertFailure) -> None:
        """Say what differs, where all problems are said."""
        self.say(f"{case.title}: {failure}")

    def sample(self, case: Case, sample: Sample) -> None:
        """See `Listener`; the progress line comes back after the line was printed."""
        super().sample(case, sample)
        if sample.phase is Phase.TIMED:
            done = case.index * self._iters + sample.index + 1
            self._progress.update(case.title, done, self._total)

    def _print(self, line: str) -> None:
        if sys.stdout.isatty():  # else the line goes elsewhere and the bar may stay
            self.clear()
        print(line, flush=True)


def _nothing(line: str) -> None:
    """Print nothing."""
