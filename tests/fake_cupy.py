"""A module that stands for CuPy: the same calls with the same arguments, over memory of the host.

Kernels are compiled by g++ as on the emulated device, so that whole networks run through
`device_cupy` without a GPU. Every call is noted in `Fake.calls`; faults are put in by `Fake.fail`.
Signatures are those of CuPy 14.2.
"""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from loadrun.backends.cuda import emulated, source
from loadrun.backends.cuda.plan import Kernel


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime raises."""


class CUDADriverError(RuntimeError):
    """As cupy.cuda.driver raises."""


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory raises."""


class CompileException(Exception):
    """As cupy.cuda.compiler raises."""


class Fake:
    """State of the stand-in: `module` is what `import cupy` gives."""

    def __init__(self, devices: int = 2) -> None:
        self.calls: list[str] = []
        self.launched: list[str] = []
        self.on_disk: list[bool] = []
        self.fail: dict[str, Exception] = {}
        self.devices = devices
        self.current: list[int] = []
        self.streams: list[Stream] = []
        self.live: set[int] = set()
        self.clock = 0
        self.module = _module(self)

    def call(self, name: str, *, device: bool = True) -> None:
        """Note a call; raise what is to go wrong; see that a device is the current one."""
        self.calls.append(name)
        if name in self.fail:
            raise self.fail[name]
        assert self.current or not device, f"{name} without a current device"

    def stream(self) -> Stream:
        """The stream that is current."""
        assert self.streams, "no current stream"
        return self.streams[-1]

    def count(self, name: str) -> int:
        """How often something was called."""
        return self.calls.count(name)


class Device:
    """cupy.cuda.Device(device=None)."""

    def __init__(self, fake: Fake, device: int = 0) -> None:
        self._fake, self.id = fake, device

    def __enter__(self) -> Device:
        self._fake.current.append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._fake.current.pop() == self.id


class Stream:
    """cupy.cuda.Stream(null=False, non_blocking=False, ptds=False, priority=None)."""

    def __init__(self, fake: Fake, null: bool = False, non_blocking: bool = False) -> None:
        fake.call("Stream")
        assert non_blocking, "a stream that waits for the legacy one cannot be recorded beside it"
        self._fake = fake
        self.ptr = 0x1000 + len(fake.calls)
        self.captured: list[Callable[[], None]] | None = None
        self.broken = False

    def __enter__(self) -> Stream:
        self._fake.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._fake.streams.pop() is self

    def begin_capture(self, mode: int | None = None) -> None:
        self._fake.call("begin_capture")
        assert self.captured is None
        self.captured = []

    def end_capture(self) -> Graph:
        self._fake.calls.append("end_capture")
        work, self.captured = self.captured, None
        if self.broken or work is None:
            self.broken = False
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
        if "end_capture" in self._fake.fail:
            raise self._fake.fail["end_capture"]
        return Graph(self._fake, work)

    def is_capturing(self) -> bool:
        return self.captured is not None

    def synchronize(self) -> None:
        self._fake.call("synchronize")
        assert self.captured is None, "a stream that is recorded cannot be waited for"

    def put(self, work: Callable[[], None]) -> None:
        """Do something in the stream's order, or note it while it is recorded."""
        if self.captured is not None:
            self.captured.append(work)
        else:
            work()


class Graph:
    """cupy.cuda.graph.Graph."""

    def __init__(self, fake: Fake, work: list[Callable[[], None]]) -> None:
        self._fake, self._work = fake, work

    def launch(self, stream: Stream | None = None) -> None:
        self._fake.call("launch_graph")
        assert isinstance(stream, Stream)
        for work in self._work:
            work()

    def upload(self, stream: Stream | None = None) -> None:
        self._fake.call("upload_graph")
        assert isinstance(stream, Stream)


class Event:
    """cupy.cuda.Event(block=False, disable_timing=False, interprocess=False)."""

    def __init__(self, fake: Fake, block: bool = False, disable_timing: bool = False) -> None:
        fake.call("Event")
        self._fake = fake
        self.ms: float | None = None
        assert not disable_timing

    def record(self, stream: Stream | None = None) -> None:
        self._fake.call("record")
        assert isinstance(stream, Stream)
        self._fake.clock += 1
        self.ms = self._fake.clock / 8


