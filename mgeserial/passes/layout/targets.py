"""What each layout takes, as data: which operators, under which conditions, through which changes.

One table for each layout that can be asked for. The walk (`walk.py`) knows nothing of layouts but
these tables. Operators that a table does not name read what they read before the conversion.

Source: MegEngine v1.13.4 src/gopt/impl/tensor_reformat.cpp, src/gopt/impl/inference.cpp,
dnn/src/common/nchw_nchwxx_valid.h; corpus families layout and nets, and MegEngine 1.13.0 on random
graphs. Where MegEngine gives a value in blocks to an operator that knows nothing of them (Reshape
and MatrixMul under NCHW4, TypeCvt and outputs under NHWCD4), the value is put in order first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.ops.layouts import FILTER_LAYOUTS
from mgeserial.passes.layout.facts import CHANNEL_WISE, GROUP, FirstLayer
from mgeserial.passes.layout.rules import (
    CONV,
    ConvRule,
    Follow,
    ImageRule,
    Kinds,
    Policy,
    Target,
)
from mgeserial.passes.options import Layout

__all__ = ["TARGETS"]

_F = P.ConvolutionFormat
_K = DTypeEnum
_NL = P.ConvBiasV0NonlineMode
_Mode = P.RelayoutFormatV0Mode
_FUSED = frozenset({"ConvBiasForward"})
_DECONV = frozenset({"ConvolutionBackwardData"})
_S8 = frozenset({_K.QuantizedS8})
_INT8 = frozenset({_K.QuantizedS8, _K.Quantized8Asymm})
_INT4 = frozenset({_K.QuantizedS4, _K.Quantized4Asymm})
_ELEMENTWISE = frozenset({"Elemwise", "ElemwiseMultiType", "PowC", "TypeCvt"})

_OIHWI4, _GOIHWI4 = FILTER_LAYOUTS[_F.NCHW4]
_REAL = frozenset({_K.Float32})
_NOT_REAL = frozenset(_K) - _REAL


def _nchw4_convs() -> Iterator[ConvRule]:
    """Quantised convolutions; those with a float32 result write NCHW."""
    dense = ConvRule(
        format=_F.NCHW4, reads=_F.NCHW4, result=_F.NCHW4, multiple=4, image_kinds=_INT8,
        result_kinds=_NOT_REAL, filter=_OIHWI4,
    )  # fmt: skip
    real = replace(dense, ops=_FUSED, format=_F.NCHW4_NCHW, result=_F.NCHW, result_kinds=_REAL)
    for rule in (dense, real):
        yield rule
        yield replace(
            rule, fewer_than=4, image_mode=_Mode.NCHW_NCHW4_IC_SMALL,
            filter_mode=_Mode.NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT, label="as a first layer",
        )  # fmt: skip
        yield replace(rule, kind=GROUP, filter=_GOIHWI4)
        yield replace(rule, kind=CHANNEL_WISE, filter=_GOIHWI4)
    yield replace(dense, ops=_DECONV, result_kinds=None)


_NCHW4 = Target(
    layout=Layout.NCHW4,
    main=_F.NCHW4,
    convs=tuple(_nchw4_convs()),
    images=(
        ImageRule(
            ops=frozenset({"Pooling", "Resize", "WarpPerspective"}),
            kinds=_INT8,
            follows=(_F.NCHW4,),
        ),
    ),
    follows=(Follow(_ELEMENTWISE, Policy.ANY),),
)
_NCHW32 = Target(
    layout=Layout.NCHW32,
    base=_F.NCHW4,
    main=_F.NCHW32,
    convs=(
        ConvRule(
            ops=_FUSED, format=_F.NCHW32, reads=_F.NCHW32, result=_F.NCHW32, multiple=32,
            result_kinds=_S8, least_size=3, filter=FILTER_LAYOUTS[_F.NCHW32][0],
        ),
    ),
    images=(ImageRule(ops=frozenset({"Pooling"}), takes=((32, _F.NCHW32),)),),
    follows=(Follow(_ELEMENTWISE, Policy.HALF),),
)  # fmt: skip
_CHWN4 = Target(
    layout=Layout.CHWN4,
    base=_F.NCHW4,
    main=_F.CHWN4,
    convs=(
        ConvRule(
            ops=_FUSED, format=_F.CHWN4, reads=_F.CHWN4, result=_F.CHWN4, multiple=4,
            result_kinds=_S8, filter=FILTER_LAYOUTS[_F.CHWN4][0],
        ),
    ),
    images=(ImageRule(ops=frozenset({"Pooling"}), follows=(_F.CHWN4,)),),
    follows=(Follow(_ELEMENTWISE, Policy.HALF),),
)  # fmt: skip

_S8_FIRST = FirstLayer(dtypes=(_K.QuantizedS8, _K.QuantizedS8, _K.QuantizedS8), point=True)
_FIRST = {
    _F.NCHW88: (
        FirstLayer(
            dtypes=(_K.Float32, _K.Float32, _K.Float32),
            kernels=None,
            strides=None,
            nonlinearities=None,
        ),
        FirstLayer(dtypes=(_K.Float16, _K.Float16, _K.Float16)),
    ),
    _F.NCHW44: (
        FirstLayer(dtypes=(_K.Float32, _K.Float32, _K.Float32)),
        _S8_FIRST,
        FirstLayer(dtypes=(_K.Int8, _K.Int8, _K.Int16), nonlinearities=frozenset({_NL.IDENTITY})),
    ),
    _F.NCHW44_DOT: (_S8_FIRST,),
}


def _blocked_convs(fmt: _F, kinds: Kinds | None, *, channel_wise: _F) -> Iterator[ConvRule]:
    """Convolutions with blocks of input and output channels, whose filter is one of `kinds`.

    MegEngine 1.13.0 refuses to run dilated ones, and its own conversion ends in an error at them.
    """
    layouts = FILTER_LAYOUTS[fmt]
    lanes = layouts[0].lanes
    dense = ConvRule(
        format=fmt, reads=fmt, result=fmt, takes_z=False, dilates=False, filter_kinds=kinds,
        multiple=lanes, filter=layouts[0],
    )  # fmt: skip
    yield dense
    yield replace(
        dense, reads=_F.NCHW, filter=layouts[3], fewer_than=lanes, first=_FIRST[fmt],
        label="as a first layer",
    )  # fmt: skip
    yield replace(dense, kind=GROUP, filter=layouts[1])
    yield replace(
        dense, kind=CHANNEL_WISE, format=channel_wise, multiple=1, groups=lanes,
        filter=FILTER_LAYOUTS[channel_wise][2],
    )  # fmt: skip


def _blocked(layout: Layout, main: _F, convs: Iterator[ConvRule]) -> Target:
    return Target(
        layout=layout,
        main=main,
        convs=tuple(convs),
        images=(
            ImageRule(ops=frozenset({"Pooling", "AdaptivePooling", "Resize"}), follows=(main,)),
        ),
        follows=(Follow(_ELEMENTWISE, Policy.ANY),),
        concat=Policy.ANY,
        reduces="HW",
    )


def _dot_convs() -> Iterator[ConvRule]:
    """Dot products for int8 filters, NCHW44 for all others and for channel-wise ones."""
    int8 = frozenset({_K.QuantizedS8, _K.Int8})
    yield from _blocked_convs(_F.NCHW44_DOT, int8, channel_wise=_F.NCHW44)
    yield from _blocked_convs(_F.NCHW44, frozenset(_K) - int8, channel_wise=_F.NCHW44)


_DENSE_I, _GROUP_I, _CHANNEL_I, _DENSE_DOT, _GROUP_DOT = FILTER_LAYOUTS[_F.NHWCD4]


def _nhwcd4_convs() -> Iterator[ConvRule]:
    """Images of OpenCL; filters of 8-bit types are for dot products."""
    plain = ConvRule(
        format=_F.NHWCD4, reads=_F.NHWCD4, result=_F.NHWCD4, takes_z=False, multiple=4,
        filter_kinds=frozenset(_K) - _INT8, filter=_DENSE_I, filter_mode=_Mode.INTER_WEIGHT_DENSEI,
        image_axis=3,
    )  # fmt: skip
    dot = replace(
        plain, filter_kinds=_INT8, filter=_DENSE_DOT, filter_mode=_Mode.INTER_WEIGHT_DENSEI_DOT
    )
    yield replace(plain, any_reads=True, fill_reads=4)
    yield replace(dot, any_reads=True)
    for rule, group, mode in (
        (plain, _GROUP_I, _Mode.INTER_WEIGHT_GROUPI),
        (dot, _GROUP_DOT, _Mode.INTER_WEIGHT_GROUPI_DOT),
    ):
        yield replace(rule, ops=_DECONV)
        yield replace(
            rule, ops=CONV | _DECONV, kind=GROUP, filter=group, filter_mode=mode, image_axis=4
        )
    yield replace(
        plain, ops=CONV | _DECONV, kind=CHANNEL_WISE, multiple=1, groups=4, needs_packed=True,
        filter_kinds=None, filter=_CHANNEL_I, filter_mode=_Mode.INTER_WEIGHT_CHANI, image_axis=1,
    )  # fmt: skip


_NHWCD4 = Target(
    layout=Layout.NHWCD4,
    main=_F.NHWCD4,
    convs=tuple(_nhwcd4_convs()),
    images=(
        ImageRule(
            ops=frozenset({"Pooling", "Resize", "WarpPerspective", "WarpAffine"}),
            takes=((4, _F.NHWCD4),),
        ),
    ),
    follows=(
        Follow(frozenset({"Elemwise"}), Policy.ALWAYS),
        Follow(frozenset({"ElemwiseMultiType", "PowC", "TypeCvt"}), Policy.ANY),
    ),
    concat=Policy.EVERY,
)


def _nchw64_convs() -> Iterator[ConvRule]:
    """NCHW32 or NCHW4 for 8 bits, NCHW64 or NHWC for 4 bits."""
    int8 = ConvRule(
        ops=_FUSED, image_kinds=_S8, filter_kinds=_S8, result_kinds=_NOT_REAL, multiple=4,
        format=_F.NCHW4, reads=_F.NCHW4, result=_F.NCHW4, filter=_OIHWI4, label="in NCHW4",
    )  # fmt: skip
    yield replace(
        int8, multiple=32, format=_F.NCHW32, reads=_F.NCHW32, result=_F.NCHW32,
        filter=FILTER_LAYOUTS[_F.NCHW32][0], label="in NCHW32",
    )  # fmt: skip
    yield int8
    yield replace(
        int8, result_kinds=_REAL, format=_F.NCHW4_NCHW, result=_F.NCHW, label="in NCHW4_NCHW"
    )
    int4 = ConvRule(
        ops=_FUSED, image_kinds=_INT4, filter_kinds=frozenset({_K.QuantizedS4}), multiple=64,
        format=_F.NCHW64, reads=_F.NCHW64, result=_F.NCHW64, filter=FILTER_LAYOUTS[_F.NCHW64][0],
        label="in NCHW64",
    )  # fmt: skip
    yield int4
    yield replace(
        int4, multiple=8, format=_F.NHWC, reads=_F.NHWC, result=_F.NHWC,
        filter=FILTER_LAYOUTS[_F.NHWC][0], label="in NHWC",
    )  # fmt: skip
    yield replace(int8, ops=_DECONV, result_kinds=None, label="")


_NCHW64 = Target(
    layout=Layout.NCHW64,
    main=_F.NCHW64,
    convs=tuple(_nchw64_convs()),
    images=(
        ImageRule(
            ops=frozenset({"Pooling"}),
            kinds=_S8,
            follows=(_F.NCHW4, _F.NCHW32),
            takes=((32, _F.NCHW32), (4, _F.NCHW4)),
        ),
        ImageRule(
            ops=frozenset({"Pooling", "WarpPerspective"}),
            kinds=_INT4,
            follows=(_F.NCHW64, _F.NHWC),
            takes=((1, _F.NHWC),),
        ),
        ImageRule(ops=frozenset({"WarpPerspective"}), kinds=_S8, takes=((4, _F.NCHW4),)),
    ),
    follows=(Follow(_ELEMENTWISE, Policy.LARGEST),),
)
TARGETS: dict[Layout, Target] = {
    target.layout: target
    for target in (
        _NCHW4,
        _NCHW32,
        _CHWN4,
        _blocked(Layout.NCHW88, _F.NCHW88, _blocked_convs(_F.NCHW88, None, channel_wise=_F.NCHW88)),
        _blocked(Layout.NCHW44, _F.NCHW44, _blocked_convs(_F.NCHW44, None, channel_wise=_F.NCHW44)),
        _blocked(Layout.NCHW44_DOT, _F.NCHW44, _dot_convs()),
        _NHWCD4,
        _NCHW64,
    )
}
"""By the switch that asks for it."""
