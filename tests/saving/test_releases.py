"""What each release has, and what it lacks: tables, numbers, ids, outputs."""

from __future__ import annotations

import struct

import mge_builder as mb
import numpy as np
import pytest
from corpus_cases import compact_root, iter_models
from mge_builder import Slots
from records import graph_meaning, raw_records

import mgeserial
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.convert.ids import output_slots
from mgeserial.dtypes import DType, DTypeEnum, quantized
from mgeserial.errors import ConversionError, InputError
from mgeserial.format import history
from mgeserial.format.container import Layout, open_source, walk
from mgeserial.format.flatbuf import TableDef
from mgeserial.format.params_codec import table_of
from mgeserial.format.target import Target
from mgeserial.format.versions import RELEASES
from mgeserial.ir.graph import Graph, Metadata, Output
from mgeserial.ir.tensor import Tensor
from mgeserial.ops.registry import by_name

WIDE = TableDef("any", (), False, 0, 1, 40, (1,) * 40, {})


def one(op: str, *records, inputs: int = 1, outputs: int = 1, **more) -> Graph:
    """A graph of one operator on as many inputs."""
    b = GraphBuilder()
    for i in range(inputs):
        b.input(f"x{i}", (1, 4, 6, 6))
    b.output(b.input("last", (1,)), "seen")
    graph = b.graph()
    graph.set_outputs([])
    graph.remove(graph.nodes[-1])
    given = list(graph.values())
    node = graph.add(by_name(op), given, outputs=outputs, params=records, **more)
    graph.set_outputs([Output(node.outputs[-1], None, 0)])
    graph.metadata = None
    return graph


def raw(data: bytes):
    return next(walk(open_source(data), Layout()))


def problems(graph: Graph, format: str = "mgbs", release: str = "0.5.1") -> list[str]:
    with pytest.raises(ConversionError) as caught:
        mgeserial.dumps(graph, format=format, release=release)
    return [p.reason for p in caught.value.problems]


def last_param_slots(data: bytes) -> dict[int, int]:
    """{slot: u32} of the first parameter table of the last operator."""
    item = raw(data).operators[-1]
    buf = item.decode_params.__closure__[0].cell_contents.buf
    pos = item.param_refs[0][1]
    at = buf.layout(pos, WIDE)
    return {slot: buf.u32(pos + at[slot]) for slot in range(30) if at[slot]}


# --- containers and names of releases -------------------------------------------------------------


def test_a_release_is_named_with_or_without_v():
    assert Target.of("v1", "1.9.0") == Target.of("MGBC", "v1.9.0")
    with pytest.raises(InputError, match=r"no release of MegEngine is called '1\.13\.9'") as caught:
        Target.of("v2", "1.13.9")
    assert "v1.13" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no format is called 'onnx'"):
        Target.of("onnx")


@pytest.mark.parametrize(
    ("format", "release", "since"),
    [("v2", "1.9.1", r"v1\.10\.0"), ("v1", "1.7.0", r"v1\.7\.0\.m1"), ("v1", "0.5.1", "m1")],
)
def test_releases_that_cannot_read_a_container_are_refused(format, release, since):
    with pytest.raises(InputError, match=f"cannot read {format}, which exists since .*{since}"):
        mgeserial.dumps(one("Identity"), format=format, release=release)


@pytest.mark.parametrize("release", RELEASES)
def test_files_carry_the_number_of_their_release(release):
    data = mgeserial.dumps(one("Identity", P.Empty()), format="mgbs", release=release)
    found = raw(data)
    assert found.version == RELEASES[release]
    assert data[:16] == b"MGBS" + bytes(12)
    # Graph.metadata exists, and is always stored, since v1.5.0.
    has = list(RELEASES).index(release) >= list(RELEASES).index("v1.5.0")
    assert (found.metadata is not None) == has


# --- v0.5.1 ---------------------------------------------------------------------------------------


def test_v0_5_1_has_unversioned_ids_and_neither_metadata_nor_operator_names():
    b = GraphBuilder()
    x = b.input("data", (1, 3, 8, 8))
    w = b.param(np.ones((4, 3, 3, 3), np.float32), "w")
    b.output(b.relu(b.conv2d(x, w, padding=1)), "prob")
    data = mgeserial.dumps(b.graph(), format="mgbs", release="0.5.1")
    found = raw(data)
    assert found.version == 800500
    assert found.metadata is None
    ids = {item.type_id for item in found.operators}
    # operators.json: Host2DeviceCopy, SharedDeviceTensor, Convolution, Elemwise.
    assert ids >= {
        11501548436123901713, 6084106446169059487, 1005859804226725325, 15475644582354676744,
    }  # fmt: skip
    assert found.shared_tensors == 1
    assert all(item.name is None for item in found.operators)
    assert mgeserial.load(data).info.graphs[0].release == "v0.5.1"


