"""Read, write, read again: a file keeps its records, and its meaning in other containers.

    python scripts/verify/roundtrip.py [--root CORPUS] [--json FILE]

For every model file: written in its own containers it gives equal records (and how many come out
with equal bytes is counted); v1 -> v2 -> v1, v2 -> v1 -> v2 and through MGBS it keeps its meaning.
Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import corpus_root  # noqa: E402
from records import meaning, raw_records  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.errors import MgeError  # noqa: E402

TRIPS = (("v2", "v1"), ("v1", "v2"), ("mgbs", "v1"), ("mgbs", "v2"))


def check(path: Path, counts: collections.Counter[str]) -> list[str]:
    """What differs for one file."""
    data = path.read_bytes()
    model = mgeserial.load(data)
    problems = []
    again = mgeserial.dumps(model)
    counts["files"] += 1
    counts["equal bytes"] += again == data
    if raw_records(again) != raw_records(data):
        problems.append("other records after writing it in the same container")
    else:
        counts["equal records"] += 1
    before = meaning(model)
    for trip in TRIPS:
        there = model
        for container in trip:
            there = mgeserial.load(mgeserial.dumps(there, format=container))
        counts["trips"] += 1
        if meaning(there) != before:
            problems.append(f"another meaning after {' and '.join(trip)}")
        else:
            counts["kept meaning"] += 1
    return problems


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=None, help="corpus folder")
    parser.add_argument("--json", type=Path, default=None, help="write the result here")
    args = parser.parse_args()
    root = args.root or corpus_root()
    start = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    failures: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/*/*.mge")):
        try:
            problems = check(path, counts)
        except MgeError as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            failures[str(path.relative_to(root))] = problems
    for name, problems in failures.items():
        print(f"{name}: {'; '.join(problems)}", file=sys.stderr)
    seconds = round(time.perf_counter() - start, 1)
    print(f"{dict(counts)}, {len(failures)} files differ, {seconds} s", file=sys.stderr)
    result = {"schema": 1, "seconds": seconds, "counts": dict(counts), "failures": failures}
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failures or not counts["files"] else 0


if __name__ == "__main__":
    sys.exit(main())
