"""The command line: one file per command."""

from __future__ import annotations

from loadrun.cli.entry import main

__all__ = ["main"]
