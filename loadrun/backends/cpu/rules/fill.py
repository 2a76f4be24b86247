"""Tensors assembled from pieces and made from numbers: padding, ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import Builder, to_real
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.typed import add_pointwise
from mgeserial import params as P
from mgeserial.dtypes import Array, DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call, Shape
from mgeserial.ops import numerics
from mgeserial.ops.create import LINSPACE
from mgeserial.ops.padding import PADDING

_MODE = P.PaddingPaddingMode
_EXACT = 1 << 24  # whole numbers that float32 holds


def _pairs(call: Call, rank: int) -> list[tuple[int, int]]:
    """(front, back) of each axis."""
    p = call.param
    return [
        (int(getattr(p, f"front_offset_dim{k}")), int(getattr(p, f"back_offset_dim{k}")))
        for k in range(rank)
    ]


@lowers(PADDING)
def padding(low: Lowering, node: Node, call: Call) -> None:
    """All modes and types: the tensor and the parts around it are copied to their places."""
    value, out = node.inputs[0], node.outputs[0]
    shape, wanted = low.shape(value), low.shape(out)
    pairs = _pairs(call, len(shape))
    name = low.name(value)
    if call.param.padding_mode == _MODE.CONSTANT:
        y, inputs = low.out(out), (name, low.constant(_number(low, call)))
        low.add(nd.Assemble(low.label(node), inputs, (y,), _framed(shape, wanted, pairs)))
        return
    if call.param.padding_mode not in (_MODE.REPLICATE, _MODE.REFLECT):
        raise NotApplicable(f"mode {call.param.padding_mode}")
    reflect = call.param.padding_mode == _MODE.REFLECT
    axes = [k for k, pair in enumerate(pairs) if any(pair)]
    if not axes:
        low.same(out, name)
        return
    sizes = list(shape)
    for k in axes:
        pieces = _extended(tuple(sizes), k, pairs[k], reflect=reflect)
        sizes[k] = wanted[k]
        last = k == axes[-1]
        y = low.out(out) if last else low.temp(tuple(sizes))
        low.dtypes[y] = low.dtype_name(name)
        label = low.label(node) if last else low.unique("pad")
        low.add(nd.Assemble(label, (name,), (y,), pieces))
        name = y


def _number(low: Lowering, call: Call) -> Array:
    """The number around the tensor, as the engine holds elements of the type."""
    dtype, number = call.dtype(0), np.array([call.param.padding_val], np.float32)
    if dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    if not dtype.is_float:
        return numerics.truncate(number, dtype)
    stored = numerics.narrow(number, dtype)
    return numerics.to_real(stored, dtype) if low.half else stored


def _framed(shape: Shape, wanted: Shape, pairs: list[tuple[int, int]]) -> tuple[nd.Piece, ...]:
    """The tensor (input 0), and around it the number (input 1), axis by axis."""
    strides = contiguous(wanted)
    start = [front for front, _ in pairs]
    box = list(shape)
    at = sum(a * s for a, s in zip(start, strides, strict=True))
    pieces = [nd.Piece(0, shape, contiguous(shape), 0, strides, at)]
    still = (0,) * len(shape)
    for k, (front, back) in enumerate(pairs):
        for begin, size in ((0, front), (front + shape[k], back)):
            if size:
                first = [*start[:k], begin, *start[k + 1 :]]
                to = sum(a * s for a, s in zip(first, strides, strict=True))
                dims = (*box[:k], size, *box[k + 1 :])
                pieces.append(nd.Piece(1, dims, still, 0, strides, to))
        start[k], box[k] = 0, wanted[k]
    return tuple(pieces)


def _extended(
    shape: Shape, axis: int, pair: tuple[int, int], *, reflect: bool
) -> tuple[nd.Piece, ...]:
    """One axis made longer by its own elements: mirrored at the ends, or the ends repeated."""
    front, back = pair
    n = shape[axis]
    strides = contiguous(shape)
    wanted = (*shape[:axis], front + n + back, *shape[axis + 1 :])
    to = contiguous(wanted)
    step = strides[axis]
    turned = (*strides[:axis], -step if reflect else 0, *strides[axis + 1 :])
    whole = nd.Piece(0, shape, strides, 0, to, front * to[axis])
    pieces = [whole]
    for size, first, place in (
        (front, front if reflect else 0, 0),
        (back, n - 2 if reflect else n - 1, front + n),
    ):
        if size:
            dims = (*shape[:axis], size, *shape[axis + 1 :])
            moved = replace(whole, dims=dims, strides=turned, offset=first * step)
            pieces.append(replace(moved, to_offset=place * to[axis]))
    return tuple(pieces)


@lowers(LINSPACE)
def linspace(low: Lowering, node: Node, call: Call) -> None:
    """Two numbers of the run and those between them; how many is known."""
    (count,) = low.shape(node.outputs[0])
    if count > _EXACT:
        raise NotApplicable("more than 2**24 numbers")
    ends = node.inputs[:2]
    names = []
    for value in ends:
        low.shape(value)
        name = low.name(value)
        if low.shapes[name] != (1,):
            one = low.temp((1,))
            low.dtypes[one] = low.dtype_name(name)
            low.add(nd.Reshape(low.unique("end"), (name,), (one,)))
            name = one
        names.append(name)
    steps = max(count - 1 if call.param.endpoint else count, 1)
    index = low.constant(np.arange(count, dtype=np.float32))

    def make(b: Builder, first: int, last: int, k: int) -> int:
        a, z = (to_real(b, x, call.dtype(i)) for i, x in enumerate((first, last)))
        return b.op("linspace", a, z, k, b.real(float(steps)))

    add_pointwise(low, node, node.outputs[0], (*ends, ends[0]), make, (*names, index))
