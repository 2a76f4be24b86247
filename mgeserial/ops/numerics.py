"""Numbers as operators see them: rounding, saturation, quantised, half and bfloat16 values.

Arrays hold storage (codes, float16, bfloat16 bits as uint16); `to_real` and `from_real` go between
storage and float32 values, `widen` and `narrow` between storage and what arithmetic is done in
(float32 for every floating type, the stored integers otherwise).

Source: semantics section 1, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mgeserial.dtypes import FLOAT32, Array, DType, DTypeEnum
from mgeserial.errors import ShapeError, UnsupportedError

__all__ = [
    "accumulator",
    "bfloat16_to_float32",
    "computing",
    "convert",
    "dequantize",
    "float16_from_float32",
    "float32_to_bfloat16",
    "from_real",
    "narrow",
    "promote",
    "quantize",
    "rhaz",
    "rhte",
    "saturate",
    "saturate_to",
    "to_real",
    "truncate",
    "widen",
]

_F = TypeVar("_F", bound=np.floating[Any])
Float32 = npt.NDArray[np.float32]

_ODD_KINDS = frozenset(
    {DTypeEnum.IntB1, DTypeEnum.IntB2, DTypeEnum.IntB4, DTypeEnum.UintB4, DTypeEnum.Complex64}
)


def rhaz(x: npt.NDArray[_F]) -> npt.NDArray[_F]:
    """Round half away from zero (C `round`), exact for every float; NaN and infinities stay."""
    x = np.asarray(x)
    with np.errstate(invalid="ignore"):
        whole = np.trunc(x)
        # The fraction is exact, so 0.49999997 does not become 1 as with floor(x + 0.5).
        up = np.abs(x - whole) >= 0.5
    return np.asarray(whole + np.copysign(up.astype(x.dtype), x))


def rhte(x: npt.NDArray[_F]) -> npt.NDArray[_F]:
    """Round half to even."""
    return np.asarray(np.rint(x))


def saturate(x: Array, low: int, high: int, storage: npt.DTypeLike) -> Array:
    """Clamp to low..high and convert to `storage`; NaN becomes `low`, fractions are cut off."""
    if not np.issubdtype(x.dtype, np.floating):
        return np.clip(x.astype(np.int64), low, high).astype(storage)
    # float64 holds every limit exactly; float32 would round 2**31 - 1 up.
    limited = np.clip(x.astype(np.float64), low, high)
    return np.where(np.isnan(limited), float(low), limited).astype(storage)


def saturate_to(x: Array, dtype: DType) -> Array:
    """Clamp to the range of an integer or quantised type and convert to its storage."""
    return saturate(x, *dtype.limits, dtype.storage)


def quantize(real: Array, dtype: DType) -> Array:
    """Codes of real values: clamp(rhaz(real / scale) + zero_point) in float32; NaN: lowest code."""
    scale = np.float32(_scale(dtype))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = rhaz(real.astype(np.float32, copy=False) / scale)
    if dtype.zero_point:
        steps = steps + np.float32(dtype.zero_point)
    return saturate_to(steps, dtype)


def dequantize(codes: Array, dtype: DType) -> Float32:
    """Real values of codes: (code - zero_point) * scale, in float32."""
    if dtype.zero_point:
        codes = codes.astype(np.int32) - np.int32(dtype.zero_point)
    return codes.astype(np.float32) * np.float32(_scale(dtype))


def _scale(dtype: DType) -> float:
    if dtype.scale is None:
        raise UnsupportedError(f"{dtype.name} has no quantisation scale")
    return dtype.scale


def bfloat16_to_float32(bits: Array) -> Float32:
    """Values of bfloat16 bit patterns (uint16)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bfloat16(x: Array) -> npt.NDArray[np.uint16]:
    """Bit patterns of the nearest bfloat16, ties to even; NaN stays a quiet NaN."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(x), quiet, rounded).astype(np.uint16)


def float16_from_float32(x: Array) -> npt.NDArray[np.float16]:
    """The nearest float16, ties AWAY from zero (subnormals too); 65520 and more: infinity."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    # Setting the lowest bit moves exact ties, and nothing else, over the middle. Infinities
    # would become NaN.
    nudged = (x.view(np.uint32) | np.isfinite(x)).view(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return nudged.astype(np.float16)


def truncate(x: Array, dtype: DType) -> Array:
    """Convert float values to an integer type as x86 does.

    Fractions are cut off. What does not fit int32 (or is NaN) becomes -2**31; narrower types keep
    the low bits of the int32, so 300 becomes 44 as uint8.
    """
    if dtype.kind is DTypeEnum.Bool:
        return np.asarray(x != 0)
    wide = x.astype(np.float64)
    fits = (wide > -2147483649.0) & (wide < 2147483648.0)
    return np.where(fits, wide, -2147483648.0).astype(np.int32).astype(dtype.storage)


def to_real(array: Array, dtype: DType) -> Float32:
    """Float32 values of an array in storage: codes are dequantised, integers converted."""
    if dtype.is_quantized:
        return dequantize(array, dtype)
    if dtype.kind is DTypeEnum.BFloat16:
        return bfloat16_to_float32(array)
    if dtype.kind is DTypeEnum.Complex64:
        raise UnsupportedError("Complex64 values are not real numbers")
    return array.astype(np.float32, copy=False)


def from_real(real: Array, dtype: DType) -> Array:
    """Storage of float values, rounded to float32 first: quantised, rounded or cut as `dtype` asks.

    Raises:
        UnsupportedError: `dtype` is complex or a low-bit type that only holds odd numbers.
    """
    if dtype.kind in _ODD_KINDS:
        raise UnsupportedError(f"numbers cannot be converted to {dtype.name}")
    if np.issubdtype(real.dtype, np.floating):
        with np.errstate(over="ignore", under="ignore"):
            real = real.astype(np.float32, copy=False)
    if dtype.is_quantized:
        return quantize(real, dtype)
    if dtype.is_float:
        return narrow(real, dtype)
    return truncate(real, dtype)


def convert(array: Array, source: DType, target: DType) -> Array:
    """An array of type `source` as type `target`, by TypeCvt's rules.

    Integers stay exact (they wrap when the target is narrower); integers become quantised as real
    values; quantised values go through float32.

    Raises:
        UnsupportedError: There is no such conversion.
    """
    if source == target:
        return array
    if DTypeEnum.Complex64 in (source.kind, target.kind) or target.kind in _ODD_KINDS:
        raise UnsupportedError(f"{source.name} cannot be converted to {target.name}")
    if source.is_integer and target.is_integer:
        if target.kind is DTypeEnum.Bool:
            return np.asarray(array != 0)
        return array.astype(target.storage)
    return from_real(to_real(array, source), target)


def computing(dtype: DType) -> np.dtype[np.generic]:
    """The numpy dtype of arithmetic: float32 for every floating type, else the storage."""
    return FLOAT32.storage if dtype.is_float else dtype.storage


def accumulator(dtype: DType) -> np.dtype[np.generic]:
    """The numpy dtype of long sums: float64 for floating types, int64 for integers and codes."""
    if dtype.kind is DTypeEnum.Complex64:
        return np.dtype(np.complex128)
    return np.dtype(np.float64 if dtype.is_float else np.int64)


def widen(array: Array, dtype: DType) -> Array:
    """Storage as `computing(dtype)`: half and bfloat16 become float32, everything else stays."""
    return to_real(array, dtype) if dtype.is_float else array


def narrow(array: Array, dtype: DType) -> Array:
    """Results of arithmetic in storage: the inverse of `widen`.

    float16 is rounded ties away, bfloat16 ties to even, through float32; integers wrap.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype.kind is DTypeEnum.Float16:
            return float16_from_float32(array)
        if dtype.kind is DTypeEnum.BFloat16:
            return float32_to_bfloat16(array.astype(np.float32, copy=False))
        return array.astype(dtype.storage, copy=False)


def promote(dtypes: Sequence[DType]) -> DType:
    """The type in which an operator computes when its inputs differ.

    Quantised types beat all others, floating types beat integers, integers beat Bool; the larger
    of one category wins; two floating types of one size give Float32.

    Raises:
        ShapeError: Two quantised types differ, or two integers of one size have different signs.
    """
    result = dtypes[0]
    for other in dtypes[1:]:
        if other != result:
            result = _promote_two(result, other)
    return result


def _rank(dtype: DType) -> int:
    if dtype.is_quantized:
        return 3
    if dtype.kind is DTypeEnum.Bool:
        return 0
    return 1 if dtype.is_integer else 2


def _promote_two(a: DType, b: DType) -> DType:
    if _rank(a) != _rank(b):
        return a if _rank(a) > _rank(b) else b
    if not a.is_quantized and a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        return FLOAT32
    raise ShapeError(f"{a} and {b} have no common type", hint="convert one with TypeCvt first")
