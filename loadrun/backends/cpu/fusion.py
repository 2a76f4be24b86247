"""Join elementwise work: with each other, into filters and biases, into epilogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadrun.backends.cpu import expr as ex
from loadrun.backends.cpu.expr import Expr, Op
from loadrun.backends.cpu.kernels.common import IDENTITY
from loadrun.backends.cpu.nodes import Conv, Dense, Eltwise, Network, Node
from loadrun.backends.cpu.plan import Array

_MOST_INPUTS = 6
_ROUNDING = frozenset(
    {"round", "floor", "ceil", "floor_div", "rint", "truncate", "saturate", "half", "bfloat"}
)
_CONSTANT_KINDS = {
    "float32": "const",
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "bool"), "iconst"),
}


@dataclass(slots=True)
class _Work:
    """The network as it is being rewritten: nodes by position, None for removed ones."""

    network: Network
    nodes: list[Node | None]

    def users(self, name: str) -> list[int]:
        """Positions of nodes that read a tensor."""
        return [k for k, n in enumerate(self.nodes) if n is not None and name in n.inputs]

    def maker(self, name: str) -> int | None:
        """Position of the node that makes a tensor; None for inputs and constants."""
        found = [k for k, n in enumerate(self.nodes) if n is not None and name in n.outputs]
        return found[0] if found else None


def fuse(network: Network) -> Network:
    """Apply all rules below to the network, in order of its nodes.

    1. Constants of one element become numbers of the expression.
    2. An Eltwise that only another Eltwise of the same shape reads is merged into it, while the
       result has at most two inputs of full shape.
    3. A product or sum with one constant per channel right after a Conv or Dense that nothing
       else reads moves into its filters and bias.
    4. An Eltwise of such a Conv or Dense and at most one more tensor of full shape becomes its
       epilogue; of two candidates the later one takes it, and runs at the Eltwise's place.
    Otherwise nothing changes.
    """
    work = _Work(network, list(network.nodes))
    index = _Index(work)
    for position, node in enumerate(network.nodes):
        if isinstance(node, Eltwise):
            node = _inline_scalars(network, node)
            node = _merge(work, index, position, node)
            work.nodes[position] = node
            node = _fold(work, index, position, node)
            work.nodes[position] = node
            _fuse_epilogue(work, index, position, node)
    return replace(network, nodes=tuple(n for n in work.nodes if n is not None))


class _Index:
    """Positions of users and makers, kept in step with the rewriting."""

    def __init__(self, work: _Work) -> None:
        self.work = work
        self.users: dict[str, set[int]] = {}
        self.makers: dict[str, int] = {}
        self.outputs = set(work.network.outputs)
        for k, node in enumerate(work.nodes):
            assert node is not None
            for name in node.inputs:
                self.users.setdefault(name, set()).add(k)
            for name in node.outputs:
                self.makers[name] = k

    def only(self, name: str, position: int) -> bool:
        """Whether the node at `position` is all that reads a tensor."""
        return name not in self.outputs and self.users.get(name, set()) == {position}

    def set(self, position: int, node: Node | None) -> None:
        """Replace the node at a position."""
        old = self.work.nodes[position]
        if old is not None:
            for name in old.inputs:
                self.users[name].discard(position)
            for name in old.outputs:
                if self.makers.get(name) == position:
                    del self.makers[name]
        self.work.nodes[position] = node
        if node is not None:
            for name in node.inputs:
                self.users.setdefault(name, set()).add(position)
            for name in node.outputs:
                self.makers[name] = position


def _prune(expr: Expr, names: Sequence[str]) -> tuple[Expr, tuple[str, ...]]:
    """Drop inputs that nothing reads (the last one stays if it is the result)."""
    expr = ex.simplified(expr)
    used = {a for op in expr.ops for a in op.args} | {expr.result}
    keep = [k for k in range(expr.inputs) if k in used]
    where = [keep.index(k) if k in used else 0 for k in range(expr.inputs)]
    return ex.simplified(ex.remap(expr, len(keep), where)), tuple(names[k] for k in keep)


def _inline_scalars(network: Network, node: Eltwise) -> Eltwise:
    """Rule 1."""
    expr, names = node.expr, list(node.inputs)
    for k in range(len(names) - 1, -1, -1):
        const = network.consts.get(names[k])
        kind = "" if const is None else _CONSTANT_KINDS.get(const.dtype.name, "")
        if const is None or const.size != 1 or not kind or len(names) == 1:
            continue
        number = Expr(0, (Op(kind, (), float(const.reshape(-1)[0])),))
        expr = ex.inline(expr, k, number)
        del names[k]
    return replace(node, expr=expr, inputs=tuple(names))


def _full(network: Network, names: Sequence[str], shape: tuple[int, ...]) -> int:
    return len({n for n in names if n not in network.consts and network.shapes[n] == shape})


def _merge(work: _Work, index: _Index, position: int, node: Eltwise) -> Eltwise:
    """Rule 2."""
    network = work.network
    shape = network.shapes[node.outputs[0]]
    again = True
    while again:
        again = False
        for name in dict.fromkeys(node.inputs):
            at = index.makers.get(name)
            inner = work.nodes[at] if at is not None else None
            if at is None or not isinstance(inner, Eltwise) or not index.only(name, position):
                continue
            if network.shapes[name] != shape:
                continue
            expr, names = ex.merge_inputs(node.expr, node.inputs)
            k = names.index(name)
            grown = (*names[:k], *names[k + 1 :], *inner.inputs)
            if len(set(grown)) > _MOST_INPUTS or _full(network, grown, shape) > 2:
                continue
            expr, names = ex.merge_inputs(ex.inline(expr, k, inner.expr), grown)
            node = replace(node, expr=expr, inputs=names)
            index.set(at, None)
            index.set(position, node)
            again = True
            break
    expr, names = ex.merge_inputs(node.expr, node.inputs)
    node = replace(node, expr=expr, inputs=names)
    index.set(position, node)
    return node


def _channels(network: Network, name: str, shape: tuple[int, ...]) -> Array | None:
    """A constant's value per channel (axis 1 of 4, last of 2), float64; None if it is no such."""
    const = network.consts.get(name)
    axis = 1 if len(shape) == 4 else len(shape) - 1
    if const is None or const.dtype != np.float32:
        return None
    dims = (1,) * (len(shape) - const.ndim) + const.shape
    if len(dims) != len(shape) or any(d != 1 for k, d in enumerate(dims) if k != axis):
        return None
    values = const.reshape(-1).astype(np.float64)
    return np.broadcast_to(values, (shape[axis],)) if values.size in (1, shape[axis]) else None


