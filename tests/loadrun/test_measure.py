from __future__ import annotations

import pytest

from loadrun.measure import Phase, Sample, Warmup, measure
from mgeserial.errors import InputError


class Clock:
    """Time that passes only when told so."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def sleep(self, ns):
        self.now += ns


@pytest.mark.parametrize("iters", [0, 1, 2, 10])
@pytest.mark.parametrize("warmup", [0, 1, 3])
@pytest.mark.parametrize("first", [False, True])
def test_number_of_samples_is_what_was_asked_for(iters, warmup, first):
    calls = []
    stats = measure(lambda: calls.append(1), iters=iters, warmup=warmup, first=first)
    assert len(stats.samples) == iters
    assert len(stats.warmup) == warmup
    assert (stats.first_inference_ns is not None) == first
    assert len(calls) == iters + warmup + first


def test_what_listens_is_outside_the_measured_time():
    clock = Clock()
    stats = measure(
        lambda: clock.sleep(7),
        iters=3,
        warmup=1,
        first=True,
        on_sample=lambda sample: clock.sleep(1000),
        clock=clock,
    )
    assert stats.samples == (7, 7, 7)
    assert stats.warmup == (7,)
    assert stats.first_inference_ns == 7


def test_listener_hears_every_call_in_order():
    heard = []
    measure(lambda: None, iters=2, warmup=1, first=True, on_sample=heard.append, clock=Clock())
    assert heard == [
        Sample(Phase.FIRST, 0, 0),
        Sample(Phase.WARMUP, 0, 0),
        Sample(Phase.TIMED, 0, 0),
        Sample(Phase.TIMED, 1, 0),
    ]


def test_warmup_by_time_ends_after_the_time():
    clock = Clock()
    stats = measure(
        lambda: clock.sleep(200_000_000), iters=1, warmup=Warmup(ns=500_000_000), clock=clock
    )
    assert len(stats.warmup) == 3


def test_warmup_by_time_makes_at_least_one_call():
    clock = Clock()
    stats = measure(lambda: clock.sleep(10**9), iters=1, warmup=Warmup(ns=1), clock=clock)
    assert len(stats.warmup) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Warmup(count=0)),
        ("10", Warmup(count=10)),
        ("500ms", Warmup(ns=500_000_000)),
        ("1.5s", Warmup(ns=1_500_000_000)),
        ("80us", Warmup(ns=80_000)),
    ],
)
def test_warmup_is_a_count_or_a_time(text, expected):
    assert Warmup.parse(text) == expected


@pytest.mark.parametrize("text", ["0.5", "-1", "5%", "", "ms", "1e3", "1 h", "٣"])
def test_warmup_refuses_what_could_mean_both(text):
    with pytest.raises(ValueError, match="warm-up is a number of runs"):
        Warmup.parse(text)


def test_negative_counts_are_refused():
    with pytest.raises(InputError, match="from 0, got -1"):
        measure(lambda: None, iters=-1)
