"""Convolution, bias, nonlinearity and residual in one operator.

Rules of `CONV_BIAS`:

1. conv(x, w) + b, alone or inside FUSE_ADD_RELU, FUSE_ADD_SIGMOID, FUSE_ADD_H_SWISH: ConvBias. The
   bias is one number for each channel in the result's rank, or a computed value of its shape.
2. RELU, SIGMOID, H_SWISH of a convolution: ConvBias without a bias.
3. The same of a ConvBias that has none yet (RELU of RELU stays RELU).
4. Conversion to QuantizedS8 of a ConvBias whose result is QuantizedS32: rounded once.

Rule of `CONV_Z`:

5. ConvBias(x, w, b) + z, QADD, and both with RELU (QFUSE_ADD_H_SWISH): a fourth input, when z has
   the shape and kind of the result.

Rule of `DECONV_TYPE`:

6. Conversion to QuantizedS8 of a transposed convolution: rounded once.

In all of them nobody else uses what is taken in; formats other than NCHW, NHWC, NCHW4 and NHWCD4
are left alone.

Source: semantics section 4; MegEngine 1.13.0 on small graphs and in corpus family layout. Its x86
kernels ignore z (semantics, QUIRK); files that it writes have it nevertheless.
"""

from __future__ import annotations

from typing import Any

from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ops.layouts import output_layout
from mgeserial.passes.base import Fact
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Rule, RulePass, Scope, anything, op

__all__ = ["CONV_BIAS", "CONV_Z", "DECONV_TYPE"]

_NL = P.ConvBiasV0NonlineMode
_NONLINEAR = {
    "ADD": _NL.IDENTITY,
    "FUSE_ADD_RELU": _NL.RELU,
    "FUSE_ADD_SIGMOID": _NL.SIGMOID,
    "FUSE_ADD_H_SWISH": _NL.H_SWISH,
    "RELU": _NL.RELU,
    "SIGMOID": _NL.SIGMOID,
    "H_SWISH": _NL.H_SWISH,
    "QADD": _NL.IDENTITY,
    "QFUSE_ADD_RELU": _NL.RELU,
    "QFUSE_ADD_H_SWISH": _NL.H_SWISH,
}
_ADDS = ("ADD", "FUSE_ADD_RELU", "FUSE_ADD_SIGMOID", "FUSE_ADD_H_SWISH")
_UNARY = ("RELU", "SIGMOID", "H_SWISH")
_FORMATS = ("NCHW", "NHWC", "NCHW4", "NHWCD4")
_Z_FORMATS = ("NCHW", "NHWC", "NCHW4")
_CONV_FIELDS = tuple(n for n in P.ConvBias.FIELDS if n != "nonlineMode")


def _mode(node: Node) -> str:
    return str(node.param.mode).rstrip("_")


def _record(node: Node, nonlinear: P.ConvBiasV0NonlineMode) -> P.ConvBias:
    """Parameters of a ConvBias that does what a convolution does, with this nonlinearity."""
    fields: dict[str, Any] = {name: getattr(node.param, name) for name in _CONV_FIELDS}
    return P.ConvBias(nonlineMode=nonlinear, **fields)


def _format(match: Match, part: str, allowed: tuple[str, ...]) -> str | None:
    found = str(match.node(part).param.format)
    return None if found in allowed else f"its format is {found}"


def _root_dtype(match: Match) -> DType:
    return match.scope.type(match.root.outputs[0]).dtype


def _bias_reason(match: Match) -> str | None:
    """Why an operand of the sum is no bias."""
    conv, bias = match.type("conv"), match.type("b")
    if not (conv.is_static and bias.is_static):
        return "shapes are not known"
    if bias.dtype != conv.dtype:
        return f"it adds {bias.dtype} to {conv.dtype}"
    if bias.dims == conv.dims and not match.scope.is_const(match["b"]):
        return None
    layout = output_layout(match.node("conv").param.format)
    channels = layout.logical(conv.dims)[1]
    wanted = layout.stored((1, channels, 1, 1))
    if bias.dims == wanted:
        return None
    return f"an operand of shape {bias.dims} is no bias of shape {wanted}"


def _check_bias(match: Match) -> str | None:
    if _root_dtype(match) != match.dtype("conv"):
        return f"it makes {_root_dtype(match)} of {match.dtype('conv')}"
    return _format(match, "conv", _FORMATS) or _bias_reason(match)


def _with_bias(match: Match, build: Rebuild) -> Value:
    conv = match.node("conv")
    record = _record(conv, _NONLINEAR[_mode(match.root)])
    inputs = [*(build[v] for v in conv.inputs), build[match["b"]]]
    return _conv_bias(build, conv, inputs, record, conv.output_dtype)


def _conv_bias(
    build: Rebuild, like: Node, inputs: list[Value], record: P.ConvBias, dtype: DType | None
) -> Value:
    params = (record, *like.params[1:])
    made = build.apply("ConvBiasForward", inputs, params, output_dtype=dtype)[0]
    made.node.comp_nodes, made.node.priority = like.comp_nodes, like.priority
    return made


