"""Several sessions of one model at once, each in a thread of its own.

All sessions prepare and warm up, then wait for each other, then take their samples, so that every
sample is taken while the others run too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadrun.asserts import AssertFailure
from loadrun.measure import Pacing, Phase, Sample, Warmup
from loadrun.runner import Case, CaseResult, Listener, Outcome, Runnable, run_cases
from loadrun.stats import Stats

__all__ = ["Concurrency", "run_parallel"]

_PATIENCE_S = 0.7  # how long an interrupt waits for the runs that sessions are in
_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Concurrency:
    """What several sessions did together.

    Attributes:
        sessions: Their number.
        samples: Samples of all of them.
        wall_ns: From the first sample's start to the last one's end, ns.
    """

    sessions: int
    samples: int
    wall_ns: int

    @property
    def throughput_per_s(self) -> float | None:
        """Inferences a second of all sessions together; None without samples."""
        return self.samples * 1e9 / self.wall_ns if self.wall_ns and self.samples else None


class _Stop:
    """Where sessions wait for each other before their samples, and hear of an interrupt."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self._wanted = threading.Event()

    def meet(self) -> None:
        """Wait for the others; when one of them has ended, nobody waits any more."""
        with contextlib.suppress(threading.BrokenBarrierError):
            self._barrier.wait(_WAIT_S)
        self.check()

    def leave(self) -> None:
        """A session is done: it leaves nobody waiting (it may have timed fewer cases)."""
        self._barrier.abort()

    def ask(self) -> None:
        """Let every session end where it next looks."""
        self._wanted.set()
        self._barrier.abort()

    def check(self) -> None:
        """Raise KeyboardInterrupt in a session when the run was interrupted."""
        if self._wanted.is_set():
            raise KeyboardInterrupt


class _Record(Listener):
    """What one session did so far, for when an interrupt finds it in a run that does not end."""

    def __init__(self, stop: _Stop) -> None:
        self._stop = stop
        self._results: list[CaseResult] = []
        self._taken: list[tuple[Phase, int]] = []
        self.starts: list[int] = []
        self.ends: list[int] = []

    def prepared(self, case: Case, ns: int) -> None:
        """See `Listener`."""
        self._results.append(CaseResult(case, ns))
        self._taken.clear()
        self._stop.check()

    def failure(self, case: Case, failure: AssertFailure) -> None:
        """See `Listener`."""
        self._results[-1].failures.append(failure)

    def sample(self, case: Case, sample: Sample) -> None:
        """See `Listener`."""
        if sample.phase is Phase.TIMED:
            now = time.perf_counter_ns()
            self.starts.append(now - sample.ns)
            self.ends.append(now)
        self._taken.append((sample.phase, sample.ns))
        self._stop.check()

    def measured(self, case: Case, stats: Stats) -> None:
        """See `Listener`."""
        self._results[-1].stats = stats

    def outcome(self) -> Outcome:
        """The outcome of a session that was left in the middle of a run."""
        results = list(self._results)
        if results and results[-1].stats is None:
            taken = list(self._taken)
            times = {phase: tuple(ns for p, ns in taken if p is phase) for phase in Phase}
            first = times[Phase.FIRST]
            stats = Stats(times[Phase.TIMED], times[Phase.WARMUP], first[0] if first else None)
            results[-1] = replace(results[-1], stats=stats)
        return Outcome(results, interrupted=True, unfinished=True)


def run_parallel(
    sessions: Sequence[Runnable],
    cases: Sequence[Case],
    *,
    iters: int,
    warmup: int | Warmup,
    pacing: Pacing,
    time_failed: bool = False,
    listener: Listener | None = None,
) -> tuple[Outcome, Concurrency]:
    """Run all cases in all sessions, and tell the listener afterwards, session by session.

    An interrupt keeps what was measured so far: sessions end after the run that they are in, and
    one whose run takes longer than that is left in it (`Outcome.unfinished`).

    Args:
        sessions: One for each thread.
        cases: What each of them runs, in order.
        iters: Samples of each session for each case.
        warmup: As for `run_cases`.
        pacing: As for `run_cases`; its `before_samples` is replaced.
        time_failed: As for `run_cases`.
        listener: Told about the results, so that lines of sessions do not mix.

    Returns:
        One outcome with the results of all sessions, and what they did together.
    """
    count = len(sessions)
    stop = _Stop(count)
    outcomes: list[Outcome | None] = [None] * count
    errors: list[BaseException] = []
    records = [_Record(stop) for _ in sessions]

    def work(k: int) -> None:
        try:
            outcomes[k] = run_cases(
                sessions[k],
                cases,
                iters=iters,
                warmup=warmup,
                time_failed=time_failed,
                listener=records[k],
                pacing=replace(pacing, before_samples=stop.meet),
            )
        except BaseException as error:
            errors.append(error)
        finally:
            stop.leave()

    _run_all(work, count, stop)
    if errors:
        raise errors[0]
    whole = Outcome()
    for k, record in enumerate(records):
        outcome = outcomes[k] or record.outcome()
        whole.interrupted |= outcome.interrupted
        whole.unfinished |= outcome.unfinished
        for result in outcome.results:
            result.session = k
            whole.results.append(result)
    if listener is not None:
        _tell(whole, cases, sessions[0], listener)
    starts = [t for r in records for t in r.starts]
    ends = [t for r in records for t in r.ends]
    wall = max(ends) - min(starts) if starts else 0
    return whole, Concurrency(count, len(starts), wall)


def _run_all(work: Callable[[int], None], count: int, stop: _Stop) -> None:
    """Do the work in threads; an interrupt asks them to end and waits a little."""
    # Not Thread.join: in some releases of Python an interrupted one takes the thread for ended.
    ended = [threading.Event() for _ in range(count)]

    def run(k: int) -> None:
        try:
            work(k)
        finally:
            ended[k].set()

    try:
        for k in range(count):
            threading.Thread(target=run, args=(k,), name=f"session-{k}", daemon=True).start()
        for event in ended:
            # Short waits, so that Ctrl-C is seen.
            while not event.wait(0.2):
                pass
    except KeyboardInterrupt:
        stop.ask()
        until = time.monotonic() + _PATIENCE_S
        for event in ended:
            event.wait(max(0.0, until - time.monotonic()))


def _tell(whole: Outcome, cases: Sequence[Case], session: Runnable, told: Listener) -> None:
    told.planned(cases, session.outputs)
    for result in whole.results:
        told.prepared(result.case, result.prepare_ns or 0)
        for failure in result.failures:
            told.failure(result.case, failure)
        stats = result.stats or Stats(())
        for phase, times in ((Phase.WARMUP, stats.warmup), (Phase.TIMED, stats.samples)):
            for index, ns in enumerate(times):
                told.sample(result.case, Sample(phase, index, ns))
        if result.stats is not None:
            told.measured(result.case, result.stats)
    told.finished(whole)
