"""Results read back from JSON files, and written as CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from loadrun.reporting.tables import as_csv, tables
from loadrun.schema import UNKNOWN, validate
from mgeserial.errors import InputError, printable

__all__ = ["KINDS", "check", "read", "write_csv"]

# Kinds of documents and the newest schema of each that is understood here.
KINDS = {"loadrun.run": 1, "loadrun.compare": 1, "loadrun.sweep": 1}
_MOST_BYTES = 256 << 20
_LISTS = {"loadrun.run": "cases", "loadrun.compare": "comparisons", "loadrun.sweep": "combinations"}


def read(path: str) -> dict[str, Any]:
    """A result that `--json` wrote, of this version or an older one.

    Raises:
        InputError: It cannot be read, or is something else.
    """
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise InputError(f"is larger than {_MOST_BYTES >> 20} MiB", path=path)
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            document = json.load(file)
    except OSError as error:
        raise InputError(error.strerror or str(error), path=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", path=path) from error
    check(document, path)
    return dict(document)


def check(document: Any, path: str) -> None:
    """Refuse what is no result, or one of a newer version.

    Raises:
        InputError: Says what it is instead.
    """
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        found = f"kind {printable(kind)!r}" if isinstance(kind, str) else "no `kind`"
        raise InputError(
            f"is no result of loadrun ({found})",
            path=path,
            hint="`loadrun MODEL --json FILE` writes one",
        )
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise InputError(f"has no schema number (got {schema!r})", path=path)
    if schema > KINDS[kind]:
        raise InputError(
            f"has schema {schema} of {kind}; this version reads up to {KINDS[kind]}",
            path=path,
            hint="render it with the version that wrote it, or a newer one",
        )
    if not isinstance(document.get(_LISTS[kind]), list):
        raise InputError(f"`{_LISTS[kind]}` is not a list", path=path)
    # A newer version of the same schema may have more keys, an older one has fewer.
    wrong = [p for p in validate(document, complete=False) if not p.endswith(UNKNOWN)]
    if wrong:
        raise InputError(f"is damaged: {printable(wrong[0])}", path=path)


def write_csv(document: Mapping[str, Any], target: str) -> list[str]:
    """Write the main table to a file that ends in `.csv`, or all tables into a folder.

    Returns:
        The files written.

    Raises:
        InputError: A file or the folder cannot be written.
    """
    from mgeserial.format.atomic import write_atomic

    found = tables(document)
    if target.lower().endswith(".csv"):
        wanted = {target: found[0]}
    else:
        try:
            os.makedirs(target, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror or error}", path=target) from error
        wanted = {os.path.join(target, f"{t.key}.csv"): t for t in found}
    for path, table in wanted.items():
        write_atomic(path, as_csv(table).encode("utf-8", "surrogateescape"))
    return list(wanted)
