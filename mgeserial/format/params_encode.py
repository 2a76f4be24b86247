"""Typed parameter records as tables of files, for whatever release shall read them.

The mirror of `params_codec`: layouts and enum numbers come from the recorded history, a value that
the release has no place for is a reason instead of a table. Fields are added as the library's
generated code adds them: wide ones first, then by falling slot; values equal to the release's
default are left out.
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass, field
from typing import Any

from mgeserial._record import Params, Record
from mgeserial.dtypes import DType
from mgeserial.format import history
from mgeserial.format.flatbuf import SCALARS, BaseType, FieldDef, TableDef, load_schema
from mgeserial.format.flatbuild import Builder, Field, Tail
from mgeserial.format.opaque import Carrier
from mgeserial.format.params_codec import table_of
from mgeserial.format.raw import Opaque
from mgeserial.format.target import Target
from mgeserial.params import UNION, ElementType

__all__ = ["ParamsEncoder", "Prepared", "dtype_reason", "write_dtype"]

_CODES = {
    BaseType.UTYPE: "B", BaseType.BOOL: "?", BaseType.BYTE: "b", BaseType.UBYTE: "B",
    BaseType.SHORT: "h", BaseType.USHORT: "H", BaseType.INT: "i", BaseType.UINT: "I",
    BaseType.LONG: "q", BaseType.ULONG: "Q", BaseType.FLOAT: "f", BaseType.DOUBLE: "d",
}  # fmt: skip
_FLOAT = struct.Struct("<f")
_IDENTIFIERS = {b"mgb1": "v1", b"mgv2": "v2"}


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """One field of a layout: its place, and today's enum numbers in those of the release."""

    item: FieldDef
    code: str
    width: int
    known: bool
    codes: dict[int, int] | None


@dataclass(slots=True, eq=False)
class Prepared:
    """A record ready to be written, or the reasons why it cannot be.

    `vectors` are (index into `fields`, bytes, count, alignment), written before the table.
    """

    number: int
    fields: list[Field] = field(default_factory=list)
    vectors: list[tuple[int, bytes, int, int]] = field(default_factory=list)
    dtype: DType | None = None
    opaque: Opaque | None = None
    reasons: list[str] = field(default_factory=list)


