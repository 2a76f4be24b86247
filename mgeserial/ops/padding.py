"""Elements moved to other places of an axis: padding and its gradient, flip, rotate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.numerics import narrow, truncate, widen
from mgeserial.ops.operands import MAX_RANK
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, need_gradient

__all__ = ["offsets", "origins"]

_MODE = P.PaddingPaddingMode


def offsets(call: Call, rank: int) -> list[tuple[int, int]]:
    """(front, back) of each axis in elements."""
    param = call.param
    pairs = [
        (getattr(param, f"front_offset_dim{i}"), getattr(param, f"back_offset_dim{i}"))
        for i in range(MAX_RANK)
    ]
    need(all(n >= 0 for pair in pairs for n in pair), f"offsets below zero: {pairs[:rank]}")
    need(
        not any(front or back for front, back in pairs[rank:]),
        f"padding is given for more than the {rank} dimensions of the input",
    )
    return pairs[:rank]


def _padded_shape(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    pairs = offsets(call, len(shape))
    need(call.param.padding_mode.is_known, f"padding mode {call.param.padding_mode} is not known")
    if call.param.padding_mode == _MODE.REFLECT:
        for axis, (n, pair) in enumerate(zip(shape, pairs, strict=True)):
            need(
                max(pair) < n or not any(pair),
                f"axis {axis} of length {n} is too short to reflect {max(pair)} elements",
            )
    elif call.param.padding_mode == _MODE.REPLICATE:
        for axis, (n, pair) in enumerate(zip(shape, pairs, strict=True)):
            need(n > 0 or not any(pair), f"axis {axis} has no element to repeat")
    return tuple(front + n + back for n, (front, back) in zip(shape, pairs, strict=True))


def _padding_shapes(call: Call) -> list[ShapeLike]:
    return [_padded_shape(call, call.shape(0))]


def origins(call: Call, size: int, pair: tuple[int, int]) -> npt.NDArray[np.intp]:
    """For each position of a padded axis the position it copies."""
    position = np.arange(-pair[0], size + pair[1])
    if call.param.padding_mode == _MODE.REPLICATE:
        return np.clip(position, 0, size - 1)
    mirrored = np.abs(position)
    return np.where(mirrored >= size, 2 * (size - 1) - mirrored, mirrored)


def _inner(shape: tuple[int, ...], pairs: list[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(front, front + n) for n, (front, _) in zip(shape, pairs, strict=True))


def _padding(call: Call, x: Array) -> Array:
    pairs, shape = offsets(call, x.ndim), _padded_shape(call, x.shape)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    if call.param.padding_mode == _MODE.CONSTANT:
        # Of quantised types the value is a code.
        value, dtype = np.array([call.param.padding_val], np.float32), call.dtype(0)
        fill = narrow(value, dtype) if dtype.is_float else truncate(value, dtype)
        y = np.empty(shape, x.dtype)
        y[...] = fill
        y[_inner(x.shape, pairs)] = x
        return y
    for axis, pair in enumerate(pairs):
        if any(pair):
            x = x.take(origins(call, x.shape[axis], pair), axis=axis)
    return x


def _padding_backward_shapes(call: Call) -> list[ShapeLike]:
    wanted = _padded_shape(call, call.shape(1))
    need_gradient(call, 0, wanted)
    return [call.shape(1)]


def _padding_backward(call: Call, diff: Array, source: Array) -> Array:
    pairs = offsets(call, diff.ndim)
    if call.param.padding_mode == _MODE.CONSTANT:
        return diff[_inner(source.shape, pairs)]
    dtype = call.dtype(0)
    if diff.size == 0:
        return np.zeros(source.shape, diff.dtype)
    total = widen(diff, dtype)
    for axis, pair in enumerate(pairs):
        if any(pair):
            size = source.shape[axis]
            moved = np.moveaxis(total, axis, 0)
            sums = np.zeros((size, *moved.shape[1:]), moved.dtype)
            np.add.at(sums, origins(call, size, pair), moved)
            total = np.moveaxis(sums, 0, axis)
    return narrow(total, dtype)


def _image(call: Call) -> tuple[int, int, int, int]:
    shape = call.shape(0)
    need(len(shape) == 4, f"images (n, h, w, c) are needed, got shape {shape}")
    n, h, w, c = shape
    return n, h, w, c


def _flip_shapes(call: Call) -> list[ShapeLike]:
    return [_image(call)]


def _flip(call: Call, x: Array) -> Array:
    axes = tuple(a for a, on in ((1, call.param.vertical), (2, call.param.horizontal)) if on)
    return np.flip(x, axes) if axes else x


def _rotate_shapes(call: Call) -> list[ShapeLike]:
    n, h, w, c = _image(call)
    return [(n, w, h, c)]


def _rotate(call: Call, x: Array) -> Array:
    return np.rot90(x, k=-1 if call.param.clockwise else 1, axes=(1, 2))


PADDING = register(
    OpSpec(
        name="Padding",
        runtime_name="PaddingForward",
        names=(Name("Padding", "v1.6.0", 9900607576573363837),),
        old_id=8595819172804097094,
        v2=(V2Id("Padding", 1, 8595819172804097094),),
        params=(P.Padding,),
        inputs=("x",),
        dtypes=dtype_of(0),
        shapes=_padding_shapes,
        reference=_padding,
        source="semantics section 10, operators.json",
    )
)

PADDING_BACKWARD = register(
    OpSpec(
        name="PaddingBackward",
        runtime_name="PaddingBackward",
        names=(Name("PaddingBackward", "v1.6.0", 16342423536234022271),),
        old_id=4663564796686379785,
        v2=(V2Id("PaddingBackward", 1, 4663564796686379785),),
        params=(P.Padding,),
        inputs=("dy", "x_for_shape"),
        dtypes=dtype_of(0),
        shapes=_padding_backward_shapes,
        reference=_padding_backward,
        source="adjoint of Padding; operators.json",
    )
)

FLIP = register(
    OpSpec(
        name="Flip",
        runtime_name="Flip",
        names=(Name("Flip", "v1.13.2", 2617023249313293961),),
        old_id=16224987965648499016,
        v2=(V2Id("Flip", 1, 16224987965648499016),),
        params=(P.Flip,),
        inputs=("src",),
        dtypes=dtype_of(0),
        shapes=_flip_shapes,
        reference=_flip,
        source="semantics section 10, operators.json",
    )
)

ROTATE = register(
    OpSpec(
        name="Rotate",
        runtime_name="Rotate",
        names=(Name("Rotate", "v0.3.1", 49082319760777778),),
        old_id=8645455572867189878,
        v2=(V2Id("Rotate", 1, 8645455572867189878),),
        params=(P.Rotate,),
        inputs=("src",),
        dtypes=dtype_of(0),
        shapes=_rotate_shapes,
        reference=_rotate,
        source="semantics section 10, operators.json",
    )
)
