"""What follows operators whose results' shapes depend on data: planned anew for each shape.

Behind an operator such as CondTake no shape is known ahead of the run. Everything that depends on
it is the graph's *tail*. A run computes the rest in native code, then the tail stage by stage: the
operators whose inputs are there, and whose shapes follow from them, become a program of their own;
then come those whose shapes depend on what they are given, by their reference code; then the next
stage. Programs are kept by the shapes of their inputs, the least used give way. A graph that shows
ever new shapes is not worth a compilation each time: once the store has been full, a shape is
compiled when it comes again, and its first run is by reference code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mgeserial import params as P
from mgeserial.dtypes import Array
from mgeserial.ir.copying import copy_node, reachable
from mgeserial.ir.graph import Graph, Node, Output, Value
from mgeserial.ir.inference import Inference, call_of, infer
from mgeserial.ir.running import run_node
from mgeserial.ir.tensor import Tensor
from mgeserial.ir.types import Shape
from mgeserial.ops import registry

__all__ = ["Tail", "find_tail"]

_INPUT = "Host2DeviceCopy"
_KEPT = 12  # programs
_REMEMBERED = 256  # shapes


class _Program(Protocol):
    def run(self, feeds: Sequence[Array]) -> list[Array]: ...
    def close(self) -> None: ...


Compile = Callable[[Graph, Inference], _Program]
_Key = tuple[tuple[Node, ...], tuple[Shape, ...]]


@dataclass(frozen=True, slots=True)
class _Stage:
    """A program for some shapes, what it takes and gives, and what comes behind it."""

    program: _Program | None
    feeds: tuple[Value, ...]
    results: tuple[Value, ...]
    behind: tuple[Node, ...]
    rest: tuple[Node, ...]


def find_tail(graph: Graph, inference: Inference, live: set[Node]) -> list[Node]:
    """Nodes, of those that are `live`, with a shape that is not known, and all that use them."""
    found: dict[Node, None] = {}
    for node in graph.nodes:
        if node not in live or node.op.name == _INPUT:
            continue
        known = all(inference.types[v].is_static for v in node.outputs)
        if not known or any(v.node in found for v in node.inputs):
            found[node] = None
    return list(found)


class Tail:
    """Runs the tail of a graph.

    Args:
        graph: The whole graph.
        inference: Its types, as far as they are known.
        nodes: See `find_tail`.
    """

    def __init__(self, graph: Graph, inference: Inference, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self._inference = inference
        own = set(self.nodes)
        # What random numbers go into is no constant: it is part of the tail or made before it.
        self._constant: set[Node] = set()
        for node in graph.nodes:
            fixed = node.op.is_pure and node.op.name != _INPUT and node not in own
            if fixed and all(v.node in self._constant for v in node.inputs):
                self._constant.add(node)
        self._held: dict[Value, Array] = {}
        self.reads = self._needs(self.nodes)
        self.writes = tuple(dict.fromkeys(v for v in graph.outputs if v.node in own))
        self._calls = {n: call_of(n, inference) for n in self.nodes}
        for call in self._calls.values():
            call.state.clear()
        self._needed: dict[tuple[Node, ...], tuple[Value, ...]] = {}
        self._stages: OrderedDict[_Key, _Stage] = OrderedDict()
        self._seen: OrderedDict[_Key, None] = OrderedDict()
        self._was_full = False
        self._compile: Compile | None = None

    def open(self, compile_: Compile) -> None:
        """Set what makes programs; without it all is run by reference code.

        Operators forget what runs before this one have left.
        """
        self._compile = compile_
        for call in self._calls.values():
            call.state.clear()

    def close(self) -> None:
        """Free the programs."""
        for stage in self._stages.values():
            if stage.program is not None:
                stage.program.close()
        self._stages.clear()
        self._compile = None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Values of `writes` from those of `reads`."""
        values = dict(zip(self.reads, arrays, strict=True))
        rest = self.nodes
        while rest:
            stage = self._stage(rest, values)
            if stage is None:
                self._by_reference(rest, values)
                break
            if stage.program is not None:
                found = stage.program.run([values[v] for v in stage.feeds])
                values.update(zip(stage.results, found, strict=True))
            self._by_reference(stage.behind, values)
            rest = stage.rest
        return [values[v] for v in self.writes]

    def _by_reference(self, nodes: Sequence[Node], values: dict[Value, Array]) -> None:
        for node in nodes:
            results = run_node(
                node, self._calls[node], [self._array(v, values) for v in node.inputs]
            )
            values.update(zip(node.outputs, results, strict=True))

    def _array(self, value: Value, values: dict[Value, Array]) -> Array:
        """A value of this run, or a constant, which is computed once."""
        found = values.get(value)
        found = self._held.get(value) if found is None else found
        if found is not None:
            return found
        node = value.node
        arrays = [self._array(v, values) for v in node.inputs]
        results = run_node(node, call_of(node, self._inference), arrays)
        self._held.update(zip(node.outputs, results, strict=True))
        return self._held[value]

    def _needs(self, nodes: Sequence[Node]) -> tuple[Value, ...]:
        """What nodes read that neither they nor constants make."""
        own = {*nodes, *self._constant}
        return tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v.node not in own))

    def _stage(self, rest: tuple[Node, ...], values: dict[Value, Array]) -> _Stage | None:
        """The next stage for the shapes at hand; None where the reference code shall do it."""
        if self._compile is None:
            return None
        needed = self._needed.get(rest)
        if needed is None:
            needed = self._needed[rest] = self._needs(rest)
        key = (rest, tuple(values[v].shape for v in needed))
        stage = self._stages.get(key)
        if stage is not None:
            self._stages.move_to_end(key)
            return stage
        if self._was_full and key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            return None
        stage = self._stages[key] = self._make(rest, needed, values)
        if len(self._stages) > _KEPT:
            self._was_full = True
            _, old = self._stages.popitem(last=False)
            if old.program is not None:
                old.program.close()
        return stage

    def _make(
        self, rest: Sequence[Node], needed: Sequence[Value], values: dict[Value, Array]
    ) -> _Stage:
        graph, copies = self._copy(rest, needed, values)
        types = infer(graph)
        # Values that this stage makes, with a program; what else could run; what has to wait.
        made: dict[Value, None] = {}
        behind: list[Node] = []
        waits: set[Value] = set()
        later: list[Node] = []
        for node in rest:
            static = all(types.types[copies[v]].is_static for v in node.outputs)
            if any(v in waits for v in node.inputs):
                later.append(node)
            elif static and node.op.is_pure:
                made.update(dict.fromkeys(node.outputs))
                continue
            else:
                behind.append(node)
            waits.update(node.outputs)
        others = {v for n in (*behind, *later) for v in n.inputs} | set(self.writes)
        results = tuple(v for v in made if v in others)
        program = None
        feeds: tuple[Value, ...] = ()
        if results:
            graph.set_outputs([Output(copies[v], f"result{k}", 0) for k, v in enumerate(results)])
            used = reachable(graph.outputs)
            for node in reversed(graph.nodes):
                if node not in used:
                    graph.remove(node)
            origin = {copy: value for value, copy in copies.items()}
            feeds = tuple(origin[v] for v in graph.inputs)
            assert self._compile is not None
            program = self._compile(graph, graph.inference)
        return _Stage(program, feeds, results, tuple(behind), tuple(later))

    def _copy(
        self, rest: Sequence[Node], needed: Sequence[Value], values: dict[Value, Array]
    ) -> tuple[Graph, dict[Value, Value]]:
        """Nodes as a graph with inputs of the shapes at hand, and its value for each old one."""
        graph = Graph()
        copies: dict[Value, Value] = {}
        for k, value in enumerate(needed):
            dtype = self._inference.types[value].dtype
            small = self._inference.value(value)
            name = f"value{k}"
            op = _INPUT if small is None else "ImmutableTensor"
            records = (P.Host2DeviceCopy(),) if small is None else ()
            if small is None:
                shape = values[value].shape
                held = Tensor(shape=shape, dtype=dtype, name=name, comp_node="xpux:0")
            else:
                held = Tensor.of(small, dtype, name=name)
            node = graph.add(
                registry.by_name(op), (), outputs=[name], params=records, name=name, tensors=(held,)
            )
            copies[value] = node.outputs[0]
        before = reachable(v for n in rest for v in n.inputs) & self._constant
        ordered = [n for n in rest[0].graph.nodes if n in before]
        for node in (*ordered, *rest):
            copy_node(graph, node, copies)
        return graph, copies
