"""Regions of images brought to a fixed size."""

from __future__ import annotations

import math
from typing import Any

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.linked import link, name_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.roi import (
    ROI_ALIGN,
    ROI_ALIGN_BACKWARD,
    ROI_POOLING,
    ROI_POOLING_BACKWARD,
)


def _check(node: Node) -> nd.Check:
    return nd.Check(f"{name_of(node)}: a region asks for no image")


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
    check = _check(node)
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


def _gradient(low: Lowering, node: Node) -> dict[str, Any]:
    """Check the inputs (gradients, images, regions, index); types of kernels."""
    diff, _, regions, index = node.inputs
    low.need_float(diff, regions)
    for value in (diff, regions, index, *node.outputs):
        low.shape(value)
    return {"RT": c_type(low.dtype(regions))}


@lowers(ROI_ALIGN_BACKWARD)
def roi_align_backward(low: Lowering, node: Node, call: Call) -> None:
    """Each pixel gathers from the samples that read it."""
    fields = _gradient(low, node)
    diff, _, regions, index = node.inputs
    p = call.param
    n, c, h, w = low.shape(node.outputs[0])
    m, bins = low.shape(regions)[0], int(p.pooled_height) * int(p.pooled_width)
    each = int(p.sample_height) * int(p.sample_width)
    samples = m * bins * each
    keys, weights = low.temp((samples * 4,), "int32", "i32"), low.temp((samples * 4,))
    params: list[nd.Param] = [
        nd.In(low.name(regions)), nd.Out(keys), nd.Out(weights), _check(node), samples, n, h, w,
        int(p.pooled_height), int(p.pooled_width), int(p.sample_height), int(p.sample_width),
        float(p.spatial_scale), float(p.offset),
    ]  # fmt: skip
    low.kernel(node, "roi_align_taps", params, samples, **fields)
    heads, after = link(low, node, keys, samples * 4, n * h * w)
    items = n * c * h * w
    dy, places = low.name(diff), low.name(index)
    dx = low.out(node.outputs[0])
    params = [
        nd.In(dy), nd.In(places), nd.In(heads), nd.In(after), nd.In(weights), nd.Out(dx), items,
        c, h * w, bins, each,
    ]  # fmt: skip
    mean = p.mode == P.ROIAlignV0Mode.AVERAGE
    share = "widen(dy[at]) / (float)samples" if mean else "index[at] == s ? widen(dy[at]) : 0.f"
    kinds: dict[str, Any] = {
        "GT": low.tensors[dy].ctype, "YT": low.tensors[dx].ctype, "SHARE": share
    }  # fmt: skip
    low.kernel(node, "roi_align_back", params, items, **kinds)


_ADDED = """double acc = 0;
  for (int j = heads[row]; j >= 0; j = next[j]) acc += (double)widen(value[j * inner + e]);
  narrow(y[i], (float)acc);"""


@lowers(ROI_POOLING_BACKWARD)
def roi_pooling_backward(low: Lowering, node: Node, call: Call) -> None:
    """Each pixel gathers from the bins it is the largest of, or that it is in."""
    fields = _gradient(low, node)
    diff, _, regions, index = node.inputs
    n, c, h, w = low.shape(node.outputs[0])
    m, _, oh, ow = low.shape(diff)
    items, scale = n * c * h * w, float(call.param.scale)
    dy, boxes, places = low.name(diff), low.name(regions), low.name(index)
    if call.param.mode == P.ROIPoolingMode.AVERAGE:
        dx = low.out(node.outputs[0])
        params: list[nd.Param] = [
            nd.In(dy), nd.In(boxes), nd.Out(dx), _check(node), items, n, c, h, w, m, oh, ow, scale
        ]  # fmt: skip
        fields |= {"GT": low.tensors[dy].ctype, "YT": low.tensors[dx].ctype}
        low.kernel(node, "roi_pool_back", params, items, **fields)
        return
    entries = m * c * oh * ow
    keys = low.temp((entries,), "int32", "i32")
    outside = nd.Check(f"{name_of(node)}: the index is outside the image")
    params = [
        nd.In(boxes), nd.In(places), nd.Out(keys), _check(node), outside, entries, n, c, h * w,
        oh * ow, scale,
    ]  # fmt: skip
    low.kernel(node, "roi_pool_keys", params, entries, **fields)
    heads, after = link(low, node, keys, entries, items)
    dx = low.out(node.outputs[0])
    params = [nd.In(dy), nd.In(heads), nd.In(after), nd.Out(dx), items, 1]
    kind = low.tensors[dy].ctype
    kinds: dict[str, Any] = {"SOURCE": "", "XT": kind, "BODY": _ADDED, "WHAT": "sums"}
    low.kernel(node, "put", params, items, stem="roi_pool_sum", **kinds)
