"""`cudnn` against a stand-in of the frontend: what is asked for, which engines, errors."""

from __future__ import annotations

import importlib.util
import itertools
import sys

import numpy as np
import pytest
from fake_cudnn import FakeCudnn
from fake_cupy import Fake

from loadrun.backends.base import CompileOptions
from loadrun.backends.cuda import cublas, cudnn, device_cupy
from loadrun.backends.cuda.cudnn import Cudnn, build_graph
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.numpy_library import convolve
from loadrun.backends.cuda.plan import Convolution, Engine, Layout
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError
from mgeserial.ir.graph import Graph

pytestmark = pytest.mark.usefixtures("device")


def _first(*sizes: int) -> Layout:
    """Channels before pixels."""
    return sizes, tuple(int(np.prod(sizes[k + 1 :])) for k in range(len(sizes)))


def _last(*sizes: int) -> Layout:
    """Channels after pixels."""
    n, c, h, w = sizes
    return (n, c, h, w), (c * h * w, 1, w * c, c)


SPEC = Convolution(
    "float32", _first(2, 4, 5, 6), _first(6, 2, 3, 3), _first(2, 6, 5, 3), (1, 2), (1, 1), (1, 1)
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    found = FakeCudnn(EmulatedDevice()._within)
    monkeypatch.setitem(sys.modules, "cudnn", found.module)
    return found


def _engines(fake: FakeCudnn, spec: Convolution) -> list[str]:
    library = Cudnn(0x1000)
    names = [e.name for e in library.engines(spec)]
    library.close()
    assert fake.handles == set()
    return names


def test_engines_are_those_that_keep_our_promises(fake: FakeCudnn) -> None:
    import dataclasses

    assert _engines(fake, SPEC) == ["eng4_plain", "eng6_winograd", "eng7_last"]
    tf32 = dataclasses.replace(SPEC, tf32=True)
    assert _engines(fake, tf32) == ["eng1_tensor", "eng4_plain", "eng6_winograd"]
    half = dataclasses.replace(SPEC, dtype="float16")
    assert _engines(fake, half) == ["eng1_tensor", "eng4_plain", "eng7_last"]
    assert fake.streams == [0x1000] * 3


@pytest.mark.parametrize(
    "stage", ["validate", "build_operation_graph", "create_execution_plans", "check_support"]
)
def test_what_cudnn_refuses_has_no_engines(fake: FakeCudnn, stage: str) -> None:
    fake.refuse = stage
    library = Cudnn(0x1000)
    assert library.engines(SPEC) == ()
    assert library.engines(SPEC) == ()
    assert fake.calls.count(stage) == 1, "it is asked once"
    with pytest.raises(ExecutionError, match="cuDNN has no engine eng4_plain for conv 2x4x5x6"):
        library.convolve(SPEC, Engine("eng4_plain"), (1, 2, 3), 0)


@pytest.mark.parametrize("activation", ["", "relu", "relu6", "sigmoid", "tanh", "silu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("addend", [False, True])
@pytest.mark.parametrize("layout", [_first, _last])
def test_graph_computes_what_was_asked_for(
    fake: FakeCudnn, activation: str, bias: bool, addend: bool, layout: object
) -> None:
    make = _first if layout is _first else _last
    y = make(2, 6, 5, 3)
    spec = Convolution(
        "float32", make(2, 4, 5, 6), make(6, 2, 3, 3), y, (1, 2), (1, 1), (1, 1),
        bias=bias, addend=y[1] if addend else (), activation=activation,
    )  # fmt: skip
    device = EmulatedDevice()
    fake.memory = device._within
    random = np.random.default_rng(0)
    sizes = [240, 108, *[6] * bias, *[180] * addend]
    inputs = []
    for size in sizes:
        address = device.allocate(4 * size)
        device.upload(address, random.standard_normal(size).astype(np.float32))
        inputs.append(address)
    outputs = [device.allocate(4 * 180) for _ in range(2)]
    space = device.allocate(64)
    library = Cudnn(0x1000)
    library.convolve(spec, Engine("eng4_plain", 64), (*inputs, outputs[0]), space)
    convolve(spec, device._within, [*inputs, outputs[1]])
    got, want = (np.empty(180, np.float32) for _ in range(2))
    device.download(got, outputs[0])
    device.download(want, outputs[1])
    np.testing.assert_array_equal(got, want)
    assert np.isfinite(got).all()
    library.close()
    library.close()
    device.close()


def test_volumes_have_three_spatial_dimensions(fake: FakeCudnn) -> None:
    handle = fake.module.create_handle()
    spec = Convolution(
        "float16", _first(1, 3, 4, 5, 6), _first(2, 3, 3, 3, 3), _first(1, 2, 4, 5, 6),
        (1, 1, 1), (1, 1, 1), (1, 1, 1), bias=True,
    )  # fmt: skip
    _, tensors = build_graph(fake.module, spec, handle)
    assert [t.dim for t in tensors] == [
        [1, 3, 4, 5, 6], [2, 3, 3, 3, 3], [1, 2, 1, 1, 1], [1, 2, 4, 5, 6],
    ]  # fmt: skip


def test_failure_is_one_line(fake: FakeCudnn) -> None:
    library = Cudnn(0x1000)
    (engine, *_) = library.engines(SPEC)
    fake.fail = RuntimeError("CUDNN_STATUS_EXECUTION_FAILED\nand more")
    with pytest.raises(ExecutionError) as caught:
        library.convolve(SPEC, engine, (1, 2, 3), 4096)
    assert caught.value.message.endswith("CUDNN_STATUS_EXECUTION_FAILED")
    with pytest.raises(ExecutionError, match="cuDNN cannot be used: CUDNN_STATUS_EXEC"):
        Cudnn(0x1000)


def test_reasons_name_the_way_out(fake: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        cudnn.importlib.util, "find_spec", lambda n: object() if n == "cudnn" else find(n)
    )
    assert cudnn.reason_missing() is None
    del fake.module.pygraph
    assert "has no pygraph" in str(cudnn.reason_missing())
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert "cannot be imported" in str(cudnn.reason_missing())
    monkeypatch.setattr(cudnn.importlib.util, "find_spec", lambda name: None)
    assert cudnn.reason_missing() == (
        "nvidia-cudnn-frontend is not installed; "
        "run `pip install mgeserial[cudnn] nvidia-cudnn-cu12` (or -cu13)"
    )


# -- through CuPy's stand-in ---------------------------------------------------------------------


def _net() -> Graph:
    b = GraphBuilder()
    random = np.random.default_rng(5)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    x = b.input("data", (2, 4, 6, 6))
    y = b.relu(b.conv2d(x, weights(4, 4, 3, 3), weights(4), padding=1))
    b.output(b.add(b.conv2d(y, weights(4, 4, 1, 1)), x), "y")
    return b.graph()


@pytest.fixture
def gpu(fake: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> Fake:
    import ctypes

    monkeypatch.delenv("LOADRUN_CUDA")
    found = Fake()
    fake.memory = lambda at, n: np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(at))
    monkeypatch.setitem(sys.modules, "cupy", found.module)
    monkeypatch.setattr(
        device_cupy.importlib.util, "find_spec", lambda name: name in ("cupy", "cudnn") or None
    )
    monkeypatch.setattr(cublas, "find_library", lambda major: None)
    return found


def test_network_runs_by_cudnn_where_that_is_chosen(gpu: Fake, fake: FakeCudnn) -> None:
    data = np.random.default_rng(6).standard_normal((2, 4, 6, 6)).astype(np.float32)
    with Session(_net(), "reference") as session:
        want = session.run([data])["y"]
    with Session(_net(), "cuda", options=CompileOptions(fast_run=True)) as session:
        session.run([data])
        assert session.program is not None
        choices, algorithms = session.program.report.choices, session.program.report.algorithms
    names = [n for n in choices[0].times_ns if n.startswith("cudnn")]
    assert names == ["cudnn eng4_plain", "cudnn eng6_winograd", "cudnn eng7_last"]
    for name in itertools.chain(names[:1], names[2:]):
        given = algorithms
        for choice in choices:
            given = given.replace(f'"{choice.choice}"', f'"{name}"')
        fake.calls.clear()
        with Session(_net(), "cuda", options=CompileOptions(algorithms=given)) as session:
            for _ in range(4):
                np.testing.assert_allclose(session.run([data])["y"], want, rtol=1e-4, atol=1e-4)
            assert session.program is not None
            assert [c.choice for c in session.program.report.choices] == [name] * 2
            # Once directly, once while it is recorded; replays start nothing.
            assert fake.calls.count(f"execute {name[6:]}") == 4


def test_cudnn_that_cannot_start_is_one_note(gpu: Fake, fake: FakeCudnn) -> None:
    fake.fail = RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")
    with Session(_net(), "cuda", options=CompileOptions(fast_run=True)) as session:
        session.run([np.ones((2, 4, 6, 6), np.float32)])
        assert session.program is not None
        notes = [n for n in session.program.report.notes if "cuDNN" in n]
    assert notes == [
        "cuDNN's convolutions are no candidates: cuDNN cannot be used: CUDNN_STATUS_NOT_INITIALIZED"
    ]
