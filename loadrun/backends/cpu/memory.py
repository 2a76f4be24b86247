"""Aligned, zeroed memory for weights and activations."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np

PAGE = 4096
_HUGE = 2 << 20
_MADV_HUGEPAGE = 14  # Linux, asm-generic/mman-common.h


class Block:
    """A private mapping, aligned to 4096 bytes (2 MiB when large), zeroed.

    The mapping lives as long as the block or an array made by `array`.
    """

    def __init__(self, nbytes: int) -> None:
        align = _HUGE if nbytes >= 2 * _HUGE else PAGE
        self.nbytes = -(-max(nbytes, 1) // align) * align
        # Private, so that a forked child has memory of its own.
        private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANON}
        self._map = mmap.mmap(-1, self.nbytes + align, **private)
        self._bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8)
        base = self._bytes.ctypes.data
        self._skip = -base % align
        self.address = base + self._skip
        if align == _HUGE and sys.platform == "linux":
            # Advice only: without it the memory is the same, in small pages.
            libc = ctypes.CDLL(None)
            libc.madvise(
                ctypes.c_void_p(self.address), ctypes.c_size_t(self.nbytes), _MADV_HUGEPAGE
            )

    def array(self, offset: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A view of bytes [offset, offset + nbytes)."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"view outside a block of {self.nbytes} bytes: {offset}+{nbytes}")
        return self._bytes[self._skip + offset : self._skip + offset + nbytes]
