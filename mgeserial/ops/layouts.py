"""Packed layouts of feature maps and filters as pure permutations to and from NCHW and GOIHW.

A layout is a string of axes. Upper case letters are what a shape counts (`N`, `H`, `W`, blocks of
channels `C`, of output channels `O`, of input channels `I`, groups `G`), lower case ones lanes of
a block (`c`, `o`, `i`, `g`), and `1` an axis of size one. Channel k lives at block k // lanes, lane
k % lanes. NCHW44 is `NCHWc` with 4 lanes; its dense filter is `OIHWio`, so that 4 input lanes are
followed by 4 output lanes. Volumes have an axis `D` before `H`: read NCDHW where NCHW is said.

Source: semantics section 4 (table of tensor layouts), checked against MegEngine 1.13.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import Shape

__all__ = [
    "FILTER_LAYOUTS",
    "GOIHW",
    "NCDHW",
    "NCDHW_FILTERS",
    "NCHW",
    "NDHWC",
    "NDHWC_FILTERS",
    "NHWC",
    "TENSOR_LAYOUTS",
    "FilterLayout",
    "TensorLayout",
    "choose_filter",
    "filter_layout",
    "input_layout",
    "output_layout",
    "single_layout",
]

Format = P.ConvolutionFormat
_LANES = frozenset("coig")


def _blocks(count: int, lanes: int) -> int:
    return -(-count // lanes)


def _padded(array: Array, axis: int, size: int, fill: int) -> Array:
    """`array` with `axis` grown to `size` by elements of value `fill`; a view when it fits."""
    grow = size - array.shape[axis]
    if not grow:
        return array
    shape = (*array.shape[:axis], grow, *array.shape[axis + 1 :])
    return np.concatenate([array, np.full(shape, fill, array.dtype)], axis=axis)


def _split(array: Array, axis: int, lanes: int) -> Array:
    """One axis as (blocks, lanes)."""
    shape = array.shape
    return array.reshape(*shape[:axis], shape[axis] // lanes, lanes, *shape[axis + 1 :])


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """How a feature map of logical shape (N, C, H, W) is stored.

    Attributes:
        name: Name in messages, such as `NCHW4`.
        axes: The axes in order of storage; `c` is the lane of a channel.
        lanes: Channels of one block; 1 without blocks.
    """

    name: str
    axes: str
    lanes: int = 1

    @property
    def rank(self) -> int:
        """Number of stored dimensions."""
        return len(self.axes)

    @property
    def spatial(self) -> str:
        """The spatial axes, `HW` or `DHW`."""
        return "DHW" if "D" in self.axes else "HW"

    def logical(self, shape: Shape) -> Shape:
        """(N, C, H, W) of a stored shape; C counts padding.

        Raises:
            ShapeError: The shape is not one of this layout.
        """
        if len(shape) != self.rank or (self.lanes > 1 and shape[-1] != self.lanes):
            asked = ", ".join(str(self.lanes) if a == "c" else a for a in self.axes)
            raise ShapeError(f"{self.name} needs a shape ({asked}), got {shape}")
        size = dict(zip(self.axes, shape, strict=True))
        return size["N"], size["C"] * self.lanes, *(size[a] for a in self.spatial)

    def stored(self, logical: Shape) -> Shape:
        """Stored shape of (N, C, H, W), with channels padded to whole blocks."""
        size = dict(zip("NC" + self.spatial, logical, strict=True))
        size["C"] = _blocks(size["C"], self.lanes)
        return tuple(self.lanes if a == "c" else size[a] for a in self.axes)

    def to_nchw(self, array: Array) -> Array:
        """The array as (N, C, H, W), padding channels included; a view where possible."""
        logical = self.logical(array.shape)
        order = [self.axes.index(a) for a in "NCc" + self.spatial if a in self.axes]
        return array.transpose(order).reshape(logical)

    def from_nchw(self, array: Array, *, fill: int = 0) -> Array:
        """A contiguous array in this layout of one in NCHW; `fill` is put into padding channels."""
        channels = array.shape[1]
        array = _padded(array, 1, _blocks(channels, self.lanes) * self.lanes, fill)
        stored = "NC" + self.spatial
        if self.lanes > 1:
            array, stored = _split(array, 1, self.lanes), "NCc" + self.spatial
        return np.ascontiguousarray(array.transpose([stored.index(a) for a in self.axes]))

    def __str__(self) -> str:
        return self.name


NCHW = TensorLayout("NCHW", "NCHW")
NHWC = TensorLayout("NHWC", "NHWC")
NCDHW = TensorLayout("NCDHW", "NCDHW")
NDHWC = TensorLayout("NDHWC", "NDHWC")
_NHWCD4 = TensorLayout("NHWCD4", "NHCWc", 4)
_NCHW4 = TensorLayout("NCHW4", "NCHWc", 4)
_NCHW32 = TensorLayout("NCHW32", "NCHWc", 32)

TENSOR_LAYOUTS: dict[Format, TensorLayout] = {
    Format.NCHW: NCHW,
    Format.NHWC: NHWC,
    Format.NHWCD4: _NHWCD4,
    Format.NCHW4: _NCHW4,
    Format.NCHW8: TensorLayout("NCHW8", "NCHWc", 8),
    Format.NCHW32: _NCHW32,
    Format.NCHW88: TensorLayout("NCHW88", "NCHWc", 8),
    Format.NCHW44: TensorLayout("NCHW44", "NCHWc", 4),
    Format.NCHW44_DOT: TensorLayout("NCHW44_DOT", "NCHWc", 4),
    Format.CHWN4: TensorLayout("CHWN4", "CHWNc", 4),
    Format.NCHW64: TensorLayout("NCHW64", "NCHWc", 64),
}
# Formats that read one layout and write another; the third entry is where the filter looks.
_TWO_LAYOUTS: dict[Format, tuple[Format, Format]] = {
    Format.NCHW4_NCHW32: (Format.NCHW4, Format.NCHW32),
    Format.NCHW32_NCHW4: (Format.NCHW32, Format.NCHW4),
    Format.NCHW4_NCHW: (Format.NCHW4, Format.NCHW),
    Format.NCHW4_NHWC: (Format.NCHW4, Format.NHWC),
    Format.NHWC_NCHW: (Format.NHWC, Format.NCHW),
    Format.NHWC_NCHW4_IC_SMALL: (Format.NHWC, Format.NCHW4),
    Format.NCHW_NCHW4_IC_SMALL: (Format.NCHW, Format.NCHW4),
}
# Their first layer may read plain NCHW ("hybrid"): there are fewer channels than lanes.
_HYBRID = frozenset({Format.NCHW88, Format.NCHW44, Format.NCHW44_DOT})


def _layout(fmt: Format, side: int) -> TensorLayout:
    if fmt in _TWO_LAYOUTS:
        fmt = _TWO_LAYOUTS[fmt][side]
    if fmt not in TENSOR_LAYOUTS:
        raise UnsupportedError(f"tensor format {fmt} is not known")
    return TENSOR_LAYOUTS[fmt]


def input_layout(fmt: Format, rank: int) -> TensorLayout:
    """Layout of the tensor that an operator of this format reads; `rank` tells first layers."""
    if fmt in _HYBRID and rank == 4:
        return NCHW
    return _layout(fmt, 0)


def output_layout(fmt: Format) -> TensorLayout:
    """Layout of the tensor that an operator of this format writes."""
    return _layout(fmt, 1)


def single_layout(fmt: Format) -> TensorLayout:
    """Layout of a format that names just one layout.

    Raises:
        UnsupportedError: The format goes from one layout to another.
    """
    if fmt not in TENSOR_LAYOUTS:
        raise UnsupportedError(f"{fmt} is not the format of one tensor")
    return TENSOR_LAYOUTS[fmt]


@dataclass(frozen=True, slots=True)
class FilterLayout:
    """How a filter of logical shape (G, O, I, FH, FW) is stored (O and I count within a group).

    Attributes:
        name: Axes with the number of lanes, such as `OIHW4i4o`.
        axes: The axes in order of storage. `G` is missing in dense filters; channel-wise ones have
            lanes of groups (`g`) and axes of size one for O and I.
        lanes: Channels of one block, in every blocked axis.
    """

    name: str
    axes: str
    lanes: int = 1

    @property
    def rank(self) -> int:
        """Number of stored dimensions."""
        return len(self.axes)

    @property
    def spatial(self) -> str:
        """The spatial axes, `HW` or `DHW`."""
        return "DHW" if "D" in self.axes else "HW"

    @property
    def is_grouped(self) -> bool:
        """Whether the first axis counts groups."""
        return "G" in self.axes

    def _lanes(self, axis: str) -> int:
        return self.lanes if axis.lower() in self.axes else 1

    def logical(self, shape: Shape) -> Shape:
        """(G, O, I, FH, FW) of a stored shape; O and I count padding.

        Raises:
            ShapeError: The shape is not one of this layout.
        """
        fits = len(shape) == self.rank and all(
            n == (self.lanes if a in _LANES else 1)
            for a, n in zip(self.axes, shape, strict=True)
            if a in _LANES or a == "1"
        )
        if not fits:
            asked = ", ".join(str(self.lanes) if a in _LANES else a for a in self.axes)
            raise ShapeError(f"the filter needs a shape ({asked}), got {shape}")
        size = dict(zip(self.axes, shape, strict=True))
        blocks = (size.get(a, 1) * self._lanes(a) for a in "GOI")
        return (*blocks, *(size[a] for a in self.spatial))

    def stored(self, logical: Shape) -> Shape:
        """Stored shape of (G, O, I, FH, FW), with blocked axes padded to whole blocks."""
        names = zip("GOI" + self.spatial, logical, strict=True)
        size = {a: _blocks(n, self._lanes(a)) for a, n in names}
        if not self.is_grouped and size["G"] != 1:
            raise ShapeError(f"a {self.name} filter has no groups, got {size['G']}")
        return tuple(self.lanes if a in _LANES else size.get(a, 1) for a in self.axes)

    def to_goihw(self, array: Array) -> Array:
        """The array as (G, O, I, FH, FW), padding included; a view where possible."""
        logical = self.logical(array.shape)
        order = [self.axes.index(a) for a in "GgOoIi" + self.spatial if a in self.axes]
        rest = [k for k, a in enumerate(self.axes) if a == "1"]
        return array.transpose(order + rest).reshape(logical)

    def from_goihw(self, array: Array, *, fill: int = 0) -> Array:
        """A contiguous array in this layout of one in GOIHW; `fill` is put into padding."""
        stored = self.stored(array.shape)
        names: list[str] = []
        for axis in "GOI" + self.spatial:
            at, lanes = len(names), self._lanes(axis)
            array = _padded(array, at, _blocks(array.shape[at], lanes) * lanes, fill)
            names.append(axis)
            if lanes > 1:
                array = _split(array, at, lanes)
                names.append(axis.lower())
        kept = [names.index(a) for a in self.axes if a != "1"]
        rest = [k for k, a in enumerate(names) if a not in self.axes]
        return np.ascontiguousarray(array.transpose(kept + rest).reshape(stored))

    def __str__(self) -> str:
        return self.name


def _filter(axes: str, lanes: int = 1) -> FilterLayout:
    name = "".join(f"{lanes}{a}" if a in _LANES else a for a in axes)
    return FilterLayout(name, axes, lanes)


GOIHW = _filter("GOIHW")
# Filters of volumes: dense, grouped.
NCDHW_FILTERS = (_filter("OIDHW"), _filter("GOIDHW"))
NDHWC_FILTERS = (_filter("ODHWI"), _filter("GODHWI"))
# By format: dense, grouped and channel-wise filters; two dense and grouped ones where the last
# tells int8 "dot" filters from plain ones by their rank.
FILTER_LAYOUTS: dict[Format, tuple[FilterLayout, ...]] = {
    Format.NCHW: (_filter("OIHW"), GOIHW),
    Format.NHWC: (_filter("OHWI"), _filter("GOHWI")),
    Format.NHWCD4: (
        _filter("OHWIo", 4),
        _filter("GOHWIo", 4),
        _filter("G1HWg", 4),
        _filter("OHWIoi", 4),
        _filter("GOHWIoi", 4),
    ),
    Format.NCHW4: (_filter("OIHWi", 4), _filter("GOIHWi", 4)),
    Format.NCHW8: (_filter("OIHWi", 8), _filter("GOIHWi", 8)),
    Format.NCHW32: (_filter("OIHWi", 32), _filter("GOIHWi", 32)),
    Format.NCHW64: (_filter("OIHWi", 64), _filter("GOIHWi", 64)),
    Format.CHWN4: (_filter("IHWOi", 4), _filter("GIHWOi", 4)),
    Format.NCHW88: (
        _filter("OIHWio", 8),
        _filter("GOIHWio", 8),
        _filter("G11HWg", 8),
        _filter("OHWIo", 8),
    ),
    Format.NCHW44: (
        _filter("OIHWio", 4),
        _filter("GOIHWio", 4),
        _filter("G11HWg", 4),
        _filter("OHWIo", 4),
    ),
    Format.NCHW44_DOT: (
        _filter("OIHWoi", 4),
        _filter("GOIHWoi", 4),
        _filter("G11HWg", 4),
        _filter("OHWIo", 4),
    ),
}


def filter_layout(fmt: Format, shape: Shape, *, grouped: bool) -> FilterLayout:
    """Layout of a filter of this stored shape; its rank tells the variants of a format apart.

    Args:
        fmt: Format of the operator; the filter follows its input's layout.
        shape: Stored shape.
        grouped: Whether the operator's `sparse` is GROUP.

    Raises:
        ShapeError: No variant has this many dimensions.
        UnsupportedError: The format has no filters.
    """
    fmt = _TWO_LAYOUTS[fmt][0] if fmt in _TWO_LAYOUTS else fmt
    if fmt not in FILTER_LAYOUTS:
        raise UnsupportedError(f"tensor format {fmt} is not known")
    return choose_filter(FILTER_LAYOUTS[fmt], shape, grouped=grouped)


def choose_filter(
    layouts: tuple[FilterLayout, ...], shape: Shape, *, grouped: bool
) -> FilterLayout:
    """The layout among these that has as many dimensions as `shape`, or ShapeError."""
    choices = [layout for layout in layouts if layout.is_grouped == grouped]
    for layout in choices:
        if layout.rank == len(shape):
            return layout
    kind = "group" if grouped else "dense"
    wanted = " or ".join(f"{layout.name} ({layout.rank}-d)" for layout in choices)
    raise ShapeError(f"{kind} convolution needs a filter {wanted}, got {shape}")
