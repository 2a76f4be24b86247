from __future__ import annotations

import struct

import mge_builder as build
import numpy as np
import pytest
from corpus_cases import compact_root, iter_cases, iter_models

import mgeserial
from mgeserial import params as P
from mgeserial.errors import FormatError, NotAModelError, UnsupportedError
from mgeserial.format.xxh64 import graph_hash

# Files of one plain graph, which can be rewritten as MGBS.
V1_FILES = [
    m
    for _, m in iter_models(compact_root())
    if m.tag == "v1"
    and m.path.read_bytes()[:4] == b"MGBC"
    and len(mgeserial.load(m.path).graphs) == 1
]
ADD = ("Elemwise", {"mode": int(P.ElemwiseMode.ADD)})
WEIGHTS = np.arange(6, dtype="<f4")


def network(**kwargs):
    """x + constant."""
    return build.v1(
        [
            build.input_op("x", (2, 3)),
            build.constant_op(WEIGHTS.tobytes(), (2, 3)),
            {"op": "Elemwise", "inputs": [0, 1], "params": [ADD]},
        ],
        [2],
        **kwargs,
    )


def network_v2():
    return build.v2(
        [
            build.input_op("x", (2, 3)),
            build.constant_op(WEIGHTS.tobytes(), (2, 3)),
            {"op": "Elemwise", "inputs": [0, 1], "params": [ADD]},
        ],
        [2],
    )


def case_v1(data=b"\0" * 24):
    return build.v1([build.constant_op(data, (2, 3), op="SharedDeviceTensor")], [0])


def case_v2(data=b"\0" * 24):
    return build.v2([build.constant_op(data, (2, 3), op="SharedDeviceTensor")], [0])


def contents(graph):
    """What a graph holds, comparable."""
    return [
        (
            n.op.name,
            n.name,
            [v.node.index for v in n.inputs],
            [v.name for v in n.outputs],
            n.params,
            n.comp_nodes,
            n.priority,
            n.output_dtype,
            [(t.name, t.shape, t.dtype, bytes(t.raw or b"")) for t in n.tensors],
            n.blobs,
        )
        for n in graph.nodes
    ]


@pytest.mark.parametrize("model", V1_FILES, ids=[str(m.path.parent.name) for m in V1_FILES])
def test_mgbs_files_read_like_the_mgbc_files_they_were_made_from(model):
    data = model.path.read_bytes()
    old = mgeserial.load(build.to_mgbs(data))
    new = mgeserial.load(data)
    assert old.info.graphs[0].container == "MGBS"
    assert contents(old.graph) == contents(new.graph)


@pytest.mark.parametrize("magic", [b"MGBS", b"MGBC"])
def test_v1_graph_has_inputs_constants_and_outputs(magic):
    graph = mgeserial.load(network(magic=magic, version=100700)).graph
    assert graph.input_names == ("x",)
    assert [n.op.name for n in graph.nodes] == ["Host2DeviceCopy", "ImmutableTensor", "Elemwise"]
    assert graph.nodes[2].param.mode is P.ElemwiseMode.ADD
    np.testing.assert_array_equal(graph.nodes[1].tensors[0].numpy().ravel(), WEIGHTS)
    assert graph.outputs == (graph.nodes[2].outputs[0],)


def test_v2_graph_reads_like_the_v1_graph():
    one, two = mgeserial.load(network()).graph, mgeserial.load(network_v2()).graph
    assert contents(one) == contents(two)


def test_v2_names_come_from_the_middle_tensors():
    data = build.v2(
        [build.input_op("x", (1,)), {"op": "Identity", "inputs": [0], "params": [("Empty", {})]}],
        [1],
        middle_tensors=[{"name": "x0"}, {"name": "y"}],
    )
    graph = mgeserial.load(data).graph
    assert graph.output_names == ("y",)
    assert graph.inputs[0].name == "x0"
    assert graph.input_names == ("x",)


def test_output_aliases_replace_the_outputs():
    data = build.v2(
        [build.input_op("x", (1,)), build.input_op("z", (1,))],
        [0, 1],
        output_alias=[{"id": 101, "name": "second"}, {"id": 100, "name": "first"}],
    )
    graph = mgeserial.load(data).graph
    assert graph.output_names == ("second", "first")
    assert [v.node.index for v in graph.outputs] == [1, 0]


def test_an_alias_of_no_output_is_refused():
    data = build.v2([build.input_op("x", (1,))], [0], output_alias=[{"id": 7, "name": "y"}])
    with pytest.raises(FormatError, match="alias 'y' names id 7"):
        mgeserial.load(data)


