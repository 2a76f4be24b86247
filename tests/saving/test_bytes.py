"""Exact bytes: those MegEngine wrote come out again, those we wrote once stay the same."""

from __future__ import annotations

import struct

import pytest
from corpus_cases import compact_root
from golden_graphs import FOLDER, files

import mgeserial
from mgeserial.format.flatbuf import MAX_TABLES

CORPUS = compact_root()
# v2 files with facts about inner values that no reader uses and a graph does not keep: types of
# constants of a graph that had run, and shapes that inference here finds and MegEngine did not, or
# the other way round.
INNER_FACTS = {
    "containers/extern_opr/model.v2.mge",
    "containers/testcases_1_13_assert/model.v2.mge",
    "shape/set_bool_mask/model.v2.mge",
}
MODELS = sorted(p for p in CORPUS.glob("*/*/*.mge") if p.parent.parent.name != "public")


@pytest.mark.parametrize("path", MODELS, ids=lambda p: str(p.relative_to(CORPUS)))
def test_a_corpus_file_comes_out_byte_for_byte(path):
    data = path.read_bytes()
    again = mgeserial.dumps(mgeserial.load(path))
    assert (again == data) == (path.relative_to(CORPUS).as_posix() not in INNER_FACTS)


def test_v2_and_v1_dumps_of_one_graph_become_each_other():
    folder = CORPUS / "containers" / "keep_everything"
    v1, v2 = (folder / f"model.{c}.mge" for c in ("v1", "v2"))
    assert mgeserial.dumps(mgeserial.load(v1), format="v2") == v2.read_bytes()


@pytest.mark.parametrize("name", sorted(files()))
def test_golden_bytes(name):
    assert files()[name] == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", sorted(files()))
def test_buffers_are_what_the_verifier_of_megengine_asks_for(name):
    data = files()[name]
    start = 0
    if data[:4] in (b"MGBC", b"MGBS"):
        head = 24 if data[:4] == b"MGBC" else 16
        start = head + struct.unpack_from("<Q", data, head - 8)[0]
    buffer = data[start:]
    assert struct.unpack_from("<I", buffer)[0] == len(buffer) - 4
    # All in all a multiple of the largest alignment, counted from the size prefix.
    assert len(buffer) % 8 == 0
    assert buffer[8:12] in (b"mgb1", b"mgv2")
    assert len(buffer) < 4 * MAX_TABLES
