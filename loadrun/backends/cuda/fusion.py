"""Join elementwise work with each other and into the kernels that make its inputs."""

from __future__ import annotations

import math
from dataclasses import replace

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.emit_conv import extra_code
from loadrun.backends.cuda.expr import Expr, merge

__all__ = ["fuse"]

_MOST_ACCESSES = 8
_MOST_OPS = 96


def fuse(net: nd.Network) -> nd.Network:
    """Apply the rules below, in order of the nodes.

    1. A Pointwise that only one other Pointwise reads, element by element, is computed there.
    2. A Pointwise that alone reads a Conv, element by element, and whose other inputs are whole
       tensors, one element, or one per channel (or column), becomes part of the Conv.
    Nothing else changes; what is an output of the network is always written.
    """
    work = _Work(net)
    for k, node in enumerate(net.nodes):
        if isinstance(node, nd.Pointwise):
            work.join(k, node)
    nodes = tuple(n for n in work.nodes if n is not None)
    return replace(net, nodes=nodes, origins=work.origins)


class _Work:
    """The network as it is being rewritten: nodes by position, None for removed ones."""

    def __init__(self, net: nd.Network) -> None:
        self.net = net
        self.nodes: list[nd.Node | None] = list(net.nodes)
        self.makers: dict[str, list[int]] = {}
        self.users: dict[str, set[int]] = {}
        self.origins = dict(net.origins)
        for k, node in enumerate(net.nodes):
            for name in node.inputs:
                self.users.setdefault(name, set()).add(k)
            for name in node.outputs:
                self.makers.setdefault(name, []).append(k)

    def join(self, position: int, node: nd.Pointwise) -> None:
        """Take in what makes the inputs of a node, as long as something can be."""
        changed = True
        while changed:
            changed = False
            for name in node.inputs:
                inner = self._only(name, position)
                if isinstance(inner, nd.Pointwise) and self._elementwise(node, name):
                    joined = _joined(inner, node, name)
                    if joined is not None:
                        self._replace(name, position, joined)
                        node, changed = joined, True
                        break
        for name in sorted(node.inputs, key=lambda n: -max(self.makers.get(n, [-1]))):
            inner = self._only(name, position)
            if isinstance(inner, nd.Conv) and self._elementwise(node, name):
                finished = _finished(inner, node, name, self.net)
                if finished is not None:
                    self._replace(name, position, finished)
                    return

    def _only(self, name: str, position: int) -> nd.Node | None:
        """The node that makes a tensor for the reader at `position` alone."""
        makers = self.makers.get(name, [])
        if len(makers) != 1 or self.users.get(name) != {position} or name in self.net.outputs:
            return None
        return self.nodes[makers[0]]

    def _elementwise(self, node: nd.Pointwise, name: str) -> bool:
        """Whether each element of the output reads the same element of a tensor only."""
        shape = self.net.tensors[node.outputs[0]].shape
        if self.net.tensors[name].shape != shape:
            return False
        plain = nd.contiguous(shape)
        return all(
            a.offset == 0
            and all(s == p for s, p, n in zip(a.strides, plain, shape, strict=True) if n > 1)
            for a in node.accesses
            if a.tensor == name
        )

    def _replace(self, name: str, position: int, node: nd.Node) -> None:
        """Put a node at `position`; the maker of a tensor is part of it now."""
        (maker,) = self.makers.pop(name)
        old = self.nodes[maker]
        assert old is not None
        for other in old.inputs:
            self.users[other].discard(maker)
        self.nodes[maker] = None
        self.origins[node.name] = (
            *self.origins.get(old.name, ()), *self.origins.get(node.name, ()),
        )  # fmt: skip
        before = self.nodes[position]
        assert before is not None
        for other in before.inputs:
            self.users[other].discard(position)
        self.nodes[position] = node
        for other in node.inputs:
            self.users.setdefault(other, set()).add(position)


def _distinct(accesses: list[nd.Access]) -> tuple[tuple[nd.Access, ...], list[int]]:
    """Accesses without repeats, and the new number of each."""
    found: dict[nd.Access, int] = {}
    where = [found.setdefault(a, len(found)) for a in accesses]
    return tuple(found), where


def _merged(
    inner: Expr, outer: Expr, first: tuple[nd.Access, ...], node: nd.Pointwise, name: str
) -> tuple[tuple[nd.Access, ...], Expr] | None:
    """One expression over the accesses of both; None when it would be too long."""
    rest = [a for a in node.accesses if a.tensor != name]
    accesses, where = _distinct([*first, *rest])
    if len(accesses) > _MOST_ACCESSES or len(inner.ops) + len(outer.ops) > _MOST_OPS:
        return None
    slots = {k for k, a in enumerate(node.accesses) if a.tensor == name}
    numbers, at = [], len(first)
    for k in range(len(node.accesses)):
        numbers.append(0 if k in slots else where[at])
        at += k not in slots
    return accesses, merge(inner, outer, slots, where[: len(first)], numbers)


def _joined(inner: nd.Pointwise, node: nd.Pointwise, name: str) -> nd.Pointwise | None:
    """Rule 1."""
    merged = _merged(inner.expr, node.expr, inner.accesses, node, name)
    if merged is None:
        return None
    return nd.Pointwise(node.name, node.outputs, *merged)


def _finished(conv: nd.Conv, node: nd.Pointwise, name: str, net: nd.Network) -> nd.Conv | None:
    """Rule 2."""
    shape = net.tensors[node.outputs[0]].shape
    if math.prod(shape) != math.prod(net.tensors[name].shape):
        return None
    if any(extra_code(a, shape, conv.roles) is None for a in node.accesses if a.tensor != name):
        return None
    merged = _merged(conv.expr, node.expr, conv.extras, node, name)
    if merged is None:
        return None
    extras, expr = merged
    return replace(conv, name=node.name, outputs=node.outputs, extras=extras, expr=expr)
