"""Time and memory of saving a large network, against onnx.save and `cp` of the same bytes.

    python benchmarks/save.py NETWORKS [--name resnet50] [--rounds 15] [--json FILE]

NETWORKS is a folder with NAME.v1.mge, NAME.v2.mge and NAME.onnx that hold the same weights. The
savers take turns in an order that changes, each over the file of its last turn; mgeserial and `cp`
are followed by fsync (mgeserial's own), onnx.save runs with and without one. Memory is what a fresh
process adds while it saves what it has loaded: resident, peak included (Linux).

Limits: at most twice the time of `cp --reflink=never` with fsync, less than onnx.save, under 30 MB
more. Exit code 1 when one is broken.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MEMORY_LIMIT_MB = 30
CP_LIMIT = 2.0

_MEMORY = """
import json, sys
def status(field):
    with open("/proc/self/status") as file:
        return next(int(s.split()[1]) * 1024 for s in file if s.startswith(field))
def fresh_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
kind, source, target = sys.argv[1:]
if kind == "onnx":
    import onnx
    model = onnx.load(source)
    save = lambda: onnx.save(model, target)
else:
    import mgeserial, mgeserial.saving
    model = mgeserial.load(source)
    save = lambda: mgeserial.save(model, target, format=kind)
before = status("VmRSS")
fresh_peak()
save()
print(json.dumps({"before": before, "peak": status("VmHWM")}))
"""


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def copy(source: Path, target: Path) -> None:
    """Copy with the system's `cp`, byte for byte, and wait for the disk."""
    subprocess.run(["cp", "--reflink=never", str(source), str(target)], check=True)
    sync(target)


def savers(folder: Path, name: str, out: Path) -> dict[str, Callable[[], None]]:
    """What takes turns, by name."""
    import onnx

    import mgeserial

    v1, v2 = folder / f"{name}.v1.mge", folder / f"{name}.v2.mge"
    one, two = mgeserial.load(v1), mgeserial.load(v2)
    twin = onnx.load(folder / f"{name}.onnx")

    def onnx_synced() -> None:
        onnx.save(twin, out / "synced.onnx")
        sync(out / "synced.onnx")

    return {
        "cp + fsync": lambda: copy(v1, out / "copy.mge"),
        "onnx.save": lambda: onnx.save(twin, out / "plain.onnx"),
        "onnx.save + fsync": onnx_synced,
        "v1 to v1": lambda: _save(one, out / "11.mge", "v1"),
        "v1 to v2": lambda: _save(one, out / "12.mge", "v2"),
        "v1 to mgbs": lambda: _save(one, out / "1s.mge", "mgbs"),
        "v2 to v2": lambda: _save(two, out / "22.mge", "v2"),
    }


def _save(model: Any, path: Path, format: str) -> None:
    import mgeserial

    mgeserial.save(model, path, format=format)


def memory(kind: str, source: Path, target: Path) -> float:
    """MB that a fresh process adds while it saves."""
    command = [sys.executable, "-c", _MEMORY, kind, str(source), str(target)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    found = json.loads(done.stdout)
    return float(found["peak"] - found["before"]) / 1e6


def summary(samples: list[int]) -> dict[str, Any]:
    """Median, MAD, min and all samples, in ns."""
    middle = statistics.median(samples)
    mad = statistics.median([abs(s - middle) for s in samples])
    return {"median": middle, "mad": mad, "min": min(samples), "n": len(samples), "all": samples}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("networks", type=Path)
    parser.add_argument("--name", default="resnet50")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=None, help="where to write")
    parser.add_argument("--json", type=Path, default=None, help="write the result here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as text:
        out = Path(text)
        what = savers(args.networks, args.name, out)
        samples: dict[str, list[int]] = {key: [] for key in what}
        keys = list(what)
        for turn in range(args.rounds + 1):
            for key in keys[turn % len(keys) :] + keys[: turn % len(keys)]:
                start = time.perf_counter_ns()
                what[key]()
                if turn:  # the first turn makes the files that the others replace
                    samples[key].append(time.perf_counter_ns() - start)
        v1, v2 = (args.networks / f"{args.name}.{c}.mge" for c in ("v1", "v2"))
        added = {
            f"{source.suffixes[0][1:]} to {kind}": memory(kind, source, out / "memory.mge")
            for source in (v1, v2)
            for kind in ("v1", "v2", "mgbs")
        }
        added["onnx.save"] = memory("onnx", args.networks / f"{args.name}.onnx", out / "m.onnx")
    times = {key: summary(s) for key, s in samples.items()}
    cp, peer = times["cp + fsync"]["median"], times["onnx.save"]["median"]
    ours = [key for key in keys if " to " in key]
    checks = {
        "at most twice cp": all(times[k]["median"] <= CP_LIMIT * cp for k in ours),
        "faster than onnx.save": all(times[k]["median"] < peer for k in ours),
        "memory": all(mb < MEMORY_LIMIT_MB for key, mb in added.items() if " to " in key),
    }
    for key, row in times.items():
        print(f"{key:18} {row['median'] / 1e6:8.1f} ms (MAD {row['mad'] / 1e6:.1f})")
    for key, mb in added.items():
        print(f"{key:18} {mb:8.1f} MB added")
    print(checks)
    result = {
        "schema": 1,
        "network": args.name,
        "bytes": v1.stat().st_size,
        "times_ns": times,
        "memory_mb": added,
        "checks": checks,
        "machine": platform.platform(),
        "python": platform.python_version(),
        "onnx": importlib.metadata.version("onnx"),
    }
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
