"""Chooses the command, turns errors into one line and an exit code.

Exit codes: 0 done; 1 the model's own checks failed; 2 bad usage or bad file; 3 valid but
unsupported; 130 interrupted; 70 a bug here. Only argparse is imported to get started: `--help` and
`--version` need neither numpy nor the models.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol

__all__ = ["COMMANDS", "main"]

INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell shows a process that the closed pipe ended
BUG = 70

# First words that name a command; anything else is a model to run.
COMMANDS = {
    "run": ("loadrun.cli.run", "run a model and measure it (`loadrun MODEL` is short for it)"),
}


class Command(Protocol):
    """What a command's module has."""

    DESCRIPTION: str
    EPILOG: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        ...

    def execute(self, args: argparse.Namespace) -> int:
        """Do it; the exit code."""
        ...


class _Parser(argparse.ArgumentParser):
    """Errors of usage in one line, as all errors are."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nhint: `{self.prog} --help` lists the options\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(_versions())
        parser.exit(0)


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
    return _guarded(command, args)


def _dashed(word: str) -> str:
    """`--warmup_iter=3` as `--warmup-iter=3`: newer load_and_run takes both."""
    if not word.startswith("--"):
        return word
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value


def _make_parser(name: str, command: Command) -> argparse.ArgumentParser:
    lines = [f"  {key:<8}  {text}" for key, (_, text) in COMMANDS.items()]
    commands = "\n".join(["commands (a first word that names one wins):", *lines])
    parser = _Parser(
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
    common.add_argument("--version", action=_Version, nargs=0, help="print versions and exit")
    return parser


def _guarded(command: Command, args: argparse.Namespace) -> int:
    """Run a command; errors become one line on stderr, with what to do next on a second."""
    try:
        code = command.execute(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads on; without this the interpreter complains again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MemoryError:
        return _fail("out of memory", 2, args)
    except Exception as error:
        from mgeserial.errors import MgeError

        if isinstance(error, MgeError):
            return _fail(str(error), error.exit_code, args)
        _traceback()
        return _fail("this is a bug in loadrun: please report it with the lines above", BUG, None)


def _fail(message: str, code: int, args: argparse.Namespace | None) -> int:
    if args is not None and args.traceback:
        _traceback()
    print(f"error: {message}", file=sys.stderr)
    return code


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _versions() -> str:
    import platform
    from importlib import metadata

    from mgeserial._version import __version__

    lines = [f"mgeserial {__version__}", f"python {platform.python_version()} ({sys.executable})"]
    for package in ("numpy", "llvmlite", "cupy-cuda12x", "cupy-cuda13x"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines.append(f"{package} {metadata.version(package)}")
    return "\n".join(lines) + "\n"
