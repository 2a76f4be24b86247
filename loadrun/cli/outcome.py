"""Where a command's result goes: text on stdout, JSON, CSV and a page where they were asked for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["publish", "write_documents"]


def publish(
    args: argparse.Namespace, document: Callable[[], dict[str, Any]], text: Callable[[], str]
) -> None:
    """Print the text, or the document where `--json -` asks for it; write what else is asked for.

    Args:
        args: With `json`, `report` and `csv`, each a path or None.
        document: Makes the JSON document; called when something needs it.
        text: Makes the text.
    """
    if args.json == "-":
        sys.stdout.write(as_text(document()))
    else:
        print(text())
    write_documents(args, document)


def as_text(document: dict[str, Any]) -> str:
    """A document as text, ending in a newline."""
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write_documents(args: argparse.Namespace, document: Callable[[], dict[str, Any]]) -> None:
    """Write `--json`, `--report` and `--csv` files, each as a whole.

    Raises:
        InputError: A file cannot be written.
    """
    from mgeserial.format.atomic import write_atomic

    # A named result is replaced without asking: measuring again is the normal case.
    if args.json and args.json != "-":
        write_atomic(args.json, as_text(document()).encode("utf-8", "surrogateescape"))
    if getattr(args, "report", None):
        from loadrun.reporting.page import write_page

        write_page([document()], args.report)
    if getattr(args, "csv", None):
        from loadrun.reporting.files import write_csv

        write_csv(document(), args.csv)
