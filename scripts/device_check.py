"""Everything about the CUDA engine that needs a GPU, in one run of less than eight minutes.

    python scripts/device_check.py --out RESULT.json [--corpus FOLDER] [--minutes 7.5]

The machine needs CuPy and, for the comparison, PyTorch; nothing is downloaded, networks are
authored from seeds. Parts, each within what is left of the time:

1. device: what it is, versions.
2. corpus: every case of the folder (the compact corpus by default) against its expected outputs.
3. networks: the benchmark networks against the reference backend.
4. speed: ratio of device time to PyTorch's (cuDNN benchmark mode, CUDA graph), interleaved, batches
   1 and 32, float32 without TF32, then PyTorch in float16; the slowest steps of ours are named.
5. memory: 10,000 replays of one network; the device's free memory before and after.
6. sanitizer: compute-sanitizer over convolution and NMS cases, where it is installed.

Exit code 0 when nothing disagrees; what could not be done is in the result, with the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from corpus_cases import Case, Model, compact_root, compare, iter_cases  # noqa: E402

import mgeserial  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402

_NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "transformer")
_SANITIZED = ("conv/", "vision/nms")
Array = np.ndarray[Any, Any]


class _Clock:
    """How much of the time is left."""

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return self._end - time.monotonic()


def _feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    from loadrun.inputs import random_inputs

    types = {
        n: graph.inference.types[v] for n, v in zip(graph.input_names, graph.inputs, strict=True)
    }
    return dict(random_inputs(types, seed=seed))


def check_device(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """What the device is."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "name": properties["name"].decode(),
        "capability": f"{properties['major']}.{properties['minor']}",
        "cupy": cupy.__version__,
        "runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
    }


def _case_problems(case: Case, model: Model, fallback: dict[str, int]) -> list[str]:
    """What differs in one file; operators that ran by reference code are added to `fallback`."""
    problems: list[str] = []
    try:
        graphs = mgeserial.load(model.path).graphs
        for run in case.runs(model):
            with Session(graphs[run.graph_index], "cuda") as session:
                for _ in range(3):  # direct, recorded, replayed
                    problems += compare(run, session.run(run.inputs))
                program = session.program
                for name, n in (program.report.fallback if program else {}).items():
                    fallback[name] = fallback.get(name, 0) + n
    except (MgeError, ValueError) as error:
        problems.append(f"{type(error).__name__}: {error}")
    return problems


