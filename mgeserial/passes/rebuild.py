"""A walk over a graph that makes a new one: how every pass works.

Nodes are taken in order; each is carried over with its inputs' new values, or something else is
built instead. Types are inferred as nodes are added, so a mistake shows where it is made. The cost
of a pass is in proportion to the graph, however many places it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mgeserial.author.layers import GraphBuilder
from mgeserial.dtypes import Array, DType
from mgeserial.errors import MgeError
from mgeserial.ir.copying import copy_graph, copy_node, reachable
from mgeserial.ir.graph import Graph, Node, Output, Value
from mgeserial.ir.inference import explain, infer_node
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import TensorType
from mgeserial.ops import registry

__all__ = ["Rebuild"]


class Rebuild(GraphBuilder):
    """Builds the graph that takes the place of `source`.

    Everything a `GraphBuilder` does is there to make new operators. `self[value]` is the new value
    of an old one.
    """

    def __init__(self, source: Graph) -> None:
        super().__init__()
        self.source = source
        self.values: dict[Value, Value] = {}
        self._named = {o.value: o.name for o in source.output_list}
        self._taken: dict[Value, Value] = {}
        self.final: dict[Value, Value] = {}
        graph = self._graph
        graph.name, graph.metadata = source.name, source.metadata
        graph.unknown, graph.path = source.unknown, source.path

    def __getitem__(self, old: Value) -> Value:
        """The new value of an old one (KeyError: its node was not carried yet)."""
        return self.values[old]

    def type_of(self, value: Value) -> TensorType:
        """Type of a value of the new graph."""
        return self._found.types[value]

    def known(self, value: Value) -> Array | None:
        """Small value of the new graph that is known ahead of any run (shapes, indices)."""
        return self._found.value(value)

    def carry(self, node: Node, inputs: Sequence[Value] | None = None) -> Node:
        """Copy a node of the source; its outputs become the new values of the old ones.

        Args:
            node: A node of the source.
            inputs: New values to use; None: those of its inputs.
        """
        if inputs is None:
            new = copy_node(self._graph, node, self.values)
            self._infer_carried(new)
        else:
            new = self.like(node, inputs)
            self.values.update(zip(node.outputs, new.outputs, strict=True))
        for old in node.outputs:
            if old in self._named:
                self._taken[self.values[old]] = old
        return new

    def like(self, node: Node, inputs: Sequence[Value], **changes: object) -> Node:
        """Add a node like `node` with other inputs; `changes` as `Graph.add` takes them.

        The old node's outputs keep the new values they have.
        """
        attributes: dict[str, object] = {
            "outputs": [v.name for v in node.outputs],
            "params": node._params,
            "name": node.name,
            "output_dtype": node.output_dtype,
            "comp_nodes": node.comp_nodes,
            "priority": node.priority,
            "tensors": node.tensors,
            "blobs": node._blobs,
            "origin": node.origin,
            "unknown": node.unknown,
            "stored_id": node.stored_id,
        }
        attributes.update(changes)
        op = attributes.pop("op", node.op)
        new = self._graph.add(op, inputs, **attributes)  # type: ignore[arg-type]
        self._infer_carried(new)
        return new

    def _infer_carried(self, node: Node) -> None:
        inputs = [self._found.types[v] for v in node.inputs]
        try:
            infer_node(node, inputs, self._found, None)
        except MgeError as error:
            raise explain(error, node, inputs) from error.__cause__

    def objection(self, old: Value, new: Value) -> str | None:
        """Why `new` cannot stand for `old`: both are seen from outside under names of their own."""
        if old not in self._named:
            return None
        if new.node.is_input:
            return "it is an output of the network, and its value an input"
        other = self._taken.get(new)
        if other is not None and other is not old:
            return f"two outputs would be one: {old.display_name!r} and {other.display_name!r}"
        return None

    def put(self, old: Value, new: Value) -> None:
        """Let users of `old` use `new`; a new value without a name takes over the old one's.

        An output of the network keeps its name whatever it is made by.
        """
        if old in self._named:
            self._taken[new] = old
            new.name = self._named[old] or old.name or new.name
        elif new.name is None and old.name is not None:
            new.name = old.name
            if new.node.name is None:
                new.node.name = old.node.name
        self.values[old] = new

    def weight(self, array: Array, dtype: DType, like: Node | None = None) -> Value:
        """Add a weight that holds `array`, of the kind of the leaf `like` (default: a constant)."""
        op = "ImmutableTensor" if like is None or len(like.tensors) != 1 else like.op.name
        if op not in ("ImmutableTensor", "SharedDeviceTensor"):
            op = "SharedDeviceTensor"
        node_of = like.tensors[0].comp_node if like is not None and like.tensors else "xpux:0"
        tensor = Tensor.of(np.ascontiguousarray(array), dtype, comp_node=node_of or "xpux:0")
        comp_nodes = like.comp_nodes if like is not None else ()
        node = self._graph.add(
            registry.by_name(op), (), outputs=[None], tensors=(tensor,), comp_nodes=comp_nodes[:1]
        )
        self._infer_carried(node)
        return node.outputs[0]

    def stored(self, op: str, tensor: Tensor) -> Value:
        """Add an operator that holds one tensor, such as SharedDeviceTensorWithFormat."""
        return self._leaf(op, tensor, None, ())[0]

    def finish(self, *, keep: Iterable[Value] = ()) -> Graph:
        """The new graph: outputs as in the source, without what no output needs.

        Args:
            keep: Further new values whose nodes stay.
        """
        outputs = [
            Output(self.values[o.value], o.name, o.original_id) for o in self.source.output_list
        ]
        for out in outputs:
            if out.value.name is None:
                out.value.name = out.name
        self._graph.set_outputs(outputs)
        needed = reachable([*self._graph.outputs, *keep])
        needed |= {n for n in self._graph.nodes if n.is_input}
        new, self.final = copy_graph(self._graph, only=needed)
        new._derived.other_sizes = self.source._derived.other_sizes
        return new

    def survives(self, value: Value) -> bool:
        """After `finish`: whether a value built here is part of the result."""
        return value in self.final

    @classmethod
    def of(cls, source: Graph, convert: Callable[[Rebuild, Node], bool]) -> Graph:
        """Rebuild a graph: `convert` handles a node and says so, or the node is carried over."""
        build = cls(source)
        for node in source.nodes:
            if not convert(build, node):
                build.carry(node)
        return build.finish()
