"""Random kernels between canaries: shape, stride, tail, lanes, threads drawn from one strategy.

The strategy draws what the kernels are chosen by: channels around multiples of a vector, maps that
tiles do not divide, every stride, dilation and group, operands, one to five threads, each level.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from guarded import Framed, Guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nets import Builder
from test_conv import RUNNABLE, compare

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.kernels import deconv
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.plan import Place, Plan
from loadrun.backends.cpu.planner import Options, make_plan
from loadrun.backends.cpu.target import detect

DRAWN = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
# Below, at and above whole vectors of 4, 8 and 16 lanes.
CHANNELS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 49])
SIDES = st.integers(1, 19)
SETTING = st.tuples(
    st.sampled_from(RUNNABLE), st.sampled_from([1, 2, 5]), st.booleans(), st.booleans()
)
ACTIONS = st.sampled_from(["", "relu", "silu", "operand", "operand relu", "channel"])


def run(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    level, threads, winograd, bands = setting
    target = detect(level)
    options = Options(winograd=winograd, bands=bands)
    guarded = Guarded(make_plan(net, target, threads=threads, options=options), target)
    try:
        compare(guarded, net, least=0.5)
    finally:
        guarded.close()


def finished(b: Builder, y: str, action: str) -> nd.Network:
    """With what follows a convolution: an epilogue, maybe with an operand."""
    shape = b.shapes[y]
    if action.startswith("operand"):
        other = b.const(b.rng.normal(size=shape))
        y = b.plus(y, other)
    if action == "channel":
        y = b.both("mul", y, b.const(b.rng.uniform(1, 2, (1, shape[1], 1, 1))))
    kind = action.split(" ")[-1]
    return b.network(b.act(y, kind) if kind in ("relu", "silu") else y)


@st.composite
def convolutions(draw: st.DrawFn) -> nd.Network:
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 8, 16]))
    depthwise = groups > 1 and draw(st.booleans())
    ic, oc = (1, 1) if depthwise else (draw(CHANNELS), draw(CHANNELS))
    groups = draw(CHANNELS) + 1 if depthwise else groups
    kh, kw = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    if draw(st.booleans()):
        kw = kh = draw(st.sampled_from([1, 3]))
    square = draw(st.booleans())
    sh, sw = (1, 1) if square else (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dh, dw = (1, 1) if square else (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    ph, pw = draw(st.integers(0, kh)), draw(st.integers(0, kw))
    spec = ConvSpec(groups, oc, ic, kh, kw, sh, sw, ph, pw, dh, dw)
    least = ((kh - 1) * dh + 1 - 2 * ph, (kw - 1) * dw + 1 - 2 * pw)
    h, w = (max(draw(SIDES), least[0], 1), max(draw(SIDES), least[1], 1))
    n = draw(st.integers(1, 2))
    b = Builder((n, groups * ic, h, w))
    weights = b.rng.standard_normal((groups, oc, ic, kh, kw)) / np.sqrt(ic * kh * kw)
    bias = b.rng.standard_normal(groups * oc).astype(np.float32) if draw(st.booleans()) else None
    shape = (n, groups * oc, *spec.out_size(h, w))
    y = b.add(shape, lambda a, o: nd.Conv(a, ("x",), (o,), spec, weights.astype(np.float32), bias))
    return finished(b, y, draw(ACTIONS))


@DRAWN
@given(convolutions(), SETTING)
def test_convolutions(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


@st.composite
def transposed(draw: st.DrawFn) -> nd.Network:
    groups = draw(st.sampled_from([1, 1, 2]))
    oc, ic = draw(CHANNELS), (draw(CHANNELS) if groups == 1 else 16)
    k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    p = draw(st.integers(0, (k - 1) * d // 2))
    h, w = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    b = Builder((draw(st.integers(1, 2)), groups * oc, h, w))
    y = b.deconv("x", groups * ic, k, s, p, groups, d)
    return finished(b, y, draw(ACTIONS))


@DRAWN
@given(transposed(), SETTING)
def test_transposed_convolutions(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    node = net.nodes[0]
    assert isinstance(node, nd.TransposedConv)
    assert deconv.suits(node.spec, 16)
    run(net, setting)


@st.composite
def banded(draw: st.DrawFn) -> nd.Network:
    """What runs in bands: expansions, depthwise convolutions, pooling, operands, other readers."""
    shape = (draw(st.integers(1, 3)), draw(CHANNELS), draw(st.integers(8, 40)), draw(SIDES) + 4)
    b = Builder(shape)
    x = start = "x"
    for _ in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["expand", "depthwise", "depthwise", "pool", "conv3", "skip"]))
        c, h, w = b.shapes[x][1:]
        if kind == "depthwise" and c > 1 and min(h, w) > 4:
            k, s, d = draw(st.sampled_from([(3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2), (1, 1, 1)]))
            pad = draw(st.integers(0, (k - 1) * d // 2))
            x = b.act(b.conv(x, c, k, s, pad, groups=c, d=d), "relu")
        elif kind == "pool" and min(h, w) > 3:
            k = draw(st.integers(2, 3))
            x = b.pool(
                x, draw(st.sampled_from(["max", "mean"])), k, draw(st.integers(1, 2)), k // 2
            )
        elif kind == "conv3":
            x = b.conv(x, draw(CHANNELS), 3, draw(st.integers(1, 2)), 1)
        elif kind == "skip" and b.shapes[start][2:] == (h, w):
            x = b.plus(b.conv(x, b.shapes[start][1], 1), start)
        else:
            x = b.act(b.conv(x, draw(CHANNELS), 1, draw(st.sampled_from([1, 1, 2]))), "relu")
        start = x if draw(st.booleans()) else start
    return b.network(b.plus(x, x) if draw(st.booleans()) else x)


@DRAWN
@given(banded(), SETTING, st.sampled_from([3000, 8000, 20000]))
def test_bands(net: nd.Network, setting: tuple[str, int, bool, bool], cache: int) -> None:
    """A second-level cache so small that bands are a few rows, and rings start over often."""
    level, threads, _, _ = setting
    target = replace(detect(level), l2=cache)
    found = []
    for bands in (True, False):
        options = Options(winograd=False, bands=bands)
        guarded = Guarded(make_plan(net, target, threads=threads, options=options), target)
        try:
            compare(guarded, net, least=1.0)
            x = np.random.default_rng(3).standard_normal(net.shapes["x"]).astype(np.float32)
            found.append([y.tobytes() for y in guarded.run([x])])
        finally:
            guarded.close()
    assert found[0] == found[1]


def test_rings_start_over_in_every_kind_of_reader() -> None:
    """Depthwise, pooling, 1x1 with stride, an operand: each reads a ring that it laps twice."""
    b = Builder((2, 8, 40, 12))
    x = b.act(b.conv("x", 24, 1))
    x = b.act(b.conv(x, 24, 3, 1, 1, groups=24))
    y = b.conv(x, 24, 1)
    y = b.plus(b.conv(b.pool(y, "max", 3, 1, 1), 24, 1), y)
    net = b.network(b.conv(b.conv(y, 24, 1, 2), 8, 3, 1, 1))
    for threads in (1, 2, 3):
        target = replace(detect(), l2=30000)
        plan = make_plan(net, target, threads=threads, options=Options(winograd=False))
        rings = {n: i.ring for n, v in plan.buffers.items() if (i := v.image) and i.ring}
        assert {n for s in plan.steps for n in s.reads if n in rings} == rings.keys()
        assert len(rings) >= 5
        assert max(rings.values()) <= 12
        guarded = Guarded(plan, target)
        try:
            compare(guarded, net, least=0.5)
        finally:
            guarded.close()


@st.composite
def chains(draw: st.DrawFn) -> nd.Network:
    """Several image operators in a row: layouts, halos and bands meet."""
    b = Builder((draw(st.integers(1, 2)), draw(CHANNELS), draw(SIDES) + 6, draw(SIDES) + 6))
    x = "x"
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(["conv1", "conv3", "depthwise", "pool", "act", "up", "skip"]))
        c, h, w = b.shapes[x][1:]
        if kind == "conv1":
            x = b.conv(x, draw(CHANNELS), 1)
        elif kind == "conv3":
            x = b.act(b.conv(x, draw(CHANNELS), 3, draw(st.integers(1, 2)), 1))
        elif kind == "depthwise" and c > 1:
            x = b.act(b.conv(x, c, 3, draw(st.integers(1, 2)), 1, groups=c), "silu")
        elif kind == "pool" and min(h, w) > 3:
            mode = draw(st.sampled_from(["max", "mean", "mean_valid"]))
            k, s = draw(st.integers(2, 3)), draw(st.integers(1, 2))
            x = b.pool(x, mode, k, s, draw(st.integers(0, k // 2)))
        elif kind == "act":
            x = b.act(x, draw(st.sampled_from(["relu", "sigmoid", "tanh", "hswish"])))
        elif kind == "up" and h * w < 200:
            x = b.upsample(x, 2)
        elif kind == "skip":
            x = b.plus(b.conv(x, c, 3, 1, 1), x)
    return b.network(b.gap(x) if draw(st.booleans()) else b.act(x, "abs"))


@DRAWN
@given(chains(), SETTING)
def test_chains(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


@st.composite
def pools(draw: st.DrawFn) -> nd.Network:
    kh, kw = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    mode = draw(st.sampled_from(["max", "mean", "mean_valid"]))
    sizes = (kh, kw, draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    spec = PoolSpec(mode, *sizes, draw(st.integers(0, kh // 2)), draw(st.integers(0, kw // 2)))
    h, w = draw(SIDES) + kh - 1, draw(SIDES) + kw - 1
    n, c = draw(st.integers(1, 2)), draw(CHANNELS)
    b = Builder((n, c, h, w))
    shape = (n, c, *spec.out_size(h, w))
    return b.network(b.add(shape, lambda a, o: nd.Pooling(a, ("x",), (o,), spec)))


@DRAWN
@given(pools(), SETTING)
def test_pools(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


LENGTHS = st.sampled_from([1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 257])


@st.composite
def products(draw: st.DrawFn) -> nd.Network:
    m, k, n, batch = draw(LENGTHS), draw(LENGTHS), draw(LENGTHS), draw(st.integers(1, 3))
    if draw(st.booleans()):
        b = Builder((m, k))
        y = b.dense("x", n)
        return b.network(b.act(y) if draw(st.booleans()) else y)
    turned = draw(st.booleans())
    b = Builder((batch, m, k))
    right = b.const(b.rng.normal(size=(batch, n, k) if turned else (batch, k, n)) / np.sqrt(k))
    sizes = (batch, m, k, n, turned)
    return b.network(b.add((batch, m, n), lambda a, o: nd.MatMul(a, ("x", right), (o,), *sizes)))


@DRAWN
@given(products(), SETTING)
def test_products(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


@st.composite
def rows(draw: st.DrawFn) -> nd.Network:
    outer, n, inner = draw(st.integers(1, 9)), draw(LENGTHS), draw(st.sampled_from([1, 1, 5, 16]))
    kind = draw(st.sampled_from(["softmax", "norm", "sum", "mean", "max", "min", "sum_sqr"]))
    b = Builder((outer, n, inner))
    if kind == "softmax":
        shape = (outer, n, inner)
        return b.network(b.add(shape, lambda a, o: nd.Softmax(a, ("x",), (o,), *shape)))
    if kind == "norm":
        b = Builder((outer, n))
        more = (b.const(b.rng.normal(size=n)), b.const(b.rng.normal(size=n)))
        b.shapes |= {"y": (outer, n), "m": (outer, 1), "r": (outer, 1)}
        b.nodes.append(nd.LayerNorm("ln", ("x", *more), ("y", "m", "r"), outer, n, 1e-3))
        return b.network("y")
    sizes = (outer, n, inner)
    return b.network(b.add((outer, inner), lambda a, o: nd.Reduce(a, ("x",), (o,), kind, *sizes)))


@DRAWN
@given(rows(), SETTING)
def test_rows(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


@st.composite
def moves(draw: st.DrawFn) -> nd.Network:
    rank = draw(st.integers(1, 5))
    shape = tuple(draw(st.lists(st.integers(1, 11), min_size=rank, max_size=rank)))
    b = Builder(shape)
    kind = draw(st.sampled_from(["permute", "slice", "join", "broadcast"]))
    strides = contiguous(shape)
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        out = tuple(shape[k] for k in order)
        move, offset = tuple(strides[k] for k in order), 0
    elif kind == "slice":
        steps = [draw(st.integers(1, 3)) for _ in shape]
        first = [draw(st.integers(0, d - 1)) for d in shape]
        out = tuple(-(-(d - f) // s) for d, f, s in zip(shape, first, steps, strict=True))
        move = tuple(s * t for s, t in zip(steps, strides, strict=True))
        offset = sum(f * t for f, t in zip(first, strides, strict=True))
    elif kind == "join":
        axis = draw(st.integers(0, rank - 1))
        other = list(shape)
        other[axis] = draw(st.integers(1, 5))
        more = b.const(b.rng.normal(size=other))
        whole = tuple(d + (other[axis] if k == axis else 0) for k, d in enumerate(shape))
        return b.network(b.add(whole, lambda a, o: nd.Join(a, ("x", more), (o,), axis)))
    else:
        out, move, offset = (3, *shape), (0, *strides), 0
    return b.network(b.add(out, lambda a, o: nd.View(a, ("x",), (o,), move, offset)))


@DRAWN
@given(moves(), SETTING)
def test_moves(net: nd.Network, setting: tuple[str, int, bool, bool]) -> None:
    run(net, setting)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("size", [1, 7, 16, 63, 4097])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32"])
def test_casts_there_and_back(kind: str, size: int, level: str) -> None:
    shift = 0 if kind == "int32" else 5
    there = program("x", "whole = truncate x", f"r = iadd whole {shift}")
    back = program("x", f"less = isub x {shift}", "r = to_real less")
    net = nd.Network(
        (nd.Eltwise("c", ("x",), ("i",), there), nd.Eltwise("d", ("i",), ("y",), back)),
        {"x": (size,), "i": (size,), "y": (size,)},
        ("x",),
        ("i", "y"),
        dtypes={"i": kind},
    )
    limits = np.iinfo(kind)
    low, high = max(limits.min, -(2**22)) - shift, min(limits.max, 2**22) - shift
    x = np.random.default_rng(1).integers(low, high + 1, size).astype(np.float32)
    x[0], x[-1] = low, high
    guarded = Guarded(make_plan(net, detect(level), threads=2), detect(level))
    codes, again = guarded.run([x])
    guarded.close()
    assert codes.dtype == kind
    np.testing.assert_array_equal(codes.astype(np.int64), x.astype(np.int64) + shift)
    np.testing.assert_array_equal(again, x)


# -- the canaries themselves


def small_plan() -> tuple[nd.Network, Plan]:
    b = Builder((1, 16, 9, 9))
    net = b.network(b.act(b.conv(b.conv("x", 16, 3, 1, 1), 16, 3, 2, 1)))
    return net, make_plan(net, detect(), threads=2, options=Options(winograd=False, bands=False))


def with_buffer(plan: Plan, name: str, **changes: object) -> Plan:
    changed = replace(plan.buffers[name], **changes)  # type: ignore[arg-type]
    return replace(plan, buffers={**plan.buffers, name: changed})


def fails_on(plan: Plan, text: str) -> None:
    guarded = Guarded(plan, detect())
    try:
        with pytest.raises(AssertionError, match=text):
            guarded.run([np.ones((1, 16, 9, 9), np.float32)])
    finally:
        guarded.close()


def test_a_store_outside_a_buffer_is_found() -> None:
    _, plan = small_plan()
    for buffer in plan.buffers.values():
        if buffer.place is Place.ARENA and buffer.image is not None:
            fails_on(with_buffer(plan, buffer.name, nbytes=buffer.nbytes - 64), "outside of buff")


def test_a_store_outside_an_output_is_found() -> None:
    _, plan = small_plan()
    (name,) = plan.outputs
    fails_on(with_buffer(plan, name, shape=(1, 16, 5, 4)), "stores outside")


def test_a_store_into_a_halo_is_found() -> None:
    _, plan = small_plan()
    halos = [b for b in plan.buffers.values() if b.place is Place.HALO]
    assert halos
    for buffer in halos:
        image = buffer.image
        assert image is not None
        fails_on(with_buffer(plan, buffer.name, image=replace(image, w=image.w - 1)), "its halo")


def test_a_frame_knows_where_it_was_written_to() -> None:
    framed = Framed((3,), "float32")
    framed.check("x")
    framed.raw[framed.last + 2] = 0
    with pytest.raises(AssertionError, match=r"x: stores outside at bytes \[14\]"):
        framed.check("x")
