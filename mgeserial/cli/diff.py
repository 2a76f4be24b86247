"""`mgeserial diff`: what differs between two models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.diff import Difference
    from mgeserial.ir.model import Model

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = (
    "Compare two models, of any container: operators, parameters, weights, wiring, inputs and\n"
    "outputs with their types, test cases. Operators are aligned by what they are, so that one\n"
    "inserted or changed operator is one difference."
)
EPILOG = (
    "lines: - only in A, + only in B, ~ in both but changed\n"
    "not compared: computing nodes, metadata, the container; names only with --names\n"
    "examples:\n"
    "  mgeserial diff net.v1.mge net.v2.mge\n"
    "  mgeserial diff before.mge after.mge --json | jq '.graphs[].operators_changed[].operator'\n\n"
    "exit codes: 0 equal, 1 different, 2 bad usage or file, 3 not readable here"
)
_MOST_LINES = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("before", metavar="A", help="one file")
    parser.add_argument("after", metavar="B", help="another one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--names", action="store_true", help="names of operators and inner values count too"
    )
    parser.add_argument(
        "--graph", type=int, metavar="N", help="compare graph N of both (all, one by one)"
    )
    parser.add_argument(
        "--all", action="store_true", help=f"print every line (the first {_MOST_LINES} of a graph)"
    )


def execute(args: argparse.Namespace) -> int:
    """Compare and print; 1 when something differs."""
    from mgeserial.diff import diff
    from mgeserial.reading import load

    before, after = load(args.before), load(args.after)
    chosen = _chosen(args, before, after)
    found = [(i, diff(before.graphs[i], after.graphs[i], names=args.names)) for i in chosen]
    counts = (len(before.graphs), len(after.graphs))
    same_count = args.graph is not None or counts[0] == counts[1]
    is_equal = same_count and all(d.is_empty for _, d in found)
    if args.json:
        import json

        print(
            json.dumps(_document(args, before, found, counts, is_equal), indent=1, allow_nan=False)
        )
    else:
        print("\n".join(_lines(args, before, found, counts, is_equal)))
    return 0 if is_equal else 1


def _chosen(args: argparse.Namespace, before: Model, after: Model) -> list[int]:
    if args.graph is None:
        return list(range(min(len(before.graphs), len(after.graphs))))
    for model in (before, after):
        model.graph_at(args.graph)
    return [args.graph]


def _role(model: Model, index: int) -> str:
    with_cases = model.info is not None and model.info.testcases is not None
    return f"test case {index - 1}" if with_cases and index else "network"


def _document(
    args: argparse.Namespace,
    before: Model,
    found: list[tuple[int, Difference]],
    counts: tuple[int, int],
    is_equal: bool,
) -> dict[str, Any]:
    from mgeserial.inspect import SCHEMA

    return {
        "schema": SCHEMA,
        "kind": "diff",
        "before": args.before,
        "after": args.after,
        "equal": is_equal,
        "graphs_before": counts[0],
        "graphs_after": counts[1],
        "graphs": [{"index": i, "role": _role(before, i), **d.as_json()} for i, d in found],
    }


def _lines(
    args: argparse.Namespace,
    before: Model,
    found: list[tuple[int, Difference]],
    counts: tuple[int, int],
    is_equal: bool,
) -> list[str]:
    from mgeserial.render import plural

    if is_equal:
        total = sum(d.same for _, d in found)
        graphs = f" of {plural(len(found), 'graph')}" if len(found) > 1 else ""
        return [f"no differences: {plural(total, 'operator')}{graphs}"]
    lines = []
    if args.graph is None and counts[0] != counts[1]:
        lines.append(f"graphs: {counts[0]} -> {counts[1]}")
    for index, difference in found:
        if difference.is_empty:
            continue
        if len(found) > 1:
            lines.append(f"graph {index} ({_role(before, index)}):")
        every = difference.lines()
        shown = every if args.all else every[:_MOST_LINES]
        lines += shown
        if len(shown) < len(every):
            lines.append(f"... and {len(every) - len(shown)} more lines (--all, --json)")
        lines.append(_summary(difference))
    return lines


def _summary(found: Difference) -> str:
    parts = [
        f"{len(found.removed)} removed",
        f"{len(found.added)} added",
        f"{len(found.changed)} changed",
        f"{found.same} the same",
    ]
    if found.interface:
        parts.append(f"{len(found.interface)} of inputs and outputs")
    return f"operators: {', '.join(parts)}"
