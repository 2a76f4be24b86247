"""Draw docs/images/terminal.svg: what `loadrun` prints, as a picture of a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "corpus" / "nets" / "mobilenet_v1_optimized" / "model.v2.mge"
TARGET = ROOT / "docs" / "images" / "terminal.svg"


def main() -> int:
    """Run the command and draw its output."""
    command = [sys.executable, "-m", "loadrun", MODEL.name, "--iter", "50", "--profile", "-q"]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "118"}
    done = subprocess.run(
        command, cwd=MODEL.parent, capture_output=True, text=True, check=True, env=environment
    )
    console = Console(record=True, width=118, file=io.StringIO())
    console.print(Text.from_markup("[bold green]$[/] loadrun model.v2.mge --iter 50 --profile -q"))
    console.print(Text(done.stdout.rstrip()))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(console.export_svg(title="loadrun"), encoding="utf-8")
    print(TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
