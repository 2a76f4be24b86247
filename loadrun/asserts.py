"""What a model says about its own outputs: the check behind an AssertEqual operator.

Source: MegEngine operator AssertEqual and the error sub graph that its dump scripts write in front
of it (v0.5.1 dump_with_testcase_mge.py): the largest |e - g| / max(1, min(|e|, |g|)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.ops.control import assert_errors

__all__ = ["AssertFailure", "check"]


@dataclass(frozen=True, slots=True)
class AssertFailure:
    """One output that is not what the model expects.

    Attributes:
        output: Name of the output.
        index: Place of the worst element; empty where the shapes do not fit together.
        expected: Value expected there (NaN where the shapes do not fit).
        got: Value computed there (NaN where the shapes do not fit).
        error: Its error, relative above 1 and absolute below; NaN or infinite counts as failed.
        maxerr: The largest error allowed.
        mismatches: Number of elements above `maxerr`.
        size: Number of elements compared.
        note: What else is wrong, such as shapes that do not fit.
    """

    output: str
    index: tuple[int, ...]
    expected: float
    got: float
    error: float
    maxerr: float
    mismatches: int = 0
    size: int = 0
    note: str = ""

    def __str__(self) -> str:
        if self.note:
            return f"output `{self.output}`: {self.note}"
        place = ", ".join(str(i) for i in self.index)
        return (
            f"output `{self.output}` at [{place}]: expected {self.expected:.9g}, "
            f"got {self.got:.9g}, error {self.error:.3g} (allowed {self.maxerr:.3g}); "
            f"{self.mismatches} of {self.size} elements differ"
        )


def check(output: str, expect: Array, got: Array, maxerr: float) -> AssertFailure | None:
    """Compare an output with what is expected of it; None when it is close enough.

    The error of each element is that of `assert_errors`; one above `maxerr` fails, and so does NaN
    (which two equal infinities give as well, as in the original). Two empty arrays are equal.

    Args:
        output: Name of the output, for the failure.
        expect: Expected values; stored integers for quantised types.
        got: Computed values, of the same type.
        maxerr: Largest error allowed.
    """
    try:
        wanted, found = np.broadcast_arrays(_real(expect), _real(got))
    except ValueError:
        note = f"expected shape {_shape(expect.shape)}, got {_shape(got.shape)}"
        nan = float("nan")
        return AssertFailure(output, (), nan, nan, float("inf"), maxerr, note=note)
    if wanted.size == 0:
        return None
    error = assert_errors(wanted, found)
    bad = ~(error <= maxerr)
    mismatches = int(np.count_nonzero(bad))
    if not mismatches:
        return None
    # NaN is the worst of all; argmax takes the first of equals.
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    index = tuple(int(i) for i in np.unravel_index(worst, error.shape))
    return AssertFailure(
        output=output,
        index=index,
        expected=float(wanted[index]),
        got=float(found[index]),
        error=float(error[index]),
        maxerr=float(maxerr),
        mismatches=mismatches,
        size=int(error.size),
    )


def _real(array: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(array).astype(np.float64)


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(shape))
