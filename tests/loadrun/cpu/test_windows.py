"""Filters by place and by region, and images that are sums of windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]
CLOSE = {"rtol": 2e-5, "atol": 2e-4}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def gradients(
    name: str, feeds: list[Array], out: tuple[int, ...], record: Any, patch: pytest.MonkeyPatch
) -> None:
    """Both gradients of an operator with images and filters."""
    (x, flt), diff = feeds, numbers(*out)
    for kind, given in (("Data", [flt, diff, x]), ("Filter", [x, diff, flt])):
        check(graph_of(f"{name}Backward{kind}", given, record), given, patch, **CLOSE)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("pad", [0, 2])
def test_a_filter_for_each_pixel(pad: int, flip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    mode = P.ConvolutionV0Mode.CONVOLUTION if flip else P.ConvolutionV0Mode.CROSS_CORRELATION
    record = P.Convolution(mode=mode, pad_h=pad, pad_w=pad, stride_h=2)
    oh, ow = (5 + 2 * pad - 3) // 2 + 1, 6 + 2 * pad - 2 + 1
    feeds = [numbers(2, 3, 5, 6), numbers(oh, ow, 3, 3, 2, 7)]
    check(graph_of("Local", feeds, record), feeds, monkeypatch, **CLOSE)
    gradients("Local", feeds, (2, 7, oh, ow), record, monkeypatch)
    if not flip:
        feeds = [numbers(2, 4, 5, 6), numbers(2, oh, ow, 2, 3, 2, 5)]
        check(graph_of("GroupLocal", feeds, record), feeds, monkeypatch, **CLOSE)
        gradients("GroupLocal", feeds, (2, 10, oh, ow), record, monkeypatch)


@pytest.mark.parametrize("dilate", [1, 2])
def test_a_filter_for_each_tile(dilate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.LocalShare(
        spatial_groups_h=2, spatial_groups_w=3, pad_h=dilate, pad_w=dilate, dilate_h=dilate,
        dilate_w=dilate,
    )  # fmt: skip
    feeds = [numbers(2, 3, 4, 6), numbers(2, 3, 3, 3, 3, 5)]
    both = (record, P.ExecutionPolicy())
    check(graph_of("LocalShareForward", feeds, both), feeds, monkeypatch, **CLOSE)
    gradients("LocalShare", feeds, (2, 5, 4, 6), both, monkeypatch)


@pytest.mark.parametrize("kind", ["int32", "uint8"])
@pytest.mark.parametrize("groups", [1, 3])
def test_taps_of_the_same_region(groups: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = P.ConvolutionV0Sparse.GROUP if groups > 1 else P.ConvolutionV0Sparse.DENSE
    record = P.Convolution(sparse=sparse, pad_h=1, pad_w=1, stride_w=2)
    random = np.random.default_rng(1)
    flt = numbers(*((3,) if groups > 1 else ()), 2, 2, 3, 3)
    feeds = [
        numbers(2, 2 * groups, 7, 9),
        flt,
        random.integers(0, 3, (2, 7, 9)).astype(kind),
        random.integers(0, 3, (2, 7, 5)).astype(kind),
    ]
    graph = graph_of("RegionRestrictedConvolution", feeds, record)
    check(graph, feeds, monkeypatch, **CLOSE)
    x, _, rin, rout = feeds
    diff = numbers(2, 2 * groups, 7, 5)
    for name, given in (("Data", [flt, diff, rin, rout, x]), ("Filter", [x, diff, rin, rout, flt])):
        graph = graph_of(f"RegionRestrictedConvolutionBackward{name}", given, record)
        check(graph, given, monkeypatch, **CLOSE)


@pytest.mark.parametrize("kind", ["float32", "int32", "uint8"])
@pytest.mark.parametrize(
    ("window", "pad", "stride", "dilate"), [(3, 0, 1, 1), (2, 1, 2, 1), (3, 2, 1, 2), (2, 0, 3, 1)]
)
def test_sums_of_windows(
    window: int, pad: int, stride: int, dilate: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {
        "pad_h": pad, "pad_w": pad, "stride_h": stride, "stride_w": stride,
        "dilate_h": dilate, "dilate_w": dilate, "window_h": window, "window_w": window,
    }  # fmt: skip
    h, w = 8, 19
    rows, columns = ((n + 2 * pad - (window - 1) * dilate - 1) // stride + 1 for n in (h, w))
    x = (numbers(2, 3, rows, columns, window, window) * 50).astype(kind)
    record = P.SlidingWindowTranspose(out_h=h, out_w=w, **sizes)
    check(graph_of("SlidingWindowTranspose", [x], record), [x], monkeypatch, **CLOSE)
