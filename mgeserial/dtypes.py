"""Element types: numbers in files, numpy storage, quantisation parameters, bit packing.

An array of a value holds one element of storage per element of the tensor: quantised types hold
their stored integers, low-bit types one integer each (`int8`/`uint8`), bfloat16 its 16 bits as
`uint16`. Packing happens only at the border to a file.

Source: FORMAT section (g): numbers of the schema, sizes, packing, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial.errors import FormatError, InputError

__all__ = [
    "BFLOAT16",
    "BOOL",
    "COMPLEX64",
    "FLOAT16",
    "FLOAT32",
    "INT8",
    "INT16",
    "INT32",
    "UINT8",
    "UINT16",
]
__all__ += ["Array", "DType", "DTypeEnum", "check_fits", "pack", "quantized", "unpack"]

Array = npt.NDArray[np.generic]


class DTypeEnum(enum.IntEnum):
    """Element types by their number in files."""

    Float32 = 0
    Uint8 = 1
    Int8 = 2
    Int16 = 3
    Int32 = 4
    IntB1 = 5
    IntB2 = 6
    IntB4 = 7
    Byte = 8
    Float16 = 9
    UintB4 = 10
    Quantized8Asymm = 11
    QuantizedS32 = 12
    QuantizedS8 = 13
    Quantized4Asymm = 14
    QuantizedS4 = 15
    QuantizedS16 = 16
    BFloat16 = 17
    Bool = 18
    Uint16 = 19
    QuantizedS1 = 20
    Complex64 = 21

    @classmethod
    def _missing_(cls, value: object) -> DTypeEnum:
        """Refuse numbers no release has: nothing could be said about their size."""
        raise ValueError(f"dtype number {value!r} is not known (0 to 21 are)")


@dataclass(frozen=True, slots=True)
class _Facts:
    storage: np.dtype[np.generic]
    bits: int
    low: int = 0
    high: int = 0


def _facts(storage: str, bits: int, low: int = 0, high: int = 0) -> _Facts:
    return _Facts(np.dtype(storage), bits, low, high)


_FACTS: dict[DTypeEnum, _Facts] = {
    DTypeEnum.Float32: _facts("<f4", 32),
    DTypeEnum.Uint8: _facts("u1", 8, 0, 255),
    DTypeEnum.Int8: _facts("i1", 8, -128, 127),
    DTypeEnum.Int16: _facts("<i2", 16, -(1 << 15), (1 << 15) - 1),
    DTypeEnum.Int32: _facts("<i4", 32, -(1 << 31), (1 << 31) - 1),
    DTypeEnum.IntB1: _facts("i1", 1, -1, 1),
    DTypeEnum.IntB2: _facts("i1", 2, -3, 3),
    DTypeEnum.IntB4: _facts("i1", 4, -15, 15),
    DTypeEnum.Byte: _facts("u1", 8, 0, 255),
    DTypeEnum.Float16: _facts("<f2", 16),
    DTypeEnum.UintB4: _facts("i1", 4, -15, 15),
    DTypeEnum.Quantized8Asymm: _facts("u1", 8, 0, 255),
    # The largest float32 below 2**31 bounds quantisation to 32 bits.
    DTypeEnum.QuantizedS32: _facts("<i4", 32, -(1 << 31), 2147483520),
    DTypeEnum.QuantizedS8: _facts("i1", 8, -128, 127),
    DTypeEnum.Quantized4Asymm: _facts("u1", 4, 0, 15),
    DTypeEnum.QuantizedS4: _facts("i1", 4, -8, 7),
    DTypeEnum.QuantizedS16: _facts("<i2", 16, -(1 << 15), (1 << 15) - 1),
    DTypeEnum.BFloat16: _facts("<u2", 16),
    DTypeEnum.Bool: _facts("?", 8, 0, 1),
    DTypeEnum.Uint16: _facts("<u2", 16, 0, (1 << 16) - 1),
    DTypeEnum.QuantizedS1: _facts("i1", 8, 0, 1),
    DTypeEnum.Complex64: _facts("<c8", 64),
}
_ASYMMETRIC = frozenset({DTypeEnum.Quantized8Asymm, DTypeEnum.Quantized4Asymm})
_SYMMETRIC = frozenset(
    {
        DTypeEnum.QuantizedS32,
        DTypeEnum.QuantizedS8,
        DTypeEnum.QuantizedS4,
        DTypeEnum.QuantizedS16,
        DTypeEnum.QuantizedS1,
    }
)
_FLOATS = frozenset({DTypeEnum.Float32, DTypeEnum.Float16, DTypeEnum.BFloat16})
# Packed with every innermost row padded to a byte (since v1.5.0; the same for even rows before).
_ROW_PACKED = frozenset({DTypeEnum.QuantizedS4, DTypeEnum.Quantized4Asymm})


@dataclass(frozen=True, slots=True)
class DType:
    """An element type with its quantisation parameters.

    `scale` is set (a float32 value) for quantised types only, `zero_point` for asymmetric ones
    only: real = (code - zero_point) * scale.
    """

    kind: DTypeEnum
    scale: float | None = None
    zero_point: int | None = None

    @property
    def name(self) -> str:
        """The schema's name, such as `QuantizedS8`."""
        return self.kind.name

    @property
    def storage(self) -> np.dtype[np.generic]:
        """The numpy dtype that holds one element of an array of this type."""
        return _FACTS[self.kind].storage

    @property
    def bits(self) -> int:
        """Bits of one element in a file."""
        return _FACTS[self.kind].bits

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest stored integer (0, 0 for floating types)."""
        facts = _FACTS[self.kind]
        return facts.low, facts.high

    @property
    def is_quantized(self) -> bool:
        """Whether real values are codes times a scale."""
        return self.kind in _SYMMETRIC or self.kind in _ASYMMETRIC

    @property
    def is_asymmetric(self) -> bool:
        """Whether the type has a zero point."""
        return self.kind in _ASYMMETRIC

    @property
    def is_float(self) -> bool:
        """Whether the type is float32, float16 or bfloat16."""
        return self.kind in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether the type is a plain (not quantised) integer or Bool."""
        return not (self.is_float or self.is_quantized or self.kind is DTypeEnum.Complex64)

    @property
    def is_lowbit(self) -> bool:
        """Whether elements take less than a byte in a file."""
        return self.bits < 8

    def nbytes(self, shape: Sequence[int], *, row_packed: bool = True) -> int:
        """Bytes of a tensor in a file; `row_packed=False` for releases before v1.5.0."""
        count = math.prod(shape)
        if not self.is_lowbit:
            return count * self.bits // 8
        if row_packed and self.kind in _ROW_PACKED and shape and count:
            return count // shape[-1] * -(-shape[-1] * self.bits // 8)
        return -(-count * self.bits // 8)

    def __str__(self) -> str:
        if self.scale is None:
            return self.name
        zero = "" if self.zero_point is None else f", zero_point={self.zero_point}"
        return f"{self.name}(scale={self.scale:.9g}{zero})"


FLOAT32 = DType(DTypeEnum.Float32)
FLOAT16 = DType(DTypeEnum.Float16)
BFLOAT16 = DType(DTypeEnum.BFloat16)
INT8 = DType(DTypeEnum.Int8)
UINT8 = DType(DTypeEnum.Uint8)
INT16 = DType(DTypeEnum.Int16)
UINT16 = DType(DTypeEnum.Uint16)
INT32 = DType(DTypeEnum.Int32)
BOOL = DType(DTypeEnum.Bool)
COMPLEX64 = DType(DTypeEnum.Complex64)


def quantized(kind: DTypeEnum | str, scale: float, zero_point: int | None = None) -> DType:
    """Make a quantised type; the scale is rounded to float32 as files store it.

    Raises:
        InputError: `kind` is not quantised, or a zero point is missing or not wanted.
    """
    number = DTypeEnum.__members__.get(kind) if isinstance(kind, str) else kind
    if number in _ASYMMETRIC:
        if zero_point is None:
            raise InputError(f"{number.name} needs a zero point")
    elif number not in _SYMMETRIC:
        known = ", ".join(k.name for k in (*_SYMMETRIC, *_ASYMMETRIC))
        name = kind if number is None else number.name
        raise InputError(f"{name} is not a quantised type", hint=f"known: {known}")
    elif zero_point is not None:
        raise InputError(f"{number.name} is symmetric: it has no zero point")
    return DType(number, float(np.float32(scale)), zero_point)


# Codes v of the packed IntB types stand for 2v - (2**bits - 1): only odd numbers.
_ODD_CODES = frozenset({DTypeEnum.IntB1, DTypeEnum.IntB2, DTypeEnum.IntB4, DTypeEnum.UintB4})


def unpack(
    raw: bytes | memoryview, dtype: DType, shape: Sequence[int], *, row_packed: bool = True
) -> Array:
    """Array of a tensor's bytes: a read-only view, or a new array for packed low-bit types.

    Args:
        raw: The tensor's value as in the file; its length must fit.
        dtype: Element type.
        shape: Dimensions, row-major.
        row_packed: Whether 4-bit quantised rows are padded to a byte (v1.5.0 and later).

    Raises:
        FormatError: The number of bytes is not what shape and type need.
    """
    need = dtype.nbytes(shape, row_packed=row_packed)
    if len(raw) != need:
        raise FormatError(
            f"a {dtype.name} tensor of shape {tuple(shape)} needs {need} bytes, got {len(raw)}"
        )
    if not need:
        return _empty(dtype, shape)
    if not dtype.is_lowbit:
        array = np.frombuffer(raw, dtype=dtype.storage).reshape(shape)
        array.flags.writeable = False
        return array
    data = np.frombuffer(raw, dtype=np.uint8)
    bits, count = dtype.bits, math.prod(shape)
    codes = (data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    if row_packed and dtype.kind in _ROW_PACKED and count:
        rows = codes.reshape(count // shape[-1], -1)[:, : shape[-1]]
        flat = np.ascontiguousarray(rows).reshape(-1)
    else:
        flat = codes.reshape(-1)[:count]
    array = _from_codes(flat, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _empty(dtype: DType, shape: Sequence[int]) -> Array:
    """An array without elements; the dimensions beside the 0 may still be too many to index."""
    try:
        array = np.empty(shape, dtype=dtype.storage)
    except (ValueError, MemoryError) as error:
        message = f"an empty tensor of shape {tuple(shape)} has too many places"
        raise FormatError(message) from error
    array.flags.writeable = False
    return array


def _from_codes(codes: npt.NDArray[np.uint8], dtype: DType) -> Array:
    signed = codes.astype(np.int8)
    if dtype.kind in _ODD_CODES:
        return 2 * signed - np.int8((1 << dtype.bits) - 1)
    if dtype.kind is DTypeEnum.QuantizedS4:
        return np.where(signed > 7, signed - np.int8(16), signed)
    return codes.astype(dtype.storage)


def check_fits(array: Array, dtype: DType) -> None:
    """Check that an array can be a value of a type.

    Raises:
        InputError: It is not of the type's storage, or holds what a type of fewer bits cannot.
    """
    if array.dtype != dtype.storage:
        raise InputError(f"{dtype.name} is held as {dtype.storage}, got {array.dtype}")
    if not dtype.is_lowbit or not array.size:
        return
    low, high = dtype.limits
    least, most = int(array.min()), int(array.max())
    if least < low or most > high:
        raise InputError(f"{dtype.name} holds {low} to {high}, got {least} to {most}")
    if dtype.kind in _ODD_CODES and not np.all(array.astype(np.int16) & 1):
        raise InputError(f"{dtype.name} holds odd numbers only, from {low} to {high}")


def pack(array: Array, dtype: DType, *, row_packed: bool = True) -> bytes:
    """Bytes of an array as files hold them; the inverse of `unpack`.

    Raises:
        InputError: The array's dtype or a value does not fit the type.
    """
    check_fits(array, dtype)
    if not dtype.is_lowbit:
        return np.ascontiguousarray(array).tobytes()
    wide = array.astype(np.int16)
    bits = dtype.bits
    if dtype.kind in _ODD_CODES:
        wide = (wide + ((1 << bits) - 1)) >> 1
    codes = (wide & ((1 << bits) - 1)).astype(np.uint8)
    per = 8 // bits
    if row_packed and dtype.kind in _ROW_PACKED and codes.size:
        rows = codes.reshape(-1, codes.shape[-1])
    else:
        rows = codes.reshape(1, -1)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % per))).reshape(-1, per)
    shifted = rows << np.arange(0, 8, bits, dtype=np.uint8)
    return bytes(np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8).tobytes())
