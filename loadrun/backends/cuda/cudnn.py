"""Convolutions by NVIDIA's cuDNN, through its Python frontend (the extra `cudnn`).

Imported only where cuDNN's convolutions are candidates. A convolution and what follows it become
one graph; cuDNN names engines that can run it, and those that keep our promises are offered: the
same bits in every run, no less than float32 sums, no TF32 unless it was asked for.

Source: documentation of cudnn-frontend ("Convolutions", "Pointwise", "Graphs", "Custom Execution
Plan"), and the signatures of its releases 1.14.1 and 1.32.0, which agree in all that is used here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from loadrun.backends.cuda.plan import Convolution, Engine
from mgeserial.errors import ExecutionError

__all__ = ["Cudnn", "build_graph", "reason_missing"]

_INSTALL = "run `pip install mgeserial[cudnn] nvidia-cudnn-cu12` (or -cu13)"
# Engines that are offered for a convolution, in cuDNN's order of preference.
_MOST_ENGINES = 3
_MOST_WORKSPACE = 256 << 20
# Engines with such notes are not used; winograd in float16 and of tiles of 13x13 is inexact.
_NEVER = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "WINOGRAD_TILE_13x13")
_WITHOUT_TF32 = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
_HALF = ("WINOGRAD", "FFT")


def reason_missing() -> str | None:
    """Why cuDNN cannot be used, with the way out; None: it can be tried."""
    if importlib.util.find_spec("cudnn") is None:
        return f"nvidia-cudnn-frontend is not installed; {_INSTALL}"
    try:
        import cudnn
    except Exception as error:  # it looks for cuDNN, and raises whatever the loader says
        return f"nvidia-cudnn-frontend cannot be imported ({_first_line(error)}); {_INSTALL}"
    missing = [n for n in ("pygraph", "create_handle", "set_stream") if not hasattr(cudnn, n)]
    if missing:
        return f"the module `cudnn` that is installed has no {missing[0]}; {_INSTALL}"
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


class _Built:
    """A graph with its plans: which index an engine has, and the graph's tensors in our order."""

    def __init__(self, graph: Any, tensors: list[Any]) -> None:
        self.graph, self.tensors = graph, tensors
        self.index: dict[str, int] = {}


class Cudnn:
    """cuDNN on one stream of the current device.

    Args:
        stream: The stream's handle.
    """

    def __init__(self, stream: int) -> None:
        import cudnn

        self._cudnn: Any = cudnn
        try:
            self._handle: Any = cudnn.create_handle()
            cudnn.set_stream(handle=self._handle, stream=stream)
            self.version = str(cudnn.backend_version())
        except Exception as error:
            raise ExecutionError(f"cuDNN cannot be used: {_first_line(error)}") from error
        self._built: dict[Convolution, _Built] = {}
        self._engines: dict[Convolution, tuple[Engine, ...]] = {}

    def engines(self, spec: Convolution) -> tuple[Engine, ...]:
        """Engines that compute a convolution; empty where there is none."""
        found = self._engines.get(spec)
        if found is None:
            try:
                found = self._find(spec)
            # cuDNN refuses by errors of several kinds; what it refuses is no candidate.
            except Exception:
                found = ()
            self._engines[spec] = found
        return found

    def _find(self, spec: Convolution) -> tuple[Engine, ...]:
        graph, tensors = build_graph(self._cudnn, spec, self._handle)
        graph.validate()
        graph.build_operation_graph()
        modes = self._cudnn.heur_mode
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        notes = self._cudnn.numerical_note
        graph.deselect_numeric_notes([getattr(notes, n) for n in _unwanted(spec)])
        graph.check_support()
        built = _Built(graph, tensors)
        found: list[Engine] = []
        for index in range(graph.get_execution_plan_count()):
            engine = _try_plan(graph, index)
            if engine is not None and engine.name not in built.index:
                built.index[engine.name] = index
                found.append(engine)
            if len(found) == _MOST_ENGINES:
                break
        if found:
            self._built[spec] = built
        return tuple(found)

    def convolve(
        self, spec: Convolution, engine: Engine, tensors: Sequence[int], workspace: int
    ) -> None:
        """Start a convolution; see `Device.convolve`."""
        self.engines(spec)
        built = self._built.get(spec)
        index = None if built is None else built.index.get(engine.name)
        if built is None or index is None:
            raise ExecutionError(f"cuDNN has no engine {engine.name} for {spec}")
        pack = dict(zip(built.tensors, map(int, tensors), strict=True))
        try:
            built.graph.execute_plan_at_index(pack, int(workspace), index, handle=self._handle)
        except Exception as error:
            raise ExecutionError(f"cuDNN: {spec}: {_first_line(error)}") from error

    def close(self) -> None:
        """Give graphs and the handle back. Safe to call twice."""
        self._built.clear()
        self._engines.clear()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._cudnn.destroy_handle(handle)


