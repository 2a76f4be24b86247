"""Content of newer releases is written back unchanged, or refused; never dropped."""

from __future__ import annotations

import struct

import mge_builder as mb
import numpy as np
import pytest
from mge_builder import Extra, Slots

import mgeserial
from mgeserial.errors import ConversionError, UnsupportedError
from mgeserial.format.container import Layout, open_source, walk
from mgeserial.format.flatbuf import Buffer, TableDef
from mgeserial.format.raw import Opaque

# Of every shape: numbers that look like offsets, offsets to texts, vectors and nested tables.
NEW = {
    20: ("I", 16),
    21: ("text", "a newer field"),
    22: ("Q", 0x1122334455667788),
    23: ("texts", ["one", "two"]),
    24: ("table", {0: ("B", 7), 1: ("text", "inside"), 3: ("bytes", b"\1\2\3\4\5")}),
    25: ("?", True),
}
WIDE = TableDef("any", (), False, 0, 1, 40, (1,) * 40, {})


def slots_of(buf: Buffer, pos: int) -> dict[int, int]:
    """Positions of the fields of a table from slot 20 on."""
    at = buf.layout(pos, WIDE)
    return {slot: pos + at[slot] for slot in range(20, 40) if at[slot]}


def check_new(opaque: Opaque | None) -> None:
    """All of NEW is there and means the same."""
    assert opaque is not None
    buf = Buffer(opaque.buffer.data, budget=1 << 20)
    at = slots_of(buf, opaque.pos)
    assert set(at) == set(NEW)
    assert buf.u32(at[20]) == 16
    assert buf.text(at[21]) == "a newer field"
    assert at[22] % 8 == 0
    assert struct.unpack_from("<Q", buf.data, at[22])[0] == 0x1122334455667788
    assert buf.texts(at[23]) == ("one", "two")
    inner = buf.follow(at[24])
    places = buf.layout(inner, WIDE)
    assert buf.data[inner + places[0]] == 7
    assert buf.text(inner + places[1]) == "inside"
    assert buf.u8s(inner + places[3]) == b"\1\2\3\4\5"
    assert buf.data[at[25]] == 1


def raw(data: bytes):
    return next(walk(open_source(data), Layout()))


def elemwise(**more):
    return {"op": "Elemwise", "params": [("Elemwise", {"mode": 1})], "inputs": [0], **more}


MAKERS = {"v1": mb.v1, "v2": mb.v2}


@pytest.mark.parametrize("form", MAKERS)
def test_fields_of_an_operator_stay_while_the_known_ones_are_edited(form):
    op = elemwise(**{"+": NEW})
    data = MAKERS[form]([mb.input_op("x", (2, 3)), op], [1])
    model = mgeserial.load(data)
    node = model.graph.nodes[1]
    node.name = "renamed"
    model.graph.touch()
    again = raw(mgeserial.dumps(model))
    check_new(again.operators[1].unknown)
    assert again.operators[1].name == "renamed"
    assert again.operators[1].inputs == (0,)


@pytest.mark.parametrize("form", MAKERS)
def test_fields_of_graph_metadata_tensor_and_parameters_stay(form):
    constant = mb.constant_op(np.arange(4, dtype=np.float32).tobytes(), (4,))
    constant["tensors"][0]["+"] = NEW
    op = {"op": "Elemwise", "params": [("Elemwise", Extra({"mode": 1}, NEW))], "inputs": [0]}
    root = {"+": NEW, "metadata": {"is_valid": True, "user_info": b"x", "+": NEW}}
    data = MAKERS[form]([constant, op], [1], **root)
    again = raw(mgeserial.dumps(mgeserial.load(data)))
    check_new(again.unknown)
    check_new(again.metadata.unknown)
    check_new(again.operators[0].tensors[0].unknown)
    (record,) = again.operators[1].decode_params(again.operators[1].param_refs)
    assert record.mode == 1
    check_new(record.extra)


@pytest.mark.parametrize("form", MAKERS)
def test_a_changed_parameter_keeps_its_unknown_fields(form):
    op = {"op": "Elemwise", "params": [("Elemwise", Extra({"mode": 1}, NEW))], "inputs": [0]}
    model = mgeserial.load(MAKERS[form]([mb.input_op("x", (2,)), op], [1]))
    node = model.graph.nodes[1]
    model.graph.set_params(node, (node.param.replace(mode=type(node.param.mode).TANH),))
    again = raw(mgeserial.dumps(model)).operators[1]
    (record,) = again.decode_params(again.param_refs)
    assert record.mode.name == "TANH"
    check_new(record.extra)


