"""Deformable convolution and pooling, and their gradients, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_check import check, graph_of, on_device

from mgeserial import params as P
from mgeserial.errors import ExecutionError

pytestmark = pytest.mark.usefixtures("device")
Arrays = list[np.ndarray[Any, Any]]


def _conv(
    groups: int, moving: int, *, n: int = 2, kernel: int = 3, kind: type = np.float32, **more: int
) -> tuple[Arrays, Any, tuple[int, ...]]:
    """Inputs src, filter, offset, mask, the parameters, and the shape of the result."""
    random = np.random.default_rng(groups + 10 * moving)
    h, w, channels, outputs = 7, 9, 8, 4
    stride, pad = more.get("stride", 1), more.get("pad", 1)
    dilate = more.get("dilate", 1)
    oh, ow = ((m + 2 * pad - (kernel - 1) * dilate - 1) // stride + 1 for m in (h, w))
    src = random.standard_normal((n, channels, h, w))
    shape: tuple[int, ...] = (outputs, channels // groups, kernel, kernel)
    if groups > 1:
        shape = (groups, outputs // groups, *shape[1:])
    taps = kernel * kernel
    offset = random.standard_normal((n, 2 * moving * taps, oh, ow)) * 2
    offset[0, 0, 0] = [0, 1, -50, 50, *[2] * (ow - 4)]
    mask = random.uniform(0, 1, (n, moving * taps, oh, ow))
    arrays = [a.astype(kind) for a in (src, random.standard_normal(shape), offset, mask)]
    param = P.Convolution(
        sparse=P.ConvolutionV0Sparse.GROUP if groups > 1 else P.ConvolutionV0Sparse.DENSE,
        stride_h=stride, stride_w=stride, pad_h=pad, pad_w=pad, dilate_h=dilate, dilate_w=dilate,
    )  # fmt: skip
    return arrays, (param, P.ExecutionPolicy()), (n, outputs, oh, ow)


_CASES = [
    _conv(1, 1),
    _conv(1, 2, stride=2),
    _conv(2, 4, pad=0, dilate=2),
    _conv(4, 1, n=1, kernel=2),
    _conv(1, 2, kind=np.float16),
]


@pytest.mark.parametrize("case", _CASES)
def test_deformable_convolution_agrees(case: tuple[Arrays, Any, tuple[int, ...]]) -> None:
    arrays, params, _ = case
    tolerance = 1e-5 if arrays[0].dtype == np.float32 else 2e-3
    graph = graph_of("DeformableConvForward", arrays, params)
    check(graph, arrays, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ["DeformableConvBackwardData", "DeformableConvBackwardFilter"])
@pytest.mark.parametrize("case", _CASES)
def test_gradients_of_deformable_convolution_agree(
    op: str, case: tuple[Arrays, Any, tuple[int, ...]]
) -> None:
    arrays, params, shape = case
    kind = arrays[0].dtype
    diff = np.random.default_rng(5).standard_normal(shape).astype(kind)
    tolerance = 1e-4 if kind == np.float32 else 2e-2
    feeds = [*arrays, diff]
    check(graph_of(op, feeds, params), feeds, rtol=tolerance, atol=tolerance)


def _regions(*, moves: bool, part: int = 2) -> tuple[Arrays, Any]:
    random = np.random.default_rng(part)
    data = random.standard_normal((2, 3, 10, 12)).astype(np.float32)
    rois = np.array(
        [[0, 1, 2, 7, 8], [1, 0, 0, 11, 9], [1, -4, -3, 30, 30], [0, 5, 5, 5, 5]], np.float32
    )
    trans = random.uniform(-1, 1, (4, 2, 3, 4)).astype(np.float32)
    param = P.DeformablePSROIPooling(
        no_trans=not moves, spatial_scale=0.8, trans_std=0.3, pooled_h=3, pooled_w=4,
        part_size=part, sample_per_part=2,
    )  # fmt: skip
    return [data, rois, trans], param


@pytest.mark.parametrize(("moves", "part"), [(True, 2), (True, 3), (False, 1)])
def test_deformable_pooling_and_its_gradients_agree(moves: bool, part: int) -> None:
    arrays, param = _regions(moves=moves, part=part)
    graph = graph_of("DeformablePSROIPoolingForward", arrays, param)
    check(graph, arrays, rtol=1e-5, atol=1e-5)
    random = np.random.default_rng(2)
    diff = random.standard_normal((4, 3, 3, 4)).astype(np.float32)
    count = random.integers(0, 5, (4, 3, 3, 4)).astype(np.float32)
    feeds = [*arrays, diff, count]
    graph = graph_of("DeformablePSROIPoolingBackward", feeds, param)
    check(graph, feeds, rtol=1e-4, atol=1e-4)


def test_region_of_no_image_is_an_error() -> None:
    arrays, param = _regions(moves=True)
    for wrong in (2.0, 0.5, np.nan):
        arrays[1][1, 0] = wrong
        with pytest.raises(ExecutionError, match="a region asks for no image"):
            on_device(graph_of("DeformablePSROIPoolingForward", arrays, param), arrays)
