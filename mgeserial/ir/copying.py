"""Copies of graphs: a session's snapshot, the start of every pass."""

from __future__ import annotations

from collections.abc import Iterable

from mgeserial.ir.graph import Graph, Node, Output, Value

__all__ = ["copy_graph", "copy_node", "reachable"]


def copy_node(graph: Graph, node: Node, values: dict[Value, Value]) -> Node:
    """Add a copy of `node` to `graph`; `values` maps old values to new ones and is extended.

    Parameters (frozen), tensors (read-only) and opaque data are shared, not copied.
    """
    new = graph.add(
        node.op,
        [values[v] for v in node.inputs],
        outputs=[v.name for v in node.outputs],
        params=node._params,
        name=node.name,
        output_dtype=node.output_dtype,
        comp_nodes=node.comp_nodes,
        priority=node.priority,
        tensors=node.tensors,
        blobs=node._blobs,
        origin=node.origin,
        unknown=node.unknown,
        stored_id=node.stored_id,
    )
    values.update(zip(node.outputs, new.outputs, strict=True))
    return new


def reachable(values: Iterable[Value]) -> set[Node]:
    """Nodes that the values need, their own included."""
    stack = [v.node for v in values]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(v.node for v in node.inputs)
    return seen


def copy_graph(graph: Graph, *, only: set[Node] | None = None) -> tuple[Graph, dict[Value, Value]]:
    """Copy a graph, or the nodes in `only` (which must contain what they use).

    Returns:
        The copy, and the new value for each old one. Outputs whose values are copied are kept.
    """
    new = Graph(name=graph.name)
    new.metadata = graph.metadata
    new.unknown = graph.unknown
    new.path = graph.path
    values: dict[Value, Value] = {}
    for node in graph.nodes:
        if only is None or node in only:
            copy_node(new, node, values)
    new.set_outputs(
        [
            Output(values[o.value], o.name, o.original_id)
            for o in graph.output_list
            if o.value in values
        ]
    )
    return new, values
