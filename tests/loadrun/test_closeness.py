from __future__ import annotations

import math

import numpy as np
import pytest

from loadrun.closeness import closeness, same_bits
from loadrun.gates import Condition
from loadrun.tolerances import Rounding, allowed_error, roundings
from mgeserial import dtypes
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import FLOAT32, INT32, DType, DTypeEnum
from mgeserial.errors import InputError


def floats(*values):
    return np.array(values, np.float32)


def test_numbers_of_a_difference():
    found = closeness(floats(1, 2, 100), floats(1, 2.5, 101), FLOAT32, allowed=0.01)
    assert found.max_abs == 1
    assert found.max_rel == pytest.approx(0.2)
    assert found.error == pytest.approx(0.25)
    assert found.index == (1,)
    assert (found.first, found.second) == (2, 2.5)
    assert found.mismatches == 1
    assert not found.passed
    assert closeness(floats(1, 2, 100), floats(1, 2.5, 101), FLOAT32, allowed=0.25).passed


def test_small_values_are_compared_absolutely_above_the_floor():
    a, b = floats(1e-6), floats(2e-6)
    assert closeness(a, b, FLOAT32, allowed=1e-5).passed
    assert not closeness(a, b, FLOAT32, allowed=1e-5, floor=1e-6).passed


def test_ulp_counts_representable_values():
    one = np.float32(1)
    assert closeness(floats(1), floats(np.nextafter(one, 2)), FLOAT32).max_ulp == 1
    tiny = np.float32(1e-45)
    assert closeness(floats(tiny), floats(-tiny), FLOAT32).max_ulp == 2
    assert closeness(floats(0.0), floats(-0.0), FLOAT32).max_ulp == 0
    half = DType(DTypeEnum.Float16)
    assert closeness(np.float16([1]), np.float16([1.0009766]), half).max_ulp == 1
    a, b = np.array([3], np.int32), np.array([-4], np.int32)
    assert closeness(a, b, INT32).max_ulp == 7


def test_zeros_of_other_sign_agree_but_are_not_the_same_bits():
    found = closeness(floats(0.0), floats(-0.0), FLOAT32)
    assert found.passed
    assert not found.equal_bits


def test_nan_and_infinity_equal_themselves_alone():
    nan, inf = math.nan, math.inf
    assert closeness(floats(nan, inf, -inf), floats(nan, inf, -inf), FLOAT32).passed
    for a, b in ((nan, 1), (inf, 1), (inf, -inf), (nan, inf)):
        found = closeness(floats(a), floats(b), FLOAT32, allowed=1e30)
        assert found.error == inf
        assert not found.passed
        assert found.as_json()["error"] is None
        assert found.as_json()["error_is_infinite"]


def test_quantised_values_are_compared_as_they_mean():
    a, b = np.array([2, -3], np.int8), np.array([3, -3], np.int8)
    kind = dtypes.quantized("QuantizedS8", 0.5)
    found = closeness(a, b, kind)
    assert found.max_abs == 0.5
    assert found.max_ulp == 1
    other = dtypes.quantized("QuantizedS8", 1.0)
    mixed = closeness(np.array([4], np.int8), np.array([2], np.int8), kind, other)
    assert mixed.passed
    assert mixed.max_ulp is None


def test_bfloat16_bits_are_numbers():
    kind = DType(DTypeEnum.BFloat16)
    found = closeness(np.array([0x3F80], np.uint16), np.array([0x4000], np.uint16), kind)
    assert (found.first, found.second) == (1, 2)


def test_other_shapes_are_a_difference():
    found = closeness(floats(1, 2), floats(1), FLOAT32, allowed=1e9)
    assert not found.passed
    assert "(2,)" in found.note


def test_empty_arrays_agree():
    empty = np.zeros((0, 3), np.float32)
    assert closeness(empty, empty, FLOAT32).passed


def test_same_bits_tells_nan_apart():
    assert same_bits(floats(math.nan), floats(math.nan))
    assert not same_bits(floats(1), np.array([1], np.float64))


def test_cosine_of_opposite_vectors():
    assert closeness(floats(1, 2), floats(-1, -2), FLOAT32).cosine == pytest.approx(-1)
    assert closeness(floats(0, 0), floats(1, 1), FLOAT32).cosine is None


# -- tolerances -----------------------------------------------------------------------------------


def test_tolerance_grows_with_sums_and_depth():
    short, long = Rounding(9, 1), Rounding(4096, 1)
    assert allowed_error(FLOAT32, short) < allowed_error(FLOAT32, long) < 1e-3
    assert allowed_error(FLOAT32, long) < allowed_error(FLOAT32, Rounding(4096, 50)) < 5e-3
    half = DType(DTypeEnum.Float16)
    assert allowed_error(FLOAT32, short) < allowed_error(half, short) < 0.01


def test_whole_numbers_are_exact_until_floats_come_before():
    kind = dtypes.quantized("QuantizedS8", 0.5)
    assert allowed_error(INT32, Rounding()) == 0
    assert allowed_error(kind, Rounding()) == 0
    assert allowed_error(kind, Rounding(1, 1)) == pytest.approx(0.5)


def test_roundings_of_a_network():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8))
    y = b.conv2d(x, np.ones((4, 3, 3, 3), np.float32))
    z = b.flatten(b.relu(y))
    b.output(z, "z")
    graph = b.graph()
    found = roundings(graph)
    assert found[graph.inputs[0]] == Rounding(1, 0)
    assert found[graph.outputs[0]] == Rounding(27, 2)


# -- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ratio<0.95", True),
        ("ratio < 9.5e-1", True),
        ("ratio>=1", False),
        ("ratio>1 or b_ms>3", True),
        ("ratio<1 and b_ms>3", True),
        ("ratio<1 and b_ms>9 or ratio==0.9", True),
        ("ratio!=0.9", False),
        ("b_ms>inf", False),
    ],
)
def test_conditions(text, holds):
    assert Condition.parse(text).holds({"ratio": 0.9, "b_ms": 4.0}) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", "ratio", "ratio<", "<1", "ratio<<1", "ratio<1;b", "ratio=1", "0.9<ratio", "ratio<1 and",
        "__import__('os')<1", "ratio<1.2.3", "ratio<1 xor b_ms>2", "a" * 600,
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(InputError):
        Condition.parse(text)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match="nothing is called `ratoi`") as error:
        Condition.parse("ratoi<1").check_names({"ratio": 1})
    assert "did you mean `ratio`" in error.value.hint


def test_number_that_does_not_exist_does_not_pass_a_gate():
    assert Condition.parse("ratio<0.5").holds({"ratio": None})
