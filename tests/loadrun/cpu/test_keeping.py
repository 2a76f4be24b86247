"""What a session keeps on disk and takes from there: never anything that is not its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_cases import CHECKOUT

import mgeserial
from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import contents as contents_module
from loadrun.backends.cpu.cache import HEADER_BYTES, Cache
from loadrun.backends.cpu.contents import Contents
from loadrun.session import Session
from mgeserial.author import GraphBuilder

SHAPE = (1, 16, 12, 12)
X = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)


def network(path: Path, seed: int, *, settled: bool = True) -> Path:
    """A file of more than a megabyte (so it is mapped), old enough to be remembered."""
    random = np.random.default_rng(seed)
    b = GraphBuilder()
    x = b.input("x", SHAPE)
    for channels, inner in ((192, 16), (192, 192)):
        weight = random.standard_normal((channels, inner, 3, 3)).astype(np.float32) / 10
        x = b.relu(b.conv2d(x, weight, np.ones(channels, np.float32), padding=1))
    b.output(x, "y")
    mgeserial.save(b.graph(), path)
    if settled:
        os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder; files count as settled although they have just been made."""
    monkeypatch.setenv("LOADRUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contents_module, "_SETTLED_NS", -(10**10))
    return tmp_path / "cache"


def run(path: Path, **options: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """The result, and what the load cost."""
    with Session(path, "cpu", threads=2, options=CompileOptions(**options)) as session:
        y = session.run({"x": X})["y"]
        program: Any = session.program
        return y, program.native.stats


def kept(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*.{kind}"))


def test_a_second_load_makes_nothing_anew(folder: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    first, cost = run(path)
    assert not cost.weights_cached
    assert cost.compile.cached == 0
    again, cost = run(path)
    assert cost.weights_cached
    assert cost.compile.cached == cost.compile.modules
    np.testing.assert_array_equal(first, again)


def test_the_digest_of_a_file_is_taken_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = network(tmp_path / "m.mge", 0)
    run(path)
    assert len(kept(folder, "d")) == 1

    def refuse(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr(Contents, "_hash", refuse)
    assert run(path)[1].weights_cached


def test_a_file_that_has_just_been_written_is_not_remembered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("LOADRUN_CACHE", str(folder))
    path = network(tmp_path / "m.mge", 0, settled=False)
    run(path)
    assert kept(folder, "w")
    assert not kept(folder, "d")


@pytest.mark.parametrize("same_time", [True, False])
def test_other_weights_in_the_same_file_are_seen(
    same_time: bool, folder: Path, tmp_path: Path
) -> None:
    path = network(tmp_path / "m.mge", 0)
    before = run(path)[0]
    network(path, 1, settled=same_time)
    after, cost = run(path)
    assert not cost.weights_cached
    assert cost.compile.cached == cost.compile.modules
    assert np.abs(before - after).max() > 0.1
    np.testing.assert_array_equal(after, run(path, cache=False)[0])


def test_two_models_of_one_graph_keep_weights_of_their_own(folder: Path, tmp_path: Path) -> None:
    one, two = network(tmp_path / "1.mge", 1), network(tmp_path / "2.mge", 2)
    expected = [run(p, cache=False)[0] for p in (one, two)]
    for _ in range(2):
        for path, want in zip((one, two), expected, strict=True):
            np.testing.assert_array_equal(run(path)[0], want)
    assert len(kept(folder, "w")) == 2


def test_a_copy_of_a_file_finds_what_the_first_one_left(folder: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    run(path)
    (tmp_path / "copy.mge").write_bytes(path.read_bytes())
    assert run(tmp_path / "copy.mge")[1].weights_cached


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[: at % len(data)] + bytes([data[at] ^ 1]) + data[at % len(data) + 1 :]


DAMAGES = {
    "magic": _flip(0),
    "version": _flip(8),
    "length": _flip(16),
    "checksum": _flip(24),
    "first byte": _flip(HEADER_BYTES),
    "last byte": _flip(-1),
    "cut off": lambda data: data[:-7],
    "header only": lambda data: data[:HEADER_BYTES],
    "part of the header": lambda data: data[:20],
    "longer": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["o", "w", "d"])
def test_a_damaged_entry_is_made_again(
    kind: str, damage: str, folder: Path, tmp_path: Path
) -> None:
    path = network(tmp_path / "m.mge", 0)
    want = run(path)[0]
    entries = {p: p.read_bytes() for p in kept(folder, kind)}
    assert entries
    for entry, data in entries.items():
        entry.write_bytes(DAMAGES[damage](data))
    # The content of packed weights is checked on request only; all else always.
    deep = kind == "w" and damage in ("checksum", "first byte", "last byte")
    got, cost = run(path, verify_cache=deep)
    np.testing.assert_array_equal(got, want)
    if kind == "o":
        assert cost.compile.cached == 0
    if kind == "w":
        assert not cost.weights_cached
    assert {p: p.read_bytes() for p in kept(folder, kind)} == entries


def test_verifying_takes_what_is_right(folder: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    want = run(path)[0]
    got, cost = run(path, verify_cache=True)
    assert cost.weights_cached
    np.testing.assert_array_equal(got, want)


def test_a_digest_of_another_file_is_found_out_by_verifying(folder: Path, tmp_path: Path) -> None:
    one, two = network(tmp_path / "1.mge", 1), network(tmp_path / "2.mge", 2)
    want = run(one)[0]
    (note,) = kept(folder, "d")
    run(two)
    other = next(p for p in kept(folder, "d") if p != note)
    note.write_bytes(other.read_bytes())
    np.testing.assert_array_equal(run(one, verify_cache=True)[0], want)


def test_a_change_of_the_file_while_it_is_read_keeps_nothing(tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    graph = mgeserial.load(path).graph
    array = next(t.numpy() for n in graph.params for t in n.tensors if t.nbytes > 1 << 18)
    contents = Contents(Cache(tmp_path / "c"))
    contents.key(array)
    assert contents.unchanged()
    os.utime(path)
    assert not contents.unchanged()


def test_views_of_one_place_have_keys_of_their_own(tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    graph = mgeserial.load(path).graph
    array = next(t.numpy() for n in graph.params for t in n.tensors if t.nbytes > 1 << 18)
    contents = Contents(Cache(tmp_path / "c"))
    square = array.reshape(192, -1)
    views = [array, square, square[1:], square[:, 1:], square[:, ::-1], square[:100], square.T]
    assert len({contents.key(v) for v in views}) == len(views)
    owned = [np.array(v) for v in (square, square + 1, square[:100], square.T)]
    assert len({contents.key(v) for v in owned}) == len(owned)
    assert contents.key(owned[0]) == contents.key(owned[0].copy())


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_folder_that_others_can_write_is_left_alone(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    path = network(tmp_path / "m.mge", 0)
    with Session(path, "cpu") as session:
        session.run({"x": X})
        assert session.program is not None
        notes = session.program.report.notes
    assert any("no cache" in n and "chmod 700" in n for n in notes)
    assert not list(folder.iterdir())


def test_a_file_in_the_folders_place_is_no_obstacle(folder: Path, tmp_path: Path) -> None:
    folder.write_bytes(b"")
    with Session(network(tmp_path / "m.mge", 0), "cpu") as session:
        session.run({"x": X})
        assert session.program is not None
        assert any("no cache" in n for n in session.program.report.notes)


def test_what_killed_writers_left_is_trimmed_with_the_rest(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", limit=3 * HEADER_BYTES)
    cache.write("0" * 40, "o", b"new")
    left = tmp_path / "c" / ".new-abc"
    left.write_bytes(bytes(5 * HEADER_BYTES))
    os.utime(left, (1, 1))
    cache.trim()
    assert not left.exists()
    assert cache.read("0" * 40, "o") == b"new"


_CHILD = """
import sys
import numpy as np
from loadrun.session import Session
x = np.load(sys.argv[2])
for _ in range(2):
    with Session(sys.argv[1], "cpu", threads=2) as session:
        y = session.run({"x": x})["y"]
np.save(sys.argv[3], y)
"""


def test_processes_that_start_together_share_a_folder(folder: Path, tmp_path: Path) -> None:
    path = network(tmp_path / "m.mge", 0)
    np.save(tmp_path / "x.npy", X)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, path, tmp_path / "x.npy", tmp_path / f"y{k}.npy"],
            env=environment,
        )
        for k in range(4)
    ]
    assert [c.wait(120) for c in children] == [0] * 4
    want = run(path, cache=False)[0]
    for k in range(4):
        np.testing.assert_array_equal(np.load(tmp_path / f"y{k}.npy"), want)
    assert not list(folder.glob(".new-*"))
    cost = run(path, verify_cache=True)[1]
    assert cost.weights_cached
    assert cost.compile.cached == cost.compile.modules


def test_a_small_graph_is_ready_soon(folder: Path, tmp_path: Path) -> None:
    """A tenth of a second of processor time, however busy the machine is."""
    b = GraphBuilder()
    x = b.input("x", (1, 3, 16, 16))
    y = b.relu(b.conv2d(x, np.ones((8, 3, 3, 3), np.float32), padding=1))
    b.output(y, "y")
    with Session(b.graph(), "cpu", threads=2) as session:
        start = time.process_time()
        session.prepare({"x": np.zeros((1, 3, 16, 16), np.float32)})
        assert time.process_time() - start < 0.15
