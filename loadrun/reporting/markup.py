"""HTML and SVG as text: everything that is not markup made here is escaped."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "clean", "join", "tag", "text"]

_EMPTY = frozenset({"br", "path", "rect", "line", "circle", "meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def clean(value: object) -> str:
    """A text with what a page would hide or obey made visible: controls, marks of direction."""
    shown = str(value)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in shown)


def text(value: object) -> Markup:
    """Markup of a plain text; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(clean(value).encode("utf-8", "backslashreplace").decode("utf-8")))


def join(*parts: object) -> Markup:
    """Parts one after another; None is left out."""
    return Markup("".join(text(p) for p in parts if p is not None))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element.

    Args:
        name: Its name.
        children: What is in it.
        attributes: `_` in a name stands for `-`, a trailing `_` is dropped; None and False are
            left out, True is an attribute without a value.
    """
    shown = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        shown.append(f" {label}" if value is True else f' {label}="{text(value)}"')
    inside = "".join(shown)
    if name in _EMPTY:
        # Complete in HTML, and in the SVG inside of it.
        return Markup(f"<{name}{inside}/>")
    return Markup(f"<{name}{inside}>{join(*children)}</{name}>")
