"""From a graph to the engine's nodes: rules registered against operator records.

    @lowers(SOFTMAX)
    def softmax(low: Lowering, node: Node, call: Call) -> None: ...

Rules of an operator are tried in order of registration; one that does not apply raises
`NotApplicable` with the reason before it adds anything. An operator without a rule that applies
runs by its reference code between device steps, and the reasons are reported. Operators whose
inputs are all constants are computed once, here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from loadrun.backends.cuda import bounded
from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.plan import Array
from loadrun.backends.folding import fold, is_known
from loadrun.backends.reference import run_node
from loadrun.backends.rulebook import NotApplicable, Rule, Rulebook
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.inference import Inference, call_of
from mgeserial.ir.types import Call, Shape

__all__ = ["Bound", "Lowered", "Lowering", "NotApplicable", "Rule", "lower", "lowers", "rules"]

_MOST = (1 << 31) - 1  # elements that an index of 32 bits reaches
_FOLDED = 1 << 20  # elements of results of empty inputs that are computed ahead of the run


_BOOK: Rulebook[Lowering] = Rulebook()
lowers = _BOOK.lowers


def rules() -> dict[str, list[Rule[Lowering]]]:
    """All rules by operator name."""
    from loadrun.backends.cuda import rules as _modules

    _modules.load()
    return _BOOK.by_operator


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph as a network.

    Attributes:
        network: The engine's nodes; its inputs are '' where nothing needs the graph's input.
        fallback: Operators that run by reference code, with their number.
        reasons: Why, one line per operator and reason.
        host: The operators that run by reference code, each with the reason.
    """

    network: nd.Network
    fallback: dict[str, int]
    reasons: tuple[str, ...]
    host: tuple[tuple[Node, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """What is known of a value one of whose lengths is counted by the run.

    Its tensor has room for the largest length; elements behind the count are defined, but mean
    nothing.

    Attributes:
        shape: Its shape with the largest length.
        axis: The axis of that length.
        count: The int32 tensor of one element that holds the length.
    """

    shape: Shape
    axis: int
    count: str


@dataclass(slots=True)
class Lowering:
    """The walk over a graph. Rules use its methods to read inputs and to add nodes.

    Attributes:
        bounds: Values whose length is counted by the run.
        lengths: Tensors of one number that is such a length.
        loose: Take counted values for values of their largest shape.
    """

    graph: Graph
    inference: Inference
    nodes: list[nd.Node] = field(default_factory=list)
    tensors: dict[str, nd.TensorInfo] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    origins: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    bounds: dict[Value, Bound] = field(default_factory=dict)
    lengths: dict[Value, Bound] = field(default_factory=dict)
    loose: bool = False
    _names: dict[Value, str] = field(default_factory=dict)
    _arrays: dict[Value, Array] = field(default_factory=dict)
    _shared: dict[tuple[str, Shape, bytes], str] = field(default_factory=dict)
    _count: int = 0

    # -- what rules may ask
    def shape(self, value: Value) -> Shape:
        """Static shape of a value.

        Raises:
            NotApplicable: It is not known ahead of the run, or has no or too many elements.
        """
        dims = self.dims(value)
        if 0 in dims:
            raise NotApplicable("a tensor has no elements")
        if math.prod(dims) > _MOST:
            raise NotApplicable("a tensor has more elements than 31 bits count")
        return dims

    def dims(self, value: Value) -> Shape:
        """Static shape of a value that may have no elements.

        Raises:
            NotApplicable: It is not known ahead of the run.
        """
        known = self.inference.types[value]
        if self.loose and value in self.bounds:
            return self.bounds[value].shape
        if not known.is_static:
            raise NotApplicable("a shape is known only at run time")
        return known.dims

    def dtype(self, value: Value) -> DType:
        """Element type of a value."""
        return self.inference.types[value].dtype

    def need_real(self, *values: Value) -> None:
        """Raise NotApplicable for complex values."""
        if any(self.dtype(v).kind is DTypeEnum.Complex64 for v in values):
            raise NotApplicable("Complex64 has no native code")

    def need_float(self, *values: Value) -> None:
        """Raise NotApplicable unless all values are of a floating type."""
        for value in values:
            if not self.dtype(value).is_float:
                raise NotApplicable(f"only floating types have a kernel, got {self.dtype(value)}")

    def keep(self, value: Value, array: Array) -> None:
        """Note a value computed ahead of the run."""
        self._arrays[value] = array

    def array(self, value: Value) -> Array | None:
        """A value that is known ahead of the run, else None."""
        found = self._arrays.get(value)
        return self.inference.value(value) if found is None else found

    def empty(self, value: Value) -> Array | None:
        """A value that is known ahead of the run, also because it has no elements; else None."""
        known = self.inference.types[value]
        if known.is_static and 0 in known.dims:
            return np.empty(known.dims, known.dtype.storage)
        return self.array(value)

    def need_array(self, value: Value, what: str) -> Array:
        """A value that must be known ahead of the run."""
        found = self.array(value)
        if found is None:
            raise NotApplicable(f"{what} is computed at run time")
        return found

    def name(self, value: Value) -> str:
        """The network's name of a value."""
        found = self._names.get(value)
        if found is None:
            array = self.need_array(value, "a value")
            found = self.constant(array, self.dtype(value))
            self._names[value] = found
        return found

    def access(self, value: Value, shape: Shape) -> nd.Access:
        """A value read with numpy's broadcasting to a shape."""
        given = self.shape(value)
        name = self.name(value)
        strides = nd.contiguous(given)
        lead = len(shape) - len(given)
        moved = tuple(0 if n == 1 else s for n, s in zip(given, strides, strict=True))
        return nd.Access(name, (0,) * lead + moved)

    # -- what rules may add
    def unique(self, stem: str) -> str:
        """A new name."""
        self._count += 1
        return f"{stem}.{self._count}"

    def temp(self, shape: Shape, dtype: str = "float32", ctype: str = "f32") -> str:
        """A new tensor."""
        name = self.unique("t")
        self.tensors[name] = nd.TensorInfo(shape, dtype, ctype)
        return name

    def constant(self, array: Array, dtype: DType | None = None) -> str:
        """A constant tensor; equal ones are one."""
        data = np.ascontiguousarray(array)
        kind = c_type(dtype) if dtype is not None else ""
        key = (f"{data.dtype.str}{kind}", data.shape, data.tobytes() if data.nbytes < 4096 else b"")
        if key[2] and key in self._shared:
            return self._shared[key]
        name = self.unique("c")
        self.consts[name] = data
        ctype = kind or _plain_c(data)
        self.tensors[name] = nd.TensorInfo(data.shape, data.dtype.name, ctype)
        if key[2]:
            self._shared[key] = name
        return name

    def table(self, key: str, make: Callable[[], Array], ctype: str) -> str:
        """A constant that many operators share: made at the first use of its key."""
        place = (f"table {key}", (), b"")
        if place not in self._shared:
            self._shared[place] = self.state(make(), ctype)
        return self._shared[place]

    def state(self, array: Array, ctype: str) -> str:
        """A tensor that starts as an array; kernels may change it, and runs go on with it."""
        name = self.unique("c")
        self.consts[name] = np.ascontiguousarray(array)
        self.tensors[name] = nd.TensorInfo(array.shape, array.dtype.name, ctype)
        return name

    def add(self, node: nd.Node) -> None:
        """Add a node."""
        self.nodes.append(node)

    def kernel(
        self,
        node: Node,
        template: str,
        params: Sequence[nd.Param],
        items: int,
        *,
        per_block: int = 256,
        block: int = 256,
        stem: str = "",
        flops: float = 0.0,
        **fields: object,
    ) -> None:
        """Add a kernel of its own for a node; it writes what `Out` parameters name.

        Args:
            node: The operator it is part of.
            template: Source file.
            params: Arguments.
            items: Work items.
            per_block: Items that one block covers.
            block: Threads of a block.
            stem: Name of the kernel; the template's without.
            flops: Operations, for reports.
            fields: Values of the template's placeholders.

        Raises:
            NotApplicable: A number is too large for an argument.
        """
        if any(isinstance(p, int) and not -_MOST <= p <= _MOST for p in params):
            raise NotApplicable("a parameter needs more than 31 bits")
        outs = tuple(dict.fromkeys(p.tensor for p in params if isinstance(p, nd.Out)))
        pairs = tuple((k, str(v)) for k, v in fields.items())
        self.add(
            nd.Custom(
                self.label(node), outs, template, pairs, tuple(params), items, per_block, block,
                stem or template, flops,
            )
        )  # fmt: skip

    def out(self, value: Value) -> str:
        """The name under which a node that is being added writes a value."""
        name = self.unique("v")
        self._names[value] = name
        known = self.inference.types[value]
        ctype = c_type(known.dtype) if known.dtype.kind is not DTypeEnum.Complex64 else "c64"
        bound = self.bounds.get(value)
        static = bound is not None or (known.is_static and 0 not in known.dims)
        shape = bound.shape if bound is not None else known.dims if static else ()
        self.tensors[name] = nd.TensorInfo(shape, known.dtype.storage.name, ctype)
        if not static:
            self.dynamic.add(name)
        return name

    def counted(self, value: Value, bound: Bound) -> str:
        """As `out`, for a value whose length is counted by the run."""
        self.bounds[value] = bound
        return self.out(value)

    def same(self, value: Value, name: str) -> None:
        """Let a value be a tensor that exists already (same shape and type)."""
        self._names[value] = name

    def alias(self, node: Node, value: Value, name: str) -> None:
        """Let a value be a tensor that exists already, under the value's own shape."""
        self.add(nd.Alias(self.label(node), (self.out(value),), name))

    def label(self, node: Node) -> str:
        """A unique name for steps of a node that a person can find again."""
        name = self.unique(node.display_name or node.op.name)
        self.origins[name] = (node,)
        return name


def _plain_c(array: Array) -> str:
    from loadrun.backends.cuda.expr import storage_c

    return storage_c(array.dtype.name) if array.dtype.name != "complex64" else "c64"


def lower(graph: Graph, inference: Inference) -> Lowered:
    """Lower all nodes that an output needs."""
    table = rules()
    low = Lowering(graph, inference)
    live = reachable(graph.outputs)
    fallback: Counter[str] = Counter()
    reasons: dict[str, None] = {}
    host: list[tuple[Node, str]] = []
    inputs = tuple(low.out(v) if v.node in live else "" for v in graph.inputs)
    for node in graph.nodes:
        if node not in live or node.is_input:
            continue
        call = call_of(node, inference)
        if is_known(low, node) or fold(low, node, call) or _without_elements(low, node, call):
            continue
        candidates = table.get(node.op.name, [])
        reason = _apply(low, candidates, node, call)
        if reason is not None and any(v in low.bounds for v in node.inputs):
            reason = bounded.apply(low, node, call, partial(_apply, low, candidates))
        if reason is not None:
            fallback[node.op.name] += 1
            reasons[f"{node.op.name}: {reason}"] = None
            host.append((node, reason))
            _on_host(low, node, call)
    outputs = tuple(_output(low, v) for v in graph.outputs)
    network = nd.Network(
        tuple(low.nodes),
        low.tensors,
        low.consts,
        inputs,
        outputs,
        frozenset(low.dynamic),
        low.origins,
    )
    return Lowered(network, dict(fallback), tuple(reasons), tuple(host))


def _apply(
    low: Lowering, candidates: Sequence[Rule[Lowering]], node: Node, call: Call
) -> str | None:
    """Apply the first rule that fits; the reason when none does."""
    reason = "no kernel yet"
    names = dict(low._names)
    for rule in candidates:
        count = len(low.nodes)
        try:
            rule.apply(low, node, call)
        except NotApplicable as no:
            reason = str(no)
            del low.nodes[count:]
            low._names.clear()
            low._names.update(names)
        else:
            return None
    return reason


# Data decides more than the elements of what these give: wrong indices are errors.
_LOOKS = ("Indexing", "ROI", "Warp", "Assert", "Argsort", "Mesh", "CheckHas", "CheckNon")


def _without_elements(low: Lowering, node: Node, call: Call) -> bool:
    """Note results that need no launch: empty ones, and those of inputs that are all empty."""
    op: Any = node.op
    types = [low.inference.types[v] for v in node.outputs]
    if not (op.is_pure and types and all(t.is_static for t in types)):
        return False
    if any(word in op.name for word in _LOOKS) or op.reference is None:
        return False
    arrays = [low.empty(v) for v in node.inputs]
    divides = op.name.startswith("Elemwise") and any(
        a is None and low.dtype(v).is_integer for a, v in zip(arrays, node.inputs, strict=True)
    )
    if all(0 in t.dims for t in types) and not divides:
        for value, known in zip(node.outputs, types, strict=True):
            low.keep(value, np.empty(known.dims, known.dtype.storage))
        return True
    found = [a for a in arrays if a is not None]
    if len(found) < len(arrays) or sum(t.size for t in types) > _FOLDED:
        return False
    try:
        results = run_node(node, call, found)
    except MgeError:
        return False  # the run says so
    for value, result in zip(node.outputs, results, strict=True):
        low.keep(value, np.ascontiguousarray(result))
    return True


def _on_host(low: Lowering, node: Node, call: Call) -> None:
    """Run a node by its reference code."""
    call.state.clear()
    given = tuple(low.name(v) for v in node.inputs)
    cuts = bounded.cuts(low, node.inputs)
    counts = tuple(dict.fromkeys(count for _, _, count in cuts))

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        whole = list(arrays[: len(given)])
        found = dict(zip(counts, arrays[len(given) :], strict=True))
        for k, axis, count in cuts:
            whole[k] = bounded.cut(whole[k], axis, found[count])
        return run_node(node, call, whole)

    writes = tuple(low.out(v) for v in node.outputs)
    low.add(nd.HostCode(low.label(node), writes, (*given, *counts), run))


def _output(low: Lowering, value: Value) -> str:
    """The tensor of an output; constants and empty values are read as they are."""
    bound = low.bounds.get(value)
    if bound is None:
        return low.name(value)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        return [bounded.cut(arrays[0], bound.axis, arrays[1])]

    given = low.name(value)
    del low.bounds[value]  # what follows is an array of the host
    out = low.out(value)
    low.add(nd.HostCode(low.label(value.node), (out,), (given, bound.count), run))
    return out
