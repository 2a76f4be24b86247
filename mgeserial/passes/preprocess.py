"""What stands between an image and the first convolution in one operator (fuse_preprocess).

Rules, the first two in all forms that quantised networks are exported with:

1. uint8 image - 128 (in float32) or Quantized8Asymm image, converted to QuantizedS8, padded with
   zeros to 4 channels, reshaped and shuffled to NCHW4: one RelayoutFormat NCHW_NCHW4.
2. The same where the conversion to QuantizedS8 comes last, or where the result is NHWC (a Reshape
   follows).
3. WarpPerspective of a uint8 or Quantized8Asymm image and conversion to float32: the warp converts.
   What it used to round to whole steps it does not round any more.
4. The same in NHWC with the shuffle to NCHW that follows: format NHWC_NCHW.
5. WarpPerspective of fewer than 4 channels and RelayoutFormat NCHW_NCHW4 to QuantizedS8: formats
   NCHW_NCHW4_IC_SMALL and (with the shuffle to NCHW between) NHWC_NCHW4_IC_SMALL.
6. Left alone: padding that is not zero, more channels than one block, values that others use.

Source: MegEngine v1.13.4 src/gopt/impl/fuse_nchw4_int8_preprocess.cpp, semantics sections 10 and
14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, UINT8, DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Pattern, Rule, RulePass, Scope, anything, const, op

__all__ = ["PREPROCESS"]

_K = DTypeEnum
_Format = P.ConvolutionFormat
_RELAYOUT = P.RelayoutFormat(mode=P.RelayoutFormatV0Mode.NCHW_NCHW4)


def _is_uint8(node: Node, scope: Scope) -> bool:
    return scope.type(node.inputs[0]).dtype == UINT8


def _is_asymmetric(node: Node, scope: Scope) -> bool:
    return scope.type(node.inputs[0]).dtype.kind is _K.Quantized8Asymm


def _makes(kind: DTypeEnum) -> Callable[[Node, Scope], bool]:
    return lambda node, scope: scope.type(node.outputs[0]).dtype.kind is kind


def _on_axis_1(node: Node, _: Scope) -> bool:
    return len(node.inputs) == 2 and node.param.axis == 1


def _pattern_is(*order: int) -> Callable[[Node, Scope], bool]:
    return lambda node, _: tuple(node.param.pattern) == order


def _both(
    a: Callable[[Node, Scope], bool], b: Callable[[Node, Scope], bool]
) -> Callable[[Node, Scope], bool]:
    return lambda node, scope: a(node, scope) and b(node, scope)


def _minus_128() -> Iterator[Pattern]:
    """A uint8 image in float32, moved to around zero."""
    real = op("TypeCvt", where=_both(_is_uint8, _makes(_K.Float32)))(anything("image"))
    yield op("Elemwise", mode="ADD", commutes=True, name="moved")(real, const("shift"))
    yield op("Elemwise", mode="SUB", name="moved")(real, const("shift"))


def _padded(source: Pattern) -> Pattern:
    return op("Concat", where=_on_axis_1)(source, const("padding"))


def _as_nchw4(source: Pattern, *, name: str | None = None) -> Pattern:
    to_blocks = op("Reshape")(_padded(source), anything())
    return op("Dimshuffle", where=_pattern_is(0, 1, 3, 4, 2), name=name)(to_blocks)


def _as_nhwc(source: Pattern) -> Pattern:
    return op("Dimshuffle", where=_pattern_is(0, 2, 3, 1))(_padded(source))


def _check_image(match: Match) -> str | None:
    image = match.type("image")
    if not image.is_static or image.rank != 4:
        return f"the image is {image}"
    if "shift" in match:
        wanted = -128 if str(match.node("moved").param.mode) == "ADD" else 128
        shift = match.constant("shift")
        if shift is None or not bool(np.all(np.asarray(shift) == wanted)):
            return "it is moved by another number than 128"
    padding = match.constant("padding")
    if padding is None or bool(np.asarray(padding).any()):
        return "it is padded with something else than zeros"
    channels, added = image.dims[1], match.shape("padding")[1]
    if channels >= 4 or channels + added != 4:
        return f"{channels} channels and {added} of padding are not one block of 4"
    target = match.scope.type(match.root.outputs[0])
    if not target.is_static:
        return "its shape is not known"
    n, _, h, w = image.dims
    if target.dims not in ((n, 1, h, w, 4), (n, h, w, 4)):
        return f"the result of shape {target.dims} is not the image in blocks of 4"
    return None


def _relayout(match: Match, build: Rebuild) -> Value:
    target = match.scope.type(match.root.outputs[0])
    made = build.apply(
        "RelayoutFormat", [build[match["image"]]], (_RELAYOUT,), output_dtype=target.dtype
    )[0]
    return made if target.rank == 5 else build.reshape_to(made, target.dims)


def _image_rules() -> Iterator[Rule]:
    to_s8 = _makes(_K.QuantizedS8)
    asymmetric = op("TypeCvt", where=_both(_is_asymmetric, to_s8))(anything("image"))
    sources = [asymmetric, *(op("TypeCvt", where=to_s8)(moved) for moved in _minus_128())]
    patterns = [(kind, shape(s)) for s in sources for kind, shape in _SHAPES.items()]
    patterns += [
        ("image-then-type", op("TypeCvt", where=to_s8)(_as_nchw4(moved))) for moved in _minus_128()
    ]
    for name, pattern in patterns:
        # The padding is a constant that fixes batch and image; that there are 3 channels, or fewer,
        # is what the rule is about.
        yield Rule(name=name, pattern=pattern, check=_check_image, rewrite=_relayout, any_size=True)


_SHAPES: dict[str, Callable[[Pattern], Pattern]] = {
    "image-to-nchw4": _as_nchw4,
    "image-to-nhwc4": _as_nhwc,
}


def _is_warp(fmt: str) -> Callable[[Node, Scope], bool]:
    def test(node: Node, scope: Scope) -> bool:
        kind = scope.type(node.inputs[0]).dtype.kind
        return str(node.param.format) == fmt and kind in (_K.Uint8, _K.Quantized8Asymm)

    return test


def _warp(fmt: str) -> Pattern:
    return op("WarpPerspective", where=_is_warp(fmt), name="warp")


def _to_nchw(source: Pattern) -> Pattern:
    return op("Dimshuffle", where=_pattern_is(0, 3, 1, 2))(source)


def _with_format(fmt: P.ConvolutionFormat | None) -> Callable[[Match, Rebuild], Value]:
    def rewrite(match: Match, build: Rebuild) -> Value:
        warp, dtype = match.node("warp"), match.scope.type(match.root.outputs[0]).dtype
        record = warp.param if fmt is None else warp.param.replace(format=fmt)
        inputs = [build[v] for v in warp.inputs]
        params = (record, *warp.params[1:])
        return build.apply("WarpPerspective", inputs, params, output_dtype=dtype)[0]

    return rewrite


def _check_small(match: Match) -> str | None:
    warp = match.node("warp")
    given = match.scope.type(warp.inputs[0])
    if not given.is_static:
        return "its shape is not known"
    axis = 3 if str(warp.param.format) == "NHWC" else 1
    if given.dims[axis] >= 4:
        return f"it has {given.dims[axis]} channels, not fewer than 4"
    if str(warp.param.imode) != "LINEAR":
        return f"it interpolates {warp.param.imode}, not LINEAR"
    return None


def _check_float(match: Match) -> str | None:
    warp = match.node("warp")
    if str(warp.param.imode) != "LINEAR":
        return f"it interpolates {warp.param.imode}, not LINEAR"
    target = match.scope.type(match.root.outputs[0]).dtype
    return None if target == FLOAT32 else f"it is converted to {target}"


def _is_small_relayout(node: Node, scope: Scope) -> bool:
    return str(node.param.mode) == "NCHW_NCHW4" and _makes(_K.QuantizedS8)(node, scope)


_to_float = op("TypeCvt", where=_makes(_K.Float32))
_to_blocks = op("RelayoutFormat", where=_is_small_relayout)
PREPROCESS = RulePass(
    name="fuse-preprocess",
    rules=(
        *_image_rules(),
        Rule(
            name="warp-nhwc-to-blocks",
            pattern=_to_blocks(_to_nchw(_warp("NHWC"))),
            check=_check_small,
            rewrite=_with_format(_Format.NHWC_NCHW4_IC_SMALL),
        ),
        Rule(
            name="warp-to-blocks",
            pattern=_to_blocks(_warp("NCHW")),
            check=_check_small,
            rewrite=_with_format(_Format.NCHW_NCHW4_IC_SMALL),
        ),
        Rule(
            name="warp-type",
            pattern=_to_float(_warp("NCHW")),
            check=_check_float,
            rewrite=_with_format(None),
        ),
        Rule(
            name="warp-nhwc-type",
            pattern=_to_float(_to_nchw(_warp("NHWC"))),
            check=_check_float,
            rewrite=_with_format(_Format.NHWC_NCHW),
        ),
    ),
)
"""The pass of all these rules."""
