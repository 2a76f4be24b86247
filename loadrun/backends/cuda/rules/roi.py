"""Regions of images brought to a fixed size."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.roi import ROI_ALIGN, ROI_POOLING


def _regions(
    low: Lowering,
    node: Node,
    call: Call,
    stem: str,
    maximum: bool,
    sizes: tuple[int | float, ...],
) -> None:
    low.need_float(node.inputs[0], node.inputs[1])
    for value in (*node.inputs[:2], *node.outputs):
        low.shape(value)
    if len(node.outputs) != 2:
        raise NotApplicable("an unexpected number of outputs")
    n, c, h, w = low.shape(node.inputs[0])
    items = math.prod(low.shape(node.outputs[0]))
    x, regions = low.name(node.inputs[0]), low.name(node.inputs[1])
    outs = (low.out(node.outputs[0]), low.out(node.outputs[1]))
    fields = (
        ("XT", c_type(call.dtype(0))), ("RT", c_type(call.dtype(1))),
        ("MAXIMUM", str(int(maximum))),
    )  # fmt: skip
    check = nd.Check(f"{node.display_name or node.op.name}: a region asks for no image")
    params: tuple[nd.Param, ...] = (
        nd.In(x), nd.In(regions), nd.Out(outs[0]), nd.Out(outs[1]), check, items, n, c, h, w,
        *sizes,
    )  # fmt: skip
    low.add(nd.Custom(low.label(node), outs, stem, fields, params, items, stem=stem))


@lowers(ROI_ALIGN)
def roi_align(low: Lowering, node: Node, call: Call) -> None:
    """Average and maximum of bilinear samples."""
    p = call.param
    sizes = (
        int(p.pooled_height), int(p.pooled_width), int(p.sample_height), int(p.sample_width),
        float(p.spatial_scale), float(p.offset),
    )  # fmt: skip
    _regions(low, node, call, "roi_align", p.mode != P.ROIAlignV0Mode.AVERAGE, sizes)


@lowers(ROI_POOLING)
def roi_pooling(low: Lowering, node: Node, call: Call) -> None:
    """Average and maximum of the pixels of bins."""
    _, _, oh, ow = low.shape(node.outputs[0])
    maximum = call.param.mode != P.ROIPoolingMode.AVERAGE
    _regions(low, node, call, "roi_pool", maximum, (oh, ow, float(call.param.scale)))