@pytest.mark.parametrize(
    "parts",
    [
        (network, network),
        (network, network_v2),
        (network_v2, network),
        (network_v2, network_v2, network),
    ],
    ids=lambda parts: "+".join(p.__name__ for p in parts),
)
def test_graphs_stand_one_after_another_in_any_container(parts):
    pieces = [p() for p in parts]
    model = mgeserial.load(b"".join(pieces))
    assert len(model.graphs) == len(parts)
    starts = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    assert [g.start for g in model.info.graphs] == starts
    assert model.info.graphs[-1].end == sum(map(len, pieces))
    for graph in model.graphs:
        np.testing.assert_array_equal(graph.nodes[1].tensors[0].numpy().ravel(), WEIGHTS)


@pytest.mark.parametrize("main", [network, network_v2])
@pytest.mark.parametrize("case", [case_v1, case_v2])
def test_cases_of_any_container_follow_a_network(main, case):
    value = np.full((2, 3), 4, "<f4")
    model = mgeserial.load(build.with_cases(main(), [case(value.tobytes()), case()]))
    assert model.info.testcases == 2
    assert len(model.graphs) == 3
    assert len(model.networks) == 1
    first, second = model.testcases
    np.testing.assert_array_equal(first["x"], value)
    assert not second["x"].any()


def test_values_of_a_case_belong_to_the_inputs_in_order_of_names():
    main = build.v1([build.input_op(n, (1,)) for n in ("b", "a", "B", "é")], [0])
    values = [build.constant_op(struct.pack("<f", i), (1,)) for i in range(4)]
    case = mgeserial.load(build.with_cases(main, [build.v1(values, range(4))])).testcases[0]
    assert {k: float(v[0]) for k, v in case.items()} == {"B": 0.0, "a": 1.0, "b": 2.0, "é": 3.0}


def test_fewer_cases_than_declared_is_an_error():
    with pytest.raises(FormatError, match="declares 3 test cases and holds 1"):
        mgeserial.load(build.with_cases(network(), [case_v1()], count=3))


def test_a_case_of_too_few_values_is_an_error():
    main = build.v1([build.input_op("x", (1,)), build.input_op("y", (1,))], [0])
    model = mgeserial.load(build.with_cases(main, [case_v1()]))
    with pytest.raises(FormatError, match="test case 0 has 1 values for 2 inputs"):
        _ = model.testcases


def test_a_computed_value_in_a_case_is_an_error():
    computed = build.v1(
        [
            build.constant_op(b"\0" * 4, (1,)),
            {"op": "Identity", "inputs": [0], "params": [("Empty", {})]},
        ],
        [1],
    )
    main = build.v1([build.input_op("x", (1,))], [0])
    model = mgeserial.load(build.with_cases(main, [computed]))
    with pytest.raises(FormatError, match="computed, not stored"):
        _ = model.testcases


@pytest.mark.parametrize("inner", [network, network_v2])
@pytest.mark.parametrize("method", ["NONE", "", None])
def test_lite_packages_that_are_not_encrypted_are_opened(inner, method):
    model = mgeserial.load(build.lite(inner(), method=method))
    assert model.info.lite["name"] == "net"
    assert "Lite package" in model.info.kind
    assert len(model.graph.nodes) == 3


def test_test_cases_inside_a_lite_package_are_found():
    model = mgeserial.load(build.lite(build.with_cases(network(), [case_v2()])))
    assert len(model.testcases) == 1


def test_an_encrypted_package_is_unsupported_and_says_how():
    with pytest.raises(UnsupportedError, match="AES_default") as caught:
        mgeserial.load(build.lite(b"\x17" * 64, method="AES_default"))
    assert caught.value.exit_code == 3
    assert "unpack it" in str(caught.value)


@pytest.mark.parametrize("models", [0, 2])
def test_a_lite_package_holds_one_model(models):
    with pytest.raises(FormatError, match="holds one model"):
        mgeserial.load(build.lite(network(), models=models))


def test_a_lite_package_in_a_lite_package_is_refused():
    with pytest.raises(NotAModelError, match="no model"):
        mgeserial.load(build.lite(build.lite(network())))


def test_bytes_after_the_last_graph_are_an_error_that_names_the_place():
    data = network()
    with pytest.raises(FormatError, match="expected another graph") as caught:
        mgeserial.load(data + b"tail of something")
    assert caught.value.offset == len(data)


def test_a_hash_of_zero_is_refused():
    with pytest.raises(FormatError, match="hash is 0"):
        mgeserial.load(network(hash=0))


def test_a_wrong_identifier_is_named():
    data = network().replace(b"mgb1", b"mgb9")
    with pytest.raises(FormatError, match="mgb9"):
        mgeserial.load(data)


