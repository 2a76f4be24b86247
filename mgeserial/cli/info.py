"""`mgeserial info`: what a file is and what its graphs hold."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = (
    "Say what a file is: container, releases that wrote and read it, inputs, outputs, operators,\n"
    "parameters, test cases, sizes. Values of tensors are not read."
)
EPILOG = (
    "examples:\n"
    "  mgeserial info net.mge\n"
    "  mgeserial info net.mge --op 17\n"
    "  mgeserial info net.mge --json | jq '.graphs[0].inputs'\n\n"
    "exit codes: 0 done, 2 not a model or damaged, 3 valid but not readable here (encrypted)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="the file")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--op", type=int, metavar="N", help="all about operator N")
    parser.add_argument(
        "--graph", type=int, default=0, metavar="K", help="graph that --op looks into (0)"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the summary; 2 when something in it is damaged."""
    from mgeserial.inspect import describe_operator, summarize
    from mgeserial.reading import load
    from mgeserial.render import operator_text, summary_text

    model = load(args.model)
    if args.op is not None:
        found = describe_operator(model.graph_at(args.graph), args.op)
        text = operator_text(found)
        problems = found["problems"]
    else:
        found = summarize(model)
        text = summary_text(found)
        problems = [p for g in found["graphs"] for p in g["problems"]]
    if args.json:
        import json

        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print(text, end="")
    return 2 if problems else 0
