"""How far two correct runs of a network may be apart, by type, length of sums and depth.

One number for all types either passes wrong int8 results or fails a right convolution; these grow
with what rounding can do: the root of the number of products summed up, and of the number of
operators on the way that sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.types import TensorType
from mgeserial.view.families import family_of

__all__ = ["Rounding", "allowed_error", "roundings"]

# Largest relative error of rounding to a type. Source: IEEE 754-2019; bfloat16 has 8 bits.
_UNIT = {
    DTypeEnum.Float32: 2.0**-24,
    DTypeEnum.Float16: 2.0**-11,
    DTypeEnum.BFloat16: 2.0**-8,
    DTypeEnum.Complex64: 2.0**-24,
}
_FLOAT32 = _UNIT[DTypeEnum.Float32]
# Algorithms that transform (Winograd) lose up to 4 bits more than plain sums do.
_SUM_FACTOR = 32.0
_ROUND_FACTOR = 4.0
# These give the same numbers however they are done.
_EXACT = frozenset({"port", "weight", "shape"})


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding may have done to a value.

    Attributes:
        length: Longest sum on the way to it.
        depth: Most operators that round, one after another, on the way to it.
    """

    length: int = 1
    depth: int = 0

    def then(self, length: int, *, rounds: bool) -> Rounding:
        """After one more operator."""
        return Rounding(max(self.length, length), self.depth + rounds)


def allowed_error(dtype: DType, rounding: Rounding) -> float:
    """Error allowed, relative above 1 and absolute below.

    Floating types: 4 u sqrt(depth) + 32 u32 sqrt(length * depth), where u is half the distance
    between numbers near 1 in the type and u32 that of Float32, in which sums are made. Quantised
    types: exact where no floating operator stands before them, else one step. Integers: exact.
    """
    depth = max(rounding.depth, 1)
    if dtype.kind in _UNIT:
        own = _ROUND_FACTOR * _UNIT[dtype.kind] * math.sqrt(depth)
        return own + _SUM_FACTOR * _FLOAT32 * math.sqrt(rounding.length * depth)
    if not rounding.depth or dtype.scale is None:
        return 0.0
    # A hair more than one step, whose product with the scale is rounded itself.
    return float(dtype.scale) * (1 + 1e-6)


def roundings(graph: Graph) -> dict[Value, Rounding]:
    """What rounding may have done to each value of a graph."""
    found: dict[Value, Rounding] = {}
    types = graph.inference.types
    for node in graph.nodes:
        # A shape does not depend on values.
        before = [found[v] for v in node.inputs] if node.op.name != "GetVarShape" else []
        longest = max((r.length for r in before), default=1)
        depth = max((r.depth for r in before), default=0)
        own = step(node, types)
        after = Rounding(longest, depth).then(own.length, rounds=bool(own.depth))
        found.update(dict.fromkeys(node.outputs, after))
    return found


def step(node: Node, types: dict[Value, TensorType]) -> Rounding:
    """What one operator adds to the rounding of its inputs."""
    family = family_of(node.op.name).key
    floating = any(types[v].dtype.kind in _UNIT for v in node.outputs)
    if family in _EXACT or not floating:
        return Rounding()
    return Rounding(_length(node, types, family), 1)


def _length(node: Node, types: dict[Value, TensorType], family: str) -> int:
    """Number of products or terms that one element of the output sums up; at least 1."""
    shapes = [types[v].dims if types[v].is_static else () for v in node.inputs]
    if family == "convolution" and len(shapes) > 1 and shapes[1]:
        return max(math.prod(shapes[1]) // max(shapes[1][0], 1), 1)
    if family in ("matrix", "sequence") and shapes and shapes[0]:
        return max(*shapes[0][-2:], 1)
    if family in ("reduction", "pooling", "norm") and shapes and shapes[0]:
        out = types[node.outputs[0]]
        whole = math.prod(shapes[0])
        if family == "norm":
            # Batch normalisation of an inference takes stored statistics: nothing is summed.
            return 1 if node.op.name == "BatchNorm" else max(whole // max(shapes[0][0], 1), 1)
        return max(whole // max(out.size, 1), 1) if out.is_static else whole
    return 1
