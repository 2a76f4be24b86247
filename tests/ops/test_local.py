"""Local, masked, restricted and deformable convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_calls import apply_one, apply_op

from mgeserial import params as P
from mgeserial.errors import ExecutionError, ShapeError, UnsupportedError

RNG = np.random.default_rng(6)
GROUP = P.ConvolutionV0Sparse.GROUP


def ints(*shape: int) -> np.ndarray:
    return RNG.integers(-5, 6, shape).astype(np.float32)


def conv(x: np.ndarray, w: np.ndarray, **param: Any) -> np.ndarray:
    return apply_one("Convolution", x, w, param=P.Convolution(**param))


def test_a_local_filter_that_is_everywhere_the_same_is_a_convolution() -> None:
    x, w = ints(2, 3, 5, 4), ints(2, 3, 3, 2)
    y = conv(x, w, pad_h=1, stride_w=2)
    local = np.broadcast_to(w.transpose(1, 2, 3, 0), (5, 2, 3, 3, 2, 2)).copy()
    np.testing.assert_array_equal(
        apply_one("Local", x, local, param=P.Convolution(pad_h=1, stride_w=2)), y
    )
    turned = P.Convolution(pad_h=1, stride_w=2, mode=P.ConvolutionV0Mode.CONVOLUTION)
    np.testing.assert_array_equal(apply_one("Local", x, local[..., ::-1, ::-1, :], param=turned), y)


def test_each_pixel_uses_its_own_filter() -> None:
    x = np.ones((1, 1, 1, 3), np.float32)
    w = np.array([1, 10, 100], np.float32).reshape(1, 3, 1, 1, 1, 1)
    assert apply_one("Local", x, w, param=P.Convolution()).reshape(-1).tolist() == [1, 10, 100]


def test_tiles_share_a_filter() -> None:
    x = np.ones((1, 1, 2, 4), np.float32)
    w = np.array([1, 2, 3, 4], np.float32).reshape(2, 2, 1, 1, 1, 1)
    param = P.LocalShare(spatial_groups_h=2, spatial_groups_w=2)
    y = apply_one("LocalShareForward", x, w, param=param)
    assert y[0, 0].tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_tiles_are_never_turned() -> None:
    x, w = ints(1, 1, 3, 3), ints(1, 1, 1, 2, 2, 1)
    same, turned = (
        apply_one("LocalShareForward", x, w, param=P.LocalShare(mode=mode))
        for mode in P.ConvolutionV0Mode
    )
    np.testing.assert_array_equal(same, turned)


CASES: list[tuple[str, Any, np.ndarray]] = [
    ("Local", P.Convolution(pad_h=1, stride_w=2), ints(5, 2, 4, 3, 2, 3)),
    ("GroupLocal", P.Convolution(pad_h=1, stride_w=2), ints(2, 5, 2, 2, 3, 2, 3)),
    (
        "LocalShare",
        P.LocalShare(pad_h=1, pad_w=1, spatial_groups_h=5, spatial_groups_w=2, sparse=GROUP),
        ints(2, 5, 2, 2, 3, 2, 3),
    ),
]


@pytest.mark.parametrize(("name", "param", "w"), CASES, ids=[c[0] for c in CASES])
def test_local_gradients_are_adjoint(name: str, param: Any, w: np.ndarray) -> None:
    x = ints(2, 4, 5, 5 if name == "LocalShare" else 4)
    y = apply_one(name + ("Forward" if name == "LocalShare" else ""), x, w, param=param)
    dx = apply_one(f"{name}BackwardData", w, y, x, param=param)
    dw = apply_one(f"{name}BackwardFilter", x, y, w, param=param)
    assert (dx * x).sum() == (dw * w).sum() == (y * y).sum()


def test_local_errors() -> None:
    x, w = ints(1, 1, 3, 3), ints(2, 3, 1, 1, 1, 1)
    with pytest.raises(ShapeError, match=r"for 2x3 pixels, but the output has \(3, 3\)"):
        apply_one("Local", x, w, param=P.Convolution())
    with pytest.raises(UnsupportedError, match="no dilation"):
        apply_one("Local", x, w, param=P.Convolution(dilate_h=2))
    param = P.LocalShare(spatial_groups_h=2, spatial_groups_w=3)
    with pytest.raises(ShapeError, match="does not split into 2x3 equal tiles"):
        apply_one("LocalShareForward", x, w, param=param)
    with pytest.raises(ShapeError, match="7 dimensions"):
        apply_one("GroupLocal", x, w, param=P.Convolution())


def test_masked_pixels_are_zero() -> None:
    x, w = ints(2, 2, 4, 4), ints(3, 2, 2, 2)
    mask = np.array([[1, 0, 2], [0, 0, 0], [-1, 1, 0]], np.int32)
    y = apply_one("MaskConvolution", x, w, mask, param=P.Convolution())
    np.testing.assert_array_equal(y, conv(x, w) * (mask != 0))
    with pytest.raises(ShapeError, match="the mask has shape"):
        apply_one("MaskConvolution", x, w, mask[:2], param=P.Convolution())


def test_a_mask_spreads_to_windows_that_see_it() -> None:
    mask = np.zeros((4, 5), np.int32)
    mask[1, 3] = 7
    fields = {"kernel_h": 2, "kernel_w": 3, "pad_w": 1, "stride_w": 2, "dilate_h": 2}
    y = apply_one("MaskPropagate", mask, param=P.MaskPropagate(**fields))
    seen = np.zeros((1, 1, 4, 5), np.float32)
    seen[0, 0] = mask
    names = ("pad_w", "stride_w", "dilate_h")
    by_conv = conv(seen, np.ones((1, 1, 2, 3), np.float32), **{n: fields[n] for n in names})
    np.testing.assert_array_equal(y, by_conv[0, 0] != 0)


@pytest.mark.parametrize("sparse", [False, True])
def test_taps_of_other_regions_do_not_count(sparse: bool) -> None:
    x = ints(2, 3, 4, 5)
    w = ints(3, 2, 1, 3, 3) if sparse else ints(2, 3, 3, 3)
    rin, rout = (RNG.integers(0, 3, (2, 4, 5)).astype(np.int32) for _ in range(2))
    kind = {"sparse": GROUP} if sparse else {}
    param = P.Convolution(pad_h=1, pad_w=1, **kind)
    y = apply_one("RegionRestrictedConvolution", x, w, rin, rout, param=param)
    parts = [
        conv(x * (rin == r)[:, None], w, pad_h=1, pad_w=1, **kind) * (rout == r)[:, None]
        for r in range(3)
    ]
    np.testing.assert_array_equal(y, sum(parts))
    name = "RegionRestrictedConvolutionBackward"
    dx = apply_one(f"{name}Data", w, y, rin, rout, x, param=param)
    dw = apply_one(f"{name}Filter", x, y, rin, rout, w, param=param)
    assert (dx * x).sum() == (dw * w).sum() == (y * y).sum()


def test_a_deformable_convolution_without_moves_is_a_convolution() -> None:
    x, w = ints(2, 4, 5, 6), ints(3, 4, 3, 3)
    y = conv(x, w, pad_h=1, pad_w=1, stride_w=2)
    offset, mask = (np.zeros((2, 2 * k * 9, 5, 3), np.float32) for k in (2, 1))
    param = P.Convolution(pad_h=1, pad_w=1, stride_w=2)
    moved = apply_one("DeformableConvForward", x, w, offset, mask + 1, param=param)
    np.testing.assert_array_equal(moved, y)


def test_moves_read_between_pixels_and_zero_outside() -> None:
    x = np.array([1, 3, 5], np.float32).reshape(1, 1, 1, 3)
    w = np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 1, 3), np.float32)
    offset[0, 1, 0] = [0.5, 0.25, 0.5]
    offset[0, 0, 0, 1] = np.nan
    mask = np.array([1, 1, 2], np.float32).reshape(1, 1, 1, 3)
    y = apply_one("DeformableConvForward", x, w, offset, mask, param=P.Convolution())
    assert y.reshape(-1).tolist() == [2, 0, 5]


def test_deformable_gradients_follow_differences() -> None:
    rng = np.random.default_rng(0)
    param = P.Convolution(pad_h=1)
    x, w = rng.standard_normal((1, 2, 4, 4), "f4"), rng.standard_normal((2, 2, 2, 2), "f4")
    offset = rng.uniform(0.2, 0.8, (1, 8, 5, 3)).astype(np.float32)
    mask = rng.standard_normal((1, 4, 5, 3), "f4")
    dy = rng.standard_normal((1, 2, 5, 3), "f4")

    def loss(*arrays: np.ndarray) -> float:
        y = apply_one("DeformableConvForward", *arrays, param=param)
        return float((y.astype(float) * dy).sum())

    arrays = [x, w, offset, mask]
    dx, d_offset, d_mask = apply_op("DeformableConvBackwardData", *arrays, dy, param=param, count=3)
    dw = apply_one("DeformableConvBackwardFilter", *arrays, dy, param=param)
    for k, gradient in enumerate((dx, dw, d_offset, d_mask)):
        step = rng.choice([-1, 1], gradient.shape).astype(np.float32) * np.float32(1 / 128)
        ahead, behind = (
            loss(*[a + s * step if i == k else a for i, a in enumerate(arrays)]) for s in (1, -1)
        )
        np.testing.assert_allclose((gradient * step).sum(), (ahead - behind) / 2, atol=1e-3)


def psroi(*arrays: np.ndarray, **param: Any) -> list[np.ndarray]:
    return apply_op(
        "DeformablePSROIPoolingForward", *arrays, count=2, param=P.DeformablePSROIPooling(**param)
    )


def test_region_bins_are_means_of_samples_inside() -> None:
    data = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 3, 3]], np.float32)
    trans = np.zeros((1, 2, 1, 1), np.float32)
    mean, count = psroi(data, rois, trans, pooled_h=1, pooled_w=1, sample_per_part=4)
    # Samples at -0.5, 0.5, 1.5, 2.5 along both axes; -0.5 is clamped to 0.
    assert mean.item() == pytest.approx(5 * np.mean([0, 0.5, 1.5, 2.5]))
    assert count.item() == 16


def test_region_errors() -> None:
    data, trans = ints(1, 1, 4, 4), ints(1, 2, 1, 1)
    with pytest.raises(ExecutionError, match=r"outside of 0\.\.0"):
        psroi(data, np.array([[3, 0, 0, 1, 1]], np.float32), trans)
    with pytest.raises(ShapeError, match="samples for a region"):
        psroi(data, np.zeros((1, 5), np.float32), trans, sample_per_part=1 << 20)
    with pytest.raises(ShapeError, match="has no room for 2x2 parts"):
        psroi(data, np.zeros((1, 5), np.float32), trans, no_trans=False, part_size=2)
