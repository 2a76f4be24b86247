"""Operators that only move elements: views, copies by an index table, joins, set operations.

The reference code is run on stand-ins that hold the number of each element: where its result is a
view, the strides say which elements are wanted; else the numbers in it are a table.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rearranged import RAW, copied, gathered, rearranged, view_of
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.create import DIAG_BACKWARD
from mgeserial.ops.registry import OpSpec, by_name

_MOST = 1 << 31  # elements of a stand-in for views
_TABLE_MOST = 1 << 26  # elements of a table
_BASE = 1 << 28  # numbers of elements begin here; below are fills


def _ops(*names: str) -> list[OpSpec]:
    return [by_name(name) for name in names]


def _try_reference(call: Call, arrays: list[Array]) -> tuple[Array, ...]:
    reference = call.op.reference
    if reference is None:
        raise NotApplicable("no reference code")
    try:
        with np.errstate(all="ignore"):
            found = reference(call, *arrays)
    except (MgeError, TypeError, ValueError, IndexError) as error:
        raise NotApplicable("not a movement of elements") from error
    return (found,) if isinstance(found, np.ndarray) else tuple(found)


_SAME = (
    "Identity", "Copy", "VirtualDep", "MarkDynamicVar", "MarkNoBroadcastElemwise",
    "AssertEqual",  # gives what was expected; whoever compares has both values
)  # fmt: skip


@lowers(*_ops(*_SAME))
def same(low: Lowering, node: Node, call: Call) -> None:
    """The input itself."""
    low.shape(node.inputs[0])
    if call.dtype(0) != call.output_types[0].dtype or len(node.outputs) != 1:
        raise NotApplicable("not the input itself")
    low.same(node.outputs[0], low.name(node.inputs[0]))


_VIEWS = ("Reshape", "AxisAddRemove", "Dimshuffle", "Subtensor", "Broadcast", "Split", "Flip")
_MOVES = (
    *_VIEWS, "MeshIndexing", "BatchedMeshIndexing", "IndexingMultiAxisVec", "RelayoutFormat",
    "Padding", "Rotate", "Images2Neibs", "Diag", "IndexingRemap", "ParamPackConcat",
)  # fmt: skip
_SETS = (
    "SetSubtensor", "SetMeshIndexing", "BatchedSetMeshIndexing", "IndexingSetMultiAxisVec",
    "IndexingSetOneHot",
)  # fmt: skip


@lowers(*_ops(*_VIEWS))
def views(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, whatever is a strided view of the input; other operands constant."""
    source = node.inputs[0]
    shape = low.shape(source)
    low.need_real(source)
    others = [low.need_array(v, "an operand") for v in node.inputs[1:]]
    wanted = [low.dims(v) for v in node.outputs]
    size = math.prod(shape)
    if size > _MOST:
        raise NotApplicable("too large")
    stand_in = np.empty(shape, np.int8)  # never touched, so it costs address space only
    results = _try_reference(call, [stand_in, *others])
    plans: list[tuple[int, tuple[int, ...]]] = []
    for result, dims in zip(results, wanted, strict=True):
        if result.size == 0 and result.shape == dims:
            plans.append((0, ()))
            continue
        view = view_of(stand_in, result) if result.shape == dims else None
        if view is None:
            raise NotApplicable("not a view of the input")
        plans.append(view)
    name = low.name(source)
    for value, (at, strides) in zip(node.outputs, plans, strict=True):
        if 0 in low.dims(value):
            low.keep(value, np.empty(low.dims(value), low.dtype(value).storage))
            continue
        _add_view(low, node, value, name, at, strides)


def _add_view(
    low: Lowering, node: Node, value: Value, name: str, at: int, strides: tuple[int, ...]
) -> None:
    shape = low.shape(value)
    if at == 0 and math.prod(shape) == math.prod(low.tensors[name].shape):
        dense = nd.contiguous(shape)
        if all(s == d for s, d, n in zip(strides, dense, shape, strict=True) if n > 1):
            low.alias(node, value, name)
            return
    copied(low, node, name, (at, strides), low.out(value))


