"""Maps of files that remember their file, so that views of them can be copied by the kernel.

Writing out a view of a map would touch every page of it, and touched pages count as memory of the
process: saving a loaded model of 102 MB would take 102 MB more. Copying file to file takes none.
"""

from __future__ import annotations

import contextlib
import mmap
import os

import numpy as np

__all__ = ["FileMap"]


class FileMap(mmap.mmap):
    """A read-only map of a whole file.

    Attributes:
        number: A file descriptor of the file, open as long as the map is; -1 when there is none.
    """

    number: int

    def __new__(cls, number: int) -> FileMap:
        """Map the file open at the descriptor `number`, which may be closed afterwards."""
        made = super().__new__(cls, number, 0, access=mmap.ACCESS_READ)
        made.number = -1
        if hasattr(os, "pread"):  # elsewhere views are written like any other memory
            made.number = os.dup(number)
        return made

    def __del__(self) -> None:
        number, self.number = getattr(self, "number", -1), -1
        if number >= 0:
            with contextlib.suppress(OSError):
                os.close(number)

    @staticmethod
    def place_of(view: memoryview) -> tuple[FileMap, int] | None:
        """(map, offset in its file) of a view of a map; None for any other memory."""
        owner = view.obj
        if not isinstance(owner, FileMap) or owner.number < 0 or not view.nbytes:
            return None
        return owner, _address(view) - _address(owner)


def _address(buffer: memoryview | mmap.mmap) -> int:
    found: int = np.frombuffer(buffer, dtype=np.uint8).__array_interface__["data"][0]
    return found
