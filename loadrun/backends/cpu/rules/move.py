"""Operators that only move elements, by tables of where each comes from.

The reference code is asked once, with the elements' numbers in place of the elements.
"""

from __future__ import annotations

import functools

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels import move as kernels
from loadrun.backends.cpu.kernels.move import Moves
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.rules.index import itemsize, need_positions
from mgeserial.dtypes import INT32, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape, TensorType
from mgeserial.ops.create import DIAG
from mgeserial.ops.image import IMAGES2_NEIBS, SLIDING_WINDOW_TRANSPOSE_BACKWARD
from mgeserial.ops.layouts import TensorLayout
from mgeserial.ops.padding import FLIP, ROTATE
from mgeserial.ops.relayout import RELAYOUT_FORMAT, map_layouts

_MOST = 1 << 24  # elements of the numbers that the reference code moves


def add_move(low: Lowering, label: str, x: str, y: str, moves: Moves, fill: int = 0) -> None:
    """Add the node that brings elements of the tensor x to y; see `kernels.move.move`."""
    outer, inner = moves.merged()
    tables = tuple(
        low.constant(np.ascontiguousarray(t.astype(np.int32)))
        for t in (kernels.table_of(outer), inner)
    )
    make = functools.partial(kernels.move, moves, fill, itemsize(low, x))
    low.add(nd.Loops(label, (x, *tables), (y,), "move", make))


def _positions(call: Call, shape: Shape, wanted: Shape) -> Array:
    """Where in the input each element of the output comes from; -1: a fill."""
    need_positions(shape, wanted)
    if max(np.prod(shape, dtype=np.int64), np.prod(wanted, dtype=np.int64)) > _MOST:
        raise NotApplicable("too large")
    numbers = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)
    given, result = TensorType(INT32, shape), TensorType(INT32, wanted)
    values = (None, *call.values[1:]) if call.values else ()
    asked = call.replace(
        inputs=(given, *call.inputs[1:]),
        output_types=(result,),
        output_dtype=None,
        values=values,
    )
    assert call.op.reference is not None
    try:
        found = call.op.reference(asked, numbers)
    except MgeError as error:
        raise NotApplicable("not a move of elements") from error
    return np.asarray(found).astype(np.int64) - 1


def _move(low: Lowering, node: Node, call: Call, fill: int = 0) -> None:
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    positions = _positions(call, shape, wanted)
    moves = kernels.factored(positions) or Moves((_flat(positions),))
    x = low.name(node.inputs[0])
    if fill and itemsize(low, x) != 1:
        raise NotApplicable("a fill of this type")
    y = low.out(node.outputs[0])
    add_move(low, low.label(node), x, y, moves, fill)


def _flat(positions: Array) -> Array:
    flat = positions.reshape(-1)
    return np.where(flat < 0, kernels.NONE, flat)


@lowers(IMAGES2_NEIBS, SLIDING_WINDOW_TRANSPOSE_BACKWARD, DIAG)
def moved(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, as long as what is filled is zero."""
    dtype = low.inference.types[node.inputs[0]].dtype
    if dtype.zero_point or len(node.inputs) != 1:
        raise NotApplicable(f"elements of {dtype}")
    _move(low, node, call)


@lowers(RELAYOUT_FORMAT)
def relayout(low: Lowering, node: Node, call: Call) -> None:
    """float32 images that stay NCHW for the engine, or any dtype that stays the same."""
    given, target = call.dtype(0), call.output_types[0].dtype
    if given != target:
        raise NotApplicable(f"from {given} to {target}")
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    layouts = map_layouts(call.param.mode)
    if layouts is not None and _same_image(low, node, shape, wanted, *layouts):
        return
    fill = 128 if given.kind is DTypeEnum.Uint8 else given.zero_point or 0
    if fill and layouts is None:
        raise NotApplicable("filters of asymmetric codes")
    _move(low, node, call, fill)


def _same_image(
    low: Lowering,
    node: Node,
    shape: Shape,
    wanted: Shape,
    source: TensorLayout,
    target: TensorLayout,
) -> bool:
    """Let the result be the image that the input is, where channels are the same; whether so."""
    if not low.is_float32(node.inputs[0]) or source.logical(shape) != target.logical(wanted):
        return False
    if source.spatial != "HW" or target.spatial != "HW":
        return False
    x = low.image(node.inputs[0], source)
    if target.name == "NCHW":
        low.same(node.outputs[0], x)
    else:
        low.same_image(node.outputs[0], x, target)
    return True


@lowers(FLIP)
def flip(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: rows, columns or both from the end."""
    _, h, w, _ = shape = low.shape(node.inputs[0])
    steps = list(contiguous(shape))
    first = 0
    for axis, size, turned in ((1, h, call.param.vertical), (2, w, call.param.horizontal)):
        if turned:
            first += (size - 1) * steps[axis]
            steps[axis] = -steps[axis]
    x, y = low.name(node.inputs[0]), low.out(node.outputs[0])
    low.add(nd.View(low.label(node), (x,), (y,), tuple(steps), first))


@lowers(ROTATE)
def rotate(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: a quarter turn."""
    _, h, w, _ = shape = low.shape(node.inputs[0])
    image, row, pixel, channel = contiguous(shape)
    if call.param.clockwise:
        steps, first = (image, pixel, -row, channel), (h - 1) * row
    else:
        steps, first = (image, -pixel, row, channel), (w - 1) * pixel
    x, y = low.name(node.inputs[0]), low.out(node.outputs[0])
    low.add(nd.View(low.label(node), (x,), (y,), steps, first))
