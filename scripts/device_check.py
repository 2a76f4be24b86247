"""Everything about the CUDA engine that needs a GPU, in one run of less than eight minutes.

    python scripts/device_check.py --out RESULT.json [--corpus FOLDER] [--minutes 7.5]

The machine needs CuPy and, for the comparison, PyTorch; nothing is downloaded, networks are
authored from seeds. Parts, each within what is left of the time:

1. device: what it is, versions.
2. corpus: every case of the folder (the compact corpus by default) against its expected outputs.
3. networks: the benchmark networks against the reference backend.
4. variants: networks with TF32, in float16, with each layer's fastest candidate (`--fast-run`),
   with cuDNN's convolutions wherever they are candidates, and started launch by launch.
5. speed: ratio of device time to PyTorch's (cuDNN benchmark mode, CUDA graph), interleaved, batches
   1 and 32, float32 without TF32 and float16, at batch 1 also what was measured to be fastest; the
   slowest steps of ours are named.
6. memory: 10,000 replays of one network; the device's free memory before and after.
7. sanitizer: compute-sanitizer over convolution and NMS cases, where it is installed.

Exit code 0 when nothing disagrees; what could not be done is in the result, with the reason.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
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
from loadrun.backends.base import CompileOptions, ProgramReport  # noqa: E402
from loadrun.backends.cuda.tuning import any_batch  # noqa: E402
from loadrun.optimization import optimized  # noqa: E402
from loadrun.policy import choices_text  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402
from mgeserial.ir.graph import Graph  # noqa: E402
from mgeserial.passes.options import OptimizeOptions  # noqa: E402

_NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "transformer")
# Largest error of a variant, relative to the largest result in float32.
_LIMITS = {"tf32": 5e-3, "float16": 1e-2, "fast_run": 1e-3, "cudnn": 1e-3, "one_by_one": 1e-3}
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


def _half(graph: Graph) -> Graph:
    """The network with values in float16 and sums in float32."""
    return optimized(graph, OptimizeOptions(enable_io16xc32=True)).graph


def _first(session: Session, feeds: dict[str, Array]) -> Array:
    """The first output of a replayed run, as float64."""
    for _ in range(2):
        session.run(feeds)
    return next(iter(session.run(feeds).values())).astype(np.float64)


def _needs_s(options: CompileOptions) -> float:
    """Seconds that a way to compile may take: all candidates of a large network, or its kernels."""
    return 60.0 if options.fast_run else 10.0


def _run_variant(
    graph: Graph, feeds: dict[str, Array], want: Array, options: CompileOptions
) -> dict[str, Any]:
    """Error, device time and choices of one way to compile."""
    start = time.perf_counter()
    with Session(graph, "cuda", options=options) as session:
        session.prepare(feeds)
        prepare = time.perf_counter() - start
        got = _first(session, feeds)
        program: Any = session.program
        arrays = list(feeds.values())
        times = []
        for _ in range(20):
            program.run(arrays)
            times.append(program.times.device)
        spans = program.profile(arrays, 3)
        summed = sum(float(np.median([ns for _, ns in s.spans])) for s in spans)
        report, graphs = program.report, program.native.graphs
    median = float(np.median(times))
    return {
        "relative_to_largest": float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)),
        "prepare_s": round(prepare, 2),
        "device_us": round(median / 1e3, 1),
        "steps_over_replay": round(summed / max(median, 1.0), 3),
        "graphs": graphs,
        "algorithms": dict(collections.Counter(c.choice for c in report.choices)),
        "notes": [n for n in report.notes if n.startswith(("fast run", "cuDNN", "launches"))],
        "report": report,
    }


def _by_cudnn(report: ProgramReport) -> str:
    """The choice of cuDNN's fastest engine for every layer that has one; empty: none has."""
    chosen: dict[str, str] = {}
    for choice in report.choices:
        engines = {n: ns for n, ns in choice.times_ns.items() if n.startswith("cudnn")}
        if engines:
            chosen[any_batch(choice.layer)] = min(engines, key=lambda n: engines[n])
    return choices_text(chosen) if chosen else ""


