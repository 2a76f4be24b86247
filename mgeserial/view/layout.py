"""Where the boxes of a graph stand: ranks by longest path, few crossings, wires round the boxes.

The steps are those of layered drawing: each box gets a rank; a wire over several ranks gets a place
in each rank between, shared with the other wires of the same value; the order within ranks follows
the mean place of neighbours; positions come from `positions`. Everything is near linear in boxes
and wires.

Source: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures"
(1981).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mgeserial.view.positions import assign_positions

__all__ = ["Layout", "Point", "Wire", "lay_out"]

Point = tuple[float, float]

# Distances in pixels: between boxes of a rank, beside a passing wire, around the picture.
_BOX_GAP = 28.0
_WIRE_GAP = 16.0
_MARGIN = 24.0
_RANK_GAP = 34.0
# Places of passing wires in all, and how often wires may pass them; the longest wires beyond that
# go round everything, in lanes at the right.
_MOST_PLACES = 40_000
_MOST_PASSES = 300_000
_LANES = 12
_LANE_GAP = 8.0
# Work of the ordering, in visits of wires: small graphs get more sweeps than large ones.
_ORDER_WORK = 1_500_000


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection of two boxes; wires of one `source` and `port` carry one value."""

    source: int
    target: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands, in pixels from the upper left.

    Attributes:
        corners: Upper left corner of each box.
        routes: For each wire the points it goes through, from its source's lower side to its
            target's upper side. Between points it may bend, vertical at both.
        width, height: Size of the picture.
    """

    corners: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(sizes: Sequence[tuple[float, float]], wires: Sequence[Wire]) -> Layout:
    """Place boxes and route wires, from top to bottom.

    Args:
        sizes: Width and height of each box.
        wires: Connections from earlier boxes to later ones: `source < target`.

    Raises:
        ValueError: A wire does not lead from an earlier to a later box.
    """
    for wire in wires:
        if not 0 <= wire.source < wire.target < len(sizes):
            raise ValueError(f"{wire} does not lead to a later box")
    scene = _Scene(sizes, wires)
    if scene.ranks:
        _order(scene)
        assign_positions(scene)
    return _draw(scene)


class _Scene:
    """Boxes and places of passing wires ("points") by rank.

    Points below `count` are boxes; further ones are places where a wire passes a rank. Boxes that
    no wire touches (`lone`) stand in no rank.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], wires: Sequence[Wire]) -> None:
        self.sizes = sizes
        self.wires = wires
        self.count = len(sizes)
        touched = {w.source for w in wires} | {w.target for w in wires}
        self.lone = [i for i in range(self.count) if i not in touched]
        self.rank = _ranks(self.count, wires)
        self.ranks: list[list[int]] = []
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        # Points each wire passes between its boxes.
        self.paths: list[list[int]] = [[] for _ in wires]
        self._add_points(touched)
        self.hangs = [len(a) + len(b) == 1 for a, b in zip(self.above, self.below, strict=True)]
        self.x = [0.0] * len(self.above)
        self.place = [0] * len(self.above)
        self.renumber()

    def _add_points(self, touched: set[int]) -> None:
        self.ranks = [[] for _ in range(1 + max((self.rank[i] for i in touched), default=-1))]
        for i in sorted(touched):
            self.ranks[self.rank[i]].append(i)
        spans: dict[tuple[int, int], int] = {}
        for wire in self.wires:
            key = (wire.source, wire.port)
            spans[key] = max(spans.get(key, 0), self.rank[wire.target] - self.rank[wire.source])
        every = [self.rank[w.target] - self.rank[w.source] for w in self.wires]
        longest = min(
            _longest_allowed(list(spans.values()), _MOST_PLACES),
            _longest_allowed(every, _MOST_PASSES),
        )
        trunks: dict[tuple[int, int], list[int]] = {}
        for k, wire in enumerate(self.wires):
            span = self.rank[wire.target] - self.rank[wire.source]
            if span > longest:
                continue
            trunk = trunks.setdefault((wire.source, wire.port), [])
            while len(trunk) < span - 1:
                trunk.append(self._new_point(trunk[-1] if trunk else wire.source))
            self.paths[k] = trunk[: span - 1]
            last = self.paths[k][-1] if span > 1 else wire.source
            self.below[last].append(wire.target)
            self.above[wire.target].append(last)

    def _new_point(self, before: int) -> int:
        point = len(self.above)
        self.above.append([before])
        self.below.append([])
        self.below[before].append(point)
        self.rank.append(self.rank[before] + 1)
        self.ranks[self.rank[point]].append(point)
        return point

    def is_wire(self, point: int) -> bool:
        """Whether a point is a place where a wire passes."""
        return point >= self.count

    def width(self, point: int) -> float:
        """Width of a box; a passing wire has none."""
        return self.sizes[point][0] if point < self.count else 0.0

    def gap(self, left: int, right: int) -> float:
        """Distance between the middles of two neighbours in a rank."""
        boxes = (left < self.count) + (right < self.count)
        free = _BOX_GAP if boxes == 2 else _WIRE_GAP
        return (self.width(left) + self.width(right)) / 2 + free

    def renumber(self) -> None:
        """Note each point's place in its rank."""
        for points in self.ranks:
            for i, point in enumerate(points):
                self.place[point] = i


