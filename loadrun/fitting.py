"""Trying ways to run a network and keeping the fastest: `--fitting` and `--layout-transform`.

Each candidate is optimised, compiled and timed on its own: 3 warm-up runs, then 10 runs. One that
cannot be made or run is reported with its reason and never wins.

Source: MegEngine 1.13.4 lite/load_and_run/src/strategys/strategy_fitting.cpp (3 warm-up runs, 10
runs, the line `profile option:` and `avg_time=`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loadrun.backends.base import CompileOptions
from loadrun.optimization import optimized
from loadrun.session import Session
from mgeserial.dtypes import Array
from mgeserial.errors import MgeError, UnsupportedError
from mgeserial.ir.graph import Graph
from mgeserial.passes.options import OptimizeOptions

__all__ = ["Candidate", "Trial", "candidates", "fit", "layout_candidates"]

_WARMUP, _ITERS = 3, 10
_LAYOUTS = {
    "cpu": ("enable_nchw44", "enable_nchw88", "enable_nchw44_dot", "enable_hwcd4"),
    "cuda": ("enable_nchw4", "enable_chwn4", "enable_nchw32", "enable_nchw64"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to run a network.

    Attributes:
        label: Switches as a person would write them; `as in the file` for none.
        options: What the optimiser does; None: nothing.
        fast_run: Whether algorithms are chosen by measuring.
    """

    label: str
    options: OptimizeOptions | None
    fast_run: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a candidate.

    Attributes:
        candidate: The candidate.
        graph: The network as it ran; None when it could not be made.
        mean_ns, median_ns: Times of the 10 runs, ns; None when it could not run.
        reason: Why not.
    """

    candidate: Candidate
    graph: Graph | None
    mean_ns: float | None
    median_ns: float | None
    reason: str = ""

    def __str__(self) -> str:
        head = f"profile option: {self.candidate.label}"
        if self.mean_ns is None:
            return f"{head}\n not possible: {self.reason}"
        return f"{head}\n avg_time={self.mean_ns / 1e6:.3f} ms"


def layout_candidates(target: str) -> list[Candidate]:
    """The layout of the file, and those that suit a target (`cpu` or `cuda`)."""
    plain = OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)
    layouts = [
        Candidate(f"--{name.replace('_', '-')}", OptimizeOptions(**{name: True}))
        for name in _LAYOUTS[target]
    ]
    return [Candidate("--enable-fuse-conv-bias-nonlinearity", plain), *layouts]


def candidates(backend: str) -> list[Candidate]:
    """Combinations worth trying on a backend."""
    target = "cuda" if backend == "cuda" else "cpu"
    found = [
        Candidate("as in the file", None),
        Candidate("--optimize-for-inference", OptimizeOptions()),
        *layout_candidates(target),
    ]
    if backend == "cpu":
        fused = OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)
        label = "--enable-fuse-conv-bias-nonlinearity --fast-run"
        found.append(Candidate(label, fused, fast_run=True))
    return found


def fit(
    graph: Graph,
    tried: Sequence[Candidate],
    feeds: Mapping[str, Array],
    *,
    backend: str,
    options: CompileOptions,
    on_trial: Callable[[Trial], object] | None = None,
) -> Trial:
    """Time all candidates; the one with the least median.

    Args:
        graph: The network as in the file.
        tried: Candidates, in order.
        feeds: Inputs by name.
        backend: What computes.
        options: How to compile.
        on_trial: Told about each.

    Raises:
        UnsupportedError: None of them can run.
    """
    trials = []
    for candidate in tried:
        trial = _try(graph, candidate, feeds, backend, options)
        trials.append(trial)
        if on_trial is not None:
            on_trial(trial)
    running = [t for t in trials if t.median_ns is not None]
    if not running:
        raise UnsupportedError(f"no combination can run: {trials[-1].reason}")
    return min(running, key=lambda t: t.median_ns or 0.0)


def _try(
    graph: Graph,
    candidate: Candidate,
    feeds: Mapping[str, Array],
    backend: str,
    options: CompileOptions,
) -> Trial:
    try:
        made = optimized(graph, candidate.options).graph
        compile_options = replace(options, fast_run=options.fast_run or candidate.fast_run)
        with Session(made, backend, options=compile_options) as session:
            stats = session.benchmark(_ITERS, _WARMUP, feeds)
    except MgeError as error:
        return Trial(candidate, None, None, None, error.message)
    return Trial(candidate, made, stats.mean_ns, stats.median_ns)