class Memory:
    """cupy.cuda.Memory(size): freed when nothing holds it any more."""

    def __init__(self, fake: Fake, size: int) -> None:
        fake.call("Memory")
        assert size > 0
        self._held = np.full(size + 256, 0xFF, np.uint8)
        self.size, self._fake = size, fake
        self.ptr = -(-self._held.ctypes.data // 256) * 256
        fake.live.add(self.ptr)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            self._fake.live.discard(self.ptr)


def _pinned(fake: Fake, size: int) -> memoryview:
    fake.call("alloc_pinned_memory")
    return memoryview(bytearray(size))


class RawModule:
    """cupy.RawModule(code=None, *, path=None, options=(), backend='nvrtc', ...)."""

    def __init__(
        self,
        fake: Fake,
        code: str | None = None,
        *,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
    ) -> None:
        assert code is not None
        assert path is None
        assert all(isinstance(o, str) for o in options)
        assert backend == "nvrtc"
        self._fake, self.code = fake, code
        self._library: Any = None
        self.names: list[str] = []

    def get_function(self, name: str) -> RawKernel:
        self._fake.call("compile")
        self._fake.on_disk.append(os.environ.get("CUPY_CACHE_IN_MEMORY") != "1")
        assert f"{name}(" in self.code
        self.names.append(name)
        return RawKernel(self._fake, self, name)

    def library(self) -> Any:
        if self._library is None:
            emulated._runtime()
            assert self.code.startswith(source.prelude())
            parts = [emulated._head(), self.code.removeprefix(source.prelude())]
            parts += [f"EMULATED_ENTRY({name})" for name in self.names]
            self._library = ctypes.CDLL(str(emulated._compile("\n".join(parts), "cupy")))
        return self._library


class RawKernel:
    """What get_function gives; called as kernel(grid, block, args, *, shared_mem=0)."""

    def __init__(self, fake: Fake, module: RawModule, name: str) -> None:
        self._fake, self._module, self.name = fake, module, name

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        self._fake.call("launch")
        assert isinstance(grid, tuple)
        assert isinstance(block, tuple)
        assert isinstance(args, tuple)
        assert all(isinstance(a, np.generic) for a in args)
        self._fake.launched.append(self.name)
        if self.name.startswith("hold_"):
            return
        self._fake.stream().put(lambda: self._run(grid, block, args))

    def _run(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        function = getattr(self._module.library(), f"emulated_launch_{self.name}")
        function.restype = ctypes.c_int
        kernel = Kernel(self.name, "", cooperative=True)
        device = emulated.EmulatedDevice()
        device.launch((function, kernel), grid, block[0], args)


def _memcpy(fake: Fake) -> Callable[..., None]:
    def copy(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        fake.call("memcpyAsync")
        assert kind in (1, 2)
        assert size > 0
        assert stream >= 0x1000
        ctypes.memmove(dst, src, size)

    return copy


def _module(fake: Fake) -> Any:
    def bound(kind: Any) -> Any:
        return lambda *args, **kwargs: kind(fake, *args, **kwargs)

    def device_count() -> int:
        fake.call("getDeviceCount", device=False)
        return fake.devices

    def properties(device: int) -> dict[str, Any]:
        return {"name": b"Test GPU", "major": 9, "minor": 0, "multiProcessorCount": 132}

    def elapsed(start: Event, end: Event) -> float:
        assert start.ms is not None
        assert end.ms is not None
        return end.ms - start.ms

    space = types.SimpleNamespace
    runtime = space(
        getDeviceCount=device_count,
        getDeviceProperties=properties,
        runtimeGetVersion=lambda: 12090,
        memcpyAsync=_memcpy(fake),
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        CUDARuntimeError=CUDARuntimeError,
    )
    cuda = space(
        runtime=runtime,
        driver=space(CUDADriverError=CUDADriverError),
        memory=space(OutOfMemoryError=OutOfMemoryError),
        compiler=space(CompileException=CompileException),
        Device=bound(Device),
        Stream=bound(Stream),
        Event=bound(Event),
        Memory=bound(Memory),
        alloc_pinned_memory=lambda size: _pinned(fake, size),
        get_elapsed_time=elapsed,
    )
    module: Any = types.ModuleType("cupy")
    module.cuda, module.RawModule, module.__version__ = cuda, bound(RawModule), "14.2.0"
    return module
