"""Chains of additions and multiplications with constants, in as few operators as there can be.

Values of floating type are followed as linear forms (`forms`) from operator to operator as long as
nobody else uses them. Where a form ends, the cheapest expression that computes it is compared with
what the graph had; the graph keeps its own operators unless the new ones are cheaper.

Numbered as the tests are:

1. constants meet: (x + a) * b + c is one FUSE_MUL_ADD3; x / c is a multiplication.
2. x * a + y * b is FUSE_MUL_ADD4, a * b + c FUSE_MUL_ADD3; a nonlinearity of a sum is FUSE_ADD_*.
3. a factor of the result or input of a convolution (transposed or not) or matrix product goes into
   its weights; a shift of its input, without padding, into its result (`absorb`).
4. x + x + x is 3 * x; x + -y is x - y.
5. left alone: integers and quantised types, shapes that are not known, values that others use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgeserial.dtypes import FLOAT16, FLOAT32, DType
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.params import Elemwise
from mgeserial.params import ElemwiseMode as M
from mgeserial.passes.absorb import ABSORBERS, Absorber, absorber_of
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.forms import (
    COSTS,
    FUSED_ADD,
    Apply,
    Constant,
    Expr,
    Form,
    Leaf,
    Number,
    Term,
    plan,
)
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["Arithmetic"]

_UNFUSED = {fused: plain for plain, fused in FUSED_ADD.items()}
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Simplifies chains of arithmetic; see the module."""

    name: str = "arithmetic"
    needs: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset({Fact.CONSTANTS_FOLDED})

    def run(self, graph: Graph, log: Log) -> Graph:
        """Simplify until nothing changes."""
        for _ in range(_ROUNDS):
            log.near_misses.clear()
            walk = _Walk(graph, log)
            new = walk.run()
            if new is graph:
                break
            graph = new
        return graph


