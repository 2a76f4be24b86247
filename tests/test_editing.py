"""Edits keep the graph valid and the numbers right; failed ones leave it as it was."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial import editing as edit
from mgeserial.author import GraphBuilder
from mgeserial.errors import GraphError, InputError, ShapeError
from mgeserial.ir.graph import Graph

X = np.array([[-1.0, 2.0, 3.0]], np.float32)


def network() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 3))
    y = b.linear(x, np.eye(3, dtype=np.float32), np.array([1, 1, 1], np.float32), name="fc")
    b.output(b.relu(y, name="act"), "out")
    return b.graph()


def run(graph: Graph, x: np.ndarray = X) -> dict[str, np.ndarray]:
    with Session(graph, "reference") as session:
        return session.run([x])


def links_are_in_step(graph: Graph) -> bool:
    seen = set()
    for node in graph.nodes:
        if any(v.node not in seen or node not in v.users for v in node.inputs):
            return False
        seen.add(node)
    return all(u in seen for v in graph.values() for u in v.users)


def test_inserting_after_a_value() -> None:
    graph = network()
    value = edit.find_value(graph, "out")
    b = GraphBuilder.within(graph, after=value.node)
    edit.replace_value(graph, value, b.mul(value, 10.0))
    assert links_are_in_step(graph)
    np.testing.assert_array_equal(run(graph)["out"], [[0, 30, 40]])


def test_replacing_a_node_removes_the_old_one() -> None:
    graph = network()
    old = edit.find_value(graph, "out").node
    new = GraphBuilder.within(graph, after=old).apply("Elemwise", old.inputs, old.params)[0].node
    edit.replace_node(graph, old, new)
    assert old not in graph.nodes
    np.testing.assert_array_equal(run(graph)["out"], [[0, 3, 4]])


def test_a_cycle_is_refused_and_nothing_changes() -> None:
    graph = network()
    fc, act = edit.find_value(graph, "fc"), edit.find_value(graph, "out")
    before = [(n, n.inputs) for n in graph.nodes]
    b = GraphBuilder.within(graph, after=act.node)
    after = b.relu(act)
    # `after` needs `fc` through `act`: what it is computed from goes on using the old value.
    assert edit.replace_value(graph, fc, after) == 0
    assert [(n, n.inputs) for n in graph.nodes if n is not after.node] == before


def test_outputs_are_added_and_removed() -> None:
    graph = network()
    edit.add_output(graph, edit.find_value(graph, "fc"), "hidden")
    assert list(run(graph)) == ["out", "hidden"]
    edit.remove_output(graph, "out")
    assert edit.remove_unused(graph) == 1
    assert list(run(graph)) == ["hidden"]
    with pytest.raises(InputError, match="only output"):
        edit.remove_output(graph, "hidden")


def test_renaming_an_input_and_an_output() -> None:
    graph = network()
    edit.rename(graph, edit.find_input(graph, "x"), "data")
    edit.rename(graph, edit.find_value(graph, "out"), "prob")
    assert graph.input_names == ("data",)
    assert graph.output_names == ("prob",)


def test_renaming_all_operators() -> None:
    graph = network()
    edit.rename_nodes(graph, "net/")
    assert all(n.name is not None and n.name.startswith("net/") for n in graph.nodes)


def test_extracting_between_values() -> None:
    graph = network()
    fc, out = edit.find_value(graph, "fc"), edit.find_value(graph, "out")
    part = edit.extract(graph, [fc], [out])
    assert part.input_names == ("fc",)
    np.testing.assert_array_equal(run(part)["out"], [[0, 2, 3]])
    with pytest.raises(GraphError, match="'x'"):
        edit.extract(graph, [], [out])


def test_batch_size_changes_everything_downstream() -> None:
    graph = network()
    edit.set_batch_size(graph, 4)
    assert graph.outputs[0].shape == (4, 3)
    assert run(graph, np.repeat(X, 4, axis=0))["out"].shape == (4, 3)


def test_a_baked_shape_names_its_operator() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4))
    b.output(b.relu(b.reshape_to(x, (2, 2), name="fixed")), "y")
    graph = b.graph()
    with pytest.raises(ShapeError, match=r'"fixed" .Reshape.*bakes the old shape'):
        edit.set_batch_size(graph, 2)
    assert graph.inputs[0].shape == (1, 4)


def test_a_failed_edit_changes_nothing() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (1, 4)), b.input("y", (1, 4))
    b.output(b.relu(x), "out")
    b.output(b.relu(y), "other")
    graph = b.graph()
    mistakes = [
        (lambda: edit.set_input_shapes(graph, {"x": (2, 4), "z": (2, 4)}), "'z'"),
        (lambda: edit.set_input_shapes(graph, {"x": (2, 4), "y": (-1, 4)}), "'y'"),
        (lambda: edit.set_input_shapes(graph, {"x": (2, 4), "y": ()}), "1 to 7 dimensions"),
        (lambda: edit.rename(graph, graph.inputs[0], "out"), "'out'"),
        (lambda: edit.set_batch_size(graph, 1.5), "batch size"),  # type: ignore[arg-type]
        (lambda: edit.set_param(graph, graph.nodes[-1], 1), "no number 1"),
        (lambda: edit.replace_weight(graph, graph.nodes[-1], X), "no number 0"),
        (lambda: edit.merge([graph, graph], prefixes=["a"]), "1 prefixes for 2 graphs"),
    ]
    for mistake, text in mistakes:
        with pytest.raises(InputError, match=text):
            mistake()
    assert graph.input_names == ("x", "y")
    assert [v.shape for v in graph.inputs] == [(1, 4), (1, 4)]


def test_parts_between_values_of_one_name_get_unique_inputs() -> None:
    b = GraphBuilder()
    values = [b.relu(b.input(name, (1,)), name="same") for name in ("p", "q", "r")]
    b.output(b.add(b.add(values[0], values[1]), values[2]), "sum")
    graph = b.graph()
    inner = [n.outputs[0] for n in graph.nodes if n.name == "same"]
    for given in (inner, [*inner, inner[0]]):
        part = edit.extract(graph, given, graph.outputs)
        assert part.input_names == ("same", "same#1", "same#2")


def test_constants_become_inputs_and_back() -> None:
    graph = network()
    weight = next(n for n in graph.params if n.tensors[0].shape == (1, 3))
    edit.const_to_input(graph, weight, "bias")
    with Session(graph, "reference") as session:
        got = session.run({"x": X, "bias": np.zeros((1, 3), np.float32)})["out"]
    np.testing.assert_array_equal(got, [[0, 2, 3]])
    edit.input_to_const(graph, "bias", np.full((1, 3), 5, np.float32))
    np.testing.assert_array_equal(run(graph)["out"], [[4, 7, 8]])


def test_selecting_by_type_name_and_dtype() -> None:
    graph = network()
    assert [n.display_name for n in edit.select(graph, type="Elemwise")] == ["fc", "act"]
    assert [n.display_name for n in edit.select(graph, name="a*")] == ["act"]
    assert len(edit.select(graph, dtype="float32")) == len(graph.nodes)
    with pytest.raises(GraphError, match="Elemwis"):
        edit.select(graph, type="Elemwis")


def test_editing_while_iterating_sees_the_first_state() -> None:
    graph = network()
    count = 0
    for node in graph.nodes:
        count += 1
        for value in node.outputs:
            edit.replace_value(graph, value, GraphBuilder.within(graph, after=node).relu(value))
    assert count * 2 == len(graph.nodes)
    assert links_are_in_step(graph)


def test_merging_shares_inputs_of_one_name() -> None:
    one, two = network(), network()
    with pytest.raises(GraphError, match="'out'"):
        edit.merge([one, two])
    edit.rename(two, edit.find_value(two, "out"), "second")
    both = edit.merge([one, two])
    assert both.input_names == ("x",)
    assert list(run(both)) == ["out", "second"]


def test_parameters_are_replaced_or_nothing_is() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 1, 4, 4))
    b.output(b.max_pool2d(x, 2, name="pool"), "y")
    graph = b.graph()
    node = edit.find_value(graph, "y").node
    edit.set_param(graph, node, stride_h=1)
    assert graph.outputs[0].shape == (1, 1, 3, 2)
    with pytest.raises(ShapeError):
        edit.set_param(graph, node, window_h=9)
    assert node.param.window_h == 2
    with pytest.raises(InputError, match="fields"):
        edit.set_param(graph, node, windowh=3)


def test_weights_are_replaced_in_kind() -> None:
    graph = network()
    weight = next(n for n in graph.params if n.tensors[0].shape == (3, 3))
    edit.replace_weight(graph, weight, 2 * np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(run(graph)["out"], [[0, 5, 7]])
    with pytest.raises(ShapeError, match=r"\(3, 3\)"):
        edit.replace_weight(graph, weight, np.zeros((3, 4), np.float32))
