"""The page: one HTML file that holds everything and asks for nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from loadrun.reporting.markup import Markup, clean, join, tag
from loadrun.reporting.sections import Section, name_of, sections, several
from mgeserial._version import __version__
from mgeserial.errors import MgeError
from mgeserial.view.families import FAMILIES
from mgeserial.view.html import filled, html, page_parts, safe_json

__all__ = ["page", "write_page"]

# Boxes of a graph that a page draws; a larger one is a page of its own (`mgeserial graph`).
_MOST_NODES = 20_000


def write_page(
    documents: Sequence[Mapping[str, Any]],
    path: str,
    *,
    names: Sequence[str] = (),
    model: str | None = None,
) -> None:
    """Write the page of one result, or of several compared.

    Args:
        documents: Results, checked by `files.check`.
        path: File to write; a file that is there is replaced as a whole.
        names: What the results are called; by default as their models are.
        model: Where the model is, if it is no longer where the first result says.

    Raises:
        InputError: The file cannot be written.
    """
    from mgeserial.format.atomic import write_atomic

    text = "".join(page(documents, names=names, model=model))
    write_atomic(path, text.encode("utf-8", "backslashreplace"))


def page(
    documents: Sequence[Mapping[str, Any]],
    *,
    names: Sequence[str] = (),
    model: str | None = None,
) -> Iterator[str]:
    """Pieces of the page, in order; see `write_page`."""
    folder = files("loadrun.reporting") / "page"
    named = list(zip(names or _names(documents), documents, strict=True))
    graph, why = _graph(documents[0], model)
    parts: list[Section] = []
    if len(named) > 1:
        parts.append(several(named))
    for k, (name, document) in enumerate(named):
        frame = _frame(graph is not None, why) if k == 0 else None
        own = sections(document, frame=frame)
        if len(named) > 1:
            own = [Section(f"r{k}-{s.key}", f"{name}: {s.title}", s.body) for s in own]
        parts += own
    parts = [p for p in parts if p.body]
    title = name_of(documents[0]) if len(named) == 1 else f"{len(named)} results"
    marks = [tag("a", p.title, href=f"#{p.key}") for p in parts]
    shown = [
        tag("section", tag("h2", p.title), p.body, id=p.key, aria_label=p.title) for p in parts
    ]
    data = {"documents": list(documents), "graph": graph}
    yield from filled(
        (folder / "report.html").read_text(encoding="utf-8"),
        clean(f"{title} - loadrun"),
        safe_json(data),
        style="\n" + (folder / "report.css").read_text(encoding="utf-8") + _tones(),
        script=f'\n"use strict";\n(() => {{\n{(folder / "report.js").read_text("utf-8")}}})();\n',
        within=[page_parts()] if graph is not None else (),
        HEAD=tag("h1", title),
        SUBTITLE=tag("p", _subtitle(documents), class_="soft"),
        MARKS=join(*marks),
        BODY=join(*shown),
        FOOT=tag("p", f"Written by loadrun {__version__} from its JSON results."),
    )


def _names(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [name_of(d) for d in documents]
    if len(set(names)) == len(names):
        return names
    return [f"{k + 1}. {name}" for k, name in enumerate(names)]


def _subtitle(documents: Sequence[Mapping[str, Any]]) -> str:
    first = documents[0].get("environment") or {}
    parts = [first.get("cpu"), first.get("system"), _version(first)]
    return ", ".join(str(p) for p in parts if p)


def _version(environment: Mapping[str, Any]) -> str | None:
    version = environment.get("mgeserial")
    return None if version is None else f"measured with mgeserial {version}"


def _tones() -> str:
    """Colours of the families of operators, as the picture of the graph has them."""
    light = "".join(f"--f{i}:{f.light};" for i, f in enumerate(FAMILIES))
    dark = "".join(f"--f{i}:{f.dark};" for i, f in enumerate(FAMILIES))
    rules = "".join(
        f".f{i}{{fill:var(--f{i});background:var(--f{i})}}\n" for i in range(len(FAMILIES))
    )
    return f":root{{{light}}}\n:root.dark{{{dark}}}\n{rules}"


def _graph(document: Mapping[str, Any], model: str | None) -> tuple[str | None, str]:
    """The page of the graph, or why there is none."""
    from loadrun.environment import file_sha256

    first = (document.get("sides") or [document])[0]
    about = first.get("model") or {}
    path = model or about.get("path")
    if not isinstance(path, str) or not os.path.isfile(path):
        return None, f"The model ({path}) is not here; `loadrun report --model FILE` says where."
    digest = about.get("sha256")
    if digest is not None and file_sha256(path) != digest:
        return None, f"{path} is not the file that was measured: its SHA-256 differs."
    from mgeserial import load
    from mgeserial.view.picture import draw

    try:
        graph = load(path).graph
        if len(graph.nodes) > _MOST_NODES:
            return None, f"{len(graph.nodes)} operators: `mgeserial graph` draws them on a page."
        return "".join(html(draw(graph, title=os.path.basename(path)))), ""
    except MgeError as error:
        return None, f"The graph cannot be drawn: {error.message}"


def _frame(drawn: bool, why: str) -> Markup:
    if not drawn:
        return tag("p", why, class_="soft")
    button = tag("button", "Show the graph", type="button", id="show-graph")
    frame = tag("iframe", "", id="graph-frame", title="Graph", sandbox="allow-scripts", hidden=True)
    return join(button, frame)
