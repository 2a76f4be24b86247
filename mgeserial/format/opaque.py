"""Content of newer releases, carried from one flatbuffer into another without understanding it.

Three things can be unknown: fields beyond the schema in a table that is known, members of a union
that the schema lacks, and what either of them refers to. Without a schema a word of four bytes may
be a number or an offset, so nothing can be moved on its own: a number taken for an offset would be
changed. Offsets count from their own place, however, so bytes that keep their distances keep their
meaning. Hence one contiguous region is copied as it is, from the table to the last byte that it
can reach, at the same alignment:

* an unknown union member is the region itself; the union's offset points into it;
* unknown fields stay where they are in a copy of the old table, which follows the new table's own
  fields; the new table's vtable names their places in that copy (`flatbuild.Tail`).

What a table can reach is found conservatively: every aligned word that could be an offset counts
as one, and it reaches up to the next object that the schema knows. Copies are bounded, so that a
file whose unknown parts point everywhere is refused instead of multiplied.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mgeserial.errors import UnsupportedError
from mgeserial.format.flatbuf import (
    SCALARS,
    BaseType,
    Buffer,
    FieldDef,
    Schema,
    TableDef,
    load_schema,
)
from mgeserial.format.flatbuild import Builder, Tail
from mgeserial.format.raw import Opaque

__all__ = ["Carrier", "known_objects", "opaque_bytes"]

# Copies may take twice the buffer they come from, and a little, but not more than this.
_MOST = 64 << 20
# A vtable says places in 16 bits.
_FAR = 0xFFFF
_I32 = struct.Struct("<i").unpack_from
_U16 = struct.Struct("<H").unpack_from


_ANY = TableDef("union member", (), False, 0, 1, 0, (), {})
_SCHEMAS = {b"mgb1": "graph_v1", b"mgv2": "graph_v2"}


@dataclass(slots=True, eq=False)
class _Known:
    """Intervals of the objects that the schema reaches, by address; `leaf` ones hold no offsets.

    `free` is the buffer with a work budget of its own: the reader may have used up the first.
    """

    free: Buffer
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    leaf: list[bool] = field(default_factory=list)

    def interval(self, at: int, size: int) -> tuple[int, int, bool]:
        """(start, end, leaf) of the known object at `at`, or of the gap from `at` to the next."""
        i = bisect.bisect_right(self.starts, at) - 1
        if i >= 0 and at < self.ends[i]:
            return self.starts[i], self.ends[i], self.leaf[i]
        after = self.starts[i + 1] if i + 1 < len(self.starts) else size
        return at, after, False


def known_objects(free: Buffer, schema: Schema) -> Iterator[tuple[int, int, bool]]:
    """(start, end, leaf) of every object that the schema's root reaches, each once or more."""
    stack: list[tuple[int, TableDef]] = [(free.follow(4), schema.root)]
    seen: set[tuple[int, int]] = set()
    while stack:
        pos, table = stack.pop()
        if (pos, id(table)) in seen:
            continue
        seen.add((pos, id(table)))
        at = free.layout(pos, table)
        yield pos, pos + free.inline_size(pos, table), False
        vtable = pos - int(_I32(free.data, pos)[0])
        yield vtable, vtable + int(_U16(free.data, vtable)[0]), True
        for item in table.fields:
            if at[item.slot]:
                yield from _field(free, schema, pos, at, item, stack)


def _field(
    buf: Buffer,
    schema: Schema,
    pos: int,
    at: tuple[int, ...],
    item: FieldDef,
    stack: list[tuple[int, TableDef]],
) -> Iterator[tuple[int, int, bool]]:
    """Objects that one field refers to; tables among them are put on the stack."""
    where = pos + at[item.slot]
    if item.base == BaseType.STRING:
        target = buf.follow(where)
        yield target, target + 5 + buf.u32(target), True
    elif item.base == BaseType.OBJECT and not schema.at(item.index).is_struct:
        stack.append((buf.follow(where), schema.at(item.index)))
    elif item.base == BaseType.UNION:
        kind = int(buf.scalar(pos + at[item.slot - 1], BaseType.UBYTE)) if at[item.slot - 1] else 0
        _member(buf.follow(where), kind, schema, item, stack)
    elif item.base == BaseType.VECTOR:
        yield from _vector(buf, schema, pos, at, item, stack)


