from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgeserial import params as P
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ops.layouts import (
    FILTER_LAYOUTS,
    GOIHW,
    NCDHW,
    NCHW,
    NDHWC,
    TENSOR_LAYOUTS,
    FilterLayout,
    TensorLayout,
    filter_layout,
    input_layout,
    output_layout,
    single_layout,
)

F = P.ConvolutionFormat
FILTERS = [(f, k) for f, layouts in FILTER_LAYOUTS.items() for k in range(len(layouts))]


@pytest.mark.parametrize("fmt", list(TENSOR_LAYOUTS), ids=str)
@settings(max_examples=10, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 5)] * 4))
def test_feature_maps_come_back_with_padding_channels(fmt: F, shape: tuple[int, ...]) -> None:
    layout = TENSOR_LAYOUTS[fmt]
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    stored = layout.from_nchw(x, fill=7)
    assert stored.shape == layout.stored(shape)
    back = layout.to_nchw(stored)
    assert back.shape == layout.logical(stored.shape)
    np.testing.assert_array_equal(back[:, : shape[1]], x)
    assert (back[:, shape[1] :] == 7).all()


@pytest.mark.parametrize(("fmt", "kind"), FILTERS)
@settings(max_examples=5, deadline=None)
@given(sizes=st.tuples(*[st.integers(1, 3)] * 5))
def test_filters_come_back_with_padding_channels(fmt: F, kind: int, sizes: tuple[int, ...]) -> None:
    layout = FILTER_LAYOUTS[fmt][kind]
    g, o, i, h, w = sizes
    if "1" in layout.axes:
        o = i = 1
    shape = (g if layout.is_grouped else 1, o, i, h, w)
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    stored = layout.from_goihw(x, fill=-1)
    assert stored.shape == layout.stored(shape)
    assert stored.ndim == layout.rank
    back = layout.to_goihw(stored)
    assert back.shape == layout.logical(stored.shape)
    np.testing.assert_array_equal(back[: shape[0], :o, :i], x)
    assert (back == -1).sum() == back.size - x.size


def test_lanes_follow_blocks() -> None:
    x = np.arange(8).reshape(1, 8, 1, 1)
    np.testing.assert_array_equal(
        TENSOR_LAYOUTS[F.NCHW44].from_nchw(x)[0, :, 0, 0], [[0, 1, 2, 3], [4, 5, 6, 7]]
    )
    assert TENSOR_LAYOUTS[F.CHWN4].from_nchw(x).shape == (2, 1, 1, 1, 4)
    assert TENSOR_LAYOUTS[F.NHWCD4].from_nchw(np.zeros((2, 8, 3, 5))).shape == (2, 3, 2, 5, 4)


def test_filter_lanes_of_nchw44_are_input_then_output_and_of_dot_the_reverse() -> None:
    w = np.zeros((1, 4, 4, 1, 1))
    w[0, 1, 2] = 1
    assert FILTER_LAYOUTS[F.NCHW44][0].from_goihw(w)[0, 0, 0, 0, 2, 1] == 1
    assert FILTER_LAYOUTS[F.NCHW44_DOT][0].from_goihw(w)[0, 0, 0, 0, 1, 2] == 1


def test_volumes_have_an_axis_more() -> None:
    x = np.arange(120).reshape(1, 2, 3, 4, 5)
    assert NDHWC.from_nchw(x).shape == (1, 3, 4, 5, 2)
    np.testing.assert_array_equal(NDHWC.to_nchw(NDHWC.from_nchw(x)), NCDHW.to_nchw(x))


def test_rank_tells_variants_of_a_filter_apart() -> None:
    dot = filter_layout(F.NHWCD4, (2, 3, 3, 1, 4, 4), grouped=False)
    plain = filter_layout(F.NHWCD4, (2, 3, 3, 4, 4), grouped=False)
    assert (dot.name, plain.name) == ("OHWI4o4i", "OHWI4o")
    assert filter_layout(F.NHWCD4, (2, 1, 3, 3, 4), grouped=True).name == "G1HW4g"
    assert filter_layout(F.NCHW88, (1, 3, 3, 3, 8), grouped=False).name == "OHWI8o"


def test_first_layers_read_plain_images() -> None:
    assert input_layout(F.NCHW44, 4) is NCHW
    assert input_layout(F.NCHW44, 5).lanes == 4
    assert output_layout(F.NCHW4_NCHW) is NCHW
    assert output_layout(F.NCHW4_NCHW32).lanes == 32


def test_errors_say_what_was_wanted() -> None:
    with pytest.raises(ShapeError, match=r"NCHW4 needs a shape \(N, C, H, W, 4\), got \(1, 2, 3\)"):
        TENSOR_LAYOUTS[F.NCHW4].logical((1, 2, 3))
    with pytest.raises(ShapeError, match=r"needs a filter GOIHW \(5-d\), got \(1, 2, 3, 4\)"):
        filter_layout(F.NCHW, (1, 2, 3, 4), grouped=True)
    with pytest.raises(ShapeError, match=r"the filter needs a shape \(O, I, H, W, 4\)"):
        FILTER_LAYOUTS[F.NCHW4][0].logical((1, 2, 3, 4, 5))
    with pytest.raises(ShapeError, match="has no groups"):
        FILTER_LAYOUTS[F.NCHW][0].stored((2, 1, 1, 1, 1))
    with pytest.raises(UnsupportedError, match="not the format of one tensor"):
        single_layout(F.NCHW4_NCHW)
    with pytest.raises(UnsupportedError, match="UNKNOWN_99 is not known"):
        output_layout(F(99))


def test_names_show_axes() -> None:
    assert str(GOIHW) == "GOIHW"
    assert str(NCHW) == "NCHW"
    assert isinstance(GOIHW, FilterLayout)
    assert isinstance(NCHW, TensorLayout)
