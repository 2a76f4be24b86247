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
    "report": ("loadrun.cli.report", "make a page of results, or compare several"),
    "sweep": ("loadrun.cli.sweep", "measure a model at many shapes, threads, backends, switches"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; None: those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    name = words.pop(0) if words and words[0] in COMMANDS else "run"
    command: Command = importlib.import_module(COMMANDS[name][0])
    try:
        args = _parse(name, command, words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    args.command_line = ["loadrun", name, *words]
    from loadrun.cli.interrupts import prompt_interrupts

    with prompt_interrupts(INTERRUPTED):
        return execute(command, args, "loadrun")


def _parse(name: str, command: Command, words: list[str]) -> argparse.Namespace:
    """The arguments (SystemExit for help and mistakes); `words` become what was understood."""
    everything = "--help-all" in words or "--helpfull" in words
    matched = [w.partition("=")[2] for w in words if w.startswith("--helpmatch=")]
    parser = _make_parser(name, command, everything=everything or bool(matched))
    if not words:
        parser.print_usage(sys.stderr)
        parser.error("a model is needed")
    if matched:
        sys.stdout.write(_matching(parser, matched[0]))
        parser.exit(0)
    if everything:
        parser.print_help()
        parser.exit(0)
    if name == "run":
        from loadrun.cli.spelling import normalized

        try:
            words[:] = normalized(words)
        except ValueError as error:
            parser.error(str(error))
    else:
        words[:] = [_dashed(word) for word in words]
    return parser.parse_args(words)


def _dashed(word: str) -> str:
    """`--warmup_iter=3` as `--warmup-iter=3`: newer load_and_run takes both."""
    if not word.startswith("--"):
        return word
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value


class _Parser(Parser):
    """A parser that knows whether its help is to list everything."""

    everything = False


def _make_parser(name: str, command: Command, *, everything: bool = False) -> _Parser:
    lines = [f"  {key:<8}  {text}" for key, (_, text) in COMMANDS.items()]
    commands = "\n".join(["commands (a first word that names one wins):", *lines])
    prog = "loadrun" if name == "run" else f"loadrun {name}"
    parser = _Parser(
        prog=prog,
        usage="loadrun [run] MODEL [options]" if name == "run" else None,
        description=command.DESCRIPTION,
        epilog=f"{command.EPILOG}\n\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation that works today would change its meaning with the next option.
        allow_abbrev=False,
    )
    parser.everything = everything
    command.add_arguments(parser)
    common = parser.add_argument_group("messages")
    common.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    common.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="print decisions: inputs, outputs, notes, the plan",
    )
    common.add_argument("--traceback", action="store_true", help="show where an error was raised")
    common.add_argument("--version", action=Version, nargs=0, help="print versions and exit")
    if name == "run":
        common.add_argument("--help-all", action="store_true", help="list every option and exit")
        common.add_argument(
            "--completion",
            action=_Completion,
            choices=("bash", "zsh", "fish"),
            help="print a script for completion in a shell and exit",
        )
    return parser


class _Completion(argparse.Action):
    """Prints a script for a shell, and exits."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, value: object, *__: object
    ) -> None:
        from loadrun.cli.completion import script

        sys.stdout.write(script(str(value), parser))
        parser.exit(0)


def _matching(parser: argparse.ArgumentParser, text: str) -> str:
    """Help of the options whose names hold a text."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if any(text.replace("_", "-") in name for name in action.option_strings):
            formatter.add_argument(action)
    return formatter.format_help() or f"no option's name holds `{text}`\n"
