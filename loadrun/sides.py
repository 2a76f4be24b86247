"""The two sides of a comparison: a network, what runs it, and the values inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadrun.backends.base import CompileOptions
from loadrun.session import Session
from mgeserial.diff import align
from mgeserial.dtypes import Array
from mgeserial.errors import ExecutionError, InputError
from mgeserial.ir.copying import copy_graph, reachable
from mgeserial.ir.graph import Graph, Node, Output, Value, input_name
from mgeserial.view.families import family_of

__all__ = ["Partners", "Side", "Values", "is_operator"]

# Inner values kept or asked for at once, in bytes.
_AT_ONCE = 512 << 20
_KEPT = 2 << 30
Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Side:
    """One side.

    Attributes:
        label: `A`, `B`, ...
        path: File of the model.
        graph: The network without checks of its outputs, at the shapes of the inputs.
        backend: Name of the backend.
        threads: Threads; None: the backend's choice.
        prepare: What is done to a network before it runs, as `loadrun run` does.
        options: Further compile options; None: none.
    """

    label: str
    path: str
    graph: Graph
    backend: str
    threads: int | None = None
    prepare: Callable[[Graph], Graph] = lambda graph: graph
    options: CompileOptions | None = None

    def session(self, graph: Graph | None = None, *, prepared: bool = True) -> Session:
        """A session over the network, or over a part of it."""
        network = self.graph if graph is None else graph
        ready = self.prepare(network) if prepared else network
        return Session(ready, self.backend, self.threads, options=self.options)

    def run(self, graph: Graph, feeds: Feeds, *, prepared: bool = True) -> list[Array]:
        """Outputs of a part of the network, in order."""
        with self.session(graph, prepared=prepared) as session:
            return list(session.run(dict(feeds)).values())


def is_operator(node: Node) -> bool:
    """Whether a node computes something: no input, weight or constant, no check."""
    return family_of(node.op.name).key not in ("port", "weight") and node.op.name != "AssertEqual"


class Partners:
    """Which values of two networks stand for each other.

    For one network on two backends every value is its own partner. Of two networks, values that
    have the same name, type and shape, and values of operators that align and whose inputs are
    partners.
    """

    def __init__(self, a: Graph, b: Graph) -> None:
        self._values: dict[Value, Value] = {}
        self._same = a is b
        if self._same:
            self._values = {v: v for v in a.values()}
            return
        self._inputs(a, b)
        named = _named(b)
        outputs = dict(zip(a.outputs, a.output_names, strict=True))
        aligned = dict(align(a, b))
        # Where operators were added or removed, one that changed may be another one.
        complete = len(aligned) == len(a.nodes) == len(b.nodes)
        for node in a.nodes:
            for value in node.outputs:
                found = named.get(outputs.get(value) or value.name or "")
                if found is not None and found.type == value.type:
                    self._values[value] = found
            other = aligned.get(node)
            if other is None or any(v in self._values for v in node.outputs):
                continue
            if self._fits(node, other) and (complete or repr(node.params) == repr(other.params)):
                self._values.update(zip(node.outputs, other.outputs, strict=False))

    def _inputs(self, a: Graph, b: Graph) -> None:
        """Inputs by name; where names differ, by order."""
        by_name = dict(zip(b.input_names, b.inputs, strict=True))
        for place, value in enumerate(a.inputs):
            found = by_name.get(input_name(value))
            if found is None and len(a.inputs) == len(b.inputs):
                found = b.inputs[place]
            if found is not None:
                self._values[value] = found

    def _fits(self, node: Node, other: Node) -> bool:
        if not is_operator(node):
            return not node.is_input
        if len(node.inputs) != len(other.inputs) or len(node.outputs) != len(other.outputs):
            return False
        pairs = zip(node.inputs, other.inputs, strict=True)
        return all(self._values.get(x) is y for x, y in pairs)

    def get(self, value: Value) -> Value | None:
        """What stands for a value of the first network in the second."""
        return self._values.get(value)

    def node(self, node: Node) -> Node | None:
        """What stands for an operator of the first network in the second."""
        found = self._values.get(node.outputs[0]) if node.outputs else None
        return None if found is None else found.node

    def is_same(self, node: Node) -> bool:
        """Whether an operator and its counterpart are equal, their weights aside."""
        other = self.node(node)
        if other is None or other is node:
            return other is node
        return (
            node.op.name == other.op.name
            and repr(node.params) == repr(other.params)
            and node.output_dtype == other.output_dtype
            and self._fits(node, other)
        )

    def has_same_inputs(self, node: Node) -> bool:
        """Whether the inputs of an operator stand for those of its counterpart, one by one."""
        other = self.node(node)
        return other is node or (other is not None and self._fits(node, other))

    def feeds(self, a: Graph, feeds: Feeds) -> dict[str, Array]:
        """Inputs of the first network as inputs of the second.

        Raises:
            InputError: An input has no partner.
        """
        found = {}
        for name, value in zip(a.input_names, a.inputs, strict=True):
            other = self._values.get(value)
            if other is None:
                raise InputError(
                    f"input {name!r} of the first model has no counterpart in the second",
                    hint="`mgeserial edit MODEL --rename-input OLD=NEW` gives it one",
                )
            found[input_name(other)] = feeds[name]
        return found


def _named(graph: Graph) -> dict[str, Value]:
    """Values by their names, of those that only one value has; outputs by the outputs' names."""
    found: dict[str, Value | None] = {}
    for value in graph.values():
        if value.name and not value.node.is_input:
            found[value.name] = None if value.name in found else value
    known = {name: value for name, value in found.items() if value is not None}
    return known | dict(zip(graph.output_names, graph.outputs, strict=True))


