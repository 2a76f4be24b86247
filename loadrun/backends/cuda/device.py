"""The few things that the backend asks of a device, and how one is found.

A device is a GPU through CuPy (`device_cupy`) or the emulated one (`emulated`), which runs the same
kernel sources on the CPU. Addresses are integers; a device has one stream, in whose order all
calls but the synchronous `download` and `synchronize` work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from loadrun.backends.cuda.plan import Array, Convolution, Engine, Gemm, Kernel
from mgeserial.errors import InputError

__all__ = [
    "EMULATED",
    "VARIABLE",
    "Device",
    "Mode",
    "check_number",
    "mode",
    "open_device",
    "reason_missing",
]

VARIABLE = "LOADRUN_CUDA"
EMULATED = "emulated"


class Device(Protocol):
    """What runs a plan.

    Attributes:
        name: For reports.
        model: What kind of device it is, with the versions that measured times depend on.
        guarded: Whether every buffer is to be allocated on its own, so that accesses out of
            bounds are found.
        emulated: Whether it is no GPU, so that times mean nothing.
        number: Which of several devices it is, from 0.
        capability: Compute capability, as (8, 0); None: unknown or none.
    """

    name: str
    model: str
    guarded: bool
    emulated: bool
    number: int
    capability: tuple[int, int] | None

    def allocate(self, nbytes: int, name: str = "") -> int:
        """Address of a block of at least one byte, aligned to 256 bytes (16 where guarded)."""
        ...

    def free(self, address: int) -> None:
        """Give a block back."""
        ...

    def host(self, shape: Sequence[int], dtype: str) -> Array:
        """An array in host memory that copies to the device best from (pinned)."""
        ...

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the device; it may still be read until `synchronize`."""
        ...

    def download(self, array: Array, address: int) -> None:
        """Copy to a contiguous array; done on `synchronize`."""
        ...

    def build(self, kernels: Sequence[Kernel]) -> dict[str, Any]:
        """Compile; handles by kernel name."""
        ...

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: int,
        args: Sequence[np.generic],
    ) -> None:
        """Start a kernel; `args` are scalars with the exact types of its parameters."""
        ...

    @property
    def library(self) -> bool:
        """Whether the vendor's products of matrices are there."""
        ...

    def gemm(self, spec: Gemm, a: int, b: int, c: int) -> None:
        """A batch of products of matrices by the vendor's library."""
        ...

    def no_convolutions(self) -> str | None:
        """Why the vendor's convolutions cannot be used, with the way out; None: they can."""
        ...

    def engines(self, spec: Convolution) -> tuple[Engine, ...]:
        """Ways of the vendor's library to compute a convolution, its own favourite first.

        All of them give the same bits in every run. Empty where it cannot compute it.
        """
        ...

    def convolve(
        self, spec: Convolution, engine: Engine, tensors: Sequence[int], workspace: int
    ) -> None:
        """A convolution by the vendor's library.

        Args:
            spec: What.
            engine: One of its engines.
            tensors: Addresses of image, filter, bias and addend where there are such, result.
            workspace: Address of as many bytes as the engine needs; 0 where it needs none.

        Raises:
            ExecutionError: The library refuses.
        """
        ...

    def capture(self, work: Any) -> Any | None:
        """Record what `work()` starts as a graph to replay; None where that is not possible."""
        ...

    def hold(self, nanoseconds: int) -> None:
        """Keep the stream busy for a while, so that what is started meanwhile runs without gaps."""
        ...

    def replay(self, graph: Any) -> None:
        """Start a recorded graph."""
        ...

    def event(self, again: Any = None) -> Any:
        """A mark in the stream, with the time at which the device passes it.

        Args:
            again: An event that nobody needs any more; it may become the new one.
        """
        ...

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Time between two events that were passed."""
        ...

    def synchronize(self) -> None:
        """Wait for all work.

        Raises:
            ExecutionError: Something went wrong on the device.
        """
        ...

    def close(self) -> None:
        """Free everything."""
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """What the environment variable asks for.

    Attributes:
        emulated: Use the emulated device.
        arena: The emulated device keeps buffers in one arena, as a GPU does, instead of guarding
            each of them.
        capability: Compute capability that the emulated device answers with; None: none.
    """

    emulated: bool = False
    arena: bool = False
    capability: tuple[int, int] | None = None


def mode() -> Mode:
    """Read LOADRUN_CUDA: empty, or `emulated`, `-arena` or `-sm80` or both after it.

    Raises:
        InputError: It is something else.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return Mode()
    match = re.fullmatch(rf"{EMULATED}(-arena)?(-sm(\d+)(\d))?", text, re.ASCII)
    if match is None:
        raise InputError(
            f"{VARIABLE} is unset, `{EMULATED}`, `{EMULATED}-arena`, `{EMULATED}-sm80` or "
            f"`{EMULATED}-arena-sm80`, got {text!r}"
        )
    capability = (int(match[3]), int(match[4])) if match[2] else None
    return Mode(True, bool(match[1]), capability)


def reason_missing() -> str | None:
    """Why no device can be used, with the way out; None: one can."""
    if mode().emulated:
        from loadrun.backends.cuda.emulated import compiler

        return None if compiler() else "the emulated device needs g++, which is not on PATH"
    from loadrun.backends.cuda import device_cupy

    return device_cupy.reason_missing()


def check_number(number: int, count: int) -> None:
    """See that there is such a device.

    Raises:
        InputError: There is none; says how many there are.
    """
    if not 0 <= number < count:
        known = "0 alone" if count == 1 else f"0 to {count - 1}"
        raise InputError(f"there is no CUDA device {number}: {known} is known here")


def open_device(number: int = 0, *, cache: bool = True) -> Device:
    """The device of that number.

    Args:
        number: Which, from 0.
        cache: Whether compiled code may be kept on disk and read from there.

    Raises:
        InputError: There is no device of that number.
        ExecutionError: It cannot be used.
    """
    wanted = mode()
    if wanted.emulated:
        from loadrun.backends.cuda.emulated import EmulatedDevice

        return EmulatedDevice(number, guarded=not wanted.arena, capability=wanted.capability)
    from loadrun.backends.cuda.device_cupy import CupyDevice

    return CupyDevice(number, cache=cache)
