"""Images as inputs.

`.ppm` and `.pgm` keep the bytes' order, RGB, as load_and_run feeds them: (1, h, w, c). Other
formats are decoded by OpenCV in BGR order, as MegEngine's own scripts do. Either is brought to the
layout the input declares; `read_image` never resizes. `read_pixels` takes an image as MegEngine's
dump_with_testcase does: decoded by OpenCV whatever it is, resized when asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loadrun.arrays import fit, read_bytes, shape_fits
from mgeserial.dtypes import Array, DTypeEnum
from mgeserial.errors import InputError
from mgeserial.ir.types import ShapeLike, TensorType

__all__ = ["is_image", "read_image", "read_pixels"]

Pixels = npt.NDArray[np.uint8]
# Magic, then width, height and largest value, with comments from `#` to the end of a line between.
_PNM = re.compile(
    rb"P([56])(?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})"
    rb"(?:\s|#[^\n]*\n)+(\d{1,9})\s"
)


def read_image(path: str, name: str, declared: TensorType) -> Array:
    """Read an image as the array an input declares.

    A colour image is taken as grey where only that fits (formats that OpenCV decodes). Pixels are
    numbers 0 to 255: floating inputs get them as they are, quantised ones the codes of them.

    Args:
        path: The image.
        name: The input, for errors.
        declared: Its type. Layouts: (1, h, w, c), (1, c, h, w), (h, w, c), (c, h, w), (h, w);
            with unknown dimensions (1, h, w, c) is preferred for Uint8, (1, c, h, w) otherwise;
            with an unknown shape it is (1, h, w, c).

    Raises:
        InputError: Not an image, or its size is not the declared one.
    """
    variants = _decode(path)
    for pixels in variants:
        for candidate in _layouts(pixels, declared):
            if declared.shape is None or shape_fits(candidate.shape, declared.shape):
                return fit(name, candidate, declared)
    h, w, c = variants[0].shape
    raise InputError(
        f"the image is {w} x {h} (width x height) with {c} channel{'s' if c > 1 else ''}, "
        f"input `{name}` is {declared}",
        path=path,
        hint=_hint(declared.shape),
    )


def _hint(shape: ShapeLike) -> str:
    if shape is not None and len(shape) == 4 and shape[0] not in (None, 1):
        return f"an image is a batch of 1, the input takes {shape[0]}: give an array as .npy"
    return "resize the image to that size first, or give an array as .npy"


def _layouts(pixels: Pixels, declared: TensorType) -> Iterator[Array]:
    """The image in every layout an input may have, the likeliest first."""
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    last, first = (pixels[None], planes[None]), (pixels, planes)
    channels_last = declared.shape is None or declared.dtype.kind is DTypeEnum.Uint8
    for group in (last, first):
        for candidate in group if channels_last else reversed(group):
            yield _typed(candidate, declared)
    if pixels.shape[2] == 1:
        yield _typed(pixels[:, :, 0], declared)


def _typed(pixels: Pixels, declared: TensorType) -> Array:
    """Pixels as real numbers where the input is quantised, so that they become codes of them."""
    return pixels.astype(np.float32) if declared.dtype.is_quantized else pixels


def is_image(path: str) -> bool:
    """Whether OpenCV has a decoder for the file, by its first bytes."""
    import cv2

    try:
        return bool(cv2.haveImageReader(path))
    except cv2.error:
        return False


def read_pixels(path: str, name: str, declared: TensorType, *, resize: bool = False) -> Array:
    """Read an image in the layout that an input declares, its size as it is or as declared.

    An input of rank 4 with 1 or 3 at axis 1 takes (1, c, h, w), with 1 or 3 at the last axis
    (1, h, w, c); rank 3 is the same without the batch, rank 2 is (h, w), an unknown shape
    (1, 3, h, w). One channel is the grey of the colours.

    Args:
        path: The image, of any format OpenCV decodes; colours are in BGR order.
        name: The input, for errors.
        declared: Its type.
        resize: Whether to bring the image to the declared height and width (bilinear).

    Raises:
        InputError: Not an image; the input takes none, or its size is not known.

    Source: MegEngine v0.5.1 sdk/load-and-run/dump_with_testcase_mge.py (layouts, BGR, grey).
    """
    import cv2

    channels, height, width = _axes(name, declared)
    shape = declared.shape
    pixels = _decode_with_opencv(path, grey=False)[0]
    if resize:
        size = (None, None) if shape is None else (shape[height], shape[width])
        if size[0] is None or size[1] is None or not (size[0] and size[1]):
            raise InputError(f"input `{name}` is {declared}: no size to resize an image to")
        pixels = np.asarray(cv2.resize(pixels, (size[1], size[0])), np.uint8)
    wanted = 3 if shape is None else 1 if channels is None else shape[channels]
    if wanted == 1:
        pixels = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), np.uint8)[:, :, None]
    rank = 4 if shape is None else len(shape)
    if channels is None:
        return pixels[:, :, 0]
    if channels == rank - 3:
        pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return pixels if rank == 3 else pixels[None]


def _axes(name: str, declared: TensorType) -> tuple[int | None, int, int]:
    """Axes of channels (None: there is none), height and width of an input that takes images."""
    shape = declared.shape
    if shape is None:
        return 1, 2, 3
    rank = len(shape)
    if rank == 2:
        return None, 0, 1
    if rank in (3, 4):
        first = rank - 3
        if shape[first] in (1, 3, None):
            return first, first + 1, first + 2
        if shape[rank - 1] in (1, 3, None):
            return rank - 1, first, first + 1
    raise InputError(
        f"input `{name}` is {declared}: an image needs 1 or 3 channels at axis 1 or at the last",
        hint="give an array as .npy",
    )


def _decode(path: str) -> list[Pixels]:
    """Pixels (h, w, c) of the image, and of its grey version where that can be had."""
    if os.path.splitext(path)[1].lower() in (".ppm", ".pgm"):
        return [_pnm(path)]
    return _decode_with_opencv(path, grey=True)


def _decode_with_opencv(path: str, *, grey: bool) -> list[Pixels]:
    """Pixels (h, w, 3) in BGR order and, when asked for, those of one channel."""
    import cv2

    data = np.frombuffer(read_bytes(path), np.uint8)
    decoded = []
    for flag in (cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE)[: 1 + grey]:
        try:
            image = cv2.imdecode(data, flag) if data.size else None
        except cv2.error as error:
            raise InputError(f"cannot be decoded: {error}", path=path) from error
        if image is None:
            raise InputError("not an image that can be decoded", path=path)
        decoded.append(np.asarray(image, np.uint8).reshape(*image.shape[:2], -1))
    return decoded


def _pnm(path: str) -> Pixels:
    """Pixels of a binary PPM or PGM file, in the file's order (RGB).

    Source: Netpbm formats "ppm" and "pgm" (header grammar, one blank before the pixels).
    """
    data = read_bytes(path)
    header = _PNM.match(data[:4096])
    if header is None:
        raise InputError("not a binary .ppm (P6) or .pgm (P5) image", path=path)
    channels = 3 if header[1] == b"6" else 1
    w, h, largest = (int(header[i]) for i in (2, 3, 4))
    if not (w and h) or not 1 <= largest <= 255:
        raise InputError(
            f"{w} x {h} pixels up to {largest}: 8-bit pixels (up to 255) are read", path=path
        )
    have = len(data) - header.end()
    if have < w * h * channels:
        raise InputError(
            f"{w} x {h} pixels of {channels} bytes need {w * h * channels} bytes, {have} follow "
            "the header",
            path=path,
            hint="the file is cut off: write or copy it again",
        )
    pixels = np.frombuffer(data, np.uint8, w * h * channels, header.end())
    return pixels.reshape(h, w, channels)
