"""Parameter tables as old releases wrote them: slots and numbers stated here.

Source: params.json `layout_history`, `enum_history` and `format_enum_by_release`.
"""

from __future__ import annotations

import mge_builder as build
import pytest

import mgeserial
from mgeserial import params as P
from mgeserial._record import SchemaEnum

# mgb_version by release, and whether the release writes metadata.
RELEASES = {
    "v0.3.1": 800300,
    "v0.4.0": 800301,
    "v0.5.0": 800401,
    "v1.0.0": 1799900,
    "v1.1.0": 800800,
    "v1.2.0": 800900,
    "v1.3.0": 801000,
    "v1.4.0": 801100,
    "v1.7.0": 100700,
}


def param_of(release: str, op: str, table: str, slots: build.Slots, *, inputs: int = 1):
    """First parameter record of an operator in a file of a release."""
    ops = [build.input_op(f"x{i}", (1, 4, 8, 8)) for i in range(inputs)]
    ops.append({"op": op, "inputs": list(range(inputs)), "params": [(table, slots)]})
    data = build.v1(ops, [0], magic=b"MGBS", version=RELEASES[release])
    return mgeserial.load(data).graph.nodes[-1].params


@pytest.mark.parametrize("release", ["v0.3.1", "v0.5.0", "v1.1.0", "v1.2.0"])
def test_conv_bias_had_the_block_size_before_the_compute_mode(release):
    slots = build.Slots({4: ("I", 1), 10: ("I", 6), 11: ("I", 1)})
    param = param_of(release, "ConvBiasForward", "ConvBias", slots, inputs=2)[0]
    assert param.pad_h == 1
    assert param.compute_mode is P.ConvolutionV1ComputeMode.FLOAT32
    assert param.extra is not None  # the block size, which today's record has no field for


@pytest.mark.parametrize("release", ["v1.0.0", "v1.3.0", "v1.4.0", "v1.7.0"])
def test_conv_bias_has_the_compute_mode_in_slot_10_since_1_3(release):
    # 1799900 without metadata is read as v1.3.1 rather than v1.0.0.
    param = param_of(release, "ConvBiasForward", "ConvBias", build.Slots({10: ("I", 1)}), inputs=2)[
        0
    ]
    assert param.compute_mode is P.ConvolutionV1ComputeMode.FLOAT32


@pytest.mark.parametrize("release", ["v0.3.1", "v1.2.0", "v1.3.0"])
def test_images2neibs_had_its_window_in_slots_4_and_5(release):
    param = param_of(
        release, "Images2Neibs", "Images2Neibs", build.Slots({4: ("I", 5), 5: ("I", 7)})
    )[0]
    assert (param.window_h, param.window_w) == (5, 7)
    assert (param.dilate_h, param.dilate_w) == (1, 1)


@pytest.mark.parametrize("release", ["v1.4.0", "v1.7.0"])
def test_images2neibs_has_its_dilation_there_since_1_4(release):
    param = param_of(
        release, "Images2Neibs", "Images2Neibs", build.Slots({4: ("I", 2), 6: ("I", 5)})
    )[0]
    assert (param.dilate_h, param.window_h, param.window_w) == (2, 5, 3)


@pytest.mark.parametrize(
    ("release", "stored", "name"),
    [
        ("v1.2.0", None, "HEURISTIC"),
        ("v1.2.0", 2, "PROFILE"),
        ("v1.4.0", None, "HEURISTIC"),
        ("v1.4.0", 2, "PROFILE"),
        ("v1.4.0", 3, "HEURISTIC|PROFILE"),
    ],
)
def test_the_execution_policy_was_a_plain_number_with_default_0(release, stored, name):
    slots = build.Slots({} if stored is None else {0: ("I", stored)})
    ops = [build.input_op(f"x{i}", (1, 4, 8, 8)) for i in range(2)]
    params = [("Convolution", build.Slots()), ("ExecutionPolicy", slots)]
    ops.append({"op": "Convolution", "inputs": [0, 1], "params": params})
    data = build.v1(ops, [2], magic=b"MGBS", version=RELEASES[release])
    policy = mgeserial.load(data).graph.nodes[-1].params[1]
    assert {str(policy.strategy), "|".join(reversed(str(policy.strategy).split("|")))} & {name}
    assert policy.workspace_limit == 2**64 - 1


