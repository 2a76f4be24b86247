"""Rarer float functions: inverse error functions, ranges; those computed in float64.

Errors against float64 stay below 3 units in the last place (tests/loadrun/cpu/test_typed.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from numpy.polynomial import Chebyshev, chebyshev

from loadrun.backends.cpu import emit_double
from loadrun.backends.cpu import emit_math as em
from loadrun.backends.cpu.emit import Func
from mgeserial.ops import special

Emitter = Callable[..., str]

# Ranges of w = -log(1 - x*x), each with its polynomial; erfinv of float32 needs two, erfcinv three.
_RANGES = (0.0, 5.0, 17.0, 90.0)
_DEGREES = (10, 9, 9)


def _root(f: Func, x: str) -> str:
    """x**0.5 as a power: of -infinity it is infinity."""
    root = f.unary("sqrt", f.fadd(x, f.const(0.0)))
    return f.select(f.fcmp("oeq", x, f.const(-math.inf)), f.const(math.inf), root)


def _inverse(f: Func, x: str, y: str) -> str:
    """Where erf is x, given y = 1 - |x| without rounding; of either sign of x."""
    one = f.const(1.0)
    w = f.op(f"fneg {f.vt} {em.log(f, f.fmul(y, f.fadd(one, f.unary('fabs', x))))}")
    root = f.unary("sqrt", f.fmax(w, f.const(0.0)))
    found = ""
    for k, (middle, powers) in enumerate(_inverse_series()):
        part = em.polynomial(f, f.fsub(root if k else w, f.const(middle)), powers)
        above = f.fcmp("oge", w, f.const(_RANGES[k]))
        found = f.select(above, part, found) if k else part
    found = f.fmul(x, found)
    args = ((f.vt, f.const(math.inf)), (f.vt, x))
    edge = f.intrinsic(f.vt, f"llvm.copysign.v{f.lanes}f32", *args)
    found = f.select(f.fcmp("oeq", y, f.const(0.0)), edge, found)
    return f.select(f.fcmp("oge", y, f.const(0.0)), found, f.const(math.nan))


@functools.cache
def _inverse_series() -> tuple[tuple[float, tuple[float, ...]], ...]:
    """For each range its middle and the powers that give erfinv(x) / x: of w, later of its root."""

    def value(w: float) -> float:
        x = math.sqrt(-math.expm1(-w))
        return float(special.erfcinv(math.exp(-w) / (1.0 + x))) / x

    found = []
    for k, degree in enumerate(_DEGREES):
        low, high = (math.sqrt(w) if k else w for w in _RANGES[k : k + 2])
        middle, half = (low + high) / 2, (high - low) / 2
        nodes = chebyshev.chebpts1(degree + 1)
        points = middle + half * nodes
        values = [value(p * p if k else p) for p in points]
        series = Chebyshev.fit(nodes, values, degree, domain=[-1, 1])
        powers = chebyshev.cheb2poly(series.coef)
        found.append((middle, tuple(float(c) / half**j for j, c in enumerate(powers))))
    return tuple(found)


def _erfinv(f: Func, x: str) -> str:
    return _inverse(f, x, f.fsub(f.const(1.0), f.unary("fabs", x)))


def _erfcinv(f: Func, y: str) -> str:
    one, two = f.const(1.0), f.const(2.0)
    other = f.select(f.fcmp("ogt", y, one), f.fsub(two, y), y)
    return _inverse(f, f.fsub(one, y), other)


def _linspace(f: Func, first: str, last: str, index: str, count: str) -> str:
    """first + index * ((last - first) / count) in float64."""
    vt = f"<{f.lanes} x double>"
    a, b, k, n = (f.op(f"fpext {f.vt} {v} to {vt}") for v in (first, last, index, count))
    step = f.op(f"fdiv {vt} {f.op(f'fsub {vt} {b}, {a}')}, {n}")
    value = f.op(f"fadd {vt} {a}, {f.op(f'fmul {vt} {k}, {step}')}")
    return f.op(f"fptrunc {vt} {value} to {f.vt}")


EMIT: dict[str, Emitter] = {
    **emit_double.EMIT,
    "rint": lambda f, x: f.unary("rint", x),
    "root": _root,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "linspace": _linspace,
}
