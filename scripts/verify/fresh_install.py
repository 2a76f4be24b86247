"""Install into new environments and run the README's commands there.

    python scripts/verify/fresh_install.py [--python python3.10 --python python3.13] [--no-tests]

For each interpreter the committed files are unpacked into an empty folder and both README commands
run there, as they are written, with that interpreter as `python3`. Neither a compiler nor flatc is
on the PATH: it holds the interpreter and the basic tools alone. Exit code 1 when a command fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
# What a shell line and pip may use besides Python.
TOOLS = ("sh", "bash", "env", "uname", "cat", "ls", "mkdir", "rm", "dirname", "basename", "git")
ABSENT = ("cc", "gcc", "g++", "clang", "c++", "flatc", "cmake", "make", "ld")
TIMEOUT_S = 1200


def readme_command(word: str) -> str:
    """The one line of the README's code blocks that has `word`."""
    text = (ROOT / "README.md").read_text("utf-8")
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [line for block in blocks for line in block.splitlines() if word in line]
    if len(found) != 1:
        raise SystemExit(f"README.md: expected one command with {word!r}, found {len(found)}")
    return found[0]


def interpreter(name: str) -> str:
    """Path of the real interpreter behind a name (launchers such as shims need their own PATH)."""
    code = "import sys; print(getattr(sys, '_base_executable', sys.executable))"
    environment = {**os.environ, "PYENV_VERSION": ""}
    matching = re.fullmatch(r"python(3\.\d+)", name)
    shims = Path.home() / ".pyenv" / "versions"
    if matching and shims.is_dir():
        versions = sorted(shims.glob(f"{matching.group(1)}.*/bin/python3"))
        if versions:
            return str(versions[-1])
    done = subprocess.run(
        [name, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def bare_path(folder: Path, python: str) -> str:
    """A folder for PATH with `python3` and the basic tools."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
    (tools / "python3").chmod(0o755)
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return str(tools)


def unpack(folder: Path) -> None:
    """The committed files."""
    archive = folder.parent / "source.tar"
    with archive.open("wb") as file:
        subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=file)
    with tarfile.open(archive) as packed:
        packed.extractall(folder)


def run(line: str, folder: Path, path: str) -> dict[str, Any]:
    """Run one shell line; what came of it."""
    environment = {
        "PATH": path,
        "HOME": str(folder.parent),
        "LANG": "C.UTF-8",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **{k: v for k, v in os.environ.items() if k.startswith(("PIP_", "http", "HTTP", "SSL_"))},
    }
    start = time.perf_counter()
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return {
        "command": line,
        "exit_code": done.returncode,
        "seconds": round(time.perf_counter() - start, 1),
        "output_end": (done.stdout + done.stderr)[-1500:],
    }


def check(python: str, *, tests: bool) -> dict[str, Any]:
    """Both README commands with one interpreter."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        path = bare_path(top, python)
        compilers = [tool for tool in ABSENT if shutil.which(tool, path=path)]
        version = subprocess.run(
            [python, "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        steps = []
        lines = [readme_command("bin/loadrun")] + ([readme_command("-m pytest")] if tests else [])
        for number, line in enumerate(lines):
            folder = top / f"checkout{number}"
            folder.mkdir()
            unpack(folder)
            steps.append(run(line, folder, path))
            if number == 0 and steps[0]["exit_code"] == 0:
                model = line.split("bin/loadrun ")[1].split()[0]
                steps.append(run(f".venv/bin/mgeserial info {model}", folder, path))
    return {"python": version, "compilers_on_path": compilers, "steps": steps}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--python", action="append", default=None, help="interpreter, repeatable")
    parser.add_argument("--no-tests", action="store_true", help="only the README's main command")
    parser.add_argument("--json", default=None, help="write the result here (- for stdout)")
    args = parser.parse_args()
    names = args.python or ["python3.10", "python3.13"]
    results = [check(interpreter(n), tests=not args.no_tests) for n in names]
    holds = all(
        not r["compilers_on_path"] and all(s["exit_code"] == 0 for s in r["steps"]) for r in results
    )
    document = {"schema": 1, "kind": "fresh install", "results": results, "holds": holds}
    text = json.dumps(document, indent=1)
    if args.json and args.json != "-":
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
