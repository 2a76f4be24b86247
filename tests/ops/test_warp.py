from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, quantized
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops.sampling import bordered

Format = P.ConvolutionFormat
Mode = P.WarpPerspectiveV1InterpolationMode
Border = P.WarpPerspectiveV1BorderMode
BORDERS = [Border.REPLICATE, Border.REFLECT, Border.REFLECT_101, Border.WRAP, Border.CONSTANT]
IDENTITY = np.eye(3, dtype=np.float32)[None]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perspective(
    x: np.ndarray, mat: np.ndarray, size: tuple[int, int], **param: object
) -> np.ndarray:
    return apply_one(
        "WarpPerspective",
        x,
        mat,
        ints(*size),
        param=P.WarpPerspective(**param),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("border", "wanted"),
    [
        (Border.REPLICATE, [0, 0, 0, 0, 1, 2, 2, 2, 2]),
        (Border.REFLECT, [2, 1, 0, 0, 1, 2, 2, 1, 0]),
        (Border.REFLECT_101, [1, 2, 1, 0, 1, 2, 1, 0, 1]),
        (Border.WRAP, [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        (Border.CONSTANT, [-1, -1, -1, 0, 1, 2, -1, -1, -1]),
    ],
)
def test_borders_beyond_three_pixels(border: Border, wanted: list[int]) -> None:
    np.testing.assert_array_equal(bordered(np.arange(-3, 6), 3, border), wanted)


@given(st.sampled_from(BORDERS[:4]), st.integers(1, 4), st.integers(-(1 << 30), 1 << 30))
def test_every_border_but_constant_gives_a_pixel(border: Border, size: int, at: int) -> None:
    assert 0 <= bordered(np.array([at]), size, border)[0] < size


def test_other_borders_are_refused() -> None:
    x = noise(1, 1, 2, 2)
    with pytest.raises(UnsupportedError, match="border mode TRANSPARENT is not supported"):
        perspective(x, IDENTITY, (2, 2), bmode=Border.TRANSPARENT)


@pytest.mark.parametrize("border", BORDERS)
def test_the_identity_keeps_the_image(border: Border) -> None:
    x = noise(1, 2, 3, 4)
    np.testing.assert_array_equal(perspective(x, IDENTITY, (3, 4), bmode=border), x)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    y = perspective(last, IDENTITY, (3, 4), bmode=border, format=Format.NHWC)
    np.testing.assert_array_equal(y, last)


def test_matrices_map_the_result_to_the_source() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    right = np.array([[[1, 0, 1.5], [0, 1, 0]]], np.float32)
    param = P.WarpAffine(format=Format.NCHW, border_mode=Border.CONSTANT, border_val=10)
    y = apply_one("WarpAffine", x, right, ints(1, 4), param=param)
    np.testing.assert_array_equal(y.reshape(-1), [1.5, 2.5, 6.5, 10])


def test_perspective_divides_by_the_third_row() -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    half = IDENTITY * np.float32([1, 1, 1])
    half[0, 2, 2] = 0.5
    y = perspective(x, half, (1, 3))
    np.testing.assert_array_equal(y.reshape(-1), [0, 2, 4])


def test_a_divisor_of_zero_gives_the_border_value() -> None:
    flat = IDENTITY.copy()
    flat[0, 2] = 0
    y = perspective(noise(1, 1, 2, 2), flat, (1, 2), bmode=Border.CONSTANT, border_val=3)
    np.testing.assert_array_equal(y.reshape(-1), [3, 3])


def test_mat_idx_chooses_the_source_of_each_result() -> None:
    x = noise(2, 1, 2, 2)
    mats = np.repeat(IDENTITY, 3, axis=0)
    y = apply_one("WarpPerspective", x, mats, ints(1, 0, 1), ints(2, 2), param=P.WarpPerspective())
    np.testing.assert_array_equal(y, x[[1, 0, 1]])
    with pytest.raises(ShapeError, match="mat_idx 2 is outside 2 images"):
        apply_one("WarpPerspective", x, mats, ints(2, 0, 1), ints(2, 2), param=P.WarpPerspective())
    with pytest.raises(ShapeError, match="3 matrices for 2 images"):
        perspective(x, mats, (2, 2))


def test_several_sources_are_the_images_of_one() -> None:
    x = noise(2, 1, 2, 2)
    mats = np.repeat(IDENTITY, 2, axis=0)
    y = apply_one("WarpPerspective", x[:1], x[1:], mats, ints(2, 2), param=P.WarpPerspective())
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("mode", [Mode.NEAREST, Mode.LINEAR, Mode.CUBIC, Mode.LANCZOS4])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_channels_last_keep_a_constant_image_in_every_mode(mode: Mode, dtype: type) -> None:
    x = np.full((1, 5, 6, 3), 90, dtype)
    turn = np.array([[[0.8, -0.3, 0.77], [0.4, 0.9, -0.51]]], np.float32)
    y = apply_one("WarpAffine", x, turn, ints(4, 7), param=P.WarpAffine(imode=mode))
    np.testing.assert_allclose(y, 90, rtol=1e-5)


def test_positions_with_channels_last_are_cut_to_thirty_seconds() -> None:
    x = np.array([0, 32], np.float32).reshape(1, 1, 2, 1)
    for shift, wanted in ((0.51, 16), (0.52, 17)):
        move = np.array([[[1, 0, shift], [0, 1, 0]]], np.float32)
        assert apply_one("WarpAffine", x, move, ints(1, 1), param=P.WarpAffine()) == wanted


def test_bytes_become_real_numbers_in_another_layout() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    param = P.WarpPerspective(format=Format.NHWC_NCHW)
    y = apply_one("WarpPerspective", x, IDENTITY, ints(2, 2), param=param, output_dtype=FLOAT32)
    np.testing.assert_array_equal(y, x.transpose(0, 3, 1, 2).astype(np.float32))
    small = param.replace(format=Format.NHWC_NCHW4_IC_SMALL)
    codes = quantized("QuantizedS8", 1.0)
    y = apply_one("WarpPerspective", x, IDENTITY, ints(2, 2), param=small, output_dtype=codes)
    assert y.shape == (1, 1, 2, 2, 4)
    np.testing.assert_array_equal(y[0, 0, ..., :3], x[0].astype(int) - 128)
    assert (y[..., 3] == 0).all()


def test_codes_of_packed_channels_stay_codes() -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 2, 2, 4)
    kind = quantized("QuantizedS8", 0.1)
    half = IDENTITY.copy()
    half[0, 0, 2] = 0.5
    param = P.WarpPerspective(format=Format.NCHW4)
    y = apply_one("WarpPerspective", x, half, ints(1, 1), param=param, dtypes=(kind,))
    np.testing.assert_array_equal(y.reshape(-1), [-6, -5, -4, -3])


def test_remap_reads_x_before_y() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    at = np.array([[[2, 0], [0.5, 1]]], np.float32)[None]
    y = apply_one("Remap", x, at, param=P.Remap(format=Format.NCHW))
    np.testing.assert_array_equal(y.reshape(-1), [2, 3.5])


def test_remap_to_the_nearest_pixel_rounds_half_to_even() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    at = np.array([[[0.5, 0], [1.5, 0], [2.5, 0]]], np.float32)[None]
    param = P.Remap(format=Format.NCHW, imode=Mode.NEAREST)
    np.testing.assert_array_equal(apply_one("Remap", x, at, param=param).reshape(-1), [0, 2, 2])


def test_positions_that_are_no_numbers_do_no_harm() -> None:
    x = noise(1, 1, 2, 2)
    at = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32).reshape(1, 1, 2, 2)
    param = P.Remap(format=Format.NCHW, border_type=Border.CONSTANT, scalar=7)
    np.testing.assert_array_equal(apply_one("Remap", x, at, param=param), np.full((1, 1, 1, 2), 7))
    for border in BORDERS:
        with np.errstate(invalid="ignore"):
            apply_one("Remap", x, at, param=param.replace(border_type=border))


