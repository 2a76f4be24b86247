"""Convolutions whose filter depends on the place: one for each pixel, or for each tile of pixels.

A filter for each pixel is a filter for each tile of one pixel, so all nine operators share one
core. Filters are (G, SH, SW, I, FH, FW, O): SH x SW tiles of equal size cover the output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.layouts import NCHW
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.windows import Number, Window, batches, columns, scatter

__all__ = [
    "GROUP_LOCAL",
    "GROUP_LOCAL_BACKWARD_DATA",
    "GROUP_LOCAL_BACKWARD_FILTER",
    "LOCAL",
    "LOCAL_BACKWARD_DATA",
    "LOCAL_BACKWARD_FILTER",
    "LOCAL_SHARE_BACKWARD_DATA",
    "LOCAL_SHARE_BACKWARD_FILTER",
    "LOCAL_SHARE_FORWARD",
    "LocalGeometry",
    "local_geometry",
]

_SOURCE = "semantics section 4, checked against MegEngine 1.13.0 (forward)"


@dataclass(frozen=True, slots=True)
class LocalGeometry:
    """Geometry: the window, sizes, and the filter as (G, SH, SW, I, FH, FW, O)."""

    window: Window
    batch: int
    filter: Shape
    sizes: Shape
    out: Shape
    flip: bool

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.filter[0]

    @property
    def tiles(self) -> Shape:
        """Rows and columns of tiles."""
        return self.filter[1:3]

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.filter[3]

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.filter[6]

    @property
    def src_shape(self) -> Shape:
        """Shape of the image."""
        return (self.batch, self.groups * self.depth, *self.sizes)

    @property
    def dst_shape(self) -> Shape:
        """Shape of the result."""
        return (self.batch, self.groups * self.outputs, *self.out)

    def matrices(self, flt: Number) -> Number:
        """The filter as (G, S, I*FH*FW, O)."""
        return self._turned(flt.reshape(self.filter)).reshape(
            self.groups, math.prod(self.tiles), -1, self.outputs
        )

    def stored(self, matrices: Number, shape: Shape) -> Number:
        """Inverse of `matrices`, in the filter's own shape."""
        return self._turned(matrices.reshape(self.filter)).reshape(shape)

    def _turned(self, flt: Number) -> Number:
        return flt[..., ::-1, ::-1, :] if self.flip else flt

    def rows(self, maps: Number) -> Number:
        """(n, G, K, OH, OW) as (G, S, n*pixels of a tile, K)."""
        n, groups, count = maps.shape[:3]
        (sh, sw), (oh, ow) = self.tiles, self.out
        split = maps.reshape(n, groups, count, sh, oh // sh, sw, ow // sw)
        return split.transpose(1, 3, 5, 0, 4, 6, 2).reshape(groups, sh * sw, -1, count)

    def maps(self, rows: Number) -> Number:
        """Inverse of `rows`."""
        groups, _, _, count = rows.shape
        (sh, sw), (oh, ow) = self.tiles, self.out
        split = rows.reshape(groups, sh, sw, -1, oh // sh, ow // sw, count)
        return split.transpose(3, 0, 6, 1, 4, 2, 5).reshape(-1, groups, count, oh, ow)

    def images(self) -> Iterator[slice]:
        """Parts of the batch whose columns stay small."""
        taps = math.prod((self.groups, self.depth, *self.window.kernel, *self.out))
        return batches(4 * taps, self.batch)

    def columns(self, x: Number) -> Number:
        """What the windows of these images see, as `rows`."""
        cols = columns(x, self.window, self.out)
        return self.rows(cols.reshape(cols.shape[0], self.groups, -1, *self.out))


def _filter(call: Call, shape: Shape) -> Shape:
    """A filter's shape with a leading group axis."""
    name = call.op.name
    if name.startswith("LocalShare"):
        grouped = call.param.sparse.name == "GROUP"
    else:
        grouped = name.startswith("GroupLocal")
    rank = 7 if grouped else 6
    need(len(shape) == rank, f"the filter needs {rank} dimensions, got {shape}")
    return shape if grouped else (1, *shape)


def local_geometry(call: Call, src: Shape, flt: Shape) -> LocalGeometry:
    """Geometry of a call for the shapes of an image and its filters.

    Raises:
        ShapeError: They do not fit together.
        UnsupportedError: A format, a dilation or a mode that the operator has not.
    """
    param = call.param
    if param.format != P.ConvolutionFormat.NCHW:
        raise UnsupportedError(f"{call.op.name} is NCHW only, got {param.format}")
    full = _filter(call, flt)
    batch, channels, *sizes = NCHW.logical(src)
    groups, sh, sw, depth, fh, fw, _ = full
    need(
        channels == groups * depth,
        f"the filter {flt} asks for {groups * depth} input channels, but the input has {channels}",
    )
    window = Window.of(param, (fh, fw))
    out = window.output(tuple(sizes))
    shared = isinstance(param, P.LocalShare)
    # MegEngine's kernels of LocalShare take no notice of the mode.
    flip = param.mode.name == "CONVOLUTION" and not shared
    if not shared and window.dilate != (1, 1):
        raise UnsupportedError(f"{call.op.name} has no dilation, got {window.dilate}")
    if flip and call.op.name.startswith("GroupLocal"):
        raise UnsupportedError(f"{call.op.name} does not turn filters (mode CONVOLUTION)")
    if shared:
        asked = (int(param.spatial_groups_h), int(param.spatial_groups_w))
        need((sh, sw) == asked, f"the filter has {sh}x{sw} tiles, but the parameters say {asked}")
        need(
            min(asked) > 0 and out[0] % sh == 0 and out[1] % sw == 0,
            f"an output of {out} does not split into {sh}x{sw} equal tiles",
        )
    else:
        need((sh, sw) == out, f"the filter is for {sh}x{sw} pixels, but the output has {out}")
    return LocalGeometry(window, batch, full, tuple(sizes), out, flip)


def _dtypes(call: Call) -> list[DType]:
    a, b = call.dtype(0), call.dtype(1)
    if not a.is_float or a.kind is not b.kind:
        raise UnsupportedError(f"{call.op.name} needs one floating type, got {a.name}, {b.name}")
    return [a]


def _maps(array: Array, dtype: DType, groups: int) -> Number:
    n, channels, *sizes = array.shape
    return widen(array, dtype).reshape(n, groups, channels // groups, *sizes)


def _forward_shapes(call: Call) -> list[ShapeLike]:
    return [local_geometry(call, call.shape(0), call.shape(1)).dst_shape]


def _forward_reference(call: Call, src: Array, flt: Array) -> Array:
    shape = local_geometry(call, src.shape, flt.shape)
    x = _maps(src, call.dtype(0), shape.groups)
    matrices = shape.matrices(widen(flt, call.dtype(1)))
    result = np.empty((shape.batch, shape.groups, shape.outputs, *shape.out), np.float32)
    for images in shape.images():
        result[images] = shape.maps(shape.columns(x[images]) @ matrices)
    return narrow(result.reshape(shape.dst_shape), call.dtype(0))


def _check_diff(shape: LocalGeometry, diff: Shape) -> None:
    need(
        diff == shape.dst_shape,
        f"the gradient has shape {diff}, but the convolution has {shape.dst_shape}",
    )


def _data_shapes(call: Call) -> list[ShapeLike]:
    shape = local_geometry(call, call.shape(2), call.shape(0))
    _check_diff(shape, call.shape(1))
    return [shape.src_shape]


def _data_reference(call: Call, flt: Array, diff: Array, src: Array) -> Array:
    shape = local_geometry(call, src.shape, flt.shape)
    dy = _maps(diff, call.dtype(1), shape.groups)
    matrices = shape.matrices(widen(flt, call.dtype(0))).swapaxes(2, 3)
    result = np.empty((shape.batch, shape.groups, shape.depth, *shape.sizes), np.float32)
    for images in shape.images():
        cols = shape.maps(shape.rows(dy[images]) @ matrices)
        apart = cols.reshape(-1, shape.groups, shape.depth, *shape.window.kernel, *shape.out)
        result[images] = scatter(apart, shape.window, shape.sizes)
    return narrow(result.reshape(shape.src_shape), call.dtype(0))


def _filter_shapes(call: Call) -> list[ShapeLike]:
    _check_diff(local_geometry(call, call.shape(0), call.shape(2)), call.shape(1))
    return [call.shape(2)]


def _filter_reference(call: Call, src: Array, diff: Array, flt: Array) -> Array:
    shape = local_geometry(call, src.shape, flt.shape)
    x = _maps(src, call.dtype(0), shape.groups)
    dy = _maps(diff, call.dtype(1), shape.groups)
    taps = shape.depth * math.prod(shape.window.kernel)
    total = np.zeros((shape.groups, math.prod(shape.tiles), taps, shape.outputs), np.float32)
    for images in shape.images():
        total += shape.columns(x[images]).swapaxes(2, 3) @ shape.rows(dy[images])
    return narrow(shape.stored(total, flt.shape), call.dtype(0))


LOCAL = register(
    OpSpec(
        name="Local",
        runtime_name="LocalForward",
        names=(
            Name("LocalV1", "v0.3.1", 14560872023344114474, until="v1.2.0"),
            Name("LocalV2", "v1.3.0", 7946408596694905603),
        ),
        old_id=2438723524179139873,
        v2=(V2Id("LocalV2", 1, 2438723524179139873),),
        params=(P.Convolution,),
        inputs=("src", "filter"),
        dtypes=_dtypes,
        shapes=_forward_shapes,
        reference=_forward_reference,
        source=_SOURCE,
    )
)

GROUP_LOCAL = register(
    OpSpec(
        name="GroupLocal",
        runtime_name="GroupLocalForward",
        names=(
            Name("GroupLocalV1", "v0.3.1", 2712770956440959482, until="v1.2.0"),
            Name("GroupLocalV2", "v1.3.0", 10329238344631404699),
        ),
        old_id=15239326506034504675,
        v2=(V2Id("GroupLocalV2", 1, 15239326506034504675),),
        params=(P.Convolution,),
        inputs=("src", "filter"),
        dtypes=_dtypes,
        shapes=_forward_shapes,
        reference=_forward_reference,
        source=_SOURCE,
    )
)

LOCAL_SHARE_FORWARD = register(
    OpSpec(
        name="LocalShareForward",
        runtime_name="LocalShareForward",
        names=(
            Name("LocalShareForward", "v0.3.1", 11438370329554618081, until="v1.2.0"),
            Name("LocalShareForwardV1", "v1.3.0", 10347340852525272700),
        ),
        old_id=2371195947753554836,
        v2=(
            V2Id("LocalShareForwardV1", 1, 2371195947753554836),
            V2Id("LocalShareForward", 2, 11438370329554618081, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("src", "filter"),
        dtypes=_dtypes,
        shapes=_forward_shapes,
        reference=_forward_reference,
        source=_SOURCE,
    )
)

LOCAL_BACKWARD_DATA = register(
    OpSpec(
        name="LocalBackwardData",
        runtime_name="LocalBackwardData",
        names=(
            Name("LocalBackwardDataV1", "v0.3.1", 4979913596762060349, until="v1.2.0"),
            Name("LocalBackwardDataV2", "v1.3.0", 11236956505945440406),
        ),
        old_id=9972912261408639702,
        v2=(V2Id("LocalBackwardDataV2", 1, 9972912261408639702),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "src_for_shape"),
        dtypes=_dtypes,
        shapes=_data_shapes,
        reference=_data_reference,
        source=_SOURCE,
    )
)

LOCAL_BACKWARD_FILTER = register(
    OpSpec(
        name="LocalBackwardFilter",
        runtime_name="LocalBackwardFilter",
        names=(
            Name("LocalBackwardFilterV1", "v0.3.1", 4219838703179257482, until="v1.2.0"),
            Name("LocalBackwardFilterV2", "v1.3.0", 15367879496205277822),
        ),
        old_id=9359853999370134971,
        v2=(V2Id("LocalBackwardFilterV2", 1, 9359853999370134971),),
        params=(P.Convolution,),
        inputs=("src", "diff", "filter_for_shape"),
        dtypes=_dtypes,
        shapes=_filter_shapes,
        reference=_filter_reference,
        source=_SOURCE,
    )
)

GROUP_LOCAL_BACKWARD_DATA = register(
    OpSpec(
        name="GroupLocalBackwardData",
        runtime_name="GroupLocalBackwardData",
        names=(
            Name("GroupLocalBackwardDataV1", "v0.3.1", 9512848693139773040, until="v1.2.0"),
            Name("GroupLocalBackwardDataV2", "v1.3.0", 13571385314475027707),
        ),
        old_id=5365194670146850456,
        v2=(V2Id("GroupLocalBackwardDataV2", 1, 5365194670146850456),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "src_for_shape"),
        dtypes=_dtypes,
        shapes=_data_shapes,
        reference=_data_reference,
        source=_SOURCE,
    )
)

GROUP_LOCAL_BACKWARD_FILTER = register(
    OpSpec(
        name="GroupLocalBackwardFilter",
        runtime_name="GroupLocalBackwardFilter",
        names=(
            Name("GroupLocalBackwardFilterV1", "v0.3.1", 14848169696548887945, until="v1.2.0"),
            Name("GroupLocalBackwardFilterV2", "v1.3.0", 16243421778898567956),
        ),
        old_id=4307071883370826827,
        v2=(V2Id("GroupLocalBackwardFilterV2", 1, 4307071883370826827),),
        params=(P.Convolution,),
        inputs=("src", "diff", "filter_for_shape"),
        dtypes=_dtypes,
        shapes=_filter_shapes,
        reference=_filter_reference,
        source=_SOURCE,
    )
)

LOCAL_SHARE_BACKWARD_DATA = register(
    OpSpec(
        name="LocalShareBackwardData",
        runtime_name="LocalShareBackwardData",
        names=(
            Name("LocalShareBackwardData", "v0.3.1", 16656833054358668494, until="v1.2.0"),
            Name("LocalShareBackwardDataV1", "v1.3.0", 5910150237723349181),
        ),
        old_id=2338363324839077752,
        v2=(
            V2Id("LocalShareBackwardDataV1", 1, 2338363324839077752),
            V2Id("LocalShareBackwardData", 2, 16656833054358668494, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("filter", "diff", "src_for_shape"),
        dtypes=_dtypes,
        shapes=_data_shapes,
        reference=_data_reference,
        source=_SOURCE,
    )
)

LOCAL_SHARE_BACKWARD_FILTER = register(
    OpSpec(
        name="LocalShareBackwardFilter",
        runtime_name="LocalShareBackwardFilter",
        names=(
            Name("LocalShareBackwardFilter", "v0.3.1", 4209085322356757619, until="v1.2.0"),
            Name("LocalShareBackwardFilterV1", "v1.3.0", 13456682729415625249),
        ),
        old_id=4732440832646828724,
        v2=(
            V2Id("LocalShareBackwardFilterV1", 1, 4732440832646828724),
            V2Id("LocalShareBackwardFilter", 2, 4209085322356757619, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        dtypes=_dtypes,
        shapes=_filter_shapes,
        reference=_filter_reference,
        source=_SOURCE,
    )
)
