"""`mgeserial graph`: a picture of a network, as SVG, DOT or one HTML page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgeserial.view.picture import Picture

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = (
    "Draw a network. The HTML page is one file that needs nothing else, no network and no other\n"
    "program: move, zoom, search, hover for shapes, types, parameters and places in the file,\n"
    "click for all details. SVG shows the same picture with details on hover; DOT is for graphviz."
)
EPILOG = (
    "examples:\n"
    "  mgeserial graph net.mge -o net.html\n"
    "  mgeserial graph net.mge -o net.svg --weights\n"
    "  mgeserial graph net.mge --format dot -o - | dot -Tpdf -o net.pdf\n\n"
    "exit codes: 0 done, 2 bad usage or not a model"
)
_FORMATS = ("html", "svg", "dot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="the file")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="x.html, x.svg, x.dot; - for stdout"
    )
    parser.add_argument("--format", choices=_FORMATS, help="what to write (by the ending of FILE)")
    parser.add_argument(
        "--graph", type=int, default=0, metavar="N", help="which graph of the file (0)"
    )
    parser.add_argument(
        "--weights",
        action="store_true",
        help="give weights boxes of their own (they stand in the boxes of their users)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE if it exists")


def execute(args: argparse.Namespace) -> int:
    """Draw and write."""
    from mgeserial.cli.output import refuse_existing
    from mgeserial.errors import printable
    from mgeserial.format.atomic import write_atomic
    from mgeserial.reading import load
    from mgeserial.render import plural
    from mgeserial.view.picture import draw

    write = _writer(args.format or _by_ending(args.output))
    if args.output != "-":
        refuse_existing(args.output, force=args.force)
    model = load(args.model)
    graph = model.graph_at(args.graph)
    title = args.model if len(model.graphs) == 1 else f"{args.model}, graph {args.graph}"
    picture = draw(graph, title=title, weights=args.weights)
    if args.output == "-":
        for piece in write(picture):
            sys.stdout.write(piece)
        return 0
    write_atomic(args.output, (piece.encode() for piece in write(picture)))
    for problem in picture.problems:
        print(f"warning: drawn without shapes: {problem}", file=sys.stderr)
    boxes = plural(len(picture.boxes), "box").replace("boxs", "boxes")
    print(f"wrote {printable(args.output, limit=200)}: {boxes}, {picture.subtitle}")
    return 0


def _by_ending(path: str) -> str:
    from mgeserial.errors import InputError

    ending = path.rpartition(".")[2].lower()
    known = {"htm": "html", "gv": "dot"}.get(ending, ending)
    if known not in _FORMATS:
        what = "stdout has" if path == "-" else f"{path!r} has"
        raise InputError(
            f"{what} no ending that says what to write",
            hint=f"--format {'|'.join(_FORMATS)}",
        )
    return known


def _writer(form: str) -> Callable[[Picture], Iterator[str]]:
    if form == "svg":
        from mgeserial.view.svg import svg

        return svg
    if form == "dot":
        from mgeserial.view.dot import dot

        return dot
    from mgeserial.view.html import html

    return html
