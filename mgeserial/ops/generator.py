"""The generator behind the random operators: xoroshiro128+, many numbers at a time.

The recurrence is linear over the field of two elements, so a state can be moved 2**k steps ahead
by a 128 x 128 bit matrix. A long run is cut into lanes that start 2**k steps apart and are then
stepped together; the numbers and the state left behind are those of one step after another.

Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2018), in its version
of 2016 with rotations 55, 14, 36; Steele, Lea and Flood, "Fast splittable pseudorandom number
generators" (2014) for the seeding; semantics section 13 for how MegEngine 1.13.0 uses them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Generator", "jump", "steps"]

_MASK = (1 << 64) - 1
_LANES = 2048
_SHORT = 1024
_BLOCK = 1 << 22

U64 = npt.NDArray[np.uint64]


def _splitmix(seed: int) -> tuple[int, int]:
    """Two outputs of splitmix64, the state a seed stands for."""
    outputs = []
    state = seed & _MASK
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        outputs.append(z ^ (z >> 31))
    return outputs[0], outputs[1]


def _rotate(x: U64, by: int) -> U64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


def _step(low: U64, high: U64) -> tuple[U64, U64]:
    high = high ^ low
    return _rotate(low, 55) ^ high ^ (high << np.uint64(14)), _rotate(high, 36)


def _apply(columns: tuple[U64, U64], low: U64, high: U64) -> tuple[U64, U64]:
    """States moved by a matrix, given as the images of the 128 unit states."""
    out_low, out_high = np.zeros_like(low), np.zeros_like(high)
    for half, word in enumerate((low, high)):
        for bit in range(64):
            # All ones where the bit is set, else all zeros.
            chosen = np.uint64(0) - ((word >> np.uint64(bit)) & np.uint64(1))
            out_low ^= chosen & columns[0][64 * half + bit]
            out_high ^= chosen & columns[1][64 * half + bit]
    return out_low, out_high


@functools.lru_cache(maxsize=64)
def jump(exponent: int) -> tuple[U64, U64]:
    """The matrix of 2**exponent steps."""
    if exponent == 0:
        return _step(*steps(0))
    half = jump(exponent - 1)
    return _apply(half, *half)


def steps(count: int) -> tuple[U64, U64]:
    """The matrix of any number of steps, as the images of the 128 unit states."""
    units = np.uint64(1) << np.arange(64, dtype=np.uint64)
    zeros = np.zeros(64, dtype=np.uint64)
    low, high = np.concatenate([units, zeros]), np.concatenate([zeros, units])
    for exponent in range(count.bit_length()):
        if count >> exponent & 1:
            low, high = _apply(jump(exponent), low, high)
    return low, high


class Generator:
    """A stream of 64-bit numbers that goes on from call to call."""

    def __init__(self, seed: int) -> None:
        self.state = _splitmix(seed)

    @classmethod
    def of(cls, state: dict[str, Any], seed: int) -> Generator:
        """The generator kept in an operator's state; made from `seed` at the first use."""
        found = state.get("generator")
        if not isinstance(found, cls):
            found = state["generator"] = cls(seed)
        return found

    def integers(self, count: int) -> U64:
        """The next `count` numbers, as uint64 of shape (count,)."""
        return self._few(count) if count <= _SHORT else self._many(count)

    def uniform(self, count: int) -> npt.NDArray[np.float32]:
        """`count` float32 numbers in (0, 1], from the upper 23 bits of each number."""
        numbers = np.empty(count, np.float32)
        # Block by block, as the integers take twice the memory.
        for start in range(0, count, _BLOCK):
            part = numbers[start : start + _BLOCK]
            bits = (self.integers(len(part)) >> np.uint64(41)).astype(np.uint32)
            np.subtract(np.float32(2), (bits | np.uint32(0x7F << 23)).view(np.float32), out=part)
        return numbers

    def uniform16(self, count: int) -> npt.NDArray[np.float16]:
        """`count` float16 numbers in (0, 1], from the upper 10 bits of each number."""
        bits = (self.integers(count) >> np.uint64(54)).astype(np.uint16)
        return np.float16(2) - (bits | np.uint16(0xF << 10)).view(np.float16)

    def normal(self, count: int, *, half: bool = False) -> npt.NDArray[np.float32]:
        """`count` float32 numbers of the standard normal distribution (Box and Muller).

        They come from pairs of uniform numbers, of float16 ones with `half`.
        """
        even = count + count % 2
        uniform = self.uniform16(even).astype(np.float32) if half else self.uniform(even)
        pairs = uniform.reshape(-1, 2)
        radius = np.sqrt(np.float32(-2) * np.log(pairs[:, 0]))
        angle = np.float32(2 * np.pi) * pairs[:, 1]
        both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return np.asarray(both.reshape(-1)[:count])

    def permutation(self, count: int) -> npt.NDArray[np.int32]:
        """A permutation of 0 to count - 1 (Fisher and Yates, from the end)."""
        order = list(range(count))
        positions = np.arange(count - 1, 0, -1, dtype=np.uint64)
        draws = self.integers(len(positions)) & np.uint64((1 << 63) - 1)
        chosen = (draws % (positions + np.uint64(1))).tolist()
        for place, other in zip(range(count - 1, 0, -1), chosen, strict=True):
            order[place], order[other] = order[other], order[place]
        return np.array(order, dtype=np.int32)

    def _few(self, count: int) -> U64:
        low, high = self.state
        numbers = []
        for _ in range(count):
            numbers.append((low + high) & _MASK)
            high ^= low
            low = ((low << 55 | low >> 9) ^ high ^ (high << 14)) & _MASK
            high = (high << 36 | high >> 28) & _MASK
        self.state = low, high
        return np.array(numbers, dtype=np.uint64)

    def _many(self, count: int) -> U64:
        exponent = max(count // _LANES, 1).bit_length()
        length = 1 << exponent
        # One lane more than full ones: the last is where the next call goes on.
        lanes, rest = count // length + 1, count % length
        low, high = (np.array([word], dtype=np.uint64) for word in self.state)
        grown = 0
        while len(low) < lanes:
            next_low, next_high = _apply(jump(exponent + grown), low, high)
            low, high = np.concatenate([low, next_low]), np.concatenate([high, next_high])
            grown += 1
        low, high = low[:lanes], high[:lanes]
        numbers = np.empty((length, lanes), dtype=np.uint64)
        for step in range(length):
            if step == rest:
                self.state = int(low[-1]), int(high[-1])
            np.add(low, high, out=numbers[step])
            low, high = _step(low, high)
        return np.ascontiguousarray(numbers.T).reshape(-1)[:count]
