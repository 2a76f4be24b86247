"""`loadrun run MODEL`: run a model, check its outputs, measure it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadrun.cli.screen import Screen
    from loadrun.optimization import Optimized
    from loadrun.report import RunReport
    from loadrun.runner import CaseResult, Outcome
    from loadrun.session import Session
    from mgeserial.ir.model import Model

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = """\
Run a MegEngine .mge model and measure it. Test cases inside the file are run and checked; otherwise
inputs come from --input, and the rest are random."""
EPILOG = """\
examples:
  loadrun net.mge                                random inputs, 10 runs after 1 warm-up
  loadrun net.mge --iter 100 --warmup-iter 500ms --json times.json
  loadrun net.mge --input 'data:cat.png;im_info:[[224,224,1]]'
  loadrun net.mge --input 'data:#rand(0,255,1,3,224,224)'

A model whose name is a command's is run as ./run. Nothing is written but what --json and
--bin-out-dump name, and compiled code in the cache folder ($LOADRUN_CACHE, else the user's).
exit codes: 0 done, 1 outputs are not as expected, 2 bad usage or file, 3 unsupported,
130 interrupted"""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"a whole number from 0 is needed, got `{text}`")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 is needed, got `{text}`")
    return int(text)


def _warmup(text: str) -> Any:
    from loadrun.measure import Warmup

    try:
        return Warmup.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a .mge file, with or without test cases")
    add("--iter", type=_count, default=10, metavar="N", help="timed runs for each case (10)")
    add(
        "--warmup-iter",
        type=_warmup,
        default="1",
        metavar="N",
        help="untimed runs before the first case (1), or a time such as 500ms",
    )
    add(
        "--input",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a .npy, .npz, .json, .ppm, .pgm, .png or .jpg file, an array [[1,2],[3,4]], or "
        "#rand(low,high[,shape]); `;` between inputs; may be repeated",
    )
    add("--seed", type=_count, default=0, metavar="N", help="seed of random inputs (0)")
    add("--backend", default="auto", metavar="NAME", help="what computes (auto: the fastest here)")
    add("--cpu", action="store_true", help="compute on the CPU")
    add(
        "--threads",
        "--multithread",
        type=_positive,
        metavar="N",
        help="threads to compute on (the backend's choice)",
    )
    add("--json", metavar="FILE", help="write everything measured as JSON; - for stdout")
    add("--bin-out-dump", metavar="DIR", help="write the outputs as load_and_run does")
    add(
        "--disable-assert-throw",
        action="store_true",
        help="report outputs that are not as expected, but time them and exit with 0",
    )
    from loadrun.cli import compare
    from loadrun.optimization import add_options

    compare.add_options(parser)
    add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Run, print, write; the exit code."""
    import mgeserial
    from loadrun.cli import compare
    from loadrun.cli.screen import Screen
    from loadrun.session import Session
    from mgeserial.ops.registry import every

    if compare.is_wanted(args):
        return compare.execute(args)
    screen = Screen(args.iter, lines=not (args.quiet or args.json == "-"), progress=not args.quiet)
    # The operator records belong to the program's start, not to reading a file.
    next(every(), None)
    start = time.perf_counter_ns()
    model = mgeserial.load(args.model)
    ready = _optimized(args, model)
    with Session(ready.graph, _backend(args), args.threads) as session:
        load_ns = time.perf_counter_ns() - start
        screen.opened(load_ns)
        report = _measure(args, model, session, screen)
        report.load_ns = load_ns
        report.notes = [*report.notes, ready.note]
        plan = session.program.report.plan if session.program is not None else []
    for line in plan if args.verbose > 1 else ():
        screen.say(line)
    _publish(args, report)
    return _exit_code(args, report.outcome)


def _exit_code(args: argparse.Namespace, outcome: Outcome) -> int:
    from loadrun.cli.entry import INTERRUPTED

    if outcome.interrupted:
        return INTERRUPTED
    return 1 if outcome.failed and not args.disable_assert_throw else 0


def _backend(args: argparse.Namespace) -> str:
    """Name of the backend; `--cpu` is the fastest one that does not need another device."""
    from loadrun.backends.base import get_backend
    from mgeserial.errors import InputError, UnsupportedError

    if not args.cpu:
        return str(args.backend)
    if args.backend not in ("auto", "cpu", "reference"):
        raise InputError(f"--cpu and --backend {args.backend} exclude each other")
    if args.backend != "auto":
        return str(args.backend)
    try:
        return get_backend("cpu").name
    except (InputError, UnsupportedError):
        return "reference"


def _optimized(args: argparse.Namespace, model: Model) -> Optimized:
    """The network as it will run."""
    from loadrun.backends.base import choose, get_backend
    from loadrun.optimization import optimized, options_of

    name = _backend(args)
    backend = choose() if name == "auto" else get_backend(name)
    return optimized(model.graph, options_of(args, backend))


def _measure(args: argparse.Namespace, model: Model, session: Session, screen: Screen) -> RunReport:
    from loadrun.environment import environment, file_sha256, peak_memory_bytes
    from loadrun.report import RunReport
    from loadrun.runner import make_cases, run_cases

    testcases = model.testcases
    if testcases and args.input:
        screen.say(f"--input is given: the file's {len(testcases)} test cases are not run")
    cases = make_cases(session, testcases, args.input, seed=args.seed)
    try:
        outcome = run_cases(
            session,
            cases,
            iters=args.iter,
            warmup=args.warmup_iter,
            time_failed=args.disable_assert_throw,
            keep_outputs=_keeper(args, session),
            listener=screen,
        )
    finally:
        screen.clear()
    program = session.program.report if session.program is not None else None
    fallback = program.fallback if program else {}
    notes = list(program.notes) if program else []
    if fallback:
        held = ", ".join(f"{name} ({count})" for name, count in fallback.items())
        notes.append(f"run by the reference backend: {held}")
    return RunReport(
        model=args.model,
        backend=session.backend,
        threads=session.threads,
        outcome=outcome,
        outputs=session.outputs,
        iters=args.iter,
        warmup=str(args.warmup_iter),
        seed=args.seed,
        model_bytes=model.info.nbytes if model.info else None,
        sha256=file_sha256(args.model) if args.json else None,
        environment=environment() if args.json else {},
        peak_memory_bytes=peak_memory_bytes(),
        weight_bytes=program.weight_bytes if program else None,
        arena_bytes=program.arena_bytes if program else None,
        notes=notes,
        command=args.command_line,
    )


def _keeper(args: argparse.Namespace, session: Session) -> Callable[[CaseResult], None] | None:
    """What to do with a case's outputs; None: nobody asked for them, so they are not computed."""
    if not (args.bin_out_dump or args.json or args.verbose):
        return None

    def keep(result: CaseResult) -> None:
        if args.bin_out_dump:
            from loadrun.runner import dump_outputs

            dump_outputs(result, session.outputs, args.bin_out_dump)

    return keep


def _publish(args: argparse.Namespace, report: RunReport) -> None:
    """The summary on stdout and the document where it was asked for."""
    from loadrun.report import to_json, to_text

    if args.json == "-":
        sys.stdout.write(to_json(report))
        return
    print(to_text(report, verbose=args.verbose))
    if not args.json:
        return
    document = to_json(report)
    from mgeserial.format.atomic import write_atomic

    # A named result is replaced as a whole without asking: measuring again is the normal case.
    write_atomic(args.json, document.encode("utf-8", "surrogateescape"))