@pytest.mark.parametrize(
    ("release", "number", "name"),
    [
        ("v0.3.1", 9, "CHWN4"),
        ("v0.4.0", 7, "NCHW44"),
        ("v0.4.0", 11, "CHWN4"),
        ("v0.5.0", 8, "NCHW44_DOT"),
        ("v0.5.0", 12, "CHWN4"),
        ("v1.2.0", 12, "NCHW4_NCHW32"),
        ("v1.2.0", 18, "CHWN4"),
        ("v1.3.0", 15, "CHWN4"),
        ("v1.4.0", 15, "CHWN4"),
        ("v1.7.0", 16, "NCHW64"),
        ("v1.7.0", 17, "NCHW4_NHWC"),
        *[(r, 5, "NCHW32") for r in RELEASES],
    ],
)
def test_layouts_have_the_numbers_of_their_release(release, number, name):
    slots = build.Slots({3: ("I", number)})
    param = param_of(release, "ConvBiasForward", "ConvBias", slots, inputs=2)[0]
    assert str(param.format) == name


def test_a_layout_that_is_gone_stays_told_apart_from_todays():
    param = param_of("v0.5.0", "ConvBiasForward", "ConvBias", build.Slots({3: ("I", 9)}), inputs=2)[
        0
    ]  # NCHW_WINOGRAD
    assert isinstance(param.format, SchemaEnum)
    assert not param.format.is_known
    assert int(param.format) > 1000


def test_relayout_had_only_a_mode_before_1_3():
    slots = build.Slots({0: ("I", 20), 1: ("I", 9)})
    old = param_of("v1.2.0", "RelayoutFormat", "RelayoutFormat", slots)[0]
    new = param_of("v1.3.0", "RelayoutFormat", "RelayoutFormat", slots)[0]
    assert old.mode is new.mode is P.RelayoutFormatV0Mode.NCHW_NCHW88
    assert (old.oc, old.group, new.oc) == (0, 1, 9)


def test_random_numbers_had_no_dtype_before_1_5():
    ops = [
        build.constant_op(b"\2\0\0\0", (1,), 4),
        {
            "op": "UniformRNG",
            "inputs": [0],
            "params": [("UniformRNG", build.Slots({0: ("Q", 7)}))],
        },
    ]
    data = build.v1(ops, [1], magic=b"MGBS", version=801100)
    param = mgeserial.load(data).graph.nodes[1].param
    assert param.seed == 7
    assert param.dtype.name == "Float32"


def test_multi_head_attention_of_1_12_3_has_its_own_slots():
    table = {0: ("I", 4), 1: ("f", 0.5), 4: ("?", False), 11: ("Q", 9)}
    inputs = [build.input_op(f"x{i}", (1, 2, 8)) for i in range(7)]
    op = {
        "op": "MultiHeadAttn",
        "inputs": list(range(7)),
        "params": [("MultiHeadAttn", build.Slots(table))],
        "count": 4,
    }
    param = mgeserial.load(build.v2([*inputs, op], [7], version=101203)).graph.nodes[-1].param
    assert (param.num_heads, param.sm_scaler, param.training, param.seed) == (4, 0.5, False, 9)
    assert param.embeding_size == 0


def test_four_bit_rows_were_not_padded_before_1_5():
    # 3 x 3 elements of half a byte: 5 bytes in one run, 6 in padded rows.
    for version, size in ((801100, 5), (100700, 6)):
        op = build.constant_op(bytes(range(size)), (3, 3))
        op["tensors"][0]["dtype"] = build.dtype(15, 0.5)
        data = build.v1([op], [0], magic=b"MGBS", version=version)
        tensor = mgeserial.load(data).graph.nodes[0].tensors[0]
        assert tensor.nbytes == size
        assert tensor.numpy().shape == (3, 3)
        with pytest.raises(mgeserial.FormatError):
            mgeserial.load(build.v1([op], [0], magic=b"MGBS", version=901407 - version))
