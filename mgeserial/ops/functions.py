"""What each Elemwise mode computes: one table of numpy functions, by mode, for every user of them.

Elemwise, the Q modes of ElemwiseMultiType, fused non-linearities and recurrent cells all look up
their function here. Arrays are float32, plain integers or bool (see `numerics.widen`), all of one
dtype; results have that dtype too (comparisons give 0 and 1).

Source: semantics section 2; NaN, wrapping and shift counts as MegEngine 1.13.0 answered on x86.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.dtypes import Array
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ops import special
from mgeserial.ops.numerics import rhaz
from mgeserial.params import ElemwiseMode as M

__all__ = ["FUNCTIONS", "Function", "evaluate", "function_of", "rounding_mulh"]

# numpy's stubs know nothing of "an array of any one number type"; everything here is such an array.
A = npt.NDArray[Any]
Compute = Callable[..., A]


@dataclass(frozen=True, slots=True)
class Function:
    """A mode: its arity and how it is computed for floats, integers and bools (None: it is not)."""

    arity: int
    real: Compute | None = None
    integer: Compute | None = None
    boolean: Compute | None = None

    def compute_for(self, dtype: np.dtype[Any]) -> Compute | None:
        """The function for arrays of this numpy dtype."""
        if dtype.kind == "f":
            return self.real
        if dtype.kind == "b":
            return self.boolean
        return self.integer if dtype.kind in "iu" else None


def _sigmoid(x: A) -> A:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softplus(x: A) -> A:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))


def _relu(x: A) -> A:
    return np.where(x > 0, x, x.dtype.type(0))  # NaN gives 0


def _relu6(x: A) -> A:
    kind = x.dtype.type
    return np.where(x <= 0, kind(0), np.where(x <= 6, x, kind(6)))  # NaN gives 6


def _hard_swish(x: A) -> A:
    return np.asarray(x * np.clip(x + 3.0, 0.0, 6.0) / 6.0)


def _fast_tanh(x: A) -> A:
    square = x * x
    return np.asarray(x * (27.0 + square) / (27.0 + 9.0 * square))


def _fast_tanh_grad(x: A, y: A) -> A:
    square = x * x
    below = 3.0 + square
    return np.asarray(((-48.0 * square) / below + 27.0 + square) / (below * 9.0) * y)


def _hard_swish_grad(x: A, y: A) -> A:
    inner = (2.0 * x + 3.0) / 6.0 * y
    return np.where(x < -3.0, x.dtype.type(0), np.where(x > 3.0, y, inner))


def _silu_grad(x: A, y: A) -> A:
    s = _sigmoid(x)
    return np.asarray(y * s * (1.0 + x * (1.0 - s)))


def _normal_cdf(x: A) -> A:
    return 0.5 * special.erfc(x.astype(np.float64) * -np.sqrt(0.5))


def _gelu(x: A) -> A:
    return np.asarray(x * _normal_cdf(x))


def _gelu_grad(x: A, y: A) -> A:
    wide = x.astype(np.float64)
    density = np.exp(-0.5 * wide * wide) / np.sqrt(2.0 * np.pi)
    return np.asarray(y * (_normal_cdf(x) + wide * density))


def _log_sum_exp(x: A, y: A) -> A:
    low, high = np.minimum(x, y), np.maximum(x, y)
    # Equal infinities would give NaN by inf - inf.
    return np.asarray(high + np.log1p(np.exp(np.where(low == high, 0, low - high))))


def _floor_div(x: A, y: A) -> A:
    _no_zero(y, "FLOOR_DIV")
    return np.asarray(np.floor_divide(x, y))


def _mod(x: A, y: A) -> A:
    _no_zero(y, "MOD")
    return np.asarray(np.mod(x, y))


def _no_zero(y: A, mode: str) -> None:
    if not np.all(y):
        raise ExecutionError(f"{mode} of integers divides by zero")


def _fuse_add_relu_int(x: A, y: A) -> A:
    # C adds narrow integers as int: 100 + 100 of int8 is positive and wraps only afterwards.
    return np.asarray(_relu(x.astype(np.int64) + y))


def _shift(x: A, y: A, *, left: bool) -> A:
    # As x86 does: on int32, with the low five bits of the count.
    value, count = x.astype(np.int32), y.astype(np.int32) & np.int32(31)
    return np.asarray(np.left_shift(value, count) if left else np.right_shift(value, count))


def rounding_mulh(x: A, y: A) -> A:
    """Upper half of the product, rounded half up, saturated: RMULH of two arrays of one dtype.

    Signed types of b bits drop b - 1 bits (min * min overflows and gives max), uint8 drops 8.
    """
    limits = np.iinfo(x.dtype)
    drop = limits.bits - (1 if limits.min < 0 else 0)
    product = x.astype(np.int64) * y.astype(np.int64)
    high = (product + (1 << (drop - 1))) >> drop
    return np.asarray(np.clip(high, limits.min, limits.max).astype(x.dtype))


def _one_second(x: A, y: A) -> tuple[A, A]:
    """The operands, the one with a single element second: it decides which NaN is lost."""
    return (y, x) if x.size == 1 != y.size else (x, y)


def _max(x: A, y: A) -> A:
    x, y = _one_second(x, y)
    return np.where(y > x, y, x)  # MAX(NaN, c) is NaN, MAX(c, NaN) is c


def _min(x: A, y: A) -> A:
    x, y = _one_second(x, y)
    return np.where(x < y, x, y)  # MIN(NaN, c) is c, MIN(c, NaN) is NaN


def _clip(x: A, y: A, z: A) -> A:
    return np.where(x <= y, y, np.where(x <= z, x, z))  # NaN gives z


def _zero_unless(condition: A, value: A) -> A:
    return np.where(condition, value, value.dtype.type(0))


def _real(arity: int, compute: Compute) -> Function:
    return Function(arity, real=compute)


def _both(arity: int, compute: Compute) -> Function:
    return Function(arity, real=compute, integer=compute)


def _all(arity: int, compute: Compute) -> Function:
    return Function(arity, real=compute, integer=compute, boolean=compute)


FUNCTIONS: dict[M, Function] = {
    M.RELU: _both(1, _relu),
    M.ABS: _both(1, np.abs),
    M.ACOS: _real(1, np.arccos),
    M.ASIN: _real(1, np.arcsin),
    M.CEIL: _real(1, np.ceil),
    M.COS: _real(1, np.cos),
    M.EXP: _real(1, np.exp),
    M.EXPM1: _real(1, np.expm1),
    M.FLOOR: _real(1, np.floor),
    M.LOG: _real(1, np.log),
    M.LOG1P: _real(1, np.log1p),
    M.NEGATE: _both(1, np.negative),
    M.SIGMOID: _real(1, _sigmoid),
    M.SIN: _real(1, np.sin),
    M.TANH: _real(1, np.tanh),
    M.ABS_GRAD: _both(2, lambda x, y: np.where(x > 0, y, -y)),
    M.ADD: _both(2, np.add),
    M.FLOOR_DIV: Function(2, lambda x, y: np.floor(x / y), _floor_div),
    M.MAX_: _both(2, _max),
    M.MIN_: _both(2, _min),
    M.MOD: Function(2, np.fmod, _mod),
    M.MUL: _both(2, np.multiply),
    M.POW: _real(2, np.power),
    M.SIGMOID_GRAD: _both(2, lambda x, y: x * (1 - x) * y),
    M.SUB: _both(2, np.subtract),
    M.SWITCH_GT0: _both(2, lambda x, y: _zero_unless(x > 0, y)),
    M.TANH_GRAD: _both(2, lambda x, y: (1 - x * x) * y),
    M.TRUE_DIV: _real(2, np.divide),
    M.LOG_SUM_EXP: _real(2, _log_sum_exp),
    M.LT: _all(2, np.less),
    M.LEQ: _all(2, np.less_equal),
    M.EQ: _all(2, np.equal),
    M.SHL: Function(2, integer=lambda x, y: _shift(x, y, left=True)),
    M.SHR: Function(2, integer=lambda x, y: _shift(x, y, left=False)),
    M.COND_LEQ_MOV: _both(3, lambda x, y, z: _zero_unless(x <= y, z)),
    M.FUSE_MUL_ADD3: _both(3, lambda x, y, z: x * y + z),
    M.FUSE_MUL_ADD4: _both(4, lambda x, y, z, w: x * y + z * w),
    M.FUSE_ADD_RELU: Function(2, lambda x, y: _relu(x + y), _fuse_add_relu_int),
    M.FUSE_ADD_SIGMOID: _real(2, lambda x, y: _sigmoid(x + y)),
    M.FUSE_ADD_TANH: _real(2, lambda x, y: np.tanh(x + y)),
    M.FAST_TANH: _real(1, _fast_tanh),
    M.FAST_TANH_GRAD: _real(2, _fast_tanh_grad),
    M.ROUND: _real(1, rhaz),
    M.RMULH: Function(2, integer=rounding_mulh),
    M.ATAN2: _real(2, np.arctan2),
    M.ERF: _real(1, special.erf),
    M.ERFINV: _real(1, special.erfinv),
    M.ERFC: _real(1, special.erfc),
    M.ERFCINV: _real(1, special.erfcinv),
    M.H_SWISH: _real(1, _hard_swish),
    M.H_SWISH_GRAD: _real(2, _hard_swish_grad),
    M.FUSE_ADD_H_SWISH: _real(2, lambda x, y: _hard_swish(x + y)),
    M.NOT: Function(1, boolean=np.logical_not),
    M.AND: Function(2, boolean=np.logical_and),
    M.OR: Function(2, boolean=np.logical_or),
    M.XOR: Function(2, boolean=np.logical_xor),
    M.SILU: _real(1, lambda x: x * _sigmoid(x)),
    M.SILU_GRAD: _real(2, _silu_grad),
    M.GELU: _real(1, _gelu),
    M.GELU_GRAD: _real(2, _gelu_grad),
    M.COND_LT_MOV: _both(3, lambda x, y, z: _zero_unless(x < y, z)),
    M.NEQ: _all(2, np.not_equal),
    M.ISNAN: _real(1, np.isnan),
    M.ISINF: _real(1, np.isinf),
    M.SINH: _real(1, np.sinh),
    M.COSH: _real(1, np.cosh),
    M.ASINH: _real(1, np.arcsinh),
    M.ACOSH: _real(1, np.arccosh),
    M.ATANH: _real(1, np.arctanh),
    M.TAN: _real(1, np.tan),
    M.ASINH_GRAD: _real(2, lambda x, y: y / np.sqrt(x * x + 1)),
    M.ACOSH_GRAD: _real(2, lambda x, y: y / np.sqrt(x * x - 1)),
    M.ATANH_GRAD: _real(2, lambda x, y: y / (1 - x * x)),
    M.PRELU: _both(2, lambda x, y: np.where(x > 0, x, x * y)),
    M.CLIP: _both(3, _clip),
    M.PRELU_GRAD: _real(3, lambda x, y, z: np.where(x >= 0, y, y * z)),
    M.SOFTPLUS: _real(1, _softplus),
    M.SOFTPLUS_GRAD: _real(2, lambda x, y: y * _sigmoid(x)),
    M.RELU6: _both(1, _relu6),
    M.RELU6_GRAD: _real(2, lambda x, y: _zero_unless(~((x <= 0) | (x >= 6)), y)),
    M.HSIGMOID: _real(1, lambda x: np.clip((x + 3) / 6, 0, 1)),
    M.HSIGMOID_GRAD: _real(2, lambda x, y: _zero_unless(~(np.abs(x) >= 3), y / 6)),
    M.LOGSIGMOID: _real(1, lambda x: -_softplus(-x)),
    M.SQRT: _real(1, np.sqrt),
    M.SQUARE: _both(1, lambda x: x * x),
    M.SIGN: _both(1, lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)),
}


def function_of(mode: M) -> Function:
    """The function of a mode.

    Raises:
        UnsupportedError: No known release has this mode.
    """
    found = FUNCTIONS.get(mode)
    if found is None:
        raise UnsupportedError(f"Elemwise mode {mode} is not known")
    return found


def evaluate(mode: M, *arrays: Array) -> Array:
    """Apply a mode to broadcastable float32, integer or bool arrays of one dtype.

    Floating overflow, NaN and wrapping integers are results, not warnings. The result has the
    dtype of the arrays.

    Raises:
        UnsupportedError: The mode is not known or not defined for this kind of number.
        ExecutionError: Integers are divided by zero.
    """
    dtype = arrays[0].dtype
    compute = function_of(mode).compute_for(dtype)
    if compute is None:
        raise UnsupportedError(f"Elemwise mode {mode} is not defined for {dtype} values")
    with np.errstate(all="ignore"):
        return np.asarray(compute(*arrays)).astype(dtype, copy=False)