def _check_unary(match: Match) -> str | None:
    if _root_dtype(match) != match.dtype("conv"):
        return f"it makes {_root_dtype(match)} of {match.dtype('conv')}"
    return _format(match, "conv", _FORMATS)


def _with_nonlinearity(match: Match, build: Rebuild) -> Value:
    conv = match.node("conv")
    record = _record(conv, _NONLINEAR[_mode(match.root)])
    return _conv_bias(build, conv, [build[v] for v in conv.inputs], record, conv.output_dtype)


def _check_second(match: Match) -> str | None:
    inside = match.node("conv").param.nonlineMode
    if inside != _NL.IDENTITY and not (inside == _NL.RELU and _mode(match.root) == "RELU"):
        return f"it has the nonlinearity {inside} already"
    return _check_unary(match)


def _check_type(match: Match) -> str | None:
    source, target = match.dtype("conv"), _root_dtype(match)
    if source.kind is not DTypeEnum.QuantizedS32 or target.kind is not DTypeEnum.QuantizedS8:
        return f"only QuantizedS32 to QuantizedS8 is rounded inside, got {source} to {target}"
    return None


def _is_to_s8(node: Node, scope: Scope) -> bool:
    return scope.type(node.outputs[0]).dtype.kind is DTypeEnum.QuantizedS8


def _with_type(match: Match, build: Rebuild) -> Value:
    conv = match.node("conv")
    inputs = [build[v] for v in conv.inputs]
    return _conv_bias(build, conv, inputs, conv.param, _root_dtype(match))


CONV_BIAS = RulePass(
    name="conv-bias",
    rules=(
        Rule(
            name="bias",
            pattern=op("Elemwise", mode=_ADDS, commutes=True)(
                op("Convolution", name="conv"), anything("b")
            ),
            check=_check_bias,
            rewrite=_with_bias,
        ),
        Rule(
            name="nonlinearity",
            pattern=op("Elemwise", mode=_UNARY)(op("Convolution", name="conv")),
            check=_check_unary,
            rewrite=_with_nonlinearity,
        ),
        Rule(
            name="second-nonlinearity",
            pattern=op("Elemwise", mode=_UNARY)(op("ConvBiasForward", name="conv")),
            check=_check_second,
            rewrite=_with_nonlinearity,
        ),
        Rule(
            name="type",
            pattern=op("TypeCvt", where=_is_to_s8)(op("ConvBiasForward", name="conv")),
            check=_check_type,
            rewrite=_with_type,
        ),
    ),
    ensures=frozenset({Fact.CONV_BIAS}),
)
"""Rules 1 to 4."""


def _is_open(node: Node, _: Scope) -> bool:
    return len(node.inputs) == 3 and node.param.nonlineMode == _NL.IDENTITY


def _check_z(match: Match) -> str | None:
    conv, z = match.type("conv"), match.type("z")
    if not (conv.is_static and z.is_static):
        return "shapes are not known"
    if z.dims != conv.dims:
        return f"a value of shape {z.dims} is added to one of {conv.dims}"
    bias = match.scope.type(match.node("conv").inputs[2])
    if bias.shape == conv.shape:
        return "its bias has the shape of the result: MegEngine takes no z beside one"
    if z.dtype.kind is not conv.dtype.kind:
        return f"{z.dtype} is added to {conv.dtype}"
    return _format(match, "conv", _Z_FORMATS)


def _with_z(match: Match, build: Rebuild) -> Value:
    conv = match.node("conv")
    record = _record(conv, _NONLINEAR[_mode(match.root)])
    inputs = [*(build[v] for v in conv.inputs), build[match["z"]]]
    dtype = match.root.output_dtype or conv.output_dtype
    return _conv_bias(build, conv, inputs, record, dtype)


_open_conv = op("ConvBiasForward", name="conv", where=_is_open)
CONV_Z = RulePass(
    name="conv-z",
    rules=(
        Rule(
            name="z",
            pattern=op("Elemwise", mode=("ADD", "FUSE_ADD_RELU"), commutes=True)(
                _open_conv, anything("z")
            ),
            check=_check_z,
            rewrite=_with_z,
        ),
        Rule(
            name="quantised-z",
            pattern=op(
                "ElemwiseMultiType",
                mode=("QADD", "QFUSE_ADD_RELU", "QFUSE_ADD_H_SWISH"),
                commutes=True,
            )(_open_conv, anything("z")),
            check=_check_z,
            rewrite=_with_z,
        ),
    ),
    needs=frozenset({Fact.CONV_BIAS}),
)
"""Rule 5."""


def _deconv_with_type(match: Match, build: Rebuild) -> Value:
    conv = match.node("conv")
    inputs = [build[v] for v in conv.inputs]
    return build.like(conv, inputs, output_dtype=_root_dtype(match), outputs=1).outputs[0]


DECONV_TYPE = RulePass(
    name="deconv-type",
    rules=(
        Rule(
            name="type",
            pattern=op("TypeCvt", where=_is_to_s8)(op("ConvolutionBackwardData", name="conv")),
            check=lambda m: None if m.dtype("conv").is_quantized else f"it is {m.dtype('conv')}",
            rewrite=_deconv_with_type,
        ),
    ),
)
"""Rule 6."""
