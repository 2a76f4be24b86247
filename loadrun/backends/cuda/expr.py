"""Scalar expressions: what is computed for one element, as straight-line code.

Values are referred to by (kind, index): `i` an element of an input, widened; `s` a scalar argument;
`a` the accumulator of the kernel that the expression finishes; `t` the result of an operation.
Registers hold float for every floating type and int for integers and codes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from mgeserial.dtypes import DType, DTypeEnum

__all__ = [
    "ACC",
    "Builder",
    "Expr",
    "Op",
    "Ref",
    "Scalar",
    "c_type",
    "merge",
    "register_of",
    "render",
    "storage_c",
]

Ref = tuple[str, int]
ACC: Ref = ("a", 0)
_C_TYPES = {
    "float32": "f32",
    "float16": "f16",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "bool": "u8",
}


def storage_c(dtype: str) -> str:
    """The C type of a numpy storage type; bfloat16 is told apart by `c_type` only."""
    return _C_TYPES[dtype]


def c_type(dtype: DType) -> str:
    """The C type in which elements of a type are stored."""
    return "bf16" if dtype.kind is DTypeEnum.BFloat16 else _C_TYPES[dtype.storage.name]


def register_of(ctype: str) -> str:
    """The C type in which elements of a stored type are computed with."""
    return "float" if ctype in ("f32", "f16", "bf16") else "int"


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: a C expression with `{0}`, `{1}` ... for its arguments."""

    ctype: str
    code: str
    args: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number that is passed to the kernel: int32 or float32."""

    value: int | float
    ctype: str


@dataclass(frozen=True, slots=True)
class Expr:
    """Operations in order, and which value is the result (in register form)."""

    ops: tuple[Op, ...]
    result: Ref
    scalars: tuple[Scalar, ...] = ()


@dataclass(slots=True)
class Builder:
    """Collects operations."""

    ops: list[Op] = field(default_factory=list)
    scalars: list[Scalar] = field(default_factory=list)

    def op(self, ctype: str, code: str, *args: Ref) -> Ref:
        """Append an operation."""
        self.ops.append(Op(ctype, code, args))
        return ("t", len(self.ops) - 1)

    def scalar(self, value: int | float) -> Ref:
        """A number passed to the kernel, so that kernels of different numbers are one."""
        ctype = "int" if isinstance(value, int) else "float"
        self.scalars.append(Scalar(value, ctype))
        return ("s", len(self.scalars) - 1)

    def done(self, result: Ref) -> Expr:
        """The expression."""
        return Expr(tuple(self.ops), result, tuple(self.scalars))


def _moved(expr: Expr, change: Callable[[Ref], Ref]) -> Expr:
    ops = tuple(replace(op, args=tuple(change(a) for a in op.args)) for op in expr.ops)
    return replace(expr, ops=ops, result=change(expr.result))


def merge(
    inner: Expr, outer: Expr, slots: Collection[int], own: Sequence[int], inputs: Sequence[int]
) -> Expr:
    """One expression of two: some inputs of `outer` become the result of `inner`.

    Args:
        inner: What is computed first.
        outer: The expression that reads it.
        slots: The inputs of the outer one that stand for the inner result.
        own: For each input of the inner one its new number.
        inputs: For each input of the outer one its new number (those of slots are not read).
    """
    inner = _moved(inner, lambda ref: ("i", own[ref[1]]) if ref[0] == "i" else ref)
    ops, scalars = len(inner.ops), len(inner.scalars)

    def change(ref: Ref) -> Ref:
        kind, k = ref
        if kind == "i" and k in slots:
            return inner.result
        if kind == "t":
            return ("t", k + ops)
        if kind == "s":
            return ("s", k + scalars)
        return ("i", inputs[k]) if kind == "i" else ref

    moved = _moved(outer, change)
    return Expr(inner.ops + moved.ops, moved.result, inner.scalars + outer.scalars)


def render(expr: Expr, inputs: Sequence[str], accumulator: str = "acc") -> tuple[list[str], str]:
    """C statements and the name of the result.

    Args:
        expr: What to compute.
        inputs: For each input C code of the widened element.
        accumulator: C code of the accumulator.
    """
    lines: list[str] = []

    def name(ref: Ref) -> str:
        kind, k = ref
        if kind == "i":
            return f"v{k}"
        return accumulator if kind == "a" else f"{kind}{k}"

    used = {a for op in expr.ops for a in op.args} | {expr.result}
    for k, code in enumerate(inputs):
        if ("i", k) in used:
            lines.append(f"auto v{k} = {code};")
    for k, op in enumerate(expr.ops):
        code = op.code
        for j, arg in enumerate(op.args):
            code = code.replace(f"{{{j}}}", name(arg))
        lines.append(f"{op.ctype} t{k} = {code};")
    return lines, name(expr.result)
