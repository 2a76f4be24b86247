"""`loadrun sweep MODEL`: many combinations in one command, one table, the best one marked."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadrun.sweep import Combination

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = """\
Measure a model at every combination of shapes, batches, threads, backends and optimiser switches,
with random inputs. What cannot run is a row that says why."""
EPILOG = """\
examples:
  loadrun sweep net.mge --batch 1,4,16 --threads 1,2,4
  loadrun sweep net.mge --shape data:1,3,224,224 --shape data:1,3,320,320 --backends cpu,reference
  loadrun sweep net.mge --switches '' --switches --no-optimize --switches '--enable-nchw88'
  loadrun sweep net.mge --batch 1,2,4 --json sweep.json     goes on where it was stopped

exit codes: 0 done, 1 nothing could be measured, 2 bad usage or file, 130 interrupted"""


def _counts(text: str) -> list[int]:
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isascii() and p.isdigit() and 0 < int(p) < 10**6 for p in parts):
        raise argparse.ArgumentTypeError(
            f"numbers from 1 with `,` between are needed, got `{text}`"
        )
    return [int(p) for p in parts]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    from loadrun.cli.options.values import count, warmup

    add = parser.add_argument
    add("model", metavar="MODEL", help="a .mge file")
    axes = parser.add_argument_group("what to combine").add_argument
    axes("--shape", action="append", default=[], metavar="NAME:1,3,H,W",
         help="shapes of the inputs, `;` between inputs; repeat for each set")  # fmt: skip
    axes("--batch", type=_counts, default=[], metavar="N,N", help="first dimension of every input")
    axes("--threads", type=_counts, default=[], metavar="N,N", help="threads to compute on")
    axes("--backends", default="auto", metavar="A,B", help="what computes (auto: the fastest here)")
    axes("--switches", action="append", default=[], metavar="'--a --b'",
         help="a set of optimiser switches; repeat for each set, '' for none")  # fmt: skip
    add("--iter", type=count, default=10, metavar="N", help="timed runs of each combination (10)")
    add("--warmup-iter", type=warmup, default="1", metavar="N",
        help="untimed runs before (1), or a time such as 500ms")  # fmt: skip
    add("--seed", type=count, default=0, metavar="N", help="seed of random inputs (0)")
    add("--best", choices=("latency", "throughput"),
        help="what to look for (throughput where batches differ, else latency)")  # fmt: skip
    add("--json", metavar="FILE", help="write everything as JSON after each combination, and go "
        "on from it when it is there; - for stdout")  # fmt: skip
    add("--restart", action="store_true", help="measure everything anew, whatever --json holds")
    add("--report", metavar="FILE", help="write a page")
    add("--csv", metavar="OUT", help="write the table: a .csv file, or a folder")


def execute(args: argparse.Namespace) -> int:
    """Measure, print, write; the exit code."""
    import mgeserial
    from loadrun.cli.entry import INTERRUPTED
    from loadrun.cli.outcome import publish
    from loadrun.cli.progress import ProgressLine
    from loadrun.environment import environment, file_sha256
    from loadrun.sweep import best_of, sweep
    from mgeserial.testcases import strip_asserts

    combinations = _combinations(args)
    model = mgeserial.load(args.model)
    graph = model.graph
    if any(n.op.name == "AssertEqual" for n in graph.nodes):
        graph = strip_asserts(graph)
    goal = args.best or ("throughput" if len(args.batch) > 1 else "latency")
    about = {
        "schema": 1,
        "kind": "loadrun.sweep",
        "command": args.command_line,
        "model": {
            "path": args.model,
            "file_bytes": model.info.nbytes if model.info else None,
            "sha256": file_sha256(args.model),
        },
        "iter": args.iter,
        "warmup_iter": str(args.warmup_iter),
        "seed": args.seed,
        "best_at": goal,
        "combination_count": len(combinations),
        "environment": environment(),
    }
    done = _done(args, about)
    line = ProgressLine(sys.stderr, enabled=not args.quiet)
    rows: list[dict[str, Any]] = []

    def document() -> dict[str, Any]:
        best = best_of(rows, goal)
        complete = len(rows) == len(combinations)
        return {**about, "complete": complete, "best_index": best, "combinations": rows}

    def listen(count: int, found: list[dict[str, Any]]) -> None:
        rows[:] = found
        if args.json and args.json != "-":
            _save(args.json, document())
        if args.verbose:
            line.clear()
            print(f"{count}/{len(combinations)} {_row_text(found[-1])}", file=sys.stderr)
        line.update("sweep", count, len(combinations))

    interrupted = False
    line.update("sweep", 0, len(combinations))
    try:
        sweep(
            graph,
            combinations,
            iters=args.iter,
            warmup=args.warmup_iter,
            seed=args.seed,
            done=done,
            listener=listen,
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        line.clear()
    publish(args, document, lambda: _text(document(), len(combinations)))
    if interrupted:
        return INTERRUPTED
    return 0 if best_of(rows, goal) is not None or not args.iter else 1


def _combinations(args: argparse.Namespace) -> list[Combination]:
    from loadrun.backends.base import choose, get_backend
    from loadrun.sweep import Plan, parse_shapes, switches_of

    for text in args.shape:
        parse_shapes(text)
    for text in args.switches:
        switches_of(text)
    names = [n.strip() for n in args.backends.split(",")]
    backends = [choose().name if n == "auto" else get_backend(n).name for n in names]
    return Plan(
        shapes=args.shape or [""],
        batches=args.batch or [None],
        threads=args.threads or [None],
        backends=backends,
        switches=args.switches or [""],
    ).combinations()


def _done(args: argparse.Namespace, about: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Rows that an earlier sweep of the same model and settings has measured.

    Raises:
        InputError: The file holds something else.
    """
    from loadrun.reporting.files import read
    from mgeserial.errors import InputError

    if not args.json or args.json == "-" or args.restart or not os.path.exists(args.json):
        return {}
    before = read(args.json)
    same = before["kind"] == about["kind"] and all(
        before.get(key) == about[key] for key in ("iter", "warmup_iter", "seed")
    )
    known = (before.get("model") or {}).get("sha256")
    if not same or known != about["model"]["sha256"]:
        raise InputError(
            "holds another sweep: of another model, or with other settings",
            path=args.json,
            hint="--restart replaces it, or name another file",
        )
    return {str(row.get("label")): row for row in before["combinations"]}


