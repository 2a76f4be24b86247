"""Conversions between element types as expressions; the meaning is `ops.numerics`."""

from __future__ import annotations

from loadrun.backends.cuda.expr import Builder, Ref
from loadrun.backends.cuda.lower import NotApplicable
from mgeserial.dtypes import DType, DTypeEnum

__all__ = ["convert", "dequantize", "evaluate", "from_real", "narrowed", "quantize", "to_real"]

_ODD = frozenset(
    {DTypeEnum.IntB1, DTypeEnum.IntB2, DTypeEnum.IntB4, DTypeEnum.UintB4, DTypeEnum.Complex64}
)
_WRAPS = {"int8": "(i8)", "uint8": "(u8)", "int16": "(i16)", "uint16": "(u16)", "int32": "(int)"}


def _scale(dtype: DType) -> float:
    if dtype.scale is None:
        raise NotApplicable(f"{dtype.name} has no scale")
    return float(dtype.scale)


def dequantize(b: Builder, x: Ref, dtype: DType) -> Ref:
    """(code - zero_point) * scale."""
    scale = b.scalar(_scale(dtype))
    if dtype.zero_point:
        return b.op("float", "(float)({0} - {1}) * {2}", x, b.scalar(dtype.zero_point), scale)
    return b.op("float", "(float){0} * {1}", x, scale)


def quantize(b: Builder, x: Ref, dtype: DType) -> Ref:
    """Code of a real value."""
    low, high = dtype.limits
    args = (b.scalar(_scale(dtype)), b.scalar(dtype.zero_point or 0))
    return b.op("int", f"quantize({{0}}, {{1}}, {{2}}, {_number(low)}, {_number(high)})", x, *args)


def _number(n: int) -> str:
    return "(-2147483647 - 1)" if n == -(1 << 31) else str(n)


def to_real(b: Builder, x: Ref, dtype: DType) -> Ref:
    """Float32 value of an element."""
    if dtype.is_quantized:
        return dequantize(b, x, dtype)
    if dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no kernels")
    return x if dtype.is_float else b.op("float", "(float){0}", x)


def narrowed(b: Builder, x: Ref, dtype: DType) -> Ref:
    """The value that is left after storing: rounded to half precision, wrapped to fewer bits."""
    if dtype.kind is DTypeEnum.Float16:
        return b.op("float", "as_half({0})", x)
    if dtype.kind is DTypeEnum.BFloat16:
        return b.op("float", "as_bfloat({0})", x)
    if dtype.is_float or dtype.storage.name not in _WRAPS or dtype.storage.name == "int32":
        return x
    return b.op("int", f"{_WRAPS[dtype.storage.name]}{{0}}", x)


def from_real(b: Builder, x: Ref, dtype: DType) -> Ref:
    """An element of a float value."""
    if dtype.kind in _ODD:
        raise NotApplicable(f"no conversion to {dtype.name}")
    if dtype.is_quantized:
        return quantize(b, x, dtype)
    if dtype.is_float:
        return narrowed(b, x, dtype)
    if dtype.kind is DTypeEnum.Bool:
        return b.op("int", "(int)({0} != 0.f)", x)
    return narrowed(b, b.op("int", "truncate({0})", x), dtype)


def convert(b: Builder, x: Ref, source: DType, target: DType) -> Ref:
    """An element of one type as another, by TypeCvt's rules."""
    if source == target:
        return x
    if target.kind in _ODD or source.kind is DTypeEnum.Complex64:
        raise NotApplicable(f"no conversion from {source.name} to {target.name}")
    if source.is_integer and target.is_integer:
        if target.kind is DTypeEnum.Bool:
            return b.op("int", "(int)({0} != 0)", x)
        return narrowed(b, x, target)
    return from_real(b, to_real(b, x, source), target)


def evaluate(b: Builder, code: str, dtype: DType, *args: Ref) -> Ref:
    """A mode's code applied to elements of a type; the result is of that type."""
    register = "float" if dtype.is_float else "int"
    return narrowed(b, b.op(register, code, *args), dtype)