def check_variants(args: argparse.Namespace, clock: _Clock) -> dict[str, Any]:
    """The ways to compute that have to be asked for; at batch 1."""
    import models

    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name in ("resnet18", "mobilenet_v2", "transformer"):
        graph = models.build(name)
        feeds = _feeds(graph)
        with Session(graph, "cuda", options=CompileOptions(record=0)) as session:
            want = _first(session, feeds)
        ways: dict[str, CompileOptions | None] = {
            "one_by_one": CompileOptions(record=0),
            "tf32": CompileOptions(tf32=True),
            "float16": CompileOptions(),
            "fast_run": CompileOptions(fast_run=True, full_run=True),
            "cudnn": None,
        }
        for way, options in ways.items():
            label = f"{name} {way}"
            if options is None:
                found[label] = {"not_measured": "cuDNN has no engine, or is not installed"}
                continue
            if clock.left_s < args.reserve_s + _needs_s(options):
                found[label] = {"not_measured": "no time left"}
                continue
            try:
                network = _half(graph) if way == "float16" else graph
                result = _run_variant(network, feeds, want, options)
            except MgeError as error:
                failures[label] = f"{type(error).__name__}: {error}"
                continue
            report = result.pop("report")
            if way == "fast_run":
                text = _by_cudnn(report)
                ways["cudnn"] = CompileOptions(algorithms=text) if text else None
            found[label] = result
            if not result["relative_to_largest"] <= _LIMITS[way]:
                failures[label] = f"off by {result['relative_to_largest']:.2e}"
            if (result["graphs"] == 0) != (way == "one_by_one"):
                failures[label] = f"{result['graphs']} graphs are replayed"
    return {"variants": found, "failures": failures}


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


def _ours(graph: Graph, batch: int) -> dict[str, tuple[Graph, CompileOptions]]:
    """What is timed against PyTorch."""
    ways = {"f32": (graph, CompileOptions()), "f16": (_half(graph), CompileOptions())}
    if batch == 1:
        ways["f32 fast run"] = (graph, CompileOptions(fast_run=True))
        ways["f16 fast run"] = (ways["f16"][0], CompileOptions(fast_run=True))
    return ways


def _interleaved(
    graph: Graph, feeds: dict[str, Array], batch: int, clock: _Clock, reserve_s: float
) -> dict[str, Any]:
    """Medians of device time in us, of ours and of PyTorch, each run in turn."""
    arrays = list(feeds.values())
    with contextlib.ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        slow: list[Any] = []
        for way, (network, options) in _ours(graph, batch).items():
            if clock.left_s < reserve_s + _needs_s(options):
                continue
            session = stack.enter_context(Session(network, "cuda", options=options))
            session.run(feeds)
            program: Any = session.program

            def run(program: Any = program) -> float:
                program.run(arrays)
                return float(program.times.device)

            runs[f"ours {way}"] = run
            if way == "f32":
                spans = program.profile(arrays, 3)
                slow = sorted(spans, key=lambda s: -min(d for _, d in s.spans))[:8]
        for kind in ("f32", "f16"):
            runs[f"torch {kind}"] = _torch_graph(graph, feeds, kind == "f16")
        samples: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(25):
            for name, run_once in runs.items():
                ns = run_once()
                if turn >= 5:
                    samples[name].append(ns)
        medians = {name: float(np.median(v)) for name, v in samples.items()}
    return {
        "device_us": {name: round(v / 1e3, 1) for name, v in medians.items()},
        "torch_over_ours": {
            name[5:]: round(medians[f"torch {name[5:8]}"] / v, 3)
            for name, v in medians.items()
            if name.startswith("ours")
        },
        "slowest_steps": [
            [s.name, s.kernel, s.algorithm, round(min(d for _, d in s.spans) / 1e3, 1)]
            for s in slow
        ],
    }


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
            label = f"{name} batch {batch}"
            if clock.left_s < args.reserve_s:
                found[label] = {"not_measured": "no time left"}
                continue
            graph = models.build(name, batch)
            found[label] = _interleaved(graph, _feeds(graph), batch, clock, args.reserve_s)
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
    "variants": check_variants,
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
