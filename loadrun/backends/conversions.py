"""Conversions between element types as the native engines carry them out: one rule for all of them.

A conversion is a sequence of steps, and each kind of step has two forms, side by side in `FORMS`:
operations on registers for the CPU engine, a C expression for the CUDA engine. Registers hold
float32 for every floating type (what stores half precision rounds) and int for integers, flags and
codes. The meaning is `mgeserial.ops.numerics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from loadrun.backends.rulebook import NotApplicable
from mgeserial.dtypes import DType, DTypeEnum

__all__ = ["FORMS", "Form", "Kind", "Step", "conversion", "from_real", "narrowed", "to_real"]

_ODD = frozenset(
    {DTypeEnum.IntB1, DTypeEnum.IntB2, DTypeEnum.IntB4, DTypeEnum.UintB4, DTypeEnum.Complex64}
)


class Kind(Enum):
    """What one step does to an element."""

    WIDEN = auto()  # an integer as a float
    TRUNCATE = auto()  # a float as an integer
    DEQUANTIZE = auto()
    DEQUANTIZE_FROM_ZERO = auto()  # without a zero point
    QUANTIZE = auto()
    QUANTIZE_FROM_ZERO = auto()
    ROUND_TO_HALF = auto()
    ROUND_TO_BFLOAT = auto()
    WRAP_INT8 = auto()
    WRAP_UINT8 = auto()
    WRAP_INT16 = auto()
    WRAP_UINT16 = auto()
    FLOAT_TO_FLAG = auto()
    INT_TO_FLAG = auto()


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of step in both engines.

    `{scale}`, `{zero}`, `{low}` and `{high}` stand for numbers of the step's type.

    Attributes:
        lines: Register operations `name = kind arguments` on `x`; the last one is the result.
        ctype: The C type of the result.
        code: C expression of `{0}`, the element, and of `{1}` ..., the numbers in `passed`.
        passed: Numbers that a kernel gets as arguments, so that kernels of different numbers are
            one; others are written into the code.
    """

    lines: tuple[str, ...]
    ctype: str
    code: str
    passed: tuple[str, ...] = ()


_QUANTIZE_C = "quantize({0}, {1}, {2}, {low}, {high})"

