"""Images filtered, transformed and turned round, masks, what is infinite, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum, quantized

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


@pytest.mark.parametrize("layout", [P.ConvolutionFormat.NCHW, P.ConvolutionFormat.NCHW4])
@pytest.mark.parametrize("target", [None, quantized(DTypeEnum.QuantizedS8, 4.0)])
def test_cosines(target: Any, layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images("uint8", 2, 3, 16, 40)
    record = P.DctChannelSelect(dct_block_size=8, format=layout)
    graph = graph_of("DctChannelSelect", [x], record, output_dtype=target)
    check(graph, [x], monkeypatch, rtol=1e-6, atol=1e-4)
    feeds = [x, np.array([0, 2, 2, 4], np.int32), np.array([0, 9, 63, 1], np.int32)]
    few = graph_of("DctChannelSelect", feeds, record, constant=[1, 2], output_dtype=target)
    check(few, [x], monkeypatch, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "int32", "uint8", "bool"])
def test_masks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    mask = (random.random((9, 37)) < 0.1).astype(kind)
    record = P.MaskPropagate(
        kernel_h=3, kernel_w=2, stride_h=2, stride_w=1, pad_h=1, pad_w=3, dilate_h=1, dilate_w=2
    )
    check(graph_of("MaskPropagate", [mask], record), [mask], monkeypatch)
    if kind == "bool":
        return
    x, flt = (random.standard_normal(s).astype(np.float32) for s in ((2, 3, 9, 37), (5, 3, 3, 3)))
    graph = graph_of(
        "MaskConvolution", [x, flt, mask], P.Convolution(pad_h=1, pad_w=1), constant=[1]
    )
    check(graph, [x, mask], monkeypatch, rtol=2e-5, atol=2e-5)
