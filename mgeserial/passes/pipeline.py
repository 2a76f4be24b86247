"""Which passes an `OptimizeOptions` stands for, and in which order."""

from __future__ import annotations

from dataclasses import replace

from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph, Metadata
from mgeserial.passes.arithmetic import Arithmetic
from mgeserial.passes.base import Check, Pass, run_passes
from mgeserial.passes.batchnorm import BATCH_NORM
from mgeserial.passes.census import census, weight_bytes
from mgeserial.passes.convbias import CONV_BIAS, CONV_Z, DECONV_TYPE
from mgeserial.passes.float16 import Float16
from mgeserial.passes.folding import CommonSubexpressions, DeadCode, FoldConstants, SharedConstants
from mgeserial.passes.grain import GRAIN, REDUCE_TYPE
from mgeserial.passes.layout import passes_for
from mgeserial.passes.noops import NO_OPS
from mgeserial.passes.options import Layout, OptimizeOptions
from mgeserial.passes.preprocess import PREPROCESS
from mgeserial.passes.report import Report
from mgeserial.passes.shuffles import ShuffleChains

__all__ = ["optimize", "passes_of"]

# Layouts that MegEngine fuses the residual for.
_WITH_Z = frozenset({Layout.NCHW4, Layout.NCHW32, Layout.CHWN4, Layout.NCHW64})


def passes_of(options: OptimizeOptions) -> list[Pass]:
    """The passes in order."""
    if not options.optimize_for_inference:
        return []
    passes: list[Pass] = [DeadCode(), CommonSubexpressions(), BATCH_NORM, NO_OPS, FoldConstants()]
    passes += [Arithmetic(), NO_OPS, REDUCE_TYPE]
    if options.enable_fuse_grain:
        passes.append(GRAIN)
    if options.enable_fuse_preprocess:
        passes.append(PREPROCESS)
    if options.enable_ioc16 or options.enable_io16xc32:
        passes += [Float16(sum_float32=options.enable_io16xc32), NO_OPS]
    if options.fuses_conv:
        passes.append(CONV_BIAS)
    if options.enable_fuse_conv_bias_with_z or options.layout in _WITH_Z:
        passes.append(CONV_Z)
    if options.layout is not Layout.NONE:
        passes += passes_for(options.layout)
    passes += [DECONV_TYPE, ShuffleChains(), NO_OPS, FoldConstants()]
    return [*passes, CommonSubexpressions(), SharedConstants(), DeadCode()]


def optimize(
    graph: Graph, options: OptimizeOptions | None = None, *, check: Check | None = None
) -> tuple[Graph, Report]:
    """Transform a graph as MegEngine's `optimize_for_inference` does.

    Args:
        graph: The graph; it stays as it is.
        options: Switches; None: the plain optimisation for inference.
        check: A comparison of the graph before and after each pass, such as `OutputCheck`.

    Returns:
        A new graph whose metadata say what was done, and the report.

    Raises:
        PassError: A pass failed or left a graph that is not sound.
    """
    options = options or OptimizeOptions()
    new, results = run_passes(graph, passes_of(options), check=check)
    if new is graph:
        new, _ = copy_graph(graph)
    before = graph.metadata or Metadata(is_valid=True)
    new.metadata = replace(before, is_valid=True, optimize_options=options.bits)
    report = Report(
        options,
        tuple(results),
        census(graph),
        census(new),
        weight_bytes(graph),
        weight_bytes(new),
    )
    return new, report
