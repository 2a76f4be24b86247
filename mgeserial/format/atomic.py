"""Writing a file so that no reader ever sees half of it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable

from mgeserial.errors import InputError

__all__ = ["write_atomic"]


def write_atomic(
    path: str | os.PathLike[str], data: bytes | memoryview | Iterable[bytes | memoryview]
) -> None:
    """Write a whole file under a temporary name beside `path`, then rename it over `path`.

    On any failure the file that was there before stays as it was.

    Args:
        path: The file to write; its folder must exist.
        data: All bytes, or pieces in order.

    Raises:
        InputError: The folder is missing, is not writable, or the disk is full.
    """
    target = os.fspath(path)
    pieces = (data,) if isinstance(data, (bytes, memoryview)) else data
    temporary = None
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or a device is written through; a directory gives its own error.
            with open(target, "wb") as stream:
                stream.writelines(pieces)
            return
        # Through a link the file it names is replaced, not the link.
        target = os.path.realpath(target)
        folder, name = os.path.split(target)
        unfinished = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
        with open(unfinished, "xb") as file:
            temporary = unfinished
            file.writelines(pieces)
        with contextlib.suppress(OSError):
            os.chmod(temporary, os.stat(target).st_mode & 0o777)
        os.replace(temporary, target)
    except OSError as error:
        _forget(temporary)
        reason = error.strerror or str(error)
        raise InputError(f"cannot be written: {reason}", path=path) from error
    except BaseException:
        _forget(temporary)
        raise


def _forget(temporary: str | None) -> None:
    if temporary is not None:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
