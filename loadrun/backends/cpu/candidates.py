"""What `--fast-run` chooses between: layers, and for each the ways to compute it.

A layer is known by a text that holds all that its speed depends on, but for what surrounds it:
kind, shapes, strides, groups, type, kinds of the epilogue, batch (the last word). Networks that
share a layer share its text, and so what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.kernels import conv, winograd
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.ways import APART, DEFAULT, Way

__all__ = ["Layer", "any_batch", "chain_key", "layer_key", "ways_of"]

_MOST_KINDS = 6
_LONGEST_KEY = 900


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer with a choice: one node, or nodes that run band by band.

    Attributes:
        nodes: Names.
        key: What it is known by.
        ways: Ways to compute it; the first is what the cost model chooses.
        algorithm: The cost model's, which decides the order of summation.
    """

    nodes: tuple[str, ...]
    key: str
    ways: tuple[Way, ...]
    algorithm: str = ""

    @property
    def chain(self) -> bool:
        """Whether it is a chain of layers in bands."""
        return APART in self.ways

    def same_sums(self) -> Layer:
        """With only those ways that add in the same order as the cost model's."""
        kept = tuple(w for w in self.ways if w.algorithm in ("", "apart", self.algorithm))
        return Layer(self.nodes, self.key, kept, self.algorithm)


def any_batch(key: str) -> str:
    """The key without the batch."""
    return key.rpartition(" n")[0]


def layer_key(network: nd.Network, node: nd.Node) -> str:
    """What a layer is known by; empty for a kind that has no choice and joins no chain."""
    if isinstance(node, nd.TransposedConv):
        return ""
    shape = network.shapes[node.inputs[0]] if node.inputs else ()
    if isinstance(node, nd.Conv):
        n, _, h, w = shape
        s = node.spec
        kind = "s8" if node.byte else "f32 exact" if node.exact else "f32"
        form = " nchw" if _from_nchw(network, node) else ""
        pads = f"p{s.ph}x{s.pw}" + (f" d{s.dh}x{s.dw}" if s.dh > 1 or s.dw > 1 else "")
        size = f"g{s.groups} {s.ic}-{s.oc} {s.kh}x{s.kw} s{s.sh}x{s.sw} {pads}"
        return f"conv {kind} {size} {h}x{w}{form}{_kinds(node.epilogue)} n{n}"
    if isinstance(node, nd.Pooling):
        n, c, h, w = shape
        return f"pool f32 {_pool(node.spec)} {c} {h}x{w} n{n}"
    if isinstance(node, nd.Dense):
        m, k = shape
        return f"dense f32 {k}-{node.weights.shape[1]}{_kinds(node.epilogue)} n{m}"
    if isinstance(node, nd.MatMul):
        side = " transposed" if node.transposed else ""
        return f"matmul f32 {node.m}x{node.k}x{node.n}{side} n{node.batch}"
    return ""


def _from_nchw(network: nd.Network, node: nd.Conv) -> bool:
    """Whether a convolution of few channels may read the caller's array."""
    few = node.spec.ic <= 4 and node.spec.groups == 1
    return few and node.inputs[0] in network.inputs


def _kinds(epilogue: Expr) -> str:
    kinds = [op.kind for op in epilogue.ops if op.kind != "const"]
    if len(kinds) > _MOST_KINDS:
        return " " + digest(*kinds)[:12]
    return " " + "+".join(kinds) if kinds else ""


def _pool(s: PoolSpec) -> str:
    return "-".join(str(getattr(s, name)) for name in s.__slots__)


def chain_key(network: nd.Network, nodes: Iterable[nd.Node]) -> str:
    """What a chain of layers is known by."""
    keys = [layer_key(network, node) for node in nodes]
    batch = keys[-1].rpartition(" n")[2]
    text = " > ".join(any_batch(key) for key in keys)
    if len(text) > _LONGEST_KEY:
        text = f"{len(keys)} layers {digest(text)}"
    return f"band {text} n{batch}"


def ways_of(
    network: nd.Network, node: nd.Node, target: Target, threads: int, *, default: str, full: bool
) -> tuple[Way, ...]:
    """Ways to compute a node, the cost model's first.

    Args:
        network: What the node is part of.
        node: Any node.
        target: Instruction set.
        threads: Number of threads.
        default: The algorithm of a convolution that the cost model chooses.
        full: All ways that exist, also those that hardly ever win.
    """
    found: list[Way] = []
    if isinstance(node, nd.TransposedConv):
        pass
    elif isinstance(node, nd.Conv):
        found = _conv(network, node, target, threads, default, full=full)
    elif isinstance(node, nd.Dense):
        vectors = -(-node.weights.shape[1] // target.lanes)
        m = network.shapes[node.inputs[0]][0]
        found = _product(m, vectors, full=full, orders=("panels", "rows"))
    elif isinstance(node, nd.MatMul):
        found = _product(node.m, -(-node.n // target.lanes), full=full, orders=("",))
    return (DEFAULT, *found)


def _product(m: int, vectors: int, *, full: bool, orders: Sequence[str]) -> list[Way]:
    """Of a product with m rows on the left; one row takes tiles of more vectors."""
    widths = (8, 6, 4, 3, 2, 1) if m == 1 else (4, 3, 2, 1)
    if m == 1 and not full:
        orders = orders[:1]
    return [Way("", o, v) for o in orders for v in widths if v <= vectors]


def _conv(
    network: nd.Network, node: nd.Conv, target: Target, threads: int, default: str, *, full: bool
) -> list[Way]:
    spec = node.spec
    if default == "depthwise":
        return []
    joined = conv.merged(spec, target.lanes)
    vectors = -(-joined.oc // target.lanes)
    _, _, h, w = network.shapes[node.inputs[0]]
    oh, ow = spec.out_size(h, w)
    found: list[Way] = []
    if not node.exact and winograd.suits(spec) and spec.ic >= 8 and oh * ow > 4:
        for m in (4, 2):
            orders = ("rows", "panels", "copies") if threads > 1 else ("rows", "panels")
            found += [Way(f"winograd{m}", order) for order in orders]
            # As few units as there are threads: the weights are read the fewest times.
            down = -(-oh // m)
            most = -(-down // threads)
            sizes = {-(-most // k) for k in ((1, 2, 4, 8) if full else (1, 2))}
            found += [Way(f"winograd{m}", "rows", 0, k) for k in sorted(sizes)]
    if default == "direct" or full:
        widths = [v for v in (4, 3, 2, 1) if v <= vectors]
        found += [Way("direct", order, v) for order in ("rows", "panels") for v in widths]
        chunks = (1, 2, 8) if full else (1,)
        found += [Way("direct", "rows", v, k) for k in chunks for v in widths if full or v == 2]
    else:
        found.append(Way("direct"))
    if _from_nchw(network, node):
        found.append(Way("blocked"))
    return found
