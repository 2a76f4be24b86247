from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_calls import apply_one, make_call

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, INT32, quantized
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import TensorType

Picks = dict[int, "slice | np.ndarray"]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def descriptor(picks: Picks) -> tuple[P.IndexDescMaskDump, list[np.ndarray]]:
    """The parameter and the index inputs for slices and index arrays by axis."""
    items, inputs = [], []
    for axis in sorted(picks, reverse=True):
        pick = picks[axis]
        if isinstance(pick, slice):
            numbers = [pick.start, pick.stop, pick.step]
            flags = [n is not None for n in numbers]
            inputs += [ints(n) for n in numbers if n is not None]
            item = P.IndexDescMaskItem(axis=axis, begin=flags[0], end=flags[1], step=flags[2])
        else:
            inputs.append(pick)
            item = P.IndexDescMaskItem(axis=axis, idx=True)
        items.append(item)
    return P.IndexDescMaskDump(items=tuple(items)), inputs


def select(name: str, x: np.ndarray, picks: Picks, *value: np.ndarray) -> np.ndarray:
    param, inputs = descriptor(picks)
    return apply_one(name, x, *value, *inputs, param=param)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def ends(size: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-size, size + 1)


@st.composite
def sliced(draw: st.DrawFn, indexed: bool = False) -> tuple[np.ndarray, Picks]:
    """A tensor and for some axes a slice (or, when `indexed`, an index array or number)."""
    shape = draw(shapes)
    picks: Picks = {}
    common = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    for axis, n in enumerate(shape):
        kind = draw(st.sampled_from(["none", "slice", "index"] if indexed else ["none", "slice"]))
        if kind == "slice":
            step = draw(st.sampled_from([None, 1, 2, -1, -2]))
            picks[axis] = slice(draw(ends(n)), draw(ends(n)), step)
        elif kind == "index":
            seed = draw(st.integers(0, 9))
            found = np.random.default_rng(seed).integers(-n, n, common)
            picks[axis] = found.astype(np.int32)
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape), picks


def numpy_slices(picks: Picks, rank: int) -> tuple[Any, ...]:
    return tuple(picks[a] if isinstance(picks.get(a), slice) else slice(None) for a in range(rank))


@given(sliced())
def test_subtensor_is_a_python_slice(case: tuple[np.ndarray, Picks]) -> None:
    x, picks = case
    wanted = x[numpy_slices(picks, x.ndim)]
    np.testing.assert_array_equal(select("Subtensor", x, picks), wanted)


@given(sliced())
def test_set_and_incr_change_the_slice_alone(case: tuple[np.ndarray, Picks]) -> None:
    x, picks = case
    place = numpy_slices(picks, x.ndim)
    value = np.full(x[place].shape, 100, np.float32)
    wanted = x.copy()
    wanted[place] = value
    np.testing.assert_array_equal(select("SetSubtensor", x, picks, value), wanted)
    added = x.copy()
    added[place] += value
    np.testing.assert_array_equal(select("IncrSubtensor", x, picks, value), added)


@given(sliced(indexed=True))
def test_index_arrays_broadcast_as_numpys_after_slices(case: tuple[np.ndarray, Picks]) -> None:
    x, picks = case
    view = x[numpy_slices(picks, x.ndim)]
    index = tuple(
        picks[a] if isinstance(picks.get(a), np.ndarray) else slice(None) for a in range(x.ndim)
    )
    wanted = view[index]
    np.testing.assert_array_equal(select("IndexingMultiAxisVec", x, picks), wanted)
    value = np.ones(wanted.shape, np.float32)
    added = x.copy()
    np.add.at(added[numpy_slices(picks, x.ndim)], index, value)
    np.testing.assert_array_equal(select("IndexingIncrMultiAxisVec", x, picks, value), added)


def test_indices_apart_go_to_the_front() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    pair = ints(0, 1)
    apart = select("IndexingMultiAxisVec", x, {0: pair, 2: pair})
    assert apart.shape == (2, 3)
    beside = select("IndexingMultiAxisVec", x, {1: pair, 2: pair})
    assert beside.shape == (2, 2)
    np.testing.assert_array_equal(beside, [[0, 5], [12, 17]])


def test_a_number_removes_its_axis_but_not_the_last_one() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(select("Subtensor", x, {0: ints(-1)}), [3, 4, 5])
    np.testing.assert_array_equal(select("Subtensor", x, {0: ints(1), 1: ints(2)}), [5])


@given(sliced(indexed=True))
def test_a_mesh_is_the_outer_product_of_its_indices(case: tuple[np.ndarray, Picks]) -> None:
    x, picks = case
    picks = {a: p if isinstance(p, slice) else p.reshape(-1) for a, p in picks.items()}
    wanted = x[numpy_slices(picks, x.ndim)]
    for axis, pick in picks.items():
        if isinstance(pick, np.ndarray):
            wanted = wanted.take(pick, axis=axis, mode="wrap")
    y = select("MeshIndexing", x, picks)
    np.testing.assert_array_equal(y, wanted)


