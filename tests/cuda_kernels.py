"""Kernel sources that networks need, and NVRTC to compile them; no driver and no GPU is needed."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from corpus_cases import iter_cases

import mgeserial
from loadrun.backends.cuda import source
from loadrun.backends.cuda.backend import plan_graph
from loadrun.backends.cuda.emulated import EmulatedDevice
from loadrun.backends.cuda.plan import Kernel, Plan
from loadrun.backends.cuda.variants import Target
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph

# What each major release of NVRTC is asked to compile for.
ARCHITECTURES = {12: ("sm_70", "sm_80", "sm_86", "sm_90"), 13: ("sm_75", "sm_90", "sm_120")}
# Devices without and with tensor cores; each kernel is compiled for every architecture.
TARGETS = (Target(), Target((8, 0)), Target((8, 0), tf32=True))
_LIBRARIES = {
    12: "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    13: "nvidia/cu13/lib/libnvrtc.so.13",
}
_BENCHMARKS = ("resnet18", "mobilenet_v2", "transformer")


def graphs_of_corpus(root: Path) -> Iterator[tuple[str, Graph]]:
    """All graphs of the first file of each case, but those with conditional execution."""
    for case in iter_cases(root, None):
        if case.family == "pickles":
            continue
        for model in case.models()[:1]:
            graphs: list[Graph] = []
            with contextlib.suppress(MgeError):  # a case that must be refused
                graphs = mgeserial.load(model.path).graphs
            for graph in graphs:
                if not any(n.op.name.startswith("CondExec") for n in graph.nodes):
                    yield case.id, graph


def plans_of_corpus(root: Path, target: Target | None = None) -> Iterator[tuple[str, Plan]]:
    """Plans of all graphs that can be planned."""
    for name, graph in graphs_of_corpus(root):
        with contextlib.suppress(MgeError):  # an operator that no backend can run
            yield name, plan_graph(graph, graph.inference, target)[0]


def plans_of_benchmarks() -> Iterator[Plan]:
    """Plans of the networks that the benchmarks use, for all targets."""
    for graph in benchmark_graphs().values():
        for target in TARGETS:
            yield plan_graph(graph, graph.inference, target)[0]


def benchmark_graphs() -> dict[str, Graph]:
    """Networks that the benchmarks use."""
    folder = str(Path(__file__).resolve().parent.parent / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    models = importlib.import_module("models")
    known = [n for n in models.NETWORKS if any(n.startswith(b) for b in _BENCHMARKS)]
    return {name: models.build(name) for name in known}


def kernels_of(plans: Iterable[Plan]) -> dict[str, Kernel]:
    """All kernels by name."""
    found: dict[str, Kernel] = {}
    for plan in plans:
        found.update(plan.kernels())
    return dict(sorted(found.items()))


def find_nvrtc(major: int) -> Path | None:
    """The library of NVIDIA's wheel, where it is installed."""
    for entry in sys.path:
        path = Path(entry) / _LIBRARIES[major]
        if path.exists():
            return path
    return None


class Nvrtc:
    """The run-time compiler."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def compile(self, kernels: Iterable[Kernel], architecture: str) -> str:
        """Compile to machine code; the compiler's log when it refuses, else ''."""
        call, program = self._library, ctypes.c_void_p()
        text = "\n".join([source.prelude(), *(k.source for k in kernels)])
        call.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
        options = [o.encode() for o in (*source.OPTIONS, f"--gpu-architecture={architecture}")]
        array = (ctypes.c_char_p * len(options))(*options)
        result = call.nvrtcCompileProgram(program, len(options), array)
        size = ctypes.c_size_t()
        call.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(1, size.value))
        call.nvrtcGetProgramLog(program, log)
        call.nvrtcDestroyProgram(ctypes.byref(program))
        return log.value.decode() or f"error {result}" if result else ""


def compile_together(plans: Iterable[Plan]) -> None:
    """Let the emulated device compile what plans need; programs find it there.

    A call of g++ for many kernels takes much less than one for each. Few enough are together that
    their shared memory, which is filled with garbage before a launch, stays small.
    """
    device = EmulatedDevice()
    for part in batches(kernels_of(plans), 24):
        device.build(part)
    device.close()


def batches(kernels: dict[str, Kernel], size: int = 64) -> Iterator[list[Kernel]]:
    """Kernels that are compiled together."""
    every = list(kernels.values())
    for begin in range(0, len(every), size):
        yield every[begin : begin + size]
