"""Linear forms: sums of constant multiples of values, and the fewest operators that compute one.

A form is k1 * t1 + k2 * t2 + ... + c with constant arrays k and c (broadcast as Elemwise does) and
bases t: values, products of bases, or operators that may still take a factor into their weights.
`plan` turns a form, and a nonlinearity on top of it, into an expression of Elemwise modes; forms
and expressions are plain data, so that two ways of computing can be compared before one is built.

The order of additions is MegEngine's (1.13.0): values of equal shape first, small ones before
large ones, the constant at last, and as its first operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.ir.types import Shape
from mgeserial.params import ElemwiseMode as M

__all__ = ["COSTS", "FUSED_ADD", "Apply", "Constant", "Expr", "Form", "Leaf", "Term", "plan"]

Number = npt.NDArray[Any]
# What an operator costs: passes over memory; a division is slow, and two products in one
# operator are worth no more than two operators, lest a common factor be multiplied out.
COSTS = {M.FUSE_MUL_ADD3: 1.1, M.FUSE_MUL_ADD4: 2.0, M.TRUE_DIV: 1.5}
FUSED_ADD = {
    M.RELU: M.FUSE_ADD_RELU,
    M.SIGMOID: M.FUSE_ADD_SIGMOID,
    M.TANH: M.FUSE_ADD_TANH,
    M.H_SWISH: M.FUSE_ADD_H_SWISH,
}
COSTS.update(dict.fromkeys(FUSED_ADD.values(), 1.05))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is there, by whatever key the caller finds it; its shape."""

    key: Any
    shape: Shape
    cost: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant array."""

    array: Number
    cost: float = 0.0

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return tuple(self.array.shape)


@dataclass(frozen=True, slots=True)
class Apply:
    """An Elemwise operator on expressions; its shape, and the cost of all it is made of."""

    mode: M
    args: tuple[Expr, ...]
    shape: Shape
    cost: float

    @property
    def count(self) -> int:
        """Number of operators."""
        return 1 + sum(a.count for a in self.args if isinstance(a, Apply))


Expr = Leaf | Constant | Apply


def apply(mode: M, *args: Expr) -> Apply:
    """An operator on expressions."""
    shape = tuple(int(n) for n in np.broadcast_shapes(*(a.shape for a in args)))
    cost = COSTS.get(mode, 1.0) + sum(a.cost for a in args)
    return Apply(mode, args, shape, cost)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """factor * product of bases; factor None is 1."""

    bases: tuple[Leaf, ...]
    factor: Number | None = None

    def scaled(self, factor: Number) -> Term:
        """The term times a constant."""
        own = self.factor
        return replace(self, factor=factor if own is None else own * factor)

    @property
    def is_negated(self) -> bool:
        """Whether the factor is -1."""
        return self.factor is not None and bool(np.all(self.factor == -1))


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A sum of terms and constants; `nodes` are the operators it was read from."""

    terms: tuple[Term, ...] = ()
    constants: tuple[Number, ...] = ()
    nodes: tuple[Any, ...] = ()
    shape: Shape = field(default=(1,))

    def scaled(self, factor: Number) -> Form:
        """The form times a constant."""
        return replace(
            self,
            terms=tuple([t.scaled(factor) for t in self.terms]),
            constants=tuple([c * factor for c in self.constants]),
        )

    def plus(self, other: Form) -> Form:
        """The sum of two forms."""
        terms = [*self.terms]
        for term in other.terms:
            _add_term(terms, term)
        constants = [*self.constants]
        for constant in other.constants:
            _add_constant(constants, constant)
        return Form(tuple(terms), tuple(constants), (*self.nodes, *other.nodes), self.shape)

    def grows(self, factor: Number) -> bool:
        """Whether a factor makes a constant of the form larger than both were."""
        arrays = [t.factor for t in self.terms if t.factor is not None] + [*self.constants]
        return any(_broadcast(a, factor) is None for a in arrays)


