"""Rewrite rules: pattern, check, rewrite; and the pass that applies a set of them.

A pattern says which operators stand together. Where it fits, the check says why the rule does not
apply there, if it does not: that is a near-miss, with its reason. The rewrite builds the new
operators. Patterns are matched on the graph of before, from the last operator of the pattern
towards its inputs; passes of rules repeat until nothing changes.

Example::

    add_bias = Rule(
        name="conv-bias",
        pattern=op("Elemwise", mode="ADD", commutes=True)(
            op("Convolution", name="conv"), const("b")
        ),
        check=lambda m: None if m.shape("b")[1] == m.shape("conv")[1] else "b is no bias",
        rewrite=lambda m, build: build.conv_bias_forward(...),
    )
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from mgeserial.dtypes import Array, DType
from mgeserial.errors import PassError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.types import Shape, TensorType
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import Constants
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.sizes import types_at_other_sizes

__all__ = ["Match", "Pattern", "Rule", "RulePass", "Scope", "anything", "const", "op", "uses"]

# A pass repeats its rules at most this often; each round removes or simplifies something.
_ROUNDS = 64


class Scope:
    """A graph as rules see it: types, users, constants."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = Constants(graph)
        self._types: Mapping[Value, TensorType] = graph.inference.types
        self._outputs = set(graph.outputs)
        self._others: tuple[Scope, ...] | None = None

    @property
    def at_other_sizes(self) -> tuple[Scope, ...]:
        """The same graph with inputs of other sizes than the stated ones, where it takes them.

        What follows from sizes must follow from these as well: users feed other batches and
        images than the file states.
        """
        if self._others is None:
            others = []
            for types in types_at_other_sizes(self.graph):
                other = copy(self)
                other._types, other._others = types, ()
                others.append(other)
            self._others = tuple(others)
        return self._others

    def type(self, value: Value) -> TensorType:
        """Inferred type of a value."""
        return self._types[value]

    def uses(self, value: Value) -> int:
        """Number of uses: inputs of operators and outputs of the graph."""
        return uses(value) + (value in self._outputs)

    def is_output(self, value: Value) -> bool:
        """Whether a value is an output of the graph."""
        return value in self._outputs

    def is_const(self, value: Value) -> bool:
        """Whether a value depends on weights and constants alone."""
        return self.constants.is_const(value)

    def constant(self, value: Value) -> Array | None:
        """The value of a constant; None when it is none or too large to be computed here."""
        return self.constants.value(value)


