"""Parameter tables of files as typed records, whatever the release that wrote them."""

from __future__ import annotations

import functools
from typing import Any

from mgeserial import params as _params
from mgeserial._record import Params
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.format import history
from mgeserial.format.flatbuf import BaseType, Buffer, FieldDef, Schema, TableDef, load_schema
from mgeserial.format.raw import Opaque
from mgeserial.params import UNION, ElementType

__all__ = ["decode_dtype", "decode_params", "table_of"]

_SPACE = "mgb.serialization.fbs."
_ELEMENT = 67
# Axes and index descriptions: one each per dimension.
_MAX_STRUCTS = 1 << 16


@functools.cache
def _schema() -> Schema:
    return load_schema("graph_v1")


@functools.cache
def table_of(number: int) -> TableDef | None:
    """Table of a member of OperatorParam; None when the schema has no such number."""
    union = _schema().enum(f"{_SPACE}OperatorParam")
    index = union.objects.get(number)
    return None if index is None else _schema().at(index)


@functools.cache
def _dtype_tables() -> tuple[TableDef, TableDef]:
    return _schema().table(f"{_SPACE}DType"), _schema().table(f"{_SPACE}LinearQuantizationParam")


_PLAIN: dict[int, DType] = {}


def decode_dtype(buf: Buffer, pos: int) -> DType:
    """The DType table at `pos`.

    Raises:
        FormatError: Unknown number, or a quantised type without parameters.
    """
    table, quant = _dtype_tables()
    at = buf.layout(pos, table)
    number = int(buf.scalar(pos + at[0], BaseType.BYTE)) if at[0] else 0
    plain = _PLAIN.get(number)
    if plain is None:
        try:
            plain = DType(DTypeEnum(number))
        except ValueError as error:
            raise buf.error(str(error), pos + at[0], "DType.type") from error
        _PLAIN[number] = plain
    if not plain.is_quantized:
        return plain
    kind = int(buf.scalar(pos + at[1], BaseType.UBYTE)) if at[1] else 0
    if kind != 1 or not at[2]:
        raise buf.error(f"{plain.name} without quantisation parameters", pos, "DType.param")
    inner = buf.follow(pos + at[2])
    q = buf.layout(inner, quant)
    scale = float(buf.scalar(inner + q[0], BaseType.FLOAT)) if q[0] else 0.0
    zero = int(buf.scalar(inner + q[1], BaseType.UBYTE)) if q[1] else 0
    return DType(plain.kind, scale, zero if plain.is_asymmetric else None)


def decode_params(buf: Buffer, number: int, pos: int, release: str | None) -> Params | Opaque:
    """The parameter table of union member `number` at `pos`.

    Args:
        buf: The graph's flatbuffer.
        number: Member of OperatorParam.
        pos: Position of the table.
        release: Release whose layout and numbers apply; None for today's.

    Returns:
        The typed record; `Opaque` for a member that the schema does not have.
    """
    table = table_of(number)
    if table is None:
        return Opaque(buf, pos, member=number)
    cls = UNION[number]
    if number == _ELEMENT:
        return ElementType(dtype=decode_dtype(buf, pos))
    if release is not None:
        table = history.old_table(cls.TABLE, release) or table
    at = buf.layout(pos, table)
    values: dict[str, Any] = {}
    # Fields of the old layout alone are kept: files of that release need them, and only those.
    is_more = bool(buf.unknown_slots(pos, table)) or (
        cls.TABLE in history.REMADE and table is not table_of(number)
    )
    for item in table.fields:
        if item.name in cls.FIELDS:
            values[item.name] = _field(buf, pos, at[item.slot], item, cls, release)
        elif at[item.slot]:
            is_more = True
    extra = Opaque(buf, pos, table, number, release) if is_more else None
    return cls(**values, extra=extra)


_WRAPPERS: dict[str, dict[str, Any]] = {}


def _enums(cls: type) -> dict[str, Any]:
    """Enum or struct class of each field, by its annotation."""
    found = _WRAPPERS.get(cls.__name__)
    if found is not None:
        return found
    found = _WRAPPERS[cls.__name__] = {}
    for name, text in cls.__annotations__.items():
        inner = str(text).removeprefix("tuple[").split(",")[0]
        known = getattr(_params, inner, None)
        if isinstance(known, type):
            found[name] = known
    return found


def _field(
    buf: Buffer, pos: int, offset: int, item: FieldDef, cls: type[Params], release: str | None
) -> Any:
    wrap = _enums(cls).get(item.name)
    if item.base == BaseType.VECTOR:
        return _vector(buf, pos + offset, item, wrap) if offset else ()
    if item.base == BaseType.OBJECT and wrap is not None:
        return _struct(buf, pos + offset, _schema().at(item.index)) if offset else wrap()
    value = buf.scalar(pos + offset, item.base) if offset else item.default
    if item.base == BaseType.BOOL:
        return bool(value)
    if wrap is None:
        return value
    number = int(value or 0)
    if release is not None:
        moved = history.enum_numbers(cls.TABLE, item.name, release)
        number = moved.get(number, number) if moved else number
    try:
        return wrap(number)
    except ValueError as error:
        raise buf.error(str(error), pos + offset, f"{cls.TABLE}.{item.name}") from error


def _vector(buf: Buffer, pos: int, item: FieldDef, wrap: Any) -> tuple[Any, ...]:
    if wrap is None:
        return buf.i32s(pos)
    table = _schema().at(item.index)
    start, count = buf.vector(pos, table.size)
    if count > _MAX_STRUCTS:
        raise buf.error(f"a parameter has at most {_MAX_STRUCTS} elements, got {count}", pos)
    return tuple(_struct(buf, start + i * table.size, table) for i in range(count))


def _struct(buf: Buffer, pos: int, table: TableDef) -> Any:
    cls = getattr(_params, table.name.rsplit(".", 1)[-1])
    values: dict[str, Any] = {}
    for item in table.fields:
        at = pos + item.offset
        if item.base == BaseType.ARRAY:
            values[item.name] = bytes(buf.data[at : at + item.length])
            continue
        value = buf.scalar(at, item.base)
        wrap = _enums(cls).get(item.name)
        try:
            if item.base == BaseType.BOOL:
                value = bool(value)
            values[item.name] = value if wrap is None else wrap(value)
        except ValueError as error:
            raise buf.error(str(error), at, f"{table.name}.{item.name}") from error
    return cls(**values)
