"""What a model file says, as plain data that can be compared: for round trips.

`raw_records` is everything of the file that a reader can see; `meaning` is what is left when a
graph moves to another container: no ids of containers, no versions, no names of inner values.
"""

from __future__ import annotations

import hashlib
from typing import Any

from mgeserial.format.container import Layout, open_source, walk
from mgeserial.format.raw import RawGraph, RawOperator
from mgeserial.ir.graph import Graph
from mgeserial.ir.model import Model


def raw_records(data: bytes) -> list[Any]:
    """All graphs of a file, and how they are wrapped."""
    layout = Layout()
    graphs = [_graph(raw) for raw in walk(open_source(data), layout)]
    return [layout.testcases, graphs]


def _graph(raw: RawGraph) -> dict[str, Any]:
    meta = raw.metadata
    variables = raw.variables
    return {
        "container": raw.container,
        "version": raw.version,
        "model_version": raw.model_version,
        "hash": raw.hash,
        "shared": raw.shared_tensors,
        "outputs": raw.outputs,
        "aliases": raw.aliases,
        "names": None if variables is None else [v.name for v in variables],
        "metadata": meta
        and (meta.is_valid, meta.graph_modified, meta.user_info, meta.optimize_options),
        "operators": [_operator(item) for item in raw.operators],
    }


def _operator(item: RawOperator) -> tuple[Any, ...]:
    tensors = [
        (
            t.name,
            t.shape,
            t.dtype,
            t.comp_node,
            t.format,
            None if t.data is None else digest(t.data),
        )
        for t in item.tensors
    ]
    return (
        item.type_id, item.type_name, item.version, item.name, item.inputs, item.outputs,
        item.output_names, item.comp_nodes, item.output_dtype, tensors, item.priority,
        item.decode_params(item.param_refs), item.decode_blobs(item.blob_refs),
    )  # fmt: skip


def digest(data: bytes | memoryview) -> str:
    """Short for a tensor's bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def meaning(model: Model) -> list[Any]:
    """What a model computes and how it is called."""
    wrapped = model.info is not None and model.info.testcases is not None
    return [wrapped, [graph_meaning(graph) for graph in model.graphs]]


def graph_meaning(graph: Graph) -> dict[str, Any]:
    """Operators, links, values, inputs and outputs of one graph."""
    ids = {value: i for i, value in enumerate(graph.values())}
    nodes = []
    for node in graph.nodes:
        tensors = [
            (t.shape, t.dtype, digest(t.numpy().tobytes()) if t.has_value and t.size else None)
            for t in node.tensors
        ]
        # The format of a tensor stands in a blob in v1, with the tensor in v2.
        kept = () if node.op.name.startswith("MultipleDeviceTensor") else node.blobs
        nodes.append(
            (
                node.op.name,
                node.params,
                [ids[v] for v in node.inputs],
                len(node.outputs),
                node.output_dtype,
                node.comp_nodes,
                node.priority,
                tensors,
                kept,
            )
        )
    return {
        "nodes": nodes,
        "inputs": graph.input_names,
        "outputs": [
            (ids[v], name) for v, name in zip(graph.outputs, graph.output_names, strict=True)
        ],
        "metadata": graph.metadata,
    }
