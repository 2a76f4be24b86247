"""Computing nodes as MegEngine writes them, and what they mean here.

    xpu  xpux  xpu0  xpu0:1   the first of CUDA and CPU that can be used
    gpu  gpux  gpu0  gpu0:1   the CUDA device of that number; each program has a stream of its own
    cpu  cpux  cpu0  cpu0:1   the CPU
    cpu:default               the CPU, in the calling thread alone
    multithread4:0            the CPU with 4 threads
    multithread:default:4     the same: the calling thread always takes part

Numbers of CPUs and of streams have no meaning here; they are accepted, as files and scripts hold
them. Source: format notes of computing node locators (grammar and meaning).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from loadrun.backends.base import CompileOptions
from mgeserial.errors import InputError, UnsupportedError

__all__ = ["Locator", "at_node", "parse_locator"]

_MOST_THREADS = 1024
_DIGITS = r"(\d{1,4})"
_NODE = re.compile(rf"(xpu|gpu|cuda|cpu)(?:x|{_DIGITS})?(?::{_DIGITS})?", re.ASCII)
_POOL = re.compile(rf"multithread(?:{_DIGITS}:{_DIGITS}|:default:{_DIGITS})", re.ASCII)
_OTHERS = re.compile(r"(rocm|cambricon|atlas)(?:x|\d*)(?::\d+)?", re.ASCII)
_BACKENDS = {"xpu": "auto", "gpu": "cuda", "cuda": "cuda", "cpu": "cpu"}


@dataclass(frozen=True, slots=True)
class Locator:
    """What a computing node means here.

    Attributes:
        backend: `auto`, `cuda` or `cpu`.
        device: Number of the CUDA device.
        threads: Number of threads; None: the backend's choice.
    """

    backend: str
    device: int = 0
    threads: int | None = None


def parse_locator(text: str) -> Locator:
    """The meaning of a computing node, or of the number of a CUDA device.

    Raises:
        InputError: It is neither; says what there is.
        UnsupportedError: It is a device that nothing here computes on.
    """
    if re.fullmatch(_DIGITS, text, re.ASCII):
        return Locator("cuda", int(text))
    if text == "cpu:default":
        return Locator("cpu", threads=1)
    node = _NODE.fullmatch(text)
    if node is not None:
        kind, number, _ = node.groups()
        # Only a GPU's number says where to compute.
        return Locator(_BACKENDS[kind], int(number or 0) if kind != "cpu" else 0)
    pool = _POOL.fullmatch(text)
    if pool is not None:
        threads = int(pool[1] or pool[3])
        if 0 < threads <= _MOST_THREADS:
            return Locator("cpu", threads=threads)
        raise InputError(f"{text}: a number of threads from 1 to {_MOST_THREADS}, got {threads}")
    if _OTHERS.fullmatch(text):
        raise UnsupportedError(
            f"nothing here computes on {text}", hint="gpu0 is an NVIDIA GPU, cpu0 the CPU"
        )
    raise InputError(
        f"{text!r:.60} is no computing node",
        hint="such as 1 (the second NVIDIA GPU), xpux, gpu0:1, cpu0, cpu:default, multithread4:0",
    )


def at_node(
    node: str | int, backend: str, threads: int | None, options: CompileOptions
) -> tuple[str, int | None, CompileOptions]:
    """Backend, threads and options with what a computing node says about them.

    Raises:
        InputError: It is no computing node, or contradicts what else was asked for.
        UnsupportedError: It is a device that nothing here computes on.
    """
    found = parse_locator(str(node))
    if backend == "auto":
        backend = found.backend
    elif found.backend not in ("auto", backend):
        raise InputError(f"device {node} and backend {backend} exclude each other")
    if None not in (threads, found.threads) and threads != found.threads:
        raise InputError(f"device {node} and {threads} threads exclude each other")
    return backend, threads or found.threads, replace(options, device=found.device)
