"""Makes small `.mge` files for tests, with the public FlatBuffers library.

Tables are dicts by field name, laid out by the compiled schema; `Slots` gives slots and kinds of
scalars outright, for layouts of older releases and for fields that no release has. The key `+` of
any table adds slots to it.

    op = dict(type_id=..., inputs=[0], param=("Axis", {"axis": 1}))
    data = v1([input_op("x", (2, 3)), op], outputs=[1])
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers

from mgeserial.format.flatbuf import BaseType, FieldDef, Schema, TableDef, load_schema
from mgeserial.ops import registry

V1 = "mgb.serialization.fbs."
V2 = "mgb.serialization.fbs.v2."
HEADERS = {b"MGBS": 8, b"MGBC": 16}
KINDS = {  # scalar kinds of `Slots`, by struct letter
    "?": ("Bool", 1),
    "b": ("Int8", 1),
    "B": ("Uint8", 1),
    "i": ("Int32", 4),
    "I": ("Uint32", 4),
    "Q": ("Uint64", 8),
    "f": ("Float32", 4),
    "d": ("Float64", 8),
}
_SCALARS = {
    BaseType.UTYPE: "Uint8",
    BaseType.BOOL: "Bool",
    BaseType.BYTE: "Int8",
    BaseType.UBYTE: "Uint8",
    BaseType.SHORT: "Int16",
    BaseType.USHORT: "Uint16",
    BaseType.INT: "Int32",
    BaseType.UINT: "Uint32",
    BaseType.LONG: "Int64",
    BaseType.ULONG: "Uint64",
    BaseType.FLOAT: "Float32",
    BaseType.DOUBLE: "Float64",
}
_WIDTHS = {
    BaseType.UTYPE: 1, BaseType.BOOL: 1, BaseType.BYTE: 1, BaseType.UBYTE: 1, BaseType.SHORT: 2,
    BaseType.USHORT: 2, BaseType.INT: 4, BaseType.UINT: 4, BaseType.LONG: 8, BaseType.ULONG: 8,
    BaseType.FLOAT: 4, BaseType.DOUBLE: 8,
}  # fmt: skip


@dataclass(frozen=True)
class Slots:
    """A table given by slots: {slot: (kind, value)}.

    Kinds are the letters of `KINDS`, or `text`, `texts`, `bytes`, `table` for objects.
    """

    values: Mapping[int, tuple[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Extra:
    """A table of the schema with more slots behind it."""

    values: Mapping[str, Any]
    slots: Mapping[int, tuple[str, Any]]


def _bare() -> TableDef:
    """A table without fields of a schema."""
    return TableDef("bare", (), False, 0, 1, 0, (), {})


class Encoder:
    """Writes tables of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.builder = flatbuffers.Builder(1024)
        self.builder.ForceDefaults(True)

    def table(self, table: TableDef, values: Any) -> int:
        more: Mapping[int, tuple[str, Any]] = {}
        if isinstance(values, Slots):
            values, more = {}, values.values
        elif isinstance(values, Extra):
            values, more = values.values, values.slots
        elif "+" in values:
            values, more = {k: v for k, v in values.items() if k != "+"}, values["+"]
        unknown = set(values) - set(table.by_name)
        assert not unknown, f"{table.name} has no {unknown}"
        ready: dict[str, Any] = {}
        for item in table.fields:
            if values.get(item.name) is not None:
                self._prepare(table, item, values[item.name], ready)
        builder = self.builder
        placed = {
            slot: self._object(kind, value)
            for slot, (kind, value) in more.items()
            if kind not in KINDS
        }
        builder.StartObject(max([table.slots, *(s + 1 for s in more)], default=0))
        for item in table.fields:
            if item.name in ready:
                self._store(item, ready[item.name])
        for slot, (kind, value) in more.items():
            if slot in placed:
                builder.PrependUOffsetTRelativeSlot(slot, placed[slot], 0)
                continue
            name, _ = KINDS[kind]
            getattr(builder, f"Prepend{name}Slot")(slot, value, 0)
        return int(builder.EndObject())

    def _object(self, kind: str, value: Any) -> int:
        """Write what a slot of no schema points to: a text, texts, bytes or a table of slots."""
        if kind == "text":
            return int(self.builder.CreateSharedString(value))
        if kind == "texts":
            return self._offsets([self.builder.CreateString(v) for v in value])
        if kind == "bytes":
            return int(self.builder.CreateByteVector(value))
        assert kind == "table", kind
        return self.table(_bare(), Slots(value))

    def _prepare(self, table: TableDef, item: FieldDef, value: Any, ready: dict[str, Any]) -> None:
        """Write what the field points to; `ready` gets what to store inline."""
        base = item.base
        if base == BaseType.STRING:
            text = value.encode() if isinstance(value, str) else value
            ready[item.name] = self.builder.CreateString(text)
        elif base == BaseType.UNION:
            number, inner = value
            ready[f"{item.name}_type"] = number
            ready[item.name] = self.table(self._member(item, number), inner)
        elif base == BaseType.VECTOR and item.element == BaseType.UNION:
            places = [self.table(self._member(item, n), inner) for n, inner in value]
            ready[item.name] = self._offsets(places)
            ready[f"{item.name}_type"] = self._numbers(BaseType.UBYTE, [n for n, _ in value])
        elif base == BaseType.VECTOR:
            ready[item.name] = self._vector(item, value)
        elif base == BaseType.OBJECT and not self.schema.at(item.index).is_struct:
            ready[item.name] = self.table(self.schema.at(item.index), value)
        else:
            ready.setdefault(item.name, value)

    def _member(self, item: FieldDef, number: int) -> TableDef:
        objects = self.schema.enum_at(item.index).objects
        # A number that the schema lacks gets a table of any kind.
        return self.schema.at(objects[number]) if number in objects else self.schema.at(objects[1])

    def _vector(self, item: FieldDef, values: Any) -> int:
        if item.element == BaseType.STRING:
            encoded = [v.encode() if isinstance(v, str) else v for v in values]
            return self._offsets([self.builder.CreateString(v) for v in encoded])
        if item.element == BaseType.OBJECT:
            inner = self.schema.at(item.index)
            if not inner.is_struct:
                return self._offsets([self.table(inner, v) for v in values])
            self.builder.StartVector(inner.size, len(values), inner.align)
            for value in reversed(values):
                self._struct(inner, value)
            return int(self.builder.EndVector())
        if isinstance(values, (bytes, memoryview)):
            return int(self.builder.CreateByteVector(bytes(values)))
        return self._numbers(item.element, values)

    def _numbers(self, base: int, values: Sequence[Any]) -> int:
        width = _WIDTHS[base]
        self.builder.StartVector(width, len(values), width)
        for value in reversed(values):
            getattr(self.builder, f"Prepend{_SCALARS[base]}")(value)
        return int(self.builder.EndVector())

    def _offsets(self, places: Sequence[int]) -> int:
        self.builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self.builder.PrependUOffsetTRelative(place)
        return int(self.builder.EndVector())

    def _struct(self, table: TableDef, raw: bytes) -> int:
        assert len(raw) == table.size
        self.builder.Prep(table.align, table.size)
        self.builder.head -= table.size
        self.builder.Bytes[self.builder.head : self.builder.head + table.size] = raw
        return int(self.builder.Offset())

    def _store(self, item: FieldDef, value: Any) -> None:
        if item.base in _SCALARS:
            getattr(self.builder, f"Prepend{_SCALARS[item.base]}Slot")(item.slot, value, 0)
        elif item.base == BaseType.OBJECT and self.schema.at(item.index).is_struct:
            place = self._struct(self.schema.at(item.index), value)
            self.builder.PrependStructSlot(item.slot, place, 0)
        else:
            self.builder.PrependUOffsetTRelativeSlot(item.slot, value, 0)

    def finish(self, root: int, identifier: bytes) -> bytes:
        self.builder.FinishSizePrefixed(root, identifier)
        return bytes(self.builder.Output())


