"""Deformable pooling of regions and its gradients; the moves' parts are addressed as defined."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.expr import Builder
from loadrun.backends.cuda.linked import fill, link, name_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.psroi import DEFORMABLE_PSROI_POOLING_BACKWARD, DEFORMABLE_PSROI_POOLING_FORWARD

_MOST = (1 << 31) - 1


def _kernel(
    low: Lowering,
    node: Node,
    call: Call,
    template: str,
    params: list[nd.Param],
    items: int,
    per_block: int = 256,
) -> None:
    low.kernel(
        node, template, params, items, per_block=per_block, SAMPLE=source.text("psroi_sample"),
        PLACE=source.text("psroi_place"), MOVES=int(not call.param.no_trans),
    )  # fmt: skip


def _numbers(low: Lowering, node: Node, call: Call) -> list[nd.Param]:
    p = call.param
    return [
        *low.shape(node.inputs[0]), int(p.pooled_h), int(p.pooled_w), int(p.sample_per_part),
        int(p.part_size), float(p.spatial_scale), float(p.trans_std),
    ]  # fmt: skip


def _names(low: Lowering, node: Node, call: Call) -> list[str]:
    """Data, regions and moves; regions stand for moves that nobody reads."""
    for value in (*node.inputs[:2], *node.outputs):
        low.shape(value)
    data, rois = (low.name(v) for v in node.inputs[:2])
    if call.param.no_trans:
        return [data, rois, rois]
    low.shape(node.inputs[2])
    return [data, rois, low.name(node.inputs[2])]


def _check(node: Node) -> nd.Check:
    return nd.Check(f"{name_of(node)}: a region asks for no image")


@lowers(DEFORMABLE_PSROI_POOLING_FORWARD)
def deformable_pooling(low: Lowering, node: Node, call: Call) -> None:
    """Means of samples of moved bins, with their number."""
    names = _names(low, node, call)
    outs = [low.out(v) for v in node.outputs]
    items = math.prod(low.shape(node.outputs[0]))
    params: list[nd.Param] = [
        *map(nd.In, names), *map(nd.Out, outs), _check(node), items, *_numbers(low, node, call),
    ]  # fmt: skip
    _kernel(low, node, call, "psroi_pool", params, items)


@lowers(DEFORMABLE_PSROI_POOLING_BACKWARD)
def deformable_pooling_backward(low: Lowering, node: Node, call: Call) -> None:
    """Gradients by the image, gathered by pixel, and by the moves."""
    data, rois, trans = _names(low, node, call)
    diff, count = (low.name(v) for v in node.inputs[3:])
    shape = low.shape(node.inputs[3])
    n, channels, h, w = low.shape(node.inputs[0])
    p = call.param
    bins, samples = int(p.pooled_h * p.pooled_w), int(p.sample_per_part) ** 2
    points = shape[0] * bins * samples
    if 4 * points > _MOST:
        raise NotApplicable("more elements are read than 31 bits count")
    strides = nd.contiguous(shape)
    share = low.temp(shape)
    b = Builder()
    code = "({1} > 0.f ? {0} / greater({1}, 1.f) : 0.f)"
    result = b.op("float", code, ("i", 0), ("i", 1))
    accesses = (nd.Access(diff, strides), nd.Access(count, strides))
    low.add(nd.Pointwise(low.label(node), (share,), accesses, b.done(result)))
    numbers, check = _numbers(low, node, call), _check(node)
    keys, weights = low.temp((4 * points,), "int32", "i32"), low.temp((4 * points,))
    params: list[nd.Param] = [
        nd.In(rois), nd.In(trans), nd.Out(keys), nd.Out(weights), check, points, *numbers,
    ]  # fmt: skip
    _kernel(low, node, call, "psroi_keys", params, points)
    heads, after = link(low, node, keys, 4 * points, n * h * w)
    by_data, by_trans = (low.out(v) for v in node.outputs)
    items = n * channels * h * w
    params = [
        *map(nd.In, (heads, after, weights, share)), nd.Out(by_data), items, channels, h * w, bins,
        samples,
    ]  # fmt: skip
    low.kernel(
        node, "collect", params, items, YT="f32", INPUTS="const float *__restrict__ share,",
        SCALARS=", int bins, int samples",
        VALUE="share[((i64)(point / samples / bins) * each + (map - part * each)) * bins + "
        "point / samples % bins]",
    )  # fmt: skip
    fill(low, node, by_trans, math.prod(low.shape(node.outputs[1])), 0)
    if p.no_trans:
        return
    blocks = shape[0] * int(p.part_size) ** 2
    params = [
        *map(nd.In, (data, rois, trans, share)), nd.Out(by_trans), check, blocks, *numbers,
    ]  # fmt: skip
    _kernel(low, node, call, "psroi_slopes", params, blocks, 1)
