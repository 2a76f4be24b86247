"""The lines that load_and_run printed, for scripts that read them: of 0.5.1, and of 1.13.

Wording, order and units are kept; where a number does not exist it is `n/a` (there it was `nan`, or
the largest float). Our runs are timed from call to result, so `exec` is the whole, and `device` the
time in kernels where the backend tells it, else the whole as well. In the lines of 1.13 `host` is
what is not kernels; they go to stdout, where 1.13 wrote them to stderr with a prefix.

Source: MegEngine v0.5.1 sdk/load-and-run/src/mgblar.cpp; v1.13.4
lite/load_and_run/src/strategys/strategy_normal.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loadrun.measure import Phase, Sample
from loadrun.runner import Case, Kind, Listener, Outcome
from loadrun.stats import Stats
from mgeserial.errors import printable
from mgeserial.ir.types import TensorType

__all__ = ["LoadAndRunLines", "NewerLines", "ms"]


def ms(ns: float | None) -> str:
    """Milliseconds with three places, or `n/a`."""
    return "n/a" if ns is None else f"{ns / 1e6:.3f}"


def _unit(ns: float | None) -> str:
    return "n/a" if ns is None else f"{ms(ns)}ms"


def _var(name: str, declared: TensorType) -> str:
    dims = declared.shape if declared.is_static else ()
    return printable(name) + "{" + ",".join(str(n) for n in dims or ()) + "}"


class LoadAndRunLines(Listener):
    """Prints the lines as things happen.

    Args:
        write: Prints one line.
        iters: Samples for each case.
    """

    def __init__(self, write: Callable[[str], None], iters: int) -> None:
        self._write = write
        self._iters = iters
        self._names = ""
        self._prepared_ns = 0

    def loaded(self, versions: str, ns: int) -> None:
        """The file is read and the session made."""
        self._write(f"mgb load-and-run: using {versions}")
        self._write(f"load model: {_unit(ns)}")

    def planned(self, cases: Sequence[Case], outputs: Mapping[str, TensorType]) -> None:
        """Say how many test cases there are, and the outputs."""
        self._names = " ".join(_var(name, declared) for name, declared in outputs.items())
        if cases and cases[0].kind is Kind.TESTCASE:
            self._write(f"=== going to run {len(cases)} testcases; output vars: {self._names}")

    def prepared(self, case: Case, ns: int) -> None:
        """Only the first case says so, as there."""
        if case.index == 0:
            self._write(f"=== prepare: {_unit(ns)}; going to warmup")

    def sample(self, case: Case, sample: Sample) -> None:
        """Warm-up and timed runs; the head of a case comes before its first timed run."""
        if sample.phase is Phase.WARMUP:
            self._write(f"warmup {sample.index}: {_unit(sample.ns)}")
        if sample.phase is not Phase.TIMED:
            return
        if sample.index == 0:
            self._head(case)
        if case.kind is Kind.NO_INPUTS:
            self._write(f"=== finished run #{sample.index}: time={_unit(sample.ns)}")
            return
        time, device = ms(sample.ns), sample.ns
        if sample.device_ns is not None:
            device = sample.device_ns
        self._write(
            f"iter {sample.index}/{self._iters}: {time}ms (exec={time},device={ms(device)})",
        )

    def _head(self, case: Case) -> None:
        if case.kind is Kind.TESTCASE:
            self._write(f"=== going to run test #{case.index} for {self._iters} times")
        elif case.kind is Kind.INPUT:
            self._write(f"=== going to run input for {self._iters} times")
        else:
            self._write(
                f"=== going to run for {self._iters} times; output vars: {self._names}",
            )

    def measured(self, case: Case, stats: Stats) -> None:
        """Sum up a case; one without samples has a head only, as there."""
        if not stats.samples:
            self._head(case)
        elif case.kind is Kind.NO_INPUTS:
            self._write(f"avg time: {_unit(stats.mean_ns)}")
        else:
            self._write(
                f"=== finished test #{case.index}: time={_unit(stats.total_ns)} "
                f"avg_time={_unit(stats.mean_ns)} sd={_unit(stats.sd_ns)} "
                f"minmax={ms(stats.min_ns)},{ms(stats.max_ns)}"
            )
            self._write("")

    def finished(self, outcome: Outcome) -> None:
        """The sum over all test cases."""
        if outcome.results and outcome.results[0].case.kind is Kind.TESTCASE:
            self._write(f"=== total time: {_unit(outcome.total_ns)}")


class NewerLines(LoadAndRunLines):
    """The lines of load_and_run 1.13, likewise."""

    def loaded(self, versions: str, ns: int) -> None:
        """See `LoadAndRunLines`."""
        self._write("megbrain/lite/load_and_run:")
        self._write(f"using {versions}")
        self._write("")
        self._write(f"load model: {_unit(ns)}")
        self._write("")

    def planned(self, cases: Sequence[Case], outputs: Mapping[str, TensorType]) -> None:
        """There the number of cases is not said."""

    def prepared(self, case: Case, ns: int) -> None:
        """The case is named; the time is said ahead of each warm-up run."""
        self._write(f"run testcase: {case.index} ")
        self._prepared_ns = ns

    def sample(self, case: Case, sample: Sample) -> None:
        """Warm-up and timed runs; preparing is done before the first warm-up run."""
        if sample.phase is Phase.WARMUP:
            self._write(f"=== prepare: {_unit(self._prepared_ns)}; going to warmup")
            self._write(f"warm up {sample.index}  {_unit(sample.ns)}")
            self._prepared_ns = 0
        if sample.phase is Phase.TIMED:
            host = sample.ns if sample.device_ns is None else sample.ns - sample.device_ns
            self._write(
                f"iter {sample.index}/{self._iters}: e2e={ms(sample.ns)} ms (host={ms(host)} ms)"
            )

    def measured(self, case: Case, stats: Stats) -> None:
        """Sum up a case."""
        if stats.samples:
            self._write(
                f"=== finished test #{case.index}: time={ms(stats.total_ns)} ms "
                f"avg_time={ms(stats.mean_ns)} ms standard_deviation={ms(stats.sd_ns)} ms "
                f"min={ms(stats.min_ns)} ms max={ms(stats.max_ns)} ms"
            )

    def finished(self, outcome: Outcome) -> None:
        """The sum over all cases."""
        self._write(f"=== total time: {_unit(outcome.total_ns)}")
        self._write("")
