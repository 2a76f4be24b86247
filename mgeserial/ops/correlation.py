"""Correlation of two feature maps over displacements, and its gradients.

Output channel (dy + d) * (2d + 1) + dx + d compares windows of `data1` with windows of `data2`
moved by (dy, dx) * stride2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.imaging import Floats, as_values
from mgeserial.ops.numerics import narrow
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, need_gradient

__all__ = [
    "CORRELATION_BACKWARD_DATA1",
    "CORRELATION_BACKWARD_DATA2",
    "CORRELATION_FORWARD",
    "Correlation",
    "correlation_of",
]

# Displacements times kernel taps: each is one pass over the maps.
_MOST_PASSES = 1 << 20


@dataclass(frozen=True, slots=True)
class Correlation:
    """Geometry of a correlation.

    Attributes:
        shape: Shape of the output.
        size: Height and width of the maps.
        reach: Displacements each way.
        kernel: Side of the windows.
        stride: Pixels between windows.
        step: Pixels between displacements.
        first: Row and column where the first window begins in data1, may be negative.
    """

    shape: Shape
    size: tuple[int, int]
    reach: int
    kernel: int
    stride: int
    step: int
    first: int

    def windows(self, *, swapped: bool = False) -> Iterator[tuple[int, _Grid, _Grid]]:
        """(channel, pixels of data1, pixels of data2) for each displacement and kernel tap.

        With `swapped` channels count displacements column by column.
        """
        width = 2 * self.reach + 1
        for channel in range(width * width):
            dy, dx = channel // width - self.reach, channel % width - self.reach
            if swapped:
                dy, dx = dx, dy
            for i in range(self.kernel):
                for j in range(self.kernel):
                    y, x = self.first + i, self.first + j
                    moved = self._grid(y + dy * self.step, x + dx * self.step)
                    yield channel, self._grid(y, x), moved

    def _grid(self, y: int, x: int) -> _Grid:
        rows = y + self.stride * np.arange(self.shape[2])
        columns = x + self.stride * np.arange(self.shape[3])
        down = np.flatnonzero((rows >= 0) & (rows < self.size[0]))
        across = np.flatnonzero((columns >= 0) & (columns < self.size[1]))
        return _Grid(
            (..., down[:, None], across), (..., rows[down][:, None], columns[across]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Grid:
    """Pixels of a map that outputs read: numpy indices of the outputs, and of the pixels."""

    outputs: tuple[Any, ...]
    pixels: tuple[Any, ...]

    def read(self, x: Floats, shape: Shape) -> Floats:
        """Values (n, c, h, w) of the outputs, zeros outside of the map."""
        values = np.zeros((*x.shape[:2], *shape[2:]))
        values[self.outputs] = x[self.pixels]
        return values


def correlation_of(call: Call, data1: int, data2: int) -> Correlation:
    """Geometry of a call whose maps are the inputs of these numbers.

    Raises:
        ShapeError: Maps and parameters do not fit together, or ask for too much.
        UnsupportedError: Another format than NCHW.
    """
    param = call.param
    if param.format != P.ConvolutionV0Format.NCHW:
        raise UnsupportedError(f"Correlation needs format NCHW, got {param.format}")
    shape = call.shape(data1)
    need(len(shape) == 4, f"feature maps (n, c, h, w) are needed, got shape {shape}")
    need(call.shape(data2) == shape, f"the maps differ: {shape} and {call.shape(data2)}")
    need(
        param.kernel_size % 2 == 1 and param.stride1 > 0 and param.stride2 > 0,
        f"the kernel must be odd and strides above zero, got {param}",
    )
    radius = (param.kernel_size - 1) // 2
    margin = 2 * (param.max_displacement + radius)
    h, w = (-((margin - n - 2 * param.pad_size) // param.stride1) for n in shape[2:])
    need(h > 0 and w > 0, f"maps of shape {shape} are smaller than the displacements")
    reach = param.max_displacement // param.stride2
    channels = (2 * reach + 1) ** 2
    need(
        channels * param.kernel_size**2 <= _MOST_PASSES,
        f"{channels} displacements of {param.kernel_size} x {param.kernel_size} windows: too many",
    )
    return Correlation(
        (shape[0], channels, h, w), (shape[2], shape[3]), reach, param.kernel_size,
        param.stride1, param.stride2, param.max_displacement - param.pad_size,
    )  # fmt: skip


def _map(call: Call, place: int, array: Array) -> Floats:
    return as_values(array, call.dtype(place)).astype(np.float64)


def _correlation_shapes(call: Call) -> list[ShapeLike]:
    return [correlation_of(call, 0, 1).shape]


def _correlation(call: Call, data1: Array, data2: Array) -> Array:
    plan = correlation_of(call, 0, 1)
    a, b = _map(call, 0, data1), _map(call, 1, data2)
    total = np.zeros(plan.shape)
    for channel, here, there in plan.windows():
        x, y = here.read(a, plan.shape), there.read(b, plan.shape)
        both = x * y if call.param.is_multiply else np.abs(x - y)
        total[:, channel] += both.sum(axis=1)
    return narrow(total / (plan.kernel**2 * max(data1.shape[1], 1)), call.dtype(0))


def _backward_shapes(call: Call) -> list[ShapeLike]:
    plan = correlation_of(call, 1, 2)
    need_gradient(call, 0, plan.shape)
    return [call.shape(1)]


def _backward(call: Call, diff: Array, data1: Array, data2: Array, *, first: bool) -> Array:
    """Gradient by data1 (`first`) or by data2."""
    plan = correlation_of(call, 1, 2)
    a, b = _map(call, 1, data1), _map(call, 2, data2)
    gradient = as_values(diff, call.dtype(0)).astype(np.float64)
    total = np.zeros(a.shape)
    # MegEngine's gradient by data1 takes rows of displacements for columns; files mean that.
    for channel, here, there in plan.windows(swapped=first):
        x, y = here.read(a, plan.shape), there.read(b, plan.shape)
        if call.param.is_multiply:
            slope = y if first else x
        else:
            slope = np.sign(x - y) if first else np.sign(y - x)
        grid = here if first else there
        total[grid.pixels] += (gradient[:, channel, None] * slope)[grid.outputs]
    return narrow(total / (plan.kernel**2 * max(data1.shape[1], 1)), call.dtype(1))


def _backward1(call: Call, diff: Array, data1: Array, data2: Array) -> Array:
    return _backward(call, diff, data1, data2, first=True)


def _backward2(call: Call, diff: Array, data1: Array, data2: Array) -> Array:
    return _backward(call, diff, data1, data2, first=False)


CORRELATION_FORWARD = register(
    OpSpec(
        name="CorrelationForward",
        runtime_name="CorrelationForward",
        names=(Name("CorrelationForward", "v1.4.0", 52762848157198920),),
        old_id=14184642478375232292,
        v2=(V2Id("CorrelationForward", 1, 14184642478375232292),),
        params=(P.Correlation,),
        inputs=("data1", "data2"),
        dtypes=dtype_of(0),
        shapes=_correlation_shapes,
        reference=_correlation,
        source="semantics section 10, operators.json",
    )
)

CORRELATION_BACKWARD_DATA1 = register(
    OpSpec(
        name="CorrelationBackwardData1",
        runtime_name="CorrelationBackwardData1",
        names=(Name("CorrelationBackwardData1", "v1.4.0", 4628037995308390275),),
        old_id=9848618973553339130,
        v2=(V2Id("CorrelationBackwardData1", 1, 9848618973553339130),),
        params=(P.Correlation,),
        inputs=("diff", "data1", "data2"),
        dtypes=dtype_of(1),
        shapes=_backward_shapes,
        reference=_backward1,
        source="derivative of Correlation; operators.json",
    )
)

CORRELATION_BACKWARD_DATA2 = register(
    OpSpec(
        name="CorrelationBackwardData2",
        runtime_name="CorrelationBackwardData2",
        names=(Name("CorrelationBackwardData2", "v1.4.0", 6701417277286718905),),
        old_id=358897463290573568,
        v2=(V2Id("CorrelationBackwardData2", 1, 358897463290573568),),
        params=(P.Correlation,),
        inputs=("diff", "data1", "data2"),
        dtypes=dtype_of(2),
        shapes=_backward_shapes,
        reference=_backward2,
        source="derivative of Correlation; operators.json",
    )
)
