"""Lowering rules, one family of operators per module."""

from __future__ import annotations

import importlib

_FIRST = (
    "conv",
    "elemwise",
    "shape",
    "matrix",
    "norm",
    "quantized",
    "resize",
    "recurrent",
)
# Imported when no rule of the first ones applies to an operator: half of all networks need none.
_LATER = (
    "index",
    "order",
    "image",
    "roi",
    "move",
    "moments",
    "product",
    "deform",
    "attention",
    "windows",
    "spread",
    "typed",
    "reduce",
    "control",
    "color",
    "fill",
    "whole",
    "composed",
)


def load(*, later: bool = True) -> None:
    """Import modules, so that their rules are registered: all, or those that most networks need."""
    for name in (*_FIRST, *(_LATER if later else ())):
        importlib.import_module(f"{__name__}.{name}")