def _ranks(count: int, wires: Sequence[Wire]) -> list[int]:
    """Rank of each box: below all it uses, and as near as that allows to what uses it."""
    rank = [0] * count
    incoming = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for wire in wires:
        users[wire.source].append(wire.target)
        incoming[wire.target] += 1
    for i in range(count):
        for user in users[i]:
            rank[user] = max(rank[user], rank[i] + 1)
    for i in reversed(range(count)):
        # Moving down shortens the wires to users and lengthens those from what it uses.
        if users[i] and len(set(users[i])) >= incoming[i]:
            rank[i] = max(rank[i], min(rank[u] for u in users[i]) - 1)
    return rank


def _longest_allowed(spans: list[int], limit: int) -> int:
    """The span up to which wires get places, so that there are at most `limit` of these."""
    total = 0
    for span in sorted(spans):
        total += span - 1
        if total > limit:
            return span - 1
    return max(spans, default=1)


# -- order within ranks ---------------------------------------------------------------------------


def _order(scene: _Scene) -> None:
    """Sort ranks by the mean place of neighbours, to and fro; keep what crosses least."""
    work = sum(map(len, scene.below)) + len(scene.below)
    sweeps = max(2, min(24, _ORDER_WORK // (3 * work)))
    best: list[list[int]] | None = None
    fewest = math.inf
    idle = 0
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        neighbours = scene.above if down else scene.below
        order = range(1, len(scene.ranks)) if down else range(len(scene.ranks) - 2, -1, -1)
        for r in order:
            _sort_rank(scene, r, neighbours)
        crossings = sum(_crossings(scene, r) for r in range(len(scene.ranks) - 1))
        if crossings < fewest:
            best, fewest, idle = [list(p) for p in scene.ranks], crossings, 0
        else:
            idle += 1
        if fewest == 0 or idle == 4:
            break
    if best is not None:
        scene.ranks = best
        scene.renumber()


def _sort_rank(scene: _Scene, r: int, neighbours: list[list[int]]) -> None:
    points, place = scene.ranks[r], scene.place
    keys = {}
    for point in points:
        near = neighbours[point]
        keys[point] = sum(place[n] for n in near) / len(near) if near else float(place[point])
    points.sort(key=keys.__getitem__)
    for i, point in enumerate(points):
        place[point] = i


def _crossings(scene: _Scene, r: int) -> int:
    """Crossings between a rank and the next: pairs of wires in opposite order at both ends.

    Source: Barth, Juenger, Mutzel, "Simple and efficient bilayer cross counting" (2002).
    """
    place = scene.place
    ends = [e for p in scene.ranks[r] for e in sorted(place[n] for n in scene.below[p])]
    size = len(scene.ranks[r + 1]) + 1
    tree = [0] * (size + 1)
    count = 0
    for seen, end in enumerate(ends):
        count += seen
        i = end + 1
        while i:  # wires so far that end at this place or left of it
            count -= tree[i]
            i &= i - 1
        i = end + 1
        while i <= size:
            tree[i] += 1
            i += i & -i
    return count


# -- drawing --------------------------------------------------------------------------------------


def _draw(scene: _Scene) -> Layout:
    tops, bottoms, y = [], [], _MARGIN
    for r, points in enumerate(scene.ranks):
        high = max((scene.sizes[p][1] for p in points if p < scene.count), default=0.0)
        tops.append(y)
        bottoms.append(y + high)
        y += high + _rank_gap(scene, r)
    ranked = [p for points in scene.ranks for p in points]
    left = min((scene.x[p] - scene.width(p) / 2 for p in ranked), default=0.0)
    shift = _MARGIN - left
    right = max((scene.x[p] + scene.width(p) / 2 for p in ranked), default=left)
    lanes = _lanes(scene, right + shift + _WIRE_GAP)
    width = max([right + shift, *lanes.values()]) + _MARGIN
    corners: list[Point] = [(0.0, 0.0)] * scene.count
    for r, points in enumerate(scene.ranks):
        for p in points:
            if p < scene.count:
                w, h = scene.sizes[p]
                corners[p] = (scene.x[p] + shift - w / 2, tops[r] + (bottoms[r] - tops[r] - h) / 2)
    bottom = bottoms[-1] + _MARGIN if bottoms else 0.0
    width, bottom = _place_lone(scene, corners, width, bottom)
    ends = _wire_ends(scene, shift)
    routes: list[tuple[Point, ...]] = []
    for k, wire in enumerate(scene.wires):
        (_, top), (_, high) = corners[wire.source], scene.sizes[wire.source]
        path: list[Point] = [(scene.x[wire.source] + shift, top + high)]
        if k in lanes:
            first, last = scene.rank[wire.source] + 1, scene.rank[wire.target] - 1
            path += [(lanes[k], tops[first]), (lanes[k], bottoms[last])]
        else:
            _pass(scene, k, shift, tops, bottoms, path)
        routes.append((*path, (ends[k], corners[wire.target][1])))
    return Layout(tuple(corners), tuple(routes), width, max(bottom, 2 * _MARGIN))


def _lanes(scene: _Scene, start: float) -> dict[int, float]:
    """Where the wires run that have no places in the ranks between."""
    around = [
        k
        for k, w in enumerate(scene.wires)
        if not scene.paths[k] and scene.rank[w.target] - scene.rank[w.source] > 1
    ]
    return {k: start + i % _LANES * _LANE_GAP for i, k in enumerate(around)}


def _rank_gap(scene: _Scene, r: int) -> float:
    """Space below a rank: more where wires go far across, so that they stay readable."""
    far = max(
        (abs(scene.x[p] - scene.x[q]) for p in scene.ranks[r] for q in scene.below[p]), default=0
    )
    return _RANK_GAP + min(90.0, far / 10)


def _place_lone(
    scene: _Scene, corners: list[Point], width: float, bottom: float
) -> tuple[float, float]:
    """Boxes without wires in rows below the rest; the new width and height."""
    if not scene.lone:
        return width, bottom
    area = sum((w + _BOX_GAP) * (h + _BOX_GAP) for w, h in (scene.sizes[i] for i in scene.lone))
    most = max(width, math.sqrt(area) * 1.3, 400.0)
    x, y, high = _MARGIN, max(bottom, _MARGIN), 0.0
    for i in scene.lone:
        w, h = scene.sizes[i]
        if x > _MARGIN and x + w > most - _MARGIN:
            x, y, high = _MARGIN, y + high + _BOX_GAP, 0.0
        corners[i] = (x, y)
        width = max(width, x + w + _MARGIN)
        x += w + _BOX_GAP
        high = max(high, h)
    return width, y + high + _MARGIN


def _wire_ends(scene: _Scene, shift: float) -> list[float]:
    """Where across each wire enters its target: side by side, in the order they come from."""
    entering: dict[int, list[int]] = {}
    for k, wire in enumerate(scene.wires):
        entering.setdefault(wire.target, []).append(k)
    ends = [0.0] * len(scene.wires)
    for target, wires in entering.items():

        def origin(k: int) -> float:
            path = scene.paths[k]
            return scene.x[path[-1] if path else scene.wires[k].source]

        span = scene.width(target) * 0.7
        step = min(24.0, span / len(wires))
        start = scene.x[target] + shift - step * (len(wires) - 1) / 2
        for i, k in enumerate(sorted(wires, key=origin)):
            ends[k] = start + i * step
    return ends


def _pass(
    scene: _Scene,
    k: int,
    shift: float,
    tops: Sequence[float],
    bottoms: Sequence[float],
    points: list[Point],
) -> None:
    """Add the points where a wire passes ranks; one that goes straight on needs no points."""
    for p in scene.paths[k]:
        x, r = scene.x[p] + shift, scene.rank[p]
        if abs(points[-1][0] - x) < 0.5 and len(points) > 1:
            points.pop()
        points += [(x, tops[r]), (x, bottoms[r])] if bottoms[r] > tops[r] else [(x, tops[r])]
