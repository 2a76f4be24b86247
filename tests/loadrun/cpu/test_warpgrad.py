"""Gradients of warps, maps and near channels, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, native, refuses

from mgeserial import params as P
from mgeserial.errors import MgeError

Array = np.ndarray[Any, np.dtype[Any]]
Border = P.WarpPerspectiveV1BorderMode
Mode = P.WarpPerspectiveV1InterpolationMode
Format = P.ConvolutionFormat
BORDERS = [Border.CONSTANT, Border.REPLICATE, Border.REFLECT, Border.REFLECT_101, Border.WRAP]
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def numbers(*shape: int, scale: float = 1.0) -> Array:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * scale).astype(np.float32)


def positions(n: int, h: int, w: int, size: tuple[int, int]) -> Array:
    """Maps (x, y) that leave the images here and there."""
    random = np.random.default_rng(h * w)
    place = random.uniform(-0.3, 1.3, (n, h, w, 2)) * np.array(size[::-1])
    return place.astype(np.float32)


def matrices(count: int) -> Array:
    random = np.random.default_rng(count)
    found = np.tile(np.array([[1.1, 0.1, -1], [-0.2, 0.9, 1.5], [0.01, 0.002, 1]]), (count, 1, 1))
    return (found + random.normal(0, 0.01, found.shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("layout", "channels", "border"),
    [
        (Format.NCHW, 3, Border.CONSTANT),
        (Format.NHWC, 17, Border.REPLICATE),
        (Format.NCHW, 40, Border.REFLECT),
        (Format.NHWC, 1, Border.WRAP),
    ],
)
def test_maps(layout: Any, channels: int, border: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = layout == Format.NCHW
    x, diff = (
        numbers(*((2, channels, h, w) if first else (2, h, w, channels)))
        for h, w in ((6, 7), (5, 19))
    )
    map_ = positions(2, 5, 19, (6, 7))
    for mode in (Mode.LINEAR, Mode.NEAREST):
        record = P.Remap(imode=mode, border_type=border, format=layout, scalar=0.7)
        feeds = [map_, diff, x]
        check(graph_of("RemapBackwardData", feeds, record), feeds, monkeypatch, **CLOSE)
        feeds = [x, map_, diff]
        graph = graph_of("RemapBackwardMat", feeds, record)
        check(graph, feeds, monkeypatch, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize(("border", "channels"), [*((b, 3) for b in BORDERS), (BORDERS[0], 33)])
def test_matrices(border: Any, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.WarpPerspective(bmode=border, border_val=0.5)
    x, diff = numbers(2, channels, 6, 7), numbers(2, channels, 5, 19)
    feeds = [matrices(2), diff, x]
    check(graph_of("WarpPerspectiveBackwardData", feeds, record), feeds, monkeypatch, **CLOSE)
    feeds = [x, matrices(2), diff]
    graph = graph_of("WarpPerspectiveBackwardMat", feeds, record)
    check(graph, feeds, monkeypatch, rtol=2e-5, atol=1e-3)


@pytest.mark.parametrize("kind", ["int32", "int16"])
def test_images_by_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.WarpPerspective(bmode=Border.CONSTANT)
    index = np.array([1, 1, 0, 2], kind)
    x, diff = numbers(3, 2, 6, 7), numbers(4, 2, 5, 6)
    by_image = [matrices(4), index, diff, x]
    graph = graph_of("WarpPerspectiveBackwardData", by_image, record)
    check(graph, by_image, monkeypatch, **CLOSE)
    bad = np.array([1, 1, 3, 2], kind)
    refuses(graph, [matrices(4), bad, diff, x], monkeypatch, MgeError)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.Remap(border_type=Border.REFLECT, format=Format.NCHW)
    feeds = [positions(2, 9, 31, (6, 7)), numbers(2, 37, 9, 31), numbers(2, 37, 6, 7)]
    graph = graph_of("RemapBackwardData", feeds, record)
    want, *_ = native(graph, feeds, monkeypatch, threads=1)
    for threads in (2, 5):
        got, *_ = native(graph, feeds, monkeypatch, threads=threads)
        np.testing.assert_array_equal(got["y0"], want["y0"])


def test_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.Remap(border_type=Border.CONSTANT, format=Format.NCHW)
    diff, x = numbers(1, 3, 5, 19).astype(np.float16), numbers(1, 3, 6, 7).astype(np.float16)
    feeds = [positions(1, 5, 19, (6, 7)), diff, x]
    graph = graph_of("RemapBackwardData", feeds, record)
    check(graph, feeds, monkeypatch, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("window", [1, 5, 21])
def test_near_channels(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.LRN(n=window, k=1.5, alpha=0.3, beta=0.75)
    feeds = [numbers(2, 9, 3, 19), numbers(2, 9, 3, 19, scale=0.5), numbers(2, 9, 3, 19)]
    check(graph_of("LRNBackward", feeds, record), feeds, monkeypatch, **CLOSE)
