"""From a graph to the engine's nodes: rules registered against operator records.

    @lowers(SOFTMAX)
    def softmax(low: Lowering, node: Node, call: Call) -> None: ...

Rules of an operator are tried in order of registration; one that does not apply raises
`NotApplicable` with the reason before it adds anything. An operator without a rule that applies
runs by its reference code between native segments, and the reasons are reported. Operators whose
inputs are all constants are computed once, here.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadrun.backends.cpu import halves
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.elements import Builder
from loadrun.backends.cpu.expr import Expr, chain
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.tail import Tail, find_tail
from loadrun.backends.folding import fold, is_known
from loadrun.backends.reference import run_node
from loadrun.backends.rulebook import NotApplicable, Rule, Rulebook
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.copying import reachable
from mgeserial.ir.graph import Graph, Node, Value
from mgeserial.ir.inference import Inference, call_of
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.layouts import NCHW, TensorLayout
from mgeserial.ops.numerics import to_real

__all__ = ["Lowered", "Lowering", "NotApplicable", "Rule", "lower", "lowers", "rules"]

_INPUT = "Host2DeviceCopy"
_MOST_TRIED = 1 << 24  # elements that reference code may look at while a graph is lowered
_HALF = frozenset({DTypeEnum.Float16, DTypeEnum.BFloat16})


_BOOK: Rulebook[Lowering] = Rulebook()
lowers = _BOOK.lowers


def rules(*, later: bool = True, operator: str = "") -> dict[str, list[Rule[Lowering]]]:
    """All rules by operator name; or those of the modules imported first, or for one operator."""
    from loadrun.backends.cpu import rules as _modules

    _modules.load(later=later, operator=operator)
    return _BOOK.by_operator


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph as a network.

    Attributes:
        network: The engine's nodes.
        inputs: For each graph input the network's name, '' where nothing needs it.
        outputs: For each graph output the network's name; names may repeat.
        fallback: Operators that run by reference code, with their number.
        reasons: Why, one line per operator and reason.
        labels: Operator of the graph by the name of the node that computes it.
        values: Names that people know by names of tensors.
        tail: What follows results whose shapes depend on data.
        checks: Outputs of the network, behind those of the graph, that are zero where the native
            code could do what was asked; else the reference code runs instead, or says why not.
    """

    network: nd.Network
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fallback: dict[str, int]
    reasons: tuple[str, ...]
    labels: dict[str, Node] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    tail: Tail | None = None


