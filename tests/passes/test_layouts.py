"""The walk that converts a graph to a layout, case by case (numbers as in its module)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layout_nets import LAYOUTS, Int8Builder, RandomNet, nchw4_of, nchw_of, s8, tensor_core
from pass_nets import apply, feeds, of, text, uniform

import mgeserial
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import PassError
from mgeserial.ir.graph import Graph, Node
from mgeserial.passes import Layout, OptimizeOptions, OutputCheck, optimize
from mgeserial.passes.base import run_passes
from mgeserial.passes.census import census
from mgeserial.passes.convbias import CONV_BIAS
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.layout import passes_for

F = P.ConvolutionFormat


def convert(graph: Graph, layout: Layout, **tolerance: Any) -> tuple[Graph, list[str], list[str]]:
    """The passes of a layout alone: outputs kept, idempotent; (graph, rewrites, near-misses)."""
    return apply(graph, CONV_BIAS, *passes_for(layout), **tolerance)


def kinds(graph: Graph) -> dict[str, int]:
    """Census without constants and the arithmetic of shapes."""
    skip = HOLDERS | {"Host2DeviceCopy", "GetVarShape", "Subtensor", "Elemwise:MUL"}
    skip |= {"Elemwise:FLOOR_DIV"}
    return {k: n for k, n in census(graph).items() if k not in skip}


def conv(b: GraphBuilder, x: Any, *shape: int, **more: Any) -> Any:
    """A float32 convolution of any kind, padded to keep the size, with a bias."""
    grouped = len(shape) == 5
    outputs = shape[0] * shape[1] if grouped else shape[0]
    pad = shape[-1] // 2
    sparse = "GROUP" if grouped else "DENSE"
    bias = uniform(1, outputs, 1, 1, seed=outputs)
    flt = uniform(*shape, seed=sum(shape))
    return b.conv_bias(x, flt, bias, sparse=sparse, pad_h=pad, pad_w=pad, **more)


# -- 1: convolutions are converted ----------------------------------------------------------------


def test_1_dense_group_and_channel_wise_convolutions_in_nchw88():
    def net(b):
        x = conv(b, b.input("x", (2, 16, 6, 6)), 32, 16, 3, 3)
        return conv(b, conv(b, x, 2, 16, 16, 3, 3), 32, 1, 1, 3, 3)

    new, rewrites, misses = convert(of(net), Layout.NCHW88)
    assert kinds(new)["ConvBiasForward[NCHW88]"] == 3
    assert rewrites == [
        "convolution: NCHW88, filter OIHW8i8o",
        "convolution: NCHW88, filter GOIHW8i8o",
        "convolution: NCHW88, filter G11HW8g",
    ]
    assert misses == []


def test_1_golden_text_of_a_small_network():
    def net(b):
        x = conv(b, b.input("x", (1, 3, 6, 6)), 8, 3, 3, 3)
        return b.pooling(conv(b, x, 16, 8, 3, 3))

    new, _ = optimize(of(net), OptimizeOptions(enable_nchw88=True))
    assert text(new) == (
        "v0 = ConvBiasForward[NCHW88](x, (1, 3, 3, 3, 8), (1, 1, 1, 1, 8))\n"
        "v1 = ConvBiasForward[NCHW88](v0, (2, 1, 3, 3, 8, 8), (1, 2, 1, 1, 8))\n"
        "v2 = Pooling[NCHW88](v1)\n"
        "v3 = Dimshuffle(v2)\n"
        "v4 = GetVarShape(v2)\n"
        "v5 = Subtensor(v4, 0)\n"
        "v6 = Subtensor(v4, 1)\n"
        "v7 = MUL(8, v6)\n"
        "v8 = Subtensor(v4, 2)\n"
        "v9 = Subtensor(v4, 3)\n"
        "v10 = Concat(v5, v7, v8, v9)\n"
        "v11 = Reshape(v3, v10)"
    )


def test_1_int8_filters_are_for_dot_products():
    b = Int8Builder()
    first = b.layer(b.image("x", (1, 3, 8, 8)), (8, 3, 3, 3))
    last = b.layer(b.layer(first, (8, 8, 3, 3)), (8, 1, 1, 3, 3))
    new, _, _ = convert(b.finish(last), Layout.NCHW44_DOT, exact=True)
    found = kinds(new)
    assert found["ConvBiasForward[NCHW44_DOT]"] == 2
    assert found["ConvBiasForward[NCHW44]"] == 1


def test_1_a_float32_result_of_quantised_operands_is_written_in_nchw():
    b = Int8Builder()
    x = b.image("x", (1, 8, 6, 6), 0.1)
    y = b.conv_bias(x, b.int8(8, 8, 1, 1, scale=0.1), uniform(1, 8, 1, 1), output_dtype="Float32")
    b.output(y, "y")
    new, _, _ = convert(b.graph(), Layout.NCHW4)
    assert kinds(new)["ConvBiasForward[NCHW4_NCHW]"] == 1
    assert kinds(new)["Dimshuffle"] == 1


@pytest.mark.parametrize(("layout", "more"), [(Layout.NHWCD4, {}), (Layout.NCHW4, {})])
def test_1_transposed_convolutions(layout, more):
    int8 = layout is Layout.NCHW4
    b = Int8Builder()
    x = b.image("x", (1, 8, 6, 6)) if int8 else b.input("x", (1, 8, 6, 6))
    flt = b.int8(8, 4, 2, 2) if int8 else uniform(8, 4, 2, 2)
    dtype = s8(2.5) if int8 else None
    y = b.convolution_backward_data(flt, x, stride_h=2, stride_w=2, output_dtype=dtype)
    b.output(b.cast(y, "Float32") if int8 else b.relu(y), "y")
    new, _, misses = convert(b.graph(), layout, **more)
    assert kinds(new)[f"ConvolutionBackwardData[{layout.name}]"] == 1
    assert misses == []


@pytest.mark.parametrize("layout", ["nchw88", "nchw44", "nchw44_dot", "hwcd4"])
def test_1_filters_that_are_inputs_are_converted_as_the_graph_runs(layout):
    b = GraphBuilder()
    x, flt = b.input("x", (1, 16, 5, 5)), b.input("w", (2, 8, 8, 3, 3))
    b.output(b.convolution(x, flt, sparse="GROUP"), "y")
    graph = b.graph()
    check = OutputCheck(feeds(graph))
    new, _ = optimize(graph, OptimizeOptions(**{f"enable_{layout}": True}), check=check)
    assert not [kind for kind in kinds(new) if kind == "Convolution[NCHW]"]


def test_1_weights_of_images_say_how_they_are_packed():
    graph = of(lambda b: conv(b, b.input("x", (1, 8, 6, 6)), 8, 8, 3, 3))
    new, _, _ = convert(graph, Layout.NHWCD4)
    stored = [n for n in new.nodes if n.op.name == "SharedDeviceTensorWithFormat"]
    assert sorted(n.tensors[0].format for n in stored) == [(2, b"\x02"), (2, b"\x03")]
    for container in ("v1", "v2"):
        again = mgeserial.load(mgeserial.dumps(new, format=container)).graph
        assert text(again) == text(new)


# -- 2, 3: near-misses ----------------------------------------------------------------------------


def test_2_dense_convolutions_of_six_channels_stay():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 6, 8, 8)), (8, 6, 3, 3))
    x = b.layer(b.layer(x, (8, 8, 3, 3)), (6, 8, 3, 3))
    new, _, misses = convert(b.finish(x), Layout.NCHW4, exact=True)
    assert kinds(new)["ConvBiasForward[NCHW]"] == 2
    assert kinds(new)["ConvBiasForward[NCHW4]"] == 1
    assert misses == [
        "6 input channels are no multiple of 4",
        "6 output channels are no multiple of 4",
    ]


def test_2_groups_need_whole_blocks_of_channels():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 8, 8, 8)), (4, 2, 2, 3, 3))
    _, _, misses = convert(b.finish(b.layer(x, (8, 1, 1, 3, 3))), Layout.NCHW4, exact=True)
    assert misses == [
        "2 input channels are no multiple of 4 in each group",
        "1 input channel is no multiple of 4 in each group",
    ]


@pytest.mark.parametrize("layout", [Layout.NCHW88, Layout.NCHW44, Layout.NCHW44_DOT])
@pytest.mark.parametrize("shape", [(8, 8, 3, 3), (8, 1, 1, 3, 3)], ids=["dense", "channel-wise"])
def test_2_dilated_convolutions_stay_out_of_blocks(shape, layout):
    def net(b):
        x = conv(b, b.input("x", (1, 8, 9, 9)), 8, 8, 3, 3)
        return conv(b, conv(b, x, *shape, dilate_h=2, dilate_w=2), 8, 8, 3, 3)

    new, rewrites, misses = convert(of(net), layout)
    assert len(rewrites) == 2
    assert misses == ["its dilation is (2, 2)"]
    assert kinds(new)["ConvBiasForward[NCHW]"] == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"dilate_h": 2, "dilate_w": 2}, "its dilation is (2, 2)"),
        ({"stride_h": 2}, "its stride is 2x1"),
        ({"stride_h": 3, "stride_w": 3}, "its stride is 3x3"),
        ({"nonlineMode": "SIGMOID"}, "its nonlinearity is SIGMOID"),
        ({"mode": "CONVOLUTION"}, "its filter is turned round"),
    ],
)
def test_2_first_layers_must_be_simple(more, reason):
    graph = of(lambda b: conv(b, b.input("x", (1, 3, 9, 9)), 8, 3, 3, 3, **more))
    new, rewrites, misses = convert(graph, Layout.NCHW44)
    assert rewrites == []
    assert misses == [f"3 input channels are no multiple of 4; as a first layer: {reason}"]
    assert kinds(new) == {"ConvBiasForward[NCHW]": 1}


def test_2_small_images_stay_out_of_tensor_cores():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 32, 2, 2)), (32, 32, 3, 3))
    new, _, misses = convert(b.finish(x), Layout.NCHW32, exact=True)
    assert kinds(new)["ConvBiasForward[NCHW4]"] == 1
    assert misses == ["its image of 2x2 has a side below 3"]


def test_2_other_types_are_named():
    graph = of(lambda b: conv(b, b.input("x", (1, 4, 6, 6)), 4, 4, 3, 3))
    _, _, misses = convert(graph, Layout.NCHW4)
    assert misses == ["its image is Float32, NCHW4 takes Quantized8Asymm, QuantizedS8"]


def test_2_shapes_that_are_not_known_are_no_obstacle_unless_they_matter():
    b = GraphBuilder()
    x = conv(b, b.input("x"), 8, 8, 3, 3)
    b.output(b.add(x, b.input("y")), "out")
    graph = b.graph()
    new, _ = optimize(graph, OptimizeOptions(enable_nchw88=True))
    assert kinds(new)["ConvBiasForward[NCHW88]"] == 1
    inputs = {"x": uniform(1, 8, 4, 4), "y": uniform(1, 8, 4, 4, seed=1)}
    assert OutputCheck(inputs)(graph, new) is None


def test_3_other_formats_are_left_as_they_are():
    b = GraphBuilder()
    x = b.input("x", (1, 6, 6, 8))
    y = b.convolution(x, uniform(8, 3, 3, 8), format="NHWC")
    b.output(b.pooling(y, format="NHWC"), "y")
    new, rewrites, misses = convert(b.graph(), Layout.NCHW88)
    assert rewrites == []
    assert misses == ["it is in NHWC already"]
    assert kinds(new) == {"Convolution[NHWC]": 1, "Pooling[NHWC]": 1}


# -- 4, 5, 6: the others --------------------------------------------------------------------------


def test_4_images_follow_in_blocks_and_stay_elsewhere():
    def net(b):
        x = b.pooling(b.input("x", (1, 8, 8, 8)))
        x = b.pooling(conv(b, x, 8, 8, 3, 3))
        x = b.resize(x, b.const([6, 6]), format="NCHW")
        return b.adaptive_pooling(x, b.const([2, 2]))

    new, _, _ = convert(of(net), Layout.NCHW88)
    found = kinds(new)
    assert found["Pooling[NCHW]"] == found["Pooling[NCHW88]"] == 1
    assert found["Resize[NCHW88]"] == found["AdaptivePooling[NCHW88]"] == 1


def test_4_images_of_opencl_are_taken():
    def net(b):
        x = b.pooling(b.input("x", (1, 8, 8, 8)))
        matrix = np.eye(3, dtype=np.float32)[None]
        return b.warp_perspective(x, b.param(matrix), b.const([4, 4]))

    new, _, _ = convert(of(net), Layout.NHWCD4)
    assert kinds(new) == {
        "Pooling[NHWCD4]": 1,
        "RelayoutFormat:NCHW_NHWCD4I": 1,
        "RelayoutFormat:NHWCD4I_NCHW": 1,
        "WarpPerspective[NHWCD4]": 1,
    }


def test_4_pooling_joins_tensor_cores_when_its_channels_fit():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 4, 8, 8)), (64, 4, 3, 3))
    new, _, _ = convert(b.finish(b.pooling(x)), Layout.NCHW32, exact=True)
    assert kinds(new)["Pooling[NCHW32]"] == 1
    assert kinds(new)["ConvBiasForward[NCHW4]"] == 1


def test_5_elementwise_operators_follow_with_their_constants():
    def net(b):
        x = conv(b, b.input("x", (1, 8, 6, 6)), 8, 8, 3, 3)
        y = b.mul(x, uniform(1, 8, 1, 1))
        z = b.maximum(y, b.input("y", (1, 8, 6, 6)))
        return b.relu(b.add(z, 0.5))

    new, rewrites, misses = convert(of(net), Layout.NCHW44)
    assert sum(r.startswith("follow") for r in rewrites) == 4
    assert misses == []
    # One for each input, one for the output.
    assert kinds(new)["Dimshuffle"] == 3


def test_5_an_operand_without_whole_blocks_keeps_the_operator_in_nchw():
    def net(b):
        x = conv(b, b.input("x", (1, 8, 6, 6)), 8, 8, 3, 3)
        return b.add(x, uniform(1, 1, 6, 6))

    new, _, misses = convert(of(net), Layout.NCHW88)
    assert misses == ["1 channels of an operand are no multiple of 8"]
    assert kinds(new)["Dimshuffle"] == 2


def test_5_half_of_the_inputs_are_enough_for_tensor_cores():
    b = Int8Builder()
    x = b.image("x", (1, 32, 6, 6))
    y = b.layer(x, (32, 32, 3, 3))
    total = b.elemwise_multi_type(y, x, mode="QMUL", output_dtype=s8(2.5))
    new, _, _ = convert(b.finish(total), Layout.NCHW32, exact=True)
    rewrites = [n for n in new.nodes if n.op.name == "ElemwiseMultiType"]
    assert rewrites[0].outputs[0].type.dims == (1, 1, 6, 6, 32)


def test_5_the_larger_part_decides_under_nchw64():
    b = Int8Builder()
    x = b.image("x", (1, 64, 8, 8))
    large = b.layer(x, (64, 64, 3, 3))
    small = b.pooling(b.layer(b.image("y", (1, 4, 2, 2)), (4, 4, 3, 3)))
    total = b.elemwise_multi_type(
        large, b.subtensor(small, b.const([1]), items=(P.IndexDescMaskItem(axis=1, end=True),)),
        mode="QMUL", output_dtype=s8(2.5),
    )  # fmt: skip
    new, _, misses = convert(b.finish(total), Layout.NCHW64, exact=True)
    assert misses == ["1 channels of an operand are no multiple of 32"]
    assert kinds(new)["ConvBiasForward[NCHW32]"] == kinds(new)["ConvBiasForward[NCHW4]"] == 1


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
@pytest.mark.parametrize("layout", [Layout.NCHW88, Layout.NHWCD4])
def test_5_concat_along_every_axis(axis, layout):
    def net(b):
        x = b.input("x", (2, 8, 6, 6))
        return b.concat(conv(b, x, 8, 8, 3, 3), conv(b, x, 8, 8, 1, 1), axis=axis)

    new, rewrites, misses = convert(of(net), layout)
    if layout is Layout.NHWCD4 and axis in (3, -1):
        assert misses == ["it joins along the width"]
    else:
        assert sum(r.startswith("concat") for r in rewrites) == 1
        joined = [n for n in new.nodes if n.op.name == "Concat" and len(n.inputs) == 2]
        assert len(joined[0].outputs[0].type.dims) == 5


def test_5_values_whose_channels_the_input_decides_stay_as_they_are():
    """NHWC images of height 4: what stands where channels do is no multiple of 4 for long."""

    def net(b):
        x = b.input("x", (1, 4, 6, 8))
        return b.relu(b.cat([x, b.tanh(x)], axis=3))

    graph = of(net)
    new, rewrites, _ = convert(graph, Layout.NHWCD4, exact=True)
    assert rewrites == []
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 8)).astype(np.float32)
    with Session(graph, "reference") as before, Session(new, "reference") as after:
        np.testing.assert_array_equal(after.run({"x": x})["out"], before.run({"x": x})["out"])


def test_5_reductions_along_the_image_stay_in_blocks():
    def net(b):
        x = conv(b, b.input("x", (2, 8, 6, 6)), 8, 8, 3, 3)
        return b.reduce(b.reduce(b.reduce(x, axis=2), axis=-1), axis=1)

    new, rewrites, misses = convert(of(net), Layout.NCHW44)
    assert sum(r.startswith("reduce") for r in rewrites) == 2
    assert misses == ["it reduces along C"]
    assert kinds(new)["Reduce"] == 3


def test_6_all_others_read_what_they_read_before():
    def net(b):
        x = conv(b, b.input("x", (2, 8, 4, 4)), 8, 8, 3, 3)
        return b.matmul(b.flatten(x), uniform(128, 5))

    new, _, _ = convert(of(net), Layout.NCHW88)
    assert kinds(new)["Dimshuffle"] == 2
    assert kinds(new)["MatrixMul[DEFAULT]"] == 1


def test_6_outputs_are_in_order_and_keep_their_names():
    b = GraphBuilder()
    x = conv(b, b.input("x", (2, 8, 4, 4)), 8, 8, 3, 3)
    b.output(x, "first")
    b.output(conv(b, x, 8, 8, 1, 1), "second")
    graph = b.graph()
    new, _, _ = convert(graph, Layout.NCHW88)
    assert new.output_names == ("first", "second") == graph.output_names
    assert [v.type for v in new.outputs] == [v.type for v in graph.outputs]


def test_6_conversions_of_type_under_nhwcd4_are_put_in_order():
    # MegEngine's own file leaves this output in NHWCD4.
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 4, 6, 6)), (8, 4, 3, 3))
    new, _, _ = convert(b.finish(x), Layout.NHWCD4, exact=True)
    assert new.outputs[0].type.dims == (1, 8, 6, 6)
    assert kinds(new)["RelayoutFormat:NHWCD4I_NCHW"] == 1


# -- 7, 8: changes of layout that stand there -----------------------------------------------------


def test_7_changes_of_layout_are_not_stacked():
    b = Int8Builder()
    x = nchw4_of(b, b.image("x", (2, 64, 6, 6)))
    y = nchw_of(b, b.layer(x, (64, 64, 3, 3), format="NCHW4"))
    new, rewrites, _ = convert(b.finish(y), Layout.NCHW32, exact=True)
    assert kinds(new)["Dimshuffle"] == 2
    assert "shorten: from NCHW32 to NCHW at once" in rewrites


def test_7_a_change_of_layout_of_the_network_itself_can_go_away():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 8, 6, 6)), (8, 8, 3, 3))
    y = b.layer(nchw4_of(b, x), (8, 8, 3, 3), format="NCHW4")
    new, _, _ = convert(b.finish(nchw_of(b, y)), Layout.NCHW4, exact=True)
    assert kinds(new)["Dimshuffle"] == 2


def test_7_nhwc_networks_meet_nhwcd4_directly():
    b = GraphBuilder()
    x = b.transpose(b.input("x", (1, 6, 6, 8)), (0, 3, 1, 2))
    b.output(b.transpose(conv(b, x, 8, 8, 3, 3), (0, 2, 3, 1)), "y")
    new, _, _ = convert(b.graph(), Layout.NHWCD4)
    assert kinds(new) == {
        "ConvBiasForward[NHWCD4]": 1,
        "RelayoutFormat:NHWCD4I_NHWC": 1,
        "RelayoutFormat:NHWC_NHWCD4I": 1,
    }


def test_8_the_smaller_type_is_moved():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 8, 6, 6)), (8, 8, 3, 3))
    new, _, _ = convert(b.finish(x), Layout.NCHW44, exact=True)
    shuffles = [n for n in new.nodes if n.op.name == "Dimshuffle"]
    assert {n.outputs[0].type.dtype.kind for n in shuffles} == {DTypeEnum.QuantizedS8}


def test_8_long_chains_of_conversions_need_no_deep_calls():
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 8, 2, 2)), (8, 8, 3, 3))
    for k in range(1500):
        x = b.cast(x, s8(2.5 + k % 2))
    graph = b.finish(x)
    new, _ = optimize(graph, OptimizeOptions(enable_nchw44=True))
    assert kinds(new)["ConvBiasForward[NCHW44]"] == 1
    assert OutputCheck(feeds(graph), rtol=0, atol=0)(graph, new) is None


# -- all of them ----------------------------------------------------------------------------------


def test_tensor_cores_need_nchw4_first():
    with pytest.raises(PassError, match="needs that quantised convolutions work in NCHW4"):
        run_passes(tensor_core("NCHW"), [CONV_BIAS, *passes_for(Layout.NCHW32)[1:]])


def test_no_layout_has_no_passes():
    assert passes_for(Layout.NONE) == []
    assert all(passes_for(layout) for layout in Layout if layout is not Layout.NONE)


def _bound(graph: Graph, lanes: int) -> int:
    """Bytes of weights when channels of filters and of what is added are filled up to `lanes`."""
    filters = {n.inputs[n.op.name != "ConvolutionBackwardData"] for n in _convolutions(graph)}
    total = 0
    for value in (v for node in graph.params for v in node.outputs):
        shape = list(value.type.dims)
        axes = {4: (0, 1), 5: (0,)} if value in filters else {4: (1,)}
        for axis in axes.get(len(shape), ()):
            shape[axis] = -(-shape[axis] // lanes) * lanes
        total += value.type.dtype.nbytes(tuple(shape))
    return total


def _convolutions(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name.startswith("Conv")]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_random_networks_keep_their_outputs_and_bound_their_weights(layout, seed):
    int8 = layout in ("nchw4", "nchw32", "chwn4", "nchw64") or seed % 3 == 0
    graph = RandomNet(1000 + 31 * seed + LAYOUTS.index(layout), int8=int8).graph()
    options = OptimizeOptions(**{f"enable_{layout}": True})
    # With a fused residual one rounding of at most half of a step of 0.2 is left out.
    tolerance = {"rtol": 0, "atol": 0.31} if int8 else {"rtol": 1e-3, "atol": 1e-4}
    new, report = optimize(graph, options, check=OutputCheck(feeds(graph), **tolerance))
    assert not optimize(new, options)[1].rewrites
    shapes = 4 * sum(census(new).values())
    assert report.weight_bytes_after <= _bound(graph, 32 if "64" in layout else 8) + shapes
    assert mgeserial.load(mgeserial.dumps(new)).graph.output_names == graph.output_names


# -- what comes with layouts ----------------------------------------------------------------------


def _int8_image() -> Graph:
    b = Int8Builder()
    image = b.cast(b.input("x", (2, 3, 8, 8), "uint8"), "Float32")
    x = b.cast(b.sub(image, 128.0), s8(1.0))
    flt, bias = b.int8(32, 3, 3, 3), b.int32(1, 32, 1, 1, scale=2.5)
    return b.finish(b.conv_bias(x, flt, bias, pad_h=1, pad_w=1, output_dtype=s8(2.5)))


def test_nchw64_fuses_what_stands_before_the_first_convolution():
    graph = _int8_image()
    check = OutputCheck(feeds(graph), rtol=0, atol=0)
    new, _ = optimize(graph, OptimizeOptions(enable_nchw64=True), check=check)
    assert kinds(new) == {
        "Concat": 1,
        "ConvBiasForward[NCHW4]": 1,
        "Dimshuffle": 1,
        "RelayoutFormat:NCHW_NCHW4": 1,
        "Reshape": 1,
        "TypeCvt": 1,
    }


def test_nchw4_leaves_it_as_it_is():
    new, _ = optimize(_int8_image(), OptimizeOptions(enable_nchw4=True))
    assert kinds(new)["RelayoutFormat:NCHW_NCHW4_IC_SMALL"] == 1
    assert kinds(new)["TypeCvt"] == 3
