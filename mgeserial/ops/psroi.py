"""Deformable pooling of regions: bins are moved by offsets and averaged over samples.

Despite its name it selects no channels by position: output channels are input channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType
from mgeserial.errors import ExecutionError, UnsupportedError
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops import sampling
from mgeserial.ops.numerics import rhaz
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import need
from mgeserial.ops.sampling import Border, Points
from mgeserial.ops.windows import batches

_SOURCE = "semantics section 10, checked against MegEngine 1.13.0"
# More samples than this for one region would be a mistake, or meant to keep us busy.
_MOST_SAMPLES = 1 << 24
Float32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def _check(call: Call) -> None:
    data, rois, trans = (call.shape(k) for k in range(3))
    param = call.param
    need(
        len(data) == 4 and min(data[1:]) > 0,
        f"data needs a shape (N, C, H, W) with pixels, got {data}",
    )
    need(len(rois) == 2 and rois[1] == 5, f"rois needs a shape (M, 5), got {rois}")
    bins = (param.pooled_h, param.pooled_w, param.sample_per_part, param.part_size)
    need(min(bins) > 0, f"pooled size, samples and parts must be positive, got {bins}")
    need(
        param.pooled_h * param.pooled_w * param.sample_per_part**2 <= _MOST_SAMPLES,
        f"at most {_MOST_SAMPLES} samples for a region, got {param.pooled_h}x{param.pooled_w} "
        f"bins of {param.sample_per_part}x{param.sample_per_part}",
    )
    if not param.no_trans:
        need(
            trans == (rois[0], 2, param.pooled_h, param.pooled_w),
            f"trans needs a shape {(rois[0], 2, param.pooled_h, param.pooled_w)}, got {trans}",
        )
        need(
            param.part_size**2 <= param.pooled_h * param.pooled_w,
            f"trans has no room for {param.part_size}x{param.part_size} parts",
        )


def _dtypes(call: Call) -> list[DType]:
    names = {t.dtype.name for t in call.inputs}
    if names != {"Float32"}:
        raise UnsupportedError(f"{call.op.name} needs Float32, got {sorted(names)}")
    return [FLOAT32] * call.count


def _shapes(call: Call) -> list[ShapeLike]:
    _check(call)
    param = call.param
    shape = (call.shape(1)[0], call.shape(0)[1], int(param.pooled_h), int(param.pooled_w))
    return [shape, shape]


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of some regions, (m * PH * PW * S * S,) points.

    Attributes:
        points: Where they read.
        counted: (m, PH, PW, S * S) whether they lie in the image.
        number: (m, PH, PW) how many do.
        width, height: (m,) sizes of the regions.
        part: (PH, PW) index of the offset of a bin within part_size x part_size.
    """

    points: Points
    counted: Mask
    number: npt.NDArray[np.intp]
    width: Float32
    height: Float32
    part: npt.NDArray[np.intp]


def _samples(call: Call, rois: Float32, trans: Float32, size: tuple[int, int]) -> _Samples:
    """Samples of these regions; `trans` is flat, (m, 2, part_size * part_size)."""
    param = call.param
    ph, pw, spp = int(param.pooled_h), int(param.pooled_w), int(param.sample_per_part)
    corner = rhaz(rois[:, 1:])
    scale = np.float32(param.spatial_scale)
    half, least = np.float32(0.5), np.float32(0.1)
    left, top = (corner[:, k] * scale - half for k in (0, 1))
    right, bottom = ((corner[:, k] + 1) * scale - half for k in (2, 3))
    width, height = np.maximum(right - left, least), np.maximum(bottom - top, least)
    rows, cols = (
        np.floor(np.arange(n, dtype=np.float32) / np.float32(n) * param.part_size).astype(np.intp)
        for n in (ph, pw)
    )
    part = rows[:, None] * int(param.part_size) + cols
    axes = []
    for axis, (start, extent, bins, length) in enumerate(
        ((top, height, ph, size[0]), (left, width, pw, size[1]))
    ):
        each = extent / np.float32(bins)
        # trans holds the move along x first.
        moved = trans[:, 1 - axis][:, part] * np.float32(param.trans_std) * extent[:, None, None]
        place = np.arange(bins, dtype=np.float32)
        place = place[:, None] if axis == 0 else place[None, :]
        first = start[:, None, None] + place * each[:, None, None] + moved
        step = np.arange(spp, dtype=np.float32) * (each / np.float32(spp))[:, None]
        axes.append((first[..., None] + step[:, None, None, :], length))
    (y, h), (x, w) = axes
    y, x = np.broadcast_arrays(y[..., :, None], x[..., None, :])
    counted = (y >= -0.5) & (y <= h - 0.5) & (x >= -0.5) & (x <= w - 0.5)
    taps = [
        sampling.bilinear(
            np.where(counted, np.clip(a, 0, n - 1), 0).reshape(-1).astype(np.float32),
            n,
            Border.REPLICATE,
        )
        for a, n in ((y, h), (x, w))
    ]
    image = np.repeat(rois[:, 0].astype(np.intp), ph * pw * spp * spp)
    counted = counted.reshape(-1, ph, pw, spp * spp)
    return _Samples(
        Points(image, taps[0], taps[1], size), counted, counted.sum(axis=3), width, height, part
    )


