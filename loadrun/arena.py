"""Give every intermediate buffer a place in one block of memory.

Buffers whose lifetimes do not overlap may share bytes. A buffer with a zero halo may share
only with buffers of exactly the same layout: its kernels write the pixels and never the halo,
so any other use would leave the halo dirty and the results silently wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer's size in bytes and its first and last moment, inclusive.

    `twin` names the layout of a buffer with a halo, '' for one without.
    """

    name: str
    nbytes: int
    first: int
    last: int
    twin: str = ""


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Offsets in bytes by name, the block's size in bytes."""

    offsets: dict[str, int]
    nbytes: int


def plan_arena(lives: Sequence[Lifetime], *, align: int = PAGE, guard: int = 0) -> ArenaPlan:
    """Place buffers in one block so that live ranges never overlap.

    Buffers with a halo lie below all others, in slots by layout. The rest is placed
    greedily, largest first, at the lowest offset that is free during its life.

    Args:
        lives: One entry per buffer.
        align: Power of two, in bytes.
        guard: Bytes left free behind each buffer.

    Raises:
        ValueError: `align` is not a power of two, or a lifetime ends before it starts.

    Source: Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020),
    greedy by size.
    """
    if align <= 0 or align & (align - 1):
        raise ValueError(f"align must be a power of two; got: {align}")
    for life in lives:
        if life.last < life.first:
            raise ValueError(f"{life.name}: lifetime ends before it starts")

    def size(life: Lifetime) -> int:
        return -(-(life.nbytes + guard) // align) * align

    offsets: dict[str, int] = {}
    top = 0
    slots: dict[tuple[str, int], list[list[int]]] = {}
    for life in sorted((x for x in lives if x.twin), key=lambda x: (x.first, x.name)):
        pool = slots.setdefault((life.twin, life.nbytes), [])
        slot = next((s for s in pool if s[1] < life.first), None)
        if slot is None:
            slot = [top, 0]
            pool.append(slot)
            top += size(life)
        slot[1] = life.last
        offsets[life.name] = slot[0]
    floor, placed = top, []  # type: int, list[tuple[int, int, Lifetime]]
    for life in sorted((x for x in lives if not x.twin), key=lambda x: (-x.nbytes, x.first)):
        at = floor
        for start, end, other in sorted(placed, key=lambda p: p[:2]):
            if other.last < life.first or other.first > life.last:
                continue
            if at + size(life) <= start:
                break
            at = max(at, end)
        offsets[life.name] = at
        placed.append((at, at + size(life), life))
        top = max(top, at + size(life))
    return ArenaPlan(offsets, top)
