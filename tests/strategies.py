"""Hypothesis strategies for valid graphs, for laws that must hold for every one of them.

`graphs()` makes graphs that a file can hold: any operator with any parameters, tensors of every
element type, names, placement, metadata. Their shapes need not fit, so they are not run.
`networks()` makes graphs that run: composed step by step with the builder, with `feeds()` to match.
"""

from __future__ import annotations

import functools
import string
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mgeserial import params as P
from mgeserial._record import Params, Record
from mgeserial.author import GraphBuilder
from mgeserial.convert.ids import OperatorId, operator_id
from mgeserial.dtypes import DType, DTypeEnum, quantized
from mgeserial.errors import MgeError
from mgeserial.format import history
from mgeserial.format.flatbuf import BaseType, FieldDef, TableDef, load_schema
from mgeserial.format.params_codec import table_of
from mgeserial.format.target import Target
from mgeserial.ir.graph import Graph, Metadata, Output, Value
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import counts, registry
from mgeserial.ops.registry import OpSpec, OutputQuery

_RANGES = {
    BaseType.BYTE: (-(1 << 7), (1 << 7) - 1),
    BaseType.UBYTE: (0, (1 << 8) - 1),
    BaseType.SHORT: (-(1 << 15), (1 << 15) - 1),
    BaseType.USHORT: (0, (1 << 16) - 1),
    BaseType.INT: (-(1 << 31), (1 << 31) - 1),
    BaseType.UINT: (0, (1 << 32) - 1),
    BaseType.LONG: (-(1 << 63), (1 << 63) - 1),
    BaseType.ULONG: (0, (1 << 64) - 1),
}
# Inputs and parameters are made as leaves; holders have as many outputs as tensors.
LEAVES = ("SharedDeviceTensor", "VolatileSharedDeviceTensor", "ImmutableTensor")


def names() -> st.SearchStrategy[str]:
    """Names as files have them: mostly plain, sometimes not."""
    plain = st.text(string.ascii_letters + string.digits + "_.:[]", min_size=1, max_size=12)
    return plain | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)


def floats32(**limits: Any) -> st.SearchStrategy[float]:
    """float32 numbers but NaN."""
    return st.floats(width=32, allow_nan=False, **limits)


def dtypes() -> st.SearchStrategy[DType]:
    """Every element type, quantised ones with random parameters."""
    scales = floats32(min_value=0.0009765625, max_value=16.0)

    def of(kind: DTypeEnum) -> st.SearchStrategy[DType]:
        plain = DType(kind)
        if not plain.is_quantized:
            return st.just(plain)
        if plain.is_asymmetric:
            zero = st.integers(*plain.limits)
            return st.builds(lambda s, z: quantized(kind, s, z), scales, zero)
        return st.builds(lambda s: quantized(kind, s), scales)

    return st.sampled_from(list(DTypeEnum)).flatmap(of)


def params(cls: type[Params]) -> st.SearchStrategy[Params]:
    """Records of one kind, any value a file can hold in each field."""
    if cls is P.ElementType:
        return st.builds(P.ElementType, dtype=dtypes())
    table = table_of(cls.UNION_ID)
    assert table is not None
    return st.builds(cls, **{item.name: _field(cls(), item) for item in table.fields})


def _field(default: Record, item: FieldDef) -> st.SearchStrategy[Any]:
    value = getattr(default, item.name)
    if item.base == BaseType.VECTOR:
        if item.element == BaseType.OBJECT:
            inner = load_schema("graph_v1").at(item.index)
            return st.lists(_struct(inner), max_size=4).map(tuple)
        return st.lists(st.integers(*_RANGES[item.element]), max_size=5).map(tuple)
    if item.base == BaseType.OBJECT:
        return _struct(load_schema("graph_v1").at(item.index))
    if item.base == BaseType.BOOL:
        return st.booleans()
    if item.base in (BaseType.FLOAT, BaseType.DOUBLE):
        return st.just(value) | floats32()
    if not isinstance(value, int) or type(value) is int:
        return st.just(value) | st.integers(*_RANGES[item.base])
    return st.sampled_from(list(type(value)))


def _struct(table: TableDef) -> st.SearchStrategy[Any]:
    cls = getattr(P, table.name.rsplit(".", 1)[-1])
    fields = {}
    for item in table.fields:
        if item.base == BaseType.ARRAY:
            fields[item.name] = st.binary(min_size=item.length, max_size=item.length)
        else:
            fields[item.name] = _field(cls(), item)
    return st.builds(cls, **fields)


