"""Random numbers of xoroshiro128+ by lanes, and permutations.

The stream is cut into parts of 2**k numbers, one for each lane of each work unit. A lane's state is
the stream's, moved ahead by matrices of 2**k, 2**(k + 1), ... steps, one for each bit of the lane's
number; then all lanes step together. `mgeserial.ops.generator` says where the recurrence is from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadrun.backends.cpu.kernels.nest import Lanes, Nest, Num, Tensor
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target
from mgeserial.ops.generator import jump

_LONGEST = 12  # log2 of the numbers of a part, where there are many
_ONE = 0x7F << 23  # 1.0 as bits of float32


@dataclass(frozen=True, slots=True)
class Cut:
    """How a stream is cut: numbers in all, lanes, log2 of the numbers of a part."""

    count: int
    lanes: int
    exponent: int

    @classmethod
    def of(cls, count: int, lanes: int) -> Cut:
        """For vectors of `lanes` elements."""
        each = -(-count // lanes)
        return cls(count, lanes, min(max(each - 1, 0).bit_length(), _LONGEST))

    @property
    def units(self) -> int:
        """Work units: vectors of parts."""
        return -(-self.count // (self.lanes << self.exponent))

    @property
    def bits(self) -> int:
        """Bits of a part's number."""
        return max(self.units * self.lanes - 1, 0).bit_length()

    def table(self) -> Array:
        """The matrices, (bits, 64, 4): images of a bit of the low and of the high word."""
        found = []
        for k in range(self.bits):
            low, high = jump(self.exponent + k)
            found.append(np.stack([low[:64], high[:64], low[64:], high[64:]], axis=1))
        return np.array(found, np.uint64).reshape(self.bits, 64, 4).view(np.int64)


def draw(cut: Cut, kind: str, target: Target) -> Kernel:
    """The next numbers of a stream: `uniform` (float32 of 23 bits), `short` (of 10), `integer`.

    Argument table: state (2,) of int64, the cut's table, numbers: float32 in (0, 1], or integers of
    63 bits.
    """
    nest = Nest(("int64", "int64", "int64" if kind == "integer" else "float32"), target)
    state, table, y = nest.arrays
    length = 1 << cut.exponent
    whole = cut.units * cut.lanes * length == cut.count
    with nest.each_unit(cut.units) as unit:
        number = nest.ramp().to("i64") + unit * nest.lanes
        start = [nest.splat(state[0]), nest.splat(state[1])]
        with nest.loop(0, cut.bits, [*start, number]) as bit:
            low, high, rest = bit.v
            moved = _moved(nest, table.move(bit.i * 256), low, high)
            chosen = (rest & 1).eq(1)
            kept = [nest.select(chosen, m, v) for m, v in zip(moved, (low, high), strict=True)]
            bit.next = [*kept, rest.shifted_down(1)]
        with nest.loop(0, length, [*bit.out[:2], number * length]) as turn:
            low, high, place = turn.v
            mask = None if whole else str((place < cut.count).text)
            y.scatter(place, _number(nest, low + high, kind), Lanes(turn.i, place, mask))
            turn.next = [*_step(low, high), place + 1]
    return nest.finish(f"draw_{kind}")


def _moved(nest: Nest, matrix: Tensor, low: Num, high: Num) -> list[Num]:
    """States moved by a matrix (64, 4)."""
    zero = nest.splat(nest.number(0, "i64"))
    with nest.loop(0, 64, [low, high, zero, zero]) as k:
        a, b, *words = k.v
        # All ones where the bit is set, else all zeros.
        chosen = [0 - (v & 1) for v in (a, b)]
        row = matrix.move(k.i * 4)
        words = [v ^ (chosen[0] & row[w]) ^ (chosen[1] & row[2 + w]) for w, v in enumerate(words)]
        k.next = [a.shifted_down(1), b.shifted_down(1), *words]
    return k.out[2:]


def _rotated(x: Num, by: int) -> Num:
    return (x << by) | x.shifted_down(64 - by)


def _step(low: Num, high: Num) -> list[Num]:
    high = high ^ low
    return [_rotated(low, 55) ^ high ^ (high << 14), _rotated(high, 36)]


def _number(nest: Nest, value: Num, kind: str) -> Num:
    if kind == "integer":
        return value & ((1 << 63) - 1)
    if kind == "short":
        bits = value.shifted_down(54).to("i32") << 13
    else:
        bits = value.shifted_down(41).to("i32")
    return 2.0 - nest.cast("bitcast", bits | _ONE, "float")


def permute(count: int, target: Target) -> Kernel:
    """A permutation (Fisher and Yates, from the end).

    Argument table: integers (count - 1,), result (count,) of int32. One unit.
    """
    nest = Nest(("int64", "int32"), target)
    draws, y = nest.arrays
    with nest.each_unit(1):
        nest.lines(count, lambda p: y.put(p, p.at))
        with nest.loop(0, count - 1) as turn:
            place = count - 1 - turn.i
            other = draws[turn.i] % (place + 1)
            first, second = y[place], y[other]
            y.put(place, second)
            y.put(other, first)
    return nest.finish("permute")
