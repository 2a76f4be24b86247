"""What the command lines of both packages share: choosing a command, errors, exit codes.

Exit codes: 0 done; 1 the question's answer is no; 2 bad usage or bad file; 3 valid but
unsupported; 70 a bug here; 130 interrupted; 141 nobody reads the output any more. Only argparse is
imported to get started: `--help` and `--version` need neither numpy nor the models.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

__all__ = [
    "BROKEN_PIPE",
    "BUG",
    "INTERRUPTED",
    "Command",
    "Parser",
    "Program",
    "Version",
    "count",
    "execute",
    "positive",
]

INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell shows a process that the closed pipe ended
BUG = 70


def count(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"a whole number from 0 is needed, got `{text}`")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    if count(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 is needed, got `{text}`")
    return int(text)


def from_zero(text: str, *, most: float = math.inf) -> float:
    """A number from 0, infinity included unless `most` says less."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise argparse.ArgumentTypeError(f"a number from 0 is needed, got `{text}`")
    return number


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


class Parser(argparse.ArgumentParser):
    """Errors of usage in one line, as all errors are."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nhint: `{self.prog} --help` lists the options\n")


class Version(argparse.Action):
    """Prints versions, also those of the packages that compute, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(_versions())
        parser.exit(0)


class Program:
    """A program with commands, each a module that is imported when it is asked for.

    Args:
        name: The program's name.
        description: What it is for, one sentence.
        commands: Module and one line of help by command.
    """

    def __init__(
        self, name: str, description: str, commands: Mapping[str, tuple[str, str]]
    ) -> None:
        self.name = name
        self.description = description
        self.commands = commands

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line.

        Args:
            argv: Arguments without the program's name; None: those of the process.

        Returns:
            The exit code.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        try:
            name = self._choose(words)
            command: Command | Any = importlib.import_module(self.commands[name][0])
            args = self._parser(name, command).parse_args(words[1:])
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 2
        return execute(command, args, self.name)

    def _choose(self, words: Sequence[str]) -> str:
        """Name of the command (SystemExit for help, the version and mistakes)."""
        if not words or words[0] not in self.commands:
            self._refuse(words)
        return words[0]

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        width = max(map(len, self.commands))
        lines = [f"  {key:<{width}}  {text}" for key, (_, text) in self.commands.items()]
        parser = Parser(
            prog=self.name,
            usage=f"{self.name} COMMAND ...",
            description=self.description,
            epilog="\n".join(["commands:", *lines, "", f"`{self.name} COMMAND --help` says more."]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action=Version, nargs=0, help="print versions and exit")
        _, rest = parser.parse_known_args(words)
        if not rest:
            parser.error(f"a command is needed: {', '.join(self.commands)}")
        close = difflib.get_close_matches(rest[0], self.commands, n=1)
        meant = f"did you mean {close[0]}?" if close else f"known: {', '.join(self.commands)}"
        parser.error(f"no command is called {rest[0]!r}; {meant}")

    def _parser(self, name: str, command: Command) -> argparse.ArgumentParser:
        parser = Parser(
            prog=f"{self.name} {name}",
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # An abbreviation that works today would change its meaning with the next option.
            allow_abbrev=False,
        )
        command.add_arguments(parser)
        parser.add_argument("--version", action=Version, nargs=0, help="print versions and exit")
        parser.add_argument(
            "--traceback", action="store_true", help="show where an error was raised"
        )
        return parser


def execute(command: Command, args: argparse.Namespace, program: str) -> int:
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
        return _fail(f"this is a bug in {program}: please report it with the lines above", BUG)


def _fail(message: str, code: int, args: argparse.Namespace | None = None) -> int:
    if args is not None and args.traceback:
        _traceback()
    print(f"error: {message}", file=sys.stderr)
    return code


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _versions() -> str:
    import contextlib
    import platform
    from importlib import metadata

    from mgeserial._version import __version__

    lines = [f"mgeserial {__version__}", f"python {platform.python_version()} ({sys.executable})"]
    for package in ("numpy", "llvmlite", "cupy-cuda12x", "cupy-cuda13x"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines.append(f"{package} {metadata.version(package)}")
    return "\n".join(lines) + "\n"
