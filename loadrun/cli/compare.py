"""`loadrun A --compare B` and `loadrun A --backends reference,cpu`: what differs, and how fast."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadrun.cli.setup import Request
    from loadrun.compare import Comparison
    from loadrun.comparison_report import CompareReport
    from loadrun.inputs import Feeds
    from loadrun.sides import Side
    from mgeserial.ir.graph import Graph
    from mgeserial.ir.model import Model

__all__ = ["execute", "is_wanted"]

_LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def is_wanted(args: argparse.Namespace) -> bool:
    """Whether a comparison is asked for.

    Raises:
        InputError: Options of comparisons without one.
    """
    from mgeserial.errors import InputError

    if args.compare is not None or args.backends is not None:
        return True
    for option in ("max_err", "bisect", "no_walk"):
        if getattr(args, option) not in (None, False):
            raise InputError(
                f"--{option.replace('_', '-')} belongs to a comparison",
                hint="say with what: --compare MODEL, or --backends reference,cpu",
            )
    return False


# Options that a comparison knows; the others measure or dump one model.
_WORDS = """
iter warmup_iter graph input seed batch_size json report csv fail_if compare backends max_err bisect
no_walk backend cpu cuda cpu_default threads multithread_default multi_thread_core_ids enable_jit
fast_run full_run fast_run_algo_policy fast_run_shared_batch_size reproducible workspace_limit
disable_mem_opt no_cache verify_cache
"""
_KNOWN = frozenset(_WORDS.split())


def _refuse_others(args: argparse.Namespace) -> None:
    """Refuse what would be left out without a word.

    Raises:
        InputError: An option that does not go with a comparison.
    """
    from loadrun.cli.options import State, given
    from mgeserial.errors import InputError

    for option in given(args):
        if option.state is State.WORKS and option.dest not in _KNOWN:
            raise InputError(
                f"{option.name} does not go with --compare and --backends",
                hint=f"run each model with {option.name} by itself",
            )


def execute(args: argparse.Namespace) -> int:
    """Compare, print, write; the exit code."""
    import mgeserial
    from loadrun.cli import conditions, setup
    from loadrun.cli.progress import ProgressLine
    from loadrun.cli.screen import Screen
    from loadrun.compare import GATES, compare
    from loadrun.comparison_report import CompareReport
    from loadrun.environment import environment

    gates = conditions.read(args.fail_if, GATES)
    _refuse_others(args)
    screen = Screen(args.iter, lines=False, progress=not args.quiet)
    request = setup.request_of(args, screen)
    line = ProgressLine(sys.stderr, enabled=not args.quiet)
    model = mgeserial.load(args.model)
    other = mgeserial.load(args.compare) if args.compare is not None else None
    feeds, sides = _sides(args, request, model, other)
    cases = [(title, found.arrays) for title, found in feeds]
    bisect_to = args.bisect or (None if args.bisect is None else _beside(args.model))

    def against(side: Side) -> Comparison:
        return compare(
            sides[0],
            side,
            cases,
            iters=args.iter,
            warmup=args.warmup_iter,
            max_err=args.max_err,
            look=not args.no_walk,
            bisect_to=bisect_to,
            seed=args.seed,
            progress=line.update,
        )

    try:
        found = [against(side) for side in sides[1:]]
    finally:
        line.clear()
    keep = bool(args.json) or bool(getattr(args, "report", None))
    failed = [g.text for g in gates if any(g.holds(c.values()) for c in found)]
    report = CompareReport(
        found,
        cases=[title for title, _ in feeds],
        inputs=_inputs(feeds[0][1]),
        failed=failed,
        files={s.path: _file(s.path) for s in sides} if keep else {},
        iters=args.iter,
        warmup=str(args.warmup_iter),
        seed=args.seed,
        environment=environment() if keep else {},
        command=args.command_line,
    )
    _publish(args, report)
    return 0 if report.passed else 1


def _beside(path: str) -> str:
    return f"{os.path.splitext(path)[0]}.bisect.mge"


def _file(path: str) -> tuple[int | None, str | None]:
    from loadrun.environment import file_sha256

    return (os.path.getsize(path) if os.path.isfile(path) else None, file_sha256(path))


def _inputs(feeds: Feeds) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "from": feeds.sources.get(name),
        }
        for name, array in feeds.arrays.items()
    ]


def _sides(
    args: argparse.Namespace, request: Request, model: Model, other: Model | None
) -> tuple[list[tuple[str, Feeds]], list[Side]]:
    """The cases' inputs and the two or more sides."""
    from loadrun.cli import setup
    from mgeserial.errors import InputError

    names = _backends(args, request)
    if other is not None and len(names) > 2:
        raise InputError(
            f"--compare takes at most two backends, got {len(names)}",
            hint="one for both models, or one for each: --backends reference,cpu",
        )
    if other is None and len(names) < 2:
        raise InputError("--backends needs two at least", hint="such as --backends reference,cpu")
    network = _plain(setup.pick_graph(args, model))
    feeds = _cases(args, model, network)
    first = _shaped(network, feeds[0][1])
    if other is None:
        graphs = [(args.model, first)] * len(names)
    else:
        second = _plain(setup.pick_graph(args, other))
        graphs = [(args.model, first), (args.compare, _shaped(second, _as_second(feeds, second)))]
        names = names * 2 if len(names) == 1 else names
    return feeds, [
        _side(args, request, _LABELS[i], path, graph, name)
        for i, ((path, graph), name) in enumerate(zip(graphs, names, strict=True))
    ]


