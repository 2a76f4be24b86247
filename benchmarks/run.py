"""Benchmark networks against their peers: outputs checked first, engines interleaved, ratios.

    python benchmarks/run.py resnet18 mobilenet_v2 --threads 1,2 --peers onnxruntime,openvino
    python benchmarks/run.py --all --batch 1,8 --repeat 3 --json benchmarks/results/

Engines take turns within one process: a short pause, two runs that do not count, then runs for a
slice of time; so a slow spell of the machine meets all of them. Per engine the median over all
slices counts; the ratio is the fastest peer over ours, so above 1 ours is faster. With --repeat the
best of several such measurements is reported beside every single one. --busy 1 lets a process that
computes without end compete for the cores meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from engines import Engine, make_engine, megengine_ms  # noqa: E402
from models import NETWORKS  # noqa: E402
from onnx_twin import onnx_model  # noqa: E402

from loadrun.environment import environment  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402

PAUSE_S, SLICE_S = 0.03, 0.25
# Largest difference of an output, relative to its largest value, that still counts as equal.
ALLOWED = 2e-4


def measure(engines: list[Engine], rounds: int) -> dict[str, list[int]]:
    """Samples of each engine in ns, taken in turns."""
    samples: dict[str, list[int]] = {e.name: [] for e in engines}
    for k in range(rounds):
        for engine in engines[k % len(engines) :] + engines[: k % len(engines)]:
            time.sleep(PAUSE_S)
            for _ in range(2):
                engine.run()
            until = time.perf_counter() + SLICE_S
            while True:
                start = time.perf_counter_ns()
                engine.run()
                samples[engine.name].append(time.perf_counter_ns() - start)
                if time.perf_counter() > until:
                    break
    return samples


@contextmanager
def competing(count: int) -> Iterator[None]:
    """Processes that compute all the while, on whatever core the system gives them."""
    code = "while True: sum(range(10000))"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        if busy:
            time.sleep(0.3)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def check_outputs(engines: list[Engine], expected: list[Any]) -> dict[str, float]:
    """Largest relative error of each engine against the reference backend.

    Raises:
        SystemExit: An engine computes something else: its time would mean nothing.
    """
    errors = {}
    for engine in engines:
        worst = 0.0
        for got, want in zip(engine.run(), expected, strict=True):
            top = float(np.max(np.abs(want))) or 1.0
            worst = max(worst, float(np.max(np.abs(got - want))) / top)
        errors[engine.name] = worst
        if not worst <= ALLOWED:
            raise SystemExit(f"{engine.name}: outputs differ by {worst:.3g} of the largest value")
    return errors


def feeds_of(graph: Graph) -> dict[str, Any]:
    """Seeded normal inputs."""
    random = np.random.default_rng(0)
    types = graph.inference.types
    return {
        n: random.standard_normal(types[v].dims, dtype=np.float32)
        for n, v in zip(graph.input_names, graph.inputs, strict=True)
    }


def one(name: str, batch: int, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one network; everything that goes into the JSON."""
    graph = NETWORKS[name](batch)
    feeds = feeds_of(graph)
    with Session(graph, "reference") as session:
        expected = list(session.run(feeds).values())
    twin = onnx_model(graph).SerializeToString()
    peers = [p for p in args.peers.split(",") if p]
    engines = [make_engine(e, graph, twin, feeds, threads) for e in [args.backend, *peers]]
    try:
        errors = check_outputs(engines, expected)
        with competing(args.busy):
            repeats = [_summary(measure(engines, args.rounds)) for _ in range(args.repeat)]
        if args.megengine:
            _add_megengine(repeats, graph, feeds, threads, args)
    finally:
        for engine in engines:
            engine.close()
    ratios = [_ratio(r, args.backend) for r in repeats]
    return {
        "network": name,
        "batch": batch,
        "threads": threads,
        "busy": args.busy,
        "backend": args.backend,
        "relative_error": errors,
        "prepare_s": {e.name: round(e.prepare_s, 4) for e in engines},
        "repeats": repeats,
        "ratio": max(ratios),
        "ratios": ratios,
    }


def _summary(samples: Mapping[str, list[int]]) -> dict[str, Any]:
    return {
        name: {
            "median_ms": statistics.median(s) / 1e6,
            "min_ms": min(s) / 1e6,
            "samples": len(s),
        }
        for name, s in samples.items()
    }


def _add_megengine(
    repeats: list[dict[str, Any]], graph: Graph, feeds: Mapping[str, Any], threads: int, args: Any
) -> None:
    oracle = ROOT.parent / "shared" / "oracle" / "oracle.py"
    median = megengine_ms(graph, feeds, args.megengine, oracle, threads)
    for summary in repeats:
        summary["megengine"] = {"median_ms": median, "min_ms": median, "samples": 10}


def _ratio(summary: Mapping[str, Any], ours: str) -> float:
    peers = [v["median_ms"] for k, v in summary.items() if k not in (ours, "megengine")]
    return float(min(peers) / summary[ours]["median_ms"]) if peers else math.nan


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="networks against peers, interleaved")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--all", action="store_true", help="every network")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--peers", default="onnxruntime,openvino")
    parser.add_argument("--megengine", type=Path, help="environment with the real MegEngine")
    parser.add_argument("--busy", type=int, default=0, help="competing processes")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path, help="folder or file for the result")
    args = parser.parse_args()
    names = list(NETWORKS) if args.all else args.networks
    unknown = [n for n in names if n not in NETWORKS]
    if unknown or not names:
        parser.error(f"networks are {', '.join(NETWORKS)}; got {', '.join(unknown) or 'none'}")
    rows = []
    for name in names:
        for batch in map(int, args.batch.split(",")):
            for threads in map(int, args.threads.split(",")):
                row = one(name, batch, threads, args)
                rows.append(row)
                medians = {k: v["median_ms"] for k, v in row["repeats"][-1].items()}
                shown = "  ".join(f"{k} {v:.2f} ms" for k, v in medians.items())
                print(
                    f"{name:17} b{batch} t{threads}  ratio {row['ratio']:.2f}  {shown}", flush=True
                )
    finite = [r["ratio"] for r in rows if r["ratio"] > 0]
    mean = math.exp(statistics.fmean(map(math.log, finite))) if finite else math.nan
    print(f"geometric mean of ratios: {mean:.3f}")
    if args.json:
        result = {"schema": 1, "environment": environment(), "geometric_mean": mean, "rows": rows}
        path = args.json
        if path.suffix != ".json":
            folder = path / platform.node()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
