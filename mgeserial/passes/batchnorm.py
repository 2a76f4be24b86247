"""BatchNorm with fixed statistics as arithmetic: one multiplication and one addition.

1. y = (x - mean) / sqrt(variance + epsilon) * scale + bias becomes FUSE_MUL_ADD3(k, x, b).
2. Left alone: statistics that are no constants, another element type than x, and norms whose other
   outputs are used.

Source: semantics section 6; MegEngine 1.13.0 expands it before anything else.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32
from mgeserial.ir.graph import Node, Value
from mgeserial.passes.base import Fact
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Rule, RulePass, Scope, anything, op

__all__ = ["BATCH_NORM"]

_PARTS = ("scale", "bias", "mean", "variance")


def _is_inference(node: Node, _: Scope) -> bool:
    return len(node.inputs) == 5 and node.param.fwd_mode.name == "INFERENCE"


def _check(match: Match) -> str | None:
    *others, _ = match.root.outputs
    used = [v for v in others if match.scope.uses(v)]
    if used:
        return f"its output {used[0].display_name!r} is used"
    for part in _PARTS:
        if match.constant(part) is None:
            return f"its {part} is no constant"
    types = {match.dtype(part) for part in ("x", *_PARTS)}
    if types != {FLOAT32}:
        return f"it mixes {', '.join(sorted(str(t) for t in types))}"
    return None


def _rewrite(match: Match, build: Rebuild) -> list[Value | None]:
    scale, bias, mean, variance = (np.asarray(match.constant(part), np.float64) for part in _PARTS)
    factor = scale / np.sqrt(variance + float(match.root.param.epsilon))
    shift = bias - mean * factor
    holder = match.node("scale")
    like = holder if holder.tensors else None
    k, b = (build.weight(a.astype(np.float32), FLOAT32, like) for a in (factor, shift))
    record = P.Elemwise(mode=P.ElemwiseMode.FUSE_MUL_ADD3)
    value = build.apply("Elemwise", [k, build[match["x"]], b], (record,))[0]
    return [*[None] * (len(match.root.outputs) - 1), value]


BATCH_NORM = RulePass(
    name="batch-norm",
    rules=(
        Rule(
            name="expand",
            pattern=op("BatchNorm", where=_is_inference)(
                anything("x"), *(anything(part) for part in _PARTS)
            ),
            check=_check,
            rewrite=_rewrite,
        ),
    ),
    ensures=frozenset({Fact.NO_INFERENCE_NORM}),
)
"""The pass of this rule."""
