from __future__ import annotations

import math
import statistics

import pytest
from fake_session import FakeSession

from loadrun.backends.base import Parts
from loadrun.document import to_json
from loadrun.measure import Pacing, Warmup, is_stable, measure, parse_time
from loadrun.modelinfo import varying_operators
from loadrun.report import findings_of
from loadrun.runner import make_cases, run_cases
from loadrun.session import Session
from loadrun.stats import Stats, median_interval
from loadrun.trust import Noise, judge, level
from mgeserial.author import GraphBuilder

MS = 1_000_000


def codes(samples, noise=None, **more):
    return [f.code for f in judge(Stats(tuple(samples), **more), noise)]


def clocked(times, **more):
    """`measure` of calls that take these times, in turn, on a clock of their own."""
    now, calls = [0], [0]

    def call():
        now[0] += times[calls[0] % len(times)]
        calls[0] += 1

    def sleep(seconds):
        now[0] += round(seconds * 1e9)

    return measure(call, clock=lambda: now[0], sleep=sleep, **more)


# -- findings ------------------------------------------------------------------------------------


def test_constant_times_are_good():
    assert codes([MS] * 50) == []
    assert level([]) == "good"


@pytest.mark.parametrize(
    ("samples", "code"),
    [
        ([MS] * 9, "few"),
        ([MS, 2 * MS] * 20, "unstable"),
        ([MS] * 20 + [int(1.12 * MS)] * 20, "drift"),
        ([MS] * 95 + [5 * MS] * 5, "tail"),
        ([5 * MS] + [MS] * 30, "cold"),
        ([5000] * 30, "short"),
    ],
)
def test_each_fault_is_found(samples, code):
    assert code in codes(samples)


def test_findings_have_figures_with_units_and_a_way_out():
    (found,) = [f for f in judge(Stats((MS,) * 20 + (1_120_000,) * 20)) if f.code == "drift"]
    assert str(found).startswith("drift +12% over the run; ")
    assert found.figures["drift_percent"] == pytest.approx(12)
    (tail,) = judge(Stats((MS,) * 94 + (5 * MS,) * 6))
    assert tail.text == "p99/p50 = 5.0, 6 of 100 samples above twice the median"


def test_random_values_for_operators_that_depend_on_them_are_a_doubt():
    b = GraphBuilder()
    x = b.input("x", (5,))
    b.output(b.cond_take(x, x)[0], "y")
    varying = varying_operators(b.graph())
    assert varying == ("CondTake",)
    found = {}
    for kind, items in (("random", []), ("given", ["x:[1.5,2,3,4,5]"])):
        session = Session(b.graph(), "reference")
        cases = make_cases(session, [], items, seed=0, varying=varying)
        result = run_cases(session, cases, iters=1, warmup=0).results[0]
        found[kind] = {f.code: str(f) for f in findings_of(result)}
    assert "work of CondTake depends on the values; give real ones" in found["random"]["made-up"]
    assert "made-up" not in found["given"]


def test_speeding_up_and_slowing_down_have_different_ways_out():
    slower = judge(Stats((MS,) * 20 + (2 * MS,) * 20))
    faster = judge(Stats((2 * MS,) * 20 + (MS,) * 20))
    assert "--interval" in next(f for f in slower if f.code == "drift").hint
    assert "--warmup-iter" in next(f for f in faster if f.code == "drift").hint


@pytest.mark.parametrize(
    ("noise", "code"),
    [
        (Noise(throttled_ms=30.0), "throttled"),
        (Noise(wall_ms=1000, steal_ms=50.0), "steal"),
        (Noise(involuntary_switches=1000), "crowded"),
        (Noise(governor="powersave"), "governor"),
    ],
)
def test_what_the_system_counts_is_judged(noise, code):
    assert codes([MS] * 50, noise) == [code]
    assert codes([MS] * 50, Noise()) == []


def test_nothing_is_said_of_no_samples():
    assert judge(Stats(())) == []


# -- confidence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 7, 10, 11, 50, 101, 999, 1000])
def test_interval_of_the_median_has_the_coverage_and_is_the_narrowest(n):
    low, high = median_interval(list(range(1, n + 1)))
    assert high == n + 1 - low

    def outside(k):
        return 2 * sum(math.comb(n, j) for j in range(k)) / 2**n

    assert outside(low) <= 0.05 < outside(low + 1)


