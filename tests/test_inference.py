"""The driver of inference: what the single rules do is tested with the operators."""

from __future__ import annotations

import contextlib
import struct

import mge_builder as build
import numpy as np
import pytest

import mgeserial
from mgeserial import params as P
from mgeserial.errors import ShapeError
from mgeserial.ir.inference import infer
from mgeserial.ir.types import TensorType

EMPTY = [("Empty", {})]


def mode(name):
    return [("Elemwise", {"mode": int(P.ElemwiseMode[name])})]


def ints(*values):
    return build.constant_op(struct.pack(f"<{len(values)}i", *values), (len(values),), 4)


def graph_of(*ops, outputs=None):
    return mgeserial.load(build.v1(ops, outputs or [len(ops) - 1])).graph


def test_a_chain_from_a_shape_is_followed():
    graph = graph_of(
        build.input_op("x", (1, 1, 1)),
        {"op": "GetVarShape", "inputs": [0], "params": [("OptionalAxisV1", {})]},
        ints(2),
        {"op": "Elemwise", "inputs": [1, 2], "params": mode("MUL")},
        ints(1),
        {"op": "Concat", "inputs": [4, 3], "params": [("Axis", {})]},
        {"op": "Broadcast", "inputs": [0, 5], "params": EMPTY},
    )
    value = graph.inference.value(graph.nodes[5].outputs[0])
    assert value is not None
    assert value.tolist() == [1, 2, 2, 2]
    assert graph.outputs[0].shape == (1, 2, 2, 2)


def test_inputs_have_no_values_ahead_of_the_run():
    graph = graph_of(
        build.input_op("x", (2,), 4), {"op": "Elemwise", "inputs": [0], "params": mode("ABS")}
    )
    assert graph.inference.value(graph.outputs[0]) is None


def test_an_unknown_shape_names_the_first_cause():
    graph = graph_of(
        build.input_op("x", ()),
        {"op": "Elemwise", "inputs": [0], "params": mode("RELU")},
        {"op": "MatrixMul", "inputs": [1, 1], "params": [("MatrixMul", {})]},
    )
    found = graph.inference
    assert not found.is_complete
    assert found.cause[graph.outputs[0]].node is graph.nodes[0]
    assert len(found.stops) == 1


def test_shapes_given_by_the_caller_replace_the_stored_ones():
    graph = graph_of(
        build.input_op("x", (2, 3)), {"op": "Elemwise", "inputs": [0], "params": mode("RELU")}
    )
    found = infer(graph, {graph.inputs[0]: (7, 1)})
    assert found.types[graph.outputs[0]].shape == (7, 1)
    assert graph.outputs[0].shape == (2, 3)


def test_a_rule_that_fails_bare_ends_in_a_shape_error(monkeypatch):
    graph = graph_of(
        build.input_op("x", (2, 3)), {"op": "Elemwise", "inputs": [0], "params": mode("RELU")}
    )

    def broken(call):
        return [(1,) * call.nothing]

    monkeypatch.setattr(type(graph.nodes[1].op), "shapes", property(lambda self: broken))
    with pytest.raises(ShapeError, match=r"AttributeError.*inputs: ") as caught:
        infer(graph)
    assert "operator" in str(caught.value)


def test_no_value_is_looked_at_where_no_shape_depends_on_it(monkeypatch):
    graph = graph_of(
        build.input_op("x", (2, 3)),
        build.constant_op(bytes(24), (2, 3)),
        {"op": "Elemwise", "inputs": [0, 1], "params": mode("ADD")},
    )

    def touched(self):
        raise AssertionError("a tensor's value was read")

    monkeypatch.setattr(mgeserial.Tensor, "numpy", touched)
    assert graph.outputs[0].shape == (2, 3)


def test_parameters_cannot_make_inference_compute_for_long():
    # Convolution is never followed: padding a 1x1 image by 2**30 would take gigabytes.
    ops = [
        build.constant_op(bytes(4), (1, 1, 1, 1)),
        build.constant_op(bytes(4), (1, 1, 1, 1)),
        {
            "op": "Convolution",
            "inputs": [0, 1],
            "params": [("Convolution", {"pad_h": 2**30, "stride_h": 2**31})],
        },
        {"op": "TypeCvt", "inputs": [2], "params": [(67, build.dtype(4))]},
        {"op": "Reshape", "inputs": [0, 3], "params": [("OptionalAxisV1", {})]},
    ]
    graph = mgeserial.load(build.v1(ops, [4])).graph
    with contextlib.suppress(ShapeError):  # a rule that refuses such a padding is fine too
        assert graph.inference.value(graph.nodes[2].outputs[0]) is None


def test_a_long_chain_needs_no_deep_recursion():
    links = [{"op": "Elemwise", "inputs": [i], "params": mode("ABS")} for i in range(3000)]
    graph = graph_of(ints(1, 2), *links)
    value = graph.inference.value(graph.outputs[0])
    assert value is not None
    np.testing.assert_array_equal(value, [1, 2])


def test_types_print_as_people_write_them():
    graph = graph_of(build.input_op("x", (4,)))
    assert str(graph.inputs[0].type) == "Float32 (4,)"
    assert str(TensorType(graph.inputs[0].dtype, None)) == "Float32 (?)"
    assert str(TensorType(graph.inputs[0].dtype, (None, 2))) == "Float32 (?, 2)"