def check_corpus(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """All cases that there is time for."""
    root = args.corpus or compact_root()
    agree, skipped = 0, 0
    failures: dict[str, str] = {}
    fallback: dict[str, int] = {}
    for case in iter_cases(root, None):
        if case.family == "pickles" or (args.only and not case.id.startswith(args.only)):
            continue
        if clock.left_s < args.reserve_s:
            skipped += 1
            continue
        for model in case.models()[:1]:
            problems = _case_problems(case, model, fallback)
            if problems:
                failures[case.id] = problems[0][:400]
            else:
                agree += 1
    return {
        "agree": agree,
        "failures": failures,
        "not_reached": skipped,
        "fallback": dict(sorted(fallback.items(), key=lambda x: -x[1])),
    }


def check_networks(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """Outputs against the reference backend."""
    import models

    found: dict[str, Any] = {}
    for name in _NETWORKS:
        graph = models.build(name)
        feeds = _feeds(graph)
        with Session(graph, "reference") as session:
            want = next(iter(session.run(feeds).values())).astype(np.float64)
        with Session(graph, "cuda") as session:
            start = time.perf_counter()
            session.prepare(feeds)
            prepare = time.perf_counter() - start
            got = [next(iter(session.run(feeds).values())).astype(np.float64) for _ in range(3)]
        error = max(float(np.abs(g - want).max()) for g in got)
        found[name] = {
            "max_abs": error,
            "relative_to_largest": error / max(float(np.abs(want).max()), 1e-30),
            "prepare_s": round(prepare, 2),
            "same_bits_each_run": bool(all((g == got[0]).all() for g in got)),
        }
    bad = {n: v for n, v in found.items() if v["relative_to_largest"] > 1e-3}
    return {"networks": found, "failures": bad}


def _torch_graph(graph: Graph, feeds: dict[str, Array], half: bool) -> Callable[[], float]:
    """A function that replays PyTorch's graph once and returns the device time, ns."""
    import torch
    from torch_twin import TorchTwin

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    twin = TorchTwin(graph, half=half)
    inputs = [torch.from_numpy(np.array(a)).cuda() for a in feeds.values()]
    inputs = [a.half() if half and a.dtype.is_floating_point else a for a in inputs]
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            twin(*inputs)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(recorded):
        kept = twin(*inputs)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def run() -> float:
        first.record()
        recorded.replay()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1e6

    run.kept = kept  # type: ignore[attr-defined]
    return run


def check_speed(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """Device time of ours and of PyTorch, one after the other in turns."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return {"not_measured": f"PyTorch cannot be imported: {error}"}
    import models

    found: dict[str, Any] = {}
    for batch in (1, 32):
        for name in _NETWORKS:
            if clock.left_s < args.reserve_s:
                found[f"{name} batch {batch}"] = {"not_measured": "no time left"}
                continue
            graph = models.build(name, batch)
            feeds = _feeds(graph)
            with Session(graph, "cuda") as session:
                session.run(feeds)
                program: Any = session.program
                arrays = list(feeds.values())
                peers = {k: _torch_graph(graph, feeds, k == "f16") for k in ("f32", "f16")}
                samples: dict[str, list[float]] = {"ours": [], "f32": [], "f16": []}
                for turn in range(25):
                    program.run(arrays)
                    ours = float(program.times.device)
                    others = {k: run() for k, run in peers.items()}
                    if turn >= 5:
                        samples["ours"].append(ours)
                        for k, ns in others.items():
                            samples[k].append(ns)
                spans = program.profile(arrays, 3)
            medians = {k: float(np.median(v)) for k, v in samples.items()}
            slow = sorted(spans, key=lambda s: -min(d for _, d in s.spans))[:8]
            found[f"{name} batch {batch}"] = {
                "device_us": {k: round(v / 1e3, 1) for k, v in medians.items()},
                "torch_f32_over_ours": round(medians["f32"] / medians["ours"], 3),
                "torch_f16_over_ours": round(medians["f16"] / medians["ours"], 3),
                "slowest_steps": [
                    [s.name, s.kernel, s.algorithm, round(min(d for _, d in s.spans) / 1e3, 1)]
                    for s in slow
                ],
            }
    return found


def check_memory(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """Free memory of the device before and after many replays."""
    import cupy
    import models

    graph = models.build("mobilenet_v2")
    feeds = _feeds(graph)
    with Session(graph, "cuda") as session:
        for _ in range(5):
            session.run(feeds)
        arrays, program = list(feeds.values()), session.program
        assert program is not None
        before, count = cupy.cuda.runtime.memGetInfo()[0], 0
        while count < 10_000 and clock.left_s > 5:
            program.run(arrays)
            count += 1
        after = cupy.cuda.runtime.memGetInfo()[0]
    lost = int(before - after)
    return {"replays": count, "bytes_lost": lost, "failures": {"memory": lost} if lost > 0 else {}}


def check_sanitizer(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """Memcheck and racecheck over a few cases, in processes of their own."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"not_measured": "compute-sanitizer is not on PATH"}
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for check in ("memcheck", "racecheck"):
        for prefix in _SANITIZED:
            seconds = min(90.0, clock.left_s)
            if seconds < 15:
                found[f"{check} {prefix}"] = "no time left"
                continue
            command = [
                tool, "--tool", check, "--error-exitcode", "9", sys.executable, __file__,
                "--parts", "corpus", "--only", prefix, "--minutes", str(seconds / 60 - 0.1),
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=seconds, check=False
                )
            except subprocess.TimeoutExpired:
                found[f"{check} {prefix}"] = "did not end in time"
                continue
            found[f"{check} {prefix}"] = done.returncode
            if done.returncode == 9:
                failures[f"{check} {prefix}"] = (done.stdout + done.stderr)[-3000:]
    return {"results": found, "failures": failures}


PARTS: dict[str, Callable[[argparse.Namespace, _Clock], dict[str, Any]]] = {
    "device": check_device,
    "networks": check_networks,
    "speed": check_speed,
    "corpus": check_corpus,
    "memory": check_memory,
    "sanitizer": check_sanitizer,
}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=None, help="write the result here")
    parser.add_argument("--corpus", type=Path, default=None, help="folder of cases")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--reserve-s", type=float, default=20, help="left for what comes after")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    args = parser.parse_args()
    clock = _Clock(args.minutes)
    result: dict[str, Any] = {"schema": 1}
    failed = False
    for name in args.parts.split(","):
        start = time.monotonic()
        try:
            result[name] = PARTS[name](args, clock)
        except Exception:
            result[name] = {"failures": {"traceback": traceback.format_exc(limit=-6)}}
        result[name]["seconds"] = round(time.monotonic() - start, 1)
        failed = failed or bool(result[name].get("failures"))
        if args.out:  # what is known so far survives the end of the time
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
