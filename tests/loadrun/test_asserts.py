from __future__ import annotations

import math

import numpy as np
import pytest

from loadrun.asserts import check

F = np.float32


def test_equal_arrays_pass():
    x = np.arange(6, dtype=F).reshape(2, 3)
    assert check("out", x, x.copy(), 0.0) is None


def test_failure_says_output_index_values_and_error():
    expect = np.zeros((2, 3), F)
    got = expect.copy()
    got[1, 2] = 0.5
    got[0, 1] = 0.25
    failure = check("out", expect, got, 1e-4)
    assert failure is not None
    assert failure.output == "out"
    assert failure.index == (1, 2)
    assert (failure.expected, failure.got, failure.error) == (0.0, 0.5, 0.5)
    assert failure.mismatches == 2
    assert str(failure) == (
        "output `out` at [1, 2]: expected 0, got 0.5, error 0.5 (allowed 0.0001); "
        "2 of 6 elements differ"
    )


@pytest.mark.parametrize(
    ("expect", "got", "error"),
    [(100.0, 101.0, 0.01), (0.1, 0.2, 0.1), (-4.0, -2.0, 1.0), (3.0, -3.0, 2.0)],
)
def test_error_is_relative_above_one_and_absolute_below(expect, got, error):
    failure = check("y", np.array([expect]), np.array([got]), 1e-9)
    assert failure is not None
    assert failure.error == pytest.approx(error)


def test_error_equal_to_the_limit_passes():
    assert check("y", np.array([1.0]), np.array([1.5]), 0.5) is None
    assert check("y", np.array([1.0]), np.array([1.5]), 0.49) is not None


@pytest.mark.parametrize(
    ("expect", "got"),
    [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan), (math.inf, math.inf)],
)
def test_nan_fails_whatever_the_limit(expect, got):
    expects, gots = np.array([9.0, expect]), np.array([0.0, got])
    failure = check("y", expects, gots, 1e30)
    assert failure is not None
    assert failure.index == (1,)
    assert failure.mismatches == 1


def test_shapes_broadcast_as_operators_do():
    assert check("y", np.ones((1, 3), F), np.ones((2, 3), F), 0) is None


def test_shapes_that_do_not_fit_fail():
    failure = check("y", np.ones((2, 3), F), np.ones((4,), F), 1)
    assert failure is not None
    assert failure.index == ()
    assert str(failure) == "output `y`: expected shape (2, 3), got (4,)"


def test_small_unsigned_integers_do_not_wrap():
    failure = check("y", np.array([3], np.uint8), np.array([5], np.uint8), 0)
    assert failure is not None
    assert failure.error == pytest.approx(2 / 3)


def test_empty_arrays_are_equal():
    assert check("y", np.ones((0, 3), F), np.ones((0, 3), F), 0) is None
