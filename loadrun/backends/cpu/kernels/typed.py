"""Loops over expressions of any element types: loads widen to registers, stores cut them.

Whole vectors run the expression on registers of `lanes` elements; what is left of a row runs it on
registers of one, so that nothing beyond an array is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from loadrun.backends.cpu import emit_int
from loadrun.backends.cpu import expr as ex
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.kernels.elementwise import Walk, broadcast_strides
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class Stored:
    """How a type is stored: LLVM's type, bytes, and the instruction that widens it to i32."""

    kind: str
    size: int
    widen: str = ""


STORED = {
    "float32": Stored("float", 4),
    "float16": Stored("half", 2),
    "int8": Stored("i8", 1, "sext"),
    "uint8": Stored("i8", 1, "zext"),
    "bool": Stored("i8", 1, "zext"),
    "int16": Stored("i16", 2, "sext"),
    "uint16": Stored("i16", 2, "zext"),
    "int32": Stored("i32", 4),
}


@contextmanager
def one_lane(f: Func) -> Iterator[None]:
    """Registers of one element while this lasts."""
    lanes, f.lanes = f.lanes, 1
    yield
    f.lanes = lanes


def load(f: Func, dtype: str, base: str, at: Int, step: int = 1) -> str:
    """Elements `at`, `at` + 1, ... (counted in steps) of an array as a register."""
    if dtype == "float16" and not f.target.halves:
        return emit_int.from_half(f, load(f, "uint16", base, at, step))
    s = STORED[dtype]
    vt = f"<{f.lanes} x {s.kind}>"
    place = f.gep(base, f.mul(at, s.size * step))
    if step == 0:
        value = f.splat(f.op(f"load {s.kind}, ptr {base}, align {s.size}"), s.kind)
    elif step == 1 or f.lanes == 1:
        value = f.op(f"load {vt}, ptr {place}, align {s.size}")
    else:
        value = "poison"
        for k in range(f.lanes):
            p = f.gep(place, k * s.size * step)
            one = f.op(f"load {s.kind}, ptr {p}, align {s.size}")
            value = f.op(f"insertelement {vt} {value}, {s.kind} {one}, i64 {k}")
    if s.kind == "half":
        return f.op(f"fpext {vt} {value} to {f.vt}")
    return f.op(f"{s.widen} {vt} {value} to {f.it}") if s.widen else value


def store(f: Func, value: str, dtype: str, base: str, at: Int, step: int = 1) -> None:
    """The reverse of `load`."""
    if dtype == "float16" and not f.target.halves:
        store(f, emit_int.to_half(f, value), "uint16", base, at, step)
        return
    s = STORED[dtype]
    vt = f"<{f.lanes} x {s.kind}>"
    place = f.gep(base, f.mul(at, s.size * step))
    if s.kind == "half":
        value = f.op(f"fptrunc {f.vt} {value} to {vt}")
    elif s.widen:
        value = f.op(f"trunc {f.it} {value} to {vt}")
    if step == 1 or f.lanes == 1:
        f.do(f"store {vt} {value}, ptr {place}, align {s.size}")
        return
    for k in range(f.lanes):
        one = f.op(f"extractelement {vt} {value}, i64 {k}")
        f.do(f"store {s.kind} {one}, ptr {f.gep(place, k * s.size * step)}, align {s.size}")


def each(f: Func, begin: Int, end: Int, body: Callable[[Int], None], *, unroll: int = 1) -> None:
    """Run `body(index)` for whole vectors of begin..end, then with registers of one element."""
    vectors = f.div(f.sub(end, begin), f.lanes)
    whole = f.add(begin, f.mul(vectors, f.lanes))
    step = unroll * f.lanes
    groups = f.add(begin, f.mul(f.div(vectors, unroll), step))
    with f.loop(begin, groups, step) as i:
        for k in range(unroll):
            body(f.add(i.i, k * f.lanes))
    if unroll > 1:
        with f.loop(groups, whole, f.lanes) as i:
            body(i.i)
    with f.loop(whole, end) as i, one_lane(f):
        body(i.i)


@dataclass(frozen=True, slots=True)
class Operand:
    """An array: its element type, and strides in elements for each dimension of the loops."""

    dtype: str
    strides: tuple[int, ...]


def elementwise(
    out: Sequence[int],
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    expr: Expr,
    target: Target,
) -> Kernel:
    """Contiguous arrays of any types, numpy broadcasting; `dtypes` ends with the output's.

    Argument table: the inputs in order, then the output.
    """
    strides = [tuple(broadcast_strides(s, out)) for s in (*shapes, out)]
    operands = [Operand(d, s) for d, s in zip(dtypes, strides, strict=True)]
    return pointwise(out, operands[:-1], operands[-1:], [expr], target)


def pointwise(
    dims: Sequence[int],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    exprs: Sequence[Expr],
    target: Target,
) -> Kernel:
    """Loops over `dims`: one expression of all inputs per output.

    Argument table: the inputs, then the outputs. Units are chunks of the innermost dimension (up to
    4096 elements) of each combination of the outer ones.
    """
    operands = (*inputs, *outputs)
    sizes = [STORED[o.dtype].size for o in operands]
    walk = Walk.of(dims, [o.strides for o in operands], sizes)
    steps = walk.steps
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(len(operands))]
    with f.loop("%begin", "%end") as unit:
        bases, low, high = walk.stretch(f, unit.i, p)

        def body(at: Int) -> None:
            read = zip(inputs, bases, steps, strict=False)
            values = [load(f, o.dtype, b, at, s) for o, b, s in read]
            results = [ex.emit(f, expr, values) for expr in exprs]
            first = len(inputs)
            for k, result in enumerate(results):
                store(f, result, outputs[k].dtype, bases[first + k], at, steps[first + k])

        each(f, low, high, body, unroll=1 if any(map(ex.heavy, exprs)) else 2)
    name = f"pointwise_{outputs[0].dtype}{exprs[0].tag()}"
    return common.finish(name, [f], [(f, walk.units)])
