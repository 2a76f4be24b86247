"""`mgeserial check`: everything a backend cannot run, all at once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.ir.graph import Graph, Node, Value

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute", "findings"]

DESCRIPTION = (
    "List every operator that a backend cannot run, with the reason and the outputs it blocks."
)
EPILOG = (
    "exit codes: 0 all of it runs, 2 not a model or damaged, 3 something cannot be run\n"
    "backends: reference (numpy, every operator), cpu, cuda, and those of other packages"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="the file")
    parser.add_argument("--backend", default="auto", help="name of the backend (auto)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Print the findings; 3 when there are any."""
    from loadrun.backends.base import choose, find_backend
    from mgeserial.inspect import SCHEMA
    from mgeserial.reading import load

    model = load(args.model)
    # What a backend could run is known without its device.
    backend = choose() if args.backend == "auto" else find_backend(args.backend)
    graphs = [
        {"index": i, **findings(g, backend.missing(g), _by_reference(backend, g))}
        for i, g in enumerate(model.networks)
    ]
    if args.json:
        import json

        document = {
            "schema": SCHEMA,
            "kind": "check",
            "path": args.model,
            "backend": backend.name,
            "graphs": graphs,
        }
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print(_text(args.model, backend.name, graphs), end="")
    return max((_exit_code(g) for g in graphs), default=0)


def _exit_code(graph: dict[str, Any]) -> int:
    found: int = graph["exit_code"]
    return 3 if graph["missing"] else found


def _by_reference(backend: Any, graph: Graph) -> list[tuple[Node, str]]:
    """What the backend hands to reference code; empty where it cannot say."""
    from mgeserial.errors import MgeError

    ask = getattr(backend, "by_reference", None)
    if ask is None:
        return []
    try:
        return list(ask(graph))
    except MgeError:
        return []  # the types cannot be inferred, which `findings` reports


def _grouped(nodes: list[tuple[Node, str]]) -> list[dict[str, Any]]:
    """Nodes by type and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[int]] = {}
    for node, reason in nodes:
        groups.setdefault((node.op.name, reason), []).append(node.index)
    return [
        {"type": name, "reason": reason, "count": len(places), "operators": places}
        for (name, reason), places in sorted(groups.items(), key=lambda g: -len(g[1]))
    ]


def findings(
    graph: Graph,
    missing: list[tuple[Node, str]],
    by_reference: list[tuple[Node, str]] | None = None,
) -> dict[str, Any]:
    """Operators that cannot run, by type and reason, and what they block.

    Args:
        graph: The graph.
        missing: Nodes a backend cannot run, with the reason.
        by_reference: Nodes it runs by reference code, with the reason.
    """
    from mgeserial.errors import MgeError

    problem, code = None, 0
    try:
        graph.inference  # noqa: B018 - computed here, for its errors
    except MgeError as error:
        problem, code = str(error), error.exit_code
    names = graph.output_names
    blocked = _blocked(graph, {n for n, _ in missing})
    return {
        "operators": len(graph.nodes),
        "missing": _grouped(missing),
        "by_reference": _grouped(by_reference or []),
        "outputs": len(names),
        "blocked_outputs": [n for n, v in zip(names, graph.outputs, strict=True) if v in blocked],
        "shape_problem": problem,
        "exit_code": code,
    }


def _blocked(graph: Graph, missing: set[Node]) -> set[Value]:
    """Values that need a node of `missing`, or are its outputs."""
    found: set[Value] = set()
    for node in graph.nodes:
        if node in missing or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _rows(groups: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    from mgeserial.errors import printable

    return [
        (
            f"{m['count']:,}",
            printable(m["type"]),
            printable(m["reason"], limit=200),
            f"first: operator {m['operators'][0]}",
        )
        for m in groups
    ]


def _text(path: str, backend: str, graphs: list[dict[str, Any]]) -> str:
    from mgeserial.errors import printable
    from mgeserial.render import columns, plural

    lines = []
    for graph in graphs:
        where = f"{printable(path, limit=200)}: graph {graph['index']}" if len(graphs) > 1 else path
        count = sum(m["count"] for m in graph["missing"])
        total = plural(graph["operators"], "operator")
        if not count:
            lines.append(f"{printable(where, limit=200)}: backend {backend} runs all {total}")
        else:
            lines.append(
                f"{printable(where, limit=200)}: backend {backend} cannot run {count} of {total}"
            )
            lines += columns(_rows(graph["missing"]))
            blocked = [printable(n, limit=60) for n in graph["blocked_outputs"]]
            shown = ", ".join(blocked[:10]) + (" ..." if len(blocked) > 10 else "")
            lines.append(
                f"outputs blocked: {len(blocked)} of {graph['outputs']}"
                + (f" ({shown})" if blocked else "")
            )
        if graph["by_reference"]:
            slow = sum(m["count"] for m in graph["by_reference"])
            lines.append(f"{plural(slow, 'operator')} of these by reference code, with copies:")
            lines += columns(_rows(graph["by_reference"]))
        if graph["shape_problem"] is not None:
            lines.append(f"problem: {graph['shape_problem']}")
    return "\n".join(lines) + "\n"
