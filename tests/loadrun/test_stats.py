from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadrun.stats import Stats, percentile
from mgeserial.errors import InputError

SAMPLES = st.lists(st.integers(0, 10**15), min_size=1, max_size=50)


def test_one_sample_has_no_standard_deviation():
    stats = Stats(samples=(5_000_000,))
    assert stats.sd_ns is None
    assert stats.mad_ns is None
    assert stats.mean_ns == 5_000_000


def test_no_samples_have_no_numbers():
    stats = Stats(samples=())
    assert stats.count == 0
    assert stats.total_ns == 0
    numbers = (stats.mean_ns, stats.sd_ns, stats.min_ns, stats.max_ns, stats.median_ns)
    assert numbers == (None,) * 5
    assert stats.percentile_ns(99) is None
    assert stats.throughput_per_s is None
    assert stats.spread is None


def test_sd_of_long_stable_runs_does_not_cancel():
    # Sums of squares in floating point give 0 or the root of a negative number here.
    base = 10**15
    stats = Stats(samples=tuple(base + (i % 3) for i in range(30_000)))
    assert stats.sd_ns == pytest.approx(math.sqrt(20_000 / 29_999), rel=1e-12)


def test_first_inference_and_warmup_stay_out_of_the_numbers():
    stats = Stats(samples=(2, 4), warmup=(1000,), first_inference_ns=10**9)
    assert stats.mean_ns == 3
    assert stats.max_ns == 4


@given(SAMPLES)
def test_numbers_agree_with_the_standard_library(values):
    stats = Stats(samples=tuple(values))
    assert stats.mean_ns == pytest.approx(statistics.mean(values))
    assert stats.median_ns == pytest.approx(statistics.median(values))
    if len(values) > 1:
        assert stats.sd_ns == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-6)


@given(SAMPLES, st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values, percent):
    ours = percentile(sorted(values), percent)
    assert ours == pytest.approx(float(np.percentile(values, percent)), rel=1e-9)


@given(SAMPLES)
def test_percentiles_lie_between_minimum_and_maximum(values):
    stats = Stats(samples=tuple(values))
    found = [stats.percentile_ns(p) for p in (0, 50, 90, 95, 99, 100)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (stats.min_ns, stats.max_ns)


def test_percentile_outside_0_to_100_is_refused():
    with pytest.raises(InputError, match="0 to 100"):
        percentile([1, 2], 101)


def test_mad_is_the_median_distance_to_the_median():
    assert Stats(samples=(1, 2, 4, 8)).mad_ns == pytest.approx(1.5)
    assert Stats(samples=(1, 2, 4)).mad_ns == 1


def test_throughput_counts_inferences_a_second():
    assert Stats(samples=(2_000_000, 3_000_000)).throughput_per_s == pytest.approx(400)
