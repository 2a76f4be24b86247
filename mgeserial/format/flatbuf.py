"""Reading FlatBuffers, driven by compiled schemas (`.bfbs`), with every offset checked before use.

`Buffer` owns the bytes of one flatbuffer and the rules: nothing outside the buffer is ever read,
and the work done is bounded by the number of bytes. Positions are relative to the buffer's first
byte (for size-prefixed buffers: the prefix itself).

Work budget: content that is reached once costs at most its own bytes. Each table is charged its
inline size and each vector its bytes, so a file in which offsets are shared to multiply work runs
out of budget and is refused. Strings and vtables, which writers do share, are decoded once. Tables,
lengths of vectors and lengths of names have fixed limits too: a file of any size stays readable in
bounded time.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/ (vtables, offsets, alignment);
reflection.fbs of the same project for the slots of a `.bfbs` file.
"""

from __future__ import annotations

import functools
import os
import struct
from dataclasses import dataclass, field
from importlib import resources

from mgeserial.errors import FormatError

__all__ = ["BaseType", "Buffer", "EnumDef", "FieldDef", "Schema", "TableDef", "load_schema"]

# A buffer has at most a million tables. Source: FORMAT section (a), limits of the FlatBuffers
# verifier that MegEngine runs before it reads anything.
MAX_TABLES = 1_000_000
# Least charge for a table: decoding a small one costs more than its bytes.
_TABLE_CHARGE = 24
# Elements of a vector that is decoded, bytes of a name.
MAX_ELEMENTS = 1 << 20
MAX_NAME = 1 << 20

_U16 = struct.Struct("<H").unpack_from
_I32 = struct.Struct("<i").unpack_from
_U32 = struct.Struct("<I").unpack_from


class BaseType:
    """Numbers of reflection.BaseType that schemas of this project use."""

    UTYPE, BOOL, BYTE, UBYTE, SHORT, USHORT, INT, UINT, LONG, ULONG = range(1, 11)
    FLOAT, DOUBLE, STRING, VECTOR, OBJECT, UNION, ARRAY = range(11, 18)


_SCALAR_FORMATS = {
    BaseType.UTYPE: "<B",
    BaseType.BOOL: "<B",
    BaseType.BYTE: "<b",
    BaseType.UBYTE: "<B",
    BaseType.SHORT: "<h",
    BaseType.USHORT: "<H",
    BaseType.INT: "<i",
    BaseType.UINT: "<I",
    BaseType.LONG: "<q",
    BaseType.ULONG: "<Q",
    BaseType.FLOAT: "<f",
    BaseType.DOUBLE: "<d",
}
SCALARS = {base: struct.Struct(text) for base, text in _SCALAR_FORMATS.items()}


@dataclass(frozen=True, slots=True)
class FieldDef:
    """One field of a table or struct.

    `slot` is the vtable slot (for a union: of its value; its type is at `slot - 1`), `offset` the
    byte inside a struct, `width` the inline bytes. `index` names the object or enum of the schema
    that the type refers to, -1 for none. `default` is what an absent field means.
    """

    name: str
    slot: int
    offset: int
    base: int
    element: int
    index: int
    length: int
    width: int
    default: int | float | bool | None
    required: bool


@dataclass(frozen=True, slots=True, eq=False)
class TableDef:
    """A table (or struct) of the schema; `widths[slot]` is the inline size each slot needs."""

    name: str
    fields: tuple[FieldDef, ...]
    is_struct: bool
    size: int
    align: int
    slots: int
    widths: tuple[int, ...]
    by_name: dict[str, FieldDef] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class EnumDef:
    """An enum, or a union: then `objects[number]` is the index of the member's table."""

    name: str
    is_union: bool
    base: int
    values: tuple[tuple[str, int], ...]
    objects: dict[int, int] = field(repr=False)


# What a vtable says, made once per (vtable, table type): offset of each known slot (0 = absent),
# inline size of the table, and the slots beyond the schema that are present.
_Layout = tuple[tuple[int, ...], int, tuple[tuple[int, int], ...]]


