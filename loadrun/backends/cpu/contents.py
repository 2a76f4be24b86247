"""Keys of constant arrays: what packed weights are kept under.

A view of a mapped file is known by the file's digest and its own place in it, so that a second load
of a file reads no weight at all. The digest is remembered per (device, inode, size, mtime, ctime)
of the open file; other arrays are hashed.

Source: git's documentation of its index ("racy git"): a file whose time stamp is not older than
the note about it may change again without a new time stamp, so such files are not remembered.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.backends.cpu.cache import Cache, digest
from loadrun.backends.cpu.plan import Array
from mgeserial.format.filemap import FileMap

_SETTLED_NS = 2_000_000_000  # the coarsest time stamps of common file systems (FAT)
_Stamp = tuple[int, int, int, int, int]


def _stamp(number: int) -> _Stamp:
    s = os.fstat(number)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


@dataclass(frozen=True, slots=True)
class _Known:
    """A mapped file, its stamp, and its digest once it is there."""

    file: FileMap
    stamp: _Stamp
    result: Future[str]


@dataclass(slots=True)
class Contents:
    """Keys of the arrays of one compilation.

    Attributes:
        cache: Where digests of files are remembered.
        verify: Read and hash files although their digest is remembered.
    """

    cache: Cache
    verify: bool = False
    _files: dict[int, _Known] = field(default_factory=dict, repr=False)

    def begin(self, views: Iterable[memoryview | None]) -> None:
        """Start to take the digest of the file that the views belong to, beside other work.

        Only when some packed weights are kept: else nobody asks before they have been made.
        """
        if not self.cache.sizes("w"):
            return
        owners = {id(v.obj): v.obj for v in views if v is not None}
        for owner in owners.values():
            if isinstance(owner, FileMap) and owner.number >= 0:
                self._file(owner)

    def key(self, array: Array) -> str:
        """A text that differs when shape, type or elements differ."""
        what = f"{array.dtype.str}{array.shape}"
        place = _place(array)
        if place is not None:
            file, offset = place
            return digest(
                "file", what, self._file(file).result.result(), str(offset), str(array.strides)
            )
        if not array.flags.c_contiguous and array.T.flags.c_contiguous:
            return digest("transposed", what, _bytes(array.T))
        return digest("array", what, _bytes(np.ascontiguousarray(array)))

    def unchanged(self) -> bool:
        """Whether no file has been written to since its digest was taken."""
        return all(_stamp(f.file.number) == f.stamp for f in self._files.values())

    def _file(self, file: FileMap) -> _Known:
        known = self._files.get(id(file))
        if known is None:
            stamp, result = _stamp(file.number), Future[str]()
            known = self._files[id(file)] = _Known(file, stamp, result)
            name = digest("stat", *map(str, stamp))
            found = None if self.verify else self.cache.read(name, "d")
            if found is not None:
                result.set_result(found.decode("ascii"))
            else:
                threading.Thread(target=self._hash, args=(known, name), daemon=True).start()
        return known

    def _hash(self, known: _Known, name: str) -> None:
        """Take a file's digest, and remember it if the file has settled."""
        try:
            text = hashlib.sha256(memoryview(known.file)).hexdigest()
            settled = max(known.stamp[3], known.stamp[4]) + _SETTLED_NS < time.time_ns()
            if settled and _stamp(known.file.number) == known.stamp:
                self.cache.write(name, "d", text.encode("ascii"))
        except BaseException as error:
            known.result.set_exception(error)
            raise
        known.result.set_result(text)


def _bytes(array: Array) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _place(array: Array) -> tuple[FileMap, int] | None:
    """The mapped file that an array is a view of, and where in it; None for other memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, FileMap) or owner.number < 0 or not array.size:
        return None
    start = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    return owner, int(array.__array_interface__["data"][0]) - int(start)
