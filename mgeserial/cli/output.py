"""Where commands write: nothing that exists is replaced unless asked."""

from __future__ import annotations

import os

__all__ = ["folder_of", "refuse_existing", "write_new"]


def refuse_existing(path: str, *, force: bool) -> None:
    """Refuse to replace a file without `--force`.

    Raises:
        InputError: The file exists.
    """
    from mgeserial.errors import InputError

    if not force and os.path.isfile(path):
        raise InputError("exists already", path=path, hint="--force replaces it")


def write_new(path: str, data: bytes, *, force: bool) -> None:
    """Write a whole file, atomically; see `refuse_existing`."""
    from mgeserial.format.atomic import write_atomic

    refuse_existing(path, force=force)
    write_atomic(path, data)


def folder_of(path: str) -> str:
    """Make a folder if there is none.

    Raises:
        InputError: It cannot be made.
    """
    from mgeserial.errors import InputError

    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", path=path) from error
    return path
