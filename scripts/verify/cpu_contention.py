"""Thread safety and manners of the CPU engine: contention, idling, several sessions, forks.

    python scripts/verify/cpu_contention.py --runs 20000 --json -

Checks, each with a watchdog that prints all stacks and ends the process when it hangs:

1. contention: `--runs` runs with `--threads` threads while one busy process is pinned to each core;
   every result is bit for bit that of the first run, the median at most 5 times the quiet median;
2. idle: a session that has run uses no processor time afterwards (at most 2 ms in a second), and
   its workers are asleep within 1 ms of the end of a run;
3. sessions: two sessions of a process, and one session in several threads, give the results of
   one alone;
4. fork: a child forked after a run makes a session of its own and gets the same results.

Linux only. Exit code 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from models import NETWORKS  # noqa: E402

from loadrun.environment import environment  # noqa: E402
from loadrun.inputs import random_inputs  # noqa: E402
from loadrun.session import Session  # noqa: E402

MOST_SLOWER = 5.0
MOST_IDLE_MS = 2.0
MOST_AWAKE_MS = 1.0
_BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
while True:
    sum(range(10000))
"""

Outputs = dict[str, Any]


@contextmanager
def busy_cores() -> Iterator[int]:
    """One busy process pinned to each core that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    children = [
        subprocess.Popen([sys.executable, "-c", _BUSY, str(c)], stdout=subprocess.PIPE)
        for c in cores
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        yield len(cores)
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def same(a: Outputs, b: Outputs) -> bool:
    """Whether results are equal bit for bit."""
    return all(a[k].tobytes() == b[k].tobytes() for k in b)


def watched(seconds: float, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a check; a hang prints all stacks and ends the process."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return work()
    finally:
        faulthandler.cancel_dump_traceback_later()


def timed_runs(session: Session, feeds: Outputs, first: Outputs, runs: int) -> tuple[float, int]:
    """(median ms, runs whose results differ from the first)."""
    times, wrong = [], 0
    for _ in range(runs):
        start = time.perf_counter_ns()
        found = session.run(feeds)
        times.append(time.perf_counter_ns() - start)
        wrong += not same(found, first)
        # A run that hangs, not a check that is long, is what the watchdog looks for.
        faulthandler.dump_traceback_later(60, exit=True)
    return statistics.median(times) / 1e6, wrong


def contention(args: argparse.Namespace) -> dict[str, Any]:
    """Check 1."""
    with Session(args.model, "cpu", threads=args.threads) as session:
        feeds = random_inputs(session.inputs, seed=0)
        first = session.run(feeds)
        quiet, wrong = timed_runs(session, feeds, first, max(args.runs // 20, 50))
        with busy_cores() as cores:
            loaded, more = timed_runs(session, feeds, first, args.runs)
        after, last = timed_runs(session, feeds, first, max(args.runs // 20, 50))
    ratio = loaded / min(quiet, after)
    return {
        "runs": args.runs,
        "busy_processes": cores,
        "median_ms": {"quiet": round(quiet, 4), "busy": round(loaded, 4), "after": round(after, 4)},
        "ratio": round(ratio, 2),
        "limit": MOST_SLOWER,
        "mismatches": wrong + more + last,
        "holds": ratio <= MOST_SLOWER and wrong + more + last == 0,
    }


def _threads_states() -> list[str]:
    """States (R, S, D ...) of this process's other threads."""
    mine = threading.get_native_id()
    states = []
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != mine:
            text = (task / "stat").read_text(encoding="ascii")
            states.append(text.rpartition(")")[2].split()[0])
    return states


def idle(args: argparse.Namespace) -> dict[str, Any]:
    """Check 2."""
    with Session(args.model, "cpu", threads=args.threads) as session:
        feeds = random_inputs(session.inputs, seed=0)
        session.run(feeds)
        awake = []
        for _ in range(200):
            session.run(feeds)
            end = time.perf_counter_ns()
            # Asked without sleeping: a worker that spins would be found running.
            while "R" in _threads_states() and time.perf_counter_ns() - end < 50_000_000:
                pass
            awake.append((time.perf_counter_ns() - end) / 1e6)
        begin = time.process_time_ns()
        time.sleep(1)
        used = (time.process_time_ns() - begin) / 1e6
    typical = statistics.median(awake)
    return {
        "asleep_after_ms": {"median": round(typical, 3), "max": round(max(awake), 3)},
        "idle_cpu_ms_per_s": round(used, 3),
        "limits": {"asleep_after_ms": MOST_AWAKE_MS, "idle_cpu_ms_per_s": MOST_IDLE_MS},
        "holds": typical <= MOST_AWAKE_MS and used <= MOST_IDLE_MS,
    }


def sessions(args: argparse.Namespace) -> dict[str, Any]:
    """Check 3."""
    wrong: list[int] = []
    made = [Session(args.model, "cpu", threads=t) for t in (args.threads, 1, 5)]
    feeds = random_inputs(made[0].inputs, seed=0)
    first = made[0].run(feeds)

    def use(k: int) -> None:
        wrong.extend(
            1 for _ in range(args.runs // 20) if not same(made[k % len(made)].run(feeds), first)
        )

    def compile_too(k: int) -> None:
        with Session(args.model, "cpu", threads=1 + k % 3) as own:
            wrong.extend(1 for _ in range(3) if not same(own.run(feeds), first))

    threads = [threading.Thread(target=use, args=(k,)) for k in range(6)]
    threads += [threading.Thread(target=compile_too, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in made:
        session.close()
    return {
        "sessions": len(made) + 4,
        "caller_threads": len(threads),
        "mismatches": len(wrong),
        "holds": not wrong,
    }


def fork(args: argparse.Namespace) -> dict[str, Any]:
    """Check 4."""
    with Session(args.model, "cpu", threads=args.threads) as session:
        feeds = random_inputs(session.inputs, seed=0)
        first = session.run(feeds)
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                code = 2
                try:
                    with Session(args.model, "cpu", threads=args.threads) as own:
                        code = 0 if all(same(own.run(feeds), first) for _ in range(20)) else 1
                finally:
                    os._exit(code)
            children.append(pid)
            session.run(feeds)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        still = same(session.run(feeds), first)
    return {"children": codes, "parent_still_right": still, "holds": still and not any(codes)}


CHECKS = {"contention": contention, "idle": idle, "sessions": sessions, "fork": fork}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", help="a model file; default: --network")
    parser.add_argument("--network", default="mobilenet_v2", help="of benchmarks/models.py")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checks", default=",".join(CHECKS))
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    name = args.model or args.network
    args.model = args.model or NETWORKS[args.network](1)
    results = {}
    for check in args.checks.split(","):
        found = results[check] = watched(300, functools.partial(CHECKS[check], args))
        print(f"{check}: {'holds' if found['holds'] else 'DOES NOT HOLD'} {found}", file=sys.stderr)
    holds = all(r["holds"] for r in results.values())
    result = {
        "schema": 1,
        "measured": "hangs, mismatches and slowness of a session under contention and shared use",
        "environment": environment(),
        "model": name,
        "threads": args.threads,
        **results,
        "holds": holds,
    }
    if args.json == "-":
        print(json.dumps(result, indent=1))
    else:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