class Buffer:
    """Bounds-checked access to one flatbuffer.

    Args:
        data: The buffer's bytes.
        path: File they come from, for messages.
        base: Offset of `data[0]` in that file, for messages.
        budget: Bytes of content that may be decoded in all; default twice the size and a little.
    """

    __slots__ = (
        "_beyond",
        "_layouts",
        "_left",
        "_names",
        "_strings",
        "_tables_left",
        "base",
        "data",
        "path",
        "size",
    )

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        path: str | os.PathLike[str] | None = None,
        base: int = 0,
        budget: int | None = None,
    ) -> None:
        self.data = data
        self.size = len(data)
        self.path = None if path is None else os.fspath(path)
        self.base = base
        self._left = 2 * self.size + 4096 if budget is None else budget
        self._tables_left = MAX_TABLES
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self._beyond: dict[str, None] = {}
        self._strings: dict[int, bytes] = {}
        self._names: dict[int, str] = {}

    def error(self, message: str, pos: int, where: str | None = None) -> FormatError:
        """Make an error located at `pos`."""
        return FormatError(message, path=self.path, offset=self.base + pos, where=where)

    def charge(self, amount: int, pos: int) -> None:
        """Account for work on `amount` bytes of content."""
        self._left -= amount
        if self._left < 0:
            raise self.error(
                "the same bytes are reached again and again: shared offsets multiply the work", pos
            )

    def scalar(self, pos: int, base: int) -> int | float:
        """Read one scalar of a base type at `pos`."""
        codec = SCALARS[base]
        if pos < 0 or pos + codec.size > self.size:
            raise self.error(f"a field of {codec.size} bytes reaches outside the buffer", pos)
        value: int | float = codec.unpack_from(self.data, pos)[0]
        return value

    def u32(self, pos: int) -> int:
        """Read an unsigned 32-bit integer."""
        if pos < 0 or pos + 4 > self.size:
            raise self.error("an offset or length reaches outside the buffer", pos)
        value: int = _U32(self.data, pos)[0]
        return value

    def follow(self, pos: int) -> int:
        """Position that the unsigned offset stored at `pos` points to."""
        offset = self.u32(pos)
        target = pos + offset
        if offset == 0 or target + 4 > self.size:
            raise self.error(f"offset {offset} points outside the buffer", pos)
        return target

    def layout(self, pos: int, table: TableDef) -> tuple[int, ...]:
        """Inline offset of each of the table's slots, 0 where absent; all within bounds.

        Asking is decoding: the table is charged each time.
        """
        known, inline, _ = self._layout(pos, table)
        self._left -= inline if inline > _TABLE_CHARGE else _TABLE_CHARGE
        self._tables_left -= 1
        if self._left < 0 or self._tables_left < 0:
            self._refuse(pos)
        return known

    def _refuse(self, pos: int) -> None:
        if self._tables_left < 0:
            raise self.error(f"more than {MAX_TABLES} tables are reached", pos)
        self.charge(0, pos)

    def unknown_slots(self, pos: int, table: TableDef) -> tuple[tuple[int, int], ...]:
        """(slot, inline offset) of fields that are present but not in the schema."""
        return self._layout(pos, table)[2]

    def tables_beyond(self) -> tuple[str, ...]:
        """Names of tables that were met so far with fields that the schema lacks."""
        return tuple(self._beyond)

    def inline_size(self, pos: int, table: TableDef) -> int:
        """Bytes of the table's inline part, its vtable offset included."""
        return self._layout(pos, table)[1]

    def _layout(self, pos: int, table: TableDef) -> _Layout:
        if pos < 0 or pos + 4 > self.size:
            raise self.error("a table lies outside the buffer", pos)
        vtable = pos - _I32(self.data, pos)[0]
        key = (vtable, id(table))
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._read_vtable(pos, vtable, table)
            self._layouts[key] = layout
        if pos + layout[1] > self.size:
            raise self.error(
                f"table {table.name} of {layout[1]} bytes ends outside the buffer", pos
            )
        return layout

    def _read_vtable(self, pos: int, vtable: int, table: TableDef) -> _Layout:
        if vtable < 0 or vtable + 4 > self.size:
            raise self.error(f"the vtable of a {table.name} lies outside the buffer", pos)
        nbytes, inline = _U16(self.data, vtable)[0], _U16(self.data, vtable + 2)[0]
        if nbytes < 4 or nbytes % 2 or vtable + nbytes > self.size:
            raise self.error(f"the vtable of a {table.name} has a bad size: {nbytes}", vtable)
        if inline < 4:
            raise self.error(f"a {table.name} has a bad inline size: {inline}", vtable + 2)
        self.charge(nbytes, vtable)
        count = (nbytes - 4) // 2
        present = struct.unpack_from(f"<{count}H", self.data, vtable + 4)
        for slot, offset in enumerate(present):
            width = table.widths[slot] if slot < table.slots else 1
            if offset and (offset < 4 or offset + width > inline):
                raise self.error(
                    f"slot {slot} of a {table.name} lies outside its {inline} bytes: {offset}",
                    vtable + 4 + 2 * slot,
                )
        known = present[: table.slots] + (0,) * (table.slots - count)
        beyond = tuple((s, o) for s, o in enumerate(present) if o and s >= table.slots)
        if beyond:
            self._beyond[table.name] = None
        return known, inline, beyond

    def vector(self, pos: int, width: int) -> tuple[int, int]:
        """(position of the first element, count) of the vector whose offset is stored at `pos`.

        The vector's bytes are charged; `width` is the bytes of an element.
        """
        start, count = self.bulk(pos, width)
        if count > MAX_ELEMENTS:
            raise self.error(f"a vector has at most {MAX_ELEMENTS} elements, got {count}", pos)
        return start, count

    def bulk(self, pos: int, width: int) -> tuple[int, int]:
        """As `vector` for data that is not decoded element by element: of any length."""
        target = self.follow(pos)
        count: int = _U32(self.data, target)[0]
        if target + 4 + count * width > self.size:
            raise self.error(
                f"a vector of {count} elements of {width} bytes ends outside the buffer", target
            )
        self._left -= 4 + count * width
        if self._left < 0:
            self.charge(0, pos)
        return target + 4, count

    def u32s(self, pos: int) -> tuple[int, ...]:
        """Elements of the [uint] vector whose offset is stored at `pos`."""
        start, count = self.vector(pos, 4)
        return struct.unpack_from(f"<{count}I", self.data, start)

    def i32s(self, pos: int) -> tuple[int, ...]:
        """Elements of the [int] vector whose offset is stored at `pos`."""
        start, count = self.vector(pos, 4)
        return struct.unpack_from(f"<{count}i", self.data, start)

    def u8s(self, pos: int) -> bytes:
        """Elements of the [ubyte] vector whose offset is stored at `pos`, copied."""
        start, count = self.bulk(pos, 1)
        return bytes(self.data[start : start + count])

    def offsets(self, pos: int) -> list[int]:
        """Positions that the vector of offsets stored at `pos` points to."""
        start, count = self.vector(pos, 4)
        values = struct.unpack_from(f"<{count}I", self.data, start)
        targets = []
        for i, value in enumerate(values):
            at = start + 4 * i
            if value == 0 or at + value + 4 > self.size:
                raise self.error(f"offset {value} points outside the buffer", at)
            targets.append(at + value)
        return targets

    def text_bytes(self, pos: int) -> bytes:
        """Bytes of the string whose offset is stored at `pos`, whatever they are."""
        return self._string(self.follow(pos))

    def _string(self, target: int) -> bytes:
        raw = self._strings.get(target)
        if raw is None:
            count = _U32(self.data, target)[0]
            end = target + 4 + count
            if end + 1 > self.size or self.data[end] != 0:
                raise self.error(f"a string of {count} bytes has no end within the buffer", target)
            self.charge(4 + count, target)
            raw = self._strings[target] = bytes(self.data[target + 4 : end])
        return raw

    def text(self, pos: int) -> str:
        """The name whose offset is stored at `pos`, UTF-8. Show it through `errors.printable`."""
        return self._name(self.follow(pos))

    def texts(self, pos: int) -> tuple[str, ...]:
        """The names in the vector of strings whose offset is stored at `pos`."""
        return tuple([self._name(target) for target in self.offsets(pos)])

    def _name(self, target: int) -> str:
        name = self._names.get(target)
        if name is None:
            raw = self._string(target)
            if len(raw) > MAX_NAME:
                message = f"a name has at most {MAX_NAME} bytes, got {len(raw)}"
                raise self.error(message, target)
            try:
                name = self._names[target] = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.error(f"a name is not UTF-8: {raw[:40]!r}", target) from error
        return name


