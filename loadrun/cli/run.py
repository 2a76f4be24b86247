"""`loadrun run MODEL`: run a model, check its outputs, measure it."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadrun.cli.extras import Checked
    from loadrun.cli.screen import Screen
    from loadrun.cli.setup import Ready, Request
    from loadrun.parallel import Concurrency
    from loadrun.report import RunReport
    from loadrun.runner import Case, CaseResult, Outcome
    from loadrun.session import Session
    from mgeserial.ir.model import Model

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = """\
Run a MegEngine .mge model and measure it. Test cases inside the file are run and checked; otherwise
inputs come from --input, and the rest are random. Every option of load_and_run works or says why
not: `loadrun --help-all` lists them."""
EPILOG = """\
examples:
  loadrun net.mge                                random inputs, 10 runs after 1 warm-up
  loadrun net.mge --iter 100 --warmup-iter stable --json times.json
  loadrun net.mge --duration 3s --profile        at least 3 s, then times of each operator
  loadrun net.mge --input 'data:cat.png;im_info:[[224,224,1]]'
  loadrun net.mge --input 'data:#rand(0,255,1,3,224,224)'

A model whose name is a command's is run as ./run. Nothing is written but the files and folders that
options name, and compiled code in the cache folder ($LOADRUN_CACHE, else the user's).
exit codes: 0 done, 1 outputs are not as expected or a check failed, 2 bad usage or file,
3 unsupported, 130 interrupted"""

# Larger files are hashed only for a document.
_HASHED_BYTES = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command; all of them are in the help of `--help-all`."""
    from loadrun.cli.options import declare

    parser.add_argument("model", metavar="MODEL", help="a .mge file, with or without test cases")
    declare(parser, everything=getattr(parser, "everything", False))


def execute(args: argparse.Namespace) -> int:
    """Run, print, write; the exit code."""
    from loadrun.cli import compare, conditions, setup
    from loadrun.cli.screen import Screen
    from mgeserial.ops.registry import every

    if compare.is_wanted(args):
        return compare.execute(args)
    gates = conditions.read(args.fail_if, conditions.RUN)
    screen = Screen(
        args.iter,
        lines=not (args.quiet or args.json == "-"),
        progress=not args.quiet,
        newer=args.format == "lar13",
    )
    request = setup.request_of(args, screen)
    if args.wait_gdb:
        setup.wait_for_line()
    # The operator records belong to the program's start, not to reading a file.
    next(every(), None)
    start = time.perf_counter_ns()
    model = setup.load(args)
    graph = setup.pick_graph(args, model)
    load_ns = time.perf_counter_ns() - start
    ready = setup.make_ready(args, graph, request, screen)
    if args.model_dump:
        import mgeserial

        mgeserial.save(ready.graph, args.model_dump)
    if args.packed_model_dump:
        setup.pack(args)
    with contextlib.ExitStack() as stack:
        start = time.perf_counter_ns()
        sessions = _sessions(args, stack, request, ready)
        load_ns += time.perf_counter_ns() - start
        screen.opened(load_ns)
        if args.model_info:
            _model_info(args, sessions[0])
        report, checked = _measure(args, model, sessions, request, ready, screen)
        report.load_ns = load_ns
        if report.outcome.unfinished:
            # Closing a session waits for the run that it is in.
            from loadrun.cli.entry import INTERRUPTED
            from loadrun.cli.interrupts import end_now

            _publish(args, report)
            end_now(INTERRUPTED)
        _after(args, report, sessions[0])
    _publish(args, report)
    code = _exit_code(args, report.outcome, checked)
    return code or int(conditions.hold(gates, report))


def _sessions(
    args: argparse.Namespace, stack: contextlib.ExitStack, request: Request, ready: Ready
) -> list[Session]:
    from loadrun.session import Session

    return [
        stack.enter_context(
            Session(ready.graph, request.backend, request.threads, options=ready.options)
        )
        for _ in range(args.thread)
    ]


def _exit_code(args: argparse.Namespace, outcome: Outcome, checked: Checked) -> int:
    from loadrun.cli.entry import INTERRUPTED

    if outcome.interrupted:
        return INTERRUPTED
    wrong = outcome.failed and not args.disable_assert_throw
    return 1 if wrong or checked.failed else 0


def _model_info(args: argparse.Namespace, session: Session) -> None:
    from loadrun.modelinfo import model_info

    text = model_info(session.inputs, session.outputs, about=args.model)
    print(text, file=sys.stderr if args.json == "-" else sys.stdout)


def _measure(
    args: argparse.Namespace,
    model: Model,
    sessions: Sequence[Session],
    request: Request,
    ready: Ready,
    screen: Screen,
) -> tuple[RunReport, Checked]:
    """Checks first, then the samples."""
    from loadrun.cli.extras import check_values
    from loadrun.modelinfo import varying_operators
    from loadrun.runner import make_cases

    session = sessions[0]
    testcases = model.testcases if args.batch_size is None else []
    if model.testcases and (args.input or args.batch_size is not None):
        why = "--input is" if args.input else "--batch-size is"
        screen.say(f"{why} given: the file's {len(model.testcases)} test cases are not run")
    varying = varying_operators(ready.graph)
    cases = make_cases(session, testcases, args.input, seed=args.seed, varying=varying)
    checked = check_values(args, cases, session, request, ready)
    for option, lines in checked.lines.items():
        for line in lines:
            screen.say(f"{option}: {line}")
    try:
        outcome, together = _timed(args, sessions, cases, request, screen)
    finally:
        screen.clear()
    report = _report(args, model, session, outcome, cases)
    report.concurrency = together
    report.checks = checked.lines
    report.notes = [*report.notes, *ready.notes]
    return report, checked


def _timed(
    args: argparse.Namespace,
    sessions: Sequence[Session],
    cases: Sequence[Case],
    request: Request,
    screen: Screen,
) -> tuple[Outcome, Concurrency | None]:
    from loadrun.parallel import run_parallel
    from loadrun.runner import run_cases

    keeper = _keeper(args, sessions[0])
    if len(sessions) > 1:
        outcome, together = run_parallel(
            sessions,
            cases,
            iters=args.iter,
            warmup=args.warmup_iter,
            pacing=request.pacing,
            time_failed=args.disable_assert_throw,
            listener=screen,
        )
        for result in outcome.results:
            if keeper is not None and result.session == 0 and not outcome.interrupted:
                result.outputs = sessions[0].run(result.case.feeds.arrays)
                keeper(result)
        return outcome, together
    outcome = run_cases(
        sessions[0],
        cases,
        iters=args.iter,
        warmup=args.warmup_iter,
        time_failed=args.disable_assert_throw,
        keep_outputs=keeper,
        listener=screen,
        pacing=request.pacing,
    )
    return outcome, None


def _report(
    args: argparse.Namespace,
    model: Model,
    session: Session,
    outcome: Outcome,
    cases: Sequence[Case],
) -> RunReport:
    from loadrun.environment import environment, file_sha256, peak_memory_bytes
    from loadrun.report import RunReport

    program = session.program.report if session.program is not None else None
    fallback = program.fallback if program else {}
    notes = list(program.notes) if program else []
    if fallback:
        held = ", ".join(f"{name} ({count})" for name, count in fallback.items())
        notes.append(f"run by the reference backend: {held}")
    size = model.info.nbytes if model.info else None
    hashed = bool(args.json) or (size or 0) <= _HASHED_BYTES
    return RunReport(
        model=args.model,
        backend=session.backend,
        threads=session.threads,
        outcome=outcome,
        outputs=session.outputs,
        iters=args.iter,
        warmup=str(args.warmup_iter),
        seed=args.seed,
        model_bytes=size,
        sha256=file_sha256(args.model) if hashed else None,
        environment=environment(),
        peak_memory_bytes=peak_memory_bytes(),
        weight_bytes=program.weight_bytes if program else None,
        arena_bytes=program.arena_bytes if program else None,
        workspace_bytes=program.workspace_bytes if program else None,
        choices=program.choices if program else (),
        notes=notes,
        command=args.command_line,
        duration_ns=args.duration,
        interval_ns=args.interval,
        percentiles=args.percentile,
        batch=_batch(cases),
        copies_outputs=args.copy_to_host,
    )


def _batch(cases: Sequence[Case]) -> int | None:
    """First dimension that all inputs of more than one dimension share."""
    sizes = {a.shape[0] for c in cases for a in c.feeds.arrays.values() if a.ndim > 1}
    return next(iter(sizes)) if len(sizes) == 1 else None


def _keeper(args: argparse.Namespace, session: Session) -> Callable[[CaseResult], None] | None:
    """What to do with a case's outputs; None: nobody asked for them, so they are not computed."""
    asked = (args.bin_out_dump, args.json, getattr(args, "report", None), args.verbose)
    if not any(asked):
        return None

    def keep(result: CaseResult) -> None:
        if args.bin_out_dump:
            from loadrun.runner import dump_outputs

            dump_outputs(result, session.outputs, args.bin_out_dump)

    return keep


def _after(args: argparse.Namespace, report: RunReport, session: Session) -> None:
    """Profile, memory plan, the plan of `-v`: in runs of their own, when all is measured."""
    from loadrun.cli import extras

    results = report.outcome.results
    if report.outcome.interrupted or not results:
        return
    feeds = results[0].case.feeds.arrays
    if extras.wants_profile(args):
        report.profile = extras.make_profile(args, session, feeds)
        about = {"model": {"path": report.model, "sha256": report.sha256}}
        extras.write_profile(
            args, report.profile, {**about, "environment": dict(report.environment)}
        )
    if args.get_static_mem_info or args.json or getattr(args, "report", None):
        _memory(args, report, session)
    program = session.program
    if args.verbose and program is not None:
        print("\n".join(program.report.plan), file=sys.stderr)


def _memory(args: argparse.Namespace, report: RunReport, session: Session) -> None:
    from loadrun.memorymap import memory_document, write_memory
    from mgeserial.errors import UnsupportedError

    try:
        plan = session.memory(report.outcome.results[0].case.feeds.arrays)
    except (UnsupportedError, AttributeError):
        if args.get_static_mem_info:
            raise
        return
    report.memory = memory_document(plan, backend=report.backend)
    if args.get_static_mem_info:
        write_memory(plan, args.get_static_mem_info, backend=report.backend)


def _publish(args: argparse.Namespace, report: RunReport) -> None:
    """The summary on stdout and the documents where they were asked for."""
    from loadrun.cli.outcome import publish
    from loadrun.cli.style import is_coloured, styled
    from loadrun.document import run_document
    from loadrun.profiletext import profile_text
    from loadrun.report import to_text

    def text() -> str:
        found = to_text(report, verbose=args.verbose)
        if report.profile is not None:
            found += f"\n\n{profile_text(report.profile, top=args.profile_top)}"
        return styled(found) if is_coloured(sys.stdout) else found

    publish(args, lambda: run_document(report), text)