FORMS: Mapping[Kind, Form] = {
    Kind.WIDEN: Form(("r = to_real x",), "float", "(float){0}"),
    Kind.TRUNCATE: Form(("r = truncate x",), "int", "truncate({0})"),
    Kind.DEQUANTIZE: Form(
        ("c = isub x {zero}", "f = to_real c", "r = mul f {scale}"),
        "float",
        "(float)({0} - {2}) * {1}",
        ("scale", "zero"),
    ),
    Kind.DEQUANTIZE_FROM_ZERO: Form(
        ("f = to_real x", "r = mul f {scale}"), "float", "(float){0} * {1}", ("scale",)
    ),
    Kind.QUANTIZE: Form(
        ("q = div x {scale}", "n = round q", "s = add n {zero}.0", "r = saturate s {low} {high}"),
        "int",
        _QUANTIZE_C,
        ("scale", "zero"),
    ),
    Kind.QUANTIZE_FROM_ZERO: Form(
        ("q = div x {scale}", "n = round q", "r = saturate n {low} {high}"),
        "int",
        _QUANTIZE_C,
        ("scale", "zero"),
    ),
    Kind.ROUND_TO_HALF: Form(("r = half x",), "float", "as_half({0})"),
    Kind.ROUND_TO_BFLOAT: Form(("r = bfloat x",), "float", "as_bfloat({0})"),
    Kind.WRAP_INT8: Form(("r = wrap_int8 x",), "int", "(i8){0}"),
    Kind.WRAP_UINT8: Form(("r = wrap_uint8 x",), "int", "(u8){0}"),
    Kind.WRAP_INT16: Form(("r = wrap_int16 x",), "int", "(i16){0}"),
    Kind.WRAP_UINT16: Form(("r = wrap_uint16 x",), "int", "(u16){0}"),
    Kind.FLOAT_TO_FLAG: Form(("r = flag_neq x 0.0",), "int", "(int)({0} != 0.f)"),
    Kind.INT_TO_FLAG: Form(("r = ineq x 0",), "int", "(int)({0} != 0)"),
}
_WITH_NUMBERS = frozenset(kind for kind, form in FORMS.items() if "scale" in form.passed)
_WRAPS = {
    "int8": Kind.WRAP_INT8,
    "uint8": Kind.WRAP_UINT8,
    "int16": Kind.WRAP_INT16,
    "uint16": Kind.WRAP_UINT16,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a conversion; the numbers of quantising are those of `dtype`."""

    kind: Kind
    dtype: DType

    def lines(self) -> tuple[str, ...]:
        """Register operations with their numbers."""
        numbers = {name: repr(n) for name, n in self._numbers().items()}
        return tuple(line.format_map(numbers) for line in FORMS[self.kind].lines)

    def code(self) -> str:
        """C expression; `{0}` and so on are left for the arguments."""
        code = FORMS[self.kind].code
        for name, number in self._numbers().items():
            code = code.replace(f"{{{name}}}", _c_number(number))
        return code

    def passed(self) -> tuple[int | float, ...]:
        """The numbers behind `{1}` and so on in `code`."""
        names = FORMS[self.kind].passed
        return tuple(self._numbers()[name] for name in names) if names else ()

    def _numbers(self) -> dict[str, int | float]:
        dtype = self.dtype
        if self.kind not in _WITH_NUMBERS:
            return {}
        if dtype.scale is None:
            raise NotApplicable(f"{dtype.name} has no scale")
        low, high = dtype.limits
        zero = dtype.zero_point or 0
        return {"scale": float(dtype.scale), "zero": int(zero), "low": low, "high": high}


def _c_number(number: int | float) -> str:
    # C has no literal for the least int: its minus would be applied to a number that is too large.
    return "(-2147483647 - 1)" if number == -(1 << 31) else str(number)


def to_real(dtype: DType) -> tuple[Step, ...]:
    """From an element of a type to its float32 value."""
    if dtype.is_quantized:
        kind = Kind.DEQUANTIZE if dtype.zero_point else Kind.DEQUANTIZE_FROM_ZERO
        return (Step(kind, dtype),)
    if dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    return () if dtype.is_float else (Step(Kind.WIDEN, dtype),)


def narrowed(dtype: DType) -> tuple[Step, ...]:
    """From what was computed in a register to what is left of it after storing.

    Half precision is rounded, integers wrap to fewer bits.
    """
    if dtype.kind is DTypeEnum.Float16:
        return (Step(Kind.ROUND_TO_HALF, dtype),)
    if dtype.kind is DTypeEnum.BFloat16:
        return (Step(Kind.ROUND_TO_BFLOAT, dtype),)
    wrap = None if dtype.is_float else _WRAPS.get(dtype.storage.name)
    return () if wrap is None else (Step(wrap, dtype),)


def from_real(dtype: DType) -> tuple[Step, ...]:
    """From a float32 value to an element of a type."""
    if dtype.kind in _ODD:
        raise NotApplicable(f"no conversion to {dtype.name}")
    if dtype.is_quantized:
        kind = Kind.QUANTIZE if dtype.zero_point else Kind.QUANTIZE_FROM_ZERO
        return (Step(kind, dtype),)
    if dtype.is_float:
        return narrowed(dtype)
    if dtype.kind is DTypeEnum.Bool:
        return (Step(Kind.FLOAT_TO_FLAG, dtype),)
    return (Step(Kind.TRUNCATE, dtype), *narrowed(dtype))


def conversion(source: DType, target: DType) -> tuple[Step, ...]:
    """From an element of one type to one of another, by TypeCvt's rules."""
    if source == target:
        return ()
    if target.kind in _ODD or source.kind is DTypeEnum.Complex64:
        raise NotApplicable(f"no conversion from {source.name} to {target.name}")
    if source.is_integer and target.is_integer:
        if target.kind is DTypeEnum.Bool:
            return (Step(Kind.INT_TO_FLAG, target),)
        return narrowed(target)
    return (*to_real(source), *from_real(target))
