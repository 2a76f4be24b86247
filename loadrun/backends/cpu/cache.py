"""A folder of checked entries: compiled objects and packed weights.

An entry is a file `<key>.<kind>` that starts with a header of 56 bytes: magic, format
version, size of the content and its sha256. Entries appear by rename, so a reader never
sees half of one and concurrent writers cannot mix. A missing, short or altered entry
counts as absent and is written again. The folder is bounded in size: the entries used
longest ago go first.

The folder belongs to the user alone. A folder that others could write is refused, because
objects in it are executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import re
import stat
import struct
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_LOG = logging.getLogger(__name__)
_MAGIC = b"LRUNC\x00\x01\x00"
_HEADER = struct.Struct("<8sQQ32s")
HEADER_BYTES = 4096  # the content starts on a page, so that it can be mapped as arrays
DEFAULT_LIMIT = 2 << 30
_KEY = re.compile(r"[0-9a-f]{16,64}\Z")


class CacheError(OSError):
    """The cache folder cannot be used; the text says why and what to do."""


def default_folder() -> Path:
    """The platform's cache folder for this program, or `LOADRUN_CACHE`."""
    named = os.environ.get("LOADRUN_CACHE")
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "loadrun" / "cpu"


def digest(*parts: str | bytes | memoryview) -> str:
    """A key: 40 hexadecimal digits of the sha256 over the parts and their lengths."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:40]


def _check_private(folder: Path) -> None:
    """Refuse a folder that another user owns or can write."""
    if not hasattr(os, "getuid"):
        return  # Windows: the profile folder's own access list applies
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise CacheError(f"{folder}: the cache must be a folder, not a link or file")
    if found.st_uid != os.getuid():
        raise CacheError(f"{folder}: the cache belongs to another user; set LOADRUN_CACHE")
    if found.st_mode & 0o022:
        raise CacheError(f"{folder}: others can write the cache; run `chmod 700 {folder}`")


def _fill(path: Path, into: memoryview, *, check: bool) -> bool:
    """Read an entry's content; no second copy is made, unlike with a map."""
    try:
        with path.open("rb", buffering=0) as file:
            sha = _read_header(file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size, len(into))
            at = 0
            while at < len(into):
                got = file.readinto(into[at:])
                if not got:
                    raise ValueError("it is shorter than its header says")
                at += got
        if check and hashlib.sha256(into).digest() != sha:
            raise ValueError("checksum")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, struct.error) as error:
        _LOG.warning("cache entry ignored: %s: %s", path, error)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


def _read_header(head: bytes, total: int, size: int | None) -> bytes:
    """The sha256 that a header states.

    Raises:
        ValueError: The header, the file's length or the size asked for do not agree.
        struct.error: It is too short.
    """
    magic, version, length, sha = _HEADER.unpack(head[: _HEADER.size])
    wrong = magic != _MAGIC or version != 1 or total != HEADER_BYTES + length
    if wrong or (size is not None and size != length) or not length:
        raise ValueError("header")
    return bytes(sha)


@dataclass(slots=True)
class Cache:
    """Entries in one folder. With `folder` None nothing is read or kept.

    Attributes:
        folder: The folder, made on first use with access for the user alone.
        limit: Most bytes kept.
        hits, misses: Reads so far.
    """

    folder: Path | None
    limit: int = DEFAULT_LIMIT
    hits: int = 0
    misses: int = 0
    _ready: bool = field(default=False, repr=False)

    def _path(self, key: str, kind: str) -> Path | None:
        if self.folder is None:
            return None
        if not _KEY.match(key):
            raise ValueError(f"not a cache key: {key!r}")
        if not self._ready:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(self.folder)
            self._ready = True
        return self.folder / f"{key}.{kind}"

    def read(self, key: str, kind: str, *, size: int | None = None) -> bytes | None:
        """The content of an entry, fully checked, or None.

        Args:
            key: From `digest`.
            kind: `o` for an object, `w` for weights, `d` for a file's digest.
            size: Expected bytes; another size counts as absent.
        """
        found = self._open(key, kind, size, check=True)
        self.hits, self.misses = self.hits + (found is not None), self.misses + (found is None)
        return None if found is None else bytes(found)

    def map(
        self, key: str, kind: str, *, size: int | None = None, check: bool = False
    ) -> memoryview | None:
        """The content of an entry, mapped from the file, private to this process, or None.

        The header and the size are always checked, the sha256 on request.
        """
        found = self._open(key, kind, size, check=check)
        self.hits, self.misses = self.hits + (found is not None), self.misses + (found is None)
        return found

    def read_into(self, key: str, kind: str, into: memoryview, *, check: bool = False) -> bool:
        """Fill a buffer with an entry of exactly its size; False, maybe half filled, without one.

        The header and the size are always checked, the sha256 on request.
        """
        path = self._path(key, kind)
        done = path is not None and _fill(path, into, check=check)
        self.hits, self.misses = self.hits + done, self.misses + (not done)
        return done

    def sizes(self, kind: str) -> set[int]:
        """Sizes of the contents of all entries of a kind."""
        found: set[int] = set()
        if self.folder is not None:
            with contextlib.suppress(OSError):
                for item in os.scandir(self.folder):
                    if item.name.endswith(f".{kind}"):
                        found.add(item.stat(follow_symlinks=False).st_size - HEADER_BYTES)
        return found

    def _open(self, key: str, kind: str, size: int | None, *, check: bool) -> memoryview | None:
        path = self._path(key, kind)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                total = os.fstat(file.fileno()).st_size
                sha = _read_header(file.read(_HEADER.size), total, size)
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error) as error:
            _LOG.warning("cache entry ignored: %s: %s", path, error)
            return None
        view = memoryview(mapped)[HEADER_BYTES:]
        if check and hashlib.sha256(view).digest() != sha:
            _LOG.warning("cache entry ignored: %s: checksum", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return view

    def write(self, key: str, kind: str, content: bytes | memoryview) -> None:
        """Keep an entry; a full disk or a lost race is no error."""
        path = self._path(key, kind)
        if path is None or self.folder is None:
            return
        view = memoryview(content).cast("B")
        head = _HEADER.pack(_MAGIC, 1, len(view), hashlib.sha256(view).digest())
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(head.ljust(HEADER_BYTES, b"\0"))
                file.write(view)
            os.replace(temporary, path)
        except OSError as error:
            _LOG.warning("cache entry not kept: %s: %s", path, error)
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def trim(self) -> None:
        """Remove the entries used longest ago until the folder is within its limit."""
        if self.folder is None or not self._ready:
            return
        entries: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as items:
            for item in items:
                # Another process may have removed it meanwhile: the others count all the same.
                with contextlib.suppress(OSError):
                    if item.is_file(follow_symlinks=False):
                        found = item.stat(follow_symlinks=False)
                        entries.append((found.st_mtime, found.st_size, Path(item.path)))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda e: e[0]):
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
