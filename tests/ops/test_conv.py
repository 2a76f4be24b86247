from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_calls import apply_one, make_call

from mgeserial import dtypes as D
from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops import windows
from mgeserial.ops.layouts import FILTER_LAYOUTS, NCHW, TENSOR_LAYOUTS
from mgeserial.ops.windows import Window

F = P.ConvolutionFormat
GROUP = P.ConvolutionV0Sparse.GROUP
S8 = D.quantized("QuantizedS8", 0.5)
S8B = D.quantized("QuantizedS8", 0.25)
S32 = D.quantized("QuantizedS32", 0.125)
U8 = D.quantized("Quantized8Asymm", 0.5, 128)


def slow(x: np.ndarray, w: np.ndarray, window: Window) -> np.ndarray:
    """Convolution as it is defined: (N, G, I, ...) with (G, O, I, ...), in float64."""
    sizes = x.shape[3:]
    out = window.output(sizes)
    y = np.zeros((x.shape[0], *w.shape[:2], *out))
    for place in product(*map(range, out)):
        for tap in product(*map(range, window.kernel)):
            at = [
                o * s + k * d - p
                for o, s, k, d, p in zip(
                    place, window.stride, tap, window.dilate, window.pad, strict=True
                )
            ]
            if all(0 <= a < n for a, n in zip(at, sizes, strict=True)):
                seen = x[(..., *at)].astype(float)
                y[(..., *place)] += np.einsum("ngi,goi->ngo", seen, w[(..., *tap)].astype(float))
    return y


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Window]:
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    n, g, o, i = (draw(small) for _ in range(4))

    def sized(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    window = Window(sized(1, 3), sized(1, 3), sized(0, 3), sized(1, 2))
    sizes = sized(1, 5)
    assume(all(s + 2 * p >= e for s, p, e in zip(sizes, window.pad, window.extent, strict=True)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x = rng.integers(-9, 10, (n, g, i, *sizes)).astype(np.float32)
    return x, rng.integers(-9, 10, (g, o, i, *window.kernel)).astype(np.float32), window


@settings(max_examples=60, deadline=None)
@given(problem=problems(), chunk=st.sampled_from([1, 200, 32 << 20]))
def test_core_is_the_definition_and_its_adjoints(
    problem: tuple[np.ndarray, np.ndarray, Window], chunk: int
) -> None:
    x, w, window = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_CHUNK", chunk)
        y = windows.convolve(x, w, window)
        exact = windows.convolve_exact(x.astype("i4"), w.astype("i4"), window)
    np.testing.assert_array_equal(y, slow(x, w, window))
    np.testing.assert_array_equal(exact, y)
    dy = np.round(np.sin(np.arange(y.size)) * 9).reshape(y.shape).astype(np.float32)
    dx = windows.input_gradient(dy, w, window, x.shape[3:])
    dw = windows.filter_gradient(x, dy, window)
    assert (dx * x).sum() == (dy * y).sum() == (dw * w).sum()
    cols = windows.columns(x, window, y.shape[3:])
    assert (windows.scatter(cols, window, x.shape[3:]) * x).sum() == (cols * cols).sum()


@pytest.mark.parametrize("large", [1 << 10, 1 << 20, 1 << 30])
def test_integers_are_exact_whatever_their_size(large: int) -> None:
    window = Window((3,), (1,), (0,), (1,))
    x = np.full((1, 1, 2, 5), large, np.int64)
    w = np.full((1, 1, 2, 3), large - 1, np.int64)
    assert (windows.convolve_exact(x, w, window) == 6 * large * (large - 1)).all()


def test_hostile_windows_cost_nothing() -> None:
    far = 2**31
    window = Window((2,), (far,), (far - 1,), (far - 1,))
    x = np.ones((1, 1, 2, 3), np.float32)
    w = np.ones((1, 1, 2, 2), np.float32)
    assert windows.convolve(x, w, window).tolist() == [[[[2, 2]]]]


def conv(
    x: np.ndarray, w: np.ndarray, *, dtypes: Any = (), output_dtype: Any = None, **param: Any
) -> np.ndarray:
    return apply_one(
        "Convolution", x, w, param=P.Convolution(**param), dtypes=dtypes, output_dtype=output_dtype
    )


def test_mode_convolution_turns_the_filter() -> None:
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = 1
    w = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    same = conv(x, w, pad_h=1, pad_w=1, mode=P.ConvolutionV0Mode.CONVOLUTION)
    np.testing.assert_array_equal(same, w)
    np.testing.assert_array_equal(conv(x, w, pad_h=1, pad_w=1), w[..., ::-1, ::-1])


def test_int8_products_make_int32() -> None:
    x = np.full((1, 300, 1, 1), -128, np.int8)
    assert conv(x, x).tolist() == [[[[300 * 128 * 128]]]]


def test_zero_point_is_zero_also_in_padding() -> None:
    x = np.full((1, 1, 2, 2), 128, np.uint8)
    w = np.full((1, 1, 3, 3), 3, np.uint8)
    y = conv(x, w, dtypes=(U8, U8), pad_h=1, pad_w=1)
    assert y.dtype == np.int32
    assert (y == 0).all()


def test_quantized_product_has_the_product_of_the_scales() -> None:
    call = make_call(
        "Convolution",
        np.zeros((1, 1, 1, 1), np.int8),
        np.zeros((1, 1, 1, 1), np.int8),
        param=P.Convolution(),
        dtypes=(S8, S8B),
    )
    assert call.op.dtypes is not None
    assert list(call.op.dtypes(call)) == [S32]


def bias_of(codes: list[int]) -> np.ndarray:
    return np.array(codes, np.int32).reshape(1, -1, 1, 1)


def test_conv_bias_rounds_once_half_away_from_zero() -> None:
    x = np.array([1, -1, 3, -3], np.int8).reshape(1, 1, 1, 4)
    w = np.full((1, 1, 1, 1), 1, np.int8)
    out = D.quantized("QuantizedS8", 0.25)
    y = apply_one(
        "ConvBiasForward", x, w, bias_of([0]), param=P.ConvBias(), dtypes=(S8, S8B, S32),
        output_dtype=out,
    )  # fmt: skip
    # 0.125 steps of 0.25: halves go away from zero.
    assert y.reshape(-1).tolist() == [1, -1, 2, -2]


def test_conv_bias_adds_z_before_the_nonlinearity() -> None:
    x = np.array([[2.0, -4.0]], np.float32).reshape(1, 1, 1, 2)
    one = np.ones((1, 1, 1, 1), np.float32)
    z = np.array([[-1.0, 9.0]], np.float32).reshape(1, 1, 1, 2)
    for mode, wanted in (("IDENTITY", [2, 6]), ("RELU", [2, 6]), ("H_SWISH", [2 * 5 / 6, 6])):
        y = apply_one(
            "ConvBiasForward", x, one, one, z,
            param=P.ConvBias(nonlineMode=P.ConvBiasV0NonlineMode[mode]),
        )  # fmt: skip
        np.testing.assert_allclose(y.reshape(-1), wanted, rtol=1e-6)


def test_conv_bias_keeps_integers_when_the_target_is_the_accumulator() -> None:
    x = np.full((1, 1024, 1, 1), 127, np.int8)
    w = np.full((2, 1024, 1, 1), 127, np.int8)
    y = apply_one(
        "ConvBiasForward", x, w, bias_of([1, -20_000_000]), dtypes=(S8, S8B, S32),
        param=P.ConvBias(nonlineMode=P.ConvBiasV0NonlineMode.RELU),
    )  # fmt: skip
    # 16516097 is no float32.
    assert y.reshape(-1).tolist() == [1024 * 127 * 127 + 1, 0]


FILTERS = [(f, k) for f, layouts in FILTER_LAYOUTS.items() for k in range(len(layouts))]


@pytest.mark.parametrize(("fmt", "kind"), FILTERS)
def test_every_layout_computes_what_nchw_computes(fmt: F, kind: int) -> None:
    layout = FILTER_LAYOUTS[fmt][kind]
    tensor = TENSOR_LAYOUTS[fmt]
    lanes = tensor.lanes
    is_first = fmt in (F.NCHW88, F.NCHW44, F.NCHW44_DOT) and layout.axes == "OHWIo"
    if "1" in layout.axes:
        g, o, i = 2 * lanes, 1, 1
    elif layout.is_grouped:
        g, o, i = 2, lanes, lanes
    else:
        g, o, i = 1, 2 * lanes, 3 if is_first else lanes
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 10, (2, g * i, 4, 3)).astype(np.float32)
    w = rng.integers(-9, 10, (g, o, i, 3, 2)).astype(np.float32)
    bias = rng.integers(-9, 10, (1, g * o, 1, 1)).astype(np.float32)
    common: dict[str, Any] = {"pad_h": 1, "stride_w": 2}
    if layout.is_grouped:
        common["sparse"] = GROUP
    plain = apply_one(
        "ConvBiasForward", x, w if layout.is_grouped else w[0], bias, param=P.ConvBias(**common)
    )
    src = NCHW if is_first else tensor
    packed = apply_one(
        "ConvBiasForward", src.from_nchw(x), layout.from_goihw(w), tensor.from_nchw(bias),
        param=P.ConvBias(format=fmt, **common),
    )  # fmt: skip
    np.testing.assert_array_equal(tensor.to_nchw(packed), plain)


@pytest.mark.parametrize("fmt", [F.NCHW4_NCHW, F.NCHW4_NHWC, F.NCHW4_NCHW32, F.NCHW32_NCHW4])
def test_formats_of_two_layouts_read_the_first_and_write_the_second(fmt: F) -> None:
    first, second = (TENSOR_LAYOUTS[F[n]] for n in fmt.name.split("_"))
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 10, (1, 32, 3, 3)).astype(np.float32)
    w = rng.integers(-9, 10, (1, 32, 32, 2, 2)).astype(np.float32)
    packed = FILTER_LAYOUTS[F[fmt.name.split("_")[0]]][0].from_goihw(w)
    y = apply_one("ConvBiasForward", first.from_nchw(x), packed, param=P.ConvBias(format=fmt))
    np.testing.assert_array_equal(second.to_nchw(y), conv(x, w[0]))


def test_each_image_of_batch_conv_bias_has_its_own_filter() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 10, (2, 3, 4, 4)).astype(np.float32)
    w = rng.integers(-9, 10, (2, 5, 3, 2, 2)).astype(np.float32)
    y = apply_one("BatchConvBiasForward", x, w, param=P.BatchConvBias())
    for k in range(2):
        np.testing.assert_array_equal(y[k : k + 1], conv(x[k : k + 1], w[k]))


