"""Types of all values ahead of any run: one walk over the graph, calling the records' rules.

Small integer chains that shapes depend on (GetVarShape, arithmetic on it, Concat, Subtensor ...)
are computed by their reference code, so that Reshape and its like find their target shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mgeserial.dtypes import FLOAT32, Array
from mgeserial.errors import MgeError, ShapeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.types import Call, ShapeLike, TensorType

__all__ = ["Inference", "Stop", "call_of", "explain", "infer", "infer_node", "make_call"]

# Values up to this many elements are followed: shapes, indices, scale factors.
_SMALL = 1024


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the shape of a node's outputs is not known: the first cause on the way to it."""

    node: Node
    reason: str


@dataclass(slots=True, eq=False)
class Inference:
    """Types, values known ahead of the run, and what stopped inference where."""

    types: dict[Value, TensorType] = field(default_factory=dict)
    values: dict[Value, Array] = field(default_factory=dict)
    stops: list[Stop] = field(default_factory=list)
    cause: dict[Value, Stop] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every shape is known."""
        return all(t.is_static for t in self.types.values())


def make_call(
    node: Node,
    inputs: Sequence[TensorType],
    values: Sequence[Array | None] = (),
    outputs: Sequence[TensorType] = (),
) -> Call:
    """What the rules and the reference code of a node are given."""
    return Call(
        op=node.op,
        params=node.params,
        inputs=tuple(inputs),
        count=len(node.outputs),
        output_dtype=node.output_dtype,
        output_types=tuple(outputs),
        values=tuple(values),
        tensors=node.tensors,
        blobs=node.blobs,
    )


def call_of(node: Node, inference: Inference) -> Call:
    """The call of a node with the types that inference found."""
    types = inference.types
    return make_call(
        node,
        [types[v] for v in node.inputs],
        [inference.values.get(v) for v in node.inputs],
        [types[v] for v in node.outputs],
    )


def explain(error: MgeError, node: Node, inputs: Sequence[TensorType]) -> MgeError:
    """Add to an error of a rule which operator it was, where it stands and what it was given."""
    types = ", ".join(str(t) for t in inputs) or "nothing"
    error.message = f"{node.describe()}: {error.message}; inputs: {types}"
    origin = node.origin
    if origin is None:
        return error
    return error.located(
        path=origin.path, offset=origin.offset, where=f"graph {origin.graph}, oprs[{origin.index}]"
    )


def infer(graph: Graph, shapes: Mapping[Value, ShapeLike] | None = None) -> Inference:
    """Infer the types of all values.

    Args:
        graph: The graph.
        shapes: Shapes of inputs to use instead of the stored ones.

    Returns:
        Types of all values; unknown shapes are None, with the cause noted.

    Raises:
        ShapeError: Shapes or dtypes do not fit: names operator, place and both types.
        UnsupportedError: A rule refuses an operator's parameters.
    """
    found = Inference()
    for node in graph.nodes:
        inputs = [found.types[v] for v in node.inputs]
        try:
            infer_node(node, inputs, found, shapes)
        except MgeError as error:
            raise explain(error, node, inputs) from error.__cause__
    return found


def infer_node(
    node: Node, inputs: list[TensorType], found: Inference, shapes: Mapping[Value, ShapeLike] | None
) -> None:
    outputs = node.outputs
    rule = node.op.dtypes
    values = [found.values.get(v) for v in node.inputs]
    call = make_call(node, inputs, values)
    dtypes = list(rule(call)) if rule is not None else [FLOAT32] * len(outputs)
    given = shapes.get(outputs[0]) if shapes is not None and outputs else None
    reason = None
    if rule is None or node.op.shapes is None:
        reason = "the operator has no shape rule"
        dims: list[ShapeLike] = [None] * len(outputs)
    elif given is not None:
        dims = [given]
    elif node.op.partial or all(t.is_static for t in inputs):
        dims = list(node.op.shapes(call))
        if any(d is None or None in d for d in dims):
            reason = "its shape depends on data or on an unknown dimension"
    else:
        reason = "an input's shape is not known"
        dims = [None] * len(outputs)
    if len(dims) < len(outputs) or len(dtypes) < len(outputs):
        raise ShapeError(
            f"rules gave {len(dims)} shapes and {len(dtypes)} dtypes for {len(outputs)} outputs"
        )
    for value, dtype, shape in zip(outputs, dtypes, dims, strict=False):
        found.types[value] = TensorType(dtype, shape)
    if reason is not None:
        _note(node, reason, found)
    _follow_values(node, inputs, values, found)


def _note(node: Node, reason: str, found: Inference) -> None:
    """Remember what stopped inference: the cause of an input if there is one, else this node."""
    inherited = [found.cause[v] for v in node.inputs if v in found.cause]
    stop = inherited[0] if inherited else Stop(node, reason)
    if not inherited:
        found.stops.append(stop)
    for value in node.outputs:
        if not found.types[value].is_static:
            found.cause[value] = stop


def _follow_values(
    node: Node, inputs: list[TensorType], values: list[Array | None], found: Inference
) -> None:
    """Compute the node's values ahead of the run where they are small and all inputs are known."""
    op = node.op
    outputs = [found.types[v] for v in node.outputs]
    if op.reference is None or not op.is_pure or op.name == "Host2DeviceCopy":
        return
    if not outputs or not all(t.is_static and t.size <= _SMALL for t in outputs):
        return
    if op.name == "GetVarShape":
        if not all(t.is_static for t in inputs):
            return
        # Only the shapes matter: feed arrays without memory.
        arrays: list[Array] = [
            np.broadcast_to(np.zeros((), t.dtype.storage), t.dims) for t in inputs
        ]
    elif all(v is not None for v in values):
        arrays = [v for v in values if v is not None]
    else:
        return
    call = make_call(node, inputs, values, outputs)
    results = op.reference(call, *arrays)
    if isinstance(results, np.ndarray):
        results = (results,)
    for value, array in zip(node.outputs, results, strict=False):
        found.values[value] = array
