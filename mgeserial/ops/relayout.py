"""Changes of layout: pure permutations with padding of channels, and requantisation on the way.

Modes whose name has NHWCD4I or ends in I keep their result in images of OpenCV; shapes and values
are those of the plain mode.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.layouts import (
    FILTER_LAYOUTS,
    GOIHW,
    NCHW,
    NHWC,
    TENSOR_LAYOUTS,
    FilterLayout,
    TensorLayout,
    choose_filter,
)
from mgeserial.ops.numerics import convert, quantize
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need

_Mode = P.RelayoutFormatV0Mode
_Format = P.ConvolutionFormat
_NHWCD4 = TENSOR_LAYOUTS[_Format.NHWCD4]
_NCHW4 = TENSOR_LAYOUTS[_Format.NCHW4]
_NCHW88 = TENSOR_LAYOUTS[_Format.NCHW88]
_NCHW64 = TENSOR_LAYOUTS[_Format.NCHW64]
_CHWN4 = TENSOR_LAYOUTS[_Format.CHWN4]
_MAPS: dict[_Mode, tuple[TensorLayout, TensorLayout]] = {
    _Mode.NHWC_NHWCD4: (NHWC, _NHWCD4),
    _Mode.NHWC_NHWCD4I: (NHWC, _NHWCD4),
    _Mode.NHWCD4_NHWC: (_NHWCD4, NHWC),
    _Mode.NHWCD4I_NHWC: (_NHWCD4, NHWC),
    _Mode.NCHW_NHWCD4: (NCHW, _NHWCD4),
    _Mode.NCHW_NHWCD4I: (NCHW, _NHWCD4),
    _Mode.NHWCD4_NCHW: (_NHWCD4, NCHW),
    _Mode.NHWCD4I_NCHW: (_NHWCD4, NCHW),
    _Mode.NCHW4_CHWN4: (_NCHW4, _CHWN4),
    _Mode.CHWN4_NCHW4: (_CHWN4, _NCHW4),
    _Mode.NCHW_NCHW88: (NCHW, _NCHW88),
    _Mode.NCHW88_NCHW: (_NCHW88, NCHW),
    _Mode.NCHW_NCHW4_IC_SMALL: (NCHW, _NCHW4),
    _Mode.NCHW_NCHW4: (NCHW, _NCHW4),
    _Mode.NCHW4_NCHW: (_NCHW4, NCHW),
    _Mode.NCHW_NCHW64: (NCHW, _NCHW64),
    _Mode.NCHW64_NCHW: (_NCHW64, NCHW),
    _Mode.NCHW_NHWC: (NCHW, NHWC),
    _Mode.NHWC_NCHW: (NHWC, NCHW),
}
_WITH_GROUPS = frozenset({_Mode.NCHW_NCHW4, _Mode.NCHW4_NCHW})
_WITH_CHANNELS = frozenset({_Mode.NCHW4_NCHW, _Mode.NCHW64_NCHW})
_PLAIN_FILTERS = FILTER_LAYOUTS[_Format.NCHW]
_OIHW = _PLAIN_FILTERS[0]
_DENSE, _GROUP, _CHANNEL, _DENSE_DOT, _GROUP_DOT = FILTER_LAYOUTS[_Format.NHWCD4]
_FILTERS: dict[_Mode, tuple[FilterLayout, FilterLayout]] = {
    _Mode.INTER_WEIGHT_DENSE: (_OIHW, _DENSE),
    _Mode.INTER_WEIGHT_DENSEI: (_OIHW, _DENSE),
    _Mode.INTER_WEIGHT_GROUP: (GOIHW, _GROUP),
    _Mode.INTER_WEIGHT_GROUPI: (GOIHW, _GROUP),
    _Mode.INTER_WEIGHT_CHAN: (GOIHW, _CHANNEL),
    _Mode.INTER_WEIGHT_CHANI: (GOIHW, _CHANNEL),
    _Mode.INTER_WEIGHT_DENSEI_DOT: (_OIHW, _DENSE_DOT),
    _Mode.INTER_WEIGHT_GROUPI_DOT: (GOIHW, _GROUP_DOT),
    _Mode.NCHW_NCHW88_CONV_DENSE_WEIGHT: (_OIHW, FILTER_LAYOUTS[_Format.NCHW88][0]),
    _Mode.NCHW_NCHW88_CONV_GROUP_WEIGHT: (GOIHW, FILTER_LAYOUTS[_Format.NCHW88][1]),
    _Mode.NCHW_NCHW88_CONV_CHAN_WEIGHT: (GOIHW, FILTER_LAYOUTS[_Format.NCHW88][2]),
    _Mode.NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT: (_OIHW, FILTER_LAYOUTS[_Format.NCHW4][0]),
}
# Modes that fill up blocks of output or input channels beside what the layout itself asks.
_FILL_OUTPUTS = frozenset({_Mode.NCHW_NCHW4_WEIGHT})
_FILL_INPUTS = frozenset({_Mode.INTER_WEIGHT_DENSE, _Mode.INTER_WEIGHT_DENSEI})
_SMALL = frozenset({_Mode.NCHW_NCHW4_IC_SMALL, _Mode.NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT})


def _dtypes(call: Call) -> list[DType]:
    source, target = call.dtype(0), call.output_dtype or call.dtype(0)
    same_family = (
        source.is_quantized
        and target.is_quantized
        and source.is_lowbit == target.is_lowbit
        and source.storage.itemsize == target.storage.itemsize
    )
    shifted = source.kind is DTypeEnum.Uint8 and target.kind is DTypeEnum.QuantizedS8
    if not (source.kind is target.kind or same_family or shifted):
        raise UnsupportedError(f"relayout does not convert {source.name} to {target.name}")
    return [target]


def _filters(mode: _Mode, shape: Shape) -> tuple[FilterLayout, FilterLayout] | None:
    """Source and target layout of a mode of filters, None for feature maps."""
    if mode == _Mode.NCHW_NCHW4_WEIGHT:
        grouped = len(shape) == 5
        plain = choose_filter(_PLAIN_FILTERS, shape, grouped=grouped)
        return plain, FILTER_LAYOUTS[_Format.NCHW4][grouped]
    return _FILTERS.get(mode)


def _grown(mode: _Mode, logical: Shape) -> Shape:
    """(G, O, I, FH, FW) of a filter with the channels that the mode fills up."""
    g, o, i, *kernel = logical
    if mode in _FILL_OUTPUTS:
        o = -(-o // 4) * 4
    if mode in _FILL_INPUTS:
        i = -(-i // 4) * 4
    return (g, o, i, *kernel)


def _filter_shape(mode: _Mode, shape: Shape, source: FilterLayout, target: FilterLayout) -> Shape:
    logical = source.logical(shape)
    g, o, i, *_ = logical
    need(mode not in _SMALL or i <= 4, f"{mode} needs at most 4 input channels, got {i}")
    if mode not in _FILL_OUTPUTS:
        for axis, count, what in (("O", o, "output channels"), ("G", g, "groups")):
            lanes = target.lanes if axis.lower() in target.axes else 1
            need(count % lanes == 0, f"{mode} needs {what} in blocks of {lanes}, got {count}")
    if "1" in target.axes:
        need(o == i == 1, f"{mode} needs one channel for each group, got {o} and {i}")
    return target.stored(_grown(mode, logical))


def _channels(call: Call, shape: Shape, source: TensorLayout) -> tuple[int, int, int]:
    """(groups, channels of a group, channels kept of a group) of a feature map."""
    param = call.param
    channels = source.logical(shape)[1]
    groups = int(param.group) if param.mode in _WITH_GROUPS else 1
    need(groups > 0, f"group must be positive, got {groups}")
    need(channels % groups == 0, f"{channels} channels do not make {groups} groups")
    wanted = int(param.oc) if param.mode in _WITH_CHANNELS else 0
    need(
        wanted <= channels and wanted % groups == 0,
        f"oc must be at most {channels} and a multiple of {groups} groups, got {wanted}",
    )
    return groups, channels // groups, (wanted or channels) // groups


def map_layouts(mode: _Mode) -> tuple[TensorLayout, TensorLayout] | None:
    """Source and target layout of a mode of feature maps; None for filters."""
    return _MAPS.get(mode)


def _layouts(call: Call) -> tuple[TensorLayout, TensorLayout]:
    found = map_layouts(call.param.mode)
    if found is None:
        raise UnsupportedError(f"relayout mode {call.param.mode} is not known")
    return found


def _shapes(call: Call) -> list[ShapeLike]:
    mode, shape = call.param.mode, call.shape(0)
    filters = _filters(mode, shape)
    if filters is not None:
        return [_filter_shape(mode, shape, *filters)]
    source, target = _layouts(call)
    n, channels, h, w = source.logical(shape)
    need(mode not in _SMALL or channels <= 4, f"{mode} needs at most 4 channels, got {channels}")
    groups, _, kept = _channels(call, shape, source)
    if mode in (_Mode.NHWC_NHWCD4, _Mode.NHWC_NHWCD4I):
        need(channels % 4 == 0, f"{mode} needs channels in blocks of 4, got {channels}")
    blocks = -(-kept // target.lanes) * target.lanes
    return [target.stored((n, groups * blocks, h, w))]


def _reference(call: Call, x: Array) -> Array:
    dtype = call.dtype(0)
    fill = 128 if dtype.kind is DTypeEnum.Uint8 else dtype.zero_point or 0
    mode = call.param.mode
    filters = _filters(mode, x.shape)
    moved = (
        _relaid_maps(call, x, fill)
        if filters is None
        else _relaid_filter(mode, x, *filters, fill=fill)
    )
    target = call.output_types[0].dtype
    if dtype.kind is DTypeEnum.Uint8 and target.is_quantized:
        return quantize(moved.astype(np.float32) - np.float32(128), target)
    return convert(moved, dtype, target)


def _relaid_maps(call: Call, x: Array, fill: int) -> Array:
    source, target = _layouts(call)
    groups, channels, kept = _channels(call, x.shape, source)
    maps = source.to_nchw(x)
    n, _, h, w = maps.shape
    # Groups are padded one by one: each is an image of its own.
    apart = maps.reshape(n * groups, channels, h, w)[:, :kept]
    moved = target.from_nchw(apart, fill=fill)
    if groups == 1:
        return moved
    return moved.reshape(n, groups * moved.shape[1], *moved.shape[2:])


def _relaid_filter(
    mode: _Mode, x: Array, source: FilterLayout, target: FilterLayout, *, fill: int
) -> Array:
    if mode in _FILL_INPUTS:
        # MegEngine fills these with zero bytes whatever the zero point (seen in 1.13.0).
        fill = 0
    logical = source.to_goihw(x)
    grown = _grown(mode, logical.shape)
    padding = [(0, b - a) for a, b in zip(logical.shape, grown, strict=True)]
    return target.from_goihw(np.pad(logical, padding, constant_values=fill), fill=fill)


RELAYOUT_FORMAT = register(
    OpSpec(
        name="RelayoutFormat",
        runtime_name="RelayoutFormat",
        names=(
            Name("RelayoutFormat", "v0.3.1", 7308985593415077378, until="v1.2.0"),
            Name("RelayoutFormatV1", "v1.3.0", 4491167554709169420),
        ),
        old_id=3045039161730867197,
        v2=(V2Id("RelayoutFormatV1", 1, 3045039161730867197),),
        params=(P.RelayoutFormat,),
        inputs=("x",),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source="semantics section 14, checked against MegEngine 1.13.0",
    )
)
