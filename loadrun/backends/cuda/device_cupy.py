"""A GPU through CuPy: as little as the backend needs, by CuPy's documented interface.

Source: CuPy's reference manual (RawModule, RawKernel, Stream, Event, graphs, pinned memory) and the
signatures of CuPy 14.2.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from loadrun.backends.cuda import cublas, cudnn, source
from loadrun.backends.cuda.device import check_number
from loadrun.backends.cuda.plan import Array, Convolution, Engine, Gemm, Kernel
from mgeserial.errors import ExecutionError

__all__ = ["CupyDevice", "reason_missing"]

_INSTALL = (
    "run `pip install mgeserial[cuda12]` (or cuda13), as fits the driver that nvidia-smi shows"
)
# Longest time that `hold` keeps a stream busy, so that nothing seems to hang.
_LONGEST_HOLD_NS = 50_000_000
# CuPy's variable: whether compiled code is kept in memory alone.
_IN_MEMORY = "CUPY_CACHE_IN_MEMORY"
_environment = threading.Lock()
_HOLD = Kernel.of(
    "hold",
    """extern "C" __global__ void $NAME(unsigned long long ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
}
""",
)


def reason_missing() -> str | None:
    """Why no GPU can be used, with the way out; None: one can."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {_INSTALL}"
    try:
        import cupy
    except Exception as error:  # CuPy raises whatever its missing libraries make it raise
        return f"CuPy cannot be imported ({_first_line(error)}); {_INSTALL}"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        return f"no CUDA driver answers ({_first_line(error)}); install NVIDIA's driver"
    return None if count else "the driver knows no CUDA device"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


@contextlib.contextmanager
def _on_disk(*, cache: bool) -> Iterator[None]:
    """Let CuPy keep what is compiled meanwhile on disk, or not; it looks at each compilation."""
    if cache:
        yield
        return
    with _environment:
        before = os.environ.get(_IN_MEMORY)
        os.environ[_IN_MEMORY] = "1"
        try:
            yield
        finally:
            del os.environ[_IN_MEMORY]
            if before is not None:
                os.environ[_IN_MEMORY] = before


class _Calls:
    """Calls of CuPy on a device; a class, since a generator would take twice as long in every run.

    Args:
        device: The device, which is the current one meanwhile.
        what: What is said to have failed.
    """

    __slots__ = ("_device", "_what")

    def __init__(self, device: CupyDevice, what: str) -> None:
        self._device, self._what = device, what

    def __enter__(self) -> None:
        self._device.context.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._device.context.__exit__(kind, error, trace)
        if isinstance(error, self._device.failures):
            raise ExecutionError(
                f"{self._device.name}: {self._what}: {_first_line(error)}"
            ) from error


