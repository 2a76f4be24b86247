"""Numbers that describe an array to a person: smallest, largest, mean, standard deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.ops.numerics import to_real

__all__ = ["ValueSummary", "summarize_values"]


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """What an array's real values are like; NaN where there is none."""

    min: float
    max: float
    mean: float
    sd: float

    def as_data(self) -> dict[str, float | None]:
        """The numbers for JSON: those that it has not become None."""
        found = {"min": self.min, "max": self.max, "mean": self.mean, "sd": self.sd}
        return {k: v if math.isfinite(v) else None for k, v in found.items()}


def summarize_values(array: Array, dtype: DType | None = None) -> ValueSummary:
    """Describe an array; of complex numbers their distance to 0.

    Args:
        array: Stored values.
        dtype: Their element type, for the real values of quantised codes; None: numbers as they
            are.
    """
    if dtype is not None and dtype.kind is not DTypeEnum.Complex64:
        real = np.asarray(to_real(array, dtype), np.float64)
    else:
        real = np.asarray(np.abs(array) if array.dtype.kind == "c" else array, np.float64)
    if not real.size:
        return ValueSummary(math.nan, math.nan, math.nan, math.nan)
    with np.errstate(all="ignore"):
        return ValueSummary(
            float(real.min()), float(real.max()), float(real.mean()), float(real.std())
        )
