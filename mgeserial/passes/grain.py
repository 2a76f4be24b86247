"""Operators put together from small ones: means, global poolings, reductions that convert.

Rules of `GRAIN` (MegEngine's fuse_grain):

1. SUM over an axis divided by the length of that axis, with or without the axis removed: MEAN.
2. (n, c, h, w) with h and w made one axis, MEAN or MAX over it, and the axes given back as 1 x 1
   (by AxisAddRemove or Dimshuffle): AdaptivePooling.

Rule of `REDUCE_TYPE`:

3. Reduction of float16 converted to float32: the reduction converts.

Source: MegEngine v1.13.4 src/gopt/impl/folding_reduce_mean.cpp, folding_golbal_pooling.cpp and
misc.cpp.
"""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.dtypes import FLOAT16, FLOAT32
from mgeserial.ir.graph import Node, Value
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Rule, RulePass, Scope, anything, op

__all__ = ["GRAIN", "REDUCE_TYPE"]

_POOLING = {"MEAN": P.PoolingV0Mode.AVERAGE, "MAX": P.PoolingV0Mode.MAX_}


def _check_mean(match: Match) -> str | None:
    total, shape = match.node("sum"), match.node("shape")
    if match.dtype("x") != FLOAT32:
        return f"it is a mean of {match.dtype('x')}"
    if total.param.axis != shape.param.axis:
        return f"it sums over axis {total.param.axis} and divides by axis {shape.param.axis}"
    if len(total.inputs) != 1:
        return "it sums to a shape that is computed"
    return None


def _mean(match: Match, build: Rebuild) -> Value:
    total = match.node("sum")
    record = total.param.replace(mode=P.ReduceMode.MEAN)
    value = build.apply("Reduce", [build[match["x"]]], (record,))[0]
    if "removed" in match:
        removed = match.node("removed")
        value = build.apply("AxisAddRemove", [value], removed.params)[0]
    return value


_sum = op("Reduce", mode="SUM", name="sum")(anything("x"))
_length = op("TypeCvt")(op("GetVarShape", name="shape")(anything("x")))


def _is_one_by_one(node: Node, scope: Scope) -> bool:
    shape = scope.type(node.outputs[0]).shape
    return shape is not None and len(shape) == 4 and shape[2:] == (1, 1)


def _is_given_back(node: Node, _: Scope) -> bool:
    return tuple(node.param.pattern) == (0, 1, -1, -1)


def _over_axis_2(node: Node, scope: Scope) -> bool:
    """A mean or maximum over h * w of (n, c, h * w)."""
    whole, flat = node.inputs[0].node, scope.type(node.inputs[0]).shape
    if node.param.axis != 2 or whole.op.name != "Reshape" or flat is None or len(flat) != 3:
        return False
    given = scope.type(whole.inputs[0])
    return given.is_static and given.rank == 4 and given.dims[:2] == flat[:2]


def _pool(match: Match, build: Rebuild) -> Value:
    mode = str(match.node("reduce").param.mode).rstrip("_")
    record = P.AdaptivePooling(mode=_POOLING[mode])
    size = build.const([1, 1])
    return build.apply("AdaptivePooling", [build[match["x"]], size], (record,))[0]


_reduce = op("Reduce", mode=("MEAN", "MAX"), name="reduce", where=_over_axis_2)(
    op("Reshape", shared=True)(anything("x"), anything())
)


def _float_pool(match: Match) -> str | None:
    kind = match.dtype("x")
    return None if kind in (FLOAT32, FLOAT16) else f"it pools {kind}"


GRAIN = RulePass(
    name="fuse-grain",
    rules=(
        Rule(
            name="mean",
            pattern=op("Elemwise", mode="TRUE_DIV")(_sum, _length),
            check=_check_mean,
            rewrite=_mean,
        ),
        Rule(
            name="mean-removed",
            pattern=op("Elemwise", mode="TRUE_DIV")(
                op("AxisAddRemove", name="removed")(_sum), _length
            ),
            check=_check_mean,
            rewrite=_mean,
        ),
        Rule(
            name="global-pooling",
            pattern=op("AxisAddRemove", where=_is_one_by_one)(_reduce),
            check=_float_pool,
            rewrite=_pool,
        ),
        Rule(
            name="global-pooling-again",
            pattern=op("AxisAddRemove", where=_is_one_by_one)(op("AxisAddRemove")(_reduce)),
            check=_float_pool,
            rewrite=_pool,
        ),
        Rule(
            name="global-pooling-shuffled",
            pattern=op("Dimshuffle", where=_is_given_back)(op("AxisAddRemove")(_reduce)),
            check=_float_pool,
            rewrite=_pool,
        ),
    ),
)
"""Rules 1 and 2."""


def _check_reduce(match: Match) -> str | None:
    if match.dtype("x") != FLOAT16 or match.dtype("middle") != FLOAT32:
        return f"it converts {match.dtype('x')} to {match.dtype('middle')}"
    return None


def _is_plain(node: Node, scope: Scope) -> bool:
    before = node.inputs[0].node
    half = before.op.name == "TypeCvt" and scope.type(before.inputs[0]).dtype == FLOAT16
    return half and len(node.inputs) == 1 and node.param.data_type.name == "DEFAULT"


def _reduce_type(match: Match, build: Rebuild) -> Value:
    record = match.root.param.replace(data_type=P.ReduceDataType.FLOAT_O32xC32)
    return build.apply("Reduce", [build[match["x"]]], (record,))[0]


REDUCE_TYPE = RulePass(
    name="reduce-type",
    rules=(
        Rule(
            name="reduce-type",
            pattern=op("Reduce", where=_is_plain)(
                op("TypeCvt", name="middle", shared=True)(anything("x"))
            ),
            check=_check_reduce,
            rewrite=_reduce_type,
        ),
    ),
)
"""Rule 3."""
