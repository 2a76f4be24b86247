"""Vector functions written out with `Func`: exp, tanh, sigmoid, erf, log and kin.

Each works on one full vector of float32; NaN gives NaN. Errors in units in the last place
(ulp) are measured, against float64, by tests/loadrun/cpu/test_emit_math.py: exp 1, expm1 2,
tanh 2, sigmoid 2, erf 2, log 2.

Constants are derived here (Taylor series, or an interpolation at Chebyshev nodes of a
function from Python's `math`), not tabulated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from loadrun.backends.cpu.emit import Func

_LOG2_HIGH = 0.693359375  # 9 bits of ln 2, so that n * this is exact
_LOG2_LOW = math.log(2) - _LOG2_HIGH


def _has_512(f: Func) -> bool:
    """Whether AVX-512 has instructions for a vector; a single element is computed without."""
    return f.target.level == "avx512" and f.lanes == f.target.lanes


def polynomial(f: Func, x: str, coefficients: Sequence[float]) -> str:
    """sum c[k] * x**k by Horner's rule."""
    value = f.const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = f.fma(value, x, f.const(c))
    return value


def _to_int(f: Func, x: str) -> str:
    return f.op(f"fptosi {f.vt} {x} to {f.it}")


def _to_float(f: Func, x: str) -> str:
    return f.op(f"sitofp {f.it} {x} to {f.vt}")


def _power_of_two(f: Func, n: str) -> str:
    """2**n for a vector of integers in -126..127."""
    biased = f.op(f"add {f.it} {n}, {f.iconst(127)}")
    return f.bitcast(f.op(f"shl {f.it} {biased}, {f.iconst(23)}"), f.it, f.vt)


def _whole_part(f: Func, x: str) -> tuple[str, str]:
    """x = n ln 2 + r with |r| <= ln(2)/2: (n as whole floats, r). |x| must be below 120."""
    # Adding and removing 1.5 * 2**23 rounds to the nearest integer in two plain additions.
    magic = f.const(12582912.0)
    n = f.fsub(f.fadd(f.fmul(x, f.const(1 / math.log(2))), magic), magic)
    r = f.fma(n, f.const(-_LOG2_HIGH), x)
    return n, f.fma(n, f.const(-_LOG2_LOW), r)


def _reduced(f: Func, x: str) -> tuple[str, str]:
    """As `_whole_part`, n as integers."""
    n, r = _whole_part(f, x)
    return _to_int(f, n), r


def _clamped(f: Func, x: str, low: float, high: float) -> str:
    """X limited to [low, high]; NaN stays NaN because it comes second in both comparisons."""
    return f.fmax(f.const(low), f.fmin(f.const(high), x))


@functools.cache
def _exp_series() -> tuple[float, ...]:
    """Powers of r that give e**r on [-ln(2)/2, ln(2)/2], relative error 4e-9."""
    degree, edge = 6, math.log(2) / 2
    nodes = np.cos((np.arange(degree + 1) + 0.5) * np.pi / (degree + 1))
    fit = np.polynomial.Chebyshev.fit(nodes, np.exp(nodes * edge), degree, domain=[-1, 1])
    powers = np.polynomial.chebyshev.cheb2poly(fit.coef)
    return tuple(float(c / edge**k) for k, c in enumerate(powers))


def exp(f: Func, x: str) -> str:
    """e**x; results below the smallest normal number keep their subnormal value."""
    limited = _clamped(f, x, -104.0, 89.5)
    if _has_512(f):
        rounded, r = _whole_part(f, limited)
        return _scaled(f, polynomial(f, r, _exp_series()), rounded)
    n, r = _reduced(f, limited)
    series = polynomial(f, r, _exp_series())
    half = f.op(f"ashr {f.it} {n}, {f.iconst(1)}")
    rest = f.op(f"sub {f.it} {n}, {half}")
    return f.fmul(f.fmul(series, _power_of_two(f, half)), _power_of_two(f, rest))


