"""A program whose every buffer stands alone between canaries, filled with NaN before each run.

A store outside a buffer changes a canary; a load outside one, of a lane that holds no channel, or
of memory that nobody has written yet, brings a NaN into the result. Inputs and outputs are aligned
to their elements only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np

from loadrun.arena import ArenaPlan, Lifetime
from loadrun.backends.cpu import placing
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Array, Place, Plan, Step
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import Target

_FRAME = 4096  # bytes on either side of a buffer
_POISON = 0xFF  # as float32 a NaN, as an integer -1 or the largest


def spread(lives: Sequence[Lifetime], *, align: int = 4096, guard: int = 0) -> ArenaPlan:
    """`plan_arena` for this purpose: nothing shares memory, frames lie between."""
    offsets, at = {}, _FRAME
    for life in lives:
        offsets[life.name] = at
        at += -(-life.nbytes // align) * align + _FRAME
    return ArenaPlan(offsets, at)


class Framed:
    """An array between frames, at an address that is a multiple of its element's size only."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        self.raw = np.full(size + 2 * _FRAME + 128, _POISON, np.uint8)
        base = self.raw.ctypes.data
        self.first = _FRAME + (-(base + _FRAME) % 64) + kind.itemsize
        self.last = self.first + size
        self.array: Array = self.raw[self.first : self.last].view(kind).reshape(shape)

    def check(self, name: str) -> None:
        """Fail if a byte of a frame has changed."""
        outside = np.r_[self.raw[: self.first], self.raw[self.last :]]
        changed = np.flatnonzero(outside != _POISON)
        size = self.last - self.first
        where = [int(c) - self.first + (size if c >= self.first else 0) for c in changed[:5]]
        assert not len(changed), f"{name}: stores outside at bytes {where}"


def pixels(image: Image) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which bytes of an image tensor (of one ring) belong to pixels; the others are halo."""
    mask = np.zeros(image.nbytes, np.bool_)
    images, rows = (1, image.ring) if image.ring else (image.n, image.h)
    n, b, y, x = np.ix_(*map(np.arange, (images, image.blocks, rows, image.w)))
    at = image.origin + n * image.image + b * image.block + y * image.row + x * image.pixel
    for byte in range(image.pixel):
        mask[(at + byte).reshape(-1)] = True
    return mask


class Guarded(Program):
    """`Program` with frames, poison and checks; nothing is cached."""

    def __init__(self, plan: Plan, target: Target) -> None:
        with mock.patch.object(placing, "plan_arena", spread):
            super().__init__(plan, target, Cache(None))
        self._arena_bytes = self._arena.array(0, self._arena.nbytes)
        self._consts_before = self._whole_consts().copy()
        self._free = np.ones(self._arena.nbytes, np.bool_)
        self._halos: list[tuple[str, int, np.ndarray[Any, np.dtype[np.bool_]]]] = []
        for buffer in plan.buffers.values():
            ring = buffer.place is Place.RING
            if (buffer.place not in (Place.ARENA, Place.HALO) and not ring) or buffer.alias:
                continue
            if buffer.name not in self._bases:
                continue  # nothing uses it
            first = self._bases[buffer.name] - self._arena.address
            last = self.placed.nbytes if ring else first + 1
            for at in range(first, last, self.placed.between or last):
                self._free[at : at + buffer.nbytes] = False
                if buffer.place is Place.HALO or ring:
                    assert buffer.image is not None
                    self._halos.append((buffer.name, at, pixels(buffer.image)))
        self._framed: dict[str, Framed] = {}
        kernels = [s.kernel.scratch for s in plan.steps if isinstance(s, Step)]
        self._scratch_used = max([*kernels, 0])

    def _whole_consts(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._consts.array(0, self._consts.nbytes)

    def _poison(self) -> None:
        halo = np.zeros(self._arena.nbytes, np.bool_)
        for _, at, inside in self._halos:
            halo[at : at + inside.size] = ~inside
        self._arena_bytes[~halo] = _POISON
        scratch = self._team._scratch
        scratch.array(0, scratch.nbytes)[:] = _POISON

    def _allocate(self, arrays: dict[str, Array]) -> None:
        for name in self.plan.outputs:
            b = self.plan.buffers.get(name)
            if b is not None:
                self._framed[name] = Framed(b.shape, b.dtype)
                arrays[name] = self._framed[name].array

    def run(self, feeds: Any) -> list[Array]:
        """As `Program.run`, then look at everything that may not have changed."""
        self._framed = {}
        given = feeds.values() if isinstance(feeds, dict) else feeds
        inputs = []
        for array in given:
            framed = Framed(array.shape, array.dtype.name)
            framed.array[...] = array
            inputs.append(framed)
        before = [f.array.tobytes() for f in inputs]
        self._poison()
        results = super().run([f.array for f in inputs])
        for k, (framed, bytes_) in enumerate(zip(inputs, before, strict=True)):
            framed.check(f"input {k}")
            assert framed.array.tobytes() == bytes_, f"input {k} was written to"
        for name, framed in self._framed.items():
            framed.check(name)
        self._check_memory()
        return results

    def _check_memory(self) -> None:
        changed = np.flatnonzero(self._free & (self._arena_bytes != _POISON))
        assert not len(changed), f"stores outside of buffers: {self._near(changed)}"
        for name, at, inside in self._halos:
            dirty = np.flatnonzero(self._arena_bytes[at : at + inside.size][~inside])
            assert not len(dirty), f"{name}: {len(dirty)} bytes of its halo were written"
        assert (self._whole_consts() == self._consts_before).all(), "constants were written to"
        team, used = self._team, self._scratch_used
        for k in range(team.threads):
            rest = team._scratch.array(k * team._stride + used, team._stride - used)
            assert (rest == _POISON).all(), f"stores outside of the scratch memory of thread {k}"

    def _near(self, changed: np.ndarray[Any, Any]) -> list[str]:
        """The buffers that the first changed bytes are nearest to."""
        found = []
        starts = {b - self._arena.address: n for n, b in self._bases.items()}
        for at in changed[:3]:
            below = max((s for s in starts if 0 <= s <= at), default=0)
            found.append(f"byte {int(at) - below} from the start of {starts.get(below, '?')}")
        return found
