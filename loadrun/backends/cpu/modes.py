"""Elemwise modes as programs: the rarer ones of floats, and those of integers and bools.

The meaning is `mgeserial.ops.functions`; the everyday modes of floats are in `rules.elemwise`.
Programs of integers compute in 32 bits; their user wraps results to the element type.
"""

from __future__ import annotations

from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.expr import Expr
from mgeserial.params import ElemwiseMode as M

__all__ = ["BOOLEAN", "REAL", "WHOLE"]


def _unary(kind: str) -> Expr:
    return program("x", f"r = {kind} x")


def _binary(kind: str) -> Expr:
    return program("xy", f"r = {kind} x y")


# The everyday sigmoid stops short of 0, which an infinite factor would show.
_SIGMOID = ("n = neg x", "e = exp n", "d = add 1.0 e", "s = div 1.0 d")

REAL: dict[M, Expr] = {
    M.ACOS: _unary("acos"),
    M.ASIN: _unary("asin"),
    M.TAN: _unary("tan"),
    M.SINH: _unary("sinh"),
    M.COSH: _unary("cosh"),
    M.ASINH: _unary("asinh"),
    M.ACOSH: _unary("acosh"),
    M.ATANH: _unary("atanh"),
    M.ERFC: _unary("erfc"),
    M.ERFINV: _unary("erfinv"),
    M.ERFCINV: _unary("erfcinv"),
    M.ATAN2: _binary("atan2"),
    M.MOD: _binary("fmod"),
    M.NEQ: program("xy", "f = flag_neq x y", "r = to_real f"),
    M.ISNAN: program("x", "f = flag_neq x x", "r = to_real f"),
    M.ISINF: program("x", "a = abs x", "r = eq a inf"),
    M.SIGMOID_GRAD: program("xy", "o = sub 1.0 x", "p = mul x o", "r = mul p y"),
    M.TANH_GRAD: program("xy", "q = mul x x", "o = sub 1.0 q", "r = mul o y"),
    M.FAST_TANH_GRAD: program(
        "xy",
        "q = mul x x",
        "below = add 3.0 q",
        "high = mul -48.0 q",
        "a = div high below",
        "b = add a 27.0",
        "c = add b q",
        "d = mul below 9.0",
        "e = div c d",
        "r = mul e y",
    ),
    M.H_SWISH_GRAD: program(
        "xy",
        "a = mul 2.0 x",
        "b = add a 3.0",
        "c = div b 6.0",
        "inner = mul c y",
        "above = flag_lt 3.0 x",
        "most = where above y inner",
        "below = flag_lt x -3.0",
        "r = where below 0.0 most",
    ),
    M.SILU_GRAD: program(
        "xy",
        *_SIGMOID,
        "o = sub 1.0 s",
        "p = mul x o",
        "q = add 1.0 p",
        "g = mul y s",
        "r = mul g q",
    ),
    M.GELU_GRAD: program(
        "xy",
        "h = mul x -0.7071067811865476",
        "c = erfc h",
        "cdf = mul c 0.5",
        "q = mul x x",
        "e = mul q -0.5",
        "d = exp e",
        "density = mul d 0.3989422804014327",
        "w = mul x density",
        "s = add cdf w",
        "r = mul y s",
    ),
    M.ASINH_GRAD: program("xy", "q = mul x x", "s = add q 1.0", "d = sqrt s", "r = div y d"),
    M.ACOSH_GRAD: program("xy", "q = mul x x", "s = sub q 1.0", "d = sqrt s", "r = div y d"),
    M.ATANH_GRAD: program("xy", "q = mul x x", "d = sub 1.0 q", "r = div y d"),
    M.PRELU_GRAD: program("xyz", "p = mul y z", "f = flag_leq 0.0 x", "r = where f y p"),
    M.SOFTPLUS_GRAD: program("xy", *_SIGMOID, "r = mul y s"),
    M.RELU6_GRAD: program(
        "xy",
        "low = flag_leq x 0.0",
        "high = flag_leq 6.0 x",
        "out = ior low high",
        "r = where out 0.0 y",
    ),
    M.HSIGMOID_GRAD: program(
        "xy", "a = abs x", "out = flag_leq 3.0 a", "g = div y 6.0", "r = where out 0.0 g"
    ),
}

_POSITIVE = "f = ilt 0 x"

WHOLE: dict[M, Expr] = {
    M.RELU: program("x", "r = imax x 0"),
    M.ABS: _unary("iabs"),
    M.NEGATE: _unary("ineg"),
    M.ABS_GRAD: program("xy", _POSITIVE, "n = ineg y", "r = iwhere f y n"),
    M.ADD: _binary("iadd"),
    M.SUB: _binary("isub"),
    M.MUL: _binary("imul"),
    M.FLOOR_DIV: _binary("floor_quotient"),
    M.MOD: _binary("floor_remainder"),
    M.MAX_: _binary("imax"),
    M.MIN_: _binary("imin"),
    M.SIGMOID_GRAD: program("xy", "o = isub 1 x", "p = imul x o", "r = imul p y"),
    M.TANH_GRAD: program("xy", "q = imul x x", "o = isub 1 q", "r = imul o y"),
    M.SWITCH_GT0: program("xy", _POSITIVE, "r = iwhere f y 0"),
    M.LT: _binary("ilt"),
    M.LEQ: _binary("ileq"),
    M.EQ: _binary("ieq"),
    M.NEQ: _binary("ineq"),
    M.SHL: _binary("ishl"),
    M.SHR: _binary("ishr"),
    M.COND_LEQ_MOV: program("xyz", "f = ileq x y", "r = iwhere f z 0"),
    M.COND_LT_MOV: program("xyz", "f = ilt x y", "r = iwhere f z 0"),
    M.FUSE_MUL_ADD3: program("xyz", "p = imul x y", "r = iadd p z"),
    M.FUSE_MUL_ADD4: program("xyzw", "p = imul x y", "q = imul z w", "r = iadd p q"),
    M.FUSE_ADD_RELU: _binary("iadd_relu"),
    M.PRELU: program("xy", _POSITIVE, "p = imul x y", "r = iwhere f x p"),
    M.CLIP: program(
        "xyz", "high = ileq x z", "a = iwhere high x z", "low = ileq x y", "r = iwhere low y a"
    ),
    M.RELU6: program("x", "a = imax x 0", "r = imin a 6"),
    M.SQUARE: program("x", "r = imul x x"),
    M.SIGN: _unary("isign"),
}

BOOLEAN: dict[M, Expr] = {
    M.LT: WHOLE[M.LT],
    M.LEQ: WHOLE[M.LEQ],
    M.EQ: WHOLE[M.EQ],
    M.NEQ: WHOLE[M.NEQ],
    M.NOT: program("x", "r = ixor x 1"),
    M.AND: _binary("iand"),
    M.OR: _binary("ior"),
    M.XOR: _binary("ixor"),
}
