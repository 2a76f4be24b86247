"""Types of all values ahead of any run: one walk over the graph, calling the records' rules.

Small chains that shapes depend on (GetVarShape, arithmetic on it, Concat, Subtensor ...) are
computed by their reference code when a shape rule asks for them, so that Reshape and its like find
their target shape; nothing else touches the values of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from mgeserial.dtypes import FLOAT32, Array
from mgeserial.errors import MgeError, ShapeError
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.types import Call, ShapeLike, TensorType

__all__ = ["Inference", "Stop", "call_of", "explain", "infer", "infer_node", "make_call"]

# Values up to this many elements are followed: shapes, indices, scale factors.
_SMALL = 1024
# Operators whose reference does work in proportion to its inputs and outputs, whatever its
# parameters: a file may not make inference pad a 1x1 image by 2**30.
_FOLLOWED = frozenset(
    {
        "AxisAddRemove", "Broadcast", "Concat", "Copy", "Dimshuffle", "Elemwise", "Identity",
        "ImmutableTensor", "IndexingMultiAxisVec", "IndexingOneHot", "MarkDynamicVar",
        "MarkNoBroadcastElemwise", "MultipleDeviceTensorHolder",
        "MultipleDeviceTensorWithFormatHolder", "Reduce", "Reshape", "SharedDeviceTensor",
        "SharedDeviceTensorWithFormat", "Split", "Subtensor", "TypeCvt", "VirtualDep",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the shape of a node's outputs is not known: the first cause on the way to it."""

    node: Node
    reason: str


@dataclass(slots=True, eq=False)
class Inference:
    """Types, and what stopped inference where; values known ahead of the run, on demand."""

    types: dict[Value, TensorType] = field(default_factory=dict)
    stops: list[Stop] = field(default_factory=list)
    cause: dict[Value, Stop] = field(default_factory=dict)
    _values: dict[Value, Array | None] = field(default_factory=dict, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether every shape is known."""
        return all(t.is_static for t in self.types.values())

    def copy(self) -> Inference:
        """A copy that can be extended without touching this one."""
        return Inference(dict(self.types), list(self.stops), dict(self.cause), dict(self._values))

    def value(self, value: Value) -> Array | None:
        """The value if it is small and does not depend on inputs' values; None if not known."""
        known = self._values
        if value in known:
            return known[value]
        stack = [value]
        while stack:
            top = stack[-1]
            node = top.node
            waiting = [] if top in known else self._needs(node)
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if top not in known:
                self._compute(node)
        return known[value]

    def _needs(self, node: Node) -> list[Value]:
        """Inputs whose values have to be looked at first."""
        if node.op.name == "GetVarShape" or not self._is_followed(node):
            return []
        return [v for v in node.inputs if v not in self._values]

    def _is_followed(self, node: Node) -> bool:
        op = node.op
        if op.reference is None or (op.name not in _FOLLOWED and op.name != "GetVarShape"):
            return False
        types = [self.types.get(v) for v in node.outputs]
        return all(t is not None and t.is_static and t.size <= _SMALL for t in types)

    def _compute(self, node: Node) -> None:
        """Note the values of a node's outputs, None where they are not known."""
        self._values.update(dict.fromkeys(node.outputs))
        reference = node.op.reference
        if reference is None or not self._is_followed(node):
            return
        inputs = [self.types[v] for v in node.inputs]
        arrays: list[Array] = []
        for value, known in zip(node.inputs, inputs, strict=True):
            if node.op.name != "GetVarShape":
                array = self._values.get(value)
            else:  # only shapes matter: arrays without memory
                array = _without_memory(known)
            if array is None:
                return
            arrays.append(array)
        call = make_call(node, inputs, arrays, [self.types[v] for v in node.outputs])
        try:
            results = reference(call, *arrays)
        except Exception:
            # Whoever runs the operator gets its error; here its value is just not known.
            return
        if isinstance(results, np.ndarray):
            results = (results,)
        self._values.update(zip(node.outputs, results, strict=False))


def _without_memory(known: TensorType) -> Array | None:
    if not known.is_static:
        return None
    try:
        return np.broadcast_to(np.zeros((), np.int8), known.dims)
    except ValueError:  # more elements than numpy can count
        return None


class _OnDemand(Sequence["Array | None"]):
    """Values of a node's inputs, computed when a rule looks at them."""

    __slots__ = ("_found", "_inputs")

    def __init__(self, found: Inference, inputs: tuple[Value, ...]) -> None:
        self._found = found
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._inputs)

    @overload
    def __getitem__(self, index: int) -> Array | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Array | None]: ...
    def __getitem__(self, index: int | slice) -> Array | Sequence[Array | None] | None:
        if isinstance(index, slice):
            return [self._found.value(v) for v in self._inputs[index]]
        return self._found.value(self._inputs[index])

    def __iter__(self) -> Iterator[Array | None]:
        return (self._found.value(v) for v in self._inputs)


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
        values=values,
        tensors=node.tensors,
        blobs=node.blobs,
    )


def call_of(node: Node, inference: Inference) -> Call:
    """The call of a node with the types that inference found."""
    types = inference.types
    return make_call(
        node,
        [types[v] for v in node.inputs],
        _OnDemand(inference, node.inputs),
        [types[v] for v in node.outputs],
    )


def explain(error: MgeError, node: Node, inputs: Sequence[TensorType]) -> MgeError:
    """Add to an error of a rule which operator it was, where it stands and what it was given."""
    types = ", ".join(str(t) for t in inputs) or "nothing"
    error.message = f"{node.describe()}: {error.message}; inputs: {types}"
    origin = node.origin
    if origin is None:
        return error
    place = f"graph {origin.graph}, oprs[{origin.index}]"
    if error.where is not None and error.where.startswith(f"oprs[{origin.index}]"):
        place, error.where = place + error.where.removeprefix(f"oprs[{origin.index}]"), None
    return error.located(path=origin.path, offset=origin.offset, where=place)


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
    """Infer the types of one node's outputs and note them in `found`.

    Raises:
        MgeError: As `infer`, without the operator's place (`explain` adds it).
    """
    try:
        _infer_node(node, inputs, found, shapes)
    except MgeError:
        raise
    except Exception as error:
        # A rule's own check is missing here; what a file holds must not end in a bare error.
        raise ShapeError(
            f"its rules cannot take these inputs and parameters ({type(error).__name__}: {error})"
        ) from error


def _infer_node(
    node: Node, inputs: list[TensorType], found: Inference, shapes: Mapping[Value, ShapeLike] | None
) -> None:
    outputs = node.outputs
    rule = node.op.dtypes
    call = make_call(node, inputs, _OnDemand(found, node.inputs))
    # A stand-in where nothing says the type: the operator cannot be run anyway.
    stand_in = node.output_dtype or FLOAT32
    dtypes = list(rule(call)) if rule is not None else [stand_in] * len(outputs)
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


def _note(node: Node, reason: str, found: Inference) -> None:
    """Remember what stopped inference: the cause of an input if there is one, else this node."""
    inherited = next((found.cause[v] for v in node.inputs if v in found.cause), None)
    stop = inherited or Stop(node, reason)
    if inherited is None:
        found.stops.append(stop)
    for value in node.outputs:
        if not found.types[value].is_static:
            found.cause[value] = stop
