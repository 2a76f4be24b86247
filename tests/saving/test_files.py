"""Files as a whole: several graphs, test cases, open files, limits, and never half a file."""

from __future__ import annotations

import io
import mmap
import os
import stat

import mge_builder as mb
import numpy as np
import pytest
from corpus_cases import compact_root
from records import meaning, raw_records

import mgeserial
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT32, DType, DTypeEnum
from mgeserial.errors import ConversionError, GraphError, InputError, UnsupportedError
from mgeserial.ir.graph import Graph, Output
from mgeserial.ir.tensor import Tensor
from mgeserial.ops.registry import by_name

CORPUS = compact_root()
POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has neither these modes nor such links")


def network(scale: float = 2.0, name: str = "y") -> Graph:
    b = GraphBuilder()
    b.output(b.mul(b.input("x", (2, 3)), scale), name)
    return b.graph()


def weights(shape, raw) -> Graph:
    graph = Graph()
    tensor = Tensor(shape=shape, dtype=DType(DTypeEnum.Uint8), raw=raw)
    (value,) = graph.add(by_name("SharedDeviceTensor"), (), tensors=(tensor,)).outputs
    graph.set_outputs([Output(value, "w", 0)])
    return graph


# --- one file, several graphs ---------------------------------------------------------------------


@pytest.mark.parametrize("format", ["v2", "v1", "mgbs"])
def test_append_adds_a_graph_behind_those_of_a_file(tmp_path, format):
    path = tmp_path / "net.mge"
    first = mgeserial.save(network(), path, format=format, append=True)
    second = mgeserial.save(network(3.0, "z"), path, format="v2", append=True)
    model = mgeserial.load(path)
    assert [g.output_names for g in model.graphs] == [("y",), ("z",)]
    assert second.nbytes == path.stat().st_size == first.nbytes + second.graphs[0].nbytes


def test_append_refuses_files_that_are_no_series_of_graphs(tmp_path):
    path = tmp_path / "net.mge"
    path.write_bytes(b"something else")
    with pytest.raises(mgeserial.NotAModelError):
        mgeserial.save(network(), path, append=True)
    assert path.read_bytes() == b"something else"
    cases = CORPUS / "containers" / "testcases_1_13_assert" / "model.v1.mge"
    path.write_bytes(cases.read_bytes())
    with pytest.raises(InputError, match="test cases"):
        mgeserial.save(network(), path, append=True)
    path.write_bytes(mb.lite(mgeserial.dumps(network())))
    with pytest.raises(InputError, match="Lite package"):
        mgeserial.save(network(), path, append=True)
    with pytest.raises(InputError, match="open file"):
        mgeserial.save(network(), io.BytesIO(), append=True)


@pytest.mark.parametrize("name", ["testcases_1_13_assert", "testcases_0_5_1_assert", "two_graphs"])
@pytest.mark.parametrize("format", [None, "v2", "v1", "mgbs"])
def test_wrapper_and_further_graphs_are_kept(name, format):
    for path in sorted((CORPUS / "containers" / name).glob("model.*.mge")):
        model = mgeserial.load(path)
        data = mgeserial.dumps(model, format=format)
        again = mgeserial.load(data)
        assert again.info.testcases == model.info.testcases
        assert len(again.graphs) == len(model.graphs)
        assert meaning(again) == meaning(model)
        if format is None:
            assert raw_records(data) == raw_records(path.read_bytes())


def test_each_graph_keeps_the_container_it_came_from():
    data = mgeserial.dumps(network(), format="v1") + mgeserial.dumps(network(), format="v2")
    assert mgeserial.dumps(mgeserial.load(data)) == data


