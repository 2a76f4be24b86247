"""Graphs: nodes in topological order, values with their producers and users.

A graph changes only through its own methods (`mgeserial.ir.editing` builds on the few primitives
here); parameter records are frozen and tensors read-only. Every change bumps `Graph.revision`, so
that what was derived (types, orders) is known to be stale.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mgeserial._record import Params
from mgeserial.arguments import shown
from mgeserial.dtypes import DType
from mgeserial.errors import GraphError, MgeError, printable
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import Operator, ShapeLike, TensorType

if TYPE_CHECKING:
    from mgeserial.ir.inference import Inference

__all__ = ["INPUT", "Graph", "Lazy", "Metadata", "Node", "Origin", "Output", "Value"]

# Name of the record whose values callers feed.
INPUT = "Host2DeviceCopy"


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a graph.

    `user_info` is whatever bytes the writer chose (often a pickle): never interpreted here.
    `optimize_options` is MegEngine's bit set of passes already applied.
    """

    is_valid: bool = False
    graph_modified: bool = False
    user_info: bytes = b""
    optimize_options: int = 0
    unknown: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node stands in a file: graph, index of the operator, byte offset of its table."""

    path: str | None
    graph: int
    index: int
    offset: int


class Lazy:
    """A tuple decoded on first touch: parameter records or blobs of a file.

    Args:
        decode: Decodes what the file has, also what is not understood. Called once.
        check: Makes what is handed out of it, or raises; None: as it is.
    """

    __slots__ = ("_check", "_decode", "_error", "_found", "_stored")

    def __init__(
        self,
        decode: Callable[[], tuple[Any, ...]],
        check: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None,
    ) -> None:
        self._decode = decode
        self._check = check
        self._stored: tuple[Any, ...] | None = None
        self._found: tuple[Any, ...] | None = None
        self._error: MgeError | None = None

    def stored(self) -> tuple[Any, ...]:
        """The tuple as the file has it, for writing it back."""
        if self._stored is None:
            if self._error is not None:
                raise copy.copy(self._error)
            try:
                self._stored = self._decode()
            except MgeError as error:
                # Kept, as decoding again would be charged to the work that a file may cause.
                self._error = copy.copy(error)
                raise
        return self._stored

    def get(self) -> tuple[Any, ...]:
        """The decoded tuple (raises the errors of decoding)."""
        if self._found is None:
            stored = self.stored()
            self._found = stored if self._check is None else self._check(stored)
        return self._found


class Value:
    """One output of a node: what other nodes use.

    Attributes:
        name: Name in the file or given by an edit; None when not kept. Names are no keys: inner
            values may share one.
    """

    __slots__ = ("_index", "_node", "_users", "name")

    def __init__(self, node: Node, index: int, name: str | None) -> None:
        self._node = node
        self._index = index
        self._users: dict[Node, int] = {}
        self.name = name

    @property
    def node(self) -> Node:
        """The node that produces the value."""
        return self._node

    @property
    def index(self) -> int:
        """Which of its node's outputs the value is."""
        return self._index

    @property
    def users(self) -> tuple[Node, ...]:
        """Nodes that use the value, each once, in order of first use."""
        return tuple(self._users)

    @property
    def type(self) -> TensorType:
        """What inference says of the value (shape None where unknown)."""
        return self._node.graph.inference.types[self]

    @property
    def shape(self) -> ShapeLike:
        """Inferred shape: None for unknown rank, None as a dimension that is not known."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Inferred element type."""
        return self.type.dtype

    @property
    def display_name(self) -> str:
        """A name to show: its own, or the node's name and output index."""
        if self.name is not None:
            return self.name
        base = self._node.display_name
        return base if len(self._node.outputs) == 1 else f"{base}:o{self._index}"

    def __repr__(self) -> str:
        return f"Value({self.display_name!r})"


