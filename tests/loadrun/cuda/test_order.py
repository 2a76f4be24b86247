"""Rows that are too long to be sorted by counting: runs are merged."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_check import check, graph_of

from mgeserial import params as P

pytestmark = pytest.mark.usefixtures("device")


def _rows(kind: type, n: int) -> np.ndarray:
    random = np.random.default_rng(n)
    if kind is np.int32:
        return random.integers(-20, 20, (2, n)).astype(kind)
    x = np.round(random.standard_normal((2, n)), 1).astype(kind)
    x[:, ::97] = np.nan
    x[:, ::89] = -0.0
    x[0, ::101] = -np.inf
    return x


@pytest.mark.parametrize("n", [1024, 1025, 4096, 5001])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("order", [P.ArgsortOrder.ASCENDING, P.ArgsortOrder.DESCENDING])
def test_long_rows_are_sorted_as_the_reference_sorts_them(
    n: int, kind: type, order: P.ArgsortOrder
) -> None:
    x = _rows(kind, n)
    check(graph_of("Argsort", [x], P.Argsort(order=order)), [x])


@pytest.mark.parametrize("k", [5, -5, 3000, -3000])
@pytest.mark.parametrize("mode", list(P.TopKMode)[:3])
def test_extremes_of_long_rows_are_those_of_the_reference(k: int, mode: P.TopKMode) -> None:
    x = _rows(np.float32, 3000)
    graph = graph_of("TopK", [x, np.array([k], np.int32)], P.TopK(mode=mode), constant=[1])
    check(graph, [x])
