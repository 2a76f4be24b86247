"""What all kernels share: their calling convention, naming, and the fused epilogue.

An entry point is `void name(ptr args, i64 begin, i64 end, ptr scratch)`: a table of
pointers in the order the kernel documents, a range of its work units, and memory that
belongs to the calling thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from loadrun.backends.cpu import emit
from loadrun.backends.cpu import expr as ex
from loadrun.backends.cpu.emit import Func
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.plan import Entry, Kernel, Part
from loadrun.backends.cpu.target import Target

ENTRY_PARAMS = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
PREFIX = "K_"  # stands for the kernel's name until the text is known


# An expression of the accumulator (input 0) and, with two inputs, an operand of the output's shape.
Epilogue = Expr
IDENTITY = Expr(1)


def needs_operand(epilogue: Epilogue) -> bool:
    """Whether the epilogue reads a second image."""
    return epilogue.inputs == 2


def apply(f: Func, value: str, epilogue: Epilogue, operand: str = "") -> str:
    """The epilogue's value; `operand` is the second operand's vector, if it has one."""
    return ex.emit(f, epilogue, [value, operand][: epilogue.inputs])


def entry(name: str, target: Target) -> Func:
    """An entry point called `name` within its kernel ('' for the main one)."""
    return Func(PREFIX + (name or "main"), ENTRY_PARAMS, target, external=True, noalias=False)


def table(f: Func) -> str:
    """In an entry point: the kernel's own table (`Kernel.words`)."""
    return f.op(f"load ptr, ptr {f.gep('%args', -8)}, align 8")


def inner(name: str, params: Sequence[tuple[str, str]], target: Target) -> Func:
    """A function that only this kernel calls."""
    return Func(PREFIX + name, params, target)


def finish(
    spec: str,
    functions: Sequence[Func],
    entries: Sequence[tuple[Func, int]],
    *,
    scratch: int = 0,
    words: Sequence[int] = (),
    parts: Sequence[Part] = (),
) -> Kernel:
    """Name the kernel after its specification and contents; its table starts with its parts.

    Kernels with equal code and words get equal names, so a program compiles and links them once.
    """
    text = emit.module(functions)
    table: tuple[int | str, ...] = (*(p.symbol for p in parts), *words)
    name = f"{spec}_{hashlib.sha256((text + repr(table)).encode()).hexdigest()[:12]}"
    text = text.replace("@" + PREFIX, f"@{name}_")
    found = tuple(Entry(f.name.replace(PREFIX, name + "_", 1), units) for f, units in entries)
    return Kernel(name, text, found, scratch, tuple(parts), table)


def shared(stem: str, function: Func) -> Part:
    """A function as code that kernels share; it may call nothing but intrinsics."""
    text = emit.module([function])
    symbol = f"{stem}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return Part(symbol, text.replace("@" + function.name + "(", f"@{symbol}("))


def described(
    spec: str,
    entries: Sequence[tuple[Part, int]],
    words: Sequence[int | str],
    parts: Iterable[Part],
    *,
    scratch: int = 0,
) -> Kernel:
    """A kernel without code of its own: shared entries with their units, driven by a table."""
    used = tuple(dict.fromkeys([*(p for p, _ in entries), *parts]))
    text = repr((*words, *(p.symbol for p in used)))
    name = f"{spec}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    found = tuple(Entry(p.symbol, units) for p, units in entries)
    return Kernel(name, "", found, scratch, used, tuple(words))


def pieces(total: int, most: int) -> list[tuple[int, int]]:
    """Split `total` into nearly equal parts of at most `most`: (size, count), larger last."""
    count = -(-total // most)
    low, extra = divmod(total, count)
    return [(low, count - extra)] + ([(low + 1, extra)] if extra else [])
