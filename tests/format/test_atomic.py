from __future__ import annotations

import os
import stat

import pytest

from mgeserial.errors import InputError
from mgeserial.format.atomic import write_atomic


def test_pieces_are_written_in_order(tmp_path):
    path = tmp_path / "f"
    write_atomic(path, [b"a", memoryview(b"b")])
    assert path.read_bytes() == b"ab"
    assert os.listdir(tmp_path) == ["f"]


def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def pieces():
        yield b"new"
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        write_atomic(path, pieces())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_missing_folder_and_directory_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_atomic(tmp_path / "none" / "f", b"x")
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_atomic(tmp_path, b"x")


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither these modes nor such links")
def test_mode_of_the_old_file_and_links_to_it_stay(tmp_path):
    path, link = tmp_path / "f", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="there is no /dev/null here")
def test_device_is_written_through():
    write_atomic("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_names_as_long_as_a_file_system_allows(tmp_path):
    path = tmp_path / ("网" * 83 + ".mge")  # 253 bytes
    write_atomic(path, b"a")
    assert path.read_bytes() == b"a"
    assert len(os.listdir(tmp_path)) == 1
