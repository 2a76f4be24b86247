"""Conversions between element types as expressions."""

from __future__ import annotations

from collections.abc import Iterable

from loadrun.backends import conversions
from loadrun.backends.conversions import FORMS, Step
from loadrun.backends.cuda.expr import Builder, Ref
from mgeserial.dtypes import DType

__all__ = ["convert", "dequantize", "evaluate", "from_real", "narrowed", "quantize", "to_real"]


def _carry_out(b: Builder, x: Ref, steps: Iterable[Step]) -> Ref:
    for step in steps:
        numbers = [b.scalar(n) for n in step.passed()]
        x = b.op(FORMS[step.kind].ctype, step.code(), x, *numbers)
    return x


def to_real(b: Builder, x: Ref, dtype: DType) -> Ref:
    """Float32 value of an element."""
    return _carry_out(b, x, conversions.to_real(dtype))


def from_real(b: Builder, x: Ref, dtype: DType) -> Ref:
    """An element of a float value."""
    return _carry_out(b, x, conversions.from_real(dtype))


# Names that say more where a type is known to be quantised.
dequantize = to_real
quantize = from_real


def narrowed(b: Builder, x: Ref, dtype: DType) -> Ref:
    """The value that is left after storing: rounded to half precision, wrapped to fewer bits."""
    return _carry_out(b, x, conversions.narrowed(dtype))


def convert(b: Builder, x: Ref, source: DType, target: DType) -> Ref:
    """An element of one type as another, by TypeCvt's rules."""
    return _carry_out(b, x, conversions.conversion(source, target))


def evaluate(b: Builder, code: str, dtype: DType, *args: Ref) -> Ref:
    """A mode's code applied to elements of a type; the result is of that type."""
    register = "float" if dtype.is_float else "int"
    return narrowed(b, b.op(register, code, *args), dtype)
