"""Tensors of operators as a target stores them: names, formats, packing, and where values lie."""

from __future__ import annotations

import struct

import numpy as np

from mgeserial.dtypes import pack
from mgeserial.errors import GraphError, InputError, printable
from mgeserial.format.flatbuild import Part
from mgeserial.format.outgoing import OutTensor
from mgeserial.format.params_encode import dtype_reason
from mgeserial.format.raw import Opaque
from mgeserial.format.target import Target
from mgeserial.ir.graph import Node, input_name
from mgeserial.ir.tensor import Tensor
from mgeserial.ops.registry import OpSpec

__all__ = ["TensorPlanner", "encoded"]

_MOST_DIMS = 7
# A v1 file states the bytes of a tensor in 32 bits.
_MOST_BYTES = 0xFFFFFFFF
_HOLDER = "MultipleDeviceTensorHolder"
_WITH_FORMAT = frozenset({"SharedDeviceTensorWithFormat", "MultipleDeviceTensorWithFormatHolder"})
# Parameters: their names are kept on demand. Constants (ImmutableTensor) have none in MegEngine.
_NAMED = frozenset({"SharedDeviceTensor", "VolatileSharedDeviceTensor", _HOLDER, *_WITH_FORMAT})


def encoded(text: str) -> bytes:
    """A name as files store it.

    Raises:
        InputError: It has no UTF-8 form.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a name is not valid text: {printable(text)!r}") from error


class _Packed:
    """A low-bit value that is packed when it is written."""

    __slots__ = ("_row_packed", "_tensor", "nbytes")

    def __init__(self, tensor: Tensor, row_packed: bool) -> None:
        self._tensor = tensor
        self._row_packed = row_packed
        self.nbytes = tensor.dtype.nbytes(tensor.shape, row_packed=row_packed)

    def tobytes(self) -> bytes:
        return pack(self._tensor.numpy(), self._tensor.dtype, row_packed=self._row_packed)


class TensorPlanner:
    """Translates the tensors and blobs of operators for one target."""

    def __init__(self, target: Target, *, keep_names: bool | None) -> None:
        self._target = target
        self._keep_names = keep_names

    def of(self, node: Node, reasons: list[str]) -> tuple[tuple[OutTensor, ...], tuple[bytes, ...]]:
        """Tensors and blobs of a node; what does not fit is added to `reasons`.

        Raises:
            GraphError: A parameter has no value, or blobs do not fit the tensors.
        """
        op = node.op
        if not node.tensors:
            return (), node.blobs
        formats = _formats(node)
        tensors = []
        for k, tensor in enumerate(node.tensors):
            tensors.append(self._tensor(node, k, tensor, formats[k], reasons))
        if op.name == _HOLDER or op.name in _WITH_FORMAT:
            return tuple(tensors), self._blobs(op.name, formats)
        if any(f is not None for f in formats):
            reasons.append("only parameters with a format may have another than the default one")
        return tuple(tensors), node.blobs

    def _blobs(self, name: str, formats: list[tuple[int, bytes] | None]) -> tuple[bytes, ...]:
        """What v1 stores beside the tensors: their number, and the format of each."""
        if self._target.is_v2:
            return ()
        count = (struct.pack("<I", len(formats)),)
        if name == _HOLDER:
            return count
        stored = [_format_blob(f) for f in formats]
        return (*(() if name == "SharedDeviceTensorWithFormat" else count), *stored)

    def _tensor(
        self,
        node: Node,
        index: int,
        tensor: Tensor,
        layout: tuple[int, bytes] | None,
        reasons: list[str],
    ) -> OutTensor:
        target, shape = self._target, tensor.shape
        if len(shape) > _MOST_DIMS:
            reasons.append(f"a tensor has at most {_MOST_DIMS} dimensions, got {len(shape)}")
        elif any(not 0 <= n <= 0xFFFFFFFF for n in shape):
            reasons.append(f"a dimension has 32 bits, got shape {shape}")
        reasons += dtype_reason(tensor.dtype, target)
        if layout is not None and layout[0] == 3 and not target.has("v1.5.0"):
            reasons.append("low-bit tensor formats exist since v1.5.0")
        is_input = isinstance(node.op, OpSpec) and "input" in node.op.tags
        name = self._name(node, index, tensor, is_input=is_input)
        value: Part | None = None
        nbytes = 0
        if not is_input and not shape:
            raise GraphError(f"{node.describe()} stores a tensor without a shape")
        if tensor.has_value and (tensor.size or not is_input):
            nbytes = tensor.dtype.nbytes(shape, row_packed=target.is_row_packed)
            value = _value(tensor, target.is_row_packed)
            got = len(value) if isinstance(value, bytes) else value.nbytes
            if got != nbytes:
                raise GraphError(f"{node.describe()} has {got} bytes for a tensor of {nbytes}")
            if not target.is_v2 and nbytes > _MOST_BYTES:
                reasons.append(
                    f"v1 holds tensors below 4 GiB, this one of shape {shape} takes {nbytes} bytes"
                )
        elif not is_input and tensor.size:
            raise GraphError(f"{node.describe()} has no value for its tensor of shape {shape}")
        node_name = None if tensor.comp_node is None else encoded(tensor.comp_node)
        unknown = self._unknown(tensor.unknown, reasons)
        return OutTensor(
            None if name is None else encoded(name),
            shape,
            tensor.dtype,
            node_name,
            value,
            nbytes,
            layout if target.is_v2 else None,
            unknown,
        )

    def _name(self, node: Node, index: int, tensor: Tensor, *, is_input: bool) -> str | None:
        if is_input:
            return input_name(node.outputs[0])
        if self._keep_names is False or (self._keep_names is None and tensor.name is None):
            return None
        if tensor.name is not None:
            return tensor.name
        return node.outputs[index].display_name if node.op.name in _NAMED else None

    def _unknown(self, unknown: Opaque | None, reasons: list[str]) -> Opaque | None:
        if unknown is None:
            return None
        foreign = (bytes(unknown.buffer.data[8:12]) == b"mgv2") != self._target.is_v2
        if foreign or not self._target.takes_unknown:
            reasons.append("fields of a newer release in table Tensor have no place")
            return None
        return unknown


def _formats(node: Node) -> list[tuple[int, bytes] | None]:
    """Format of each tensor, from the tensors (v2) or from the blobs beside them (v1)."""
    formats = [t.format for t in node.tensors]
    if node.op.name not in _WITH_FORMAT or any(f is not None for f in formats):
        return formats
    blobs = node.blobs
    stored = blobs if node.op.name == "SharedDeviceTensorWithFormat" else blobs[1:]
    if not stored:
        return formats
    if len(stored) != len(formats):
        raise GraphError(f"{node.describe()} has {len(formats)} tensors, {len(stored)} formats")
    return [_parse_format(node, blob) for blob in stored]


def _parse_format(node: Node, blob: bytes) -> tuple[int, bytes] | None:
    """(number of v2's TensorFormat, a byte for each field) of a serialised format."""
    sizes = {0: 4, 1: 5, 2: 6}
    kind = struct.unpack_from("<i", blob)[0] if len(blob) >= 4 else -1
    if sizes.get(kind) != len(blob):
        raise GraphError(f"{node.describe()} has a tensor format that is not known: {blob.hex()}")
    return None if kind == 0 else (kind + 1, blob[4:])


def _format_blob(layout: tuple[int, bytes] | None) -> bytes:
    kind, payload = (1, b"") if layout is None else layout
    return struct.pack("<i", kind - 1) + payload


def _value(tensor: Tensor, row_packed: bool) -> Part:
    """Where a tensor's bytes come from: its file, its array, or packed on the way."""
    raw = tensor.raw
    if raw is not None:
        same = tensor.row_packed == row_packed or tensor.dtype.nbytes(
            tensor.shape, row_packed=True
        ) == tensor.dtype.nbytes(tensor.shape, row_packed=False)
        return raw if same else _Packed(tensor, row_packed)
    if tensor.dtype.is_lowbit:
        return _Packed(tensor, row_packed)
    array = np.ascontiguousarray(tensor.numpy())
    return array.reshape(-1).view(np.uint8).data
