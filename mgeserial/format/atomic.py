"""Writing a file so that no reader ever sees half of it, and large pieces without holding them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from mgeserial.errors import InputError
from mgeserial.format.filemap import FileMap
from mgeserial.format.flatbuild import Part

__all__ = ["write_atomic", "write_to"]

# Small pieces are gathered up to this many bytes; larger ones go out in chunks of it.
_CHUNK = 1 << 20
# Runs of files from this size on are copied by the kernel.
_COPY_FROM = 1 << 16
# Characters of a name that its temporary one has: file systems allow 255 bytes, four a character.
_NAME = 50
# What says that the kernel cannot copy between these two files, so that it is read and written.
_NO_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
_NO_COPY |= {errno.ENOTSUP, errno.ETXTBSY, errno.EACCES}


def write_atomic(
    path: str | os.PathLike[str],
    data: bytes | memoryview | Iterable[Part],
    *,
    durable: bool = False,
) -> None:
    """Write a whole file under a temporary name beside `path`, then rename it over `path`.

    On any failure the file that was there before stays as it was. A link is followed, permissions
    of the old file (and its owner, where that is allowed) are kept.

    Args:
        path: The file to write; its folder must exist.
        data: All bytes, or pieces in order.
        durable: Wait until the bytes are on the disk before the old file is given up, so that not
            even a crash of the machine loses both.

    Raises:
        InputError: The folder is missing, is not writable, or the disk is full.
    """
    target = os.fspath(path)
    pieces: Iterable[Part] = [data] if isinstance(data, (bytes, memoryview)) else data
    temporary = None
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            # A pipe or a device is written through; a directory gives its own error.
            with open(target, "wb", buffering=0) as stream:
                _write_all(stream.fileno(), pieces)
            return
        # Through a link the file it names is replaced, not the link.
        target = os.path.realpath(target)
        if os.path.exists(target) and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        folder, name = os.path.split(target)
        unfinished = os.path.join(folder, f".{name[:_NAME]}.{secrets.token_hex(6)}.tmp")
        with open(unfinished, "xb", buffering=0) as file:
            temporary = unfinished
            _write_all(file.fileno(), pieces)
            _take_over(file.fileno(), target)
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
        if durable:
            _sync_folder(folder)
    except OSError as error:
        _forget(temporary)
        reason = error.strerror or str(error)
        raise InputError(f"cannot be written: {reason}", path=path) from error
    except BaseException:
        _forget(temporary)
        raise


def write_to(file: IO[bytes], pieces: Iterable[Part]) -> None:
    """Write pieces to an open binary file at its position.

    Raises:
        InputError: The file is not open for writing bytes, or the disk is full.
    """
    name = getattr(file, "name", None)
    path = name if isinstance(name, str) else None
    try:
        for run in _runs(pieces):
            for chunk in _chunks(run):
                view = memoryview(chunk)
                while view.nbytes:
                    written = file.write(view)
                    # Raw files may take less than all, buffered ones take everything.
                    view = view[view.nbytes if written is None else written :]
    except TypeError as error:
        raise InputError("the file is open in text mode: open it with 'wb'", path=path) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be written: {reason}", path=path) from error


def _take_over(number: int, target: str) -> None:
    """Give the new file the permissions, and where possible the owner, of the old one."""
    with contextlib.suppress(OSError):
        old = os.stat(target)
        if hasattr(os, "fchown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):
                os.fchown(number, old.st_uid, old.st_gid)
        if hasattr(os, "fchmod"):
            os.fchmod(number, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: str) -> None:
    """Make the new name itself durable, where folders can be synchronised."""
    with contextlib.suppress(OSError):
        number = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _forget(temporary: str | None) -> None:
    if temporary is not None:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _write_all(number: int, pieces: Iterable[Part]) -> None:
    """Write pieces to a descriptor: long runs of files are copied inside the kernel."""
    gathered = bytearray()
    for run in _runs(pieces):
        if isinstance(run, _Run) and run.nbytes >= _COPY_FROM:
            _write(number, gathered)
            gathered.clear()
            _copy(number, run.source, run.at, run.nbytes)
            continue
        for chunk in _chunks(run):
            gathered += chunk
            if len(gathered) >= _CHUNK:
                _write(number, gathered)
                gathered.clear()
    _write(number, gathered)


def _copy(number: int, source: FileMap, at: int, left: int) -> None:
    """Copy bytes of a file, in the kernel where it can."""
    copy: Callable[[int, int, int, int], int] | None = getattr(os, "copy_file_range", None)
    while left and copy is not None:
        try:
            done = copy(source.number, number, left, at)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            done = 0
        if not done:
            break  # across file systems, or a file that has become shorter: read and write it
        at, left = at + done, left - done
    for chunk in _read(source.number, at, left):
        _write(number, chunk)


def _write(number: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    try:
        while view.nbytes:
            view = view[os.write(number, view) :]
    finally:
        view.release()


@dataclass(slots=True)
class _Run:
    """Bytes of a file that stand together."""

    source: FileMap
    at: int
    nbytes: int


def _runs(pieces: Iterable[Part]) -> Iterator[Part | _Run]:
    """Pieces in order; views of one file that follow each other there become one run."""
    run: _Run | None = None
    for piece in pieces:
        place = FileMap.place_of(piece) if isinstance(piece, memoryview) else None
        if not isinstance(piece, memoryview) or place is None:
            if run is not None:
                yield run
            run = None
            yield piece
            continue
        source, at = place
        if run is not None and run.source is source and run.at + run.nbytes == at:
            run.nbytes += piece.nbytes
            continue
        if run is not None:
            yield run
        run = _Run(source, at, piece.nbytes)
    if run is not None:
        yield run


def _chunks(piece: Part | _Run) -> Iterator[bytes | memoryview]:
    """The bytes of a piece in bounded chunks; those of files are read, not mapped in."""
    if isinstance(piece, _Run):
        yield from _read(piece.source.number, piece.at, piece.nbytes)
        return
    whole = piece if isinstance(piece, (bytes, memoryview)) else piece.tobytes()
    if len(whole) <= _CHUNK:
        yield whole
        return
    view = memoryview(whole).cast("B")
    for start in range(0, view.nbytes, _CHUNK):
        yield view[start : start + _CHUNK]


def _read(number: int, at: int, left: int) -> Iterator[bytes]:
    while left:
        chunk = os.pread(number, min(left, _CHUNK), at)
        if not chunk:
            raise OSError(errno.EIO, "the file that a tensor is read from has become shorter")
        yield chunk
        at, left = at + len(chunk), left - len(chunk)
