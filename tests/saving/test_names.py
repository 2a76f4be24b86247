"""Which names are written, and under which name outputs go."""

from __future__ import annotations

import mge_builder as mb
import numpy as np
import pytest
from records import graph_meaning

import mgeserial
from mgeserial.author import GraphBuilder
from mgeserial.errors import ConversionError, InputError
from mgeserial.format.container import Layout, open_source, walk
from mgeserial.ir.graph import Graph, Output


def network() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (2, 3))
    w = b.param(np.ones((1, 3), np.float32), "weight")
    y = b.relu(b.add(x, w, name="sum"))
    b.output(b.neg(y) if hasattr(b, "neg") else b.mul(y, 2.0), "prob")
    return b.graph()


def raw(data: bytes):
    return next(walk(open_source(data), Layout()))


def names(data: bytes) -> list[tuple[str, ...] | None]:
    return [item.output_names for item in raw(data).operators]


def test_v1_names_values_of_no_outputs_or_all():
    graph = network()
    assert names(mgeserial.dumps(graph, format="v1", keep_var_name=0)) == [None] * 6
    assert names(mgeserial.dumps(graph, format="v1", keep_var_name=1)) == [None] * 5 + [("prob",)]
    every = names(mgeserial.dumps(graph, format="v1", keep_var_name=2))
    assert every[0] == ("data",)
    assert every[-1] == ("prob",)
    assert None not in every
    kept = names(mgeserial.dumps(graph, format="v1"))
    named = [tuple(v.name for v in n.outputs) for n in graph.nodes]
    assert kept == [t if any(t) else None for t in named]


def test_v2_names_all_values_or_none():
    graph = network()
    assert raw(mgeserial.dumps(graph, format="v2", keep_var_name=0)).variables is None
    for keep in (None, 1, 2):
        variables = raw(mgeserial.dumps(graph, format="v2", keep_var_name=keep)).variables
        assert variables is not None
        assert len(variables) == 6
        assert all(v.name for v in variables)
        assert variables[0].shape == (2, 3)
    bare = mgeserial.load(mgeserial.dumps(graph, format="v1", keep_var_name=0))
    assert raw(mgeserial.dumps(bare, format="v2")).variables is None


def test_inputs_always_have_their_name():
    graph = network()
    for format in ("v1", "v2", "mgbs"):
        data = mgeserial.dumps(
            graph, format=format, keep_var_name=0, keep_param_name=False, keep_opr_name=False
        )
        assert mgeserial.load(data).graph.input_names == ("data",)


def test_names_of_parameters_are_kept_made_up_or_left_out():
    graph = network()

    def found(keep: bool | None) -> str | None:
        again = mgeserial.load(mgeserial.dumps(graph, keep_param_name=keep)).graph
        return next(n for n in again.nodes if n.op.name == "SharedDeviceTensor").tensors[0].name

    assert found(None) == "weight"
    assert found(False) is None
    node = next(n for n in graph.nodes if n.op.name == "SharedDeviceTensor")
    graph.set_tensors(node, (node.tensors[0].renamed(None),))
    assert found(None) is None
    assert found(True) == "weight"  # the name of its value
    # Constants have none in MegEngine's files.
    again = mgeserial.load(mgeserial.dumps(graph, keep_param_name=True)).graph
    assert [n.tensors[0].name for n in again.nodes if n.op.name == "ImmutableTensor"] == [None]


def test_names_of_operators_are_kept_made_up_or_left_out():
    graph = network()
    for format in ("v1", "v2"):
        kept = raw(mgeserial.dumps(graph, format=format)).operators
        assert [o.name for o in kept] == [n.name for n in graph.nodes]
        none = raw(mgeserial.dumps(graph, format=format, keep_opr_name=False)).operators
        assert not any(o.name for o in none)
        every = raw(mgeserial.dumps(graph, format=format, keep_opr_name=True)).operators
        assert all(o.name for o in every)


def test_an_output_may_have_another_name_than_its_value():
    graph = network()
    (out,) = graph.output_list
    graph.set_outputs([Output(out.value, "class", 7)])
    data = mgeserial.dumps(graph, format="v2")
    assert raw(data).aliases == ((7, "class"),)
    again = mgeserial.load(data).graph
    assert (again.output_names, again.outputs[0].name) == (("class",), "prob")
    # In v1 the value takes the name.
    old = mgeserial.load(mgeserial.dumps(again, format="v1")).graph
    assert (old.output_names, old.outputs[0].name) == (("class",), "class")


def test_one_value_with_two_output_names_is_for_v2_alone():
    graph = network()
    value = graph.outputs[0]
    graph.set_outputs([Output(value, "a", 1), Output(value, "b", 1)])
    again = mgeserial.load(mgeserial.dumps(graph, format="v2")).graph
    assert again.output_names == ("a", "b")
    with pytest.raises(ConversionError, match="output of several names: a, b"):
        mgeserial.dumps(graph, format="v1")


def test_original_ids_stay_keys():
    graph = network()
    nodes = graph.nodes
    graph.set_outputs([Output(nodes[-1].outputs[0], "a", 5), Output(nodes[0].outputs[0], "b", 5)])
    found = raw(mgeserial.dumps(graph, format="v2"))
    assert len({original for _, original in found.outputs}) == 2
    assert mgeserial.load(mgeserial.dumps(graph)).graph.output_names == ("a", "b")


def test_names_without_utf8_are_refused():
    graph = network()
    graph.nodes[-1].outputs[0].name = "bad\ud800"
    graph.set_outputs([Output(graph.outputs[0], "bad\ud800", 0)])
    with pytest.raises(InputError, match="not valid text"):
        mgeserial.dumps(graph)


def test_tensor_formats_move_between_blobs_and_tensors():
    blob = bytes([1, 0, 0, 0, 2])  # Image2DPack4, axis 2
    op = mb.constant_op(bytes(64), (1, 2, 2, 1, 4), op="MultipleDeviceTensorWithFormatHolder")
    op["blobs"] = [{"data": b"\1\0\0\0"}, {"data": blob}]
    model = mgeserial.load(mb.v1([op], [0]))
    v2 = mgeserial.dumps(model, format="v2")
    item = raw(v2).operators[0]
    assert item.tensors[0].format == (2, b"\2")
    assert not item.blob_refs
    back = raw(mgeserial.dumps(mgeserial.load(v2), format="v1")).operators[0]
    assert back.decode_blobs(back.blob_refs) == (b"\1\0\0\0", blob)


def test_convert_writes_files_for_other_releases(tmp_path):
    source, target = tmp_path / "a.mge", tmp_path / "b.mge"
    mgeserial.save(network(), source, keep_opr_name=False)
    saved = mgeserial.save(mgeserial.load(source), target, format="mgbs", release="0.5.1")
    assert saved.release == "v0.5.1"
    assert target.read_bytes()[:4] == b"MGBS"
    before, after = (graph_meaning(mgeserial.load(p).graph) for p in (source, target))
    before["metadata"] = after["metadata"] = None
    assert before == after
