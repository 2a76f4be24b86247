"""Several sessions of one model at once, each in a thread of its own.

All sessions prepare and warm up, then wait for each other, then take their samples, so that every
sample is taken while the others run too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loadrun.measure import Pacing, Sample, Warmup
from loadrun.runner import Case, Listener, Outcome, Runnable, run_cases
from loadrun.stats import Stats

__all__ = ["Concurrency", "run_parallel"]

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


@dataclass(slots=True)
class _Clock(Listener):
    """Notes when samples of one session began and ended."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def sample(self, case: Case, sample: Sample) -> None:
        """See `Listener`."""
        import time

        from loadrun.measure import Phase

        if sample.phase is Phase.TIMED:
            now = time.perf_counter_ns()
            self.starts.append(now - sample.ns)
            self.ends.append(now)


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
    barrier = threading.Barrier(count)
    outcomes: list[Outcome | None] = [None] * count
    errors: list[BaseException] = []
    clocks = [_Clock() for _ in sessions]

    def work(k: int) -> None:
        try:
            outcomes[k] = run_cases(
                sessions[k],
                cases,
                iters=iters,
                warmup=warmup,
                time_failed=time_failed,
                listener=clocks[k],
                pacing=replace(pacing, before_samples=lambda: _meet(barrier)),
            )
        except BaseException as error:
            errors.append(error)
        finally:
            # A session that timed fewer cases (wrong outputs, errors) leaves nobody waiting.
            barrier.abort()

    _run_all(work, count, barrier)
    if errors:
        raise errors[0]
    whole = Outcome()
    for k, outcome in enumerate(outcomes):
        assert outcome is not None
        whole.interrupted |= outcome.interrupted
        for result in outcome.results:
            result.session = k
            whole.results.append(result)
    if listener is not None:
        _tell(whole, cases, sessions[0], listener)
    starts = [t for c in clocks for t in c.starts]
    ends = [t for c in clocks for t in c.ends]
    wall = max(ends) - min(starts) if starts else 0
    return whole, Concurrency(count, len(starts), wall)


def _meet(barrier: threading.Barrier) -> None:
    """Wait for the others; when one of them has ended, nobody waits any more."""
    try:
        barrier.wait(_WAIT_S)
    except threading.BrokenBarrierError:
        return


def _run_all(work: Callable[[int], None], count: int, barrier: threading.Barrier) -> None:
    threads = [
        threading.Thread(target=work, args=(k,), name=f"session-{k}", daemon=True)
        for k in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        # Short waits, so that Ctrl-C is seen.
        while thread.is_alive():
            thread.join(0.2)


def _tell(whole: Outcome, cases: Sequence[Case], session: Runnable, told: Listener) -> None:
    from loadrun.measure import Phase

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
