"""Convolutions with a filter for each image, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT32, DType, DTypeEnum, quantized

Array = np.ndarray[Any, np.dtype[Any]]
_Mode = P.ConvBiasV0NonlineMode
_Format = P.ConvolutionV0Format


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def codes(kind: str, *shape: int) -> Array:
    info = np.iinfo(kind)
    random = np.random.default_rng(sum(shape))
    return random.integers(info.min, info.max, shape, endpoint=True).astype(kind)


def record(**more: Any) -> tuple[Any, ...]:
    return (P.BatchConvBias(**more), P.ExecutionPolicy())


@pytest.mark.parametrize("mode", [_Mode.IDENTITY, _Mode.RELU, _Mode.SIGMOID, _Mode.H_SWISH])
@pytest.mark.parametrize(("stride", "pad", "dilate", "flip"), [(1, 0, 1, 0), (2, 1, 2, 1)])
def test_floats(
    stride: int, pad: int, dilate: int, flip: int, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = P.ConvolutionV0Mode.CONVOLUTION if flip else P.ConvolutionV0Mode.CROSS_CORRELATION
    param = record(
        stride_h=stride, stride_w=1, pad_h=pad, pad_w=2 * pad, dilate_h=dilate, nonlineMode=mode,
        mode=kind,
    )  # fmt: skip
    h = (9 + 2 * pad - 2 * dilate - 1) // stride + 1
    w = 19 + 4 * pad - 2 + 1
    feeds = [numbers(3, 4, 9, 19), numbers(3, 5, 4, 3, 2), numbers(1, 5, 1, 1)]
    feeds.append(numbers(3, 5, h, w))
    for count in (2, 3, 4) if mode == _Mode.IDENTITY else (4,):
        graph = graph_of("BatchConvBiasForward", feeds[:count], param)
        check(graph, feeds[:count], monkeypatch, rtol=2e-5, atol=2e-5)
    constant = graph_of("BatchConvBiasForward", feeds[:3], param, constant=[1, 2])
    check(constant, feeds[:1], monkeypatch, rtol=2e-5, atol=2e-5, threads=5)


def test_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [numbers(2, 3, 6, 7), numbers(2, 5, 3, 3, 3), numbers(1, 5, 1, 1)]
    halves = [a.astype(np.float16) for a in feeds]
    graph = graph_of("BatchConvBiasForward", halves, record(pad_h=1))
    check(graph, halves, monkeypatch, rtol=1e-3, atol=1e-3)


_A, _B = quantized(DTypeEnum.QuantizedS8, 0.02), quantized(DTypeEnum.QuantizedS8, 0.03)
_SUMS = quantized(DTypeEnum.QuantizedS32, float(np.float32(0.02) * np.float32(0.03)))
_OUT = quantized(DTypeEnum.QuantizedS8, 0.7)


@pytest.mark.parametrize("target", [_SUMS, _OUT, FLOAT32], ids=lambda d: d.name)
@pytest.mark.parametrize("mode", [_Mode.IDENTITY, _Mode.RELU])
@pytest.mark.parametrize("packed", [False, True])
def test_codes(packed: bool, mode: Any, target: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    images = (2, 2, 6, 7, 4) if packed else (2, 8, 6, 7)
    filters = (2, 12, 2, 3, 3, 4) if packed else (2, 12, 8, 3, 3)
    bias = (1, 3, 1, 1, 4) if packed else (1, 12, 1, 1)
    z = (2, 3, 6, 7, 4) if packed else (2, 12, 6, 7)
    param = record(
        pad_h=1, pad_w=1, nonlineMode=mode, format=_Format.NCHW4 if packed else _Format.NCHW
    )
    feeds = [
        codes("int8", *images), codes("int8", *filters), codes("int16", *bias).astype(np.int32),
        codes("int8", *z),
    ]  # fmt: skip
    dtypes: Any = {0: _A, 1: _B, 2: _SUMS, 3: _OUT}
    for count, threads in ((2, 1), (4, 5)) if mode == _Mode.RELU else ((3, 2),):
        graph = graph_of(
            "BatchConvBiasForward", feeds[:count], param, output_dtype=target, dtypes=dtypes
        )
        check(graph, feeds[:count], monkeypatch, rtol=1e-6, threads=threads)


def test_whole_numbers_and_a_zero_point(monkeypatch: pytest.MonkeyPatch) -> None:
    param = record(pad_h=1, pad_w=1)
    feeds = [codes("int8", 2, 3, 5, 9), codes("int8", 2, 4, 3, 3, 3)]
    check(graph_of("BatchConvBiasForward", feeds, param, output_dtype=INT32), feeds, monkeypatch)
    kind = quantized(DTypeEnum.Quantized8Asymm, 0.1, 77)
    feeds = [codes("uint8", 2, 3, 5, 9), codes("uint8", 2, 4, 3, 3, 3)]
    dtypes: Any = {0: kind, 1: kind}
    graph = graph_of("BatchConvBiasForward", feeds, param, dtypes=dtypes)
    check(graph, feeds, monkeypatch)
