"""What all convolutions share: geometry in any layout, element types, sums and their rounding.

Source: semantics section 4, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType, DTypeEnum, quantized
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import Call, DTypes, Shape, ShapeLike
from mgeserial.ops import windows
from mgeserial.ops.layouts import (
    NCDHW,
    NCDHW_FILTERS,
    NDHWC,
    NDHWC_FILTERS,
    FilterLayout,
    TensorLayout,
    choose_filter,
    filter_layout,
    input_layout,
    output_layout,
)
from mgeserial.ops.numerics import from_real, narrow, to_real, widen
from mgeserial.ops.rules import need
from mgeserial.ops.windows import Number, Window

__all__ = [
    "Geometry",
    "Sums",
    "conv_dtypes",
    "finish",
    "forward_reference",
    "forward_shapes",
    "geometry",
    "geometry_of_gradient",
    "operand",
    "product_dtype",
    "result",
    "same_scale",
    "sums",
    "transposed_reference",
    "transposed_shapes",
]

_SMALL_INPUT = frozenset(
    {P.ConvolutionFormat.NHWC_NCHW4_IC_SMALL, P.ConvolutionFormat.NCHW_NCHW4_IC_SMALL}
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """One convolution: layouts, window and logical sizes.

    Attributes:
        src, dst: Layouts of the input and the result.
        filter: Layout of the filter.
        window: Kernel, stride, padding and dilation.
        batch: Number of images.
        groups, outputs, depth: Groups, and output and input channels of one group.
        sizes, out: Spatial sizes of the input and the result.
        flip: Whether the filter is turned round (mode CONVOLUTION).
    """

    src: TensorLayout
    dst: TensorLayout
    filter: FilterLayout
    window: Window
    batch: int
    groups: int
    outputs: int
    depth: int
    sizes: Shape
    out: Shape
    flip: bool

    @property
    def dst_shape(self) -> Shape:
        """Stored shape of the result."""
        return self.dst.stored((self.batch, self.groups * self.outputs, *self.out))

    @property
    def src_shape(self) -> Shape:
        """Stored shape of the input."""
        return self.src.stored((self.batch, self.groups * self.depth, *self.sizes))

    def src_maps(self, array: Number) -> Number:
        """The input as (N, G, I, *sizes)."""
        return self._maps(self.src, array, self.depth)

    def dst_maps(self, array: Number) -> Number:
        """A result as (N, G, O, *out)."""
        return self._maps(self.dst, array, self.outputs)

    def _maps(self, layout: TensorLayout, array: Number, channels: int) -> Number:
        logical = layout.to_nchw(array)
        n, _, *sizes = logical.shape
        return logical.reshape(n, self.groups, channels, *sizes)

    def kernel(self, array: Number) -> Number:
        """The filter as (G, O, I, *kernel) of a cross-correlation."""
        return self._turned(self.filter.to_goihw(array))

    def _turned(self, array: Number) -> Number:
        spatial = tuple(range(3, array.ndim))
        return np.flip(array, spatial) if self.flip else array

    def stored_dst(self, maps: Number) -> Array:
        """(N, G, O, *out) as the result is stored."""
        return self.dst.from_nchw(maps.reshape(self.batch, self.groups * self.outputs, *self.out))

    def stored_src(self, maps: Number) -> Array:
        """(N, G, I, *sizes) as the input is stored."""
        return self.src.from_nchw(maps.reshape(self.batch, self.groups * self.depth, *self.sizes))

    def stored_filter(self, kernel: Number) -> Array:
        """(G, O, I, *kernel) as the filter is stored."""
        return self.filter.from_goihw(self._turned(kernel))


def _layouts(
    param: Any, src_rank: int, filter_shape: Shape, *, grouped: bool
) -> tuple[TensorLayout, TensorLayout, FilterLayout, str]:
    """Input, output and filter layouts of a record, and the names of its spatial axes."""
    fmt = param.format
    if isinstance(fmt, P.Convolution3DFormat):
        if fmt == P.Convolution3DFormat.NCDHW:
            layout, filters = NCDHW, NCDHW_FILTERS
        elif fmt == P.Convolution3DFormat.NDHWC:
            layout, filters = NDHWC, NDHWC_FILTERS
        else:
            raise UnsupportedError(f"tensor format {fmt} is not known")
        return layout, layout, choose_filter(filters, filter_shape, grouped=grouped), "dhw"
    if fmt in _SMALL_INPUT:
        raise UnsupportedError(f"convolution in {fmt} is not supported")
    layouts = input_layout(fmt, src_rank), output_layout(fmt)
    return *layouts, filter_layout(fmt, filter_shape, grouped=grouped), "hw"


def _is_grouped(param: Any) -> bool:
    need(param.sparse.is_known, f"sparse must be DENSE or GROUP, got {param.sparse}")
    return bool(param.sparse.name == "GROUP")


def _is_flipped(param: Any) -> bool:
    need(param.mode.is_known, f"unknown convolution mode {param.mode}")
    return bool(param.mode.name == "CONVOLUTION")


def _check_elements(image: Shape, filter_shape: Shape) -> None:
    need(
        min(image[1:]) > 0 and min(filter_shape) > 0,
        f"images and filters must have elements, got {image} and {filter_shape}",
    )


def geometry(
    param: Any, src_shape: Shape, filter_shape: Shape, *, grouped: bool | None = None
) -> Geometry:
    """Geometry of a forward convolution.

    Args:
        param: Record with mode, sparse, format, stride_h, ...
        src_shape: Stored shape of the input.
        filter_shape: Stored shape of the filter.
        grouped: Instead of what `param.sparse` says.

    Raises:
        ShapeError: Shapes do not fit together.
        UnsupportedError: The format is not one of convolutions.
    """
    grouped = _is_grouped(param) if grouped is None else grouped
    src, dst, layout, axes = _layouts(param, len(src_shape), filter_shape, grouped=grouped)
    batch, channels, *sizes = src.logical(src_shape)
    groups, outputs, depth, *kernel = layout.logical(filter_shape)
    _check_elements(src_shape, filter_shape)
    need(
        channels == groups * depth,
        f"the filter {layout.name} {filter_shape} asks for {groups * depth} input channels, "
        f"but the {src.name} input {src_shape} has {channels}",
    )
    need(
        groups * outputs % dst.lanes == 0,
        f"{dst.name} needs output channels in blocks of {dst.lanes}, got {groups * outputs}",
    )
    window = Window.of(param, tuple(kernel), axes=axes)
    out = window.output(tuple(sizes))
    return Geometry(
        src, dst, layout, window, batch, groups, outputs, depth, tuple(sizes), out,
        _is_flipped(param),
    )  # fmt: skip


def geometry_of_gradient(
    param: Any, filter_shape: Shape, diff_shape: Shape, src_shape: Shape | None
) -> Geometry:
    """Geometry of the forward convolution whose result has the shape of `diff`.

    Without `src_shape` the input is the smallest that fits.

    Raises:
        ShapeError: Shapes do not fit together.
        UnsupportedError: The format is not one of convolutions.
    """
    if src_shape is not None:
        result = geometry(param, src_shape, filter_shape)
        need(
            result.dst_shape == diff_shape,
            f"the gradient has shape {diff_shape}, but a convolution of {src_shape} with "
            f"{filter_shape} has shape {result.dst_shape}",
        )
        return result
    src, dst, layout, axes = _layouts(
        param, len(diff_shape), filter_shape, grouped=_is_grouped(param)
    )
    batch, channels, *out = dst.logical(diff_shape)
    groups, outputs, depth, *kernel = layout.logical(filter_shape)
    _check_elements(diff_shape, filter_shape)
    need(
        channels == groups * outputs,
        f"the filter {layout.name} {filter_shape} has {groups * outputs} output channels, "
        f"but the {dst.name} gradient {diff_shape} has {channels}",
    )
    window = Window.of(param, tuple(kernel), axes=axes)
    sizes = window.input(tuple(out))
    return Geometry(
        src, dst, layout, window, batch, groups, outputs, depth, sizes, tuple(out),
        _is_flipped(param),
    )  # fmt: skip


def product_dtype(a: DType, b: DType) -> DType:
    """Element type of sums of products of two types.

    Floats stay as they are, Int8 becomes Int32, quantised types become QuantizedS32 whose scale is
    the product of theirs.

    Raises:
        ShapeError: The two types do not go together.
        UnsupportedError: There is no convolution of such integers.
    """
    if a.scale is not None and b.scale is not None:
        return quantized(DTypeEnum.QuantizedS32, float(np.float32(a.scale) * np.float32(b.scale)))
    if a.kind != b.kind:
        raise ShapeError(f"operands must have one element type, got {a.name} and {b.name}")
    if a.is_float:
        return a
    if a.kind is DTypeEnum.Int8:
        return INT32
    raise UnsupportedError(f"there is no convolution of {a.name}")


def conv_dtypes(first: int = 0, second: int = 1) -> DTypes:
    """The dtype stored with the operator, else that of sums of products of two inputs."""

    def rule(call: Call) -> list[DType]:
        product = product_dtype(call.dtype(first), call.dtype(second))
        return [call.output_dtype or product] * call.count

    return rule


def operand(array: Array, dtype: DType) -> Number:
    """Numbers to multiply: float32 of floating types, else integers without their zero point."""
    if dtype.is_float:
        return widen(array, dtype)
    if dtype.zero_point:
        return array.astype(np.int16) - np.int16(dtype.zero_point)
    return array


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of products: float32 or exact int64 `values` of type `dtype`."""

    values: Number
    dtype: DType

    @property
    def real(self) -> npt.NDArray[np.float32]:
        """Float32 values; integers wrap to 32 bits first, as the accumulators of all kernels do."""
        if self.dtype.is_float:
            return np.asarray(self.values, np.float32)
        return to_real(self.values.astype(np.int32), self.dtype)


