"""Cut steps into chunks of work: ranges of units, and bands of rows through several steps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadrun.backends.cpu.plan import Buffer, Entry, Rows, Step
from loadrun.backends.cpu.target import Target

_CHUNKS_PER_THREAD = 4
Moves = tuple[tuple[str, int], ...]  # buffers and bytes
_BAND = 0.85  # of the second-level cache


@dataclass(frozen=True, slots=True)
class Range:
    """Units [begin, end) of one entry of one step of a group.

    Attributes:
        step, entry: Numbers.
        begin, end: Units.
        low, high: In bands, the rows of the step's output.
        copy: Which of the places of rings (see placing.py).
        moves: Bytes to add to the pointers into some buffers (see rings.py).
    """

    step: int
    entry: int
    begin: int
    end: int
    low: int = 0
    high: int = 0
    copy: int = 0
    moves: Moves = ()


def split(units: int, threads: int) -> list[tuple[int, int]]:
    """Ranges that threads claim: one for one thread, else the same number in every share.

    Shares (see runtime_ir.py) differ by one unit at most, and so do the ranges of a share.
    """
    if threads == 1 or units <= 1:
        return [(0, units)]
    if units <= threads:
        return [(k, k + 1) for k in range(units)]
    count = min(units // threads, _CHUNKS_PER_THREAD)
    out = []
    for share in range(threads):
        low, high = units * share // threads, units * (share + 1) // threads
        edges = [low + (high - low) * k // count for k in range(count + 1)]
        out += list(itertools.pairwise(edges))
    return out


def ranges(entry: Entry, number: int, threads: int) -> list[Range]:
    """The ranges of entry `number` of a step that is not in a band."""
    parts = split(entry.units, 1 if entry.ordered else threads)
    return [Range(0, number, entry.first + a, entry.first + b) for a, b in parts]


def rows_of(step: Step) -> Rows:
    """How a step of a band works by rows."""
    if step.rows is None:
        raise ValueError(f"{step.name}: cannot run in bands")
    return step.rows


def band_bytes(target: Target) -> int:
    """Bytes that a band of rows may touch: what a core's second-level cache can hold."""
    return int(_BAND * target.l2)


def bands(
    group: Sequence[Step],
    buffers: Mapping[str, Buffer],
    threads: int,
    size: int,
) -> list[list[Range]]:
    """Chunks that run a group of steps band by band of the last step's rows.

    Before a band of the last step every earlier step advances to the rows that it needs, so
    that what one step writes is still in the cache when the next reads it. Each chunk is a run
    of successive bands of one image and starts on its own: rows at its upper edge are computed
    again, with the same values at the same place.

    Args:
        group: Steps with `rows`, each reading outputs of earlier ones or older buffers.
        buffers: For sizes.
        threads: Threads that share the chunks.
        size: Bytes that a band may touch.
    """
    last = len(group) - 1
    height = rows_of(group[last]).rows
    images = buffers[group[last].writes[0]].shape[0]
    maker = {name: k for k, step in enumerate(group) for name in step.writes}
    touched = {n for s in group for n in (*s.reads[:2], *s.writes)}
    per_row = sum(_image_bytes(buffers[n]) for n in touched if n in buffers) / height
    unit = max(rows_of(s).rows_per_unit for s in group)
    tall = max(int(size / per_row) // unit * unit, unit)
    parts = 1
    if threads > 1:
        # Twice the threads evens out their speeds, but small shares repeat many edge rows.
        shares = 2 * threads if height * images >= 24 * 2 * threads else threads
        parts = max(min(shares // images, height // unit), 1)
    steps = -(-height // unit)
    edges = [min((steps * p + parts // 2) // parts * unit, height) for p in range(parts + 1)]
    chunks: list[list[Range]] = []
    for image in range(images):
        for low, high in itertools.pairwise(edges):
            chunk: list[Range] = []
            reached = _needs(group, maker, low, first=True)
            # Bands of nearly one size: none is left with a single row.
            bands = -(-(high - low) // tall)
            even = -(-(high - low) // (bands * unit)) * unit if bands else tall
            for top in range(low, high, even):
                ends = _needs(group, maker, min(top + even, high), first=False)
                for k, step in enumerate(group):
                    if ends[k] > reached[k]:
                        chunk.append(_range(k, step, image, reached[k], ends[k]))
                        reached[k] = ends[k]
            if chunk:
                chunks.append(chunk)
    return chunks


def _range(k: int, step: Step, image: int, low: int, high: int) -> Range:
    r = rows_of(step)
    begin = low // r.rows_per_unit * r.units_per_row
    end = -(-high // r.rows_per_unit) * r.units_per_row
    base = image * -(-r.rows // r.rows_per_unit) * r.units_per_row
    return Range(k, 0, base + begin, base + end, low, high)


def _image_bytes(buffer: Buffer) -> float:
    """Bytes of one image, whether or not all of it is in memory at a time."""
    image = buffer.image
    if image is None:
        return buffer.nbytes / buffer.shape[0]
    return image.blocks * image.row * image.h


def _needs(group: Sequence[Step], maker: Mapping[str, int], row: int, *, first: bool) -> list[int]:
    """The row each step must start from, or reach, for the last step's `row`."""
    out: list[int | None] = [None] * len(group)
    out[-1] = row
    for j in range(len(group) - 1, -1, -1):
        r, mine = rows_of(group[j]), out[j]
        assert mine is not None, "a step of a band feeds nothing in it"
        grain = r.rows_per_unit
        mine = mine // grain * grain if first else min(-(-mine // grain) * grain, r.rows)
        out[j] = mine
        for position, name in enumerate(group[j].reads):
            k = maker.get(name)
            if k is None or k >= j:
                continue
            if position > 0:  # the operand of an epilogue: same row
                want = mine
            elif first:
                want = max(mine * r.stride - r.pad, 0)
            else:
                want = (mine - 1) * r.stride - r.pad + r.window
            want = min(max(want, 0), rows_of(group[k]).rows)
            have = out[k]
            if have is None:
                out[k] = want
            else:
                out[k] = min(have, want) if first else max(have, want)
    return [v for v in out if v is not None]
