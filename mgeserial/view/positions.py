"""Positions across a layered drawing: straight chains, straight long wires, no overlaps.

Points are chained to the middle one of their neighbours in the rank before; a chain is one vertical
block. Blocks are packed as near to one another as the order within ranks allows. This is done four
times - chains formed downwards and upwards, packed to the left and to the right - and each point
takes the mean of the two middle results: as every result keeps all distances, the mean does too.

Source: Brandes, Koepf, "Fast and Simple Horizontal Coordinate Assignment" (2001).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Scene", "assign_positions"]


class Scene(Protocol):
    """What positions are given to: points by rank, in order."""

    ranks: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]
    place: list[int]
    x: list[float]

    def is_wire(self, point: int) -> bool:
        """Whether a point is a place where a long wire passes a rank."""
        ...

    def gap(self, left: int, right: int) -> float:
        """Least distance between the middles of two neighbours of a rank, in pixels."""
        ...


def assign_positions(scene: Scene) -> None:
    """Set `scene.x`, the middle of each point."""
    crossed = _crossed(scene)
    above, below = _main(scene, scene.above), _main(scene, scene.below)
    results = []
    for down in (True, False):
        for left in (True, False):
            root = _chain(scene, above if down else below, crossed, down=down, left=left)
            results.append(_pack(scene, root, left=left))
    ranked = [p for points in scene.ranks for p in points]
    _line_up(results, ranked)
    for p in ranked:
        _, low, high, _ = sorted(r[p] for r in results)
        scene.x[p] = (low + high) / 2


def _main(scene: Scene, neighbours: list[list[int]]) -> list[list[int]]:
    """Neighbours in order of place; what hangs on the point alone counts only if all do."""
    lonely = [len(a) + len(b) == 1 for a, b in zip(scene.above, scene.below, strict=True)]
    found = []
    for near in neighbours:
        kept = [n for n in near if not lonely[n]] or near
        found.append(sorted(kept, key=scene.place.__getitem__))
    return found


def _crossed(scene: Scene) -> set[tuple[int, int]]:
    """Connections (upper, lower) that cross a straight piece of a long wire: they give way."""
    found = set()
    place = scene.place
    for upper, lower in itertools.pairwise(scene.ranks):
        left, start = -1, 0
        for i, point in enumerate(lower):
            inner = next((n for n in scene.above[point] if _both_wires(scene, n, point)), None)
            last = i == len(lower) - 1
            if inner is None and not last:
                continue
            right = len(upper) if inner is None else place[inner]
            for between in lower[start : i + 1]:
                for near in scene.above[between]:
                    inside = left <= place[near] <= right
                    if not inside and not _both_wires(scene, near, between):
                        found.add((near, between))
            left, start = right, i + 1
    return found


def _both_wires(scene: Scene, upper: int, lower: int) -> bool:
    return scene.is_wire(upper) and scene.is_wire(lower)


def _chain(
    scene: Scene,
    neighbours: list[list[int]],
    crossed: set[tuple[int, int]],
    *,
    down: bool,
    left: bool,
) -> list[int]:
    """The first point of the chain that each point belongs to."""
    root = list(range(len(neighbours)))
    place = scene.place
    ranks = scene.ranks if down else scene.ranks[::-1]
    for points in ranks[1:]:
        bound = -1 if left else len(root)
        for point in points if left else reversed(points):
            near = neighbours[point]
            middle = len(near) // 2
            candidates = near[(len(near) - 1) // 2 : middle + 1]
            for other in candidates if left else reversed(candidates):
                pair = (other, point) if down else (point, other)
                free = place[other] > bound if left else place[other] < bound
                if free and pair not in crossed:
                    root[point] = root[other]
                    bound = place[other]
                    break
    return root


def _pack(scene: Scene, root: list[int], *, left: bool) -> list[float]:
    """Positions of points whose chains stand as far left (or right) as the order allows."""
    sign = 1.0 if left else -1.0
    after: dict[int, dict[int, float]] = {}
    waiting: dict[int, int] = {}
    blocks: dict[int, None] = {}
    for points in scene.ranks:
        order: Sequence[int] = points if left else points[::-1]
        blocks.update(dict.fromkeys(root[p] for p in order))
        for a, b in itertools.pairwise(order):
            gap = scene.gap(a, b)
            near = after.setdefault(root[a], {})
            if root[b] not in near:
                waiting[root[b]] = waiting.get(root[b], 0) + 1
                near[root[b]] = gap
            elif near[root[b]] < gap:
                near[root[b]] = gap
    x = dict.fromkeys(blocks, 0.0)
    ready = [b for b in blocks if not waiting.get(b)]
    done = []
    while ready:
        block = ready.pop()
        done.append(block)
        for other, gap in after.get(block, {}).items():
            x[other] = max(x[other], x[block] + gap)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    # Blocks with room on the far side move up to their neighbour there.
    for block in reversed(done):
        near = after.get(block, {})
        if near:
            x[block] = max(x[block], min(x[other] - gap for other, gap in near.items()))
    return [sign * x.get(r, 0.0) for r in root]


def _line_up(results: list[list[float]], ranked: Sequence[int]) -> None:
    """Shift results: those packed left begin, those packed right end where the narrowest does."""
    bounds = [(min(r[p] for p in ranked), max(r[p] for p in ranked)) for r in results]
    low, high = min(bounds, key=lambda b: b[1] - b[0])
    for i, (result, (start, end)) in enumerate(zip(results, bounds, strict=True)):
        shift = low - start if i % 2 == 0 else high - end
        for p in ranked:
            result[p] += shift