def _regions(call: Call, arrays: tuple[Array, ...]) -> Iterator[tuple[slice, _Samples]]:
    """Samples of a few regions at a time."""
    data, rois, trans = (np.asarray(a, np.float32) for a in arrays[:3])
    param = call.param
    n, c, h, w = data.shape
    if not np.isin(rois[:, 0], np.arange(n)).all():
        raise ExecutionError(f"rois name images outside of 0..{n - 1}: {rois[:, 0]}")
    parts = int(param.part_size) ** 2
    flat = np.zeros((len(rois), 2, parts), np.float32)
    if not param.no_trans:
        # Addressed as if its last axes were part_size x part_size, whatever its shape says.
        flat = trans.reshape(-1)[: flat.size].reshape(flat.shape)
    samples = int(param.pooled_h * param.pooled_w * param.sample_per_part**2)
    for part in batches(8 * samples * (c + 8), len(rois)):
        yield part, _samples(call, rois[part], flat[part], (h, w))


def _reference(call: Call, *arrays: Array) -> tuple[Array, ...]:
    _check(call)
    data = np.asarray(arrays[0], np.float32)
    shape = (arrays[1].shape[0], data.shape[1], call.param.pooled_h, call.param.pooled_w)
    result, count = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for part, found in _regions(call, arrays):
        values = sampling.interpolate(data, found.points)
        values = values.reshape(*found.counted.shape, -1) * found.counted[..., None]
        mean = values.sum(axis=3) / np.maximum(found.number, 1)[..., None]
        result[part] = mean.transpose(0, 3, 1, 2)
        count[part] = found.number[:, None]
    return result, count


def _back_shapes(call: Call) -> list[ShapeLike]:
    [shape, _] = _shapes(call)
    for k in (3, 4):
        need(
            call.shape(k) == shape,
            f"{call.op.input_names[k]} has shape {call.shape(k)}, but pooling gives {shape}",
        )
    return [call.shape(0), call.shape(2)]


def _back_reference(call: Call, *arrays: Array) -> tuple[Array, ...]:
    _check(call)
    param = call.param
    data, diff, count = (np.asarray(arrays[k], np.float32) for k in (0, 3, 4))
    share = np.where(count > 0, diff / np.maximum(count, 1), np.float32(0))
    by_data = np.zeros(data.shape)
    by_trans = np.zeros((len(arrays[1]), 2, int(param.part_size) ** 2))
    for part, found in _regions(call, arrays):
        each = share[part].transpose(0, 2, 3, 1)[..., None, :] * found.counted[..., None]
        flat = each.reshape(-1, data.shape[1])
        by_data += sampling.scatter(flat, found.points, data.shape[0])
        if param.no_trans:
            continue
        slopes = sampling.slopes(data, flat, found.points)
        taps = (found.points.y, found.points.x)
        for axis, (slope, tap) in enumerate(zip(slopes, taps, strict=True)):
            # On a pixel both taps are the same one: no slope.
            between = slope * (tap.weight[:, 1] != 0)
            extent = found.height if axis == 0 else found.width
            by_bin = between.reshape(found.counted.shape).sum(axis=3) * extent[:, None, None]
            for bins, index in zip(by_bin.reshape(len(extent), -1).T, found.part.flat, strict=True):
                by_trans[part, 1 - axis, index] += bins * param.trans_std
    moved = np.zeros(arrays[2].size)
    if not param.no_trans:
        moved[: by_trans.size] = by_trans.reshape(-1)
    return by_data.astype(np.float32), moved.astype(np.float32).reshape(arrays[2].shape)


DEFORMABLE_PSROI_POOLING_FORWARD = register(
    OpSpec(
        name="DeformablePSROIPoolingForward",
        runtime_name="DeformablePSROIPoolingForward",
        names=(Name("DeformablePSROIPoolingForward", "v0.3.1", 15815594817998156736),),
        old_id=3465573809365759356,
        v2=(V2Id("DeformablePSROIPoolingForward", 1, 3465573809365759356),),
        params=(P.DeformablePSROIPooling,),
        inputs=("data", "rois", "trans"),
        outputs=("out", "out_count"),
        output_count=2,
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_reference,
        source=_SOURCE,
    )
)

DEFORMABLE_PSROI_POOLING_BACKWARD = register(
    OpSpec(
        name="DeformablePSROIPoolingBackward",
        runtime_name="DeformablePSROIPoolingBackward",
        names=(Name("DeformablePSROIPoolingBackward", "v0.3.1", 14446203659294951529),),
        old_id=16193483768192678153,
        v2=(V2Id("DeformablePSROIPoolingBackward", 1, 16193483768192678153),),
        params=(P.DeformablePSROIPooling,),
        inputs=("data", "rois", "trans", "out_diff", "out_count"),
        outputs=("data", "trans"),
        output_count=2,
        dtypes=_dtypes,
        shapes=_back_shapes,
        reference=_back_reference,
        source=_SOURCE,
    )
)
