"""The backend as its users see it: what is missing, what falls back, errors, times."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.backends import base
from loadrun.backends.cuda import device_cupy, lower
from loadrun.backends.cuda.backend import CudaBackend, CudaProgram
from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError, InputError, UnsupportedError
from mgeserial.ir.graph import Graph


def _chain() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (2, 3, 8, 8))
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    b.output(b.relu(b.conv2d(x, w, padding=1)), "y")
    return b.graph()


def test_without_cupy_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADRUN_CUDA", raising=False)
    monkeypatch.setattr(device_cupy.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError) as caught:
        base.get_backend("cuda")
    text = str(caught.value)
    assert "CuPy is not installed" in text
    assert "pip install mgeserial[cuda12]" in text
    assert "\n" not in text


def test_auto_never_takes_the_emulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADRUN_CUDA", "emulated")
    assert base.choose().name != "cuda"


def test_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADRUN_CUDA", "emulate")
    with pytest.raises(InputError, match="LOADRUN_CUDA"):
        CudaBackend().unavailable()


def test_rules_are_listed_without_a_device() -> None:
    names = base.lowered_operators("cuda")
    assert {"Convolution", "Elemwise", "NMSKeep", "Resize", "Softmax"} <= names
    assert names == frozenset(lower.rules())


@pytest.mark.usefixtures("device")
def test_launches_are_replayed_from_the_third_run_on() -> None:
    data = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    with Session(_chain(), "reference") as session:
        want = session.run([data])["y"]
    with Session(_chain(), "cuda") as session:
        for k in range(4):
            got = session.run([data * (k + 1)])["y"]
            np.testing.assert_allclose(got, want * (k + 1), rtol=1e-4, atol=1e-5)
        program = session.program
        assert isinstance(program, CudaProgram)
        assert len(program.native._graphs) == 1


@pytest.mark.usefixtures("device")
def test_results_do_not_change_with_the_next_run() -> None:
    data = np.ones((2, 3, 8, 8), np.float32)
    with Session(_chain(), "cuda") as session:
        first = session.run([data])["y"]
        kept = first.copy()
        session.run([2 * data])
        np.testing.assert_array_equal(first, kept)


@pytest.mark.usefixtures("device")
def test_operators_without_a_kernel_run_by_reference_code_and_are_listed() -> None:
    b = GraphBuilder()
    x = b.input("data", (4, 4))
    (values,) = b.apply("SVD", [b.add(x, np.float32(0))], (P.SVD(compute_uv=False),))
    b.output(b.mul(values, np.float32(2)), "y")
    data = np.eye(4, dtype=np.float32) * 4
    with Session(b.graph(), "cuda") as session:
        np.testing.assert_allclose(session.run([data])["y"], np.full(4, 8))
        report = session.program.report  # type: ignore[union-attr]
    assert report.fallback == {"SVD": 1}
    assert any("SVD: no kernel yet" in note for note in report.notes)


@pytest.mark.usefixtures("device")
def test_index_out_of_range_is_an_error_and_the_next_run_is_fine() -> None:
    b = GraphBuilder()
    table = b.input("table", (5, 3))
    rows = b.input("rows", (4,), dtype="Int32")
    b.output(b.take_rows(table, rows), "y")
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    with Session(b.graph(), "cuda") as session:
        good = np.array([0, 4, -1, 2], np.int32)
        np.testing.assert_array_equal(session.run([values, good])["y"], values[good])
        with pytest.raises(ExecutionError, match="an index is outside its axis"):
            session.run([values, np.array([0, 5, 1, 2], np.int32)])
        np.testing.assert_array_equal(session.run([values, good])["y"], values[good])


@pytest.mark.usefixtures("device")
def test_times_memory_and_profile_are_told() -> None:
    with Session(_chain(), "cuda") as session:
        data = np.ones((2, 3, 8, 8), np.float32)
        session.run([data])
        program = session.program
        assert isinstance(program, CudaProgram)
        _, parts = program.run_parts([data])
        times = program.times
        assert 0 < parts.device_ns <= times.wall
        assert times.launch + times.copy_in + times.copy_out <= times.wall
        spans = program.profile([data], 2)
        assert {n.op.name for s in spans for n in s.nodes} >= {"Convolution", "Elemwise"}
        assert all(len(s.spans) == 2 for s in spans)
        assert program.memory().weight_bytes == program.report.weight_bytes > 0


@pytest.mark.usefixtures("device")
def test_closed_program_refuses_to_run() -> None:
    session = Session(_chain(), "cuda")
    data = np.ones((2, 3, 8, 8), np.float32)
    session.run([data])
    program = session.program
    assert program is not None
    program.close()
    program.close()
    with pytest.raises(ExecutionError, match="closed"):
        program.run([data])
    session.close()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("shape", [(1, 64, 6, 6), (3, 8, 17, 5)])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolutions_of_odd_sizes_agree(shape: tuple[int, ...], groups: int) -> None:
    b = GraphBuilder()
    random = np.random.default_rng(2)
    weight = random.standard_normal((72, shape[1] // groups, 3, 3)).astype(np.float32)
    x = b.input("data", shape)
    b.output(
        b.conv2d(
            x, weight, random.standard_normal(72).astype(np.float32), padding=1, groups=groups
        ),
        "y",
    )
    data = random.standard_normal(shape).astype(np.float32)
    with Session(b.graph(), "reference") as session:
        want = session.run([data])["y"]
    with Session(b.graph(), "cuda") as session:
        got = session.run([data])["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("device")
def test_split_and_whole_sums_agree() -> None:
    random = np.random.default_rng(3)
    for channels, size, kernel, algorithm in ((128, 4, 3, "split"), (96, 96, 1, " tile <")):
        b = GraphBuilder()
        x = b.input("data", (2, channels, size, size))
        weight = random.standard_normal((96, channels, kernel, kernel)).astype(np.float32)
        b.output(b.relu(b.conv2d(x, weight, padding=kernel // 2)), "y")
        data = random.standard_normal((2, channels, size, size)).astype(np.float32)
        with Session(b.graph(), "reference") as session:
            want = session.run([data])["y"]
        with Session(b.graph(), "cuda") as session:
            got = session.run([data])["y"]
            assert algorithm in "\n".join(session.program.report.plan)  # type: ignore[union-attr]
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("device")
def test_sums_of_int8_products_are_exact() -> None:
    random = np.random.default_rng(4)
    b = GraphBuilder()
    x = b.input("data", (2, 40, 9, 9), dtype="Int8")
    weight = b.param(random.integers(-128, 128, (24, 40, 3, 3)).astype(np.int8))
    y = b.apply(
        "Convolution", [x, weight], params=(P.Convolution(pad_h=1, pad_w=1), P.ExecutionPolicy())
    )
    b.output(y[0], "y")
    data = random.integers(-128, 128, (2, 40, 9, 9)).astype(np.int8)
    with Session(b.graph(), "reference") as session:
        want = session.run([data])["y"]
    with Session(b.graph(), "cuda") as session:
        np.testing.assert_array_equal(session.run([data])["y"], want)
