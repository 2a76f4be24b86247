"""Operations on integers and between integers and floats, for `expr`.

A register of an integer type holds one i32 per lane, whatever the type's width: narrow types are
extended when loaded and cut when stored, `wrap` keeps a register in the range of its type between
the two. Flags are 0 and 1. Products and sums wrap; shifts use the low five bits of their count, as
x86 does; nothing traps.

Source: the meanings are those of `mgeserial.ops.functions` and `mgeserial.ops.numerics`.
"""

from __future__ import annotations

from collections.abc import Callable

from loadrun.backends.cpu.emit import Func

Emitter = Callable[..., str]


def _plain(name: str) -> Emitter:
    return lambda f, x, y: f.op(f"{name} {f.it} {x}, {y}")


def _test(f: Func, how: str, x: str, y: str) -> str:
    """Mask of a comparison of i32."""
    return f.op(f"icmp {how} {f.it} {x}, {y}")


def _flag(f: Func, mask: str) -> str:
    return f.op(f"zext {f.mt} {mask} to {f.it}")


def _compare(how: str) -> Emitter:
    return lambda f, x, y: _flag(f, _test(f, how, x, y))


def _real_compare(how: str) -> Emitter:
    return lambda f, x, y: _flag(f, f.fcmp(how, x, y))


def _choose(f: Func, mask: str, a: str, b: str) -> str:
    return f.op(f"select {f.mt} {mask}, {f.it} {a}, {f.it} {b}")


def _pick(how: str) -> Emitter:
    """The one of two that compares so with the other."""
    return lambda f, x, y: _choose(f, _test(f, how, x, y), x, y)


def _zero(f: Func) -> str:
    return f.iconst(0)


def _where(f: Func, flag: str, x: str, y: str) -> str:
    return _choose(f, _test(f, "ne", flag, _zero(f)), x, y)


def _real_where(f: Func, flag: str, x: str, y: str) -> str:
    return f.select(_test(f, "ne", flag, _zero(f)), x, y)


def _negative(f: Func, x: str) -> str:
    return f.op(f"sub {f.it} {_zero(f)}, {x}")


def _absolute(f: Func, x: str) -> str:
    return _choose(f, _test(f, "slt", x, _zero(f)), _negative(f, x), x)


def _sign(f: Func, x: str) -> str:
    above = _flag(f, _test(f, "sgt", x, _zero(f)))
    below = _flag(f, _test(f, "slt", x, _zero(f)))
    return f.op(f"sub {f.it} {above}, {below}")


def _shift(name: str) -> Emitter:
    def emit(f: Func, x: str, y: str) -> str:
        return f.op(f"{name} {f.it} {x}, {f.op(f'and {f.it} {y}, {f.iconst(31)}')}")

    return emit


def _wrap(bits: int, *, signed: bool) -> Emitter:
    def emit(f: Func, x: str) -> str:
        if not signed:
            return f.op(f"and {f.it} {x}, {f.iconst((1 << bits) - 1)}")
        up = f.op(f"shl {f.it} {x}, {f.iconst(32 - bits)}")
        return f.op(f"ashr {f.it} {up}, {f.iconst(32 - bits)}")

    return emit


# -- wider numbers
def wide(f: Func) -> str:
    """Type of as many i64 as a register has lanes."""
    return f"<{f.lanes} x i64>"


def wide_const(f: Func, value: int) -> str:
    """An i64 in every lane."""
    return f"<{', '.join([f'i64 {value}'] * f.lanes)}>"


def widen(f: Func, x: str) -> str:
    """i32 to i64."""
    return f.op(f"sext {f.it} {x} to {wide(f)}")


def _cut(f: Func, x: str) -> str:
    return f.op(f"trunc {wide(f)} {x} to {f.it}")


def limited(f: Func, x: str, low: str, high: str) -> str:
    """An i64 limited to low..high."""
    vt = wide(f)
    over = f.op(f"icmp sgt {vt} {x}, {high}")
    x = f.op(f"select {f.mt} {over}, {vt} {high}, {vt} {x}")
    under = f.op(f"icmp slt {vt} {x}, {low}")
    return f.op(f"select {f.mt} {under}, {vt} {low}, {vt} {x}")


def _add_relu(f: Func, x: str, y: str) -> str:
    """The sum where it is positive before it wraps, else 0."""
    vt = wide(f)
    total = f.op(f"add {vt} {widen(f, x)}, {widen(f, y)}")
    positive = f.op(f"icmp sgt {vt} {total}, {wide_const(f, 0)}")
    return _choose(f, positive, _cut(f, total), _zero(f))