def sums(call: Call, src: Array, flt: Array, shape: Geometry) -> Sums:
    """Convolve the first two inputs; (N, G, O, *out)."""
    a, b = call.dtype(0), call.dtype(1)
    x = shape.src_maps(operand(src, a))
    w = shape.kernel(operand(flt, b))
    run = windows.convolve if a.is_float else windows.convolve_exact
    return Sums(run(x, w, shape.window), product_dtype(a, b))


def same_scale(a: DType, b: DType) -> bool:
    """Whether two quantised types of one kind have the same scale but for rounding."""
    if a.kind is not b.kind or a.scale is None or b.scale is None:
        return False
    return abs(a.scale - b.scale) <= 1e-6 * max(abs(a.scale), abs(b.scale))


def finish(total: Sums, target: DType) -> Array:
    """Sums in the storage of `target`, with one rounding.

    Sums stay integers when the target is what they are; otherwise they go through float32.
    """
    if not total.dtype.is_float and (
        total.dtype.kind is target.kind is DTypeEnum.Int32
        or target.kind is DTypeEnum.Int16
        or same_scale(total.dtype, target)
    ):
        return total.values.astype(target.storage)
    if target.is_float:
        return narrow(total.real, target)
    return from_real(total.real, target)


def result(call: Call) -> DType:
    """Element type of the first output."""
    return call.output_types[0].dtype


