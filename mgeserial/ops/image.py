"""Sliding windows of images as tensors of their own, the sum of windows back, and the gradients.

Each of the two is the adjoint of the other, so two functions serve all four operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.numerics import accumulator, narrow, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, need_gradient

_At = tuple[Any, ...]
_Index = npt.NDArray[np.intp]


def _positions(call: Call, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of windows over an image of height and width `size`."""
    p = call.param
    need(
        min(p.stride_h, p.stride_w, p.dilate_h, p.dilate_w, p.window_h, p.window_w) > 0,
        f"strides, dilations and windows must be above zero, got {p}",
    )
    lines = (
        (size[0], p.pad_h, p.window_h, p.dilate_h, p.stride_h),
        (size[1], p.pad_w, p.window_w, p.dilate_w, p.stride_w),
    )
    rows, columns = (
        (n + 2 * pad - (window - 1) * dilate - 1) // stride + 1
        for n, pad, window, dilate, stride in lines
    )
    need(rows > 0 and columns > 0, f"an image of {size[0]} x {size[1]} is smaller than a window")
    return rows, columns


@dataclass(frozen=True, slots=True)
class _Line:
    """For one tap of the windows along an axis: windows whose tap is inside, and where it is."""

    windows: _Index
    pixels: _Index


def _line(tap: int, count: int, size: int, *, pad: int, stride: int, dilate: int) -> _Line:
    position = tap * dilate - pad + stride * np.arange(count)
    inside = (position >= 0) & (position < size)
    return _Line(np.flatnonzero(inside), position[inside])


def _taps(call: Call, shape: Shape, size: tuple[int, int]) -> Iterator[tuple[_At, _At]]:
    """(place in the windows, place in the images) for each tap that is inside of some window.

    Padding is never stored: parameters may ask for more of it than there is memory.

    Args:
        call: The call with the windows' geometry.
        shape: Shape (n, c, rows, columns, window_h, window_w) of the windows.
        size: Height and width of the images.
    """
    p = call.param
    across = [
        (j, _line(j, shape[3], size[1], pad=p.pad_w, stride=p.stride_w, dilate=p.dilate_w))
        for j in range(p.window_w)
    ]
    for i in range(p.window_h):
        down = _line(i, shape[2], size[0], pad=p.pad_h, stride=p.stride_h, dilate=p.dilate_h)
        rows, ys = down.windows[:, None], down.pixels[:, None]
        for j, line in across:
            if rows.size and line.windows.size:
                yield (..., rows, line.windows, i, j), (..., ys, line.pixels)


def _gather(call: Call, x: Array) -> Array:
    """Windows (n, c, rows, columns, h, w) of images (n, c, h, w), zeros outside."""
    y = np.zeros(_window_shape(call, x.shape), x.dtype)
    if y.size:
        for place, source in _taps(call, y.shape, x.shape[2:]):
            y[place] = x[source]
    return y


def _sum(call: Call, windows: Array, size: tuple[int, int]) -> Array:
    """Images (n, c, h, w) to which every window adds its elements at its place."""
    dtype = call.dtype(0)
    total = np.zeros((*windows.shape[:2], *size), accumulator(dtype))
    if windows.size:
        wide = widen(windows, dtype)
        for place, target in _taps(call, windows.shape, size):
            total[target] += wide[place]
    return narrow(total, dtype)


def _window_shape(call: Call, shape: Shape) -> Shape:
    need(len(shape) == 4, f"images (n, c, h, w) are needed, got shape {shape}")
    rows, columns = _positions(call, (shape[2], shape[3]))
    return (*shape[:2], rows, columns, call.param.window_h, call.param.window_w)


def _neibs_shapes(call: Call) -> list[ShapeLike]:
    shape = call.shape(0)
    if len(shape) == 5:
        # (n, h, c/4, w, 4): the windows go before the pack.
        n, h, c, w, pack = shape
        _, _, rows, columns, *window = _window_shape(call, (n, c, h, w))
        return [(n, rows, c, columns, *window, pack)]
    return [_window_shape(call, shape)]


