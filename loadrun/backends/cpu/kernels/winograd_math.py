"""Straight-line code that applies the matrices of minimal filtering (`backends.filtering`)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from loadrun.backends.cpu.emit import Func
from loadrun.backends.filtering import SIZES, Matrix, halves, matrices

__all__ = ["SIZES", "Matrix", "apply_columns", "apply_rows", "matrices"]


def _combine(f: Func, terms: Sequence[tuple[Fraction, str]]) -> str:
    """sum c * x over the terms, starting from one with coefficient 1 if there is any."""
    present = sorted(((c, x) for c, x in terms if c), key=lambda t: t[0] != 1)
    if not present:
        return f.const(0.0)
    c, value = present[0]
    if c != 1:
        value = f.fmul(value, f.const(float(c)))
    for c, x in present[1:]:
        if c == 1:
            value = f.fadd(value, x)
        elif c == -1:
            value = f.fsub(value, x)
        else:
            value = f.fma(x, f.const(float(c)), value)
    return value


def apply_rows(f: Func, matrix: Matrix, xs: Sequence[str]) -> list[str]:
    """matrix @ xs, where rows 1 and 2, 3 and 4, ... are even half +- odd half."""
    out = [_combine(f, list(zip(matrix[0], xs, strict=True)))]
    for k in range(1, len(matrix) - 1, 2):
        even, odd = halves(matrix[k], matrix[k + 1])
        unit = min(abs(c) for c in odd if c)
        e = _combine(f, list(zip(even, xs, strict=True)))
        o = _combine(f, [(c / unit, x) for c, x in zip(odd, xs, strict=True)])
        if unit == 1:
            out += [f.fadd(e, o), f.fsub(e, o)]
        else:
            s = float(unit)
            out += [f.fma(o, f.const(s), e), f.fma(o, f.const(-s), e)]
    out.append(_combine(f, list(zip(matrix[-1], xs, strict=True))))
    return out


def apply_columns(f: Func, matrix: Matrix, xs: Sequence[str]) -> list[str]:
    """matrix @ xs, where columns 1 and 2, 3 and 4, ... differ in sign at most."""
    columns = list(zip(*matrix, strict=True))
    terms: list[tuple[Sequence[Fraction], str]] = [(columns[0], xs[0])]
    for k in range(1, len(xs) - 1, 2):
        even, odd = halves(columns[k], columns[k + 1])
        terms += [(even, f.fadd(xs[k], xs[k + 1])), (odd, f.fsub(xs[k], xs[k + 1]))]
    terms.append((columns[-1], xs[-1]))
    return [_combine(f, [(c[i], x) for c, x in terms]) for i in range(len(matrix))]