def _member(
    target: int, kind: int, schema: Schema, item: FieldDef, stack: list[tuple[int, TableDef]]
) -> None:
    index = schema.enum_at(item.index).objects.get(kind)
    if index is not None:
        stack.append((target, schema.at(index)))


def _vector(
    buf: Buffer,
    schema: Schema,
    pos: int,
    at: tuple[int, ...],
    item: FieldDef,
    stack: list[tuple[int, TableDef]],
) -> Iterator[tuple[int, int, bool]]:
    where = pos + at[item.slot]
    inner = schema.at(item.index) if item.element == BaseType.OBJECT else None
    if item.element in SCALARS or (inner is not None and inner.is_struct):
        width = inner.size if inner is not None else SCALARS[item.element].size
        start, count = buf.bulk(where, width)
        yield start - 4, start + count * width, True
        return
    targets = buf.offsets(where)
    start = buf.follow(where)
    yield start, start + 4 + 4 * len(targets), False
    if item.element == BaseType.STRING:
        for target in targets:
            yield target, target + 5 + buf.u32(target), True
    elif inner is not None:
        stack.extend((target, inner) for target in targets)
    elif at[item.slot - 1]:
        for target, kind in zip(targets, buf.u8s(pos + at[item.slot - 1]), strict=False):
            _member(target, kind, schema, item, stack)


class Carrier:
    """Copies unknown content into the buffer of one builder.

    Args:
        builder: Where regions are written.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._known: dict[int, _Known] = {}  # the buffers live as long as the opaques do
        self._copied: dict[int, int] = {}
        self._regions: dict[tuple[int, int], int] = {}

    def member(self, opaque: Opaque) -> int:
        """Write the region of an unknown table; return the table's offset in the new buffer."""
        key = (id(opaque.buffer), opaque.pos)
        if key not in self._regions:
            self._regions[key] = self._member(opaque.buffer, opaque.pos)
        return self._regions[key]

    def _member(self, buf: Buffer, pos: int) -> int:
        # This much is sure: a table stands here. So its vtable, which may be far away, is copied
        # beside it instead of being reached.
        self._map(buf).free.layout(pos, _ANY)  # within the buffer, with a vtable that is one
        vtable = pos - int(_I32(buf.data, pos)[0])
        row = bytes(buf.data[vtable : vtable + int(_U16(buf.data, vtable)[0])])
        low, high = self._reach(buf, [pos], pos)
        self._charge(buf, high - low)
        region = bytearray(buf.data[low:high])
        lead = -len(row) % 8
        struct.pack_into("<i", region, pos - low, pos - low + len(row) + lead)
        start = self._builder.verbatim(bytes(region), low % 8)
        # What lies before the region is at a multiple of 8 less `low % 8`; only 2 matter here.
        self._builder.verbatim(row + bytes(lead), (low - len(row) - lead) % 8)
        return start - (pos - low)

    def tail(self, opaque: Opaque) -> Tail:
        """Make what a table of the new buffer needs to go on having the old one's unknown fields.

        Raises:
            UnsupportedError: The fields are too far apart or too entangled to be kept.
        """
        pos, table = opaque.pos, opaque.table
        assert table is not None
        buf = self._map(opaque.buffer).free
        slots = buf.unknown_slots(pos, table)
        inline = buf.inline_size(pos, table)
        words: list[int] = []
        bounds = sorted({*(o for o in buf.layout(pos, table) if o), *(o for _, o in slots), inline})
        for _, at in slots:
            end = bounds[bisect.bisect_right(bounds, at)]
            words += range(pos + at + (-(pos + at) % 4), pos + end - 3, 4)
        targets = [w + buf.u32(w) for w in words if self._is_offset(buf, w)]
        low, high = self._reach(buf, targets, pos)
        low, high = min(low, pos) // 8 * 8, max(high, pos + inline)
        self._charge(buf, high - low)
        if pos - low + inline > _FAR - 256:
            raise UnsupportedError(
                "fields of a newer release lie too far from their table to be carried over",
                path=buf.path,
                offset=buf.base + pos,
            )
        return Tail(
            bytes(buf.data[low:high]),
            pos - low + inline,
            [(slot, pos - low + at) for slot, at in slots],
        )

    def _charge(self, buf: Buffer, amount: int) -> None:
        total = self._copied.get(id(buf), 0) + amount
        self._copied[id(buf)] = total
        if total > min(2 * buf.size + (1 << 20), _MOST):
            raise UnsupportedError(
                "what a newer release wrote is too entangled with the rest to be carried over",
                path=buf.path,
                hint="`mgeserial info` names the unknown parts; write it with the newer release",
            )

    def _map(self, buf: Buffer) -> _Known:
        known = self._known.get(id(buf))
        if known is None:
            free = Buffer(buf.data, path=buf.path, base=buf.base, budget=16 * buf.size + (1 << 20))
            known = self._known[id(buf)] = self._known[id(free)] = _Known(free)
            schema = load_schema(_SCHEMAS[bytes(buf.data[8:12])])
            for start, end, leaf in sorted(set(known_objects(free, schema))):
                if known.ends and start < known.ends[-1]:  # shared in an unusual way: one interval
                    known.ends[-1] = max(known.ends[-1], end)
                    known.leaf[-1] = known.leaf[-1] and leaf
                else:
                    known.starts.append(start)
                    known.ends.append(end)
                    known.leaf.append(leaf)
        return known

    @staticmethod
    def _is_offset(buf: Buffer, at: int) -> bool:
        value = buf.u32(at)
        return value >= 4 and (at + value) % 4 == 0 and at + value + 4 <= buf.size

    def _reach(self, buf: Buffer, targets: list[int], table: int) -> tuple[int, int]:
        """Lowest and highest address of the table at `table` and what the targets can reach."""
        known = self._map(buf)
        low, high = table, table + 4
        stack, seen = list(targets), set[int]()
        while stack:
            at = stack.pop()
            start, end, leaf = known.interval(at, buf.size)
            if start in seen:
                continue
            seen.add(start)
            low, high = min(low, start), max(high, end)
            if high - low > _MOST:
                break  # `_charge` refuses it
            if not leaf:
                stack.extend(_candidates(buf, start, end, table))
        return low, high


