"""Errors of the vector functions against float64, in units in the last place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from loadrun.backends.cpu import emit_math, jit
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.emit import Func, module
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.target import LEVELS, detect, host_level

RUNNABLE = ("neon",) if host_level() == "neon" else LEVELS[LEVELS.index(host_level()) : 3]


def run(function: Callable[[Func, str], str], x: Array, level: str) -> Array:
    target = detect(level)
    f = Func("f", [("ptr", "x"), ("ptr", "y"), ("i64", "n")], target, external=True)
    with f.loop(0, "%n", target.lanes) as loop:
        at = f.mul(loop.i, 4)
        f.store(function(f, f.load("%x", at, align=4)), "%y", at, align=4)
    image, _ = jit.build({"f": module([f])}, target, Cache(None))
    padded = np.zeros(-(-x.size // 16) * 16, np.float32)
    padded[: x.size] = x
    y = np.zeros_like(padded)
    c = ctypes
    fn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_int64)(image.address("f"))
    fn(padded.ctypes.data, y.ctypes.data, padded.size)
    image.close()
    return y[: x.size]


def ulps(got: Array, exact: Array) -> float:
    unit = np.spacing(np.maximum(np.abs(exact).astype(np.float32), np.float32(2**-126)))
    return float(np.max(np.abs(got.astype(np.float64) - exact) / unit))


_erf = np.vectorize(math.erf)
WIDE = np.concatenate([np.linspace(-87, 88, 40001), np.linspace(-1, 1, 20001)]).astype(np.float32)
POSITIVE = np.geomspace(1e-44, 3e38, 40001).astype(np.float32)
CASES: dict[str, tuple[Callable[[Func, str], str], Callable[[Array], Array], Array, float]] = {
    "exp": (emit_math.exp, np.exp, WIDE, 1.1),
    "expm1": (emit_math.expm1, np.expm1, WIDE[WIDE < 87], 2.0),
    "tanh": (emit_math.tanh, np.tanh, WIDE, 2.5),
    "sigmoid": (emit_math.sigmoid, lambda x: 1 / (1 + np.exp(-x)), WIDE, 2.5),
    "erf": (emit_math.erf, _erf, WIDE, 2.5),
    "log": (emit_math.log, np.log, POSITIVE, 2.0),
    "softplus": (emit_math.softplus, lambda x: np.logaddexp(0, x), WIDE, 3.0),
}


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", CASES)
def test_error_is_within_the_stated_ulps(name: str, level: str) -> None:
    emitted, exact, x, limit = CASES[name]
    if level == "sse2":
        limit += 1  # no fused multiply-add
    assert ulps(run(emitted, x, level), exact(x.astype(np.float64))) <= limit


@pytest.mark.parametrize("name", CASES)
def test_nan_gives_nan(name: str) -> None:
    assert np.isnan(run(CASES[name][0], np.full(3, np.nan, np.float32), RUNNABLE[0])).all()


def test_exp_and_log_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, 89.0, -100.0, -110.0, 0.0], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(run(emit_math.exp, x, RUNNABLE[0]), np.exp(x), rtol=0.1)
    y = run(emit_math.log, np.array([0.0, -1.0, np.inf, 1.0], np.float32), RUNNABLE[0])
    np.testing.assert_array_equal(y, [-np.inf, np.nan, np.inf, 0.0])
