"""Does with a model all that reading means: what hostile bytes are put through."""

from __future__ import annotations

import json

import mgeserial
from mgeserial.errors import MgeError
from mgeserial.inspect import summarize
from mgeserial.ir.graph import Node
from mgeserial.render import summary_text

# Tensors larger than this are left alone: their views cost nothing, unpacking low bits would.
_UNPACKED = 1 << 22


def exercise(data: bytes | memoryview) -> list[MgeError]:
    """Load, decode every parameter, blob and tensor, infer, summarise as JSON and as text.

    Returns:
        The errors met, all of this project; anything else is raised.
    """
    try:
        model = mgeserial.load(data)
    except MgeError as error:
        return [error]
    errors: list[MgeError] = []
    for graph in model.graphs:
        for node in graph.nodes:
            errors += _touch(node)
        try:
            for value in (*graph.inputs, *graph.outputs):
                _ = value.shape, value.dtype, value.display_name
        except MgeError as error:
            errors.append(error)
        _ = graph.input_names, graph.output_names, repr(graph)
    try:
        _ = model.testcases
    except MgeError as error:
        errors.append(error)
    summary = summarize(model)
    json.dumps(summary, allow_nan=False)
    summary_text(summary)
    return errors


def _touch(node: Node) -> list[MgeError]:
    """Everything of an operator that is decoded on first touch."""
    try:
        _ = node.params, node.blobs, node.describe()
        for tensor in node.tensors:
            if tensor.has_value and tensor.size <= _UNPACKED:
                tensor.numpy()
    except MgeError as error:
        return [error]
    return []


def causes(error: BaseException) -> list[BaseException]:
    """The error and what led to it."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(found) < 20:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found
