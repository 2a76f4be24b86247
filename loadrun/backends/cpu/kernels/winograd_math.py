"""Exact matrices of F(m, r) minimal filtering, and straight-line code that applies them.

For n = m + r - 1 an output is A^T [(G g) * (B^T d)]. The matrices follow from evaluation at n - 1
points and at infinity. Points come in pairs +p, -p, so that rows of B^T (columns of A^T) share
their even and odd halves.

The points decide the rounding error. Largest error relative to the largest output, one layer of
64 to 256 channels against float64: direct sum 1e-6 to 2e-6; F(2) 6e-7; F(4) with 0, +-1, +-2 8e-6;
F(4) with 0, +-2/3, +-3/2 1.5e-6 at the same operation count, which is used here.

Source: Winograd, "Arithmetic Complexity of Computations" (1980); Lavin & Gray, "Fast Algorithms for
Convolutional Neural Networks" (2016) for the two-dimensional nesting.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

from loadrun.backends.cpu.emit import Func

Matrix = tuple[tuple[Fraction, ...], ...]

_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(2, 3), Fraction(-2, 3), Fraction(3, 2), Fraction(-3, 2)),
}
SIZES = tuple(_POINTS)


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), lowest power first."""
    out = [Fraction(1)]
    for root in roots:
        low = [Fraction(0), *out]
        high = [*(root * c for c in out), Fraction(0)]
        out = [a - b for a, b in zip(low, high, strict=True)]
    return out


@functools.cache
def matrices(m: int, r: int = 3) -> tuple[Matrix, Matrix, Matrix]:
    """A^T (m, n), G (n, r) and B^T (n, n), exact."""
    points = _POINTS[m]
    n = m + r - 1
    if len(points) != n - 1:
        raise ValueError(f"F({m},{r}) needs {n - 1} points")
    at = [[p**i for p in points] + [Fraction(int(i == m - 1))] for i in range(m)]
    g: list[list[Fraction]] = []
    bt: list[list[Fraction]] = []
    for j, p in enumerate(points):
        others = points[:j] + points[j + 1 :]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        g.append([p**k / scale for k in range(r)])
        bt.append([*_product(others), Fraction(0)])
    g.append([Fraction(int(k == r - 1)) for k in range(r)])
    bt.append(_product(points))

    def freeze(rows: list[list[Fraction]]) -> Matrix:
        return tuple(tuple(row) for row in rows)

    return freeze(at), freeze(g), freeze(bt)


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
        upper, lower = matrix[k], matrix[k + 1]
        even = [(a + b) / 2 for a, b in zip(upper, lower, strict=True)]
        odd = [(a - b) / 2 for a, b in zip(upper, lower, strict=True)]
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
        a, b = columns[k], columns[k + 1]
        even = [(p + q) / 2 for p, q in zip(a, b, strict=True)]
        odd = [(p - q) / 2 for p, q in zip(a, b, strict=True)]
        terms += [(even, f.fadd(xs[k], xs[k + 1])), (odd, f.fsub(xs[k], xs[k + 1]))]
    terms.append((columns[-1], xs[-1]))
    return [_combine(f, [(c[i], x) for c, x in terms]) for i in range(len(matrix))]
