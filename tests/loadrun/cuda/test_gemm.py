"""Tiles of convolutions and products of matrices, scalar and on tensor cores, agree.

The tensor-core kernels run as they are: fragments, rows in shared memory, copies that go on
meanwhile; only the three instructions themselves are answered by the emulated device.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from cuda_kernels import compile_together
from cuda_layers import SM80, TF32, Layer, Pick, agree, dtype_of, first, of_tile, plan_of, values

from loadrun.backends.cuda.emit_tiles import round_to_tf32
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Kernel, Launch, Plan
from loadrun.backends.cuda.variants import Algorithm, Target
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import Array
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")

LAYERS = {
    "plain 1x1": Layer((2, 64, 9, 7), 40, kernel=1),
    "1x1 of whole images": Layer((2, 64, 8, 8), 40, kernel=1),
    "1x1 of odd channels": Layer((2, 19, 9, 7), 40, kernel=1),
    "3x3": Layer((2, 64, 9, 7), 40, pad=1),
    "3x3 of odd channels": Layer((1, 19, 9, 7), 70, pad=1),
    "first layer": Layer((1, 3, 23, 21), 16, kernel=7, stride=2, pad=3),
    "dilated": Layer((1, 32, 11, 12), 33, pad=2, dilate=2),
    "groups": Layer((1, 64, 8, 9), 64, pad=1, groups=4),
    "no padding, stride": Layer((3, 24, 11, 9), 35, stride=2),
    "fed filter": Layer((2, 19, 9, 7), 40, pad=1, fed=True),
    "fed filter of rows": Layer((2, 32, 9, 7), 40, kernel=1, fed=True),
    "transposed": Layer((2, 20, 9, 10), 32, stride=2, pad=1, transposed=True),
    "transposed, odd": Layer((1, 20, 9, 10), 7, stride=3, dilate=2, transposed=True),
    "rows of channels 16": Layer((2, 16, 7, 9), 24, pad=1, layout="NHWC"),
    "rows of channels 64": Layer((2, 64, 7, 9), 24, pad=1, layout="NHWC"),
    "rows of channels 20": Layer((2, 20, 7, 9), 24, pad=1, layout="NHWC"),
}
TYPES = {
    "float32": ("Float32", SM80, Algorithm.SCALAR, 2e-6),
    "tf32": ("Float32", TF32, Algorithm.TENSOR, 1e-3),
    "float16": ("Float16", SM80, Algorithm.TENSOR, 1e-3),
    "int8": ("Int8", SM80, Algorithm.TENSOR, 0.0),
}
TILES = [(128, 128), (64, 64), (32, 64), (128, 64), (64, 128), (64, 32), (32, 32)]


def _algorithms(plan: Plan) -> list[str]:
    return [s.algorithm for s in plan.steps if isinstance(s, Launch)]


def _ways(layer: Layer, pick: Callable[[Algorithm], Pick]) -> list[Plan]:
    """The plans of a layer for all types."""
    return [plan_of(layer.graph(d)[0], t, pick(a)) for d, t, a, _ in TYPES.values()]


@functools.cache
def _layer_is_compiled(name: str) -> None:
    compile_together(_ways(LAYERS[name], lambda _: first))


@functools.cache
def _tile_is_compiled(layer: Layer, tile: tuple[int, int]) -> None:
    compile_together(_ways(layer, lambda algorithm: of_tile(algorithm, *tile)))


def _of(algorithm: Algorithm) -> Pick:
    return lambda found: next(c for c in found if c.algorithm is algorithm)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree(name: str, kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    _layer_is_compiled(name)
    plan = agree(*LAYERS[name].graph(dtype), target, first, rtol)
    assert _algorithms(plan)[0].startswith(algorithm.value)


@pytest.mark.parametrize(("tile", "kind"), list(itertools.product(TILES, TYPES)))
def test_every_tile_agrees(tile: tuple[int, int], kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    layer = Layer((1, 64, 12, 13), 150, kernel=1)
    _tile_is_compiled(layer, tile)
    plan = agree(*layer.graph(dtype), target, of_tile(algorithm, *tile), rtol)
    assert f"{tile[0]}x{tile[1]} {algorithm.value} " in str(plan)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("splits", [2, 5])
def test_parts_of_the_sum_agree(splits: int, kind: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    layer = Layer((1, 128, 5, 6), 64, pad=1)
    plan = agree(*layer.graph(dtype), target, of_tile(algorithm, 64, 64, splits), rtol)
    assert _algorithms(plan)[0] == f"{algorithm.value} split {splits}"


@pytest.mark.parametrize(("dtype", "filters"), [("u8", "u8 filter"), ("s8", "s8")])
@pytest.mark.parametrize("name", ["3x3", "groups", "first layer", "rows of channels 16"])
def test_codes_with_zero_points_are_exact(name: str, dtype: str, filters: str) -> None:
    plan = agree(*LAYERS[name].graph(dtype, filters), SM80, first, 0.0)
    assert _algorithms(plan)[0].startswith("mma")


@pytest.mark.parametrize("splits", [1, 3])
def test_parts_of_codes_with_zero_points_are_exact(splits: int) -> None:
    graph, feeds = Layer((1, 128, 5, 6), 64, pad=1).graph("u8", "u8 filter")
    agree(graph, feeds, SM80, of_tile(Algorithm.TENSOR, 64, 64, splits), 0.0)


@pytest.mark.parametrize(("layout", "channels"), [("NCHW4", 24), ("NCHW32", 64), ("NCHW64", 128)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_blocks_of_channels_are_exact(layout: str, channels: int, kernel: int) -> None:
    lanes = int(layout[4:])
    layer = Layer((2, channels, 6, 7), lanes, kernel=kernel, pad=kernel // 2, layout=layout)
    plan = agree(*layer.graph("s8"), SM80, first, 0.0)
    assert _algorithms(plan)[0].startswith("mma")


@pytest.mark.parametrize("name", ["plain 1x1", "3x3", "first layer"])
def test_bfloat16_agrees(name: str) -> None:
    # Sums of another order round to a neighbour at times.
    graph, feeds = LAYERS[name].graph("BFloat16")
    plan = agree(graph, feeds, SM80, first, 0.0, steps=1)
    assert _algorithms(plan)[0].startswith("mma")


@pytest.mark.parametrize("dtype", ["Float32", "Float16", "s8", "u8"])
@pytest.mark.parametrize(
    "layer",
    [
        Layer((2, 5, 9, 11), 5, pad=1, groups=5),
        Layer((1, 6, 14, 13), 6, kernel=5, stride=2, pad=2, groups=6),
        Layer((2, 4, 10, 9), 4, pad=2, dilate=2, groups=4),
        Layer((2, 4, 8, 7), 4, kernel=7, groups=4),
        Layer((2, 8, 9, 5), 8, pad=1, groups=8, layout="NHWC"),
    ],
)
def test_depthwise_layers_agree(layer: Layer, dtype: str) -> None:
    rtol = 1e-3 if dtype == "Float16" else 2e-6
    plan = agree(*layer.graph(dtype), SM80, _of(Algorithm.DEPTHWISE), rtol)
    assert _algorithms(plan) == ["depthwise"]


# -- products of matrices ------------------------------------------------------------------------


def _product(
    dtype: str, batch: int, m: int, n: int, k: int, turned: str
) -> tuple[Graph, list[Array]]:
    kind = dtype_of(dtype)
    b = GraphBuilder()
    left, right = ((k, m) if turned[0] == "t" else (m, k)), ((n, k) if turned[1] == "t" else (k, n))
    shapes = [(batch, *s) if batch > 1 else s for s in (left, right)]
    feeds = [values(i, s, kind) for i, s in enumerate(shapes)]
    x = [b.input(f"x{i}", s, dtype=kind) for i, s in enumerate(shapes)]
    param = P.MatrixMul(transposeA=turned[0] == "t", transposeB=turned[1] == "t")
    name = "BatchedMatrixMul" if batch > 1 else "MatrixMul"
    b.output(b.apply(name, x, params=(param,))[0], "y")
    return b.graph(), feeds


@pytest.mark.parametrize("turned", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("kind", TYPES)
def test_products_of_matrices_agree(kind: str, turned: str) -> None:
    dtype, target, algorithm, rtol = TYPES[kind]
    sizes = (1, 40, 24, 32), (1, 17, 70, 45), (3, 24, 16, 48), (2, 9, 7, 21)
    cases = [_product(dtype, *size, turned) for size in sizes]
    compile_together(plan_of(graph, target, first) for graph, _ in cases)
    for graph, feeds in cases:
        plan = agree(graph, feeds, target, first, rtol)
        assert _algorithms(plan) == [algorithm.value]


# -- Winograd's algorithm ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer",
    [
        Layer((1, 20, 13, 10), 33, pad=1),
        Layer((3, 16, 8, 8), 16),
        Layer((2, 32, 5, 3), 70, pad=2),
        Layer((2, 40, 9, 14), 24, pad=1, layout="NHWC"),
    ],
)
def test_winograd_agrees(layer: Layer) -> None:
    plan = agree(*layer.graph("Float32"), SM80, _of(Algorithm.WINOGRAD), 1e-5)
    assert _algorithms(plan)[0] == "winograd"


def test_what_follows_is_part_of_winograds_last_launch() -> None:
    random = np.random.default_rng(5)
    weight = random.standard_normal((16, 16, 3, 3)).astype(np.float32)
    b = GraphBuilder()
    x = b.input("data", (2, 16, 9, 10))
    bias = random.standard_normal(16).astype(np.float32)
    b.output(b.relu(b.add(b.conv2d(x, weight, bias, padding=1), x)), "y")
    data = random.standard_normal((2, 16, 9, 10)).astype(np.float32)
    plan = agree(b.graph(), [data], SM80, _of(Algorithm.WINOGRAD), 1e-5)
    assert len(plan.steps) == 3


@pytest.mark.parametrize(
    ("layer", "first_choice"),
    [
        (Layer((1, 64, 56, 56), 64, pad=1), "tile"),
        (Layer((32, 64, 56, 56), 64, pad=1), "winograd"),
        (Layer((32, 64, 56, 56), 64, pad=1, stride=2), "tile"),
        (Layer((32, 64, 56, 56), 64, pad=1, fed=True), "tile"),
    ],
)
def test_winograd_is_taken_where_it_saves_much(layer: Layer, first_choice: str) -> None:
    graph, _ = layer.graph("Float32")
    assert _algorithms(plan_of(graph, Target(), first))[0].split()[0] == first_choice


# -- what is chosen ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "target", "algorithm"),
    [
        ("Float32", Target(), "tile"),
        ("Float32", SM80, "tile"),
        ("Float32", TF32, "mma"),
        ("Float32", Target((7, 5), tf32=True), "tile"),
        ("Float16", Target(), "gemm"),
        ("Float16", Target((7, 5)), "gemm"),
        ("Float16", Target((12, 0)), "mma"),
        ("Int8", Target((7, 0)), "gemm"),
        ("Int8", SM80, "mma"),
    ],
)
def test_tensor_cores_are_used_where_there_are_some(
    dtype: str, target: Target, algorithm: str
) -> None:
    graph, _ = LAYERS["3x3"].graph(dtype)
    (launch, *_) = _algorithms(plan_of(graph, target, first))
    assert launch.split()[0] == algorithm


def test_rounding_to_tf32_is_that_of_the_device() -> None:
    random = np.random.default_rng(3)
    bits = random.integers(0, 1 << 32, 1 << 12, np.uint64).astype(np.uint32)
    bits[:8] = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F801000, 0x3F800FFF, 1]
    kernel = Kernel.of(
        "round", 'extern "C" __global__ void $NAME(float *x) { int i = blockIdx.x * 64 + '
        "threadIdx.x; x[i] = as_tf32(x[i]); }",
    )  # fmt: skip
    device = EmulatedDevice()
    got = bits.view(np.float32).copy()
    at = device.allocate(got.nbytes)
    device.upload(at, got)
    device.launch(device.build([kernel])[kernel.name], (64, 1, 1), 64, [np.uint64(at)])
    device.download(got, at)
    device.close()
    np.testing.assert_array_equal(got, round_to_tf32(bits.view(np.float32)))
    ties = round_to_tf32(np.array([0x3F801000, 0xBF801000, 0x3F800FFF], np.uint32).view(np.float32))
    assert ties.view(np.uint32).tolist() == [0x3F802000, 0xBF802000, 0x3F800000]
