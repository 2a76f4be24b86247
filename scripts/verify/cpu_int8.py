"""The quantised ResNet-18 on the CPU engine: every integer as the reference has it, and its speed.

    python scripts/verify/cpu_int8.py --json benchmarks/results/int8.json

All quantised values of the network are compared, not the last ones only. Then it takes turns with
the float32 network of the same weights. Exit code 1 when an integer differs or when, on a processor
with byte products, it is less than 1.6 times as fast.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from engines import Ours  # noqa: E402
from models import build  # noqa: E402

from loadrun.backends.cpu.target import detect  # noqa: E402
from loadrun.environment import environment  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.ir.copying import copy_graph  # noqa: E402
from mgeserial.ir.graph import Graph, Output  # noqa: E402

NETWORK, FLOAT = "resnet18_int8", "resnet18"
WANTED = 1.6
PAUSE_S = 0.02


def with_all_values(graph: Graph) -> Graph:
    """A copy that gives every quantised value computed at run time, and its old outputs."""
    every, _ = copy_graph(graph)
    inference = every.inference
    values = [
        v
        for v in every.values()
        if inference.types[v].dtype.is_quantized and not v.node.tensors and v.node.inputs
    ]
    values += [v for v in every.outputs if v not in values]
    every.set_outputs([Output(v, f"v{k}", 0) for k, v in enumerate(values)])
    return every


def compare(graph: Graph, feeds: dict[str, Any], threads: int) -> dict[str, Any]:
    """Differences between the backends over all values of a graph."""
    every = with_all_values(graph)
    with Session(every, "reference") as session:
        want = session.run(feeds)
    with Session(every, "cpu", threads=threads) as session:
        got = session.run(feeds)
        program = session.program
        assert program is not None
        fallback = dict(program.report.fallback)
    whole = [k for k, a in want.items() if a.dtype.kind in "iu"]
    wrong = [k for k in whole if not np.array_equal(want[k], got[k])]
    real = [
        float(np.abs(want[k].astype(np.float64) - got[k].astype(np.float64)).max())
        for k in want
        if k not in whole
    ]
    return {
        "threads": threads,
        "integer_tensors": len(whole),
        "integers": sum(want[k].size for k in whole),
        "tensors_that_differ": wrong,
        "largest_difference_of_reals": max(real, default=0.0),
        "fallback": fallback,
    }


def race(graphs: dict[str, Graph], feeds: dict[str, Any], threads: int, rounds: int) -> Any:
    """Times of the networks in turns, in ms."""
    engines = {n: Ours(g, feeds, threads, "cpu") for n, g in graphs.items()}
    samples: dict[str, list[float]] = {n: [] for n in engines}
    for engine in engines.values():
        for _ in range(3):
            engine.run()
    for _ in range(rounds):
        for name, engine in engines.items():
            time.sleep(PAUSE_S)
            engine.run()
            for _ in range(5):
                start = time.perf_counter_ns()
                engine.run()
                samples[name].append((time.perf_counter_ns() - start) / 1e6)
    for engine in engines.values():
        engine.close()
    result: dict[str, Any] = {"threads": threads, "samples": len(samples[FLOAT])}
    for name, found in samples.items():
        result[name] = {"median_ms": statistics.median(found), "min_ms": min(found)}
    for key in ("median_ms", "min_ms"):
        result[f"ratio_{key[:-3]}"] = result[FLOAT][key] / result[NETWORK][key]
    return result


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="int8 on the CPU engine")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="write the result here (- for stdout)")
    args = parser.parse_args()
    graphs = {name: build(name, args.batch) for name in (NETWORK, FLOAT)}
    shape = (args.batch, 3, 224, 224)
    feeds = {"data": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}
    counts = [int(t) for t in args.threads.split(",")]
    exact = [compare(graphs[NETWORK], feeds, t) for t in counts]
    for row in exact:
        print(
            f"t{row['threads']}: {row['integers']} integers of {row['integer_tensors']} tensors, "
            f"{len(row['tensors_that_differ'])} tensors differ, fallback {row['fallback']}"
        )
    times = [race(graphs, feeds, t, args.rounds) for t in counts]
    for row in times:
        print(
            f"t{row['threads']}: int8 {row[NETWORK]['median_ms']:.2f} ms, "
            f"float32 {row[FLOAT]['median_ms']:.2f} ms, ratio of medians {row['ratio_median']:.2f},"
            f" of shortest {row['ratio_min']:.2f}"
        )
    dot = detect().dot_u8s8
    slow = bool(dot) and max(r["ratio_median"] for r in times) < WANTED
    if args.json:
        result = {
            "schema": 1,
            "environment": environment(),
            "byte_products": dot,
            "exact": exact,
            "times": times,
        }
        text = json.dumps(result, indent=1) + "\n"
        if args.json == "-":
            print(text, end="")
        else:
            Path(args.json).write_text(text, encoding="utf-8")
    return int(slow or any(row["tensors_that_differ"] for row in exact))


if __name__ == "__main__":
    sys.exit(main())
