"""Gradients of regions of images, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, native, reference, refuses

from mgeserial import params as P
from mgeserial.errors import MgeError

Array = np.ndarray[Any, np.dtype[Any]]
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def regions(count: int) -> Array:
    random = np.random.default_rng(count)
    start = random.uniform(-4, 14, (count, 2))
    ends = start + random.uniform(-3, 14, (count, 2))
    which = random.integers(0, 2, (count, 1))
    return np.concatenate([which, start, ends], 1).astype(np.float32)


def align(mode: Any) -> P.ROIAlign:
    return P.ROIAlign(
        mode=mode, spatial_scale=0.8, offset=0.5, pooled_height=3, pooled_width=4,
        sample_height=2, sample_width=3,
    )  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3, 16, 21, 70])
@pytest.mark.parametrize("mode", [P.ROIAlignV0Mode.MAX_, P.ROIAlignV0Mode.AVERAGE])
def test_aligned(mode: Any, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, boxes, record = numbers(2, channels, 12, 15), regions(9), align(mode)
    index = reference(graph_of("ROIAlign", [x, boxes], record), [x, boxes])["y1"]
    feeds = [numbers(9, channels, 3, 4), x, boxes, index]
    check(graph_of("ROIAlignBackward", feeds, record), feeds, monkeypatch, **CLOSE)


@pytest.mark.parametrize("channels", [1, 21])
@pytest.mark.parametrize("mode", [P.ROIPoolingMode.MAX_, P.ROIPoolingMode.AVERAGE])
def test_pooled(mode: Any, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, boxes, record = numbers(2, channels, 12, 15), regions(9), P.ROIPooling(mode=mode, scale=0.9)
    boxes[3, 1:] = np.nan
    out = np.array([3, 5], np.int32)
    forward = graph_of("ROIPooling", [x, boxes, out], record, constant=[2])
    index = reference(forward, [x, boxes])["y1"]
    feeds = [numbers(9, channels, 3, 5), x, boxes, index]
    graph = graph_of("ROIPoolingBackward", feeds, record)
    check(graph, feeds, monkeypatch, **CLOSE)
    if mode == P.ROIPoolingMode.MAX_:
        feeds[3] = index.copy()
        feeds[3][5, 0, 1, 2] = 12 * 15
        refuses(graph, feeds, monkeypatch, MgeError)


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("channels", [1, 21])
def test_moved(channels: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, boxes, trans = numbers(2, channels, 12, 15), regions(9), numbers(9, 2, 3, 4)
    record = P.DeformablePSROIPooling(
        no_trans=parts == 0, spatial_scale=0.8, trans_std=0.4, pooled_h=3, pooled_w=4,
        part_size=parts or 1, sample_per_part=3,
    )  # fmt: skip
    forward = graph_of("DeformablePSROIPoolingForward", [x, boxes, trans], record)
    count = reference(forward, [x, boxes, trans])["y1"]
    feeds = [x, boxes, trans, numbers(9, channels, 3, 4), count]
    graph = graph_of("DeformablePSROIPoolingBackward", feeds, record)
    check(graph, feeds, monkeypatch, rtol=2e-5, atol=1e-4)
    boxes[6, 0] = 0.5
    refuses(graph, feeds, monkeypatch, MgeError)


@pytest.mark.parametrize("name", ["ROIAlignBackward", "ROIPoolingBackward"])
def test_a_region_of_no_image_is_the_error_of_the_reference(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = regions(9)
    boxes[5, 0] = 2.0
    index = np.zeros((9, 3, 3, 4), np.int32)
    record: Any = align(P.ROIAlignV0Mode.MAX_) if "Align" in name else P.ROIPooling()
    feeds = [numbers(9, 3, 3, 4), numbers(2, 3, 12, 15), boxes, index]
    refuses(graph_of(name, feeds, record), feeds, monkeypatch, MgeError)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    record = align(P.ROIAlignV0Mode.AVERAGE)
    index = np.zeros((40, 37, 3, 4), np.int32)
    feeds = [numbers(40, 37, 3, 4), numbers(2, 37, 12, 15), regions(40), index]
    graph = graph_of("ROIAlignBackward", feeds, record)
    want, *_ = native(graph, feeds, monkeypatch, threads=1)
    for threads in (2, 5):
        got, *_ = native(graph, feeds, monkeypatch, threads=threads)
        np.testing.assert_array_equal(got["y0"], want["y0"])
