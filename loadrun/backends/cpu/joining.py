"""Which joins of channels need no copies: their parts are written where the join will be.

A blocked image is one block of vectors after another, so parts of whole vectors can lie in the
blocks of the joined image from the beginning. All of them then share its halo.
"""

from __future__ import annotations

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import Draft
from loadrun.backends.cpu.layout import Halo


def find_parts(draft: Draft) -> None:
    """Note for each tensor that can lie in a join where it does; halos must be known.

    A join takes part when every input is computed at run time, read once by it and by no earlier
    join, and all but the last are whole vectors of channels. Joins of joins nest.
    """
    for node in draft.network.nodes:
        if isinstance(node, nd.ChannelMap) and _joins(draft, node):
            first = 0
            for name in node.inputs:
                draft.parts[name] = (node.outputs[0], first)
                first += -(-draft.network.shapes[name][1] // draft.target.lanes)
            draft.joins.add(node.outputs[0])
    _share_halos(draft)


def _joins(draft: Draft, node: nd.ChannelMap) -> bool:
    net, lanes = draft.network, draft.target.lanes
    shapes = [net.shapes[name] for name in node.inputs]
    whole = tuple((k, c) for k, s in enumerate(shapes) for c in range(s[1]))
    if node.channels != whole or len(set(node.inputs)) < len(node.inputs):
        return False
    if any(s[1] % lanes for s in shapes[:-1]):
        return False
    return not any(name in net.consts or name in draft.parts for name in node.inputs)


def _share_halos(draft: Draft) -> None:
    """Let the outermost join have a halo large enough for all its parts."""
    for name in draft.parts:
        root = name
        while root in draft.parts:
            root = draft.parts[root][0]
        both = draft.halos.get(root, Halo()).union(draft.halos.get(name, Halo()))
        draft.halos[root] = both
