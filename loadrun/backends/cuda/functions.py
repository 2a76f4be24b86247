"""Each Elemwise mode as C code for floats, integers and bools; the meaning is `ops.functions`.

Codes of integers are computed in int (wider where C asks for it) and wrapped to the element type by
the caller. Products and sums go through unsigned numbers, whose overflow is defined.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgeserial.params import ElemwiseMode as M

__all__ = ["CODES", "Code"]


@dataclass(frozen=True, slots=True)
class Code:
    """C expressions of a mode; None where it is not defined."""

    real: str | None = None
    integer: str | None = None
    boolean: str | None = None


def _wrap(code: str) -> str:
    """Products and sums of `x`, `y`, `z`, `w` as unsigned."""
    for k, name in enumerate("xyzw"):
        code = code.replace(name, f"(u32){{{k}}}")
    return f"(int)({code})"


def _real(code: str) -> Code:
    return Code(real=code)


def _both(real: str, integer: str | None = None) -> Code:
    return Code(real, real.replace(".f", "").replace("(float)", "") if integer is None else integer)


def _compare(sign: str) -> Code:
    test = f"({{0}} {sign} {{1}})"
    return Code(f"(float){test}", f"(int){test}", f"(int){test}")


_NEGATIVE = "(int)(0u - (u32){0})"

CODES: dict[M, Code] = {
    M.RELU: _both("({0} > 0.f ? {0} : 0.f)"),
    M.ABS: _both("fabsf({0})", "({0} < 0 ? (int)(0u - (u32){0}) : {0})"),
    M.ACOS: _real("acosf({0})"),
    M.ASIN: _real("asinf({0})"),
    M.CEIL: _real("ceilf({0})"),
    M.COS: _real("cosf({0})"),
    M.EXP: _real("expf({0})"),
    M.EXPM1: _real("expm1f({0})"),
    M.FLOOR: _real("floorf({0})"),
    M.LOG: _real("logf({0})"),
    M.LOG1P: _real("log1pf({0})"),
    M.NEGATE: _both("(-{0})", _NEGATIVE),
    M.SIGMOID: _real("sigmoid({0})"),
    M.SIN: _real("sinf({0})"),
    M.TANH: _real("tanhf({0})"),
    M.ABS_GRAD: _both("({0} > 0.f ? {1} : -{1})", "({0} > 0 ? {1} : (int)(0u - (u32){1}))"),
    M.ADD: _both("({0} + {1})", _wrap("x + y")),
    M.FLOOR_DIV: Code("floorf({0} / {1})", "floor_div({0}, {1})"),
    M.MAX_: _both("({1} > {0} ? {1} : {0})"),
    M.MIN_: _both("({0} < {1} ? {0} : {1})"),
    M.MOD: Code("fmodf({0}, {1})", "floor_mod({0}, {1})"),
    M.MUL: _both("({0} * {1})", _wrap("x * y")),
    M.POW: _real("powf({0}, {1})"),
    M.SIGMOID_GRAD: _both("({0} * (1.f - {0}) * {1})", _wrap("x * (1u - x) * y")),
    M.SUB: _both("({0} - {1})", _wrap("x - y")),
    M.SWITCH_GT0: _both("({0} > 0.f ? {1} : 0.f)"),
    M.TANH_GRAD: _both("((1.f - {0} * {0}) * {1})", _wrap("(1u - x * x) * y")),
    M.TRUE_DIV: _real("({0} / {1})"),
    M.LOG_SUM_EXP: _real("log_sum_exp({0}, {1})"),
    M.LT: _compare("<"),
    M.LEQ: _compare("<="),
    M.EQ: _compare("=="),
    M.NEQ: _compare("!="),
    M.SHL: Code(integer="(int)((u32){0} << ({1} & 31))"),
    M.SHR: Code(integer="({0} >> ({1} & 31))"),
    M.COND_LEQ_MOV: _both("({0} <= {1} ? {2} : 0.f)"),
    M.COND_LT_MOV: _both("({0} < {1} ? {2} : 0.f)"),
    M.FUSE_MUL_ADD3: _both("({0} * {1} + {2})", _wrap("x * y + z")),
    M.FUSE_MUL_ADD4: _both("({0} * {1} + {2} * {3})", _wrap("x * y + z * w")),
    M.FUSE_ADD_RELU: _both(
        "({0} + {1} > 0.f ? {0} + {1} : 0.f)",
        "((i64){0} + (i64){1} > 0 ? (int)((u32){0} + (u32){1}) : 0)",
    ),
    M.FUSE_ADD_SIGMOID: _real("sigmoid({0} + {1})"),
    M.FUSE_ADD_TANH: _real("tanhf({0} + {1})"),
    M.FAST_TANH: _real("fast_tanh({0})"),
    M.FAST_TANH_GRAD: _real("fast_tanh_grad({0}, {1})"),
    M.ROUND: _real("roundf({0})"),
    M.ATAN2: _real("atan2f({0}, {1})"),
    M.ERF: _real("erff({0})"),
    M.ERFINV: _real("erfinvf({0})"),
    M.ERFC: _real("erfcf({0})"),
    M.ERFCINV: _real("erfcinvf({0})"),
    M.H_SWISH: _real("hard_swish({0})"),
    M.H_SWISH_GRAD: _real("({0} < -3.f ? 0.f : {0} > 3.f ? {1} : (2.f * {0} + 3.f) / 6.f * {1})"),
    M.FUSE_ADD_H_SWISH: _real("hard_swish({0} + {1})"),
    M.NOT: Code(boolean="(!{0})"),
    M.AND: Code(boolean="({0} & {1})"),
    M.OR: Code(boolean="({0} | {1})"),
    M.XOR: Code(boolean="({0} ^ {1})"),
    M.SILU: _real("({0} * sigmoid({0}))"),
    M.SILU_GRAD: _real("silu_grad({0}, {1})"),
    M.GELU: _real("(0.5f * {0} * erfcf({0} * -0.70710678118654752440f))"),
    M.GELU_GRAD: _real("gelu_grad({0}, {1})"),
    M.ISNAN: _real("(float)({0} != {0})"),
    M.ISINF: _real("(float)(fabsf({0}) == INFINITY)"),
    M.SINH: _real("sinhf({0})"),
    M.COSH: _real("coshf({0})"),
    M.ASINH: _real("asinhf({0})"),
    M.ACOSH: _real("acoshf({0})"),
    M.ATANH: _real("atanhf({0})"),
    M.TAN: _real("tanf({0})"),
    M.ASINH_GRAD: _real("({1} / sqrtf({0} * {0} + 1.f))"),
    M.ACOSH_GRAD: _real("({1} / sqrtf({0} * {0} - 1.f))"),
    M.ATANH_GRAD: _real("({1} / (1.f - {0} * {0}))"),
    M.PRELU: _both("({0} > 0.f ? {0} : {0} * {1})", "({0} > 0 ? {0} : (int)((u32){0} * (u32){1}))"),
    M.CLIP: _both("({0} <= {1} ? {1} : {0} <= {2} ? {0} : {2})"),
    M.PRELU_GRAD: _real("({0} >= 0.f ? {1} : {1} * {2})"),
    M.SOFTPLUS: _real("softplus({0})"),
    M.SOFTPLUS_GRAD: _real("({1} * sigmoid({0}))"),
    M.RELU6: _both("({0} <= 0.f ? 0.f : {0} <= 6.f ? {0} : 6.f)"),
    M.RELU6_GRAD: _real("({0} <= 0.f || {0} >= 6.f ? 0.f : {1})"),
    M.HSIGMOID: _real("clip(({0} + 3.f) / 6.f, 0.f, 1.f)"),
    M.HSIGMOID_GRAD: _real("(fabsf({0}) >= 3.f ? 0.f : {1} / 6.f)"),
    M.LOGSIGMOID: _real("(-softplus(-{0}))"),
    M.SQRT: _real("sqrtf({0})"),
    M.SQUARE: _both("({0} * {0})", _wrap("x * x")),
    M.SIGN: _both("(float)(({0} > 0.f) - ({0} < 0.f))"),
}
