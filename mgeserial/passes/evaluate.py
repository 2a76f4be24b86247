"""Values of constants, and comparison of graphs by their computed outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import InputError, MgeError
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.inference import call_of, infer
from mgeserial.ir.running import run_node
from mgeserial.ir.types import ABSENT

__all__ = ["HOLDERS", "Constants", "OutputCheck", "compute"]

# Operators that hold weights and constants.
HOLDERS = frozenset(
    {
        "ImmutableTensor", "MultipleDeviceTensorHolder", "MultipleDeviceTensorWithFormatHolder",
        "SharedDeviceTensor", "SharedDeviceTensorWithFormat",
    }
)  # fmt: skip
# Operators that are more than a function of their inputs, whatever their record says.
_NEVER = frozenset({"AssertEqual", "Host2DeviceCopy", "VolatileSharedDeviceTensor"})
# A constant of more elements is not computed: 1 GiB of float32.
_LARGEST = 1 << 28


class Constants:
    """Which values of a graph depend on weights and constants alone, and what they are."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inference = graph.inference
        self._const: dict[Value, bool] = {}
        self._values: dict[Value, Array | None] = {}
        for node in graph.nodes:
            fixed = node.op.name in HOLDERS or (
                bool(node.inputs) and _is_function(node) and all(map(self.is_const, node.inputs))
            )
            self._const.update(dict.fromkeys(node.outputs, fixed))

    def is_const(self, value: Value) -> bool:
        """Whether a value depends on weights and constants alone."""
        return self._const[value]

    def value(self, value: Value) -> Array | None:
        """A constant's value; None when it is none, cannot be computed or is too large."""
        if not self._const[value]:
            return None
        stack = [value.node]
        while stack:
            node = stack[-1]
            waiting = [v.node for v in node.inputs if v not in self._values]
            if waiting and node.outputs[0] not in self._values:
                stack.extend(waiting)
                continue
            stack.pop()
            if node.outputs[0] not in self._values:
                self._compute(node)
        return self._values[value]

    def _compute(self, node: Node) -> None:
        self._values.update(dict.fromkeys(node.outputs))
        types = self._inference.types
        arrays: list[Array] = []
        for value in node.inputs:
            array = self._values[value]
            if array is None:
                return
            arrays.append(array)
        if any(types[v].is_static and types[v].size > _LARGEST for v in node.outputs):
            return
        try:
            results = run_node(node, call_of(node, self._inference), arrays)
        except MgeError:
            # Whoever runs the graph gets the error; nothing is folded here.
            return
        if not any(r is ABSENT for r in results):
            self._values.update(zip(node.outputs, results, strict=True))


def _is_function(node: Node) -> bool:
    op = node.op
    return op.is_pure and op.reference is not None and op.name not in _NEVER


def compute(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of a graph for inputs by name, by each operator's reference code.

    Raises:
        InputError: An input is missing.
        MgeError: What an operator refuses.
    """
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    missing = [n for n in inputs if n not in feeds]
    if missing:
        raise InputError(f"input {missing[0]!r} is missing")
    values = {value: feeds[name] for name, value in inputs.items()}
    inference = infer(graph, {v: a.shape for v, a in values.items()})
    needed = reachable(graph.outputs)
    for node in graph.nodes:
        if node in needed and not (node.outputs and node.outputs[0] in values):
            call = call_of(node, inference).replace(state={})
            results = run_node(node, call, [values[v] for v in node.inputs])
            values.update(zip(node.outputs, results, strict=True))
    return [values[v] for v in graph.outputs]


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Compares computed outputs before and after a pass (a `Check` for `run_passes`).

    Attributes:
        feeds: Inputs by name.
        rtol, atol: Tolerance of floating outputs.
        steps: Difference allowed of integer and quantised outputs.
    """

    feeds: Mapping[str, Array]
    rtol: float = 1e-4
    atol: float = 1e-5
    steps: int = 0

    def __call__(self, before: Graph, after: Graph) -> str | None:
        """What differs between the outputs of two graphs, None when nothing does."""
        wanted, found = compute(before, self.feeds), compute(after, self.feeds)
        return self.compare(before.output_names, wanted, found)

    def compare(
        self, names: Sequence[str], wanted: Sequence[Array], found: Sequence[Array]
    ) -> str | None:
        """As calling, for outputs computed already."""
        for name, a, b in zip(names, wanted, found, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"output {name!r} was {a.dtype} {a.shape} and is {b.dtype} {b.shape}"
            x, y = a.astype(np.float64), b.astype(np.float64)
            atol, rtol = (self.atol, self.rtol) if a.dtype.kind == "f" else (self.steps, 0.0)
            near = np.isclose(y, x, rtol=rtol, atol=atol, equal_nan=True)
            if not near.all():
                worst = float(np.nanmax(np.abs(y - x)[~near]))
                return (
                    f"output {name!r} differs in {int((~near).sum())} elements by up to {worst:g}"
                )
        return None
