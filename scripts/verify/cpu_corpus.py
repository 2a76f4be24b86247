"""Every case of the corpus on the CPU engine against the reference backend.

    python scripts/verify/cpu_corpus.py --json -
    python scripts/verify/cpu_corpus.py --families conv,linear --threads 1,2,5 --levels avx512,sse2

For each graph of each file the reference backend's results are what must come out, floats within
the tolerance that the case states for their dtype, everything else exactly; what the reference
refuses must be refused. Each program runs twice, so that what a run leaves behind shows. Levels are
instruction sets of 16, 8 and 4 lanes, those that this machine runs. Objects are kept in a temporary
cache; operators that run by reference code within the engine are counted. Exit code 1 when anything
differs.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from corpus_cases import Case, Run, compare, corpus_root, iter_cases  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.backends.cpu.target import LEVELS, detect, host_level  # noqa: E402
from loadrun.environment import environment  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402

_MOST_SHOWN = 400


@dataclasses.dataclass(slots=True)
class Tally:
    """What was found so far."""

    compared: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    fallback: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    native: int = 0
    failures: dict[str, str] = dataclasses.field(default_factory=dict)


def runnable() -> tuple[str, ...]:
    """Levels of this machine, the best first."""
    best = host_level()
    return ("neon",) if best == "neon" else LEVELS[LEVELS.index(best) : LEVELS.index("neon")]


def graphs(case: Case) -> Iterator[tuple[str, mgeserial.Graph, Run]]:
    """Graphs of all files of a case with what to feed them."""
    for model in case.models():
        runs = case.runs(model)
        if not runs:
            continue
        loaded = mgeserial.load(model.path)
        for run in runs:
            yield run.id, loaded.graphs[run.graph_index], run


def results(graph: Any, run: Run, backend: str, threads: int) -> tuple[Any, str, Any]:
    """(outputs of two runs, '', report) or (None, the error's kind, None)."""
    try:
        with Session(graph, backend, threads=threads) as session:
            found = [session.run(run.inputs) for _ in range(2)]
            program = session.program
            return found, "", program.report if program is not None else None
    except MgeError as error:
        return None, f"{type(error).__name__}: {error}", None


def compare_one(name: str, graph: Any, run: Run, args: argparse.Namespace, tally: Tally) -> None:
    """One graph in every setting."""
    want, refusal, _ = results(graph, run, "reference", 1)
    if want is not None:
        exact = dataclasses.replace(run.tolerance, int_atol=0)
        run = dataclasses.replace(run, expected=want[0], tolerance=exact, output_layout=None)
    for level in args.levels:
        os.environ["LOADRUN_CPU_LEVEL"] = level
        detect.cache_clear()
        for threads in args.threads if level == args.levels[0] else args.threads_lesser:
            key = f"{name} {level} {threads} threads"
            try:
                found, error, report = results(graph, run, "cpu", threads)
                problem = _judge(run, want, refusal, found, error)
            except Exception:
                problem, report = "traceback: " + traceback.format_exc(limit=-4), None
            tally.compared[f"{level} {threads}"] += 1
            if problem:
                tally.failures[key] = problem[:_MOST_SHOWN]
                print(f"{key}: {problem[:_MOST_SHOWN]}", file=sys.stderr, flush=True)
            elif report is not None and level == args.levels[0] and threads == args.threads[0]:
                tally.fallback.update(report.fallback)
                tally.reasons.update(n for n in report.notes if ":" in n)
                tally.native += not report.fallback


def _judge(run: Run, want: Any, refusal: str, found: Any, error: str) -> str:
    if want is None:
        return "" if found is None else f"ran, but the reference says {refusal}"
    if found is None:
        return error
    for outputs in found:
        problems = compare(run, outputs)
        if problems:
            return "; ".join(problems)
    return ""


def main() -> int:
    """Run the command line."""
    levels = runnable()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument("--families", default=None, help="comma-separated; default: all")
    parser.add_argument("--case", action="append", default=[], help="family/case, repeatable")
    parser.add_argument("--threads", default="1,2,5")
    parser.add_argument("--threads-lesser", default="2", help="threads on all levels but the first")
    parser.add_argument("--levels", default=",".join(levels), help="the first gets all --threads")
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    args.threads = [int(t) for t in args.threads.split(",")]
    args.threads_lesser = [int(t) for t in args.threads_lesser.split(",")]
    args.levels = args.levels.split(",")
    start = time.perf_counter()
    tally = Tally()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LOADRUN_CACHE"] = str(Path(cache) / "cpu")
        families = args.families.split(",") if args.families else None
        for case in iter_cases(args.root or corpus_root(), families):
            if case.family == "pickles" or (args.case and case.id not in args.case):
                continue
            for name, graph, run in graphs(case):
                with np.errstate(all="ignore"):
                    compare_one(name, graph, run, args, tally)
    result = {
        "schema": 1,
        "measured": "graphs whose results on cpu are those of reference, twice each, by setting",
        "environment": environment(),
        "compared": dict(tally.compared),
        "graphs_without_reference_code": tally.native,
        "reference_operators": dict(tally.fallback.most_common()),
        "reasons": dict(tally.reasons.most_common()),
        "failures": tally.failures,
        "seconds": round(time.perf_counter() - start, 1),
    }
    shown = ", ".join(f"{n} graphs ({setting})" for setting, n in tally.compared.items())
    print(f"{shown}; {len(tally.failures)} differ", file=sys.stderr)
    if args.json == "-":
        print(json.dumps(result, indent=1))
    elif args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
