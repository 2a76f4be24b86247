"""Elementwise loops, their fusion, and broadcasting, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Builder
from test_conv import RUNNABLE, check

from loadrun.backends.cpu.fusion import fuse
from loadrun.backends.cpu.kernels.elementwise import collapse
from loadrun.backends.cpu.nodes import Conv, Dense, Eltwise
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import MgeError
from mgeserial.params import ElemwiseMode

SHAPES = [
    ((5000,), (1,)),
    ((3, 5, 7), (3, 5, 7)),
    ((3, 5, 7), (5, 1)),
    ((3, 5, 7), (3, 1, 7)),
    ((1, 1, 9), (4, 3, 1)),
    ((2, 3, 4, 33), (1, 3, 1, 1)),
    ((2, 3, 4, 5, 6), (3, 1, 5, 1)),
    ((10, 1), (1, 1)),
    ((2, 9, 11, 3), (3,)),
    ((2, 9, 11, 3), (2, 1, 1, 3)),
    ((9, 11, 3), (9, 1, 3)),
    ((1, 1, 3), (4, 11, 3)),
]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["add", "div", "max"])
def test_broadcasting(shapes: tuple[tuple[int, ...], ...], kind: str, level: str) -> None:
    b = Builder(shapes[0])
    other = b.const(b.rng.uniform(1, 2, shapes[1]))
    check(b.network(b.both(kind, "x", other)), level=level)


@pytest.mark.parametrize("shape", [(2, 20, 1, 1), (1, 20, 1, 1), (1, 1, 9, 7), (2, 1, 9, 7), (1,)])
def test_blocked_operands(shape: tuple[int, ...]) -> None:
    b = Builder((2, 20, 9, 7))
    y = b.pool(b.conv("x", 20, 3, 1, 1), "max", 3, 1, 1)
    net = b.network(b.act(b.both("mul", y, b.const(b.rng.uniform(1, 2, shape))), "silu"))
    check(net)


def test_a_gate_computed_from_the_tensor_itself() -> None:
    b = Builder((2, 32, 8, 8))
    x = b.act(b.conv("x", 48, 3, 1, 1))
    pooled = b.pool(x, "mean", 8, 1)
    gate = b.act(b.conv(pooled, 48, 1), "sigmoid")
    check(b.network(b.conv(b.both("mul", x, gate), 16, 1)))


def test_silu_written_as_two_operators_becomes_an_epilogue() -> None:
    b = Builder((1, 16, 8, 8))
    c = b.conv("x", 16, 3, 1, 1)
    net = b.network(b.both("mul", c, b.act(c, "sigmoid")))
    fused = fuse(net)
    assert [type(n) for n in fused.nodes] == [Conv]
    check(net)


def test_batch_norm_and_relu_disappear_into_the_convolution() -> None:
    b = Builder((1, 16, 8, 8))
    net = b.network(b.act(b.norm(b.conv("x", 24, 3, 1, 1, bias=False))))
    fused = fuse(net)
    assert [type(n) for n in fused.nodes] == [Conv]
    assert isinstance(fused.nodes[0], Conv)
    assert [o.kind for o in fused.nodes[0].epilogue.ops] == ["relu"]
    check(net)


def test_norm_after_relu_stays_outside_the_filter() -> None:
    b = Builder((1, 16, 8, 8))
    net = b.network(b.conv(b.norm(b.act(b.conv("x", 24, 1))), 16, 1))
    assert [type(n) for n in fuse(net).nodes] == [Conv, Eltwise, Conv]
    check(net)


def test_a_tensor_that_is_an_output_is_not_fused_away() -> None:
    b = Builder((1, 16, 8, 8))
    c = b.conv("x", 24, 1)
    net = b.network(c, b.act(c))
    assert len(fuse(net).nodes) == 2
    check(net)


def test_three_convolutions_added_keep_two_operands_each() -> None:
    b = Builder((1, 16, 8, 8))
    one, two, three = (b.conv("x", 16, k, 1, k // 2) for k in (1, 3, 5))
    net = b.network(b.act(b.plus(b.plus(one, two), three)))
    assert [type(n) for n in fuse(net).nodes] == [Conv] * 3
    check(net)


def test_bias_and_activation_of_a_matrix_product() -> None:
    b = Builder((5, 40))
    y = b.act(b.both("add", b.dense("x", 24), b.const(b.rng.normal(size=24))), "tanh")
    net = b.network(b.both("add", b.dense(y, 24), y))
    assert [type(n) for n in fuse(net).nodes] == [Dense, Dense]
    check(net)


@pytest.mark.parametrize("order", [0, 1])
def test_subtraction_from_either_side(order: int) -> None:
    b = Builder((1, 8, 6, 6))
    pair = [b.conv("x", 16, 1), b.const(b.rng.normal(size=(1, 16, 1, 1)))]
    net = b.network(b.both("sub", pair[order], pair[1 - order]))
    assert [type(n) for n in fuse(net).nodes] == [Conv]
    check(net)


def test_collapse_joins_what_every_operand_walks_as_one() -> None:
    assert collapse((2, 3, 4), [[12, 4, 1], [12, 4, 1]]) == ([24], [[1], [1]])
    assert collapse((2, 3, 4), [[12, 4, 1], [0, 0, 1]]) == ([6, 4], [[4, 1], [0, 1]])
    assert collapse((1, 1), [[0, 0]]) == ([1], [[0]])


def test_nan_follows_the_rules_of_the_operators() -> None:
    from loadrun.backends.cpu.cache import Cache
    from loadrun.backends.cpu.planner import make_plan
    from loadrun.backends.cpu.program import Program
    from loadrun.backends.cpu.target import detect

    b = Builder((3,))
    limit = b.const(np.full(3, 2.0))
    net = b.network(b.act("x"), b.both("min", "x", limit), b.both("max", "x", limit))
    program = Program(make_plan(net, detect(), threads=1), detect(), Cache(None))
    relu, low, high = program.run([np.array([np.nan, 1.0, 3.0], np.float32)])
    program.close()
    np.testing.assert_array_equal(relu, [0.0, 1.0, 3.0])
    np.testing.assert_array_equal(low, [2.0, 1.0, 2.0])
    np.testing.assert_array_equal(high, [np.nan, 2.0, 3.0])


def test_ends_of_the_numbers_are_those_of_the_reference() -> None:
    """NaN, infinities, zeros and huge numbers through every mode of one and two operands."""
    ends = np.array(
        [np.nan, np.inf, -np.inf, 0, -0.0, 1, -2.5, 100, -100, 1e10, 3e38, -3e38], np.float32
    )
    x, y = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(ends, ends))
    b = GraphBuilder()
    inputs = [b.input("x", x.shape), b.input("y", y.shape)]
    for mode in ElemwiseMode:
        for count in (1, 2):
            try:
                value = b.elemwise(*inputs[:count], mode=mode)
            except MgeError:  # another number of operands, or integers only
                continue
            b.output(value, f"{mode.name} {count}")
    graph = b.graph()
    assert len(graph.outputs) > 60
    with Session(graph, "cpu") as session, Session(graph, "reference") as reference:
        with np.errstate(all="ignore"):
            got, want = session.run({"x": x, "y": y}), reference.run({"x": x, "y": y})
        for name, expected in want.items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-30, err_msg=name)
