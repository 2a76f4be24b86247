"""Images resized, warped and remapped; regions of images; moves and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, refuses

from mgeserial import params as P
from mgeserial.errors import MgeError

Array = np.ndarray[Any, np.dtype[Any]]
Mode = P.WarpPerspectiveV1InterpolationMode
Border = P.WarpPerspectiveV1BorderMode
Format = P.ConvolutionFormat
BORDERS = [Border.REPLICATE, Border.REFLECT, Border.REFLECT_101, Border.WRAP, Border.CONSTANT]
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def images(kind: str, *shape: int) -> Array:
    random = np.random.default_rng(sum(shape))
    if kind == "uint8":
        return random.integers(0, 256, shape).astype(kind)
    return (random.standard_normal(shape) * (40 if kind == "int8" else 1)).astype(kind)


def shaped(format_: Any, n: int, c: int, h: int, w: int) -> tuple[int, ...]:
    return {
        Format.NCHW: (n, c, h, w),
        Format.NHWC: (n, h, w, c),
        Format.NCHW4: (n, c, h, w, 4),
        Format.NHWCD4: (n, h, c, w, 4),
    }[format_]


@pytest.mark.parametrize(
    ("format_", "kind"),
    [
        (Format.NCHW, "float32"),
        (Format.NCHW, "uint8"),
        (Format.NCHW, "int8"),
        (Format.NHWC, "uint8"),
        (Format.NCHW4, "float32"),
        (Format.NHWCD4, "float16"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.LINEAR, Mode.NEAREST, Mode.CUBIC])
@pytest.mark.parametrize("out", [(1, 1), (5, 17), (13, 9)])
def test_resize(
    out: tuple[int, int], mode: Any, format_: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(kind, *shaped(format_, 2, 3, 7, 9))
    size = np.array(out, np.int32)
    graph = graph_of("Resize", [x, size], P.Resize(imode=mode, format=format_), constant=[1])
    check(graph, [x], monkeypatch, **CLOSE)


@pytest.mark.parametrize("kind", ["float32", "uint8"])
@pytest.mark.parametrize("mode", [Mode.AREA, Mode.CUBIC, Mode.LANCZOS4])
@pytest.mark.parametrize("out", [(8, 9), (4, 6), (5, 7), (29, 31), (16, 40), (1, 1)])
def test_resize_with_the_channels_last(
    out: tuple[int, int], mode: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(kind, 2, 16, 18, 3)
    size = np.array(out, np.int32)
    graph = graph_of("Resize", [x, size], P.Resize(imode=mode, format=Format.NHWC), constant=[1])
    check(graph, [x], monkeypatch, **CLOSE)


@pytest.mark.parametrize("corners", [True, False])
def test_volumes(corners: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, size = images("float32", 1, 2, 3, 5, 4), np.array([6, 2, 9], np.int32)
    record = P.Resize3D(format=P.Convolution3DFormat.NCDHW, align_corners=corners)
    check(graph_of("Resize3D", [x, size], record, constant=[1]), [x], monkeypatch, **CLOSE)


def matrices(count: int, rows: int) -> Array:
    random = np.random.default_rng(rows)
    m = np.zeros((count, rows, 3), np.float32)
    m[:, 0, 0], m[:, 1, 1] = random.uniform(0.4, 2, count), random.uniform(-2, 2, count)
    m[:, :2] += random.uniform(-0.2, 0.2, (count, 2, 3)).astype(np.float32)
    m[:, :2, 2] += random.uniform(-6, 9, (count, 2)).astype(np.float32)
    if rows == 3:
        m[:, 2] = [0.01, -0.02, 1]
    return m


WARPS = [
    (Format.NCHW, "float32", Mode.LINEAR),
    (Format.NCHW, "int8", Mode.LINEAR),
    (Format.NCHW, "uint8", Mode.LINEAR),
    (Format.NCHW4, "float32", Mode.LINEAR),
    (Format.NHWCD4, "float16", Mode.LINEAR),
    (Format.NHWC, "float32", Mode.LINEAR),
    (Format.NHWC, "uint8", Mode.LINEAR),
    (Format.NHWC, "uint8", Mode.NEAREST),
    (Format.NHWC, "float32", Mode.NEAREST),
    (Format.NHWC, "uint8", Mode.CUBIC),
    (Format.NHWC, "float32", Mode.LANCZOS4),
]


# Two borders for each kind of image, all five with every arithmetic.
@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize(
    ("format_", "kind", "mode", "border"),
    [(*case, BORDERS[(i + j) % 5]) for i, case in enumerate(WARPS) for j in (0, 2)],
)
def test_warps(
    format_: Any, kind: str, mode: Any, rows: int, border: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, size = images(kind, *shaped(format_, 2, 3, 9, 11)), np.array([7, 13], np.int32)
    m = matrices(2, rows)
    if rows == 2:
        record: Any = P.WarpAffine(imode=mode, border_mode=border, border_val=7.4, format=format_)
        feeds, name, constant = [x, m, size], "WarpAffine", [2]
    else:
        record = P.WarpPerspective(imode=mode, bmode=border, border_val=7.4, format=format_)
        which = np.array([1, 0], np.int32)
        feeds, name, constant = [x, m, which, size], "WarpPerspective", [3]
    check(graph_of(name, feeds, record, constant=constant), feeds[:-1], monkeypatch, **CLOSE)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e30, 0.0])
@pytest.mark.parametrize("format_", [Format.NCHW, Format.NHWC])
@pytest.mark.parametrize("border", [Border.REPLICATE, Border.CONSTANT, Border.REFLECT])
def test_positions_that_are_nowhere(
    border: Any, format_: Any, special: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, size = images("uint8", *shaped(format_, 1, 3, 9, 11)), np.array([7, 13], np.int32)
    m = matrices(1, 3)
    m[0, 2] = special
    m[0, 1, 0] = special
    record = P.WarpPerspective(bmode=border, border_val=3.0, format=format_)
    graph = graph_of("WarpPerspective", [x, m, size], record, constant=[2])
    check(graph, [x, m], monkeypatch)


def test_an_image_that_does_not_exist_is_the_error_of_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, m = images("float32", 2, 3, 9, 11), matrices(3, 3)
    which, size = np.array([0, 2, 1], np.int32), np.array([5, 5], np.int32)
    graph = graph_of("WarpPerspective", [x, m, which, size], P.WarpPerspective(), constant=[3])
    refuses(graph, [x, m, which], monkeypatch, MgeError)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("mode", [Mode.LINEAR, Mode.NEAREST])
@pytest.mark.parametrize(("format_", "kind"), [(Format.NCHW, "float32"), (Format.NHWC, "uint8")])
def test_remap(
    kind: str, format_: Any, mode: Any, border: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(kind, *shaped(format_, 2, 3, 9, 11))
    at = np.random.default_rng(2).uniform(-15, 25, (2, 6, 7, 2)).astype(np.float32)
    at[0, 0, 0], at[1, 2, 3, 0], at[1, 1, 1, 1] = np.nan, np.inf, -1e20
    record = P.Remap(imode=mode, border_type=border, format=format_, scalar=2.5)
    check(graph_of("Remap", [x, at], record), [x, at], monkeypatch, **CLOSE)


def regions(count: int, images_: int) -> Array:
    random = np.random.default_rng(count)
    start = random.uniform(-4, 14, (count, 2))
    ends = start + random.uniform(-3, 14, (count, 2))
    which = random.integers(0, images_, (count, 1))
    return np.concatenate([which, start, ends], 1).astype(np.float32)


@pytest.mark.parametrize("samples", [(2, 3), (5, 4)])
@pytest.mark.parametrize("channels", [1, 16, 21])
@pytest.mark.parametrize("mode", [P.ROIAlignV0Mode.MAX_, P.ROIAlignV0Mode.AVERAGE])
def test_aligned_regions(
    mode: Any, channels: int, samples: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, boxes = images("float32", 2, channels, 12, 15), regions(9, 2)
    record = P.ROIAlign(
        mode=mode,
        spatial_scale=0.8,
        offset=0.5,
        pooled_height=3,
        pooled_width=4,
        sample_height=samples[0],
        sample_width=samples[1],
    )
    check(graph_of("ROIAlign", [x, boxes], record), [x, boxes], monkeypatch, **CLOSE)


@pytest.mark.parametrize("channels", [1, 16, 21])
@pytest.mark.parametrize("mode", [P.ROIPoolingMode.MAX_, P.ROIPoolingMode.AVERAGE])
def test_pooled_regions(mode: Any, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, boxes = images("float32", 2, channels, 12, 15), regions(9, 2)
    boxes[3, 1:] = np.nan
    boxes[4, 3:] = np.inf
    feeds = [x, boxes, np.array([3, 5], np.int32)]
    graph = graph_of("ROIPooling", feeds, P.ROIPooling(mode=mode, scale=0.9), constant=[2])
    check(graph, feeds[:2], monkeypatch, **CLOSE)


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("channels", [1, 21])
def test_moved_regions(channels: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, boxes = images("float32", 2, channels, 12, 15), regions(9, 2)
    boxes[3, 1], boxes[4, 3], boxes[5, 2] = np.nan, np.nan, np.inf
    offsets = images("float32", 9, 2, 3, 4)
    record = P.DeformablePSROIPooling(
        no_trans=parts == 0, spatial_scale=0.8, trans_std=0.4, pooled_h=3, pooled_w=4,
        part_size=parts or 1, sample_per_part=3,
    )  # fmt: skip
    feeds = [x, boxes, offsets]
    graph = graph_of("DeformablePSROIPoolingForward", feeds, record)
    check(graph, feeds, monkeypatch, **CLOSE)
    boxes[6, 0] = 0.5
    refuses(graph, feeds, monkeypatch, MgeError)


@pytest.mark.parametrize("wrong", [2.0, -1.0, 1e30])
@pytest.mark.parametrize("name", ["ROIAlign", "ROIPooling"])
def test_a_region_of_no_image_is_the_error_of_the_reference(
    name: str, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, boxes = images("float32", 2, 3, 12, 15), regions(9, 2)
    boxes[5, 0] = wrong
    align = name == "ROIAlign"
    feeds = [x, boxes] if align else [x, boxes, np.array([3, 5], np.int32)]
    record: Any = P.ROIAlign() if align else P.ROIPooling()
    graph = graph_of(name, feeds, record, constant=[] if align else [2])
    refuses(graph, feeds[:2], monkeypatch, MgeError)


@pytest.mark.parametrize("kind", ["float32", "uint8", "float16"])
@pytest.mark.parametrize(
    ("window", "pad", "stride", "dilate"), [(3, 0, 1, 1), (2, 1, 2, 1), (3, 2, 1, 2)]
)
def test_windows(
    window: int, pad: int, stride: int, dilate: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(kind, 2, 3, 8, 9)
    record = P.Images2Neibs(
        pad_h=pad, pad_w=pad, stride_h=stride, stride_w=stride, dilate_h=dilate,
        dilate_w=dilate, window_h=window, window_w=window,
    )  # fmt: skip
    check(graph_of("Images2Neibs", [x], record), [x], monkeypatch)


@pytest.mark.parametrize("kind", ["float32", "int8", "uint8"])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        ("NCHW_NHWC", (2, 5, 3, 4)),
        ("NHWC_NCHW", (2, 5, 3, 4)),
        ("NCHW_NCHW4", (2, 6, 3, 4)),
        ("NCHW_NCHW4_IC_SMALL", (2, 3, 3, 4)),
        ("NCHW_NCHW88", (1, 24, 3, 4)),
        ("NCHW88_NCHW", (1, 3, 3, 4, 8)),
        ("NCHW4_CHWN4", (3, 2, 3, 4, 4)),
        ("CHWN4_NCHW4", (3, 2, 3, 4, 4)),
        ("NCHW_NHWCD4", (1, 6, 3, 4)),
        ("NHWCD4_NCHW", (1, 3, 2, 4, 4)),
    ],
)
def test_relayouts(
    mode: str, shape: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = images(kind, *shape)
    record = P.RelayoutFormat(mode=P.RelayoutFormatV0Mode[mode])
    check(graph_of("RelayoutFormat", [x], record), [x], monkeypatch)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (1, 6, 1, 3), (3, 12, 16, 16)])
def test_group_norm(shape: tuple[int, ...], affine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images("float32", *shape) + np.float32(3)
    feeds = [x, *([images("float32", shape[1]), images("float32", shape[1])] if affine else [])]
    record = P.GroupNorm(affine=affine, group=3)
    check(graph_of("GroupNorm", feeds, record), feeds, monkeypatch, **CLOSE)


@pytest.mark.parametrize("axes", [(0, 1), (1, 3), (2, 4), (0, 4)])
@pytest.mark.parametrize("affine", [True, False])
def test_general_norm(axes: tuple[int, int], affine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images("float32", 3, 5, 6, 19)
    part = x.shape[slice(*axes)]
    feeds = [x, *([images("float32", *part), images("float32", *part)] if affine else [])]
    record = P.GeneralNorm(affine=affine, axis_start=axes[0], axis_end=axes[1])
    check(graph_of("GeneralNorm", feeds, record), feeds, monkeypatch, **CLOSE)


@pytest.mark.parametrize("window", [1, 3, 99])
def test_near_channels(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images("float32", 2, 7, 5, 9)
    record = P.LRN(n=window, k=1.5, alpha=0.3, beta=0.6)
    check(graph_of("LRN", [x], record), [x], monkeypatch, **CLOSE)
