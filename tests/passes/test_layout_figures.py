"""Figures of MegEngine's own tests, for the same graphs."""

from __future__ import annotations

import numpy as np
import pytest
from layout_nets import Int8Builder, chain, chwn4, nchw4_of, nchw_of, pair, s8, tensor_core
from pass_nets import feeds

from mgeserial.ir.graph import Graph
from mgeserial.passes import OptimizeOptions, OutputCheck, optimize
from mgeserial.passes.census import census


def converted(graph: Graph, layout: str, steps: int = 0) -> dict[str, int]:
    """Census of the graph under a layout; its outputs are those of before."""
    options = OptimizeOptions(**{f"enable_{layout}": True})
    inputs = {name: 10 * x for name, x in feeds(graph).items()}
    check = OutputCheck(inputs, rtol=0, atol=steps * 2.5)
    new, _ = optimize(graph, options, check=check)
    return census(new)


def test_all_five_operators_of_a_chain_work_in_nchw4():
    found = converted(chain(), "nchw4")
    assert found["Dimshuffle"] == 2
    assert found["ConvBiasForward[NCHW4]"] == 2
    assert found["Resize[NCHW4]"] == 1
    assert found["WarpPerspective[NCHW4]"] == 1
    assert found["Pooling[NCHW4]"] == 1
    assert found["ElemwiseMultiType:QADD"] == 1
    assert not [kind for kind in found if "[NCHW]" in kind]


def test_a_dense_and_a_group_convolution_have_two_reshapes():
    found = converted(pair(), "nchw4")
    assert (found["Reshape"], found["Dimshuffle"]) == (2, 2)
    assert found["ConvBiasForward[NCHW4]"] == 2


def test_three_channels_use_the_small_relayout():
    found = converted(pair(3), "nchw4")
    assert found["RelayoutFormat:NCHW_NCHW4_IC_SMALL"] == 1
    assert (found["Reshape"], found["Dimshuffle"]) == (1, 1)
    assert found["ConvBiasForward[NCHW4]"] == 2


@pytest.mark.parametrize("fmt", ["NCHW", "NCHW4"])
def test_tensor_cores_take_two_shuffles(fmt):
    found = converted(tensor_core(fmt), "nchw32")
    assert found["Dimshuffle"] == 2
    assert found["ConvBiasForward[NCHW32]"] == 2


@pytest.mark.parametrize(("fmt", "shuffles"), [("NCHW", 3), ("NCHW4", 2)])
def test_a_group_convolution_ahead_of_them_stays_in_nchw4(fmt, shuffles):
    found = converted(tensor_core(fmt, grouped=True), "nchw32")
    assert found["Dimshuffle"] == shuffles
    assert found["ConvBiasForward[NCHW4]"] == 1
    assert found["ConvBiasForward[NCHW32]"] == 2


@pytest.mark.parametrize("fmt", ["NCHW", "NCHW4"])
def test_chwn4_from_both_layouts(fmt):
    # The residual is fused, which leaves out one rounding of the graph before.
    found = converted(chwn4(fmt), "chwn4", steps=3)
    assert found["ConvBiasForward[CHWN4]"] == 2
    assert not [kind for kind in found if kind.startswith("ConvBias") and "CHWN4" not in kind]


def test_shuffles_of_the_network_merge_with_those_of_tensor_cores():
    b = Int8Builder()
    x, z = (nchw4_of(b, b.image(name, (2, 64, 8, 8))) for name in "xz")
    y = nchw_of(b, b.layer(x, (64, 64, 3, 3), format="NCHW4", z=z))
    found = converted(b.finish(y), "nchw32")
    assert found["Dimshuffle"] == 3
    assert found["ConvBiasForward[NCHW32]"] == 1


def test_shuffles_of_the_network_merge_with_those_of_chwn4():
    b = Int8Builder()
    x = nchw4_of(b, b.image("x", (2, 64, 8, 8)))
    first = b.layer(x, (64, 64, 3, 3), format="NCHW4")
    second = b.layer(first, (64, 64, 3, 3), format="NCHW4")
    total = b.elemwise_multi_type(first, second, mode="QMUL", output_dtype=s8(2.5))
    found = converted(b.finish(nchw_of(b, total)), "chwn4")
    assert found["Dimshuffle"] == 2
    assert "RelayoutFormat:CHWN4_NCHW4" not in found
    assert found["ConvBiasForward[CHWN4]"] == 2


def test_float32_stays_in_nchw_under_nchw4():
    b = Int8Builder()
    rng = np.random.default_rng(0)
    flt = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    b.output(b.relu(b.conv2d(b.input("x", (2, 4, 8, 8)), flt)), "out")
    found = converted(b.graph(), "nchw4")
    assert found["ConvBiasForward[NCHW]"] == 1
    assert "Dimshuffle" not in found
