"""Small programs of elementwise operations, independent of any layout.

An `Expr` of n inputs computes values 0..n-1 (the inputs), then one value per operation, each from
earlier values; the result is the last. The same program runs in a convolution's epilogue (input 0
is the accumulator) and in a loop of its own.

Values are registers: float32 for every floating type, i32 for integers, flags and codes. Each kind
of operation takes and gives one or the other. The result is in the range of the type that it is
stored in, so that programs can be joined without storing what is between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadrun.backends.cpu import emit_math as em
from loadrun.backends.cpu.emit import Func

CONSTANTS = frozenset({"const", "iconst"})


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: its kind, the values it reads, and for `const` and `iconst` the number."""

    kind: str
    args: tuple[int, ...] = ()
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Expr:
    """A program of `inputs` inputs; without operations it is its last input."""

    inputs: int
    ops: tuple[Op, ...] = ()

    @property
    def result(self) -> int:
        """Number of the result's value."""
        return self.inputs + len(self.ops) - 1

    def users(self, value: int) -> list[int]:
        """Operations that read a value, as value numbers, once per use."""
        return [self.inputs + k for k, op in enumerate(self.ops) for a in op.args if a == value]

    def tag(self) -> str:
        """The kinds in order, for a kernel's name."""
        kinds = [op.kind for op in self.ops if op.kind not in CONSTANTS]
        return "".join("_" + k for k in kinds[:4]) + ("_more" if len(kinds) > 4 else "")


def chain(*steps: tuple[str | float, ...]) -> Expr:
    """Expression of one input: each step is (kind, numbers...) applied to the last value."""
    ops: list[Op] = []
    value = 0
    for kind, *numbers in steps:
        args = [value]
        for number in numbers:
            ops.append(Op("const", (), float(number)))
            args.append(len(ops))
        ops.append(Op(str(kind), tuple(args)))
        value = len(ops)
    return Expr(1, tuple(ops))


def remap(expr: Expr, inputs: int, where: Sequence[int]) -> Expr:
    """The same program over `inputs` inputs, of which old input k becomes where[k]."""

    def move(a: int) -> int:
        return where[a] if a < expr.inputs else a - expr.inputs + inputs

    ops = tuple(Op(o.kind, tuple(move(a) for a in o.args), o.value) for o in expr.ops)
    return Expr(inputs, ops if ops else _identity(inputs, where[expr.inputs - 1]))


def _identity(inputs: int, value: int) -> tuple[Op, ...]:
    return () if value == inputs - 1 else (Op("copy", (value,)),)


def inline(outer: Expr, position: int, inner: Expr) -> Expr:
    """Replace input `position` of `outer` by `inner`, whose inputs are appended.

    The new inputs are the other inputs of `outer` in order, then those of `inner`.
    """
    kept = [k for k in range(outer.inputs) if k != position]
    total = len(kept) + inner.inputs
    first = remap(inner, total, [len(kept) + k for k in range(inner.inputs)])
    ops = list(first.ops)
    replaced = total + len(ops) - 1  # equals the last input when there are no operations

    def move(a: int) -> int:
        if a == position:
            return replaced
        return kept.index(a) if a < outer.inputs else a - outer.inputs + total + len(first.ops)

    ops += [Op(o.kind, tuple(move(a) for a in o.args), o.value) for o in outer.ops]
    return Expr(total, tuple(ops))


def merge_inputs(expr: Expr, names: Sequence[str]) -> tuple[Expr, tuple[str, ...]]:
    """Give inputs of the same name one number."""
    unique = list(dict.fromkeys(names))
    return remap(expr, len(unique), [unique.index(n) for n in names]), tuple(unique)


def bypass(expr: Expr, value: int, to: int) -> Expr:
    """Drop the operation that makes `value`; its readers read `to` instead."""
    at = value - expr.inputs

    def move(a: int) -> int:
        a = to if a == value else a
        return a - 1 if a > value else a

    rest = [o for k, o in enumerate(expr.ops) if k != at]
    ops = tuple(Op(o.kind, tuple(move(a) for a in o.args), o.value) for o in rest)
    if value == expr.result and not (ops and to == expr.result - 1):
        ops = (*ops, Op("copy", (to,))) if to != expr.inputs + len(ops) - 1 else ops
    return Expr(expr.inputs, ops)


