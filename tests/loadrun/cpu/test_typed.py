"""Elementwise programs of every type, reductions of integers, pieces and strided maps.

Networks run between canaries (`guarded`) on each level of this machine; what must come out is what
`mgeserial.ops.functions` or numpy computes, integers exactly.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from guarded import Guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_conv import RUNNABLE

from loadrun.backends.cpu import modes
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import Builder, convert, program
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.planner import make_plan
from loadrun.backends.cpu.rules.elemwise import MODES
from loadrun.backends.cpu.rules.typed import evaluate
from loadrun.backends.cpu.target import detect
from mgeserial import dtypes as dt
from mgeserial.ops import functions, numerics
from mgeserial.params import ElemwiseMode as M

DRAWN = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LEVELS = pytest.mark.parametrize("level", RUNNABLE)
INTEGERS = (dt.INT8, dt.UINT8, dt.INT16, dt.UINT16, dt.INT32)
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100])


def run(net: nd.Network, feeds: dict[str, Array], level: str, threads: int = 2) -> list[Array]:
    target = detect(level)
    guarded = Guarded(make_plan(net, target, threads=threads), target)
    try:
        first = guarded.run([feeds[n] for n in net.inputs])
        second = guarded.run([feeds[n] for n in net.inputs])
    finally:
        guarded.close()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return first


def network(nodes: list[nd.Node], feeds: dict[str, Array], made: dict[str, tuple[Any, str]]) -> Any:
    """A network of inputs `feeds` whose tensors `made` have a shape and a type each."""
    shapes = {n: a.shape for n, a in feeds.items()} | {n: s for n, (s, _) in made.items()}
    kinds = {n: a.dtype.name for n, a in feeds.items()} | {n: k for n, (_, k) in made.items()}
    outputs = tuple(n for node in nodes for n in node.outputs)
    return nd.Network(tuple(nodes), shapes, tuple(feeds), outputs, dtypes=kinds)


def integers(dtype: dt.DType, size: int, seed: int) -> Array:
    """Random numbers of the whole range, small ones, and the ends of the range."""
    rng = np.random.default_rng(seed)
    low, high = (int(v) for v in dtype.limits)
    few = rng.integers(max(low, -9), 10, size)
    values = np.where(rng.random(size) < 0.5, few, rng.integers(low, high, size, endpoint=True))
    ends = np.array([low, high, 0, 1, max(low, -1)])
    at = rng.integers(0, size, min(size, 5))
    values[at] = ends[: len(at)]
    return values.astype(dtype.storage)


def programs(dtype: dt.DType, table: Any) -> list[tuple[M, Expr]]:
    """Each mode as a program of elements of a type."""
    found = []
    for mode in table:
        arity = functions.FUNCTIONS[mode].arity
        b = Builder(arity)
        found.append((mode, b.done(evaluate(b, mode, dtype, *range(arity)))))
    return found


@LEVELS
@pytest.mark.parametrize("dtype", [*INTEGERS, dt.BOOL], ids=lambda d: d.name)
def test_every_mode_of_integers_is_exact(dtype: dt.DType, level: str) -> None:
    table = {**modes.WHOLE, M.RMULH: None} if dtype != dt.BOOL else modes.BOOLEAN
    defined = {m for m in M if functions.FUNCTIONS[m].compute_for(dtype.storage)}
    assert defined == set(table)
    size = 203
    feeds = {n: integers(dtype, size, k) for k, n in enumerate("xyzw")}
    feeds["d"] = np.where(feeds["y"] == 0, dtype.storage.type(3), feeds["y"])
    nodes: list[nd.Node] = []
    for mode, expr in programs(dtype, table):
        names = ("x", "d") if mode in (M.FLOOR_DIV, M.MOD) else tuple("xyzw"[: expr.inputs])
        nodes.append(nd.Eltwise(mode.name, names, (f"r_{mode.name}",), expr))
    made = {n.outputs[0]: ((size,), dtype.storage.name) for n in nodes}
    results = run(network(nodes, feeds, made), feeds, level)
    for node, got in zip(nodes, results, strict=True):
        arrays = [feeds[n] for n in node.inputs]
        want = functions.evaluate(M[node.name], *arrays)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, err_msg=node.name)


# Where a mode is defined, and for gradients where they do not cancel.
DOMAINS = {
    **dict.fromkeys((M.ACOS, M.ASIN, M.ATANH, M.ERFINV), (-1.0, 1.0)),
    M.ATANH_GRAD: (-0.9, 0.9),
    M.ERFCINV: (0.0, 2.0),
    M.ACOSH: (1.0, 50.0),
    M.ACOSH_GRAD: (1.2, 50.0),
    M.TAN: (-1.5, 1.5),
    **dict.fromkeys((M.SINH, M.COSH), (-60.0, 60.0)),
    M.ERFC: (-4.0, 9.0),
}
# Errors in units of the last place, against float64; sums of either sign may lose more than that.
BOUND = 4.0
CANCELLING = {M.SILU_GRAD, M.GELU_GRAD, M.H_SWISH_GRAD, M.FAST_TANH_GRAD, M.TANH_GRAD}


@LEVELS
def test_rare_modes_of_floats_are_near(level: str) -> None:
    size = 1031
    nodes: list[nd.Node] = []
    feeds: dict[str, Array] = {}
    for mode, expr in programs(dt.FLOAT32, modes.REAL):
        rng = np.random.default_rng(zlib.crc32(mode.name.encode()))
        for k in range(expr.inputs):
            low, high = DOMAINS.get(mode, (-6.0, 6.0)) if k == 0 else (-4.0, 4.0)
            feeds[f"{mode.name}{k}"] = rng.uniform(low, high, size).astype(np.float32)
        names = tuple(f"{mode.name}{k}" for k in range(expr.inputs))
        nodes.append(nd.Eltwise(mode.name, names, (f"r_{mode.name}",), expr))
    made = {n.outputs[0]: ((size,), "float32") for n in nodes}
    results = run(network(nodes, feeds, made), feeds, level)
    for node, got in zip(nodes, results, strict=True):
        mode = M[node.name]
        want = functions.evaluate(mode, *(feeds[n].astype(np.float64) for n in node.inputs))
        unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        if mode in CANCELLING:
            unit = np.maximum(unit, np.spacing(np.float32(np.abs(want).max())))
        worst = float((np.abs(got - want) / unit).max())
        assert worst <= BOUND, (mode, worst)


@LEVELS
def test_special_numbers_of_floats(level: str) -> None:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, 6.0, 1e-38, 3e38]
    x, y = (a.reshape(-1).astype(np.float32) for a in np.meshgrid(special, special))
    z = np.roll(x, 5)
    feeds = {"x": x, "y": y, "z": z}
    nodes: list[nd.Node] = []
    table = {**modes.REAL, M.MAX_: None, M.MIN_: None, M.RELU: None, M.CLIP: None, M.LT: None}
    for mode, expr in programs(dt.FLOAT32, table):
        nodes.append(nd.Eltwise(mode.name, tuple("xyz"[: expr.inputs]), (mode.name,), expr))
    made = {n.outputs[0]: (x.shape, "float32") for n in nodes}
    results = run(network(nodes, feeds, made), feeds, level)
    for node, got in zip(nodes, results, strict=True):
        with np.errstate(all="ignore"):
            want: Any = functions.evaluate(M[node.name], *(feeds[n] for n in node.inputs))
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-37, err_msg=node.name)


@LEVELS
def test_sines_and_powers(level: str) -> None:
    """Correctly rounded but for rare ties, far from zero as well; powers as C has them."""
    rng = np.random.default_rng(8)
    near = rng.uniform(-9, 9, 300)
    x = np.r_[
        near, rng.uniform(-5e5, 5e5, 300), np.pi * np.arange(1, 40), 6e5, 1e30, np.inf, np.nan
    ]
    special = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1e-40,
        3e38,
    ]
    a, e = (v.reshape(-1) for v in np.meshgrid(special, special))
    a, e = np.r_[a, rng.uniform(0, 30, 300)], np.r_[e, rng.uniform(-20, 20, 300)]
    feeds = {n: v.astype(np.float32) for n, v in (("x", x), ("a", a), ("e", e))}
    nodes: list[nd.Node] = [
        nd.Eltwise(kind, names, (kind,), program("xy"[: len(names)], f"r = {kind} {arguments}"))
        for kind, names, arguments in (
            ("sin", ("x",), "x"), ("cos", ("x",), "x"), ("tan", ("x",), "x"),
            ("exp2", ("x",), "x"), ("pow", ("a", "e"), "x y"),
        )
    ]  # fmt: skip
    made = {n.outputs[0]: (feeds[n.inputs[0]].shape, "float32") for n in nodes}
    results = run(network(nodes, feeds, made), feeds, level)
    for node, got in zip(nodes, results, strict=True):
        compute: Any = np.power if node.name == "pow" else getattr(np, node.name)
        with np.errstate(all="ignore"):
            want = compute(*(feeds[n].astype(np.float64) for n in node.inputs))
            rounded: Any = want.astype(np.float32)
            finite = np.isfinite(rounded) & (np.abs(feeds[node.inputs[0]]) < 1e29)
            worst = np.abs(got - want)[finite] / np.spacing(np.abs(rounded[finite]))
        assert worst.max() <= 0.55, node.name
        np.testing.assert_array_equal(got[~finite], rounded[~finite], err_msg=node.name)


@LEVELS
def test_remainders_are_exact(level: str) -> None:
    rng = np.random.default_rng(9)
    size = 4000
    y = (rng.normal(size=size) * 10.0 ** rng.integers(-20, 20, size)).astype(np.float32)
    quotients = np.round(rng.normal(size=size) * 10.0 ** rng.integers(0, 11, size))
    x = (y * quotients).astype(np.float32)  # near multiples, and some exactly
    x[:500] = np.nextafter(x[:500], np.float32(np.inf))
    y[:20], x[20:40] = 0, np.inf
    y[40:60], x[60:80], y[80:100] = np.inf, np.nan, np.float32(1e-41)
    feeds = {"x": x, "y": y}
    node = nd.Eltwise("mod", ("x", "y"), ("r",), program("xy", "r = fmod x y"))
    (got,) = run(network([node], feeds, {"r": (x.shape, "float32")}), feeds, level)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


CONVERTED = (
    *INTEGERS,
    dt.BOOL,
    dt.FLOAT32,
    dt.quantized(dt.DTypeEnum.QuantizedS8, 0.05),
    dt.quantized(dt.DTypeEnum.Quantized8Asymm, 0.1, 131),
    dt.quantized(dt.DTypeEnum.QuantizedS32, 1e-3),
    dt.quantized(dt.DTypeEnum.QuantizedS4, 0.7),
    dt.quantized(dt.DTypeEnum.Quantized4Asymm, 0.7, 3),
    dt.quantized(dt.DTypeEnum.QuantizedS16, 0.002),
)


@LEVELS
@pytest.mark.parametrize("source", CONVERTED, ids=lambda d: d.name)
def test_conversions_are_exact(source: dt.DType, level: str) -> None:
    if source == dt.FLOAT32:
        rng = np.random.default_rng(3)
        special = [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), 2147483520.0, 0.5, -0.5, 2.5, 300]
        x = np.r_[special, rng.normal(0, 100, 80), rng.normal(0, 1e10, 20)].astype(np.float32)
    else:
        x = integers(source, 111, 4)
    nodes: list[nd.Node] = []
    made = {}
    for k, target in enumerate(CONVERTED):
        b = Builder(1)
        expr = b.done(convert(b, 0, source, target))
        nodes.append(nd.Eltwise(f"c{k}", ("x",), (f"r{k}",), expr))
        made[f"r{k}"] = (x.shape, target.storage.name)
    results = run(network(nodes, {"x": x}, made), {"x": x}, level)
    for target, got in zip(CONVERTED, results, strict=True):
        with np.errstate(all="ignore"):
            want = numerics.convert(x, source, target)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, err_msg=str(target))


@LEVELS
def test_bfloat16_there_and_back(level: str) -> None:
    rng = np.random.default_rng(5)
    x = np.r_[np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.4e38, rng.normal(size=60)].astype(np.float32)
    nodes: list[nd.Node] = [
        nd.Eltwise("to", ("x",), ("bits",), program("x", "r = to_bfloat x")),
        nd.Eltwise("from", ("bits",), ("back",), program("x", "r = from_bfloat x")),
    ]
    made = {"bits": (x.shape, "uint16"), "back": (x.shape, "float32")}
    bits, back = run(network(nodes, {"x": x}, made), {"x": x}, level)
    np.testing.assert_array_equal(bits, numerics.float32_to_bfloat16(x))
    np.testing.assert_array_equal(back, numerics.bfloat16_to_float32(bits))


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    """An output shape and two shapes that broadcast to it."""
    out = tuple(draw(st.lists(SIZES, min_size=1, max_size=3)))
    first = tuple(n if draw(st.integers(0, 3)) else 1 for n in out)
    second = tuple(
        n if a == 1 or draw(st.integers(0, 3)) else 1 for n, a in zip(out, first, strict=True)
    )
    skipped = draw(st.integers(0, len(out) - 1)) if set(second[:1]) == {1} else 0
    while skipped and set(second[:skipped]) != {1}:
        skipped -= 1
    return out, first, second[skipped:]


@DRAWN
@given(
    broadcasts(),
    st.tuples(*[st.sampled_from([*INTEGERS, dt.FLOAT32])] * 3),
    st.sampled_from(RUNNABLE),
    st.sampled_from([1, 2, 5]),
)
def test_broadcasting_of_mixed_types(
    shapes: tuple[tuple[int, ...], ...], kinds: tuple[dt.DType, ...], level: str, threads: int
) -> None:
    out, *given_shapes = shapes
    feeds = {}
    for k, (name, shape, kind) in enumerate(zip("xy", given_shapes, kinds, strict=False)):
        count = int(np.prod(shape))
        values = integers(kind, count, k) if kind != dt.FLOAT32 else np.arange(count) % 100 - 50.0
        feeds[name] = values.reshape(shape).astype(kind.storage)
    b = Builder(2)
    wide = [convert(b, k, kinds[k], dt.INT32) for k in range(2)]
    expr = b.done(convert(b, b.op("iadd", *wide), dt.INT32, kinds[2]))
    nodes: list[nd.Node] = [nd.Eltwise("e", ("x", "y"), ("r",), expr)]
    net = network(nodes, feeds, {"r": (out, kinds[2].storage.name)})
    (got,) = run(net, feeds, level, threads)
    with np.errstate(over="ignore"):
        total = feeds["x"].astype(np.int32) + feeds["y"].astype(np.int32)
    np.testing.assert_array_equal(got, numerics.convert(total, dt.INT32, kinds[2]))


FOLDED = {
    "sum": lambda x: x.sum(1),
    "sum_sqr": lambda x: (x * x).sum(1),
    "product": lambda x: x.prod(1),
    "min": lambda x: x.min(1),
    "max": lambda x: x.max(1),
    "mean": lambda x: np.sign(x.sum(1)) * (np.abs(x.sum(1)) // x.shape[1]),
}


@DRAWN
@given(
    st.tuples(st.integers(1, 5), SIZES, st.sampled_from([1, 1, 2, 5, 16, 33])),
    st.sampled_from([*INTEGERS, dt.BOOL]),
    st.sampled_from(sorted(FOLDED)),
    st.sampled_from(RUNNABLE),
    st.sampled_from([1, 2, 5]),
)
def test_reductions_of_integers(
    sizes: tuple[int, int, int], dtype: dt.DType, mode: str, level: str, threads: int
) -> None:
    x = integers(dtype, int(np.prod(sizes)), 1).reshape(sizes)
    nodes: list[nd.Node] = [nd.Fold("f", ("x",), ("r",), mode, sizes)]
    net = network(nodes, {"x": x}, {"r": ((sizes[0], sizes[2]), dtype.storage.name)})
    (got,) = run(net, {"x": x}, level, threads)
    with np.errstate(over="ignore"):
        want = FOLDED[mode](x.astype(np.int64)).astype(dtype.storage)
    np.testing.assert_array_equal(got, want)


@DRAWN
@given(
    st.tuples(st.integers(1, 5), SIZES, st.sampled_from([1, 1, 3, 17])),
    st.sampled_from(["sum", "mean_code", "min", "max"]),
    st.sampled_from(RUNNABLE),
)
def test_reductions_of_codes(sizes: tuple[int, int, int], mode: str, level: str) -> None:
    dtype = dt.quantized(dt.DTypeEnum.Quantized8Asymm, 0.1, 77)
    x = integers(dtype, int(np.prod(sizes)), 2).reshape(sizes)
    node = nd.Fold("f", ("x",), ("r",), mode, sizes, 77, 77, dtype.limits)
    net = network([node], {"x": x}, {"r": ((sizes[0], sizes[2]), "uint8")})
    (got,) = run(net, {"x": x}, level)
    steps = x.astype(np.int64) - 77
    found = FOLDED[mode](steps) if mode != "mean_code" else numerics.rhaz(steps.mean(1))
    np.testing.assert_array_equal(got, np.clip(found + 77, 0, 255).astype(np.uint8))


@DRAWN
@given(
    st.tuples(st.integers(1, 4), SIZES, st.sampled_from([1, 1, 2, 17, 40])),
    st.sampled_from([*INTEGERS, dt.BOOL, dt.FLOAT32]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(RUNNABLE),
)
def test_running_sums(
    sizes: tuple[int, int, int], dtype: dt.DType, reverse: bool, exclusive: bool, level: str
) -> None:
    count = int(np.prod(sizes))
    real = dtype == dt.FLOAT32
    flat = np.random.default_rng(0).normal(size=count) if real else integers(dtype, count, 3)
    x = flat.astype(dtype.storage).reshape(sizes)
    net = network(
        [nd.Cumulate("c", ("x",), ("r",), sizes, reverse, exclusive)],
        {"x": x},
        {"r": (sizes, dtype.storage.name)},
    )
    (got,) = run(net, {"x": x}, level)
    wide = x.astype(np.float64 if real else np.int64)
    wide = wide[:, ::-1] if reverse else wide
    sums = wide.cumsum(1) - (wide if exclusive else 0)
    want = (sums[:, ::-1] if reverse else sums).astype(dtype.storage)
    if real:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


@DRAWN
@given(
    st.sampled_from(["int8", "float32", "int16", "bool"]),
    st.tuples(st.integers(1, 4), SIZES, st.integers(1, 9)),
    st.sampled_from(RUNNABLE),
)
def test_maps_of_strided_places(kind: str, sizes: tuple[int, int, int], level: str) -> None:
    """Channels last: two channels of three are exchanged, the third is their sum."""
    shape = (*sizes[:2], 3)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, shape).astype(kind)
    add = "add" if kind == "float32" else "ior"
    exprs = (
        program("xy", "r = copy y"),
        program("xy", "r = copy x"),
        program("xy", f"r = {add} x y"),
    )
    node = nd.Mapped(
        "m",
        ("x", "x"),
        ("r",),
        sizes[:2],
        (((sizes[1] * 3, 3), 0), ((sizes[1] * 3, 3), 2)),
        exprs,
        (sizes[1] * 3, 3),
        (0, 1, 2),
    )
    (got,) = run(network([node], {"x": x}, {"r": (shape, kind)}), {"x": x}, level)
    a, b = x[..., 0], x[..., 2]
    np.testing.assert_array_equal(got, np.stack([b, a, a + b if kind == "float32" else a | b], -1))


@LEVELS
def test_pieces_stay_in_their_places(level: str) -> None:
    x, fill = np.arange(15, dtype=np.int16).reshape(3, 5), np.array([-7], np.int16)
    to = contiguous((4, 8))
    pieces = (
        nd.Piece(0, (3, 5), (5, 1), 0, to, 8 + 2),
        nd.Piece(1, (1, 8), (0, 0), 0, to, 0),
        nd.Piece(1, (3, 2), (0, 0), 0, to, 8),
        nd.Piece(0, (3, 1), (5, -1), 4, to, 8 + 7),
    )
    feeds = {"x": x, "f": fill}
    node = nd.Assemble("a", ("x", "f"), ("r",), pieces)
    (got,) = run(network([node], feeds, {"r": ((4, 8), "int16")}), feeds, level)
    want = np.full((4, 8), -7, np.int16)
    want[1:, 2:7], want[1:, 7] = x, x[:, 4]
    np.testing.assert_array_equal(got, want)


def test_common_modes_of_floats_have_one_home() -> None:
    assert not MODES.keys() & modes.REAL.keys()
    defined = {m for m in M if functions.FUNCTIONS[m].real is not None}
    assert defined == MODES.keys() | modes.REAL.keys()


@DRAWN
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 6), SIZES, st.sampled_from([1, 3, 16, 17, 64, 75])),
    st.sampled_from([("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")]),
    st.tuples(st.sampled_from([0, 3, 128]), st.sampled_from([0, 7])),
    st.sampled_from(RUNNABLE),
    st.sampled_from([1, 5]),
)
def test_products_of_integers(
    sizes: tuple[int, int, int, int],
    kinds: tuple[str, str],
    zeros: tuple[int, int],
    level: str,
    threads: int,
) -> None:
    batch, m, k, n = sizes
    rng = np.random.default_rng(6)
    shapes = (batch, m, k), (batch, k, n)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, s, endpoint=True).astype(d)
        for d, s in zip(kinds, shapes, strict=True)
    )
    node = nd.WholeProduct("p", ("a", "b"), ("r",), sizes, zeros)
    feeds = {"a": a, "b": b}
    (got,) = run(network([node], feeds, {"r": ((batch, m, n), "int32")}), feeds, level, threads)
    want = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
    np.testing.assert_array_equal(got, want.astype(np.int32))
