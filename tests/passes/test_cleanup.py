"""Clean-up: folding, common sub-expressions, dead code, no-ops, chains of moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pass_chains import assert_same_outputs, chains
from pass_nets import apply, of, text, uniform

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT16, FLOAT32, INT8, quantized
from mgeserial.editing import set_batch_size
from mgeserial.passes.base import Log, run_passes
from mgeserial.passes.census import weight_bytes
from mgeserial.passes.folding import CommonSubexpressions, DeadCode, FoldConstants, SharedConstants
from mgeserial.passes.noops import NO_OPS
from mgeserial.passes.shuffles import ShuffleChains

X = (2, 4, 6, 6)
S8 = quantized("QuantizedS8", 0.1)

# -- folding ---------------------------------------------------------------------------------------


def test_operators_of_constants_become_one_constant():
    graph = of(lambda b: b.add(b.input("x", (3,)), b.mul(b.add(uniform(3), 1.0), 2.0)))
    new, rewrites, _ = apply(graph, FoldConstants(), exact=True)
    assert text(new) == "v0 = ADD(x, (3,))"
    assert rewrites == ["fold: 2 operators into 12 bytes"]


def test_the_kind_of_the_largest_leaf_is_kept():
    b = GraphBuilder()
    b.output(b.add(b.input("x", (3,)), b.mul(b.param(uniform(3)), b.const(2.0))), "a")
    b.output(b.add(b.input("y", (3,)), b.exp(b.const(uniform(3)))), "b")
    new, _, _ = apply(b.graph(), FoldConstants(), exact=True)
    assert [n.op.name for n in new.params] == ["SharedDeviceTensor", "ImmutableTensor"]


def test_a_constant_that_would_grow_is_left_with_the_reason():
    graph = of(lambda b: b.add(b.input("x", (64, 4)), b.broadcast(uniform(1, 4), [64, 4])))
    new, rewrites, misses = apply(graph, FoldConstants(growth=100), exact=True)
    assert rewrites == []
    assert misses == ["its 1024 bytes would replace 24 bytes of weights"]
    assert text(new) == "v0 = Broadcast((1, 4), (2,))\nv1 = ADD(x, v0)"
    new, rewrites, _ = apply(graph, FoldConstants(), exact=True)
    assert rewrites == ["fold: 1 operator into 1024 bytes"]


def test_random_numbers_are_no_constants():
    graph = of(lambda b: b.add(b.uniform_rng(b.const([3])), b.input("x", (3,))))
    log = Log("t")
    assert FoldConstants().run(graph, log) is graph


def test_a_constant_output_keeps_its_name():
    b = GraphBuilder()
    b.output(b.exp(b.const(uniform(3))), "fixed")
    new, _, _ = apply(b.graph(), FoldConstants(), exact=True)
    assert (new.output_names, new.outputs[0].name) == (("fixed",), "fixed")
    assert text(new) == ""


# -- common sub-expressions, dead code, shared constants -------------------------------------------


def test_equal_operators_are_one_also_on_equal_constants():
    def build(b):
        x = b.input("x", X)
        return b.add(b.relu(b.mul(x, uniform(1, 4, 1, 1))), b.relu(b.mul(x, uniform(1, 4, 1, 1))))

    new, rewrites, _ = apply(of(build), CommonSubexpressions(), exact=True)
    assert text(new) == "v0 = MUL(x, (1, 4, 1, 1))\nv1 = RELU(v0)\nv2 = ADD(v1, v1)"
    assert len(rewrites) == 2


def test_outputs_random_numbers_and_other_parameters_are_not_merged():
    b = GraphBuilder()
    x = b.input("x", (8, 8))
    b.output(b.relu(x), "a")
    b.output(b.relu(x), "b")
    b.output(b.uniform_rng(b.const([2])), "c")
    b.output(b.add(b.uniform_rng(b.const([2])), 0.0), "d")
    b.output(b.reduce(x, axis=0), "e")
    b.output(b.reduce(x, axis=1), "f")
    log = Log("t")
    graph = b.graph()
    assert CommonSubexpressions().run(graph, log) is graph
    assert [m.reason for m in log.near_misses] == [
        "it is an output of the network under its own name"
    ]


def test_equal_constants_are_stored_once():
    def build(b):
        x = b.input("x", X)
        return b.mul(b.add(x, uniform(1, 4, 1, 1)), uniform(1, 4, 1, 1))

    graph = of(build)
    new, rewrites, _ = apply(graph, SharedConstants(), exact=True)
    assert len(rewrites) == 1
    assert weight_bytes(new) == weight_bytes(graph) // 2


def test_dead_operators_go_and_inputs_stay():
    b = GraphBuilder()
    x, y = b.input("x", (2,)), b.input("y", (2,))
    b.tanh(b.mul(y, 2.0))
    b.output(b.relu(x), "out")
    new, rewrites, _ = apply(b.graph(), DeadCode(), exact=True)
    assert text(new) == "v0 = RELU(x)"
    assert new.input_names == ("x", "y")
    assert len(rewrites) == 3


# -- operators without effect ----------------------------------------------------------------------


NEW = P.AxisDesc(method=P.AxisDescMethod.ADD_1, axis=1)
GOLDEN = {
    "1 identity": (lambda b: b.relu(b.identity(b.input("x", X))), "v0 = RELU(x)"),
    "1 marker": (lambda b: b.relu(b.mark_no_broadcast_elemwise(b.input("x", X))), "v0 = RELU(x)"),
    "3 same type": (lambda b: b.relu(b.cast(b.input("x", X), FLOAT32)), "v0 = RELU(x)"),
    "4 there and back": (
        lambda b: b.relu(b.cast(b.cast(b.input("x", X, FLOAT16), FLOAT32), FLOAT16)),
        "v0 = RELU(x)",
    ),
    "4 by way of float32": (
        lambda b: b.cast(b.cast(b.input("x", X, INT8), FLOAT32), S8),
        "v0 = TypeCvt(x)",
    ),
    "5 same shape": (lambda b: b.relu(b.reshape_to(b.input("x", X), X)), "v0 = RELU(x)"),
    "6 one input": (lambda b: b.relu(b.cat([b.input("x", X)])), "v0 = RELU(x)"),
    "6 one part": (lambda b: b.relu(b.split_sizes(b.input("x", X), [4])[0]), "v0 = RELU(x)"),
    "6 an axis of length 1": (
        lambda b: b.relu(b.mean(b.axis_add_remove(b.input("x", (2, 3)), desc=(NEW,)), 1)),
        "v0 = AxisAddRemove(x)\nv1 = RELU(v0)",
    ),
    "left: an axis that the input may have longer": (
        lambda b: b.relu(b.mean(b.input("x", (2, 1, 3)), 1)),
        "v0 = Reduce(x)\nv1 = RELU(v0)",
    ),
    "left: a shape that a longer input would be given too": (
        lambda b: b.relu(b.reshape(b.input("x", (2, 6)), np.array([-1, 6], np.int32), axis=0)),
        "v0 = Reshape(x, (2,))\nv1 = RELU(v0)",
    ),
    "7 zero": (lambda b: b.relu(b.add(0.0, b.sub(b.input("x", X), 0.0))), "v0 = RELU(x)"),
    "7 one": (lambda b: b.relu(b.mul(1.0, b.div(b.input("x", X), 1.0))), "v0 = RELU(x)"),
    "7 zeros of a smaller shape": (
        lambda b: b.relu(b.add(b.input("x", X), np.zeros((1, 4, 1, 1), np.float32))),
        "v0 = RELU(x)",
    ),
    "8 minus minus": (
        lambda b: b.relu(b.elemwise(b.elemwise(b.input("x", X), mode="NEGATE"), mode="NEGATE")),
        "v0 = RELU(x)",
    ),
    "8 relu of relu": (lambda b: b.relu(b.relu(b.input("x", X))), "v0 = RELU(x)"),
    "8 abs of sigmoid": (
        lambda b: b.elemwise(b.sigmoid(b.input("x", X)), mode="ABS"),
        "v0 = SIGMOID(x)",
    ),
    "left: zeros that broadcast": (
        lambda b: b.relu(b.add(b.input("x", (1, 4, 1, 1)), np.zeros(X, np.float32))),
        "v0 = ADD(x, (2, 4, 6, 6))\nv1 = RELU(v0)",
    ),
    "left: a shape that a smaller batch is broadcast to": (
        lambda b: b.relu(b.broadcast(b.input("x", X), list(X))),
        "v0 = Broadcast(x, (4,))\nv1 = RELU(v0)",
    ),
    "left: integers become floats": (
        lambda b: b.relu(b.add(b.input("x", X, "int32"), 0.0)),
        "v0 = ADD(x, 0)\nv1 = RELU(v0)",
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_no_ops(case):
    build, expected = GOLDEN[case]
    new, _, _ = apply(of(build), NO_OPS, exact=True)
    assert text(new) == expected


def test_a_conversion_that_loses_is_a_near_miss():
    graph = of(lambda b: b.cast(b.cast(b.input("x", X), FLOAT16), FLOAT32))
    _, rewrites, misses = apply(graph, NO_OPS, exact=True)
    assert (rewrites, misses) == ([], ["Float32 to Float16 rounds"])


# -- chains of moves -------------------------------------------------------------------------------

MOVES = {
    "1 shuffled and back": (
        lambda b, x: b.transpose(b.transpose(x, (0, 2, 3, 1)), (0, 3, 1, 2)),
        "v0 = RELU(x)",
    ),
    "1 blocks and back": (
        lambda b, x: b.relayout_format(b.relayout_format(x, mode="NCHW_NCHW4"), mode="NCHW4_NCHW"),
        "v0 = RELU(x)",
    ),
    "1 blocks by hand and back by operator": (
        lambda b, x: b.relayout_format(
            b.transpose(b.reshape_to(x, (2, 1, 4, 6, 6)), (0, 1, 3, 4, 2)), mode="NCHW4_NCHW"
        ),
        "v0 = RELU(x)",
    ),
    "2 reshapes": (
        lambda b, x: b.reshape_to(b.reshape_to(x, (2, 4, 36)), (8, 36)),
        "v0 = Reshape(x, (2,))\nv1 = RELU(v0)",
    ),
    "2 two shuffles": (
        lambda b, x: b.transpose(b.transpose(x, (0, 2, 3, 1)), (3, 0, 1, 2)),
        "v0 = Dimshuffle(x)\nv1 = RELU(v0)",
    ),
    "2 two changes of layout": (
        lambda b, x: b.relayout_format(
            b.relayout_format(b.relayout_format(x, mode="NCHW_NCHW4"), mode="NCHW4_NCHW"),
            mode="NCHW_NHWC",
        ),
        "v0 = Dimshuffle(x)\nv1 = RELU(v0)",
    ),
    "3 three moves as two": (
        lambda b, x: b.transpose(
            b.transpose(b.reshape_to(x, (2, 2, 2, 6, 6)), (0, 2, 1, 3, 4)), (0, 1, 3, 4, 2)
        ),
        "v0 = Reshape(x, (5,))\nv1 = Dimshuffle(v0)\nv2 = RELU(v1)",
    ),
    "4 axes added twice": (
        lambda b, x: b.axis_add_remove(
            b.axis_add_remove(x, desc=(P.AxisDesc(axis=0),)), desc=(P.AxisDesc(axis=0),)
        ),
        "v0 = Dimshuffle(x)\nv1 = RELU(v0)",
    ),
}


@pytest.mark.parametrize("case", MOVES)
def test_moves(case):
    build, expected = MOVES[case]
    new, _, _ = apply(of(lambda b: b.relu(build(b, b.input("x", X)))), ShuffleChains(), exact=True)
    assert text(new) == expected


def test_padding_is_no_plain_move():
    def build(b):
        x = b.input("x", (2, 3, 6, 6))
        packed = b.relayout_format(x, mode="NCHW_NCHW4")
        return b.relu(b.relayout_format(packed, mode="NCHW4_NCHW"))

    new, rewrites, _ = apply(of(build), ShuffleChains(), exact=True)
    assert rewrites == []
    assert len(text(new).splitlines()) == 3


def test_a_part_that_others_use_stays_when_the_rest_goes():
    b = GraphBuilder()
    turned = b.transpose(b.input("x", X), (0, 2, 3, 1))
    b.output(b.relu(turned), "turned")
    b.output(b.tanh(b.transpose(turned, (0, 3, 1, 2))), "back")
    new, rewrites, _ = apply(b.graph(), ShuffleChains(), exact=True)
    assert text(new) == "v0 = Dimshuffle(x)\nv1 = RELU(v0)\nv2 = TANH(x)"
    assert rewrites == ["shorten: 2 moves became nothing"]


def test_the_batch_stays_free_where_no_reshape_fixed_it():
    def build(b):
        x = b.input("x", (1, 4, 6, 1))
        removed = P.AxisDesc(method=P.AxisDescMethod.REMOVE, axis=3)
        return b.relu(b.axis_add_remove(b.transpose(x, (0, 2, 1, 3)), desc=(removed,)))

    new, rewrites, _ = apply(of(build), ShuffleChains(), exact=True)
    assert rewrites == ["shorten: 2 moves became Dimshuffle (0, 2, 1)"]
    set_batch_size(new, 3)
    assert new.outputs[0].shape == (3, 6, 4)


def test_nothing_is_reshaped_where_a_shape_is_computed():
    def build(b):
        x = b.input("x", X)
        flat = b.reshape(x, b.get_var_shape(x))
        return b.relu(b.transpose(flat, (0, 2, 3, 1)))

    _, rewrites, _ = apply(of(build), ShuffleChains(), exact=True)
    assert rewrites == ["shorten: 2 moves became Dimshuffle (0, 2, 3, 1)"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains())
def test_clean_up_keeps_outputs_exactly_and_bounds_growth(graph):
    passes = [DeadCode(), CommonSubexpressions(), NO_OPS, FoldConstants(), ShuffleChains()]
    new, _ = run_passes(graph, [*passes, SharedConstants()])
    assert_same_outputs(graph, new, tolerance=0.0)
    assert weight_bytes(new) <= 2 * weight_bytes(graph)
    assert len(new.nodes) <= len(graph.nodes)
