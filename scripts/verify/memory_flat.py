"""Thousands of runs of one session, and what they add to resident memory.

    python scripts/verify/memory_flat.py --runs 10000 --backend reference --json -

Runs a compact network (`tests/corpus/nets/...` or a file of yours), measures resident memory after
a warm-up of one tenth of the runs and at the end. Exit code 1 when it grew by more than 2 MiB.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from loadrun.inputs import random_inputs  # noqa: E402
from loadrun.session import Session  # noqa: E402

DEFAULT = ROOT / "tests" / "corpus" / "nets" / "mobilenet_v1_optimized" / "model.v2.mge"
ALLOWED = 2 << 20


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not say how much memory is resident")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="memory of thousands of runs")
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    start = time.perf_counter()
    with Session(args.model, args.backend, threads=args.threads) as session:
        feeds = random_inputs(session.inputs, seed=0)
        marks = {}
        for i in range(args.runs + 1):
            if i in (args.runs // 10, args.runs // 2, args.runs):
                marks[i] = resident_bytes()
            session.run(feeds)
    grown = marks[args.runs] - marks[args.runs // 10]
    result = {
        "schema": 1,
        "model": args.model.name,
        "backend": args.backend,
        "runs": args.runs,
        "resident_bytes": {str(k): v for k, v in marks.items()},
        "grown_bytes": grown,
        "seconds": round(time.perf_counter() - start, 1),
        "flat": grown <= ALLOWED,
    }
    text = json.dumps(result, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0 if result["flat"] else 1


if __name__ == "__main__":
    sys.exit(main())
