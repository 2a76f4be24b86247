"""Products of matrices by NVIDIA's cuBLAS, through its C interface.

CuPy's bindings refuse every call while a stream is being recorded, so a graph could not hold a
product. A handle of our own has no such limit: it stays on one stream, and its workspace is given
to it, so that a recorded graph holds no allocation.

Source: cuBLAS documentation (cublasCreate, cublasSetStream, cublasSetWorkspace, cublasSetMathMode,
cublas<t>gemmStridedBatched, cublasGemmStridedBatchedEx, "CUDA Graphs Support"; numbers of the
enumerations from its headers).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from loadrun.backends.cuda.plan import Gemm
from mgeserial.errors import ExecutionError

__all__ = ["WORKSPACE_BYTES", "Cublas", "find_library"]

# What the documentation recommends for the newest devices; older ones need less.
WORKSPACE_BYTES = 32 << 20
_DEFAULT_MATH, _TF32_MATH = 0, 3
_OP_N, _OP_T = 0, 1
# cudaDataType, cublasComputeType_t, cublasGemmAlgo_t.
_FLOAT = 0
_HALVES = {"float16": 2, "bfloat16": 14}
_COMPUTE_FLOAT, _DEFAULT_ALGORITHM = 68, -1
_STATUS = {
    1: "it is not initialised", 3: "no memory", 7: "a wrong argument", 8: "the device is too old",
    11: "a mapping failed", 13: "the device failed", 14: "an internal error", 15: "not supported",
    16: "a licence error",
}  # fmt: skip
_POINTER = ctypes.c_void_p
_INT, _LONG = ctypes.c_int, ctypes.c_longlong


@functools.cache
def find_library(major: int) -> Any | None:
    """cuBLAS of a release of CUDA as a ctypes library; None where it is not installed.

    Looked for among NVIDIA's Python packages first, then where the system looks.
    """
    for load in (_from_packages, _from_system):
        for release in dict.fromkeys((major, 12, 13)):
            library = load(release)
            if library is not None:
                return library
    return None


def _name(major: int) -> str:
    return f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"


def _from_packages(major: int) -> Any | None:
    try:
        from cuda import pathfinder  # comes with CuPy

        path = pathfinder.load_nvidia_dynamic_lib("cublas").abs_path
        # The package may be of another release than the one that is asked for.
        return ctypes.CDLL(path) if path and str(major) in path.rpartition("cublas")[2] else None
    except Exception:  # it raises errors of its own, which differ by its version
        return None


def _from_system(major: int) -> Any | None:
    try:
        return ctypes.CDLL(_name(major))
    except OSError:
        return None


class Cublas:
    """A handle on one stream.

    Args:
        library: cuBLAS, as `find_library` gives it.
        stream: The stream's handle.
        workspace: Address of WORKSPACE_BYTES of device memory, kept until `close`.

    The device must be the current one when a method is called.
    """

    def __init__(self, library: Any, stream: int, workspace: int) -> None:
        self._library = library
        self._handle = _POINTER()
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._gemm = self._function(
            "cublasSgemmStridedBatched",
            _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _LONG,
            _POINTER, _INT, _LONG, _POINTER, _POINTER, _INT, _LONG, _INT,
        )  # fmt: skip
        self._gemm_ex = self._function(
            "cublasGemmStridedBatchedEx",
            _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER, _POINTER, _INT, _INT, _LONG,
            _POINTER, _INT, _INT, _LONG, _POINTER, _POINTER, _INT, _INT, _LONG, _INT, _INT, _INT,
        )  # fmt: skip
        self._call("cublasCreate_v2", (_POINTER,), ctypes.byref(self._handle))
        try:
            # Another stream takes the workspace away again, so the stream comes first.
            self._call("cublasSetStream_v2", (_POINTER, _POINTER), self._handle, stream)
            self._call(
                "cublasSetWorkspace_v2",
                (_POINTER, _POINTER, ctypes.c_size_t),
                self._handle, workspace, WORKSPACE_BYTES,
            )  # fmt: skip
            self._set_math(tf32=False)
        except ExecutionError:
            self.close()
            raise

    def _function(self, name: str, *types: Any) -> Callable[..., int]:
        try:
            found = getattr(self._library, name)
        except AttributeError as error:
            raise ExecutionError(f"this cuBLAS has no {name}") from error
        found.argtypes, found.restype = types, _INT
        function: Callable[..., int] = found
        return function

    def _call(self, name: str, types: tuple[Any, ...], *args: Any) -> None:
        _check(name, self._function(name, *types)(*args))

    def _set_math(self, *, tf32: bool) -> None:
        mode = _TF32_MATH if tf32 else _DEFAULT_MATH
        self._call("cublasSetMathMode", (_POINTER, _INT), self._handle, mode)
        self._tf32 = tf32

    def gemm(self, spec: Gemm, a: int, b: int, c: int) -> None:
        """Start a batch of products; row-major C = A B is column-major C' = B' A'."""
        if spec.tf32 != self._tf32:
            self._set_math(tf32=spec.tf32)
        m, n, k = spec.m, spec.n, spec.k
        lda, ldb = m if spec.transpose_a else k, k if spec.transpose_b else n
        step_a = 0 if spec.shared_a else m * k
        begin = (
            self._handle, (_OP_N, _OP_T)[spec.transpose_b], (_OP_N, _OP_T)[spec.transpose_a],
            n, m, k, ctypes.addressof(self._one),
        )  # fmt: skip
        zero = ctypes.addressof(self._zero)
        kind = _HALVES.get(spec.dtype)
        if kind is None:
            status = self._gemm(
                *begin, b, ldb, k * n, a, lda, step_a, zero, c, n, m * n, spec.batch
            )
        else:
            status = self._gemm_ex(
                *begin, b, kind, ldb, k * n, a, kind, lda, step_a, zero, c, _FLOAT, n, m * n,
                spec.batch, _COMPUTE_FLOAT, _DEFAULT_ALGORITHM,
            )  # fmt: skip
        _check(str(spec), status)

    def close(self) -> None:
        """Give the handle back. Safe to call twice."""
        if self._handle:
            self._function("cublasDestroy_v2", _POINTER)(self._handle)
            self._handle = _POINTER()


def _check(what: str, status: int) -> None:
    if status:
        raise ExecutionError(f"cuBLAS: {what}: {_STATUS.get(status, f'status {status}')}")
