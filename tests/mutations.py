"""Damage to files, repeatable from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

__all__ = ["mutate"]

_NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)

Rng = random.Random
Mutation = Callable[[bytearray, Rng], None]


def _one_byte(data: bytearray, rng: Rng) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 255, 1, 127, 128, rng.randrange(256)))


def _one_bit(data: bytearray, rng: Rng) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(data: bytearray, rng: Rng) -> None:
    """An aligned number becomes an extreme one, or moves by a little."""
    if len(data) < 8:
        return
    at = rng.randrange(len(data) // 4) * 4
    if at + 4 > len(data):
        return
    if rng.random() < 0.5:
        value = rng.choice(_NUMBERS)
    else:
        value = struct.unpack_from("<I", data, at)[0] + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    struct.pack_into("<I", data, at, value & 0xFFFFFFFF)


def _wide_number(data: bytearray, rng: Rng) -> None:
    if len(data) >= 8:
        at = rng.randrange(len(data) - 7)
        struct.pack_into("<Q", data, at, rng.choice((0, 1, 2**63, 2**64 - 1, rng.getrandbits(64))))


def _copied(data: bytearray, rng: Rng) -> None:
    """A run of bytes is written over another: tables in the place of others."""
    size = min(rng.choice((2, 4, 8, 12, 32)), len(data))
    start, end = rng.randrange(len(data) - size + 1), rng.randrange(len(data) - size + 1)
    data[end : end + size] = data[start : start + size]


def _cut_out(data: bytearray, rng: Rng) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 2, 4, 16, 64))]


def _inserted(data: bytearray, rng: Rng) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def _cut_off(data: bytearray, rng: Rng) -> None:
    del data[rng.randrange(len(data)) :]


def _offset(data: bytearray, rng: Rng) -> None:
    """An offset is made to point somewhere else in the file."""
    if len(data) >= 8:
        at = rng.randrange(len(data) // 4) * 4
        if at + 4 <= len(data):
            struct.pack_into("<I", data, at, rng.randrange(len(data)) & ~3)


_ALL: tuple[Mutation, ...] = (
    _one_byte, _one_byte, _one_bit, _one_bit, _number, _number, _number, _wide_number, _copied,
    _copied, _cut_out, _inserted, _cut_off, _offset,
)  # fmt: skip


def mutate(data: bytes, rng: Rng) -> bytes:
    """One to four changes, mostly one: several at once rarely get far."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 4))):
        if changed:
            rng.choice(_ALL)(changed, rng)
    return bytes(changed)
