from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one

from mgeserial import params as P
from mgeserial.dtypes import quantized
from mgeserial.errors import ShapeError, UnsupportedError

Mode = P.CvtColorMode
Border = P.WarpPerspectiveV1BorderMode


def colour(x: np.ndarray, mode: Mode) -> np.ndarray:
    return apply_one("CvtColor", x, param=P.CvtColor(mode=mode))


def pixel(*channels: int) -> np.ndarray:
    return np.array(channels, np.uint8).reshape(1, 1, 1, -1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_gray_weighs_channels_by_their_order() -> None:
    assert colour(pixel(255, 0, 0), Mode.RGB2GRAY) == 76
    assert colour(pixel(255, 0, 0), Mode.BGR2GRAY) == 29
    assert colour(pixel(255, 0, 0, 9), Mode.RGBA2GRAY) == 76
    real = colour(np.ones((1, 1, 1, 3), np.float32), Mode.RGB2GRAY)
    np.testing.assert_allclose(real.reshape(-1), [1], rtol=1e-6)


def test_channels_are_copied_dropped_and_swapped() -> None:
    np.testing.assert_array_equal(colour(pixel(7), Mode.GRAY2RGB).reshape(-1), [7, 7, 7])
    rgba = pixel(1, 2, 3, 4)
    np.testing.assert_array_equal(colour(rgba, Mode.RGBA2RGB).reshape(-1), [1, 2, 3])
    np.testing.assert_array_equal(colour(rgba, Mode.RGBA2BGR).reshape(-1), [3, 2, 1])
    np.testing.assert_array_equal(colour(rgba[..., :3], Mode.RGB2BGR).reshape(-1), [3, 2, 1])


@pytest.mark.parametrize("mode", [m for m in Mode if str(m).startswith(("YUV2", "BT601", "YCr"))])
def test_neutral_colour_is_gray(mode: Mode) -> None:
    x = np.full((1, 6, 4, 1), 128, np.uint8)
    if mode == Mode.YUV2RGB:
        x = np.full((1, 4, 4, 3), 128, np.uint8)
    y = colour(x, mode)
    assert y.shape[1:3] == (4, 4)
    assert (y == y[0, 0, 0, 0]).all()


def test_planes_and_pairs_hold_the_same_colours() -> None:
    random = np.random.default_rng(0)
    luma = random.integers(0, 256, (4, 4)).astype(np.uint8)
    u, v = random.integers(0, 256, (2, 2, 2)).astype(np.uint8)

    def frame(*parts: np.ndarray) -> np.ndarray:
        return np.concatenate([p.reshape(-1) for p in (luma, *parts)]).reshape(1, 6, 4, 1)

    wanted = colour(frame(u, v), Mode.YUV2RGB_YU12)
    np.testing.assert_array_equal(colour(frame(v, u), Mode.YUV2RGB_YV12), wanted)
    np.testing.assert_array_equal(colour(frame(np.stack([u, v], -1)), Mode.YUV2RGB_NV12), wanted)
    swapped = frame(np.stack([v, u], -1))
    np.testing.assert_array_equal(colour(swapped, Mode.YUV2RGB_NV21), wanted)
    np.testing.assert_array_equal(colour(swapped, Mode.YCrCb2RGB), wanted)
    np.testing.assert_array_equal(colour(swapped, Mode.YUV2BGR_NV21), wanted[..., ::-1])
    np.testing.assert_array_equal(colour(swapped, Mode.YUV2GRAY_NV21)[0, ..., 0], luma)


def test_colour_conversion_says_what_it_needs() -> None:
    with pytest.raises(ShapeError, match=r"RGB2GRAY needs images \(n, h, w, 3\)"):
        colour(pixel(1, 2), Mode.RGB2GRAY)
    with pytest.raises(ShapeError, match="a multiple of 3 rows and an even width, got 4 x 4"):
        colour(np.zeros((1, 4, 4, 1), np.uint8), Mode.YUV2RGB_NV12)
    with pytest.raises(UnsupportedError, match="needs Uint8 images, got Float32"):
        colour(np.zeros((1, 6, 4, 1), np.float32), Mode.YUV2RGB_NV12)


def blur(x: np.ndarray, size: int, **param: object) -> np.ndarray:
    return apply_one(
        "GaussianBlur", x,
        param=P.GaussianBlur(kernel_height=size, kernel_width=size, **param),  # type: ignore[arg-type]
    )  # fmt: skip


def test_small_kernels_are_fixed() -> None:
    x = np.zeros((1, 3, 3, 1), np.float32)
    x[0, 1, 1] = 16
    np.testing.assert_array_equal(blur(x, 3)[0, ..., 0], [[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    np.testing.assert_array_equal(blur(x.astype(np.uint8), 3), blur(x, 3))


def test_outside_of_a_constant_border_is_zero() -> None:
    x = np.full((1, 1, 1, 1), 16, np.float32)
    assert blur(x, 3, border_mode=Border.CONSTANT) == 4
    assert blur(x, 3, border_mode=Border.REPLICATE) == 16


def test_the_kernel_size_follows_from_the_deviation() -> None:
    x = np.random.default_rng(0).standard_normal((1, 9, 9, 1)).astype(np.float32)
    np.testing.assert_array_equal(blur(x, 0, sigma_x=0.5), blur(x, 5, sigma_x=0.5))
    with pytest.raises(ShapeError, match="kernel sizes must be odd"):
        blur(x, 0)


def test_cosine_transform_of_a_flat_block_has_one_coefficient() -> None:
    x = np.full((1, 1, 4, 4), 10, np.uint8)
    y = apply_one("DctChannelSelect", x, param=P.DctChannelSelect(dct_block_size=4))
    assert y.shape == (1, 16, 1, 1)
    np.testing.assert_allclose(y.reshape(-1), [40] + [0] * 15, atol=1e-4)


def test_masks_choose_coefficients_of_each_channel() -> None:
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    param = P.DctChannelSelect(dct_block_size=2)
    whole = apply_one("DctChannelSelect", x, param=param)
    part = apply_one("DctChannelSelect", x, ints(0, 1, 3), ints(3, 0, 2), param=param)
    np.testing.assert_array_equal(part, whole[:, [3, 4, 6]])
    with pytest.raises(ShapeError, match="mask_val must hold coefficients 0 to 3"):
        apply_one("DctChannelSelect", x, ints(0, 1, 3), ints(3, 0, 4), param=param)
    with pytest.raises(ShapeError, match="mask_offset must rise from 0 to 3"):
        apply_one("DctChannelSelect", x, ints(0, 1, 2), ints(3, 0, 2), param=param)


def test_packed_coefficients_are_quantised() -> None:
    x = np.full((1, 1, 2, 2), 10, np.uint8)
    param = P.DctChannelSelect(dct_block_size=2, format=P.ConvolutionFormat.NCHW4)
    kind = quantized("QuantizedS8", 2.0)
    y = apply_one("DctChannelSelect", x, param=param, output_dtype=kind)
    np.testing.assert_array_equal(y, np.array([10, 0, 0, 0]).reshape(1, 1, 1, 1, 4))


@st.composite
def windows(draw: st.DrawFn) -> dict[str, int]:
    found = {f"{n}_{a}": draw(st.integers(1, 2)) for n in ("stride", "dilate") for a in "hw"}
    found |= {f"pad_{a}": draw(st.integers(0, 2)) for a in "hw"}
    return found | {f"window_{a}": draw(st.integers(1, 3)) for a in "hw"}


@given(windows())
def test_summing_windows_is_the_adjoint_of_taking_them(param: dict[str, int]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)
    taking, summing = P.Images2Neibs(**param), P.SlidingWindowTranspose(out_h=5, out_w=6, **param)
    y = apply_one("Images2Neibs", x, param=taking)
    g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    dx = apply_one("Images2NeibsBackward", g, x, param=taking)
    np.testing.assert_allclose((dx * x).sum(), (g * y).sum(), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(apply_one("SlidingWindowTranspose", g, param=summing), dx)
    back = apply_one("SlidingWindowTransposeBackward", x, g, param=summing)
    np.testing.assert_array_equal(back, y)


def test_windows_of_packed_channels_keep_the_pack_last() -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 3, 4)).astype(np.float32)
    packed = np.ascontiguousarray(x.reshape(1, 2, 4, 3, 4).transpose(0, 3, 1, 4, 2))
    param = P.Images2Neibs(window_h=2, window_w=2)
    y = apply_one("Images2Neibs", packed, param=param)
    plain = apply_one("Images2Neibs", x, param=param).reshape(1, 2, 4, 2, 3, 2, 2)
    np.testing.assert_array_equal(y, plain.transpose(0, 3, 1, 4, 5, 6, 2))


def test_windows_say_what_does_not_fit() -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    with pytest.raises(ShapeError, match="an image of 2 x 2 is smaller than a window"):
        apply_one("Images2Neibs", x, param=P.Images2Neibs())
    with pytest.raises(ShapeError, match="must be above zero"):
        apply_one("Images2Neibs", x, param=P.Images2Neibs(stride_h=0))
    with pytest.raises(ShapeError, match=r"windows have shape \(n, c, rows, columns, h, w\)"):
        apply_one("SlidingWindowTranspose", x, param=P.SlidingWindowTranspose(out_h=2, out_w=2))
