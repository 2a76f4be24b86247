"""From nodes to a plan: fusion, then each node's launches in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import products, source
from loadrun.backends.cuda.convolution import choices, emit_convolution
from loadrun.backends.cuda.emit_conv import emit_conv
from loadrun.backends.cuda.emit_pointwise import emit_pointwise, simple_launch
from loadrun.backends.cuda.emit_winograd import emit_winograd
from loadrun.backends.cuda.fusion import fuse
from loadrun.backends.cuda.plan import (
    STATUS,
    Array,
    Buffer,
    Decision,
    Host,
    Library,
    Place,
    Plan,
    Pointer,
    Step,
)
from loadrun.backends.cuda.variants import Algorithm, Choice, Target, candidates, signature
from mgeserial.ir.graph import Node as GraphNode

__all__ = ["Choose", "make_plan"]

# Takes one of a node's candidates by the signature of its layer.
Choose = Callable[[str, tuple[Choice, ...]], Choice]


@dataclass(slots=True)
class _Draft:
    net: nd.Network
    target: Target
    choose: Choose
    buffers: dict[str, Buffer] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    origins: dict[str, tuple[GraphNode, ...]] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)

    def add(self, name: str, place: Place, alias: str = "") -> None:
        """Note the buffer of a tensor."""
        info = self.net.tensors[name]
        if name in self.net.dynamic:
            place = Place.HOST
        self.buffers[name] = Buffer(name, info.dtype, info.shape, place, alias)

    def scratch(self, name: str, count: int) -> str:
        """A buffer of float32 (or int32) for one node's own use."""
        return self.memory(name, "float32", count)

    def memory(self, name: str, dtype: str, count: int) -> str:
        """A buffer of a type for one node's own use."""
        self.buffers[name] = Buffer(name, dtype, (count,), Place.ARENA)
        return name

    def constant(self, name: str, array: Array) -> str:
        """A constant in another order; equal ones of a name are kept once."""
        while name in self.consts and not np.array_equal(self.consts[name], array):
            name += "'"
        self.buffers[name] = Buffer(name, array.dtype.name, array.shape, Place.CONST)
        self.consts[name] = array
        return name

    def need(self, name: str) -> None:
        """Note a constant that is read."""
        if name not in self.buffers and name in self.net.consts:
            self.add(name, Place.CONST)
            self.consts[name] = self.net.consts[name]

    def root(self, name: str) -> str:
        """The buffer whose memory a buffer is."""
        return self.buffers[name].alias or name


def _first(_: str, found: tuple[Choice, ...]) -> Choice:
    return found[0]


def make_plan(
    network: nd.Network, target: Target | None = None, *, choose: Choose = _first
) -> Plan:
    """Plan a network.

    Args:
        network: What to compute.
        target: The device; None: one of which nothing is known.
        choose: Takes one of the candidates of a convolution or a product of matrices.
    """
    net = fuse(network)
    draft = _Draft(net, target or Target(), choose)
    for name in net.inputs:
        if name:
            draft.add(name, Place.INPUT)
    for node in net.nodes:
        if isinstance(node, nd.Alias):
            (out,) = node.outputs
            draft.need(node.source)
            place = draft.buffers[node.source].place
            draft.add(out, place, draft.root(node.source))
            continue
        for name in node.outputs:
            if name not in draft.buffers:
                draft.add(name, Place.ARENA)
        made = _emit(draft, node)
        # Not what the node reads: the filter may be another, turned round.
        for step in made:
            for name in step.reads:
                draft.need(name)
        draft.steps.extend(made)
        draft.origins.update((s.name, net.origins.get(node.name, ())) for s in made)
    for name in net.outputs:
        draft.need(name)
        _mark_output(draft, draft.root(name))
    # A library may read a filter in another order: then nothing reads the one it was made of.
    read = {draft.root(n) for s in draft.steps for n in s.reads} | {*map(draft.root, net.outputs)}
    consts = {name: array for name, array in draft.consts.items() if name in read}
    return Plan(
        draft.buffers,
        consts,
        tuple(draft.steps),
        net.inputs,
        net.outputs,
        tuple(draft.checks),
        draft.origins,
        draft.decisions,
    )


def _mark_output(draft: _Draft, root: str) -> None:
    for name, buffer in list(draft.buffers.items()):
        if (name == root or buffer.alias == root) and buffer.place is Place.ARENA:
            draft.buffers[name] = Buffer(
                name, buffer.dtype, buffer.shape, Place.OUTPUT, buffer.alias
            )


def _emit(draft: _Draft, node: nd.Node) -> list[Step]:
    if isinstance(node, nd.Pointwise):
        return list(emit_pointwise(node, draft.net))
    if isinstance(node, nd.Conv):
        return _convolution(draft, node)
    if isinstance(node, nd.HostCode):
        return [Host(node.name, node.run, node.reads, node.outputs)]
    if isinstance(node, nd.Custom):
        return [_custom(draft, node)]
    raise AssertionError(f"no emitter for {type(node).__name__}")


def _convolution(draft: _Draft, node: nd.Conv) -> list[Step]:
    """A convolution or a product of matrices, by the candidate that is chosen."""
    net, target = draft.net, draft.target
    found = candidates(node, net, target)
    found += (*products.choices(node, net, target, found), *choices(node, net, target))
    layer = signature(node, net)
    choice = draft.choose(layer, found)
    if choice.algorithm is Algorithm.CUDNN:
        made = emit_convolution(node, net, draft, choice)
    elif choice.algorithm is Algorithm.WINOGRAD:
        made = emit_winograd(node, net, draft, choice)
    else:
        product = choice.algorithm is Algorithm.LIBRARY
        made = emit_conv(products.as_product(node, net) if product else node, net, draft, choice)
    if target.tf32:
        made = [
            replace(s, gemm=replace(s.gemm, tf32=True)) if isinstance(s, Library) else s
            for s in made
        ]
    steps = tuple(s.name for s in made)
    exact = node.accumulator == "int"
    draft.decisions[node.name] = Decision(layer, choice, found, steps, exact)
    return made


def _custom(draft: _Draft, node: nd.Custom) -> Step:
    kernel = source.kernel(node.stem or node.template, node.template, **dict(node.fields))
    args: list[Pointer | int | float] = []
    writes = node.outputs
    for param in node.params:
        if isinstance(param, nd.In):
            size = np.dtype(draft.net.tensors[param.tensor].dtype).itemsize
            args.append(Pointer(param.tensor, param.offset * size))
        elif isinstance(param, nd.Out):
            args.append(Pointer(param.tensor))
        elif isinstance(param, nd.Check):
            draft.checks.append(param.message)
            draft.buffers.setdefault(STATUS, Buffer(STATUS, "int32", (1,), Place.STATUS))
            args += [Pointer(STATUS), len(draft.checks)]
            writes = (*writes, STATUS)
        else:
            args.append(param)
    return simple_launch(
        node, kernel, args, node.items,
        per_block=node.per_block, block=node.block, flops=node.flops, writes=writes,
    )  # fmt: skip
