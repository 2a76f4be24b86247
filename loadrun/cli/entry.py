"""Chooses the command: what the command lines of both packages share is in `_command_line`.

Exit codes: 0 done; 1 the model's own checks failed; 2 bad usage or bad file; 3 valid but
unsupported; 130 interrupted; 70 a bug here. Only argparse is imported to get started: `--help` and
`--version` need neither numpy nor the models.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from mgeserial._command_line import BROKEN_PIPE, BUG, INTERRUPTED, Command, Parser, Version, execute

__all__ = ["BROKEN_PIPE", "BUG", "COMMANDS", "INTERRUPTED", "main"]

# First words that name a command; anything else is a model to run.
COMMANDS = {
    "run": ("loadrun.cli.run", "run a model and measure it (`loadrun MODEL` is short for it)"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; None: those of the process.

    Returns:
        The exit code.
    """
    words = [_dashed(word) for word in (sys.argv[1:] if argv is None else argv)]
    name = words.pop(0) if words and words[0] in COMMANDS else "run"
    command: Command = importlib.import_module(COMMANDS[name][0])
    parser = _make_parser(name, command)
    try:
        if not words:
            parser.print_usage(sys.stderr)
            parser.error("a model is needed")
        args = parser.parse_args(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    args.command_line = ["loadrun", name, *words]
    return execute(command, args, "loadrun")


def _dashed(word: str) -> str:
    """`--warmup_iter=3` as `--warmup-iter=3`: newer load_and_run takes both."""
    if not word.startswith("--"):
        return word
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value


def _make_parser(name: str, command: Command) -> argparse.ArgumentParser:
    lines = [f"  {key:<8}  {text}" for key, (_, text) in COMMANDS.items()]
    commands = "\n".join(["commands (a first word that names one wins):", *lines])
    parser = Parser(
        prog="loadrun" if name == "run" else f"loadrun {name}",
        description=command.DESCRIPTION,
        epilog=f"{command.EPILOG}\n\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation that works today would change its meaning with the next option.
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    common = parser.add_argument_group("messages")
    common.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    common.add_argument(
        "-v", "--verbose", action="count", default=0, help="print decisions; -vv: everything"
    )
    common.add_argument("--traceback", action="store_true", help="show where an error was raised")
    common.add_argument("--version", action=Version, nargs=0, help="print versions and exit")
    return parser
