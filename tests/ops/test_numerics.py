from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgeserial import dtypes as D
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops import numerics as N
from mgeserial.ops import special

floats = st.floats(width=32, allow_nan=False)
S8 = D.quantized("QuantizedS8", 0.5)
U8 = D.quantized("Quantized8Asymm", 0.5, 128)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@given(floats.filter(lambda x: abs(x) < 1e9))
def test_rhaz_is_the_nearest_integer_with_halves_away_from_zero(x: float) -> None:
    exact = Fraction(x)
    want = int(abs(exact) + Fraction(1, 2)) * (-1 if x < 0 else 1)
    assert N.rhaz(f32(x))[0] == want


def test_rhaz_keeps_what_is_not_finite_and_the_largest_fraction_below_a_half() -> None:
    got = N.rhaz(f32(0.49999997, math.inf, -math.inf, math.nan, 8388609.0))
    np.testing.assert_array_equal(got, f32(0, math.inf, -math.inf, math.nan, 8388609.0))


def test_quantize_clamps_adds_the_zero_point_and_sends_nan_to_the_lowest_code() -> None:
    x = f32(0.25, -0.25, 1e9, -1e9, math.nan, math.inf)
    assert N.quantize(x, S8).tolist() == [1, -1, 127, -128, -128, 127]
    assert N.quantize(x, U8).tolist() == [129, 127, 255, 0, 0, 255]


def test_quantized_32_bits_end_at_the_largest_float_below_two_to_31() -> None:
    got = N.quantize(f32(1e30, -1e30), D.quantized("QuantizedS32", 1.0))
    assert got.tolist() == [2147483520, -2147483648]


@given(st.integers(0, 255))
def test_quantize_undoes_dequantize(code: int) -> None:
    codes = np.array([code], np.uint8)
    assert N.quantize(N.dequantize(codes, U8), U8) == codes


@given(floats)
def test_float16_is_nearest_with_ties_away(x: float) -> None:
    got = float(N.float16_from_float32(f32(x))[0])
    with np.errstate(over="ignore"):
        even = f32(x).astype(np.float16)[0]
    if not np.isfinite(even):
        assert got == float(even)
        return
    around = [float(np.nextafter(even, np.float16(s * np.inf))) for s in (-1, 1)]
    best = min(abs(Fraction(c) - Fraction(x)) for c in [float(even), *around] if math.isfinite(c))
    assert abs(Fraction(got) - Fraction(x)) == best
    ties = [c for c in around if math.isfinite(c) and abs(Fraction(c) - Fraction(x)) == best]
    assert all(abs(got) >= abs(c) for c in ties)


def test_float16_facts() -> None:
    x = f32(1 + 2**-11, 2**-25, 65519.9, 65520.0, -math.inf)
    assert N.float16_from_float32(x).tolist() == [1 + 2**-10, 2**-24, 65504.0, math.inf, -math.inf]
    assert np.isnan(N.float16_from_float32(f32(math.nan)))[0]


@given(st.integers(0, 65535))
def test_bfloat16_survives_float32(bits: int) -> None:
    array = np.array([bits], np.uint16)
    wide = N.bfloat16_to_float32(array)
    if np.isnan(wide[0]):
        assert np.isnan(N.bfloat16_to_float32(N.float32_to_bfloat16(wide)))[0]
    else:
        assert N.float32_to_bfloat16(wide) == array


def test_bfloat16_ties_go_to_even() -> None:
    x = f32(1 + 2**-8, 1 + 3 * 2**-8)
    np.testing.assert_array_equal(
        N.bfloat16_to_float32(N.float32_to_bfloat16(x)), f32(1.0, 1 + 2**-6)
    )


def test_floats_are_cut_to_integers_as_x86_does() -> None:
    assert N.truncate(f32(-1.9, 3e9, math.nan), D.INT32).tolist() == [-1, -(2**31), -(2**31)]
    assert N.truncate(f32(300, -1), D.UINT8).tolist() == [44, 255]


def test_conversions_between_kinds() -> None:
    ints = np.array([3, -3], np.int32)
    assert N.convert(ints, D.INT32, S8).tolist() == [6, -6]
    assert N.convert(np.array([7], np.int8), S8, D.INT32).tolist() == [3]
    assert N.convert(np.array([2], np.int8), S8, U8).tolist() == [130]
    assert N.convert(np.array([256], np.int32), D.INT32, D.BOOL).tolist() == [True]
    assert N.convert(np.array([300], np.int32), D.INT32, D.UINT8).tolist() == [44]
    assert N.convert(np.array([2**24 + 1], np.int32), D.INT32, D.FLOAT32)[0] == 2**24


def test_complex_and_odd_types_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Complex64 cannot be converted to Float32"):
        N.convert(np.zeros(1, np.complex64), D.COMPLEX64, D.FLOAT32)
    with pytest.raises(UnsupportedError, match="IntB4"):
        N.convert(np.zeros(1, np.float32), D.FLOAT32, D.DType(D.DTypeEnum.IntB4))


def test_common_types() -> None:
    assert N.promote([D.INT8, D.INT32]) == D.INT32
    assert N.promote([D.INT32, D.FLOAT16]) == D.FLOAT16
    assert N.promote([D.FLOAT16, D.BFLOAT16]) == D.FLOAT32
    assert N.promote([D.BOOL, D.UINT8]) == D.UINT8
    assert N.promote([D.FLOAT32, S8]) == S8
    with pytest.raises(ShapeError, match="Int8 and Uint8 have no common type"):
        N.promote([D.INT8, D.UINT8])
    with pytest.raises(ShapeError, match="no common type"):
        N.promote([S8, D.quantized("QuantizedS8", 0.25)])


@given(st.floats(-27, 27))
def test_error_functions_agree_with_the_standard_library(x: float) -> None:
    assert float(special.erf(x)) == pytest.approx(math.erf(x), rel=1e-13)
    assert float(special.erfc(x)) == pytest.approx(math.erfc(x), rel=1e-11, abs=1e-300)


@given(st.floats(-1, 1))
def test_erf_undoes_erfinv(y: float) -> None:
    assert math.erf(float(special.erfinv(y))) == pytest.approx(y, rel=1e-13)


@given(st.floats(1e-300, 2))
def test_erfc_undoes_erfcinv(y: float) -> None:
    assert math.erfc(float(special.erfcinv(y))) == pytest.approx(y, rel=1e-10)


def test_ends_of_the_error_functions() -> None:
    ends = np.array([1.0, -1.0, 1.5, np.nan])
    np.testing.assert_array_equal(special.erfinv(ends), [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(special.erfcinv([0, 2, -1, 3]), [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(special.erf([np.inf, -np.inf]), [1, -1])
    np.testing.assert_array_equal(special.erfc([np.inf, -np.inf]), [0, 2])
