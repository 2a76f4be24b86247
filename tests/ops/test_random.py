from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one, apply_op, make_call

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops.generator import Generator


def shape(*dims: int) -> np.ndarray:
    return np.array(dims, np.int32)


def test_uniform_numbers_are_those_of_megengine() -> None:
    # MegEngine 1.13.0, CPU: UniformRNG with seed 3.
    y = apply_one("UniformRNG", shape(5), param=P.UniformRNG(seed=3, dtype=DTypeEnum.Float16))
    np.testing.assert_array_equal(y, np.array([0.1865, 0.9453, 0.1963, 0.6836, 0.2754], np.float16))


@given(st.integers(0, 2**64 - 1), st.integers(1025, 20000), st.integers(0, 3))
def test_lanes_give_the_numbers_of_single_steps(seed: int, count: int, before: int) -> None:
    fast, slow = Generator(seed), Generator(seed)
    np.testing.assert_array_equal(fast.integers(before), slow.integers(before))
    want = np.concatenate([slow.integers(min(1000, count - i)) for i in range(0, count, 1000)])
    np.testing.assert_array_equal(fast.integers(count), want)
    assert fast.state == slow.state


def test_runs_go_on_where_the_last_one_stopped() -> None:
    param = P.GaussianRNG(seed=5, mean=3.0, std=2.0)
    call = make_call("GaussianRNG", shape(6), param=param)
    assert call.op.dtypes is not None
    assert call.op.reference is not None
    call = call.replace(output_types=tuple(TensorType(d, None) for d in call.op.dtypes(call)))
    parts = [call.op.reference(call, shape(6)) for _ in range(2)]
    whole = apply_one("GaussianRNG", shape(12), param=param)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_gaussian_numbers_have_their_mean_and_deviation() -> None:
    y = apply_one("GaussianRNG", shape(100, 301), param=P.GaussianRNG(seed=1, mean=3.0, std=2.0))
    assert abs(float(y.mean()) - 3) < 0.05
    assert abs(float(y.std()) - 2) < 0.05


@given(st.integers(0, 50), st.integers(0, 1000))
def test_permutations_and_shuffles_keep_all_elements(count: int, seed: int) -> None:
    y = apply_one("PermutationRNG", shape(count), param=P.PermutationRNG(seed=seed))
    np.testing.assert_array_equal(np.sort(y), np.arange(count))
    x = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    param = P.ShuffleRNG(seed=seed)
    rows, index = apply_op("ShuffleRNG", x, param=param, count=2)
    np.testing.assert_array_equal(rows, x[index])
    np.testing.assert_array_equal(apply_one("ShuffleRNGBackward", rows, index, x, param=param), x)


def test_distributions_have_their_means() -> None:
    ones = np.ones(20000, np.float32)
    cases = [
        (apply_one("GammaRNG", 2 * ones, 3 * ones, param=P.GammaRNG(seed=1)), 6.0),
        (apply_one("BetaRNG", 2 * ones, 6 * ones, param=P.BetaRNG(seed=1)), 0.25),
        (apply_one("PoissonRNG", 4 * ones, param=P.PoissonRNG(seed=1)), 4.0),
        (apply_one("ExponentialRNG", 4 * ones, param=P.ExponentialRNG(seed=1)), 0.25),
    ]
    for y, mean in cases:
        assert abs(float(y.mean()) - mean) < 0.05 * mean


def test_parameters_outside_their_range_give_nan() -> None:
    y = apply_one("PoissonRNG", np.array([-1, 0, np.nan], np.float32), param=P.PoissonRNG())
    np.testing.assert_array_equal(np.isnan(y), [True, False, True])


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_by_weight(replacement: bool) -> None:
    probs = np.tile(np.array([[1, 0, 3]], np.float32), (4000, 1))
    param = P.MultinomialRNG(seed=2, num_samples=2, replacement=replacement)
    y = apply_one("MultinomialRNG", probs, param=param)
    assert y.shape == (4000, 2)
    assert set(np.unique(y)) == {0, 2}
    assert abs(float((y[:, 0] == 2).mean()) - 0.75) < 0.03
    assert replacement or bool((y[:, 0] != y[:, 1]).all())


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(UnsupportedError, match="floating point numbers, not Int32"):
        apply_one("UniformRNG", shape(2), param=P.UniformRNG(dtype=DTypeEnum.Int32))
    with pytest.raises(ShapeError, match="at most 2147483647 elements"):
        apply_one("UniformRNG", shape(1 << 30, 4), param=P.UniformRNG())
    with pytest.raises(ShapeError, match=r"makes vectors, asked for \(2, 3\)"):
        apply_one("PermutationRNG", shape(2, 3), param=P.PermutationRNG())
    param = P.MultinomialRNG(num_samples=3)
    with pytest.raises(ShapeError, match="3 samples without replacement of 2 classes"):
        apply_one("MultinomialRNG", np.ones((1, 2), np.float32), param=param)


def test_shape_is_unknown_until_its_operand_is() -> None:
    call: Call = make_call("UniformRNG", shape(2, 3), param=P.UniformRNG(), values_known=False)
    assert call.op.shapes is not None
    assert list(call.op.shapes(call)) == [(None, None)]
