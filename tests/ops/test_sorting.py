from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_calls import apply_one, apply_op

from mgeserial import params as P
from mgeserial.errors import ExecutionError, ShapeError

rows = hnp.arrays(np.int32, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.integers(-2, 2))


@given(rows, st.sampled_from(list(P.ArgsortOrder)))
def test_sorting_orders_pairs_of_value_and_index(x: np.ndarray, order: P.ArgsortOrder) -> None:
    values, indices = apply_op("Argsort", x, param=P.Argsort(order=order), count=2)
    down = order == P.ArgsortOrder.DESCENDING
    for row, found, places in zip(x, values, indices, strict=True):
        want = sorted(((v, i) for i, v in enumerate(row)), reverse=down)
        assert list(zip(found, places, strict=True)) == want


@given(rows)
def test_gradient_of_sorting_puts_values_back(x: np.ndarray) -> None:
    values, indices = apply_op("Argsort", x, param=P.Argsort(), count=2)
    np.testing.assert_array_equal(apply_one("ArgsortBackward", values, indices, x), x)


def test_gradient_of_sorting_checks_its_indices() -> None:
    x = np.ones((1, 2), np.float32)
    with pytest.raises(ExecutionError, match="indices must be 0 to 1"):
        apply_one("ArgsortBackward", x, np.array([[0, 2]], np.int32), x)


@given(rows, st.integers(-9, 9).filter(bool))
def test_top_k_is_a_part_of_the_sorted_row(x: np.ndarray, k: int) -> None:
    order = P.ArgsortOrder.ASCENDING if k > 0 else P.ArgsortOrder.DESCENDING
    values, indices = apply_op("Argsort", x, param=P.Argsort(order=order), count=2)
    number = np.array([k], np.int32)
    kept = min(abs(k), x.shape[1])
    sort = P.TopK(mode=P.TopKMode.VALUE_IDX_SORTED)
    best, places = apply_op("TopK", x, number, param=sort, count=2)
    np.testing.assert_array_equal(best, values[:, :kept])
    np.testing.assert_array_equal(places, indices[:, :kept])
    kth = apply_one("TopK", x, number, param=P.TopK(mode=P.TopKMode.KTH_ONLY))
    np.testing.assert_array_equal(kth, values[:, kept - 1])


def test_top_k_refuses_zero_and_vectors() -> None:
    param = P.TopK(mode=P.TopKMode.VALUE_IDX_SORTED)
    with pytest.raises(ShapeError, match="k must not be 0"):
        apply_op("TopK", np.ones((1, 2), np.float32), np.array([0], np.int32), param=param, count=2)
    with pytest.raises(ShapeError, match=r"x must be a matrix \(m, n\), got \(2,\)"):
        apply_op("TopK", np.ones(2, np.float32), np.array([1], np.int32), param=param, count=2)


@pytest.mark.parametrize(
    ("mode", "want"),
    [("EQ", [1]), ("NEQ", [0, 2]), ("LT", [0]), ("LEQ", [0, 1]), ("GT", [2]), ("GEQ", [1, 2])],
)
def test_conditions_select_flat_elements(mode: str, want: list[int]) -> None:
    data, mask = np.array([[10, 20, 30]], np.int16), np.array([[1.0, 2.0, 3.0]], np.float32)
    param = P.CondTake(mode=P.CondTakeMode[mode], val=2.0)
    values, indices = apply_op("CondTake", data, mask, param=param, count=2)
    assert indices.tolist() == want
    assert values.tolist() == data[0, want].tolist()


def test_equality_of_floats_has_a_margin() -> None:
    mask = np.array([1 + 1e-7, 1 + 1e-5], np.float32)
    values, _ = apply_op("CondTake", mask, mask, param=P.CondTake(val=1.0), count=2)
    assert len(values) == 1


def test_selection_needs_equal_shapes() -> None:
    x = np.ones((2, 2), np.float32)
    with pytest.raises(ShapeError, match="data and mask must have equal shapes"):
        apply_op("CondTake", x, x[0], param=P.CondTake(), count=2)


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.sampled_from([0, -0.0, 2])))
def test_places_of_what_is_not_zero(x: np.ndarray) -> None:
    got = apply_one("NonZero", x)
    assert got.shape[0] == x.ndim
    assert np.array_equal(x[tuple(got)], x[x != 0])


def test_suppression_keeps_the_first_of_overlapping_boxes() -> None:
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6], [0, 1, 2, 3]]] * 2, np.float32)
    boxes[1] = [0, 0, 1, 1]
    param = P.NMSKeep(iou_thresh=0.5, max_output=4)
    indices, sizes = apply_op("NMSKeep", boxes, param=param, count=2)
    assert sizes.tolist() == [3, 1]
    assert indices.tolist() == [[0, 2, 3, 3], [0, 0, 0, 0]]


def test_suppression_stops_at_its_limit_and_takes_no_boxes_at_all() -> None:
    boxes = np.array([[[i, 0, i + 0.5, 1] for i in range(5)]], np.float32)
    param = P.NMSKeep(iou_thresh=0.5, max_output=2)
    indices, sizes = apply_op("NMSKeep", boxes, param=param, count=2)
    assert (indices.tolist(), sizes.tolist()) == ([[0, 1]], [2])
    indices, sizes = apply_op("NMSKeep", boxes[:, :0], param=param, count=2)
    assert (indices.tolist(), sizes.tolist()) == ([[0, 0]], [0])
    with pytest.raises(ShapeError, match=r"boxes must have shape \(b, n, 4\)"):
        apply_op("NMSKeep", boxes[..., :3], param=param, count=2)


def test_top_k_refuses_a_k_that_is_no_number() -> None:
    x, k = np.zeros((2, 3), np.float32), np.array([np.nan], np.float32)
    sort = P.TopK(mode=P.TopKMode.VALUE_IDX_SORTED)
    with pytest.raises(ShapeError, match="k must be a number, got nan"):
        apply_op("TopK", x, k, param=sort, count=2)
