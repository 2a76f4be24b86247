"""Selections by index tensors of the run, divisions and shifts that are checked, empty values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError, MgeError
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]
Number = int | None


def _item(axis: int, *, idx: bool = False, cut: tuple[Number, ...] = ()) -> P.IndexDescMaskItem:
    begin, end, step = (*cut, None, None, None)[:3]
    return P.IndexDescMaskItem(
        axis=axis, begin=begin is not None, end=end is not None, step=step is not None, idx=idx
    )


def _graph(
    name: str,
    x: Array,
    index: dict[int, Array],
    cuts: dict[int, tuple[Number, ...]],
    value: Array | None,
) -> tuple[Graph, list[Array]]:
    """A graph whose tensors and index tensors are all inputs; slices are constants."""
    b = GraphBuilder()
    feeds = [x, *([] if value is None else [value]), *index.values()]
    kinds = {"float32": "Float32", "int32": "Int32", "int8": "Int8", "uint8": "Uint8"}
    inputs = [b.input(f"i{k}", a.shape, dtype=kinds[a.dtype.name]) for k, a in enumerate(feeds)]
    data = inputs[: 1 if value is None else 2]
    places = dict(zip(index, inputs[len(data) :], strict=True))
    items, rest = [], []
    for axis in (*cuts, *index):
        if axis in index:
            items.append(_item(axis, idx=True))
            rest.append(places[axis])
            continue
        items.append(_item(axis, cut=cuts[axis]))
        rest += [b.param(np.array([n], np.int32)) for n in cuts[axis] if n is not None]
    y = b.apply(name, [*data, *rest], params=(P.IndexDescMaskDump(items=tuple(items)),))
    b.output(y[0], "y")
    return b.graph(), feeds


def _ints(*shape: int, low: int, high: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


_X = np.random.default_rng(5).standard_normal((4, 5, 6, 3)).astype(np.float32)
_VECTORS: dict[str, tuple[dict[int, Array], dict[int, tuple[Number, ...]]]] = {
    "one_axis": ({1: _ints(7, low=-5, high=5)}, {}),
    "last_axis": ({3: _ints(9, low=-3, high=3)}, {}),
    "apart": ({0: _ints(4, low=-4, high=4), 2: _ints(4, low=0, high=6)}, {}),
    "shapes": ({1: _ints(2, 1, low=0, high=5), 2: _ints(3, low=-6, high=6)}, {}),
    "slices": ({2: _ints(5, low=-6, high=6)}, {0: (3, None, -2), 3: (1, None)}),
    "all": ({k: _ints(6, low=0, high=3, seed=k) for k in range(4)}, {}),
}
_MESHES: dict[str, tuple[dict[int, Array], dict[int, tuple[Number, ...]]]] = {
    "two": ({0: _ints(3, low=-4, high=4), 2: _ints(2, low=0, high=6)}, {}),
    "slices": ({1: _ints(4, low=-5, high=5)}, {0: (1, 4), 2: (None, None, 2)}),
}
_BATCHED: dict[str, tuple[dict[int, Array], dict[int, tuple[Number, ...]]]] = {
    "one": ({2: _ints(4, 3, low=-6, high=6)}, {}),
    "two": ({1: _ints(4, 2, low=0, high=5), 3: _ints(4, 4, low=-3, high=3)}, {2: (1, 5)}),
}
_SCALARS: dict[str, tuple[dict[int, Array], dict[int, tuple[Number, ...]]]] = {
    "row": ({1: np.array([-2], np.int32)}, {0: (1, None)}),
    "element": ({k: np.array([k - 1], np.int32) for k in range(4)}, {}),
}
_FORMS = [
    *(("IndexingMultiAxisVec", "IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec", k, v)
      for k, v in _VECTORS.items()),
    *(("MeshIndexing", "SetMeshIndexing", "IncrMeshIndexing", k, v) for k, v in _MESHES.items()),
    *(("BatchedMeshIndexing", "BatchedSetMeshIndexing", "BatchedIncrMeshIndexing", k, v)
      for k, v in _BATCHED.items()),
    *(("Subtensor", "SetSubtensor", "IncrSubtensor", k, v) for k, v in _SCALARS.items()),
]  # fmt: skip


@pytest.mark.parametrize(("take", "put", "add", "name", "chosen"), _FORMS)
def test_selections_are_taken_set_and_added_to(
    agrees: Any, take: str, put: str, add: str, name: str, chosen: Any
) -> None:
    index, cuts = chosen
    graph, feeds = _graph(take, _X, index, cuts, None)
    agrees(graph, feeds, rtol=0, atol=0)
    with Session(graph, "reference") as session:
        taken = session.run(feeds)["y"].shape
    value = np.random.default_rng(6).standard_normal(taken).astype(np.float32)
    agrees(*_graph(put, _X, index, cuts, value), rtol=0, atol=0)
    agrees(*_graph(add, _X, index, cuts, value))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_many_equal_indices_add_up_exactly_and_the_last_stays(agrees: Any, dtype: type) -> None:
    random = np.random.default_rng(7)
    x: Array = random.integers(0, 100, (7, 3)).astype(dtype)
    value: Array = random.integers(0, 100, (700, 3)).astype(dtype)
    rows = {0: random.integers(-7, 7, 700).astype(np.int32)}
    for name in ("IndexingIncrMultiAxisVec", "IndexingSetMultiAxisVec"):
        agrees(*_graph(name, x, rows, {}, value))


def test_sums_of_reals_are_the_same_in_every_run(agrees: Any) -> None:
    random = np.random.default_rng(8)
    value = random.standard_normal((1000, 2)).astype(np.float32)
    rows = {0: random.integers(0, 3, 1000).astype(np.int32)}
    graph, feeds = _graph("IndexingIncrMultiAxisVec", _X[0, :3, :2, 0].copy(), rows, {}, value)
    agrees(graph, feeds, rtol=0, atol=0, repeat=3)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["MeshIndexing", "IndexingIncrMultiAxisVec"])
@pytest.mark.parametrize("wrong", [5, -6])
def test_index_outside_is_an_error(name: str, wrong: int) -> None:
    rows = {1: np.array([0, wrong], np.int32)}
    value = np.zeros((4, 2, 6, 3), np.float32) if "Incr" in name else None
    graph, feeds = _graph(name, _X, rows, {}, value)
    with Session(graph, "cuda") as session, pytest.raises(ExecutionError, match="outside its axis"):
        session.run(feeds)


def test_index_remap_and_its_gradient(agrees: Any) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    places = np.stack([_ints(3, 6, low=0, high=4), _ints(3, 6, low=0, high=5)], axis=-1)
    b = GraphBuilder()
    source, where = b.input("x", x.shape), b.input("map", places.shape, dtype="Int32")
    y = b.apply("IndexingRemap", [source, where], params=(P.IndexingRemap(),))[0]
    diff = b.mul(y, 0.5)
    b.output(y, "y")
    params = (P.IndexingRemap(),)
    b.output(b.apply("IndexingRemapBackward", [diff, where, source], params=params)[0], "dx")
    agrees(b.graph(), [x, places], rtol=1e-6)


def _binary(mode: P.ElemwiseMode, dtype: str) -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", (2, 4), dtype=dtype), b.input("d", (4,), dtype=dtype)
    b.output(b.apply("Elemwise", [x, y], params=(P.Elemwise(mode=mode),))[0], "y")
    return b.graph()


@pytest.mark.parametrize("mode", [P.ElemwiseMode.FLOOR_DIV, P.ElemwiseMode.MOD])
def test_integers_are_divided_and_zero_is_an_error(agrees: Any, mode: P.ElemwiseMode) -> None:
    x = np.array([[7, -7, 9, -128], [1, 0, -1, 5]], np.int32)
    agrees(_binary(mode, "Int32"), [x, np.array([2, 3, -4, -1], np.int32)])
    with Session(_binary(mode, "Int32"), "cuda") as session:
        with pytest.raises(ExecutionError, match="divides by zero"):
            session.run([x, np.array([2, 0, -4, -1], np.int32)])
        session.run([x, np.ones(4, np.int32)])


@pytest.mark.usefixtures("device")
def test_shift_count_out_of_range_is_an_error() -> None:
    b = GraphBuilder()
    x, k = b.input("x", (2, 4), dtype="Int32"), b.input("k", (4,), dtype="Int8")
    mode = P.ElemwiseMultiTypeMode.ROUND_SHR_SATURATE_IXxI8xI8
    params = (P.ElemwiseMultiType(mode=mode),)
    b.output(b.apply("ElemwiseMultiType", [x, k], params=params)[0], "y")
    data = np.arange(8, dtype=np.int32).reshape(2, 4)
    with Session(b.graph(), "cuda") as session:
        session.run([data, np.array([0, 1, 2, 63], np.int8)])
        with pytest.raises(ExecutionError, match="shift counts must be 0 to 63"):
            session.run([data, np.array([0, 1, 2, -1], np.int8)])


def test_values_without_elements_need_no_launch(agrees: Any) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    none = b.input("none", (0, 3))
    doubled = b.mul(none, 2.0)
    b.output(doubled, "none2")
    b.output(b.apply("Concat", [doubled, x, none], params=(P.Axis(axis=0),))[0], "joined")
    reduce = P.Reduce(mode=P.ReduceMode.SUM, axis=0)
    b.output(b.apply("Reduce", [none], params=(reduce,))[0], "sum")
    sizes = [b.param(np.array([n], np.int32)) for n in (0, 2)]
    parts = b.apply("Split", [x, *sizes], params=(P.Axis(axis=0),))
    for k, part in enumerate(parts):
        b.output(part, f"part{k}")
    agrees(b.graph(), [np.ones((2, 3), np.float32), np.empty((0, 3), np.float32)], repeat=4)


@pytest.mark.usefixtures("device")
def test_largest_of_nothing_is_the_same_error_as_on_the_reference_backend() -> None:
    b = GraphBuilder()
    none = b.input("none", (0, 3))
    reduce = P.Reduce(mode=P.ReduceMode.MAX_, axis=0)
    b.output(b.apply("Reduce", [none], params=(reduce,))[0], "max")
    graph, feed = b.graph(), np.empty((0, 3), np.float32)
    texts = []
    for backend in ("reference", "cuda"):
        with pytest.raises(MgeError) as caught, Session(graph, backend) as session:
            session.run([feed])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