class Node:
    """One operator of a graph.

    Attributes:
        op: The operator's record.
        name: Name in the file, None when not kept.
        output_dtype: The dtype stored with the operator, if any.
        comp_nodes: Locators of its computing nodes, in file order (None: an absent string).
        priority: Scheduling priority.
        tensors: Tensors stored with it.
        origin: Where it stands in a file; None for nodes made here.
        unknown: Fields of a newer release, kept to be written back.
        stored_id: (type text, opr_version, type_id) as the file had it.
    """

    __slots__ = (
        "_blobs",
        "_graph",
        "_inputs",
        "_outputs",
        "_params",
        "comp_nodes",
        "name",
        "op",
        "origin",
        "output_dtype",
        "priority",
        "stored_id",
        "tensors",
        "unknown",
    )

    def __init__(
        self,
        graph: Graph,
        op: Operator,
        *,
        params: tuple[Params, ...] | Lazy = (),
        name: str | None = None,
        output_dtype: DType | None = None,
        comp_nodes: tuple[str | None, ...] = (),
        priority: int = 0,
        tensors: tuple[Tensor, ...] = (),
        blobs: tuple[bytes, ...] | Lazy = (),
        origin: Origin | None = None,
        unknown: Any = None,
        stored_id: tuple[str | None, int, int] | None = None,
    ) -> None:
        self._graph = graph
        self.op = op
        self._params = params
        self._inputs: tuple[Value, ...] = ()
        self._outputs: tuple[Value, ...] = ()
        self.name = name
        self.output_dtype = output_dtype
        self.comp_nodes = comp_nodes
        self.priority = priority
        self.tensors = tensors
        self._blobs = blobs
        self.origin = origin
        self.unknown = unknown
        self.stored_id = stored_id

    @property
    def graph(self) -> Graph:
        """The graph the node belongs to."""
        return self._graph

    @property
    def params(self) -> tuple[Any, ...]:
        """Parameter records in the order of the operator's record."""
        params = self._params
        return params.get() if isinstance(params, Lazy) else params

    @property
    def stored_params(self) -> tuple[Any, ...]:
        """What a file has of the parameters: as `params`, and opaque what is not understood."""
        params = self._params
        return params.stored() if isinstance(params, Lazy) else params

    @property
    def param(self) -> Any:
        """The first parameter record.

        Raises:
            GraphError: The operator has none.
        """
        params = self.params
        if not params:
            raise GraphError(f"{self.describe()} has no parameters")
        return params[0]

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """Opaque data stored with the operator."""
        blobs = self._blobs
        return blobs.get() if isinstance(blobs, Lazy) else blobs

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values used, in order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values produced: those with an id, in order."""
        return self._outputs

    @property
    def index(self) -> int:
        """Place in the graph's order."""
        return self._graph.index_of(self)

    @property
    def is_input(self) -> bool:
        """Whether callers feed its value."""
        return self.op.name == INPUT

    @property
    def display_name(self) -> str:
        """A name to show: its own, its first output's, or operator and place."""
        if self.name is not None:
            return self.name
        if self._outputs and self._outputs[0].name is not None:
            return self._outputs[0].name
        return f"{self.op.name}[{self.index}]"

    def describe(self) -> str:
        """`operator 17 "conv1" (Convolution)`, for messages."""
        place = self.origin.index if self.origin is not None else self.index
        return f'operator {place} "{printable(self.display_name)}" ({self.op.name})'

    def __repr__(self) -> str:
        return f"Node({self.op.name}, {self.display_name!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """An output of a graph: the value, its name, the id it had in the writing process."""

    value: Value
    name: str | None
    original_id: int


@dataclass(slots=True, eq=False)
class _Derived:
    """What was computed from the graph, and at which revision."""

    revision: int = -1
    positions: dict[Node, int] = field(default_factory=dict)
    inference: Inference | None = None
    inferred_at: int = -1
    # Shapes of the inputs other than the stated ones, found by `mgeserial.passes.sizes`.
    other_sizes: tuple[tuple[tuple[int, ...], ...], ...] | None = None


class Graph:
    """A network: nodes in topological order, named outputs, metadata.

    Iterating over `nodes` gives the state at that moment: edits meanwhile do not disturb it.
    """

    def __init__(self, *, name: str | None = None) -> None:
        self._nodes: list[Node] = []
        self._outputs: list[Output] = []
        self._derived = _Derived()
        self._revision = 0
        self.name = name
        self.metadata: Metadata | None = None
        self.unknown: Any = None
        self.path: str | None = None

    @property
    def revision(self) -> int:
        """Number of changes so far."""
        return self._revision

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in topological order."""
        return tuple(self._nodes)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that the caller feeds (Host2DeviceCopy), in file order."""
        return tuple(n.outputs[0] for n in self._nodes if n.is_input)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, as a caller gives them (the stored tensor's name)."""
        return tuple(input_name(v) for v in self.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values that are results, in order; the same one may occur twice."""
        return tuple(o.value for o in self._outputs)

    @property
    def output_list(self) -> tuple[Output, ...]:
        """Outputs with their names and original ids."""
        return tuple(self._outputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Unique names: a repeated one gets `#1`, a missing one is `unnamed0`."""
        given = (o.name or o.value.name or f"unnamed{i}" for i, o in enumerate(self._outputs))
        return tuple(unique_names(given))

    @property
    def params(self) -> tuple[Node, ...]:
        """Nodes that hold weights and constants."""
        return tuple(n for n in self._nodes if n.tensors and not n.is_input)

    @property
    def inference(self) -> Inference:
        """Types of all values, computed when first asked for and after changes."""
        derived = self._derived
        if derived.inference is None or derived.inferred_at != self._revision:
            from mgeserial.ir.inference import infer

            derived.inference = infer(self)
            derived.inferred_at = self._revision
        return derived.inference

    def index_of(self, node: Node) -> int:
        """Place of a node in the order.

        Raises:
            GraphError: The node is not (or no longer) part of the graph.
        """
        derived = self._derived
        if derived.revision != self._revision:
            derived.positions = {n: i for i, n in enumerate(self._nodes)}
            derived.revision = self._revision
        found = derived.positions.get(node)
        if found is None:
            raise GraphError("the node is not part of this graph")
        return found

    def values(self) -> Iterator[Value]:
        """Every value, in id order."""
        for node in self.nodes:
            yield from node.outputs

    # -- primitives of change; editing.py and passes build on them -------------------------------

    def touch(self) -> None:
        """Note that something changed."""
        self._revision += 1

    def add(
        self,
        op: Operator,
        inputs: Sequence[Value],
        *,
        outputs: int | Sequence[str | None] = 1,
        at: int | None = None,
        **attributes: Any,
    ) -> Node:
        """Add a node at the end, or at place `at`.

        Args:
            op: The operator's record.
            inputs: Values of this graph that stand before the place.
            outputs: Number of outputs, or their names.
            at: Place in the order; None: last.
            **attributes: What `Node` takes: params, name, output_dtype, tensors, ...

        Raises:
            GraphError: An input belongs to another graph, or the operator is no record.
        """
        if isinstance(op, str):
            raise GraphError(
                f"an operator's record is needed, got {shown(op)}",
                hint="mgeserial.ops.registry.by_name(...); GraphBuilder.apply takes names",
            )
        node = Node(self, op, **attributes)
        names: Sequence[str | None] = [None] * outputs if isinstance(outputs, int) else outputs
        node._outputs = tuple([Value(node, i, name) for i, name in enumerate(names)])
        self.connect(node, inputs)
        if at is None:
            self._nodes.append(node)
        else:
            self._nodes.insert(at, node)
        self._revision += 1
        return node

    def connect(self, node: Node, inputs: Sequence[Value]) -> None:
        """Give a node its inputs, keeping the users of values in step."""
        for value in inputs:
            if value._node._graph is not self:
                raise GraphError(f"{value!r} belongs to another graph")
        for old in node._inputs:
            left = old._users[node] - 1
            if left:
                old._users[node] = left
            else:
                del old._users[node]
        node._inputs = tuple(inputs)
        for value in node._inputs:
            value._users[node] = value._users.get(node, 0) + 1
        self._revision += 1

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs nothing uses.

        Raises:
            GraphError: An output is used or is an output of the graph.
        """
        for value in node._outputs:
            if value._users or any(o.value is value for o in self._outputs):
                raise GraphError(f"{node.describe()} is still used")
        self.connect(node, ())
        self._nodes.remove(node)
        self._revision += 1

    def set_outputs(self, outputs: Sequence[Output]) -> None:
        """Replace the list of outputs.

        Raises:
            GraphError: Something is no `Output`.
        """
        _need(outputs, Output, "outputs of a graph")
        self._outputs = list(outputs)
        self._revision += 1

    def reorder(self, nodes: Sequence[Node]) -> None:
        """Replace the order by a permutation of the same nodes that is topological.

        Raises:
            GraphError: Not the same nodes, or a node stands before one it uses.
        """
        if len(nodes) != len(self._nodes) or set(nodes) != set(self._nodes):
            raise GraphError("the new order does not have the same nodes")
        seen: set[Node] = set()
        for node in nodes:
            if any(v._node not in seen for v in node._inputs):
                raise GraphError(f"{node.describe()} stands before a node it uses")
            seen.add(node)
        self._nodes = list(nodes)
        self._revision += 1

    def set_params(self, node: Node, params: tuple[Params, ...]) -> None:
        """Replace a node's parameter records."""
        node._params = params
        self._revision += 1

    def set_op(self, node: Node, op: Operator, params: tuple[Params, ...]) -> None:
        """Turn a node into another operator with the same inputs and outputs."""
        node.op = op
        node._params = params
        node.stored_id = None
        self._revision += 1

    def set_tensors(self, node: Node, tensors: tuple[Tensor, ...]) -> None:
        """Replace the tensors stored with a node.

        Raises:
            GraphError: Something is no `Tensor`.
        """
        _need(tensors, Tensor, "tensors of an operator")
        node.tensors = tensors
        self._revision += 1

    def __repr__(self) -> str:
        names = f"inputs={list(self.input_names)}, outputs={list(self.output_names)}"
        return f"Graph({len(self._nodes)} operators, {names})"


def unique_names(names: Iterable[str]) -> list[str]:
    """The names in order; one that was there before gets `#1`, `#2` ... behind it."""
    found: dict[str, None] = {}
    seen: dict[str, int] = {}
    for base in names:
        name, n = base, seen.get(base, 0)
        while name in found:
            n += 1
            name = f"{base}#{n}"
        seen[base] = n
        found[name] = None
    return list(found)


def _need(given: Sequence[object], kind: type, what: str) -> None:
    wrong = [x for x in given if not isinstance(x, kind)]
    if wrong:
        raise GraphError(f"{what} are {kind.__name__} objects, got {shown(wrong[0])}")


def input_name(value: Value) -> str:
    """Name a caller feeds an input by: the stored tensor's, else the value's."""
    tensors = value.node.tensors
    if tensors and tensors[0].name is not None:
        return tensors[0].name
    return value.name or value.node.display_name
