"""Weights of a graph by name: listed, written to `.npz` or `.safetensors`, replaced from a file.

Every weight and constant has one name: that of its tensor, else that of its value (or of the output
that it is), else operator and place (`ImmutableTensor[3]`); a repeated one gets `#1`, `#2`.
Quantised and low-bit types travel as their stored integers with the type's text beside them,
bfloat16 as BF16 in `.safetensors` and as its bits in `.npz`.

Source: safetensors format description (header, dtype names); FORMAT section (g).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgeserial.arrayfiles import (
    NamedArray,
    note_types,
    npz_bytes,
    read_bytes,
    read_npz,
    read_npz_notes,
)
from mgeserial.dtypes import Array, DType, check_fits
from mgeserial.errors import InputError, MgeError, ShapeError, UnsupportedError, printable
from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph, Node, unique_names
from mgeserial.ir.inference import infer
from mgeserial.ir.tensor import Tensor

__all__ = [
    "Weight",
    "named_arrays",
    "read_arrays",
    "replace_weights",
    "weights_bytes",
    "weights_of",
]

_NOTES = "mgeserial"
_PICKLES = (".pkl", ".pickle", ".tm", ".mge")
_NAMED_LIKE = 5
_BF16 = "BF16"
# Names of element types in `.safetensors` files and the numpy type of their bytes.
_ST_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    _BF16: "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_ST_NAMES = {code: name for name, code in _ST_TYPES.items() if name != _BF16}


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A weight or constant of a graph.

    Attributes:
        name: Its unique name.
        node: The operator that holds it.
        index: Which of the operator's tensors it is.
    """

    name: str
    node: Node
    index: int

    @property
    def tensor(self) -> Tensor:
        """The tensor: shape, type and value."""
        return self.node.tensors[self.index]

    @property
    def is_constant(self) -> bool:
        """Whether the value is part of the network's making, such as a shape or a factor.

        That is an ImmutableTensor of whole numbers or of one number; larger ones of real numbers
        are weights, which dumping turns into ImmutableTensors.
        """
        if self.node.op.name != "ImmutableTensor":
            return False
        return self.tensor.size <= 1 or self.tensor.dtype.is_integer


def weights_of(graph: Graph) -> list[Weight]:
    """Every stored value of a graph with its unique name, in the order of the graph."""
    outputs = dict(zip(graph.outputs, graph.output_names, strict=True))
    found: list[tuple[str, Node, int]] = []
    for place, node in enumerate(graph.nodes):
        if node.is_input:
            continue
        for index, tensor in enumerate(node.tensors):
            if not tensor.has_value:
                continue
            value = node.outputs[index] if index < len(node.outputs) else None
            base = tensor.name or (value and (outputs.get(value) or value.name)) or ""
            if not base:
                base = f"{node.name or node.op.name + f'[{place}]'}"
                base += f":{index}" if len(node.tensors) > 1 else ""
            found.append((base, node, index))
    names = unique_names(base for base, _, _ in found)
    return [Weight(name, node, i) for name, (_, node, i) in zip(names, found, strict=True)]


def named_arrays(weights: Iterable[Weight]) -> list[NamedArray]:
    """Values of weights under their names."""
    return [NamedArray(w.name, w.tensor.numpy(), str(w.tensor.dtype)) for w in weights]


# -- files ----------------------------------------------------------------------------------------


