"""A GPU through CuPy: as little as the backend needs, by CuPy's documented interface.

Source: CuPy's reference manual (RawModule, RawKernel, Stream, Event, graphs, pinned memory).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loadrun.backends.cuda import source
from loadrun.backends.cuda.device import check_number
from loadrun.backends.cuda.plan import Array, Gemm, Kernel
from mgeserial.errors import ExecutionError

__all__ = ["CupyDevice", "reason_missing"]

_INSTALL = (
    "run `pip install mgeserial[cuda12]` (or cuda13), as fits the driver that nvidia-smi shows"
)


def reason_missing() -> str | None:
    """Why no GPU can be used, with the way out; None: one can."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {_INSTALL}"
    try:
        import cupy
    except Exception as error:  # CuPy raises whatever its missing libraries make it raise
        return f"CuPy cannot be imported ({error}); {_INSTALL}"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        return f"no CUDA driver answers ({error}); install NVIDIA's driver"
    return None if count else "the driver knows no CUDA device"


class CupyDevice:
    """One GPU, with one stream."""

    guarded = False
    emulated = False

    def __init__(self, number: int = 0) -> None:
        import cupy

        self._cupy = cupy
        check_number(number, int(cupy.cuda.runtime.getDeviceCount()))
        self.number = number
        self._device = cupy.cuda.Device(number)
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        self.name = f"{properties['name'].decode()} (CUDA device {number})"
        self.capability: tuple[int, int] | None = (
            int(properties["major"]), int(properties["minor"]),
        )  # fmt: skip
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._memory: dict[int, Any] = {}
        self._pinned: list[Any] = []
        self._modules: list[Any] = []
        self._factors = (np.ones(1, np.float32), np.zeros(1, np.float32))

    # -- memory
    def allocate(self, nbytes: int, name: str = "") -> int:
        """A block of its own, outside of CuPy's pool."""
        with self._device:
            try:
                block = self._cupy.cuda.Memory(max(1, nbytes))
            except self._cupy.cuda.runtime.CUDARuntimeError as error:
                raise ExecutionError(
                    f"the device has no {nbytes} bytes for {name}: {error}"
                ) from error
        self._memory[int(block.ptr)] = block
        return int(block.ptr)

    def free(self, address: int) -> None:
        """Give a block back."""
        self._memory.pop(address)

    def host(self, shape: Sequence[int], dtype: str) -> Array:
        """An array in pinned memory."""
        count = int(np.prod(tuple(shape), dtype=np.int64))
        size = count * np.dtype(dtype).itemsize
        with self._device:
            block = self._cupy.cuda.alloc_pinned_memory(max(1, size))
        self._pinned.append(block)
        return np.frombuffer(block, dtype, count).reshape(tuple(shape))

    def upload(self, address: int, array: Array) -> None:
        """Start a copy to the device."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            runtime.memcpyAsync(
                address,
                array.ctypes.data,
                array.nbytes,
                runtime.memcpyHostToDevice,
                self._stream.ptr,
            )

    def download(self, array: Array, address: int) -> None:
        """Start a copy from the device."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            runtime.memcpyAsync(
                array.ctypes.data,
                address,
                array.nbytes,
                runtime.memcpyDeviceToHost,
                self._stream.ptr,
            )

    # -- code
    def build(self, kernels: Sequence[Kernel]) -> dict[str, Any]:
        """Compile one module by NVRTC; CuPy keeps it in its cache on disk."""
        if not kernels:
            return {}
        text = "\n".join([source.prelude(), *(k.source for k in kernels)])
        with self._device:
            module = self._cupy.RawModule(code=text, options=source.OPTIONS, backend="nvrtc")
            try:
                found = {k.name: module.get_function(k.name) for k in kernels}
            except self._cupy.cuda.compiler.CompileException as error:
                raise ExecutionError(f"NVRTC refuses a kernel: {error}") from error
        self._modules.append(module)
        return found

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[np.generic],
    ) -> None:
        """Start a kernel."""
        with self._device, self._stream:
            function(grid, (block, 1, 1), tuple(args))

    def gemm(self, spec: Gemm, a: int, b: int, c: int) -> None:
        """cuBLAS: row-major C = A B is column-major C' = B' A'; it makes no temporary arrays."""
        from cupy.cuda import cublas

        (m, n, k), count = (spec.m, spec.n, spec.k), spec.batch
        op = (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T)
        lda, ldb = m if spec.transpose_a else k, k if spec.transpose_b else n
        one, zero = (x.ctypes.data for x in self._factors)
        with self._device, self._stream:
            handle = self._cupy.cuda.device.get_cublas_handle()
            cublas.sgemmStridedBatched(
                handle, op[spec.transpose_b], op[spec.transpose_a], n, m, k, one,
                b, ldb, k * n, a, lda, m * k, zero, c, n, m * n, count,
            )  # fmt: skip

    # -- the stream
    def capture(self, work: Callable[[], None]) -> Any | None:
        """Record what `work` starts; None where something in it cannot be recorded."""
        with self._device, self._stream:
            self._stream.begin_capture()
            try:
                work()
            except Exception:
                # The capture must be ended before anything else can use the stream.
                try:
                    self._stream.end_capture()
                except Exception:
                    self._stream = self._cupy.cuda.Stream(non_blocking=True)
                return None
            return self._stream.end_capture()

    def replay(self, graph: Any) -> None:
        """Start a recorded graph."""
        with self._device:
            graph.launch(self._stream)

    def event(self) -> Any:
        """Record an event."""
        with self._device:
            event = self._cupy.cuda.Event()
            event.record(self._stream)
        return event

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Time between two events, ns."""
        return int(self._cupy.cuda.get_elapsed_time(first, second) * 1e6)

    def synchronize(self) -> None:
        """Wait for the stream."""
        try:
            self._stream.synchronize()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise ExecutionError(f"the device failed: {error}") from error

    def close(self) -> None:
        """Free everything, once nothing runs any more."""
        self._stream.synchronize()
        self._modules.clear()
        self._memory.clear()
        self._pinned.clear()
