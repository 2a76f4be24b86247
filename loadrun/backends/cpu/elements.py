"""Expressions that convert between element types, and those of Elemwise's modes.

The meaning is `mgeserial.ops.numerics` and `mgeserial.ops.functions`. Half precision types are
float32 here: what stores them rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from loadrun.backends.cpu.expr import Expr, Op
from loadrun.backends.rulebook import NotApplicable
from mgeserial.dtypes import DType, DTypeEnum

__all__ = ["Builder", "convert", "dequantize", "from_real", "program", "quantize", "to_real"]

_ODD = frozenset(
    {DTypeEnum.IntB1, DTypeEnum.IntB2, DTypeEnum.IntB4, DTypeEnum.UintB4, DTypeEnum.Complex64}
)
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})


@dataclass(slots=True)
class Builder:
    """Collects the operations of an expression; values are numbers, the first ones its inputs."""

    inputs: int
    ops: list[Op] = field(default_factory=list)

    def op(self, kind: str, *args: int) -> int:
        """Append an operation."""
        return self._add(Op(kind, args))

    def _add(self, op: Op) -> int:
        self.ops.append(op)
        return self.inputs + len(self.ops) - 1

    def real(self, number: float) -> int:
        """A float32 number."""
        return self._add(Op("const", (), float(np.float32(number))))

    def whole(self, number: int) -> int:
        """An integer of 32 bits."""
        return self._add(Op("iconst", (), float(number)))

    def apply(self, expr: Expr, *args: int) -> int:
        """Append a program of `args`."""
        where = list(args)
        for op in expr.ops:
            where.append(self._add(Op(op.kind, tuple(where[a] for a in op.args), op.value)))
        return where[expr.result]

    def done(self, result: int) -> Expr:
        """The expression."""
        if result != self.inputs + len(self.ops) - 1:
            self.op("copy", result)
        return Expr(self.inputs, tuple(self.ops))


def program(inputs: str, *lines: str) -> Expr:
    """An expression from lines `name = kind arguments`.

    Arguments are inputs (one letter each), names of lines before, integers (`1`) and floats
    (`1.0`); the last line is the result.
    """
    b = Builder(len(inputs))
    known = {name: k for k, name in enumerate(inputs)}
    value = b.inputs - 1
    for line in lines:
        name, _, text = line.partition(" = ")
        kind, *args = text.split()
        values = []
        for a in args:
            if a in known:
                values.append(known[a])
            else:
                values.append(_number(b, a))
        known[name] = value = b.op(kind, *values)
    return b.done(value)


def _number(b: Builder, text: str) -> int:
    try:
        return b.whole(int(text))
    except ValueError:
        return b.real(float(text))


def _scale(dtype: DType) -> float:
    if dtype.scale is None:
        raise NotApplicable(f"{dtype.name} has no scale")
    return float(dtype.scale)


def dequantize(b: Builder, x: int, dtype: DType) -> int:
    """(code - zero_point) * scale."""
    if dtype.zero_point:
        x = b.op("isub", x, b.whole(dtype.zero_point))
    return b.op("mul", b.op("to_real", x), b.real(_scale(dtype)))


def quantize(b: Builder, x: int, dtype: DType) -> int:
    """Code of a real value."""
    low, high = dtype.limits
    steps = b.op("round", b.op("div", x, b.real(_scale(dtype))))
    if dtype.zero_point:
        steps = b.op("add", steps, b.real(dtype.zero_point))
    return b.op("saturate", steps, b.whole(low), b.whole(high))


def to_real(b: Builder, x: int, dtype: DType) -> int:
    """Float32 value of an element."""
    if dtype.is_quantized:
        return dequantize(b, x, dtype)
    if dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    return x if dtype.is_float else b.op("to_real", x)


def narrowed(b: Builder, x: int, dtype: DType) -> int:
    """The value that is left after storing: rounded to half precision, wrapped to fewer bits."""
    if dtype.kind is DTypeEnum.Float16:
        return b.op("half", x)
    if dtype.kind is DTypeEnum.BFloat16:
        return b.op("bfloat", x)
    if dtype.is_float or dtype.storage.name not in _NARROW:
        return x
    return b.op(f"wrap_{dtype.storage.name}", x)


def from_real(b: Builder, x: int, dtype: DType) -> int:
    """An element of a float value."""
    if dtype.kind in _ODD:
        raise NotApplicable(f"no conversion to {dtype.name}")
    if dtype.is_quantized:
        return quantize(b, x, dtype)
    if dtype.is_float:
        return narrowed(b, x, dtype)
    if dtype.kind is DTypeEnum.Bool:
        return b.op("flag_neq", x, b.real(0.0))
    return narrowed(b, b.op("truncate", x), dtype)


def convert(b: Builder, x: int, source: DType, target: DType) -> int:
    """An element of one type as another, by TypeCvt's rules."""
    if source == target:
        return x
    if target.kind in _ODD or source.kind is DTypeEnum.Complex64:
        raise NotApplicable(f"no conversion from {source.name} to {target.name}")
    if source.is_integer and target.is_integer:
        if target.kind is DTypeEnum.Bool:
            return b.op("ineq", x, b.whole(0))
        return narrowed(b, x, target)
    return from_real(b, to_real(b, x, source), target)
