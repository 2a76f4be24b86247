"""The tutorial's commands run as written and its Python code does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "corpus" / "nets" / "mobilenet_v1_optimized" / "model.v2.mge"
TOOLS = {
    "mgeserial": ["-m", "mgeserial"],
    "loadrun": ["-m", "loadrun"],
    "dump-with-testcase": [str(ROOT / "scripts" / "dump_with_testcase.py")],
}
PAGES = ("tutorial.md", "tutorial.zh-CN.md")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [body for name, body in fenced if name == language]


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    tool, *arguments = shlex.split(line)
    command = [sys.executable, *TOOLS[tool], *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("page", PAGES[1:])
@pytest.mark.parametrize("language", ["sh", "python", ""])
def test_every_page_shows_the_same(page: str, language: str) -> None:
    assert blocks(page, language) == blocks(PAGES[0], language)


def test_commands_of_the_tutorial_run_in_order(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "net.mge")
    lines = [line for block in blocks(PAGES[0], "sh")[1:] for line in block.splitlines()]
    assert len(lines) >= 9
    for line in lines:
        done = run(line, tmp_path)
        expected = 1 if line.startswith("mgeserial diff") else 0
        assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert (tmp_path / "net.html").stat().st_size > 1000


def test_what_info_prints_is_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "net.mge")
    (shown,) = blocks(PAGES[0], "")
    printed = run("mgeserial info net.mge", tmp_path).stdout
    assert printed.startswith(shown.rstrip())


def test_python_code_of_the_tutorial_runs(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "net.mge")
    (code,) = blocks(PAGES[0], "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "data (2, 3, 24, 24) Float32" in done.stdout
    assert done.stdout.rstrip().endswith("ms")
