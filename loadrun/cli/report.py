"""`loadrun report X.json ...`: results as a page, again or side by side."""

from __future__ import annotations

import argparse
import os
from typing import Any

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "execute"]

DESCRIPTION = """\
Make a page of results that --json wrote, of this version or an older one; several are compared.
The page is one file that asks for nothing: open it in a browser, print it, or send it."""
EPILOG = """\
examples:
  loadrun report times.json                      writes times.html
  loadrun report before.json after.json -o both.html
  loadrun report times.json --csv tables/        one CSV file a table

exit codes: 0 done, 2 bad usage or a file that cannot be read or written, 130 interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add = parser.add_argument
    add("results", nargs="+", metavar="RESULT", help="JSON files of run, --compare or sweep")
    add("-o", "--output", metavar="FILE", help="the page (the first result's name with .html)")
    add("--model", metavar="FILE", help="where the model is now, for the picture of its graph")
    add("--csv", metavar="OUT", help="tables of the first result: a .csv file for the main one, "
        "or a folder for all of them")  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Read, write; the exit code."""
    from loadrun.reporting.files import read, write_csv
    from loadrun.reporting.page import write_page

    documents = [read(path) for path in args.results]
    if args.csv:
        for path in write_csv(documents[0], args.csv):
            _say(args, path)
    if args.output or not args.csv:
        target = args.output or f"{os.path.splitext(args.results[0])[0]}.html"
        write_page(documents, target, names=_names(args.results, documents), model=args.model)
        _say(args, target)
    return 0


def _names(paths: list[str], documents: list[dict[str, Any]]) -> list[str]:
    """Files without their folders, where these differ; one result is called as its model is."""
    from loadrun.reporting.sections import name_of

    if len(paths) == 1:
        return [name_of(documents[0])]
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _say(args: argparse.Namespace, path: str) -> None:
    from mgeserial.errors import printable

    if not args.quiet:
        print(f"written: {printable(path, limit=400)}")
