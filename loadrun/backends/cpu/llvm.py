"""The only module that touches llvmlite: parse, verify, generate code, link.

llvmlite ships no types; the rest of the backend sees the typed functions here.

llvmlite holds one process-wide lock around each call into LLVM, so its public functions
compile no faster on two threads than on one. LLVM itself needs only one context per
thread. `compile_object` therefore makes the two long calls below that lock, on a
private context, when the private entry points are there and look as expected; else it
makes the same calls through the public functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import llvmlite.binding as _llvm

_FREE: dict[tuple[str, str], list[Any]] = {}  # machines that no thread uses now
_FREE_LOCK = threading.Lock()
_INIT = threading.Lock()


class CodegenError(RuntimeError):
    """LLVM refused a module that this package generated: a defect here, never the user's."""


@functools.cache
def _initialise() -> None:
    with _INIT:
        _llvm.initialize_native_target()
        _llvm.initialize_native_asmprinter()


def version() -> str:
    """LLVM's version, for cache keys."""
    return ".".join(map(str, _llvm.llvm_version_info))


@functools.cache
def host_features() -> dict[str, bool]:
    """Feature name -> present, of this processor; empty when LLVM cannot tell."""
    try:
        return {str(k): bool(v) for k, v in _llvm.get_host_cpu_features().items()}
    except RuntimeError:
        return {}


def host_feature_text() -> str:
    """The features as LLVM's `+a,-b` text, sorted so that it can be part of a key."""
    return ",".join(f"{'+' if v else '-'}{k}" for k, v in sorted(host_features().items()))


def host_cpu() -> str:
    """LLVM's name of this processor."""
    return str(_llvm.get_host_cpu_name())


@contextlib.contextmanager
def _machine(cpu: str, features: str) -> Iterator[Any]:
    """A target machine for this process's triple, this thread's alone for the moment.

    Machines outlive the threads that use them: making one takes milliseconds.
    """
    _initialise()
    with _FREE_LOCK:
        free = _FREE.setdefault((cpu, features), [])
        found = free.pop() if free else None
    if found is None:
        target = _llvm.Target.from_triple(_llvm.get_process_triple())
        found = target.create_target_machine(
            cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
        )
    try:
        yield found
    finally:
        with _FREE_LOCK:
            free.append(found)


@functools.cache
def _unlocked() -> dict[str, Callable[..., Any]] | None:
    """The entry points below llvmlite's lock, or None when this version hides them."""
    names = (
        "LLVMPY_ParseAssembly",
        "LLVMPY_TargetMachineEmitToMemory",
        "LLVMPY_GetBufferStart",
        "LLVMPY_GetBufferSize",
        "LLVMPY_DisposeMemoryBuffer",
    )
    try:
        found = {n: getattr(_llvm.ffi.lib, n)._cfn for n in names}
    except AttributeError:
        return None
    if not all(callable(f) and getattr(f, "argtypes", None) for f in found.values()):
        return None
    if not hasattr(_llvm.ffi, "OutputString"):
        return None
    return found


def parallel() -> bool:
    """Whether `compile_object` runs outside llvmlite's lock."""
    return _unlocked() is not None


def _head(machine: Any) -> str:
    layout, triple = str(machine.target_data), str(machine.triple)
    return f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n'


def _compile_locked(text: str, machine: Any) -> bytes:
    try:
        module = _llvm.parse_assembly(text, _llvm.create_context())
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise CodegenError(str(error)) from error


def compile_object(text: str, *, cpu: str, features: str) -> bytes:
    """Turn IR text into a relocatable object; callable from any thread.

    Raises:
        CodegenError: The text does not parse or verify.
    """
    with _machine(cpu, features) as machine:
        raw = _unlocked()
        if raw is None:
            return _compile_locked(_head(machine) + text, machine)
        return _compile(_head(machine) + text, machine, raw)


def _compile(text: str, machine: Any, raw: Mapping[str, Callable[..., Any]]) -> bytes:
    """The long calls outside llvmlite's lock, on a context of their own."""
    context = _llvm.create_context()
    with _llvm.ffi.OutputString() as message:
        handle = raw["LLVMPY_ParseAssembly"](context, ctypes.c_char_p(text.encode()), message)
        if not handle or message:
            raise CodegenError(str(message))
    module = _llvm.ModuleRef(handle, context)
    with _llvm.ffi.OutputString() as message:
        buffer = raw["LLVMPY_TargetMachineEmitToMemory"](machine, module, 1, message)
        if not buffer:
            raise CodegenError(str(message))
    try:
        start = raw["LLVMPY_GetBufferStart"](buffer)
        return ctypes.string_at(start, raw["LLVMPY_GetBufferSize"](buffer))
    finally:
        raw["LLVMPY_DisposeMemoryBuffer"](buffer)


def verify(text: str, *, cpu: str, features: str) -> None:
    """Parse and verify IR text (tests and `-vv`).

    Raises:
        CodegenError: What LLVM says is wrong.
    """
    with _machine(cpu, features) as machine:
        head = _head(machine)
    try:
        _llvm.parse_assembly(head + text, _llvm.create_context()).verify()
    except RuntimeError as error:
        raise CodegenError(str(error)) from error


def assembly(text: str, *, cpu: str, features: str) -> str:
    """IR text as assembly (tests that count instructions and spills)."""
    with _machine(cpu, features) as machine:
        module = _llvm.parse_assembly(_head(machine) + text, _llvm.create_context())
        return str(machine.emit_assembly(module))


class Image:
    """Objects linked into this process. `close` frees their code."""

    def __init__(self, objects: Sequence[bytes], *, cpu: str, features: str) -> None:
        _initialise()
        target = _llvm.Target.from_triple(_llvm.get_process_triple())
        machine = target.create_target_machine(
            cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
        )
        # MCJIT takes the machine over, so it gets one of its own.
        empty = _llvm.parse_assembly(_head(machine), _llvm.create_context())
        engine = _llvm.create_mcjit_compiler(empty, machine)
        try:
            for data in objects:
                engine.add_object_file(_llvm.ObjectFileRef.from_data(data))
            engine.finalize_object()
        except RuntimeError as error:
            engine.close()
            raise CodegenError(str(error)) from error
        self._engine: Any = engine

    def address(self, symbol: str) -> int:
        """Address of a function.

        Raises:
            CodegenError: There is no such symbol, or the image is closed.
        """
        if self._engine is None:
            raise CodegenError("the code image is closed")
        found = int(self._engine.get_function_address(symbol))
        if not found:
            raise CodegenError(f"symbol not linked: {symbol}")
        return found

    def close(self) -> None:
        """Free the code; nothing may run in it any more."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
