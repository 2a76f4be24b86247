"""Operators without effect, and pairs that are one: rules.

Numbered as the tests are:

1. identity: Identity, MarkNoBroadcastElemwise.
2. copy to the computing node where the value is.
3. conversion to the type the value has.
4. conversion of a conversion, where the first loses nothing or its loss does not matter.
5. Reshape, Broadcast to the shape the value has (constant target), Dimshuffle in order, no axes.
6. one input joined, one part cut off, a reduction over an axis of length 1.
7. x + 0, x - 0, x * 1, x / 1, x ^ 1.
8. negation of a negation; RELU, ABS of what is not below 0; RELU of RELU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Rule, RulePass, Scope, anything, const, op

__all__ = ["NO_OPS"]

_K = DTypeEnum
# Modes whose result is never below zero (NaN becomes 0 through RELU, so ABS is not among them
# for RELU's sake).
_NOT_NEGATIVE = ("RELU", "SIGMOID", "FUSE_ADD_RELU", "FUSE_ADD_SIGMOID", "RELU6")
_WIDER = {
    _K.Float16: frozenset({_K.Float32}),
    _K.BFloat16: frozenset({_K.Float32}),
    _K.Bool: frozenset({_K.Int8, _K.Uint8, _K.Int16, _K.Uint16, _K.Int32, _K.Float16, _K.Float32}),
    _K.Int8: frozenset({_K.Int16, _K.Int32, _K.Float16, _K.Float32}),
    _K.Uint8: frozenset({_K.Int16, _K.Uint16, _K.Int32, _K.Float16, _K.Float32}),
    _K.Int16: frozenset({_K.Int32, _K.Float32}),
    _K.Uint16: frozenset({_K.Int32, _K.Float32}),
}
_Test = Callable[[Match], "str | None"]
_Where = Callable[[Node, Scope], bool]


def _source(match: Match, build: Rebuild) -> Value:
    return build[match["x"]]


def _same_type(match: Match) -> str | None:
    old, new = match.scope.type(match.root.outputs[0]), match.type("x")
    if old.dtype != new.dtype:
        return f"it makes {old.dtype} of {new.dtype}"
    return None


def _same_shape(match: Match) -> str | None:
    old, new = match.scope.type(match.root.outputs[0]), match.type("x")
    if not (old.is_static and new.is_static):
        return "its shape is not known ahead of a run"
    if old.shape != new.shape:
        return f"it makes {old.shape} of {new.shape}"
    return None


def _unchanged(match: Match) -> str | None:
    return _same_type(match) or _same_shape(match)


def _is_same_shape(node: Node, scope: Scope) -> bool:
    """Whether output and first input have one known shape: else there is nothing to look at."""
    if not node.inputs or not node.outputs:
        return False
    old, new = scope.type(node.outputs[0]), scope.type(node.inputs[0])
    return old.is_static and old.shape == new.shape and old.dtype == new.dtype


def _same_place(node: Node, _: Scope) -> bool:
    source = node.inputs[0].node
    if not node.comp_nodes or not source.comp_nodes:
        return False
    return node.comp_nodes[0] == source.comp_nodes[-1]


def _is_loss_free(a: DType, b: DType) -> bool:
    """Whether every value of `a` is one of `b`."""
    return a == b or b.kind in _WIDER.get(a.kind, ())


def _conversion(match: Match) -> str | None:
    first, middle = match.type("x").dtype, match.type("middle").dtype
    last = match.scope.type(match.root.outputs[0]).dtype
    if first == last and _is_loss_free(first, middle):
        return None
    if _is_loss_free(first, middle):
        if middle.is_float or last.is_float or last.is_quantized:
            return None
        return f"{last.name} of {first.name} directly may wrap otherwise"
    # The real value of a code in float32 is what any other conversion starts from.
    if first.is_quantized and middle.kind is _K.Float32:
        return None
    return f"{first.name} to {middle.name} rounds"


def _converted(match: Match, build: Rebuild) -> Value:
    first, last = match.dtype("x"), match.scope.type(match.root.outputs[0]).dtype
    source = build[match["x"]]
    return source if first == last else build.type_cvt(source, dtype=last)


def _is_all(value: float) -> _Test:
    def test(match: Match) -> str | None:
        reason = _unchanged(match)
        if reason is not None:
            return reason
        number = match.constant("c")
        if number is None or not bool(np.all(np.asarray(number) == value)):
            return f"the constant is not {value:g} everywhere"
        return None

    return test


def _holds(value: float) -> _Where:
    """Whether a constant operand consists of `value` alone: the pattern, not a near-miss."""

    def test(node: Node, scope: Scope) -> bool:
        for item in node.inputs:
            if scope.is_const(item) and scope.type(item).is_static and scope.type(item).size:
                number = scope.constant(item)
                if number is not None and bool(np.all(np.asarray(number) == value)):
                    return True
        return False

    return test


def _single(node: Node, _: Scope) -> bool:
    return len(node.inputs) == 1


def _part(node: Node, _: Scope) -> bool:
    return len(node.outputs) == 1


def _one_long(node: Node, scope: Scope) -> bool:
    shape, axis = scope.type(node.inputs[0]).shape, node.param.axis
    if shape is None or len(node.inputs) != 1 or not -len(shape) <= axis < len(shape):
        return False
    return bool(shape[axis] == 1 and node.param.data_type.name == "DEFAULT")


_x = anything("x")
NO_OPS = RulePass(
    name="no-ops",
    rules=(
        Rule(
            name="identity",
            pattern=op("Identity", "MarkNoBroadcastElemwise")(_x),
            rewrite=_source,
        ),
        Rule(name="copy", pattern=op("Copy", where=_same_place)(_x), rewrite=_source),
        Rule(
            name="same-type",
            pattern=op("TypeCvt", where=_is_same_shape)(_x),
            check=_same_type,
            rewrite=_source,
        ),
        Rule(
            name="type-of-type",
            pattern=op("TypeCvt")(op("TypeCvt", name="middle", shared=True)(_x)),
            check=_conversion,
            rewrite=_converted,
        ),
        Rule(
            name="same-shape",
            pattern=op("Reshape", "Broadcast", where=_is_same_shape)(_x, const("shape")),
            check=_unchanged,
            rewrite=_source,
        ),
        Rule(
            name="one-input",
            pattern=op("Concat", where=_single)(_x),
            rewrite=_source,
        ),
        Rule(
            name="one-part",
            pattern=op("Split", where=_part)(_x, const("size")),
            rewrite=_source,
        ),
        Rule(
            name="one-element",
            pattern=op("Reduce", where=_one_long, mode=("SUM", "PRODUCT", "MIN", "MAX", "MEAN"))(
                _x
            ),
            check=_unchanged,
            rewrite=_source,
        ),
        Rule(
            name="add-0",
            pattern=op("Elemwise", mode="ADD", commutes=True, where=_holds(0))(_x, const("c")),
            check=_is_all(0),
            rewrite=_source,
        ),
        Rule(
            name="sub-0",
            pattern=op("Elemwise", mode="SUB", where=_holds(0))(_x, const("c")),
            check=_is_all(0),
            rewrite=_source,
        ),
        Rule(
            name="mul-1",
            pattern=op("Elemwise", mode="MUL", commutes=True, where=_holds(1))(_x, const("c")),
            check=_is_all(1),
            rewrite=_source,
        ),
        Rule(
            name="div-1",
            pattern=op("Elemwise", mode=("TRUE_DIV", "POW"), where=_holds(1))(_x, const("c")),
            check=_is_all(1),
            rewrite=_source,
        ),
        Rule(
            name="negate-twice",
            pattern=op("Elemwise", mode="NEGATE")(op("Elemwise", mode="NEGATE", shared=True)(_x)),
            rewrite=_source,
        ),
        Rule(
            name="relu-of-positive",
            pattern=op("Elemwise", mode=("RELU", "ABS"))(
                op("Elemwise", mode=_NOT_NEGATIVE, name="x", shared=True)
            ),
            check=_unchanged,
            rewrite=_source,
        ),
    ),
)
"""The pass of all these rules."""