def _quotient(f: Func, x: str, y: str) -> str:
    """x / y rounded down; a zero divisor gives some number.

    The quotient of two doubles is exact enough: x / y is a whole number, or at least 1 / y away
    from one. Only the smallest number by -1 does not fit, and wraps.
    """
    vt = f"<{f.lanes} x double>"
    safe = _choose(f, _test(f, "eq", y, _zero(f)), f.iconst(1), y)
    minus = _test(f, "eq", y, f.iconst(-1))
    safe = _choose(f, minus, f.iconst(1), safe)
    a, b = (f.op(f"sitofp {f.it} {v} to {vt}") for v in (x, safe))
    down = f.intrinsic(vt, f"llvm.floor.v{f.lanes}f64", (vt, f.op(f"fdiv {vt} {a}, {b}")))
    return _choose(f, minus, _negative(f, x), f.op(f"fptosi {vt} {down} to {f.it}"))


def _remainder(f: Func, x: str, y: str) -> str:
    """What the quotient leaves: its sign is the divisor's."""
    return f.op(f"sub {f.it} {x}, {f.op(f'mul {f.it} {_quotient(f, x, y)}, {y}')}")


def _high_product(f: Func, x: str, y: str, drop: str, low: str, high: str) -> str:
    """The product without its lowest `drop` bits, rounded half up, limited."""
    vt = wide(f)
    product = f.op(f"mul {vt} {widen(f, x)}, {widen(f, y)}")
    count = widen(f, drop)
    half = f.op(f"shl {vt} {wide_const(f, 1)}, {f.op(f'sub {vt} {count}, {wide_const(f, 1)}')}")
    rounded = f.op(f"ashr {vt} {f.op(f'add {vt} {product}, {half}')}, {count}")
    return _cut(f, limited(f, rounded, widen(f, low), widen(f, high)))


def _shift_rounded(f: Func, x: str, count: str, low: str, high: str) -> str:
    """x / 2**count rounded half away from zero, limited; counts of 0 to 63."""
    vt = wide(f)
    wide_x, one = widen(f, x), wide_const(f, 1)
    by = f.op(f"and {vt} {widen(f, count)}, {wide_const(f, 63)}")
    mask = f.op(f"sub {vt} {f.op(f'shl {vt} {one}, {by}')}, {one}")
    rest = f.op(f"and {vt} {wide_x}, {mask}")
    negative = f.op(f"lshr {vt} {wide_x}, {wide_const(f, 63)}")
    limit = f.op(f"add {vt} {f.op(f'lshr {vt} {mask}, {one}')}, {negative}")
    up = f.op(f"zext {f.mt} {f.op(f'icmp sgt {vt} {rest}, {limit}')} to {vt}")
    moved = f.op(f"add {vt} {f.op(f'ashr {vt} {wide_x}, {by}')}, {up}")
    return _cut(f, limited(f, moved, widen(f, low), widen(f, high)))


# -- integers and floats
def _to_real(f: Func, x: str) -> str:
    return f.op(f"sitofp {f.it} {x} to {f.vt}")


def _fits(f: Func, x: str) -> str:
    """Mask of the floats that i32 can hold the whole part of."""
    low, high = f.fcmp("oge", x, f.const(-(2.0**31))), f.fcmp("olt", x, f.const(2.0**31))
    return f.op(f"and {f.mt} {low}, {high}")


def _truncate(f: Func, x: str) -> str:
    """As x86 does it: what does not fit, and NaN, becomes -2**31."""
    fits = _fits(f, x)
    whole = f.op(f"fptosi {f.vt} {f.select(fits, x, f.const(0.0))} to {f.it}")
    return _choose(f, fits, whole, f.iconst(-(1 << 31)))


def _saturate(f: Func, x: str, low: str, high: str) -> str:
    """Limited to low..high, fractions cut off; NaN gives `low`."""
    # 2**31 itself is the first float above the largest number.
    above = f.fcmp("oge", x, f.const(2.0**31))
    fits = _fits(f, x)
    whole = f.op(f"fptosi {f.vt} {f.select(fits, x, f.const(0.0))} to {f.it}")
    whole = _choose(f, fits, whole, low)
    whole = _choose(f, _test(f, "slt", whole, low), low, whole)
    whole = _choose(f, _test(f, "sgt", whole, high), high, whole)
    return _choose(f, above, high, whole)


def _from_bfloat(f: Func, bits: str) -> str:
    return f.bitcast(f.op(f"shl {f.it} {bits}, {f.iconst(16)}"), f.it, f.vt)


def _to_bfloat(f: Func, x: str) -> str:
    """Bits of the nearest bfloat16, ties to even; NaN stays a quiet NaN."""
    bits = f.bitcast(x, f.vt, f.it)
    high = f.op(f"lshr {f.it} {bits}, {f.iconst(16)}")
    odd = f.op(f"and {f.it} {high}, {f.iconst(1)}")
    up = f.op(f"add {f.it} {f.op(f'add {f.it} {bits}, {f.iconst(0x7FFF)}')}, {odd}")
    rounded = f.op(f"lshr {f.it} {up}, {f.iconst(16)}")
    quiet = f.op(f"or {f.it} {high}, {f.iconst(0x40)}")
    return _choose(f, f.fcmp("uno", x, x), quiet, rounded)