def test_v0_5_1_lists_everything_it_lacks_in_one_error():
    b = GraphBuilder()
    x = b.input("data", (1, 3, 8, 8))
    y = b.elemwise(x, mode="RELU6", name="six")
    z = b.apply("Softmax", [y], (P.Softmax(axis=1),), name="soft")[0]
    b.output(z, "out")
    graph = b.graph()
    graph.metadata = Metadata(optimize_options=64)
    with pytest.raises(ConversionError) as caught:
        mgeserial.dumps(graph, format="mgbs", release="0.5.1")
    reasons = {(p.name, p.reason) for p in caught.value.problems}
    assert ("six", "Elemwise.mode RELU6 exists since v1.12.0") in reasons
    assert ("soft", "the operator exists since v1.8.0") in reasons
    shared = {reason for name, reason in reasons if not name}
    assert any("names of operators (2) are kept since v1.3.0" in r for r in shared)
    assert any("metadata" in r and "v1.5.0" in r for r in shared)
    text = str(caught.value)
    assert text.startswith("mgbs of v0.5.1 cannot express ")
    assert 'operator 1 (Elemwise) "six": Elemwise.mode RELU6 exists since v1.12.0' in text


def test_what_says_nothing_is_no_reason_to_refuse():
    graph = one("Identity", P.Empty())
    graph.metadata = Metadata(is_valid=True, user_info=b"\x80\x04N.")
    assert raw(mgeserial.dumps(graph, format="mgbs", release="0.5.1")).metadata is None
    graph.metadata = Metadata(optimize_options=1)
    data = mgeserial.dumps(graph, format="mgbs", release="0.5.1", keep_metadata=False)
    assert raw(data).metadata is None


@pytest.mark.parametrize(
    ("release", "number"),
    [("0.3.1", 9), ("0.4.0", 11), ("0.5.1", 12), ("1.2.0", 18), ("1.3.0", 15), ("1.6.0", 15)],
)
def test_layout_formats_have_the_numbers_of_the_release(release, number):
    format = P.ConvolutionFormat.CHWN4
    data = mgeserial.dumps(one("Pooling", P.Pooling(format=format)), format="mgbs", release=release)
    slots = last_param_slots(data)
    table = table_of(P.Pooling.UNION_ID)
    assert table is not None
    assert slots == {table.by_name["format"].slot: number}
    assert mgeserial.load(data).graph.nodes[-1].param.format == format


def test_conv_bias_has_its_compute_mode_in_slot_11_up_to_v1_2():
    record = P.ConvBias(compute_mode=P.ConvolutionV1ComputeMode.FLOAT32)
    graph = one("ConvBiasForward", record, P.ExecutionPolicy(), inputs=2)
    for release, slot in (("0.5.1", 11), ("1.2.0", 11), ("1.3.0", 10)):
        data = mgeserial.dumps(graph, format="mgbs", release=release)
        assert last_param_slots(data) == {slot: 1}
        assert mgeserial.load(data).graph.nodes[-1].param == record


def test_execution_policy_is_a_plain_enum_up_to_v1_2():
    S = P.ExecutionPolicyStrategy
    for strategy, number in (
        (S.HEURISTIC, None),  # 0, the default
        (S.HEURISTIC | S.REPRODUCIBLE, 1),
        (S.PROFILE, 2),
        (S.PROFILE | S.REPRODUCIBLE, 3),
        (S.HEURISTIC | S.PROFILE, 4),
    ):
        policy = P.ExecutionPolicy(strategy=strategy)
        graph = one("Convolution", P.Convolution(), policy, inputs=2)
        data = mgeserial.dumps(graph, format="mgbs", release="1.2.0")
        item = raw(data).operators[-1]
        buf = item.decode_params.__closure__[0].cell_contents.buf
        pos = item.param_refs[1][1]
        at = buf.layout(pos, WIDE)[0]
        assert (buf.u32(pos + at) if at else None) == number
        assert mgeserial.load(data).graph.nodes[-1].params[1] == policy
    bad = one("Convolution", P.Convolution(), P.ExecutionPolicy(strategy=S.OPTIMIZED), inputs=2)
    assert problems(bad) == ["ExecutionPolicy.strategy OPTIMIZED exists since v1.3.0"]


def test_images2neibs_moves_its_window_and_random_numbers_lack_a_dtype():
    record = P.Images2Neibs(window_h=5, window_w=2)
    data = mgeserial.dumps(one("Images2Neibs", record), format="mgbs", release="1.3.0")
    assert last_param_slots(data) == {4: 5, 5: 2}
    assert mgeserial.load(data).graph.nodes[-1].param == record
    late = P.Images2Neibs(dilate_h=2)
    assert problems(one("Images2Neibs", late)) == ["Images2Neibs.dilate_h exists since v1.4.0"]
    rng = one("UniformRNG", P.UniformRNG(dtype=DTypeEnum.Float16))
    assert problems(rng, release="1.4.0") == ["UniformRNG.dtype exists since v1.5.0"]


