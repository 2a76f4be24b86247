"""A module that stands for the frontend of cuDNN: the same calls, computed by numpy.

Graphs are checked for the order in which the documentation builds them. Each has plans of several
kinds: some are not supported, some have notes that exclude them, some cannot be built. Signatures
are those that the frontend's releases 1.14.1 and 1.32.0 share.
"""

from __future__ import annotations

import types
from typing import Any

from loadrun.backends.cuda.numpy_library import Bytes, convolve
from loadrun.backends.cuda.plan import Convolution

# Name, workspace, notes and whether it can be built, in the library's order of preference.
PLANS = (
    ("eng1_tensor", 0, ("TENSOR_CORE",), True),
    ("eng2_broken", 0, (), False),
    ("eng3_random", 0, ("NONDETERMINISTIC",), True),
    ("eng4_plain", 64, (), True),
    ("eng4_plain", 64, (), True),
    ("eng5_huge", 1 << 40, (), True),
    ("eng6_winograd", 0, ("WINOGRAD",), True),
    ("eng7_last", 0, (), True),
    ("eng8_more", 0, (), True),
)
NOTES = (
    "TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT",
    "NONDETERMINISTIC", "WINOGRAD", "WINOGRAD_TILE_13x13",
)  # fmt: skip


class NotSupportedError(Exception):
    """As cudnn.cudnnGraphNotSupportedError."""


class Tensor:
    """A tensor of a graph."""

    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type = dim, stride, data_type
        self.is_output = False

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_data_type(self, data_type: Any) -> Tensor:
        self.data_type = data_type
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        assert all(type(n) is int for n in dim)
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        assert all(type(n) is int for n in stride)
        self.stride = stride
        return self


class FakeCudnn:
    """The module is `module`; `calls` are what was called."""

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self.calls: list[str] = []
        self.handles: set[object] = set()
        self.streams: list[int] = []
        self.refuse: str | None = None
        self.fail: Exception | None = None
        module: Any = types.ModuleType("cudnn")
        module.data_type = types.SimpleNamespace(FLOAT="float32", HALF="float16")
        module.heur_mode = types.SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
        module.numerical_note = types.SimpleNamespace(**{n: n for n in NOTES})
        module.create_handle = self._create
        module.destroy_handle = self.handles.remove
        module.set_stream = self._set_stream
        module.backend_version = lambda: 91300
        module.pygraph = lambda **kwargs: Graph(self, **kwargs)
        self.module = module

    def _create(self) -> object:
        if self.fail is not None:
            raise self.fail
        handle = object()
        self.handles.add(handle)
        return handle

    def _set_stream(self, handle: object, stream: int) -> None:
        assert handle in self.handles
        self.streams.append(stream)


class Graph:
    """cudnn.pygraph: order of calls, plans, execution."""

    def __init__(
        self,
        fake: FakeCudnn,
        *,
        io_data_type: str,
        intermediate_data_type: str,
        compute_data_type: str,
        handle: object,
    ) -> None:
        assert handle in fake.handles
        assert intermediate_data_type == compute_data_type == "float32"
        self._fake, self._handle, self._type = fake, handle, io_data_type
        self._state = "described"
        self._inputs: list[Tensor] = []
        self._nodes: list[tuple[str, dict[str, Any]]] = []
        self._last: Tensor | None = None
        self._barred: set[str] = set()
        self._ready: set[int] = set()

    def _step(self, before: str, after: str) -> None:
        assert self._state == before, f"{after} after {self._state}"
        self._fake.calls.append(after)
        if self._fake.refuse == after:
            raise NotSupportedError(f"no engine\n{after}")
        self._state = after

    # -- description
    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: str) -> Tensor:
        assert name
        assert data_type == self._type
        assert all(type(n) is int for n in (*dim, *stride))
        self._inputs.append(Tensor(dim, stride, data_type))
        return self._inputs[-1]

    def _node(self, kind: str, **args: Any) -> Tensor:
        self._nodes.append((kind, args))
        self._last = Tensor()
        return self._last

    def conv_fprop(
        self, *, image: Tensor, weight: Tensor, padding: Any, stride: Any, dilation: Any
    ) -> Tensor:
        sizes = {"padding": padding, "stride": stride, "dilation": dilation}
        return self._node("conv", image=image, weight=weight, **sizes)

    def bias(self, *, input: Tensor, bias: Tensor) -> Tensor:
        assert input is self._last
        assert bias.stride[1] == 1
        return self._node("bias", bias=bias)

    def add(self, *, a: Tensor, b: Tensor) -> Tensor:
        assert a is self._last
        return self._node("add", addend=b)

    def relu(
        self,
        *,
        input: Tensor,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
    ) -> Tensor:
        assert input is self._last
        assert (negative_slope, lower_clip, upper_clip) in ((None,) * 3, (None, 0.0, 6.0))
        return self._node("relu" if upper_clip is None else "relu6")

    def sigmoid(self, *, input: Tensor) -> Tensor:
        return self._node("sigmoid")

    def tanh(self, *, input: Tensor) -> Tensor:
        return self._node("tanh")

    def swish(self, *, input: Tensor) -> Tensor:
        return self._node("silu")

    # -- building
    def validate(self) -> None:
        assert self._last is not None
        assert self._last.is_output
        self._step("described", "validate")

    def build_operation_graph(self) -> None:
        self._step("validate", "build_operation_graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]
        self._step("build_operation_graph", "create_execution_plans")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self._state == "create_execution_plans"
        self._barred |= set(notes)

    def check_support(self) -> None:
        self._step("create_execution_plans", "check_support")

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def build_plan_at_index(self, index: int) -> None:
        assert self._state == "check_support"
        _, _, notes, works = PLANS[index]
        if self._barred & set(notes) or not works:
            raise NotSupportedError("this plan is not to be built")
        self._fake.calls.append("build_plan")
        self._ready.add(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert index in self._ready
        return PLANS[index][1]

    def get_plan_name_at_index(self, index: int) -> str:
        return PLANS[index][0]

    # -- execution
    def execute_plan_at_index(
        self, pack: dict[Tensor, int], workspace: int, index: int, handle: object = None
    ) -> None:
        assert handle is self._handle
        assert index in self._ready
        assert set(pack) == {*self._inputs, self._last}
        assert all(type(p) is int for p in (*pack.values(), workspace))
        assert (workspace != 0) == (PLANS[index][1] != 0)
        self._fake.calls.append(f"execute {PLANS[index][0]}")
        if self._fake.fail is not None:
            raise self._fake.fail
        args = {k: v for _, more in self._nodes for k, v in more.items()}
        kinds = [kind for kind, _ in self._nodes]
        out = self._last
        assert out is not None

        def layout(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
            return tuple(tensor.dim), tuple(tensor.stride)

        spec = Convolution(
            self._type, layout(args["image"]), layout(args["weight"]), layout(out),
            tuple(args["stride"]), tuple(args["padding"]), tuple(args["dilation"]),
            bias="bias" in kinds,
            addend=tuple(args["addend"].stride) if "add" in kinds else (),
            activation=kinds[-1] if kinds[-1] not in ("conv", "bias", "add") else "",
        )  # fmt: skip
        convolve(spec, self._fake.memory, [pack[t] for t in (*self._inputs, out)])
