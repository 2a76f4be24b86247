"""What a run does beside measuring: checks and dumps of all values, profiles, memory plans."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadrun.cli.setup import Ready, Request
    from loadrun.inspection import Observed
    from loadrun.profiler import Profile
    from loadrun.runner import Case
    from loadrun.session import Session
    from mgeserial.dtypes import Array

__all__ = ["Checked", "check_values", "make_profile", "wants_profile", "write_profile"]


@dataclass(slots=True)
class Checked:
    """Lines by option, and whether any of them is a problem."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    failed: bool = False

    def add(self, option: str, case: Case, problems: Sequence[str], done: str) -> None:
        """Note what a check found for a case: its problems, or that all is well."""
        self.failed |= bool(problems)
        found = self.lines.setdefault(option, [])
        found += [f"{case.title}: {line}" for line in problems or [done]]


def check_values(
    args: argparse.Namespace,
    cases: Sequence[Case],
    session: Session,
    request: Request,
    ready: Ready,
) -> Checked:
    """Run the checks and dumps that were asked for, each case in order."""
    checked = Checked()
    looks = (
        args.io_dump,
        args.io_dump_stdout,
        args.io_dump_stderr,
        args.bin_io_dump,
        args.range,
        args.check_dispatch,
        args.check_var_value,
    )
    for case in cases:
        if any(looks):
            _look(args, case, checked, request, ready, several=len(cases) > 1)
        if args.binary_equal_between_batch:
            from loadrun.inspection import check_batches

            size, problems = check_batches(session, case.feeds.arrays)
            done = f"each of {size} images alone gives the bits that it gives in the batch"
            checked.add("--binary-equal-between-batch", case, problems, done)
    return checked


def _look(
    args: argparse.Namespace,
    case: Case,
    checked: Checked,
    request: Request,
    ready: Ready,
    *,
    several: bool,
) -> None:
    from loadrun import inspection

    runs = inspection.observe(ready.graph, request.backend, case.feeds.arrays, ready.options)
    observed = next(runs)
    _dump(args, case, observed, several=several)
    if args.range is not None:
        problems = inspection.check_range(observed, args.range)
        done = f"{len(observed)} values lie within {args.range:g}"
        checked.add("--range", case, problems, done)
    if args.check_dispatch:
        problems = inspection.check_declared(observed)
        done = f"{len(observed)} values have their declared types"
        checked.add("--check-dispatch", case, problems, done)
    if args.check_var_value is not None:
        again = _chain(observed, runs)
        count, problems = inspection.check_repeated(again, *args.check_var_value)
        done = f"{count} values are the same in every run"
        checked.add("--check-var-value", case, problems, done)
    runs.close()  # type: ignore[attr-defined]


def _chain(first: list[Observed], rest: Iterator[list[Observed]]) -> Iterator[list[Observed]]:
    yield first
    yield from rest


def _dump(
    args: argparse.Namespace, case: Case, observed: Sequence[Observed], *, several: bool
) -> None:
    import os

    from loadrun import inspection

    lines = [f"== {case.title}", *inspection.lines_of(observed)]
    if args.io_dump:
        mode = "w" if case.index == 0 else "a"
        _append(args.io_dump, lines, mode)
    if args.io_dump_stdout:
        # Nothing but the document goes to stdout with --json -.
        print("\n".join(lines), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.io_dump_stderr:
        print("\n".join(lines), file=sys.stderr)
    if args.bin_io_dump:
        folder = args.bin_io_dump
        inspection.dump_binary(
            observed, os.path.join(folder, f"run{case.index}") if several else folder
        )


def _append(path: str, lines: Sequence[str], mode: str) -> None:
    from mgeserial.errors import InputError

    try:
        with open(path, mode, encoding="utf-8", errors="replace") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=path) from error


# -- profiles ------------------------------------------------------------------------------------


def wants_profile(args: argparse.Namespace) -> bool:
    """Whether a profile is asked for; the page of a report shows one."""
    asked = args.profile is not None or args.profile_host or args.chrome_trace
    return bool(asked or getattr(args, "report", None))


def make_profile(args: argparse.Namespace, session: Session, feeds: Mapping[str, Array]) -> Profile:
    """Profile the session with the first case's inputs."""
    from loadrun.profiler import profile

    return profile(session, feeds, repeat=args.profile_iter)


def write_profile(args: argparse.Namespace, found: Profile, about: Mapping[str, Any]) -> None:
    """Write the files that were asked for.

    Raises:
        InputError: A file cannot be written, or is a model.
    """
    import json

    from loadrun.profilefile import chrome_trace, profile_document
    from mgeserial.format.atomic import write_atomic

    documents = [
        (path, profile_document(found, about)) for path in (args.profile, args.profile_host) if path
    ]
    if args.chrome_trace:
        documents.append((args.chrome_trace, chrome_trace(found, title=args.model)))
    for path, document in documents:
        _spare_models(path)
        text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        write_atomic(path, text.encode("utf-8", "surrogateescape"))


def _spare_models(path: str) -> None:
    """`--profile a.mge b.mge` must not write over a model."""
    from mgeserial.errors import InputError

    if path.endswith(".mge"):
        raise InputError(
            "a profile is not written to a file with the name of a model",
            path=path,
            hint="write MODEL first, or --profile=FILE",
        )
