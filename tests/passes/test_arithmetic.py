"""Arithmetic as linear forms: numbered cases of the pass, and its laws on random networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pass_chains import assert_same_outputs, chains
from pass_nets import apply, of, text, uniform

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.passes.arithmetic import Arithmetic
from mgeserial.passes.base import Log, run_passes
from mgeserial.passes.batchnorm import BATCH_NORM
from mgeserial.passes.census import weight_bytes
from mgeserial.passes.folding import FoldConstants

X = (1, 4, 6, 6)
K = uniform(1, 4, 1, 1, seed=1) + 2
C = uniform(1, 4, 1, 1, seed=2)
W = uniform(5, 4, 3, 3, seed=3)
W1 = uniform(5, 4, 1, 1, seed=4)


def _simplified(build, **tolerance):
    graph = of(build)
    new, _, misses = apply(graph, FoldConstants(), Arithmetic(), FoldConstants(), **tolerance)
    return text(new), misses


GOLDEN = {
    "1 constants meet": (
        lambda b: b.add(b.mul(b.add(b.input("x", X), C), K), C),
        "v0 = FUSE_MUL_ADD3((1, 4, 1, 1), x, (1, 4, 1, 1))",
    ),
    "1 a division is a multiplication": (
        lambda b: b.div(b.input("x", X), 58.0),
        "v0 = MUL(0.0172414, x)",
    ),
    "1 a scalar widens to go with channels": (
        lambda b: b.add(b.mul(b.input("x", X), 0.5), C),
        "v0 = FUSE_MUL_ADD3((1, 4, 1, 1), x, (1, 4, 1, 1))",
    ),
    "2 products and a sum": (
        lambda b: b.add(
            b.mul(b.input("x", X), b.input("y", X)), b.mul(b.input("z", X), b.input("w", X))
        ),
        "v0 = FUSE_MUL_ADD4(x, y, z, w)",
    ),
    "2 a nonlinearity of a sum": (
        lambda b: b.relu(b.add(b.input("x", X), b.input("y", X))),
        "v0 = FUSE_ADD_RELU(x, y)",
    ),
    "2 a common factor stays one": (
        lambda b: b.add(b.mul(b.add(b.input("x", X), b.input("y", X)), 0.5), 1.0),
        "v0 = ADD(x, y)\nv1 = FUSE_MUL_ADD3(0.5, v0, 1)",
    ),
    "3 a factor of the result": (
        lambda b: b.mul(b.conv2d(b.input("x", X), W), uniform(1, 5, 1, 1)),
        "v0 = Convolution(x, (5, 4, 3, 3))",
    ),
    "3 a factor and a shift of the result": (
        lambda b: b.add(b.mul(b.conv2d(b.input("x", X), W, uniform(5)), 3.0), 1.0),
        "v0 = Convolution(x, (5, 4, 3, 3))\nv1 = ADD((1, 5, 1, 1), v0)",
    ),
    "3 a factor of the input": (
        lambda b: b.conv2d(b.mul(b.input("x", X), K), W, padding=1),
        "v0 = Convolution(x, (5, 4, 3, 3))",
    ),
    "3 a shift of the input, no padding": (
        lambda b: b.conv2d(b.add(b.input("x", X), C), W),
        "v0 = Convolution(x, (5, 4, 3, 3))\nv1 = ADD((1, 5, 1, 1), v0)",
    ),
    "3 a shift of the input stays before padding": (
        lambda b: b.conv2d(b.mul(b.sub(b.input("x", X), C), K), W, padding=1),
        "v0 = ADD((1, 4, 1, 1), x)\nv1 = Convolution(v0, (5, 4, 3, 3))",
    ),
    "3 groups": (
        lambda b: b.mul(
            b.conv2d(b.mul(b.input("x", X), K), uniform(8, 2, 3, 3), groups=2),
            uniform(1, 8, 1, 1),
        ),
        "v0 = Convolution(x, (2, 4, 2, 3, 3))",
    ),
    "3 a transposed convolution": (
        lambda b: b.mul(
            b.conv_transpose2d(b.mul(b.input("x", X), K), uniform(4, 3, 2, 2)),
            uniform(1, 3, 1, 1),
        ),
        "v0 = ConvolutionBackwardData((4, 3, 2, 2), x)",
    ),
    "3 a product of matrices": (
        lambda b: b.mul(
            b.matmul(b.mul(b.add(b.input("x", (3, 4)), uniform(1, 4)), 2.0), uniform(4, 5)),
            uniform(1, 5),
        ),
        "v0 = MatrixMul[DEFAULT](x, (4, 5))\nv1 = ADD((1, 5), v0)",
    ),
    "3 a product with a transposed matrix": (
        lambda b: b.mul(
            b.matmul(b.mul(b.input("x", (3, 4)), uniform(1, 4)), uniform(5, 4), transpose_b=True),
            uniform(1, 5),
        ),
        "v0 = MatrixMul[DEFAULT](x, (5, 4))",
    ),
    "4 the same value several times": (
        lambda b: (lambda x: b.add(b.add(x, x), x))(b.input("x", X)),
        "v0 = MUL(3, x)",
    ),
    "4 the negation of a value": (
        lambda b: b.add(b.input("x", X), b.elemwise(b.input("y", X), mode="NEGATE")),
        "v0 = SUB(x, y)",
    ),
    "5 integers": (
        lambda b: b.add(b.mul(b.input("x", X, "int32"), 2), 3),
        "v0 = MUL(x, 2)\nv1 = ADD(v0, 3)",
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden(case):
    build, expected = GOLDEN[case]
    assert _simplified(build)[0] == expected


def test_two_convolutions_with_their_biases_need_one_addition_of_a_constant():
    def build(b):
        x = b.input("x", X)
        left, right = b.conv2d(x, W, uniform(5), padding=1), b.conv2d(x, W1, uniform(5, seed=9))
        return b.relu(b.add(left, right))

    assert _simplified(build)[0].splitlines()[2:] == [
        "v2 = ADD(v0, v1)",
        "v3 = FUSE_ADD_RELU((1, 5, 1, 1), v2)",
    ]


def test_a_value_that_others_use_is_the_end_of_a_chain():
    b = GraphBuilder()
    scaled = b.mul(b.input("x", X), 2.0)
    b.output(b.mul(scaled, 3.0), "a")
    b.output(b.mul(scaled, 5.0), "b")
    new, rewrites, _ = apply(b.graph(), Arithmetic())
    assert rewrites == []
    assert len([n for n in new.nodes if n.op.name == "Elemwise"]) == 3


def test_shared_weights_are_a_near_miss():
    b = GraphBuilder()
    x, w = b.input("x", X), b.param(W)
    b.output(b.mul(b.conv2d(x, w), 2.0), "a")
    b.output(b.conv2d(x, w, padding=1), "b")
    new, _, misses = apply(b.graph(), Arithmetic())
    assert misses == ["its weights have 2 uses"]
    assert weight_bytes(new) == weight_bytes(b.graph())


def test_padding_is_named_in_a_near_miss():
    _, misses = _simplified(lambda b: b.conv2d(b.add(b.input("x", X), C), W, padding=1))
    assert misses == ["its padding of 1 x 1 is 0, not the shift"]


def test_a_factor_by_pixel_is_a_near_miss():
    _, misses = _simplified(
        lambda b: b.mul(b.conv2d(b.input("x", X), W, padding=1), uniform(1, 1, 6, 6))
    )
    assert misses == ["a factor of shape (1, 1, 6, 6) is not one number for each channel"]


def test_a_nonlinearity_inside_is_a_near_miss():
    def build(b):
        conv = b.conv_bias(
            b.input("x", X), W, uniform(1, 5, 1, 1), nonlineMode="RELU", pad_h=1, pad_w=1
        )
        return b.mul(conv, 2.0)

    assert _simplified(build)[1] == ["its nonlinearity RELU stands between"]


def test_a_bias_inside_takes_factor_and_shift():
    def build(b):
        conv = b.conv_bias(b.input("x", X), W, uniform(1, 5, 1, 1))
        return b.add(b.mul(conv, 2.0), uniform(1, 5, 1, 1, seed=7))

    assert _simplified(build)[0] == "v0 = ConvBiasForward(x, (5, 4, 3, 3), (1, 5, 1, 1))"


def test_zero_times_infinity_is_not_hidden():
    # 1 / 1e-39 is no float32: the division stays.
    assert _simplified(lambda b: b.div(b.input("x", X), 1e-39))[0] == "v0 = TRUE_DIV(x, 1e-39)"


def test_batch_norm_goes_into_the_convolution():
    def build(b):
        x = b.conv2d(b.input("x", X), W, padding=1)
        stats = [uniform(5, seed=s) for s in range(3)]
        return b.relu(b.batch_norm2d(x, *stats, np.abs(uniform(5)) + 1))

    new, rewrites, _ = apply(of(build), BATCH_NORM, Arithmetic())
    assert text(new) == "v0 = Convolution(x, (5, 4, 3, 3))\nv1 = FUSE_ADD_RELU((1, 5, 1, 1), v0)"
    assert rewrites == ["expand", "simplify: 2 operators became 1"]


def test_batch_norm_alone_is_one_operator():
    stats = [uniform(4, seed=s) for s in range(3)]
    graph = of(lambda b: b.batch_norm2d(b.input("x", X), *stats, np.ones(4, np.float32)))
    new, _, _ = apply(graph, BATCH_NORM)
    assert text(new) == "v0 = FUSE_MUL_ADD3((1, 4, 1, 1), x, (1, 4, 1, 1))"


def test_batch_norm_with_statistics_from_outside_is_a_near_miss():
    record = P.BN(fwd_mode=P.BNFwdMode.INFERENCE, param_dim=P.BNParamDim.DIM_1C11)

    def build(b):
        inputs = [b.input(n, (1, 4, 1, 1)) for n in ("s", "b", "m", "v")]
        return b.apply("BatchNorm", [b.input("x", X), *inputs], (record,))[-1]

    graph = of(build)
    log = Log("t")
    assert BATCH_NORM.run(graph, log) is graph
    assert [m.reason for m in log.near_misses] == ["its scale is no constant"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains())
def test_random_chains_keep_their_outputs_and_never_grow(graph):
    new, _ = run_passes(graph, [BATCH_NORM, FoldConstants(), Arithmetic(), FoldConstants()])
    assert_same_outputs(graph, new)
    assert weight_bytes(new) <= 2 * weight_bytes(graph) + 4096
    log = Log("again")
    Arithmetic().run(new, log)
    assert not log.rewrites
