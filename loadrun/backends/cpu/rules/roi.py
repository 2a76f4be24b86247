"""Regions of images brought to a fixed size."""

from __future__ import annotations

import functools
from collections.abc import Callable

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import roi as kernels
from loadrun.backends.cpu.kernels.roi import Regions
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.product import view
from loadrun.backends.cpu.target import Target
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
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
    label = low.label(node)
    last = view(low, x, (n, h, w, c), (c * h * w, w, 1, h * w))
    y, index = low.temp((m, oh, ow, c)), low.temp((m, oh, ow, c))
    low.dtypes[index] = "int32"
    kernel = functools.partial(make, how)
    low.add(nd.Loops(label, (last, regions), (y, index, status), "regions", kernel))
    for value, name in zip(node.outputs, (y, index), strict=True):
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
