"""Random numbers: the reference backend's streams, from run to run, between canaries."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from single import RUNNABLE, _guarded, check, graph_of

from loadrun.backends.base import CompileOptions
from loadrun.backends.cpu import backend
from loadrun.backends.cpu.target import detect
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]
_RUNS = 3


def same(
    graph: Graph, feeds: list[Array], monkeypatch: pytest.MonkeyPatch, *, rtol: float | None = None,
    threads: int = 2,
) -> None:  # fmt: skip
    """Three runs give what three of the reference backend give, at all levels."""
    with Session(graph, "reference") as session:
        want = [dict(session.run(feeds)) for _ in range(_RUNS)]
    for level in RUNNABLE:
        monkeypatch.setenv("LOADRUN_CPU_LEVEL", level)
        detect.cache_clear()
        with (
            mock.patch.object(backend, "Program", _guarded),
            Session(graph, "cpu", threads=threads) as session,
        ):
            got = [dict(session.run(feeds)) for _ in range(_RUNS)]
            assert session.program is not None
            assert session.program.report.fallback == {}, session.program.report.notes
        for a, b in zip(got, want, strict=True):
            for name, array in b.items():
                assert a[name].dtype == array.dtype
                if rtol is None or array.dtype.kind != "f":
                    np.testing.assert_array_equal(a[name], array)
                else:
                    x, y = (v[name].astype(np.float32) for v in (a, b))
                    np.testing.assert_allclose(x, y, rtol, rtol)
    monkeypatch.delenv("LOADRUN_CPU_LEVEL")
    detect.cache_clear()


def shaped(op: str, param: Any, *shape: int) -> Graph:
    return graph_of(op, [np.array(shape, np.int32)], param, constant=[0])


COUNTS = [1, 2, 15, 16, 17, 255, 1000, 65537]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", [DTypeEnum.Float32, DTypeEnum.Float16, DTypeEnum.BFloat16])
def test_uniform(kind: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = shaped("UniformRNG", P.UniformRNG(seed=count, dtype=kind), count)
    same(graph, [], monkeypatch)


@pytest.mark.parametrize("threads", [1, 5])
def test_many_on_some_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = shaped("UniformRNG", P.UniformRNG(seed=2**63 + 5), 3, 100_001)
    same(graph, [], monkeypatch, threads=threads)


@pytest.mark.parametrize("count", [1, 2, 33, 1001])
def test_normal(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = shaped("GaussianRNG", P.GaussianRNG(seed=7, mean=0.5, std=2.0), count)
    same(graph, [], monkeypatch, rtol=2e-6)
    half = P.GaussianRNG(seed=7, mean=0.5, std=2.0, dtype=DTypeEnum.Float16)
    same(shaped("GaussianRNG", half, count), [], monkeypatch, rtol=1e-3)


@pytest.mark.parametrize("kind", [DTypeEnum.Float32, DTypeEnum.Int32, DTypeEnum.Int16])
@pytest.mark.parametrize("count", [1, 2, 17, 3000])
def test_permutations(count: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    same(shaped("PermutationRNG", P.PermutationRNG(seed=3, dtype=kind), count), [], monkeypatch)


@pytest.mark.parametrize("shape", [(1, 3), (9,), (33, 2, 20)])
@pytest.mark.parametrize("kind", ["float32", "float16", "uint8"])
def test_shuffled_rows(kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    same(graph_of("ShuffleRNG", [x], P.ShuffleRNG(seed=11)), [x], monkeypatch)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_exponential_and_dropout(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (np.arange(1, 3 * 67 + 1) / 9).reshape(3, 67).astype(kind)
    rtol = 2e-6 if kind == "float32" else 1e-3
    same(graph_of("ExponentialRNG", [x], P.ExponentialRNG(seed=1)), [x], monkeypatch, rtol=rtol)
    record = P.Dropout(drop_prob=0.3, seed=5)
    same(graph_of("Dropout", [x], record), [x], monkeypatch)
    mask = (np.arange(3 * 67) % 3).astype(np.uint8)
    check(graph_of("DropoutBackward", [x, mask], record), [x, mask], monkeypatch)


def test_a_search_for_algorithms_takes_no_numbers() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 16, 14, 14))
    y = b.conv2d(x, np.ones((16, 16, 3, 3), np.float32), None, padding=1)
    (n,) = b.apply("UniformRNG", [b.const(np.array([1, 16, 14, 14], np.int32))],
                   [P.UniformRNG(seed=9)])  # fmt: skip
    b.output(b.add(y, n), "y")
    b.output(n, "n")
    feeds = {"x": np.ones((1, 16, 14, 14), np.float32)}
    with Session(b.graph(), "reference") as session:
        want = [session.run(feeds)["n"].copy() for _ in range(2)]
    options = CompileOptions(fast_run=True)
    with Session(b.graph(), "cpu", threads=1, options=options) as session:
        got = [session.run(feeds)["n"].copy() for _ in range(2)]
    np.testing.assert_array_equal(got, want)


def test_a_run_that_is_repeated_by_reference_code_draws_the_same_numbers() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 3))
    (inverse,) = b.apply("MatrixInverse", [x], [P.Empty()])
    (n,) = b.apply("UniformRNG", [b.const(np.array([40], np.int32))], [P.UniformRNG(seed=9)])
    (g,) = b.apply("GammaRNG", [b.add(n, 1.0), n], [P.GammaRNG(seed=3)])
    for name, value in (("inverse", inverse), ("n", n), ("g", g)):
        b.output(value, name)
    good = np.eye(3, dtype=np.float32)
    nearly = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    nearly[2, 2] += np.float32(1e-6)
    with Session(b.graph(), "reference") as session:
        want = [dict(session.run({"x": x})) for x in (good, nearly, good)]
    with Session(b.graph(), "cpu", threads=2) as session:
        got = [dict(session.run({"x": x})) for x in (good, nearly, good)]
    for a, c in zip(got, want, strict=True):
        for name, array in c.items():
            np.testing.assert_array_equal(a[name], array)