def test_values_that_no_operator_claims_are_an_error():
    data = network()
    longer = data[:16] + struct.pack("<Q", 24 + 8) + data[24:48] + bytes(8) + data[48:]
    with pytest.raises(FormatError, match="8 bytes of tensor values belong to no operator"):
        mgeserial.load(longer)


@pytest.mark.parametrize("cut", [1, 20, 40, 60, 100])
def test_a_tensor_of_another_size_than_its_shape_is_refused(cut):
    op = build.constant_op(bytes(cut), (2, 3, 5))
    with pytest.raises(FormatError, match=r"needs 120 bytes, got"):
        mgeserial.load(build.v1([op], [0]))
    with pytest.raises(FormatError, match=r"needs 120 bytes, got"):
        mgeserial.load(build.v2([op], [0]))


def test_an_offset_of_a_tensor_skips_bytes_of_its_own():
    op = build.constant_op(b"skip" + struct.pack("<f", 2.5), (1,))
    op["tensors"][0]["offset"] = 4
    tensor = mgeserial.load(build.v1([op], [0])).graph.nodes[0].tensors[0]
    assert tensor.numpy()[0] == 2.5


def test_an_input_of_any_shape_has_no_shape():
    for data in (
        build.v1([build.input_op("x", ())], [0]),
        build.v2([build.input_op("x", ())], [0]),
    ):
        assert mgeserial.load(data).graph.inputs[0].shape is None


def test_an_operator_of_another_package_is_carried_along():
    ops = [build.input_op("x", (1,)), {"type_id": 12345, "inputs": [0], "name": "mine"}]
    graph = mgeserial.load(build.v1(ops, [1])).graph
    node = graph.nodes[1]
    assert "unknown" in node.op.tags
    assert node.stored_id == (None, 0, 12345)
    assert "0x0000000000003039" in node.op.name


def test_fields_of_a_newer_release_are_kept():
    ops = [
        build.input_op("x", (1,)),
        {"op": "AxisAddRemove", "inputs": [0]},
    ]
    ops[1]["params"] = [("Axis", build.Extra({"axis": 1}, {5: ("i", 7)}))]
    ops[1]["op"] = "Concat"
    param = mgeserial.load(build.v1(ops, [1])).graph.nodes[1].param
    assert param.axis == 1
    assert param.extra is not None


def test_a_parameter_table_of_a_newer_release_is_named_when_touched():
    ops = [build.input_op("x", (1,)), {"op": "Identity", "inputs": [0], "param": (200, {})}]
    graph = mgeserial.load(build.v1(ops, [1])).graph
    with pytest.raises(UnsupportedError, match="unknown kind 200"):
        _ = graph.nodes[1].params


def test_a_parameter_table_of_another_operator_is_refused_when_touched():
    ops = [build.input_op("x", (1,)), {"op": "Identity", "inputs": [0]}]
    ops[1]["params"] = [("Axis", {"axis": 1})]
    node = mgeserial.load(build.v1(ops, [1])).graph.nodes[1]
    with pytest.raises(FormatError, match="needs parameters Empty, got Axis") as caught:
        _ = node.params
    assert caught.value.where == "oprs[1]"
    assert caught.value.offset


def test_absent_parameter_tables_mean_the_defaults():
    ops = [
        build.input_op("x", (1, 3, 8, 8)),
        build.constant_op(bytes(4 * 27), (1, 3, 3, 3)),
        {"op": "Convolution", "inputs": [0, 1], "params": [("Convolution", {"pad_h": 2})]},
    ]
    node = mgeserial.load(build.v1(ops, [2])).graph.nodes[2]
    assert node.param == P.Convolution(pad_h=2)
    assert node.params[1] == P.ExecutionPolicy()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"op": "Elemwise", "inputs": [7], "params": [ADD]}, "input id 7 is not defined yet"),
        ({"op": "Elemwise", "inputs": [1], "params": [ADD]}, "input id 1 is not defined yet"),
        ({"op": "Identity", "inputs": []}, "takes 1 inputs, got 0"),
        ({"op": "Identity", "inputs": [0, 0]}, "takes 1 inputs, got 2"),
        ({"op": "ImmutableTensor"}, "stores 1 tensors, got 0"),
        ({"op": "Identity", "inputs": [0], "output_name": ["a", "b"]}, "2 output names for 1"),
    ],
)
def test_the_structure_is_checked(op, message):
    with pytest.raises(FormatError, match=message) as caught:
        mgeserial.load(build.v1([build.input_op("x", (1,)), op], [0]))
    assert "oprs[1]" in str(caught.value)
    assert "file offset" in str(caught.value)


