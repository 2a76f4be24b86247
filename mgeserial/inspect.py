"""What a model is, as data: plain dicts and lists, ready for JSON; `mgeserial.render` makes text.

Units stand in the keys (`_bytes`, `_elements`). Nothing here reads the value of a tensor. Names are
as in the file: show them through `errors.printable`.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable
from typing import Any

from mgeserial._record import Params, SchemaEnum, SchemaFlag
from mgeserial.dtypes import DType
from mgeserial.errors import InputError, MgeError, UnsupportedError, printable
from mgeserial.ir.graph import Graph, Metadata, Node, Value, input_name
from mgeserial.ir.inference import Inference
from mgeserial.ir.model import GraphInfo, Model
from mgeserial.ir.tensor import Tensor
from mgeserial.passes.options import Layout

__all__ = [
    "SCHEMA",
    "describe_node",
    "describe_operator",
    "optimizations",
    "plain_type",
    "summarize",
]

# Number of the layout of the documents made here; it grows when a key changes its meaning or goes.
SCHEMA = 1

_HEADER_BYTES = {"MGBS": 16, "MGBC": 24, "mgv2": 4}
# Operators of which the count alone says little: their mode is counted too. So is the fused
# nonlinearity of those that have one.
_BY_MODE = frozenset({"AdaptivePooling", "Elemwise", "ElemwiseMultiType", "Pooling", "Reduce"})
_FUSED = "nonlineMode"
# Source: FORMAT section (d).
_OPTIONS = (
    "f16_io_f32_comp",
    "f16_io_comp",
    "fuse_conv_bias_nonlinearity",
    "fuse_conv_bias_with_z",
    "weight_preprocess",
    "fuse_preprocess",
    "fuse_grain",
)


def optimizations(bits: int) -> list[str]:
    """Names of the passes in `optimize_options`; bits without a name as `bit7`."""
    names = [_OPTIONS[i] if i < len(_OPTIONS) else f"bit{i}" for i in range(32) if bits >> i & 1]
    layout = bits >> 32
    if layout:
        known = {item.value: item.name for item in Layout}
        names.append(f"layout {known.get(layout, f'number {layout}')}")
    return names


def summarize(model: Model) -> dict[str, Any]:
    """Everything `mgeserial info` says of a model.

    A graph whose parameters are damaged or whose shapes do not fit is summarised as far as it goes,
    with the error's text in `problems`.
    """
    info = model.info
    graphs = [_graph(model, i, graph) for i, graph in enumerate(model.graphs)]
    document: dict[str, Any] = {"schema": SCHEMA, "kind": "info"}
    if info is not None:
        used = sum(g.nbytes for g in info.graphs)
        document |= {
            "path": info.path,
            "size_bytes": info.nbytes,
            "wrapper_bytes": info.nbytes - used,
            "description": info.kind,
            "testcases": info.testcases,
            "lite_package": None if info.lite is None else dict(info.lite),
        }
    document["graphs"] = graphs
    return document


def _graph(model: Model, index: int, graph: Graph) -> dict[str, Any]:
    problems: list[str] = []
    inference = _known_types(graph, problems)
    nodes = graph.nodes
    case = index - 1 if model.info is not None and model.info.testcases is not None else -1
    found: dict[str, Any] = {"index": index, "role": "network" if case < 0 else f"test case {case}"}
    if model.info is not None:
        found |= _storage(model.info.graphs[index], nodes)
    found |= {
        "inputs": [_value(v, input_name(v), inference) for v in graph.inputs],
        "outputs": [
            _value(v, name, inference)
            for v, name in zip(graph.outputs, graph.output_names, strict=True)
        ],
        "operators": len(nodes),
        "values": sum(len(n.outputs) for n in nodes),
        "operator_types": _types(nodes, problems),
        "parameters": _weights(graph.params),
        "computing_nodes": _computing_nodes(nodes),
        "metadata": None if graph.metadata is None else _metadata(graph.metadata),
        "shapes_known": inference is not None and not inference.stops,
        "shapes_stop_at": []
        if inference is None
        else [{"operator": s.node.index, "reason": s.reason} for s in inference.stops[:100]],
        "problems": problems,
    }
    return found


def _known_types(graph: Graph, problems: list[str]) -> Inference | None:
    """What inference says, without the element types that it only stands in for."""
    found = _infer(graph, problems)
    if found is None or all(n.op.dtypes is not None for n in graph.nodes):
        return found
    guessed: set[Value] = set()
    for node in graph.nodes:
        follows = not guessed.isdisjoint(node.inputs)
        if follows or (node.op.dtypes is None and node.output_dtype is None):
            guessed.update(node.outputs)
    types = {v: t for v, t in found.types.items() if v not in guessed}
    return Inference(types=types, stops=found.stops, cause=found.cause)


def _infer(graph: Graph, problems: list[str]) -> Inference | None:
    try:
        return graph.inference
    except UnsupportedError:
        # Valid all the same; `mgeserial check` lists what cannot be run.
        return None
    except MgeError as error:
        problems.append(str(error))
        return None


def _storage(info: GraphInfo, nodes: tuple[Node, ...]) -> dict[str, Any]:
    """Container, releases, and the sizes of the graph's parts."""
    header = _HEADER_BYTES[info.container]
    if info.container == "mgv2":
        values = sum(t.nbytes for n in nodes for t in n.tensors)
    else:
        values = info.nbytes - header - info.meta_bytes
    origin = info.origin
    return {
        "container": info.container,
        "start_bytes": info.start,
        "size_bytes": info.nbytes,
        "header_bytes": header,
        "tensor_values_bytes": values,
        "structure_bytes": info.nbytes - header - values,
        "version": origin.version,
        "written_by": list(origin.writers),
        "version_note": origin.note,
        "read_by": origin.readers,
        "table_layouts_of": info.release,
        "model_version": info.model_version,
        "hash": f"{info.hash:#018x}" if info.hash else None,
        "shared_tensors": info.shared_tensors,
        "aliases": len(info.aliases),
    }


