"""The public way to read a model."""

from __future__ import annotations

import copy
import gzip
import io
import os
import pickle
import struct
import tempfile

import mge_builder as build
import numpy as np
import pytest
from corpus_cases import compact_root, iter_cases, load_npz

import mgeserial
from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import FormatError, GraphError, InputError, MgeError, ShapeError

ADD = ("Elemwise", {"mode": int(P.ElemwiseMode.ADD)})
PUBLIC = compact_root() / "public"


def network(names=("x",)):
    ops = [build.input_op(n, (2, 3)) for n in names]
    ops.append({"op": "Elemwise", "inputs": [0, len(names) - 1], "params": [ADD]})
    return build.v1(ops, [len(names)])


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "net.mge"
    found.write_bytes(network())
    return found


# --- sources -------------------------------------------------------------------------------------


def test_every_kind_of_source_gives_the_same_graph(path):
    data = path.read_bytes()
    with path.open("rb") as file, path.open("rb", buffering=0) as raw:
        sources = [
            str(path),
            path,
            os.fsencode(path) and os.fspath(path),
            data,
            bytearray(data),
            memoryview(data),
            memoryview(data).cast("B"),
            file,
            raw,
            io.BytesIO(data),
        ]
        for source in sources:
            graph = mgeserial.load(source).graph
            assert graph.input_names == ("x",)
            assert [n.op.name for n in graph.nodes] == ["Host2DeviceCopy", "Elemwise"]


def test_paths_are_remembered_and_bytes_have_none(path):
    assert mgeserial.load(path).info.path == str(path)
    assert mgeserial.load(path.read_bytes()).info.path is None


def test_an_open_file_is_read_from_its_position(path):
    data = path.read_bytes()
    with tempfile.TemporaryFile() as file:
        file.write(b"something before" + data)
        file.seek(len(b"something before"))
        assert len(mgeserial.load(file).graph.nodes) == 2
    stream = io.BytesIO(b"12345" + data)
    stream.seek(5)
    assert len(mgeserial.load(stream).graph.nodes) == 2


def test_a_stream_that_unpacks_is_read_unpacked(tmp_path):
    packed = tmp_path / "net.mge.gz"
    packed.write_bytes(gzip.compress(network()))
    with gzip.open(packed) as file:
        assert len(mgeserial.load(file).graph.nodes) == 2
    with pytest.raises(FormatError, match="gunzip"):
        mgeserial.load(packed)


def test_a_bytearray_may_change_after_loading():
    data = bytearray(build.v1([build.constant_op(struct.pack("<f", 2.5), (1,))], [0]))
    tensor = mgeserial.load(data).graph.nodes[0].tensors[0]
    data[:] = bytes(len(data))
    assert tensor.numpy()[0] == 2.5


@pytest.mark.parametrize("source", [None, 7, ["net.mge"], object()])
def test_other_sources_are_an_input_error(source):
    with pytest.raises(InputError, match="expected a path, bytes or an open binary file"):
        mgeserial.load(source)


def test_a_text_file_must_be_opened_as_binary(path):
    with path.open(errors="replace") as file, pytest.raises(InputError, match="text mode"):
        mgeserial.load(file)


def test_a_closed_file_or_one_open_for_writing_is_an_input_error(path, tmp_path):
    with path.open("rb") as file:
        pass
    with pytest.raises(InputError, match="cannot be read"):
        mgeserial.load(file)
    with (tmp_path / "new").open("wb") as file, pytest.raises(InputError, match="cannot be read"):
        mgeserial.load(file)


def test_a_memoryview_with_gaps_is_an_input_error():
    with pytest.raises(InputError, match="contiguous"):
        mgeserial.load(memoryview(network())[::2])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.mge")
    with pytest.raises(InputError, match="not a regular file"):
        mgeserial.load(tmp_path / "pipe.mge")


def test_iter_graphs_gives_one_graph_after_another(path):
    data = path.read_bytes()
    graphs = mgeserial.iter_graphs(io.BytesIO(data + data))
    assert len(next(graphs).nodes) == 2
    assert len(next(graphs).nodes) == 2
    with pytest.raises(StopIteration):
        next(graphs)


