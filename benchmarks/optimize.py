"""Operators and time before and after optimisation, on the networks of `models.py`.

    python benchmarks/optimize.py --json benchmarks/results/optimize.json
    python benchmarks/optimize.py --model resnet18 --iter 5 --backend reference

Both networks run in turn on the same seeded input (A, B, A, B ...); outputs are compared first. The
table has operators without weights and constants, bytes of weights, and the least time of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from models import NETWORKS, build  # noqa: E402

from loadrun.inputs import random_inputs  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial import __version__  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402
from mgeserial.passes import OptimizeOptions, optimize  # noqa: E402
from mgeserial.passes.evaluate import HOLDERS, OutputCheck  # noqa: E402


def operators(graph: Graph) -> int:
    """Operators without weights, constants and inputs."""
    return sum(n.op.name not in HOLDERS and bool(n.inputs) for n in graph.nodes)


def measure(name: str, iters: int, backend: str) -> dict[str, Any]:
    """Both networks of a model, in turn."""
    before = build(name)
    start = time.perf_counter()
    after, report = optimize(before, OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True))
    seconds = time.perf_counter() - start
    times: list[list[float]] = [[], []]
    with Session(before, backend) as a, Session(after, backend) as b:
        feeds = random_inputs(a.inputs, seed=0)
        first = [s.run(feeds) for s in (a, b)]
        for _ in range(iters):
            for session, found in zip((a, b), times, strict=True):
                begin = time.perf_counter_ns()
                session.run(feeds)
                found.append((time.perf_counter_ns() - begin) / 1e6)
    scale = max(float(np.abs(v).max(initial=0)) for v in first[0].values())
    check = OutputCheck({}, rtol=1e-3, atol=1e-4 * max(scale, 1.0), steps=1)
    problem = check.compare(list(first[0]), list(first[0].values()), list(first[1].values()))
    return {
        "operators": [operators(before), operators(after)],
        "weight_bytes": [report.weight_bytes_before, report.weight_bytes_after],
        "milliseconds": [round(min(t), 3) for t in times],
        "samples": [[round(t, 3) for t in found] for found in times],
        "optimize_seconds": round(seconds, 3),
        "outputs": problem or "agree",
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--model", action="append", default=[], help="only these")
    parser.add_argument("--iter", type=int, default=3)
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--json", default=None, help="write the result here")
    args = parser.parse_args()
    found = {}
    print(f"{'network':18} {'operators':>12} {'weights MB':>15} {'ms a run':>21}  outputs")
    for name in args.model or NETWORKS:
        entry = found[name] = measure(name, args.iter, args.backend)
        ops, weights, ms = entry["operators"], entry["weight_bytes"], entry["milliseconds"]
        print(
            f"{name:18} {ops[0]:5} -> {ops[1]:4} "
            f"{weights[0] / 1e6:6.2f} -> {weights[1] / 1e6:5.2f} "
            f"{ms[0]:9.1f} -> {ms[1]:8.1f}  {entry['outputs']}",
            flush=True,
        )
    result = {
        "schema": 1,
        "command": ["benchmarks/optimize.py", *sys.argv[1:]],
        "mgeserial": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "backend": args.backend,
        "models": found,
    }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(e["outputs"] == "agree" for e in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