@st.composite
def tensors(draw: Any, *, name: str | None = None) -> Tensor:
    """A tensor with a value."""
    dtype = draw(dtypes())
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = dtype.limits
    if dtype.storage.kind in "fc":
        array = rng.standard_normal(shape).astype(dtype.storage)
    elif dtype.is_lowbit and low == -high:  # codes that stand for odd numbers only
        array = (rng.integers(0, high + 1, shape) * 2 - high).astype(dtype.storage)
    else:
        high = high or (1 << 16) - 1
        array = rng.integers(low, high, shape, endpoint=True).astype(dtype.storage)
    node = draw(st.sampled_from(["xpux:0", "cpu0:0", None]))
    return Tensor.of(array, dtype, name=name, comp_node=node)


def _count(op: OpSpec, inputs: int, records: tuple[Params, ...], named: int) -> int:
    """Number of output ids, as the files of today have it."""
    rule = op.output_count
    if isinstance(rule, int):
        return rule
    query = OutputQuery(
        inputs=inputs,
        tensors=0,
        param=lambda: records[0],
        blobs=tuple,
        names=named if rule is counts.stored_names else None,
        version=0,
    )
    return rule(query)


@functools.cache
def _writable() -> list[OpSpec]:
    """Operators that v1 and v2 of v1.13.0 both have, without tensors of their own."""
    target = Target.of("v1")
    found = []
    for op in registry.every():
        is_there = bool(op.v2) and isinstance(operator_id(op, target), OperatorId)
        in_v2 = all(history.union_since(p.UNION_ID, v2=True) for p in op.params)
        if op.tensors == 0 and is_there and in_v2:
            found.append(op)
    return found


@st.composite
def graphs(draw: Any, *, min_nodes: int = 1, max_nodes: int = 8, aliases: bool = False) -> Graph:
    """Graphs that files of every container can hold.

    Args:
        draw: Given by hypothesis.
        min_nodes: Operators beside inputs and parameters, at least.
        max_nodes: And at most.
        aliases: Outputs may go by another name than their value's, which v2 alone can say.
    """
    graph = Graph()
    named = draw(st.booleans())
    name = names() | st.none() if named else st.none()
    for label in draw(st.lists(names(), min_size=1, max_size=3, unique=True)):
        shape = draw(st.just(()) | st.lists(st.integers(0, 9), max_size=4).map(tuple))
        tensor = Tensor(shape=shape, dtype=draw(dtypes()), name=label, comp_node="xpux:0")
        op = registry.by_name("Host2DeviceCopy")
        record = draw(params(P.Host2DeviceCopy))
        graph.add(op, (), params=(record,), tensors=(tensor,), outputs=[draw(name)])
    for _ in range(draw(st.integers(0, 4))):
        op = registry.by_name(draw(st.sampled_from(LEAVES)))
        kept = None if op.name == "ImmutableTensor" else draw(name)
        tensor = draw(tensors(name=kept))
        graph.add(op, (), tensors=(tensor,), outputs=[draw(name)])
    for _ in range(draw(st.integers(min_nodes, max_nodes))):
        _operator(draw, graph, name, most_outputs=3 if named else 1)
    values = list(graph.values())
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique=True))
    outputs = []
    for i, value in enumerate(chosen):
        if named:
            value.name = f"out{i}"
        label = f"alias{i}" if aliases and named and draw(st.booleans()) else value.name
        outputs.append(Output(value, label, 100 + i))
    graph.set_outputs(outputs)
    if draw(st.booleans()):
        graph.metadata = Metadata(
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.binary(max_size=20)),
            draw(st.integers(0, (1 << 64) - 1)),
        )
    else:
        graph.metadata = Metadata()
    return graph


