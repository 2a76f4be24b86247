"""Boxes never overlap, wires lead down and pass beside boxes, chains are straight."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgeserial.view import layout
from mgeserial.view.layout import Layout, Wire, lay_out

SIZE = (100.0, 40.0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[Wire]]:
    count = draw(st.integers(1, 25))
    number = st.integers(20, 300).map(float)
    sizes = [(draw(number), draw(number)) for _ in range(count)]
    wires = []
    for _ in range(draw(st.integers(0, 40))):
        target = draw(st.integers(0, count - 1))
        if target:
            wires.append(Wire(draw(st.integers(0, target - 1)), target, draw(st.integers(0, 1))))
    return sizes, wires


def check(sizes: list[tuple[float, float]], wires: list[Wire], found: Layout) -> None:
    areas = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(found.corners, sizes, strict=True)]
    for a, b in itertools.combinations(areas, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)
    for left, top, right, bottom in areas:
        assert left >= 0
        assert top >= 0
        assert right <= found.width + 1e-6
        assert bottom <= found.height + 1e-6
    for wire, route in zip(wires, found.routes, strict=True):
        left, _, right, bottom = areas[wire.source]
        assert left <= route[0][0] <= right
        assert route[0][1] == bottom
        left, top, right, _ = areas[wire.target]
        assert left <= route[-1][0] <= right
        assert route[-1][1] == top
        assert all(a[1] <= b[1] for a, b in itertools.pairwise(route))
        assert all(-1e-6 <= x <= found.width + 1e-6 for x, _ in route)
        for (x, y), (a, b) in itertools.pairwise(route):
            if abs(a - x) < 1e-6:  # straight pieces pass no box
                for left, top, right, bottom in areas:
                    assert not (left < x < right and y < bottom - 1e-6 and b > top + 1e-6)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_nothing_overlaps_and_wires_lead_down(
    graph: tuple[list[tuple[float, float]], list[Wire]],
) -> None:
    sizes, wires = graph
    check(sizes, wires, lay_out(sizes, wires))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_the_same_holds_when_long_wires_go_round(
    graph: tuple[list[tuple[float, float]], list[Wire]],
) -> None:
    sizes, wires = graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_MOST_PLACES", 3)
        found = lay_out(sizes, wires)
    check(sizes, wires, found)


def test_a_chain_is_one_straight_line() -> None:
    found = lay_out([(80.0 + i, 40.0) for i in range(30)], [Wire(i, i + 1) for i in range(29)])
    middles = {round(x + (80 + i) / 2, 6) for i, (x, _) in enumerate(found.corners)}
    assert len(middles) == 1
    assert all(len(route) == 2 for route in found.routes)


def test_a_wire_around_a_chain_is_straight_beside_it() -> None:
    wires = [Wire(i, i + 1) for i in range(9)]
    found = lay_out([SIZE] * 10, [*wires, Wire(0, 9)])
    route = found.routes[-1]
    across = {round(x) for x, _ in route[1:-1]}
    assert len(across) == 1
    assert len({round(found.corners[i][0]) for i in range(1, 9)}) == 1


def test_what_crosses_can_be_uncrossed() -> None:
    # Two chains whose order at the start is the opposite of that at the end of each.
    wires = [Wire(0, 3), Wire(1, 2), Wire(2, 4), Wire(3, 5)]
    found = lay_out([SIZE] * 6, wires)
    for a, b in itertools.combinations(found.routes, 2):
        if a[0][1] == b[0][1] and a[0][0] != b[0][0]:
            assert (a[0][0] < b[0][0]) == (a[-1][0] < b[-1][0])


def test_a_source_stands_right_above_its_user() -> None:
    wires = [Wire(i, i + 1) for i in range(5)] + [Wire(6, 7), Wire(5, 7)]
    found = lay_out([SIZE] * 8, wires)
    assert found.corners[6][1] == found.corners[5][1]


def test_boxes_without_wires_stand_in_rows() -> None:
    found = lay_out([SIZE] * 400, [])
    assert 0.3 < found.width / found.height < 5
    assert len({y for _, y in found.corners}) > 5


def test_an_empty_graph_has_a_layout() -> None:
    found = lay_out([], [])
    assert found.corners == ()
    assert found.width > 0
    assert found.height > 0


@pytest.mark.parametrize("wire", [Wire(1, 1), Wire(2, 1), Wire(0, 3), Wire(-1, 1)])
def test_wires_to_earlier_or_missing_boxes_are_refused(wire: Wire) -> None:
    with pytest.raises(ValueError, match="later box"):
        lay_out([SIZE] * 3, [wire])


def test_the_same_graph_gives_the_same_picture() -> None:
    wires = [Wire(i * 7 % (j or 1), j) for i in range(3) for j in range(1, 60)]
    assert lay_out([SIZE] * 60, wires) == lay_out([SIZE] * 60, wires)


@pytest.mark.parametrize(
    "further",
    [
        [],
        [Wire(max(0, i - 40), i) for i in range(1, 4000)],
        [Wire(0, i) for i in range(2, 4000)],
        [Wire(i, 3999) for i in range(3998)],
        [Wire(max(0, i - 2000), i) for i in range(2, 4000)],
    ],
    ids=["chain", "skips", "one source", "one target", "long"],
)
def test_thousands_of_boxes_take_less_than_3_s(further: list[Wire]) -> None:
    wires = [Wire(i, i + 1) for i in range(3999)] + further
    start = time.process_time()
    found = lay_out([SIZE] * 4000, wires)
    assert time.process_time() - start < 3
    assert sum(map(len, found.routes)) < 2_000_000