def uses(value: Value) -> int:
    """Number of times that operators use a value."""
    return sum(value._users.values())


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern fits.

    Attributes:
        scope: The graph of before.
        root: The last operator of the pattern.
        inner: The other operators matched, from the root towards the inputs, without those that
            may have further users.
        named: Values of the named parts.
    """

    scope: Scope
    root: Node
    inner: tuple[Node, ...] = ()
    named: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        """The value of a named part (of an operator: its output)."""
        return self.named[name]

    def __contains__(self, name: str) -> bool:
        return name in self.named

    def node(self, name: str) -> Node:
        """The operator of a named part."""
        return self.named[name].node

    def type(self, name: str) -> TensorType:
        """Type of a named part's value."""
        return self.scope.type(self.named[name])

    def shape(self, name: str) -> Shape:
        """Static shape of a named part's value (ShapeError when it is not known)."""
        return self.type(name).dims

    def dtype(self, name: str) -> DType:
        """Element type of a named part's value."""
        return self.type(name).dtype

    def constant(self, name: str) -> Array | None:
        """The value of a named constant part."""
        return self.scope.constant(self.named[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What a value must be made by.

    Attributes:
        ops: Names of operator records; () takes any value.
        fields: Fields of the first parameter record, and the value or values (by name) they have.
        inputs: Patterns of the inputs; None: inputs are not looked at.
        name: Name of the part in the match.
        commutes: Whether the two inputs may stand in either order.
        constant: Whether the value must depend on weights and constants alone.
        shared: Whether the operator may have further users (the root always may).
        where: Any further test of the operator.
    """

    ops: tuple[str, ...] = ()
    fields: tuple[tuple[str, frozenset[str]], ...] = ()
    inputs: tuple[Pattern, ...] | None = None
    name: str | None = None
    commutes: bool = False
    constant: bool = False
    shared: bool = False
    where: Callable[[Node, Scope], bool] | None = None

    def __call__(self, *inputs: Pattern) -> Pattern:
        """The pattern with these inputs."""
        return replace(self, inputs=inputs)

    def fits(self, value: Value, scope: Scope) -> bool:
        """Whether the value itself is made by such an operator, inputs apart."""
        if self.constant and not scope.is_const(value):
            return False
        if not self.ops:
            return True
        node = value.node
        if node.op.name not in self.ops:
            return False
        for key, wanted in self.fields:
            found = getattr(node.param, key)
            if str(found).rstrip("_") not in wanted:
                return False
        return self.where is None or self.where(node, scope)

    def match(self, value: Value, found: Match) -> Iterator[Match]:
        """Every way in which the pattern fits at a value."""
        if not self.fits(value, found.scope):
            return
        if self.name is not None:
            bound = found.named.get(self.name)
            if bound is not None and bound is not value:
                return
            found = replace(found, named={**found.named, self.name: value})
        if self.ops and not self.shared and value.node is not found.root:
            found = replace(found, inner=(*found.inner, value.node))
        if self.inputs is None:
            yield found
            return
        given = value.node.inputs
        if len(given) != len(self.inputs):
            return
        orders = [given, given[::-1]] if self.commutes and given[0] is not given[1] else [given]
        for order in orders:
            yield from _match_all(self.inputs, order, found)


def _match_all(
    patterns: Sequence[Pattern], values: Sequence[Value], found: Match
) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    for first in patterns[0].match(values[0], found):
        yield from _match_all(patterns[1:], values[1:], first)


def op(
    *names: str,
    name: str | None = None,
    commutes: bool = False,
    shared: bool = False,
    where: Callable[[Node, Scope], bool] | None = None,
    **fields: str | Sequence[str],
) -> Pattern:
    """A part made by one of these operators, with fields of its parameters by name of the value."""
    wanted = tuple(
        (key, frozenset([value] if isinstance(value, str) else value))
        for key, value in fields.items()
    )
    return Pattern(
        ops=names, fields=wanted, name=name, commutes=commutes, shared=shared, where=where
    )


def anything(name: str | None = None) -> Pattern:
    """Any value."""
    return Pattern(name=name)


def const(name: str | None = None) -> Pattern:
    """A value that depends on weights and constants alone."""
    return Pattern(name=name, constant=True)


def _no_objection(_: Match) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Pattern, check, rewrite.

    Attributes:
        name: Short name, as reports show it.
        pattern: What the root and its inputs are made by.
        check: The reason why the rule does not apply to a match; None when it does.
        rewrite: Builds the new value of the root's only output (or those of all its outputs, None
            for those that nobody uses) from new values, `build[match["x"]]`.
        detail: What to say of a rewrite in the report.
        any_size: Whether pattern and check ask for no sizes that depend on those of the inputs;
            if they do, they must hold with other sizes too, which takes a further inference.
    """

    name: str
    pattern: Pattern
    rewrite: Callable[[Match, Rebuild], Value | Sequence[Value | None]]
    check: Callable[[Match], str | None] = _no_objection
    detail: Callable[[Match], str] | None = None
    any_size: bool = False

    def find(self, node: Node, scope: Scope) -> tuple[Match | None, str | None]:
        """The first match at a node whose check holds, else the reason of the first that has one.

        Both None: the pattern does not fit.
        """
        if node.op.name not in self.pattern.ops or not node.outputs:
            return None, None
        reason: str | None = None
        for match in self.pattern.match(node.outputs[0], Match(scope, node)):
            problem = _shared(match) or self.check(match) or self._elsewhere(match)
            if problem is None:
                return match, None
            reason = reason or problem
        return None, reason

    def _elsewhere(self, match: Match) -> str | None:
        """Why the rule would not apply to the same operators with inputs of other sizes."""
        if self.any_size:
            return None
        for scope in match.scope.at_other_sizes:
            same = (
                m
                for m in self.pattern.match(match.root.outputs[0], Match(scope, match.root))
                if m.named == match.named
            )
            if all(self.check(m) is not None for m in same):
                return "it would not hold with inputs of another size"
        return None


def _shared(match: Match) -> str | None:
    """Why inner operators cannot be taken apart: somebody else uses them."""
    inside = {match.root, *match.inner}
    for node in match.inner:
        for value in node.outputs:
            own = [u for u in value.users if u in inside or _feeds_only(u, inside, match.scope)]
            others = match.scope.uses(value) - sum(u.inputs.count(value) for u in own)
            if match.scope.is_output(value):
                return f"{value.display_name!r} is an output of the network"
            if others:
                return f"{value.display_name!r} has {others} other use{'s' * (others > 1)}"
    return None


# What shapes are computed with as a graph runs.
_SHAPE_OPS = frozenset({"Concat", "Elemwise", "GetVarShape", "Subtensor"})


def _feeds_only(node: Node, inside: set[Node], scope: Scope) -> bool:
    """Whether a node asks for a shape, and nothing but the operators `inside` needs it."""
    if node.op.name != "GetVarShape":
        return False
    stack, seen = [node], {node}
    while stack:
        for value in stack.pop().outputs:
            if scope.is_output(value):
                return False
            for user in value.users:
                if user in inside or user in seen:
                    continue
                if user.op.name not in _SHAPE_OPS:
                    return False
                seen.add(user)
                stack.append(user)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePass:
    """Applies rules until none does.

    At each operator the first rule whose check holds wins. Near-misses are those of the last round,
    when nothing changes any more.
    """

    name: str
    rules: tuple[Rule, ...]
    needs: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset()
    rounds: int = _ROUNDS

    def run(self, graph: Graph, log: Log) -> Graph:
        """Apply the rules."""
        for count in itertools.count():
            new, changed, misses = self._round(graph, log)
            if not changed:
                for rule, node, reason in misses:
                    log.miss(rule, node, reason)
                return new
            if count == self.rounds:
                raise PassError(f"pass {self.name}: no end after {count} rounds")
            graph = new
        raise AssertionError("unreachable")

    def _round(self, graph: Graph, log: Log) -> tuple[Graph, bool, list[tuple[str, Node, str]]]:
        scope, build = Scope(graph), Rebuild(graph)
        done: list[tuple[Rule, Match, Sequence[Value]]] = []
        misses: list[tuple[str, Node, str]] = []
        by_op: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for name in rule.pattern.ops:
                by_op.setdefault(name, []).append(rule)
        for node in graph.nodes:
            for rule in by_op.get(node.op.name, ()):
                match, reason = rule.find(node, scope)
                values, objection = _apply(rule, match, build) if match else ([], None)
                if match is not None and objection is None:
                    done.append((rule, match, values))
                    break
                reason = reason or objection
                if reason is not None:
                    misses.append((rule.name, node, reason))
            else:
                build.carry(node)
        if not done:
            return graph, False, misses
        new = build.finish()
        for rule, match, values in done:
            # A rewrite inside what a larger one replaced leaves no trace: it is not reported.
            if any(build.survives(v) for v in values):
                detail = rule.detail(match) if rule.detail is not None else ""
                log.rewrite(rule.name, match.root, detail)
        return new, True, misses


def _apply(rule: Rule, match: Match, build: Rebuild) -> tuple[Sequence[Value], str | None]:
    """Build what takes the root's place; the new values, or why they cannot."""
    made: Any = rule.rewrite(match, build)
    given = [made] if isinstance(made, Value) else list(made)
    pairs = [(a, b) for a, b in zip(match.root.outputs, given, strict=True) if b is not None]
    for old, new in pairs:
        objection = build.objection(old, new)
        if objection is not None:
            return (), objection
    for old, new in pairs:
        build.put(old, new)
    return [new for _, new in pairs], None
