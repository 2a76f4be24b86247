"""Convolutions with filters of the run, of volumes, and their gradients, as products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of

from mgeserial import params as P

Array = np.ndarray[Any, np.dtype[Any]]
CLOSE = {"rtol": 2e-5, "atol": 2e-4}
GROUPED = {False: P.ConvolutionV0Sparse.DENSE, True: P.ConvolutionV0Sparse.GROUP}
FLIPPED = {False: P.ConvolutionV0Mode.CROSS_CORRELATION, True: P.ConvolutionV0Mode.CONVOLUTION}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# Groups, outputs and inputs of one, kernel, stride, padding, dilation, sizes.
IMAGES = [
    (1, 5, 3, (3, 3), (1, 1), (1, 1), (1, 1), (8, 9)),
    (1, 4, 17, (1, 1), (1, 1), (0, 0), (1, 1), (5, 6)),
    (3, 2, 4, (2, 3), (2, 1), (0, 2), (1, 2), (9, 10)),
    (6, 1, 1, (3, 3), (2, 2), (1, 1), (1, 1), (11, 8)),
    (2, 3, 2, (4, 2), (3, 2), (3, 1), (1, 1), (7, 7)),
]


def record(case: tuple[Any, ...], flip: bool) -> P.Convolution:
    g, _, _, _, (sh, sw), (ph, pw), (dh, dw), _ = case
    return P.Convolution(
        mode=FLIPPED[flip], sparse=GROUPED[g > 1], stride_h=sh, stride_w=sw,
        pad_h=ph, pad_w=pw, dilate_h=dh, dilate_w=dw,
    )  # fmt: skip


def arrays(case: tuple[Any, ...], batch: int = 2) -> tuple[Array, Array, Array]:
    """Input, filter and a gradient of the result."""
    g, o, i, kernel, stride, pad, dilate, sizes = case
    out = [
        (n + 2 * p - (k - 1) * d - 1) // s + 1
        for n, p, k, d, s in zip(sizes, pad, kernel, dilate, stride, strict=True)
    ]
    w = numbers(*((g,) if g > 1 else ()), o, i, *kernel)
    return numbers(batch, g * i, *sizes), w, numbers(batch, g * o, *out)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("case", IMAGES)
def test_images(case: tuple[Any, ...], flip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, dy = arrays(case)
    p = (record(case, flip), P.ExecutionPolicy())
    check(graph_of("Convolution", [x, w], p), [x, w], monkeypatch, **CLOSE)
    feeds = [w, dy, x]
    check(graph_of("ConvolutionBackwardData", feeds, p), feeds, monkeypatch, **CLOSE)
    constant = graph_of("ConvolutionBackwardData", feeds, p, constant=[0])
    check(constant, feeds[1:], monkeypatch, **CLOSE)
    feeds = [x, dy, w]
    check(graph_of("ConvolutionBackwardFilter", feeds, p), feeds, monkeypatch, **CLOSE)


VOLUMES = [
    (1, 3, 2, (3, 2, 1), (1, 1, 1), (1, 0, 0), (1, 1, 1), (4, 5, 6)),
    (2, 2, 3, (2, 2, 3), (2, 1, 2), (0, 1, 1), (1, 2, 1), (5, 6, 7)),
]


@pytest.mark.parametrize("case", VOLUMES)
def test_volumes(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, dy = arrays(case)
    g, _, _, _, stride, pad, dilate, _ = case
    sides = {"stride": stride, "pad": pad, "dilate": dilate}
    numbers_ = {f"{k}_{a}": v for k, vs in sides.items() for a, v in zip("dhw", vs, strict=True)}
    sparse = P.Convolution3DSparse.GROUP if g > 1 else P.Convolution3DSparse.DENSE
    p = (P.Convolution3D(sparse=sparse, **numbers_), P.ExecutionPolicy())
    for constant in ([], [1]):
        feeds = [x, w][: 2 - len(constant)]
        check(graph_of("Convolution3D", [x, w], p, constant=constant), feeds, monkeypatch, **CLOSE)
    feeds = [w, dy, x]
    check(graph_of("Convolution3DBackwardData", feeds, p), feeds, monkeypatch, **CLOSE)
    feeds = [x, dy, w]
    check(graph_of("Convolution3DBackwardFilter", feeds, p), feeds, monkeypatch, **CLOSE)