def _scaled(f: Func, value: str, n: str) -> str:
    """value * 2**n for whole floats n, by one instruction (AVX-512)."""
    vt = f.vt
    args = ((vt, value), (vt, n), (vt, value), ("i16", -1), ("i32", 4))
    return f.intrinsic(vt, "llvm.x86.avx512.mask.scalef.ps.512", *args)


def reciprocal(f: Func, x: str) -> str:
    """1 / x for x in 2**-126 .. 2**126 within 1 ulp; an estimate and a Newton step on AVX-512."""
    one = f.const(1.0)
    if not _has_512(f):
        return f.fdiv(one, x)
    vt = f.vt
    args = ((vt, x), (vt, x), ("i16", -1))
    guess = f.intrinsic(vt, "llvm.x86.avx512.rcp14.ps.512", *args)
    error = f.fma(f.op(f"fneg {vt} {x}"), guess, one)
    return f.fma(guess, error, guess)


def expm1(f: Func, x: str) -> str:
    """e**x - 1 without cancellation."""
    # From 40 on the 1 is below half a unit in the last place.
    return f.select(f.fcmp("ogt", x, f.const(40.0)), exp(f, x), _expm1_small(f, x))


def _expm1_small(f: Func, x: str) -> str:
    """e**x - 1 for x below 88; beyond it stays at its value there."""
    n, r = _reduced(f, _clamped(f, x, -30.0, 88.0))
    tail = polynomial(f, r, [1 / math.factorial(k + 2) for k in range(7)])
    small = f.fma(f.fmul(r, r), tail, r)
    scale = _power_of_two(f, n)
    return f.fma(scale, small, f.fsub(scale, f.const(1.0)))


def tanh(f: Func, x: str) -> str:
    """Hyperbolic tangent."""
    e = _expm1_small(f, f.fmul(_clamped(f, x, -12.0, 12.0), f.const(2.0)))
    return f.fdiv(e, f.fadd(e, f.const(2.0)))


def sigmoid(f: Func, x: str) -> str:
    """1 / (1 + e**-x); 0 where that is no normal number, so that x times it vanishes there."""
    if not _has_512(f):
        return reciprocal(f, f.fadd(f.const(1.0), exp(f, f.op(f"fneg {f.vt} {x}"))))
    # The exponential of -x in x itself: x = -(n ln 2 + r) costs no negation, and one clamp does.
    limited = _clamped(f, x, -87.0, 87.0)
    magic = f.const(12582912.0)
    n = f.fsub(f.fma(limited, f.const(-1 / math.log(2)), magic), magic)
    r = f.fma(n, f.const(_LOG2_LOW), f.fma(n, f.const(_LOG2_HIGH), limited))
    series = [c * (-1) ** k for k, c in enumerate(_exp_series())]
    value = reciprocal(f, f.fadd(f.const(1.0), _scaled(f, polynomial(f, r, series), n)))
    return f.select(f.fcmp("olt", x, f.const(-87.0)), f.const(0.0), value)


@functools.cache
def _erfc_scaled() -> tuple[float, ...]:
    """Powers of u = (x - 2.5) / 1.5 that give erfc(x) * exp(x*x) on [1, 4]."""
    degree = 11
    nodes = np.cos((np.arange(degree + 1) + 0.5) * np.pi / (degree + 1))
    values = [math.erfc(2.5 + 1.5 * u) * math.exp((2.5 + 1.5 * u) ** 2) for u in nodes]
    fit = np.polynomial.Chebyshev.fit(nodes, values, degree, domain=[-1, 1])
    return tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(fit.coef))


def erf(f: Func, x: str) -> str:
    """Error function: a series below 1, 1 - erfc above."""
    a = f.unary("fabs", x)
    square = f.fmul(x, x)
    series = [
        2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(12)
    ]
    near = f.fmul(x, polynomial(f, f.fmin(f.const(1.0), square), series))
    limited = _clamped(f, a, 1.0, 4.0)
    u = f.fma(limited, f.const(1 / 1.5), f.const(-2.5 / 1.5))
    tail = f.fmul(
        polynomial(f, u, _erfc_scaled()), exp(f, f.fsub(f.const(0.0), f.fmul(limited, limited)))
    )
    far = f.intrinsic(
        f.vt,
        f"llvm.copysign.v{f.lanes}f32",
        (f.vt, f.fsub(f.const(1.0), tail)),
        (f.vt, x),
    )
    # `uge` keeps NaN on the near side, where it propagates.
    return f.select(f.fcmp("oge", a, f.const(1.0)), far, near)