def forward_shapes(call: Call) -> list[ShapeLike]:
    """Shape rule of (src, filter, ...)."""
    return [geometry(call.param, call.shape(0), call.shape(1)).dst_shape]


def forward_reference(call: Call, src: Array, flt: Array) -> Array:
    """Meaning of (src, filter)."""
    shape = geometry(call.param, src.shape, flt.shape)
    return shape.stored_dst(finish(sums(call, src, flt, shape), result(call)))


def _transposed(call: Call) -> Geometry:
    given = call.shape(2) if len(call.inputs) > 2 else None
    return geometry_of_gradient(call.param, call.shape(0), call.shape(1), given)


def transposed_shapes(call: Call) -> list[ShapeLike]:
    """Shape rule of (filter, diff[, src_for_shape])."""
    return [_transposed(call).src_shape]


def transposed_reference(call: Call, flt: Array, diff: Array, *_: Array) -> Array:
    """Meaning of (filter, diff[, src_for_shape]); of the third only the shape matters."""
    shape = _transposed(call)
    b, a = call.dtype(0), call.dtype(1)
    dy = shape.dst_maps(operand(diff, a))
    w = shape.kernel(operand(flt, b))
    run = windows.input_gradient if a.is_float else windows.input_gradient_exact
    total = Sums(run(dy, w, shape.window, shape.sizes), product_dtype(a, b))
    return shape.stored_src(finish(total, result(call)))
