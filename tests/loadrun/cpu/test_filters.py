"""Images blurred and turned round, and what is infinite, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]
Border = P.WarpPerspectiveV1BorderMode


def images(kind: str, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0, 255, shape).astype(kind)


@pytest.mark.parametrize(
    "border",
    [Border.REPLICATE, Border.REFLECT, Border.REFLECT_101, Border.WRAP, Border.CONSTANT],
)
@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_blurs(kind: str, border: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for c, size, sigma in ((1, (3, 5), (0.0, 0.0)), (3, (0, 9), (1.2, 0.7)), (3, (1, 1), (0, 0))):
        x = images(kind, 2, 11, 19, c)
        record = P.GaussianBlur(
            border_mode=border, kernel_height=size[0], kernel_width=size[1], sigma_x=sigma[0],
            sigma_y=sigma[1],
        )  # fmt: skip
        check(graph_of("GaussianBlur", [x], record), [x], monkeypatch, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float16", "uint8"])
def test_turns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(kind, 2, 5, 19, 3)
    for turned in (True, False):
        check(graph_of("Rotate", [x], P.Rotate(clockwise=turned)), [x], monkeypatch)
        record = P.Flip(vertical=True, horizontal=turned)
        check(graph_of("Flip", [x], record), [x], monkeypatch)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_what_is_infinite(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(kind, 3, 37)
    x[1, 2] = np.nan
    graph = graph_of("CheckHasInf", [x], P.Empty())
    check(graph, [x], monkeypatch)
    x[2, 36] = -np.inf
    check(graph, [x], monkeypatch)