class ParamsEncoder:
    """Encodes the parameter records of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def prepare(self, record: Params | Opaque) -> Prepared:
        """Find the table's content; reasons are collected, nothing is raised or written."""
        return self._unknown(record) if isinstance(record, Opaque) else self._prepare(record)

    def write(self, builder: Builder, carrier: Carrier, prepared: Prepared) -> int:
        """Write a prepared record; return its table's offset."""
        if prepared.dtype is not None:
            return write_dtype(builder, prepared.dtype)
        if prepared.opaque is not None and prepared.opaque.table is None:
            return carrier.member(prepared.opaque)
        fields = prepared.fields
        if prepared.vectors:
            fields = list(fields)
            for index, data, count, align in prepared.vectors:
                slot = fields[index][0]
                fields[index] = (slot, "o", builder.vector(data, count, align=align))
        tail: Tail | None = None
        if prepared.opaque is not None:
            tail = carrier.tail(prepared.opaque)
        return builder.table(fields, tail)

    def _unknown(self, record: Opaque) -> Prepared:
        done = Prepared(record.member, opaque=record)
        home = _IDENTIFIERS.get(bytes(record.buffer.data[8:12]))
        if home != ("v2" if self._target.is_v2 else "v1") or not self._target.takes_unknown:
            done.reasons.append(
                f"parameters of unknown kind {record.member}, which only {home} of a newer release "
                "can hold"
            )
        return done

    def _prepare(self, record: Params) -> Prepared:
        number, target = record.UNION_ID, self._target
        done = Prepared(number)
        since = history.union_since(number, v2=target.is_v2)
        if since is None:
            done.reasons.append(f"{target.format} has no place for parameters {record.TABLE}")
        elif not target.has(since):
            done.reasons.append(f"parameters {record.TABLE} exist since {since}")
        if done.reasons:
            return done
        if isinstance(record, ElementType):
            done.dtype = record.dtype
            done.reasons += dtype_reason(record.dtype, target)
            return done
        old = history.old_table(record.TABLE, target.release)
        self._extra(record, old, done)
        slots = _layout(number, target.release)
        present = {s.item.name for s in slots}
        for name in record.FIELDS:
            if name not in present and not _is_default(record, name):
                when = history.field_since(record.TABLE, name)
                done.reasons.append(f"{record.TABLE}.{name} exists since {when}")
        for slot in slots:
            if slot.known:
                _encode(record, slot, done, target)
            else:
                _legacy(record, slot, done)
        return done

    def _extra(self, record: Params, old: TableDef | None, done: Prepared) -> None:
        """Note fields beyond today's schema: of newer releases, or of an old layout alone."""
        extra = record.extra
        layout = old or table_of(record.UNION_ID)
        source = extra.table if isinstance(extra, Opaque) else table_of(record.UNION_ID)
        if record.TABLE in history.REMADE and source is not layout:
            done.reasons.append(f"{record.TABLE} is described otherwise in {self._target.release}")
            return
        if not isinstance(extra, Opaque) or extra.table is None:
            return
        if extra.buffer.unknown_slots(extra.pos, extra.table):
            done.opaque = extra
            if not self._target.takes_unknown:
                done.reasons.append(f"{record.TABLE} has fields of a newer release")
        kept = set() if layout is None else {f.name for f in layout.fields}
        at = extra.buffer.layout(extra.pos, extra.table)
        for item in extra.table.fields:
            if item.name not in record.FIELDS and at[item.slot] and item.name not in kept:
                done.reasons.append(
                    f"{record.TABLE}.{item.name}, a field of {extra.release}, exists no longer"
                )


@functools.cache
def _layout(number: int, release: str) -> tuple[_Slot, ...]:
    """The fields a release has of a table, in the order of writing."""
    cls = UNION[number]
    table = history.old_table(cls.TABLE, release) or table_of(number)
    assert table is not None
    slots = []
    for item in table.fields:
        known = item.name in cls.FIELDS
        if item.base in SCALARS:
            code = _CODES[item.base]
        elif item.base == BaseType.OBJECT:
            code = f"{load_schema('graph_v1').at(item.index).size}s"
        else:
            code = "o"
        width = SCALARS[item.base].size if item.base in SCALARS else 4
        codes = history.enum_codes(cls.TABLE, item.name, release) if known else None
        slots.append(_Slot(item, code, width, known, codes))
    # The generated code takes fields by width, and of one width by falling slot.
    return tuple(sorted(slots, key=lambda s: (-s.width, -s.item.slot)))


@functools.cache
def _defaults(number: int) -> Params:
    return UNION[number]()


def _is_default(record: Params, name: str) -> bool:
    value, default = getattr(record, name), getattr(_defaults(record.UNION_ID), name)
    return bool(value == default)


def _encode(record: Params, slot: _Slot, done: Prepared, target: Target) -> None:
    item, value = slot.item, getattr(record, slot.item.name)
    where = f"{record.TABLE}.{item.name}"
    try:
        if item.base == BaseType.VECTOR:
            if value:
                _vector(value, slot, done)
        elif item.base == BaseType.OBJECT:
            table = load_schema("graph_v1").at(item.index)
            done.fields.append((item.slot, slot.code, _pack(value, table)))
        elif item.base in (BaseType.FLOAT, BaseType.DOUBLE):
            number = float(value)
            if item.base == BaseType.FLOAT:
                number = _FLOAT.unpack(_FLOAT.pack(number))[0]
            if not _is_same(number, float(item.default or 0.0)):
                done.fields.append((item.slot, slot.code, number))
        else:
            code = _number(record, slot, int(value), done, target)
            if code is not None and code != int(item.default or 0):
                SCALARS[item.base].pack(code)
                done.fields.append((item.slot, slot.code, code))
    except (struct.error, OverflowError, ValueError, TypeError) as error:
        done.reasons.append(f"{where} cannot hold {value!r} ({error})")


