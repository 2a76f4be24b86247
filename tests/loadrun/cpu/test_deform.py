"""Deformable convolution and correlation between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, reference

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]


def numbers(*shape: int, scale: float = 1.0) -> Array:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * scale).astype(np.float32)


# Groups, moving groups, outputs and inputs of a group, kernel, stride, padding, dilation.
CASES = [
    (1, 1, 5, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 4, 3, 6, (2, 3), (2, 1), (0, 2), (1, 2)),
    (1, 2, 1, 2, (1, 1), (3, 3), (0, 0), (1, 1)),
]


def deformed(
    case: tuple[Any, ...], reach: float
) -> tuple[P.Convolution, list[Array], tuple[int, int]]:
    """Parameters, images, filter, moves and mask, and the size of the result."""
    g, moving, o, i, (kh, kw), (sh, sw), (ph, pw), (dh, dw) = case
    h, w = 9, 11
    out = (
        (h + 2 * ph - (kh - 1) * dh - 1) // sh + 1,
        (w + 2 * pw - (kw - 1) * dw - 1) // sw + 1,
    )
    flt = numbers(*((g,) if g > 1 else ()), o, i, kh, kw)
    move = numbers(2, 2 * moving * kh * kw, *out, scale=reach)
    mask = numbers(2, moving * kh * kw, *out)
    sparse = P.ConvolutionV0Sparse.GROUP if g > 1 else P.ConvolutionV0Sparse.DENSE
    record = P.Convolution(
        sparse=sparse, stride_h=sh, stride_w=sw, pad_h=ph, pad_w=pw, dilate_h=dh, dilate_w=dw
    )
    return record, [numbers(2, g * i, h, w), flt, move, mask], out


@pytest.mark.parametrize("reach", [0.3, 5.0, 1e12])
@pytest.mark.parametrize("case", CASES)
def test_taps_that_are_moved(
    case: tuple[Any, ...], reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, feeds, _ = deformed(case, reach)
    graph = graph_of("DeformableConvForward", feeds, (record, P.ExecutionPolicy()))
    check(graph, feeds, monkeypatch, rtol=2e-5, atol=2e-4)
    constant = graph_of("DeformableConvForward", feeds, (record, P.ExecutionPolicy()), constant=[1])
    check(constant, [feeds[0], *feeds[2:]], monkeypatch, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("reach", [0.3, 1e12])
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_taps_that_are_moved(
    case: tuple[Any, ...], reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, feeds, out = deformed(case, reach)
    feeds.append(numbers(2, case[0] * case[2], *out))
    for name in ("DeformableConvBackwardData", "DeformableConvBackwardFilter"):
        graph = graph_of(name, feeds, (record, P.ExecutionPolicy()))
        check(graph, feeds, monkeypatch, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("multiplied", [True, False])
@pytest.mark.parametrize(
    ("kernel", "reach", "stride", "step", "pad"),
    [(1, 2, 1, 1, 2), (3, 3, 2, 2, 4), (3, 1, 1, 1, 0)],
)
def test_maps_compared(
    kernel: int, reach: int, stride: int, step: int, pad: int, multiplied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    feeds = [numbers(2, 3, 12, 13), numbers(2, 3, 12, 13) * np.float32(0.7)]
    record = P.Correlation(
        kernel_size=kernel, max_displacement=reach, stride1=stride, stride2=step,
        pad_size=pad, is_multiply=multiplied,
    )  # fmt: skip
    graph = graph_of("CorrelationForward", feeds, record)
    check(graph, feeds, monkeypatch, rtol=2e-5, atol=2e-5)
    diff = numbers(*reference(graph, feeds)["y0"].shape)
    for name in ("CorrelationBackwardData1", "CorrelationBackwardData2"):
        given = [diff, *feeds]
        check(graph_of(name, given, record), given, monkeypatch, rtol=2e-5, atol=2e-5)
