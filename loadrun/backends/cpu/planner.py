"""From nodes to a plan: fusion, halos, then each node's steps in order, and bands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from loadrun.backends.cpu import (
    banding,
    fusion,
    joining,
    rings,
    schedule,
    steps_array,
    steps_conv,
    views,
)
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.candidates import Layer, chain_key, layer_key, ways_of
from loadrun.backends.cpu.contents import Contents
from loadrun.backends.cpu.draft import Ahead, Draft, Options
from loadrun.backends.cpu.plan import Place, Plan, Step
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.ways import APART, DEFAULT

__all__ = ["Options", "layers", "make_plan", "plan_simplified", "simplify"]

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
    nd.WholeProduct: steps_array.emit_whole_product,
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
    found = contents or Contents(Cache(None))
    return plan_simplified(simplify(network), target, threads, options or Options(), found)


def simplify(network: nd.Network) -> nd.Network:
    """Nodes as they will be computed: views rewritten, elementwise operators fused."""
    return fusion.fuse(views.rewrite(network))


def layers(
    network: nd.Network, target: Target, threads: int, options: Options, *, full: bool
) -> list[Layer]:
    """Layers of a simplified network that can be computed in several ways, and chains in bands.

    `full` lists all ways there are. The layers of a chain are listed as well, for when it is not
    run in bands.
    """
    draft = Draft(network, target, threads, options, Contents(Cache(None)))
    found = []
    for node in network.nodes:
        how = steps_conv.default_algorithm(draft, node) if isinstance(node, nd.Conv) else ""
        ways = ways_of(network, node, target, threads, default=how, full=full)
        if len(ways) > 1:
            found.append(Layer((node.name,), layer_key(network, node), ways, how))
    for first, last in _ranges(draft):
        nodes = network.nodes[first:last]
        key = chain_key(network, nodes)
        found.append(Layer(tuple(n.name for n in nodes), key, (DEFAULT, APART)))
    return found


def plan_simplified(
    network: nd.Network,
    target: Target,
    threads: int,
    options: Options,
    contents: Contents,
    ahead: Ahead | None = None,
) -> Plan:
    """`make_plan` of a network that `simplify` made; `ahead` gets the code of steps."""
    draft = Draft(network, target, threads, options, contents, ahead)
    ranges = _chosen_ranges(draft)
    draft.banded = {n.name for first, last in ranges for n in network.nodes[first:last]}
    steps_conv.find_halos(draft)
    joining.find_parts(draft)
    for name in draft.network.inputs:
        if name in network.shapes:  # others stay with Python
            draft.add_plain(name, Place.INPUT)
    bands = _emit_nodes(draft, ranges)
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
        return steps_conv.default_algorithm(draft, node) in ("direct", "depthwise")
    return False


def _ranges(draft: Draft) -> list[tuple[int, int]]:
    """Ranges of nodes that the cost model would run in bands."""
    if not draft.options.bands:
        return []
    suits = functools.partial(_bandable, draft)
    return banding.find_bands(draft.network, draft.target, suits)


def _chosen_ranges(draft: Draft) -> list[tuple[int, int]]:
    """Ranges of nodes to run in bands: the cost model's, less those chosen to run apart."""
    ranges, ways = _ranges(draft), draft.options.ways
    if ways:
        nodes = draft.network.nodes
        ranges = [
            r for r in ranges if ways.get(chain_key(draft.network, nodes[slice(*r)])) != APART
        ]
    return ranges


def _rings(draft: Draft, nodes: Sequence[nd.Node]) -> dict[str, int]:
    """Tensors of a band to keep as rings, and their rows."""
    wanted = rings.candidates(draft.network, nodes) - draft.parts.keys() - draft.joins
    if not wanted:
        return {}
    trial = draft.fork()
    start = _emit_first(trial, nodes[0])
    for node in nodes[1:]:
        _EMIT[type(node)](trial, node)
    group = [s for s in trial.steps[start:] if isinstance(s, Step) and s.rows is not None]
    if len(group) != len(trial.steps) - start:
        return {}
    chunks = schedule.bands(group, trial.buffers, draft.threads, schedule.band_bytes(draft.target))
    kept = rings.heights(group, chunks)
    found = {name: kept.get(trial.forms.get((name, "blocked"), ""), 0) for name in wanted}
    height = {name: draft.network.shapes[name][2] for name in wanted}
    return {name: rows for name, rows in found.items() if 0 < rows < height[name]}


def _emit_first(draft: Draft, node: nd.Node) -> int:
    """Emit the first node of a band; returns the step that the band starts with.

    That is the node's own, or the copy of its input into the layout that it alone reads.
    """
    before = len(draft.steps)
    _EMIT[type(node)](draft, node)
    own, copies = len(draft.steps) - 1, draft.steps[before:-1]
    read = [n for other in draft.network.nodes for n in other.inputs]
    if len(copies) == 1 and read.count(node.inputs[0]) == 1:
        copy, step = copies[0], draft.steps[own]
        if isinstance(copy, Step) and copy.rows and copy.writes == step.reads[:1]:
            return before
    return own


def _emit_nodes(draft: Draft, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Emit all nodes in order; returns the ranges of steps that run in bands."""
    net = draft.network
    inside = {k: last for first, last in ranges for k in range(first, last)}
    starts = {first for first, _ in ranges}
    bands: list[tuple[int, int]] = []
    begin = 0
    for k, node in enumerate(net.nodes):
        draft.by_rows = k in inside
        if k in starts:
            draft.rings |= _rings(draft, net.nodes[k : inside[k]])
            begin = _emit_first(draft, node)
        else:
            _EMIT[type(node)](draft, node)
        if k in inside and k + 1 == inside[k]:
            group = draft.steps[begin:]
            if all(isinstance(s, Step) and s.rows is not None for s in group):
                bands.append((begin, len(draft.steps)))
    return bands
