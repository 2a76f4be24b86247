from __future__ import annotations

import numpy as np
import pytest
from op_calls import apply_one, apply_op
from slopes import assert_gradient

from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def regions(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_pooling_finds_the_first_largest_pixel_of_each_bin() -> None:
    x = np.array([[1, 5, 2], [5, 0, 9]], np.float32).reshape(1, 1, 2, 3)
    y, index = apply_op(
        "ROIPooling", x, regions((0, 0, 0, 2, 1)), ints(1, 2), param=P.ROIPooling(), count=2
    )
    # Columns 0 to 1 and 1 to 2: bins share the middle one.
    np.testing.assert_array_equal(y.reshape(-1), [5, 9])
    np.testing.assert_array_equal(index.reshape(-1), [1, 5])


def test_bins_outside_of_the_image_are_empty() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    for mode in P.ROIPoolingMode:
        y, index = apply_op(
            "ROIPooling", x, regions((0, 0, 0, 3, 1)), ints(1, 2),
            param=P.ROIPooling(mode=mode), count=2,
        )  # fmt: skip
        np.testing.assert_array_equal(y.reshape(-1), [1, 0])
        assert index[0, 0, 0, 1] == -1


def test_pooling_by_mean_is_the_mean_of_whole_pixels() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    param = P.ROIPooling(mode=P.ROIPoolingMode.AVERAGE, scale=0.5)
    y, _ = apply_op("ROIPooling", x, regions((0, 2, 0, 6, 4)), ints(1, 1), param=param, count=2)
    np.testing.assert_allclose(y.reshape(-1), [x[0, 0, :3, 1:].mean()])


@pytest.mark.parametrize("mode", list(P.ROIPoolingMode))
def test_gradients_of_pooling_are_slopes(mode: P.ROIPoolingMode) -> None:
    x, weight, size = noise(2, 2, 5, 6), noise(3, 2, 2, 3, seed=1), ints(2, 3)
    boxes = regions((0, 0, 0, 4, 3), (1, 2, 1, 8, 9), (1, 1, 1, 1, 1))
    param = P.ROIPooling(mode=mode)

    def loss(x: np.ndarray) -> float:
        y, _ = apply_op("ROIPooling", x, boxes, size, param=param, count=2)
        return float((y * weight.astype(np.float64)).sum())

    _, index = apply_op("ROIPooling", x, boxes, size, param=param, count=2)
    dx = apply_one("ROIPoolingBackward", weight, x, boxes, index, param=param)
    assert_gradient(loss, [x], [dx], step=1e-3)


def test_a_region_that_ends_before_it_begins_gets_no_gradient() -> None:
    x, g = noise(1, 1, 4, 4), np.ones((1, 1, 1, 1), np.float32)
    for mode in P.ROIPoolingMode:
        param = P.ROIPooling(mode=mode)
        box = regions((0, 2, 2, 1, 1))
        y, index = apply_op("ROIPooling", x, box, ints(1, 1), param=param, count=2)
        assert y == x[0, 0, 2, 2]
        assert not apply_one("ROIPoolingBackward", g, x, box, index, param=param).any()


def test_align_samples_inside_its_bins() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    box = regions((0, 0, 0, 2, 2))
    mean = P.ROIAlign(mode=P.ROIAlignV0Mode.AVERAGE)
    y, _ = apply_op("ROIAlign", x, box, param=mean, count=2)
    assert y == 5  # samples at 0.5 and 1.5 of both axes
    y, index = apply_op("ROIAlign", x, box, param=P.ROIAlign(), count=2)
    assert y == 7.5
    assert index == 3


def test_align_reads_zeros_outside() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    mean = P.ROIAlign(mode=P.ROIAlignV0Mode.AVERAGE, sample_height=1, sample_width=1)
    for left, wanted in ((-1.5, 0.5), (-3.0, 0), (0.5, 0.5)):
        box = regions((0, left, 0, left + 2, 2)) - np.float32([0, 0, 0.5, 0, 0.5])
        y, _ = apply_op("ROIAlign", x, box, param=mean, count=2)
        np.testing.assert_allclose(y.reshape(-1), [wanted])


@pytest.mark.parametrize("mode", list(P.ROIAlignV0Mode))
def test_gradients_of_align_are_slopes(mode: P.ROIAlignV0Mode) -> None:
    x, weight = noise(2, 2, 5, 6), noise(3, 2, 2, 3, seed=1)
    boxes = regions((0, 0.3, 0.2, 4.1, 3.3), (1, -2, 1, 8, 9), (1, 1, 1, 1, 1))
    param = P.ROIAlign(mode=mode, pooled_height=2, pooled_width=3, offset=0.5)

    def loss(x: np.ndarray) -> float:
        y, _ = apply_op("ROIAlign", x, boxes, param=param, count=2)
        return float((y * weight.astype(np.float64)).sum())

    _, index = apply_op("ROIAlign", x, boxes, param=param, count=2)
    dx = apply_one("ROIAlignBackward", weight, x, boxes, index, param=param)
    assert_gradient(loss, [x], [dx], step=1e-3)


def test_regions_must_name_an_image_that_is_there() -> None:
    x = noise(1, 1, 2, 2)
    for image in (-1.0, 1.0, np.nan):
        box = regions((image, 0, 0, 1, 1))
        with pytest.raises(ShapeError, match=r"a region asks for image -?\d+ of 1"):
            apply_op("ROIAlign", x, box, param=P.ROIAlign(), count=2)
    with pytest.raises(ShapeError, match=r"regions must have shape \(m, 5\), got \(1, 4\)"):
        apply_op("ROIAlign", x, regions((0, 0, 0, 1)), param=P.ROIAlign(), count=2)
    last = P.ROIAlign(format=P.ConvolutionFormat.NHWC)
    with pytest.raises(UnsupportedError, match="ROIAlign needs format NCHW"):
        apply_op("ROIAlign", x, regions((0, 0, 0, 1, 1)), param=last, count=2)


def test_no_regions_give_an_empty_result() -> None:
    x, none = noise(1, 2, 3, 3), np.zeros((0, 5), np.float32)
    y, _ = apply_op("ROIAlign", x, none, param=P.ROIAlign(), count=2)
    assert y.shape == (0, 2, 1, 1)
    y, _ = apply_op("ROIPooling", x, none, ints(2, 2), param=P.ROIPooling(), count=2)
    assert y.shape == (0, 2, 2, 2)


def test_correlation_compares_with_the_pixel_moved_by_its_channel() -> None:
    a, b = noise(1, 2, 4, 5), noise(1, 2, 4, 5, seed=1)
    param = P.Correlation(pad_size=1)
    y = apply_one("CorrelationForward", a, b, param=param)
    assert y.shape == (1, 9, 4, 5)
    np.testing.assert_allclose(y[0, 4], (a * b).mean(axis=1)[0], rtol=1e-5)
    right = (a[..., :4] * b[..., 1:]).mean(axis=1)[0]  # channel 5: one pixel to the right
    np.testing.assert_allclose(y[0, 5, :, :4], right, rtol=1e-5)
    assert (y[0, 5, :, 4] == 0).all()
    far = apply_one("CorrelationForward", a, b, param=param.replace(is_multiply=False))
    np.testing.assert_allclose(far[0, 4], np.abs(a - b).mean(axis=1)[0], rtol=1e-5)


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize(("stride1", "stride2", "kernel"), [(1, 1, 1), (2, 1, 3), (1, 2, 3)])
def test_gradient_by_the_second_map_is_a_slope(
    multiply: bool, stride1: int, stride2: int, kernel: int
) -> None:
    param = P.Correlation(
        kernel_size=kernel, max_displacement=2, stride1=stride1, stride2=stride2, pad_size=3,
        is_multiply=multiply,
    )  # fmt: skip
    a, b = noise(1, 2, 4, 5), noise(1, 2, 4, 5, seed=1)
    weight = noise(*apply_one("CorrelationForward", a, b, param=param).shape, seed=2)

    def loss(b: np.ndarray) -> float:
        y = apply_one("CorrelationForward", a, b, param=param)
        return float((y * weight.astype(np.float64)).sum())

    db = apply_one("CorrelationBackwardData2", weight, a, b, param=param)
    assert_gradient(loss, [b], [db], step=1e-3)


def test_gradient_by_the_first_map_has_rows_and_columns_of_displacements_exchanged() -> None:
    # As MegEngine computes it: right where the gradient is the same for both orders.
    a, b = noise(1, 1, 4, 4), noise(1, 1, 4, 4, seed=1)
    param = P.Correlation(pad_size=1)
    weight = noise(1, 9, 4, 4, seed=2)
    exchanged = weight.reshape(1, 3, 3, 4, 4).transpose(0, 2, 1, 3, 4).reshape(1, 9, 4, 4)

    def loss(a: np.ndarray) -> float:
        y = apply_one("CorrelationForward", a, b, param=param)
        return float((y * exchanged.astype(np.float64)).sum())

    da = apply_one("CorrelationBackwardData1", weight, a, b, param=param)
    assert_gradient(loss, [a], [da], step=1e-3)


def test_correlation_says_what_does_not_fit() -> None:
    a = noise(1, 2, 4, 5)
    with pytest.raises(ShapeError, match="the maps differ"):
        apply_one("CorrelationForward", a, a[..., :4], param=P.Correlation())
    with pytest.raises(ShapeError, match="smaller than the displacements"):
        apply_one("CorrelationForward", a, a, param=P.Correlation(max_displacement=2))
    with pytest.raises(ShapeError, match="the kernel must be odd"):
        apply_one("CorrelationForward", a, a, param=P.Correlation(kernel_size=2))
