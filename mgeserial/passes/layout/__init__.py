"""Conversions of whole graphs to packed layouts."""

from __future__ import annotations

from mgeserial.errors import UnsupportedError
from mgeserial.passes.base import Pass
from mgeserial.passes.options import Layout

__all__ = ["passes_for"]


def passes_for(layout: Layout) -> list[Pass]:
    """The passes that convert a graph to a layout, in order.

    Raises:
        UnsupportedError: There are none for this layout.
    """
    raise UnsupportedError(f"layout {layout.name} is not available")
