"""A few numbers of each output: enough to see that two runs agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loadrun.runner import CaseResult
from mgeserial.dtypes import Array
from mgeserial.ir.types import TensorType

__all__ = ["finite", "output_figures"]


def finite(value: float) -> float | None:
    """The number, or None for NaN and infinities, which JSON has not."""
    return value if math.isfinite(value) else None


def output_figures(result: CaseResult, types: Mapping[str, TensorType]) -> list[dict[str, Any]]:
    """Type, shape and figures of a case's outputs, where they were kept."""
    return [
        {
            "name": name,
            "dtype": str(types[name].dtype),
            "shape": list(array.shape),
            **_figures(array, types[name]),
        }
        for name, array in (result.outputs or {}).items()
    ]


def _figures(array: Array, declared: TensorType) -> dict[str, float | None]:
    """Smallest, largest, mean and root mean square of the real values; None for NaN or nothing."""
    import numpy as np

    from mgeserial.ops.numerics import to_real

    if not array.size or array.dtype.kind == "c":
        return dict.fromkeys(("min", "max", "mean", "rms"))
    plain = declared.dtype.is_integer
    real = np.asarray(array if plain else to_real(array, declared.dtype), np.float64)
    with np.errstate(all="ignore"):
        found = {
            "min": real.min(),
            "max": real.max(),
            "mean": real.mean(),
            "rms": np.sqrt(np.mean(real * real)),
        }
    return {name: finite(float(value)) for name, value in found.items()}