def _try_plan(graph: Any, index: int) -> Engine | None:
    """The engine of a plan; None where it is excluded or cannot be built."""
    try:
        graph.build_plan_at_index(index)
        size = int(graph.get_workspace_size_plan_at_index(index))
        name = str(graph.get_plan_name_at_index(index))
    except Exception:
        return None
    return Engine(name, size) if 0 <= size <= _MOST_WORKSPACE else None


def _unwanted(spec: Convolution) -> tuple[str, ...]:
    """Notes of engines that do not compute what was asked for."""
    if spec.dtype == "float16":
        return _NEVER + _HALF
    return _NEVER if spec.tf32 else _NEVER + _WITHOUT_TF32


def build_graph(cudnn: Any, spec: Convolution, handle: Any) -> tuple[Any, list[Any]]:
    """A graph of the frontend, and its tensors: image, filter, [bias,] [addend,] result.

    Args:
        cudnn: The frontend's module.
        spec: What to compute.
        handle: cuDNN's handle.
    """
    types = cudnn.data_type
    element = types.HALF if spec.dtype == "float16" else types.FLOAT
    graph = cudnn.pygraph(
        io_data_type=element,
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        handle=handle,
    )

    def tensor(name: str, sizes: Sequence[int], strides: Sequence[int]) -> Any:
        return graph.tensor(name=name, dim=[*sizes], stride=[*strides], data_type=element)

    tensors = [tensor("image", *spec.x), tensor("filter", *spec.w)]
    at = graph.conv_fprop(
        image=tensors[0], weight=tensors[1], padding=[*spec.pad], stride=[*spec.stride],
        dilation=[*spec.dilate],
    )  # fmt: skip
    if spec.bias:
        # Dimensions in the order of the result's, which engines ask for.
        channels, rank = spec.y[0][1], len(spec.pad)
        outer = channels if spec.y[1][1] == 1 else 1
        sizes, strides = (1, channels, *(1,) * rank), (channels, 1, *(outer,) * rank)
        tensors.append(tensor("bias", sizes, strides))
        at = graph.bias(input=at, bias=tensors[-1])
    if spec.addend:
        tensors.append(tensor("addend", spec.y[0], spec.addend))
        at = graph.add(a=at, b=tensors[-1])
    if spec.activation:
        at = _ACTIVATE[spec.activation](graph, at)
    at.set_output(True).set_data_type(element).set_dim([*spec.y[0]]).set_stride([*spec.y[1]])
    return graph, [*tensors, at]


_ACTIVATE: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda graph, v: graph.relu(input=v),
    "relu6": lambda graph, v: graph.relu(input=v, lower_clip=0.0, upper_clip=6.0),
    "sigmoid": lambda graph, v: graph.sigmoid(input=v),
    "tanh": lambda graph, v: graph.tanh(input=v),
    "silu": lambda graph, v: graph.swish(input=v),
}
