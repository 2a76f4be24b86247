"""The engine's own operators: what a graph is lowered to before layouts and algorithms.

Tensors are named and have fixed shapes. Weights are arrays in the node. A graph in this form can be
written by hand, which is how the engine is tested without any file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loadrun.backends.cpu.kernels.common import Act, Epilogue
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.plan import Array

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: reads `inputs`, writes `outputs` (tensor names)."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conv(Node):
    """Convolution of inputs[0]; an epilogue with add or mul takes inputs[1].

    Attributes:
        spec: Geometry.
        weights: (groups, oc, ic, kh, kw), oc and ic per group.
        bias: (groups * oc,) or None.
        epilogue: Fused operations.
    """

    spec: ConvSpec
    weights: Array = field(repr=False)
    bias: Array | None = field(default=None, repr=False)
    epilogue: Epilogue = ()


@dataclass(frozen=True, slots=True)
class Pooling(Node):
    """Pooling of inputs[0]."""

    spec: PoolSpec


@dataclass(frozen=True, slots=True)
class GlobalPooling(Node):
    """mean, max or sum over the pixels of inputs[0]: (n, c, 1, 1), or (n, c)."""

    mode: str


@dataclass(frozen=True, slots=True)
class Pointwise(Node):
    """One-input activation chain, same shape."""

    epilogue: Epilogue


@dataclass(frozen=True, slots=True)
class Add(Node):
    """Sum of two tensors of one shape, then an epilogue."""

    epilogue: Epilogue = ()


@dataclass(frozen=True, slots=True)
class Dense(Node):
    """inputs[0] (m, k) times weights (k, n), plus bias (n,), then an epilogue without operand."""

    weights: Array = field(repr=False)
    bias: Array | None = field(default=None, repr=False)
    epilogue: Epilogue = ()


@dataclass(frozen=True, slots=True)
class Reshape(Node):
    """The same elements in another shape."""


@dataclass(frozen=True, slots=True)
class Host(Node):
    """A Python function of contiguous arrays."""

    run: Callable[[Sequence[Array]], Sequence[Array]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in order, shapes and dtypes of all tensors, names of inputs and outputs."""

    nodes: tuple[Node, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: dict[str, str] = field(default_factory=dict)

    def dtype(self, name: str) -> str:
        """Numpy's name of a tensor's element type."""
        return self.dtypes.get(name, "float32")


def consumers(network: Network) -> dict[str, list[Node]]:
    """Nodes that read each tensor."""
    out: dict[str, list[Node]] = {name: [] for name in network.shapes}
    for node in network.nodes:
        for name in node.inputs:
            out[name].append(node)
    return out


def fuse(network: Network) -> Network:
    """Move activations and additions into the convolutions (and products) before them.

    Cases, applied to each node in order:
    1. Pointwise after Conv or Dense whose result nothing else reads: appended to its epilogue.
    2. Add of two tensors of which the later made one comes from a Conv without operand, read by
       nothing else: the Conv takes the other as its operand.
    3. Everything else stays.
    """
    users = consumers(network)
    kept: dict[str, Node] = {}  # by output
    order: list[Node] = []
    outputs = set(network.outputs)

    def single(name: str) -> bool:
        return len(users[name]) == 1 and name not in outputs

    def swap(old: Node, new: Node) -> None:
        order[next(k for k, n in enumerate(order) if n is old)] = new
        kept.pop(old.outputs[0], None)
        kept[new.outputs[0]] = new

    for node in network.nodes:
        if isinstance(node, Pointwise):
            host = kept.get(node.inputs[0])
            if isinstance(host, Conv | Dense) and single(node.inputs[0]):
                grown = (*host.epilogue, *node.epilogue)
                swap(host, replace(host, outputs=node.outputs, epilogue=grown))
                continue
        if isinstance(node, Add):
            fused = _fuse_add(node, kept, order, single)
            if fused is not None:
                old, new = fused
                # The operand may be made after the convolution: run it at the addition's place.
                del order[next(k for k, n in enumerate(order) if n is old)]
                kept.pop(old.outputs[0], None)
                order.append(new)
                kept[new.outputs[0]] = new
                continue
        order.append(node)
        for name in node.outputs:
            kept[name] = node
    return replace(network, nodes=tuple(order))


def _fuse_add(
    node: Add, kept: dict[str, Node], order: list[Node], single: Callable[[str], bool]
) -> tuple[Node, Node] | None:
    """The convolution that takes the addition over, and what becomes of it."""
    best: tuple[int, Node, str] | None = None
    for mine, other in (node.inputs, node.inputs[::-1]):
        host = kept.get(mine)
        if mine == other or not isinstance(host, Conv) or not single(mine):
            continue
        if len(host.inputs) > 1:
            continue
        at = next(k for k, n in enumerate(order) if n is host)
        if best is None or at > best[0]:
            best = (at, host, other)
    if best is None:
        return None
    _, host, other = best
    assert isinstance(host, Conv)
    new = replace(
        host,
        inputs=(host.inputs[0], other),
        outputs=node.outputs,
        epilogue=(*host.epilogue, Act("add"), *node.epilogue),
    )
    return host, new
