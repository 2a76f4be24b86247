"""Changes of layout as operators: what they are made of, how to build them, how to find them.

A change of layout is planned from the names of the axes alone: channels are cut into the finest
blocks that either side has (Reshape), put in order (Dimshuffle) and joined again (Reshape); what
is not needed is left out. Target shapes are computed from the value's own shape as the graph runs,
so that any batch and any size of image goes through. Some pairs of layouts have a mode of
RelayoutFormat, which then does it alone.

Source: corpus family layout (MegEngine 1.13.0) for which pairs have modes, and for the form of the
rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import INT32, DType
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Shape
from mgeserial.ops.layouts import NCHW, NHWC, TENSOR_LAYOUTS, FilterLayout, TensorLayout
from mgeserial.ops.relayout import map_layouts
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["IMAGE_AXIS", "Extent", "Found", "Move", "Mover", "packing", "plan", "recognise"]

_Mode = P.RelayoutFormatV0Mode
_F = P.ConvolutionFormat
Layout = TensorLayout | FilterLayout

# Formats whose feature maps are stored alike have one layout here.
_SAME = {_F.NCHW44: _F.NCHW4, _F.NCHW44_DOT: _F.NCHW4, _F.NCHW8: _F.NCHW88}
# The axis that images of OpenCL are packed along, in feature maps.
IMAGE_AXIS = 2


def packing(fmt: _F) -> TensorLayout:
    """How feature maps of a format are stored; one object for all formats that do it alike."""
    return TENSOR_LAYOUTS[_SAME.get(fmt, fmt)]


_NCHW4, _CHWN4, _NHWCD4 = packing(_F.NCHW4), packing(_F.CHWN4), packing(_F.NHWCD4)
_NCHW64 = packing(_F.NCHW64)
# Pairs that one RelayoutFormat does; those of the second table for 4-bit types only.
_MODES: dict[tuple[TensorLayout, TensorLayout], _Mode] = {
    (_NCHW4, _CHWN4): _Mode.NCHW4_CHWN4,
    (_CHWN4, _NCHW4): _Mode.CHWN4_NCHW4,
    (NCHW, _NHWCD4): _Mode.NCHW_NHWCD4I,
    (_NHWCD4, NCHW): _Mode.NHWCD4I_NCHW,
    (NHWC, _NHWCD4): _Mode.NHWC_NHWCD4I,
    (_NHWCD4, NHWC): _Mode.NHWCD4I_NHWC,
}
_LOWBIT_MODES: dict[tuple[TensorLayout, TensorLayout], _Mode] = {
    (NCHW, _NCHW64): _Mode.NCHW_NCHW64,
    (_NCHW64, NCHW): _Mode.NCHW64_NCHW,
    (NCHW, NHWC): _Mode.NCHW_NHWC,
    (NHWC, NCHW): _Mode.NHWC_NCHW,
}


@dataclass(frozen=True, slots=True)
class Extent:
    """One dimension of a target shape: that of `axis`, times or divided by a number; or a number.

    Attributes:
        axis: Axis of the value that moves; None: the dimension is `times`.
        times, over: Factor and divisor, one of them 1.
    """

    axis: int | None
    times: int = 1
    over: int = 1

    def of(self, shape: Shape) -> int:
        """The dimension for a value of this shape."""
        return self.times if self.axis is None else shape[self.axis] * self.times // self.over


@dataclass(frozen=True, slots=True)
class Move:
    """From one layout to another.

    Attributes:
        source, target: The layouts.
        split: Shape of the Reshape before, None when none is needed.
        order: Pattern of the Dimshuffle.
        join: Shape of the Reshape after it, None when none is needed.
    """

    source: Layout
    target: Layout
    split: tuple[Extent, ...] | None
    order: tuple[int, ...]
    join: tuple[Extent, ...] | None


# A piece of an axis: letter, and position among the letter's pieces, outermost first.
_Piece = tuple[str, int]


def _pieces(letter: str, lanes: int, inner: Sequence[int]) -> tuple[list[_Piece], list[_Piece]]:
    """Pieces of a letter's blocks and of its lanes; `inner` are the sizes of all but the first."""
    count = len(inner) + 1
    first, size = count, 1
    while size < lanes:
        first -= 1
        size *= inner[first - 1]
    return [(letter, k) for k in range(first)], [(letter, k) for k in range(first, count)]