class _Walk:
    """One walk over a graph; `open` holds the forms of values that are not built yet."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self._graph = graph
        self._log = log
        self._scope = Scope(graph)
        self._build = Rebuild(graph)
        self._open: dict[Value, Form] = {}
        self._refused: dict[Value, str] = {}
        self._changed = False

    def run(self) -> Graph:
        """Walk; the graph itself when nothing changed."""
        for node in self._graph.nodes:
            self._visit(node)
        return self._build.finish() if self._changed else self._graph

    def _visit(self, node: Node) -> None:
        form, activation = self._read(node) if self._is_eligible(node) else (None, None)
        if form is None:
            self._settle(node.inputs)
            self._build.carry(node)
            return
        value = node.outputs[0]
        form = replace(form, shape=self._scope.type(value).dims)
        alone = self._scope.uses(value) == 1 and not self._scope.is_output(value)
        if activation is None and alone:
            self._open[value] = form
        else:
            self._emit(node, form, activation)

    def _is_eligible(self, node: Node) -> bool:
        """Whether all is of one floating type and known shape, and not constant altogether."""
        scope = self._scope
        if len(node.outputs) != 1 or scope.is_const(node.outputs[0]):
            return False
        types = [scope.type(v) for v in (*node.inputs, *node.outputs)]
        return all(
            t.is_static and t.dtype in (FLOAT32, FLOAT16) and t.dtype == types[0].dtype
            for t in types
        )

    def _settle(self, values: Sequence[Value]) -> None:
        """Build what was left open of these values."""
        for value in values:
            form = self._open.pop(value, None)
            if form is not None:
                self._emit(value.node, form, None)

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, node: Node) -> tuple[Form | None, M | None]:
        """The form of a node's value, and the nonlinearity on top of it."""
        if node.op.name in ABSORBERS:
            return self._absorber(node), None
        if node.op.name != "Elemwise":
            return None, None
        mode = M(node.param.mode)
        a, *rest = node.inputs
        form: Form | None = None
        activation = mode if mode in FUSED_ADD else _UNFUSED.get(mode)
        if mode in (M.ADD, *_UNFUSED):
            form = self._take(a).plus(self._take(rest[0]))
        elif mode == M.SUB:
            form = self._take(a).plus(self._take(rest[0]).scaled(_number(-1)))
        elif mode == M.NEGATE:
            form = self._take(a).scaled(_number(-1))
        elif mode == M.MUL:
            form = self._product(a, rest[0])
        elif mode == M.TRUE_DIV:
            form = self._quotient(a, rest[0])
        elif mode == M.FUSE_MUL_ADD3:
            form = self._product(a, rest[0]).plus(self._take(rest[1]))
        elif mode == M.FUSE_MUL_ADD4:
            form = self._product(a, rest[0]).plus(self._product(*rest[1:]))
        elif mode in FUSED_ADD and a in self._open:
            form = self._take(a)
        if form is None:
            return None, None
        return replace(form, nodes=(*form.nodes, node)), activation

    def _take(self, value: Value) -> Form:
        """The form of an operand: its open form, a constant, or the value itself."""
        found = self._open.pop(value, None)
        if found is not None:
            return found
        dims = self._scope.type(value).dims
        array = self._scope.constant(value) if self._scope.is_const(value) else None
        if array is not None:
            return Form(constants=(np.asarray(array),), shape=dims)
        return Form(terms=(Term((Leaf(value, dims),)),), shape=dims)

    def _product(self, a: Value, b: Value) -> Form:
        for factor, other in ((a, b), (b, a)):
            array = self._scope.constant(factor) if self._scope.is_const(factor) else None
            if array is not None:
                return self._scaled(other, np.asarray(array))
        left, right = self._single(a), self._single(b)
        term = Term((*left.terms[0].bases, *right.terms[0].bases), left.terms[0].factor)
        if right.terms[0].factor is not None:
            term = term.scaled(right.terms[0].factor)
        return Form(terms=(term,), nodes=(*left.nodes, *right.nodes))

    def _single(self, value: Value) -> Form:
        """The form of a factor: one term without constants, else the value itself."""
        form = self._open.get(value)
        if form is not None and len(form.terms) == 1 and not form.constants:
            factor = form.terms[0].factor
            if factor is None or factor.size == 1:
                return self._take(value)
        self._settle([value])
        return self._take(value)

    def _scaled(self, value: Value, factor: Number) -> Form:
        dims = self._scope.type(value).dims
        form = self._open.get(value)
        expands = np.broadcast_shapes(dims, factor.shape) != dims
        if form is not None and (expands or form.grows(factor)):
            self._settle([value])
        return self._take(value).scaled(factor)

    def _quotient(self, a: Value, b: Value) -> Form | None:
        array = self._scope.constant(b) if self._scope.is_const(b) else None
        if array is None or self._scope.is_const(a):
            return None
        with np.errstate(all="ignore"):
            factor = np.asarray(1 / np.asarray(array, np.float64)).astype(np.asarray(array).dtype)
        if not np.isfinite(factor).all() or not factor.all():
            return None
        return self._scaled(a, factor)

    def _absorber(self, node: Node) -> Form | None:
        """The form of an operator with weights: itself, after it took in what it can."""
        found = absorber_of(node, self._scope)
        if isinstance(found, str):
            self._refused[node.outputs[0]] = found
            return None
        data, _ = ABSORBERS[node.op.name]
        self._settle([v for i, v in enumerate(node.inputs) if i != data])
        value = node.inputs[data]
        shifts: tuple[Number, ...] = ()
        form = self._open.get(value)
        if form is not None:
            found, shifts = self._with_input(found, value, form)
        if found.data is None:
            self._settle([value])
            found = replace(found, data=self._build[value])
        leaf = Leaf(found, found.dims)
        return Form((Term((leaf,)),), shifts, (node,))

    def _with_input(
        self, absorber: Absorber, value: Value, form: Form
    ) -> tuple[Absorber, tuple[Number, ...]]:
        """An operator with the arithmetic of its input taken in, if that saves anything."""
        new, rest = absorber, form
        shifts: tuple[Number, ...] = ()
        if form.constants:
            moved = self._shift(new, form)
            if moved is not None:
                new, shifts = moved
                rest = replace(rest, constants=())
        factor = _common_factor(rest)
        if factor is not None:
            scaled = new.times(factor, result=False)
            divided = _divided(rest, factor)
            if isinstance(scaled, str):
                self._log.miss("absorb-factor", absorber.node, scaled)
            elif divided is None:
                self._log.miss("absorb-factor", absorber.node, "a factor is 0 beside a shift")
            else:
                new, rest = scaled, divided
        if rest is form:
            return absorber, ()
        # An operator that only starts a sum of its own is free: `make` builds it anyway.
        expr = plan(rest)
        if expr.cost >= min(plan(form).cost, self._old_cost(form.nodes)):
            return absorber, ()
        self._open.pop(value)
        what = "factor" if factor is not None else "shift"
        self._log.rewrite(f"absorb-{what}", absorber.node, f"of input {value.display_name!r}")
        self._changed = True
        like = self._like(form.nodes)
        built = self._realise(expr, self._scope.type(value).dtype, like)
        return replace(new, data=built), shifts

    def _shift(self, absorber: Absorber, form: Form) -> tuple[Absorber, tuple[Number, ...]] | None:
        added: list[Number] = []
        for constant in form.constants:
            found = absorber.of_shifted(constant)
            if isinstance(found, str):
                self._log.miss("absorb-shift", absorber.node, found)
                return None
            absorber, number = found
            added.append(number)
        return absorber, (np.asarray(sum(added)),)

    # -- writing ---------------------------------------------------------------------------------

    def _old_cost(self, nodes: Sequence[Node]) -> float:
        modes = [M(n.param.mode) for n in nodes if n.op.name not in ABSORBERS]
        return sum(COSTS.get(m, 1.0) for m in modes)

    def _emit(self, node: Node, form: Form, activation: M | None) -> None:
        """Build the value of `node`: what the form asks for, or the operators the graph had."""
        old = self._old_cost(form.nodes)
        absorbed = self._absorbed(form)
        choices = [plan(f, activation) for f in (form, absorbed) if f is not None]
        expr = min(choices, key=lambda e: e.cost)
        absorbers = _absorbers(form)
        forced = any(a.shifted for a in absorbers)
        dims = self._scope.type(node.outputs[0]).dims
        if (expr.cost < old - 1e-6 or forced) and expr.shape == dims:
            kind = self._scope.type(node.outputs[0]).dtype
            value = self._realise(expr, kind, self._like(form.nodes))
            if self._build.objection(node.outputs[0], value) is None:
                self._build.put(node.outputs[0], value)
                self._changed = True
                self._note(node, form, expr)
                return
        self._carry_all(form.nodes, absorbers)

    def _note(self, node: Node, form: Form, expr: Expr) -> None:
        before = sum(n.op.name not in ABSORBERS for n in form.nodes)
        after = expr.count if isinstance(expr, Apply) else 0
        self._log.rewrite("simplify", node, f"{before} operators became {after}")

    def _carry_all(self, nodes: Sequence[Node], absorbers: Sequence[Absorber]) -> None:
        pending = {a.node: a for a in absorbers}
        for node in sorted(nodes, key=lambda n: n.index):
            absorber = pending.get(node)
            if absorber is not None:
                self._build.put(node.outputs[0], absorber.make(self._build))
            else:
                self._build.carry(node)

    def _absorbed(self, form: Form) -> Form | None:
        """The form with factors and a constant taken in by operators with weights."""
        terms, constants = list(form.terms), list(form.constants)
        changed = False
        for i, term in enumerate(terms):
            if term.factor is None or len(term.bases) != 1:
                continue
            key = term.bases[0].key
            if isinstance(key, Absorber):
                found = key.times(term.factor, result=True)
                node = key.node
            else:
                found = self._refused.get(key, "")
                node = key.node
            if isinstance(found, Absorber):
                terms[i] = Term((replace(term.bases[0], key=found),))
                changed = True
            elif found:
                self._log.miss("absorb-factor", node, found)
        for i, term in enumerate(terms):
            key = term.bases[0].key if len(term.bases) == 1 and term.factor is None else None
            if isinstance(key, Absorber) and len(constants) == 1:
                shifted = key.plus(constants[0])
                if shifted is not None:
                    terms[i] = Term((replace(term.bases[0], key=shifted),))
                    constants, changed = [], True
        return replace(form, terms=tuple(terms), constants=tuple(constants)) if changed else None

    def _like(self, nodes: Sequence[Node]) -> Node | None:
        """A weight or constant of the chain: new ones are of its kind."""
        for node in nodes:
            for value in node.inputs:
                if value.node.op.name in HOLDERS:
                    return value.node
        return None

    def _realise(self, expr: Expr, dtype: DType, like: Node | None) -> Value:
        if isinstance(expr, Constant):
            return self._build.weight(expr.array.astype(dtype.storage), dtype, like)
        if isinstance(expr, Leaf):
            key: Any = expr.key
            return key.make(self._build) if isinstance(key, Absorber) else self._build[key]
        inputs = [self._realise(a, dtype, like) for a in expr.args]
        return self._build.apply("Elemwise", inputs, (Elemwise(mode=expr.mode),))[0]


def _number(value: float) -> Number:
    return np.full((1,), value, np.float32)


def _absorbers(form: Form) -> list[Absorber]:
    keys = [leaf.key for term in form.terms for leaf in term.bases]
    return [k for k in keys if isinstance(k, Absorber)]


def _common_factor(form: Form) -> Number | None:
    """The factor that all terms share."""
    if not form.terms:
        return None
    first = form.terms[0].factor
    if first is None:
        return None
    for term in form.terms[1:]:
        same = term.factor is not None and term.factor.shape == first.shape
        if not same or not np.array_equal(term.factor, first):  # type: ignore[arg-type]
            return None
    return first


def _divided(form: Form, factor: Number) -> Form | None:
    """The form without a factor of all its terms; None when a constant cannot be divided."""
    if form.constants and not factor.all():
        return None
    with np.errstate(all="ignore"):
        constants = tuple([np.asarray(c / factor).astype(c.dtype) for c in form.constants])
    if not all(np.isfinite(c).all() for c in constants):
        return None
    return replace(
        form, terms=tuple([replace(t, factor=None) for t in form.terms]), constants=constants
    )
