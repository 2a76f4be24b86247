"""Run every model of a corpus with every way of looking at it, and check each document.

    python scripts/verify/looks.py [CORPUS]

Each first file of each case runs on the CPU engine and the reference backend with a profile, text
and binary dumps of all values, range and type checks and the memory plan. Failures are exit codes
other than 0, 1 (a check found something), 2 (inputs that the file has not) and 3 (cannot run), and
documents that are not as the schema says. Prints failures and the number of runs by exit code.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from corpus_cases import Case, compact_root, iter_cases  # noqa: E402

from loadrun.cli import main as loadrun  # noqa: E402
from loadrun.schema import validate  # noqa: E402

_EXPECTED = {0, 1, 2, 3}


def run(case: Case, model: Path, backend: str, folder: Path) -> tuple[int, list[str]]:
    """Exit code, and what is wrong."""
    words = [str(model), "--backend", backend, "--iter", "1", "--profile", "--profile-iter", "1"]
    words += ["--check-dispatch", "--range", "1e30", "--io-dump", str(folder / "values.txt")]
    words += ["--bin-io-dump", str(folder / "values"), "--json", "-"]
    words += ["--get-static-mem-info", str(folder / "memory")]
    if case.arrays("inputs.npz"):
        words += ["--input", str(case.path / "inputs.npz")]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = loadrun(words)
    if code not in _EXPECTED:
        return code, [err.getvalue()]
    return code, validate(json.loads(out.getvalue())) if code < 2 else []


def main() -> int:
    """Run the command line."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else compact_root()
    codes: collections.Counter[int] = collections.Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in iter_cases(root):
            for model in case.models()[:1]:
                for backend in ("cpu", "reference"):
                    code, problems = run(case, model.path, backend, Path(folder))
                    codes[code] += 1
                    failed += bool(problems)
                    for problem in problems[:3]:
                        print(f"{case.id} {backend}: {problem}")
    shown = ", ".join(f"exit code {code}: {count}" for code, count in sorted(codes.items()))
    print(f"{sum(codes.values())} runs ({shown}), {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