def simplified(expr: Expr) -> Expr:
    """Without operations that nothing reads and without a last copy of the value before it."""
    used, stack = set(), [expr.result]
    while stack:
        value = stack.pop()
        if value >= expr.inputs and value not in used:
            used.add(value)
            stack.extend(expr.ops[value - expr.inputs].args)
    order = sorted(used)
    where = {v: expr.inputs + k for k, v in enumerate(order)}
    ops = [
        Op(o.kind, tuple(where.get(a, a) for a in o.args), o.value)
        for o in (expr.ops[v - expr.inputs] for v in order)
    ]
    while ops and ops[-1].kind == "copy" and ops[-1].args[0] == expr.inputs + len(ops) - 2:
        ops.pop()
    return Expr(expr.inputs, tuple(ops))


Emitter = Callable[..., str]


def _zero(f: Func) -> str:
    return f.const(0.0)


def _one(f: Func) -> str:
    return f.const(1.0)


def _flag(f: Func, mask: str) -> str:
    return f.select(mask, _one(f), _zero(f))


def _clip(f: Func, x: str, low: str, high: str) -> str:
    # x <= low ? low : (x <= high ? x : high): NaN gives high, as MegEngine's kernels do.
    inner = f.select(f.fcmp("ole", x, high), x, high)
    return f.select(f.fcmp("ole", x, low), low, inner)


def _floor_div(f: Func, x: str, y: str) -> str:
    return f.unary("floor", f.fdiv(x, y))


def _round(f: Func, x: str) -> str:
    return f.unary("round", x)


def _half(f: Func, x: str) -> str:
    """Rounded to float16, ties away from zero as MegEngine does it.

    The processor rounds ties to even; the lowest bit set moves them, and nothing else, over the
    middle. Infinities would become NaN.
    """
    if not f.target.halves:
        from loadrun.backends.cpu import emit_int

        return emit_int.half_rounded(f, x)
    small = f"<{f.lanes} x half>"
    bits = f.op(f"or {f.it} {f.bitcast(x, f.vt, f.it)}, {f.iconst(1)}")
    finite = f.fcmp("olt", f.unary("fabs", x), f.const(math.inf))
    x = f.select(finite, f.bitcast(bits, f.it, f.vt), x)
    return f.op(f"fpext {small} {f.op(f'fptrunc {f.vt} {x} to {small}')} to {f.vt}")


def _sign(f: Func, x: str) -> str:
    zero = _zero(f)
    positive = _flag(f, f.fcmp("ogt", x, zero))
    return f.select(f.fcmp("olt", x, zero), f.const(-1.0), positive)


def _fast_tanh(f: Func, x: str) -> str:
    square = f.fmul(x, x)
    over = f.fmul(x, f.fadd(square, f.const(27.0)))
    return f.fdiv(over, f.fma(square, f.const(9.0), f.const(27.0)))


def _log_sum_exp(f: Func, x: str, y: str) -> str:
    # The distance is NaN if one of both is; equal infinities have none.
    apart = f.fsub(_zero(f), f.unary("fabs", f.fsub(x, y)))
    apart = f.select(f.fcmp("oeq", x, y), _zero(f), apart)
    return f.fadd(f.fmax(x, y), em.softplus(f, apart))


def _log1p(f: Func, x: str) -> str:
    u = f.fadd(_one(f), x)
    d = f.fsub(u, _one(f))
    tiny = f.fcmp("oeq", d, _zero(f))
    exact = f.fmul(em.log(f, u), f.fdiv(x, f.select(tiny, _one(f), d)))
    value = f.select(tiny, x, exact)
    return f.select(f.fcmp("oeq", x, f.const(math.inf)), x, value)


def _silu(f: Func, x: str) -> str:
    return f.fmul(x, em.sigmoid(f, x))


