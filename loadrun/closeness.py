"""How far two arrays are apart: the numbers a comparison shows, and what would have passed.

Arrays are compared by the values they mean: quantised ones are dequantised, bfloat16 bits are
numbers. NaN equals NaN and an infinity itself; from anything else they are infinitely far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.ops.numerics import to_real

__all__ = ["Closeness", "closeness", "same_bits"]

_Real = np.ndarray[Any, np.dtype[Any]]
# Representable values are counted by the order of their bits.
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True, slots=True)
class Closeness:
    """Differences of two arrays of one shape.

    Attributes:
        size: Number of elements.
        equal_bits: Whether all stored bits agree.
        max_abs: Largest |a - b|.
        max_rel: Largest |a - b| / max(|a|, |b|).
        max_ulp: Most steps from one representable value to the next between a and b (codes of
            integers and quantised types); None where the types differ or have no such order.
        cosine: Cosine of the angle between both as vectors; None where one is zero or not finite.
        error: Largest |a - b| / max(floor, min(|a|, |b|)): the tolerance that would have passed.
        floor: Magnitude below which an error is absolute; 1 for outputs, as MegEngine checks them.
        index: Place of the largest error.
        first, second: Values of a and b there.
        allowed: Error allowed.
        mismatches: Number of elements above it.
        note: What else is wrong, such as shapes that do not fit.
    """

    size: int
    equal_bits: bool
    max_abs: float
    max_rel: float
    max_ulp: int | None
    cosine: float | None
    error: float
    floor: float
    index: tuple[int, ...]
    first: float
    second: float
    allowed: float
    mismatches: int
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether no element is above the error allowed."""
        return not self.mismatches and not self.note

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is not finite is null, and `error_is_infinite` says so of the error."""
        return {
            "element_count": self.size,
            "equal_bits": self.equal_bits,
            "max_abs": _finite(self.max_abs),
            "max_rel": _finite(self.max_rel),
            "max_ulp_count": self.max_ulp,
            "cosine": None if self.cosine is None else _finite(self.cosine),
            "error": _finite(self.error),
            "error_is_infinite": not math.isfinite(self.error),
            "error_floor": self.floor,
            "allowed_error": _finite(self.allowed),
            "mismatch_count": self.mismatches,
            "worst_index": list(self.index),
            "worst_a": _finite(self.first),
            "worst_b": _finite(self.second),
            "passed": self.passed,
            "note": self.note,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have one shape, one storage type and the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # As bytes: NaN is not equal to itself, and -0 is equal to 0.
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return bool(np.array_equal(left, right))


def closeness(
    a: Array,
    b: Array,
    dtype: DType,
    other: DType | None = None,
    *,
    allowed: float = 0.0,
    floor: float = 1.0,
) -> Closeness:
    """Compare two arrays.

    Args:
        a: The first, in the storage of its type.
        b: The second.
        dtype: Type of the first.
        other: Type of the second; None: the same.
        allowed: Error allowed.
        floor: Magnitude below which an error is absolute.
    """
    nan = math.nan
    if a.shape != b.shape:
        note = f"shapes {tuple(a.shape)} and {tuple(b.shape)} differ"
        inf = math.inf
        return Closeness(
            a.size, False, inf, inf, None, None, inf, floor, (), nan, nan, allowed, a.size, note
        )
    kind = other or dtype
    bits = kind == dtype and same_bits(a, b)
    if not a.size:
        return Closeness(0, bits, 0, 0, 0, None, 0, floor, (), nan, nan, allowed, 0)
    x, y = _values(a, dtype), _values(b, kind)
    with np.errstate(all="ignore"):
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
        distance = np.where(equal, 0.0, np.abs(x - y))
        distance = np.where(np.isnan(distance), np.inf, distance)
        size = (np.abs(x), np.abs(y))
        error = _part(distance, np.maximum(floor, np.fmin(*size)))
        relative = _part(distance, np.fmax(*size))
    worst = int(np.argmax(error)) if error.any() else 0
    index = tuple(int(i) for i in np.unravel_index(worst, a.shape))
    return Closeness(
        size=a.size,
        equal_bits=bits,
        max_abs=float(distance.max()),
        max_rel=float(relative.max()),
        max_ulp=0 if bits else _ulp(a, b, dtype) if kind == dtype else None,
        cosine=_cosine(x, y),
        error=float(error.max()),
        floor=floor,
        index=index,
        first=float(np.real(x[index])),
        second=float(np.real(y[index])),
        allowed=allowed,
        mismatches=int(np.count_nonzero(~(error <= allowed))),
    )


def _part(distance: _Real, of: _Real) -> _Real:
    """distance / of, where 0 / 0 is 0 and anything infinite is infinite."""
    part = np.where(distance == 0, 0.0, distance / of)
    return np.where(np.isnan(part), np.inf, part)


def _values(array: Array, dtype: DType) -> _Real:
    """What an array means, in float64 (complex128 for complex types)."""
    if dtype.kind is DTypeEnum.Complex64:
        return np.asarray(array, np.complex128)
    if dtype.is_quantized or dtype.kind is DTypeEnum.BFloat16:
        return np.asarray(to_real(array, dtype), np.float64)
    return np.asarray(array, np.float64)


def _ulp(a: Array, b: Array, dtype: DType) -> int | None:
    """Most representable values between two arrays of one type."""
    if dtype.kind is DTypeEnum.Complex64:
        return None
    if a.dtype.kind in "iub" and dtype.kind is not DTypeEnum.BFloat16:
        steps = np.abs(a.astype(object) - b.astype(object)) if a.dtype.itemsize > 4 else None
        if steps is None:
            steps = np.abs(a.astype(np.int64) - b.astype(np.int64))
        return int(np.max(steps))
    width = a.dtype.itemsize
    x, y = (np.ascontiguousarray(t).view(_BITS[width]).astype(np.int64) for t in (a, b))
    least = -(1 << (8 * width - 1))
    # Negative numbers are ordered the other way round: below 0, counted from -0.
    x, y = (np.where(t < 0, least - t, t) for t in (x, y))
    known = ~(np.isnan(_values(a, dtype)) | np.isnan(_values(b, dtype)))
    with np.errstate(all="ignore"):
        steps = np.abs(x - y)[known]
    return int(steps.max()) if steps.size else None


def _cosine(x: _Real, y: _Real) -> float | None:
    with np.errstate(all="ignore"):
        lengths = float(np.linalg.norm(x)), float(np.linalg.norm(y))
        if not all(math.isfinite(n) and n > 0 for n in lengths):
            return None
        inner = float(np.real(np.vdot(y / lengths[1], x / lengths[0])))
    return max(-1.0, min(1.0, inner)) if math.isfinite(inner) else None
