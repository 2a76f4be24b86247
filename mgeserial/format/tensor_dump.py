"""Tensors as load_and_run writes them with `--bin-out-dump` and `--bin-io-dump`.

One file holds one tensor::

    u32 length of the name, u32 dtype, u32 number of dimension slots (7),
    u32 dims[slots] (row-major, unused slots 0), the name, the values

Numbers are little-endian. The dtype is the run time's own number, not that of model files:
quantised types count from 100000. Scales and zero points are not stored. There is no magic number.

Source: MegEngine v0.5.1 and v1.6 src/core/impl/utils/debug.cpp (dump_tensor) and
dnn/include/megdnn/dtype.h (DTypeEnum); layout and the numbers 0 to 4, 11, 12, 100001, 100002
checked on files written by MegEngine 1.13.0.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from mgeserial.dtypes import Array, DType, DTypeEnum, pack, unpack
from mgeserial.errors import FormatError, UnsupportedError, printable
from mgeserial.format.atomic import write_atomic
from mgeserial.format.container import open_source

__all__ = [
    "TensorDump",
    "decode",
    "encode",
    "load_tensor_binary",
    "read_tensor_dump",
    "write_tensor_dump",
]

_HEADER = struct.Struct("<3I")
_SLOTS = 7
_MAX_SLOTS = 32  # numpy 1.26 has no arrays of more dimensions
_QUANTIZED_BASE = 100_000
_KINDS = {
    0: DTypeEnum.Float32,
    1: DTypeEnum.Uint8,
    2: DTypeEnum.Int8,
    3: DTypeEnum.Int16,
    4: DTypeEnum.Int32,
    5: DTypeEnum.IntB1,
    6: DTypeEnum.IntB2,
    7: DTypeEnum.IntB4,
    8: DTypeEnum.Byte,
    9: DTypeEnum.Float16,
    10: DTypeEnum.UintB4,
    11: DTypeEnum.BFloat16,
    12: DTypeEnum.Bool,
    13: DTypeEnum.Uint16,
    _QUANTIZED_BASE: DTypeEnum.Quantized8Asymm,
    _QUANTIZED_BASE + 1: DTypeEnum.QuantizedS32,
    _QUANTIZED_BASE + 2: DTypeEnum.QuantizedS8,
    _QUANTIZED_BASE + 3: DTypeEnum.Quantized4Asymm,
    _QUANTIZED_BASE + 4: DTypeEnum.QuantizedS4,
    _QUANTIZED_BASE + 5: DTypeEnum.QuantizedS16,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class TensorDump:
    """One dumped tensor.

    Attributes:
        name: What the writer called it; load_and_run puts the variable's whole description here.
        kind: Element type; a quantised one comes without its scale.
        array: Values in the storage of the type, read-only.
    """

    name: str
    kind: DTypeEnum
    array: Array


def read_tensor_dump(path: str | os.PathLike[str]) -> TensorDump:
    """Read one file of a dump.

    Raises:
        InputError: The file cannot be read.
        FormatError: It is not a tensor dump.
        UnsupportedError: Its dtype number is not known.
    """
    source = open_source(path)
    try:
        return decode(source.data)
    except (FormatError, UnsupportedError) as error:
        raise error.located(path=source.path) from error.__cause__


def load_tensor_binary(source: str | os.PathLike[str] | IO[bytes]) -> tuple[Array, str]:
    """Read a tensor that `--bin-out-dump` or `--bin-io-dump` wrote, here or in load_and_run.

    Args:
        source: Path, or a binary file open at the tensor's first byte.

    Returns:
        Values in the storage of the type (quantised types: their integers), and the name.

    Raises:
        InputError: The file cannot be read.
        FormatError: It is not a tensor dump.
        UnsupportedError: Its dtype number is not known.
    """
    found = decode(source.read()) if hasattr(source, "read") else read_tensor_dump(source)
    return found.array, found.name


def write_tensor_dump(
    path: str | os.PathLike[str], name: str, array: Array, kind: DTypeEnum
) -> None:
    """Write one tensor; an existing file is replaced as a whole.

    Raises:
        InputError: The file cannot be written.
        UnsupportedError: The type or the number of dimensions has no place in the format.
        InputError: The array's dtype or a value does not fit the type.
    """
    write_atomic(path, encode(name, array, kind))


def encode(name: str, array: Array, kind: DTypeEnum) -> bytes:
    """Bytes of one tensor; see `write_tensor_dump` for the errors."""
    number = _NUMBERS.get(kind)
    if number is None:
        raise UnsupportedError(f"a tensor dump has no number for {kind.name}")
    if array.ndim > _SLOTS:
        raise UnsupportedError(f"a tensor dump holds up to {_SLOTS} dimensions, got {array.ndim}")
    # There are no 0-d tensors: a scalar has shape (1,).
    array = array if array.ndim else array.reshape(1)
    title = name.encode("utf-8", "surrogateescape")
    dims = (*array.shape, *(0,) * (_SLOTS - array.ndim))
    if max(dims) > 0xFFFFFFFF:
        raise UnsupportedError(f"a dimension is below 2**32, got shape {array.shape}")
    return b"".join(
        (
            _HEADER.pack(len(title), number, _SLOTS),
            struct.pack(f"<{_SLOTS}I", *dims),
            title,
            pack(array, DType(kind)),
        )
    )


def decode(data: bytes | memoryview) -> TensorDump:
    """Tensor of a file's bytes; see `read_tensor_dump` for the errors."""
    view = memoryview(data)
    if len(view) < _HEADER.size:
        raise FormatError(f"a tensor dump starts with {_HEADER.size} bytes, got {len(view)}")
    name_size, number, slots = _HEADER.unpack_from(view)
    start = _HEADER.size + 4 * slots
    if not 1 <= slots <= _MAX_SLOTS or start + name_size > len(view):
        raise FormatError(
            f"not a tensor dump: {slots} dimension slots and a name of {name_size} bytes do not "
            f"fit a file of {len(view)} bytes",
            hint="load_and_run writes such files with --bin-out-dump and --bin-io-dump",
        )
    kind = _KINDS.get(number)
    if kind is None:
        raise UnsupportedError(f"the dtype number {number} of a tensor dump is not known", offset=4)
    values = view[start + name_size :]
    shape = _shape(struct.unpack_from(f"<{slots}I", view, _HEADER.size), DType(kind), len(values))
    name = bytes(view[start : start + name_size]).decode("utf-8", "surrogateescape")
    try:
        array = unpack(values, DType(kind), shape)
    except FormatError as error:
        raise FormatError(f"tensor `{printable(name)}`: {error.message}", offset=start) from error
    return TensorDump(name, kind, array)


def _shape(dims: Sequence[int], dtype: DType, size: int) -> tuple[int, ...]:
    """Dimensions in use: those before the zeros, plus one 0 where the tensor is empty.

    A zero says "not used" as well as "empty", so of (4, 0) only the missing values tell.
    """
    used = len(dims)
    while used and dims[used - 1] == 0:
        used -= 1
    shape = tuple(dims[:used])
    if size == 0 and used < len(dims) and dtype.nbytes(shape) > 0:
        return (*shape, 0)
    return shape
