"""Documents made from the records are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


SCRIPTS = ["generate.py", "generate_docs.py", "generate_builder.py", "generate_api.py"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_generated_file_is_fresh(script: str) -> None:
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"run scripts/{script}: {done.stdout}{done.stderr}"
