"""Transformations of graphs as MegEngine's `optimize_for_inference` does them, with reasons."""

from mgeserial.passes.evaluate import OutputCheck
from mgeserial.passes.options import Layout, OptimizeOptions
from mgeserial.passes.pipeline import optimize, passes_of
from mgeserial.passes.report import Report

__all__ = ["Layout", "OptimizeOptions", "OutputCheck", "Report", "optimize", "passes_of"]
