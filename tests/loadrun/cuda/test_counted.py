"""Values whose length the run counts: they stay on the device, and the next operators too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError
from mgeserial.ir.graph import Graph, Value

Array = np.ndarray[Any, np.dtype[Any]]
_KINDS = {"float32": "Float32", "int32": "Int32", "int8": "Int8", "bool": "Bool"}
_MODES = list(P.CondTakeMode)


def _vectors(*axes: int) -> tuple[P.IndexDescMaskDump]:
    items = tuple(P.IndexDescMaskItem(axis=a, idx=True) for a in axes)
    return (P.IndexDescMaskDump(items=items),)


def _taken(b: GraphBuilder, data: Value, mask: Value, **how: Any) -> tuple[Value, Value]:
    values, places = b.apply("CondTake", [data, mask], params=(P.CondTake(**how),))
    return values, places


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_elements_are_taken_by_a_condition(agrees: Any, mode: Any, dtype: str) -> None:
    random = np.random.default_rng(1)
    mask: Array = random.integers(-2, 3, (5, 7, 80)).astype(dtype)
    data: Array = np.asarray(random.standard_normal(mask.shape), np.float32)
    b = GraphBuilder()
    inputs = [
        b.input(n, a.shape, dtype=_KINDS[a.dtype.name]) for n, a in (("d", data), ("m", mask))
    ]
    for k, value in enumerate(_taken(b, inputs[0], inputs[1], mode=mode, val=1.0, eps=1e-3)):
        b.output(value, f"y{k}")
    agrees(b.graph(), [data, mask], rtol=0, atol=0, repeat=3)
    agrees(b.graph(), [data, np.full_like(mask, 5)], rtol=0, atol=0)
    agrees(b.graph(), [data, np.full_like(mask, -5)], rtol=0, atol=0)


def test_many_blocks_are_counted(agrees: Any) -> None:
    mask = np.random.default_rng(2).random(300_000) < 0.3
    b = GraphBuilder()
    m = b.input("m", mask.shape, dtype="Bool")
    values, places = _taken(b, m, m, mode=P.CondTakeMode.NEQ, val=0.0)
    b.output(places, "places")
    b.output(values, "values")
    agrees(b.graph(), [mask])


def _masked_network() -> Graph:
    """Rows by a mask: picked, computed with, counted, set and added to."""
    b = GraphBuilder()
    x, scores = b.input("x", (40, 6)), b.input("scores", (40,))
    values, places = _taken(b, scores, scores, mode=P.CondTakeMode.GT, val=0.5)
    rows = b.apply("IndexingMultiAxisVec", [x, places], params=_vectors(0))[0]
    column = b.apply(
        "AxisAddRemove",
        [values],
        params=(P.AxisAddRemove(desc=(P.AxisDesc(method=P.AxisDescMethod.ADD_1, axis=1),)),),
    )[0]
    scaled = b.mul(b.add(rows, 1.0), column)
    b.output(scaled, "scaled")
    b.output(b.apply("Dimshuffle", [scaled], params=(P.Dimshuffle(pattern=(1, 0)),))[0], "turned")
    b.output(values, "values")
    for name in ("IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec"):
        b.output(b.apply(name, [x, scaled, places], params=_vectors(0))[0], name)
    return b.graph()


def test_operators_behind_a_condition_stay_on_the_device(agrees: Any) -> None:
    random = np.random.default_rng(3)
    x = random.standard_normal((40, 6)).astype(np.float32)
    for scores in (random.random(40), np.zeros(40), np.ones(40)):
        agrees(_masked_network(), [x, scores.astype(np.float32)], repeat=4)


@pytest.mark.usefixtures("arena_device")
def test_counted_values_share_the_arena() -> None:
    random = np.random.default_rng(4)
    x = random.standard_normal((40, 6)).astype(np.float32)
    with Session(_masked_network(), "cuda") as cuda, Session(_masked_network(), "reference") as ref:
        for k in range(4):
            scores = (random.random(40) * k / 2).astype(np.float32)
            want, got = ref.run([x, scores]), cuda.run([x, scores])
            for name, array in want.items():
                np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]


def test_shape_of_a_counted_value_and_what_is_made_of_it(agrees: Any) -> None:
    random = np.random.default_rng(5)
    b = GraphBuilder()
    x, mask = b.input("x", (4, 5)), b.input("m", (20,), dtype="Bool")
    flat = b.reshape(x, (20,))
    _, places = _taken(b, mask, mask, mode=P.CondTakeMode.EQ, val=1.0)
    shape = b.apply("GetVarShape", [places])[0]
    value = b.apply("Broadcast", [b.param(np.array([7.0], np.float32)), shape])[0]
    b.output(b.apply("IndexingSetMultiAxisVec", [flat, value, places], params=_vectors(0))[0], "y")
    b.output(shape, "count")
    five = b.param(np.array([5], np.int32))
    divide = P.Elemwise(mode=P.ElemwiseMode.FLOOR_DIV)
    row = b.apply("Elemwise", [places, five], params=(divide,))[0]
    rows = b.apply("IndexingMultiAxisVec", [x, row], params=_vectors(0))[0]
    b.output(b.apply("GetVarShape", [rows])[0], "shape")
    data = random.standard_normal((4, 5)).astype(np.float32)
    agrees(b.graph(), [data, random.random(20) < 0.4])


def test_coordinates_of_what_is_not_zero(agrees: Any) -> None:
    x = np.random.default_rng(6).integers(0, 2, (3, 50, 9)).astype(np.float32)
    b = GraphBuilder()
    b.output(b.apply("NonZero", [b.input("x", x.shape)])[0], "y")
    agrees(b.graph(), [x])
    agrees(b.graph(), [np.zeros_like(x)])


_SLICES: list[tuple[int | None, int | None, int | None]] = [
    (None, 4, None), (2, None, None), (-3, -1, None), (1, 100, 3), (None, None, -2), (5, 1, -1),
    (4, 4, None), (None, 0, None),
]  # fmt: skip


@pytest.mark.parametrize("ends", _SLICES)
@pytest.mark.parametrize("axis", [0, 1])
def test_slices_with_ends_of_the_run(agrees: Any, ends: tuple[Any, ...], axis: int) -> None:
    graph, feeds = _sliced(ends, axis)
    agrees(graph, feeds, rtol=0, atol=0)


def _sliced(ends: tuple[Any, ...], axis: int) -> tuple[Graph, list[Array]]:
    begin, end, step = ends
    x = np.arange(3 * 7 * 2, dtype=np.float32).reshape(3, 7, 2).swapaxes(0, 1 - axis).copy()
    b = GraphBuilder()
    feeds, inputs = [x], [b.input("x", x.shape)]
    for name, n in (("begin", begin), ("end", end)):
        if n is not None:
            feeds.append(np.array([n], np.int32))
            inputs.append(b.input(name, (1,), dtype="Int32"))
    if step is not None:
        inputs.append(b.param(np.array([step], np.int32)))
    item = P.IndexDescMaskItem(
        axis=axis, begin=begin is not None, end=end is not None, step=step is not None
    )
    y = b.apply("Subtensor", inputs, params=(P.IndexDescMaskDump(items=(item,)),))[0]
    b.output(y, "y")
    return b.graph(), feeds


@pytest.mark.usefixtures("device")
def test_slice_that_ends_before_its_axis_is_an_error() -> None:
    graph, feeds = _sliced((None, -8, None), 0)
    with Session(graph, "cuda") as session, pytest.raises(ExecutionError, match="before its axis"):
        session.run(feeds)


def test_reference_code_sees_what_was_counted_only(agrees: Any) -> None:
    b = GraphBuilder()
    x = b.input("x", (30,))
    values, _ = _taken(b, x, x, mode=P.CondTakeMode.GT, val=0.0)
    b.output(b.apply("Padding", [values], params=(P.Padding(front_offset_dim0=2),))[0], "padded")
    b.output(values, "first")
    b.output(values, "second")
    data = np.random.default_rng(7).standard_normal(30).astype(np.float32)
    agrees(b.graph(), [data], host=("Padding",))


_REDUCTIONS = [
    m for m in P.ReduceMode if m.name in ("SUM", "SUM_SQR", "PRODUCT", "MIN_", "MAX_", "MEAN")
]


@pytest.mark.parametrize("mode", _REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_counted_rows_are_reduced(agrees: Any, mode: Any, axis: int) -> None:
    b = GraphBuilder()
    x, scores = b.input("x", (30, 4)), b.input("scores", (30,))
    _, places = _taken(b, scores, scores, mode=P.CondTakeMode.GT, val=0.5)
    rows = b.apply("IndexingMultiAxisVec", [x, places], params=_vectors(0))[0]
    param = P.Reduce(mode=mode, axis=axis)
    b.output(b.apply("Reduce", [b.mul(rows, 1.5)], params=(param,))[0], "y")
    random = np.random.default_rng(8)
    data = random.standard_normal((30, 4)).astype(np.float32)
    agrees(b.graph(), [data, random.random(30).astype(np.float32)], repeat=3)
    if mode.name in ("SUM", "MEAN", "PRODUCT") or axis == 1:
        agrees(b.graph(), [data, np.zeros(30, np.float32)])


@pytest.mark.usefixtures("device")
def test_largest_of_no_rows_is_an_error() -> None:
    b = GraphBuilder()
    x = b.input("x", (30,))
    values, _ = _taken(b, x, x, mode=P.CondTakeMode.GT, val=0.0)
    reduce = P.Reduce(mode=P.ReduceMode.MAX_, axis=0)
    b.output(b.apply("Reduce", [values], params=(reduce,))[0], "y")
    with Session(b.graph(), "cuda") as session:
        with pytest.raises(ExecutionError, match="along an empty axis"):
            session.run([np.zeros(30, np.float32)])
        session.run([np.ones(30, np.float32)])


@pytest.mark.parametrize("axis", [0, 1])
def test_counted_rows_are_joined(agrees: Any, axis: int) -> None:
    b = GraphBuilder()
    x, scores = b.input("x", (30, 4)), b.input("scores", (30,))
    parts = []
    for limit in (0.3, 0.7):
        _, places = _taken(b, scores, scores, mode=P.CondTakeMode.GT, val=limit)
        rows = b.apply("IndexingMultiAxisVec", [x, places], params=_vectors(0))[0]
        turned = b.apply("Dimshuffle", [rows], params=(P.Dimshuffle(pattern=(1, 0)),))[0]
        parts.append(rows if axis == 0 else turned)
    still = b.param(np.arange(8, dtype=np.float32).reshape((2, 4) if axis == 0 else (4, 2)))
    joined = b.apply("Concat", [parts[0], still, parts[1]], params=(P.Axis(axis=axis),))[0]
    doubled = b.apply("Concat", [joined, joined], params=(P.Axis(axis=1 - axis),))[0]
    b.output(b.mul(doubled, 2.0), "y")
    random = np.random.default_rng(9)
    data = random.standard_normal((30, 4)).astype(np.float32)
    for factor in (1.0, 0.5, 0.0):
        agrees(b.graph(), [data, (random.random(30) * factor).astype(np.float32)])
