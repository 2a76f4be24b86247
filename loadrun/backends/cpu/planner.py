"""From nodes to a plan: fusion, halos, then each node's steps in order, and bands."""

from __future__ import annotations

import functools
from collections.abc import Callable

from loadrun.backends.cpu import banding, fusion, joining, steps_array, steps_conv, views
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Draft, Options
from loadrun.backends.cpu.plan import Place, Plan, Step
from loadrun.backends.cpu.target import Target

__all__ = ["Options", "make_plan"]

_EMIT: dict[type[nd.Node], Callable[[Draft, nd.Node], None]] = {
    nd.Assemble: steps_array.emit_assemble,
    nd.ChannelMap: steps_conv.emit_channel_map,
    nd.Conv: steps_conv.emit_conv,
    nd.Cumulate: steps_array.emit_cumulate,
    nd.Dense: steps_array.emit_dense,
    nd.Eltwise: steps_array.emit_eltwise,
    nd.Fold: steps_array.emit_fold,
    nd.GlobalPooling: steps_conv.emit_global_pooling,
    nd.Host: steps_array.emit_host,
    nd.Join: steps_array.emit_join,
    nd.LayerNorm: steps_array.emit_layer_norm,
    nd.Loops: steps_array.emit_loops,
    nd.Mapped: steps_array.emit_mapped,
    nd.MatMul: steps_array.emit_matmul,
    nd.Pooling: steps_conv.emit_pooling,
    nd.Recurrent: steps_array.emit_recurrent,
    nd.Reduce: steps_array.emit_reduce,
    nd.Resample: steps_conv.emit_resample,
    nd.Reshape: steps_array.emit_reshape,
    nd.Softmax: steps_array.emit_softmax,
    nd.TransposedConv: steps_conv.emit_transposed,
    nd.Upsample: steps_conv.emit_upsample,
    nd.View: steps_array.emit_view,
}


def make_plan(
    network: nd.Network,
    target: Target,
    *,
    threads: int,
    options: Options | None = None,
    contents: Contents | None = None,
) -> Plan:
    """Plan a network for a target and a number of threads.

    Without `contents` constants get no keys, so packed weights are not kept.
    """
    contents = contents or Contents(Cache(None))
    fused = fusion.fuse(views.rewrite(network))
    draft = Draft(fused, target, threads, options or Options(), contents)
    steps_conv.find_halos(draft)
    joining.find_parts(draft)
    for name in draft.network.inputs:
        if name in network.shapes:  # others stay with Python
            draft.add_plain(name, Place.INPUT)
    bands = _emit_nodes(draft)
    for name in draft.network.outputs:
        steps_array.finish_output(draft, name)
    return Plan(
        threads,
        draft.buffers,
        draft.consts,
        tuple(draft.steps),
        tuple(bands),
        draft.network.inputs,
        draft.network.outputs,
    )


def _bandable(draft: Draft, node: nd.Node) -> bool:
    """Whether a node's kernel works row by row."""
    if isinstance(node, nd.Pooling):
        return True
    if isinstance(node, nd.Conv) and not isinstance(node, nd.TransposedConv):
        if steps_conv.uses_bytes(draft.target, node):
            return False
        return steps_conv.algorithm_of(draft, node) in ("direct", "depthwise")
    return False


def _emit_nodes(draft: Draft) -> list[tuple[int, int]]:
    """Emit all nodes in order; returns the ranges of steps that run in bands."""
    net = draft.network
    ranges: list[tuple[int, int]] = []
    if draft.options.bands:
        ranges = banding.find_bands(net, draft.target, functools.partial(_bandable, draft))
    inside = {k: last for first, last in ranges for k in range(first, last)}
    starts = {first for first, _ in ranges}
    bands: list[tuple[int, int]] = []
    begin = 0
    for k, node in enumerate(net.nodes):
        draft.by_rows = k in inside
        _EMIT[type(node)](draft, node)
        if k in starts:
            begin = len(draft.steps) - 1
        if k in inside and k + 1 == inside[k]:
            group = draft.steps[begin:]
            if all(isinstance(s, Step) and s.rows is not None for s in group):
                bands.append((begin, len(draft.steps)))
    return bands