def _bfloat(f: Func, x: str) -> str:
    return _from_bfloat(f, _to_bfloat(f, x))


# -- float16 where the processor has no conversions
_BIAS = 112 << 23  # of float16's exponent to float32's
_TINY = 2.0**-24  # the smallest float16


def _bits(f: Func, how: str, x: str, number: int) -> str:
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return f.op(f"{how} {f.it} {x}, {f.iconst(signed)}")


def from_half(f: Func, bits: str) -> str:
    """The float32 of float16 bits."""
    size = _bits(f, "and", bits, 0x7FFF)
    plain = _bits(f, "add", _bits(f, "shl", size, 13), _BIAS)
    endless = _test(f, "sge", size, f.iconst(0x7C00))
    plain = _choose(f, endless, _bits(f, "add", plain, _BIAS), plain)
    tiny = f.bitcast(f.fmul(_to_real(f, size), f.const(_TINY)), f.vt, f.it)
    plain = _choose(f, _test(f, "slt", size, f.iconst(0x400)), tiny, plain)
    sign = _bits(f, "shl", _bits(f, "and", bits, 0x8000), 16)
    return f.bitcast(f.op(f"or {f.it} {plain}, {sign}"), f.it, f.vt)


def to_half(f: Func, x: str) -> str:
    """The float16 bits of a number that float16 holds."""
    bits = f.bitcast(x, f.vt, f.it)
    size = _bits(f, "and", bits, 0x7FFFFFFF)
    plain = _bits(f, "lshr", _bits(f, "sub", size, _BIAS), 13)
    rest = _bits(f, "and", _bits(f, "lshr", size, 13), 0x3FF)
    endless = _test(f, "sge", size, f.iconst(0x7F800000))
    plain = _choose(f, endless, _bits(f, "or", rest, 0x7C00), plain)
    small = _test(f, "slt", size, f.iconst(113 << 23))
    steps = f.fmul(f.select(small, f.unary("fabs", x), f.const(0.0)), f.const(1 / _TINY))
    plain = _choose(f, small, f.op(f"fptosi {f.vt} {steps} to {f.it}"), plain)
    sign = _bits(f, "lshr", _bits(f, "and", bits, 1 << 31), 16)
    return f.op(f"or {f.it} {plain}, {sign}")


def half_rounded(f: Func, x: str) -> str:
    """The nearest number that float16 holds, ties away from zero."""
    bits = f.bitcast(x, f.vt, f.it)
    size = _bits(f, "and", bits, 0x7FFFFFFF)
    plain = _bits(f, "and", _bits(f, "add", size, 0x1000), 0xFFFFE000)
    over = _test(f, "sge", plain, f.iconst(0x47800000))
    plain = _choose(f, over, f.iconst(0x7F800000), plain)
    steps = f.unary("round", f.fmul(f.unary("fabs", x), f.const(1 / _TINY)))
    tiny = f.bitcast(f.fmul(steps, f.const(_TINY)), f.vt, f.it)
    plain = _choose(f, _test(f, "slt", size, f.iconst(113 << 23)), tiny, plain)
    plain = _choose(f, _test(f, "sge", size, f.iconst(0x7F800000)), size, plain)
    sign = _bits(f, "and", bits, 1 << 31)
    return f.bitcast(f.op(f"or {f.it} {plain}, {sign}"), f.it, f.vt)


EMIT: dict[str, Emitter] = {
    "iadd": _plain("add"),
    "isub": _plain("sub"),
    "imul": _plain("mul"),
    "iand": _plain("and"),
    "ior": _plain("or"),
    "ixor": _plain("xor"),
    "ishl": _shift("shl"),
    "ishr": _shift("ashr"),
    "ineg": _negative,
    "iabs": _absolute,
    "isign": _sign,
    "imax": _pick("sgt"),
    "imin": _pick("slt"),
    "ilt": _compare("slt"),
    "ileq": _compare("sle"),
    "ieq": _compare("eq"),
    "ineq": _compare("ne"),
    "iwhere": _where,
    "floor_quotient": _quotient,
    "floor_remainder": _remainder,
    "iadd_relu": _add_relu,
    "high_product": _high_product,
    "shift_rounded": _shift_rounded,
    "wrap_int8": _wrap(8, signed=True),
    "wrap_uint8": _wrap(8, signed=False),
    "wrap_int16": _wrap(16, signed=True),
    "wrap_uint16": _wrap(16, signed=False),
    "to_real": _to_real,
    "truncate": _truncate,
    "saturate": _saturate,
    "flag_lt": _real_compare("olt"),
    "flag_leq": _real_compare("ole"),
    "flag_eq": _real_compare("oeq"),
    "flag_neq": _real_compare("une"),
    "where": _real_where,
    "from_bfloat": _from_bfloat,
    "to_bfloat": _to_bfloat,
    "bfloat": _bfloat,
}
