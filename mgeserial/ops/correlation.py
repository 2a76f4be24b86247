"""Correlation of two feature maps over displacements, and its gradients.

Output channel (dy + d) * (2d + 1) + dx + d compares windows of `data1` with windows of `data2`
moved by (dy, dx) * stride2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.imaging import Float32, Floats, as_values
from mgeserial.ops.numerics import narrow
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need


@dataclass(frozen=True, slots=True)
class _Plan:
    """Geometry of a correlation: `shape` of the output, `reach` displacements each way."""

    shape: Shape
    reach: int
    kernel: int
    stride: int
    step: int
    border: int
    first: int

    def windows(
        self, *, swapped: bool = False
    ) -> Iterator[tuple[int, tuple[slice, slice], tuple[slice, slice]]]:
        """(channel, pixels of data1, pixels of data2) for each displacement and kernel tap.

        Slices are for maps padded by `border` on all sides. With `swapped` channels count
        displacements column by column.
        """
        h, w = self.shape[2:]
        width = 2 * self.reach + 1
        for channel in range(width * width):
            dy, dx = channel // width - self.reach, channel % width - self.reach
            if swapped:
                dy, dx = dx, dy
            for i in range(self.kernel):
                for j in range(self.kernel):
                    y, x = self.first + i, self.first + j
                    here = self._span(y, h), self._span(x, w)
                    there = self._span(y + dy * self.step, h), self._span(x + dx * self.step, w)
                    yield channel, here, there

    def _span(self, start: int, count: int) -> slice:
        return slice(start, start + (count - 1) * self.stride + 1, self.stride)


def _plan(call: Call, data1: int, data2: int) -> _Plan:
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
    h, w = (math.ceil((n + 2 * param.pad_size - margin) / param.stride1) for n in shape[2:])
    need(h > 0 and w > 0, f"maps of shape {shape} are smaller than the displacements")
    reach = param.max_displacement // param.stride2
    moved = reach * param.stride2
    # Windows start at max_displacement - pad_size and reach `moved` further out; the last one may
    # stand out by what ceil adds.
    border = max(0, moved - param.max_displacement + param.pad_size) + param.stride1
    return _Plan(
        (shape[0], (2 * reach + 1) ** 2, h, w), reach, param.kernel_size, param.stride1,
        param.stride2, border, border + param.max_displacement - param.pad_size,
    )  # fmt: skip


def _padded(x: Floats, border: int) -> Floats:
    ends = (border, border)
    return np.pad(x, ((0, 0), (0, 0), ends, ends))


def _maps(call: Call, plan: _Plan, *arrays: tuple[Array, int]) -> list[Floats]:
    return [
        _padded(as_values(a, call.dtype(place)).astype(np.float64), plan.border)
        for a, place in arrays
    ]


def _correlation_shapes(call: Call) -> list[ShapeLike]:
    return [_plan(call, 0, 1).shape]


def _correlation(call: Call, data1: Array, data2: Array) -> Array:
    plan = _plan(call, 0, 1)
    a, b = _maps(call, plan, (data1, 0), (data2, 1))
    total = np.zeros(plan.shape)
    for channel, here, there in plan.windows():
        x, y = a[(..., *here)], b[(..., *there)]
        both = x * y if call.param.is_multiply else np.abs(x - y)
        total[:, channel] += both.sum(axis=1)
    return narrow(total / (plan.kernel**2 * data1.shape[1]), call.dtype(0))


def _backward_shapes(call: Call) -> list[ShapeLike]:
    plan = _plan(call, 1, 2)
    need(
        call.shape(0) == plan.shape,
        f"the gradient must have shape {plan.shape}, got {call.shape(0)}",
    )
    return [call.shape(1)]


def _backward(call: Call, diff: Array, data1: Array, data2: Array, *, first: bool) -> Array:
    """Gradient by data1 (`first`) or by data2."""
    plan, (h, w) = _plan(call, 1, 2), data1.shape[2:]
    a, b = _maps(call, plan, (data1, 1), (data2, 2))
    scale = plan.kernel**2 * data1.shape[1]
    gradient: Float32 = as_values(diff, call.dtype(0))
    total = np.zeros(a.shape)
    # MegEngine's gradient by data1 takes rows of displacements for columns; files mean that.
    for channel, here, there in plan.windows(swapped=first):
        x, y = a[(..., *here)], b[(..., *there)]
        if call.param.is_multiply:
            slope = y if first else x
        else:
            slope = np.sign(x - y) if first else np.sign(y - x)
        target = here if first else there
        total[(..., *target)] += gradient[:, channel, None] * slope
    inner = total[:, :, plan.border : plan.border + h, plan.border : plan.border + w]
    return narrow(inner / scale, call.dtype(1))


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
