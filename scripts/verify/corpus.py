"""Run cases of the corpus on a backend and compare with what MegEngine computed.

    python scripts/verify/corpus.py --families nets,containers --backend reference --json -
    python scripts/verify/corpus.py --case conv/conv_basic -v

Every model file of every case runs (v1, v2 and v2nc; with --sources the untransformed graphs too).
Inference is compared with the computed results on every value with --values. Exit code 1 when
anything differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from corpus_cases import Case, compare, corpus_root, iter_cases  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.backends.base import CompileOptions  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError, UnsupportedError  # noqa: E402
from mgeserial.ir.copying import copy_graph  # noqa: E402
from mgeserial.ir.graph import Graph, Output  # noqa: E402
from mgeserial.ir.inference import infer  # noqa: E402


def check_values(
    graph: Graph, feeds: Mapping[str, np.ndarray[Any, Any]], backend: str
) -> list[str]:
    """Differences between inferred and computed shapes and dtypes, over all values."""
    every, _ = copy_graph(graph)
    values = [v for v in every.values() if not v.node.op.name.startswith("CondExec")]
    every.set_outputs([Output(v, f"v{i}", 0) for i, v in enumerate(values)])
    with Session(every, backend) as session:
        results = list(session.run(feeds).values())
    named = dict(zip(every.input_names, every.inputs, strict=True))
    types = infer(every, {named[n]: a.shape or (1,) for n, a in feeds.items()}).types
    problems = []
    for value, array in zip(every.outputs, results, strict=True):
        known = types[value]
        if known.dtype.storage != array.dtype:
            problems.append(f"{value.display_name}: inferred {known}, computed {array.dtype}")
        if known.shape is not None and (
            len(known.shape) != array.ndim
            or any(n is not None and n != m for n, m in zip(known.shape, array.shape, strict=True))
        ):
            problems.append(f"{value.display_name}: inferred {known}, computed {array.shape}")
    return problems


def run_case(case: Case, args: argparse.Namespace) -> dict[str, list[str]]:
    """Problems by model file; an empty list for each that agrees."""
    found: dict[str, list[str]] = {}
    for model in case.models():
        problems: list[str] = []
        try:
            runs = case.runs(model)
            loaded = mgeserial.load(model.path)
            if not runs:
                problems += expect_refusal(loaded, args.backend)
            for run in runs:
                graph = loaded.graphs[run.graph_index]
                options = CompileOptions(threads=args.threads, fast_run=args.fast_run)
                with Session(graph, args.backend, options=options) as session:
                    outputs = session.run(run.inputs)
                problems += compare(run, outputs)
                if args.values:
                    problems += check_values(graph, run.inputs, args.backend)
        except MgeError as error:
            problems.append(f"{type(error).__name__}: {error}")
        except Exception:
            problems.append("traceback: " + traceback.format_exc(limit=-4))
        found[model.path.name] = problems
    return found


def expect_refusal(model: mgeserial.Model, backend: str) -> list[str]:
    """A case without expected values must be refused as unsupported, not crash."""
    try:
        with Session(model, backend) as session:
            session.run(
                [np.zeros(t.shape or (1,), t.dtype.storage) for t in session.inputs.values()]
            )
    except UnsupportedError:
        return []
    return ["was not refused"]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument(
        "--families", default=None, help="comma-separated; default: all but pickles"
    )
    parser.add_argument("--case", action="append", default=[], help="family/case, repeatable")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--fast-run", action="store_true", help="measure algorithms first")
    parser.add_argument(
        "--values", action="store_true", help="compare inference on every value too"
    )
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    families = args.families.split(",") if args.families else None
    start = time.perf_counter()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures: dict[str, list[str]] = {}
    for case in iter_cases(args.root or corpus_root(), families):
        if case.family == "pickles" or (args.case and case.id not in args.case):
            continue
        results = run_case(case, args)
        bad = {name: p for name, p in results.items() if p}
        counts[case.family]["cases"] += 1
        counts[case.family]["files"] += len(results)
        counts[case.family]["agree"] += len(results) - len(bad)
        for name, problems in bad.items():
            failures[f"{case.id}/{name}"] = problems
            shown = problems if args.verbose else problems[:1]
            for text in shown:
                print(f"{case.id}/{name}: {text if args.verbose else text[:400]}", file=sys.stderr)
    result = {
        "schema": 1,
        "backend": args.backend,
        "seconds": round(time.perf_counter() - start, 1),
        "families": {k: dict(v) for k, v in counts.items()},
        "failures": failures,
    }
    for family, c in counts.items():
        print(
            f"{family:16} {c['cases']:4} cases  {c['agree']:5} of {c['files']:5} files agree",
            file=sys.stderr,
        )
    if args.json:
        text = json.dumps(result, indent=1)
        if args.json == "-":
            print(text)
        else:
            Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
