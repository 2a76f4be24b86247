"""Gradients of regions of images brought to a fixed size."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import roigrad as kernels
from loadrun.backends.cpu.kernels.giving import Blocks
from loadrun.backends.cpu.kernels.roi import Moving, Regions
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.rules.index import need_indices, need_positions
from loadrun.backends.cpu.rules.product import view
from loadrun.backends.cpu.target import Target, detect
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.psroi import DEFORMABLE_PSROI_POOLING_BACKWARD
from mgeserial.ops.roi import ROI_ALIGN_BACKWARD, ROI_POOLING_BACKWARD

Size = tuple[int, int, int, int]


def _size(low: Lowering, value: Value) -> Size:
    n, c, h, w = low.shape(value)
    need_positions((n, c, h, w))
    return n, c, h, w


def _last(low: Lowering, value: Value) -> str:
    """A tensor (a, b, h, w) as (a, h, w, b)."""
    a, b, h, w = _size(low, value)
    return view(low, low.name(value), (a, h, w, b), (b * h * w, w, 1, h * w))


def _sums(low: Lowering, shape: Shape) -> str:
    name = low.temp(shape)
    low.dtypes[name] = "float64"
    return name


def _give_images(
    low: Lowering,
    node: Node,
    value: Value,
    reads: tuple[str, ...],
    make: Callable[[Target], Kernel],
) -> None:
    """Add a kernel whose units are images times blocks, with the channels of its result last."""
    n, c, h, w = _size(low, value)
    last = low.temp((n, h, w, c))
    status = low.check(n * Blocks.of(c, detect().lanes).count)
    writes = (status, _sums(low, (n, h, w, c)), last)
    low.add(nd.Loops(low.label(node), reads, writes, "regions", make))
    steps = (h * w * c, 1, w * c, c)
    low.add(nd.View(low.unique("channels"), (last,), (low.out(value),), steps))


@lowers(ROI_ALIGN_BACKWARD)
def roi_align_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32, average and maximum of bilinear samples."""
    diff, source, regions, index = node.inputs
    low.need_float32(diff, source, regions, node.outputs[0])
    p = call.param
    maximum = p.mode != P.ROIAlignV0Mode.AVERAGE
    need_indices(low, index)
    if low.dtype_name(low.name(index)) != "int32":
        raise NotApplicable("positions that are not Int32")
    m, _, oh, ow = _size(low, diff)
    samples = (int(p.sample_height), int(p.sample_width))
    how = Regions(
        _size(low, source), m, (oh, ow), float(p.spatial_scale), maximum, float(p.offset), samples
    )
    reads = (_last(low, diff), _last(low, index), low.name(regions))
    make = functools.partial(kernels.roi_align_gradient, how)
    _give_images(low, node, node.outputs[0], reads, make)


@lowers(ROI_POOLING_BACKWARD)
def roi_pooling_gradient(low: Lowering, node: Node, call: Call) -> None:
    """float32, average and maximum of the pixels of bins."""
    diff, source, regions, index = node.inputs
    low.need_float32(diff, source, regions, node.outputs[0])
    need_indices(low, index)
    maximum = call.param.mode != P.ROIPoolingMode.AVERAGE
    n, c, h, w = _size(low, source)
    m, _, oh, ow = _size(low, diff)
    how = Regions((n, c, h, w), m, (oh, ow), float(call.param.scale), maximum)
    reads = tuple(low.name(v) for v in (diff, index, regions))
    make = functools.partial(kernels.roi_pooling_gradient, how, low.dtype_name(reads[1]))
    writes = (low.check(n * c), _sums(low, (n, c, h, w)), low.out(node.outputs[0]))
    low.add(nd.Loops(low.label(node), reads, writes, "regions", make))


@lowers(DEFORMABLE_PSROI_POOLING_BACKWARD)
def moved_gradients(low: Lowering, node: Node, call: Call) -> None:
    """float32: gradients of the images and of the offsets."""
    data, rois, trans, diff, count = node.inputs
    low.need_float32(*node.inputs, *node.outputs)
    p, (m, _, oh, ow) = call.param, _size(low, diff)
    wanted = low.shape(trans)
    need_positions(wanted)
    regions = low.name(rois)
    parts, offsets = 0, regions
    if not p.no_trans:
        parts, offsets = int(p.part_size), low.name(trans)
        if m * 2 * parts**2 > math.prod(wanted):
            raise NotApplicable("too few offsets")
    how = Regions(_size(low, data), m, (oh, ow), float(p.spatial_scale), maximum=False)
    moving = Moving(int(p.sample_per_part), parts, float(p.trans_std))
    given = (_last(low, diff), _last(low, count))
    make = functools.partial(kernels.moved_image_gradient, how, moving)
    _give_images(low, node, node.outputs[0], (regions, offsets, *given), make)
    out = low.out(node.outputs[1])
    if not parts:
        zero = low.constant(np.zeros(1, np.float32))
        low.add(nd.View(low.unique("offsets"), (zero,), (out,), (0,) * len(wanted)))
        return
    size = math.prod(wanted)
    reads = (_last(low, data), regions, offsets, *given)
    by_offset = functools.partial(kernels.moved_offset_gradient, how, moving, size)
    writes = (low.check(m), _sums(low, wanted), out)
    low.add(nd.Loops(low.label(node), reads, writes, "offsets", by_offset))