def _operator(
    draw: Any, graph: Graph, name: st.SearchStrategy[str | None], *, most_outputs: int
) -> None:
    op = draw(st.sampled_from(_writable()))
    least, most = op.arity
    count = draw(st.integers(least, least + 2 if most is None else most))
    values = list(graph.values())
    inputs = [draw(st.sampled_from(values)) for _ in range(count)]
    records = tuple(draw(params(cls)) for cls in op.params)
    if op.name == "CondExecMerge":
        records = (records[0].replace(nr_output=draw(st.integers(1, 3))),)
    outputs = _count(op, count, records, draw(st.integers(1, most_outputs)))
    labels: list[str | None] = [draw(name) for _ in range(outputs)]
    if op.output_count is counts.stored_names and outputs != 1:
        labels = [draw(names()) for _ in range(outputs)]  # their number tells how many there are
    graph.add(
        op,
        inputs,
        outputs=labels,
        params=records,
        name=draw(name),
        output_dtype=draw(st.none() | dtypes()),
        comp_nodes=tuple(draw(st.lists(st.sampled_from(["xpux:0", "gpu0:1", None]), max_size=2))),
        priority=draw(st.just(0) | st.integers(-(1 << 31), (1 << 31) - 1)),
        blobs=tuple(draw(st.binary(max_size=9)) for _ in range(op.blobs or 0)),
    )


# --- graphs that run ------------------------------------------------------------------------------

_UNARY = ("RELU", "ABS", "NEGATE", "SIGMOID", "TANH", "FLOOR", "H_SWISH", "ROUND")
_BINARY = ("ADD", "SUB", "MUL", "MAX_", "MIN_", "FUSE_ADD_RELU")


@st.composite
def networks(draw: Any, *, max_steps: int = 8) -> Graph:
    """Networks of float32 that run on every input of their shapes."""
    b = GraphBuilder()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, c = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 4, 8]))
    h, w = draw(st.integers(4, 9)), draw(st.integers(4, 9))
    values = [b.input("x", (n, c, h, w)), b.input("y", (n, c, 1, 1))]
    for _ in range(draw(st.integers(1, max_steps))):
        step = draw(st.sampled_from(_STEPS))
        x = draw(st.sampled_from(values))
        try:
            made = step(draw, b, rng, x, values)
        except MgeError:
            continue  # this step does not fit this value: another one will
        if np.prod(b.shape_of(made)) <= 20_000:
            values.append(made)
    unused = [v for v in values if not v.users]
    for i, value in enumerate(unused or values[-1:]):
        b.output(value, f"out{i}")
    return b.graph()


def feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Values for the inputs of a network with static shapes."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(value.type.dims).astype(value.dtype.storage)
        for name, value in zip(graph.input_names, graph.inputs, strict=True)
    }


def _weight(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return (rng.standard_normal(shape) * 0.5).astype(np.float32)


def _unary(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.elemwise(x, mode=draw(st.sampled_from(_UNARY)))


def _binary(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.elemwise(x, draw(st.sampled_from(values)), mode=draw(st.sampled_from(_BINARY)))


def _scalar(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.mul(b.add(x, draw(floats32(min_value=-2, max_value=2))), 0.5)


def _conv(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    c = b.shape_of(x)[1]
    groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
    k, oc = draw(st.sampled_from([1, 3])), groups * draw(st.integers(1, 2))
    bias = _weight(rng, oc) if draw(st.booleans()) else None
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    weight = _weight(rng, oc, c // groups, k, k)
    return b.conv2d(x, weight, bias, stride=stride, padding=padding, groups=groups)


def _pool(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    mode = draw(st.sampled_from(["MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING"]))
    return b.pool2d(x, draw(st.integers(2, 3)), stride=2, padding=1, mode=mode)


def _batch_norm(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    c = b.shape_of(x)[1]
    scale, bias, mean = (_weight(rng, c) for _ in range(3))
    return b.batch_norm2d(x, scale, bias, mean, np.abs(_weight(rng, c)) + 0.5)


def _reduce(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    axis = draw(st.integers(0, len(b.shape_of(x)) - 1))
    return b.reduce(x, mode=draw(st.sampled_from(["SUM", "MEAN", "MAX", "MIN"])), axis=axis)


def _concat(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.concat(x, x, axis=draw(st.integers(0, len(b.shape_of(x)) - 1)))


def _flatten(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.reshape_to(x, (b.shape_of(x)[0], -1))


def _linear(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.linear(x, _weight(rng, 5, b.shape_of(x)[-1]), _weight(rng, 5))


def _softmax(draw: Any, b: GraphBuilder, rng: Any, x: Value, values: list[Value]) -> Value:
    return b.softmax_last(x)


_STEPS = (
    _unary, _binary, _scalar, _conv, _pool, _batch_norm, _reduce, _concat, _flatten, _linear,
    _softmax,
)  # fmt: skip
