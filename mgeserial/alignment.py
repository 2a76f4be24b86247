"""Which elements of two sequences stand for each other: a longest common subsequence.

Source: Hyyro, "Bit-Parallel LCS-length Computation Revisited" (2004): one row of the table of
lengths is one integer whose zero bits are the places where the length grows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ["common"]

# Bits of the table kept; beyond it the sequences are halved at an element of the first one.
_MOST_BITS = 400_000_000


def common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs (i, j) with a[i] == b[j], increasing in both, as many as possible.

    Equal beginnings and ends are always paired. Work is len(a) * len(b) / 64 for the rest; where
    that would take too much memory, stretches are compared one after another, and the result may
    be shorter than the longest.
    """
    start = 0
    least = min(len(a), len(b))
    while start < least and a[start] == b[start]:
        start += 1
    end = 0
    while end < least - start and a[len(a) - 1 - end] == b[len(b) - 1 - end]:
        end += 1
    pairs = [(i, i) for i in range(start)]
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    parts = 1 + len(inner_a) * len(inner_b) // _MOST_BITS
    step_a, step_b = -(-len(inner_a) // parts), -(-len(inner_b) // parts)
    for k in range(parts):
        i, j = k * step_a, k * step_b
        found = _longest(inner_a[i : i + step_a], inner_b[j : j + step_b])
        pairs += [(start + i + x, start + j + y) for x, y in found]
    return pairs + [(len(a) - k, len(b) - k) for k in range(end, 0, -1)]


def _longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    places: dict[Hashable, int] = {}
    for j, item in enumerate(b):
        places[item] = places.get(item, 0) | 1 << j
    every = (1 << len(b)) - 1
    row = every
    rows = []
    for item in a:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & every
        rows.append(row)
    # Walk back: to the last place where the row's length grows, then up to the row in which it
    # began to grow there, which holds the element that fits.
    pairs = []
    i, j = len(a) - 1, len(b) - 1
    while i >= 0 and j >= 0:
        if rows[i] >> j & 1:
            j -= 1
        elif i and not rows[i - 1] >> j & 1:
            i -= 1
        else:
            pairs.append((i, j))
            i -= 1
            j -= 1
    return pairs[::-1]