def union_number(name: str, *, schema: str = "graph_v1") -> int:
    """Number of a parameter table in OperatorParam."""
    loaded = load_schema(schema)
    space = V1 if schema == "graph_v1" else V2
    for number, index in loaded.enum(f"{space}OperatorParam").objects.items():
        if loaded.at(index).name.rsplit(".", 1)[-1] == name:
            return number
    raise KeyError(name)


def dtype(kind: int, scale: float | None = None, zero_point: int | None = None) -> dict[str, Any]:
    """A DType table."""
    if scale is None:
        return {"type": kind}
    quant = {"scale": scale}
    return {
        "type": kind,
        "param": (1, quant if zero_point is None else {**quant, "zero_point": zero_point}),
    }


def _resolved(op: Mapping[str, Any], magic: bytes) -> dict[str, Any]:
    """An operator with `op="Name"` and parameter names turned into numbers; values aside."""
    found = {k: v for k, v in op.items() if k not in ("op", "params")}
    if "op" in op:
        spec = registry.by_name(op["op"])
        if magic == b"mgv2":
            chosen = spec.v2[spec.v2_written]
            found.setdefault("type", chosen.type)
            found.setdefault("opr_version", chosen.version)
            found.setdefault("type_id", chosen.type_id)
        else:
            old = spec.old_id if magic == b"MGBS" else spec.names[-1].persist_id
            found.setdefault("type_id", old)
    params = [
        (union_number(n) if isinstance(n, str) else n, values) for n, values in op.get("params", ())
    ]
    if params:
        found["param"] = params[0]
    if params[1:]:
        found["additional_params"] = params[1:]
    return found


