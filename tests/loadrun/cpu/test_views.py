"""Views of views, phases of pixels under a filter, and joins whose parts lie in place."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Builder, evaluate, join, pick
from test_conv import RUNNABLE, check

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.planner import make_plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import detect
from loadrun.backends.cpu.views import rewrite


def strided(
    b: Builder, x: str, starts: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...]
) -> str:
    """A slice of every dimension, steps of 1 or more."""
    dense = contiguous(b.shapes[x])
    offset = sum(s * d for s, d in zip(starts, dense, strict=True))
    strides = tuple(s * d for s, d in zip(steps, dense, strict=True))
    return b.add(sizes, lambda a, o: nd.View(a, (x,), (o,), strides, offset))


def phases(b: Builder, steps: tuple[int, int], order: tuple[tuple[int, int], ...]) -> str:
    """Phases of the pixels of the input as channels, by slices of slices."""
    n, c, h, w = b.shapes["x"]
    (sh, sw), found = steps, []
    for i, j in order:
        rows = strided(b, "x", (0, 0, i, 0), (n, c, h // sh, w), (1, 1, sh, 1))
        size = (n, c, h // sh, w // sw)
        found.append(strided(b, rows, (0, 0, 0, j), size, (1, 1, 1, sw)))
    return join(b, *found)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("batch", [1, 2])
def test_phases_move_into_the_filter(batch: int, stride: int, level: str) -> None:
    b = Builder((batch, 3, 20, 24))
    y = b.conv(phases(b, (2, 2), ((0, 0), (1, 0), (0, 1), (1, 1))), 20, 3, s=stride, p=1)
    net = b.network(b.act(y, "silu"))
    assert not any(isinstance(n, nd.View | nd.ChannelMap) for n in rewrite(net).nodes)
    check(net, level=level)


def test_some_phases_in_any_order_and_unequal_steps() -> None:
    b = Builder((1, 2, 12, 18))
    y = b.conv(phases(b, (2, 3), ((1, 2), (0, 1), (1, 2))), 7, 1)
    assert len(rewrite(b.network(y)).nodes) == 1
    check(b.network(y))


def test_phases_that_others_read_stay() -> None:
    b = Builder((1, 3, 16, 16))
    x = phases(b, (2, 2), ((0, 0), (1, 0), (0, 1), (1, 1)))
    net = b.network(b.conv(x, 16, 3, p=1), b.act(x))
    assert sum(isinstance(n, nd.ChannelMap) for n in rewrite(net).nodes) == 1
    check(net)


@pytest.mark.parametrize("case", range(30))
def test_views_of_views(case: int) -> None:
    rng = np.random.default_rng(case)
    shape = tuple(int(v) for v in rng.integers(2, 7, 3))
    b = Builder(shape)
    name = "x"
    for _ in range(3):
        dims = b.shapes[name]
        order = rng.permutation(len(dims))
        starts = [int(rng.integers(0, d)) for d in dims]
        steps = [int(rng.integers(1, 3)) for _ in dims]
        sizes = [
            int(rng.integers(1, (d - s - 1) // k + 2))
            for d, s, k in zip(dims, starts, steps, strict=True)
        ]
        dense = contiguous(dims)
        offset = sum(s * d for s, d in zip(starts, dense, strict=True))
        strides = tuple(steps[k] * dense[k] for k in order)
        given = name
        name = f"view{len(b.nodes)}"
        b.nodes.append(nd.View(name, (given,), (name,), strides, offset))
        b.shapes[name] = tuple(sizes[k] for k in order)
    net = b.network(name)
    (view,) = rewrite(net).nodes
    assert view.inputs == ("x",)
    check(net)


def test_a_view_that_crosses_a_dimension_is_not_joined() -> None:
    b = Builder((4, 6))
    part = strided(b, "x", (0, 0), (4, 4), (1, 1))
    flat = b.add((8,), lambda a, o: nd.View(a, (part,), (o,), (2,)))
    net = b.network(flat)
    assert len(rewrite(net).nodes) == 2
    check(net)


def reshape(b: Builder, x: str, shape: tuple[int, ...]) -> str:
    return b.add(shape, lambda a, o: nd.Reshape(a, (x,), (o,)))


def shuffle(b: Builder, x: str, groups: int) -> str:
    """Channels exchanged between groups, as networks write it: reshape, transpose, reshape."""
    n, c, h, w = b.shapes[x]
    apart = reshape(b, x, (n, groups, c // groups, h, w))
    dense = contiguous(b.shapes[apart])
    size = (n, c // groups, groups, h, w)
    strides = (dense[0], dense[2], dense[1], dense[3], dense[4])
    moved = b.add(size, lambda a, o: nd.View(a, (apart,), (o,), strides))
    return reshape(b, moved, (n, c, h, w))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("batch", [1, 2])
def test_channel_shuffles_are_maps(batch: int, level: str) -> None:
    b = Builder((batch, 20, 6, 5))
    x = b.conv("x", 20, 1)
    for _ in range(3):
        left, right = pick(b, x, range(10)), pick(b, x, range(10, 20))
        x = shuffle(b, join(b, left, b.conv(right, 10, 3, p=1)), 2)
    net = b.network(b.conv(x, 24, 1))
    kinds = {type(n) for n in rewrite(net).nodes}
    assert kinds == {nd.Conv, nd.ChannelMap}
    check(net, level=level)


def test_a_shuffle_that_is_an_output_and_one_of_pixels() -> None:
    b = Builder((2, 12, 4, 6))
    mixed = shuffle(b, b.act("x"), 3)
    n, c, h, w = b.shapes["x"]
    dense = contiguous((n, c, h, w))
    turned = b.add(
        (n, c, w, h), lambda a, o: nd.View(a, (mixed,), (o,), (*dense[:2], dense[3], dense[2]))
    )
    back = reshape(b, turned, (n, c, h, w))
    check(b.network(mixed, b.conv(back, 5, 1)))


def joined_steps(net: nd.Network) -> list[str]:
    plan = make_plan(net, detect(), threads=1)
    return [s.name for s in plan.steps if s.kernel.name.startswith("channel_map")]  # type: ignore[union-attr]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch", [1, 3])
def test_joins_in_place(batch: int, threads: int, level: str) -> None:
    """Parts with halos of their own, a part that is read elsewhere, a join of a join."""
    b = Builder((batch, 16, 10, 9))
    left = b.conv("x", 32, 1)
    right = b.act(b.conv("x", 16, 3, p=1), "silu")
    inner = join(b, left, right)
    deep = b.conv(left, 32, 3, s=1, p=1, groups=32)
    pooled = b.pool(inner, "max", 3, 1, 1)
    outer = join(b, inner, deep, b.conv(pooled, 20, 1))
    last = b.conv(outer, 24, 3, p=1)
    net = b.network(b.plus(last, b.conv(inner, 24, 1)), outer)
    check(net, level=level, threads=threads)
    assert joined_steps(net) == []


def test_joins_that_need_copies() -> None:
    """A part in two joins, a part twice, parts that are not whole vectors."""
    b = Builder((1, 16, 8, 8))
    x = b.conv("x", 16, 1)
    y = b.conv("x", 20, 1)
    nets = [join(b, x, y), join(b, x, x), join(b, y, x), join(b, x, b.conv("x", 3, 1))]
    net = b.network(*(b.conv(n, 16, 1) for n in nets))
    check(net)
    assert len(joined_steps(net)) == 3


def test_runs_on_joins_do_not_leak_into_each_other() -> None:
    b = Builder((1, 16, 6, 6))
    net = b.network(b.conv(join(b, b.conv("x", 16, 3, p=1), b.act(b.conv("x", 5, 1))), 9, 3, p=1))
    program = Program(make_plan(net, detect(), threads=2), detect(), Cache(None))
    rng = np.random.default_rng(3)
    try:
        for _ in range(4):
            x = rng.standard_normal((1, 16, 6, 6)).astype(np.float32) * 100
            (want,), (got,) = evaluate(net, x), program.run([x])
            assert np.abs(got - want).max() <= 5e-6 * np.abs(want).max()
    finally:
        program.close()
