"""Operators whose output has a length that the run counts, and those that ask for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.bounded import only_live
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import Builder, Expr, Ref
from loadrun.backends.cuda.linked import name_of, verify
from loadrun.backends.cuda.lower import Bound, Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rearranged import RAW
from loadrun.backends.cuda.rules.reduce import reduce
from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops.indexdesc import read
from mgeserial.ops.indexing import SUBTENSOR
from mgeserial.ops.numerics import narrow, truncate, widen
from mgeserial.ops.reduce import REDUCE
from mgeserial.ops.shape import BROADCAST, CONCAT, GET_VAR_SHAPE
from mgeserial.ops.sorting import COND_TAKE, NON_ZERO

_M = P.CondTakeMode
_SIGNS = {_M.LT: "<", _M.LEQ: "<=", _M.GT: ">", _M.GEQ: ">="}
_CHUNK = 1024  # elements of a block, as the kernels have it
_IDENTITY = Expr((), ("i", 0))


def _compact(
    low: Lowering,
    node: Node,
    mask: Value,
    test: str,
    limit: float | int,
    eps: float,
    data: Value | None,
    outs: tuple[Value | None, Value | None],
) -> tuple[str, Bound]:
    """Positions (and elements of `data`) where a test of the mask holds, in their order.

    Args:
        low: The walk.
        node: The operator.
        mask: What is tested.
        test: C code of an element `v`, `limit` and `eps`.
        limit: A number of the test, of the register type of the mask.
        eps: Another one.
        data: What elements are taken of.
        outs: Outputs: the elements, the positions.

    Returns:
        The tensor of positions, and what is known of their number.
    """
    items = math.prod(low.shape(mask))
    blocks = -(-items // _CHUNK)
    name = low.name(mask)
    sums, offsets = (low.temp((blocks,), "int32", "i32") for _ in range(2))
    count = low.temp((1,), "int32", "i32")
    bound = Bound((items,), 0, count)
    kinds: dict[str, Any] = {
        "MT": low.tensors[name].ctype, "TEST": test,
        "LT": "int" if isinstance(limit, int) else "float",
    }  # fmt: skip
    numbers = (items, limit, eps)
    params: list[nd.Param] = [nd.In(name), nd.Out(sums), *numbers]
    low.kernel(node, "take_count", params, items, per_block=_CHUNK, **kinds)
    params = [nd.In(sums), nd.Out(offsets), nd.Out(count), blocks]
    low.kernel(node, "take_scan", params, blocks, per_block=max(1, blocks))
    values, places = outs
    head: list[nd.Param] = []
    middle: list[nd.Param] = []
    fields = {"DATA": "", "VALUES": "", "STORE": "", "CLEAR": ""}
    if data is not None and values is not None:
        raw = RAW[low.dtype(data).storage.itemsize]
        head, middle = [nd.In(low.name(data))], [nd.Out(low.counted(values, bound))]
        fields = {
            "DATA": f"const {raw} *__restrict__ data,", "VALUES": f"{raw} *__restrict__ values,",
            "STORE": "values[at] = data[i];", "CLEAR": f"values[i] = ({raw})0;",
        }  # fmt: skip
    found = low.temp((items,), "int32", "i32") if places is None else low.counted(places, bound)
    params = [
        *head, nd.In(name), nd.In(offsets), nd.In(count), *middle, nd.Out(found), *numbers
    ]  # fmt: skip
    every: dict[str, Any] = {**kinds, **fields}
    low.kernel(node, "take_write", params, items, per_block=_CHUNK, **every)
    return found, bound


def _limit(value: float, dtype: DType) -> float | int:
    """The number that elements are compared with, as they are."""
    given = np.array([value], np.float32)
    if dtype.is_float:
        return float(widen(narrow(given, dtype), dtype)[0])
    return int(truncate(given, dtype)[0])


@lowers(COND_TAKE)
def cond_take(low: Lowering, node: Node, call: Call) -> None:
    """All modes and types: flags are counted, added up, and elements moved to their places."""
    data, mask = node.inputs
    low.need_real(data, mask)
    if low.shape(data) != low.shape(mask):
        raise NotApplicable("data and mask of different shapes")
    mode, dtype = call.param.mode, call.dtype(1)
    if mode in _SIGNS:
        test = f"(v {_SIGNS[mode]} limit)"
    else:
        equal = "(fabsf(v - limit) < eps)" if dtype.is_float else "(v == limit)"
        test = equal if mode == _M.EQ else f"(!{equal})"
    limit = _limit(call.param.val, dtype)
    eps = float(np.float32(call.param.eps))
    _compact(low, node, mask, test, limit, eps, data, (node.outputs[0], node.outputs[1]))


@lowers(NON_ZERO)
def non_zero(low: Lowering, node: Node, call: Call) -> None:
    """Coordinates of the elements that are not zero."""
    x = node.inputs[0]
    low.need_real(x)
    shape = low.shape(x)
    zero: float | int = 0.0 if call.dtype(0).is_float else 0
    places, bound = _compact(low, node, x, "(v != limit)", zero, 0.0, None, (None, None))
    room = bound.shape[0]
    tables = [np.array(a, np.int32) for a in (shape, nd.contiguous(shape))]
    items = len(shape) * room
    y = low.counted(node.outputs[0], Bound((len(shape), room), 1, bound.count))
    params: list[nd.Param] = [
        nd.In(places), nd.In(bound.count), *(nd.In(low.constant(t)) for t in tables), nd.Out(y),
        items, room,
    ]  # fmt: skip
    low.kernel(node, "coordinates", params, items)


@lowers(SUBTENSOR)
def run_time_slice(low: Lowering, node: Node, call: Call) -> None:
    """One slice of one axis, whose begin or end is computed at run time."""
    x, out = node.inputs[0], node.outputs[0]
    shape = low.shape(x)
    low.need_real(x)
    try:
        items = read(call, first=1)
    except MgeError as error:
        raise NotApplicable("an index descriptor of another kind") from error
    if len(items) != 1 or items[0].index is not None:
        raise NotApplicable("several axes, one of them by numbers of the run")
    item = items[0]
    axis = item.axis % len(shape)
    step = 1 if item.step is None else int(_number(low, node, item.step))
    if step == 0:
        raise NotApplicable("step 0")
    ends, code, reads = "", "", list[nd.Param]()
    check = nd.Check(f"{name_of(node)}: a slice begins or ends before its axis")
    for name, place in (("begin", item.begin), ("end", item.end)):
        if place is None:
            continue
        value = node.inputs[place]
        dtype = low.dtype(value)
        if not dtype.is_integer or low.shape(value) not in ((1,), ()):
            raise NotApplicable("an end of a slice that is no integer")
        tensor = low.name(value)
        ends += f"const {low.tensors[tensor].ctype} *__restrict__ {name}_at,"
        reads.append(nd.In(tensor))
        code += (
            f"{name} = {name}_at[0];\n  if ({name} < -(i64)n) *status = slot;\n  "
            f"if ({name} < 0) {name} = {name} + n < low ? low : {name} + n;\n  "
        )
    first, count = (low.temp((1,), "int32", "i32") for _ in range(2))
    n = shape[axis]
    params: list[nd.Param] = [*reads, nd.Out(first), nd.Out(count), check, 1, n, step]
    low.kernel(node, "slice_count", params, 1, per_block=32, block=32, ENDS=ends, READ=code)
    room = -(-n // abs(step))
    wide = (*shape[:axis], room, *shape[axis + 1 :])
    total = math.prod(wide)
    y = low.counted(out, Bound(wide, axis, count))
    params = [
        nd.In(low.name(x)), nd.In(first), nd.In(count), nd.Out(y), total, n, room,
        math.prod(shape[axis + 1 :]), step,
    ]  # fmt: skip
    low.kernel(node, "cut", params, total, T=RAW[call.dtype(0).storage.itemsize])


def _number(low: Lowering, node: Node, place: int) -> float:
    return float(low.need_array(node.inputs[place], "the step of a slice").reshape(-1)[0])


@lowers(GET_VAR_SHAPE)
def get_var_shape(low: Lowering, node: Node, call: Call) -> None:
    """Of one tensor whose length is counted by the run."""
    out = node.outputs[0]
    bound = low.bounds.get(node.inputs[0])
    if bound is None or len(node.inputs) != 1:
        raise NotApplicable("a shape is known only at run time")
    (size,) = low.shape(out)
    rank, axis = len(bound.shape), int(call.param.axis)
    picked = axis if size == rank and rank > 1 else axis % rank if axis < rank else 0
    if size == 1 and (rank == 1 or picked == bound.axis):
        low.alias(node, out, bound.count)
        low.lengths[out] = bound
        return
    if size == 1:
        low.keep(out, np.array([bound.shape[picked]], np.int32))
        return
    known = np.array(bound.shape, np.int32)
    known[bound.axis] = -1
    b = Builder()
    result = b.op("int", "({0} < 0 ? {1} : {0})", ("i", 0), ("i", 1))
    accesses = (nd.Access(low.constant(known), (1,)), nd.Access(bound.count, (0,)))
    low.add(nd.Pointwise(low.label(node), (low.out(out),), accesses, b.done(result)))


@lowers(BROADCAST)
def broadcast(low: Lowering, node: Node, call: Call) -> None:
    """One element to a length that is counted by the run."""
    x, shape = node.inputs
    bound = low.lengths.get(shape)
    if bound is None or low.shape(x) != (1,) or call.dtype(0).kind is DTypeEnum.Complex64:
        raise NotApplicable("a shape is known only at run time")
    room = bound.shape[bound.axis]
    name = low.name(x)
    y = low.counted(node.outputs[0], Bound((room,), 0, bound.count))
    access = (nd.Access(name, (0,)),)
    low.add(nd.Pointwise(low.label(node), (y,), access, _IDENTITY))


_REDUCE = P.ReduceMode
_NEUTRAL: dict[Any, tuple[float, int]] = {
    _REDUCE.SUM: (0.0, 0),
    _REDUCE.SUM_SQR: (0.0, 0),
    _REDUCE.MEAN: (0.0, 0),
    _REDUCE.PRODUCT: (1.0, 1),
    _REDUCE.MAX_: (-math.inf, -(1 << 31)),
    _REDUCE.MIN_: (math.inf, (1 << 31) - 1),
}


@lowers(REDUCE)
def reduce_counted(low: Lowering, node: Node, call: Call) -> None:
    """Along the length that the run counts; what lies behind the count changes nothing."""
    x, out = node.inputs[0], node.outputs[0]
    bound = low.bounds.get(x)
    if bound is None or len(node.inputs) != 1:
        raise NotApplicable("a shape is known only at run time")
    dtype, target, mode = call.dtype(0), call.output_types[0].dtype, call.param.mode
    mean = mode is _REDUCE.MEAN
    if mode not in _NEUTRAL or dtype.is_quantized or (mean and not target.is_float):
        raise NotApplicable(f"mode {mode} of {dtype.name} along a length that the run counts")
    if int(call.param.axis) % len(bound.shape) != bound.axis:
        raise NotApplicable("a shape is known only at run time")
    if mode in (_REDUCE.MAX_, _REDUCE.MIN_):
        verify(low, node, bound.count, "v > 0", "no least or greatest element along an empty axis")
    neutral = _NEUTRAL[mode][0 if dtype.is_float else 1]
    name = only_live(low, node, low.name(x), bound.shape, bound.axis, bound.count, neutral)
    types = (TensorType(dtype, bound.shape),)
    whole = low.name(x)
    low.same(x, name)
    low.loose = True
    try:
        reduce(low, node, call.replace(inputs=types))
    finally:
        low.loose = False
        low.same(x, whole)
    if mean:
        b = Builder()
        room = b.scalar(float(bound.shape[bound.axis]))
        scaled = b.op("float", "({0} * ({2} / (float)max({1}, 1)))", ("i", 0), ("i", 1), room)
        given = low.name(out)
        shape = low.shape(out)
        accesses = (
            nd.Access(given, nd.contiguous(shape)), nd.Access(bound.count, (0,) * len(shape))
        )  # fmt: skip
        result = b.done(narrowed(b, scaled, target))
        low.add(nd.Pointwise(low.label(node), (low.out(out),), accesses, result))


@lowers(CONCAT)
def concat_counted(low: Lowering, node: Node, call: Call) -> None:
    """Values joined along lengths that the run counts."""
    out = node.outputs[0]
    bounds = [low.bounds.get(v) for v in node.inputs]
    given = [b for b in bounds if b is not None]
    if not given or len(node.inputs) > 8 or call.dtype(0).kind is DTypeEnum.Complex64:
        raise NotApplicable("a shape is known only at run time")
    shapes = [
        low.shape(v) if b is None else b.shape for v, b in zip(node.inputs, bounds, strict=True)
    ]
    axis = int(call.param.axis) % len(shapes[0])
    if any(b.axis != axis for b in given):
        raise NotApplicable("lengths that the run counts along another axis")
    raw = RAW[call.dtype(0).storage.itemsize]
    first = shapes[0]
    inner = math.prod(first[axis + 1 :])
    sources, pick = "", ""
    params: list[nd.Param] = []
    counts = []
    for k, (value, bound, shape) in enumerate(zip(node.inputs, bounds, shapes, strict=True)):
        length = low.constant(np.array([shape[axis]], np.int32)) if bound is None else bound.count
        counts.append(length)
        sources += f"const {raw} *__restrict__ x{k}, const int *__restrict__ c{k}, int n{k}, "
        params += [nd.In(low.name(value)), nd.In(length), shape[axis]]
        step = f"if (j >= 0 && j < *c{k}) found = x{k}[(a * n{k} + j) * inner + e];"
        pick += f"{step}\n  j -= *c{k};\n  "
    total = low.temp((1,), "int32", "i32")
    b = Builder()
    so_far: Ref = ("i", 0)
    for k in range(1, len(counts)):
        so_far = b.op("int", "({0} + {1})", so_far, ("i", k))
    accesses = tuple(nd.Access(n, (0,)) for n in counts)
    low.add(nd.Pointwise(low.label(node), (total,), accesses, b.done(so_far)))
    room = sum(s[axis] for s in shapes)
    wide = (*first[:axis], room, *first[axis + 1 :])
    items = math.prod(wide)
    y = low.counted(out, Bound(wide, axis, total))
    params += [nd.Out(y), items, room, inner]
    fields: dict[str, Any] = {"SOURCES": sources, "T": raw, "PICK": pick}
    low.kernel(node, "join", params, items, **fields)
