"""Where kernels that read windows find the rows of an input that may be a ring (see layout.py).

A range of output rows needs fewer input rows than a ring holds, so they lie in two rounds at most:
one subtraction finds a row where a division would take as long as many pixels.
"""

from __future__ import annotations

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.layout import Image


def round_of(f: Func, x: Image, first: Int) -> Int:
    """Where the round starts that holds row `first`, the first one that a range of rows needs."""
    return f.sub(first, f.mod(first, x.ring)) if x.ring else 0


def row_offset(f: Func, x: Image, row: Int, round_: Int) -> Int:
    """Bytes from the origin to the start of a row."""
    if not x.ring:
        return f.mul(row, x.row)
    slot = f.sub(row, round_)
    over = f.icmp("sge", slot, x.ring)
    slot = f.op(f"select i1 {over}, i64 {f.sub(slot, x.ring)}, i64 {slot}")
    return f.mul(slot, x.row)


def row_or_zeros(f: Func, x: Image, row: Int, round_: Int) -> Int:
    """The same, of a ring whose rows above and below the image are one row of zeros."""
    at = row_offset(f, x, row, round_)
    if not (x.halo.top or x.halo.bottom):
        return at
    outside = f.icmp("uge", row, x.h)  # negative ones are large
    return f.op(f"select i1 {outside}, i64 {x.ring * x.row}, i64 {at}")
