"""Largest errors of engines on the benchmark networks, relative to a float64 evaluation.

    python scripts/verify/cpu_accuracy.py --networks resnet18,mobilenet_v2 --json -

The yardstick is the network's ONNX twin evaluated in float64 from the operators' definitions; that
it means the same as the graph is checked against the reference backend. An error is the largest
difference of an output over the output's largest magnitude, the worst of several seeded inputs.
Exit code 1 when an error of `cpu` exceeds three times that of ONNX Runtime. Needs the packages of
the `peers` extra.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "scripts" / "verify")]

import numpy as np  # noqa: E402
from engines import make_engine  # noqa: E402
from models import NETWORKS  # noqa: E402
from onnx_float64 import evaluate  # noqa: E402
from onnx_twin import onnx_model  # noqa: E402

from loadrun.environment import environment  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402

ALLOWED = 3.0
# How far the reference backend may lie from float64: it computes in float32, too.
SAME = 2e-5


def feeds_of(graph: Graph, seed: int) -> dict[str, Any]:
    """Seeded normal inputs."""
    random = np.random.default_rng(seed)
    types = graph.inference.types
    return {
        n: random.standard_normal(types[v].dims, dtype=np.float32)
        for n, v in zip(graph.input_names, graph.inputs, strict=True)
    }


def error(got: list[Any], exact: list[Any]) -> float:
    """Largest difference over the largest magnitude, over all outputs."""
    worst = 0.0
    for a, b in zip(got, exact, strict=True):
        top = float(np.max(np.abs(b))) or 1.0
        worst = max(worst, float(np.max(np.abs(a.astype(np.float64) - b))) / top)
    return worst


def measure(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Errors of one network by engine."""
    graph = NETWORKS[name](args.batch)
    twin = onnx_model(graph)
    serial = twin.SerializeToString()
    worst: dict[str, float] = {}
    for seed in range(args.seeds):
        feeds = feeds_of(graph, seed)
        exact = evaluate(twin, feeds)
        for engine_name in ("reference", *args.engines.split(",")):
            if engine_name == "reference" and seed:
                continue
            engine = make_engine(engine_name, graph, serial, feeds, args.threads)
            try:
                found = error(engine.run(), exact)
            finally:
                engine.close()
            worst[engine_name] = max(worst.get(engine_name, 0.0), found)
    return worst


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--engines", default="cpu,onnxruntime,openvino")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    start = time.perf_counter()
    networks: dict[str, Any] = {}
    bad = []
    for name in args.networks.split(","):
        errors = measure(name, args)
        ratio = errors["cpu"] / errors["onnxruntime"] if errors.get("onnxruntime") else None
        networks[name] = {"errors": errors, "ratio": ratio}
        wrong = errors["reference"] > SAME or (ratio is not None and ratio > ALLOWED)
        bad += [name] if wrong else []
        shown = "  ".join(f"{k} {v:.2g}" for k, v in errors.items())
        mark = "" if ratio is None else f"  cpu/onnxruntime {ratio:.2f}"
        print(f"{name:17} {shown}{mark}{'  TOO LARGE' if wrong else ''}", file=sys.stderr)
    result = {
        "schema": 1,
        "measured": "largest error over largest magnitude, relative to float64, worst of the seeds",
        "environment": environment(),
        "batch": args.batch,
        "threads": args.threads,
        "seeds": args.seeds,
        "allowed_ratio": ALLOWED,
        "networks": networks,
        "too_large": bad,
        "seconds": round(time.perf_counter() - start, 1),
    }
    text = json.dumps(result, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
