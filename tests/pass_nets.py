"""Small helpers for tests of passes: text of a graph, one pass at a time, outputs kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph, Value
from mgeserial.passes.base import Log, Pass, run_passes
from mgeserial.passes.census import kind_of
from mgeserial.passes.evaluate import HOLDERS, OutputCheck

RNG = np.random.default_rng


def text(graph: Graph) -> str:
    """The operators of a graph, one a line, weights as their shapes."""
    names: dict[Value, str] = {}
    lines = []
    for node in graph.nodes:
        for value in node.outputs:
            if node.op.name in HOLDERS:
                tensor = node.tensors[value.index]
                short = f"{tensor.numpy().reshape(-1)[0]:g}" if tensor.size == 1 else tensor.shape
                names[value] = f"{short}"
            elif node.op.name == "Host2DeviceCopy":
                names[value] = node.tensors[0].name or "?"
            else:
                names[value] = f"v{len(lines)}"
        if node.op.name in HOLDERS or node.op.name == "Host2DeviceCopy":
            continue
        inputs = ", ".join(names[v] for v in node.inputs)
        kind = kind_of(node).removesuffix("[NCHW]").replace("Elemwise:", "")
        lines.append(f"{', '.join(names[v] for v in node.outputs)} = {kind}({inputs})")
    return "\n".join(lines)


def of(build: Any) -> Graph:
    """A graph with one output `out` from a function of a builder."""
    b = GraphBuilder()
    b.output(build(b), "out")
    return b.graph()


def feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs."""
    rng = RNG(seed)
    found = {}
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        kind = value.type
        low, high = (-1, 1) if kind.dtype.is_float else (0, 255)
        found[name] = rng.uniform(low, high, kind.dims).astype(kind.dtype.storage)
    return found


def apply(
    graph: Graph, *passes: Pass, exact: bool = False, **tolerance: Any
) -> tuple[Graph, list[str], list[str]]:
    """Run passes; outputs stay, a second run changes nothing.

    Returns:
        The new graph, `rule: detail` of each rewrite, and the reasons of near-misses.
    """
    limits = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-4, "atol": 1e-5}
    check = OutputCheck(feeds(graph), **{**limits, **tolerance})
    before = text(graph)
    new, results = run_passes(graph, passes, check=check)
    assert text(graph) == before
    for item in passes:
        log = Log(item.name)
        item.run(new, log)
        assert not log.rewrites, f"{item.name} is not idempotent: {log.rewrites[0]}"
    rewrites = [
        f"{r.rule}: {r.detail}" if r.detail else r.rule for p in results for r in p.rewrites
    ]
    return new, rewrites, [m.reason for p in results for m in p.near_misses]


def uniform(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """float32 numbers between -1 and 1."""
    return RNG(seed).uniform(-1, 1, shape).astype(np.float32)