def _host(work: _Work, index: _Index, name: str, position: int) -> Conv | Dense | None:
    """The Conv or Dense that makes a tensor for this reader alone."""
    at = index.makers.get(name)
    node = work.nodes[at] if at is not None else None
    return node if isinstance(node, Conv | Dense) and index.only(name, position) else None


def _fold(work: _Work, index: _Index, position: int, node: Eltwise) -> Eltwise:
    """Rule 3, for every input that allows it."""
    network = work.network
    again = True
    while again:
        again = False
        for k, name in enumerate(node.inputs):
            host = _host(work, index, name, position)
            uses = node.expr.users(k)
            if host is None or host.exact or host.epilogue != IDENTITY or len(uses) != 1:
                continue
            if network.shapes[name] != network.shapes[node.outputs[0]]:
                continue
            if any(op.kind in _ROUNDING for op in node.expr.ops):
                continue  # the last bit before rounding decides a whole step
            affine = _affine(network, node, k, uses[0], network.shapes[name])
            if affine is None:
                continue
            scale, shift = affine
            index.set(index.makers[name], _scaled(host, scale, shift))
            expr, names = _prune(ex.bypass(node.expr, uses[0], k), node.inputs)
            node = replace(node, expr=expr, inputs=names)
            index.set(position, node)
            again = True
            break
    return node


def _affine(
    network: Network, node: Eltwise, k: int, value: int, shape: tuple[int, ...]
) -> tuple[Array, Array] | None:
    """Scale and shift per channel that operation `value` applies to input k."""
    op = node.expr.ops[value - node.expr.inputs]
    width = shape[1] if len(shape) == 4 else shape[-1]

    def number(a: int) -> Array | None:
        if a < node.expr.inputs:
            return _channels(network, node.inputs[a], shape)
        inner = node.expr.ops[a - node.expr.inputs]
        return np.full(width, inner.value) if inner.kind == "const" else None

    others = [number(a) for a in op.args if a != k]
    if len(others) != len(op.args) - 1 or any(o is None for o in others):
        return None
    first = op.args.index(k) == 0
    one, zero = np.ones(width), np.zeros(width)
    c = [o for o in others if o is not None]
    table: dict[str, Callable[[], tuple[Array, Array]]] = {
        "add": lambda: (one, c[0]),
        "sub": lambda: (one, -c[0]) if first else (-one, c[0]),
        "mul": lambda: (c[0], zero),
        "neg": lambda: (-one, zero),
    }
    if op.kind == "div" and first and np.all(c[0] != 0):
        return 1 / c[0], zero
    if op.kind == "fma" and op.args.index(k) < 2:
        return c[0], c[1]
    found = table.get(op.kind)
    result = found() if found else None
    if result is None or not (np.isfinite(result[0]).all() and np.isfinite(result[1]).all()):
        return None
    return result


def _scaled(host: Conv | Dense, scale: Array, shift: Array) -> Conv | Dense:
    """The same operator followed by scale and shift per output channel."""
    bias = shift if host.bias is None else host.bias.astype(np.float64) * scale + shift
    host = replace(host, bias=bias.astype(np.float32))
    if (scale == 1).all():
        return host
    return replace(host, scale=scale if host.scale is None else host.scale * scale)


def _fuse_epilogue(work: _Work, index: _Index, position: int, node: Eltwise) -> None:
    """Rule 4."""
    network = work.network
    shape = network.shapes[node.outputs[0]]
    if len(node.inputs) > 2 or len(set(node.inputs)) != len(node.inputs):
        return
    if network.dtype(node.outputs[0]) != "float32":
        return
    if any(network.shapes[n] != shape for n in node.inputs):
        return
    hosts = [(index.makers.get(n, -1), k) for k, n in enumerate(node.inputs)]
    for at, k in sorted(hosts, reverse=True):
        host = _host(work, index, node.inputs[k], position)
        if host is None or any(network.dtype(n) != "float32" for n in node.inputs):
            continue
        if isinstance(host, Conv) and len(shape) != 4:
            continue
        others = [n for j, n in enumerate(node.inputs) if j != k]
        # Inputs of the joined program: the other tensor, the accumulator, an older operand.
        joined, unique = ex.merge_inputs(
            ex.inline(node.expr, k, host.epilogue), [*others, "", *host.inputs[1:]]
        )
        if len(unique) > 2:
            continue
        others = [n for n in unique if n]
        epilogue = ex.remap(joined, len(unique), [1 if n else 0 for n in unique])
        new = replace(
            host, inputs=(host.inputs[0], *others), outputs=node.outputs, epilogue=epilogue
        )
        index.set(at, None)
        index.set(position, new)
        return
