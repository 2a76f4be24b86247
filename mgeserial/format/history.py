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
from mgeserial.format.versions import release_index

__all__ = ["LEGACY", "data", "enum_numbers", "old_table"]

# Enum members that today's schema lacks are shown as LEGACY + their old number.
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


@functools.cache
def enum_numbers(table: str, field: str, release: str) -> dict[int, int] | None:
    """Today's number by the number of `release`; None when nothing was renumbered."""
    key = f"{table}.{field}"
    for group in data()["enums"]:
        if key in group["fields"]:
            then = _step(group["steps"], release)
            now = group["steps"][-1]["values"]
            if then is None or then["values"] is now:
                return None
            moved = {n: now.get(k, LEGACY + n) for k, n in then["values"].items()}
            return moved if any(a != b for a, b in moved.items()) else None
    return None