def _backends(args: argparse.Namespace, request: Request) -> list[str]:
    from loadrun.backends.base import choose, get_backend

    names = [n.strip() for n in args.backends.split(",")] if args.backends else [request.backend]
    return [choose().name if n == "auto" else get_backend(n).name for n in names][: len(_LABELS)]


def _side(
    args: argparse.Namespace,
    request: Request,
    label: str,
    path: str,
    graph: Graph,
    backend: str,
) -> Side:
    from loadrun.backends.base import get_backend
    from loadrun.optimization import optimized, options_of
    from loadrun.sides import Side

    options = options_of(args, get_backend(backend))

    def prepare(network: Graph) -> Graph:
        return optimized(network, options).graph

    return Side(label, path, graph, backend, request.threads, prepare, request.options)


def _plain(graph: Graph) -> Graph:
    """A network without checks of its outputs."""
    from mgeserial.testcases import strip_asserts

    if any(n.op.name == "AssertEqual" for n in graph.nodes):
        return strip_asserts(graph)
    return graph


def _cases(args: argparse.Namespace, model: Model, network: Graph) -> list[tuple[str, Feeds]]:
    """Inputs of each case: those given, the file's test cases, or random ones."""
    from loadrun.inputs import Feeds, resolve_inputs
    from mgeserial.testcases import cases_of

    stored = cases_of(model) if not args.input and args.batch_size is None else []
    if stored:
        return [
            (f"test case {i}", Feeds(case.inputs, dict.fromkeys(case.inputs, f"test case {i}")))
            for i, case in enumerate(stored)
        ]
    types = network.inference.types
    inputs = dict(zip(network.input_names, (types[v] for v in network.inputs), strict=True))
    feeds = resolve_inputs(args.input, inputs, seed=args.seed)
    title = "given inputs" if args.input else f"random inputs, seed {args.seed}"
    return [(title if inputs else "no inputs", feeds)]


def _as_second(feeds: list[tuple[str, Feeds]], graph: Graph) -> Feeds:
    """Inputs of the first model under the names of the second, where these are known."""
    from loadrun.inputs import Feeds

    arrays = feeds[0][1].arrays
    names = list(graph.input_names)
    if all(n in arrays for n in names):
        return Feeds({n: arrays[n] for n in names})
    if len(names) == len(arrays):
        return Feeds(dict(zip(names, arrays.values(), strict=True)))
    return Feeds({n: a for n, a in arrays.items() if n in names})


def _shaped(graph: Graph, feeds: Feeds) -> Graph:
    """The network at the shapes of its inputs, so that its parts have them too."""
    from mgeserial.editing import find_input, set_input_shapes
    from mgeserial.ir.copying import copy_graph

    types = graph.inference.types
    wanted = {
        n: a.shape
        for n, a in feeds.arrays.items()
        if n in graph.input_names and types[find_input(graph, n)].shape != a.shape
    }
    if not wanted:
        return graph
    copy, _ = copy_graph(graph)
    set_input_shapes(copy, wanted)
    return copy


def _publish(args: argparse.Namespace, report: CompareReport) -> None:
    """Text on stdout, the documents where they were asked for."""
    from loadrun.cli.outcome import publish
    from loadrun.comparison_report import document, to_text

    publish(args, lambda: document(report), lambda: to_text(report, verbose=args.verbose))