def weights_bytes(arrays: Sequence[NamedArray], path: str) -> list[bytes | memoryview]:
    """Content of a file of weights in pieces, by the path's suffix.

    Raises:
        InputError: Another suffix than `.npz` or `.safetensors`; a name the file cannot have.
        UnsupportedError: The file has no such type.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npz":
        return [npz_bytes(arrays)]
    if suffix == ".safetensors":
        return _safetensors_parts(arrays)
    raise InputError(
        f"weights are written to .npz and .safetensors files, not {suffix or 'without a suffix'!r}",
        path=path,
    )


def _safetensors_parts(arrays: Sequence[NamedArray]) -> list[bytes | memoryview]:
    """A header of JSON, padded to 8 bytes, then the values: wide types first, so all are aligned.

    Source: github.com/huggingface/safetensors README "Format".
    """
    header: dict[str, Any] = {}
    types: dict[str, str] = {}
    parts: list[bytes | memoryview] = []
    end = 0
    for item in sorted(arrays, key=lambda a: -a.array.dtype.itemsize):
        array = np.ascontiguousarray(item.array)
        kind = _BF16 if item.type == "BFloat16" else _ST_NAMES.get(array.dtype.str)
        if kind is None:
            raise UnsupportedError(
                f"{printable(item.name)!r} is {item.type}: .safetensors has no such type",
                hint="write an .npz file",
            )
        if item.name in header or item.name == "__metadata__":
            raise InputError(f"{printable(item.name)!r} cannot name a value of .safetensors")
        start, end = end, end + array.nbytes
        shape = list(item.array.shape)
        header[item.name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        if array.nbytes:
            parts.append(array.reshape(-1).view(np.uint8).data)
        if kind != _BF16 and item.type.lower() != array.dtype.name:
            types[item.name] = item.type
    if types:
        note = json.dumps({"dtypes": types}, ensure_ascii=False)
        header = {"__metadata__": {_NOTES: note}, **header}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a name is no valid text: {error.object[:40]!r}") from error
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *parts]


def _safetensors() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise UnsupportedError(
            "the safetensors package, which reads such files, is not installed",
            hint="`pip install 'mgeserial[weights]'`, or use an .npz file",
        ) from error
    return safetensors


def read_arrays(path: str) -> list[NamedArray]:
    """Arrays of a `.npz`, `.safetensors` or pickle file (`megengine.save`), as data only.

    Raises:
        FormatError: The pickle is damaged, or asks for what is no data.
        InputError: The file cannot be read, or is of no such kind.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npz":
        types = read_npz_notes(path)
        arrays = read_npz(path)
        return [NamedArray(n, a, types.get(n, a.dtype.name)) for n, a in arrays.items()]
    if suffix == ".safetensors":
        return _read_safetensors(path)
    if suffix in _PICKLES:
        from mgeserial.pickles import read_pickle

        return list(read_pickle(path).weights)
    raise InputError(
        f"weights are read from .npz, .safetensors and .pkl files, not {suffix!r}", path=path
    )


def _read_safetensors(path: str) -> list[NamedArray]:
    library = _safetensors()
    data = read_bytes(path)
    try:
        entries = library.deserialize(data)
        types = _safetensors_notes(data)
    except (TypeError, ValueError, OverflowError, RecursionError, library.SafetensorError) as error:
        raise InputError(f"not a readable .safetensors file: {error}", path=path) from error
    found = []
    for name, entry in entries:
        kind = _ST_TYPES.get(entry["dtype"])
        if kind is None:
            raise UnsupportedError(
                f"{printable(name)!r} is of type {printable(entry['dtype'], limit=40)}, which is "
                "not read",
                path=path,
            )
        array = np.frombuffer(bytes(entry["data"]), kind).reshape(entry["shape"])
        plain = "BFloat16" if entry["dtype"] == _BF16 else array.dtype.name
        found.append(NamedArray(name, array, types.get(name, plain)))
    return found


