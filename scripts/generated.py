"""The command line that all generators of committed files share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

__all__ = ["run"]


def run(target: Path, render: Callable[[], str], description: str) -> int:
    """Write what `render` gives to `target`, or with --check compare only.

    Returns:
        Exit code: 1 when --check finds the file stale.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    text = render()
    fresh = target.exists() and target.read_text(encoding="utf-8") == text
    if not fresh and not args.check:
        target.write_text(text, encoding="utf-8", newline="\n")
    print("up to date" if fresh else "stale" if args.check else "written", target.name)
    return 1 if args.check and not fresh else 0