class CupyDevice:
    """One GPU, with one stream.

    Args:
        number: Which, from 0.
        cache: Whether CuPy may keep compiled code on disk.

    Attributes:
        context: CuPy's device, to make it the current one.
        failures: Errors that CUDA and CuPy raise.
    """

    guarded = False
    emulated = False

    def __init__(self, number: int = 0, *, cache: bool = True) -> None:
        import cupy

        self._cupy, self._cache = cupy, cache
        runtime = cupy.cuda.runtime
        check_number(number, int(runtime.getDeviceCount()))
        self.number = number
        properties = runtime.getDeviceProperties(number)
        name = properties["name"].decode(errors="replace")
        major, minor = int(properties["major"]), int(properties["minor"])
        self.capability: tuple[int, int] | None = (major, minor)
        self.name = f"{name} (CUDA device {number})"
        self._release = int(runtime.runtimeGetVersion())
        self.model = f"{name} sm_{major}{minor} CUDA {self._release}"
        self.context: Any = cupy.cuda.Device(number)
        self.failures: tuple[type[BaseException], ...] = (
            runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
            cupy.cuda.memory.OutOfMemoryError,
        )
        self._memory: dict[int, Any] = {}
        self._modules: list[Any] = []
        self._hold: Any = None
        self._cublas: cublas.Cublas | None = None
        self._cudnn: cudnn.Cudnn | None = None
        self._no_cudnn: str | None = None
        with self._calls("it has no stream"):
            self._stream = cupy.cuda.Stream(non_blocking=True)

    def _calls(self, what: str) -> _Calls:
        """Make the device the current one; the driver's errors become ours."""
        return _Calls(self, what)

    # -- memory
    def allocate(self, nbytes: int, name: str = "") -> int:
        """A block of its own, outside of CuPy's pool."""
        with self._calls(f"no {nbytes} bytes for {name or 'a buffer'}"):
            block = self._cupy.cuda.Memory(max(1, nbytes))
        self._memory[int(block.ptr)] = block
        return int(block.ptr)

    def free(self, address: int) -> None:
        """Give a block back."""
        del self._memory[address]

    def host(self, shape: Sequence[int], dtype: str) -> Array:
        """An array in pinned memory, which lives as long as the array."""
        count = int(np.prod(tuple(shape), dtype=np.int64))
        size = count * np.dtype(dtype).itemsize
        with self._calls(f"no {size} bytes of pinned memory"):
            block = self._cupy.cuda.alloc_pinned_memory(max(1, size))
        return np.frombuffer(block, dtype, count).reshape(tuple(shape))

    def upload(self, address: int, array: Array) -> None:
        """Start a copy to the device."""
        self._copy(address, array.ctypes.data, array.nbytes, "memcpyHostToDevice")

    def download(self, array: Array, address: int) -> None:
        """Start a copy from the device."""
        self._copy(array.ctypes.data, address, array.nbytes, "memcpyDeviceToHost")

    def _copy(self, to: int, source_: int, nbytes: int, kind: str) -> None:
        if not nbytes:
            return
        runtime = self._cupy.cuda.runtime
        with self._calls("a copy failed"):
            runtime.memcpyAsync(to, source_, nbytes, getattr(runtime, kind), self._stream.ptr)

    # -- code
    def build(self, kernels: Sequence[Kernel]) -> dict[str, Any]:
        """Compile one module by NVRTC; CuPy keeps it in its cache on disk.

        Raises:
            ExecutionError: NVRTC is missing, or refuses a kernel.
        """
        if not kernels:
            return {}
        text = "\n".join([source.prelude(), *(k.source for k in kernels)])
        compile_error = self._cupy.cuda.compiler.CompileException
        try:
            with self._calls("the kernels cannot be loaded"), _on_disk(cache=self._cache):
                module = self._cupy.RawModule(code=text, options=source.OPTIONS, backend="nvrtc")
                found = {k.name: module.get_function(k.name) for k in kernels}
        except compile_error as error:
            raise ExecutionError(f"NVRTC refuses a kernel: {str(error)[:2000]}") from error
        except (ImportError, OSError, RuntimeError) as error:  # as CuPy says that NVRTC is missing
            raise ExecutionError(
                f"NVRTC cannot be used: {_first_line(error)}", hint=_INSTALL
            ) from error
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
        with self._calls("a kernel cannot be started"), self._stream:
            function(grid, (block, 1, 1), tuple(args))

    # -- libraries
    @property
    def library(self) -> bool:
        """Whether cuBLAS is installed."""
        return cublas.find_library(self._release // 1000) is not None

    def gemm(self, spec: Gemm, a: int, b: int, c: int) -> None:
        """cuBLAS."""
        with self._calls(str(spec)):
            if self._cublas is None:
                library = cublas.find_library(self._release // 1000)
                if library is None:
                    raise ExecutionError("cuBLAS is not installed", hint=_INSTALL)
                space = self.allocate(cublas.WORKSPACE_BYTES, "cuBLAS")
                self._cublas = cublas.Cublas(library, int(self._stream.ptr), space)
            self._cublas.gemm(spec, a, b, c)

    def no_convolutions(self) -> str | None:
        """Why cuDNN cannot be used; it is tried once."""
        if self._cudnn is None and self._no_cudnn is None:
            self._no_cudnn = cudnn.reason_missing()
            if self._no_cudnn is None:
                try:
                    with self._calls("cuDNN"):
                        self._cudnn = cudnn.Cudnn(int(self._stream.ptr))
                except ExecutionError as error:
                    self._no_cudnn = error.message
        return self._no_cudnn

    def engines(self, spec: Convolution) -> tuple[Engine, ...]:
        """cuDNN's engines."""
        if self.no_convolutions() is not None or self._cudnn is None:
            return ()
        with self._calls("cuDNN"):
            return self._cudnn.engines(spec)

    def convolve(
        self, spec: Convolution, engine: Engine, tensors: Sequence[int], workspace: int
    ) -> None:
        """cuDNN."""
        reason = self.no_convolutions()
        if self._cudnn is None:
            raise ExecutionError(f"cuDNN cannot be used: {reason}")
        with self._calls(str(spec)):
            self._cudnn.convolve(spec, engine, tensors, workspace)

    # -- the stream
    def capture(self, work: Callable[[], None]) -> Any | None:
        """Record what `work` starts; None where something in it cannot be recorded."""
        with self.context, self._stream:
            try:
                self._stream.begin_capture()
                work()
                graph = self._stream.end_capture()
                graph.upload(self._stream)  # else the first replay would do it
                return graph
            except Exception:  # CuPy, CUDA and the libraries refuse in ways of their own
                self._stop_capture()
                return None

    def _stop_capture(self) -> None:
        """End a capture that went wrong, before anything else can use the stream."""
        with contextlib.suppress(Exception):
            if self._stream.is_capturing():
                self._stream.end_capture()

    def replay(self, graph: Any) -> None:
        """Start a recorded graph."""
        with self._calls("a graph cannot be started"):
            graph.launch(self._stream)

    def hold(self, nanoseconds: int) -> None:
        """A kernel that waits, 50 ms at most."""
        if nanoseconds <= 0:
            return
        if self._hold is None:
            self._hold = self.build([_HOLD])[_HOLD.name]
        self.launch(self._hold, (1, 1, 1), 32, [np.uint64(min(nanoseconds, _LONGEST_HOLD_NS))])

    def event(self, again: Any = None) -> Any:
        """Record an event, a new one or one again."""
        with self._calls("an event"):
            event = self._cupy.cuda.Event() if again is None else again
            event.record(self._stream)
        return event

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Time between two events, ns."""
        with self._calls("times"):
            return int(self._cupy.cuda.get_elapsed_time(first, second) * 1e6)

    def synchronize(self) -> None:
        """Wait for the stream."""
        with self._calls("it failed"):
            self._stream.synchronize()

    def close(self) -> None:
        """Free everything, once nothing runs any more. Safe after a failure, and to call twice."""
        with contextlib.suppress(ExecutionError):
            self.synchronize()
        for library in (self._cublas, self._cudnn):
            with contextlib.suppress(Exception), self.context:
                if library is not None:
                    library.close()
        self._cublas = self._cudnn = None
        self._modules.clear()
        self._memory.clear()
