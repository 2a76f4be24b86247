"""`mgeserial convert`: a model in another container, or for another release of MegEngine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.saving import Saved

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = (
    "Write a model in another container, or for another release of MegEngine: ids, versions,\n"
    "tables and numbers are translated. What the target cannot express is listed in full, and\n"
    "nothing is written."
)
EPILOG = (
    "containers: v2 (read by v1.10.0 and later), v1 (header MGBC, v1.7.0.m1 and later),\n"
    "mgbs (the old header and ids, every release)\n"
    "examples:\n"
    "  mgeserial convert net.mge old.mge --to mgbs --release 0.5.1\n"
    "  mgeserial convert net.mge small.mge --to v2 --keep-var-name 0 --drop-param-name\n\n"
    "exit codes: 0 done, 2 bad usage or file, 3 the target cannot express everything"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="IN", help="the file to read")
    parser.add_argument("output", metavar="OUT", help="the file to write")
    parser.add_argument(
        "--to",
        choices=("v2", "v1", "mgbs"),
        help="container to write; default: the one of each graph",
    )
    parser.add_argument(
        "--release",
        default="1.13.0",
        metavar="R",
        help="release of MegEngine that shall read it (1.13.0)",
    )
    parser.add_argument(
        "--keep-var-name",
        type=int,
        choices=(0, 1, 2),
        help="names of values: 0 none, 1 those of outputs, 2 all; default: those that are there",
    )
    parser.add_argument("--drop-param-name", action="store_true", help="no names of parameters")
    parser.add_argument("--drop-opr-name", action="store_true", help="no names of operators")
    parser.add_argument("--drop-metadata", action="store_true", help="empty metadata")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing when all is well")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Convert the file."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.reading import load
    from mgeserial.saving import save

    refuse_existing(args.output, force=args.force)
    model = load(args.model)
    saved = save(
        model,
        args.output,
        format=args.to,
        release=args.release,
        keep_var_name=args.keep_var_name,
        keep_param_name=False if args.drop_param_name else None,
        keep_opr_name=False if args.drop_opr_name else None,
        keep_metadata=not args.drop_metadata,
    )
    if args.json:
        import json

        print(json.dumps(_document(args.output, saved), indent=1))
    elif not args.quiet:
        print(_text(args.output, saved), end="")
    return 0


def _document(path: str, saved: Saved) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "convert",
        "path": path,
        "release": saved.release,
        "bytes": saved.nbytes,
        "graphs": [
            {
                "container": g.container,
                "operators": g.operators,
                "bytes": g.nbytes,
                "tensor_bytes": g.tensor_bytes,
            }
            for g in saved.graphs
        ],
    }


def _text(path: str, saved: Saved) -> str:
    containers = "+".join(sorted({g.container for g in saved.graphs}))
    count = len(saved.graphs)
    graphs = "1 graph" if count == 1 else f"{count} graphs"
    operators = sum(g.operators for g in saved.graphs)
    return (
        f"{path}: {containers} for {saved.release}, {graphs}, {operators} operators, "
        f"{saved.nbytes} bytes ({saved.overhead} beside tensors)\n"
    )
