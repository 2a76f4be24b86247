"""`device_cupy` against a stand-in of CuPy: streams, events, graphs, memory, libraries, errors."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_cupy import CompileException, CUDADriverError, CUDARuntimeError, Fake, OutOfMemoryError

from loadrun.backends import base
from loadrun.backends.base import CompileOptions
from loadrun.backends.cuda import cublas, device_cupy
from loadrun.backends.cuda.backend import CudaProgram
from loadrun.backends.cuda.device_cupy import CupyDevice
from loadrun.backends.cuda.emulated import _bytes
from loadrun.backends.cuda.numpy_library import matrix_product
from loadrun.backends.cuda.plan import Gemm, Kernel
from loadrun.cli import main
from loadrun.session import Session
from mgeserial.author import GraphBuilder
from mgeserial.errors import ExecutionError, InputError, UnsupportedError
from mgeserial.ir.graph import Graph

HERE = Path(__file__).parent
KERNEL = Kernel.of(
    "twice",
    """extern "C" __global__ void $NAME(float *x, int n) {
  int i = (int)(blockIdx.x * 32 + threadIdx.x);
  if (i < n) x[i] *= 2.f;
}
""",
)


@pytest.fixture
def fake(device: None, monkeypatch: pytest.MonkeyPatch, cublas_stub: ctypes.CDLL) -> Iterator[Fake]:
    """CuPy with two devices and a cuBLAS."""
    monkeypatch.delenv("LOADRUN_CUDA")
    found = Fake()
    monkeypatch.setitem(sys.modules, "cupy", found.module)
    monkeypatch.setattr(device_cupy.importlib.util, "find_spec", lambda name: name == "cupy")
    monkeypatch.setattr(cublas, "find_library", lambda major: cublas_stub)
    yield found
    assert found.current == []
    assert found.streams == []


@pytest.fixture(scope="session")
def cublas_stub(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("cublas") / "stub.so"
    command = ["g++", "-x", "c++", "-fpermissive", "-w", "-shared", "-fPIC", "-o", str(target)]
    text = (HERE / "cublas_stub.c").read_text(encoding="utf-8")
    source = target.with_suffix(".cpp")
    source.write_text(f'extern "C" {{\n{text}\n}}\n', encoding="utf-8")
    subprocess.run([*command, str(source)], check=True)
    return ctypes.CDLL(str(target))


def _net() -> Graph:
    b = GraphBuilder()
    random = np.random.default_rng(0)
    x = b.input("data", (2, 3, 10, 10))
    w = random.standard_normal((8, 3, 3, 3)).astype(np.float32)
    y = b.relu(b.conv2d(x, w, padding=1))
    z = b.flatten(b.global_avg_pool2d(y))
    b.output(b.linear(z, random.standard_normal((5, 8)).astype(np.float32), None), "y")
    return b.graph()


def _products() -> Graph:
    b = GraphBuilder()
    x = b.input("data", (128, 160))
    w = np.random.default_rng(1).standard_normal((160, 128)).astype(np.float32)
    b.output(b.relu(b.matmul(x, w)), "y")
    return b.graph()


# -- whole networks ------------------------------------------------------------------------------


def test_network_runs_is_recorded_and_replayed(fake: Fake) -> None:
    data = np.random.default_rng(2).standard_normal((2, 3, 10, 10)).astype(np.float32)
    with Session(_net(), "reference") as session:
        want = session.run([data])["y"]
    with Session(_net(), "cuda") as session:
        for turn in range(4):
            np.testing.assert_allclose(session.run([data])["y"], want, rtol=1e-4, atol=1e-5)
            assert fake.count("end_capture") == (1 if turn else 0)
            assert fake.count("launch_graph") == turn
        assert session.program is not None
        assert any("replayed as a CUDA graph" in n for n in session.program.report.notes)
    gc.collect()
    assert fake.live == set()


def test_products_of_the_library_are_part_of_the_graph(fake: Fake, cublas_stub) -> None:  # type: ignore[no-untyped-def]
    created = cublas_stub.stub_created()
    data = np.random.default_rng(3).standard_normal((128, 160)).astype(np.float32)
    with Session(_products(), "reference") as session:
        want = session.run([data])["y"]
    with Session(_products(), "cuda") as session:
        for _ in range(3):
            np.testing.assert_allclose(session.run([data])["y"], want, rtol=1e-3, atol=1e-3)
        assert isinstance(session.program, CudaProgram)
        assert session.program.native.graphs == 1
        assert "gemm_nn" in "\n".join(session.program.report.plan)
    assert cublas_stub.stub_created() == created + 1
    assert cublas_stub.stub_destroyed() == created + 1
    assert cublas_stub.stub_space() == cublas.WORKSPACE_BYTES
    assert cublas_stub.stub_math() == 0


def test_without_cublas_products_have_kernels_of_our_own(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublas, "find_library", lambda major: None)
    with Session(_products(), "cuda") as session:
        session.run([np.ones((128, 160), np.float32)])
        assert session.program is not None
        assert "gemm_nn" not in "\n".join(session.program.report.plan)


def test_device_that_cannot_record_runs_and_says_so(fake: Fake) -> None:
    fake.fail["begin_capture"] = CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
    with Session(_net(), "cuda") as session:
        results = [session.run([np.ones((2, 3, 10, 10), np.float32)])["y"] for _ in range(3)]
        assert session.program is not None
        assert any("the device refused" in n for n in session.program.report.notes)
    assert fake.count("launch_graph") == 0
    np.testing.assert_array_equal(results[0], results[2])


def test_failed_recording_leaves_the_stream_usable(fake: Fake) -> None:
    device = CupyDevice()

    def broken() -> None:
        raise NotImplementedError("cannot be recorded")

    assert device.capture(broken) is None
    device.synchronize()
    fake.fail["end_capture"] = CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
    assert device.capture(lambda: None) is None
    del fake.fail["end_capture"]
    assert device.capture(lambda: None) is not None
    device.close()


def test_profile_holds_the_device_and_counts_without_it(fake: Fake) -> None:
    with Session(_net(), "cuda") as session:
        spans = session.profile([np.ones((2, 3, 10, 10), np.float32)], repeat=2)
    # Events are 125 us apart on the stand-in: one between two steps.
    assert all(s.spans == (s.spans[0],) * 2 and s.spans[0][1] == 125_000 for s in spans)
    assert [s.spans[0][0] for s in spans] == [k * 125_000 for k in range(len(spans))]
    assert sum(name.startswith("hold_") for name in fake.launched) == 2


def test_times_come_from_two_events_that_are_used_again(fake: Fake) -> None:
    with Session(_net(), "cuda") as session:
        for _ in range(4):
            session.run([np.ones((2, 3, 10, 10), np.float32)])
            assert isinstance(session.program, CudaProgram)
            assert session.program.times.device == 125_000
    assert fake.count("Event") == 2
    assert fake.count("record") == 8


# -- devices -------------------------------------------------------------------------------------


def test_second_device_is_used_when_asked_for(fake: Fake) -> None:
    device = CupyDevice(1)
    assert device.name == "Test GPU (CUDA device 1)"
    assert device.capability == (9, 0)
    assert device.model == "Test GPU sm_90 CUDA 12090"
    with pytest.raises(InputError, match="no CUDA device 2: 0 to 1"):
        CupyDevice(2)
    with Session(_net(), device="gpu1") as session:
        session.run([np.ones((2, 3, 10, 10), np.float32)])
        assert session.program is not None
        assert "device: Test GPU (CUDA device 1)" in session.program.report.notes


def test_auto_takes_cuda_where_a_device_answers(fake: Fake) -> None:
    assert base.choose().name == "cuda"
    fake.devices = 0
    assert base.choose().name == "cpu"


def test_no_driver_is_one_line_and_exit_code_3(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fail["getDeviceCount"] = CUDARuntimeError(
        "cudaErrorInsufficientDriver: CUDA driver version is insufficient\nmore lines"
    )
    from option_cases import CONV

    assert main([CONV, "--cuda"]) == 3
    error = capsys.readouterr().err
    assert "no CUDA driver answers (cudaErrorInsufficientDriver" in error
    assert "install NVIDIA's driver" in error
    assert "Traceback" not in error
    assert "more lines" not in error


def test_cupy_that_cannot_be_imported_is_one_line(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnsupportedError, match="CuPy cannot be imported"):
        base.get_backend("cuda")


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
        OutOfMemoryError("Out of memory allocating 9 bytes"),
    ],
)
def test_no_memory_says_for_what(fake: Fake, error: Exception) -> None:
    device = CupyDevice()
    fake.fail["Memory"] = error
    with pytest.raises(ExecutionError, match=r"no 1024 bytes for the arena: .*ut of memory"):
        device.allocate(1024, "the arena")
    fake.fail["alloc_pinned_memory"] = error
    with pytest.raises(ExecutionError, match="no 40 bytes of pinned memory"):
        device.host((2, 5), "float32")


def test_session_survives_a_device_without_memory(fake: Fake) -> None:
    fake.fail["Memory"] = CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
    with Session(_net(), "cuda") as session:
        with pytest.raises(ExecutionError, match="out of memory"):
            session.run([np.ones((2, 3, 10, 10), np.float32)])
        fake.fail.clear()
        session.run([np.ones((2, 3, 10, 10), np.float32)])


def test_failure_on_the_device_is_an_error_and_closing_works(fake: Fake) -> None:
    session = Session(_net(), "cuda")
    data = [np.ones((2, 3, 10, 10), np.float32)]
    session.run(data)
    fake.fail["synchronize"] = CUDARuntimeError("cudaErrorIllegalAddress: an illegal access")
    with pytest.raises(ExecutionError, match=r"Test GPU.*it failed: cudaErrorIllegalAddress"):
        session.run(data)
    session.close()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CompileException("x.cu(3): error: expected a ;"), "NVRTC refuses a kernel: x.cu"),
        (RuntimeError("CuPy failed to load libnvrtc.so.12"), "NVRTC cannot be used: CuPy failed"),
        (ImportError("no libnvrtc"), "NVRTC cannot be used: no libnvrtc"),
        (CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU"), "cannot be loaded: CUDA_ERROR_NO_BINARY"),
    ],
)
def test_compiler_that_refuses_is_one_error(fake: Fake, error: Exception, text: str) -> None:
    device = CupyDevice()
    fake.fail["compile"] = error
    with pytest.raises(ExecutionError) as caught:
        device.build([KERNEL])
    assert text in caught.value.message


def test_launch_that_fails_is_an_error(fake: Fake) -> None:
    device = CupyDevice()
    function = device.build([KERNEL])[KERNEL.name]
    fake.fail["launch"] = CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(ExecutionError, match="a kernel cannot be started: CUDA_ERROR_INVALID"):
        device.launch(function, (1, 1, 1), 32, [np.uint64(0), np.int32(0)])


# -- pieces --------------------------------------------------------------------------------------


def test_memory_goes_up_and_down_and_back(fake: Fake) -> None:
    device = CupyDevice()
    array = device.host((3, 4), "float32")
    array[...] = np.arange(12).reshape(3, 4)
    address = device.allocate(array.nbytes)
    assert address % 256 == 0
    device.upload(address, array)
    function = device.build([KERNEL])[KERNEL.name]
    device.launch(function, (1, 1, 1), 32, [np.uint64(address), np.int32(12)])
    back = np.empty((3, 4), np.float32)
    device.download(back, address)
    device.synchronize()
    np.testing.assert_array_equal(back, 2 * array)
    device.upload(address, np.empty(0, np.float32))  # nothing to do, and no error
    device.free(address)
    assert address not in fake.live
    device.close()
    device.close()


def test_pinned_memory_lives_as_long_as_its_array(fake: Fake) -> None:
    device = CupyDevice()
    array = device.host((5,), "int32")
    device.close()
    array[...] = 7
    assert array.sum() == 35
    assert device.host((0, 3), "float32").shape == (0, 3)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("tf32", [False, True])
def test_cublas_gets_the_right_arguments(
    fake: Fake, cublas_stub: ctypes.CDLL, turned: tuple[bool, bool], tf32: bool
) -> None:
    device = CupyDevice()
    spec = Gemm(2, 3, 4, 5, *turned)
    random = np.random.default_rng(4)
    a = random.standard_normal((2, 3, 5)).astype(np.float32)
    b = random.standard_normal((2, 5, 4)).astype(np.float32)
    stored = [
        np.ascontiguousarray(x.swapaxes(1, 2) if t else x)
        for x, t in zip((a, b), turned, strict=True)
    ]
    places = [device.allocate(x.nbytes) for x in (*stored, np.empty((2, 3, 4), np.float32))]
    for place, array in zip(places, stored, strict=False):
        device.upload(place, array)
    device.gemm(dataclasses.replace(spec, tf32=tf32), *places)
    got = np.empty((2, 3, 4), np.float32)
    device.download(got, places[2])
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)
    assert cublas_stub.stub_math() == (3 if tf32 else 0)
    device.close()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_cublas_multiplies_halves_and_one_matrix_by_many(
    fake: Fake, dtype: str, turned: tuple[bool, bool]
) -> None:
    device = CupyDevice()
    spec = Gemm(3, 3, 4, 5, *turned, dtype=dtype, shared_a=True)
    random = np.random.default_rng(5)
    a = random.integers(-64, 64, (1, 3, 5)).astype(np.float32) / 16
    b = random.integers(-64, 64, (3, 5, 4)).astype(np.float32) / 16  # exact in all three types
    places = []
    for x, turn in zip((a, b), turned, strict=True):
        array = np.ascontiguousarray(x.swapaxes(1, 2) if turn else x)
        if dtype == "bfloat16":
            array = (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        elif dtype == "float16":
            array = array.astype(np.float16)
        places.append(device.allocate(array.nbytes))
        device.upload(places[-1], array)
    places.append(device.allocate(144))
    device.gemm(spec, *places)
    got = np.empty((3, 3, 4), np.float32)
    device.download(got, places[2])
    np.testing.assert_array_equal(got, a @ b)
    np.testing.assert_array_equal(matrix_product(spec, _bytes, *places[:2]), a @ b)
    device.close()


def test_cublas_that_fails_says_how(fake: Fake, cublas_stub: ctypes.CDLL) -> None:
    device = CupyDevice()
    cublas_stub.stub_fail(3)
    try:
        with pytest.raises(ExecutionError, match="cuBLAS: cublasCreate_v2: no memory"):
            device.gemm(Gemm(1, 1, 1, 1), 0, 0, 0)
    finally:
        cublas_stub.stub_fail(0)


def test_launches_start_one_by_one_when_asked_for(fake: Fake) -> None:
    options = CompileOptions(record=0)
    with Session(_net(), "cuda", options=options) as session:
        for _ in range(3):
            session.run([np.ones((2, 3, 10, 10), np.float32)])
        assert session.program is not None
        assert any("one by one" in n for n in session.program.report.notes)
    assert fake.count("begin_capture") == 0


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("before", [None, "0"])
def test_compiled_code_stays_off_the_disk_when_asked_for(
    fake: Fake, cache: bool, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    if before is not None:
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", before)
    with Session(_net(), "cuda", options=CompileOptions(cache=cache)) as session:
        session.run([np.ones((2, 3, 10, 10), np.float32)])
    assert fake.on_disk
    assert set(fake.on_disk) == {cache}
    assert os.environ.get("CUPY_CACHE_IN_MEMORY") == before
