from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_calls import apply_one

from mgeserial import dtypes as D
from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops.layouts import TENSOR_LAYOUTS

M = P.PoolingV0Mode
U8 = D.quantized("Quantized8Asymm", 0.5, 100)


def pool(x: np.ndarray, mode: M, *, dtypes: Any = (), **param: Any) -> np.ndarray:
    return apply_one("Pooling", x, param=P.Pooling(mode=mode, **param), dtypes=dtypes)


def images(values: Any, kind: str = "f4") -> np.ndarray:
    array = np.array(values, kind)
    return array.reshape(1, 1, *array.shape)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_pooling_is_its_definition_and_gradients_are_adjoint(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(list(M)))
    size, window, stride = (data.draw(st.tuples(*[st.integers(1, high)] * 2)) for high in (6, 5, 4))
    pad = tuple(data.draw(st.integers(0, w - 1)) for w in window)
    assume(all(n + 2 * p >= w for n, p, w in zip(size, pad, window, strict=True)))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-9, 10, (1, 2, *size))
    x = x.astype(np.float32)
    fields = ("window_h", "window_w", "stride_h", "stride_w", "pad_h", "pad_w")
    param: dict[str, int] = dict(zip(fields, (*window, *stride, *pad), strict=True))
    out = tuple(
        (n + 2 * p - w) // s + 1 for n, p, w, s in zip(size, pad, window, stride, strict=True)
    )
    edges = [
        [(max(o * s - p, 0), min(o * s - p + w, n)) for o in range(count)]
        for count, n, w, s, p in zip(out, size, window, stride, pad, strict=True)
    ]
    if mode != M.AVERAGE and any(a >= b for axis in edges for a, b in axis):
        with pytest.raises(ShapeError, match="lies outside"):
            pool(x, mode, **param)
        return
    wanted = np.zeros((1, 2, *out))
    for i, (top, bottom) in enumerate(edges[0]):
        for j, (left, right) in enumerate(edges[1]):
            part = x[..., top:bottom, left:right]
            if mode == M.MAX_:
                wanted[..., i, j] = part.max(axis=(2, 3))
            else:
                count = window[0] * window[1] if mode == M.AVERAGE else part[0, 0].size
                wanted[..., i, j] = part.sum(axis=(2, 3)) / count
    y = pool(x, mode, **param)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)
    dy = np.ones_like(y)
    dx = apply_one("PoolingBackward", x, y, dy, param=P.Pooling(mode=mode, **param))
    if mode != M.MAX_:
        np.testing.assert_allclose((dx * x).sum(), y.sum(), rtol=1e-4, atol=1e-4)


def test_every_maximum_of_a_tie_receives_the_gradient() -> None:
    x = images(np.ones((3, 3)))
    y, dy = images(np.ones((2, 2))), images([[1, 2], [3, 4]])
    param = P.Pooling(stride_h=1, stride_w=1)
    dx = apply_one("PoolingBackward", x, y, dy, param=param)
    assert dx[0, 0].tolist() == [[1, 3, 2], [4, 10, 6], [3, 7, 4]]


def test_int8_averages_truncate_unless_padding_is_excluded() -> None:
    x = images([[-3, -2, 7, 8], [1, 1, 8, 8]], "i1")
    assert pool(x, M.AVERAGE, pad_w=1).reshape(-1).tolist() == [0, 3, 4]
    exclude = pool(x, M.AVERAGE_COUNT_EXCLUDE_PADDING, pad_w=1)
    assert exclude.reshape(-1).tolist() == [-1, 4, 8]


def test_padding_counts_as_the_zero_point() -> None:
    x = images([[200, 200]], "u1")
    y = pool(x, M.AVERAGE, dtypes=(U8,), window_h=1, window_w=2, stride_w=3, stride_h=1, pad_w=1)
    assert y.reshape(-1).tolist() == [150]


def test_adaptive_pooling_puts_the_rest_into_the_window() -> None:
    x = images(np.arange(10).reshape(1, 10))
    target = np.array([1, 3], np.int32)
    y = apply_one("AdaptivePooling", x, target, param=P.AdaptivePooling())
    # stride 3, window 10 - 2 * 3 = 4
    assert y.reshape(-1).tolist() == [3, 6, 9]
    dx = apply_one("AdaptivePoolingBackward", x, target, y, y, param=P.AdaptivePooling())
    assert dx.reshape(-1).tolist() == [0, 0, 0, 3, 0, 0, 6, 0, 0, 9]


@pytest.mark.parametrize("fmt", list(TENSOR_LAYOUTS), ids=str)
def test_layouts_do_not_change_results(fmt: P.ConvolutionFormat) -> None:
    layout = TENSOR_LAYOUTS[fmt]
    x = np.random.default_rng(5).random((2, 2 * layout.lanes, 5, 4), np.float32)
    packed = pool(layout.from_nchw(x), M.MAX_, format=fmt, pad_h=1)
    np.testing.assert_array_equal(layout.to_nchw(packed), pool(x, M.MAX_, pad_h=1))


def test_hostile_windows_cost_nothing() -> None:
    far = 2**31
    param = {"window_h": far, "pad_h": far - 1, "stride_h": far - 1, "window_w": 1, "stride_w": 1}
    x = images(np.arange(6).reshape(2, 3))
    y = pool(x, M.MAX_, **param)
    assert y[0, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    dx = apply_one("PoolingBackward", x, y, y, param=P.Pooling(mode=M.MAX_, **param))
    assert dx[0, 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_errors_say_what_fits() -> None:
    x = images(np.zeros((3, 3)))
    with pytest.raises(ShapeError, match=r"covers \(4, 2\) elements"):
        pool(x, M.MAX_, window_h=4)
    with pytest.raises(ShapeError, match="strides must be positive"):
        pool(x, M.MAX_, stride_w=0)
    with pytest.raises(UnsupportedError, match="no pooling of Int32"):
        pool(x.astype(np.int32), M.MAX_)
    with pytest.raises(ShapeError, match="needs an image at least that large"):
        apply_one("AdaptivePooling", x, np.array([4, 1], np.int32), param=P.AdaptivePooling())
    with pytest.raises(ShapeError, match="y has shape"):
        apply_one("PoolingBackward", x, x, x, param=P.Pooling())
