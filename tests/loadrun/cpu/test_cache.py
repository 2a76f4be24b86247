"""The cache folder: bad entries count as absent, others' folders are refused, size is bounded."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadrun.backends.cpu.cache import HEADER_BYTES, Cache, CacheError, digest

KEY = digest("a")


def test_an_entry_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    assert cache.read(KEY, "o") is None
    cache.write(KEY, "o", b"content")
    assert cache.read(KEY, "o") == b"content"
    assert (cache.hits, cache.misses) == (1, 1)


@pytest.mark.parametrize("at", [0, 9, 17, 30, HEADER_BYTES])
def test_an_altered_byte_makes_an_entry_absent(tmp_path: Path, at: int) -> None:
    cache = Cache(tmp_path / "c")
    cache.write(KEY, "o", b"content")
    path = next((tmp_path / "c").glob("*.o"))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert cache.read(KEY, "o") is None
    cache.write(KEY, "o", b"content")
    assert cache.read(KEY, "o") == b"content"


@pytest.mark.parametrize("length", [0, 10, HEADER_BYTES, HEADER_BYTES + 3])
def test_a_short_entry_is_absent(tmp_path: Path, length: int) -> None:
    cache = Cache(tmp_path / "c")
    cache.write(KEY, "w", b"content")
    path = next((tmp_path / "c").glob("*.w"))
    path.write_bytes(path.read_bytes()[:length])
    assert cache.map(KEY, "w") is None


def test_a_mapped_entry_must_have_the_size_asked_for(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.write(KEY, "w", b"content")
    assert cache.map(KEY, "w", size=8) is None
    found = cache.map(KEY, "w", size=7, check=True)
    assert found is not None
    assert bytes(found) == b"content"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="others can write"):
        Cache(folder).read(KEY, "o")


def test_a_link_as_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(CacheError, match="not a link"):
        Cache(tmp_path / "link").read(KEY, "o")


def test_the_entries_used_longest_ago_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", limit=3 * (HEADER_BYTES + 100))
    keys = [digest(str(k)) for k in range(5)]
    for age, key in enumerate(keys):
        cache.write(key, "o", b"x" * 100)
        os.utime(tmp_path / "c" / f"{key}.o", (age, age))
    cache.trim()
    assert [cache.read(k, "o") is not None for k in keys] == [False, False, True, True, True]


def test_an_entry_that_another_process_removes_does_not_end_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "c", limit=3 * (HEADER_BYTES + 100))
    for k in range(5):
        cache.write(digest(str(k)), "o", b"x" * 100)
    real = os.scandir

    class Gone:
        """An entry that was there when the folder was read."""

        def is_file(self, *, follow_symlinks: bool) -> bool:
            return True

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    @contextlib.contextmanager
    def scandir(folder: Path) -> Iterator[Iterator[object]]:
        with real(folder) as items:
            yield itertools.chain([Gone()], items)

    monkeypatch.setattr(os, "scandir", scandir)
    cache.trim()
    monkeypatch.undo()
    assert len(list((tmp_path / "c").iterdir())) == 3


def test_concurrent_writers_leave_a_whole_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.write(KEY, "o", b"0" * 10000)
    threads = [
        threading.Thread(target=cache.write, args=(KEY, "o", bytes([k]) * 10000)) for k in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    found = cache.read(KEY, "o")
    assert found is not None
    assert len(set(found)) == 1
    assert [p.name for p in (tmp_path / "c").iterdir()] == [f"{KEY}.o"]


def test_without_a_folder_nothing_is_kept() -> None:
    cache = Cache(None)
    cache.write(KEY, "o", b"x")
    assert cache.read(KEY, "o") is None


def test_a_key_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a cache key"):
        Cache(tmp_path / "c").read("../../etc/passwd", "o")
