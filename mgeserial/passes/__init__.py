"""Transformations of graphs as MegEngine's `optimize_for_inference` does them, with reasons.

graph, report = mgeserial.passes.optimize(model.graph, OptimizeOptions(enable_nchw44=True))
print(report.text())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgeserial.passes.evaluate import OutputCheck
    from mgeserial.passes.options import Layout, OptimizeOptions
    from mgeserial.passes.pipeline import optimize, passes_of
    from mgeserial.passes.report import Report

__all__ = ["Layout", "OptimizeOptions", "OutputCheck", "Report", "optimize", "passes_of"]

# Imported when first asked for: a command line takes its switches from `options` alone.
_HOMES = {
    "Layout": "options",
    "OptimizeOptions": "options",
    "OutputCheck": "evaluate",
    "Report": "report",
    "optimize": "pipeline",
    "passes_of": "pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mgeserial.passes' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
