"""`mgeserial strip`: a model without names, metadata, test cases."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute", "strip_names"]

DESCRIPTION = (
    "Write a model without what a run does not need: names of operators, inner values, weights;\n"
    "metadata; test cases with the checks they serve. Names of inputs and outputs stay."
)
EPILOG = (
    "examples:\n"
    "  mgeserial strip net.mge -o small.mge\n"
    "  mgeserial strip net.mge -o plain.mge --testcases\n\n"
    "a v2 file names all values or none: stripped ones are called by operator and place\n"
    "exit codes: 0 done, 2 bad usage or file, 3 unsupported"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="IN", help="the file")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write")
    parser.add_argument("--names", action="store_true", help="strip names")
    parser.add_argument("--metadata", action="store_true", help="strip metadata")
    parser.add_argument("--testcases", action="store_true", help="strip test cases and checks")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    parser.epilog = f"without --names, --metadata, --testcases all three are done\n\n{EPILOG}"


def execute(args: argparse.Namespace) -> int:
    """Strip and write."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.errors import printable
    from mgeserial.reading import load
    from mgeserial.render import plural, size_text
    from mgeserial.saving import save

    refuse_existing(args.output, force=args.force)
    every = not (args.names or args.metadata or args.testcases)
    model = load(args.model)
    before = model.info.nbytes if model.info is not None else 0
    done = []
    if args.testcases or every:
        model, count = _without_cases(model)
        done.append(plural(count, "test case"))
    if args.metadata or every:
        kept = [g for g in model.graphs if g.metadata is not None]
        size = sum(len(g.metadata.user_info) for g in kept if g.metadata is not None)
        for graph in kept:
            graph.metadata = None
        done.append(f"metadata of {plural(size, 'byte')}")
    if args.names or every:
        done.append(plural(sum(strip_names(g) for g in model.graphs), "name"))
    saved = save(model, args.output)
    where = printable(args.output, limit=200)
    print(f"stripped: {', '.join(done)}")
    change = before - saved.nbytes
    words = f"{abs(change):,} bytes {'less' if change >= 0 else 'more'}"
    print(f"wrote {where}: {size_text(saved.nbytes)}, {words} than before")
    return 0


def _without_cases(model: Model) -> tuple[Model, int]:
    """The plain network of a model with test cases, and how many there were."""
    from mgeserial.testcases import plain_model, strip_asserts

    if model.info is None or model.info.testcases is None:
        return model, 0
    return plain_model(strip_asserts(model.graph), like=model), model.info.testcases


def strip_names(graph: Graph) -> int:
    """Remove names of operators, inner values and weights; return how many there were.

    Inputs and outputs keep theirs: callers know them by these.
    """
    from mgeserial.ir.graph import input_name

    inputs = set(graph.inputs)
    kept = inputs | set(graph.outputs)
    count = 0
    for value in inputs:
        value.name = input_name(value)
    for node in graph.nodes:
        count += node.name is not None
        node.name = None
        for value in node.outputs:
            if value not in kept:
                count += value.name is not None
                value.name = None
        if node.outputs and node.outputs[0] in inputs:
            continue
        if any(t.name is not None for t in node.tensors):
            count += sum(t.name is not None for t in node.tensors)
            graph.set_tensors(node, tuple(t.renamed(None) for t in node.tensors))
    graph.touch()
    return count
