"""Time and memory of loading a large network, against onnx.load on the same network.

    python benchmarks/load.py NETWORKS [--name resnet50] [--rounds 15] [--json FILE]

NETWORKS is a folder with NAME.v1.mge, NAME.v2.mge and NAME.onnx that hold the same weights. The
loaders take turns; all start from a warm file cache. mgeserial is timed to a graph that can be
walked: a walk over all nodes, inputs and outputs is part of it. Memory is what a fresh process adds
while it loads: resident, after the import of the library, peak included (Linux).

Limits: at most a quarter of onnx.load's median, under 25 MB more. Exit code 1 when one is broken.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RATIO_LIMIT = 0.25
MEMORY_LIMIT_MB = 25

_MEMORY = """
import json, sys
def resident(field):
    with open("/proc/self/status") as file:
        return next(int(s.split()[1]) * 1024 for s in file if s.startswith(field))
kind, path = sys.argv[1:]
if kind == "onnx":
    import onnx
    load = onnx.load
else:
    import numpy
    import mgeserial
    load = mgeserial.load
    if kind == "warm":  # the records of the operators are there already
        from mgeserial.ops import registry
        list(registry.every())
before = resident("VmRSS")
model = load(path)
if kind != "onnx":
    count = sum(len(n.inputs) + len(n.outputs) for n in model.graph.nodes)
print(json.dumps({"before": before, "after": resident("VmRSS"), "peak": resident("VmHWM")}))
"""


def walk(graph: Any) -> int:
    """Number of links of a graph: touches every node."""
    return sum(len(n.inputs) + len(n.outputs) for n in graph.nodes)


def interleaved(loaders: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[int]]:
    """Times of each loader in ns, in turns: a disturbance meets all of them."""
    samples: dict[str, list[int]] = {name: [] for name in loaders}
    for load in loaders.values():
        load()
    for _ in range(rounds):
        for name, load in loaders.items():
            gc.collect()
            start = time.perf_counter_ns()
            kept = load()
            samples[name].append(time.perf_counter_ns() - start)
            del kept
    return samples


def added_memory(kind: str, path: Path) -> dict[str, float]:
    """Resident memory that loading adds in a fresh process, MB; median of 3."""
    found = []
    for _ in range(3):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", _MEMORY, kind, str(path)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        found.append(json.loads(done.stdout))
    return {
        "added_mb": statistics.median((f["after"] - f["before"]) / 1e6 for f in found),
        "peak_added_mb": statistics.median((f["peak"] - f["before"]) / 1e6 for f in found),
    }


def summary(samples: list[int]) -> dict[str, float]:
    """Median, spread and extremes, ms."""
    times = [s / 1e6 for s in samples]
    median = statistics.median(times)
    return {
        "median_ms": round(median, 3),
        "mad_ms": round(statistics.median(abs(t - median) for t in times), 3),
        "min_ms": round(min(times), 3),
        "p99_ms": round(sorted(times)[max(int(0.99 * len(times)) - 1, 0)], 3),
        "n": len(times),
    }


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    versions = {p: importlib.metadata.version(p) for p in ("numpy", "onnx", "protobuf")}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or None,
        "versions": versions,
    }


def first_load(path: Path) -> float:
    """Time of the very first load of a process, with the import of everything it needs, ms."""
    code = (
        "import time\nstart = time.perf_counter()\nimport numpy\nmiddle = time.perf_counter()\n"
        "import mgeserial\nmgeserial.load(__import__('sys').argv[1])\n"
        "print((time.perf_counter() - middle) * 1e3)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(path)]
    times = [
        float(
            subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            ).stdout
        )
        for _ in range(5)
    ]
    return round(statistics.median(times), 1)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("networks", type=Path, help="folder of the network files")
    parser.add_argument("--name", default="resnet50")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    import onnx

    import mgeserial

    paths = {
        "v1": args.networks / f"{args.name}.v1.mge",
        "v2": args.networks / f"{args.name}.v2.mge",
        "onnx": args.networks / f"{args.name}.onnx",
    }

    def loader(path: Path) -> Callable[[], object]:
        def load() -> object:
            model = mgeserial.load(path)
            walk(model.graph)
            return model

        return load

    times = interleaved(
        {
            "mgeserial v1": loader(paths["v1"]),
            "onnx": lambda: onnx.load(str(paths["onnx"])),
            "mgeserial v2": loader(paths["v2"]),
        },
        args.rounds,
    )
    medians = {name: statistics.median(s) for name, s in times.items()}
    memory = {
        "mgeserial v1": added_memory("cold", paths["v1"]),
        "mgeserial v2": added_memory("cold", paths["v2"]),
        "mgeserial v1, records loaded": added_memory("warm", paths["v1"]),
        "onnx": added_memory("onnx", paths["onnx"]),
    }
    ratios = {n: round(medians[n] / medians["onnx"], 4) for n in ("mgeserial v1", "mgeserial v2")}
    kept = all(r <= RATIO_LIMIT for r in ratios.values()) and all(
        m["added_mb"] < MEMORY_LIMIT_MB for n, m in memory.items() if n != "onnx"
    )
    result = {
        "schema": 1,
        "kind": "load benchmark",
        "command": "python benchmarks/load.py " + " ".join(["NETWORKS", *sys.argv[2:]]),
        "network": args.name,
        "bytes": {name: path.stat().st_size for name, path in paths.items()},
        "machine": machine(),
        "times": {name: summary(s) for name, s in times.items()},
        "samples_ns": times,
        "ratio_to_onnx": ratios,
        "ratio_limit": RATIO_LIMIT,
        "first_load_with_imports_ms": {n: first_load(paths[n]) for n in ("v1", "v2")},
        "memory": {n: {k: round(v, 2) for k, v in m.items()} for n, m in memory.items()},
        "memory_limit_mb": MEMORY_LIMIT_MB,
        "limits_kept": kept,
    }
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    for name, numbers in result["times"].items():
        print(f"{name:14} median {numbers['median_ms']:8.2f} ms  min {numbers['min_ms']:8.2f} ms")
    for name, found in result["memory"].items():
        print(
            f"{name:30} adds {found['added_mb']:7.1f} MB, at peak {found['peak_added_mb']:7.1f} MB"
        )
    print(f"ratio to onnx.load: {ratios}; limits kept: {kept}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
