"""Which runs of operators shall run band by band of rows.

Where the tensor between two operators is larger than a core's second-level cache can hold, running
them one after the other sends it out and back. In bands of rows, each operator reads what the one
before it has just written. The price is that rows at the edge of a thread's share are computed
twice, and that every band reads the weights again, so heavy ones are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.target import Target

_LONGEST = 6


def _weight_bytes(node: nd.Node) -> int:
    return 4 * node.weights.size if isinstance(node, nd.Conv) else 0


def find_bands(
    network: nd.Network, target: Target, suits: Callable[[nd.Node], bool]
) -> list[tuple[int, int]]:
    """Ranges [first, last) of nodes, each of at least two.

    A node joins the range before it when
    1. it and its predecessor are of a kind that `suits`;
    2. it reads what a node of the range makes, and no node of the range is left unread;
    3. the tensor that it reads exceeds 0.45 of the second-level cache;
    4. nothing beyond the range reads what is read in it, which would have to be written all the
       same (ResNet-50's last 1x1 of a block and the first of the next: 6 to 20 % slower in bands);
    5. the weights of the range stay below 0.4 of that cache.
    """
    budget, large = 0.4 * target.l2, 0.45 * target.l2
    last_read = {name: k for k, node in enumerate(network.nodes) for name in node.inputs}
    last_read |= dict.fromkeys(network.outputs, len(network.nodes))
    found: list[tuple[int, int]] = []
    first = 0
    nodes = network.nodes
    while first < len(nodes):
        last = first + 1
        if suits(nodes[first]):
            made = set(nodes[first].outputs)
            unread = set(made)
            weights = _weight_bytes(nodes[first])
            best = last
            while last < len(nodes) and last - first < _LONGEST:
                node = nodes[last]
                inside = [n for n in node.inputs if n in made]
                weights += _weight_bytes(node)
                if not suits(node) or not inside or weights > budget:
                    break
                if max(_bytes(network, target, n) for n in inside) <= large:
                    break
                unread -= set(inside)
                unread |= set(node.outputs)
                made |= set(node.outputs)
                last += 1
                if len(unread) == 1 and max(last_read[n] for n in made - unread) < last:
                    best = last
            last = best
        if last - first > 1:
            found.append((first, last))
        first = last
    return found


def _bytes(network: nd.Network, target: Target, name: str) -> int:
    """Bytes of one image of a tensor in the blocked layout."""
    shape = network.shapes[name]
    if len(shape) != 4:
        return 0
    return -(-shape[1] // target.lanes) * target.vector_bytes * shape[2] * shape[3]
