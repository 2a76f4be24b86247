"""A picture as one HTML page that needs nothing else: no network, no other file, no server.

The page carries its data as JSON and draws it on a canvas. Text from the model reaches it only as
JSON with every `<`, `>` and `&` escaped, and is only ever set as text; a content security policy
names the hashes of the one style and the one script, and forbids every connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from mgeserial.render import dtype_text
from mgeserial.view.families import FAMILIES
from mgeserial.view.picture import Picture, type_text

__all__ = ["content_hash", "filled", "html", "page_data", "page_parts", "safe_json"]

_KINDS = ("operator", "input", "output", "weight")
_SCRIPTS = ("scene.js", "panels.js", "main.js")
# Entries of one list in the details; the page says how many more there are.
_MOST = 64


def html(picture: Picture) -> Iterator[str]:
    """Pieces of the page, in order."""
    style, script = page_parts()
    template = (files("mgeserial.view") / "page" / "page.html").read_text(encoding="utf-8")
    data = safe_json(page_data(picture))
    yield from filled(template, picture.title or "graph", data, style=style, script=script)


def page_parts() -> tuple[str, str]:
    """The page's one style and its one script."""
    folder = files("mgeserial.view") / "page"
    style = "\n" + (folder / "page.css").read_text(encoding="utf-8")
    code = "".join((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return style, f'\n"use strict";\n(() => {{\n{code}}})();\n'


def filled(
    template: str,
    title: str,
    data: str,
    *,
    style: str,
    script: str,
    within: Sequence[tuple[str, str]] = (),
    **more: str,
) -> Iterator[str]:
    """Pieces of a page made of a template with `%POLICY%`, `%TITLE%`, `%STYLE%`, `%DATA%`, ...

    Args:
        template: The page; what is put in is not searched for further marks.
        title: Its title, as plain text.
        data: JSON made by `safe_json`.
        style: The style.
        script: The script.
        within: Style and script of pages that this one shows in a frame: the policy of a page
            holds for these too.
        more: What further marks stand for, as markup.
    """
    styles = " ".join(f"'{content_hash(s)}'" for s in (style, *(s for s, _ in within)))
    scripts = " ".join(f"'{content_hash(s)}'" for s in (script, *(s for _, s in within)))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    texts = {
        "POLICY": policy,
        "TITLE": escape(title),
        "STYLE": style,
        "DATA": data,
        "SCRIPT": script,
        **more,
    }
    for i, part in enumerate(template.split("%")):
        yield texts[part] if i % 2 else part


def content_hash(text: str) -> str:
    """How a content security policy names a style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def safe_json(document: Any) -> str:
    """JSON that cannot end the element it stands in, nor be taken for markup."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(picture: Picture) -> dict[str, Any]:
    """What the page draws; the keys of operators are short as there are many of them.

    An operator: `t` type, `n` name, `o` file offset, `i` inputs (role, name, type, operator or -1),
    `u` outputs (name, type, users, how many more users), `h` tensors it holds (name, type, bytes,
    offset), `p` indices into `params`, `c` computing nodes, `r` priority, `d` stored output type,
    `s` stored type text, `x` problems; `im`, `um`, `hm` count what is left out.
    """
    layout = picture.layout()
    families = {f.key: i for i, f in enumerate(FAMILIES)}
    tables: dict[str, int] = {}
    records: list[Any] = []
    operators = [_operator(found, tables, records) for found in picture.operators]
    return {
        "title": picture.title,
        "subtitle": picture.subtitle,
        "problems": picture.problems,
        "width": round(layout.width),
        "height": round(layout.height),
        "families": [{"title": f.title, "light": f.light, "dark": f.dark} for f in FAMILIES],
        "params": records,
        "ops": operators,
        "boxes": [
            [
                _KINDS.index(box.kind),
                box.operator,
                families[box.family.key],
                box.title,
                box.lines,
                box.name,
                round(x),
                round(y),
                *map(round, box.size),
            ]
            for box, (x, y) in zip(picture.boxes, layout.corners, strict=True)
        ],
        "wires": [
            [wire.source, wire.target, label, [round(n) for point in route for n in point]]
            for wire, label, route in zip(picture.wires, picture.labels, layout.routes, strict=True)
        ],
    }


def _operator(found: dict[str, Any], tables: dict[str, int], records: list[Any]) -> dict[str, Any]:
    inputs, outputs, tensors = found["inputs"], found["outputs"], found["tensors"]
    dtype = found["output_dtype"]
    stored = found["stored_id"]
    return {
        "t": found["type"],
        "n": found["name"] or (outputs[0]["name"] if outputs else None),
        "o": found["offset_bytes"],
        "i": [
            [e["role"], e["name"], type_text(e, full=True), e["operator"]] for e in inputs[:_MOST]
        ],
        "im": max(len(inputs) - _MOST, 0),
        "u": [
            [
                e["name"],
                type_text(e, full=True),
                e["users"][:_MOST],
                max(len(e["users"]) - _MOST, 0),
            ]
            for e in outputs[:_MOST]
        ],
        "um": max(len(outputs) - _MOST, 0),
        "h": [
            [e["name"], type_text(e, full=True), e["values_bytes"], e["offset_bytes"]]
            for e in tensors[:_MOST]
        ],
        "hm": max(len(tensors) - _MOST, 0),
        "p": [_record(r, tables, records) for r in found["params"]],
        "c": sorted({n for n in found["computing_nodes"] if n}),
        "r": found["priority"],
        "d": None if dtype is None else dtype_text(dtype),
        "s": None if stored is None else stored["type"],
        "x": found["problems"],
    }


def _record(record: dict[str, Any], tables: dict[str, int], records: list[Any]) -> int:
    """Index of a parameter record among the different ones."""
    changed = set(record["changed"])
    fields = [[n, str(v), int(n in changed)] for n, v in record["fields"].items()]
    entry = [record["table"] or "of a newer release", fields]
    key = json.dumps(entry)
    if key not in tables:
        tables[key] = len(records)
        records.append(entry)
    return tables[key]
