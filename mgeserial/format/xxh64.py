"""XXH64 in plain Python: ids of operators and hashes of graphs.

Files hold XXH64 digests in two places: the ids of operators (of their registered names) and
`Graph.hash` of v1 (of the flatbuffer). A dependency for these few bytes is not worth it: 200 kB
take about 0.03 s.

Source: xxHash specification, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md;
seeds and inputs from operators.json and FORMAT section (a).
"""

from __future__ import annotations

import struct

__all__ = ["graph_hash", "operator_id", "xxh64"]

_MASK = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_OPERATOR_SEED = 20160701
_GRAPH_SEED = 0x4B4E74B36B5D11


def _round(state: int, lane: int) -> int:
    state = (state + lane * _P2) & _MASK
    return ((state << 31 | state >> 33) & _MASK) * _P1 & _MASK


def _merge(state: int, lane: int) -> int:
    return ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK


def _stripes(view: memoryview, seed: int) -> int:
    """State after the 32-byte stripes of `view`, whose length is a multiple of 32."""
    mask, p1, p2 = _MASK, _P1, _P2
    a, b = (seed + p1 + p2) & mask, (seed + p2) & mask
    c, d = seed & mask, (seed - p1) & mask
    # Four independent lanes, written out: a call per lane would double the time.
    for w, x, y, z in struct.iter_unpack("<4Q", view):
        a = (a + w * p2) & mask
        b = (b + x * p2) & mask
        c = (c + y * p2) & mask
        d = (d + z * p2) & mask
        a = ((a << 31 | a >> 33) & mask) * p1 & mask
        b = ((b << 31 | b >> 33) & mask) * p1 & mask
        c = ((c << 31 | c >> 33) & mask) * p1 & mask
        d = ((d << 31 | d >> 33) & mask) * p1 & mask
    state = (a << 1 | a >> 63) + (b << 7 | b >> 57) + (c << 12 | c >> 52) + (d << 18 | d >> 46)
    state &= mask
    for lane in (a, b, c, d):
        state = _merge(state, lane)
    return state


def xxh64(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """The 64-bit digest of `data`."""
    view = memoryview(data).cast("B")
    size = len(view)
    at = size // 32 * 32
    state = _stripes(view[:at], seed) if at else (seed + _P5) & _MASK
    state = (state + size) & _MASK
    end = at + (size - at) // 8 * 8
    for (lane,) in struct.iter_unpack("<Q", view[at:end]):
        state ^= _round(0, lane)
        state = ((state << 27 | state >> 37) & _MASK) * _P1 + _P4 & _MASK
    at = end
    if size - at >= 4:
        state ^= struct.unpack_from("<I", view, at)[0] * _P1 & _MASK
        state = ((state << 23 | state >> 41) & _MASK) * _P2 + _P3 & _MASK
        at += 4
    for byte in view[at:]:
        state ^= byte * _P5 & _MASK
        state = (state << 11 | state >> 53) * _P1 & _MASK
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


def operator_id(name: str, *, persist: bool) -> int:
    """Id under which files store an operator.

    Args:
        name: Its registered name, with the version suffix (`ConvBiasV4`).
        persist: The id of MGBC files and of opr_version 2 (the name with a NUL byte), else that of
            MGBS files and of opr_version 1 (the name without `V` and one digit at its end).
    """
    if persist:
        data = name.encode() + b"\0"
    else:
        bare = name[:-2] if name[-2:-1] == "V" and name[-1:].isdigit() else name
        data = bare.encode()
    return xxh64(data, _OPERATOR_SEED) or 1


def graph_hash(tail: bytes | memoryview) -> int:
    """`Graph.hash` of a v1 flatbuffer.

    Args:
        tail: Its bytes from the length word of the `output_vars_idx` vector to the end.
    """
    return max(xxh64(tail, _GRAPH_SEED), 1)
