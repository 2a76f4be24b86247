"""The table of conversions: every row is used, and both of its forms say the same numbers."""

from __future__ import annotations

import pytest

from loadrun.backends.conversions import FORMS, Kind, Step, conversion, narrowed
from loadrun.backends.rulebook import NotApplicable
from mgeserial.dtypes import DType, DTypeEnum

_ASYMMETRIC = (DTypeEnum.Quantized8Asymm, DTypeEnum.Quantized4Asymm)
_TYPES = [DType(kind) for kind in DTypeEnum if not DType(kind).is_quantized] + [
    DType(kind, 0.25, 3 if kind in _ASYMMETRIC else None)
    for kind in DTypeEnum
    if DType(kind).is_quantized
]


def _steps(source: DType, target: DType) -> tuple[Step, ...]:
    try:
        return conversion(source, target)
    except NotApplicable:
        return ()


def test_every_kind_of_step_is_part_of_a_conversion() -> None:
    used = {step.kind for s in _TYPES for t in _TYPES for step in _steps(s, t)}
    assert used == set(Kind) == set(FORMS)


def test_numbers_reach_both_forms() -> None:
    (step,) = conversion(DType(DTypeEnum.Float32), DType(DTypeEnum.Quantized8Asymm, 0.25, 3))
    assert step.lines() == (
        "q = div x 0.25",
        "n = round q",
        "s = add n 3.0",
        "r = saturate s 0 255",
    )
    assert step.code() == "quantize({0}, {1}, {2}, 0, 255)"
    assert step.passed() == (0.25, 3)


def test_the_least_int_has_no_literal_in_c() -> None:
    (step,) = conversion(DType(DTypeEnum.Float32), DType(DTypeEnum.QuantizedS32, 0.5))
    assert step.code() == "quantize({0}, {1}, {2}, (-2147483647 - 1), 2147483520)"


def test_codes_wrap_without_a_scale() -> None:
    (step,) = narrowed(DType(DTypeEnum.QuantizedS8))
    assert (step.kind, step.lines()) == (Kind.WRAP_INT8, ("r = wrap_int8 x",))


def test_quantising_needs_a_scale() -> None:
    (step,) = conversion(DType(DTypeEnum.Float32), DType(DTypeEnum.QuantizedS8))
    with pytest.raises(NotApplicable, match="no scale"):
        step.lines()
