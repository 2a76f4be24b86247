"""Selections by slices and index tensors of the run: taken, set, added, and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single import check, graph_of, reference, refuses

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]
Cut = tuple[int | None, int | None, int | None]
_KINDS = {"float32": "Float32", "int32": "Int32", "int8": "Int8", "float16": "Float16"}


def _selection(
    name: str, x: Array, index: dict[int, Array], cuts: dict[int, Cut], value: Array | None = None
) -> tuple[Graph, list[Array]]:
    """A graph whose tensors and index tensors are inputs; slices are constants."""
    b = GraphBuilder()
    feeds = [x, *([] if value is None else [value]), *index.values()]
    inputs = [b.input(f"i{k}", a.shape, dtype=_KINDS[a.dtype.name]) for k, a in enumerate(feeds)]
    data = inputs[: 1 if value is None else 2]
    places = dict(zip(index, inputs[len(data) :], strict=True))
    items, rest = [], []
    for axis in (*cuts, *index):
        begin, end, step = cuts.get(axis, (None, None, None))
        flags = {"begin": begin is not None, "end": end is not None, "step": step is not None}
        items.append(P.IndexDescMaskItem(axis=axis, idx=axis in index, **flags))
        rest += [places[axis]] if axis in index else []
        rest += [b.param(np.array([n], np.int32)) for n in (begin, end, step) if n is not None]
    y = b.apply(name, [*data, *rest], params=(P.IndexDescMaskDump(items=tuple(items)),))
    b.output(y[0], "y")
    return b.graph(), feeds


def _ints(*shape: int, low: int, high: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def _data(kind: str, *shape: int) -> Array:
    return (np.random.default_rng(3).standard_normal(shape) * 20).astype(kind)


_NO: dict[int, Cut] = {}
VECTORS: dict[str, tuple[tuple[int, ...], dict[int, Array], dict[int, Cut]]] = {
    "rows": ((9, 33), {0: _ints(70, low=-9, high=9)}, _NO),
    "many rows": ((9, 5), {0: _ints(900, low=-9, high=9)}, _NO),
    "pixels": ((2, 3, 4, 5), {2: _ints(6, low=-4, high=4), 3: _ints(6, low=-5, high=5)}, _NO),
    "apart": ((4, 5, 6, 9), {0: _ints(7, low=0, high=4), 2: _ints(7, low=0, high=6)}, _NO),
    "broadcast": ((4, 5, 8), {0: _ints(3, 1, low=0, high=4), 1: _ints(1, 6, low=0, high=5)}, _NO),
    "sliced": ((4, 9, 17), {0: _ints(5, low=-4, high=4)}, {1: (1, None, 3), 2: (None, None, -1)}),
    "last": ((3, 1000), {1: _ints(4, 77, low=-1000, high=1000)}, _NO),
}


@pytest.mark.parametrize("kind", ["float32", "int8", "float16"])
@pytest.mark.parametrize("case", VECTORS)
def test_vectors_take(case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, index, cuts = VECTORS[case]
    check(*_selection("IndexingMultiAxisVec", _data(kind, *shape), index, cuts), monkeypatch)


@pytest.mark.parametrize("name", ["IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec"])
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("case", VECTORS)
def test_vectors_put(case: str, kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions that are named twice get the last value, or the sum."""
    shape, index, cuts = VECTORS[case]
    x = _data(kind, *shape)
    probe, feeds = _selection("IndexingMultiAxisVec", x, index, cuts)
    value = _data(kind, *reference(probe, feeds)["y"].shape)
    check(*_selection(name, x, index, cuts, value), monkeypatch)


MESH = {0: _ints(3, low=-4, high=4), 2: _ints(7, low=0, high=6)}
BATCHED = {1: _ints(4, 3, low=-5, high=5), 2: _ints(4, 2, low=0, high=6)}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("how", ["", "Set", "Incr"])
def test_meshes(how: str, batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{'Batched' if batched else ''}{how}MeshIndexing"
    x, index = _data("float32", 4, 5, 6, 19), BATCHED if batched else MESH
    shape = (4, 3, 2, 19) if batched else (3, 5, 7, 19)
    value = _data("float32", *shape) if how else None
    check(*_selection(name, x, index, {}, value), monkeypatch)


@pytest.mark.parametrize("how", ["", "Set", "Incr"])
def test_one_number_of_the_run(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = {1: np.array([-2], np.int32)}
    value = _data("float32", 4, 3) if how else None
    x = _data("float32", 4, 5, 6)
    check(*_selection(f"{how}Subtensor", x, index, {2: (0, None, 2)}, value), monkeypatch)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_one_hot(axis: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _data(kind, 5, 7, 9)
    shape = [5, 7, 9]
    size = shape.pop(axis)
    index = _ints(*shape, low=0, high=size)
    check(graph_of("IndexingOneHot", [x, index], P.Axis(axis=axis)), [x, index], monkeypatch)
    shape.insert(axis, 1)
    feeds = [x, index, _data(kind, *shape)]
    check(graph_of("IndexingSetOneHot", feeds, P.Axis(axis=axis)), feeds, monkeypatch)


def test_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _data("float32", 5, 7)
    at = np.stack([_ints(4, 9, low=0, high=5), _ints(4, 9, low=0, high=7, seed=1)], -1)
    graph = graph_of("IndexingRemap", [x, at], P.IndexingRemap())
    check(graph, [x, at], monkeypatch)


@pytest.mark.parametrize("wrong", [-10, 9, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("columns", [3, 40])
@pytest.mark.parametrize("how", ["", "Set", "Incr"])
def test_an_index_outside_is_the_error_of_the_reference(
    how: str, columns: int, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever loop meets it; nothing outside of the buffers is touched."""
    index = _ints(50, low=-9, high=9)
    index[31] = wrong
    value = _data("float32", 50, columns) if how else None
    name = f"Indexing{how}MultiAxisVec"
    x = _data("float32", 9, columns)
    refuses(*_selection(name, x, {0: index}, {}, value), monkeypatch, MgeError)


@pytest.mark.parametrize("wrong", [-1, 7])
def test_a_one_hot_index_outside_is_an_error(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, index = _data("float32", 5, 7), _ints(5, low=0, high=7)
    index[2] = wrong
    graph = graph_of("IndexingOneHot", [x, index], P.Axis(axis=1))
    refuses(graph, [x, index], monkeypatch, MgeError)


@pytest.mark.parametrize("kind", ["float32", "float16", "int32"])
def test_gradients_at_coordinates(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    x = random.integers(-9, 9, (4, 5)).astype(kind)
    at = np.stack([random.integers(0, n, (6, 7)) for n in x.shape], -1).astype(np.int32)
    diff = random.integers(-9, 9, (6, 7)).astype(kind)
    graph = graph_of("IndexingRemapBackward", [diff, at, x], P.IndexingRemap())
    check(graph, [diff, at, x], monkeypatch)
    at[2, 3, 1] = 5
    refuses(graph, [diff, at, x], monkeypatch, MgeError)
