"""Deformable convolution: each tap is moved by an offset, weighted by a mask, read bilinearly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import sampling
from mgeserial.ops.convrules import Geometry, geometry
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.sampling import Border, Points
from mgeserial.ops.windows import batches

__all__ = [
    "DEFORMABLE_CONV_BACKWARD_DATA",
    "DEFORMABLE_CONV_BACKWARD_FILTER",
    "DEFORMABLE_CONV_FORWARD",
    "Deformed",
    "deformed",
]

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0"
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Deformed:
    """Geometry: the plain convolution, and the number of groups of channels that move together."""

    conv: Geometry
    moving: int

    @property
    def taps(self) -> int:
        """Elements of the kernel."""
        return math.prod(self.conv.window.kernel)

    @property
    def channels(self) -> int:
        """Channels that move together."""
        return self.conv.groups * self.conv.depth // self.moving

    def images(self) -> Iterator[slice]:
        """Parts of the batch whose columns stay small."""
        conv = self.conv
        count = math.prod((conv.groups, conv.depth, self.taps, *conv.out))
        return batches(16 * count, conv.batch)

    def points(self, offset: Float32) -> tuple[Points, npt.NDArray[np.bool_]]:
        """Where the taps of these images read, as (n * moving * taps * OH * OW,), and which do."""
        conv = self.conv
        n = offset.shape[0]
        moves = offset.reshape(n, self.moving, self.taps, 2, *conv.out)
        y, x = moves[:, :, :, 0], moves[:, :, :, 1]
        window = conv.window
        rows, cols = (
            (np.arange(k) * d)[:, None] + np.arange(o) * s - p
            for k, d, o, s, p in zip(
                window.kernel, window.dilate, conv.out, window.stride, window.pad, strict=True
            )
        )
        height, width = window.kernel
        shape = (height, width, *conv.out)
        y = y + np.broadcast_to(rows[:, None, :, None], shape).reshape(self.taps, *conv.out)
        x = x + np.broadcast_to(cols[None, :, None, :], shape).reshape(self.taps, *conv.out)
        y, x = (a.reshape(-1).astype(np.float32) for a in (y, x))
        inside = (y > -1) & (y < conv.sizes[0]) & (x > -1) & (x < conv.sizes[1])
        image = np.repeat(np.arange(n * self.moving), y.size // (n * self.moving))
        taps = [
            sampling.bilinear(np.where(inside, a, np.float32(-2)), size, Border.CONSTANT)
            for a, size in zip((y, x), conv.sizes, strict=True)
        ]
        return Points(image, taps[0], taps[1], (conv.sizes[0], conv.sizes[1])), inside

    def maps(self, src: Float32) -> Float32:
        """Images of channels that move together."""
        return src.reshape(-1, self.channels, *self.conv.sizes)

    def columns(self, values: Float32) -> Float32:
        """Points (p, channels) as (n, G, I * taps, OH * OW)."""
        conv = self.conv
        apart = values.reshape(-1, self.moving, self.taps, math.prod(conv.out), self.channels)
        return apart.transpose(0, 1, 4, 2, 3).reshape(
            apart.shape[0], conv.groups, conv.depth * self.taps, -1
        )

    def by_point(self, columns: Float32) -> Float32:
        """Inverse of `columns`."""
        pixels = math.prod(self.conv.out)
        apart = columns.reshape(-1, self.moving, self.channels, self.taps, pixels)
        return apart.transpose(0, 1, 3, 4, 2).reshape(-1, self.channels)


def deformed(call: Call) -> Deformed:
    """Geometry of a call whose first inputs are src, filter, offset and mask."""
    param = call.param
    if param.format != P.ConvolutionFormat.NCHW or param.mode.name == "CONVOLUTION":
        raise UnsupportedError(
            f"{call.op.name} is NCHW and CROSS_CORRELATION only, got {param.format}, {param.mode}"
        )
    src, flt, offset, mask = (call.shape(k) for k in range(4))
    conv = geometry(param, src, flt)
    taps = math.prod(conv.window.kernel)
    for name, shape, each in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        need(
            len(shape) == 4
            and shape[0] == conv.batch
            and shape[2:] == conv.out
            and shape[1] % each == 0
            and shape[1] > 0,
            f"{name} needs a shape ({conv.batch}, groups * {each}, {conv.out[0]}, {conv.out[1]}), "
            f"got {shape}",
        )
    moving = offset[1] // (2 * taps)
    need(
        mask[1] == moving * taps and conv.groups * conv.depth % moving == 0,
        f"offset {offset} and mask {mask} must have one number of groups that divides "
        f"{conv.groups * conv.depth} channels",
    )
    return Deformed(conv, moving)


def _dtypes(call: Call) -> list[DType]:
    kinds = {t.dtype.name for t in call.inputs}
    if len(kinds) != 1 or not call.dtype(0).is_float:
        raise UnsupportedError(f"{call.op.name} needs one floating type, got {sorted(kinds)}")
    return [call.dtype(0)] * call.count


def _shapes(call: Call) -> list[ShapeLike]:
    return [deformed(call).conv.dst_shape]


def _float32(call: Call, arrays: tuple[Array, ...]) -> list[Float32]:
    return [np.asarray(widen(a, call.dtype(0)), np.float32) for a in arrays]


def _reference(call: Call, *arrays: Array) -> Array:
    shape = deformed(call)
    conv = shape.conv
    src, flt, offset, mask = _float32(call, arrays)
    matrix = conv.kernel(flt).reshape(conv.groups, conv.outputs, -1)
    result = np.empty((conv.batch, conv.groups, conv.outputs, math.prod(conv.out)), np.float32)
    for images in shape.images():
        points, _ = shape.points(offset[images])
        values = sampling.interpolate(shape.maps(src[images]), points)
        values *= mask[images].reshape(-1, 1)
        result[images] = matrix @ shape.columns(values)
    return narrow(result.reshape(conv.dst_shape), call.dtype(0))


def _check_diff(call: Call, shape: Deformed) -> None:
    need(
        call.shape(4) == shape.conv.dst_shape,
        f"the gradient has shape {call.shape(4)}, but the convolution has {shape.conv.dst_shape}",
    )


def _data_shapes(call: Call) -> list[ShapeLike]:
    _check_diff(call, deformed(call))
    return [call.shape(0), call.shape(2), call.shape(3)]


def _data_reference(call: Call, *arrays: Array) -> tuple[Array, ...]:
    shape = deformed(call)
    conv = shape.conv
    src, flt, offset, mask, diff = _float32(call, arrays)
    matrix = conv.kernel(flt).reshape(conv.groups, conv.outputs, -1).swapaxes(1, 2)
    by_src, by_offset, by_mask = (np.empty(a.shape, np.float32) for a in (src, offset, mask))
    for images in shape.images():
        maps = shape.maps(src[images])
        points, inside = shape.points(offset[images])
        dy = diff[images].reshape(-1, conv.groups, conv.outputs, math.prod(conv.out))
        given = shape.by_point(matrix @ dy)
        values = sampling.interpolate(maps, points)
        by_mask[images] = (given * values).sum(axis=1).reshape(by_mask[images].shape)
        given = given * mask[images].reshape(-1, 1)
        total = sampling.scatter(given, points, maps.shape[0])
        by_src[images] = total.reshape(by_src[images].shape)
        moved = np.stack(sampling.slopes(maps, given, points)) * inside
        apart = moved.reshape(2, -1, shape.moving, shape.taps, *conv.out)
        by_offset[images] = apart.transpose(1, 2, 3, 0, 4, 5).reshape(by_offset[images].shape)
    return tuple(narrow(a, call.dtype(0)) for a in (by_src, by_offset, by_mask))


def _filter_shapes(call: Call) -> list[ShapeLike]:
    _check_diff(call, deformed(call))
    return [call.shape(1)]


def _filter_reference(call: Call, *arrays: Array) -> Array:
    shape = deformed(call)
    conv = shape.conv
    src, flt, offset, mask, diff = _float32(call, arrays)
    total = np.zeros((conv.groups, conv.outputs, conv.depth * shape.taps), np.float32)
    for images in shape.images():
        points, _ = shape.points(offset[images])
        values = sampling.interpolate(shape.maps(src[images]), points)
        values *= mask[images].reshape(-1, 1)
        dy = diff[images].reshape(-1, conv.groups, conv.outputs, math.prod(conv.out))
        total += (dy @ shape.columns(values).swapaxes(2, 3)).sum(axis=0)
    kernel = total.reshape(conv.groups, conv.outputs, conv.depth, *conv.window.kernel)
    return narrow(conv.stored_filter(kernel), call.dtype(0)).reshape(flt.shape)


DEFORMABLE_CONV_FORWARD = register(
    OpSpec(
        name="DeformableConvForward",
        runtime_name="DeformableConvForward",
        names=(
            Name("DeformableConvForward", "v0.3.1", 10684543513979984201, until="v1.2.0"),
            Name("DeformableConvForwardV1", "v1.3.0", 8691128236371122633),
        ),
        old_id=11017218381981369915,
        v2=(
            V2Id("DeformableConvForwardV1", 1, 11017218381981369915),
            V2Id("DeformableConvForward", 2, 10684543513979984201, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source=_SOURCE,
    )
)

DEFORMABLE_CONV_BACKWARD_DATA = register(
    OpSpec(
        name="DeformableConvBackwardData",
        runtime_name="DeformableConvBackwardData",
        names=(
            Name("DeformableConvBackwardData", "v0.3.1", 11316236038236221845, until="v1.2.0"),
            Name("DeformableConvBackwardDataV1", "v1.3.0", 4624099368777492032),
        ),
        old_id=3499073165613604512,
        v2=(
            V2Id("DeformableConvBackwardDataV1", 1, 3499073165613604512),
            V2Id("DeformableConvBackwardData", 2, 11316236038236221845, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask", "diff"),
        outputs=("src", "offset", "mask"),
        output_count=3,
        dtypes=_dtypes,
        shapes=_data_shapes,
        reference=_data_reference,
        source=_SOURCE,
    )
)

DEFORMABLE_CONV_BACKWARD_FILTER = register(
    OpSpec(
        name="DeformableConvBackwardFilter",
        runtime_name="DeformableConvBackwardFilter",
        names=(
            Name("DeformableConvBackwardFilter", "v0.3.1", 5092355273122972759, until="v1.2.0"),
            Name("DeformableConvBackwardFilterV1", "v1.3.0", 10628912337376787276),
        ),
        old_id=16662057334206134718,
        v2=(
            V2Id("DeformableConvBackwardFilterV1", 1, 16662057334206134718),
            V2Id("DeformableConvBackwardFilter", 2, 5092355273122972759, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask", "diff"),
        dtypes=_dtypes,
        shapes=_filter_shapes,
        reference=_filter_reference,
        source=_SOURCE,
    )
)