def _safetensors_notes(data: bytes) -> dict[str, str]:
    """Our note of types in the header, which the library has checked already."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size].decode("utf-8"))
    note = header.get("__metadata__", {}).get(_NOTES)
    return {} if note is None else note_types(json.loads(note))


# -- replacing ------------------------------------------------------------------------------------


def replace_weights(
    graph: Graph,
    arrays: Sequence[NamedArray],
    *,
    rename: Mapping[str, str] | None = None,
    partial: bool = False,
) -> Graph:
    """A copy of a graph with other values of its weights; shapes and types stay.

    Args:
        graph: The graph; it stays as it is.
        arrays: New values by name.
        rename: Name of a weight by name of an array, for those that differ.
        partial: Whether weights may be left as they are; constants always may.

    Raises:
        InputError: Names that no weight has, weights without a new value, another element type:
            all of them are listed.
        ShapeError: Shapes that differ: all of them are listed.
    """
    new, _ = copy_graph(graph)
    weights = {w.name: w for w in weights_of(graph)}
    given = _renamed(arrays, rename or {}, weights)
    if not partial:
        missing = [n for n, w in weights.items() if n not in given and not w.is_constant]
        if missing:
            raise InputError(
                f"no value for {_listed(missing)}",
                hint="--partial leaves them as they are",
            )
    _refuse_differences(given, weights)
    for name, item in given.items():
        weight = weights[name]
        place = graph.index_of(weight.node)
        node, old = new.nodes[place], weight.tensor
        array = _stored(item.array, old.dtype)
        tensor = Tensor(
            shape=old.shape,
            dtype=old.dtype,
            array=array,
            name=old.name,
            comp_node=old.comp_node,
            format=old.format,
        )
        before, after = node.tensors[: weight.index], node.tensors[weight.index + 1 :]
        new.set_tensors(node, (*before, tensor, *after))
    _check_types(new, given, weights)
    return new


def _stored(array: Array, dtype: DType) -> Array:
    own = np.array(array, dtype=dtype.storage, order="C")
    own.flags.writeable = False
    return own


def _check_types(
    graph: Graph, given: Mapping[str, NamedArray], weights: Mapping[str, Weight]
) -> None:
    """Constants decide about shapes downstream: what does not fit any more is refused."""
    if any(weights[name].is_constant for name in given):
        try:
            infer(graph)
        except MgeError as error:
            error.message += "; a constant that was replaced decides about shapes"
            raise


def _renamed(
    arrays: Sequence[NamedArray], rename: Mapping[str, str], weights: Mapping[str, Weight]
) -> dict[str, NamedArray]:
    """Arrays by the name of the weight they are for."""
    held = {item.name for item in arrays}
    for source in rename:
        if source not in held:
            raise InputError(f"the source has no array {source!r}: it has {_listed(sorted(held))}")
    given: dict[str, NamedArray] = {}
    unknown = []
    for item in arrays:
        name = rename.get(item.name, item.name)
        if name not in weights:
            unknown.append(name)
        elif name in given:
            raise InputError(f"two arrays are for weight {name!r}")
        else:
            given[name] = item
    if unknown:
        near = difflib.get_close_matches(unknown[0], weights, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"no weight is called {_listed(unknown)}",
            hint=f"{meant}the weights: {_listed(list(weights))}; --rename OLD=NEW and --prefix "
            "fit names",
        )
    return given


def _refuse_differences(given: Mapping[str, NamedArray], weights: Mapping[str, Weight]) -> None:
    shapes, types = [], []
    for name, item in given.items():
        tensor = weights[name].tensor
        if tuple(item.array.shape) != tuple(tensor.shape):
            shapes.append(f"{printable(name)} is {tensor.shape}, got {item.array.shape}")
        elif not _same_type(item, tensor.dtype):
            types.append(f"{printable(name)} is {tensor.dtype}, got {item.type}")
        else:
            _refuse_codes(name, item.array, tensor.dtype)
    if shapes:
        raise ShapeError(f"shapes differ: {'; '.join(shapes[:_NAMED_LIKE])}{_more(shapes)}")
    if types:
        raise InputError(f"element types differ: {'; '.join(types[:_NAMED_LIKE])}{_more(types)}")


def _same_type(item: NamedArray, dtype: DType) -> bool:
    """Whether an array is of a weight's type: by its note, else by its numpy type alone."""
    if item.array.dtype != dtype.storage:
        return False
    return (
        item.type in (str(dtype), item.array.dtype.name) or item.type.lower() == str(dtype).lower()
    )


def _refuse_codes(name: str, array: Array, dtype: DType) -> None:
    """Stored integers of low-bit types must be those that the type has."""
    try:
        check_fits(array, dtype)
    except InputError as error:
        error.message = f"{printable(name)!r}: {error.message}"
        raise


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(printable(n, limit=60)) for n in names[:_NAMED_LIKE])
    return (shown or "nothing") + _more(names)


def _more(items: Sequence[Any]) -> str:
    return f" and {len(items) - _NAMED_LIKE} more" if len(items) > _NAMED_LIKE else ""
