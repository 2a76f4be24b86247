"""Time and memory to get a network ready: empty cache, filled cache, and the peers.

    python scripts/verify/cpu_compile.py --network resnet50 --rounds 5 --json -

Each measurement is a fresh process; they take turns. Imports are done before the clock starts, for
every engine. Ours is timed from opening the file to the compiled program; ONNX Runtime from bytes
in memory to the session, OpenVINO to the compiled model. Processor time is kept, too. Anonymous
memory (RssAnon, Linux) is read from outside every 2 ms. Checked:

1. with an empty cache at most 4 times OpenVINO;
2. with a filled cache no longer than ONNX Runtime;
3. peak anonymous memory at most packed weights x 1.1 + arena + 250 MB while compiling, and
   + 120 MB with a filled cache;
4. a small graph is compiled in less than 150 ms with an empty cache.

Exit code 1 when one does not hold. Needs the packages of the `peers` extra, or --no-peers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

MB = 1e6
LIMITS = {"cold_to_openvino": 4.0, "cached_to_onnxruntime": 1.0, "small_ms": 150.0}
EXTRA = {"cold": 250 * MB, "cached": 120 * MB}

# Each child says `ready`, waits for a line, works, and prints one JSON document.
_OURS = """
import json, sys, time
import numpy as np
import mgeserial
from loadrun.backends.base import get_backend
from loadrun.backends.cpu import lower
from loadrun.session import Session
get_backend("cpu"), lower.rules()
print("ready", flush=True)
input()
start, begun = time.perf_counter(), time.process_time()
session = Session(mgeserial.load(sys.argv[1]), "cpu", threads=int(sys.argv[2]))
zeros = {n: np.zeros(t.dims, np.float32) for n, t in session.inputs.items()}
session.prepare(zeros)
spent, used = time.perf_counter() - start, time.process_time() - begun
report = session.program.report
assert not [n for n in report.notes if "cache" in n], report.notes
print(json.dumps({"s": spent, "cpu_s": used, "weights": report.weight_bytes,
                  "arena": report.arena_bytes}))
