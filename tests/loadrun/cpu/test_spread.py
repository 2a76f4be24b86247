"""Gradients that spread numbers over an axis, and sorted numbers put back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, reference, refuses

from mgeserial import params as P
from mgeserial.errors import MgeError

Array = np.ndarray[Any, np.dtype[Any]]
Mode = P.WarpPerspectiveV1InterpolationMode
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", [Mode.LINEAR, Mode.NEAREST, Mode.CUBIC])
@pytest.mark.parametrize("out", [(1, 1), (5, 23), (13, 4)])
@pytest.mark.parametrize("format_", [P.ConvolutionFormat.NCHW, P.ConvolutionFormat.NHWC])
def test_resizing(
    format_: Any, out: tuple[int, int], mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = format_ == P.ConvolutionFormat.NCHW
    diff, x = (numbers(*((2, 3, h, w) if first else (2, h, w, 3))) for h, w in (out, (7, 17)))
    record = P.Resize(imode=mode, format=format_)
    check(graph_of("ResizeBackward", [diff, x], record), [diff, x], monkeypatch, **CLOSE)


@pytest.mark.parametrize(
    "mode",
    [P.PaddingPaddingMode.CONSTANT, P.PaddingPaddingMode.REPLICATE, P.PaddingPaddingMode.REFLECT],
)
def test_padding(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.Padding(
        padding_mode=mode, front_offset_dim1=1, back_offset_dim1=2, front_offset_dim2=4,
        back_offset_dim3=3,
    )  # fmt: skip
    x, diff = numbers(2, 3, 5, 18), numbers(2, 6, 9, 21)
    check(graph_of("PaddingBackward", [diff, x], record), [diff, x], monkeypatch, **CLOSE)


@pytest.mark.parametrize("mode", list(P.PoolingV0Mode)[:3])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 2), (1, 0)), ((4, 5), (3, 1), (2, 3))],
)
def test_pooling(
    kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], mode: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    record = P.Pooling(
        mode=mode, window_h=kernel[0], window_w=kernel[1], stride_h=stride[0],
        stride_w=stride[1], pad_h=pad[0], pad_w=pad[1],
    )  # fmt: skip
    x = np.round(numbers(2, 3, 11, 19))  # with equal maxima
    y = reference(graph_of("Pooling", [x], record), [x])["y0"]
    feeds = [x, y, numbers(*y.shape)]
    check(graph_of("PoolingBackward", feeds, record), feeds, monkeypatch, **CLOSE)


@pytest.mark.parametrize("mode", list(P.PoolingV0Mode)[:2])
def test_adaptive_pooling(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record, x = P.AdaptivePooling(mode=mode), numbers(2, 3, 11, 19)
    out = np.array([4, 5], np.int32)
    y = reference(graph_of("AdaptivePooling", [x, out], record, constant=[1]), [x])["y0"]
    feeds = [x, out, y, numbers(*y.shape)]
    graph = graph_of("AdaptivePoolingBackward", feeds, record, constant=[1])
    check(graph, [x, y, feeds[3]], monkeypatch, **CLOSE)


def test_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    x, diff = numbers(3, 9), numbers(3, 5)
    index = np.argsort(x, axis=1)[:, :5].astype(np.int32)
    graph = graph_of("ArgsortBackward", [diff, index, x])
    check(graph, [diff, index, x], monkeypatch)
    index[1, 2] = 9
    refuses(graph, [diff, index, x], monkeypatch, MgeError)


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_rows_that_were_shuffled(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    diff, x = (numbers(7, 3, 5) * 9).astype(kind), numbers(7, 3, 5).astype(kind)
    index = np.random.default_rng(1).permutation(7).astype(np.int32)
    index[3] = index[4]
    graph = graph_of("ShuffleRNGBackward", [diff, index, x], P.ShuffleRNG())
    check(graph, [diff, index, x], monkeypatch)
    index[2] = -1
    refuses(graph, [diff, index, x], monkeypatch, MgeError)


@pytest.mark.parametrize("k", [-2, 0, 1])
@pytest.mark.parametrize("kind", ["float32", "int16"])
def test_diagonals(kind: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    record = P.Diag(k=k)
    for shape in ((5, 7), (9,)):
        x = (numbers(*shape) * 9).astype(kind)
        wanted = np.diag(x, k).shape
        feeds = [np.array(shape, np.int32), (numbers(*wanted) * 9).astype(kind)]
        graph = graph_of("DiagBackward", feeds, record, constant=[0])
        check(graph, feeds[1:], monkeypatch)
