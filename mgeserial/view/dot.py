"""A picture as DOT, for those who have graphviz or another program that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from mgeserial.view.picture import Picture
from mgeserial.view.svg import hover_lines

__all__ = ["dot"]


def dot(picture: Picture) -> Iterator[str]:
    """Pieces of the DOT document, in order.

    Source: the DOT language, https://graphviz.org/doc/info/lang.html (quoting, escapes in labels).
    """
    label = "; ".join([picture.title, picture.subtitle, *picture.problems])
    yield (
        "digraph network {\n"
        f'  label="{_quoted(label)}"; labelloc=t; rankdir=TB;\n'
        '  node [shape=box, style="filled", fillcolor="#f6f8fa", fontname="sans-serif", '
        "fontsize=11];\n"
        '  edge [color="#818b98", fontname="sans-serif", fontsize=9];\n'
    )
    for i, box in enumerate(picture.boxes):
        text = "\\n".join(_quoted(t) for t in (box.title, *box.lines))
        hover = "\\n".join(_quoted(t) for t in hover_lines(picture, box))
        shape = ", shape=ellipse" if box.kind in ("input", "output") else ""
        yield (f'  n{i} [label="{text}", tooltip="{hover}", color="{box.family.light}"{shape}];\n')
    for wire, label in zip(picture.wires, picture.labels, strict=True):
        yield f'  n{wire.source} -> n{wire.target} [tooltip="{_quoted(label)}"];\n'
    yield "}\n"


def _quoted(text: str) -> str:
    """Text inside double quotes; a backslash stays one in the label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
