"""Areas in proportion to numbers, as square as may be.

Source: Bruls, Huizing & van Wijk, "Squarified Treemaps" (2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.reporting.markup import Markup, tag

__all__ = ["Area", "Item", "place", "treemap"]

# Percent of the whole below which an area has no words.
_WORDS_WIDE, _WORDS_TALL = 6.0, 6.0


@dataclass(frozen=True, slots=True)
class Item:
    """What gets an area: a size, words, a tone (a class of the page) and a longer text."""

    size: float
    title: str
    detail: str
    tone: str
    label: str


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def place(sizes: Sequence[float], width: float, height: float) -> list[Area]:
    """Fill a rectangle with areas in proportion to sizes, which descend.

    Args:
        sizes: Positive numbers, the largest first.
        width: Of the whole.
        height: Of the whole.
    """
    total = sum(sizes)
    if not total:
        return []
    areas: list[Area] = []
    scale = width * height / total
    left = Area(0, 0, width, height)
    start = 0
    while start < len(sizes):
        side = min(left.width, left.height)
        end, best = start + 1, _worst(sizes, start, start + 1, side, scale)
        while end < len(sizes):
            wider = _worst(sizes, start, end + 1, side, scale)
            if wider > best:
                break
            end, best = end + 1, wider
        row = [s * scale for s in sizes[start:end]]
        areas += _row(row, left)
        left = _rest(sum(row), left)
        start = end
    return areas


def _worst(sizes: Sequence[float], start: int, end: int, side: float, scale: float) -> float:
    """The longest side by the shortest in a row of areas along `side`."""
    total = sum(sizes[start:end]) * scale
    if not total or not side:
        return float("inf")
    thick = total / side
    lengths = [s * scale / thick for s in (sizes[start], sizes[end - 1])]
    return max(max(n / thick, thick / n) if n else float("inf") for n in lengths)


def _row(row: Sequence[float], left: Area) -> list[Area]:
    total = sum(row)
    at, found = 0.0, []
    tall = left.height <= left.width
    thick = total / (left.height if tall else left.width) if total else 0.0
    for size in row:
        length = size / thick if thick else 0.0
        if tall:
            found.append(Area(left.x, left.y + at, thick, length))
        else:
            found.append(Area(left.x + at, left.y, length, thick))
        at += length
    return found


def _rest(used: float, left: Area) -> Area:
    if left.height <= left.width:
        thick = used / left.height if left.height else 0.0
        return Area(left.x + thick, left.y, max(left.width - thick, 0.0), left.height)
    thick = used / left.width if left.width else 0.0
    return Area(left.x, left.y + thick, left.width, max(left.height - thick, 0.0))


def treemap(items: Sequence[Item], *, title: str) -> Markup:
    """The picture; sizes in percent, so that it fits any width and words keep their size."""
    ordered = sorted((i for i in items if i.size > 0), key=lambda i: -i.size)
    # Laid out for a picture twice as wide as high, then stretched to 100 by 100 percent.
    areas = place([i.size for i in ordered], 200.0, 100.0)
    parts = []
    for item, area in zip(ordered, areas, strict=True):
        box = tag("rect", width="100%", height="100%", class_=f"tile {item.tone}")
        words: list[Markup] = []
        if area.width / 2 > _WORDS_WIDE and area.height > _WORDS_TALL:
            words.append(tag("text", item.title, x="7", y="17", class_="name"))
            if area.height > 2 * _WORDS_TALL:
                words.append(tag("text", item.detail, x="7", y="33"))
        parts.append(
            tag(
                "svg",
                box,
                *words,
                x=f"{area.x / 2:.4f}%",
                y=f"{area.y:.4f}%",
                width=f"{area.width / 2:.4f}%",
                height=f"{area.height:.4f}%",
                data_label=item.label,
                data_size=item.size,
            )
        )
    picture = tag("svg", tag("title", title), *parts, class_="treemap", role="img")
    readout = tag("output", class_="readout")
    return tag("figure", tag("figcaption", tag("b", title), readout), picture, class_="chart wide")
