"""A picture as one SVG file: readable anywhere, details on hover, light and dark by the viewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from mgeserial.view.families import FAMILIES
from mgeserial.view.layout import Layout, Point
from mgeserial.view.picture import Box, Picture, type_text

__all__ = ["hover_lines", "svg", "svg_path"]

_STYLE = """\
svg{background:#fff;font-family:system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
.head{font-size:16px;font-weight:600;fill:#1f2328}
.note{font-size:12px;fill:#59636e}
.wire{fill:none;stroke:#818b98;stroke-width:1.2}
.tip{fill:#818b98}
.box rect.body{fill:#f6f8fa;stroke:#818b98;stroke-width:1}
.box.output rect.body,.box.input rect.body{stroke-width:2}
.box:hover rect.body{stroke-width:2.5}
.title{font-size:13px;font-weight:600;fill:#1f2328}
.line{font-size:11px;fill:#424a53}
"""
_DARK = """\
svg{background:#0d1117}
.head,.title{fill:#f0f6fc}
.note,.line{fill:#b7bfc8}
.box rect.body{fill:#161b22;stroke:#6b7480}
.wire{stroke:#6b7480}
.tip{fill:#6b7480}
"""
_HEAD = 56


def svg(picture: Picture) -> Iterator[str]:
    """Pieces of the SVG document, in order."""
    layout = picture.layout()
    width, height = max(layout.width, 320), layout.height + _HEAD
    light = "".join(f".f-{f.key}{{fill:{f.light}}}\n" for f in FAMILIES)
    dark = "".join(f".f-{f.key}{{fill:{f.dark}}}\n" for f in FAMILIES)
    yield (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">\n'
        f"<style>\n{_STYLE}{light}"
        f"@media (prefers-color-scheme:dark){{\n{_DARK}{dark}}}\n</style>\n"
        f"<title>{escape(picture.title)}</title>\n"
        f'<text class="head" x="24" y="26">{escape(picture.title)}</text>\n'
        f'<text class="note" x="24" y="44">{escape(_note(picture))}</text>\n'
        f'<g transform="translate(0 {_HEAD})">\n'
    )
    for route, label in zip(layout.routes, picture.labels, strict=True):
        x, y = route[-1]
        yield (
            f'<g><title>{escape(label)}</title><path class="wire" d="{svg_path(route)}"/>'
            f'<path class="tip" d="M{x - 3.5:.1f} {y - 7:.1f}h7L{x:.1f} {y:.1f}z"/></g>\n'
        )
    for i, box in enumerate(picture.boxes):
        yield _box(picture, layout, i, box)
    yield "</g>\n</svg>\n"


def _note(picture: Picture) -> str:
    if not picture.boxes:
        return "the graph has no operators"
    return "; ".join([picture.subtitle, *picture.problems])


def svg_path(route: tuple[Point, ...]) -> str:
    """Path of a wire: straight where it goes straight down, else vertical at both ends."""
    (x, y), *rest = route
    parts = [f"M{x:.1f} {y:.1f}"]
    for a, b in rest:
        if abs(a - x) < 0.05:
            parts.append(f"V{b:.1f}")
        else:
            middle = (y + b) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}")
        x, y = a, b
    return "".join(parts)


def _box(picture: Picture, layout: Layout, i: int, box: Box) -> str:
    x, y = layout.corners[i]
    w, h = box.size
    hover = escape("\n".join(hover_lines(picture, box)))
    radius = h / 2 if box.kind in ("input", "output") else 5
    radius = min(radius, 14)
    text = [f'<text class="title" x="{x + 12:.1f}" y="{y + 20:.1f}">{escape(box.title)}</text>']
    text += [
        f'<text class="line" x="{x + 12:.1f}" y="{y + 35 + 15 * k:.1f}">{escape(line)}</text>'
        for k, line in enumerate(box.lines)
    ]
    return (
        f"<g class={quoteattr('box ' + box.kind)}><title>{hover}</title>"
        f'<rect class="body" x="{x:.1f}" y="{y:.1f}" width="{w:.0f}" height="{h:.0f}" '
        f'rx="{radius:.0f}"/>'
        f'<rect class="f-{box.family.key}" x="{x:.1f}" y="{y + 6:.1f}" width="5" '
        f'height="{h - 12:.0f}"/>'
        f"{''.join(text)}</g>\n"
    )


def hover_lines(picture: Picture, box: Box) -> list[str]:
    """All about a box in lines of plain text: what a tooltip shows."""
    if box.kind == "output":
        return [f"output {box.name}", *box.lines, f"computed by operator {box.operator}"]
    found = picture.operators[box.operator]
    lines = [f"{found['type']} {box.name}"]
    offset = found["offset_bytes"]
    place = "" if offset is None else f", file offset 0x{offset:x}"
    lines.append(f"operator {box.operator}{place}")
    lines += [
        f"in  {e['role'] or ''}: {type_text(e, full=True)}  {e['name']}"
        for e in found["inputs"][:20]
    ]
    lines += [f"out {e['name'] or ''}: {type_text(e, full=True)}" for e in found["outputs"][:20]]
    lines += [f"holds {e['name'] or ''}: {type_text(e, full=True)}" for e in found["tensors"][:20]]
    for record in found["params"]:
        lines += [f"{name} = {_shown(record, name)}" for name in record["changed"]]
    return [*lines, *found["problems"]]


def _shown(record: dict[str, Any], name: str) -> str:
    return str(record["fields"][name])[:200]