# kind -> how to write it; the kinds with libm are called lane by lane.
EMIT: dict[str, Emitter] = {
    "copy": lambda f, x: x,
    "half": _half,
    "add": lambda f, x, y: f.fadd(x, y),
    "sub": lambda f, x, y: f.fsub(x, y),
    "mul": lambda f, x, y: f.fmul(x, y),
    "div": lambda f, x, y: f.fdiv(x, y),
    "floor_div": _floor_div,
    "fma": lambda f, x, y, z: f.fadd(f.fmul(x, y), z),
    "max": lambda f, x, y: f.fmax(y, x),  # MAX(NaN, c) = NaN
    "min": lambda f, x, y: f.fmin(x, y),  # MIN(NaN, c) = c
    "atleast": lambda f, x, y: f.fmax(x, y),  # NaN gives the bound
    "atmost": lambda f, x, y: f.fmin(x, y),
    "neg": lambda f, x: f.op(f"fneg {f.vt} {x}"),
    "abs": lambda f, x: f.unary("fabs", x),
    "relu": lambda f, x: f.fmax(x, _zero(f)),  # RELU(NaN) = 0
    "clip": _clip,
    "leaky": lambda f, x, s: f.select(f.fcmp("ogt", x, _zero(f)), x, f.fmul(x, s)),
    "sigmoid": em.sigmoid,
    "silu": _silu,
    "tanh": em.tanh,
    "fast_tanh": _fast_tanh,
    "exp": em.exp,
    "expm1": em.expm1,
    "log": em.log,
    "log1p": _log1p,
    "erf": em.erf,
    "gelu": em.gelu,
    "hswish": em.hswish,
    "hsigmoid": em.hsigmoid,
    "softplus": em.softplus,
    "logsigmoid": lambda f, x: f.fsub(_zero(f), em.softplus(f, f.op(f"fneg {f.vt} {x}"))),
    "log_sum_exp": _log_sum_exp,
    "sqrt": lambda f, x: f.unary("sqrt", x),
    "square": lambda f, x: f.fmul(x, x),
    "sign": _sign,
    "floor": lambda f, x: f.unary("floor", x),
    "ceil": lambda f, x: f.unary("ceil", x),
    "round": _round,
    "lt": lambda f, x, y: _flag(f, f.fcmp("olt", x, y)),
    "leq": lambda f, x, y: _flag(f, f.fcmp("ole", x, y)),
    "eq": lambda f, x, y: _flag(f, f.fcmp("oeq", x, y)),
    "switch_gt0": lambda f, x, y: f.select(f.fcmp("ogt", x, _zero(f)), y, _zero(f)),
    "abs_grad": lambda f, x, y: f.select(f.fcmp("ogt", x, _zero(f)), y, f.op(f"fneg {f.vt} {y}")),
    "cond_leq_mov": lambda f, x, y, z: f.select(f.fcmp("ole", x, y), z, _zero(f)),
    "cond_lt_mov": lambda f, x, y, z: f.select(f.fcmp("olt", x, y), z, _zero(f)),
}
# What is long, or called lane by lane.
_HEAVY = {
    *("sin", "cos", "pow", "erf", "gelu", "log", "softplus", "log_sum_exp", "tanh", "acos", "asin"),
    *("tan", "sinh", "cosh", "acosh", "asinh", "atanh", "atan2", "erfc", "erfinv", "erfcinv"),
    *("exp2", "fmod", "linspace", "floor_quotient", "floor_remainder", "high_product"),
    "shift_rounded",
}


def _emitter(kind: str) -> Emitter:
    """How to write a kind; those beyond `EMIT` are imported when a network has them."""
    found = EMIT.get(kind)
    if found is None:
        from loadrun.backends.cpu import emit_int

        found = emit_int.EMIT.get(kind)
    if found is None:
        from loadrun.backends.cpu import emit_rare

        found = emit_rare.EMIT[kind]
    return found


def emit(f: Func, expr: Expr, inputs: Sequence[str]) -> str:
    """Write the program for one vector of each input; returns the result."""
    values = list(inputs)
    for op in expr.ops:
        if op.kind == "const":
            values.append(f.const(op.value))
        elif op.kind == "iconst":
            values.append(f.iconst(int(op.value)))
        else:
            values.append(_emitter(op.kind)(f, *(values[a] for a in op.args)))
    return values[expr.result]


def heavy(expr: Expr) -> bool:
    """Whether one vector at a time keeps the processor busy (no unrolling)."""
    return len(expr.ops) > 12 or any(op.kind in _HEAVY for op in expr.ops)
