"""Local, region-restricted and correlating operators and their gradients against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_check import check, graph_of

from mgeserial import params as P

pytestmark = pytest.mark.usefixtures("device")
Array = np.ndarray[Any, Any]
_FLIP = P.ConvolutionV0Mode.CONVOLUTION
_STRAIGHT = P.ConvolutionV0Mode.CROSS_CORRELATION


def _normal(*shape: int, kind: type = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(kind)


def _local(
    op: str, groups: int, kind: type, mode: P.ConvolutionV0Mode
) -> tuple[str, Array, Array, Array, Any]:
    """Prefix of the operators' names, image, filter, gradient and parameters."""
    stride, pad, size = 2, 1, (7, 9)
    out = tuple((n + 2 * pad - 3) // stride + 1 for n in size)
    tiles = (2, 1) if op == "LocalShare" else out
    flt = _normal(groups, *tiles, 3, 3, 3, 4, kind=kind)
    more: dict[str, Any] = {
        "stride_h": stride, "stride_w": stride, "pad_h": pad, "pad_w": pad, "mode": mode,
    }  # fmt: skip
    params: Any = P.Convolution(**more)
    if op == "LocalShare":
        sparse = P.ConvolutionV0Sparse.GROUP if groups > 1 else P.ConvolutionV0Sparse.DENSE
        params = (
            P.LocalShare(**more, sparse=sparse, spatial_groups_h=2, spatial_groups_w=1),
            P.ExecutionPolicy(),
        )
    if op == "Local" or (op == "LocalShare" and groups == 1):
        flt = flt[0]
    x = _normal(2, 3 * groups, *size, kind=kind)
    return op, x, flt, _normal(2, 4 * groups, *out, kind=kind), params


_LOCAL = [
    _local("Local", 1, np.float32, _STRAIGHT),
    _local("Local", 1, np.float32, _FLIP),
    _local("Local", 1, np.float16, _STRAIGHT),
    _local("GroupLocal", 2, np.float32, _STRAIGHT),
    _local("LocalShare", 1, np.float32, _STRAIGHT),
    _local("LocalShare", 2, np.float32, _STRAIGHT),
]


@pytest.mark.parametrize("case", _LOCAL)
def test_filters_of_places_and_their_gradients_agree(
    case: tuple[str, Array, Array, Array, Any],
) -> None:
    op, x, flt, diff, params = case
    tolerance = 1e-5 if x.dtype == np.float32 else 4e-3
    forward = "LocalShareForward" if op == "LocalShare" else op
    for name, feeds in (
        (forward, [x, flt]),
        (f"{op}BackwardData", [flt, diff, x]),
        (f"{op}BackwardFilter", [x, diff, flt]),
    ):
        check(graph_of(name, feeds, params), feeds, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("groups", "mode"), [(1, _STRAIGHT), (1, _FLIP), (2, _STRAIGHT)])
@pytest.mark.parametrize("kind", [np.int32, np.uint8])
def test_products_within_regions_and_their_gradients_agree(
    groups: int, mode: P.ConvolutionV0Mode, kind: type
) -> None:
    random = np.random.default_rng(3)
    x = _normal(2, 4, 6, 8)
    flt = _normal(6, 4 // groups, 3, 3)
    if groups > 1:
        flt = flt.reshape(groups, 6 // groups, 4 // groups, 3, 3)
    diff = _normal(2, 6, 6, 4)
    rin = random.integers(0, 3, (2, 6, 8)).astype(kind)
    rout = random.integers(0, 3, (2, 6, 4)).astype(kind)
    params = P.Convolution(
        mode=mode, pad_h=1, pad_w=1, stride_w=2,
        sparse=P.ConvolutionV0Sparse.GROUP if groups > 1 else P.ConvolutionV0Sparse.DENSE,
    )  # fmt: skip
    op = "RegionRestrictedConvolution"
    for name, feeds in (
        (op, [x, flt, rin, rout]),
        (f"{op}BackwardData", [flt, diff, rin, rout, x]),
        (f"{op}BackwardFilter", [x, diff, rin, rout, flt]),
    ):
        check(graph_of(name, feeds, params), feeds, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "step", "pad"), [(1, 1, 1, 2), (3, 2, 2, 3)])
def test_correlations_and_their_gradients_agree(
    multiply: bool, kernel: int, stride: int, step: int, pad: int
) -> None:
    a, b = _normal(2, 3, 8, 9), _normal(2, 3, 9, 8).reshape(2, 3, 8, 9)
    params = P.Correlation(
        kernel_size=kernel, max_displacement=2, stride1=stride, stride2=step, pad_size=pad,
        is_multiply=multiply,
    )  # fmt: skip
    graph = graph_of("CorrelationForward", [a, b], params)
    check(graph, [a, b], rtol=1e-5, atol=1e-6)
    diff = _normal(*graph.outputs[0].shape)
    for name in ("CorrelationBackwardData1", "CorrelationBackwardData2"):
        feeds = [diff, a, b]
        check(graph_of(name, feeds, params), feeds, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.uint8])
def test_windows_and_their_sums_agree(kind: type) -> None:
    random = np.random.default_rng(8)
    more = {
        "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 2, "window_h": 3, "window_w": 2,
        "dilate_w": 2,
    }  # fmt: skip
    image = random.integers(0, 9, (2, 3, 7, 6)).astype(kind)
    param = P.Images2Neibs(**more)
    graph = graph_of("Images2Neibs", [image], param)
    windows = random.integers(0, 9, graph.outputs[0].shape).astype(kind)
    feeds = [windows, image]
    check(graph_of("Images2NeibsBackward", feeds, param), feeds)
    turned = P.SlidingWindowTranspose(**more, out_h=7, out_w=6)
    check(graph_of("SlidingWindowTranspose", [windows], turned), [windows])
    feeds = [image, windows]
    check(graph_of("SlidingWindowTransposeBackward", feeds, turned), feeds)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint8])