def test_test_cases_can_be_made_of_graphs():
    case = Graph()
    tensor = Tensor.of(np.zeros((2, 3), np.float32), FLOAT32, comp_node="cpux:0")
    (value,) = case.add(by_name("SharedDeviceTensor"), (), tensors=(tensor,)).outputs
    case.set_outputs([Output(value, None, 0)])
    data = mgeserial.dumps([network(), case], format="v1", testcases=True)
    assert data[:12] == b"mgbtest0\1\0\0\0"
    (found,) = mgeserial.load(data).testcases
    np.testing.assert_array_equal(found["x"], np.zeros((2, 3), np.float32))


# --- open files -----------------------------------------------------------------------------------


def test_an_open_file_is_written_at_its_position(tmp_path):
    path = tmp_path / "nets"
    with path.open("wb") as file:
        file.write(b"head")
        mgeserial.save(network(), file, format="v1")
        mgeserial.save(network(3.0), file, format="v2")
        assert file.tell() == path.stat().st_size or file.flush() is None
    with path.open("rb") as file:
        assert file.read(4) == b"head"
        assert len(list(mgeserial.iter_graphs(file))) == 2


def test_a_file_in_memory_takes_the_same_bytes():
    stream = io.BytesIO()
    saved = mgeserial.save(network(), stream)
    assert stream.getvalue() == mgeserial.dumps(network())
    assert saved.nbytes == len(stream.getvalue())


@POSIX
def test_a_loaded_file_goes_to_an_unbuffered_file_and_to_a_pipe(tmp_path):
    big = tmp_path / "big.mge"
    array = np.arange(1 << 19, dtype=np.float32)
    b = GraphBuilder()
    b.output(b.add(b.input("x", (1,)), b.param(array, "w")), "y")
    mgeserial.save(b.graph(), big, format="v1")
    model = mgeserial.load(big)
    with (tmp_path / "raw").open("wb", buffering=0) as file:
        mgeserial.save(model, file)
    assert (tmp_path / "raw").read_bytes() == big.read_bytes()
    read, write = os.pipe()
    import threading

    with os.fdopen(read, "rb") as source:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(source.read()))
        thread.start()
        with os.fdopen(write, "wb") as sink:
            mgeserial.save(model, sink)
        thread.join()
    assert got[0] == big.read_bytes()


def test_files_that_cannot_take_bytes_are_named(tmp_path):
    with (tmp_path / "text").open("w") as file, pytest.raises(InputError, match="text mode"):
        mgeserial.save(network(), file)
    (tmp_path / "read").write_bytes(b"")
    with (tmp_path / "read").open("rb") as file, pytest.raises(InputError, match="written"):
        mgeserial.save(network(), file)
    with pytest.raises(InputError, match="expected a path or an open binary file"):
        mgeserial.save(network(), 3)
    with pytest.raises(InputError, match="expected a model"):
        mgeserial.save("net.mge", tmp_path / "x")
    with pytest.raises(InputError, match="expected a model"):
        mgeserial.dumps([])


# --- the whole file or none of it -----------------------------------------------------------------


def test_a_model_can_be_saved_over_the_file_it_was_loaded_from(tmp_path):
    path = tmp_path / "net.mge"
    array = np.arange(1 << 19, dtype=np.float32)
    b = GraphBuilder()
    b.output(b.add(b.input("x", (1,)), b.param(array, "w")), "y")
    mgeserial.save(b.graph(), path, format="v1")
    before = path.read_bytes()
    model = mgeserial.load(path)
    mgeserial.save(model, path, format="v2")
    mgeserial.save(mgeserial.load(path), path, format="v1")
    assert path.read_bytes() == before
    np.testing.assert_array_equal(model.graph.params[0].tensors[0].numpy(), array)
    assert os.listdir(tmp_path) == ["net.mge"]


@POSIX
def test_links_and_permissions_stay(tmp_path):
    path, link = tmp_path / "net.mge", tmp_path / "link.mge"
    path.write_bytes(b"old")
    path.chmod(0o604)
    link.symlink_to(path)
    mgeserial.save(network(), link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert mgeserial.load(path).graph.output_names == ("y",)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_is_an_error_in_words():
    with pytest.raises(InputError, match="No space left"):
        mgeserial.save(network(), "/dev/full")


def test_a_failure_half_way_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.mge"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        mgeserial.save(network(), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.mge"]


