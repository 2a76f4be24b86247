"""Matrix products, reductions, softmax, normalisation and copies against float64."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Builder
from test_conv import RUNNABLE, check

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels import recurrent

LEVELS = pytest.mark.parametrize("level", RUNNABLE)


def single(shape: tuple[int, ...], out: tuple[int, ...], make: object) -> nd.Network:
    b = Builder(shape)
    assert callable(make)
    return b.network(b.add(out, make))


@LEVELS
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 7, 1), (2, 100, 1), (5, 1000, 1), (2, 5, 40), (1, 9, 16)]
)
@pytest.mark.parametrize("mode", ["sum", "mean", "sum_sqr", "max", "min", "product"])
def test_reduce(shape: tuple[int, int, int], mode: str, level: str) -> None:
    if mode == "product" and shape[1] > 100:
        shape = (2, 20, 1)  # longer products of random numbers underflow
    o, n, i = shape
    check(
        single(shape, (o, i), lambda a, y: nd.Reduce(a, ("x",), (y,), mode, o, n, i)), level=level
    )


def test_reductions_keep_nan() -> None:
    b = Builder((2, 40))
    x = b.both("div", "x", "x")  # 0 / 0 is NaN
    net = b.network(
        *(
            b.add((2, 1), lambda a, y, m=m: nd.Reduce(a, (x,), (y,), m, 2, 40, 1))
            for m in ("max", "min")
        )
    )
    from loadrun.backends.cpu.cache import Cache
    from loadrun.backends.cpu.planner import make_plan
    from loadrun.backends.cpu.program import Program
    from loadrun.backends.cpu.target import detect

    program = Program(make_plan(net, detect(), threads=1), detect(), Cache(None))
    x0 = np.ones((2, 40), np.float32)
    x0[0, 17] = 0
    for got in program.run([x0]):
        assert np.isnan(got[0]).all()
        assert (got[1] == 1).all()
    program.close()


@LEVELS
@pytest.mark.parametrize(
    "shape", [(3, 7, 1), (2, 100, 1), (2, 64, 1), (2, 5, 40), (1, 9, 16), (4, 1, 3)]
)
def test_softmax(shape: tuple[int, int, int], level: str) -> None:
    check(single(shape, shape, lambda a, y: nd.Softmax(a, ("x",), (y,), *shape)), level=level)


@LEVELS
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("n", [5, 64, 100])
def test_layer_norm(n: int, affine: bool, level: str) -> None:
    b = Builder((6, n))
    more = tuple(b.const(b.rng.normal(size=n)) for _ in range(2)) if affine else ()
    b.shapes |= {"y": (6, n), "m": (6, 1), "r": (6, 1)}
    b.nodes.append(nd.LayerNorm("ln", ("x", *more), ("y", "m", "r"), 6, n, 1e-5))
    check(b.network("y", "m", "r"), level=level)


@LEVELS
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "size", [(1, 1, 8, 5), (3, 17, 24, 40), (2, 1, 33, 100), (1, 50, 64, 64), (2, 30, 7, 16)]
)
def test_matmul(size: tuple[int, int, int, int], transposed: bool, level: str) -> None:
    batch, m, k, n = size
    b = Builder((batch, m, k))
    right = b.const(b.rng.normal(size=(batch, n, k) if transposed else (batch, k, n)))
    y = b.add((batch, m, n), lambda a, o: nd.MatMul(a, ("x", right), (o,), *size, transposed))
    check(b.network(y), level=level, threads=2)


def test_attention() -> None:
    heads, t, d = 4, 20, 16
    b = Builder((t, heads * d))
    q, k, v = (b.dense("x", heads * d) for _ in range(3))

    def split(x: str) -> str:
        return b.add((heads, t, d), lambda a, o: nd.View(a, (x,), (o,), (d, heads * d, 1)))

    q, k, v = split(q), split(k), split(v)
    s = b.add((heads, t, t), lambda a, o: nd.MatMul(a, (q, k), (o,), heads, t, d, t, True))
    s = b.both("mul", s, b.const(np.full(1, 0.25)))
    s = b.add((heads, t, t), lambda a, o: nd.Softmax(a, (s,), (o,), heads * t, t, 1))
    y = b.add((heads, t, d), lambda a, o: nd.MatMul(a, (s, v), (o,), heads, t, t, d))
    y = b.add((t, heads, d), lambda a, o: nd.View(a, (y,), (o,), (d, t * d, 1)))
    y = b.add((t, heads * d), lambda a, o: nd.Reshape(a, (y,), (o,)))
    check(b.network(b.plus(b.dense(y, heads * d), "x")), threads=2)


PERMUTATIONS = [
    ((5, 7), (1, 0)),
    ((40, 50), (1, 0)),
    ((3, 33, 18), (0, 2, 1)),
    ((3, 33, 18), (2, 1, 0)),
    ((2, 20, 3, 17), (0, 2, 1, 3)),
    ((2, 20, 3, 17), (0, 3, 1, 2)),
    ((1, 8, 9, 9), (0, 2, 3, 1)),
    ((2, 3, 4, 5, 6), (4, 2, 0, 3, 1)),
]


@LEVELS
@pytest.mark.parametrize(("shape", "order"), PERMUTATIONS, ids=str)
def test_transpose(shape: tuple[int, ...], order: tuple[int, ...], level: str) -> None:
    strides = tuple(contiguous(shape)[k] for k in order)
    out = tuple(shape[k] for k in order)
    check(single(shape, out, lambda a, y: nd.View(a, ("x",), (y,), strides)), level=level)


def test_slices_steps_and_broadcasts() -> None:
    shape = (6, 10, 8)
    for dims, strides, offset in [
        ((3, 4, 8), (160, 16, 1), 88),
        ((6, 10, 4), (80, 8, 2), 1),
        ((4, 6, 8), (0, 80, 1), 8),
        ((2, 10, 40), (80, 8, 0), 3),
    ]:
        check(single(shape, dims, lambda a, y, s=strides, o=offset: nd.View(a, ("x",), (y,), s, o)))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_join(axis: int) -> None:
    b = Builder((3, 5, 7))
    dims = [3, 5, 7]
    dims[axis] = 4
    other = b.const(b.rng.normal(size=dims))
    out = [3, 5, 7]
    out[axis] += 4
    check(b.network(b.add(tuple(out), lambda a, y: nd.Join(a, ("x", other), (y,), axis))))


@LEVELS
def test_channel_maps(level: str) -> None:
    b = Builder((2, 16, 9, 7))
    one, two = b.conv("x", 29, 1), b.conv("x", 29, 3, 1, 1)
    joined = tuple((s, c) for c in range(29) for s in (0, 1))
    y = b.add((2, 58, 9, 7), lambda a, o: nd.ChannelMap(a, (one, two), (o,), joined))
    half = b.add(
        (2, 29, 9, 7),
        lambda a, o: nd.ChannelMap(a, (y,), (o,), tuple((0, 2 * c) for c in range(29))),
    )
    check(b.network(b.conv(half, 20, 3, 1, 1), b.act(y)), level=level, threads=2)


def test_python_steps_run_between_native_ones() -> None:
    b = Builder((1, 16, 8, 8))
    x = b.conv("x", 16, 1)
    y = b.add(
        (1, 16, 8, 8), lambda a, o: nd.Host(a, (x,), (o,), lambda v: [np.flip(v[0], 2).copy()])
    )
    check(b.network(b.conv(y, 8, 3, 1, 1), y), threads=2)


def test_python_steps_can_pass_tensors_of_unknown_shape() -> None:
    b = Builder((40,))
    b.nodes.append(nd.Host("pick", ("x",), ("hidden",), lambda v: [v[0][v[0] > 0]]))
    total = b.add(
        (1,), lambda a, o: nd.Host(a, ("hidden",), (o,), lambda v: [v[0].sum(keepdims=True)])
    )
    check(b.network(b.act(total, "exp")))


def test_a_reshaped_input_is_an_output() -> None:
    b = Builder((6, 10))
    check(b.network(b.add((3, 20), lambda a, o: nd.Reshape(a, ("x",), (o,)))))


def test_units_are_split_for_many_threads() -> None:
    b = Builder((64, 256))
    check(b.network(b.act(b.dense("x", 300))), threads=8)


def test_kernels_of_equal_code_keep_their_own_numbers_of_units() -> None:
    b = Builder((6, 10, 4))
    one = b.add((6, 4), lambda a, y: nd.Reduce(a, ("x",), (y,), "sum", 6, 10, 4))
    half = b.add((3, 10, 4), lambda a, y: nd.View(a, ("x",), (y,), (40, 4, 1)))
    two = b.add((3, 4), lambda a, y: nd.Reduce(a, (half,), (y,), "sum", 3, 10, 4))
    check(b.network(one, two))


def test_one_input_read_with_two_halos() -> None:
    b = Builder((2, 3, 12, 9))
    check(b.network(b.conv("x", 16, 3, 1, 1), b.conv("x", 16, 3, 2)))


@LEVELS
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "tanh", "relu"])
@pytest.mark.parametrize("hidden", [5, 16, 72])
@pytest.mark.parametrize(("shared", "batch"), [(False, 3), (True, 3), (True, 1), (False, 17)])
def test_recurrent_layer(
    hidden: int,
    kind: str,
    reverse: bool,
    shared: bool,
    batch: int,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shared:  # as if the weights were large
        monkeypatch.setattr(recurrent, "_SHARED", 0)
    steps = 7
    gates = 4 if kind == "lstm" else 1
    b = Builder((steps * batch, gates * hidden))
    states = tuple(
        b.const(b.rng.normal(size=(batch, hidden))) for _ in range(2 if gates == 4 else 1)
    )
    outs = ("y", "h", "c")[: 1 + len(states)]
    b.shapes |= {"y": (steps, batch, hidden), "h": (batch, hidden), "c": (batch, hidden)}
    w = (b.rng.normal(size=(gates * hidden, hidden)) * 0.2).astype(np.float32)
    b.nodes.append(nd.Recurrent("r", ("x", *states), outs, kind, w, steps, batch, reverse))
    check(b.network(*outs), level=level, threads=2)