def test_iter_graphs_gives_the_graphs_before_a_damaged_one():
    graphs = mgeserial.iter_graphs(io.BytesIO(network() + network()[:60]))
    assert len(next(graphs).nodes) == 2
    with pytest.raises(FormatError, match="truncated"):
        next(graphs)


# --- graphs --------------------------------------------------------------------------------------


def test_values_know_their_producer_and_their_users():
    graph = mgeserial.load(network(("a", "b"))).graph
    a, b = graph.inputs
    add = graph.nodes[2]
    assert add.inputs == (a, b)
    assert a.users == b.users == (add,)
    assert add.outputs[0].node is add
    assert add.outputs[0].users == ()
    assert graph.outputs == add.outputs
    assert [n.index for n in graph.nodes] == [0, 1, 2]


def test_a_value_used_twice_has_one_user():
    graph = mgeserial.load(network()).graph
    assert graph.nodes[1].inputs == (graph.inputs[0],) * 2
    assert graph.inputs[0].users == (graph.nodes[1],)


def test_links_are_whole_in_every_corpus_file():
    for case in iter_cases(compact_root()):
        for model in case.models():
            for graph in mgeserial.load(model.path).graphs:
                seen = set()
                for node in graph.nodes:
                    assert all(v in seen for v in node.inputs)
                    assert all(node in v.users for v in node.inputs)
                    assert all(v.node is node for v in node.outputs)
                    seen.update(node.outputs)
                assert all(v in seen for v in graph.outputs)


def test_shapes_and_dtypes_are_known_without_running():
    value = mgeserial.load(network()).graph.outputs[0]
    assert value.shape == (2, 3)
    assert value.dtype.kind is DTypeEnum.Float32


def test_shapes_that_do_not_fit_are_an_error_when_asked_for():
    ops = [build.input_op("a", (2, 3)), build.input_op("b", (4, 5))]
    ops.append({"op": "Elemwise", "inputs": [0, 1], "params": [ADD], "name": "sum"})
    graph = mgeserial.load(build.v1(ops, [2])).graph
    with pytest.raises(ShapeError) as caught:
        _ = graph.outputs[0].shape
    text = str(caught.value)
    assert 'operator 2 "sum" (Elemwise)' in text
    assert "(2, 3)" in text
    assert "(4, 5)" in text
    assert "oprs[2]" in text


def test_repeated_and_missing_output_names_become_unique():
    ops = [build.input_op("x", (1,))]
    for name in (["y"], ["y"], None, ["y#1"]):
        op = {"op": "Identity", "inputs": [0], "params": [("Empty", {})]}
        ops.append(op if name is None else {**op, "output_name": name})
    graph = mgeserial.load(build.v1(ops, [1, 2, 3, 4, 1])).graph
    assert graph.output_names == ("y", "y#1", "unnamed2", "y#1#1", "y#2")


def test_many_outputs_of_one_name_take_no_quadratic_time():
    ops = [{**build.input_op("x", (1,)), "output_name": ["x"]}]
    graph = mgeserial.load(build.v1(ops, [0] * 50_000)).graph
    names = graph.output_names
    assert len(set(names)) == 50_000


def test_parameters_decode_on_first_touch_and_raise_the_same_error_again():
    ops = [build.input_op("x", (1,)), {"op": "Concat", "inputs": [0]}]
    ops[1]["params"] = [("Empty", {})]
    graph = mgeserial.load(build.v1(ops, [1])).graph
    texts = set()
    for _ in range(3000):  # decoding again and again would use up the work that a file may cause
        with pytest.raises(FormatError, match="needs parameters Axis") as caught:
            _ = graph.nodes[1].param
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_parameters_are_frozen_and_compare_by_value():
    one = mgeserial.load(network()).graph.nodes[1].param
    two = mgeserial.load(network()).graph.nodes[1].param
    assert one == two
    assert hash(one) == hash(two)
    assert one is not two
    with pytest.raises(AttributeError, match="frozen"):
        one.mode = P.ElemwiseMode.SUB
    assert one.replace(mode=P.ElemwiseMode.SUB) != one
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_an_operator_without_parameters_says_so():
    graph = mgeserial.load(build.v1([build.constant_op(b"\0" * 4, (1,))], [0])).graph
    with pytest.raises(GraphError, match="has no parameters"):
        _ = graph.nodes[0].param


