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
import time
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


@dataclass(slots=True)
class Contents:
    """Keys of the arrays of one compilation.

    Attributes:
        cache: Where digests of files are remembered; without a folder all keys are ''.
        verify: Read and hash files although their digest is remembered.
    """

    cache: Cache
    verify: bool = False
    _files: dict[int, tuple[FileMap, _Stamp, str]] = field(default_factory=dict, repr=False)

    def key(self, array: Array) -> str:
        """A text that differs when shape, type or elements differ; '' when nothing is kept."""
        if self.cache.folder is None:
            return ""
        what = f"{array.dtype.str}{array.shape}"
        place = _place(array)
        if place is not None:
            file, offset = place
            return digest("file", what, self._file(file), str(offset), str(array.strides))
        if not array.flags.c_contiguous and array.T.flags.c_contiguous:
            return digest("transposed", what, _bytes(array.T))
        return digest("array", what, _bytes(np.ascontiguousarray(array)))

    def unchanged(self) -> bool:
        """Whether no file has been written to since its digest was taken."""
        return all(_stamp(file.number) == stamp for file, stamp, _ in self._files.values())

    def _file(self, file: FileMap) -> str:
        known = self._files.get(id(file))
        if known is None:
            stamp = _stamp(file.number)
            known = self._files[id(file)] = (file, stamp, self._digest(file, stamp))
        return known[2]

    def _digest(self, file: FileMap, stamp: _Stamp) -> str:
        name = digest("stat", *map(str, stamp))
        found = None if self.verify else self.cache.read(name, "d")
        if found is not None:
            return found.decode("ascii")
        text = hashlib.sha256(memoryview(file)).hexdigest()
        settled = max(stamp[3], stamp[4]) + _SETTLED_NS < time.time_ns()
        if settled and _stamp(file.number) == stamp:
            self.cache.write(name, "d", text.encode("ascii"))
        return text


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
