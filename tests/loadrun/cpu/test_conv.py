"""Every convolution and pooling kernel against float64, on each level this machine runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from guarded import Guarded
from nets import Builder, evaluate, mobilenetv2, resnet18

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import Cache
from loadrun.backends.cpu.planner import Options, make_plan
from loadrun.backends.cpu.program import Program
from loadrun.backends.cpu.target import LEVELS, detect, host_level

RUNNABLE = ("neon",) if host_level() == "neon" else LEVELS[LEVELS.index(host_level()) : 3]
TOLERANCE = 5e-6  # of the largest output: fp32 sums of up to a few thousand terms, Winograd


def check(
    net: nd.Network,
    *,
    level: str = RUNNABLE[0],
    threads: int = 1,
    options: Options | None = None,
) -> None:
    target = detect(level)
    plan = make_plan(net, target, threads=threads, options=options)
    kinds: list[Callable[[], Program]] = [lambda: Guarded(plan, target)]
    if len(net.nodes) > 8:  # there memory is shared
        kinds.append(lambda: Program(plan, target, Cache(None)))
    for make in kinds:
        program = make()
        try:
            compare(program, net)
        finally:
            program.close()


def compare(program: Program, net: nd.Network, *, least: float = 0.0) -> None:
    """Two runs with seeded inputs against float64.

    `least` is the size of the terms that a result sums, where few results may all be near zero.
    """
    rng = np.random.default_rng(7)
    for _ in range(2):  # a second run finds what a first one left behind
        x = rng.standard_normal(net.shapes["x"]).astype(np.float32)
        for got, want in zip(program.run([x]), evaluate(net, x), strict=True):
            scale = max(np.abs(want).max(), least)
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= TOLERANCE * scale


# n, c, h, w, oc, k, stride, pad, groups, dilation
CONVS = [
    (1, 3, 17, 19, 8, 7, 2, 3, 1, 1),
    (2, 3, 12, 12, 20, 3, 1, 1, 1, 1),
    (1, 3, 16, 16, 16, 3, 1, 2, 1, 2),
    (1, 32, 14, 14, 32, 1, 1, 0, 1, 1),
    (2, 24, 7, 7, 40, 1, 1, 0, 1, 1),
    (1, 58, 9, 11, 58, 1, 1, 0, 1, 1),
    (1, 64, 10, 10, 80, 1, 2, 0, 1, 1),
    (1, 16, 13, 9, 48, 3, 2, 1, 1, 1),
    (2, 16, 5, 6, 112, 5, 1, 2, 1, 1),
    (1, 20, 15, 15, 36, 3, 1, 2, 1, 2),
    (1, 7, 6, 6, 5, 3, 3, 0, 1, 1),
    (1, 32, 8, 8, 32, 3, 1, 1, 8, 1),
    (1, 32, 9, 9, 64, 3, 2, 1, 2, 1),
    (1, 24, 8, 8, 24, 1, 1, 0, 3, 1),
    (2, 64, 6, 6, 128, 3, 1, 1, 4, 1),
    (1, 40, 10, 10, 40, 3, 1, 1, 40, 1),
    (2, 33, 11, 7, 33, 3, 2, 1, 33, 1),
    (1, 16, 14, 14, 16, 5, 1, 2, 16, 1),
    (1, 16, 14, 14, 16, 7, 2, 3, 16, 1),
    (1, 16, 14, 14, 16, 3, 1, 2, 16, 2),
    (1, 512, 1, 1, 200, 1, 1, 0, 1, 1),
    (1, 512, 7, 7, 64, 3, 1, 1, 1, 1),
]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("case", CONVS, ids=str)
def test_convolution(case: tuple[int, ...], level: str) -> None:
    n, c, h, w, oc, k, s, p, g, d = case
    b = Builder((n, c, h, w))
    check(b.network(b.conv("x", oc, k, s, p, g, d)), level=level, options=Options(winograd=False))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize(
    "size", [(1, 16, 10, 10), (2, 24, 23, 21), (1, 40, 31, 12), (1, 64, 20, 56)]
)
@pytest.mark.parametrize("pad", [0, 1])
def test_winograd(size: tuple[int, ...], pad: int, level: str) -> None:
    b = Builder(size)
    check(b.network(b.act(b.conv("x", 48, 3, 1, pad))), level=level)


@pytest.mark.parametrize("kind", ["relu", "clip", "sigmoid", "silu", "hswish", "leaky", "tanh"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("groups", [1, 16])
def test_epilogue_with_operand(kind: str, k: int, groups: int) -> None:
    b = Builder((1, 16, 12, 12))
    y = b.conv(b.conv("x", 16, 1), 16, k, 1, k // 2, groups)
    numbers = {"clip": (0.1, 6.0), "leaky": (0.1,)}.get(kind, ())
    check(b.network(b.act(b.plus(y, "x"), kind, *numbers)))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("mode", ["max", "mean", "mean_valid"])
@pytest.mark.parametrize("geometry", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)])
def test_pooling(mode: str, geometry: tuple[int, int, int], level: str) -> None:
    b = Builder((2, 20, 17, 23))
    check(b.network(b.pool("x", mode, *geometry)), level=level)


@pytest.mark.parametrize("mode", ["mean", "max", "sum"])
def test_global_pooling(mode: str) -> None:
    b = Builder((3, 37, 5, 11))
    check(b.network(b.gap("x", mode)))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("n", [1, 16, 50, 1000])
def test_dense(m: int, n: int, level: str) -> None:
    b = Builder((m, 72))
    check(b.network(b.act(b.dense("x", n))), level=level)


def test_several_outputs_one_of_them_read_again() -> None:
    b = Builder((1, 16, 12, 12))
    y = b.conv("x", 32, 3, 1, 1)
    check(b.network(y, b.act(b.conv(y, 16, 1))))


@pytest.mark.parametrize("level", RUNNABLE)
def test_resnet18_small(level: str) -> None:
    check(resnet18(64, 2, 16), level=level, threads=2)


def test_mobilenetv2_small() -> None:
    check(mobilenetv2(64), threads=2)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    net = resnet18(32, 1, 16)
    x = np.random.default_rng(0).standard_normal(net.shapes["x"]).astype(np.float32)
    found = []
    for count in (1, threads):
        target = detect()
        program = Program(make_plan(net, target, threads=count), target, Cache(None))
        found.append(program.run([x])[0])
        program.close()
    np.testing.assert_array_equal(found[0], found[1])


DECONVS = [
    (1, 16, 7, 9, 24, 4, 2, 1, 1, 1),
    (2, 20, 5, 5, 16, 3, 1, 1, 1, 1),
    (1, 32, 6, 6, 5, 3, 2, 0, 1, 1),
    (1, 24, 5, 4, 32, 2, 2, 0, 1, 1),
    (1, 16, 6, 6, 16, 3, 2, 1, 1, 2),
    (1, 32, 5, 5, 64, 4, 3, 1, 2, 1),
    (1, 7, 4, 4, 3, 2, 3, 0, 1, 1),
]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("case", DECONVS, ids=str)
def test_transposed_convolution(case: tuple[int, ...], level: str) -> None:
    n, c, h, w, oc, k, s, p, g, d = case
    b = Builder((n, c, h, w))
    y = b.deconv("x", oc, k, s, p, g, d)
    check(b.network(b.act(b.norm(y)) if oc > 3 else y), level=level)


def test_upsampling() -> None:
    b = Builder((2, 20, 5, 7))
    check(b.network(b.conv(b.upsample("x", 2), 16, 3, 1, 1)))


BYTE_CONVS = [
    (1, 32, 9, 9, 48, 3, 1, 1, 1, 1),
    (2, 64, 7, 7, 20, 1, 1, 0, 1, 1),
    (1, 20, 8, 10, 40, 3, 2, 1, 1, 1),
    (1, 64, 6, 6, 64, 3, 1, 2, 4, 2),
    (1, 27, 6, 6, 16, 3, 1, 1, 1, 1),
    (1, 3, 19, 17, 24, 7, 2, 3, 1, 1),
    (2, 4, 9, 9, 16, 5, 1, 2, 1, 1),
    (1, 512, 5, 5, 32, 3, 1, 1, 1, 1),
]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("case", BYTE_CONVS, ids=str)
def test_byte_convolution_is_exact(case: tuple[int, ...], level: str) -> None:
    n, c, h, w, oc, k, s, p, g, d = case
    b = Builder((n, c, h, w))
    net = b.network(b.conv("x", oc, k, s, p, g, d))
    conv = net.nodes[0]
    assert isinstance(conv, nd.Conv)
    rng = np.random.default_rng(3)
    target = detect(level)
    # The widest range where bytes are multiplied as such, else one that float32 sums exactly.
    top = 127 if target.dot_u8s8 or c < 100 else 20
    weights = rng.integers(-top - 1, top + 1, conv.weights.shape).astype(np.float32)
    bias = rng.integers(-100000, 100000, oc).astype(np.float32)
    conv = replace(conv, weights=weights, bias=bias, exact=True, byte=True)
    net = replace(net, nodes=(conv,))
    program = Program(make_plan(net, target, threads=2), target, Cache(None))
    x = rng.integers(-128, 128, net.shapes["x"]).astype(np.float32)
    got = program.run([x])[0]
    program.close()
    np.testing.assert_array_equal(got, evaluate(net, x)[0].astype(np.float32))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("taps", [1, 2])
def test_resampling(taps: int, level: str) -> None:
    b = Builder((2, 20, 5, 7))
    out = (9, 4)
    rows, columns = (
        b.rng.integers(0, s, (o, taps)).astype(np.int32) for o, s in zip(out, (5, 7), strict=True)
    )
    ones = taps == 1
    wr, wc = (
        np.ones((o, 1), np.float32) if ones else b.rng.random((o, taps)).astype(np.float32)
        for o in out
    )
    y = b.add((2, 20, *out), lambda a, o: nd.Resample(a, ("x",), (o,), rows, columns, wr, wc))
    check(b.network(b.conv(y, 16, 3, 1, 1)), level=level, threads=2)