def test_tensors_are_views_that_cannot_be_written():
    data = build.v1([build.constant_op(struct.pack("<2f", 1, 2), (2,))], [0])
    array = mgeserial.load(data).graph.nodes[0].tensors[0].numpy()
    assert not array.flags.writeable
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5


def test_an_empty_tensor_of_absurd_dimensions_is_an_error_when_touched():
    huge = 2**32 - 1
    op = build.constant_op(b"", (0, huge, huge, huge))
    for make in (build.v1, build.v2):
        tensor = mgeserial.load(make([op], [0])).graph.nodes[0].tensors[0]
        assert tensor.size == 0
        if tensor.has_value:
            with pytest.raises(FormatError, match="too many places"):
                tensor.numpy()
        else:
            with pytest.raises(MgeError, match="no value stored"):
                tensor.numpy()


def test_quantised_types_carry_scale_and_zero_point():
    op = build.constant_op(bytes([0, 128, 255]), (3,))
    op["tensors"][0]["dtype"] = build.dtype(11, 0.5, 128)
    tensor = mgeserial.load(build.v1([op], [0])).graph.nodes[0].tensors[0]
    assert (tensor.dtype.scale, tensor.dtype.zero_point) == (0.5, 128)
    assert tensor.numpy().tolist() == [0, 128, 255]


def test_a_quantised_type_without_parameters_is_refused():
    op = build.constant_op(bytes(3), (3,), 13)
    with pytest.raises(FormatError, match="QuantizedS8 without quantisation parameters"):
        mgeserial.load(build.v1([op], [0]))


@pytest.mark.parametrize("kind", [22, 127, -1])
def test_an_unknown_element_type_is_refused(kind):
    with pytest.raises(FormatError, match=f"dtype number {kind} is not known"):
        mgeserial.load(build.v1([build.input_op("x", (1,), kind)], [0]))


def test_more_than_seven_dimensions_are_refused():
    with pytest.raises(FormatError, match="at most 7 dimensions, got 8"):
        mgeserial.load(build.v1([build.input_op("x", (1,) * 8)], [0]))


def test_metadata_stays_bytes():
    info = pickle.dumps({"a": 1})
    graph = mgeserial.load(
        build.v1(
            [build.input_op("x", (1,))],
            [0],
            metadata={"is_valid": True, "user_info": info, "optimize_options": 64},
        )
    ).graph
    assert graph.metadata.user_info == info
    assert graph.metadata.optimize_options == 64


def test_names_are_shown_escaped_in_errors():
    ops = [build.input_op("x", (2,)), build.input_op("y", (3,))]
    ops.append({"op": "Elemwise", "inputs": [0, 1], "params": [ADD], "name": "a\x1b[2Jb\u202ec\n"})
    graph = mgeserial.load(build.v1(ops, [2])).graph
    with pytest.raises(ShapeError) as caught:
        _ = graph.outputs[0].shape
    text = str(caught.value)
    assert text.isprintable()
    assert "a\\x1b[2Jb\\x202ec\\x0a" in text


def test_errors_survive_pickling():
    with pytest.raises(FormatError) as caught:
        mgeserial.load(b"<html>")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.hint == caught.value.hint


# --- public files --------------------------------------------------------------------------------


def test_the_xornet_pair_has_one_graph_and_two_sets_of_weights():
    one, two = [mgeserial.load(p) for p in sorted(PUBLIC.glob("*xornet*.mge"))]
    assert one.info.graphs[0].hash == two.info.graphs[0].hash == 0xBC733D6F59AC7183
    first, second = ([t.numpy() for n in m.graph.params for t in n.tensors] for m in (one, two))
    assert [a.shape for a in first] == [a.shape for a in second]
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_stored_test_cases_equal_those_of_the_corpus():
    case = next(c for c in iter_cases(compact_root()) if c.name.startswith("testcases_1_13"))
    for model in case.models():
        found = mgeserial.load(model.path).testcases
        assert found
        stored = load_npz(case.path / case.case["runs"][0]["inputs"])
        for name, array in stored.items():
            if name in found[0]:
                np.testing.assert_array_equal(found[0][name], array)
