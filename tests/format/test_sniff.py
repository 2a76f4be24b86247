from __future__ import annotations

import io
import pickle
import struct
import zipfile

import pytest
from corpus_cases import compact_root, iter_models

import mgeserial
from mgeserial.errors import FormatError, InputError, NotAModelError


def zip_bytes() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"x")
    return file.getvalue()


KINDS = {
    "empty": (b"", "empty"),
    "blanks": (b"\n\n", "blanks"),
    "mgb0001": (b"mgb0001" + bytes(40), "MegBrain internal"),
    "mgb0000a": (b"mgb0000a" + bytes(40), "MegBrain internal"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
    "html_late": (b"\xef\xbb\xbf  <HTML>", "HTML page"),
    "xml": (b"<?xml version='1.0'?><net/>", "XML"),
    "json": (b'{"model": []}', "JSON"),
    "json_list": (b"[1, 2]", "JSON"),
    "text": (b"this is a note, not a model", "plain text"),
    "utf8_cut": (("é" * 300).encode()[:511], "plain text"),
    "zip": (zip_bytes(), "zip archive"),
    "gzip": (b"\x1f\x8b\x08" + bytes(30), "gunzip"),
    "bzip2": (b"BZh91AY&SY" + bytes(30), "bunzip2"),
    "xz": (b"\xfd7zXZ\0" + bytes(30), "unxz"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(30), "zstd -d"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(30), "PNG"),
    "jpeg": (b"\xff\xd8\xff\xe0" + bytes(30), "JPEG"),
    "npy": (b"\x93NUMPY\x01\x00" + bytes(30), "numpy array"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(30), "HDF5"),
    "elf": (b"\x7fELF" + bytes(30), "ELF"),
    "exe": (b"MZ" + bytes(30), "Windows"),
    "pdf": (b"%PDF-1.7\n" + bytes(30), "PDF"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(30), "TensorFlow Lite"),
    "onnx": (b"\x08\x08\x12\x07pytorch" + bytes(30), "ONNX"),
    "future_v2": (b"\x40\0\0\0\x10\0\0\0mgv3" + bytes(64), "mgv2 is the last one known"),
    "future_v1": (b"MGBC\1\0\0\0" + bytes(64), "feature bits"),
    "v2_cut": (b"\x40\0\0\0\x10\0\0\0mgv2" + bytes(4), "mgv2 model cut off after 16 bytes"),
    "old_cut": (b"MGBS", "cut off after 4 bytes"),
    "new_cut": (b"MGBC" + bytes(6), "truncated"),
    "testcase_cut": (b"mgbt", "cut off"),
    "lite_cut": (b"packed_m", "cut off"),
    "noise": (bytes(range(128, 255)), "first bytes"),
    "zeros": (bytes(100), "first bytes"),
}
PICKLES = {p: pickle.dumps({"w": [1.0, 2.0]}, protocol=p) for p in (2, 3, 4, 5)}


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_are_recognised(kind):
    data, text = KINDS[kind]
    with pytest.raises(FormatError, match=text) as caught:
        mgeserial.load(data)
    assert caught.value.exit_code == 2
    assert caught.value.hint or kind in ("old_cut", "new_cut", "testcase_cut", "lite_cut")


@pytest.mark.parametrize("protocol", PICKLES)
def test_pickles_are_recognised_and_not_opened(protocol):
    with pytest.raises(NotAModelError, match=f"pickle .megengine.save, protocol {protocol}"):
        mgeserial.load(PICKLES[protocol])


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was executed",))


def test_a_pickle_that_runs_code_does_not_run():
    with pytest.raises(NotAModelError):
        mgeserial.load(pickle.dumps(Bomb()))


def test_the_message_names_the_file(tmp_path):
    path = tmp_path / "a\x1b[31mred\n.mge"
    path.write_bytes(b"<html>")
    with pytest.raises(NotAModelError) as caught:
        mgeserial.load(path)
    text = str(caught.value)
    assert "a\\x1b[31mred\\x0a.mge: not a MegEngine model: an HTML page" in text
    assert "\x1b" not in text


def test_the_corpus_pickles_are_recognised():
    found = 0
    for path in (compact_root() / "pickles").glob("*/*"):
        if path.suffix in (".pkl", ".tm"):
            with pytest.raises(NotAModelError, match="pickle"):
                mgeserial.load(path)
            found += 1
    assert found


@pytest.mark.parametrize("tag", ["v1", "v2"])
def test_truncation_anywhere_is_an_error(tag):
    models = [m for _, m in iter_models(compact_root()) if m.tag == tag]
    data = min((m.path.read_bytes() for m in models), key=len)
    mgeserial.load(data)
    for cut in range(len(data)):
        with pytest.raises(FormatError):
            mgeserial.load(data[:cut])


def test_a_missing_file_lists_the_models_beside_it(tmp_path):
    (tmp_path / "other.mge").write_bytes(b"x")
    with pytest.raises(InputError, match="no such file") as caught:
        mgeserial.load(tmp_path / "net.mge")
    assert "other.mge" in str(caught.value)
    with pytest.raises(InputError, match="check the path"):
        mgeserial.load(tmp_path / "nowhere" / "net.mge")


def test_a_directory_is_not_a_model(tmp_path):
    with pytest.raises(InputError, match="is a directory"):
        mgeserial.load(tmp_path)


def test_a_path_with_a_nul_is_an_input_error():
    with pytest.raises(InputError):
        mgeserial.load("a\0b.mge")


def test_a_graph_that_lies_beyond_the_file_says_where():
    data = b"MGBC" + bytes(12) + struct.pack("<Q", 2**63) + bytes(64)
    with pytest.raises(FormatError, match="beyond the end of the file") as caught:
        mgeserial.load(data)
    assert caught.value.offset == 16
