from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one, apply_op, make_call

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum, quantized
from mgeserial.errors import ExecutionError, ShapeError, UnsupportedError


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def codes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


sizes = st.integers(0, 5)


@given(sizes, sizes, sizes, st.booleans(), st.booleans(), st.booleans())
def test_matrix_products_of_int8_are_exact(
    m: int, k: int, n: int, turn_a: bool, turn_b: bool, batched: bool
) -> None:
    a, b = codes(2, m, k), codes(2, k, n, seed=1)
    want = a.astype(np.int32) @ b.astype(np.int32)
    a = a.swapaxes(1, 2) if turn_a else a
    b = b.swapaxes(1, 2) if turn_b else b
    param = P.MatrixMul(transposeA=turn_a, transposeB=turn_b)
    if batched:
        np.testing.assert_array_equal(apply_one("BatchedMatrixMul", a, b, param=param), want)
    else:
        np.testing.assert_array_equal(apply_one("MatrixMul", a[0], b[0], param=param), want[0])


def test_quantised_products_subtract_zero_points_and_multiply_scales() -> None:
    a, b = np.array([[130, 120]], np.uint8), np.array([[129], [128]], np.uint8)
    kinds = (quantized("Quantized8Asymm", 0.5, 128), quantized("Quantized8Asymm", 0.25, 127))
    call = make_call("MatrixMul", a, b, param=P.MatrixMul(), dtypes=kinds)
    assert call.op.dtypes is not None
    assert list(call.op.dtypes(call)) == [quantized("QuantizedS32", 0.125)]
    y = apply_one("MatrixMul", a, b, param=P.MatrixMul(), dtypes=kinds)
    np.testing.assert_array_equal(y, [[2 * 2 + -8 * 1]])


def test_four_bit_products_are_16_bits_wide() -> None:
    kind = quantized("QuantizedS4", 0.5)
    a = np.array([[-8, 7]], np.int8)
    call = make_call("MatrixMul", a, a.T, param=P.MatrixMul(), dtypes=(kind, kind))
    assert call.op.dtypes is not None
    assert call.op.dtypes(call)[0].kind is DTypeEnum.QuantizedS16
    y = apply_one("MatrixMul", a, a.T, param=P.MatrixMul(), dtypes=(kind, kind))
    np.testing.assert_array_equal(y, [[113]])


@pytest.mark.parametrize(
    ("fmt", "lanes", "order"),
    [
        (P.MatrixMulFormat.MK4, 4, (0, 2, 3, 1)),
        (P.MatrixMulFormat.MK8, 8, (0, 2, 3, 1)),
        (P.MatrixMulFormat.MK4_DOT, 4, (0, 2, 1, 3)),
    ],
)
def test_packed_products(fmt: P.MatrixMulFormat, lanes: int, order: tuple[int, ...]) -> None:
    a, b = numbers(2 * lanes, 3 * lanes), numbers(3 * lanes, 5, seed=1)
    packed_a = a.reshape(2, lanes, 3, lanes).transpose(order)
    packed_b = b.reshape(3, lanes, 5).transpose(0, 2, 1)
    y = apply_one("MatrixMul", packed_a, packed_b, param=P.MatrixMul(format=fmt))
    np.testing.assert_allclose(
        y.transpose(0, 2, 1).reshape(2 * lanes, 5), a @ b, rtol=1e-5, atol=1e-5
    )


def test_product_errors_name_the_sizes() -> None:
    a, b = numbers(2, 3), numbers(2, 3)
    with pytest.raises(ShapeError, match=r"A .2, 3. has 3 columns, B .2, 3. has 2 rows"):
        apply_one("MatrixMul", a, b, param=P.MatrixMul())
    with pytest.raises(ShapeError, match="needs 3 dimensions on both sides"):
        apply_one("BatchedMatrixMul", a, b, param=P.MatrixMul())
    with pytest.raises(UnsupportedError, match="N32K4_DOT is not understood"):
        apply_one("MatrixMul", a, b, param=P.MatrixMul(format=P.MatrixMulFormat.N32K4_DOT))
    with pytest.raises(ShapeError, match="one element type, got Float32 and Int8"):
        apply_one("MatrixMul", a, codes(3, 2), param=P.MatrixMul())


def test_dot_keeps_the_type_and_repeats_one_element() -> None:
    a = np.array([100, 100, 3], np.int8)
    y = apply_one("Dot", a, np.array([2], np.int8), param=P.Empty())
    np.testing.assert_array_equal(y, np.array([406], np.int64).astype(np.int8))
    y = apply_one("Dot", numbers(3), numbers(3, seed=1), param=P.Empty())
    np.testing.assert_allclose(y, [numbers(3) @ numbers(3, seed=1)], rtol=1e-6)


def test_inverse_and_its_errors() -> None:
    x = numbers(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
    y = apply_one("MatrixInverse", x, param=P.Empty())
    np.testing.assert_allclose(x @ y, np.broadcast_to(np.eye(3), x.shape), atol=1e-5)
    with pytest.raises(ExecutionError, match="singular"):
        apply_one("MatrixInverse", np.zeros((2, 2), np.float32), param=P.Empty())
    with pytest.raises(ShapeError, match=r"needs \(..., n, n\), got \(2, 3\)"):
        apply_one("MatrixInverse", numbers(2, 3), param=P.Empty())


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 2, 5)])
def test_singular_values_compose_to_the_matrix(full: bool, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    u, s, vt = apply_op("SVD", x, param=P.SVD(full_matrices=full), count=3)
    k = s.shape[-1]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], x, atol=1e-5)
    np.testing.assert_array_equal(apply_one("SVD", x, param=P.SVD(compute_uv=False)), s)


@given(st.integers(0, 2), st.integers(-3, 2), st.integers(0, 2))
def test_cross_products_along_any_axes(axisa: int, axisb: int, axisc: int) -> None:
    a = np.moveaxis(numbers(2, 4, 3), -1, axisa)
    b = np.moveaxis(numbers(2, 4, 3, seed=1), -1, axisb)
    param = P.Cross(axisa=axisa, axisb=axisb, axisc=axisc)
    y = apply_one("Cross", a, b, param=param)
    np.testing.assert_allclose(y, np.cross(a, b, axisa, axisb, axisc), rtol=1e-5, atol=1e-6)


def test_cross_product_needs_three_elements() -> None:
    with pytest.raises(ShapeError, match="need 3 elements: axis 1 of"):
        apply_one("Cross", numbers(2, 2), numbers(2, 3), param=P.Cross())
