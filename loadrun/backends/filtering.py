"""Exact matrices of F(m, r) minimal filtering, which all native backends use.

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

__all__ = ["SIZES", "Matrix", "halves", "matrices"]

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


def halves(
    upper: Sequence[Fraction], lower: Sequence[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """Even and odd half: upper = even + odd, lower = even - odd."""
    pairs = list(zip(upper, lower, strict=True))
    return [(a + b) / 2 for a, b in pairs], [(a - b) / 2 for a, b in pairs]