class Values:
    """Inner values of a network, computed with every asked-for value marked as an output.

    Marked values are not fused into what uses them, so they are those of the file's operators.

    Args:
        side: Whose network.
        feeds: Its inputs.
        keep: Bytes of values that are kept to be asked for again.
    """

    def __init__(self, side: Side, feeds: Feeds, *, keep: int = _KEPT) -> None:
        self._side = side
        self._feeds = dict(feeds)
        self._kept: dict[Value, Array | None] = {}
        self._left = keep
        for name, value in zip(side.graph.input_names, side.graph.inputs, strict=True):
            self._kept[value] = self._feeds[name]

    def get(self, values: Sequence[Value]) -> list[Array | None]:
        """Arrays of some values; None for those of a branch that was not executed."""
        missing = [v for v in dict.fromkeys(values) if v not in self._kept]
        found = dict(zip(missing, self._compute(missing), strict=True)) if missing else {}
        for value, array in found.items():
            size = 0 if array is None else array.nbytes
            if size <= self._left:
                self._kept[value] = array
                self._left -= size
        return [self._kept[v] if v in self._kept else found[v] for v in values]

    def _compute(self, values: Sequence[Value]) -> list[Array | None]:
        try:
            return list(self._marked(values))
        except ExecutionError:
            # One of them has no value in this run: find out which.
            if len(values) == 1:
                return [None]
            middle = len(values) // 2
            return self._compute(values[:middle]) + self._compute(values[middle:])

    def _marked(self, values: Sequence[Value]) -> list[Array]:
        graph = self._side.graph
        needed = reachable(values) | {v.node for v in graph.inputs}
        part, copies = copy_graph(graph, only=needed)
        part.set_outputs([Output(copies[v], f"value{i}", i) for i, v in enumerate(values)])
        return self._side.run(part, self._feeds, prepared=False)

    @staticmethod
    def stretches(values: Iterable[Value]) -> Iterator[list[Value]]:
        """Values in order, as many at a time as fit into memory well."""
        some: list[Value] = []
        size = 0
        for value in values:
            own = (
                value.type.size * value.dtype.storage.itemsize if value.type.is_static else 1 << 20
            )
            if some and size + own > _AT_ONCE:
                yield some
                some, size = [], 0
            some.append(value)
            size += own
        if some:
            yield some
