"""The longest common subsequence, against the plain table of lengths."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgeserial import alignment
from mgeserial.alignment import common


def longest(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        above = list(row)
        for j, y in enumerate(b):
            row[j + 1] = above[j] + 1 if x == y else max(above[j + 1], row[j])
    return row[-1]


few = st.lists(st.integers(0, 3), max_size=14)


@settings(max_examples=300, deadline=None)
@given(few, few)
def test_pairs_are_equal_increasing_and_as_many_as_possible(a: list[int], b: list[int]) -> None:
    pairs = common(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(pairs))
    assert len(pairs) == longest(a, b)


@settings(max_examples=100, deadline=None)
@given(few, few)
def test_stretches_of_long_sequences_still_pair_equal_elements(a: list[int], b: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MOST_BITS", 20)
        pairs = common(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(pairs))


def test_thousands_of_equal_elements_take_no_time() -> None:
    start = time.process_time()
    pairs = common([0, 1] * 4000, [1, 0, 0] * 3000)
    assert len(pairs) > 5000
    assert time.process_time() - start < 5
