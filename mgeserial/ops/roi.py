"""Regions of images brought to a fixed size: ROIAlign, ROIPooling and their gradients.

Regions are rows (image, x0, y0, x1, y1) in float32.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import INT32, Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Shape, ShapeLike
from mgeserial.ops.imaging import Float32, as_values
from mgeserial.ops.numerics import narrow, rhaz
from mgeserial.ops.operands import as_index, dims, ruled_shape
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need
from mgeserial.ops.sampling import (
    Border,
    Index,
    Points,
    bilinear,
    chunks,
    interpolate,
    scatter,
    whole,
)

# A region is sampled in one piece.
_MOST_SAMPLES = 1 << 22


def _value_and_index(call: Call) -> list[DType]:
    need(call.dtype(0).is_float, f"images must be of floating type, got {call.dtype(0)}")
    return [call.dtype(0), INT32]


def _check_regions(call: Call, images: int, regions: int) -> None:
    shape, given = call.shape(images), call.shape(regions)
    need(len(shape) == 4, f"images (n, c, h, w) are needed, got shape {shape}")
    need(min(shape[2:]) > 0, f"images of shape {shape} have no pixels")
    need(
        len(given) == 2 and given[1] == 5,
        f"regions must have shape (m, 5), got {given}",
    )


def _images(regions: Array, count: int) -> Index:
    """Image of each region.

    Raises:
        ShapeError: There is no such image.
    """
    found = whole(regions[:, 0].astype(np.float32))
    if found.size:
        low, high = int(found.min()), int(found.max())
        wrong = low if low < 0 else high
        need(low >= 0 and high < count, f"a region asks for image {wrong} of {count}")
    return found


# ROIAlign


def _align_dims(call: Call, images: int, regions: int) -> Shape:
    if call.param.format != P.ConvolutionFormat.NCHW:
        raise UnsupportedError(f"ROIAlign needs format NCHW, got {call.param.format}")
    _check_regions(call, images, regions)
    param = call.param
    sizes = (param.pooled_height, param.pooled_width, param.sample_height, param.sample_width)
    need(min(sizes) > 0, f"pooled and sample sizes must be above zero, got {sizes}")
    need(math.prod(sizes) <= _MOST_SAMPLES, f"{math.prod(sizes)} samples a region are too many")
    return (call.shape(regions)[0], call.shape(images)[1], *sizes[:2])


def _align_shapes(call: Call) -> list[ShapeLike]:
    return [_align_dims(call, 0, 1)] * 2


def _align_lines(low: Float32, high: Float32, bins: int, samples: int) -> Float32:
    """Sample coordinates (m, bins * samples) of regions low..high along one axis."""
    step = np.maximum(high - low, np.float32(0)) / np.float32(bins)
    inner = (np.arange(samples, dtype=np.float32) + np.float32(0.5)) / np.float32(samples)
    start = low[:, None] + np.arange(bins, dtype=np.float32) * step[:, None]
    found: Float32 = start[:, :, None] + inner * step[:, None, None]
    return found.reshape(low.shape[0], bins * samples)


def _align_points(call: Call, regions: Float32, shape: Shape) -> Points:
    """Samples in the order region, row of bins, row of samples, column of bins, of samples."""
    param = call.param
    box = regions[:, 1:] * np.float32(param.spatial_scale) - np.float32(param.offset)
    y = _align_lines(box[:, 1], box[:, 3], param.pooled_height, param.sample_height)
    x = _align_lines(box[:, 0], box[:, 2], param.pooled_width, param.sample_width)
    m, rows, columns = y.shape[0], y.shape[1], x.shape[1]
    full = (m, rows, columns)
    ys = np.broadcast_to(y[:, :, None], full).reshape(-1)
    xs = np.broadcast_to(x[:, None, :], full).reshape(-1)
    image = np.repeat(_images(regions, shape[0]), rows * columns)
    taps = bilinear(ys, shape[2], Border.CONSTANT), bilinear(xs, shape[3], Border.CONSTANT)
    return Points(image, *taps, (shape[2], shape[3]))


def _roi_align(call: Call, source: Array, regions: Array) -> tuple[Array, Array]:
    param, dtype = call.param, call.dtype(0)
    values, boxes = as_values(source, dtype), as_values(regions, call.dtype(1))
    ph, pw, sh, sw = (
        param.pooled_height, param.pooled_width, param.sample_height, param.sample_width
    )  # fmt: skip
    m, c = boxes.shape[0], values.shape[1]
    y = np.empty((m, c, ph, pw), np.float32)
    index = np.zeros((m, c, ph, pw), np.int32)
    for part in chunks(m, 16 * ph * pw * sh * sw * c):
        mixed = interpolate(values, _align_points(call, boxes[part], values.shape))
        bins = mixed.reshape(-1, ph, sh, pw, sw, c).transpose(0, 5, 1, 3, 2, 4)
        samples = bins.reshape(*bins.shape[:4], sh * sw)
        if param.mode == P.ROIAlignV0Mode.AVERAGE:
            y[part] = samples.mean(axis=-1, dtype=np.float64)
        else:
            y[part], index[part] = samples.max(axis=-1), samples.argmax(axis=-1)
    return narrow(y, dtype), index


def _align_backward_shapes(call: Call) -> list[ShapeLike]:
    wanted = _align_dims(call, 1, 2)
    for place in (0, 3):
        need(
            call.shape(place) == wanted,
            f"input {place} must have shape {wanted}, got {call.shape(place)}",
        )
    return [call.shape(1)]


def _roi_align_backward(
    call: Call, diff: Array, source: Array, regions: Array, index: Array
) -> Array:
    param, dtype = call.param, call.dtype(0)
    gradient, boxes = as_values(diff, dtype), as_values(regions, call.dtype(2))
    ph, pw, sh, sw = (
        param.pooled_height, param.pooled_width, param.sample_height, param.sample_width
    )  # fmt: skip
    c = source.shape[1]
    total = np.zeros(source.shape)
    for part in chunks(boxes.shape[0], 24 * ph * pw * sh * sw * c):
        each = gradient[part][..., None]
        if param.mode == P.ROIAlignV0Mode.AVERAGE:
            samples = np.broadcast_to(each / np.float32(sh * sw), (*each.shape[:4], sh * sw))
        else:
            samples = np.where(index[part][..., None] == np.arange(sh * sw), each, np.float32(0))
        bins = samples.reshape(*each.shape[:4], sh, sw).transpose(0, 2, 4, 3, 5, 1)
        points = _align_points(call, boxes[part], source.shape)
        total += scatter(bins.reshape(-1, c), points, source.shape[0])
    return narrow(total, dtype)


# ROIPooling


def _pooling_shapes(call: Call) -> list[ShapeLike]:
    _check_regions(call, 0, 1)
    h, w = dims(call, 2, count=2) or (None, None)
    need(h != 0 and w != 0, f"regions cannot be pooled to {h} x {w}")
    return [(call.shape(1)[0], call.shape(0)[1], h, w)] * 2


def _bins(low: Float32, high: Float32, bins: int, size: int) -> tuple[Index, Index]:
    """First and end pixel (m, bins) of the bins of regions low..high along one axis."""
    first, last = whole(rhaz(low)), whole(rhaz(high))
    length = np.maximum(last - first + 1, 1).astype(np.float32)
    step = length[:, None] / np.float32(bins)
    place = np.arange(bins, dtype=np.float32)
    start = np.floor(place * step).astype(np.intp) + first[:, None]
    end = np.ceil((place + 1) * step).astype(np.intp) + first[:, None]
    return np.clip(start, 0, size), np.clip(end, 0, size)


def _pooling_bins(
    call: Call, regions: Float32, out: tuple[int, int], size: tuple[int, int]
) -> tuple[Index, Index, Index, Index]:
    """Rows y0, y1 (m, h) and columns x0, x1 (m, w) of all bins."""
    box = regions[:, 1:] * np.float32(call.param.scale)
    y0, y1 = _bins(box[:, 1], box[:, 3], out[0], size[0])
    x0, x1 = _bins(box[:, 0], box[:, 2], out[1], size[1])
    return y0, y1, x0, x1


def _roi_pooling(
    call: Call, source: Array, regions: Array, out_shape: Array
) -> tuple[Array, Array]:
    dtype, wanted = call.dtype(0), ruled_shape(call, source, regions, out_shape)
    values, boxes = as_values(source, dtype), as_values(regions, call.dtype(1))
    n, c, h, w = values.shape
    image = _images(boxes, n)
    y, index = np.zeros(wanted, np.float32), np.full(wanted, -1, np.int32)
    pool = _means if call.param.mode == P.ROIPoolingMode.AVERAGE else _largest
    for part in chunks(boxes.shape[0], 24 * c * h * max(w, wanted[3])):
        spans = _pooling_bins(call, boxes[part], (wanted[2], wanted[3]), (h, w))
        y[part], index[part] = pool(values, image[part], spans)
    return narrow(y, dtype), index


def _largest(
    values: Float32, image: Index, spans: tuple[Index, Index, Index, Index]
) -> tuple[Float32, npt.NDArray[np.int32]]:
    """Largest value (m, c, oh, ow) of each bin and its flat position; empty: 0 and -1.

    Along each row first, then over the rows: of equal values the first in row-major order wins.
    """
    y0, y1, x0, x1 = spans
    w = values.shape[3]
    rows = values[image].transpose(2, 0, 3, 1)  # (h, m, w, c)
    picked = np.arange(rows.shape[1])[:, None]
    best = np.full((rows.shape[0], *x0.shape, rows.shape[3]), -np.inf, np.float32)
    column = np.full(best.shape, -1, np.int32)
    for step in range(int(np.max(x1 - x0, initial=0))):
        x = np.minimum(x0 + step, w - 1)
        found = np.where((x0 + step < x1)[:, :, None], rows[:, picked, x], -np.inf)
        better = found > best
        best = np.where(better, found, best).astype(np.float32)
        column = np.where(better, x[:, :, None], column).astype(np.int32)
    m, oh = y0.shape
    result = np.full((m, oh, *best.shape[2:]), -np.inf, np.float32)
    index = np.full(result.shape, -1, np.int32)
    for step in range(int(np.max(y1 - y0, initial=0))):
        y = np.minimum(y0 + step, rows.shape[0] - 1)
        found, at = best[y, picked], column[y, picked]
        better = (found > result) & (y0 + step < y1)[:, :, None, None]
        result = np.where(better, found, result).astype(np.float32)
        index = np.where(better, y[:, :, None, None] * w + at, index).astype(np.int32)
    result = np.where(index < 0, np.float32(0), result)
    return result.transpose(0, 3, 1, 2), index.transpose(0, 3, 1, 2)


def _means(
    values: Float32, image: Index, spans: tuple[Index, Index, Index, Index]
) -> tuple[Float32, npt.NDArray[np.int32]]:
    """Mean (m, c, oh, ow) of each bin, 0 when empty; positions are not defined: -1."""
    y0, y1, x0, x1 = spans
    sums = np.zeros((*values.shape[:2], values.shape[2] + 1, values.shape[3] + 1))
    sums[:, :, 1:, 1:] = values.astype(np.float64).cumsum(axis=2).cumsum(axis=3)
    at = sums.transpose(0, 2, 3, 1)
    which = image[:, None, None]
    rows = y0[:, :, None], y1[:, :, None]
    columns = x0[:, None, :], x1[:, None, :]
    total = (
        at[which, rows[1], columns[1]]
        - at[which, rows[0], columns[1]]
        - at[which, rows[1], columns[0]]
        + at[which, rows[0], columns[0]]
    )
    count = np.maximum(rows[1] - rows[0], 0) * np.maximum(columns[1] - columns[0], 0)
    mean = np.where(count[..., None] > 0, total / np.maximum(count, 1)[..., None], 0.0)
    found = mean.astype(np.float32).transpose(0, 3, 1, 2)
    return found, np.full(found.shape, -1, np.int32)


def _pooling_backward_shapes(call: Call) -> list[ShapeLike]:
    _check_regions(call, 1, 2)
    diff = call.shape(0)
    need(
        len(diff) == 4 and diff[:2] == (call.shape(2)[0], call.shape(1)[1]),
        f"the gradient {diff} does not fit {call.shape(2)[0]} regions of images {call.shape(1)}",
    )
    need(call.shape(3) == diff, f"the index must have shape {diff}, got {call.shape(3)}")
    return [call.shape(1)]


def _roi_pooling_backward(
    call: Call, diff: Array, source: Array, regions: Array, index: Array
) -> Array:
    dtype = call.dtype(0)
    gradient, boxes = as_values(diff, dtype), as_values(regions, call.dtype(2))
    n, c, h, w = source.shape
    image = _images(boxes, n)
    gradient = np.where(_proper(call, boxes)[:, None, None, None], gradient, np.float32(0))
    if call.param.mode == P.ROIPoolingMode.AVERAGE:
        spans = _pooling_bins(call, boxes, diff.shape[2:], (h, w))
        return narrow(_spread_means(gradient, image, spans, source.shape), dtype)
    position = as_index(index)
    used = position >= 0
    need(not used.any() or int(position.max()) < h * w, "the index is outside the image")
    total = np.zeros((n, c, h * w))
    m, channel, _, _ = np.nonzero(used)
    np.add.at(total, (image[m], channel, position[used]), gradient[used])
    return narrow(total.reshape(source.shape), dtype)


def _proper(call: Call, regions: Float32) -> npt.NDArray[np.bool_]:
    """Which regions end after they begin; the others are pooled as one pixel, but get no gradient.

    Source: asked of MegEngine 1.13.0.
    """
    corners = rhaz(regions[:, 1:] * np.float32(call.param.scale))
    return np.asarray((corners[:, 2] >= corners[:, 0]) & (corners[:, 3] >= corners[:, 1]))


def _spread_means(
    gradient: Float32, image: Index, spans: tuple[Index, Index, Index, Index], shape: Shape
) -> npt.NDArray[np.float64]:
    """Gradients of means, as differences at the corners of the bins that are then summed up."""
    y0, y1, x0, x1 = spans
    n, c, h, w = shape
    rows, columns = (y0[:, :, None], y1[:, :, None]), (x0[:, None, :], x1[:, None, :])
    count = np.maximum(rows[1] - rows[0], 0) * np.maximum(columns[1] - columns[0], 0)
    each = gradient.transpose(0, 2, 3, 1) / np.maximum(count, 1)[..., None].astype(np.float64)
    each = np.where(count[..., None] > 0, each, 0.0)
    corners = np.zeros((n, h + 1, w + 1, c))
    which = image[:, None, None]
    for y, x, sign in ((0, 0, 1), (0, 1, -1), (1, 0, -1), (1, 1, 1)):
        np.add.at(corners, (which, rows[y], columns[x]), sign * each)
    total = corners.cumsum(axis=1).cumsum(axis=2)[:, :h, :w]
    return np.asarray(total.transpose(0, 3, 1, 2))


ROI_ALIGN = register(
    OpSpec(
        name="ROIAlign",
        runtime_name="ROIAlignForward",
        names=(
            Name("ROIAlign", "v0.3.1", 4519579229346339379, until="v1.2.0"),
            Name("ROIAlignV1", "v1.3.0", 8505717436424151153),
        ),
        old_id=9748224881588153795,
        v2=(V2Id("ROIAlignV1", 1, 9748224881588153795),),
        params=(P.ROIAlign,),
        inputs=("src", "rois"),
        outputs=("dst", "index"),
        output_count=2,
        dtypes=_value_and_index,
        shapes=_align_shapes,
        reference=_roi_align,
        source="semantics section 10, operators.json",
    )
)

ROI_ALIGN_BACKWARD = register(
    OpSpec(
        name="ROIAlignBackward",
        runtime_name="ROIAlignBackward",
        names=(
            Name("ROIAlignBackward", "v0.3.1", 15525152254302464307, until="v1.2.0"),
            Name("ROIAlignBackwardV1", "v1.3.0", 5726539317058003271),
        ),
        old_id=10738715206676276898,
        v2=(V2Id("ROIAlignBackwardV1", 1, 10738715206676276898),),
        params=(P.ROIAlign,),
        inputs=("diff", "src", "rois", "index"),
        dtypes=dtype_of(0),
        shapes=_align_backward_shapes,
        reference=_roi_align_backward,
        source="adjoint of ROIAlign; operators.json",
    )
)

ROI_POOLING = register(
    OpSpec(
        name="ROIPooling",
        runtime_name="ROIPoolingForward",
        names=(Name("ROIPooling", "v0.3.1", 8650335971001880726),),
        old_id=11499575622644166993,
        v2=(V2Id("ROIPooling", 1, 11499575622644166993),),
        params=(P.ROIPooling,),
        inputs=("src", "rois", "out_shape"),
        outputs=("dst", "argmax"),
        output_count=2,
        dtypes=_value_and_index,
        shapes=_pooling_shapes,
        reference=_roi_pooling,
        source="semantics section 10, operators.json",
    )
)

ROI_POOLING_BACKWARD = register(
    OpSpec(
        name="ROIPoolingBackward",
        runtime_name="ROIPoolingBackward",
        names=(Name("ROIPoolingBackward", "v0.3.1", 11449337228882832106),),
        old_id=7898184470633738587,
        v2=(V2Id("ROIPoolingBackward", 1, 7898184470633738587),),
        params=(P.ROIPooling,),
        inputs=("diff", "src", "rois", "index"),
        dtypes=dtype_of(0),
        shapes=_pooling_backward_shapes,
        reference=_roi_pooling_backward,
        source="adjoint of ROIPooling; operators.json",
    )
)
