"""Lowering rules, one family of operators per module."""

from __future__ import annotations

import importlib

_MODULES = (
    "conv",
    "elemwise",
    "shape",
    "matrix",
    "norm",
    "quantized",
    "resize",
    "recurrent",
    "index",
    "order",
    "image",
    "roi",
    "move",
    "moments",
    "typed",
    "reduce",
    "control",
    "color",
    "fill",
)


def load() -> None:
    """Import all modules, so that their rules are registered."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
