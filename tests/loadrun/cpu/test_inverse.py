"""Inverses of matrices and cross products, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, native, reference, refuses

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.errors import ExecutionError

Array = np.ndarray[Any, np.dtype[Any]]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 17, 33, 128])
def test_inverses(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(2, 3, n, n) if n < 100 else numbers(1, n, n)
    graph = graph_of("MatrixInverse", [x], P.Empty())
    check(graph, [x], monkeypatch, rtol=1e-5, atol=1e-6)
    # A permutation, of which every pivot is elsewhere.
    turned = np.eye(n, dtype=np.float32)[np.random.default_rng(n).permutation(n)] * 3
    check(graph, [np.broadcast_to(turned, x.shape).copy()], monkeypatch)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(7, 9, 9)
    graph = graph_of("MatrixInverse", [x], P.Empty())
    want, *_ = native(graph, [x], monkeypatch, threads=1)
    for threads in (2, 5):
        got, *_ = native(graph, [x], monkeypatch, threads=threads)
        np.testing.assert_array_equal(got["y0"], want["y0"])


def test_singular_matrices_are_the_error_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(3, 4, 4)
    x[1, 2] = 0  # whatever the order of operations, a pivot is exactly zero
    refuses(graph_of("MatrixInverse", [x], P.Empty()), [x], monkeypatch, ExecutionError)


def test_what_is_nearly_singular_is_what_the_reference_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    x[2, 2] += np.float32(1e-6)
    check(graph_of("MatrixInverse", [x], P.Empty()), [x], monkeypatch)


def test_large_matrices_stay_with_the_reference_code() -> None:
    x = numbers(257, 257)
    graph = graph_of("MatrixInverse", [x], P.Empty())
    with Session(graph, "cpu") as session:
        got = session.run([x])
        assert session.program is not None
        assert session.program.report.fallback == {"MatrixInverse": 1}
    np.testing.assert_array_equal(got["y0"], reference(graph, [x])["y0"])


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((3,), (3,), (0, 0, 0)),
        ((5, 19, 3), (5, 19, 3), (-1, -1, -1)),
        ((3, 5, 19), (19, 3), (0, 1, 1)),
        ((5, 1, 3), (3, 19), (2, 0, -1)),
    ],
)
def test_cross_products(
    a: tuple[int, ...], b: tuple[int, ...], axes: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    feeds = [numbers(*a), numbers(*b) + 1]
    record = P.Cross(axisa=axes[0], axisb=axes[1], axisc=axes[2])
    check(graph_of("Cross", feeds, record), feeds, monkeypatch, rtol=1e-6, atol=1e-6)
