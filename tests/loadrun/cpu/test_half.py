"""Networks of float16 run natively: computed in float32, every result rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_conv import RUNNABLE

from loadrun.backends.cpu.target import detect
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph

LT = P.ElemwiseMultiTypeMode.LT


@pytest.fixture(autouse=True, params=RUNNABLE)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set: the smallest has no conversions of float16."""
    monkeypatch.setenv("LOADRUN_CPU_LEVEL", request.param)
    detect.cache_clear()
    yield request.param
    monkeypatch.undo()
    detect.cache_clear()


def network(batch: int) -> Graph:
    """Float16 weights, mixed types, a residual, moved elements, a float32 and a float16 output."""
    rng = np.random.default_rng(1)
    b = GraphBuilder()
    x = b.input("data", (batch, 8, 9, 10), "Float16")

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 6).astype(np.float16)

    y = b.relu(b.conv2d(x, weight(24, 8, 3, 3), weight(24), padding=1))
    y = b.add(b.conv2d(y, weight(24, 24, 1, 1), weight(24)), y)
    y = b.cat([b.max_pool2d(y, 2), b.avg_pool2d(y, 2)])
    y = b.transpose(y, (0, 2, 3, 1))
    b.output(b.sigmoid(y), "half")
    wide = b.cast(y, "Float32")
    b.output(b.exp(b.mul(wide, 0.1)), "wide")
    b.output(b.matmul(b.reshape_to(y, (-1, 48)), weight(48, 17)), "product")
    return b.graph()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch", [1, 2])
def test_float16_network(batch: int, threads: int) -> None:
    graph = network(batch)
    x = np.random.default_rng(2).standard_normal((batch, 8, 9, 10)).astype(np.float16)
    with Session(graph, "reference") as session:
        want = session.run({"data": x})
    with Session(graph, "cpu", threads=threads) as session:
        got = session.run({"data": x})
        program = session.program
        assert program is not None
        assert "Float16: computed in Float32, each result rounded once" in program.report.notes
        assert program.report.fallback == {}
    assert got["half"].dtype == np.float16
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype
        # Sums in another order may round to the neighbouring number, and what follows shifts too.
        scale = float(np.abs(expected.astype(np.float32)).max())
        difference = np.abs(got[name].astype(np.float32) - expected.astype(np.float32))
        assert difference.max() <= 2.0**-9 * scale


def test_special_values_of_float16() -> None:
    b = GraphBuilder()
    x = b.input("x", (8,), "Float16")
    b.output(b.add(x, x), "twice")
    b.output(b.mul(x, np.array([0.5], np.float16)), "half")
    values = [np.nan, np.inf, -np.inf, 65504, 6e-8, -1.8e-7, -0.0, 1.0009765625]
    feeds = {"x": np.array(values, np.float16)}
    graph = b.graph()
    results = []
    for backend in ("reference", "cpu"):
        with Session(graph, backend) as session, np.errstate(all="ignore"):
            results.append(session.run(feeds))
    for name, expected in results[0].items():
        np.testing.assert_array_equal(results[1][name], expected)


def test_every_number_of_float16(level: str) -> None:
    """All bit patterns come through, and all numbers halfway between two are rounded away."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = np.sort(every[np.isfinite(every)].astype(np.float64))
    middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    b = GraphBuilder()
    x, y = b.input("x", every.shape, "Float16"), b.input("y", middle.shape, "Float32")
    b.output(b.cast(x, "Float32"), "wide")
    b.output(b.mul(x, np.array([1.0], np.float16)), "same")
    b.output(b.cast(y, "Float16"), "rounded")
    feeds = {"x": every, "y": middle}
    with Session(b.graph(), "reference") as session:
        want = session.run(feeds)
    with Session(b.graph(), "cpu") as session:
        got = session.run(feeds)
        assert session.program is not None
        assert session.program.report.fallback == {}
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


@pytest.mark.parametrize("kind", ["Float16", "BFloat16"])
def test_normalisations_and_sums_of_half_precision(kind: str) -> None:
    b = GraphBuilder()
    real = b.input("x", (2, 8, 6, 5), "Float32")
    x = b.cast(real, kind)
    layer = P.LayerNorm(normalized_dim=2, normalized_size=30, affine=False, eps=1e-5)
    batch = P.BN(fwd_mode=P.BNFwdMode.TRAINING, param_dim=P.BNParamDim.DIM_1C11, epsilon=1e-5)
    one = [b.cast(b.const(np.full((1, 8, 1, 1), 0.5, np.float32)), kind)] * 4
    results = {
        "softmax": b.apply("Softmax", [x], [P.Softmax(axis=1)])[0],
        "layer": b.apply("LayerNorm", [x], [layer])[0],
        "batch": b.apply("BatchNorm", [x, *one], [batch])[-1],
        "mean": b.apply("Reduce", [x], [P.Reduce(mode=P.ReduceMode.MEAN, axis=2)])[0],
        "running": b.apply("Cumsum", [x], [P.Cumsum(axis=3)])[0],
        "below": b.apply(
            "ElemwiseMultiType", [x, one[0]], [P.ElemwiseMultiType(mode=LT)]
        )[0],
    }  # fmt: skip
    for name, value in results.items():
        b.output(b.cast(value, "Float32"), name)
    feeds = {"x": np.random.default_rng(3).uniform(0, 2, (2, 8, 6, 5)).astype(np.float32)}
    graph = b.graph()
    with Session(graph, "reference") as session:
        want: Any = session.run(feeds)
    with Session(graph, "cpu", threads=2) as session:
        got: Any = session.run(feeds)
        assert session.program is not None
        assert session.program.report.fallback == {}
    step = 2.0**-10 if kind == "Float16" else 2.0**-7
    for name, expected in want.items():
        # Sums in another order may round to the neighbouring number.
        assert np.abs(got[name] - expected).max() <= step * np.abs(expected).max(), name


def test_results_that_nobody_reads_are_left_out() -> None:
    """Batch norm of half precision: of its results only the last is used."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 3, 5), "Float16")
    scale, bias, mean, variance = (
        b.param(np.linspace(low, 2, 4).astype(np.float16).reshape(1, 4, 1, 1))
        for low in (1, -1, 0, 0.5)
    )
    record = P.BN(param_dim=P.BNParamDim.DIM_1C11, fwd_mode=P.BNFwdMode.INFERENCE)
    results = b.apply("BatchNorm", [x, scale, bias, mean, variance], (record,))
    b.output(b.relu(results[-1]), "out")
    feeds = {"x": np.random.default_rng(3).standard_normal((1, 4, 3, 5)).astype(np.float16)}
    with Session(b.graph(), "reference") as session:
        want = session.run(feeds)
    with Session(b.graph(), "cpu") as session:
        np.testing.assert_allclose(session.run(feeds)["out"], want["out"], rtol=2e-3)
