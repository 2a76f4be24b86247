"""Differences name what changed and nothing else."""

from __future__ import annotations

import math
import time
import warnings

import numpy as np

from mgeserial import editing as edit
from mgeserial.author import GraphBuilder
from mgeserial.diff import diff
from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph


def network(scale: float = 1.0) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 2, 8, 8))
    y = b.conv2d(x, np.full((4, 2, 3, 3), scale, np.float32), padding=1)
    y = b.max_pool2d(b.relu(y), 2)
    b.output(b.flatten(y), "y")
    return b.graph()


def test_equal_graphs_have_no_difference() -> None:
    found = diff(network(), copy_graph(network())[0])
    assert found.is_empty
    assert found.same == len(network().nodes)


def test_one_changed_weight_is_all_that_is_reported() -> None:
    found = diff(network(), network(1.5))
    assert not found.added
    assert not found.removed
    ((name, (change,)),) = found.changed
    assert "SharedDeviceTensor" in name
    assert change.kind == "weight"
    assert change.max_abs == 0.5


def test_one_changed_parameter_is_named_with_both_values() -> None:
    other = network()
    node = edit.select(other, type="Pooling")[0]
    edit.set_param(other, node, mode=type(node.param.mode).AVERAGE)
    ((_, (change,)),) = diff(network(), other).changed
    assert str(change) == "parameter mode: MAX -> AVERAGE"


def test_an_inserted_operator_is_an_addition_and_a_rewiring() -> None:
    other = network()
    node = edit.select(other, type="Pooling")[0]
    b = GraphBuilder.within(other, after=node)
    edit.replace_value(other, node.outputs[0], b.sigmoid(node.outputs[0]))
    found = diff(network(), other)
    assert len(found.added) == 1
    assert not found.removed
    assert [c.kind for _, cs in found.changed for c in cs] == ["inputs"]


def test_interface_changes_are_reported() -> None:
    other = network()
    edit.rename(other, edit.find_value(other, "y"), "z")
    kinds = {(c.kind, c.what) for c in diff(network(), other).interface}
    assert kinds == {("output", "'y'"), ("output", "'z'")}


def test_json_holds_what_the_text_says() -> None:
    found = diff(network(), network(2.0))
    data = found.as_json()
    assert data["equal"] is False
    assert data["operators_changed"][0]["changes"][0]["max_abs"] == 1.0
    assert any("max abs difference 1" in line for line in found.lines())


def test_an_output_computed_by_another_operator_is_a_difference() -> None:
    def graph(*, swapped: bool) -> Graph:
        b = GraphBuilder()
        x = b.input("x", (4,))
        values = [b.relu(x), b.sigmoid(x)]
        for name, value in zip("ab", reversed(values) if swapped else values, strict=True):
            b.output(value, name)
        return b.graph()

    found = diff(graph(swapped=False), graph(swapped=True))
    assert [c.kind for c in found.interface] == ["output", "output"]
    assert "'a' is computed by" in found.interface[0].what
    assert diff(graph(swapped=True), graph(swapped=True)).is_empty


def test_bfloat16_differs_by_value_not_by_bits() -> None:
    def graph(bits: int) -> Graph:
        b = GraphBuilder()
        w = b.param(np.full(3, bits, np.uint16), dtype="BFloat16")
        b.output(w, "w")
        return b.graph()

    ((_, (change,)),) = diff(graph(0x3F80), graph(0x4000)).changed  # 1.0 and 2.0
    assert change.max_abs == 1.0


def test_a_difference_anywhere_in_a_large_weight_is_found() -> None:
    def graph(place: int) -> Graph:
        b = GraphBuilder()
        array = np.zeros(3_000_000, np.float32)
        array[place] = 2.0
        b.output(b.param(array), "w")
        return b.graph()

    ((_, (change,)),) = diff(graph(0), graph(2_999_999)).changed
    assert change.max_abs == 2.0


def test_graphs_whose_shapes_do_not_fit_are_compared_all_the_same() -> None:
    broken = network()
    node = edit.select(broken, type="Pooling")[0]
    broken.set_params(node, (node.param.replace(window_h=64),))
    found = diff(network(), broken)
    assert [c.what for _, cs in found.changed for c in cs] == ["window_h"]


def test_differences_have_one_order() -> None:
    def graph(names: str) -> Graph:
        b = GraphBuilder()
        for name in names:
            b.output(b.relu(b.input(name, (2,))), name.upper())
        return b.graph()

    found = diff(graph("abcdef"), graph("uvwxyz"))
    names = [c.what.strip("'") for c in found.interface]
    assert names == [*"abcdef", *"uvwxyz", *"ABCDEF", *"UVWXYZ"]


def test_thousands_of_operators_are_compared_in_seconds() -> None:
    from view_graphs import residual_network

    start = time.process_time()
    found = diff(residual_network(60), residual_network(100, channels=8))
    assert found.added
    assert time.process_time() - start < 20


def test_the_shape_of_an_input_is_one_difference() -> None:
    b = GraphBuilder()
    b.output(b.relu(b.input("x", (1, 3))), "y")
    other = copy_graph(b.graph())[0]
    edit.set_batch_size(other, 2)
    found = diff(b.graph(), other)
    assert [str(c) for c in found.interface] == [
        "input 'x': Float32 (1, 3) -> Float32 (2, 3)",
        "output 'y': Float32 (1, 3) -> Float32 (2, 3)",
    ]
    assert not found.changed


def test_signalling_nans_are_compared_in_silence() -> None:
    def graph(bits: int) -> Graph:
        b = GraphBuilder()
        b.output(b.param(np.array([bits, 0], np.uint16).view(np.float16)), "w")
        return b.graph()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((_, (change,)),) = diff(graph(0x7D00), graph(0)).changed
    assert change.max_abs is not None
    assert math.isnan(change.max_abs)
