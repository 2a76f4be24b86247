"""Engines that a benchmark compares, behind one face: prepare, run once, close."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mgeserial.ir.graph import Graph

__all__ = ["ENGINES", "Engine", "make_engine", "megengine_ms"]

Array = np.ndarray[Any, Any]


class Engine(Protocol):
    """One network on one engine, ready to run."""

    name: str
    prepare_s: float

    def run(self) -> list[Array]:
        """Run once on the inputs given at the beginning; results may be views."""
        ...

    def close(self) -> None:
        """Free threads and memory."""
        ...


class Ours:
    """This project's session on one of its backends; the program alone is timed."""

    def __init__(
        self, graph: Graph, feeds: Mapping[str, Array], threads: int, backend: str
    ) -> None:
        from loadrun.session import Session

        self.name = backend
        start = time.perf_counter()
        self._session = Session(graph, backend, threads=threads)
        self._session.prepare(feeds)
        self.prepare_s = time.perf_counter() - start
        program = self._session.program
        assert program is not None
        self._program = program
        self._feeds = [np.ascontiguousarray(feeds[n]) for n in self._session.inputs]

    def run(self) -> list[Array]:
        """Run the compiled program."""
        return list(self._program.run(self._feeds))

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class OnnxRuntime:
    """ONNX Runtime, CPU provider, all optimisations."""

    name = "onnxruntime"

    def __init__(self, model: bytes, feeds: Mapping[str, Array], threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        start = time.perf_counter()
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self.prepare_s = time.perf_counter() - start
        self._feeds = dict(feeds)

    def run(self) -> list[Array]:
        """Run the session."""
        return list(self._session.run(None, self._feeds))

    def close(self) -> None:
        """Drop the session."""
        del self._session


class OpenVino:
    """OpenVINO, latency mode, float32."""

    name = "openvino"

    def __init__(self, model: bytes, feeds: Mapping[str, Array], threads: int) -> None:
        import openvino

        core = openvino.Core()
        start = time.perf_counter()
        compiled = core.compile_model(
            core.read_model(model),
            "CPU",
            {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32",
            },
        )
        self.prepare_s = time.perf_counter() - start
        self._request = compiled.create_infer_request()
        self._request.infer(dict(feeds))
        self._outputs = len(compiled.outputs)

    def run(self) -> list[Array]:
        """Run the request on the inputs it holds."""
        self._request.infer()
        return [self._request.get_output_tensor(i).data for i in range(self._outputs)]

    def close(self) -> None:
        """Drop the request."""
        del self._request


ENGINES = ("cpu", "reference", "onnxruntime", "openvino")


def make_engine(
    name: str, graph: Graph, onnx_bytes: bytes, feeds: Mapping[str, Array], threads: int
) -> Engine:
    """Make an engine by name.

    Raises:
        ValueError: No such engine.
    """
    if name == "onnxruntime":
        return OnnxRuntime(onnx_bytes, feeds, threads)
    if name == "openvino":
        return OpenVino(onnx_bytes, feeds, threads)
    if name in ENGINES:
        return Ours(graph, feeds, threads, name)
    raise ValueError(f"no engine is called {name!r}; known: {', '.join(ENGINES)}")


def megengine_ms(
    graph: Graph, feeds: Mapping[str, Array], environment: Path, oracle: Path, threads: int
) -> float:
    """Median ms of the real MegEngine (fused, fast-run, best of 1 and `threads` threads).

    It runs in an environment of its own, so it cannot be interleaved within the process; callers
    run it in turn with the other engines' rounds.
    """
    import mgeserial

    best = float("inf")
    with tempfile.TemporaryDirectory() as name:
        model, inputs = Path(name) / "m.mge", Path(name) / "x.npz"
        mgeserial.save(graph, model)
        arrays: dict[str, Any] = dict(feeds)
        np.savez(inputs, **arrays)
        variants = [(n, fuse) for n in sorted({1, threads}) for fuse in ([], ["--fuse", "nchw88"])]
        for count, fuse in variants:
            python = str(environment / "bin" / "python")
            command = [python, str(oracle), "bench", str(model), str(inputs)]
            command += ["--threads", str(count), "--iters", "10", "--fast-run", *fuse]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    best = min(best, float(json.loads(line)["median_ms"]))
    return best