def _save(path: str, document: dict[str, Any]) -> None:
    from loadrun.cli.outcome import as_text
    from mgeserial.format.atomic import write_atomic

    write_atomic(path, as_text(document).encode("utf-8", "surrogateescape"))


def _row_text(row: Mapping[str, Any]) -> str:
    from loadrun.report import duration

    median = row.get("median_ms")
    shown = duration(median * 1e6) if median is not None else row.get("state")
    return f"{row['label']}: {shown}"


def _text(document: Mapping[str, Any], total: int) -> str:
    """One table; the best row has a `*`."""
    from loadrun.reporting.tables import shown, tables
    from loadrun.texttable import text_table
    from mgeserial.errors import printable

    lines = [f"sweep of {printable(document['model']['path'])}"]
    found = [t for t in tables(document) if t.key == "combinations"]
    if found:
        table = found[0]
        failed = any(str(r.get("state")) != "measured" for r in document["combinations"])
        kept = [k for k, c in enumerate(table.columns) if failed or c.key != "state"]
        head = ["", *(table.columns[k].title for k in kept)]
        rows = []
        for place, row in enumerate(table.rows):
            cells = [shown(row[k], table.columns[k].kind) for k in kept]
            texts = [printable(c, limit=120) for c in cells]
            rows.append(["*" if place == table.marked else "", *texts])
        left = [0, *(k + 1 for k, i in enumerate(kept) if table.columns[i].kind == "text")]
        lines += text_table(head, rows, left=left)
    best = document["best_index"]
    if best is not None:
        row = document["combinations"][best]
        lines.append(f"* best {document['best_at']}: {printable(row['label'])}")
    missing = total - len(document["combinations"])
    if missing:
        lines.append(f"{missing} of {total} combinations are not measured yet (--json goes on)")
    return "\n".join(lines)