def opaque_bytes(opaque: Opaque) -> bytes:
    """The region of an unknown table, as it would be written.

    Equal bytes mean equal content; equal content may have other bytes where other things stand
    around it, for a region holds all that the table might reach.

    Raises:
        UnsupportedError: It is too entangled with the rest of its file.
    """
    builder = Builder()
    start = Carrier(builder).member(opaque)
    return builder.tail(start)


def _candidates(buf: Buffer, start: int, end: int, table: int) -> list[int]:
    """Addresses that words of [start, end) may refer to: offset targets, vtables but of `table`."""
    first = start + -start % 4
    count = max(0, (end - first) // 4)
    words: npt.NDArray[np.int64] = np.frombuffer(
        buf.data, dtype="<u4", count=count, offset=first
    ).astype(np.int64)
    places = first + 4 * np.arange(count, dtype=np.int64)
    targets = places + words
    fits = (words >= 4) & (targets % 4 == 0) & (targets + 4 <= buf.size)
    signed = words - ((words >> 31) << 32)
    vtables = places - signed
    maybe = (vtables >= 0) & (vtables + 4 <= buf.size) & (vtables % 2 == 0)
    maybe &= (signed != 0) & (places != table)
    found = [int(t) for t in targets[fits]]
    for place, vtable in zip(places[maybe].tolist(), vtables[maybe].tolist(), strict=True):
        nbytes, inline = struct.unpack_from("<HH", buf.data, vtable)
        if nbytes < 4 or nbytes % 2 or vtable + nbytes > buf.size or inline < 4:
            continue
        if place + inline <= buf.size:
            slots = struct.unpack_from(f"<{(nbytes - 4) // 2}H", buf.data, vtable + 4)
            if all(s == 0 or 4 <= s < inline for s in slots):
                found.append(vtable)
    return found