def test_a_field_that_only_an_old_layout_has_goes_back_to_that_layout_alone():
    # ConvBias of v0.5.1: slot 10 is the block of winograd, which today's table lacks.
    op = {"op": "ConvBiasForward", "inputs": [0, 0]}
    op["params"] = [("ConvBias", Slots({10: ("I", 2)})), ("ExecutionPolicy", {})]
    ops = [mb.input_op("x", (1, 1, 4, 4)), op]
    data = mb.v1(ops, [1], magic=b"MGBS", version=800500)
    model = mgeserial.load(data)
    again = mgeserial.dumps(model, format="mgbs", release="0.5.1")
    assert last_param_slots(again) == {10: 2}
    assert problems(model.graph, "v1", "1.13.0") == [
        "ConvBias.output_block_size, a field of v0.5.1, exists no longer"
    ]


def test_multi_head_attention_of_v1_12_3_is_another_thing():
    graph = one("MultiHeadAttn", P.MultiHeadAttn(), inputs=7, outputs=4)
    assert mgeserial.dumps(graph, format="v2", release="1.12.4")
    assert problems(graph, "v2", "1.12.3") == ["MultiHeadAttn is described otherwise in v1.12.3"]


def test_enum_members_that_are_gone_go_to_releases_that_had_them():
    number = history.enum_numbers("Convolution", "format", "v0.5.1")[9]  # NCHW_WINOGRAD
    graph = one("Convolution", P.Convolution(format=P.ConvolutionFormat(number)),
                P.ExecutionPolicy(), inputs=2)  # fmt: skip
    assert problems(graph, "v1", "1.13.0") == [
        "Convolution.format NCHW_WINOGRAD exists up to v1.2.0 only"
    ]
    for release, stored in (("0.3.1", 7), ("0.5.1", 9), ("1.2.0", 9)):
        data = mgeserial.dumps(graph, format="mgbs", release=release)
        assert stored in last_param_slots(data).values()
        assert mgeserial.load(data).graph.nodes[-1].param.format == number


def test_element_types_exist_from_their_release_on():
    for kind, since in ((DTypeEnum.Bool, "v1.0.0-rc1"), (DTypeEnum.Uint16, "v1.2.0")):
        graph = one("TypeCvt", P.ElementType(dtype=DType(kind)))
        assert problems(graph) == [f"element type {kind.name} exists since {since}"]
    graph = one("Identity", P.Empty(), output_dtype=DType(DTypeEnum.Complex64))
    assert problems(graph) == ["element type Complex64 exists since v1.12.4"]
    assert mgeserial.dumps(graph, format="v2", release="1.12.4")


def test_rows_of_4_bits_are_padded_from_v1_5_on():
    dtype = quantized("QuantizedS4", 1.0)
    array = np.array([[1, -2, 3], [4, -5, 6]], np.int8)
    graph = Graph()
    tensor = Tensor.of(array, dtype)
    (value,) = graph.add(by_name("SharedDeviceTensor"), (), tensors=(tensor,)).outputs
    graph.set_outputs([Output(value, "w", 0)])
    sizes = {}
    for release in ("1.4.0", "1.5.0", "1.13.0"):
        data = mgeserial.dumps(graph, format="mgbs", release=release)
        sizes[release] = struct.unpack_from("<Q", data, 8)[0]
        found = mgeserial.load(data)
        np.testing.assert_array_equal(found.graph.nodes[0].tensors[0].numpy(), array)
        # And from a loaded file into the other packing.
        for other in ("1.4.0", "1.13.0"):
            again = mgeserial.load(mgeserial.dumps(found, format="mgbs", release=other))
            np.testing.assert_array_equal(again.graph.nodes[0].tensors[0].numpy(), array)
    assert sizes == {"1.4.0": 3, "1.5.0": 4, "1.13.0": 4}


# --- outputs --------------------------------------------------------------------------------------


