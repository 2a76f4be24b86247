"""Writing FlatBuffers from the end to the front, with large values spliced in without a copy.

`Builder` holds a list of parts in order of creation; the buffer is the parts in reverse. Offsets
are distances from the end of the buffer to an object's first byte, as in every FlatBuffers
builder, so they are known before the buffer is whole and nothing is moved later. A part may be a
`Blob`: bytes that lie elsewhere (in a file, in an array) and are only fetched when written out.

The alignment rules, the order of bytes and the sharing of vtables are those of the library's own
builders, so that equal calls give equal bytes (a test compares with `flatbuffers.Builder`).
Source: FlatBuffers internals, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

__all__ = ["Blob", "Builder", "Field", "Part", "Tail"]


class Blob(Protocol):
    """Bytes that are made when they are written."""

    @property
    def nbytes(self) -> int:
        """How many bytes."""
        ...

    def tobytes(self) -> bytes:
        """The bytes."""
        ...


Part: TypeAlias = "bytes | memoryview | Blob"

# (slot, struct code, value). Code "o" is an offset to an object, "5s" a struct of 5 bytes
# without alignment of its own.
Field = tuple[int, str, Any]

_WIDTHS = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "o": 4}
_WIDTHS |= {"q": 8, "Q": 8, "d": 8}
_U32 = struct.Struct("<I").pack
_I32 = struct.Struct("<i").pack
_ZEROS = bytes(8)


class Tail:
    """Bytes of another buffer that follow a table's inline part, holding slots of its own.

    `data` must start at a multiple of 8 of its buffer (`lead` bytes were added for that), `inline`
    is the offset in `data` behind the last byte that belongs to the table, `slots` are (slot,
    offset in `data`).
    """

    __slots__ = ("data", "inline", "slots")

    def __init__(self, data: bytes, inline: int, slots: Sequence[tuple[int, int]]) -> None:
        self.data = data
        self.inline = inline
        self.slots = tuple(slots)


class _Plan:
    """How the fields of one table lie: made once for each (fields, alignment of the end)."""

    __slots__ = ("codec", "is_wide", "length", "offsets", "refs")

    def __init__(self, fields: Sequence[tuple[int, str]], phase: int) -> None:
        size = phase
        places: list[tuple[str, int]] = []
        offsets: dict[int, int] = {}
        refs: list[tuple[int, int]] = []
        for index, (slot, code) in enumerate(fields):
            width = _WIDTHS.get(code)
            pad = 0 if width is None else -size % width
            width = int(code[:-1]) if width is None else width
            size += pad + width
            places.append((("I" if code == "o" else code), pad))
            offsets[slot] = size
            if code == "o":
                refs.append((index, size - phase))
        pad = -size % 4
        size += pad + 4
        text = "<i" + (f"{pad}x" if pad else "")
        for code, pad in reversed(places):
            text += code + (f"{pad}x" if pad else "")
        self.codec = struct.Struct(text)
        self.length = size - phase
        self.is_wide = any(code in "qQd" for _, code in fields)
        # Distance of each field from the table's first byte.
        self.offsets = {slot: size - at for slot, at in offsets.items()}
        self.refs = tuple(refs)


_plans: dict[tuple[tuple[tuple[int, str], ...], int], _Plan] = {}


class Builder:
    """Builds one buffer back to front.

    Attributes:
        size: Bytes so far, which is the offset of the object written last.
        tables: Number of tables, which FlatBuffers' verifier limits to a million.
    """

    __slots__ = ("_align", "_parts", "_strings", "_vtables", "size", "tables")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._strings: dict[bytes, int] = {}
        self._vtables: dict[bytes, int] = {}
        self._align = 4
        self.size = 0
        self.tables = 0

    def _push(self, data: Part, count: int) -> None:
        self._parts.append(data)
        self.size += count

    def _pad(self, count: int) -> None:
        if count:
            self._push(_ZEROS[:count], count)

    def string(self, data: bytes, *, shared: bool = False) -> int:
        """Write a string; with `shared` an equal one written so is used again."""
        if shared and (found := self._strings.get(data)) is not None:
            return found
        pad = -(self.size + len(data) + 1) % 4
        self._push(b"".join((_U32(len(data)), data, _ZEROS[: pad + 1])), 4 + len(data) + 1 + pad)
        if shared:
            self._strings[data] = self.size
        return self.size

    def vector(self, data: bytes, count: int, *, align: int = 4) -> int:
        """Write a vector of `count` elements whose bytes are `data`; elements are aligned."""
        pad = -(self.size + len(data)) % max(align, 4)
        self._align = max(self._align, align)
        self._push(b"".join((_U32(count), data, _ZEROS[:pad])), 4 + len(data) + pad)
        return self.size

    def numbers(self, values: Sequence[int], code: str = "I") -> int:
        """Write a vector of integers of one struct code."""
        return self.vector(struct.pack(f"<{len(values)}{code}", *values), len(values))

    def offsets(self, targets: Sequence[int]) -> int:
        """Write a vector of offsets to objects already written."""
        count = len(targets)
        end = self.size + -self.size % 4 + 4 * count
        values = [end - 4 * i - target for i, target in enumerate(targets)]
        return self.vector(struct.pack(f"<{count}I", *values), count)

    def splice(self, blob: Part, count: int) -> int:
        """Write a vector of `count` bytes that stay where they are until the buffer is written."""
        self._pad(-(self.size + count) % 4)
        if count:
            self._push(blob, count)
        self._push(_U32(count), 4)
        return self.size

    def verbatim(self, data: bytes, phase: int) -> int:
        """Write bytes of another buffer so that they keep their alignment.

        Args:
            data: The bytes.
            phase: Their first byte's offset in that buffer, modulo 8.
        """
        self._align = 8
        # The whole is a multiple of 8, so what counts from its end counts from its start.
        self._pad(-(self.size + len(data) + phase) % 8)
        self._push(data, len(data))
        return self.size

    def table(self, fields: Iterable[Field], tail: Tail | None = None) -> int:
        """Write a table with the fields given, in the order in which they are added.

        Values equal to their defaults are the caller's to leave out. With `tail`, slots of another
        buffer's table follow the inline part.
        """
        given = tuple(fields)
        start = self.size
        if tail is not None:
            start = self.verbatim(tail.data, 0) - tail.inline
        key = (tuple([(slot, code) for slot, code, _ in given]), self.size % 8)
        plan = _plans.get(key)
        if plan is None:
            if len(_plans) > 20_000:
                _plans.clear()
            plan = _plans[key] = _Plan(*key)
        values: list[Any] = [value for _, _, value in given]
        for index, at in plan.refs:
            values[index] = self.size + at - values[index]
        if plan.is_wide:
            self._align = 8
        return self._finish_table(plan, values, start, tail)

    def _finish_table(self, plan: _Plan, values: list[Any], start: int, tail: Tail | None) -> int:
        end = self.size + plan.length
        offsets = plan.offsets
        if tail is not None:
            shift = plan.length
            offsets = {**offsets, **{slot: shift + at for slot, at in tail.slots}}
        count = max(offsets) + 1 if offsets else 0
        row = [0] * count
        for slot, at in offsets.items():
            row[slot] = at
        vtable = struct.pack(f"<{count + 2}H", 4 + 2 * count, end - start, *row)
        known = self._vtables.get(vtable)
        where = end + len(vtable) if known is None else known
        self._push(plan.codec.pack(where - end, *reversed(values)), plan.length)
        if known is None:
            self._push(vtable, len(vtable))
            self._vtables[vtable] = self.size
        self.tables += 1
        return end

    def tail(self, start: int) -> bytes:
        """The bytes from the object at offset `start` to the end of the buffer."""
        left = start
        found: list[bytes] = []
        for part in self._parts:
            if left <= 0:
                break
            found.append(part if isinstance(part, bytes) else part.tobytes())
            left -= len(found[-1])
        return b"".join(reversed(found))

    def finish(self, root: int, identifier: bytes) -> list[Part]:
        """Close the buffer with its root, identifier and size prefix; return its parts in order."""
        pad = -(self.size + 12) % self._align
        self._pad(pad)
        end = self.size + 12
        head = _U32(end - 4) + _U32(end - 4 - root) + identifier
        self._push(head, 12)
        return self._parts[::-1]
