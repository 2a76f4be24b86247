"""Changes of layout: planned, built, found again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.ops.layouts import FILTER_LAYOUTS, GOIHW, NCHW, NHWC, TENSOR_LAYOUTS
from mgeserial.passes.evaluate import compute
from mgeserial.passes.layout.moves import Extent, Mover, packing, plan, recognise
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

F = P.ConvolutionFormat
LAYOUTS = tuple(dict.fromkeys(packing(f) for f in TENSOR_LAYOUTS))
SWAP = (0, 2, 1, 3, 4)
PAIRS = list(itertools.permutations(LAYOUTS, 2))


def moved(source, target, channels=64, *, mode=False):
    """A graph with an input in one layout and its output in another, as `Mover` builds it."""
    b = GraphBuilder()
    b.output(b.input("x", source.stored((2, channels, 3, 5))), "x")
    build = Rebuild(b.graph())
    for node in build.source.nodes:
        build.carry(node)
    mover, value = Mover(build), build[build.source.outputs[0]]
    made = (
        mover.features(value, source, target) if mode else mover.chain(value, plan(source, target))
    )
    build.output(made, "y")
    return GraphBuilder.graph(build)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda p: p.name)
def test_every_pair_of_layouts_for_any_batch_and_size(source, target):
    graph = moved(source, target)
    for shape in ((2, 64, 3, 5), (3, 64, 1, 1), (1, 128, 2, 7)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (y,) = compute(graph, {"x": source.from_nchw(x)})
        np.testing.assert_array_equal(y, target.from_nchw(x))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda p: p.name)
def test_what_is_built_is_found_again(source, target):
    graph = moved(source, target, mode=True)
    found = recognise(graph.outputs[0].node, Scope(graph))
    assert found is not None
    # NCHW4 and NHWCD4 swap two axes: the same there and back.
    pair = {(source, target)} | (
        {(target, source)} if plan(source, target).order == SWAP else set()
    )
    assert (found.source, found.target) in pair
    assert found.value is graph.inputs[0]


def test_a_move_of_nchw_to_nchw4():
    move = plan(NCHW, packing(F.NCHW4))
    assert move.split == (
        Extent(0), Extent(1, over=4), Extent(None, 4), Extent(2), Extent(3),
    )  # fmt: skip
    assert move.order == (0, 1, 3, 4, 2)
    assert move.join is None


def test_nchw_to_nhwc_needs_no_reshape():
    move = plan(NCHW, NHWC)
    assert (move.split, move.order, move.join) == (None, (0, 2, 3, 1), None)


def test_equal_layouts_of_several_formats_are_one():
    assert packing(F.NCHW44) is packing(F.NCHW44_DOT) is packing(F.NCHW4)
    assert packing(F.NCHW8) is packing(F.NCHW88)


DENSE, GROUPED = FILTER_LAYOUTS[F.NCHW]
FILTERS = [
    (DENSE if not layout.is_grouped and "g" not in layout.axes else GOIHW, layout)
    for fmt in (F.NCHW4, F.NCHW88, F.NCHW44, F.NCHW44_DOT, F.CHWN4, F.NCHW32)
    for layout in FILTER_LAYOUTS[fmt]
]


@pytest.mark.parametrize(("source", "target"), FILTERS, ids=lambda p: p.name)
def test_filters_that_are_computed_as_the_graph_runs(source, target):
    channel_wise = "g" in target.axes
    shape = (32, 1, 1, 3, 2) if channel_wise else (2 if source is GOIHW else 1, 32, 64, 3, 2)
    flt = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    b = GraphBuilder()
    stored = source.from_goihw(flt)
    b.output(b.input("x", stored.shape), "x")
    build = Rebuild(b.graph())
    for node in build.source.nodes:
        build.carry(node)
    made = Mover(build).chain(build[build.source.outputs[0]], plan(source, target))
    build.output(made, "y")
    (y,) = compute(GraphBuilder.graph(build), {"x": stored})
    np.testing.assert_array_equal(y, target.from_goihw(flt))


def test_other_shuffles_are_not_taken_for_changes_of_layout():
    b = GraphBuilder()
    x = b.input("x", (2, 8, 4, 6))
    turned = b.transpose(x, (0, 1, 3, 2))
    split = b.transpose(b.reshape_to(x, (2, 4, 2, 4, 6)), (0, 2, 3, 4, 1))
    halves = b.transpose(b.reshape_to(x, (4, 4, 2, 3, 4)), (0, 1, 3, 4, 2))
    for k, value in enumerate((turned, split, halves)):
        b.output(value, f"y{k}")
    graph = b.graph()
    scope = Scope(graph)
    assert [recognise(v.node, scope) for v in graph.outputs] == [None, None, None]


def test_padded_blocks_are_not_taken_for_permutations():
    b = GraphBuilder()
    b.output(b.relayout_format(b.input("x", (1, 3, 4, 4)), mode="NCHW_NHWCD4"), "y")
    graph = b.graph()
    assert recognise(graph.outputs[0].node, Scope(graph)) is None
