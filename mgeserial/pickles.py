"""Weights out of pickles that `megengine.save` wrote, without executing anything.

A pickle is a program for a small stack machine that may call any function. Here the program is
read, and only what builds data is carried out: numbers, texts, lists, dicts, numpy arrays, and
records of MegEngine's classes with their fields. No module is imported, no function or class that
a file names is called or made; a name that is not on the list is refused with its place. Sizes are
those of bytes that are in the file; work is bounded by `MAX_STEPS`.

Source: pickles written by MegEngine 0.4 to 1.13 (Tensor, Parameter, state dicts, traced modules).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mgeserial._pickle_machine import MAX_STEPS, ArrayRecord, Dict, DTypeRecord, Machine, Record
from mgeserial.arrayfiles import NamedArray, read_bytes
from mgeserial.dtypes import Array, DType, DTypeEnum, quantized
from mgeserial.errors import FormatError, InputError, MgeError, UnsupportedError, printable
from mgeserial.ir.graph import unique_names

__all__ = ["MAX_STEPS", "Pickle", "is_pickle", "read_pickle"]

_MAX_DEPTH = 64
_MAX_NAME = 1000
_MAX_VISITS = 1_000_000
# Fields of traced modules that hold the graph, whose tensors are constants without a name.
_GRAPH_FIELDS = frozenset({"argdef_graph_map", "argdef_outdef_map"})


@dataclass(frozen=True, slots=True)
class Pickle:
    """What a pickle holds.

    Attributes:
        path: The file.
        protocol: The pickle protocol.
        weights: Arrays with their places as names: `state_dict.conv.weight`, `list.0`.
        kind: What the outermost object is, such as `dict` or `megengine.tensor.Tensor`.
    """

    path: str
    protocol: int
    weights: tuple[NamedArray, ...]
    kind: str


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a pickle of protocol 2 to 5."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5


def read_pickle(path: str) -> Pickle:
    """Read the arrays of a pickle, executing nothing.

    Raises:
        FormatError: Not a pickle, damaged, or it asks for something that is not allowed.
        UnsupportedError: It holds arrays that cannot be taken out.
        InputError: The file cannot be read.
    """
    data = read_bytes(path)
    if not is_pickle(data[:2]):
        raise FormatError("not a pickle of protocol 2 to 5", path=path, offset=0)
    machine = Machine()
    try:
        root = machine.run(data)
        weights = tuple(_named(root, machine.arrays))
    except MgeError as error:
        raise error.located(path=path) from None
    return Pickle(path, data[1], weights, _kind(root))


def _kind(value: Any) -> str:
    if isinstance(value, Record):
        return value.kind.text
    if isinstance(value, ArrayRecord):
        return "numpy.ndarray"
    return "dict" if isinstance(value, Dict) else type(value).__name__


# -- names of arrays ------------------------------------------------------------------------------


def _named(root: Any, arrays: Sequence[ArrayRecord]) -> Iterator[NamedArray]:
    """Arrays with their places as names; those that have none come last, by number."""
    placed = list(_walk(root))
    names = unique_names(place or "tensor" for place, _, _ in placed)
    for name, (_, record, dtype) in zip(names, placed, strict=True):
        yield _weight(name, record, dtype)
    seen = {id(record) for _, record, _ in placed}
    rest = [r for r in arrays if id(r) not in seen and r.array is not None]
    for k, record in enumerate(rest):
        yield _weight(f"constant.{k}", record, record.dtype)


def _walk(root: Any) -> Iterator[tuple[str, ArrayRecord, DTypeRecord | None]]:
    """Arrays below an object, depth first in the order of the file."""
    stack: list[tuple[str, Any, int]] = [("", root, 0)]
    open_records: set[int] = set()
    visits = 0
    while stack:
        place, value, depth = stack.pop()
        if visits > _MAX_VISITS or depth > _MAX_DEPTH:
            raise UnsupportedError(
                f"the pickle is nested more than {_MAX_DEPTH} deep or refers to itself too often"
            )
        found = _as_array(value)
        if found is not None:
            yield place, *found
            continue
        if isinstance(value, Record):
            # Records of a traced module refer to each other in circles.
            if id(value) in open_records:
                continue
            open_records.add(id(value))
        fields = _fields(value)
        visits += 1 + len(fields)
        for key, part in reversed(fields):
            name = f"{place}.{key}" if place else key
            if len(name) > _MAX_NAME:
                raise UnsupportedError(f"the pickle names a value with {len(name)} characters")
            stack.append((name, part, depth + 1))


def _fields(value: Any) -> list[tuple[str, Any]]:
    """Named parts of an object."""
    if isinstance(value, Record):
        if value.kind.name == "_ModuleState" and isinstance(value.state, Dict):
            return _fields(value.state.get("state"))
        parts = [*_fields(list(value.args)), *_fields(value.items), *_fields(value.state)]
        return [(name, part) for name, part in parts if name not in _GRAPH_FIELDS]
    if isinstance(value, Dict):
        return [(str(k), v) for k, v in value.items if isinstance(k, str) or _is_small(k)]
    if isinstance(value, (list, tuple)):
        return [(str(k), v) for k, v in enumerate(value)]
    return []


def _is_small(key: Any) -> bool:
    """Whether a number can be part of a name."""
    return isinstance(key, (int, float)) and abs(key) < 1 << 63


def _as_array(value: Any) -> tuple[ArrayRecord, DTypeRecord | None] | None:
    """The array that an object is: numpy's, or a tensor's with its element type."""
    if isinstance(value, ArrayRecord):
        return (value, value.dtype) if value.array is not None else None
    if not isinstance(value, Record) or not value.kind.module.startswith("megengine"):
        return None
    if value.kind.name not in ("Tensor", "Parameter", "Buffer", "TensorDict"):
        return None
    state = value.state if isinstance(value.state, Dict) else Dict()
    for part in (*value.args[:1], state.get("data"), state.get("_data")):
        if isinstance(part, ArrayRecord) and part.array is not None:
            given = value.args[1] if len(value.args) > 1 else None
            return part, given if isinstance(given, DTypeRecord) else part.dtype
    return None


def _weight(name: str, record: ArrayRecord, dtype: DTypeRecord | None) -> NamedArray:
    assert record.array is not None
    return NamedArray(name, record.array, _type_text(record.array, dtype))


def _type_text(array: Array, dtype: DTypeRecord | None) -> str:
    """Element type as text: that of the metadata where MegEngine keeps one, else numpy's."""
    note = dtype.metadata if dtype is not None else None
    facts = note.get("mgb_dtype") if isinstance(note, Dict) else None
    if not isinstance(facts, Dict):
        return array.dtype.name
    name, scale, zero = (facts.get(key) for key in ("name", "scale", "zero_point"))
    try:
        return str(_quantized(str(name), scale, zero))
    except (InputError, KeyError, ValueError, TypeError, OverflowError):
        raise UnsupportedError(
            f"an array has the element type {printable(str(name), limit=40)!r}"
        ) from None


def _quantized(name: str, scale: Any, zero: Any) -> DType:
    if scale is None:
        return DType(DTypeEnum[name])
    return quantized(name, float(scale), None if zero is None else int(zero))
