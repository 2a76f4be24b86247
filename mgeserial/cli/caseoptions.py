"""Options that commands which make test cases share."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mgeserial._command_line import count, from_zero, positive

__all__ = [
    "add_computing_options",
    "add_reading_options",
    "count",
    "log",
    "positive",
    "reading_from",
    "tolerance",
]


def tolerance(text: str) -> float:
    """A largest error allowed, as files hold it."""
    return from_zero(text, most=3.0e38)


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """How inputs are read."""
    group = parser.add_argument_group("reading of inputs")
    group.add_argument(
        "--repeat",
        type=positive,
        default=1,
        metavar="N",
        help="repeat what is read N times along the batch (1)",
    )
    group.add_argument(
        "--resize-input", action="store_true", help="resize images to the input's height and width"
    )
    group.add_argument(
        "--input-transform",
        metavar="EXPR",
        help="expression over `data` and functions of `np` for what is read, such as "
        "'(data.astype(np.float32) - 128) / 64'; nothing is executed",
    )
    group.add_argument(
        "--seed",
        type=count,
        default=0,
        metavar="N",
        help="seed of #rand: case k has seed N + k, which is noted in the file (0)",
    )


def add_computing_options(parser: argparse._ActionsContainer) -> None:
    """What computes expected outputs."""
    parser.add_argument(
        "--backend",
        default="reference",
        metavar="NAME",
        help="what computes the expected outputs (reference: plain numpy)",
    )


def reading_from(args: argparse.Namespace) -> Any:
    """How inputs are read (`loadrun.makecases.Reading`), of what a command line gave."""
    from loadrun.makecases import Reading

    return Reading(
        repeat=args.repeat, resize=args.resize_input, transform=args.input_transform or None
    )


def log(line: str) -> None:
    """One line of progress, on stderr."""
    print(line, file=sys.stderr)
