"""The CPU engine on emulated arm64: the corpus and the engine's tests under qemu's user emulation.

    python scripts/verify/arm64.py ~/arm64 --make --json arm64.json     once: makes the folder, too
    python scripts/verify/arm64.py ~/arm64 --json arm64.json

The interpreter, numpy and llvmlite are those that an arm64 machine would install; the kernels are
compiled for NEON and run instruction by instruction, so results are proved and speed is not. Needs
Debian or a relative of it with `qemu-user`, and for `--make` its arm64 packages
(`dpkg --add-architecture arm64 && apt-get update`) and a package index.

Checks:
1. `corpus.py --backend cpu` agrees in every family, with 1 thread and, for `--families-threads`, 2;
2. the tests of the CPU engine pass.

Exit code 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
FAMILIES = (
    "conv,linear,recurrent,quantized,pool_norm,shape,vision,misc,layout,containers,elemwise,"
    "elemwise_multi,grad,nets,random"
)
_DEBS = """
python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6
zlib1g libexpat1 libbz2-1.0 liblzma5 libssl3 libffi8 libsqlite3-0 libuuid1 libcrypt1 libncursesw6
libtinfo6 libreadline8 libnsl2 libtirpc3 libdb5.3 libgomp1
"""
_WHEELS = "numpy llvmlite flatbuffers rich opencv-python-headless pytest pytest-timeout hypothesis"
_TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def make(folder: Path) -> None:
    """Unpack an arm64 Python 3.11 and its wheels below `folder`."""
    folder.mkdir(parents=True)
    debs, wheels = folder / "debs", folder / "wheels"
    debs.mkdir()
    names = [f"{name}:arm64" for name in _DEBS.split()]
    subprocess.run(["apt-get", "download", "-qq", *names], cwd=debs, check=True)
    for deb in sorted(debs.iterdir()):
        subprocess.run(["dpkg", "-x", str(deb), str(folder / "root")], check=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    command += ["--python-version", "3.11", "--implementation", "cp", "-d", str(wheels)]
    for tag in _TAGS:
        command += ["--platform", f"{tag}_aarch64"]
    subprocess.run([*command, *_WHEELS.split()], check=True)
    for wheel in sorted(wheels.iterdir()):
        shutil.unpack_archive(str(wheel), str(folder / "site"), "zip")


def run(folder: Path, *command: str, timeout: float) -> tuple[int, str]:
    """A Python command on emulated arm64; its exit code and what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "site"),
        "PYTHONNOUSERSITE": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    python = folder / "root" / "usr" / "bin" / "python3.11"
    whole = ["qemu-aarch64", "-L", str(folder / "root"), str(python), *command]
    done = subprocess.run(
        whole, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def corpus(folder: Path, families: str, threads: int, timeout: float) -> list[dict[str, Any]]:
    """One entry for each family: files that agree and all files."""
    found = []
    for family in families.split(","):
        begin = time.monotonic()
        command = ["scripts/verify/corpus.py", "--backend", "cpu", "--threads", str(threads)]
        code, text = run(folder, *command, "--families", family, timeout=timeout)
        counts = re.search(r"(\d+) of\s+(\d+) files agree", text)
        agree, files = map(int, counts.groups()) if counts else (0, -1)
        entry = {"family": family, "threads": threads, "agree": agree, "files": files}
        entry["seconds"] = round(time.monotonic() - begin, 1)
        entry["holds"] = code == 0 and agree == files
        if not entry["holds"]:
            entry["printed"] = text[-2000:]
        print(f"{family:15} {threads} threads  {agree} of {files}", file=sys.stderr, flush=True)
        found.append(entry)
    return found


def tests(folder: Path, paths: list[str], timeout: float) -> dict[str, Any]:
    """The engine's tests."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "600", *paths]
    code, text = run(folder, *command, timeout=timeout)
    last = text.strip().splitlines()[-1] if text.strip() else ""
    return {"tests": paths, "result": last, "holds": code == 0} | (
        {} if code == 0 else {"printed": text[-4000:]}
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="the CPU engine on emulated arm64")
    parser.add_argument("folder", type=Path, help="an arm64 Python with wheels, see --make")
    parser.add_argument("--make", action="store_true", help="make the folder first")
    parser.add_argument("--families", default=FAMILIES, help="with one thread")
    parser.add_argument("--families-threads", default="linear,recurrent,nets", help="with two")
    parser.add_argument("--tests", nargs="*", default=["tests/loadrun/cpu"])
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one command")
    parser.add_argument("--json", help="write the result here (- for stdout)")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.make:
        make(folder)
    if shutil.which("qemu-aarch64") is None or not (folder / "root").is_dir():
        parser.error("needs qemu-aarch64 (package qemu-user) and a folder made by --make")
    found: list[dict[str, Any]] = []
    if args.families:
        found += corpus(folder, args.families, 1, args.timeout)
    if args.families_threads:
        found += corpus(folder, args.families_threads, 2, args.timeout)
    result: dict[str, Any] = {"schema": 1, "corpus": found}
    if args.tests:
        result["suite"] = tests(folder, args.tests, args.timeout)
        found.append(result["suite"])
    result["holds"] = all(entry["holds"] for entry in found)
    text = json.dumps(result, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
