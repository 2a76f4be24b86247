"""Run cases of the corpus with every candidate of every convolution and product of matrices.

    python scripts/verify/cuda_candidates.py --families conv,linear --seconds 200 --json -

On the emulated device, which says that it has tensor cores; the vendor's libraries are numpy there.
The k-th plan of a network takes the k-th candidate of every layer. Exit code 1 when anything
differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["LOADRUN_CUDA"] = "emulated-sm80"

from corpus_cases import Case, Run, compare, corpus_root, iter_cases  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.backends.cuda import lower  # noqa: E402
from loadrun.backends.cuda.device import Device, open_device  # noqa: E402
from loadrun.backends.cuda.plan import Plan, check_plan  # noqa: E402
from loadrun.backends.cuda.planner import make_plan  # noqa: E402
from loadrun.backends.cuda.program import Program  # noqa: E402
from loadrun.backends.cuda.variants import Choice, Target  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402


def _plan(network: Any, target: Target, number: int) -> Plan:
    def choose(_: str, found: tuple[Choice, ...]) -> Choice:
        return found[min(number, len(found) - 1)]

    return make_plan(network, target, choose=choose)


def _run(plan: Plan, device: Device, session: Session, run: Run) -> list[str]:
    """What differs with one plan."""
    problems = check_plan(plan)
    program = Program(plan, device, owner=False)
    try:
        results = program.run(session._feeds(run.inputs))
        names = session.graph.output_names
        problems += compare(run, dict(zip(names, (r.copy() for r in results), strict=True)))
    except MgeError as error:
        problems.append(f"{type(error).__name__}: {error}")
    finally:
        program.close()
    return problems


def check(graph: Graph, run: Run, tried: collections.Counter[str]) -> list[str]:
    """Differences with any candidate; `tried` counts layers by algorithm."""
    found: list[str] = []
    with Session(graph, "reference") as session:
        inference = session._inference(session._feeds(run.inputs))
        network = lower.lower(session.graph, inference).network
        device = open_device()
        target = Target(device.capability, library=True, engines=device.engines)
        number, most = 0, 1
        while number < most:
            plan = _plan(network, target, number)
            decisions = plan.decisions.values()
            most = max((len(d.candidates) for d in decisions), default=0)
            if most:
                used = sorted({str(d.choice) for d in decisions})
                found += [f"{', '.join(used)}: {p}" for p in _run(plan, device, session, run)]
                tried.update(d.choice.algorithm.value for d in decisions)
            number += 1
        device.close()
    return found


def _cases(args: argparse.Namespace) -> list[Case]:
    families = args.families.split(",")
    every = iter_cases(args.root or corpus_root(), families)
    return [c for c in every if c.models() and c.id.startswith(args.only)]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument("--families", default="conv,linear,quantized")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case after so many")
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    start = time.monotonic()
    tried: collections.Counter[str] = collections.Counter()
    failures: dict[str, list[str]] = {}
    done, left = 0, 0
    for case in _cases(args):
        if time.monotonic() - start > args.seconds:
            left += 1
            continue
        try:
            model = case.models()[0]
            graphs = mgeserial.load(model.path).graphs
            problems = [
                p for r in case.runs(model)[:1] for p in check(graphs[r.graph_index], r, tried)
            ]
        except MgeError as error:  # a case that must be refused, or that has no plan
            print(f"{case.id}: {error.message}", file=sys.stderr)
            continue
        done += 1
        if problems:
            failures[case.id] = problems
            print(f"{case.id}: {problems[0][:400]}", file=sys.stderr)
    result = {"schema": 1, "cases": done, "not_reached": left, "layers": dict(tried),
              "failures": failures}  # fmt: skip
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
