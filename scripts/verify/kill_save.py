"""Kill a process at random moments while it saves over a file: what is there afterwards?

    python scripts/verify/kill_save.py [--times 10] [--megabytes 200] [--seed 0] [--json FILE]

Each time a fresh process loads a model, says so, and saves it over an old file; it is killed with
SIGKILL after a random part of the time that such a save takes. Afterwards the file has the bytes
of the old or of the new model; what was written so far lies beside it under another name, which is
counted and removed. Exit code 1 when a third thing was ever there.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.dtypes import FLOAT32  # noqa: E402
from mgeserial.ir.graph import Graph, Output  # noqa: E402
from mgeserial.ir.tensor import Tensor  # noqa: E402
from mgeserial.ops.registry import by_name  # noqa: E402

_CHILD = """
import sys
import mgeserial, mgeserial.saving
new, target = sys.argv[1:]
model = mgeserial.load(new)
print("ready", flush=True)
sys.stdin.readline()
mgeserial.save(model, target)
print("done", flush=True)
"""


def model_of(megabytes: int, seed: int) -> Graph:
    """A graph of parameters alone, of about so many MB."""
    rng = np.random.default_rng(seed)
    graph = Graph()
    for _ in range(max(megabytes // 4, 1)):
        array = rng.random((1 << 20,), dtype=np.float32)
        graph.add(by_name("SharedDeviceTensor"), (), tensors=(Tensor.of(array, FLOAT32),))
    graph.set_outputs([Output(v, f"w{i}", i) for i, v in enumerate(graph.values())])
    return graph


def digest(path: Path) -> str:
    """Of a whole file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def once(new: Path, target: Path, wait: float | None) -> float:
    """Let a process save, kill it after `wait` seconds (None: never); seconds it took."""
    command = [sys.executable, "-c", _CHILD, str(new), str(target)]
    environ = {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        start = time.perf_counter()
        child.stdin.write("go\n")
        child.stdin.flush()
        if wait is None:
            child.stdout.readline()
        else:
            time.sleep(wait)
            child.send_signal(signal.SIGKILL)
        return time.perf_counter() - start


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None, help="write the result here")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    seen: collections.Counter[str] = collections.Counter()
    moments = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        old, new, target = folder / "old.mge", folder / "new.mge", folder / "net" / "net.mge"
        target.parent.mkdir()
        mgeserial.save(model_of(args.megabytes // 2, 1), old)
        mgeserial.save(model_of(args.megabytes, 2), new)
        names = {digest(old): "old", digest(new): "new"}
        whole = min(once(new, target, None) for _ in range(3))
        for _ in range(args.times):
            target.write_bytes(old.read_bytes())
            wait = rng.uniform(0, 1.1 * whole)
            once(new, target, wait)
            found = names.get(digest(target), "a third thing")
            left = [p for p in target.parent.iterdir() if p != target]
            seen[found] += 1
            seen["left beside it"] += len(left)
            moments.append({"after_s": wait, "found": found, "left": len(left)})
            print(f"killed after {wait:.3f} s of {whole:.3f} s: {found}")
            for path in left:
                path.unlink()
    print(dict(seen))
    result = {"schema": 1, "save_s": whole, "seen": dict(seen), "moments": moments}
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if seen["a third thing"] else 0


if __name__ == "__main__":
    sys.exit(main())
