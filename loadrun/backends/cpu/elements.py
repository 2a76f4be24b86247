"""Programs of elements: how they are written down, and the conversions between element types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from loadrun.backends import conversions
from loadrun.backends.conversions import Step
from loadrun.backends.cpu.expr import Expr, Op
from mgeserial.dtypes import DType

__all__ = [
    "Builder",
    "convert",
    "dequantize",
    "from_real",
    "narrowed",
    "program",
    "quantize",
    "to_real",
]


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
    return b.done(_append(b, lines, known, b.inputs - 1))


def _append(b: Builder, lines: Iterable[str], known: dict[str, int], value: int) -> int:
    """Append the operations of lines; `known` are values by name, `value` is for no lines."""
    for line in lines:
        name, _, text = line.partition(" = ")
        kind, *args = text.split()
        values = [known[a] if a in known else _number(b, a) for a in args]
        known[name] = value = b.op(kind, *values)
    return value


def _number(b: Builder, text: str) -> int:
    try:
        return b.whole(int(text))
    except ValueError:
        return b.real(float(text))


def _carry_out(b: Builder, x: int, steps: Iterable[Step]) -> int:
    for step in steps:
        x = _append(b, step.lines(), {"x": x}, x)
    return x


def to_real(b: Builder, x: int, dtype: DType) -> int:
    """Float32 value of an element."""
    return _carry_out(b, x, conversions.to_real(dtype))


def from_real(b: Builder, x: int, dtype: DType) -> int:
    """An element of a float value."""
    return _carry_out(b, x, conversions.from_real(dtype))


# Names that say more where a type is known to be quantised.
dequantize = to_real
quantize = from_real


def narrowed(b: Builder, x: int, dtype: DType) -> int:
    """The value that is left after storing: rounded to half precision, wrapped to fewer bits."""
    return _carry_out(b, x, conversions.narrowed(dtype))


def convert(b: Builder, x: int, source: DType, target: DType) -> int:
    """An element of one type as another, by TypeCvt's rules."""
    return _carry_out(b, x, conversions.conversion(source, target))
