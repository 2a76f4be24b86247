"""Operators that never need reference code, what a run refuses, tensors without elements."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import corpus_cases as cc
import numpy as np
import pytest

import mgeserial
from loadrun.backends.cpu import lower
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DType, DTypeEnum, quantized
from mgeserial.errors import ExecutionError
from mgeserial.ir.graph import Graph

ALWAYS = frozenset(
    """
    Elemwise ElemwiseMultiType TypeCvt PowC AffineInt Where WhereBackward MaskedFill Reduce Cumsum
    Dot CheckNonFinite CvtColor Padding Linspace Identity Copy VirtualDep AssertEqual Concat Split
    Dimshuffle AxisAddRemove Reshape FakeQuant TQT LSQ
    """.split()  # noqa: SIM905 - a table of names
)


def test_no_network_of_the_corpus_leaves_native_code_for_these() -> None:
    left: dict[str, set[str]] = {}
    for _, model in cc.iter_models(cc.compact_root()):
        for graph in mgeserial.load(model.path).graphs:
            lowered = lower.lower(graph, graph.inference)
            dynamic = [r for r in lowered.reasons if r.endswith("known only at run time")]
            for name in ALWAYS.intersection(lowered.fallback):
                if not any(r.startswith(f"{name}:") for r in dynamic):
                    left.setdefault(name, set()).add(str(model.path))
    assert not left


def both(graph: Graph, feeds: dict[str, Any]) -> None:
    """The CPU engine, all in native code, gives what the reference does."""
    with Session(graph, "reference") as session:
        want: Any = session.run(feeds)
    with Session(graph, "cpu", threads=2) as session:
        for _ in range(2):
            got = session.run(feeds)
            assert session.program is not None
            assert session.program.report.fallback == {}
            assert list(got) == list(want)
            for name, expected in want.items():
                result: Any = got[name]
                assert result.dtype == expected.dtype
                if expected.dtype.kind == "f":
                    size = np.abs(expected[np.isfinite(expected)]).max(initial=1)
                    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6 * size)
                else:
                    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["FLOOR_DIV", "MOD"])
def test_a_division_by_zero_is_refused_and_the_next_run_is_right(mode: str) -> None:
    b = GraphBuilder()
    x, y = b.input("x", (3, 5), "Int32"), b.input("y", (5,), "Int32")
    b.output(b.elemwise(x, y, mode=mode), "r")
    graph = b.graph()
    x0 = np.arange(-7, 8, dtype=np.int32).reshape(3, 5)
    wrong, right = np.array([[3, -2, 1, 0, 5], [3, -2, 1, -1, 5]], np.int32)
    with Session(graph, "cpu") as session:
        with pytest.raises(ExecutionError, match="divides by zero"):
            session.run({"x": x0, "y": wrong})
        (got,) = session.run({"x": x0, "y": right}).values()
    np.testing.assert_array_equal(got, x0 // right if mode == "FLOOR_DIV" else x0 % right)


def test_a_shift_out_of_range_is_refused() -> None:
    b = GraphBuilder()
    x, k = b.input("x", (4,), "Int32"), b.input("k", (1,), "Int8")
    mode = P.ElemwiseMultiTypeMode.ROUND_SHR_SATURATE_IXxI8xI8
    (y,) = b.apply("ElemwiseMultiType", [x, k], [P.ElemwiseMultiType(mode=mode)])
    b.output(y, "r")
    feeds = {"x": np.array([1000, -1000, 7, -7], np.int32), "k": np.array([3], np.int8)}
    both(b.graph(), feeds)
    with Session(b.graph(), "cpu") as session, pytest.raises(ExecutionError, match="shift counts"):
        session.run(feeds | {"k": np.array([64], np.int8)})


def test_tensors_without_elements() -> None:
    b = GraphBuilder()
    x, full = b.input("x", (0, 3), "Float32"), b.input("y", (2, 3), "Float32")
    b.output(b.mul(x, 2.0), "scaled")
    b.output(b.cat([x, full, x], axis=0), "joined")
    b.output(b.apply("Reduce", [x], [P.Reduce(mode=P.ReduceMode.SUM, axis=0)])[0], "total")
    b.output(b.relu(b.cast(x, "Int8")), "codes")
    feeds = {"x": np.zeros((0, 3), np.float32), "y": np.arange(6, dtype=np.float32).reshape(2, 3)}
    both(b.graph(), feeds)


def test_bfloat16_is_float32_rounded_after_every_operator() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 37), "Float32")
    y = b.cast(x, "BFloat16")
    b.output(b.add(b.mul(y, y), y), "bits")
    b.output(b.cast(b.exp(y), "Float32"), "real")
    b.output(b.cast(y, "Int16"), "whole")
    both(b.graph(), {"x": np.random.default_rng(1).normal(0, 3, (3, 37)).astype(np.float32)})


@pytest.mark.parametrize(
    "dtype",
    [
        quantized(DTypeEnum.QuantizedS4, 0.5),
        quantized(DTypeEnum.Quantized4Asymm, 0.5, 6),
        quantized(DTypeEnum.QuantizedS32, 1e-4),
    ],
    ids=lambda d: d.name,
)
def test_quantised_sums_of_other_widths(dtype: DType) -> None:
    b = GraphBuilder()
    x = b.input("x", (5, 33), "Float32")
    q = b.cast(x, dtype)
    mode = P.ElemwiseMultiTypeMode.QFUSE_ADD_RELU
    (y,) = b.apply(
        "ElemwiseMultiType", [q, q], [P.ElemwiseMultiType(mode=mode)], output_dtype=dtype
    )
    b.output(b.cast(y, "Float32"), "r")
    b.output(b.apply("Reduce", [q], [P.Reduce(mode=P.ReduceMode.MEAN, axis=1)])[0], "mean")
    both(b.graph(), {"x": np.random.default_rng(2).normal(0, 2, (5, 33)).astype(np.float32)})


@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "REPLICATE"])
@pytest.mark.parametrize("kind", ["Float32", "Int8", "Float16", "Bool"])
def test_padding(mode: str, kind: str) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 4, 5), kind)
    sides = {"front_offset_dim1": 3, "back_offset_dim1": 1, "back_offset_dim2": 4}
    param = P.Padding(padding_mode=P.PaddingPaddingMode[mode], padding_val=1.0, **sides)
    b.output(b.apply("Padding", [x], [param])[0], "r")
    values = np.random.default_rng(3).integers(0, 2 if kind == "Bool" else 9, (2, 4, 5))
    both(b.graph(), {"x": values.astype(kind.lower())})


@pytest.mark.parametrize("axes", [(0, 2), (1,), (0, 1, 3), (1, 3)])
@pytest.mark.parametrize("kind", ["Float32", "Int32", "Uint8"])
def test_axes_apart_from_each_other(axes: tuple[int, ...], kind: str) -> None:
    shape = (2, 3, 4, 5)
    b = GraphBuilder()
    x = b.input("x", shape, kind)
    wanted = [1 if k in axes else n for k, n in enumerate(shape)]
    target = b.const(np.array(wanted, np.int32))
    for mode in (P.ReduceMode.SUM, P.ReduceMode.MAX_, P.ReduceMode.MEAN):
        (y,) = b.apply("Reduce", [x, target], [P.Reduce(mode=mode, axis=2147483647)])
        b.output(y, mode.name)
    both(b.graph(), {"x": np.random.default_rng(4).integers(0, 99, shape).astype(kind.lower())})


@pytest.mark.parametrize(
    "exponent", [0.0, 1.0, 2.0, 3.0, 7.0, 11.0, -1.0, -2.0, -5.0, 0.5, -0.5, 1.7]
)
def test_constant_powers(exponent: float) -> None:
    b = GraphBuilder()
    x = b.input("x", (40,), "Float32")
    b.output(b.apply("PowC", [x], [P.PowC(exp=exponent)])[0], "r")
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-3, -1e3, 3.0]
    values = np.r_[special, np.random.default_rng(5).normal(0, 2, 30)].astype(np.float32)
    with np.errstate(all="ignore"):
        both(b.graph(), {"x": values})


def test_complex_numbers_stay_with_the_reference_code() -> None:
    b = GraphBuilder()
    x, y = (b.input(n, (3,), "Complex64") for n in "xy")
    mask = b.input("m", (3,), "Bool")
    b.output(b.apply("Where", [mask, x, y])[0], "r")
    feeds = {"m": np.array([True, False, True])}
    feeds |= {n: (np.arange(3) + 1j * k).astype(np.complex64) for k, n in enumerate("xy")}
    with Session(b.graph(), "cpu") as session:
        (got,) = session.run(feeds).values()
        assert session.program is not None
        assert session.program.report.fallback == {"Where": 1}
    np.testing.assert_array_equal(got, np.where(feeds["m"], feeds["x"], feeds["y"]))


def test_a_float_network_imports_no_rules_of_rare_operators() -> None:
    code = """
import sys
import numpy as np
from loadrun.session import Session
from mgeserial.author import GraphBuilder
b = GraphBuilder()
x = b.input("x", (1, 4, 8, 8), "Float32")
w = np.ones((8, 4, 3, 3), np.float32)
b.output(b.relu(b.conv2d(x, w, np.ones(8, np.float32))), "y")
with Session(b.graph(), "cpu") as session:
    session.run({"x": np.ones((1, 4, 8, 8), np.float32)})
print([m for m in sys.modules if m.endswith((".rules.typed", ".rules.image", ".emit_rare"))])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
