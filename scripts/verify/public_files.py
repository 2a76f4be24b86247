"""Load every model there is, ask `info` of each, and the right diagnosis of every other file.

    python scripts/verify/public_files.py [--json FILE]

Reads the whole corpus and, where it lies beside it, the folder of public files; the compact corpus
otherwise. Exit code 1 when a model does not load or a diagnosis is not the expected one.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import compact_root, corpus_root  # noqa: E402

import mgeserial  # noqa: E402
from mgeserial.cli import main as command  # noqa: E402

# What the name of a public file says it is, and what the error must then say; None: a model.
KINDS: dict[str, str | None] = {
    "v1": None,
    "mgb0001": "MegBrain internal model",
    "lfs": "Git LFS pointer",
    "pickle": "Python pickle",
    "json": "JSON text",
    "empty": "blanks|empty",
}


def public_root(corpus: Path) -> Path:
    """Folder of the public files."""
    beside = corpus.parent / "public-models"
    return beside if beside.is_dir() else compact_root() / "public"


def info(path: Path) -> tuple[int, str, str]:
    """Exit code, output and messages of `mgeserial info PATH --json`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(["info", str(path), "--json"])
    return code, out.getvalue(), err.getvalue()


def check_model(path: Path) -> str | None:
    """What is wrong with how a model reads; None when nothing is."""
    try:
        model = mgeserial.load(path)
        for graph in model.graphs:
            for node in graph.nodes:
                _ = node.params, node.blobs
    except Exception:
        return traceback.format_exc(limit=-2)
    code, out, err = info(path)
    if code != 0 or err:
        return f"info: exit code {code}: {err}"
    found = json.loads(out)
    sizes = sum(g["size_bytes"] for g in found["graphs"]) + found["wrapper_bytes"]
    if sizes != path.stat().st_size:
        return f"info: parts of {sizes} bytes make no file of {path.stat().st_size}"
    for graph, listed in zip(model.graphs, found["graphs"], strict=True):
        # Only code outside the file knows the types that a foreign operator gives.
        is_typed = all(n.op.dtypes is not None for n in graph.nodes)
        if is_typed and any(v["dtype"] is None for v in listed["inputs"] + listed["outputs"]):
            return "info: a dtype of an input or output is not known"
    return None


def check_other(path: Path, wanted: str) -> str | None:
    """What is wrong with the diagnosis of a file that is no model."""
    code, out, err = info(path)
    if (code, out) != (2, "") or not any(w in err for w in wanted.split("|")):
        return f"exit code {code}, expected 2 and {wanted!r}: {err or out[:100]}"
    if "hint: " not in err or "Traceback" in err:
        return f"the error does not say what to do: {err}"
    return None


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    corpus = corpus_root()
    start = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    failures: dict[str, str] = {}
    models = sorted(corpus.glob("*/*/*.mge"))
    for path in models:
        counts["corpus models"] += 1
        problem = check_model(path)
        if problem:
            failures[str(path.relative_to(corpus))] = problem
    pickles = [p for s in ("*.pkl", "*.tm") for p in sorted(corpus.glob(f"pickles/*/{s}"))]
    for path in pickles:
        counts["corpus pickles"] += 1
        problem = check_other(path, "Python pickle")
        if problem:
            failures[str(path.relative_to(corpus))] = problem
    for path in sorted(public_root(corpus).glob("*.mge")):
        wanted = KINDS[path.name.partition("-")[0]]
        counts["public models" if wanted is None else "other public files"] += 1
        problem = check_model(path) if wanted is None else check_other(path, wanted)
        if problem:
            failures[path.name] = problem
    result = {
        "schema": 1,
        "kind": "public files",
        "seconds": round(time.perf_counter() - start, 1),
        "files": dict(counts),
        "failures": failures,
    }
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