# flatc writes the default 2**64 - 1 as 0 in reflection data; files mean the former.
# Source: params.json note on ExecutionPolicy.workspace_limit.
_DEFAULT_FIXES = {"workspace_limit": (1 << 64) - 1}


# --- schemas -------------------------------------------------------------------------------------


def _bootstrap(name: str, slots: int, wide: dict[int, int]) -> TableDef:
    """A table of reflection.fbs: only the inline widths matter for reading it."""
    widths = tuple(wide.get(slot, 4) for slot in range(slots))
    return TableDef(name, (), False, 0, 1, slots, widths, {})


_SCHEMA = _bootstrap("reflection.Schema", 8, {6: 8})
_OBJECT = _bootstrap("reflection.Object", 8, {2: 1})
_FIELD = _bootstrap(
    "reflection.Field", 14, {2: 2, 3: 2, 4: 8, 5: 8, 6: 1, 7: 1, 8: 1, 11: 1, 12: 2, 13: 1}
)
_ENUM = _bootstrap("reflection.Enum", 7, {2: 1})
_ENUMVAL = _bootstrap("reflection.EnumVal", 6, {1: 8})
_TYPE = _bootstrap("reflection.Type", 6, {0: 1, 1: 1, 3: 2})


class Schema:
    """A compiled schema. Tables and enums are decoded when first asked for."""

    def __init__(self, data: bytes, *, path: str = "schema") -> None:
        buf = self._buf = Buffer(data, path=path, budget=64 * len(data))
        if data[4:8] != b"BFBS":
            raise buf.error("not a compiled schema: no BFBS identifier", 4)
        root = buf.layout(buf.follow(0), _SCHEMA)
        pos = buf.follow(0)
        self._objects = buf.offsets(pos + root[0])
        self._enums = buf.offsets(pos + root[1])
        self._tables: dict[int, TableDef] = {}
        self._enum_defs: dict[int, EnumDef] = {}
        self.root = self._find_root(pos, root)

    def _find_root(self, pos: int, root: tuple[int, ...]) -> TableDef:
        return self.at(self._objects.index(self._buf.follow(pos + root[4])))

    @functools.cached_property
    def names(self) -> dict[str, int]:
        """Index of every table and struct by its full name."""
        return {self._name_of(pos, _OBJECT): i for i, pos in enumerate(self._objects)}

    @functools.cached_property
    def enum_names(self) -> dict[str, int]:
        """Index of every enum and union by its full name."""
        return {self._name_of(pos, _ENUM): i for i, pos in enumerate(self._enums)}

    def _name_of(self, pos: int, table: TableDef) -> str:
        return self._buf.text(pos + self._buf.layout(pos, table)[0])

    def table(self, name: str) -> TableDef:
        """The table or struct with this full name (KeyError when there is none)."""
        return self.at(self.names[name])

    def enum(self, name: str) -> EnumDef:
        """The enum or union with this full name (KeyError when there is none)."""
        return self.enum_at(self.enum_names[name])

    def at(self, index: int) -> TableDef:
        """The table or struct with this index."""
        found = self._tables.get(index)
        if found is None:
            found = self._tables[index] = self._read_object(self._objects[index])
        return found

    def enum_at(self, index: int) -> EnumDef:
        """The enum or union with this index."""
        found = self._enum_defs.get(index)
        if found is None:
            found = self._enum_defs[index] = self._read_enum(self._enums[index])
        return found

    def _int(self, pos: int, offset: int, base: int, default: int = 0) -> int:
        return int(self._buf.scalar(pos + offset, base)) if offset else default

    def _read_object(self, pos: int) -> TableDef:
        buf = self._buf
        at = buf.layout(pos, _OBJECT)
        is_struct = bool(self._int(pos, at[2], BaseType.BOOL))
        fields = [self._read_field(p) for p in (buf.offsets(pos + at[1]) if at[1] else [])]
        fields.sort(key=lambda f: f.slot)
        slots = fields[-1].slot + 1 if fields else 0
        widths = [1] * slots
        for item in fields:
            widths[item.slot] = item.width
        return TableDef(
            buf.text(pos + at[0]),
            tuple(fields),
            is_struct,
            self._int(pos, at[4], BaseType.INT),
            self._int(pos, at[3], BaseType.INT),
            slots,
            tuple(widths),
            {f.name: f for f in fields},
        )

    def _read_type(self, pos: int) -> tuple[int, int, int, int]:
        at = self._buf.layout(pos, _TYPE)
        base = self._int(pos, at[0], BaseType.BYTE)
        element = self._int(pos, at[1], BaseType.BYTE)
        index = self._int(pos, at[2], BaseType.INT, -1)
        return base, element, index, self._int(pos, at[3], BaseType.USHORT)

    def _read_field(self, pos: int) -> FieldDef:
        buf = self._buf
        at = buf.layout(pos, _FIELD)
        base, element, index, length = self._read_type(buf.follow(pos + at[1]))
        width = SCALARS[base].size if base in SCALARS else 4
        if base == BaseType.OBJECT:
            width = self._struct_size(index) or 4
        name = buf.text(pos + at[0])
        default: int | float | bool | None = None
        if base in (BaseType.FLOAT, BaseType.DOUBLE):
            default = float(buf.scalar(pos + at[5], BaseType.DOUBLE)) if at[5] else 0.0
            if base == BaseType.FLOAT:
                default = struct.unpack("<f", struct.pack("<f", default))[0]
        elif base in SCALARS:
            default = self._int(pos, at[4], BaseType.LONG)
            if base == BaseType.ULONG:
                default = _DEFAULT_FIXES.get(name, default & ((1 << 64) - 1))
            elif base == BaseType.BOOL:
                default = bool(default)
        return FieldDef(
            name,
            self._int(pos, at[2], BaseType.USHORT),
            self._int(pos, at[3], BaseType.USHORT),
            base,
            element,
            index,
            length,
            width,
            default,
            bool(self._int(pos, at[7], BaseType.BOOL)),
        )

    def _struct_size(self, index: int) -> int:
        """Bytes that an object takes inline: 0 for a table, which is stored as an offset."""
        pos = self._objects[index]
        at = self._buf.layout(pos, _OBJECT)
        is_struct = bool(self._int(pos, at[2], BaseType.BOOL))
        return self._int(pos, at[4], BaseType.INT) if is_struct else 0

    def _read_enum(self, pos: int) -> EnumDef:
        buf = self._buf
        at = buf.layout(pos, _ENUM)
        values, objects = [], {}
        for p in buf.offsets(pos + at[1]):
            item = buf.layout(p, _ENUMVAL)
            number = self._int(p, item[1], BaseType.LONG)
            values.append((buf.text(p + item[0]), number))
            if item[3]:
                base, _, index, _ = self._read_type(buf.follow(p + item[3]))
                if base == BaseType.OBJECT:
                    objects[number] = index
        values.sort(key=lambda kv: kv[1])
        base = self._read_type(buf.follow(pos + at[3]))[0]
        is_union = bool(self._int(pos, at[2], BaseType.BOOL))
        return EnumDef(buf.text(pos + at[0]), is_union, base, tuple(values), objects)


@functools.cache
def load_schema(name: str) -> Schema:
    """A schema of the package: `graph_v1`, `graph_v2` or `lite_pack`."""
    file = resources.files("mgeserial.format") / "_schema" / f"{name}.bfbs"
    return Schema(file.read_bytes(), path=f"{name}.bfbs")
