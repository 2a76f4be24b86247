"""What is concluded from sizes must hold for other batches and images than the file states."""

from __future__ import annotations

import numpy as np
import pytest
from pass_nets import text, uniform

from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.passes import OptimizeOptions, optimize
from mgeserial.passes.sizes import types_at_other_sizes

FUSED = OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True)
WITH_Z = OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True, enable_fuse_conv_bias_with_z=True)


def mean_of_a_short_axis(b):
    """An image so small that nothing is left of its width."""
    x = b.input("x", (1, 3, 9, 5))
    y = b.conv2d(x, uniform(4, 3, 3, 3), uniform(4), stride=4)
    return b.reduce(b.reduce(y, mode="MEAN", axis=3), mode="MEAN", axis=2)


def windows(b):
    """Windows of an image of one window: cut, reordered, joined; nothing moves at that size."""
    x = b.input("x", (1, 4, 4, 3))
    n, h, w, c = (b.slice_axis(b.get_var_shape(x), 0, k, k + 1) for k in range(4))
    four = b.const(np.array([4], np.int32))
    rows, columns = (b.elemwise(v, four, mode="FLOOR_DIV") for v in (h, w))
    cut = b.reshape(x, b.cat([n, rows, four, columns, four, c], axis=0))
    order = b.transpose(cut, (0, 1, 3, 2, 4, 5))
    many = b.elemwise(b.elemwise(n, rows, mode="MUL"), columns, mode="MUL")
    return b.relu(b.reshape(order, b.cat([many, four, four, c], axis=0)))


def gate(b):
    """A value that has the shape of a pooled one as long as the image is one pixel."""
    x = b.input("x", (1, 3, 1, 1))
    y = b.conv2d(b.global_avg_pool2d(x), uniform(3, 3, 1, 1), uniform(3))
    return b.add(y, x)


def zeros_of_one_shape(b):
    """Zeros that broadcast a smaller input."""
    return b.relu(b.add(b.input("x", (2, 3)), np.zeros((2, 3), np.float32)))


CASES = {
    "mean of a short axis": (mean_of_a_short_axis, (2, 3, 21, 23)),
    "windows": (windows, (2, 8, 12, 3)),
    "gate": (gate, (2, 3, 4, 5)),
    "zeros": (zeros_of_one_shape, (1, 3)),
}


@pytest.mark.parametrize("options", [OptimizeOptions(), FUSED, WITH_Z], ids=["plain", "fuse", "z"])
@pytest.mark.parametrize("case", CASES)
def test_an_optimised_network_takes_the_sizes_that_the_file_takes(case, options):
    build, shape = CASES[case]
    b = GraphBuilder()
    b.output(build(b), "out")
    graph = b.graph()
    new, _ = optimize(graph, options)
    for size in (graph.inputs[0].type.dims, shape):
        x = np.random.default_rng(1).standard_normal(size).astype(np.float32)
        with Session(graph, "reference") as before, Session(new, "reference") as after:
            np.testing.assert_allclose(
                after.run({"x": x})["out"], before.run({"x": x})["out"], rtol=1e-4, atol=1e-5
            )


def test_what_holds_for_every_size_is_still_done():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    y = b.conv2d(x, uniform(4, 3, 3, 3), uniform(4), padding=1)
    z = b.conv2d(x, uniform(4, 3, 1, 1))
    b.output(b.relu(b.add(b.mul(y, 1.0), z)), "out")
    new, _ = optimize(b.graph(), WITH_Z)
    assert text(new).splitlines()[1:] == [
        "v1 = ConvBiasForward(x, (4, 3, 3, 3), v0)",
        "v2 = FUSE_ADD_RELU((1, 4, 1, 1), v1)",
    ]


def test_sizes_that_can_change_are_found():
    b = GraphBuilder()
    x, y = b.input("x", (1, 3, 8, 8)), b.input("y", (1, 5))
    image = b.conv2d(x, uniform(4, 3, 3, 3), padding=1)
    b.output(image, "image")
    b.output(b.linear(y, uniform(4, 5)), "features")
    graph = b.graph()
    (types,) = types_at_other_sizes(graph)
    shapes = [types[v].shape for v in graph.inputs]
    # Batches change together, channels and features are those of the weights.
    assert shapes == [(3, 3, 40, 56), (3, 5)]


def test_a_network_of_one_size_has_no_others():
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    b.output(b.reshape_to(x, (6,)), "out")
    assert types_at_other_sizes(b.graph()) == []
