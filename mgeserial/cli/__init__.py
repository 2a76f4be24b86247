"""The command line `mgeserial`: one file per command, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from mgeserial._command_line import Program

__all__ = ["PROGRAM", "main"]

PROGRAM = Program(
    "mgeserial",
    "Look into, draw, edit and write MegEngine `.mge` models, without MegEngine.",
    {
        "info": ("mgeserial.cli.info", "what a file is and what its graphs hold"),
        "check": ("mgeserial.cli.check", "what a backend cannot run, all at once"),
        "convert": ("mgeserial.cli.convert", "another container, or for another release"),
        "diff": ("mgeserial.cli.diff", "what differs between two models"),
        "graph": ("mgeserial.cli.graph", "a picture: one HTML page, SVG or DOT"),
        "edit": ("mgeserial.cli.edit", "rename, cut out, change shapes, parameters, outputs"),
        "strip": ("mgeserial.cli.strip", "leave out names, metadata, test cases"),
        "optimize": ("mgeserial.cli.optimize", "fold, fuse, convert layouts; with the reasons"),
        "testcase": ("mgeserial.cli.testcase", "inputs and expected outputs inside a file"),
        "weights": ("mgeserial.cli.weights", "weights to and from .npz, .safetensors, pickles"),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return PROGRAM.main(argv)