def test_a_batched_mesh_has_a_row_of_indices_for_each_element() -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    rows = np.array([[0, 2], [1, -1]], np.int32)
    y = select("BatchedMeshIndexing", x, {1: rows})
    np.testing.assert_array_equal(y, np.stack([x[0, [0, 2]], x[1, [1, 2]]]))
    many = np.full_like(y, 70)
    back = select("BatchedSetMeshIndexing", x, {1: rows}, many)
    np.testing.assert_array_equal(select("BatchedMeshIndexing", back, {1: rows}), many)
    assert (back == 70).sum() == 8
    with pytest.raises(ShapeError, match="has 1 rows for a batch of 2"):
        select("BatchedMeshIndexing", x, {1: rows[:1]})
    with pytest.raises(ShapeError, match="axis 0 is the batch"):
        select("BatchedMeshIndexing", x, {0: rows})


def test_positions_named_twice_are_added_twice() -> None:
    x, value = np.zeros(3, np.float32), np.array([1, 2, 4], np.float32)
    y = select("IndexingIncrMultiAxisVec", x, {0: ints(1, 1, 2)}, value)
    np.testing.assert_array_equal(y, [0, 3, 4])


@pytest.mark.parametrize(
    ("picks", "error"),
    [
        ({0: ints(3)}, "index 3 is outside axis 0 of length 3"),
        ({0: ints(-4)}, "index -4 is outside axis 0 of length 3"),
        ({0: slice(-4, None)}, "begin -4 of the slice of axis 0 is below -3"),
        ({0: slice(None, None, 0)}, "the slice of axis 0 has step 0"),
        ({1: ints(0)}, "axis 1 is outside a tensor of 1 dimensions"),
    ],
)
def test_indices_outside_are_named(picks: Picks, error: str) -> None:
    with pytest.raises(ShapeError, match=error):
        select("Subtensor", np.zeros(3, np.float32), picks)


def test_a_descriptor_must_match_its_inputs() -> None:
    x = np.zeros(3, np.float32)
    twice = P.IndexDescMaskDump(items=(P.IndexDescMaskItem(axis=0, idx=True),) * 2)
    with pytest.raises(ShapeError, match="asks for 2 index inputs, got 1"):
        apply_one("Subtensor", x, ints(0), param=twice)
    with pytest.raises(ShapeError, match="axis 0 is indexed twice"):
        apply_one("Subtensor", x, ints(0), ints(0), param=twice)
    with pytest.raises(ShapeError, match="must hold integers, got Float32"):
        select("IndexingMultiAxisVec", x, {0: x})
    with pytest.raises(ShapeError, match=r"the value must have the shape \(2,\)"):
        select("SetSubtensor", x, {0: slice(0, 2)}, x)
    with pytest.raises(ShapeError, match="the value must be Float32"):
        select("SetSubtensor", x, {0: slice(0, 2)}, ints(0, 0))


def test_codes_are_set_but_never_added() -> None:
    kind = quantized("QuantizedS8", 0.5)
    param, inputs = descriptor({0: slice(0, 1)})
    x, value = np.zeros(2, np.int8), np.ones(1, np.int8)
    y = apply_one("SetSubtensor", x, value, *inputs, param=param, dtypes=(kind, kind))
    np.testing.assert_array_equal(y, [1, 0])
    with pytest.raises(UnsupportedError, match="IncrSubtensor cannot add QuantizedS8"):
        apply_one("IncrSubtensor", x, value, *inputs, param=param, dtypes=(kind, kind))


def test_unknown_numbers_leave_unknown_lengths() -> None:
    param, inputs = descriptor({0: ints(0), 1: slice(0, 2)})
    call = make_call("Subtensor", np.zeros((2, 3, 4), np.float32), *inputs, param=param)
    rule = call.op.shapes
    assert rule is not None
    assert list(rule(call.replace(values=()))) == [(None, 4)]
    partly = (TensorType(FLOAT32, (2, None, 4)), *[TensorType(INT32, (1,))] * 3)
    assert list(rule(call.replace(inputs=partly))) == [(None, 4)]
    unknown = (TensorType(FLOAT32, None), *partly[1:])
    assert list(rule(call.replace(inputs=unknown))) == [None]


def test_one_hot_indexing_takes_and_sets_along_an_axis() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    index, param = ints(2, 0), P.Axis(axis=1)
    taken = apply_one("IndexingOneHot", x, index, param=param)
    np.testing.assert_array_equal(taken, [[2], [3]])
    back = apply_one("IndexingSetOneHot", np.zeros_like(x), index, taken, param=param)
    np.testing.assert_array_equal(back, [[0, 0, 2], [3, 0, 0]])
    with pytest.raises(ShapeError, match="index 3 is outside axis 1 of length 3"):
        apply_one("IndexingOneHot", x, ints(0, 3), param=param)
    with pytest.raises(ShapeError, match=r"the index must have shape \(2,\)"):
        apply_one("IndexingOneHot", x, ints(0), param=param)


def test_remap_gathers_by_coordinates_and_its_gradient_adds_up() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    place = np.array([[[0, 1], [1, 2]], [[0, 1], [0, 0]]], np.int32)
    y = apply_one("IndexingRemap", x, place, param=P.IndexingRemap())
    np.testing.assert_array_equal(y, [[1, 5], [1, 0]])
    g = np.array([[1, 2], [4, 8]], np.float32)
    dx = apply_one("IndexingRemapBackward", g, place, x, param=P.IndexingRemap())
    np.testing.assert_array_equal(dx, [[8, 5, 0], [0, 0, 2]])
    with pytest.raises(ShapeError, match="coordinate 2 of the map is outside axis 0 of length 2"):
        apply_one("IndexingRemap", x, place + 1, param=P.IndexingRemap())