@pytest.mark.parametrize("border", BORDERS)
def test_gradients_of_remap_are_slopes(border: Border) -> None:
    x, at = noise(2, 2, 3, 4), (noise(2, 3, 3, 2, seed=1) * 2 + 0.37).astype(np.float32)
    # Slopes are one-sided at pixel centres: stay away from them.
    at = (np.floor(at) + np.clip(at - np.floor(at), 0.1, 0.9)).astype(np.float32)
    weight = noise(2, 2, 3, 3, seed=2)
    param = P.Remap(format=Format.NCHW, border_type=border, scalar=0.5)

    def loss(x: np.ndarray, at: np.ndarray) -> float:
        return float((apply_one("Remap", x, at, param=param) * weight.astype(np.float64)).sum())

    by_image = apply_one("RemapBackwardData", at, weight, x, param=param)
    by_map = apply_one("RemapBackwardMat", x, at, weight, param=param)
    assert_gradient(loss, [x, at], [by_image, by_map])


@pytest.mark.parametrize("border", [Border.REPLICATE, Border.CONSTANT])
def test_gradients_of_perspective_are_slopes(border: Border) -> None:
    x, weight, index = noise(2, 2, 6, 6), noise(3, 2, 3, 3, seed=2), ints(1, 0, 1)
    mats = np.repeat(IDENTITY, 3, axis=0) + noise(3, 3, 3, seed=3) * 0.03
    mats[:, :2, 2] += 1.4
    mats = mats.astype(np.float32)
    param = P.WarpPerspective(bmode=border, border_val=0.5)

    def loss(x: np.ndarray, mats: np.ndarray) -> float:
        y = apply_one("WarpPerspective", x, mats, index, ints(3, 3), param=param)
        return float((y * weight.astype(np.float64)).sum())

    by_image = apply_one("WarpPerspectiveBackwardData", mats, index, weight, x, param=param)
    by_mat = apply_one("WarpPerspectiveBackwardMat", x, mats, index, weight, param=param)
    assert_gradient(loss, [x, mats], [by_image, by_mat], step=1e-3)


def test_warps_say_what_does_not_fit() -> None:
    x = noise(1, 1, 2, 2)
    with pytest.raises(ShapeError, match=r"matrices must have shape \(m, 3, 3\), got \(1, 2, 3\)"):
        perspective(x, IDENTITY[:, :2], (2, 2))
    with pytest.raises(UnsupportedError, match="interpolation CUBIC needs channels last"):
        perspective(x, IDENTITY, (2, 2), imode=Mode.CUBIC)
    with pytest.raises(ShapeError, match=r"the map must have shape \(1, h, w, 2\)"):
        apply_one("Remap", x, noise(1, 2, 2, 3), param=P.Remap(format=Format.NCHW))
    with pytest.raises(ShapeError, match="matrices must be Float32, got Int32"):
        perspective(x, IDENTITY.astype(np.int32), (2, 2))
    with pytest.raises(UnsupportedError, match="gradients need format NCHW and LINEAR"):
        apply_one(
            "WarpPerspectiveBackwardData", IDENTITY, x, x,
            param=P.WarpPerspective(format=Format.NHWC),
        )  # fmt: skip