@lowers(*_ops("Concat"))
def concat(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: one copy for each input."""
    out = node.outputs[0]
    shape = low.shape(out)
    target = call.output_types[0].dtype
    if any(call.dtype(k) != target for k in range(len(node.inputs))):
        raise NotApplicable("inputs of other types")
    axis = int(call.param.axis) % len(shape)
    parts = [v for v in node.inputs if 0 not in low.dims(v)]
    names = [(low.name(v), low.shape(v)) for v in parts]
    raw = RAW[target.storage.itemsize]
    inner = math.prod(shape[axis + 1 :])
    y = low.out(out)
    at = 0
    for name, dims in names:
        width = dims[axis] * inner
        items = math.prod(dims)
        params = (nd.In(name), nd.Out(y), items, width, shape[axis] * inner, at)
        low.add(
            nd.Custom(low.label(node), (y,), "copy2d", (("T", raw),), params, items, stem="join")
        )
        at += width


@lowers(*_ops(*_MOVES), *_ops(*_SETS))
def by_table(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, whatever picks elements of its data inputs; indices constant."""
    out = node.outputs[0]
    shape = low.shape(out)
    if len(node.outputs) != 1:
        raise NotApplicable("several outputs")
    if math.prod(shape) > _TABLE_MOST:
        raise NotApplicable("the table would be too large")
    dtype = call.output_types[0].dtype
    data = _data_inputs(low, node, call)
    stand_ins, values, fills, total = [], [], [], 0
    for k, value in enumerate(node.inputs):
        if k not in data:
            stand_ins.append(low.need_array(value, "an operand"))
            fills.append(stand_ins[-1])
            continue
        dims = low.shape(value)
        count = math.prod(dims)
        begin = _BASE + total
        stand_ins.append(np.arange(begin, begin + count, dtype=np.int32).reshape(dims))
        fills.append(np.zeros(dims, dtype.storage))
        values.append((value, total, count))
        total += count
    if total >= _BASE:
        raise NotApplicable("too large")
    (table,) = _try_reference(call, stand_ins)
    if table.dtype != np.int32 or table.shape != shape:
        raise NotApplicable("not a movement of elements")
    table = table.reshape(-1).astype(np.int64) - _BASE
    if table.size and table.max() >= total:
        raise NotApplicable("not a movement of elements")
    fill = np.zeros(1, dtype.storage)
    if (table < 0).any():
        (filled,) = _try_reference(call, fills)
        fill, codes = np.unique(filled.reshape(-1)[table < 0], return_inverse=True)
        table[table < 0] = -1 - codes.reshape(-1)
    sources = [(low.name(v), begin, count) for v, begin, count in values]
    gathered(low, node, low.out(out), sources, table.astype(np.int32), fill)


def _data_inputs(low: Lowering, node: Node, call: Call) -> list[int]:
    """Inputs whose elements are moved: those that are computed, and the first ones of sets."""
    name = node.op.name
    known = [k for k, v in enumerate(node.inputs) if low.array(v) is None]
    data = sorted({0, *known} | ({1} if name in _SETS and name != "IndexingSetOneHot" else set()))
    if name == "IndexingSetOneHot":
        data = sorted({0, 2, *known})
    target = call.output_types[0].dtype
    for k in data:
        if call.dtype(k) != target:
            raise NotApplicable("an index is computed at run time")
    if target.kind is DTypeEnum.Complex64:
        raise NotApplicable("Complex64 has no native code")
    first = 1 if name not in _SETS else 2
    allowed = {0, 2} if name == "IndexingSetOneHot" else set(range(first))
    if not set(data) <= allowed:
        raise NotApplicable("an index is computed at run time")
    return data


@lowers(DIAG_BACKWARD)
def diag_backward(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: the diagonal of a gradient, or a gradient put on a diagonal."""
    shape, diff = node.inputs
    out = node.outputs[0]
    low.shape(out)
    low.shape(diff)
    low.need_real(diff)
    given = low.need_array(shape, "a shape")

    def make(array: Array) -> Array:
        return _try_reference(call, [given, array])[0]

    rearranged(low, node, low.name(diff), make, low.out(out))