def batch_norm(mode: P.BNFwdMode, inputs: int, outputs: int) -> Graph:
    return one("BatchNorm", P.BN(fwd_mode=mode), inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("release", "mode", "inputs", "count"),
    [
        ("0.5.1", "INFERENCE", 5, 5),  # up to v0.6.0 five inputs have five ids
        ("0.5.1", "INFERENCE", 3, 3),
        ("0.5.1", "TRAINING", 5, 5),
        ("1.4.0", "INFERENCE", 5, 3),
        ("1.4.0", "TRAINING", 5, 5),
        ("1.7.0", "INFERENCE", 5, 4),
        ("1.7.0", "TRAINING", 5, 6),
        ("1.13.0", "INFERENCE", 3, 4),
    ],
)
def test_batch_norm_has_the_outputs_of_the_release(release, mode, inputs, count):
    training = mode == "TRAINING" and inputs == 5
    graph = batch_norm(P.BNFwdMode[mode], inputs, 6 if training else 4)
    data = mgeserial.dumps(graph, format="mgbs", release=release)
    found = mgeserial.load(data)
    node = found.graph.nodes[-1]
    assert len(node.outputs) == count
    assert found.graph.outputs == (node.outputs[-1],)
    # And back to the outputs of today.
    again = mgeserial.load(mgeserial.dumps(found, format="v1")).graph
    assert len(again.nodes[-1].outputs) == (6 if training else 4)
    assert again.outputs == (again.nodes[-1].outputs[-1],)


def test_an_output_that_is_used_and_does_not_exist_there_is_a_problem():
    graph = batch_norm(P.BNFwdMode.INFERENCE, 5, 4)
    node = graph.nodes[-1]
    graph.set_outputs([Output(node.outputs[2], "reserve", 0)])
    assert problems(graph, release="1.4.0") == [
        "its output `reserve` is used and does not exist in v1.4.0"
    ]
    slots, reasons = output_slots(node, Target.of("v1"))
    assert (slots, reasons) == (list(node.outputs), [])


def test_check_non_finite_had_the_flag_alone_in_v1_7_0():
    graph = one("CheckNonFinite", P.CheckNonFinite(), inputs=2, outputs=3)
    data = mgeserial.dumps(graph, format="mgbs", release="1.7.0")
    found = mgeserial.load(data).graph.nodes[-1]
    assert len(found.outputs) == 1
    assert len(mgeserial.load(mgeserial.dumps(graph, format="v1")).graph.nodes[-1].outputs) == 3
    scaled = one("CheckNonFinite", P.CheckNonFinite(scale=2.0), inputs=2, outputs=3)
    assert problems(scaled, release="1.7.0") == ["parameters CheckNonFinite exist since v1.7.2.m1"]


# --- ids ------------------------------------------------------------------------------------------


def test_ids_are_those_the_release_writes():
    graph = one("ElemwiseMultiType", P.ElemwiseMultiType(), inputs=3)
    for release, number in (
        ("1.10.0", 7505243245230068554),
        ("1.11.0", 5459241759317220529),  # with its NUL byte, in this release alone
        ("1.12.0", 7505243245230068554),
    ):
        item = raw(mgeserial.dumps(graph, format="v2", release=release)).operators[-1]
        assert (item.type_id, item.version) == (number, 1)
    graph = one("Convolution", P.Convolution(), P.ExecutionPolicy(), inputs=2)
    item = raw(mgeserial.dumps(graph, format="v2")).operators[-1]
    assert (item.type_name, item.version, item.type_id) == ("Convolution", 2, 13553933750987029374)
    item = raw(mgeserial.dumps(graph, format="v1", release="1.8.0")).operators[-1]
    assert item.type_id == 398888935463796127


def test_operators_exist_from_and_up_to_their_releases():
    assert problems(one("Softmax", P.Softmax()), "v1", "1.7.0.m1") == [
        "the operator exists since v1.8.0"
    ]
    assert problems(one("CheckHasInf", P.Empty()), "v1", "1.13.0") == [
        "the operator exists up to v1.6.0 only"
    ]
    rng = one("ExponentialRNG", P.ExponentialRNG())
    assert problems(rng, "v2", "1.13.4")[0].startswith("v2 has no")
    assert mgeserial.dumps(rng, format="v1", release="1.13.4")


@pytest.mark.parametrize("release", ["0.3.1", "0.5.1", "1.2.0", "1.4.0", "1.6.0", "1.7.0"])
def test_corpus_networks_that_a_release_can_express_keep_their_meaning(release):
    fitting = 0
    for _case, model in iter_models(compact_root(), ["conv", "elemwise", "pool_norm"]):
        loaded = mgeserial.load(model.path)
        try:
            data = mgeserial.dumps(
                loaded, format="mgbs", release=release, keep_metadata=False, keep_opr_name=False
            )
        except ConversionError:
            continue
        fitting += 1
        again = mgeserial.load(data)
        before, after = graph_meaning(loaded.graph), graph_meaning(again.graph)
        if any(n.op.name in ("BatchNorm", "CheckNonFinite") for n in loaded.graph.nodes):
            continue  # other numbers of ids, which tests above look at
        before["metadata"] = after["metadata"] = None
        assert after == before
        again.graph.metadata = loaded.graph.metadata
        assert raw_records(mgeserial.dumps(again, format="v1"))
    assert fitting > 5