def _broadcast(a: Number, b: Number) -> Shape | None:
    """The common shape when it is that of one of both."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    return shape if shape in (a.shape, b.shape) else None


def _add_term(terms: list[Term], term: Term) -> None:
    one = np.ones((1,), np.float32)
    for i, other in enumerate(terms):
        if other.bases == term.bases:
            a = one if other.factor is None else other.factor
            b = one if term.factor is None else term.factor
            if _broadcast(a, b) is not None and bool(np.all(a + b != 0)):
                terms[i] = replace(other, factor=a + b)
                return
    terms.append(term)


def _add_constant(constants: list[Number], constant: Number) -> None:
    for i, other in enumerate(constants):
        if _broadcast(other, constant) is not None:
            constants[i] = other + constant
            return
    constants.append(constant)


# -- planning -------------------------------------------------------------------------------------


def plan(form: Form, activation: M | None = None) -> Expr:
    """The cheapest expression found for a form, with a nonlinearity on top if asked for."""
    total = _sum(form.terms, [Constant(c) for c in form.constants])
    if activation is None:
        return total
    fused = FUSED_ADD.get(activation)
    if fused is not None and isinstance(total, Apply) and total.mode == M.ADD:
        return apply(fused, *total.args)
    return apply(activation, total)


def _sum(terms: Sequence[Term], constants: Sequence[Expr]) -> Expr:
    addends: list[Expr] = []
    negated: list[Expr] = []
    products: list[tuple[Expr, Expr]] = []
    for group in _by_factor(terms):
        factor = group[0].factor
        if len(group) > 1 and factor is not None:
            inner = _sum([replace(t, factor=None) for t in group], [])
            if group[0].is_negated:
                negated.append(inner)
            else:
                products.append((Constant(factor), inner))
            continue
        for term in group:
            *rest, last = _factors(term)
            if term.is_negated:
                negated.append(_product([*rest, last]))
            elif rest:
                products.append(_ordered(_product(rest), last))
            else:
                addends.append(last)
    fixed = list(constants)
    _pair_products(products, addends)
    _fuse_products(products, addends, fixed)
    return _total(addends, negated, fixed)


def _by_factor(terms: Sequence[Term]) -> Iterator[list[Term]]:
    """Terms with equal factors together, in order of first occurrence."""
    groups: list[list[Term]] = []
    for term in terms:
        for group in groups:
            if _equal(group[0].factor, term.factor):
                group.append(term)
                break
        else:
            groups.append([term])
    yield from groups


def _equal(a: Number | None, b: Number | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(np.array_equal(a, b))


def _factors(term: Term) -> list[Expr]:
    """What a term multiplies: its factor (but 1 and -1) and its bases."""
    own: list[Expr] = []
    if term.factor is not None and not term.is_negated:
        own.append(Constant(term.factor))
    return [*own, *term.bases]


def _product(factors: Sequence[Expr]) -> Expr:
    total = factors[0]
    for factor in factors[1:]:
        total = apply(M.MUL, total, factor)
    return total


def _ordered(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The smaller one first."""
    return (a, b) if np.prod(a.shape) <= np.prod(b.shape) else (b, a)


def _pair_products(products: list[tuple[Expr, Expr]], addends: list[Expr]) -> None:
    """Join products of equal shapes in twos."""
    by_shape: dict[tuple[Shape, Shape], list[tuple[Expr, Expr]]] = {}
    for a, b in products:
        by_shape.setdefault((a.shape, b.shape), []).append((a, b))
    products.clear()
    for group in by_shape.values():
        while len(group) > 1:
            (a, b), (c, d) = group[-2:]
            del group[-2:]
            addends.append(apply(M.FUSE_MUL_ADD4, a, b, c, d))
        products += group


def _fuse_products(
    products: list[tuple[Expr, Expr]], addends: list[Expr], fixed: list[Expr]
) -> None:
    """Give each product something to add that has the shape of one of its factors."""
    for a, b in sorted(
        products, key=lambda p: np.prod(np.broadcast_shapes(p[0].shape, p[1].shape))
    ):
        found = _partner(a, b, [*fixed, *addends])
        if found is None:
            widened = _widened(a, b, fixed)
            if widened is None:
                addends.append(apply(M.MUL, a, b))
                continue
            a, found = widened
        (fixed if found in fixed else addends).remove(found)
        addends.append(apply(M.FUSE_MUL_ADD3, a, b, _stretched(found, a)))
    products.clear()


def _partner(a: Expr, b: Expr, offered: Sequence[Expr]) -> Expr | None:
    for shape in (a.shape, b.shape):
        for item in offered:
            if item.shape == shape:
                return item
    return None


def _widened(a: Expr, b: Expr, fixed: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """A factor and a constant to add made equal in shape where one of them is a single number."""
    if not isinstance(a, Constant) or len(fixed) != 1:
        return None
    item = fixed[0]
    if not isinstance(item, Constant):
        return None
    if np.broadcast_shapes(item.shape, b.shape) != b.shape:
        return None
    if a.array.size == 1:
        return Constant(np.broadcast_to(a.array.reshape(-1)[0], item.shape)), item
    return (a, item) if item.array.size == 1 else None


def _stretched(item: Expr, like: Expr) -> Expr:
    """A single number to add, in the shape of the factor it goes with."""
    if isinstance(item, Constant) and item.array.size == 1 and isinstance(like, Constant):
        return Constant(np.broadcast_to(item.array.reshape(-1)[0], like.shape))
    return item


def _total(addends: list[Expr], negated: list[Expr], fixed: list[Expr]) -> Expr:
    positive = _added(addends)
    negative = _added(negated)
    if negative is not None:
        if positive is not None:
            positive = apply(M.SUB, positive, negative)
        elif fixed:
            positive = apply(M.SUB, fixed.pop(0), negative)
        else:
            positive = apply(M.NEGATE, negative)
    for constant in fixed:
        positive = constant if positive is None else apply(M.ADD, constant, positive)
    if positive is None:
        raise ValueError("an empty form")
    return positive


def _added(items: Sequence[Expr]) -> Expr | None:
    """Values of equal shape first, then small ones before large ones."""
    by_shape: dict[Shape, Expr] = {}
    for item in items:
        known = by_shape.get(item.shape)
        by_shape[item.shape] = item if known is None else apply(M.ADD, known, item)
    total: Expr | None = None
    for item in sorted(by_shape.values(), key=lambda e: int(np.prod(e.shape))):
        total = item if total is None else apply(M.ADD, total, item)
    return total
