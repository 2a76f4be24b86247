"""Time of `--help` and of imports, against `python -c 'import numpy'`, in turns.

    python scripts/verify/startup.py [--rounds 15] [--json FILE]

Checks: `loadrun --help` and `mgeserial --help` take at most twice the time of importing numpy;
`import mgeserial` (public names included) and `import loadrun` load no cv2, rich, llvmlite or cupy.
Exit code 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 2.0
HEAVY = ("cv2", "rich", "llvmlite", "cupy")
IMPORTS = ("import mgeserial; mgeserial.load", "import loadrun; loadrun.Session")


def command(program: str) -> list[str]:
    """The installed program beside this interpreter, else the module."""
    beside = Path(sys.executable).parent / program
    return [str(beside)] if beside.exists() else [sys.executable, "-m", program]


def timed(words: list[str]) -> float:
    """Seconds of a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
    return time.perf_counter() - start


def heavy_after(code: str) -> list[str]:
    """Heavy packages that are loaded after `code` ran in a fresh interpreter."""
    words = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT)
    return sorted({m.partition(".")[0] for m in done.stdout.split()} & set(HEAVY))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    commands = {
        "import numpy": [sys.executable, "-c", "import numpy"],
        "python alone": [sys.executable, "-c", "pass"],
        "mgeserial --help": [*command("mgeserial"), "--help"],
        "loadrun --help": [*command("loadrun"), "--help"],
        **{code: [sys.executable, "-c", code] for code in IMPORTS},
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for words in commands.values():
        timed(words)
    for _ in range(args.rounds):
        for name, words in commands.items():
            times[name].append(timed(words))
    medians = {name: statistics.median(t) for name, t in times.items()}
    numpy = medians["import numpy"]
    ratios = {n: round(medians[n] / numpy, 3) for n in ("mgeserial --help", "loadrun --help")}
    loaded = {code: heavy_after(code) for code in IMPORTS}
    holds = all(r <= LIMIT for r in ratios.values()) and not any(loaded.values())
    result = {
        "schema": 1,
        "kind": "startup",
        "rounds": args.rounds,
        "median_ms": {name: round(m * 1e3, 1) for name, m in medians.items()},
        "ratio_to_import_numpy": ratios,
        "ratio_limit": LIMIT,
        "heavy_packages_loaded": loaded,
        "holds": holds,
    }
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
