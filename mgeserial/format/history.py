"""Tables and enum numbers of older releases, translated to the view of v1.13.4.

The data is `_schema/history.json` (from params.json: compiled schemas of every tag compared).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from mgeserial.format.flatbuf import SCALARS, BaseType, FieldDef, TableDef
from mgeserial.format.versions import release_before, release_index

__all__ = [
    "LEGACY",
    "REMADE",
    "data",
    "enum_codes",
    "enum_numbers",
    "field_since",
    "member",
    "old_table",
    "union_since",
]

# Enum members that today's schema lacks are numbered from LEGACY on, in order of appearance.
LEGACY = 0x10000
_BASES = {
    "bool": BaseType.BOOL,
    "byte": BaseType.BYTE,
    "int": BaseType.INT,
    "uint": BaseType.UINT,
    "ulong": BaseType.ULONG,
    "float": BaseType.FLOAT,
    "double": BaseType.DOUBLE,
}


@functools.cache
def data() -> dict[str, Any]:
    """The recorded history."""
    text = (resources.files("mgeserial.format") / "_schema" / "history.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _step(steps: Sequence[Mapping[str, Any]], release: str) -> Mapping[str, Any] | None:
    """The last step that had happened at `release`."""
    at = release_index(release)
    past = [s for s in steps if release_index(s["since"]) <= at]
    return past[-1] if past else None


@functools.cache
def old_table(name: str, release: str) -> TableDef | None:
    """Layout of table `name` at `release`; None when it is today's."""
    steps = data()["layouts"].get(name)
    if steps is None or (step := _step(steps, release)) is None or step is steps[-1]:
        return None
    fields = []
    for item in step["fields"]:
        base = _BASES[item["type"]]
        width = SCALARS[base].size
        fields.append(
            FieldDef(item["name"], item["slot"], 0, base, 0, -1, 0, width, item["default"], False)
        )
    slots = len(fields)
    return TableDef(
        name,
        tuple(fields),
        False,
        0,
        1,
        slots,
        tuple(f.width for f in fields),
        {f.name: f for f in fields},
    )


# Spellings of the same member.
_SPELLED = {"OPTMIZED": "OPTIMIZED"}
# Up to v1.2.0 a plain enum whose members name the bits set today.
_FLAGS = "ExecutionPolicy.strategy"
# Tables of old layouts that cannot be told from today's fields: more than places moved.
REMADE = frozenset({"MultiHeadAttn"})


@functools.cache
def _group(table: str, field: str) -> dict[str, Any] | None:
    """The recorded steps of an enum field; None when its numbers never changed."""
    key = f"{table}.{field}"
    for group in data()["enums"]:
        if key in group["fields"]:
            found: dict[str, Any] = group
            return found
    return None


@functools.cache
def _numbers(table: str, field: str) -> dict[str, int]:
    """Today's number of every member that ever was; LEGACY + n for those that are gone."""
    group = _group(table, field)
    if group is None:
        return {}
    now = dict(group["steps"][-1]["values"])
    numbers = dict(now)
    for step in group["steps"]:
        for name in step["values"]:
            if name in numbers:
                continue
            parts = name.split("_") if f"{table}.{field}" == _FLAGS else []
            if _SPELLED.get(name) in now:
                numbers[name] = now[_SPELLED[name]]
            elif parts and all(p in now for p in parts):
                numbers[name] = functools.reduce(lambda a, p: a | now[p], parts, 0)
            else:
                gone = sum(1 for n in numbers.values() if n >= LEGACY)
                numbers[name] = LEGACY + gone
    return numbers


@functools.cache
def enum_numbers(table: str, field: str, release: str) -> dict[int, int] | None:
    """Today's number by the number of `release`; None when nothing was renumbered."""
    group = _group(table, field)
    if group is None or (then := _step(group["steps"], release)) is None:
        return None
    now = _numbers(table, field)
    moved = {n: now[k] for k, n in then["values"].items()}
    return moved if any(a != b for a, b in moved.items()) else None


@functools.cache
def enum_codes(table: str, field: str, release: str) -> dict[int, int] | None:
    """The number of `release` by today's; None when the release has today's members and numbers."""
    group = _group(table, field)
    if group is None:
        return None
    then = _step(group["steps"], release)
    if then is None:
        return {}
    now = _numbers(table, field)
    codes = {now[k]: n for k, n in then["values"].items()}
    last = {now[k]: n for k, n in group["steps"][-1]["values"].items()}
    return None if codes == last else codes


@functools.cache
def member(table: str, field: str, number: int) -> tuple[str | None, str | None, str | None]:
    """(name, first release, last release) of a member by today's number; None: not recorded.

    The last release is None for members that still exist.
    """
    group = _group(table, field)
    spellings = [k for k, n in _numbers(table, field).items() if n == number]
    if group is None or not spellings:
        return None, None, None
    name = spellings[0]
    steps = group["steps"]
    having = [i for i, s in enumerate(steps) if any(k in s["values"] for k in spellings)]
    after = having[-1] + 1
    last = None if after == len(steps) else release_before(steps[after]["since"])
    return name, steps[having[0]]["since"], last


def field_since(table: str, field: str) -> str | None:
    """First release whose layout of a table has the field; None when not recorded."""
    for step in data()["layouts"].get(table, ()):
        if any(item["name"] == field for item in step["fields"]):
            since: str = step["since"]
            return since
    return None


def union_since(number: int, *, v2: bool) -> str | None:
    """First release whose union of parameter tables has the number in that container."""
    since: str | None = data()["unions"]["v2" if v2 else "v1"].get(str(number))
    return since
