"""Tiles of convolutions and products of matrices, scalar and on tensor cores, agree.

The tensor-core kernels run as they are: fragments, rows in shared memory, copies that go on
meanwhile; only the three instructions themselves are answered by the emulated device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from loadrun.backends.cuda import lower
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.planner import make_plan
from loadrun.backends.cuda.program import Program
from loadrun.backends.cuda.variants import Algorithm, Choice, Target
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")

SM80 = Target((8, 0))
TF32 = Target((8, 0), tf32=True)
_NUMPY = {"Float32": np.float32, "Float16": np.float16, "Int8": np.int8, "Uint8": np.uint8}


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution; `shape` is that of the image, `outputs` and `kernel` are of the filter."""

    shape: tuple[int, ...]
    outputs: int
    kernel: int = 3
    stride: int = 1
    pad: int = 0
    dilate: int = 1
    groups: int = 1

    def graph(self, dtype: str, *, layout: str = "NCHW") -> tuple[Graph, Array]:
        """The layer alone, and an input."""
        random = np.random.default_rng(7)
        n, c, h, w = self.shape
        filters: tuple[int, ...] = (self.outputs, c // self.groups, self.kernel, self.kernel)
        shape: tuple[int, ...] = self.shape
        if layout == "NHWC":
            shape, filters = (n, h, w, c), (filters[0], *filters[2:], filters[1])
        if self.groups > 1:
            filters = (self.groups, filters[0] // self.groups, *filters[1:])
        data = _values(random, shape, dtype)
        b = GraphBuilder()
        x = b.input("data", shape, dtype=dtype)
        param = P.Convolution(
            pad_h=self.pad, pad_w=self.pad, stride_h=self.stride, stride_w=self.stride,
            dilate_h=self.dilate, dilate_w=self.dilate,
            format=getattr(P.ConvolutionFormat, layout),
            sparse=P.ConvolutionV0Sparse.GROUP if self.groups > 1 else P.ConvolutionV0Sparse.DENSE,
        )  # fmt: skip
        y = b.apply(
            "Convolution", [x, b.param(_values(random, filters, dtype))],
            params=(param, P.ExecutionPolicy()),
        )  # fmt: skip
        b.output(y[0], "y")
        return b.graph(), data


def _values(random: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    kind = np.dtype(_NUMPY[dtype])
    if kind.kind in "iu":
        return random.integers(0, 256, shape).astype(np.uint8).view(kind)
    return random.standard_normal(shape).astype(kind)


Pick = Callable[[tuple[Choice, ...]], Choice]


def run(graph: Graph, feeds: list[Array], target: Target, pick: Pick) -> tuple[list[Array], str]:
    """Results of a graph by the candidates that `pick` takes, and its plan."""
    network = lower.lower(graph, graph.inference).network
    plan = make_plan(network, target, choose=lambda _, found: pick(found))
    program = Program(plan, EmulatedDevice(capability=target.capability))
    try:
        return [r.copy() for r in program.run(feeds)], str(plan)
    finally:
        program.close()


def expected(graph: Graph, feeds: list[Array]) -> list[Array]:
    with Session(graph, "reference") as session:
        return list(session.run(feeds).values())


def agree(graph: Graph, feeds: list[Array], target: Target, pick: Pick, rtol: float) -> str:
    """Compare with the reference; the plan. `rtol` is relative to the largest result."""
    (want,), (got,) = expected(graph, feeds), run(graph, feeds, target, pick)[0]
    if want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        scale = float(np.abs(want.astype(np.float64)).max())
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=0, atol=rtol * scale
        )
    return run_plan(graph, target, pick)


def run_plan(graph: Graph, target: Target, pick: Pick) -> str:
    network = lower.lower(graph, graph.inference).network
    return str(make_plan(network, target, choose=lambda _, found: pick(found)))


def first(found: tuple[Choice, ...]) -> Choice:
    return found[0]


def of_tile(algorithm: Algorithm, bm: int, bn: int, splits: int = 1) -> Pick:
    def pick(found: tuple[Choice, ...]) -> Choice:
        tiles = [c.tile for c in found if c.algorithm is algorithm and c.tile is not None]
        (tile, *_) = [t for t in tiles if (t.bm, t.bn) == (bm, bn)]
        return Choice(algorithm, tile, splits)

    return pick


LAYERS = {
    "plain 1x1": Layer((2, 64, 9, 7), 40, kernel=1),
    "1x1 of odd channels": Layer((2, 19, 9, 7), 40, kernel=1),
    "3x3": Layer((2, 64, 9, 7), 40, pad=1),
    "3x3 of odd channels": Layer((1, 19, 9, 7), 70, pad=1),
    "first layer": Layer((1, 3, 23, 21), 16, kernel=7, stride=2, pad=3),
    "dilated": Layer((1, 32, 11, 12), 33, pad=2, dilate=2),
    "groups": Layer((1, 64, 8, 9), 64, pad=1, groups=4),
    "no padding, stride": Layer((3, 24, 11, 9), 35, stride=2),
}
TYPES = {
    "float32": ("Float32", SM80, Algorithm.SCALAR, 2e-6),
    "tf32": ("Float32", TF32, Algorithm.TENSOR, 1e-3),
    "float16": ("Float16", SM80, Algorithm.TENSOR, 1e-3),
    "int8": ("Int8", SM80, Algorithm.TENSOR, 0.0),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree(name: str, kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    graph, data = LAYERS[name].graph(dtype)
    plan = agree(graph, [data], target, first, rtol)
    assert f" {algorithm.value} " in plan


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("channels", [16, 64, 20])
def test_layers_whose_channels_lie_next_to_each_other_agree(channels: int, kind: str) -> None:
    dtype, target, _, rtol = TYPES[kind]
    graph, data = Layer((2, channels, 7, 9), 24, pad=1).graph(dtype, layout="NHWC")
    agree(graph, [data], target, first, rtol)


_SHAPES = [(128, 128), (64, 64), (32, 64), (128, 64), (64, 128), (64, 32)]


@pytest.mark.parametrize(("tile", "kind"), list(itertools.product(_SHAPES, TYPES)))
def test_every_tile_agrees(tile: tuple[int, int], kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    graph, data = Layer((1, 64, 12, 13), 150, kernel=1).graph(dtype)
    plan = agree(graph, [data], target, of_tile(algorithm, *tile), rtol)
    assert f"{tile[0]}x{tile[1]} {algorithm.value} " in plan


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("splits", [2, 5])
def test_parts_of_the_sum_agree(splits: int, kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    graph, data = Layer((1, 128, 5, 6), 64, pad=1).graph(dtype)
    plan = agree(graph, [data], target, of_tile(algorithm, 64, 64, splits), rtol)
    assert f"split {splits}" in plan
