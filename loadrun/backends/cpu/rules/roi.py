"""Regions of images brought to a fixed size."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import roi as kernels
from loadrun.backends.cpu.kernels.roi import Moving, Regions
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.product import view
from loadrun.backends.cpu.target import Target
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.psroi import DEFORMABLE_PSROI_POOLING_FORWARD
from mgeserial.ops.roi import ROI_ALIGN, ROI_POOLING


def _add(
    low: Lowering,
    node: Node,
    make: Callable[[Regions, Target], Kernel],
    *,
    scale: float,
    maximum: bool,
    offset: float = 0.0,
    samples: tuple[int, int] = (1, 1),
) -> None:
    low.need_float32(*node.inputs[:2], node.outputs[0])
    if len(node.outputs) != 2:
        raise NotApplicable("an unexpected number of outputs")
    n, c, h, w = low.shape(node.inputs[0])
    m, c, oh, ow = low.shape(node.outputs[0])
    low.shape(node.outputs[1])
    need_positions((n, c, h, w), (m, c, oh, ow))
    x, regions = low.name(node.inputs[0]), low.name(node.inputs[1])
    how = Regions((n, c, h, w), m, (oh, ow), scale, maximum, offset, samples)
    status = low.check(m * oh)
    y, index = low.temp((m, oh, ow, c)), low.temp((m, oh, ow, c))
    low.dtypes[index] = "int32"
    _add_regions(
        low, node, (x, regions), (y, index, status), (n, c, h, w), functools.partial(make, how)
    )


def _add_regions(
    low: Lowering,
    node: Node,
    reads: tuple[str, ...],
    writes: tuple[str, str, str],
    size: tuple[int, int, int, int],
    make: Callable[[Target], Kernel],
) -> None:
    """Add a kernel that takes images and gives both results with the channels last."""
    n, c, h, w = size
    last = view(low, reads[0], (n, h, w, c), (c * h * w, w, 1, h * w))
    low.add(nd.Loops(low.label(node), (last, *reads[1:]), writes, "regions", make))
    for value, name in zip(node.outputs, writes[:2], strict=True):
        _, oh, ow, _ = low.shapes[name]
        out = low.out(value)
        steps = (oh * ow * c, 1, ow * c, c)
        low.add(nd.View(low.unique("channels"), (name,), (out,), steps))


@lowers(ROI_ALIGN)
def roi_align(low: Lowering, node: Node, call: Call) -> None:
    """float32, average and maximum of bilinear samples."""
    p = call.param
    _add(
        low,
        node,
        kernels.roi_align,
        scale=float(p.spatial_scale),
        maximum=p.mode != P.ROIAlignV0Mode.AVERAGE,
        offset=float(p.offset),
        samples=(int(p.sample_height), int(p.sample_width)),
    )


@lowers(ROI_POOLING)
def roi_pooling(low: Lowering, node: Node, call: Call) -> None:
    """float32, average and maximum of the pixels of bins."""
    maximum = call.param.mode != P.ROIPoolingMode.AVERAGE
    _add(low, node, kernels.roi_pooling, scale=float(call.param.scale), maximum=maximum)


@lowers(DEFORMABLE_PSROI_POOLING_FORWARD)
def moved_pooling(low: Lowering, node: Node, call: Call) -> None:
    """float32, with and without offsets."""
    p = call.param
    low.need_float32(*node.inputs, *node.outputs)
    n, c, h, w = low.shape(node.inputs[0])
    m, _, oh, ow = low.shape(node.outputs[0])
    need_positions((n, c, h, w), (m, c, oh, ow))
    low.shape(node.outputs[1])
    x, regions = low.name(node.inputs[0]), low.name(node.inputs[1])
    parts, offsets = 0, regions
    if not p.no_trans:
        parts, offsets = int(p.part_size), low.name(node.inputs[2])
        if m * 2 * parts**2 > math.prod(low.shape(node.inputs[2])):
            raise NotApplicable("too few offsets")
    how = Regions((n, c, h, w), m, (oh, ow), float(p.spatial_scale), maximum=False)
    moving = Moving(int(p.sample_per_part), parts, float(p.trans_std))
    make = functools.partial(kernels.moved_pooling, how, moving)
    status = low.check(m * oh)
    writes = (low.temp((m, oh, ow, c)), low.temp((m, oh, ow, c)), status)
    _add_regions(low, node, (x, regions, offsets), writes, (n, c, h, w), make)
