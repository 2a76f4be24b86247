"""How threads share a Winograd convolution: a model of its cost.

All ways need the same products; they differ in how often the transformed weights U and inputs V are
read from beyond a core's own cache, in what one core reads that another has just written, in how
evenly the work divides, and in how full the register tiles are. Measured on Zen 5 with two threads,
3x3 on 28x28 of 128 channels: 235 us by panels of one shared V (no faster than one thread), 190 us
by panels with copies of V, 168 us by rows; 14x14 of 256: 270, 205 and 280 us.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.kernels.common import pieces
from loadrun.backends.cpu.target import Target

__all__ = ["Sizes", "Sharing", "share"]

# Bytes per second of one thread: from the shared cache, and from another core's own cache. The
# latter differs by a factor of five between neighbouring cores and those that share nothing.
_FAR = 40e9
_ACROSS = 5e9
# Products per second and lane with full tiles; each step of a tile costs as much as 3 more pixels.
_RATE = 8.75e9
_STEP = 3
_FITS = 0.8  # of the second-level cache
_FITS_FAR = 0.25  # of the shared cache; what is beyond goes to memory and back
_MEMORY = 25e9  # of all threads
_BESIDE = 0.35  # of reading is not hidden behind arithmetic, or the other way round
_FEW = 1.03  # a unit for each thread leaves nothing to even out


@dataclass(frozen=True, slots=True)
class Sharing:
    """By rows: `rows` rows of tiles in a unit; by panels (`rows` 0): `copies` of V."""

    rows: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """A Winograd convolution in numbers.

    Attributes:
        images: Batch.
        down, across: Rows of tiles of an image and tiles of a row.
        points: Points of the transform.
        channels: Input channels.
        vectors, nb: Output vectors, and those of a register tile.
        input_bytes: Of one image.
    """

    images: int
    down: int
    across: int
    points: int
    channels: int
    vectors: int
    nb: int
    input_bytes: int


def share(s: Sizes, threads: int, target: Target) -> Sharing:
    """The sharing of the least estimated time."""
    most = -(-s.down // threads) if threads > 1 else s.down
    found = [Sharing(c) for c in range(1, most + 1)]
    found.append(Sharing(0))
    copied = 4 * threads * s.points * s.channels * s.across * s.down
    if threads > 1 and s.images == 1 and copied <= target.l3:
        found.append(Sharing(0, threads))
    return min(found, key=lambda f: _seconds(s, f, threads, target))


def _seconds(s: Sizes, f: Sharing, threads: int, target: Target) -> float:
    """Estimated time of the thread that takes longest."""
    v_row = 4.0 * s.points * s.channels * s.across
    u = 4.0 * s.points * s.channels * s.vectors * target.lanes
    panels = -(-s.vectors // s.nb)
    rows = f.rows or s.down
    tile = target.tile(min(s.nb, 4))
    steps = sum((width + _STEP) * count for width, count in pieces(rows * s.across, tile))
    panel = s.points * s.channels * s.nb * steps / _RATE
    products = s.points * s.nb * target.vector_bytes * s.across * rows
    spills = v_row * rows + products > _FITS * target.l2
    other = (threads - 1) / threads
    if f.rows:
        units = s.images * -(-s.down // rows)
        mine = -(-units // threads)
        weights = u * (mine if u > _FITS * target.l2 else 1)
        inputs = v_row * rows * mine * (panels + 1 if spills else 1)
        moved = 0.0
        work = mine * panels * panel
        work *= _FEW if threads > 1 and units < 2 * threads else 1
    else:
        mine = -(-s.images * panels // threads)
        weights = u / threads
        inputs = v_row * rows * s.images * (mine // s.images + 1 if spills else 1)
        moved = other * s.images * (s.input_bytes if f.copies > 1 else v_row * rows)
        inputs += v_row * rows * s.images / (1 if f.copies > 1 else threads)
        work = mine * panel
    read = (weights + inputs) / _FAR
    far = v_row * rows * (threads if f.rows else f.copies * s.images)
    whole = 2 * f.copies * s.images * v_row * s.down
    beyond = whole if spills and far > _FITS_FAR * target.l3 else 0.0
    hidden = max(work, read) + _BESIDE * min(work, read)
    return hidden + moved / _ACROSS + beyond / _MEMORY