def test_masked_convolutions_and_masks_of_windows_agree(kind: type) -> None:
    random = np.random.default_rng(9)
    x, flt = _normal(2, 4, 6, 8), _normal(6, 2, 3, 3).reshape(2, 3, 2, 3, 3)
    mask = random.integers(0, 2, (6, 4)).astype(kind)
    params = P.Convolution(pad_h=1, pad_w=1, stride_w=2, sparse=P.ConvolutionV0Sparse.GROUP)
    feeds = [x, flt, mask]
    check(graph_of("MaskConvolution", feeds, params), feeds, rtol=1e-5, atol=1e-5)
    window = P.MaskPropagate(
        pad_h=2, pad_w=1, stride_h=2, kernel_h=3, kernel_w=2, dilate_h=2, dilate_w=1
    )
    mask = (random.uniform(0, 1, (9, 11)) < 0.1).astype(kind)
    check(graph_of("MaskPropagate", [mask], window), [mask])


def _batched(bias: tuple[int, ...] | None, layout: P.ConvolutionV0Format) -> None:
    random = np.random.default_rng(6)
    lanes = 4 if layout == P.ConvolutionV0Format.NCHW4 else 1
    src = random.integers(-9, 9, (2, 8, 6, 6)).astype(np.int8)
    flt = random.integers(-9, 9, (2, 4, 8, 3, 3)).astype(np.int8)
    if lanes > 1:
        src = src.reshape(2, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2).copy()
        flt = flt.reshape(2, 4, 2, 4, 3, 3).transpose(0, 1, 2, 4, 5, 3).copy()
    arrays = [src, flt]
    if bias is not None:
        arrays.append(random.integers(-99, 99, bias).astype(np.int32))
    params = (P.BatchConvBias(pad_h=1, pad_w=1, format=layout), P.ExecutionPolicy())
    graph = graph_of("BatchConvBiasForward", arrays, params, constant=[1])
    check(graph, [src, *arrays[2:]])


@pytest.mark.parametrize("bias", [None, (1, 4, 1, 1), (1, 1, 1, 1), (2, 4, 6, 6), (1, 4, 6, 1)])
def test_filter_for_each_image_agrees_with_any_bias(bias: tuple[int, ...] | None) -> None:
    _batched(bias, P.ConvolutionV0Format.NCHW)


def test_filter_for_each_image_agrees_in_blocks_of_channels() -> None:
    _batched((1, 1, 1, 1, 4), P.ConvolutionV0Format.NCHW4)
