"""The emulated device: the same kernel sources, compiled by g++, over memory of the host.

It proves kernels and plans where no GPU is: results, barriers, accesses out of bounds (every buffer
ends at a page that cannot be touched), reads of memory that nothing wrote (it holds NaN or -1).
Matrix products of the library are answered by numpy. It is not fast and its times mean nothing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from loadrun.backends.cuda import source
from loadrun.backends.cuda.device import check_number
from loadrun.backends.cuda.numpy_library import convolve, matrix_product
from loadrun.backends.cuda.plan import Array, Convolution, Engine, Gemm, Kernel
from mgeserial.errors import ExecutionError

__all__ = ["EmulatedDevice", "compiler", "folder"]

# Kernels run less long than they compile, and no load that is out of bounds is optimised away.
_FLAGS = (
    "-std=c++17", "-O0", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing",
    "-fwrapv", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
_LIBRARY, _LIBRARIES = ("-shared", "-nostdlib"), ("-lm", "-lc", "-lgcc")
_FAST = "-O2"  # for what starts, switches and ends threads
_DEVICES = 2  # so that what chooses one of several can be tried
_PAGE = mmap.PAGESIZE
_ALIGN = 16
_POISON = 0xFF  # NaN in every floating type, -1 in integers
_EDGE = 0xA5
_FAULTS = {
    2: "threads of a block do not meet at the same barrier",
    3: "the block has too many threads",
    4: "a copy to shared memory is not aligned to its size",
}
_lock = threading.RLock()


@functools.cache
def compiler() -> str | None:
    """Path of g++."""
    return shutil.which("g++")


@functools.cache
def folder() -> Path:
    """Where compiled kernels of this process are kept; removed when it ends."""
    named = os.environ.get("LOADRUN_CUDA_EMULATED_CACHE")
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        return Path(named)
    holder = tempfile.TemporaryDirectory(prefix="loadrun-emulated-")
    _holders.append(holder)
    return Path(holder.name)


_holders: list[tempfile.TemporaryDirectory[str]] = []
_functions: dict[str, Any] = {}


def _resource(name: str) -> str:
    found = resources.files(__package__) / "emulation" / name
    return found.read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256("\0".join([text, *_FLAGS]).encode()).hexdigest()[:24]


def _call(output: Path, *words: str) -> None:
    """Run g++; the output appears whole or not at all.

    Raises:
        ExecutionError: It refuses the source.
    """
    made = output.with_suffix(f".{os.getpid()}.tmp")
    command = [compiler() or "g++", *_FLAGS, "-o", str(made), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExecutionError(f"g++ refuses a kernel: {done.stderr[:2000]}")
    made.replace(output)


def _compile(text: str, stem: str, *options: str) -> Path:
    """A library of a source text, kept by its digest and the stem, which stands for options."""
    target = folder() / f"{stem}-{_digest(text)}.so"
    if target.exists():
        return target
    path = target.with_suffix(f".{os.getpid()}.cpp")
    path.write_text(text, encoding="utf-8")
    try:
        _call(target, *options, *_LIBRARY, str(path), *_LIBRARIES)
    finally:
        path.unlink()
    return target


@functools.cache
def _head() -> str:
    """An include of what stands before all kernels.

    It is compiled once: g++ takes as long to read it, with the mathematics of C++ in it, as to
    compile a kernel. Where a compiled header does not suit g++, it reads the text beside it.
    """
    text = _resource("device.h") + source.prelude()
    path = folder() / f"head-{_digest(text)}.h"
    compiled = path.with_suffix(".h.gch")
    if not compiled.exists():
        written = path.with_suffix(f".{os.getpid()}.h")
        written.write_text(text, encoding="utf-8")
        written.replace(path)
        _call(compiled, "-x", "c++-header", str(path))
    return f'#include "{path}"'


@functools.cache
def _runtime() -> ctypes.CDLL:
    path = _compile(_resource("runtime.cpp"), "runtime", _FAST)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


class _Memory:
    """Anonymous memory with a forbidden page on both sides; the block ends where it begins."""

    def __init__(self, nbytes: int, name: str) -> None:
        self.nbytes, self.name = max(1, nbytes), name
        size = -(-self.nbytes // _ALIGN) * _ALIGN
        inner = -(-size // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, inner + 2 * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.first, self.last = base, base + inner + 2 * _PAGE
        self.address = base + _PAGE + inner - size
        self._inner, self._base, self._pad = inner, base, size - self.nbytes
        ctypes.memset(base + _PAGE, _EDGE, inner)
        ctypes.memset(self.address, _POISON, self.nbytes)
        self._protect(0)

    def _protect(self, flags: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (self._base, self._base + _PAGE + self._inner):
            if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(_PAGE), flags):
                raise ExecutionError("the emulated device cannot protect memory")

    @property
    def is_intact(self) -> bool:
        """Whether nothing was written between the block and the forbidden pages."""
        begin = self._base + _PAGE
        edges = (
            _bytes(begin, self.address - begin),
            _bytes(self.address + self.nbytes, self._pad),
        )
        return all((edge == _EDGE).all() for edge in edges)

    def close(self) -> None:
        self._protect(3)


def _bytes(address: int, nbytes: int) -> Array:
    if not nbytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


class EmulatedDevice:
    """See the module; there are two.

    Args:
        number: Which of them.
        guarded: Give every buffer memory of its own.
        capability: Compute capability to answer with: kernels that need one are used then.
    """

    emulated = True
    library = True
    model = "emulated"

    def __init__(
        self,
        number: int = 0,
        *,
        guarded: bool = True,
        capability: tuple[int, int] | None = None,
    ) -> None:
        check_number(number, _DEVICES)
        self.number = number
        self.name = f"emulated device {number} (g++)"
        self.capability = capability
        self.guarded = guarded
        self.launches = 0
        self._memory: dict[int, _Memory] = {}
        _runtime()

    # -- memory
    def allocate(self, nbytes: int, name: str = "") -> int:
        """A block filled with ones."""
        memory = _Memory(nbytes, name or "a buffer")
        self._memory[memory.address] = memory
        return memory.address

    def free(self, address: int) -> None:
        """Give a block back."""
        self._memory.pop(address).close()

    def host(self, shape: Sequence[int], dtype: str) -> Array:
        """A plain array."""
        return np.empty(tuple(shape), dtype)

    def upload(self, address: int, array: Array) -> None:
        """Copy into a block."""
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, array: Array, address: int) -> None:
        """Copy out of a block."""
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    # -- code
    def build(self, kernels: Sequence[Kernel]) -> dict[str, Any]:
        """Compile what no program of this process has used yet, as one library."""
        with _lock:
            missing = [k for k in kernels if k.name not in _functions]
            if missing:
                parts = [_head()]
                for kernel in sorted(missing, key=lambda k: k.name):
                    parts += [kernel.source, f"EMULATED_ENTRY({kernel.name})"]
                library = ctypes.CDLL(str(_compile("\n".join(parts), "kernels")))
                for kernel in missing:
                    function = getattr(library, f"emulated_launch_{kernel.name}")
                    function.restype = ctypes.c_int
                    _functions[kernel.name] = (function, kernel)
        return {k.name: _functions[k.name] for k in kernels}

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[np.generic],
    ) -> None:
        """Run a kernel to its end."""
        call, kernel = function
        held = [np.array([a]) for a in args]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*[a.ctypes.data for a in held])
        shape = (ctypes.c_uint * 6)(*grid, block, 1, 1)
        address = ctypes.c_ulonglong(0)
        with _lock:
            result = call(pointers, shape, int(kernel.cooperative), ctypes.byref(address))
        self.launches += 1
        if result == 1:
            raise ExecutionError(
                f"kernel {kernel.name}: access out of bounds{self._near(address.value)}"
            )
        if result:
            raise ExecutionError(f"kernel {kernel.name}: {_FAULTS.get(result, result)}")
        for memory in self._memory.values():
            if not memory.is_intact:
                raise ExecutionError(
                    f"kernel {kernel.name} wrote out of the bounds of {memory.name}"
                )

    def _near(self, address: int) -> str:
        for memory in self._memory.values():
            if memory.first <= address < memory.last:
                return f": byte {address - memory.address} of {memory.name} ({memory.nbytes} bytes)"
        return f": address {address:#x} is in no buffer"

    def gemm(self, spec: Gemm, a: int, b: int, c: int) -> None:
        """Numpy's product."""
        self.upload(c, matrix_product(spec, self._within, a, b))

    def no_convolutions(self) -> str | None:
        """They are always there."""
        return None

    def engines(self, spec: Convolution) -> tuple[Engine, ...]:
        """Numpy's sums; the second asks for a workspace and fills it."""
        return (Engine("numpy"), Engine("numpy-workspace", 1000))

    def convolve(
        self, spec: Convolution, engine: Engine, tensors: Sequence[int], workspace: int
    ) -> None:
        """Numpy's sums."""
        if engine.workspace:
            self._within(workspace, engine.workspace)[...] = _POISON
        convolve(spec, self._within, tensors)

    def _within(self, address: int, nbytes: int) -> Array:
        """Bytes of one block: a library does not reach further either."""
        for memory in self._memory.values():
            if memory.address <= address and address + nbytes <= memory.address + memory.nbytes:
                return _bytes(address, nbytes)
        raise ExecutionError(f"a library reaches out of a buffer{self._near(address)}")

    # -- the stream: everything is done when it is asked for
    def capture(self, work: Callable[[], None]) -> Any:
        """A graph is the recorded calls."""
        recorder = _Recorder(self)
        recorder.record(work)
        return recorder

    def replay(self, graph: Any) -> None:
        """Run the recorded calls."""
        graph.run()

    def hold(self, nanoseconds: int) -> None:
        """Nothing waits."""

    def event(self, again: Any = None) -> int:
        """The time now, ns."""
        return time.perf_counter_ns()

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Time of the host, ns."""
        return int(second - first)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def close(self) -> None:
        """Give all blocks back."""
        for address in list(self._memory):
            self.free(address)


class _Recorder:
    """Notes launches and products instead of running them, as a capturing stream does."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def record(self, work: Callable[[], None]) -> None:
        device = self._device
        launch, gemm, convolve = device.launch, device.gemm, device.convolve

        def refuse(*_: Any) -> None:
            raise ExecutionError("a copy from or to the host cannot be part of a graph")

        patched: dict[str, Any] = {
            "launch": lambda *a: self._calls.append((launch, a)),
            "gemm": lambda *a: self._calls.append((gemm, a)),
            "convolve": lambda *a: self._calls.append((convolve, a)),
            "upload": refuse,
            "download": refuse,
            "synchronize": refuse,
        }
        vars(device).update(patched)
        try:
            work()
        finally:
            for name in patched:
                del vars(device)[name]

    def run(self) -> None:
        for call, args in self._calls:
            call(*args)
