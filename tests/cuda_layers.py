"""Layers for tests of convolutions and products of matrices, and what compares their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cuda import lower
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Plan
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program
from loadrun.backends.cuda.variants import Algorithm, Choice, Target
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array, DType, DTypeEnum, quantized
from mgeserial.ir.graph import Graph

SM80 = Target((8, 0))
TF32 = Target((8, 0), tf32=True)
Pick = Callable[[tuple[Choice, ...]], Choice]

_NAMED = {
    "Float32": DType(DTypeEnum.Float32),
    "Float16": DType(DTypeEnum.Float16),
    "BFloat16": DType(DTypeEnum.BFloat16),
    "Int8": DType(DTypeEnum.Int8),
    "Uint8": DType(DTypeEnum.Uint8),
    "s8": quantized(DTypeEnum.QuantizedS8, 0.01),
    "u8": quantized(DTypeEnum.Quantized8Asymm, 0.02, 131),
    "u8 filter": quantized(DTypeEnum.Quantized8Asymm, 0.03, 120),
}


def dtype_of(name: str) -> DType:
    """An element type by the name that these tests use."""
    return _NAMED[name]


def values(seed: int, shape: Sequence[int], dtype: DType) -> Array:
    """Random elements as they are stored; codes of every value."""
    random = np.random.default_rng(seed)
    if dtype.kind is DTypeEnum.BFloat16:
        return (random.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype("u2")
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.storage)
    return random.integers(0, 256, shape).astype(np.uint8).view(dtype.storage)


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution; `shape` is that of the image, `outputs` and `kernel` are of the filter.

    `layout`: NCHW, NHWC or one with blocks of channels; `fed`: the filter is an input;
    `transposed`: the gradient for the image of such a convolution, whose result is the image.
    """

    shape: tuple[int, int, int, int]
    outputs: int
    kernel: int = 3
    stride: int = 1
    pad: int = 0
    dilate: int = 1
    groups: int = 1
    layout: str = "NCHW"
    fed: bool = False
    transposed: bool = False

    def _stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Logical (n, c, h, w) or (o, i, h, w) as the layout stores it."""
        n, c, h, w = shape
        if self.layout == "NHWC":
            return n, h, w, c
        lanes = int(self.layout[4:] or 1)
        return shape if lanes == 1 else (n, c // lanes, h, w, lanes)

    def graph(self, dtype: str, filter_dtype: str = "") -> tuple[Graph, list[Array]]:
        """The layer alone, and its inputs."""
        kind, other = dtype_of(dtype), dtype_of(filter_dtype or dtype)
        n, c, h, w = self.shape
        filters = self._stored((self.outputs, c // self.groups, self.kernel, self.kernel))
        if self.groups > 1:
            filters = (self.groups, filters[0] // self.groups, *filters[1:])
        param = P.Convolution(
            pad_h=self.pad, pad_w=self.pad, stride_h=self.stride, stride_w=self.stride,
            dilate_h=self.dilate, dilate_w=self.dilate,
            format=getattr(P.ConvolutionFormat, self.layout),
            sparse=P.ConvolutionV0Sparse.GROUP if self.groups > 1 else P.ConvolutionV0Sparse.DENSE,
        )  # fmt: skip
        b = GraphBuilder()
        weights = values(1, filters, other)
        shape = self._stored((n, c, h, w))
        if self.transposed:
            span = self.dilate * (self.kernel - 1) + 1
            rows, columns = ((s + 2 * self.pad - span) // self.stride + 1 for s in (h, w))
            shape = self._stored((n, self.outputs, rows, columns))
        feeds = [values(2, shape, kind)]
        x = b.input("data", shape, dtype=kind)
        if self.fed:
            feeds.append(weights)
            flt = b.input("filter", filters, dtype=other)
        else:
            flt = b.param(weights, dtype=other)
        name = "ConvolutionBackwardData" if self.transposed else "Convolution"
        operands = [flt, x] if self.transposed else [x, flt]
        y = b.apply(name, operands, params=(param, P.ExecutionPolicy()))
        b.output(y[0], "y")
        return b.graph(), feeds


def plan_of(graph: Graph, target: Target, pick: Pick) -> Plan:
    """The plan with the candidates that `pick` takes."""
    network = lower.lower(graph, graph.inference).network
    return make_plan(network, target, choose=lambda _, found: pick(found))


def agree(
    graph: Graph, feeds: list[Array], target: Target, pick: Pick, rtol: float, *, steps: int = 0
) -> Plan:
    """Compare with the reference; the plan.

    `rtol` is relative to the largest result; integers and codes may differ by `steps`.
    """
    with Session(graph, "reference") as session:
        want = session.run(feeds)["y"]
    plan = plan_of(graph, target, pick)
    program = Program(plan, EmulatedDevice(capability=target.capability))
    try:
        (got,) = program.run(feeds)
        if want.dtype.kind == "f":
            scale = float(np.abs(want.astype(np.float64)).max())
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=0, atol=rtol * scale
            )
        else:
            apart = got.astype(np.int64) - want.astype(np.int64)
            assert got.shape == want.shape
            assert int(np.abs(apart).max()) <= steps
    finally:
        program.close()
    return plan


def first(found: tuple[Choice, ...]) -> Choice:
    """What is taken unmeasured."""
    return found[0]


def of_tile(algorithm: Algorithm, bm: int, bn: int, splits: int = 1) -> Pick:
    """A choice of an algorithm with the first tile of a size."""

    def pick(found: tuple[Choice, ...]) -> Choice:
        tiles = [c.tile for c in found if c.algorithm is algorithm and c.tile is not None]
        (tile, *_) = [t for t in tiles if (t.bm, t.bn) == (bm, bn)]
        return Choice(algorithm, tile, splits)

    return pick
