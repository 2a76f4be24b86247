from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_op
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial._record import Params
from mgeserial.dtypes import BFLOAT16
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops.numerics import bfloat16_to_float32, float32_to_bfloat16

DIMS = {
    P.BNParamDim.DIM_11HW: (1, 1, 3, 4),
    P.BNParamDim.DIM_1CHW: (1, 2, 3, 4),
    P.BNParamDim.DIM_1C11: (1, 2, 1, 1),
    P.BNParamDim.DIM_111C: (1, 1, 1, 4),
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_inference_batch_norm_by_hand() -> None:
    x = np.array([1, 3, 5, 7], np.float32).reshape(1, 2, 1, 2)
    stat = [np.array(v, np.float32).reshape(1, 2, 1, 1) for v in ([2, 1], [0, 1], [1, 5], [4, 1])]
    param = P.BN(param_dim=P.BNParamDim.DIM_1C11, fwd_mode=P.BNFwdMode.INFERENCE, epsilon=0.0)
    *_, reserve, y = apply_op("BatchNorm", x, *stat, param=param, count=4)
    np.testing.assert_array_equal(y.reshape(-1), [0, 2, 1, 3])
    assert reserve.shape == (0,)


@pytest.mark.parametrize(("dim", "shape"), DIMS.items())
@pytest.mark.parametrize("count", [5, 6])
def test_training_batch_norm_updates_running_statistics(
    dim: P.BNParamDim, shape: tuple[int, ...], count: int
) -> None:
    x = numbers(5, 2, 3, 4)
    scale, bias, mean, variance = (numbers(*shape, seed=i) for i in range(4))
    param = P.BN(param_dim=dim, epsilon=1e-3, avg_factor=0.25)
    outputs = apply_op("BatchNorm", x, scale, bias, mean, variance, param=param, count=count)
    axes = tuple(i for i in range(4) if shape[i] == 1)
    n = x.size // mean.size
    batch, spread = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    want = [
        0.75 * mean + 0.25 * batch,
        0.75 * variance + 0.25 * spread * n / (n - 1),
        batch,
        1 / np.sqrt(spread + 1e-3),
        (x - batch) / np.sqrt(spread + 1e-3) * scale + bias,
    ]
    if count == 6:
        assert outputs.pop(4).shape == (0,)
    for found, expected in zip(outputs, want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dim", "shape"), DIMS.items())
def test_gradient_of_batch_norm(dim: P.BNParamDim, shape: tuple[int, ...]) -> None:
    x, scale, bias = numbers(3, 2, 3, 4), numbers(*shape, seed=1), numbers(*shape, seed=2)
    dy, param = numbers(3, 2, 3, 4, seed=3), P.BN(param_dim=dim, epsilon=1e-2)

    def loss(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> float:
        y = apply_op("BatchNorm", x, scale, bias, param=param, count=3)[-1]
        return float((y.astype(np.float64) * dy).sum())

    mean, rstd, _ = apply_op("BatchNorm", x, scale, bias, param=param, count=3)
    d_scale, d_bias, dx = apply_op(
        "BatchNormBackward", x, dy, mean, rstd, scale, param=param, count=3
    )
    assert_gradient(loss, (x, scale, bias), (dx, d_scale, d_bias))


AXES: list[tuple[str, Params, tuple[int, ...]]] = [
    ("LayerNorm", P.LayerNorm(normalized_dim=2, normalized_size=12, eps=0.1), (3, 4)),
    ("GeneralNorm", P.GeneralNorm(axis_start=1, axis_end=3, eps=0.1), (6, 3)),
    ("GroupNorm", P.GroupNorm(group=2, eps=0.1), (6,)),
    ("InstanceNorm", P.GroupNorm(group=2, eps=0.1), (6,)),
]


@pytest.mark.parametrize(("name", "param", "weights"), AXES)
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_of_norms(name: str, param: Any, weights: tuple[int, ...], affine: bool) -> None:
    x, dy = numbers(2, 6, 3, 4), numbers(2, 6, 3, 4, seed=9)
    extra = [numbers(*weights, seed=i) for i in (1, 2)] if affine else []

    def loss(*inputs: np.ndarray) -> float:
        y = apply_op(name, *inputs, param=param, count=3)[0]
        return float((y.astype(np.float64) * dy).sum())

    _, mean, third = apply_op(name, x, *extra, param=param, count=3)
    count = 3 if affine else 1
    grads = apply_op(name + "Backward", dy, x, *extra[:1], mean, third, param=param, count=count)
    assert_gradient(loss, (x, *extra), grads)


def test_group_norm_gives_the_variance_and_layer_norm_one_over_the_deviation() -> None:
    x = np.array([1, 3, 2, 6], np.float32).reshape(1, 2, 1, 2)
    _, mean, variance = apply_op("GroupNorm", x, param=P.GroupNorm(group=2, eps=0), count=3)
    np.testing.assert_array_equal(mean, [[2, 4]])
    np.testing.assert_array_equal(variance, [[1, 4]])
    param = P.LayerNorm(normalized_dim=1, normalized_size=2, eps=0)
    _, mean, rstd = apply_op("LayerNorm", x, param=param, count=3)
    np.testing.assert_array_equal(mean, [[[2], [4]]])
    np.testing.assert_array_equal(rstd, [[[1], [0.5]]])


def test_instance_norm_ignores_the_number_of_groups() -> None:
    x = numbers(2, 6, 3, 4)
    y = apply_op("InstanceNorm", x, param=P.GroupNorm(group=6), count=3)[0]
    same = apply_op("InstanceNorm", x, param=P.GroupNorm(group=1), count=3)[0]
    np.testing.assert_array_equal(y, same)


@given(st.integers(0, 3), st.integers(1, 6), st.integers(0, 4))
def test_lrn_sums_over_near_channels(half: int, channels: int, seed: int) -> None:
    x = numbers(1, channels, 2, 1, seed=seed)
    param = P.LRN(n=2 * half + 1, k=1.0, alpha=0.5, beta=2.0)
    (y,) = apply_op("LRN", x, param=param)
    for c in range(channels):
        near = x[:, max(c - half, 0) : c + half + 1]
        want = x[:, c] / (1 + 0.5 * (near**2).sum(axis=1)) ** 2
        np.testing.assert_allclose(y[:, c], want, rtol=1e-5)


def test_gradient_of_lrn() -> None:
    x, dy = numbers(2, 5, 2, 2), numbers(2, 5, 2, 2, seed=1)
    param = P.LRN(n=3, k=1.5, alpha=0.7, beta=0.75)

    def loss(x: np.ndarray) -> float:
        return float((apply_op("LRN", x, param=param)[0].astype(np.float64) * dy).sum())

    (y,) = apply_op("LRN", x, param=param)
    assert_gradient(loss, (x,), apply_op("LRNBackward", x, y, dy, param=param))


def test_norms_of_bfloat16_compute_in_float32() -> None:
    x = float32_to_bfloat16(numbers(2, 8))
    param = P.LayerNorm(normalized_dim=1, normalized_size=8)
    y = apply_op("LayerNorm", x, param=param, count=3, dtypes=(BFLOAT16,))[0]
    real = bfloat16_to_float32(x)
    want = apply_op("LayerNorm", real, param=param, count=3)[0]
    np.testing.assert_array_equal(y, float32_to_bfloat16(want))


def test_errors_say_what_does_not_fit() -> None:
    x, two = numbers(1, 2, 3, 4), numbers(1, 2, 1, 1)
    param = P.BN(param_dim=P.BNParamDim.DIM_1C11)
    fixed = param.replace(fwd_mode=P.BNFwdMode.INFERENCE)
    with pytest.raises(ShapeError, match="needs mean and variance"):
        apply_op("BatchNorm", x, two, two, param=fixed, count=4)
    with pytest.raises(ShapeError, match=r"scale \(DIM_1C11\) must have shape \(1, 2, 1, 1\)"):
        apply_op("BatchNorm", x, numbers(1, 3, 1, 1), two, param=param, count=4)
    with pytest.raises(UnsupportedError, match="param_dim UNKNOWN_9 is not known"):
        apply_op("BatchNorm", x, two, two, param=P.BN(param_dim=P.BNParamDim(9)), count=4)
    layer = P.LayerNorm(normalized_dim=1, normalized_size=3)
    with pytest.raises(ShapeError, match="normalized_size is 3, but the last 1 axes"):
        apply_op("LayerNorm", x, param=layer, count=3)
    with pytest.raises(ShapeError, match="2 channels are not 3 groups"):
        apply_op("GroupNorm", x, param=P.GroupNorm(group=3), count=3)
    with pytest.raises(ShapeError, match="must be odd, got 4"):
        apply_op("LRN", x, param=P.LRN(n=4))
    with pytest.raises(ShapeError, match=r"no axes 2 to 5 \(exclusive\)"):
        apply_op("GeneralNorm", x, param=P.GeneralNorm(axis_start=2, axis_end=5), count=3)
