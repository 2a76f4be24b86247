"""The command line `mgeserial`: one file per command, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from mgeserial._command_line import Program

__all__ = ["PROGRAM", "main"]

PROGRAM = Program(
    "mgeserial",
    "Look into MegEngine `.mge` models, without MegEngine.",
    {
        "info": ("mgeserial.cli.info", "what a file is and what its graphs hold"),
        "check": ("mgeserial.cli.check", "what a backend cannot run, all at once"),
        "optimize": ("mgeserial.cli.optimize", "fold, fuse, convert layouts; with the reasons"),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return PROGRAM.main(argv)