def test_transposed_convolution_spreads_the_filter() -> None:
    w = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    diff = np.array([1, 10], np.float32).reshape(1, 1, 1, 2)
    y = apply_one("ConvolutionBackwardData", w, diff, param=P.Convolution(stride_w=2))
    np.testing.assert_array_equal(y, np.concatenate([w, 10 * w], axis=3))


def test_third_input_of_a_transposed_convolution_gives_its_shape() -> None:
    w = np.ones((1, 1, 2, 2), np.float32)
    diff = np.ones((1, 1, 2, 2), np.float32)
    like = np.zeros((1, 1, 5, 4), np.float32)
    param = P.Convolution(stride_h=2, stride_w=2)
    y = apply_one("ConvolutionBackwardData", w, diff, like, param=param)
    assert y.shape == (1, 1, 5, 4)
    assert y[0, 0, 4].tolist() == [0, 0, 0, 0]
    with pytest.raises(ShapeError, match="but a convolution of"):
        apply_one("ConvolutionBackwardData", w, diff, like[:, :, :3], param=param)


def test_volumes_agree_in_both_layouts() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 10, (1, 2, 3, 4, 3)).astype(np.float32)
    w = rng.integers(-9, 10, (3, 2, 2, 2, 1)).astype(np.float32)
    y = apply_one("Convolution3D", x, w, param=P.Convolution3D(pad_d=1))
    z = apply_one(
        "Convolution3D", x.transpose(0, 2, 3, 4, 1).copy(), w.transpose(0, 2, 3, 4, 1).copy(),
        param=P.Convolution3D(pad_d=1, format=P.Convolution3DFormat.NDHWC),
    )  # fmt: skip
    np.testing.assert_array_equal(z.transpose(0, 4, 1, 2, 3), y)
    dx = apply_one("Convolution3DBackwardData", w, y, x, param=P.Convolution3D(pad_d=1))
    dw = apply_one("Convolution3DBackwardFilter", x, y, w, param=P.Convolution3D(pad_d=1))
    assert (dx * x).sum() == (dw * w).sum() == (y * y).sum()


