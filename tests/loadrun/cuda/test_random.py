"""Random numbers on the device: the reference's stream where it has one, else its distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_check import check, graph_of, on_device

from loadrun.backends.cuda import source
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Kernel
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import ExecutionError

pytestmark = pytest.mark.usefixtures("device")


def _shape(*dims: int) -> list[np.ndarray[Any, Any]]:
    return [np.array(dims, np.int32)]


@pytest.mark.parametrize("count", [1, 7, 1000, 16384 + 5, (1 << 20) + 77])
def test_uniform_numbers_are_the_references_run_after_run(count: int) -> None:
    param = P.UniformRNG(seed=42, dtype=DTypeEnum.Float32)
    check(graph_of("UniformRNG", _shape(count), param, constant=[0]), [], runs=4)


@pytest.mark.parametrize("dtype", [DTypeEnum.Float16, DTypeEnum.BFloat16])
def test_uniform_numbers_of_half_precision_are_the_references(dtype: DTypeEnum) -> None:
    param = P.UniformRNG(seed=3, dtype=dtype)
    check(graph_of("UniformRNG", _shape(3, 70), param, constant=[0]), [], runs=2)


@pytest.mark.parametrize("dtype", [DTypeEnum.Float32, DTypeEnum.Float16])
@pytest.mark.parametrize("count", [1, 2, 501, 20001])
def test_normal_numbers_are_the_references(count: int, dtype: DTypeEnum) -> None:
    param = P.GaussianRNG(seed=7, mean=2.0, std=0.5, dtype=dtype)
    graph = graph_of("GaussianRNG", _shape(count), param, constant=[0])
    tolerance = 1e-6 if dtype is DTypeEnum.Float32 else 1e-3
    check(graph, [], rtol=tolerance, atol=tolerance, runs=3)


def test_exponential_numbers_are_the_references() -> None:
    rate = np.linspace(0.1, 9, 300).astype(np.float32)
    graph = graph_of("ExponentialRNG", [rate], P.ExponentialRNG(seed=11))
    check(graph, [rate], rtol=1e-6, runs=2)


@pytest.mark.parametrize("count", [1, 2, 3, 40, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", [DTypeEnum.Int32, DTypeEnum.Float32, DTypeEnum.Int16])
def test_permutations_are_the_references(count: int, dtype: DTypeEnum) -> None:
    param = P.PermutationRNG(seed=5, dtype=dtype)
    check(graph_of("PermutationRNG", _shape(count), param, constant=[0]), [], runs=2)


def test_shuffled_rows_and_their_way_back_are_the_references() -> None:
    x = np.arange(200 * 3, dtype=np.float32).reshape(200, 3)
    check(graph_of("ShuffleRNG", [x], P.ShuffleRNG(seed=9)), [x], runs=3)
    index = np.random.default_rng(0).integers(0, 200, 200).astype(np.int32)
    back = graph_of("ShuffleRNGBackward", [x, index, x], P.ShuffleRNG())
    check(back, [x, index, x])
    index[7] = 200
    with pytest.raises(ExecutionError, match="an index is outside its axis"):
        on_device(back, [x, index, x])


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_dropout_keeps_what_the_reference_keeps(kind: type) -> None:
    x = np.random.default_rng(1).standard_normal((6, 50)).astype(kind)
    param = P.Dropout(drop_prob=0.3, seed=21)
    check(graph_of("Dropout", [x], param), [x], runs=4)
    mask = (np.arange(300) % 3 != 0).astype(np.uint8)
    graph = graph_of("DropoutBackward", [x, mask], param, dtypes={1: "Byte"})
    check(graph, [x, mask])


def test_words_of_the_counter_based_generator_are_the_published_ones() -> None:
    """Answers of the authors' own test vectors for counter and key 0 and all ones."""
    body = source.text("philox") + (
        'extern "C" __global__ void $NAME(unsigned *x, int key) {\n'
        "  philox_$NAME(x, (u32)key, (u32)key); }"
    )
    device = EmulatedDevice()
    try:
        kernel = Kernel.of("test", body)
        function = device.build([kernel])[kernel.name]
        address = device.allocate(16)
        for key, want in (
            (0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
            (-1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ):
            words = np.full(4, key, np.int32).view(np.uint32)
            device.upload(address, words)
            device.launch(function, (1, 1, 1), 1, [np.uint64(address), np.int32(key)])
            device.download(words, address)
            assert words.tolist() == want
    finally:
        device.close()


def _moments(
    name: str, params: Any, *parameters: float
) -> tuple[float, float, np.ndarray[Any, Any]]:
    arrays = [np.full(40000, p, np.float32) for p in parameters]
    (first, second) = on_device(graph_of(name, arrays, params), arrays, runs=2)
    assert not np.array_equal(first["y0"], second["y0"])
    (again,) = on_device(graph_of(name, arrays, params), arrays)
    np.testing.assert_array_equal(again["y0"], first["y0"])
    values = np.concatenate([first["y0"], second["y0"]]).astype(np.float64)
    return values.mean(), values.var(), values


def _near(found: float, want: float, deviation: float, count: int = 80000) -> None:
    """Within five standard errors."""
    assert abs(found - want) < 5 * deviation / math.sqrt(count), (found, want)


@pytest.mark.parametrize(("shape", "scale"), [(0.3, 2.0), (1.0, 1.0), (7.5, 0.5)])
def test_gamma_numbers_have_their_mean_and_variance(shape: float, scale: float) -> None:
    mean, variance, values = _moments("GammaRNG", P.GammaRNG(seed=1), shape, scale)
    _near(mean, shape * scale, scale * math.sqrt(shape))
    spread = scale**2 * math.sqrt(shape * (2 * shape + 6))
    _near(variance, shape * scale**2, spread)
    assert values.min() >= 0


@pytest.mark.parametrize(("a", "b"), [(0.2, 0.5), (2.0, 5.0)])
def test_beta_numbers_have_their_mean_and_variance(a: float, b: float) -> None:
    mean, variance, values = _moments("BetaRNG", P.BetaRNG(seed=2), a, b)
    want = a * b / ((a + b) ** 2 * (a + b + 1))
    _near(mean, a / (a + b), math.sqrt(want))
    _near(variance, want, want * 2)
    assert 0 <= values.min() <= values.max() <= 1


@pytest.mark.parametrize("rate", [0.0, 0.7, 9.5, 10.5, 300.0])
def test_poisson_counts_have_their_mean_and_variance(rate: float) -> None:
    rates = np.full(40000, rate, np.float32)
    (got,) = on_device(graph_of("PoissonRNG", [rates], P.PoissonRNG(seed=3)), [rates])
    values = got["y0"].astype(np.float64)
    assert np.array_equal(values, np.floor(values))
    if rate == 0:
        assert not values.any()
        return
    _near(values.mean(), rate, math.sqrt(rate), 40000)
    _near(values.var(), rate, math.sqrt(rate + 2 * rate**2), 40000)


def test_parameters_out_of_range_give_no_number() -> None:
    bad = np.array([-1, 0, np.inf, np.nan, 1], np.float32)
    ones = np.ones(5, np.float32)
    for name, param in (("GammaRNG", P.GammaRNG()), ("BetaRNG", P.BetaRNG())):
        (got,) = on_device(graph_of(name, [bad, ones], param), [bad, ones])
        assert np.isnan(got["y0"]).tolist() == [True] * 4 + [False]
    (got,) = on_device(graph_of("PoissonRNG", [bad], P.PoissonRNG()), [bad])
    assert np.isnan(got["y0"]).tolist() == [True, False, True, True, False]


def test_classes_are_drawn_by_their_weights() -> None:
    weights = np.array([[1, 0, 3, 4], [0, 5, 0, 0]], np.float32)
    param = P.MultinomialRNG(num_samples=20000, replacement=True, seed=4)
    (got,) = on_device(graph_of("MultinomialRNG", [weights], param), [weights])
    counts = np.bincount(got["y0"][0], minlength=4)
    assert counts[1] == 0
    for k, p in enumerate((0.125, 0, 0.375, 0.5)):
        _near(counts[k] / 20000, p, math.sqrt(p * (1 - p)) + 1e-9, 20000)
    assert (got["y0"][1] == 1).all()


def test_classes_drawn_without_replacement_are_different() -> None:
    weights = np.tile(np.array([1, 2, 3, 0, 4], np.float32), (3000, 1))
    param = P.MultinomialRNG(num_samples=3, replacement=False, seed=4)
    graph = graph_of("MultinomialRNG", [weights], param)
    (got,) = on_device(graph, [weights])
    assert (np.diff(np.sort(got["y0"], axis=1), axis=1) > 0).all()
    assert not (got["y0"] == 3).any()
    first = np.bincount(got["y0"][:, 0], minlength=5) / 3000
    for k, p in enumerate((0.1, 0.2, 0.3, 0.0, 0.4)):
        _near(first[k], p, math.sqrt(p * (1 - p)) + 1e-9, 3000)
    weights[7] = [1, 2, 0, 0, 0]
    with pytest.raises(ExecutionError, match="enough of them above 0"):
        on_device(graph, [weights])


def test_two_generators_of_one_seed_are_two() -> None:
    """Each operator has its own place in the stream."""
    from mgeserial.author import GraphBuilder

    b = GraphBuilder()
    shape = b.param(np.array([8], np.int32))
    param = P.UniformRNG(seed=1, dtype=DTypeEnum.Float32)
    for k in range(2):
        b.output(b.apply("UniformRNG", [shape], params=(param,))[0], f"y{k}")
    with Session(b.graph(), "cuda") as session:
        first, second = (session.run([]) for _ in range(2))
        np.testing.assert_array_equal(first["y0"], first["y1"])
        np.testing.assert_array_equal(second["y0"], second["y1"])
        assert not np.array_equal(first["y0"], second["y0"])