def test_kernels_that_cannot_copy_are_read_and_written(tmp_path, monkeypatch):
    path = tmp_path / "net.mge"
    graph = weights((1 << 21,), memoryview(np.arange(1 << 21, dtype=np.uint8).tobytes()))
    mgeserial.save(graph, path, format="v1")

    def refuse(*_: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    mgeserial.save(mgeserial.load(path), tmp_path / "copy.mge")
    assert (tmp_path / "copy.mge").read_bytes() == path.read_bytes()


# --- limits, before anything is written -----------------------------------------------------------


@pytest.fixture
def five_gib():
    """A map of 5 GiB that takes no memory."""
    with mmap.mmap(-1, 5 << 30, access=mmap.ACCESS_READ) as area:
        view = memoryview(area)
        yield view
        view.release()


@POSIX
def test_tensors_above_the_limits_are_refused_before_writing(tmp_path, five_gib):
    path = tmp_path / "net.mge"
    path.write_bytes(b"old")
    huge = weights((5, 1 << 30), five_gib)
    with pytest.raises(ConversionError, match="v1 holds tensors below 4 GiB"):
        mgeserial.save(huge, path, format="v1")
    with pytest.raises(UnsupportedError, match="a v2 graph has at most 2147483647 bytes"):
        mgeserial.save(huge, path, format="v2")
    part = five_gib[: (1 << 31) - 100]
    with pytest.raises(UnsupportedError, match="a v2 graph has at most"):
        mgeserial.save(weights((part.nbytes,), part), path, format="v2")
    part.release()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.mge"]


def test_dimensions_and_priorities_have_limits():
    graph = weights((1,) * 8, memoryview(b"x"))
    with pytest.raises(ConversionError, match="at most 7 dimensions, got 8"):
        mgeserial.dumps(graph)
    graph = network()
    graph.nodes[0].priority = 1 << 31
    with pytest.raises(GraphError, match="priority has 32 bits"):
        mgeserial.dumps(graph)


def test_more_tables_than_the_verifier_takes_are_refused(monkeypatch):
    monkeypatch.setattr("mgeserial.format.table_writer.MAX_TABLES", 10)
    with pytest.raises(UnsupportedError, match="a graph has at most 10 tables, this one takes"):
        mgeserial.dumps(network())


def test_graphs_that_are_not_well_formed_say_so():
    graph = network()
    node = graph.nodes[-1]
    graph.add(node.op, node.inputs, params=node.params, outputs=2)
    with pytest.raises(GraphError, match="has 1 outputs with an id, got 2"):
        mgeserial.dumps(graph)
    graph = network()
    graph.nodes[0].tensors = ()
    with pytest.raises(GraphError, match="stores 1 tensors, got 0"):
        mgeserial.dumps(graph)
    graph = network()
    constant = next(n for n in graph.nodes if n.op.name == "ImmutableTensor")
    graph.set_tensors(constant, (Tensor(shape=(1,), dtype=FLOAT32),))
    with pytest.raises(GraphError, match="has no value for its tensor"):
        mgeserial.dumps(graph)
    for tensor, text in (
        (Tensor(shape=(), dtype=FLOAT32, raw=memoryview(b"")), "without a shape"),
        (
            Tensor(shape=(2,), dtype=FLOAT32, raw=memoryview(b"abcd")),
            "has 4 bytes for a tensor of 8",
        ),
    ):
        graph.set_tensors(constant, (tensor,))
        with pytest.raises(GraphError, match=text):
            mgeserial.dumps(graph)
    graph = network()
    graph.set_params(graph.nodes[-1], graph.nodes[0].params)
    with pytest.raises(GraphError, match="takes parameters"):
        mgeserial.dumps(graph)
