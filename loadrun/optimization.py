"""What is done to a network before it runs: what the command line asks for, else the backend.

A backend may have an attribute `wants` (`OptimizeOptions`): what makes networks fast on it. Without
one it gets constants folded, arithmetic moved into weights, and convolutions fused with their bias
and nonlinearity.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgeserial.errors import InputError
from mgeserial.passes.options import OptimizeOptions, add_switches, options_from

if TYPE_CHECKING:
    from mgeserial.ir.graph import Graph
    from mgeserial.passes.report import Report

__all__ = ["Optimized", "add_options", "optimized", "options_of"]


@dataclass(frozen=True, slots=True)
class Optimized:
    """A network made ready; `report` is None when it is as in the file."""

    graph: Graph
    report: Report | None
    seconds: float

    @property
    def note(self) -> str:
        """One line for the summary."""
        if self.report is None:
            return "not optimised: the file's operators as they are"
        before, after = sum(self.report.before.values()), sum(self.report.after.values())
        bits = self.report.options.bits
        return (
            f"optimised: {before} -> {after} operators in {self.seconds:.2f} s "
            f"(optimize_options {bits:#x}; --no-optimize runs the file as it is)"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the switches and `--no-optimize`."""
    add_switches(parser)
    parser.add_argument(
        "--no-optimize", action="store_true", help="run the file's operators as they are"
    )


def options_of(args: argparse.Namespace, backend: object) -> OptimizeOptions | None:
    """What to do to a network; None: nothing.

    Args:
        args: What a parser with `add_options` made.
        backend: The backend that will run it.

    Raises:
        InputError: Switches that contradict.
    """
    given = options_from(args)
    if args.no_optimize:
        if given is not None:
            raise InputError("--no-optimize and switches of the optimiser contradict")
        return None
    if given is not None:
        return given
    wants = getattr(backend, "wants", None)
    if isinstance(wants, OptimizeOptions):
        return wants
    return OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)


def optimized(graph: Graph, options: OptimizeOptions | None) -> Optimized:
    """Do it.

    Raises:
        PassError: A pass failed.
    """
    if options is None or not options.optimize_for_inference:
        return Optimized(graph, None, 0.0)
    from mgeserial.passes.pipeline import optimize

    start = time.perf_counter()
    new, report = optimize(graph, options)
    return Optimized(new, report, time.perf_counter() - start)
