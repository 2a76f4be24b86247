"""Memory planning: live buffers never overlap; a halo is never shared with another layout."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadrun.arena import Lifetime, plan_arena

LIVES = st.lists(
    st.tuples(
        st.integers(1, 50_000),
        st.integers(0, 9),
        st.integers(0, 5),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=20,
)


@given(LIVES)
@settings(max_examples=100, deadline=None)
def test_live_buffers_never_overlap(raw: list[tuple[int, int, int, str]]) -> None:
    lives = [
        Lifetime(f"{k}", 7777 if twin else size, first, first + more, twin)
        for k, (size, first, more, twin) in enumerate(raw)
    ]
    plan = plan_arena(lives, guard=256)
    for a in lives:
        assert plan.offsets[a.name] % 4096 == 0
        assert plan.offsets[a.name] + a.nbytes + 256 <= plan.nbytes
        for b in lives:
            if a.name >= b.name:
                continue
            x, y = plan.offsets[a.name], plan.offsets[b.name]
            apart = x + a.nbytes <= y or y + b.nbytes <= x
            together = a.first <= b.last and b.first <= a.last
            if together or a.twin != b.twin:
                assert apart
            elif a.twin and not apart:
                assert x == y  # the same layout at the same place keeps its halo


def test_memory_is_reused() -> None:
    lives = [Lifetime(str(k), 4000, k, k + 1) for k in range(10)]
    assert plan_arena(lives).nbytes == 2 * 4096


def test_alignment_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        plan_arena([], align=3)
