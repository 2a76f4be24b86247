"""`mgeserial optimize`: transform a model as MegEngine's passes do, and say what was done."""

from __future__ import annotations

import argparse
import sys

from mgeserial._command_line import from_zero
from mgeserial.passes.options import OptimizeOptions, add_switches, options_from

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = (
    "Transform a model as MegEngine's optimize_for_inference does: constants folded,\n"
    "arithmetic moved into weights, operators fused; with switches, float16 and packed\n"
    "layouts. Says what was done, and what was not with the reason."
)
EPILOG = (
    "examples:\n"
    "  mgeserial optimize net.mge fast.mge\n"
    "  mgeserial optimize net.mge fast.mge --enable-fuse-conv-bias-nonlinearity --check\n"
    "  mgeserial optimize net.mge fast.mge --enable-nchw44 --report -v\n"
    "  mgeserial optimize net.mge fast.mge --json | jq '.operators'\n\n"
    "exit codes: 0 done, 1 outputs differ (--check), 2 bad usage or file, 3 unsupported"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("input", metavar="IN", help="the model")
    parser.add_argument("output", metavar="OUT", help="the file to write")
    add_switches(parser)
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it is there")
    parser.add_argument("--report", action="store_true", help="say what each pass did")
    parser.add_argument("--json", action="store_true", help="print the report as one document")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every place")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run both networks on random inputs (reference) and compare the outputs",
    )
    parser.add_argument(
        "--rtol", type=from_zero, default=1e-3, metavar="X", help="--check: relative error (1e-3)"
    )
    parser.add_argument(
        "--atol", type=from_zero, default=1e-4, metavar="X", help="--check: absolute error (1e-4)"
    )


def execute(args: argparse.Namespace) -> int:
    """Read, transform, write; the exit code."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.passes.pipeline import optimize
    from mgeserial.reading import load
    from mgeserial.saving import save

    options = options_from(args) or OptimizeOptions()
    refuse_existing(args.output, force=args.force)
    model = load(args.input)
    reports = []
    for i, graph in enumerate(model.graphs):
        if graph in model.networks:
            model.graphs[i], report = optimize(graph, options)
            reports.append(report)
            problem = _difference(graph, model.graphs[i], args) if args.check else None
            if problem is not None:
                sys.stderr.write(f"{args.input}: graph {i}: {problem}; nothing was written\n")
                return 1
    saved = save(model, args.output)
    if args.json:
        import json

        data = [r.as_data() for r in reports]
        print(json.dumps(data[0] if len(data) == 1 else data, indent=1))
    elif not args.quiet:
        for report in reports:
            print(report.text(verbose=args.verbose, details=args.report or args.verbose))
        print(f"wrote {args.output}: {saved.nbytes} bytes", file=sys.stderr)
    return 0


def _difference(before: object, after: object, args: argparse.Namespace) -> str | None:
    """What differs between the outputs of two networks on seeded random inputs."""
    from typing import cast

    from loadrun.inputs import random_inputs
    from loadrun.session import Session
    from mgeserial.ir.graph import Graph
    from mgeserial.passes.evaluate import OutputCheck

    check = OutputCheck({}, rtol=args.rtol, atol=args.atol, steps=1)
    found = []
    for graph in (cast(Graph, before), cast(Graph, after)):
        with Session(graph, "reference") as session:
            found.append(session.run(random_inputs(session.inputs, seed=0)))
    return check.compare(list(found[0]), list(found[0].values()), list(found[1].values()))