def test_an_output_id_that_does_not_exist_is_refused():
    with pytest.raises(FormatError, match="output id 9 does not exist: 1 ids do"):
        mgeserial.load(build.v1([build.input_op("x", (1,))], [9]))


def test_output_ids_of_v2_are_consecutive():
    op = {"op": "Identity", "inputs": [0], "params": [("Empty", {})], "outputs": [5]}
    with pytest.raises(FormatError, match="output id 5 where 1 comes next"):
        mgeserial.load(build.v2([build.input_op("x", (1,)), op], [0]))


def batch_norm(version: int, inputs: int, mode: P.BNFwdMode, names: list[str] | None):
    ops = [build.input_op(f"x{i}", (1, 2, 3, 3)) for i in range(inputs)]
    op = {
        "op": "BatchNorm",
        "inputs": list(range(inputs)),
        "params": [("BN", {"fwd_mode": int(mode)})],
    }
    if names is not None:
        op["output_name"] = names
    return build.v1([*ops, op], [inputs], magic=b"MGBS", version=version)


@pytest.mark.parametrize(
    ("version", "inputs", "mode", "ids"),
    [
        (800600, 5, P.BNFwdMode.INFERENCE, 5),
        (801100, 5, P.BNFwdMode.INFERENCE, 3),
        (801100, 5, P.BNFwdMode.TRAINING, 5),
        (801100, 3, P.BNFwdMode.TRAINING, 3),
        (100700, 5, P.BNFwdMode.TRAINING, 6),
        (100700, 5, P.BNFwdMode.INFERENCE, 4),
        (101302, 3, P.BNFwdMode.TRAINING, 4),
    ],
)
def test_batch_norm_has_the_ids_of_its_release(version, inputs, mode, ids):
    graph = mgeserial.load(batch_norm(version, inputs, mode, None)).graph
    assert len(graph.nodes[-1].outputs) == ids


def test_stored_names_tell_the_number_of_batch_norms_ids():
    names = [f"bn:o{i}" for i in range(2, 6)]
    graph = mgeserial.load(batch_norm(801100, 5, P.BNFwdMode.INFERENCE, names)).graph
    assert [v.name for v in graph.nodes[-1].outputs] == names


@pytest.mark.parametrize("ids", [1, 3])
def test_the_count_of_check_non_finite_is_the_one_that_fits(ids):
    ops = [build.input_op(f"x{i}", (1,)) for i in range(2)]
    ops.append({"op": "CheckNonFinite", "inputs": [0, 1], "params": [("CheckNonFinite", {})]})
    ops.append({"op": "Identity", "inputs": [2 + ids - 1], "params": [("Empty", {})]})
    ops.append({"op": "Identity", "inputs": [2 + ids], "params": [("Empty", {})]})
    graph = mgeserial.load(build.v1(ops, [2 + ids + 1], version=101302)).graph
    assert len(graph.nodes[2].outputs) == ids


def test_check_non_finite_has_copies_before_1_13_2():
    ops = [build.input_op(f"x{i}", (1,)) for i in range(2)]
    ops.append({"op": "CheckNonFinite", "inputs": [0, 1], "params": [("CheckNonFinite", {})]})
    graph = mgeserial.load(build.v1(ops, [4], version=101301)).graph
    assert len(graph.nodes[2].outputs) == 3


def test_a_claimed_number_of_outputs_must_be_plausible():
    op = {"op": "CondExecMerge", "inputs": [0, 0], "params": [("CondExecMerge", {})]}
    op["params"] = [("CondExecMerge", {"nr_output": 2**32 - 1})]
    with pytest.raises(FormatError, match="claims 4294967295 outputs"):
        mgeserial.load(build.v1([build.input_op("x", (1,)), op], [0]))


def test_the_hash_of_a_graph_covers_all_but_its_root_table():
    path = next(c.path for c in iter_cases(compact_root()) if c.name == "constants_only")
    data = (path / "model.v1.mge").read_bytes()
    model = mgeserial.load(data)
    info = model.info.graphs[0]
    buffer = data[info.end - info.meta_bytes : info.end]
    # The tail begins with the length word of the outputs' ids: found by its content.
    outputs = model.graph.output_list
    vector = struct.pack("<I", len(outputs))
    nodes = model.graph.nodes
    ids = {v: i for i, v in enumerate(model.graph.values())}
    assert nodes
    for out in outputs:
        vector += struct.pack("<II", ids[out.value], out.original_id)
    at = buffer.index(vector)
    assert graph_hash(buffer[at:]) == info.hash
