"""Fusions: ConvBias, z, grain, preprocessing; float16."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pass_chains import assert_same_outputs, chains
from pass_nets import apply, of, text, uniform

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT16, FLOAT32, quantized
from mgeserial.passes import OptimizeOptions, optimize
from mgeserial.passes.base import Log
from mgeserial.passes.convbias import CONV_BIAS, CONV_Z, DECONV_TYPE
from mgeserial.passes.float16 import Float16
from mgeserial.passes.folding import FoldConstants
from mgeserial.passes.grain import GRAIN, REDUCE_TYPE
from mgeserial.passes.preprocess import PREPROCESS

X = (2, 4, 6, 6)
W = uniform(5, 4, 3, 3, seed=3)
BIAS = uniform(1, 5, 1, 1)
S8, S8B = quantized("QuantizedS8", 0.1), quantized("QuantizedS8", 0.25)
S32 = quantized("QuantizedS32", 0.01)


def _conv(b, **given):
    return b.convolution(b.input("x", X), W, **given)


GOLDEN = {
    "1 bias": (lambda b: b.add(_conv(b), BIAS), "IDENTITY"),
    "1 bias first": (lambda b: b.add(BIAS, _conv(b)), "IDENTITY"),
    "1 bias and relu": (lambda b: b.elemwise(_conv(b), BIAS, mode="FUSE_ADD_RELU"), "RELU"),
    "1 bias and sigmoid": (
        lambda b: b.elemwise(_conv(b), BIAS, mode="FUSE_ADD_SIGMOID"),
        "SIGMOID",
    ),
    "1 bias and h-swish": (
        lambda b: b.elemwise(_conv(b), BIAS, mode="FUSE_ADD_H_SWISH"),
        "H_SWISH",
    ),
    "1 bias of the result's shape": (
        lambda b: b.add(_conv(b), b.input("y", (2, 5, 4, 4))),
        "IDENTITY",
    ),
    "2 relu": (lambda b: b.relu(_conv(b, pad_h=1)), "RELU"),
    "2 h-swish": (lambda b: b.hswish(_conv(b)), "H_SWISH"),
    "3 a second nonlinearity": (lambda b: b.relu(b.conv_bias(b.input("x", X), W, BIAS)), "RELU"),
    "3 relu of relu": (
        lambda b: b.relu(b.conv_bias(b.input("x", X), W, BIAS, nonlineMode="RELU")),
        "RELU",
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_convolution_and_what_follows_are_one(case):
    build, nonlinear = GOLDEN[case]
    new, rewrites, _ = apply(of(build), CONV_BIAS)
    (node,) = [n for n in new.nodes if n.inputs]
    assert (node.op.name, str(node.param.nonlineMode)) == ("ConvBiasForward", nonlinear)
    assert len(rewrites) == 1


NEAR = {
    "a bias of another shape": (
        lambda b: b.add(_conv(b), uniform(5, 1, 1)),
        "an operand of shape (5, 1, 1) is no bias of shape (1, 5, 1, 1)",
    ),
    "a constant of the result's shape": (
        lambda b: b.add(_conv(b), uniform(2, 5, 4, 4)),
        "an operand of shape (2, 5, 4, 4) is no bias of shape (1, 5, 1, 1)",
    ),
    "a nonlinearity inside": (
        lambda b: b.sigmoid(b.conv_bias(b.input("x", X), W, BIAS, nonlineMode="RELU")),
        "it has the nonlinearity RELU already",
    ),
}


@pytest.mark.parametrize("case", NEAR)
def test_near_misses_of_conv_bias_say_why(case):
    build, reason = NEAR[case]
    _, rewrites, misses = apply(of(build), CONV_BIAS)
    assert rewrites == []
    assert reason in misses


def test_a_convolution_with_other_users_stays():
    b = GraphBuilder()
    conv = _conv(b)
    b.output(b.add(conv, BIAS), "a")
    b.output(b.tanh(conv), "b")
    _, rewrites, misses = apply(b.graph(), CONV_BIAS)
    assert rewrites == []
    assert misses == ["'Convolution[2]' has 1 other use"]


def _quantised(b, **given):
    w = np.arange(5 * 4, dtype=np.int8).reshape(5, 4, 1, 1)
    x = b.input("x", X, S8)
    bias = np.arange(5, dtype=np.int32).reshape(1, 5, 1, 1)
    return b.conv_bias(x, b.param(w, dtype=S8), b.param(bias, dtype=S32), **given)


def test_conversion_to_8_bits_is_rounded_once():
    new, rewrites, _ = apply(of(lambda b: b.cast(_quantised(b), S8B)), CONV_BIAS, steps=1)
    assert rewrites == ["type"]
    assert new.outputs[0].dtype == S8B


def test_other_conversions_are_near_misses():
    def build(b):
        return b.cast(_quantised(b, output_dtype=S8B), S8)

    _, _, misses = apply(of(build), CONV_BIAS)
    assert misses == [
        "only QuantizedS32 to QuantizedS8 is rounded inside, "
        "got QuantizedS8(scale=0.25) to QuantizedS8(scale=0.100000001)"
    ]


def test_a_residual_is_the_fourth_input():
    def build(b):
        conv = b.conv_bias(b.input("x", X), W, BIAS)
        return b.elemwise(conv, b.input("z", (2, 5, 4, 4)), mode="FUSE_ADD_RELU")

    new, rewrites, _ = apply(of(build), CONV_BIAS, CONV_Z)
    assert rewrites == ["z"]
    node = new.outputs[0].node
    assert (len(node.inputs), str(node.param.nonlineMode)) == (4, "RELU")


def test_a_quantised_residual_is_the_fourth_input():
    def build(b):
        conv = _quantised(b, output_dtype=S8B)
        z = b.input("z", (2, 5, 6, 6), S8)
        return b.elemwise_multi_type(conv, z, mode="QFUSE_ADD_RELU", output_dtype=S8)

    new, rewrites, _ = apply(of(build), CONV_BIAS, CONV_Z, steps=3)
    assert rewrites == ["quantised-z"]
    assert new.outputs[0].dtype == S8


def test_a_residual_of_another_shape_is_a_near_miss():
    def build(b):
        conv = b.conv_bias(b.input("x", X), W, BIAS)
        return b.add(conv, b.input("z", (2, 5, 1, 1)))

    _, _, misses = apply(of(build), CONV_BIAS, CONV_Z)
    assert misses == ["a value of shape (2, 5, 1, 1) is added to one of (2, 5, 4, 4)"]


def test_a_transposed_convolution_converts_its_result():
    def build(b):
        w = b.param(np.ones((4, 3, 2, 2), np.int8), dtype=S8)
        return b.cast(b.convolution_backward_data(w, b.input("x", X, S8)), S8B)

    new, rewrites, _ = apply(of(build), DECONV_TYPE, steps=1)
    assert rewrites == ["type"]
    assert text(new) == "v0 = ConvolutionBackwardData((4, 3, 2, 2), x)"


# -- grain -----------------------------------------------------------------------------------------


def test_a_mean_out_of_its_parts():
    def build(b):
        x = b.relu(b.input("x", X))
        length = b.cast(b.get_var_shape(x, axis=1), FLOAT32)
        return b.div(b.reduce(x, mode="SUM", axis=1), length)

    new, rewrites, _ = apply(of(build), GRAIN)
    assert rewrites == ["mean"]
    assert text(new) == "v0 = RELU(x)\nv1 = Reduce(v0)"


def test_a_mean_over_another_axis_is_a_near_miss():
    def build(b):
        x = b.relu(b.input("x", X))
        length = b.cast(b.get_var_shape(x, axis=2), FLOAT32)
        return b.div(b.reduce(x, mode="SUM", axis=1), length)

    _, _, misses = apply(of(build), GRAIN)
    assert misses == ["it sums over axis 1 and divides by axis 2"]


@pytest.mark.parametrize("mode", ["MEAN", "MAX"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_global_pooling_out_of_its_parts(mode, shuffled):
    def build(b):
        x = b.input("x", X)
        pooled = b.reduce(b.reshape_to(x, (2, 4, 36)), mode=mode, axis=2)
        if not shuffled:
            return b.axis_add_remove(pooled, desc=(P.AxisDesc(axis=3),))
        removed = P.AxisDesc(method=P.AxisDescMethod.REMOVE, axis=2)
        flat = b.axis_add_remove(pooled, desc=(removed,))
        return b.dimshuffle(flat, pattern=(0, 1, -1, -1), ndim=2)

    new, rewrites, _ = apply(of(build), GRAIN)
    assert len(rewrites) == 1
    assert text(new) == "v0 = AdaptivePooling(x, (2,))"


def test_a_reduction_converts_its_input():
    graph = of(lambda b: b.reduce(b.cast(b.input("x", X, FLOAT16), FLOAT32), axis=1))
    new, rewrites, _ = apply(graph, REDUCE_TYPE, rtol=1e-3)
    assert rewrites == ["reduce-type"]
    assert str(new.outputs[0].node.param.data_type) == "FLOAT_O32xC32"


# -- preprocessing ---------------------------------------------------------------------------------

IMAGE = (1, 3, 6, 6)
U8Q = quantized("Quantized8Asymm", 1.0, 128)
S8Q = quantized("QuantizedS8", 1.0)


def _padded(b, x, dtype):
    zeros = np.zeros((1, 1, 6, 6), dtype.storage)
    return b.cat([x, b.param(zeros, dtype=dtype)], axis=1)


def _blocks(b, x):
    return b.transpose(b.reshape_to(x, (1, 1, 4, 6, 6)), (0, 1, 3, 4, 2))


def _moved(b, *, by=-128.0, sub=False):
    real = b.cast(b.input("image", IMAGE, "uint8"), FLOAT32)
    return b.sub(real, -by) if sub else b.add(real, by)


PREPROCESSED = {
    "1 uint8": lambda b: _blocks(b, _padded(b, b.cast(_moved(b), S8Q), S8Q)),
    "1 uint8, subtracted": lambda b: _blocks(b, _padded(b, b.cast(_moved(b, sub=True), S8Q), S8Q)),
    "1 asymmetric": lambda b: _blocks(
        b, _padded(b, b.cast(b.input("image", IMAGE, U8Q), S8Q), S8Q)
    ),
    "2 conversion last": lambda b: b.cast(_blocks(b, _padded(b, _moved(b), FLOAT32)), S8Q),
}


@pytest.mark.parametrize("case", PREPROCESSED)
def test_an_image_is_converted_padded_and_shuffled_at_once(case):
    new, rewrites, _ = apply(of(PREPROCESSED[case]), PREPROCESS, exact=True)
    assert len(rewrites) == 1
    assert text(new) == "v0 = RelayoutFormat:NCHW_NCHW4(image)"
    assert new.outputs[0].dtype == S8Q


def test_an_image_as_nhwc_is_reshaped_after_it():
    def build(b):
        return b.transpose(_padded(b, b.cast(_moved(b), S8Q), S8Q), (0, 2, 3, 1))

    new, rewrites, _ = apply(of(build), PREPROCESS, exact=True)
    assert rewrites == ["image-to-nhwc4"]
    assert text(new) == "v0 = RelayoutFormat:NCHW_NCHW4(image)\nv1 = Reshape(v0, (4,))"


def test_another_shift_is_a_near_miss():
    def build(b):
        return _blocks(b, _padded(b, b.cast(_moved(b, by=-127.0), S8Q), S8Q))

    _, rewrites, misses = apply(of(build), PREPROCESS)
    assert (rewrites, misses) == ([], ["it is moved by another number than 128"])


def test_a_warp_converts_its_image():
    def build(b):
        matrix = b.input("m", (1, 3, 3))
        warped = b.warp_perspective(b.input("image", IMAGE, "uint8"), matrix, [5, 5])
        return b.cast(warped, FLOAT32)

    graph = of(build)
    log = Log("t")
    new = PREPROCESS.run(graph, log)
    assert [r.rule for r in log.rewrites] == ["warp-type"]
    assert text(new) == "v0 = WarpPerspective(image, m, (2,))"
    assert new.outputs[0].dtype == FLOAT32


# -- float16 ---------------------------------------------------------------------------------------


def _network(b):
    x = b.conv2d(b.input("x", X), W, uniform(5), padding=1)
    return b.relu(
        b.batch_norm2d(x, *(uniform(5, seed=s) for s in range(3)), np.ones(5, np.float32))
    )


@pytest.mark.parametrize(("wide", "mode"), [(True, "FLOAT32"), (False, "DEFAULT")])
def test_values_are_float16_and_outputs_stay(wide, mode):
    graph = of(_network)
    log = Log("t")
    new = Float16(sum_float32=wide).run(graph, log)
    assert new.inputs[0].dtype == FLOAT32
    assert new.outputs[0].dtype == FLOAT32
    assert new.output_names == graph.output_names
    conv = next(n for n in new.nodes if n.op.name == "Convolution")
    assert (conv.outputs[0].dtype, str(conv.param.compute_mode)) == (FLOAT16, mode)
    again = Log("t")
    assert Float16(sum_float32=wide).run(new, again) is new
    assert not again.rewrites
    assert_close(graph, new)


def assert_close(before, after):
    from pass_nets import feeds

    from mgeserial.passes.evaluate import compute

    inputs = feeds(before)
    for a, b in zip(compute(before, inputs), compute(after, inputs), strict=True):
        np.testing.assert_allclose(b, a, rtol=0.02, atol=0.02)


def test_weights_take_half_the_bytes():
    graph = of(_network)
    options = OptimizeOptions(enable_ioc16=True, enable_fuse_conv_bias_nonlinearity=True)
    new, report = optimize(graph, options)
    plain, _ = optimize(graph, OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True))
    assert report.options.bits == 0b1000110
    assert 2 * sum(t.nbytes for n in new.params for t in n.tensors) == sum(
        t.nbytes for n in plain.params for t in n.tensors
    )
    assert text(new).splitlines() == [
        "v0 = TypeCvt(x)",
        "v1 = ConvBiasForward(v0, (5, 4, 3, 3), (1, 5, 1, 1))",
        "v2 = TypeCvt(v1)",
    ]


def test_operators_that_need_float32_keep_it_with_the_reason():
    def build(b):
        x = b.relu(b.input("x", (1, 6, 6, 3)))
        return b.cvt_color(x, mode="RGB2GRAY")

    graph = of(build)
    log = Log("t")
    new = Float16(sum_float32=True).run(graph, log)
    assert [m.reason for m in log.near_misses] == [
        "it does not take float16: RGB2GRAY needs Float32 or Uint8 images, got Float16"
    ]
    assert_close(graph, new)


def test_sizes_computed_in_float32_stay_exact():
    def build(b):
        x = b.relu(b.input("x", (1, 2, 5000, 1)))
        size = b.mul(b.cast(b.get_var_shape(x), FLOAT32), 1.0)
        return b.add(b.reshape(x, b.cast(size, "int32")), 1.0)

    graph = of(build)
    new = Float16(sum_float32=True).run(graph, Log("t"))
    assert new.outputs[0].shape == (1, 2, 5000, 1)
    assert_close(graph, new)


def test_a_matrix_of_a_warp_stays_float32():
    def build(b):
        return b.warp_perspective(
            b.relu(b.input("x", (1, 3, 6, 6))), b.input("m", (1, 3, 3)), [5, 5]
        )

    new = Float16(sum_float32=False).run(of(build), Log("t"))
    warp = next(n for n in new.nodes if n.op.name == "WarpPerspective")
    assert [v.dtype for v in warp.inputs[:2]] == [FLOAT16, FLOAT32]


def test_integers_are_left_alone():
    graph = of(lambda b: b.add(b.input("x", (3,), "int32"), 1))
    assert Float16(sum_float32=True).run(graph, Log("t")) is graph


# -- all together ----------------------------------------------------------------------------------

OPTIONS = [
    OptimizeOptions(),
    OptimizeOptions(enable_fuse_conv_bias_nonlinearity=True),
    OptimizeOptions(enable_fuse_conv_bias_with_z=True, enable_fuse_preprocess=True),
]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains())
def test_random_networks_keep_their_outputs(graph):
    for options in OPTIONS:
        new, report = optimize(graph, options)
        assert_same_outputs(graph, new)
        assert not optimize(new, options)[1].rewrites
        assert sum(_computing(report.after).values()) <= sum(_computing(report.before).values())


def _computing(counts):
    return {k: n for k, n in counts.items() if "Tensor" not in k}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains(max_steps=6))
def test_random_networks_in_float16_are_converted_once(graph):
    options = OptimizeOptions(enable_io16xc32=True, enable_fuse_conv_bias_nonlinearity=True)
    new, _ = optimize(FoldConstants().run(graph, Log("t")), options)
    assert not optimize(new, options)[1].rewrites
    assert [v.dtype for v in new.outputs] == [v.dtype for v in graph.outputs]
