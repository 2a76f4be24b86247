from __future__ import annotations

import cv2
import numpy as np
import pytest
from fake_session import tensor

from loadrun.images import is_image, read_image, read_pixels
from loadrun.inputs import resolve_inputs
from mgeserial.dtypes import FLOAT32, INT8, UINT8, quantized
from mgeserial.errors import InputError
from mgeserial.ir.types import TensorType

# 2 rows, 3 columns; pixel (r, c) is (10 r + c, 100 + r, 200 + c) in RGB.
RGB = np.array([[[10 * r + c, 100 + r, 200 + c] for c in range(3)] for r in range(2)], np.uint8)
BGR = RGB[..., ::-1]


def ppm(tmp_path, *, header=b"P6\n3 2\n255\n", pixels=RGB, name="x.ppm"):
    path = tmp_path / name
    path.write_bytes(header + pixels.tobytes())
    return str(path)


def png(tmp_path, image=BGR, name="x.png"):
    path = tmp_path / name
    assert cv2.imwrite(str(path), image)
    return str(path)


def test_ppm_is_fed_as_load_and_run_does(tmp_path):
    found = read_image(ppm(tmp_path), "x", TensorType(UINT8, None))
    assert found.dtype == np.uint8
    assert np.array_equal(found, RGB[None])


def test_header_of_ppm_does_not_become_pixels(tmp_path):
    # The line with the largest value was read as pixels.
    path = ppm(tmp_path, header=b"P6 # made by hand\n# two\n3\t2\n#three\n255\n")
    assert np.array_equal(read_image(path, "x", tensor(1, 2, 3, 3, dtype=UINT8)), RGB[None])


def test_pgm_has_one_channel(tmp_path):
    path = ppm(tmp_path, header=b"P5 3 2 255 ", pixels=RGB[..., 0], name="x.pgm")
    assert np.array_equal(read_image(path, "x", TensorType(UINT8, None)), RGB[None, ..., :1])
    found = read_image(path, "x", tensor(1, 1, 2, 3))
    assert found.dtype == np.float32
    assert np.array_equal(found, RGB[None, None, ..., 0])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"P6\n3 3\n255\n", "need 27 bytes, 18 follow"),
        (b"P6\n3 2\n65535\n", "8-bit pixels"),
        (b"P6\n0 2\n255\n", "8-bit pixels"),
        (b"P3\n3 2\n255\n", r"not a binary \.ppm"),
        (b"P6\n999999999 999999999\n255\n", "follow the header"),
        (b"", r"not a binary \.ppm"),
    ],
)
def test_ppm_that_is_wrong_says_how(tmp_path, header, message):
    with pytest.raises(InputError, match=message):
        read_image(ppm(tmp_path, header=header), "x", TensorType(UINT8, None))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (None, BGR[None]),
        ((1, 2, 3, 3), BGR[None]),
        ((1, 3, 2, 3), BGR.transpose(2, 0, 1)[None]),
        ((None, 3, None, None), BGR.transpose(2, 0, 1)[None]),
        ((2, 3, 3), BGR),
        ((3, 2, 3), BGR.transpose(2, 0, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [FLOAT32, UINT8])
def test_png_is_bgr_in_the_declared_layout(tmp_path, shape, expected, dtype):
    found = read_image(png(tmp_path), "x", TensorType(dtype, shape))
    assert found.dtype == dtype.storage
    assert found.flags.c_contiguous
    assert np.array_equal(found, expected)


def test_unknown_dimensions_prefer_the_usual_layout(tmp_path):
    any4 = (None,) * 4
    assert read_image(png(tmp_path), "x", TensorType(UINT8, any4)).shape == (1, 2, 3, 3)
    assert read_image(png(tmp_path), "x", TensorType(FLOAT32, any4)).shape == (1, 3, 2, 3)


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 2, 3, 1), (2, 3)])
def test_colour_image_is_taken_as_grey_where_only_that_fits(tmp_path, shape):
    found = read_image(png(tmp_path), "x", tensor(*shape))
    grey = cv2.cvtColor(np.ascontiguousarray(BGR), cv2.COLOR_BGR2GRAY)
    assert np.abs(found.reshape(2, 3) - grey).max() <= 1


def test_jpeg_is_decoded(tmp_path):
    path = png(tmp_path, np.full((8, 8, 3), 128, np.uint8), "x.jpg")
    assert np.abs(read_image(path, "x", tensor(1, 3, 8, 8)) - 128).max() <= 2