@pytest.mark.parametrize("form", MAKERS)
def test_an_unknown_union_member_is_copied_with_all_it_reaches(form):
    op = {"op": "Elemwise", "params": [(150, Slots(NEW))], "inputs": [0]}
    data = MAKERS[form]([mb.input_op("x", (2,)), op], [1])
    model = mgeserial.load(data)
    with pytest.raises(UnsupportedError, match="unknown kind 150"):
        _ = model.graph.nodes[1].params
    again = raw(mgeserial.dumps(model)).operators[1]
    (found,) = again.decode_params(again.param_refs)
    assert isinstance(found, Opaque)
    assert found.member == 150
    check_new(found)


@pytest.mark.parametrize("form", MAKERS)
def test_an_unknown_operator_is_written_back_with_its_id_and_version(form):
    op = {"type_id": 0xDEADBEEF12345678, "inputs": [0], "params": [("Axis", {"axis": 3})]}
    if form == "v2":
        op |= {"type": "Newest", "opr_version": 3}
    data = MAKERS[form]([mb.input_op("x", (2,)), op], [1])
    before, after = raw(data), raw(mgeserial.dumps(mgeserial.load(data)))
    for item in (before.operators[1], after.operators[1]):
        assert item.type_id == 0xDEADBEEF12345678
        assert (item.type_name, item.version) == (("Newest", 3) if form == "v2" else (None, 0))
        assert item.decode_params(item.param_refs)[0].axis == 3


def test_an_unknown_operator_has_no_id_elsewhere():
    op = {"type_id": 0xDEADBEEF12345678, "inputs": [0]}
    model = mgeserial.load(mb.v1([mb.input_op("x", (2,)), op], [1]))
    for format in ("v2", "mgbs"):
        with pytest.raises(ConversionError, match="not known, so neither is its id"):
            mgeserial.dumps(model, format=format)
    with pytest.raises(ConversionError, match=r"newer release than v1\.9\.0"):
        mgeserial.dumps(model, release="1.9.0")


def test_unknown_fields_do_not_go_to_another_container():
    model = mgeserial.load(mb.v1([mb.input_op("x", (2,)), elemwise(**{"+": NEW})], [1]))
    with pytest.raises(ConversionError) as caught:
        mgeserial.dumps(model, format="v2")
    assert [p.reason for p in caught.value.problems] == [
        "fields of a newer release in table Operator have no place"
    ]
    # Tables of parameters are those of both containers.
    op = {"op": "Elemwise", "params": [("Elemwise", Extra({"mode": 1}, NEW))], "inputs": [0]}
    model = mgeserial.load(mb.v1([mb.input_op("x", (2,)), op], [1]))
    again = raw(mgeserial.dumps(model, format="v2")).operators[1]
    check_new(again.decode_params(again.param_refs)[0].extra)


def test_fields_of_tables_that_nothing_carries_are_refused():
    op = mb.input_op("x", (2,))
    op["tensors"][0]["dtype"] = {"type": 0, "+": NEW}
    model = mgeserial.load(mb.v1([op], [0]))
    with pytest.raises(ConversionError, match="table DType are not kept"):
        mgeserial.dumps(model)


def test_two_saves_of_unknown_content_do_not_grow():
    data = mb.v1([mb.input_op("x", (2,)), elemwise(**{"+": NEW})], [1])
    once = mgeserial.dumps(mgeserial.load(data))
    sizes = [len(once)]
    for _ in range(4):
        once = mgeserial.dumps(mgeserial.load(once))
        sizes.append(len(once))
    assert max(sizes) <= 3 * len(data)
    check_new(raw(once).operators[1].unknown)


def test_content_that_points_everywhere_is_refused_not_multiplied():
    # Each operator's unknown text is one shared text at the far end of a large buffer.
    far = {21: ("text", "shared")}
    ops = [mb.constant_op(bytes(4000), (1000,))]
    ops += [elemwise(name="n" * 3000, **{"+": far}) for _ in range(60)]
    data = mb.v2(ops, [1])
    with pytest.raises(UnsupportedError, match=r"too entangled|too far"):
        mgeserial.dumps(mgeserial.load(data))


def test_an_unknown_union_member_without_a_vtable_is_a_format_error():
    op = {"op": "Elemwise", "params": [(150, Slots({}))], "inputs": [0]}
    data = bytearray(mb.v1([mb.input_op("x", (2,)), op], [1]))
    item = raw(bytes(data)).operators[1]
    at = raw(bytes(data)).meta_start + item.param_refs[0][1]
    struct.pack_into("<i", data, at, -0x1000000)
    with pytest.raises(mgeserial.FormatError, match="vtable"):
        mgeserial.dumps(mgeserial.load(bytes(data)))
