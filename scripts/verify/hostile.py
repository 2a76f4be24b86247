"""Put damaged files through the whole reader: only errors of ours, each soon and in little memory.

    python scripts/verify/hostile.py --json -                   every small file that fits the bound
    python scripts/verify/hostile.py --small-bytes 0 --mutants 20000
    python scripts/verify/hostile.py --all-small                every byte of every small file

Small files (under 3 kB): truncated at every byte, and at every byte 0x00, 0xFF and one flipped bit.
Larger ones: random mutants. Each is loaded; all parameters, blobs and tensors are decoded; shapes
are inferred; the summary is made as JSON and as text. Nothing is run. Exit code 1 when anything but
an `MgeError` came out, or a bound was broken: 1 s of processor time, 200 MB of resident memory.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import compact_root, corpus_root, iter_models  # noqa: E402
from exercise import causes, exercise  # noqa: E402
from mutations import mutate  # noqa: E402

from mgeserial.ops import registry  # noqa: E402

SMALL = 3000
SECONDS = 1.0
HANG_SECONDS = 20
MEGABYTES = 200
_RULES = "its rules cannot take"

Run = tuple[str, bytes]


class Check:
    """Runs one input after another and keeps what went wrong."""

    def __init__(self) -> None:
        self.runs = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.rules: dict[str, list[Any]] = {}
        self.faults: list[dict[str, Any]] = []
        self.slowest = (0.0, "")
        self.base = _resident()
        self.peak = self.base

    def one(self, note: str, data: bytes) -> None:
        """Exercise the reader with `data`; `note` says how it was made."""
        self.runs += 1
        start = time.process_time()
        signal.alarm(HANG_SECONDS)
        try:
            errors = exercise(data)
        except Exception:
            self._fault(note, traceback.format_exc(limit=-4))
            return
        finally:
            signal.alarm(0)
        seconds = time.process_time() - start
        self.slowest = max(self.slowest, (seconds, note))
        if seconds > SECONDS:
            self._fault(note, f"took {seconds:.2f} s")
        resident = _resident()
        if resident > self.peak:
            grown, self.peak = resident - self.peak, resident
            if grown > MEGABYTES:
                self._fault(note, f"took {grown:.0f} MB")
        self.outcomes[type(errors[0]).__name__ if errors else "no error"] += 1
        for error in errors:
            if any(isinstance(e, MemoryError) for e in causes(error)):
                self._fault(note, f"asked for too much memory: {error}")
            if _RULES in str(error):
                name = str(error).split("): ")[0].rpartition("(")[2]
                self.rules.setdefault(name, [0, f"{note}: {error}"])[0] += 1

    def _fault(self, note: str, text: str) -> None:
        self.outcomes["fault"] += 1
        if len(self.faults) < 200:
            self.faults.append({"input": note, "fault": text})
            print(f"{note}: {text}", file=sys.stderr)


def _resident() -> float:
    """Greatest resident memory so far, MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def small_files(limit: int) -> tuple[list[Path], int]:
    """Small files whose bytes fit `limit` in all, spread over the operators; how many there are.

    A file that has an operator type no chosen one has comes first, then the smallest.
    """
    import mgeserial

    files = [m.path for _, m in iter_models(compact_root())]
    files += sorted((compact_root() / "public").glob("*.mge"))
    files = [f for f in files if 0 < f.stat().st_size < SMALL]
    kinds = {}
    for path in files:
        try:
            model = mgeserial.load(path)
        except mgeserial.MgeError:
            kinds[path] = {path.name}
            continue
        found = {n.op.name for g in model.graphs for n in g.nodes}
        kinds[path] = (
            {f"{g.container}/{op}" for g in model.info.graphs for op in found}
            if model.info
            else found
        )
    chosen: list[Path] = []
    seen: set[str] = set()
    used = 0
    for want_new in (True, False):
        for path in sorted(files, key=lambda p: (p.stat().st_size, str(p))):
            size = path.stat().st_size
            if path in chosen or used + size > limit or (want_new and kinds[path] <= seen):
                continue
            chosen.append(path)
            seen |= kinds[path]
            used += size
    return chosen, len(files)


def damaged(path: Path) -> Iterator[Run]:
    """Truncations, and at every byte 0x00, 0xFF and one flipped bit."""
    data = path.read_bytes()
    name = f"{path.parent.name}/{path.name}"
    rng = random.Random(len(data))
    for at in range(len(data)):
        yield f"{name} cut at {at}", data[:at]
        for byte in {0, 255, data[at] ^ 1 << rng.randrange(8)} - {data[at]}:
            yield f"{name} byte {at} = {byte}", data[:at] + bytes((byte,)) + data[at + 1 :]


def mutants(count: int, seed: int) -> Iterator[Run]:
    """Random mutants of larger files of the whole corpus."""
    files = [m.path for _, m in iter_models(corpus_root()) if m.path.stat().st_size >= SMALL]
    rng = random.Random(seed)
    for i in range(count):
        path = rng.choice(files)
        state = rng.getrandbits(64)
        data = mutate(path.read_bytes(), random.Random(state))
        yield f"{path.parent.name}/{path.name} mutant {i} (seed {state})", data


def _hang(*_: object) -> None:
    raise TimeoutError(f"no end after {HANG_SECONDS} s")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--small-bytes", type=int, default=200_000, help="of small files in all")
    parser.add_argument("--all-small", action="store_true", help="every small file")
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _hang)
    list(registry.every())
    start = time.perf_counter()
    files, known = small_files(10**12 if args.all_small else args.small_bytes)
    for path in files:
        exercise(path.read_bytes())
    check = Check()
    for path in files:
        for note, data in damaged(path):
            check.one(note, data)
    small_runs = check.runs
    for note, data in mutants(args.mutants, args.seed):
        check.one(note, data)
    attacks = Check()
    for name, attack in importlib.import_module("attacks.builders").ATTACKS.items():
        attacks.one(f"attack {name}", attack.make())
    result = {
        "schema": 1,
        "seconds": round(time.perf_counter() - start, 1),
        "small_files": len(files),
        "small_files_known": known,
        "small_files_bytes": sum(f.stat().st_size for f in files),
        "small_runs": small_runs,
        "mutants": check.runs - small_runs,
        "seed": args.seed,
        "attacks": attacks.runs,
        "outcomes": dict(check.outcomes),
        "attack_outcomes": dict(attacks.outcomes),
        "bare_errors_of_rules": {
            name: {"count": count, "example": example[:600]}
            for name, (count, example) in sorted(check.rules.items(), key=lambda r: -r[1][0])
        },
        "slowest_seconds": round(check.slowest[0], 3),
        "slowest": check.slowest[1],
        "memory_growth_megabytes": round(check.peak - check.base, 1),
        "faults": check.faults + attacks.faults,
    }
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
