"""The emulated device tells sound kernels from broken ones."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Gemm, Kernel
from mgeserial.errors import ExecutionError

pytestmark = pytest.mark.usefixtures("device")

_HEAD = """extern "C" __global__ void $NAME(float *x, int n) {
  int i = (int)(blockIdx.x * 64 + threadIdx.x);
"""
_REVERSE = "__shared__ float s[64]; s[threadIdx.x] = x[i]; %s x[i] = s[63 - threadIdx.x]; %s"


def _run(body: str, *, n: int = 64, count: int = 64, blocks: int = 1) -> np.ndarray:
    device = EmulatedDevice()
    try:
        kernel = Kernel.of("test", _HEAD + body + " }")
        function = device.build([kernel])[kernel.name]
        values = np.arange(n, dtype=np.float32)
        address = device.allocate(values.nbytes, "the values")
        device.upload(address, values)
        device.launch(function, (blocks, 1, 1), 64, [np.uint64(address), np.int32(count)])
        device.download(values, address)
        return values
    finally:
        device.close()


def test_every_thread_of_every_block_runs() -> None:
    got = _run("if (i < n) x[i] = (float)(2 * i);", n=200, count=200, blocks=4)
    np.testing.assert_array_equal(got, 2 * np.arange(200))


def test_barriers_and_shared_memory_work() -> None:
    body = _REVERSE % ("__syncthreads();", "")
    np.testing.assert_array_equal(_run(body), np.arange(64)[::-1])


def test_shuffles_add_up_a_warp() -> None:
    add = "for (int k = 16; k; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);"
    np.testing.assert_array_equal(
        _run(f"float v = x[i]; {add} x[i] = v;"), np.repeat([496.0, 1520.0], 32)
    )


def test_write_behind_a_buffer_is_found() -> None:
    with pytest.raises(ExecutionError, match=r"out of bounds: byte 256 of the values"):
        _run("if (i <= n) x[i + 1] = 1;")


def test_read_before_a_buffer_is_found() -> None:
    with pytest.raises(ExecutionError, match="out of bounds"):
        _run("x[i] = x[i - 1500];")


def test_write_into_the_slack_of_a_buffer_is_found() -> None:
    with pytest.raises(ExecutionError, match="out of the bounds of the values"):
        _run("if (i < n) x[i] = 1;", n=61, count=62)


def test_memory_that_nothing_wrote_is_not_a_number() -> None:
    got = _run("__shared__ float s[64]; if (i & 1) s[i] = 1; x[i] = s[i];")
    assert np.isnan(got[::2]).all()
    assert (got[1::2] == 1).all()


def test_barrier_that_some_threads_miss_is_found() -> None:
    with pytest.raises(ExecutionError, match="do not meet at the same barrier"):
        _run("if (threadIdx.x < 40) __syncthreads(); x[i] = 1;")


_COPY = """__shared__ chunk<float> s[16]; if (threadIdx.x < 16)
  copy_chunk(&s[threadIdx.x], x + 4 * threadIdx.x + %d, true); end_group(); %s __syncthreads();
  x[i] = s[threadIdx.x / 4].v[threadIdx.x %% 4] + 1;"""


def test_copy_to_shared_memory_is_there_after_the_wait() -> None:
    np.testing.assert_array_equal(_run(_COPY % (0, "wait_groups<0>();")), np.arange(64) + 1)


def test_copy_that_nothing_waited_for_is_not_there() -> None:
    assert np.isnan(_run(_COPY % (0, ""))).all()
    np.testing.assert_array_equal(_run(_COPY % (0, "wait_groups<0>();")), np.arange(64) + 1)


def test_copy_that_is_not_aligned_is_found() -> None:
    with pytest.raises(ExecutionError, match="not aligned to its size"):
        _run(_COPY % (1, "wait_groups<0>();"))


def test_copy_out_of_bounds_is_found_and_forgotten() -> None:
    with pytest.raises(ExecutionError, match="out of bounds"):
        _run(_COPY % (4, "wait_groups<0>();"))
    np.testing.assert_array_equal(_run(_COPY % (0, "wait_groups<0>();")), np.arange(64) + 1)


def test_missing_barrier_gives_garbage() -> None:
    got = _run(_REVERSE % ("", "__syncthreads();"))
    assert not (got == np.arange(64)[::-1]).all()


def test_kernel_that_does_not_compile_says_why() -> None:
    with pytest.raises(ExecutionError, match=r"g\+\+ refuses a kernel.*undeclared_name"):
        _run("x[i] = undeclared_name;")


def test_product_of_transposed_matrices() -> None:
    device = EmulatedDevice()
    random = np.random.default_rng(0)
    a = random.standard_normal((2, 5, 3)).astype(np.float32)
    b = random.standard_normal((2, 4, 5)).astype(np.float32)
    c = np.empty((2, 3, 4), np.float32)
    places = [device.allocate(x.nbytes) for x in (a, b, c)]
    for place, array in zip(places, (a, b), strict=False):
        device.upload(place, array)
    device.gemm(Gemm(2, 3, 4, 5, transpose_a=True, transpose_b=True), *places)
    device.download(c, places[2])
    device.close()
    np.testing.assert_allclose(c, a.swapaxes(1, 2) @ b.swapaxes(1, 2), rtol=1e-5)


def test_graph_refuses_copies() -> None:
    device = EmulatedDevice()
    place = device.allocate(4)
    with pytest.raises(ExecutionError, match="cannot be part of a graph"):
        device.capture(lambda: device.upload(place, np.zeros(1, np.float32)))
    device.close()
