"""What all kernels share: their calling convention, naming, and the fused epilogue.

An entry point is `void name(ptr args, i64 begin, i64 end, ptr scratch)`: a table of
pointers in the order the kernel documents, a range of its work units, and memory that
belongs to the calling thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.backends.cpu import emit, emit_math
from loadrun.backends.cpu.emit import Func
from loadrun.backends.cpu.plan import Entry, Kernel
from loadrun.backends.cpu.target import Target

ENTRY_PARAMS = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
PREFIX = "K_"  # stands for the kernel's name until the text is known


@dataclass(frozen=True, slots=True)
class Act:
    """One operation of an epilogue.

    `kind`: relu, clip (low, high), sigmoid, tanh, hswish, hsigmoid, silu, gelu, leaky (slope in
    low), add or mul (the second operand, an image of the output's shape). At most one add or mul.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0


Epilogue = tuple[Act, ...]
RELU = Act("relu")


def needs_operand(epilogue: Epilogue) -> bool:
    """Whether the epilogue reads a second image."""
    return any(a.kind in ("add", "mul") for a in epilogue)


def apply(f: Func, value: str, epilogue: Epilogue, operand: str = "") -> str:
    """The epilogue's value; `operand` is the second operand's vector, if it has one.

    relu of NaN is 0, as MegEngine's x86 kernels give.
    """
    for act in epilogue:
        value = _apply_one(f, value, act, operand)
    return value


def _apply_one(f: Func, value: str, act: Act, operand: str) -> str:
    simple = {
        "sigmoid": emit_math.sigmoid,
        "tanh": emit_math.tanh,
        "hswish": emit_math.hswish,
        "hsigmoid": emit_math.hsigmoid,
        "gelu": emit_math.gelu,
    }
    if act.kind == "relu":
        return f.fmax(value, f.const(0.0))
    if act.kind == "clip":
        return f.fmin(f.fmax(value, f.const(act.low)), f.const(act.high))
    if act.kind == "add":
        return f.fadd(value, operand)
    if act.kind == "mul":
        return f.fmul(value, operand)
    if act.kind == "silu":
        return f.fmul(value, emit_math.sigmoid(f, value))
    if act.kind == "leaky":
        below = f.fmul(value, f.const(act.low))
        return f.select(f.fcmp("ogt", value, f.const(0.0)), value, below)
    if act.kind not in simple:
        raise ValueError(f"unknown epilogue: {act.kind}")
    return simple[act.kind](f, value)


def tag(epilogue: Epilogue) -> str:
    """The epilogue as part of a kernel's name."""
    return "".join("_" + a.kind for a in epilogue)


def entry(name: str, target: Target) -> Func:
    """An entry point called `name` within its kernel ('' for the main one)."""
    return Func(PREFIX + (name or "main"), ENTRY_PARAMS, target, external=True, noalias=False)


def inner(name: str, params: Sequence[tuple[str, str]], target: Target) -> Func:
    """A function that only this kernel calls."""
    return Func(PREFIX + name, params, target)


def finish(
    spec: str, functions: Sequence[Func], entries: Sequence[tuple[Func, int]], *, scratch: int = 0
) -> Kernel:
    """Name the kernel after its specification and contents.

    Kernels with equal code get equal names, so a program compiles and links them once.
    """
    text = emit.module(functions)
    name = f"{spec}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    text = text.replace("@" + PREFIX, f"@{name}_")
    found = tuple(Entry(f.name.replace(PREFIX, name + "_", 1), units) for f, units in entries)
    return Kernel(name, text, found, scratch)


def pieces(total: int, most: int) -> list[tuple[int, int]]:
    """Split `total` into nearly equal parts of at most `most`: (size, count), larger last."""
    count = -(-total // most)
    low, extra = divmod(total, count)
    return [(low, count - extra)] + ([(low + 1, extra)] if extra else [])