def _neibs(call: Call, x: Array) -> Array:
    if x.ndim == 4:
        return _gather(call, x)
    n, h, c, w, pack = x.shape
    windows = _gather(call, x.transpose(0, 2, 4, 1, 3).reshape(n, c * pack, h, w))
    split = windows.reshape(n, c, pack, *windows.shape[2:])
    return split.transpose(0, 3, 1, 4, 5, 6, 2)


def _neibs_backward_shapes(call: Call) -> list[ShapeLike]:
    wanted = _window_shape(call, call.shape(1))
    need_gradient(call, 0, wanted)
    return [call.shape(1)]


def _neibs_backward(call: Call, diff: Array, source: Array) -> Array:
    return _sum(call, diff, source.shape[2:])


def _transpose_shapes(call: Call) -> list[ShapeLike]:
    shape = call.shape(0)
    need(len(shape) == 6, f"windows have shape (n, c, rows, columns, h, w), got {shape}")
    image = (*shape[:2], call.param.out_h, call.param.out_w)
    wanted = _window_shape(call, image)
    need(shape == wanted, f"the windows of images {image} have shape {wanted}, got {shape}")
    return [image]


def _transpose(call: Call, windows: Array) -> Array:
    return _sum(call, windows, (call.param.out_h, call.param.out_w))


def _transpose_backward_shapes(call: Call) -> list[ShapeLike]:
    wanted = _window_shape(call, call.shape(0))
    need(call.shape(1) == wanted, f"the windows must have shape {wanted}, got {call.shape(1)}")
    return [wanted]


def _transpose_backward(call: Call, diff: Array, source: Array) -> Array:
    return _gather(call, diff)


IMAGES2_NEIBS = register(
    OpSpec(
        name="Images2Neibs",
        runtime_name="Images2NeibsForward",
        names=(Name("Images2Neibs", "v0.3.1", 2293385524318836233),),
        old_id=13723911081455815146,
        v2=(V2Id("Images2Neibs", 1, 13723911081455815146),),
        params=(P.Images2Neibs,),
        inputs=("src",),
        dtypes=dtype_of(0),
        shapes=_neibs_shapes,
        reference=_neibs,
        source="semantics section 10, operators.json",
    )
)

IMAGES2_NEIBS_BACKWARD = register(
    OpSpec(
        name="Images2NeibsBackward",
        runtime_name="Images2NeibsBackward",
        names=(Name("Images2NeibsBackward", "v0.3.1", 9476654467761360860),),
        old_id=5626045858009237687,
        v2=(V2Id("Images2NeibsBackward", 1, 5626045858009237687),),
        params=(P.Images2Neibs,),
        inputs=("diff", "src_for_shape"),
        dtypes=dtype_of(0),
        shapes=_neibs_backward_shapes,
        reference=_neibs_backward,
        source="adjoint of Images2Neibs; operators.json",
    )
)

SLIDING_WINDOW_TRANSPOSE = register(
    OpSpec(
        name="SlidingWindowTranspose",
        runtime_name="SlidingWindowTransposeForward",
        names=(Name("SlidingWindowTranspose", "v1.5.0", 10847035873523967705),),
        old_id=6568209881282440320,
        v2=(V2Id("SlidingWindowTranspose", 1, 6568209881282440320),),
        params=(P.SlidingWindowTranspose,),
        inputs=("src",),
        dtypes=dtype_of(0),
        shapes=_transpose_shapes,
        reference=_transpose,
        source="semantics section 10, operators.json",
    )
)

SLIDING_WINDOW_TRANSPOSE_BACKWARD = register(
    OpSpec(
        name="SlidingWindowTransposeBackward",
        runtime_name="SlidingWindowTransposeBackward",
        names=(Name("SlidingWindowTransposeBackward", "v1.5.0", 2464509206276735534),),
        old_id=13813042794038566920,
        v2=(V2Id("SlidingWindowTransposeBackward", 1, 13813042794038566920),),
        params=(P.SlidingWindowTranspose,),
        inputs=("diff", "src_for_shape"),
        dtypes=dtype_of(0),
        shapes=_transpose_backward_shapes,
        reference=_transpose_backward,
        source="adjoint of SlidingWindowTranspose; operators.json",
    )
)