@dataclass(slots=True)
class Lowering:
    """The walk over a graph. Rules use its methods to read inputs and to add nodes."""

    graph: Graph
    inference: Inference
    nodes: list[nd.Node] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    _names: dict[Value, str] = field(default_factory=dict)
    _arrays: dict[Value, Array] = field(default_factory=dict)
    _packed: dict[Value, tuple[str, TensorLayout]] = field(default_factory=dict)
    _codes: dict[Value, str] = field(default_factory=dict)
    bounds: dict[Value, float] = field(default_factory=dict)  # of codes wider than a byte
    labels: dict[str, Node] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    half: bool = False  # rules see values of half precision as float32; see `_apply_half`
    _count: int = 0

    # -- what rules may ask
    def shape(self, value: Value) -> Shape:
        """Static shape of a value.

        Raises:
            NotApplicable: It is not known ahead of the run, or has no elements.
        """
        known = self.dims(value)
        if 0 in known:
            raise NotApplicable("a tensor has no elements")
        return known

    def dims(self, value: Value) -> Shape:
        """As `shape`, of tensors without elements, too: those are known ahead of the run."""
        known = self.inference.types[value]
        if not known.is_static:
            raise NotApplicable("a shape is known only at run time")
        return known.dims

    def keep_empty(self, value: Value) -> None:
        """Note a value that has no elements as known."""
        known = self.inference.types[value]
        if known.is_static and 0 in known.dims:
            self.keep(value, np.empty(known.dims, known.dtype.storage))

    def is_float32(self, *values: Value) -> bool:
        """Whether all values are float32, or pass for it."""
        kinds = {self.inference.types[v].dtype.kind for v in values}
        return kinds <= ({DTypeEnum.Float32, *_HALF} if self.half else {DTypeEnum.Float32})

    def is_half(self, value: Value) -> bool:
        """Whether a value is float16 or bfloat16."""
        return self.inference.types[value].dtype.kind in _HALF

    def need_float32(self, *values: Value) -> None:
        """Raise NotApplicable unless all values are float32."""
        if not self.is_float32(*values):
            kinds = sorted({str(self.inference.types[v].dtype) for v in values})
            raise NotApplicable(f"only float32 is native, got {', '.join(kinds)}")

    def keep(self, value: Value, array: Array) -> None:
        """Note a value computed ahead of the run."""
        self._arrays[value] = array

    def array(self, value: Value) -> Array | None:
        """A value that is known ahead of the run, else None."""
        found = self._arrays.get(value)
        found = self.inference.value(value) if found is None else found
        if found is not None and self.half and self.is_half(value):
            return to_real(found, self.inference.types[value].dtype)
        return found

    def need_array(self, value: Value, what: str) -> Array:
        """A value that must be known ahead of the run."""
        found = self.array(value)
        if found is None:
            raise NotApplicable(f"{what} is computed at run time")
        return found

    def name(self, value: Value) -> str:
        """The network's name of a value as it is stored."""
        if self.half and self.is_half(value):
            return self.codes(value)
        found = self._names.get(value)
        if found is not None:
            return found
        array = self._arrays.get(value)
        codes = self._codes.get(value)
        if array is None and value not in self._packed and codes is None:
            array = self.inference.value(value)
        if array is not None:
            found = self.constant(array)
        else:
            found = self._unpacked(value) if codes is None else codes
            found = self._stored(found, self.inference.types[value].dtype)
        self._names[value] = found
        return found

    def _stored(self, name: str, dtype: DType) -> str:
        """Floats that stand for elements of a type as they are stored."""
        storage = dtype.storage.name
        if storage == "float32":
            return name
        b = Builder(1)
        value = 0
        if dtype.kind is DTypeEnum.BFloat16:
            value = b.op("to_bfloat", 0)
        elif not dtype.is_float:
            value = b.op("truncate", 0)
            value = b.op("iadd", value, b.whole(dtype.zero_point)) if dtype.zero_point else value
        return self._cast(name, storage, b.done(value))

    def _floats(self, name: str, dtype: DType) -> str:
        """The reverse of `_stored`."""
        b = Builder(1)
        value = 0
        if dtype.kind is DTypeEnum.BFloat16:
            value = b.op("from_bfloat", 0)
        elif not dtype.is_float:
            value = b.op("isub", 0, b.whole(dtype.zero_point)) if dtype.zero_point else 0
            value = b.op("to_real", value)
        return self._cast(name, "float32", b.done(value))

    def _cast(self, name: str, kind: str, expr: Expr) -> str:
        out = self.temp(self.shapes[name])
        self.dtypes[out] = kind
        self.add(nd.Eltwise(self.unique("cast"), (name,), (out,), expr))
        return out

    def codes(self, value: Value, layout: TensorLayout = NCHW) -> str:
        """A quantised or integer value as float32 whole numbers less its zero point, as NCHW."""
        packed = self._packed.get(value)
        if layout.name != NCHW.name and packed is not None and packed[1] == layout:
            return packed[0]
        kind = self.inference.types[value].dtype
        array = self.array(value)
        if array is not None:
            whole = array.astype(np.float32) - np.float32(kind.zero_point or 0)
            moved = whole if layout.name == NCHW.name else np.asarray(layout.to_nchw(whole))
            return self.constant(np.ascontiguousarray(moved.astype(np.float32)))
        found = self._codes.get(value)
        if found is None:
            as_half, self.half = self.half, False
            found = self._floats(self.name(value), kind)
            self.half = as_half
            self._codes[value] = found
        return found if layout.name == NCHW.name else self._to_nchw(found, layout)

    def set_codes(self, value: Value, name: str, layout: TensorLayout = NCHW) -> None:
        """Let a value be the float32 whole numbers of a tensor in NCHW, less its zero point."""
        if layout.name == NCHW.name:
            self._codes[value] = name
        else:
            self._packed[value] = (name, layout)

    def image(self, value: Value, layout: TensorLayout = NCHW) -> str:
        """The network's name of an image tensor as NCHW, whatever layout it is stored in."""
        if layout.name == NCHW.name:
            return self.name(value)
        packed = self._packed.get(value)
        if packed is not None and packed[1] == layout:
            return packed[0]
        self.shape(value)
        array = self.array(value)
        if array is not None:
            return self.constant(np.ascontiguousarray(layout.to_nchw(array)))
        return self._to_nchw(self.name(value), layout)

    def _like(self, name: str, shape: Shape) -> str:
        """A new tensor of the element type of another."""
        out = self.temp(shape)
        self.dtypes[out] = self.dtype_name(name)
        return out

    def _to_nchw(self, name: str, layout: TensorLayout) -> str:
        """A tensor in a packed layout as NCHW."""
        stored = self.shapes[name]
        strides = dict(zip(layout.axes, contiguous(stored), strict=True))
        size = dict(zip(layout.axes, stored, strict=True))
        order = [a for a in "NCcHW" if a in size]
        split = self._like(name, tuple(size[a] for a in order))
        move = tuple(strides[a] for a in order)
        self.add(nd.View(self.unique("unpack"), (name,), (split,), move))
        if layout.lanes == 1:
            return split
        whole = self._like(name, layout.logical(stored))
        self.add(nd.Reshape(self.unique("unpack"), (split,), (whole,)))
        return whole

    def plain_image(self, value: Value, layout: TensorLayout = NCHW) -> str:
        """An image of any element type as NCHW, with its elements as they are stored."""
        if layout.name == NCHW.name or self.is_float32(value):
            return self.image(value, layout)
        return self._to_nchw(self.name(value), layout)

    def packed(self, value: Value) -> TensorLayout | None:
        """The layout of a value that exists as NCHW for the engine, None for others."""
        found = self._packed.get(value)
        return found[1] if found else None

    def _unpacked(self, value: Value) -> str:
        """Write a value that exists as NCHW the way it is stored."""
        name, layout = self._packed[value]
        return self.stored_image(name, layout, self.shape(value))

    def stored_image(self, name: str, layout: TensorLayout, stored: Shape) -> str:
        """A tensor in NCHW the way a layout stores it."""
        logical = self.shapes[name]
        split = name
        dims = {"N": logical[0], "C": logical[1], "H": logical[2], "W": logical[3]}
        if layout.lanes > 1:
            dims |= {"C": logical[1] // layout.lanes, "c": layout.lanes}
            split = self._like(name, (dims["N"], dims["C"], dims["c"], dims["H"], dims["W"]))
            self.add(nd.Reshape(self.unique("pack"), (name,), (split,)))
        order = [a for a in "NCcHW" if a in dims]
        strides = dict(zip(order, contiguous([dims[a] for a in order]), strict=True))
        out = self._like(name, stored)
        move = tuple(strides[a] for a in layout.axes)
        self.add(nd.View(self.unique("pack"), (split,), (out,), move))
        return out

    # -- what rules may add
    def unique(self, stem: str) -> str:
        """A new name."""
        self._count += 1
        return f"{stem}.{self._count}"

    def temp(self, shape: Shape) -> str:
        """A new float32 tensor."""
        name = self.unique("t")
        self.shapes[name] = shape
        return name

    def check(self, units: int) -> str:
        """A tensor for a node to write: 1 where a work unit met what only reference code judges."""
        name = self.temp((units,))
        self.dtypes[name] = "int32"
        self.checks.append(name)
        return name

    def dtype_name(self, name: str) -> str:
        """Numpy's name of a tensor's element type."""
        return self.dtypes.get(name, "float32")

    def constant(self, array: Array) -> str:
        """A new constant tensor."""
        name = self.unique("c")
        self.consts[name] = array
        self.shapes[name] = array.shape
        self.dtypes[name] = array.dtype.name
        return name

    def add(self, node: nd.Node) -> None:
        """Add a node."""
        self.nodes.append(node)

    def out(self, value: Value) -> str:
        """The name under which a node that is being added writes a value, stored as it is."""
        name = self.unique("v")
        known = self.inference.types[value]
        if self.half and self.is_half(value):
            self.shapes[name] = self.shape(value)
            self._codes[value] = name
            return name
        self._names[value] = name
        if known.is_static and 0 not in known.dims:
            self.shapes[name] = known.dims
            self.dtypes[name] = known.dtype.storage.name
        return name

    def out_image(self, value: Value, layout: TensorLayout = NCHW) -> str:
        """As `out`, for an image that the node writes as NCHW."""
        if layout.name == NCHW.name:
            return self.out(value)
        name = self.temp(layout.logical(self.shape(value)))
        self._packed[value] = (name, layout)
        return name

    def same(self, value: Value, name: str) -> None:
        """Let a value be a tensor that exists already (same shape and dtype)."""
        if self.half and self.is_half(value):
            self._codes[value] = name
        else:
            self._names[value] = name

    def round_half(self, value: Value) -> None:
        """Round what a rule made for a float16 value to what the type can hold.

        A value that nobody reads need not have been made: then there is nothing to round.
        """
        packed = self._packed.get(value)
        given = packed[0] if packed else self._codes.get(value)
        if given is None:
            return
        out = self.temp(self.shapes[given])
        is_short = self.inference.types[value].dtype.kind is DTypeEnum.BFloat16
        expr = chain(("bfloat" if is_short else "half",))
        self.add(nd.Eltwise(self.unique("half"), (given,), (out,), expr))
        if packed:
            self._packed[value] = (out, packed[1])
        else:
            self._codes[value] = out

    def same_image(self, value: Value, name: str, layout: TensorLayout) -> None:
        """Let a value in a packed layout be an NCHW tensor that exists already."""
        self._packed[value] = (name, layout)

    def label(self, node: Node) -> str:
        """A unique name for steps of a node that a person can find again."""
        name = self.unique(node.display_name or node.op.name)
        self.labels[name] = node
        return name


def lower(graph: Graph, inference: Inference) -> Lowered:
    """Lower all nodes that an output needs."""
    low = Lowering(graph, inference)
    live = reachable(graph.outputs)
    fallback: Counter[str] = Counter()
    reasons: dict[str, None] = {}
    inputs = tuple(low.out(v) if v.node in live else "" for v in graph.inputs)
    for value in graph.inputs:
        low.keep_empty(value)
    behind = find_tail(graph, inference, live)
    live = live.difference(behind)
    for node in graph.nodes:
        if node not in live or node.op.name == _INPUT:
            continue
        call = call_of(node, inference)
        if is_known(low, node) or fold(low, node, call) or _is_empty(low, node, call):
            continue
        for value in node.outputs:
            low.keep_empty(value)
        reason = _lowered(low, node, call)
        if reason is not None:
            fallback[node.op.name] += 1
            reasons[f"{node.op.name}: {reason}"] = None
            _on_host(low, node, call)
    tail = Tail(graph, inference, behind) if behind else None
    if tail is not None:
        kinds = {s.node.op.name for s in inference.stops}
        causes = [n for n in behind if n.op.name in kinds]
        fallback.update(n.op.name for n in causes)
        reasons.update(dict.fromkeys(f"{n.op.name}: its shape depends on data" for n in causes))
        _add_tail(low, tail)
    outputs = tuple(_output(low, v) for v in graph.outputs)
    checks = tuple(low.checks)
    network = nd.Network(
        tuple(low.nodes),
        low.shapes,
        tuple(n for n in inputs if n),
        (*dict.fromkeys(outputs), *checks),
        low.dtypes,
        low.consts,
    )
    known = {name: value.display_name for value, name in low._names.items()}
    known |= {name: value.display_name for value, (name, _) in low._packed.items()}
    why = tuple(reasons)
    return Lowered(network, inputs, outputs, dict(fallback), why, low.labels, known, checks, tail)


def _lowered(low: Lowering, node: Node, call: Call) -> str | None:
    """Lower a node, by rules of the modules imported first if one applies; None or why not."""
    apply = _apply_half if any(map(low.is_half, (*node.inputs, *node.outputs))) else _apply
    first = list(rules(later=False).get(node.op.name, []))
    reason = apply(low, first, node, call)
    if reason is None:
        return None
    others = rules(operator=node.op.name).get(node.op.name, [])[len(first) :]
    return apply(low, others, node, call) if others else reason


def _is_empty(low: Lowering, node: Node, call: Call) -> bool:
    """Whether all results are without elements, and the reference code has nothing against it."""
    types = [low.inference.types[v] for v in (*node.inputs, *node.outputs)]
    given = types[: len(node.inputs)]
    results = types[len(node.inputs) :]
    if not node.op.is_pure or not node.inputs or not all(t.is_static for t in types):
        return False
    if not results or any(0 not in t.dims for t in results):
        return False
    if sum(t.size for t in given) > _MOST_TRIED:
        return False
    arrays = [np.broadcast_to(np.zeros((), t.dtype.storage), t.dims) for t in given]
    known = [low.array(v) for v in node.inputs]
    try:
        run_node(node, call, [a if k is None else k for a, k in zip(arrays, known, strict=True)])
    except MgeError:
        return False
    for value in node.outputs:
        low.keep_empty(value)
    return True


def _apply(
    low: Lowering, candidates: Sequence[Rule[Lowering]], node: Node, call: Call
) -> str | None:
    """Apply the first rule that fits; the reason when none does."""
    reason = "no native code yet"
    for rule in candidates:
        try:
            rule.apply(low, node, call)
        except NotApplicable as no:  # noqa: PERF203 - few rules, tried once per node
            reason = str(no)
        else:
            return None
    return reason


def _apply_half(
    low: Lowering, candidates: Sequence[Rule[Lowering]], node: Node, call: Call
) -> str | None:
    """As `_apply` for float16 and bfloat16: computed in float32, each result rounded once.

    The rules that suit are those of operators whose reference code does just this, or that only
    move elements.
    """
    if node.op.name not in halves.OPERATORS:
        return f"{node.op.name} of half precision"
    low.half = True
    try:
        reason = _apply(low, candidates, node, call)
        if reason is None and node.op.name not in halves.MOVES:
            for value in node.outputs:
                if low.is_half(value):
                    low.round_half(value)
    finally:
        low.half = False
    return reason


@dataclass(frozen=True, slots=True)
class _Reference:
    """A node's reference code as a function of arrays; what it remembers begins anew by `reset`."""

    node: Node
    call: Call
    kept: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        """Forget what runs have left."""
        self.call.state.clear()

    def before(self) -> dict[str, Any]:
        """What the call's state was before the last run."""
        return dict(self.kept)

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Results of a run."""
        if not self.node.op.is_pure:
            self.kept.clear()
            self.kept.update(copy.deepcopy(self.call.state))
        return run_node(self.node, self.call, arrays)


def _on_host(low: Lowering, node: Node, call: Call) -> None:
    """Run a node by its reference code."""
    run = _Reference(node, call)
    run.reset()
    reads = tuple(low.name(v) for v in node.inputs)
    writes = tuple(low.out(v) for v in node.outputs)
    low.add(nd.Host(low.label(node), reads, writes, run))


def _add_tail(low: Lowering, tail: Tail) -> None:
    """One Python step for all that follows results whose shapes depend on data."""
    reads = tuple(low.name(v) for v in tail.reads)
    name = low.label(tail.nodes[0])
    for node in tail.nodes[1:]:
        low.label(node)
    low.add(nd.Host(name, reads, tuple(low.out(v) for v in tail.writes), tail.run))


def _output(low: Lowering, value: Value) -> str:
    """A tensor that a node makes: inputs and constants are copied."""
    name = low.name(value)
    made = {n for node in low.nodes for n in node.outputs}
    if name in made or name not in low.shapes:
        return name
    out = low.unique("out")
    low.shapes[out], low.dtypes[out] = low.shapes[name], low.dtypes.get(name, "float32")
    shape = low.shapes[name]
    low.add(nd.View(low.unique("copy"), (name,), (out,), contiguous(shape)))
    low._names[value] = out
    return out
