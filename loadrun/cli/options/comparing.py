"""Options of comparisons, of pages, and of conditions that end a command with 1."""

from __future__ import annotations

from loadrun.cli.options import values as v
from loadrun.cli.options.record import Group, Kind, Option, flag, value
from mgeserial._command_line import from_zero

__all__ = ["OPTIONS"]


_RESULTS: tuple[Option, ...] = (
    value(
        "--report", "FILE", "write a page (HTML) with everything, a profile and memory included",
        "writes one HTML file that needs nothing else; profiles in runs of their own",
        Group.RESULTS, v.some, everyday=True,
    ),
    value(
        "--csv", "OUT", "write tables: a .csv file for the main one, or a folder for all",
        "writes the tables of the page as CSV, with units in the heads", Group.RESULTS, v.some,
    ),
    value(
        "--fail-if", "CONDITION", "exit with 1 if it holds, such as 'p99_ms>20', 'ratio<0.95'",
        "exits with 1 when a condition over the results holds; repeat for several",
        Group.RESULTS, v.some, kind=Kind.LIST, everyday=True,
    ),
)  # fmt: skip

_COMPARE: tuple[Option, ...] = (
    value(
        "--compare", "MODEL", "compare with another model: outputs, then speed",
        "compares outputs, finds the first operator that diverges, times both in turns",
        Group.COMPARE, v.some, everyday=True,
    ),
    value(
        "--backends", "A,B", "compare a model on several backends, the first being right",
        "as --compare, one model on several backends; with --compare one for each model",
        Group.COMPARE, v.some, everyday=True,
    ),
    value(
        "--max-err", "X", "error |a-b|/max(1,min(|a|,|b|)) allowed (by type and size of sums)",
        "exits with 1 when an output of a comparison has a larger error", Group.COMPARE, from_zero,
    ),
    value(
        "--bisect", "FILE", "save the smallest part that differs with a test case "
        "(MODEL.bisect.mge)",
        "reduces a differing network to the smallest part that differs and saves it",
        Group.COMPARE, None, None, kind=Kind.MAYBE, const="", everyday=True,
    ),
    flag(
        "--no-walk", "do not look for the operator that diverges",
        "a comparison looks at outputs and times alone", Group.COMPARE,
    ),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (*_RESULTS, *_COMPARE)
