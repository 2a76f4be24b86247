"""Networks and backends with one planted fault, for what must find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from loadrun.backends import base
from loadrun.backends.base import CompileOptions, Program
from loadrun.backends.reference import ReferenceBackend
from mgeserial import dtypes, editing
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import Inference

INT8 = dtypes.quantized("QuantizedS8", 0.0625)


def network(blocks: int = 18, *, channels: int = 4, size: int = 8, seed: int = 0) -> Graph:
    """A residual network with random weights, 25 operators a block and some more.

    In its middle values are rounded, then quantised and dequantised. The operators are called
    `round` and `quantise`; the convolutions `block<k>.conv<j>`.
    """
    random = np.random.default_rng(seed)
    b = GraphBuilder()
    x = b.input("data", (1, channels, size, size))
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    for k in range(blocks):
        y = x
        for j, window in enumerate((1, 3, 1)):
            shape = (channels, channels, window, window)
            # Small, so that values stay near 1 however deep the network is.
            filters = random.standard_normal(shape).astype(np.float32) / (window * 4)
            weight = b.param(filters, name=f"block{k}.conv{j}.w")
            y = b.conv2d(y, weight, padding=window // 2, name=f"block{k}.conv{j}")
            y = b.batch_norm2d(y, ones, zeros, zeros, ones)
            y = b.relu(y) if j < 2 else y
        x = b.relu(b.add(x, y))
        if k == blocks // 2:
            x = b.mul(b.elemwise(b.mul(x, 64.0), mode="ROUND", name="round"), 1 / 64)
            x = b.type_cvt(b.type_cvt(x, dtype=INT8, name="quantise"), dtype=dtypes.FLOAT32)
    x = b.flatten(b.max_pool2d(x, 2))
    flat = channels * (size // 2) ** 2
    final = random.standard_normal((flat, 10)).astype(np.float32)
    b.output(b.matmul(x, b.param(final, name="fc.w")), "prob")
    return b.graph()


def change_weight(graph: Graph, name: str, by: float = 0.25) -> None:
    """Change one number of the weight called `name`."""
    node = next(n for n in graph.nodes if n.outputs and n.outputs[0].name == name)
    array = node.tensors[0].numpy().copy()
    array.reshape(-1)[array.size // 2] += np.float32(by)
    editing.replace_weight(graph, node, array)


def change_rounding(graph: Graph, mode: str = "FLOOR") -> None:
    """Let the operator called `round` round another way."""
    node = editing.find_node(graph, "round")
    editing.set_param(graph, node, mode=type(node.param.mode)[mode])


class FaultyBackend(ReferenceBackend):
    """The reference backend with another reference for one kind of operator.

    Args:
        name: Its name.
        applies: Which nodes are wrong.
        wrong: Makes the wrong result of the right one.
    """

    def __init__(
        self, name: str, applies: Callable[[Node], bool], wrong: Callable[[Array], Array]
    ) -> None:
        self.name = name
        self._applies = applies
        self._wrong = wrong

    def compile(self, graph: Graph, inference: Inference, options: CompileOptions) -> Any:
        """As the reference, but wrong."""
        for node in graph.nodes:
            if self._applies(node) and not getattr(node.op, "planted", False):
                node.op = _planted(node.op, self._wrong)
        program: Program = super().compile(graph, inference, options)
        return program


def _planted(op: Any, wrong: Callable[[Array], Array]) -> Any:
    right = op.reference

    def reference(call: Any, *arrays: Array) -> Any:
        found = right(call, *arrays)
        return wrong(found) if isinstance(found, np.ndarray) else found

    return dataclasses.replace(op, reference=reference)


@contextmanager
def registered(backend: FaultyBackend) -> Iterator[str]:
    """Make a backend known for a while; its name."""
    base.register_backend(backend.name, lambda: backend)
    try:
        yield backend.name
    finally:
        base._factories.pop(backend.name, None)
        base._made.pop(backend.name, None)


def rounding_backend() -> FaultyBackend:
    """Quantises to the next lower code wherever the code is odd."""
    return FaultyBackend(
        "planted-rounding",
        lambda n: n.op.name == "TypeCvt" and n.outputs[0].dtype.is_quantized,
        lambda codes: np.asarray(codes - np.bitwise_and(codes, 1)),
    )


def fusing_backend() -> FaultyBackend:
    """Wrong only in convolutions that have a bias and a nonlinearity in them."""
    return FaultyBackend(
        "planted-fusion",
        lambda n: n.op.name.startswith("ConvBias") and len(n.inputs) > 2,
        lambda x: np.add(x, np.float32(0.125)),
    )