def test_other_size_is_an_error_with_both_sizes(tmp_path):
    with pytest.raises(InputError, match=r"3 x 2 \(width x height\) with 3 channels") as caught:
        read_image(png(tmp_path), "data", tensor(1, 3, 224, 224))
    assert "input `data` is Float32 (1, 3, 224, 224)" in str(caught.value)
    assert "resize the image" in caught.value.hint
    with pytest.raises(InputError) as caught:
        read_image(png(tmp_path), "data", tensor(4, 3, 2, 3))
    assert "batch of 1" in caught.value.hint


def test_quantised_inputs_get_the_codes_of_the_pixels(tmp_path):
    declared = TensorType(quantized("QuantizedS8", 2.0), (1, 2, 3, 3))
    found = read_image(png(tmp_path), "x", declared)
    assert np.array_equal(found, np.minimum(np.floor(BGR[None] / 2 + 0.5), 127))


def test_pixels_beyond_int8_are_an_error(tmp_path):
    with pytest.raises(InputError, match="is not in -128 to 127"):
        read_image(png(tmp_path), "x", TensorType(INT8, (1, 2, 3, 3)))


@pytest.mark.parametrize("content", [b"", b"junk", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_bytes_that_are_no_image_are_refused(tmp_path, content):
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not an image|cannot be decoded"):
        read_image(str(path), "x", tensor(1, 3, 2, 3))


def test_images_are_inputs_by_their_suffix(tmp_path):
    types = {"data": TensorType(UINT8, None)}
    upper = ppm(tmp_path, name="X.PPM")
    assert resolve_inputs([f"data:{upper}"], types).arrays["data"].shape == (1, 2, 3, 3)


# -- images as dump_with_testcase takes them -------------------------------------------------------


def test_pixels_are_in_bgr_order_whatever_the_format(tmp_path):
    for path in (ppm(tmp_path), png(tmp_path)):
        found = read_pixels(path, "x", tensor(1, 2, 3, 3))
        assert np.array_equal(found, BGR[None])
        assert is_image(path)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 2, 3), (2, 0, 1)),
        ((7, 3, 9, 9), (2, 0, 1)),
        ((1, 2, 9, 3), (0, 1, 2)),
        ((3, 2, 9), (2, 0, 1)),
        ((2, 9, 3), (0, 1, 2)),
        ((None, None, None, None), (2, 0, 1)),
    ],
)
def test_layout_of_pixels_follows_the_channels(tmp_path, shape, axes):
    found = read_pixels(png(tmp_path), "x", tensor(*shape))
    assert np.array_equal(found, BGR.transpose(axes).reshape(found.shape))
    assert found.ndim == len(shape)


def test_pixels_of_an_input_of_any_shape_are_nchw(tmp_path):
    found = read_pixels(png(tmp_path), "x", TensorType(FLOAT32, None))
    assert np.array_equal(found, BGR.transpose(2, 0, 1)[None])


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 2, 3, 1), (2, 3)])
def test_pixels_of_one_channel_are_grey(tmp_path, shape):
    grey = cv2.cvtColor(np.ascontiguousarray(BGR), cv2.COLOR_BGR2GRAY)
    found = read_pixels(png(tmp_path), "x", tensor(*shape))
    assert np.array_equal(found, grey.reshape(found.shape))


def test_pixels_are_resized_as_opencv_does(tmp_path):
    found = read_pixels(png(tmp_path), "x", tensor(1, 3, 5, 7), resize=True)
    assert np.array_equal(found[0], cv2.resize(BGR, (7, 5)).transpose(2, 0, 1))


@pytest.mark.parametrize("declared", [tensor(1, 3, None, 7), TensorType(FLOAT32, None)])
def test_without_a_size_nothing_is_resized(tmp_path, declared):
    with pytest.raises(InputError, match="no size to resize an image to"):
        read_pixels(png(tmp_path), "x", declared, resize=True)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4), (2, 2, 2), (1, 1, 1, 1, 1)])
def test_inputs_that_take_no_image(tmp_path, shape):
    with pytest.raises(InputError, match="an image needs 1 or 3 channels"):
        read_pixels(png(tmp_path), "x", tensor(*shape))


def test_files_that_are_no_images(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(b"nothing")
    assert not is_image(str(path))
    with pytest.raises(InputError, match="not an image"):
        read_pixels(str(path), "x", tensor(1, 3, 2, 3))
    with pytest.raises(InputError, match="no such file"):
        read_pixels(str(tmp_path / "none.png"), "x", tensor(1, 3, 2, 3))


def test_any_image_that_opencv_decodes_is_an_input(tmp_path):
    path = png(tmp_path, name="x.webp")
    found = resolve_inputs([f"x:{path}"], {"x": tensor(1, 3, 2, 3)})
    assert found.arrays["x"].shape == (1, 3, 2, 3)
