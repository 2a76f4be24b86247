"""Rules that lower operators to a backend, registered against the operators' records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.registry import OpSpec

__all__ = ["NotApplicable", "Rule", "Rulebook"]

_L = TypeVar("_L")


class NotApplicable(Exception):
    """Why a rule does not apply to a node."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[_L]):
    """One way to lower an operator; `doc` is the first line of the function's docstring."""

    operator: str
    name: str
    doc: str
    apply: Callable[[_L, Node, Call], None]


class Rulebook(Generic[_L]):
    """The rules of one backend by operator name, in order of registration.

    A rule is a function of the backend's lowering, a node and its call; it raises `NotApplicable`
    with the reason where it does not fit.
    """

    def __init__(self) -> None:
        self.by_operator: dict[str, list[Rule[_L]]] = {}

    def lowers(
        self, *operators: OpSpec
    ) -> Callable[[Callable[[_L, Node, Call], None]], Callable[[_L, Node, Call], None]]:
        """Register a function as a rule for operator records."""

        def note(function: Callable[[_L, Node, Call], None]) -> Callable[[_L, Node, Call], None]:
            doc = (function.__doc__ or "").strip().splitlines()
            for op in operators:
                rule = Rule(op.name, function.__name__, doc[0] if doc else "", function)
                self.by_operator.setdefault(op.name, []).append(rule)
            return function

        return note
