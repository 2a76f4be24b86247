from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one

from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError

NCHW, NHWC = P.ConvolutionFormat.NCHW, P.ConvolutionFormat.NHWC
Mode = P.WarpPerspectiveV1InterpolationMode
sizes = st.integers(1, 7)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def resize(
    x: np.ndarray, size: tuple[int, ...], mode: Mode, format_: P.ConvolutionFormat = NCHW
) -> np.ndarray:
    return apply_one("Resize", x, ints(*size), param=P.Resize(imode=mode, format=format_))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_linear_counts_from_pixel_centres_and_repeats_the_ends() -> None:
    x = np.array([0, 4], np.float32).reshape(1, 1, 1, 2)
    np.testing.assert_array_equal(resize(x, (1, 4), Mode.LINEAR).reshape(-1), [0, 1, 3, 4])


def test_nearest_takes_the_element_below() -> None:
    x = np.arange(3, dtype=np.float32).reshape(1, 1, 1, 3)
    y = resize(x, (1, 7), Mode.NEAREST)
    np.testing.assert_array_equal(y.reshape(-1), [0, 0, 0, 1, 1, 2, 2])


def test_cubic_has_known_weights_halfway() -> None:
    x = np.zeros((1, 1, 1, 4), np.float32)
    x[..., 1] = 32
    y = resize(x, (1, 2), Mode.CUBIC)
    # Positions 0.5 and 2.5: weight 0.59375 of the neighbour, -0.09375 of the second one.
    np.testing.assert_allclose(y.reshape(-1), [19, -3])


@given(sizes, sizes, st.sampled_from([Mode.LINEAR, Mode.NEAREST, Mode.CUBIC]))
def test_a_constant_image_stays_constant(h: int, w: int, mode: Mode) -> None:
    x = np.full((1, 2, 3, 4), 200, np.uint8)
    assert (resize(x, (h, w), mode) == 200).all()
    np.testing.assert_allclose(resize(x.astype(np.float32), (h, w), mode), 200, rtol=1e-5)


@given(sizes, sizes, st.sampled_from([Mode.LINEAR, Mode.NEAREST, Mode.CUBIC]))
def test_the_gradient_is_the_adjoint(h: int, w: int, mode: Mode) -> None:
    x = noise(1, 2, 3, 4)
    y = resize(x, (h, w), mode)
    g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    param = P.Resize(imode=mode, format=NCHW)
    dx = apply_one("ResizeBackward", g, x, param=param)
    np.testing.assert_allclose((dx * x).sum(), (g * y).sum(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", [Mode.LINEAR, Mode.NEAREST])
@pytest.mark.parametrize(
    ("format_", "axes"),
    [(NHWC, (0, 2, 3, 1)), (P.ConvolutionFormat.NCHW, (0, 1, 2, 3))],
)
def test_layouts_hold_the_same_image(
    mode: Mode, format_: P.ConvolutionFormat, axes: tuple[int, ...]
) -> None:
    x = noise(2, 3, 4, 5)
    y = resize(np.ascontiguousarray(x.transpose(axes)), (5, 3), mode, format_)
    np.testing.assert_array_equal(y, resize(x, (5, 3), mode).transpose(axes))


def test_packed_channels_are_resized_alike() -> None:
    x = noise(2, 8, 4, 5)
    packed = x.reshape(2, 2, 4, 4, 5).transpose(0, 1, 3, 4, 2)
    y = resize(np.ascontiguousarray(packed), (5, 3), Mode.LINEAR, P.ConvolutionFormat.NCHW44)
    plain = resize(x, (5, 3), Mode.LINEAR).reshape(2, 2, 4, 5, 3).transpose(0, 1, 3, 4, 2)
    np.testing.assert_array_equal(y, plain)


def test_area_of_bytes_is_cut_unless_it_halves_both_axes() -> None:
    x = np.array([[0, 1, 2], [3, 4, 4], [5, 9, 9]], np.uint8).reshape(1, 3, 3, 1)
    assert resize(x, (1, 1), Mode.AREA, NHWC) == 4  # 37 / 9 = 4.1
    x[0, 0, 0] = 7  # 44 / 9 = 4.9
    assert resize(x, (1, 1), Mode.AREA, NHWC) == 4
    half = np.array([[0, 1], [1, 0]], np.uint8).reshape(1, 2, 2, 1)
    assert resize(half, (1, 1), Mode.AREA, NHWC) == 1


@given(sizes, sizes, st.sampled_from([Mode.AREA, Mode.CUBIC, Mode.LANCZOS4]))
def test_channels_last_keep_a_constant_image(h: int, w: int, mode: Mode) -> None:
    x = np.full((1, 3, 4, 3), 100, np.float32)
    np.testing.assert_allclose(resize(x, (h, w), mode, NHWC), 100, rtol=1e-5)
    y = resize(x.astype(np.uint8), (h, w), mode, NHWC)
    assert np.abs(y.astype(int) - 100).max() <= 1


def test_volumes_reach_their_corners_when_aligned() -> None:
    x = np.arange(2, dtype=np.float32).reshape(1, 1, 1, 1, 2)
    param = P.Resize3D(imode=Mode.LINEAR, format=P.Convolution3DFormat.NCDHW, align_corners=True)
    y = apply_one("Resize3D", x, ints(1, 2, 3), param=param)
    np.testing.assert_array_equal(y[0, 0, 0], [[0, 0.5, 1], [0, 0.5, 1]])
    free = param.replace(align_corners=False)
    y = apply_one("Resize3D", x, ints(1, 1, 4), param=free)
    np.testing.assert_array_equal(y.reshape(-1), [0, 0.25, 0.75, 1])


def test_resize_says_what_does_not_fit() -> None:
    x = noise(1, 2, 3, 4)
    with pytest.raises(ShapeError, match="images cannot be resized to 0 x 2"):
        resize(x, (0, 2), Mode.LINEAR)
    with pytest.raises(ShapeError, match="input 1 must say 2 dimensions, got 3"):
        resize(x, (1, 2, 3), Mode.LINEAR)
    with pytest.raises(UnsupportedError, match="AREA needs 8-bit or float32 images"):
        resize(x, (1, 2), Mode.AREA)
    with pytest.raises(UnsupportedError, match="format NCHW4_NCHW"):
        resize(x, (1, 2), Mode.LINEAR, P.ConvolutionFormat.NCHW4_NCHW)
    with pytest.raises(ShapeError, match="a NCHW4 image has 5 axes"):
        resize(x, (1, 2), Mode.LINEAR, P.ConvolutionFormat.NCHW4)
    with pytest.raises(ShapeError, match=r"the gradient .* does not fit"):
        apply_one("ResizeBackward", noise(1, 1, 2, 2), x, param=P.Resize(format=NCHW))
    with pytest.raises(UnsupportedError, match="volumes need format NCDHW"):
        apply_one("Resize3D", noise(1, 1, 1, 1, 1), ints(1, 1, 1), param=P.Resize3D())