def v1(
    ops: Sequence[Mapping[str, Any]],
    outputs: Sequence[int] = (),
    *,
    magic: bytes = b"MGBC",
    version: int = 101300,
    **root: Any,
) -> bytes:
    """A v1 graph. Operators: fields of the table, `op` (name) or `type_id`, `params`.

    A tensor's `data` (bytes) goes before the flatbuffer and sets `data_size`.
    """
    schema = load_schema("graph_v1")
    encoder = Encoder(schema)
    values = b""
    tables = []
    for op in ops:
        found = _resolved(op, magic)
        tensors = []
        for tensor in found.pop("tensors", ()):
            data = tensor.get("data", b"")
            values += data
            rest = {k: v for k, v in tensor.items() if k != "data"}
            tensors.append({"data_size": len(data), **rest} if data else rest)
        tables.append({**found, "tensors": tensors} if tensors else found)
    graph = {
        "mgb_version": version,
        "hash": 12345,
        "nr_shared_tensor": 0,
        "oprs": tables,
        "output_vars_idx": [struct.pack("<II", i, i + 100) for i in outputs],
        **root,
    }
    body = encoder.finish(encoder.table(schema.table(f"{V1}Graph"), graph), b"mgb1")
    header = magic + bytes(HEADERS[magic] - 4) + struct.pack("<Q", len(values))
    return header + values + body


def v2(
    ops: Sequence[Mapping[str, Any]],
    outputs: Sequence[int] = (),
    *,
    version: int = 101300,
    **root: Any,
) -> bytes:
    """A v2 graph; output ids are numbered here unless an operator says `outputs` or `count`."""
    schema = load_schema("graph_v2")
    encoder = Encoder(schema)
    tables = []
    known = 0
    for op in ops:
        found = _resolved(op, b"mgv2")
        count = found.pop("count", 1)
        found.setdefault("outputs", list(range(known, known + count)))
        known += len(found["outputs"])
        tables.append(found)
    model = {
        "mge_version": version,
        "model_version": 2,
        "oprs": tables,
        "output_vars_idx": [{"compact_id": i, "original_id": i + 100} for i in outputs],
        "output_alias": [],
        "nr_shared_tensor": 0,
        **root,
    }
    return encoder.finish(encoder.table(schema.table(f"{V2}Model"), model), b"mgv2")


def input_op(name: str, shape: Sequence[int], kind: int = 0) -> dict[str, Any]:
    """A Host2DeviceCopy."""
    return {
        "op": "Host2DeviceCopy",
        "params": [("Host2DeviceCopy", {})],
        "tensors": [{"name": name, "shape": list(shape), "dtype": dtype(kind)}],
    }


def constant_op(
    data: bytes, shape: Sequence[int], kind: int = 0, *, op: str = "ImmutableTensor"
) -> dict[str, Any]:
    """A constant."""
    return {"op": op, "tensors": [{"shape": list(shape), "dtype": dtype(kind), "data": data}]}


def to_mgbs(data: bytes, *, version: int | None = None) -> bytes:
    """An MGBC file as an MGBS file: another header, unversioned ids."""
    assert data[:4] == b"MGBC"
    offset = struct.unpack_from("<Q", data, 16)[0]
    body = data[24 + offset :]
    for spec in registry.every():
        for name in spec.names:
            body = body.replace(struct.pack("<Q", name.persist_id), struct.pack("<Q", spec.old_id))
    if version is not None:
        body = body.replace(struct.pack("<I", 101300), struct.pack("<I", version), 1)
    return b"MGBS" + bytes(4) + data[16:24] + data[24 : 24 + offset] + body


def with_cases(network: bytes, cases: Sequence[bytes], *, count: int | None = None) -> bytes:
    """A network with test cases behind it."""
    number = len(cases) if count is None else count
    return b"mgbtest0" + struct.pack("<I", number) + network + b"".join(cases)


def lite(model: bytes, *, method: str | None = "NONE", name: str = "net", models: int = 1) -> bytes:
    """A MegEngine Lite package."""
    schema = load_schema("lite_pack")
    encoder = Encoder(schema)
    header = {"name": name, "info_decryption_method": "NONE", "info_parse_method": "LITE_default"}
    if method is not None:
        header["model_decryption_method"] = method
    one = {
        "header": header,
        "info": {"data": b'{"name": "net"}'},
        "data": {"data": model},
    }
    root = encoder.table(schema.root, {"models": [one] * models})
    encoder.builder.Finish(root)
    return b"packed_model" + bytes(encoder.builder.Output())
