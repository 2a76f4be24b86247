"""Pooling over windows and adaptive pooling, with gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.layouts import TensorLayout, single_layout
from mgeserial.ops.numerics import narrow, rhaz, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.sliding import Axis, axes_of, slide, spread
from mgeserial.ops.windows import Number, Window, taps

_SOURCE = "semantics section 5, checked against MegEngine 1.13.0"
_Mode = P.PoolingV0Mode


def _dtypes(call: Call) -> list[DType]:
    dtype = call.dtype(0)
    if not (dtype.is_float or dtype.is_quantized or dtype.kind is DTypeEnum.Int8):
        raise UnsupportedError(f"there is no pooling of {dtype.name}")
    return [dtype]


def _back_dtypes(call: Call) -> list[DType]:
    if not call.dtype(0).is_float:
        raise UnsupportedError(f"there is no gradient of {call.dtype(0).name}")
    return [call.dtype(0)]


def _window(param: Any) -> Window:
    return Window.of(param, (int(param.window_h), int(param.window_w)))


def _output(window: Window, mode: _Mode, sizes: Shape) -> Shape:
    """Number of windows per axis; each must touch the image unless padding counts."""
    need(mode.is_known, f"unknown pooling mode {mode}")
    out = window.output(sizes)
    if mode != _Mode.AVERAGE:
        for n, count, k, s, p in zip(
            sizes, out, window.kernel, window.stride, window.pad, strict=True
        ):
            need(
                p < k and (count - 1) * s - p < n,
                f"a pooling window lies outside of the image: {sizes} pixels, window "
                f"{window.kernel}, padding {window.pad}, stride {window.stride}",
            )
    return out


def _pooled_shape(layout: TensorLayout, shape: Shape, window: Window, mode: _Mode) -> Shape:
    n, c, *sizes = layout.logical(shape)
    return layout.stored((n, c, *_output(window, mode, tuple(sizes))))


def _shapes(call: Call) -> list[ShapeLike]:
    return [_shape(call)]


def _shape(call: Call) -> Shape:
    param = call.param
    layout = single_layout(param.format)
    return _pooled_shape(layout, call.shape(0), _window(param), param.mode)


def _reference(call: Call, x: Array) -> Array:
    param = call.param
    return _pool(x, call.dtype(0), single_layout(param.format), _window(param), param.mode)


def _pool(x: Array, dtype: DType, layout: TensorLayout, window: Window, mode: _Mode) -> Array:
    """Pooled array in the layout of `x`."""
    maps = layout.to_nchw(widen(x, dtype))
    axes = axes_of(window, maps.shape[2:], _output(window, mode, maps.shape[2:]))
    if mode == _Mode.MAX_:
        for k, axis in enumerate(axes):
            maps = slide(np.maximum, maps, axis, 2 + k)
        return layout.from_nchw(narrow(maps, dtype))
    total = maps if dtype.is_float else maps.astype(np.int64)
    for k, axis in enumerate(axes):
        total = slide(np.add, total, axis, 2 + k)
    return layout.from_nchw(_averages(total, dtype, axes, mode))


def _averages(total: Number, dtype: DType, axes: tuple[Axis, ...], mode: _Mode) -> Array:
    """Sums over in-bounds elements as averages in storage."""
    inside = _counts(axes)
    size = math.prod(axis.kernel for axis in axes)
    if dtype.is_float:
        count = np.float32(size) if mode == _Mode.AVERAGE else inside.astype(np.float32)
        return narrow(total / count, dtype)
    if mode != _Mode.AVERAGE:
        return rhaz(total / inside).astype(dtype.storage)
    mean = (total + (dtype.zero_point or 0) * (size - inside)) / size
    # Plain integers are divided as C does, codes are rounded.
    return (rhaz(mean) if dtype.is_quantized else np.trunc(mean)).astype(dtype.storage)


def _counts(axes: tuple[Axis, ...]) -> Number:
    """(OH, OW): elements of each window that lie inside the image."""
    rows, cols = (np.array([hi - lo for lo, hi in axis.ranges()]) for axis in axes)
    return np.asarray(rows[:, None] * cols)


def _pool_gradient(
    call: Call, layout: TensorLayout, window: Window, mode: _Mode, arrays: tuple[Array, ...]
) -> Array:
    """Gradient for x of (x, y, dy)."""
    dtype = call.dtype(0)
    maps: list[Number] = [layout.to_nchw(widen(a, dtype)) for a in arrays]
    x, y, dy = maps
    sizes, out = x.shape[2:], dy.shape[2:]
    axes = axes_of(window, sizes, out)
    if mode == _Mode.MAX_:
        dx = _max_gradient(x, y, dy, window)
    else:
        count = math.prod(window.kernel) if mode == _Mode.AVERAGE else _counts(axes)
        dx = (dy / count).astype(np.float32)
        for k, axis in enumerate(axes):
            dx = spread(dx, axis, 2 + k)
    return layout.from_nchw(narrow(dx, dtype))


def _max_gradient(x: Number, y: Number, dy: Number, window: Window) -> Number:
    """Every element that equals the maximum of a window receives its whole gradient."""
    dx = np.zeros_like(x)
    sizes, out = x.shape[2:], dy.shape[2:]
    if math.prod(out) >= math.prod(window.kernel):
        for tap in taps(window, sizes, out, (0, out[0])):
            dx[tap.seen] += np.where(x[tap.seen] == y[tap.given], dy[tap.given], np.float32(0))
        return dx
    rows, cols = (list(axis.ranges()) for axis in axes_of(window, sizes, out))
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(cols):
            part = (..., slice(top, bottom), slice(left, right))
            given = (..., slice(i, i + 1), slice(j, j + 1))
            dx[part] += np.where(x[part] == y[given], dy[given], np.float32(0))
    return dx


def _check_gradient(call: Call, pooled: Shape, first: int) -> list[ShapeLike]:
    for k in (first, first + 1):
        need(
            call.shape(k) == pooled,
            f"{call.op.input_names[k]} has shape {call.shape(k)}, but pooling gives {pooled}",
        )
    return [call.shape(0)]


def _back_shapes(call: Call) -> list[ShapeLike]:
    return _check_gradient(call, _shape(call), 1)


def _back_reference(call: Call, x: Array, y: Array, dy: Array) -> Array:
    param = call.param
    layout = single_layout(param.format)
    return _pool_gradient(call, layout, _window(param), param.mode, (x, y, dy))


def _adaptive_window(layout: TensorLayout, shape: Shape, target: Array) -> Window:
    """The window that gives `target` outputs: stride floor(I / O), the rest in the kernel."""
    sizes = layout.logical(shape)[2:]
    need(target.size == 2, f"out_shape needs two numbers, got {target.size}")
    out = tuple(int(n) for n in target.reshape(-1))
    need(
        all(0 < o <= n for o, n in zip(out, sizes, strict=True)),
        f"adaptive pooling to {out} needs an image at least that large, got {sizes}",
    )
    stride = tuple(n // o for o, n in zip(out, sizes, strict=True))
    kernel = tuple(n - (o - 1) * s for o, n, s in zip(out, sizes, stride, strict=True))
    return Window(kernel, stride, (0, 0), (1, 1))


def _adaptive_shapes(call: Call) -> list[ShapeLike]:
    layout = single_layout(call.param.format)
    target = call.value(1)
    if target is None:
        n, c, h, w = layout.logical(call.shape(0))
        known = layout.stored((n, c, h, w))
        return [tuple(None if a in "HW" else m for a, m in zip(layout.axes, known, strict=True))]
    window = _adaptive_window(layout, call.shape(0), target)
    return [_pooled_shape(layout, call.shape(0), window, call.param.mode)]


def _adaptive_reference(call: Call, x: Array, target: Array) -> Array:
    layout = single_layout(call.param.format)
    window = _adaptive_window(layout, x.shape, target)
    return _pool(x, call.dtype(0), layout, window, call.param.mode)


def _adaptive_back_shapes(call: Call) -> list[ShapeLike]:
    [pooled] = _adaptive_shapes(call)
    if call.value(1) is None or pooled is None:
        return [call.shape(0)]
    return _check_gradient(call, tuple(n for n in pooled if n is not None), 2)


def _adaptive_back_reference(call: Call, x: Array, target: Array, y: Array, dy: Array) -> Array:
    layout = single_layout(call.param.format)
    window = _adaptive_window(layout, x.shape, target)
    pooled = _pooled_shape(layout, x.shape, window, call.param.mode)
    for name, array in (("y", y), ("dy", dy)):
        need(array.shape == pooled, f"{name} has shape {array.shape}, but pooling gives {pooled}")
    return _pool_gradient(call, layout, window, call.param.mode, (x, y, dy))


# no ExecutionPolicy stored
POOLING = register(
    OpSpec(
        name="Pooling",
        runtime_name="PoolingForward",
        names=(
            Name("Pooling", "v0.3.1", 5299291508641581310, until="v1.2.0"),
            Name("PoolingV1", "v1.3.0", 13971837637008153736),
        ),
        old_id=5154136392692894827,
        v2=(V2Id("PoolingV1", 1, 5154136392692894827),),
        params=(P.Pooling,),
        inputs=("x",),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source=_SOURCE,
    )
)

POOLING_BACKWARD = register(
    OpSpec(
        name="PoolingBackward",
        runtime_name="PoolingBackward",
        names=(
            Name("PoolingBackward", "v0.3.1", 11093456313268636541, until="v1.2.0"),
            Name("PoolingBackwardV1", "v1.3.0", 18333145593617332527),
        ),
        old_id=7074493973094280316,
        v2=(V2Id("PoolingBackwardV1", 1, 7074493973094280316),),
        params=(P.Pooling,),
        inputs=("x", "y", "dy"),
        dtypes=_back_dtypes,
        shapes=_back_shapes,
        reference=_back_reference,
        source=_SOURCE,
    )
)

ADAPTIVE_POOLING = register(
    OpSpec(
        name="AdaptivePooling",
        runtime_name="AdaptivePoolingForward",
        names=(
            Name("AdaptivePooling", "v1.0.0", 1365339971457093271, until="v1.2.0"),
            Name("AdaptivePoolingV1", "v1.3.0", 9148921010455511705),
        ),
        old_id=14420471329773230998,
        v2=(V2Id("AdaptivePoolingV1", 1, 14420471329773230998),),
        params=(P.AdaptivePooling,),
        inputs=("x", "out_shape"),
        dtypes=_dtypes,
        shapes=_adaptive_shapes,
        reference=_adaptive_reference,
        source=_SOURCE,
    )
)

ADAPTIVE_POOLING_BACKWARD = register(
    OpSpec(
        name="AdaptivePoolingBackward",
        runtime_name="AdaptivePoolingBackward",
        names=(
            Name("AdaptivePoolingBackward", "v1.0.0", 16397773711257662267, until="v1.2.0"),
            Name("AdaptivePoolingBackwardV1", "v1.3.0", 6678004944362603155),
        ),
        old_id=16767048936625217975,
        v2=(V2Id("AdaptivePoolingBackwardV1", 1, 16767048936625217975),),
        params=(P.AdaptivePooling,),
        inputs=("x", "out_shape", "y", "dy"),
        dtypes=_back_dtypes,
        shapes=_adaptive_back_shapes,
        reference=_adaptive_back_reference,
        source=_SOURCE,
    )
)