def _is_same(a: float, b: float) -> bool:
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)


def _number(record: Params, slot: _Slot, value: int, done: Prepared, target: Target) -> int | None:
    """The release's number of an enum member; the value itself where nothing was renumbered."""
    codes = slot.codes
    if codes is not None and value in codes:
        return codes[value]
    name, since, until = history.member(record.TABLE, slot.item.name, value)
    if codes is None and (name is None or until is None):
        return value
    where = f"{record.TABLE}.{slot.item.name}"
    if name is None:
        done.reasons.append(f"{where} = {value} is not known in {target.release}")
    elif until is not None and not target.has(since or target.release):
        done.reasons.append(f"{where} {name} exists from {since} to {until}")
    elif until is not None:
        done.reasons.append(f"{where} {name} exists up to {until} only")
    else:
        done.reasons.append(f"{where} {name.rstrip('_')} exists since {since}")
    return None


def _legacy(record: Params, slot: _Slot, done: Prepared) -> None:
    """A field that only the old layout has: what the file it was read from says, else absent."""
    extra, item = record.extra, slot.item
    if not isinstance(extra, Opaque) or extra.table is None:
        return
    same = extra.table.by_name.get(item.name)
    if same is None:
        return
    at = extra.buffer.layout(extra.pos, extra.table)[same.slot]
    if at:
        value = extra.buffer.scalar(extra.pos + at, same.base)
        done.fields.append((item.slot, slot.code, value))


def _vector(values: tuple[Any, ...], slot: _Slot, done: Prepared) -> None:
    item = slot.item
    if item.element == BaseType.OBJECT:
        table = load_schema("graph_v1").at(item.index)
        data, align = b"".join([_pack(v, table) for v in values]), table.align
    else:
        code = _CODES[item.element]
        data, align = struct.pack(f"<{len(values)}{code}", *values), SCALARS[item.element].size
    done.vectors.append((len(done.fields), data, len(values), align))
    done.fields.append((item.slot, "o", 0))


def _pack(record: Record, table: TableDef) -> bytes:
    """Bytes of a struct."""
    raw = bytearray(table.size)
    for item in table.fields:
        value = getattr(record, item.name)
        if item.base == BaseType.ARRAY:
            raw[item.offset : item.offset + item.length] = bytes(value).ljust(item.length, b"\0")
        else:
            SCALARS[item.base].pack_into(raw, item.offset, value)
    if len(raw) != table.size:
        raise ValueError(f"{table.name} has {table.size} bytes")
    return bytes(raw)


def dtype_reason(dtype: DType, target: Target) -> list[str]:
    """Why a release cannot store an element type; an empty list when it can."""
    number = int(dtype.kind)
    codes = history.enum_codes("DType", "type", target.release)
    if codes is None or number in codes:
        return []
    _, since, _ = history.member("DType", "type", number)
    return [f"element type {dtype.name} exists since {since}"]


def write_dtype(builder: Builder, dtype: DType) -> int:
    """Write a DType table; quantised types with their parameters."""
    fields: list[Field] = [(0, "b", int(dtype.kind))] if dtype.kind else []
    if dtype.is_quantized:
        inner: list[Field] = []
        scale = _FLOAT.unpack(_FLOAT.pack(dtype.scale or 0.0))[0]
        if scale:
            inner.append((0, "f", scale))
        if dtype.zero_point:
            inner.append((1, "B", dtype.zero_point))
        fields += [(1, "B", 1), (2, "o", builder.table(inner))]
    return builder.table(fields)
