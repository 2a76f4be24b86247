"""Object code of IR texts, kept for a run of the suite: LLVM answers equal questions equally.

Half of what the tests ask LLVM for has been compiled before, by a test of another shape or backend
setting. `KeptObjects` answers those from a folder that the processes of the run share.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

Compile = Callable[..., bytes]


class KeptObjects:
    """A stand-in for `llvm.compile_object` that asks it once for each text and target.

    Args:
        compile_object: What to ask; its errors are passed on and not kept.
        folder: Where objects are kept, one file each.
    """

    def __init__(self, compile_object: Compile, folder: Path) -> None:
        self.original, self._folder = compile_object, folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, text: str, *, cpu: str, features: str) -> bytes:
        """As `llvm.compile_object`."""
        key = hashlib.sha256("\0".join([cpu, features, text]).encode()).hexdigest()
        path = self._folder / key
        try:
            return path.read_bytes()
        except FileNotFoundError:
            pass
        found = self.original(text, cpu=cpu, features=features)
        handle, temporary = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            file.write(found)
        os.replace(temporary, path)
        return found
