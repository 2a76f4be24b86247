"""What `--fast-run` gains on the benchmark networks, and that it never loses.

    python scripts/verify/fast_run.py --networks resnet18,mobilenet_v2 --threads 1,2 --json -

For each network and number of threads: a session as it is, one that measures its algorithms into a
policy file, and one that only reads that file. The first two take turns of whole runs, with a pause
so that the workers of the other sleep; lower quartiles are compared. Checked:

1. the outputs agree within 1e-4 of the largest value (other algorithms round differently);
2. measured algorithms are not slower than the cost model's by more than `--noise`;
3. with the policy file nothing is measured, and the plan is the same.

Exit code 1 when one does not hold. Wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import models  # noqa: E402 - benchmarks/ is no package

from loadrun.backends.base import CompileOptions, ProgramReport  # noqa: E402
from loadrun.session import Session  # noqa: E402
from mgeserial.dtypes import Array  # noqa: E402

NETWORKS = "resnet18,mobilenet_v2,yolox_nano,unet"
PAUSE_S = 0.002
TOLERANCE = 1e-4


def report_of(session: Session) -> ProgramReport:
    """What the program of a prepared session says."""
    assert session.program is not None
    return session.program.report


def difference(want: Array, got: Array) -> float:
    """Largest difference, relative to the largest value."""
    wide = want.astype(np.float64)
    return float(
        np.abs(wide - got.astype(np.float64)).max() / max(float(np.abs(wide).max()), 1e-30)
    )


def in_turns(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """Lower quartile of each call's times, in ms."""
    times: list[list[int]] = [[] for _ in calls]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 10:
        for call, found in zip(calls, times, strict=True):
            time.sleep(PAUSE_S)
            call()
            start = time.perf_counter_ns()
            call()
            found.append(time.perf_counter_ns() - start)
    return [float(np.percentile(found[1:], 25)) / 1e6 for found in times]


def verify(name: str, threads: int, batch: int, seconds: float, policy: Path) -> dict[str, Any]:
    """Figures of one network."""
    graph = models.build(name, batch)
    plain = CompileOptions(threads=threads)
    measuring = replace(plain, fast_run=True, policy_file=str(policy))
    with (
        Session(graph, "cpu", options=plain) as one,
        Session(graph, "cpu", options=measuring) as two,
        Session(graph, "cpu", options=measuring) as three,
    ):
        rng = np.random.default_rng(0)
        inputs = {n: rng.random(t.dims, np.float32) for n, t in one.inputs.items()}
        sessions = (one, two, three)
        spent = [session.prepare(inputs) / 1e9 for session in sessions]
        results = [session.run(inputs) for session in sessions]
        worst = max(
            difference(results[0][n], other[n]) for other in results[1:] for n in results[0]
        )
        before, after = in_turns([one.caller(inputs), two.caller(inputs)], seconds)
        first, second = report_of(two), report_of(three)
    return {
        "network": name,
        "threads_count": threads,
        "batch": batch,
        "default_ms": before,
        "fast_run_ms": after,
        "gain": before / after,
        "largest_difference": worst,
        "prepare_s": dict(zip(("default", "measuring", "policy"), spent, strict=True)),
        "notes": first.notes,
        "changed": {c.layer: c.choice for c in first.choices if c.choice != "default"},
        "kinds_count": len(first.choices),
        "measured_again_count": sum(c.source == "measured" for c in second.choices),
        "same_plan": [p for p in first.plan if p.startswith("  ") and ": conv_" in p]
        == [p for p in second.plan if p.startswith("  ") and ": conv_" in p],
    }


def faults(found: dict[str, Any], noise: float) -> list[str]:
    """What does not hold."""
    wrong = []
    if found["largest_difference"] > TOLERANCE:
        wrong.append(f"outputs differ by {found['largest_difference']:.1e}")
    if found["gain"] < 1 - noise:
        wrong.append(f"slower than the cost model's choice: {found['gain']:.3f}")
    if found["measured_again_count"] or not found["same_plan"]:
        wrong.append("the policy file did not give the same choice")
    return wrong


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="verify --fast-run on benchmark networks")
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each comparison")
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--json", help="write the result here (- for stdout)")
    args = parser.parse_args()
    results, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks.split(","):
            for threads in map(int, args.threads.split(",")):
                policy = Path(folder) / f"{name}.json"
                found = verify(name, threads, args.batch, args.seconds, policy)
                found["faults"] = faults(found, args.noise)
                failed |= bool(found["faults"])
                results.append(found)
                print(
                    f"{name:14s} {threads} threads: {found['default_ms']:8.3f} to "
                    f"{found['fast_run_ms']:8.3f} ms, gain {found['gain']:.3f}, "
                    f"{len(found['changed'])} of {found['kinds_count']} kinds of layers, measured "
                    f"in {found['prepare_s']['measuring']:.1f} s; {found['notes'][0]}; "
                    f"{'; '.join(found['faults']) or 'ok'}",
                    file=sys.stderr,
                )
    if args.json:
        text = json.dumps({"kind": "verify.fast_run", "schema": 1, "results": results}, indent=1)
        if args.json == "-":
            print(text)
        else:
            Path(args.json).write_text(text + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