def log(f: Func, x: str) -> str:
    """Natural logarithm; 0 gives -inf, negative numbers NaN."""
    tiny = f.fcmp("olt", x, f.const(2.0**-126))
    scaled = f.select(tiny, f.fmul(x, f.const(2.0**25)), x)
    bits = f.bitcast(scaled, f.vt, f.it)
    # Take the exponent so that the mantissa lies in [sqrt(1/2), sqrt(2)).
    shifted = f.op(f"sub {f.it} {bits}, {f.iconst(0x3F3504F3)}")
    exponent = f.op(f"ashr {f.it} {shifted}, {f.iconst(23)}")
    mantissa = f.op(f"sub {f.it} {bits}, {f.op(f'shl {f.it} {exponent}, {f.iconst(23)}')}")
    m = f.bitcast(mantissa, f.it, f.vt)
    e = f.fadd(_to_float(f, exponent), f.select(tiny, f.const(-25.0), f.const(0.0)))
    d = f.fsub(m, f.const(1.0))
    s = f.fdiv(d, f.fadd(m, f.const(1.0)))
    z = f.fmul(s, s)
    # log m = 2 atanh s = d - s * (d - 2 z (1/3 + z/5 + ...)), which keeps d exact.
    odd = f.fmul(f.fmul(z, f.const(2.0)), polynomial(f, z, [1 / (2 * k + 3) for k in range(5)]))
    rest = f.fmul(s, f.fsub(d, odd))
    low = f.fma(e, f.const(_LOG2_LOW), f.fsub(f.const(0.0), rest))
    value = f.fma(e, f.const(_LOG2_HIGH), f.fadd(low, d))
    value = f.select(f.fcmp("oeq", x, f.const(math.inf)), x, value)
    value = f.select(f.fcmp("oeq", x, f.const(0.0)), f.const(-math.inf), value)
    return f.select(f.fcmp("oge", x, f.const(0.0)), value, f.const(math.nan))


def hswish(f: Func, x: str) -> str:
    """X * clip(x + 3, 0, 6) / 6."""
    gate = f.fmin(f.fmax(f.fadd(x, f.const(3.0)), f.const(0.0)), f.const(6.0))
    return f.fdiv(f.fmul(x, gate), f.const(6.0))


def hsigmoid(f: Func, x: str) -> str:
    """clip((x + 3) / 6, 0, 1)."""
    return _clamped(f, f.fdiv(f.fadd(x, f.const(3.0)), f.const(6.0)), 0.0, 1.0)


def gelu(f: Func, x: str) -> str:
    """X / 2 * (1 + erf(x / sqrt 2))."""
    e = erf(f, f.fmul(x, f.const(math.sqrt(0.5))))
    return f.fmul(f.fmul(x, f.const(0.5)), f.fadd(e, f.const(1.0)))


def softplus(f: Func, x: str) -> str:
    """log(1 + e**-|x|) + max(x, 0); the sum 1 + e is rounded, an absolute error below 1e-7."""
    e = exp(f, f.fsub(f.const(0.0), f.unary("fabs", x)))
    # log1p(e) = log(u) * e / (u - 1) corrects the rounding of u = 1 + e.
    u = f.fadd(e, f.const(1.0))
    d = f.fsub(u, f.const(1.0))
    zero = f.fcmp("oeq", d, f.const(0.0))
    safe = f.select(zero, f.const(1.0), d)
    l1p = f.select(zero, e, f.fmul(log(f, u), f.fdiv(e, safe)))
    return f.fadd(l1p, f.fmax(x, f.const(0.0)))