def test_filter_gradient_of_groups_has_their_layout() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 2, 2, 4)
    w = np.zeros((2, 1, 1, 1, 1), np.float32)
    dw = apply_one(
        "ConvolutionBackwardFilter", x, np.ones_like(x), w, param=P.Convolution(sparse=GROUP)
    )
    assert dw.shape == w.shape
    assert dw.reshape(-1).tolist() == [x[0, 0].sum(), x[0, 1].sum()]


def test_half_precision_is_summed_in_float32() -> None:
    x = np.full((1, 4096, 1, 1), 1, np.float16)
    assert conv(x, x).reshape(-1).tolist() == [4096]


X4 = np.zeros((1, 4, 5, 5), np.float32)
W4 = np.zeros((2, 4, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("w", "param", "text"),
    [
        (W4[:, :3], {}, "asks for 3 input channels, but the NCHW input .* has 4"),
        (np.zeros((2, 4, 7, 3), np.float32), {}, "covers .7, 3. elements, but the padded input"),
        (W4, {"stride_h": 0}, "strides must be positive"),
        (W4, {"dilate_w": 0}, "dilations must be positive"),
        (W4, {"sparse": GROUP}, r"group convolution needs a filter GOIHW \(5-d\)"),
        (W4[:0], {}, "must have elements"),
        (W4, {"mode": P.ConvolutionV0Mode(7)}, "unknown convolution mode UNKNOWN_7"),
    ],
)
def test_errors_are_in_words_of_the_user(w: np.ndarray, param: dict[str, Any], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        conv(X4, w, **param)


def test_refused_types_and_formats() -> None:
    with pytest.raises(UnsupportedError, match="no convolution of Uint8"):
        conv(X4.astype(np.uint8), W4.astype(np.uint8))
    with pytest.raises(ShapeError, match="one element type, got Float32 and Int8"):
        conv(X4, W4.astype(np.int8))
    with pytest.raises(UnsupportedError, match="NHWC_NCHW4_IC_SMALL"):
        conv(X4, W4, format=F.NHWC_NCHW4_IC_SMALL)
    with pytest.raises(ShapeError, match=r"the bias .* does not fit"):
        apply_one("ConvBiasForward", X4, W4, np.zeros((1, 3, 1, 1), np.float32), param=P.ConvBias())