def test_interval_does_not_exist_for_few_samples():
    assert [median_interval(range(n)) for n in range(6)] == [None] * 6


def test_interval_of_many_samples_is_near_the_exact_one():
    low, high = median_interval(range(1, 4001))
    assert 1900 < low < 2000 < high < 2100


# -- pacing --------------------------------------------------------------------------------------


def test_slow_first_run_shows_as_first_inference_only():
    session = FakeSession(times=(500 * MS, *(MS,) * 50))
    outcome = run_cases(session, make_cases(session, [], [], seed=0), iters=20, warmup=3)
    stats = outcome.results[0].stats
    assert stats.first_inference_ns == 500 * MS
    assert set(stats.samples) == set(stats.warmup) == {MS}
    assert stats.sd_ns == 0
    assert judge(stats) == []


def test_duration_goes_on_after_the_number_and_the_number_after_the_duration():
    assert clocked([MS], iters=3, pacing=Pacing(duration_ns=10 * MS)).count == 10
    assert clocked([MS], iters=30, pacing=Pacing(duration_ns=10 * MS)).count == 30
    assert clocked([MS], iters=0, pacing=Pacing(duration_ns=10 * MS)).count == 0


def test_pauses_are_in_no_sample():
    stats = clocked([MS], iters=5, warmup=2, pacing=Pacing(interval_ns=7 * MS))
    assert stats.samples == (MS,) * 5
    assert stats.elapsed_ns == 5 * 8 * MS


def test_parts_add_up_to_each_sample():
    parts = iter(Parts(d, c) for d, c in [(1, 1)] * 3 + [(700_000, 100_000), (600_000, 0)])
    stats = clocked([MS], iters=2, warmup=3, parts=lambda: next(parts))
    assert stats.device == (700_000, 600_000)
    assert stats.copies == (100_000, 0)
    assert stats.host == (200_000, 400_000)


def test_warm_up_until_stable_stops_when_it_is():
    falling = [9 * MS - k * MS // 2 for k in range(16)] + [MS] * 100
    stats = clocked(falling, iters=1, warmup=Warmup.parse("stable"))
    assert stats.warmup_stable is True
    assert is_stable(list(stats.warmup))
    assert statistics.median(stats.warmup[-5:]) == MS


def test_warm_up_that_never_gets_stable_ends_and_says_so():
    stats = clocked([1000, 2000, 3000, 1500, 900, 40, 77777], iters=1, warmup=Warmup(stable=True))
    assert len(stats.warmup) <= 1000
    growing = [round(1000 * 1.01**k) for k in range(1100)]
    stats = clocked(growing, iters=1, warmup=Warmup(stable=True))
    assert stats.warmup_stable is False
    assert "not-warm" in [f.code for f in judge(stats)]


@pytest.mark.parametrize(
    ("text", "ns"), [("500ms", 500 * MS), ("1.5s", 1_500_000_000), ("80us", 80_000)]
)
def test_times_are_read(text, ns):
    assert parse_time(text) == ns
    assert parse_time("3", unit="s") == 3_000_000_000


@pytest.mark.parametrize("text", ["", "ms", "5", "-1s", "1h", "1e3s", "٣s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="a time is a number and a unit"):
        parse_time(text)


def test_between_the_clock_readings_lies_the_call_alone():
    """Whatever listens, sleeps or tells parts runs outside."""
    now, inside, log = [0], [False], []

    def clock():
        inside[0] = not inside[0] if log and log[-1] == "arm" else inside[0]
        return now[0]

    def call():
        log.append("call")
        now[0] += MS

    def outside(*_):
        log.append("outside")
        now[0] += 50 * MS
        return Parts(0)

    stats = measure(
        call,
        iters=4,
        warmup=1,
        first=True,
        on_sample=outside,
        clock=clock,
        sleep=outside,
        parts=outside,
        pacing=Pacing(interval_ns=1, before_samples=outside),
    )
    assert stats.samples == (MS,) * 4
    assert stats.first_inference_ns == MS
    assert stats.warmup == (MS,)


def test_document_of_a_fake_run_is_json(recwarn):
    from loadrun.report import RunReport

    session = FakeSession()
    outcome = run_cases(session, make_cases(session, [], [], seed=0), iters=3, warmup=1)
    report = RunReport("m", "fake", 1, outcome, session.outputs, 3, "1")
    assert '"level": "fair"' in to_json(report)
    assert not recwarn.list