def _lanes(layout: Layout, letter: str) -> int:
    return layout.lanes if letter.lower() in layout.axes else 1


def _cut(layout: Layout, inner: dict[str, list[int]]) -> list[list[_Piece]]:
    """The pieces of each stored axis."""
    cut: list[list[_Piece]] = []
    for axis in layout.axes:
        if axis == "1":
            cut.append([])
            continue
        blocks, lanes = _pieces(
            axis.upper(), _lanes(layout, axis.upper()), inner.get(axis.upper(), [])
        )
        cut.append(blocks if axis.isupper() else lanes)
    return cut


def _scaled(axis: int, times: int, over: int) -> Extent:
    common = math.gcd(times, over)
    return Extent(axis, times // common, over // common)


@functools.cache
def plan(source: Layout, target: Layout) -> Move:
    """How to get from one layout to another; every block is full (no padding).

    Axes of size one that only the source has (`G11HWg` of GOIHW: O and I) end as the target's `1`.
    """
    letters = [a for a in source.axes if a.isupper()]
    inner: dict[str, list[int]] = {}
    for letter in letters:
        low, high = sorted((_lanes(source, letter), _lanes(target, letter)))
        inner[letter] = [n for n in (high // low, low) if n > 1]
    before, after = _cut(source, inner), _cut(target, inner)
    unused = [a for a in letters if a not in target.axes]
    for place in (k for k, a in enumerate(target.axes) if a == "1"):
        after[place] = [(unused.pop(0), 0)]
    flat = [piece for pieces in before for piece in pieces]
    split: list[Extent] = []
    for letter, k in flat:
        if k:
            split.append(Extent(None, inner[letter][k - 1]))
        else:
            whole = math.prod(inner[letter])
            split.append(_scaled(source.axes.index(letter), _lanes(source, letter), whole))
    join: list[Extent] = []
    for axis, pieces in zip(target.axes, after, strict=True):
        if axis.islower():
            join.append(Extent(None, target.lanes))
        else:
            letter = pieces[0][0]
            lanes = _lanes(source, letter), _lanes(target, letter)
            join.append(_scaled(source.axes.index(letter), *lanes))
    return Move(
        source,
        target,
        tuple(split) if any(len(p) > 1 for p in before) else None,
        tuple(flat.index(piece) for pieces in after for piece in pieces),
        tuple(join) if any(len(p) > 1 for p in after) else None,
    )


class Mover:
    """Builds changes of layout; shapes and numbers that several of them need are built once."""

    def __init__(self, build: Rebuild) -> None:
        self._build = build
        self._numbers: dict[int, Value] = {}
        self._shapes: dict[Value, Value] = {}
        self._extents: dict[tuple[Value, Extent], Value] = {}

    def mode(self, source: TensorLayout, target: TensorLayout, dtype: DType) -> _Mode | None:
        """The mode of RelayoutFormat that does it, if there is one."""
        pair = (source, target)
        return _MODES.get(pair) or (_LOWBIT_MODES.get(pair) if dtype.is_lowbit else None)

    def features(self, value: Value, source: TensorLayout, target: TensorLayout) -> Value:
        """A feature map of the new graph in another layout; all blocks are full."""
        mode = self.mode(source, target, self._build.type_of(value).dtype)
        if mode is not None:
            return self.relayout(value, mode)
        return self.chain(value, plan(source, target))

    def relayout(self, value: Value, mode: _Mode) -> Value:
        """RelayoutFormat of a mode."""
        return self._build.relayout_format(value, mode=mode)

    def chain(self, value: Value, move: Move) -> Value:
        """Reshape, Dimshuffle and Reshape as the move has them."""
        build, given = self._build, value
        if move.split is not None:
            value = build.reshape(value, self._shape(given, move.split))
        if move.order != tuple(range(len(move.order))):
            value = build.dimshuffle(value, pattern=move.order, ndim=len(move.order))
        if move.join is not None:
            value = build.reshape(value, self._shape(given, move.join))
        return value

    def number(self, number: int) -> Value:
        """A constant of shape (1,)."""
        if number not in self._numbers:
            self._numbers[number] = self._build.const(np.array([number], np.int32), dtype=INT32)
        return self._numbers[number]

    def _shape(self, value: Value, extents: tuple[Extent, ...]) -> Value:
        return self._build.concat(*(self._extent(value, e) for e in extents), axis=0)

    def _extent(self, value: Value, extent: Extent) -> Value:
        if extent.axis is None:
            return self.number(extent.times)
        found = self._extents.get((value, extent))
        if found is not None:
            return found
        if extent.times == extent.over == 1:
            made = self._size(value, extent.axis)
        else:
            size = self._extent(value, Extent(extent.axis))
            if extent.times > 1:
                made = self._build.elemwise(self.number(extent.times), size, mode="MUL")
            else:
                made = self._build.elemwise(size, self.number(extent.over), mode="FLOOR_DIV")
        self._extents[value, extent] = made
        return made

    def _size(self, value: Value, axis: int) -> Value:
        if value not in self._shapes:
            self._shapes[value] = self._build.get_var_shape(value)
        item = P.IndexDescMaskItem(axis=0, idx=True)
        return self._build.subtensor(self._shapes[value], self.number(axis), items=(item,))

    def first_channels(self, value: Value, channels: int) -> Value:
        """The first channels of an NCHW value."""
        item = P.IndexDescMaskItem(axis=1, end=True)
        return self._build.subtensor(value, self.number(channels), items=(item,))


@dataclass(frozen=True, slots=True)
class Found:
    """A change of layout that stands in a graph: `value` goes from one layout to another.

    Attributes:
        value: What goes in.
        source, target: The layouts.
        operators: Number of operators that do it.
    """

    value: Value
    source: TensorLayout
    target: TensorLayout
    operators: int


@functools.cache
def _known_moves() -> tuple[Move, ...]:
    known = dict.fromkeys(packing(f) for f in TENSOR_LAYOUTS)
    return tuple(plan(a, b) for a in known for b in known if a != b)


def recognise(node: Node, scope: Scope) -> Found | None:
    """The change of layout that ends with this operator, if one does.

    Shapes must be known, and blocks be full; the operators must be just those of the plan.
    """
    if node.op.name == "RelayoutFormat":
        return _of_mode(node, scope)
    if node.op.name not in ("Reshape", "Dimshuffle"):
        return None
    for value, parts in _chains(node):
        given = scope.type(value)
        if not given.is_static or not all(scope.type(n.outputs[0]).is_static for n in parts):
            continue
        for move in _known_moves():
            if _is_move(move, given.dims, parts, scope):
                assert isinstance(move.source, TensorLayout)
                assert isinstance(move.target, TensorLayout)
                return Found(value, move.source, move.target, len(parts))
    return None


def _of_mode(node: Node, scope: Scope) -> Found | None:
    pair = map_layouts(node.param.mode)
    given, made = scope.type(node.inputs[0]), scope.type(node.outputs[0])
    if pair is None or not given.is_static or given.dtype != made.dtype:
        return None
    source, target = pair
    channels = source.logical(given.dims)[1]
    whole = channels % target.lanes == 0 and node.param.group == 1 and not node.param.oc
    return Found(node.inputs[0], source, target, 1) if whole else None


def _chains(node: Node) -> Iterator[tuple[Value, list[Node]]]:
    """Reshape? Dimshuffle Reshape? that end here, longest first, with what goes in."""
    parts = [node]
    if node.op.name == "Reshape":
        node = node.inputs[0].node
        if node.op.name != "Dimshuffle":
            return
        parts.insert(0, node)
    source = node.inputs[0].node
    if source.op.name == "Reshape":
        yield source.inputs[0], [source, *parts]
    yield node.inputs[0], parts


def _is_move(move: Move, given: Shape, parts: list[Node], scope: Scope) -> bool:
    names = ["Reshape"] * (move.split is not None) + ["Dimshuffle"]
    names += ["Reshape"] * (move.join is not None)
    if [n.op.name for n in parts] != names or len(given) != move.source.rank:
        return False
    if move.source.lanes > 1 and given[-1] != move.source.lanes:
        return False
    shuffle = parts[move.split is not None]
    if tuple(shuffle.param.pattern) != move.order:
        return False
    for extents, part in ((move.split, parts[0]), (move.join, parts[-1])):
        if extents is not None:
            wanted = tuple(e.of(given) for e in extents)
            if scope.type(part.outputs[0]).dims != wanted or math.prod(wanted) != math.prod(given):
                return False
    return True
