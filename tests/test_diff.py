"""Differences name what changed and nothing else."""

from __future__ import annotations

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
