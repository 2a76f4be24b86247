"""Gradients and training steps on the emulated device, against the reference code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]
_KINDS = {"float32": "Float32", "float16": "Float16", "int32": "Int32"}


def _one(name: str, feeds: Sequence[Array], *params: Any) -> Graph:
    """A graph of one operator, whose inputs are all inputs of the graph."""
    b = GraphBuilder()
    inputs = [b.input(f"i{k}", a.shape, dtype=_KINDS[a.dtype.name]) for k, a in enumerate(feeds)]
    for k, value in enumerate(b.apply(name, inputs, params=params)):
        b.output(value, f"y{k}")
    return b.graph()


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_backward(agrees: Any, axis: int) -> None:
    feeds = [np.abs(_normal(3, 40, 5)), _normal(3, 40, 5, seed=1)]
    agrees(_one("SoftmaxBackward", feeds, P.Softmax(axis=axis)), feeds)


_DIMS = [
    (P.BNParamDim.DIM_1C11, (1, 3, 1, 1)),
    (P.BNParamDim.DIM_111C, (1, 1, 1, 6)),
    (P.BNParamDim.DIM_1CHW, (1, 3, 5, 6)),
    (P.BNParamDim.DIM_11HW, (1, 1, 5, 6)),
    (P.BNParamDim.DIM_1C11, (1, 1, 1, 1)),
]


@pytest.mark.parametrize(("dim", "stat"), _DIMS)
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_with_statistics_of_the_run(
    agrees: Any, dim: P.BNParamDim, stat: tuple[int, ...], training: bool
) -> None:
    x = _normal(4, 1 if stat == (1, 1, 1, 1) else 3, 5, 6)
    others = [_normal(*stat, seed=k) for k in (1, 2, 3)] + [np.abs(_normal(*stat, seed=4))]
    mode = P.BNFwdMode.TRAINING if training else P.BNFwdMode.INFERENCE
    param = P.BN(param_dim=dim, fwd_mode=mode, epsilon=1e-4, avg_factor=0.1)
    feeds = [x, *others]
    agrees(_one("BatchNorm", feeds, param), feeds)


@pytest.mark.parametrize(("dim", "stat"), _DIMS[:4])
def test_batch_norm_backward(agrees: Any, dim: P.BNParamDim, stat: tuple[int, ...]) -> None:
    feeds = [_normal(4, 3, 5, 6), _normal(4, 3, 5, 6, seed=1)]
    feeds += [_normal(*stat, seed=k) for k in (2, 3, 4)]
    agrees(_one("BatchNormBackward", feeds, P.BN(param_dim=dim)), feeds, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("affine", [False, True])
def test_layer_and_general_norm_backward(agrees: Any, affine: bool) -> None:
    x, dy = _normal(4, 3, 50, 2), _normal(4, 3, 50, 2, seed=1)
    weight = [_normal(50, 2, seed=2)] if affine else []
    stats = [_normal(4, 3, seed=3), np.abs(_normal(4, 3, seed=4))]
    feeds = [dy, x, *weight, *stats]
    layer = P.LayerNorm(affine=affine, normalized_dim=2, normalized_size=100)
    agrees(_one("LayerNormBackward", feeds, layer), feeds, rtol=1e-4, atol=1e-4)
    weight = [_normal(3, 50, seed=2)] if affine else []
    stats = [_normal(4, 2, seed=3), np.abs(_normal(4, 2, seed=4))]
    feeds = [dy, x, *weight, *stats]
    general = P.GeneralNorm(affine=affine, axis_start=1, axis_end=3)
    agrees(_one("GeneralNormBackward", feeds, general), feeds, rtol=1e-4, atol=1e-4)
    feeds = [x, *weight, *weight]
    agrees(_one("GeneralNorm", feeds, general), feeds)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name", ["GroupNormBackward", "InstanceNormBackward"])
def test_group_norm_backward(agrees: Any, name: str, affine: bool) -> None:
    x, dy = _normal(4, 6, 5, 7), _normal(4, 6, 5, 7, seed=1)
    groups = 2 if name.startswith("Group") else 6
    stats = [_normal(4, groups, seed=3), np.abs(_normal(4, groups, seed=4))]
    feeds = [dy, x, *([_normal(6, seed=2)] if affine else []), *stats]
    param = P.GroupNorm(affine=affine, group=groups)
    agrees(_one(name, feeds, param), feeds, rtol=1e-4, atol=1e-4)


def test_lrn_backward(agrees: Any) -> None:
    feeds = [_normal(2, 7, 3, 4, seed=k) for k in range(3)]
    agrees(_one("LRNBackward", feeds, P.LRN(n=5, k=2.0, alpha=0.01, beta=0.75)), feeds)


_FORMATS = {"NCHW": (P.ConvolutionFormat.NCHW, "NCHW"), "NHWC": (P.ConvolutionFormat.NHWC, "NHWC")}
_CONVS = [
    {"stride": 1, "pad": 1, "dilate": 1, "groups": 1},
    {"stride": 2, "pad": 1, "dilate": 1, "groups": 1},
    {"stride": 2, "pad": 2, "dilate": 2, "groups": 2},
    {"stride": 1, "pad": 0, "dilate": 1, "groups": 16},
    {"stride": 1, "pad": 1, "dilate": 1, "groups": 1, "mode": P.ConvolutionV0Mode.CONVOLUTION},
]


def _conv(
    stride: int = 1, pad: int = 0, dilate: int = 1, groups: int = 1, **more: Any
) -> tuple[P.Convolution, Array, Array, Array]:
    """Parameters, images, filter, and gradients of the output."""
    x = _normal(2, 16, 9, 8)
    shape = (16, 16, 3, 3) if groups == 1 else (groups, 32 // groups, 16 // groups, 3, 3)
    w = _normal(*shape, seed=1)
    sparse = P.ConvolutionV0Sparse.DENSE if groups == 1 else P.ConvolutionV0Sparse.GROUP
    param = P.Convolution(
        stride_h=stride, stride_w=stride, pad_h=pad, pad_w=pad, dilate_h=dilate, dilate_w=dilate,
        sparse=sparse, **more,
    )  # fmt: skip
    oh, ow = ((n + 2 * pad - 2 * dilate - 1) // stride + 1 for n in (9, 8))
    return param, x, w, _normal(2, 16 if groups == 1 else 32, oh, ow, seed=2)


@pytest.mark.parametrize("how", _CONVS)
def test_convolution_backward_filter(agrees: Any, how: dict[str, Any]) -> None:
    param, x, w, dy = _conv(**how)
    feeds = [x, dy, w]
    agrees(_one("ConvolutionBackwardFilter", feeds, param), feeds, rtol=1e-4, atol=1e-4)


def test_convolution_backward_filter_with_channels_last(agrees: Any) -> None:
    param, x, w, dy = _conv(stride=2, pad=1, format=P.ConvolutionFormat.NHWC)
    feeds = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, dy, w)]
    agrees(_one("ConvolutionBackwardFilter", feeds, param), feeds, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 4])
def test_convolution3d_backward_filter(agrees: Any, groups: int) -> None:
    x, dy = _normal(2, 8, 4, 5, 6), _normal(2, 8, 2, 3, 3, seed=1)
    w = _normal(8, 8, 3, 3, 3) if groups == 1 else _normal(4, 2, 2, 3, 3, 3)
    sparse = P.Convolution3DSparse.DENSE if groups == 1 else P.Convolution3DSparse.GROUP
    strides: dict[str, Any] = {f"stride_{a}": 2 for a in "dhw"} | {f"pad_{a}": 1 for a in "dhw"}
    param = P.Convolution3D(sparse=sparse, **strides)
    feeds = [x, dy, w]
    agrees(_one("Convolution3DBackwardFilter", feeds, param), feeds, rtol=1e-4, atol=1e-4)


_POOL_MODES = [
    P.PoolingV0Mode.MAX_,
    P.PoolingV0Mode.AVERAGE,
    P.PoolingV0Mode.AVERAGE_COUNT_EXCLUDE_PADDING,
]


@pytest.mark.parametrize("mode", _POOL_MODES)
@pytest.mark.parametrize("last", [False, True])
def test_pooling_backward(agrees: Any, mode: P.PoolingV0Mode, last: bool) -> None:
    x = np.round(_normal(2, 3, 9, 8) * 2)  # equal values share the gradient
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf), (3, 4), (2, 3)
    )[:, :, ::2, ::3]
    y = windows.max((-1, -2)).astype(np.float32)
    dy = _normal(*y.shape, seed=1)
    feeds = [x, y, dy]
    fmt = P.ConvolutionFormat.NCHW
    if last:
        feeds = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in feeds]
        fmt = P.ConvolutionFormat.NHWC
    param = P.Pooling(
        mode=mode, format=fmt, window_h=3, window_w=4, stride_h=2, stride_w=3, pad_h=1, pad_w=1
    )
    agrees(_one("PoolingBackward", feeds, param), feeds)


@pytest.mark.parametrize("size", [(5, 13), (11, 4)])
def test_resize_backward(agrees: Any, size: tuple[int, int]) -> None:
    for interpolation in (
        P.WarpPerspectiveV1InterpolationMode.LINEAR,
        P.WarpPerspectiveV1InterpolationMode.NEAREST,
        P.WarpPerspectiveV1InterpolationMode.CUBIC,
    ):
        feeds = [_normal(2, 3, *size), _normal(2, 3, 7, 8)]
        param = P.Resize(imode=interpolation, format=P.ConvolutionFormat.NCHW)
        agrees(_one("ResizeBackward", feeds, param), feeds)


@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "REPLICATE"])
def test_padding_backward(agrees: Any, mode: str) -> None:
    feeds = [_normal(2, 4, 10, 8), _normal(2, 4, 6, 8)]
    sides: dict[str, Any] = {"front_offset_dim2": 3, "back_offset_dim2": 1}
    feeds[0] = _normal(2, 7, 10, 8)
    sides |= {"front_offset_dim1": 1, "back_offset_dim1": 2}
    param = P.Padding(padding_mode=P.PaddingPaddingMode[mode], **sides)
    agrees(_one("PaddingBackward", feeds, param), feeds)


_BORDERS = ["REPLICATE", "REFLECT", "REFLECT_101", "WRAP", "CONSTANT"]


@pytest.mark.parametrize("border", _BORDERS)
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_remap_backward(agrees: Any, border: str, nearest: bool, last: bool) -> None:
    x, where = _normal(2, 3, 6, 7), _normal(2, 5, 4, 2, seed=1) * 4 + 2
    dy = _normal(2, 3, 5, 4, seed=2)
    fmt = P.ConvolutionFormat.NCHW
    if last:
        x, dy = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, dy))
        fmt = P.ConvolutionFormat.NHWC
    modes = P.WarpPerspectiveV1InterpolationMode
    param = P.Remap(
        imode=modes.NEAREST if nearest else modes.LINEAR, format=fmt, scalar=0.5,
        border_type=P.WarpPerspectiveV1BorderMode[border],
    )  # fmt: skip
    feeds = [where, dy, x]
    agrees(_one("RemapBackwardData", feeds, param), feeds, repeat=2)
    feeds = [x, where, dy]
    agrees(_one("RemapBackwardMat", feeds, param), feeds)


@pytest.mark.parametrize("border", _BORDERS)
@pytest.mark.parametrize("indexed", [False, True])
def test_warp_perspective_backward(agrees: Any, border: str, indexed: bool) -> None:
    count = 4 if indexed else 2
    x, dy = _normal(2, 3, 6, 7), _normal(count, 3, 5, 9, seed=1)
    matrix: Any = np.tile(np.eye(3, dtype=np.float32), (count, 1, 1))
    matrix += _normal(count, 3, 3, seed=2) * np.float32(0.02)
    matrix[:, :2, 2] += 1.5
    index = [np.array([1, 0, 1, 1], np.int32)] if indexed else []
    param = P.WarpPerspective(
        bmode=P.WarpPerspectiveV1BorderMode[border], border_val=0.25,
        format=P.ConvolutionFormat.NCHW,
    )  # fmt: skip
    feeds = [matrix, *index, dy, x]
    agrees(_one("WarpPerspectiveBackwardData", feeds, param), feeds, rtol=1e-4, atol=1e-4)
    feeds = [x, matrix, *index, dy]
    agrees(_one("WarpPerspectiveBackwardMat", feeds, param), feeds, rtol=1e-4, atol=1e-3)


_REGIONS = np.array(
    [[0, 1, 2, 9, 11], [1, -3, -2, 4.5, 6], [1, 5, 5, 30, 40], [0, 8, 8, 3, 2], [1, 2, 2, 2, 2]],
    np.float32,
)


@pytest.mark.parametrize("mode", ["AVERAGE", "MAX_"])
def test_roi_backward(agrees: Any, mode: str) -> None:
    x, dy = _normal(2, 3, 12, 13), _normal(5, 3, 3, 2, seed=1)
    random = np.random.default_rng(2)
    align = P.ROIAlign(
        mode=P.ROIAlignV0Mode[mode], pooled_height=3, pooled_width=2, sample_height=2,
        sample_width=3, spatial_scale=0.75, offset=0.25,
    )  # fmt: skip
    feeds: list[Any] = [dy, x, _REGIONS, random.integers(0, 6, dy.shape).astype(np.int32)]
    agrees(_one("ROIAlignBackward", feeds, align), feeds, repeat=2)
    pool = P.ROIPooling(mode=P.ROIPoolingMode[mode], scale=0.75)
    feeds[3] = random.integers(-1, 12 * 13, dy.shape).astype(np.int32)
    agrees(_one("ROIPoolingBackward", feeds, pool), feeds)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("wrong", ["region", "index"])
def test_roi_pooling_backward_notices_what_is_outside(wrong: str) -> None:
    regions = _REGIONS[:2].copy()
    index = np.zeros((2, 1, 2, 2), np.int32)
    if wrong == "region":
        regions[1, 0] = 2
    else:
        index[1, 0, 1, 1] = 25
    feeds = [_normal(2, 1, 2, 2), _normal(2, 1, 5, 5), regions, index]
    graph = _one("ROIPoolingBackward", feeds, P.ROIPooling(mode=P.ROIPoolingMode.MAX_))
    text = "asks for no image" if wrong == "region" else "outside the image"
    with Session(graph, "cuda") as session, pytest.raises(ExecutionError, match=text):
        session.run(feeds)


@pytest.mark.parametrize("how", _CONVS)
def test_convolution_backward_data_with_a_filter_of_the_run(
    agrees: Any, how: dict[str, Any]
) -> None:
    param, x, w, dy = _conv(**how)
    feeds = [w, dy, x]
    agrees(_one("ConvolutionBackwardData", feeds, param), feeds, rtol=1e-4, atol=1e-4)


def test_convolutions_with_filters_of_the_run_in_other_layouts(agrees: Any) -> None:
    param, x, w, dy = _conv(stride=2, pad=1, format=P.ConvolutionFormat.NHWC)
    x, w, dy = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, w, dy))
    for name, feeds in (("Convolution", [x, w]), ("ConvolutionBackwardData", [w, dy, x])):
        agrees(_one(name, feeds, param), feeds, rtol=1e-4, atol=1e-4)
    param, x, w, dy = _conv(pad=1, format=P.ConvolutionFormat.NCHW4)
    x, w, dy = (
        np.ascontiguousarray(a.reshape(a.shape[0], -1, 4, *a.shape[2:]).transpose(0, 1, 3, 4, 2))
        for a in (x, w, dy)
    )
    agrees(_one("Convolution", [x, w], param), [x, w], rtol=1e-4, atol=1e-4)
    flipped, x, w, _ = _conv(pad=1, mode=P.ConvolutionV0Mode.CONVOLUTION)
    agrees(_one("Convolution", [x, w], flipped), [x, w], rtol=1e-4, atol=1e-4)


def test_convolution3d_backward_data_with_a_filter_of_the_run(agrees: Any) -> None:
    x, w, dy = _normal(2, 8, 4, 5, 6), _normal(4, 8, 3, 3, 3), _normal(2, 4, 2, 3, 3, seed=1)
    strides: dict[str, Any] = {f"stride_{a}": 2 for a in "dhw"} | {f"pad_{a}": 1 for a in "dhw"}
    feeds = [w, dy, x]
    graph = _one("Convolution3DBackwardData", feeds, P.Convolution3D(**strides))
    agrees(graph, feeds, rtol=1e-4, atol=1e-4)
