"""`mgeserial weights`: weights of a model listed, taken out and put back."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.arrayfiles import NamedArray
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = "Weights of a model by name: listed, written to a file, replaced from one."
EPILOG = """\
actions:
  list FILE                      weights of a model, or the arrays of a .pkl, .npz, .safetensors
  export MODEL -o OUT            to OUT.npz or OUT.safetensors (of a .pkl as well)
  import MODEL SOURCE -o OUT     new values from .npz, .safetensors or a .pkl of megengine.save

Pickles are read without executing anything. Wrong names, shapes or types are refused, and OUT is
left as it was. `mgeserial weights ACTION --help` says more.
exit codes: 0 done, 2 bad usage or file, 3 unsupported"""

_ARRAY_FILES = (".npz", ".safetensors", ".pkl", ".pickle", ".tm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.add_argument("model", metavar="FILE" if name == "list" else "MODEL", help="the file")
        made.add_argument(
            "--graph", type=int, default=0, metavar="N", help="graph of a file of several (0)"
        )
        return made

    listing = action("list", "names, types and shapes of the weights of a model or file of arrays")
    listing.add_argument("--json", action="store_true", help="print one JSON document")
    export = action("export", "write weights to a .npz or .safetensors file")
    put = action("import", "replace weights by those of a file")
    put.add_argument("source", metavar="SOURCE", help="a .npz, .safetensors or .pkl file")
    put.add_argument(
        "--prefix",
        default="",
        metavar="P",
        help="take only arrays whose names begin with P, without it",
    )
    put.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="array OLD is for weight NEW; may be repeated",
    )
    put.add_argument(
        "--partial", action="store_true", help="leave weights that SOURCE does not name as they are"
    )
    for made in (listing, export):
        made.add_argument("--only", metavar="GLOB", help="names that fit, such as 'conv*'")
        made.add_argument(
            "--no-constants",
            action="store_true",
            help="without shapes, factors and other constants",
        )
    for made in (export, put):
        made.add_argument("-o", "--output", required=True, metavar="OUT", help="file to write")
        made.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")


def execute(args: argparse.Namespace) -> int:
    """Do one action."""
    doers: dict[str, Callable[[argparse.Namespace], None]] = {
        "list": _list,
        "export": _export,
        "import": _import,
    }
    doers[args.action](args)
    return 0


def _arrays(args: argparse.Namespace) -> tuple[list[NamedArray], str]:
    """Arrays of the file by name, and what the file is."""
    kind = _kind(args.model)
    if kind == "arrays":
        from mgeserial.weights import read_arrays

        found = read_arrays(args.model)
        what = "arrays"
    elif kind == "pickle":
        from mgeserial.pickles import read_pickle

        pickle = read_pickle(args.model)
        found, what = list(pickle.weights), f"pickle of a {pickle.kind}, protocol {pickle.protocol}"
    else:
        from mgeserial.weights import named_arrays, weights_of

        _, graph = _graph(args)
        weights = weights_of(graph)
        if args.no_constants:
            weights = [w for w in weights if not w.is_constant]
        found, what = named_arrays(weights), "weights and constants of a model"
    if args.only is not None:
        found = [a for a in found if fnmatch.fnmatchcase(a.name, args.only)]
    return found, what


def _kind(path: str) -> str:
    """`model`, `pickle` or `arrays`: by the first bytes, for pickles are called .mge too."""
    from mgeserial.pickles import is_pickle

    try:
        with open(path, "rb") as file:
            head = file.read(2)
    except OSError:
        return "model"  # reading it as one says what is wrong
    if is_pickle(head):
        return "pickle"
    return "arrays" if path.lower().endswith(_ARRAY_FILES) else "model"


def _graph(args: argparse.Namespace) -> tuple[Model, Graph]:
    from mgeserial.reading import load

    model = load(args.model)
    return model, model.graph_at(args.graph)


def _list(args: argparse.Namespace) -> None:
    arrays, what = _arrays(args)
    total = sum(a.array.nbytes for a in arrays)
    if args.json:
        import json

        from mgeserial.inspect import SCHEMA

        document = {
            "schema": SCHEMA,
            "kind": "weights",
            "path": args.model,
            "description": what,
            "weights": [_document(a) for a in arrays],
        }
        print(json.dumps(document, indent=1, allow_nan=False))
        return
    from mgeserial.errors import printable
    from mgeserial.render import columns, plural, size_text

    print(
        f"{printable(args.model, limit=200)}: {what}: {plural(len(arrays), 'array')}, "
        f"{size_text(total)}"
    )
    rows = [_row(_document(a)) for a in arrays]
    for line in columns(rows):
        print(line)


def _document(item: NamedArray) -> dict[str, Any]:
    from mgeserial.summary import summarize_values

    return {
        "name": item.name,
        "dtype": item.type,
        "shape": list(item.array.shape),
        "bytes": item.array.nbytes,
        **summarize_values(item.array).as_data(),
    }


def _row(value: dict[str, Any]) -> tuple[str, ...]:
    from mgeserial.errors import printable

    least, most = ("n/a" if value[k] is None else f"{value[k]:.6g}" for k in ("min", "max"))
    return (
        printable(value["name"], limit=80),
        printable(value["dtype"]),
        str(tuple(value["shape"])),
        f"{least} to {most}",
    )


def _export(args: argparse.Namespace) -> None:
    from mgeserial.cli.output import refuse_existing
    from mgeserial.errors import InputError
    from mgeserial.format.atomic import write_atomic
    from mgeserial.weights import weights_bytes

    refuse_existing(args.output, force=args.force)
    arrays, _ = _arrays(args)
    if not arrays:
        raise InputError("there is no weight to export", path=args.model)
    write_atomic(args.output, weights_bytes(arrays, args.output))
    print(f"{args.output}: {len(arrays)} arrays")


def _import(args: argparse.Namespace) -> None:
    from mgeserial.cli.output import refuse_existing
    from mgeserial.ir.model import Model
    from mgeserial.saving import save
    from mgeserial.weights import read_arrays, replace_weights

    refuse_existing(args.output, force=args.force)
    model, graph = _graph(args)
    arrays = _taken(read_arrays(args.source), args.prefix)
    new = replace_weights(graph, arrays, rename=_pairs(args.rename), partial=args.partial)
    graphs = [new if g is graph else g for g in model.graphs]
    save(Model(graphs, model.info), args.output)
    print(f"{args.output}: {len(arrays)} of the weights replaced")
    if model.info is not None and model.info.testcases is not None:
        print(
            "expected outputs are those of the old weights: `mgeserial testcase bless` renews them",
            file=sys.stderr,
        )


def _taken(arrays: Sequence[NamedArray], prefix: str) -> list[NamedArray]:
    from dataclasses import replace

    from mgeserial.errors import InputError

    found = [
        replace(a, name=a.name[len(prefix) :])
        for a in arrays
        if a.name.startswith(prefix) and len(a.name) > len(prefix)
    ]
    if not found:
        held = ", ".join(a.name for a in arrays[:5])
        raise InputError(f"the source has no array whose name begins with {prefix!r}: {held} ...")
    return found


def _pairs(items: Sequence[str]) -> dict[str, str]:
    from mgeserial.errors import InputError

    pairs: dict[str, str] = {}
    for item in items:
        old, equals, new = item.partition("=")
        if not (old and equals and new) or old in pairs:
            raise InputError(f"--rename takes OLD=NEW, each OLD once, got {item!r}")
        pairs[old] = new
    return pairs
