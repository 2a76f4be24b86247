"""Lowering rules, one family of operators per module."""

from __future__ import annotations

import importlib

_MODULES = (
    "elemwise",
    "multitype",
    "fakequant",
    "moves",
    "index",
    "select",
    "counted",
    "conv",
    "convgrad",
    "pool",
    "matrix",
    "reduce",
    "norm",
    "normgrad",
    "order",
    "image",
    "imagegrad",
    "filters",
    "color",
    "roi",
    "recurrent",
    "recurrentgrad",
    "random",
    "deform",
    "psroi",
    "local",
    "neighbours",
    "linear",
    "attention",
)


def load() -> None:
    """Import all modules, so that their rules are registered."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