"""
_ONNXRUNTIME = """
import json, sys, time
import onnxruntime as ort
model = open(sys.argv[1], "rb").read()
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(sys.argv[2]), 1
print("ready", flush=True)
input()
start, begun = time.perf_counter(), time.process_time()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
spent, used = time.perf_counter() - start, time.process_time() - begun
print(json.dumps({"s": spent, "cpu_s": used}))
"""
_OPENVINO = """
import json, sys, time
import openvino
model = open(sys.argv[1], "rb").read()
settings = {"INFERENCE_NUM_THREADS": int(sys.argv[2]), "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
core = openvino.Core()
core.available_devices
read = core.read_model(model)
print("ready", flush=True)
input()
start, begun = time.perf_counter(), time.process_time()
compiled = core.compile_model(read, "CPU", settings)
spent, used = time.perf_counter() - start, time.process_time() - begun
print(json.dumps({"s": spent, "cpu_s": used}))
"""


def anonymous_bytes(pid: int) -> int:
    """RssAnon of a process; 0 when it is gone or the system does not say."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run_child(code: str, words: list[str], cache: Path | None = None) -> dict[str, Any]:
    """One measurement in a process of its own, with the peak of its anonymous memory."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if cache is not None:
        environment["LOADRUN_CACHE"] = str(cache)
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    if child.stdout.readline().strip() != "ready":
        raise SystemExit(f"a child failed: {child.wait()}")
    peak = anonymous_bytes(child.pid)
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous_bytes(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    child.stdin.write("go\n")
    child.stdin.flush()
    text = child.stdout.readline()
    done.set()
    watcher.join()
    if child.wait() or not text:
        raise SystemExit(f"a child failed: {child.returncode}")
    found: dict[str, Any] = json.loads(text)
    return {**found, "peak": peak}


def small_network(path: Path) -> None:
    """A graph of eight operators."""
    from models import _Net

    import mgeserial

    net = _Net(1)
    x = net.b.input("data", (1, 3, 32, 32))
    x = net.b.max_pool2d(net.conv(x, 16, 3), 2)
    mgeserial.save(net.classifier(x, 10), path)


def write_models(name: str, folder: Path, *, peers: bool) -> dict[str, Path]:
    """The network as .mge, as its ONNX twin, and the small graph."""
    from models import NETWORKS

    import mgeserial

    graph = NETWORKS[name](1)
    paths = {k: folder / f"{k}.mge" for k in ("ours", "small")} | {"onnx": folder / "twin.onnx"}
    mgeserial.save(graph, paths["ours"])
    small_network(paths["small"])
    # Files this young are not remembered by the cache.
    for path in (paths["ours"], paths["small"]):
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    if peers:
        from onnx_twin import onnx_model

        paths["onnx"].write_bytes(onnx_model(graph).SerializeToString())
    return paths


def measure(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All samples by what was measured."""
    samples: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_models(args.network, folder, peers=args.peers)
        time.sleep(2.1)
        threads = str(args.threads)
        for k in range(args.rounds):
            cache = folder / f"cache{k}"
            turns: list[tuple[str, str, Path, Path | None]] = [
                ("cold", _OURS, paths["ours"], cache),
                ("cached", _OURS, paths["ours"], cache),
                ("small", _OURS, paths["small"], folder / f"small{k}"),
                ("small cached", _OURS, paths["small"], folder / f"small{k}"),
            ]
            if args.peers:
                turns[1:1] = [("openvino", _OPENVINO, paths["onnx"], None)]
                turns[3:3] = [("onnxruntime", _ONNXRUNTIME, paths["onnx"], None)]
            for what, code, path, kept in turns:
                samples.setdefault(what, []).append(run_child(code, [str(path), threads], kept))
            shutil.rmtree(cache)
    return samples


def judge(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians, limits and whether they hold."""
    medians = {k: statistics.median(s["s"] for s in v) for k, v in samples.items()}
    peaks = {k: max(s["peak"] for s in v) for k, v in samples.items()}
    one = samples["cold"][0]
    base = one["weights"] * 1.1 + one["arena"]
    checks: dict[str, Any] = {
        f"peak_{k}_mb": {
            "value": round(peaks[k] / MB, 1),
            "limit": round((base + EXTRA[k]) / MB, 1),
        }
        for k in EXTRA
    }
    checks["small_ms"] = {"value": round(medians["small"] * 1e3, 1), "limit": LIMITS["small_ms"]}
    for key, ours, peer in (
        ("cold_to_openvino", "cold", "openvino"),
        ("cached_to_onnxruntime", "cached", "onnxruntime"),
    ):
        if peer in medians:
            ratio = round(medians[ours] / medians[peer], 3)
            checks[key] = {"value": ratio, "limit": LIMITS[key]}
    for check in checks.values():
        check["holds"] = check["value"] <= check["limit"]
    return {
        "median_ms": {k: round(v * 1e3, 1) for k, v in medians.items()},
        "median_cpu_ms": {
            k: round(statistics.median(s["cpu_s"] for s in v) * 1e3, 1) for k, v in samples.items()
        },
        "peak_anonymous_mb": {k: round(v / MB, 1) for k, v in peaks.items()},
        "weights_mb": round(one["weights"] / MB, 1),
        "arena_mb": round(one["arena"] / MB, 1),
        "checks": checks,
        "holds": all(c["holds"] for c in checks.values()),
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    from loadrun.environment import environment

    samples = measure(args)
    result = {
        "schema": 1,
        "measured": "time and anonymous memory of loading and compiling, fresh processes in turns",
        "environment": environment(),
        "network": args.network,
        "threads": args.threads,
        "rounds": args.rounds,
        **judge(samples),
        "samples_ms": {k: [round(s["s"] * 1e3, 1) for s in v] for k, v in samples.items()},
    }
    for name, check in result["checks"].items():
        state = "holds" if check["holds"] else "DOES NOT HOLD"
        print(f"{name}: {check['value']} (limit {check['limit']}) {state}", file=sys.stderr)
    if args.json == "-":
        print(json.dumps(result, indent=1))
    else:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
