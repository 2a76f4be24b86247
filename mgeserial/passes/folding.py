"""Constants, copies and waste: folding, common sub-expressions, dead operators."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from mgeserial.dtypes import Array
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.passes.base import Fact, Log
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["CommonSubexpressions", "DeadCode", "FoldConstants", "SharedConstants"]

_NONE: frozenset[Fact] = frozenset()
# Elements up to which constants are compared: larger ones are rarely equal, and comparing them
# would read the whole file.
_LARGEST = 4096


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replaces what depends on weights and constants alone by its value.

    1. A constant that a non-constant operator, or an output, uses becomes a weight or constant of
       the kind of the largest it is made of.
    2. It is left when its value takes more than twice the bytes of the weights it is made of and
       `growth` bytes more than they do.
    3. It is left when an operator on the way has no reference code, or refuses its inputs.

    Attributes:
        growth: Bytes that one constant may grow by.
    """

    growth: int = 1 << 20
    name: str = "fold-constants"
    needs: frozenset[Fact] = _NONE
    ensures: frozenset[Fact] = frozenset({Fact.CONSTANTS_FOLDED})
    spoils: frozenset[Fact] = _NONE

    def run(self, graph: Graph, log: Log) -> Graph:
        """Fold."""
        scope, build = Scope(graph), Rebuild(graph)
        waiting: set[Node] = set()
        for node in graph.nodes:
            computed = node.op.name not in HOLDERS and bool(node.outputs)
            if computed and all(map(scope.is_const, node.outputs)):
                waiting.add(node)
                for value in filter(scope.is_output, node.outputs):
                    self._settle(value, scope, build, log, waiting)
                continue
            for value in node.inputs:
                if value.node in waiting:
                    self._settle(value, scope, build, log, waiting)
            build.carry(node)
        return build.finish() if log.rewrites else graph

    def _settle(
        self, value: Value, scope: Scope, build: Rebuild, log: Log, waiting: set[Node]
    ) -> None:
        """Give a constant its new value: folded, or its operators carried over."""
        if value in build.values:
            return
        leaves, count = _sources(value)
        array = scope.constant(value)
        reason = "it cannot be computed here" if array is None else self._too_large(array, leaves)
        if array is not None and reason is None:
            like = max(leaves, key=lambda n: sum(t.nbytes for t in n.tensors), default=None)
            build.put(value, build.weight(array, scope.type(value).dtype, like))
            detail = f"{count} operator{'s' * (count > 1)} into {array.nbytes} bytes"
            log.rewrite("fold", value.node, detail)
            return
        log.miss("fold", value.node, reason or "")
        for node in sorted(reachable([value]), key=lambda n: n.index):
            if node in waiting and not any(v in build.values for v in node.outputs):
                build.carry(node)

    def _too_large(self, array: Array, leaves: list[Node]) -> str | None:
        given = sum(t.nbytes for n in leaves for t in n.tensors)
        if array.nbytes <= max(2 * given, given + self.growth):
            return None
        return f"its {array.nbytes} bytes would replace {given} bytes of weights"


def _sources(value: Value) -> tuple[list[Node], int]:
    """Weights and constants that a constant is made of, and the number of operators on the way."""
    nodes = reachable([value])
    leaves = [n for n in nodes if n.op.name in HOLDERS]
    return sorted(leaves, key=lambda n: n.index), len(nodes) - len(leaves)


def _key_of_constant(node: Node, largest: int) -> Hashable | None:
    """What equal weights or constants have in common; None for others and for large ones."""
    if len(node.tensors) != 1 or node.op.name not in HOLDERS or node.tensors[0].size > largest:
        return None
    tensor = node.tensors[0]
    place = (tensor.comp_node, tensor.format, node.comp_nodes)
    return node.op.name, tensor.dtype, tensor.shape, place, tensor.numpy().tobytes()


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    """Computes once what equal operators compute from equal inputs.

    1. Operators of one record with equal parameters, inputs (constants are compared by value),
       output types and computing nodes are one, except:
    2. operators with a state or random numbers, weights, inputs and assertions;
    3. operators whose value is an output of the network, which keeps its own name.
    """

    name: str = "common-subexpressions"
    needs: frozenset[Fact] = _NONE
    ensures: frozenset[Fact] = _NONE
    spoils: frozenset[Fact] = _NONE

    def run(self, graph: Graph, log: Log) -> Graph:
        """Merge."""
        scope, build = Scope(graph), Rebuild(graph)
        known: dict[Hashable, Node] = {}
        stands_for: dict[Value, Value] = {}
        for node in graph.nodes:
            leaf = _key_of_constant(node, _LARGEST)
            if leaf is not None:
                same = known.setdefault(leaf, build.carry(node))
                stands_for[build[node.outputs[0]]] = same.outputs[0]
                continue
            mergeable = (
                node.op.is_pure
                and node.inputs
                and not node.tensors
                and node.op.name != "AssertEqual"
            )
            if not mergeable or node.unknown is not None:
                build.carry(node)
                continue
            inputs = tuple([stands_for.get(build[v], build[v]) for v in node.inputs])
            types = (node.output_dtype, node.comp_nodes, len(node.outputs))
            key = (node.op.name, node.params, node.blobs, inputs, types)
            first = known.get(key)
            if first is None:
                known[key] = build.carry(node)
            elif any(map(scope.is_output, node.outputs)):
                log.miss("merge", node, "it is an output of the network under its own name")
                build.carry(node)
            else:
                log.rewrite("merge", node, f"the same as {first.display_name!r}")
                for old, new in zip(node.outputs, first.outputs, strict=True):
                    build.put(old, new)
        return build.finish() if log.rewrites else graph


@dataclass(frozen=True, slots=True)
class SharedConstants:
    """Stores equal constants once.

    1. Weights and constants of equal kind, type, place and value are one, up to `largest` elements
       each.

    Attributes:
        largest: Number of elements up to which constants are compared.
    """

    largest: int = _LARGEST
    name: str = "shared-constants"
    needs: frozenset[Fact] = _NONE
    ensures: frozenset[Fact] = _NONE
    spoils: frozenset[Fact] = _NONE

    def run(self, graph: Graph, log: Log) -> Graph:
        """Merge."""
        outputs, build = set(graph.outputs), Rebuild(graph)
        known: dict[Hashable, Node] = {}
        for node in graph.nodes:
            key = _key_of_constant(node, self.largest)
            if key is None or node.outputs[0] in outputs:
                build.carry(node)
                continue
            first = known.get(key)
            if first is None:
                known[key] = build.carry(node)
            else:
                log.rewrite("share", node, f"the same as {first.display_name!r}")
                build.values[node.outputs[0]] = first.outputs[0]
        return build.finish() if log.rewrites else graph


@dataclass(frozen=True, slots=True)
class DeadCode:
    """Removes operators that no output needs; inputs stay, callers may still feed them."""

    name: str = "dead-code"
    needs: frozenset[Fact] = _NONE
    ensures: frozenset[Fact] = frozenset({Fact.NO_DEAD_CODE})
    spoils: frozenset[Fact] = _NONE

    def run(self, graph: Graph, log: Log) -> Graph:
        """Remove."""
        needed = reachable(graph.outputs)
        for node in graph.nodes:
            if node not in needed and not node.is_input:
                log.rewrite("remove", node, "no output needs it")
        return Rebuild.of(graph, lambda *_: False) if log.rewrites else graph