def plain_type(dtype: DType) -> dict[str, Any]:
    """An element type; `scale` and `zero_point` are None where the type has none."""
    return {
        "dtype": dtype.name,
        "scale": None if dtype.scale is None else _number(dtype.scale),
        "zero_point": dtype.zero_point,
    }


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinities."""
    return value if math.isfinite(value) else str(value)


def _value(value: Value, name: str | None, inference: Inference | None) -> dict[str, Any]:
    dtype: DType | None = None
    shape = None
    if inference is not None and value in inference.types:
        dtype, shape = inference.types[value].dtype, inference.types[value].shape
    elif value.node.is_input and value.node.tensors:
        dtype, shape = value.node.tensors[0].dtype, value.node.tensors[0].shape or None
    plain = {"dtype": None, "scale": None, "zero_point": None}
    return {
        "name": name,
        **(plain if dtype is None else plain_type(dtype)),
        "shape": None if shape is None else list(shape),
        "operator": value.node.index,
    }


def _types(nodes: tuple[Node, ...], problems: list[str]) -> list[dict[str, Any]]:
    """Operators by type with counts, most frequent first."""
    counts = collections.Counter(n.op.name for n in nodes)
    variants: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    fields: dict[str, str] = {}
    damaged = 0
    for node in nodes:
        try:
            params = node.params
        except MgeError as error:
            damaged += 1
            text = str(error)
            if damaged <= 10 and text not in problems and not isinstance(error, UnsupportedError):
                problems.append(text)
            continue
        field = _variant_field(node.op.name, params)
        if field is not None:
            fields[node.op.name] = field
            variants[node.op.name][str(getattr(params[0], field))] += 1
    unknown = {n.op.name for n in nodes if "unknown" in n.op.tags}
    return [
        {
            "type": name,
            "count": count,
            "known": name not in unknown,
            "variant_of": fields.get(name),
            "variants": dict(variants[name].most_common()) if name in variants else {},
        }
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _variant_field(name: str, params: tuple[Any, ...]) -> str | None:
    if not params or not isinstance(params[0], Params):
        return None
    if _FUSED in params[0].FIELDS:
        return _FUSED
    return "mode" if name in _BY_MODE and "mode" in params[0].FIELDS else None


def _weights(nodes: Iterable[Node]) -> dict[str, Any]:
    """Stored tensors: how many, of what types, in what operators, how large."""
    by_type: dict[str, list[int]] = {}
    by_operator: collections.Counter[str] = collections.Counter()
    for node in nodes:
        for tensor in node.tensors:
            if tensor.has_value:
                by_operator[node.op.name] += 1
                sums = by_type.setdefault(tensor.dtype.name, [0, 0, 0])
                sums[0] += 1
                sums[1] += tensor.size
                sums[2] += tensor.nbytes
    return {
        "tensors": sum(s[0] for s in by_type.values()),
        "elements": sum(s[1] for s in by_type.values()),
        "values_bytes": sum(s[2] for s in by_type.values()),
        "by_dtype": {
            name: {"tensors": s[0], "elements": s[1], "values_bytes": s[2]}
            for name, s in sorted(by_type.items(), key=lambda item: -item[1][2])
        },
        "by_operator": dict(by_operator.most_common()),
    }


def _computing_nodes(nodes: tuple[Node, ...]) -> dict[str, int]:
    """Locators of computing nodes with the number of operators on each."""
    found: collections.Counter[str] = collections.Counter()
    for node in nodes:
        found.update(set(filter(None, node.comp_nodes)))
    return dict(found.most_common())


def _metadata(metadata: Metadata) -> dict[str, Any]:
    return {
        "is_valid": metadata.is_valid,
        "graph_modified": metadata.graph_modified,
        "optimize_options": metadata.optimize_options,
        "optimizations": optimizations(metadata.optimize_options),
        "user_info_bytes": len(metadata.user_info),
    }


# --- one operator --------------------------------------------------------------------------------


def describe_operator(graph: Graph, index: int) -> dict[str, Any]:
    """Everything known of one operator.

    Args:
        graph: The graph.
        index: The operator's place in the file.

    Raises:
        InputError: There is no such operator.
        MgeError: Its parameters are damaged or not known.
    """
    nodes = graph.nodes
    if not 0 <= index < len(nodes):
        raise InputError(
            f"operator {index} does not exist: the graph has {len(nodes)}",
            path=graph.path,
            hint=f"operators are counted from 0 to {len(nodes) - 1}" if nodes else None,
        )
    problems: list[str] = []
    inference = _known_types(graph, problems)
    return {
        "schema": SCHEMA,
        "kind": "operator",
        "index": index,
        **describe_node(nodes[index], inference),
        "problems": problems,
    }


def describe_node(
    node: Node, inference: Inference | None, *, problems: list[str] | None = None
) -> dict[str, Any]:
    """Everything known of one operator but its place.

    Args:
        node: The operator.
        inference: Types of values; None: not known.
        problems: Where damage is noted instead of raising; its parameters are then left out.

    Raises:
        MgeError: Its parameters are damaged or not known.
    """
    names = node.op.input_names
    params: list[dict[str, Any]] = []
    blobs: list[int] = []
    try:
        params = [_params(p) for p in node.params]
        blobs = [len(b) for b in node.blobs]
    except MgeError as error:
        if problems is None:
            raise
        problems.append(str(error))
    return {
        "type": node.op.name,
        "name": node.name,
        "offset_bytes": None if node.origin is None else node.origin.offset,
        "stored_id": None if node.stored_id is None else _stored_id(node.stored_id),
        "params": params,
        "inputs": [
            {
                "role": names[min(i, len(names) - 1)] if names else None,
                **_value(v, v.display_name, inference),
            }
            for i, v in enumerate(node.inputs)
        ],
        "outputs": [
            {**_value(v, v.name, inference), "users": [n.index for n in v.users]}
            for v in node.outputs
        ],
        "output_dtype": None if node.output_dtype is None else plain_type(node.output_dtype),
        "tensors": [_tensor(t) for t in node.tensors],
        "blobs_bytes": blobs,
        "computing_nodes": list(node.comp_nodes),
        "priority": node.priority,
        "has_unknown_fields": node.unknown is not None,
    }


def _stored_id(stored: tuple[str | None, int, int]) -> dict[str, Any]:
    text, version, type_id = stored
    return {"type": text, "version": version or None, "type_id": f"{type_id:#018x}"}


def _params(params: Params | object) -> dict[str, Any]:
    if not isinstance(params, Params):  # a table of a newer release
        return {"table": None, "fields": {}, "changed": []}
    default = type(params)()
    fields = {name: _field(value) for name, value in params.as_items()}
    changed = [n for n, v in params.as_items() if _field(v) != _field(getattr(default, n))]
    return {"table": params.TABLE, "fields": fields, "changed": changed}


def _field(value: Any) -> Any:
    """A parameter's value as JSON has it; enums by name."""
    if isinstance(value, (SchemaEnum, SchemaFlag)):
        return str(value)
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value.name if hasattr(value, "name") else int(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_field(v) for v in value]
    if hasattr(value, "as_items"):
        return {n: _field(v) for n, v in value.as_items()}
    return printable(str(value))


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        **plain_type(tensor.dtype),
        "shape": list(tensor.shape),
        "values_bytes": tensor.nbytes if tensor.has_value else None,
        "offset_bytes": tensor.offset if tensor.has_value else None,
        "computing_node": tensor.comp_node,
    }
