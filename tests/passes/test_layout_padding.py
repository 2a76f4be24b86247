"""Channels filled up to whole blocks, case by case (numbers as in the module)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layout_nets import Int8Builder, s8
from pass_nets import apply, of, uniform

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DTypeEnum, quantized
from mgeserial.ir.graph import Graph, Node
from mgeserial.passes.convbias import CONV_BIAS
from mgeserial.passes.layout.padding import PADDINGS, PadChannels
from mgeserial.passes.options import Layout


def pad(
    graph: Graph, layout: Layout = Layout.NCHW88, **more: Any
) -> tuple[Graph, list[str], list[str]]:
    """The pass alone: outputs kept, idempotent; (graph, rewrites, near-misses)."""
    return apply(graph, CONV_BIAS, PadChannels(PADDINGS[layout]), **more)


def conv(b: GraphBuilder, x: Any, *shape: int, **more: Any) -> Any:
    grouped = len(shape) == 5
    outputs = shape[0] * shape[1] if grouped else shape[0]
    bias = uniform(1, outputs, 1, 1, seed=outputs)
    sparse = "GROUP" if grouped else "DENSE"
    return b.conv_bias(x, uniform(*shape, seed=sum(shape)), bias, sparse=sparse, **more)


def only(graph: Graph, op: str) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == op]


def channels(graph: Graph, op: str) -> list[int]:
    """Channels that operators of a kind write."""
    return [n.outputs[0].type.dims[1] for n in only(graph, op)]


def test_1_filters_grow_on_both_sides():
    new, rewrites, _ = pad(
        of(lambda b: conv(b, conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1), 4, 6, 1, 1))
    )
    assert rewrites == [
        "pad: 3 to 6 channels became 3 to 8",
        "pad: 6 to 4 channels became 8 to 8",
    ]
    assert channels(new, "ConvBiasForward") == [8, 8]
    assert len(only(new, "Subtensor")) == 1


def test_1_asymmetric_types_are_filled_with_their_zero():
    b = GraphBuilder()
    asymmetric = quantized(DTypeEnum.Quantized8Asymm, 0.5, 100)
    x = b.cast(b.input("x", (1, 3, 4, 4)), asymmetric)
    rng = np.random.default_rng(0)
    for shape in ((6, 3, 1, 1), (5, 6, 1, 1)):
        flt = b.param(rng.integers(0, 255, shape).astype(np.uint8), dtype=asymmetric)
        x = b.conv_bias(x, flt, output_dtype=asymmetric)
    b.output(b.cast(x, "Float32"), "y")
    new, _, _ = pad(b.graph(), exact=True)
    assert channels(new, "ConvBiasForward") == [8, 8]


def test_2_channel_wise_convolutions_get_groups():
    def net(b):
        return conv(b, conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1), 6, 1, 1, 3, 3)

    new, rewrites, _ = pad(of(net))
    assert rewrites[1] == "pad: 6 groups became 8"
    assert channels(new, "ConvBiasForward") == [8, 8]


def test_3_images_are_filled_under_nchw64_only():
    b = Int8Builder()
    graph = b.finish(b.layer(b.image("x", (1, 3, 6, 6)), (8, 3, 3, 3)))
    assert only(pad(graph, Layout.NCHW44)[0], "Concat") == []
    new, rewrites, _ = pad(graph, Layout.NCHW64, exact=True)
    assert rewrites == ["pad: 3 to 8 channels became 4 to 8"]
    assert channels(new, "Concat") == [4]


def test_3_residuals_are_filled_with_them():
    b = Int8Builder()
    x = b.image("x", (1, 4, 6, 6))
    z = b.image("z", (1, 6, 6, 6))
    new, _, _ = pad(b.finish(b.layer(x, (6, 4, 3, 3), z=z)), Layout.NCHW64, exact=True)
    assert channels(new, "ConvBiasForward") == [8]


@pytest.mark.parametrize(("before", "after"), [(5, 8), (16, 16), (17, 32), (33, 64)])
def test_3_large_numbers_of_channels_get_large_blocks(before, after):
    b = Int8Builder()
    x = b.layer(b.image("x", (1, 4, 4, 4)), (before, 4, 1, 1), stride_h=2)
    new, _, _ = pad(b.finish(x), Layout.NCHW64, exact=True)
    assert channels(new, "ConvBiasForward") == [after]


def test_4_operators_between_work_on_all_channels():
    def net(b):
        x = b.pooling(conv(b, b.input("x", (1, 3, 8, 8)), 6, 3, 1, 1))
        x = b.reduce(b.relu(b.mul(x, 2.0)), axis=2)
        return conv(b, x, 8, 6, 1, 1)

    new, _, misses = pad(of(net))
    assert only(new, "Subtensor") == []
    assert misses == []


def test_4_values_filled_up_alike_meet():
    def net(b):
        x = b.input("x", (1, 3, 4, 4))
        both = b.add(conv(b, x, 6, 3, 1, 1), conv(b, x, 6, 3, 3, 3, pad_h=1, pad_w=1))
        return conv(b, b.add(both, uniform(1, 6, 1, 1)), 8, 6, 1, 1)

    new, _, _ = pad(of(net))
    # The constant has the real channels.
    assert len(only(new, "Subtensor")) == 1


@pytest.mark.parametrize("mode", ["LOG", "EXP"])
def test_4_modes_that_make_no_numbers_of_zeros_get_the_real_channels(mode):
    def net(b):
        x = b.elemwise(conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1), mode="ABS")
        return conv(b, b.elemwise(b.add(x, 1.0), mode=mode), 8, 6, 1, 1)

    new, _, misses = pad(of(net))
    assert misses == [f"{mode} of zeros need not be a number"]
    assert len(only(new, "Subtensor")) == 1


def test_5_transposed_convolutions_read_zeros():
    def net(b):
        x = conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1)
        return b.convolution_backward_data(uniform(6, 5, 2, 2), x, stride_h=2, stride_w=2)

    new, rewrites, _ = pad(of(net))
    assert rewrites[1] == "pad: 6 channels read became 8"
    assert channels(new, "ConvolutionBackwardData") == [5]
    assert only(new, "Subtensor") == []


def _part(b: GraphBuilder, x: Any, **ends: int) -> Any:
    numbers = [b.const([n]) for n in ends.values()]
    item = P.IndexDescMaskItem(axis=1, **dict.fromkeys(ends, True))
    return b.subtensor(x, *numbers, items=(item,))


@pytest.mark.parametrize(
    ("ends", "cuts"),
    [({"begin": 1, "end": 4}, 1), ({"idx": 5}, 1), ({"begin": 2}, 2), ({"end": -1}, 2)],
)
def test_6_parts_that_end_before_the_added_channels_read_them(ends, cuts):
    def net(b):
        return _part(b, conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1), **ends)

    new, _, _ = pad(of(net))
    assert len(only(new, "Subtensor")) == cuts


@pytest.mark.parametrize("use", ["flatten", "sum", "output"])
def test_7_all_others_get_the_real_channels(use):
    uses = {
        "flatten": lambda b, x: b.matmul(b.flatten(x), uniform(96, 2)),
        "sum": lambda b, x: b.reduce(x, axis=1),
        "output": lambda _, x: x,
    }
    new, _, _ = pad(of(lambda b: uses[use](b, conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1))))
    assert channels(new, "Subtensor") == [6]


def test_7_group_convolutions_get_the_real_channels():
    def net(b):
        x = conv(b, b.input("x", (1, 3, 4, 4)), 6, 3, 1, 1)
        return conv(b, x, 2, 4, 3, 1, 1)

    new, _, _ = pad(of(net))
    assert channels(new, "ConvBiasForward") == [8, 8]
    assert len(only(new, "Subtensor")) == 1


def test_8_filters_that_are_inputs_are_left_alone():
    b = GraphBuilder()
    b.output(b.convolution(b.input("x", (1, 3, 4, 4)), b.input("w", (6, 3, 1, 1))), "y")
    _, rewrites, misses = pad(b.graph())
    assert rewrites == []
    assert misses == ["its filter is not known ahead of the run"]


def test_8_residuals_of_other_layouts_are_left_alone():
    b = Int8Builder()
    x = b.image("x", (1, 4, 6, 6))
    z = b.image("z", (1, 6, 6, 6))
    _, rewrites, misses = pad(b.finish(b.layer(x, (6, 4, 3, 3), z=z)), Layout.NCHW44, exact=True)
    assert rewrites == []
    assert misses == ["it adds a residual"]


def test_8_types_without_a_rule_are_left_alone():
    b = Int8Builder()
    x = b.input("x", (1, 3, 4, 4))
    b.output(b.conv_bias(x, uniform(6, 3, 1, 1)), "y")
    assert pad(b.graph(), Layout.NCHW64)[1] == []
    assert PADDINGS[Layout.NCHW64].missing(s8(1), 6) == 2
