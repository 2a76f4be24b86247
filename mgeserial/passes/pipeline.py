"""Which passes an `OptimizeOptions` stands for, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph, Metadata
from mgeserial.passes.arithmetic import Arithmetic
from mgeserial.passes.base import Check, Fact, Pass, PassResult, run_passes
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

__all__ = ["Stage", "optimize", "passes_of", "stages_of"]

# Rounds of a stage that is repeated; two are usual.
_ROUNDS = 8

# Layouts that MegEngine fuses the residual for.
_WITH_Z = frozenset({Layout.NCHW4, Layout.NCHW32, Layout.CHWN4, Layout.NCHW64})


@dataclass(frozen=True, slots=True)
class Stage:
    """Passes that belong together; `repeat`: until none of them changes anything."""

    passes: tuple[Pass, ...]
    repeat: bool = False


def stages_of(options: OptimizeOptions) -> list[Stage]:
    """The passes in order, in stages."""
    if not options.optimize_for_inference:
        return []
    grain: tuple[Pass, ...] = (GRAIN,) if options.enable_fuse_grain else ()
    first = (DeadCode(), CommonSubexpressions(), BATCH_NORM, NO_OPS, FoldConstants())
    asked: list[Pass] = []
    if options.enable_fuse_preprocess:
        asked.append(PREPROCESS)
    if options.enable_ioc16 or options.enable_io16xc32:
        asked += [Float16(sum_float32=options.enable_io16xc32), NO_OPS]
    if options.fuses_conv:
        asked.append(CONV_BIAS)
    if options.enable_fuse_conv_bias_with_z or options.layout in _WITH_Z:
        asked.append(CONV_Z)
    if options.layout is not Layout.NONE:
        asked += passes_for(options.layout)
    last = (ShuffleChains(), NO_OPS, FoldConstants(), CommonSubexpressions(), SharedConstants())
    return [
        Stage((*first, Arithmetic(), NO_OPS, ShuffleChains(), REDUCE_TYPE, *grain), repeat=True),
        Stage((*asked, DECONV_TYPE)),
        Stage((*last, DeadCode()), repeat=True),
    ]


def passes_of(options: OptimizeOptions) -> list[Pass]:
    """The passes in order."""
    return [p for stage in stages_of(options) for p in stage.passes]


def _run(
    graph: Graph, stages: Sequence[Stage], check: Check | None
) -> tuple[Graph, list[PassResult]]:
    """Run stages; of repeated rounds only the passes that did something are reported."""
    results: list[PassResult] = []
    facts: frozenset[Fact] = frozenset()
    for stage in stages:
        for _ in range(_ROUNDS if stage.repeat else 1):
            graph, found = run_passes(graph, stage.passes, check=check, facts=facts)
            for item in stage.passes:
                facts = (facts - item.spoils) | item.ensures
            changed = any(r.changed for r in found)
            quiet = stage.repeat and changed
            results += [r for r in found if r.changed or not quiet]
            if not changed:
                break
    return graph, results


def optimize(
    graph: Graph, options: OptimizeOptions | None = None, *, check: Check | None = None
) -> tuple[Graph, Report]:
    """Transform a graph as MegEngine's `optimize_for_inference` does.

    Args:
        graph: The graph; it stays as it is.
        options: Switches; None: the plain optimisation for inference.
        check: A comparison of the graph before and after each pass, such as `OutputCheck`.

    Returns:
        A new graph whose metadata say what was done (now or before), and the report.

    Raises:
        PassError: A pass failed or left a graph that is not sound.
    """
    options = options or OptimizeOptions()
    new, results = _run(graph, stages_of(options), check)
    if new is graph:
        new, _ = copy_graph(graph)
    before = graph.metadata or Metadata(is_valid=True)
    new.metadata = replace(before, is_valid=True, optimize_options=_bits(before, options))
    report = Report(
        options,
        tuple(results),
        census(graph),
        census(new),
        weight_bytes(graph),
        weight_bytes(new),
    )
    return new, report


def _bits(before: Metadata, options: OptimizeOptions) -> int:
    """Bits of what was done now and before; the layout is that of the last conversion."""
    old = before.optimize_options
    layout = options.layout or old >> 32
    return ((old | options.bits) & 0xFFFFFFFF) | layout << 32
