"""Extremes, sorting and suppression, with ties, NaN, signed zeros and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ["float32", "float16", "int32", "int16", "int8", "uint8"]


def rows(kind: str, *shape: int) -> Array:
    """Numbers with many equal ones; floats with all that is special."""
    random = np.random.default_rng(sum(shape))
    if np.dtype(kind).kind != "f":
        info = np.iinfo(kind)
        x = random.integers(max(info.min, -40), min(info.max, 40), shape).astype(kind)
        x.reshape(-1)[:: max(x.size // 3, 1)] = info.min
        return x
    x = np.round(random.standard_normal(shape), 1).astype(kind)
    flat = x.reshape(-1)
    flat[5::29], flat[3::23], flat[7::31], flat[1::37] = np.nan, -0.0, -np.inf, np.inf
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 17, 300])
@pytest.mark.parametrize("order", [P.ArgsortOrder.ASCENDING, P.ArgsortOrder.DESCENDING])
def test_argsort(n: int, kind: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows(kind, 5, n)
    check(graph_of("Argsort", [x], P.Argsort(order=order)), [x], monkeypatch)


@pytest.mark.parametrize("k", [1, 7, -7, 400, -400])
@pytest.mark.parametrize("mode", list(P.TopKMode)[:3])
def test_top_k(k: int, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows("float32", 3, 90)
    graph = graph_of("TopK", [x, np.array([k], np.int32)], P.TopK(mode=mode), constant=[1])
    check(graph, [x], monkeypatch)


@pytest.mark.parametrize("name", ["Argmax", "Argmin"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 1), 1), ((5, 3), 1), ((4, 1000), 1), ((3, 21, 7), 1), ((2, 9, 50), 1), ((17, 5), 0)],
)
def test_extremes(
    shape: tuple[int, ...], axis: int, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rows(kind, *shape)
    check(graph_of(name, [x], P.Axis(axis=axis)), [x], monkeypatch)


@pytest.mark.parametrize("name", ["Argmax", "Argmin"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_the_first_of_equal_extremes(
    value: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.full((2, 70), value, np.float32)
    x[1, :5] = 0.0
    check(graph_of(name, [x], P.Axis(axis=1)), [x], monkeypatch)


def boxes(batch: int, n: int) -> Array:
    random = np.random.default_rng(n)
    corner = random.uniform(0, 60, (batch, n, 2))
    return np.concatenate([corner, corner + random.uniform(1, 30, (batch, n, 2))], -1).astype(
        np.float32
    )


@pytest.mark.parametrize("limit", [1, 9, 1000])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 200])
@pytest.mark.parametrize("threshold", [0.0, 0.4, 1.0])
def test_suppression(n: int, limit: int, threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = boxes(3, n)
    graph = graph_of("NMSKeep", [x], P.NMSKeep(iou_thresh=threshold, max_output=limit))
    check(graph, [x], monkeypatch)


def test_suppression_of_boxes_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = boxes(1, 40)
    x[0, 3::7, 1], x[0, 5::9], x[0, 11] = np.nan, np.inf, 0.0
    graph = graph_of("NMSKeep", [x], P.NMSKeep(iou_thresh=0.5, max_output=40))
    check(graph, [x], monkeypatch)
