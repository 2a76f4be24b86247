"""Selections by slices and index tensors, taken, set and added, with indices of the run."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.kernels import index as kernels
from loadrun.backends.cpu.kernels.elementwise import broadcast_strides
from loadrun.backends.cpu.kernels.index import Lookup, Selection
from loadrun.backends.cpu.kernels.nest import RAW
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.indexdesc import Item, Kind, read, slices
from mgeserial.ops.indexing import (
    INCR_SUBTENSOR,
    INDEXING_INCR_MULTI_AXIS_VEC,
    INDEXING_MULTI_AXIS_VEC,
    INDEXING_ONE_HOT,
    INDEXING_REMAP,
    INDEXING_REMAP_BACKWARD,
    INDEXING_SET_MULTI_AXIS_VEC,
    INDEXING_SET_ONE_HOT,
    SET_SUBTENSOR,
    SUBTENSOR,
)
from mgeserial.ops.mesh import (
    BATCHED_INCR_MESH_INDEXING,
    BATCHED_MESH_INDEXING,
    BATCHED_SET_MESH_INDEXING,
    INCR_MESH_INDEXING,
    MESH_INDEXING,
    SET_MESH_INDEXING,
)

_OPERATORS = {
    Kind.SCALAR: (SUBTENSOR, SET_SUBTENSOR, INCR_SUBTENSOR),
    Kind.VECTORS: (
        INDEXING_MULTI_AXIS_VEC,
        INDEXING_SET_MULTI_AXIS_VEC,
        INDEXING_INCR_MULTI_AXIS_VEC,
    ),
    Kind.MESH: (MESH_INDEXING, SET_MESH_INDEXING, INCR_MESH_INDEXING),
    Kind.BATCHED_MESH: (
        BATCHED_MESH_INDEXING,
        BATCHED_SET_MESH_INDEXING,
        BATCHED_INCR_MESH_INDEXING,
    ),
}
KIND_OF = {op.name: kind for kind, every in _OPERATORS.items() for op in every}
_MOST = 1 << 31


def itemsize(low: Lowering, name: str) -> int:
    """Bytes of a tensor's element."""
    return int(np.dtype(low.dtype_name(name)).itemsize)


def need_positions(*shapes: Shape) -> None:
    """Refuse arrays whose positions do not fit 31 bits."""
    if any(math.prod(shape) >= _MOST for shape in shapes):
        raise NotApplicable("2**31 elements or more")


def need_indices(low: Lowering, *values: Value) -> None:
    """Refuse what are not numbers of whole type; shapes must be known."""
    for value in values:
        dtype = low.inference.types[value].dtype
        if not dtype.is_integer or dtype.kind is DTypeEnum.Bool:
            raise NotApplicable(f"an index of {dtype}")
        low.shape(value)


def _selection(
    low: Lowering, node: Node, call: Call, first: int, kind: Kind
) -> tuple[Selection, list[Value]]:
    """What the descriptor selects of input 0, and its index tensors in order."""
    shape = low.shape(node.inputs[0])
    need_positions(shape)
    try:
        items = read(call, first=first)
        cut = slices(call, items)
    except MgeError as error:
        raise NotApplicable("a slice is computed at run time") from error
    strides = contiguous(shape)
    spans = [range(*c.indices(n)) for c, n in zip(cut, shape, strict=True)]
    indexed = {i.axis % len(shape): i for i in items if i.index is not None}
    axes = sorted(indexed)
    offset = sum(r.start * s for r, s in zip(spans, strides, strict=True) if len(r))
    sizes = [len(r) for r in spans]
    steps = [r.step * s for r, s in zip(spans, strides, strict=True)]
    values = [node.inputs[_place(indexed[a])] for a in axes]
    need_indices(low, *values)
    dtypes = [low.inference.types[v].dtype.storage.name for v in values]
    shapes = [low.shape(v) for v in values]
    lay = {Kind.SCALAR: _scalars, Kind.VECTORS: _vectors}.get(
        kind, functools.partial(_mesh, batched=kind is Kind.BATCHED_MESH)
    )
    dims, kept, moves = lay(sizes, axes, shapes)
    lookups = tuple(
        Lookup(d, m, sizes[a], steps[a]) for d, m, a in zip(dtypes, moves, axes, strict=True)
    )
    apart = tuple(steps[a] if a is not None else 0 for a in kept)
    return Selection(dims, apart, offset, lookups), values


def _place(item: Item) -> int:
    assert item.index is not None
    return item.index


_Laid = tuple[tuple[int, ...], list[int | None], list[tuple[int, ...]]]


def _scalars(sizes: Sequence[int], axes: list[int], shapes: list[Shape]) -> _Laid:
    """Each index removes its axis: (dims, axis of each or None, strides of each index)."""
    if any(math.prod(s) != 1 for s in shapes):
        raise NotApplicable("an index that is not one number")
    kept: list[int | None] = [a for a in range(len(sizes)) if a not in axes]
    dims = tuple(n for a, n in enumerate(sizes) if a not in axes)
    if not dims:
        return (1,), [None], [(0,)] * len(axes)
    return dims, kept, [(0,) * len(dims)] * len(axes)


def _vectors(sizes: Sequence[int], axes: list[int], shapes: list[Shape]) -> _Laid:
    """Index tensors broadcast together; their dimensions go where they are, or first."""
    kept: list[int | None] = [a for a in range(len(sizes)) if a not in axes]
    if not axes:
        return tuple(sizes), kept, []
    rank = max(len(s) for s in shapes)
    grown = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    common = tuple(max(column) for column in zip(*grown, strict=True))
    front = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    places: list[int | None] = [*kept[:front], *[None] * rank, *kept[front:]]
    rest = [sizes[a] for a in range(len(sizes)) if a not in axes]
    dims = (*rest[:front], *common, *rest[front:])
    after = (0,) * (len(kept) - front)
    moves = [((0,) * front + tuple(broadcast_strides(s, common)) + after) for s in shapes]
    return dims, places, moves


def _mesh(sizes: Sequence[int], axes: list[int], shapes: list[Shape], *, batched: bool) -> _Laid:
    """Each axis has its own index, maybe another one for each element of axis 0."""
    if any(len(s) != 1 + batched for s in shapes):
        raise NotApplicable("an index of another rank")
    dims, kept = list(sizes), [None if a in axes else a for a in range(len(sizes))]
    moves = []
    for axis, shape in zip(axes, shapes, strict=True):
        dims[axis] = shape[-1]
        step = [0] * len(sizes)
        step[axis] = 1
        if batched:
            step[0] = shape[-1]
        moves.append(tuple(step))
    return tuple(dims), kept, moves


def _take(low: Lowering, node: Node, selection: Selection, indices: Sequence[Value]) -> None:
    wanted = low.shape(node.outputs[0])
    need_positions(wanted, *(low.shape(v) for v in indices))
    if math.prod(selection.dims) != math.prod(wanted):
        raise NotApplicable("an unexpected shape")
    x = low.name(node.inputs[0])
    names = tuple(low.name(v) for v in indices)
    make = functools.partial(kernels.take, selection, itemsize(low, x))
    status = low.check(kernels.take_units(selection))
    y = low.out(node.outputs[0])
    low.add(nd.Loops(low.label(node), (x, *names), (y, status), "take", make))


def zeros(low: Lowering, shape: Shape, dtype: str) -> str:
    """A tensor of zeros."""
    one = low.constant(np.zeros(1, dtype))
    out = low.temp(shape)
    low.dtypes[out] = dtype
    low.add(nd.View(low.unique("zeros"), (one,), (out,), (0,) * len(shape)))
    return out


def put_into_zeros(
    low: Lowering,
    node: Node,
    selection: Selection,
    value: Value,
    indices: Sequence[Value] = (),
    *,
    add: bool = False,
) -> None:
    """Let the first output be zeros with a value set at a selection, or added to it."""
    wanted = low.shape(node.outputs[0])
    need_positions(wanted, low.shape(value), *(low.shape(v) for v in indices))
    new = low.name(value)
    names = tuple(low.name(v) for v in indices)
    element = low.dtype_name(new) if add else RAW[itemsize(low, new)]
    empty = zeros(low, wanted, low.dtype_name(new))
    make = functools.partial(kernels.put, selection, math.prod(wanted), element, add=add)
    status = low.check(1)
    y = low.out(node.outputs[0])
    what = "add" if add else "set"
    low.add(nd.Loops(low.label(node), (empty, new, *names), (y, status), what, make))


def _put(
    low: Lowering,
    node: Node,
    selection: Selection,
    indices: Sequence[Value],
    value: Value,
    *,
    add: bool,
) -> None:
    if math.prod(selection.dims) != math.prod(low.shape(value)):
        raise NotApplicable("an unexpected shape")
    need_positions(low.shape(value), *(low.shape(v) for v in indices))
    dtype = low.inference.types[node.inputs[0]].dtype
    short = dtype.kind is DTypeEnum.BFloat16 and not low.half
    if add and (short or dtype.kind in (DTypeEnum.Bool, DTypeEnum.Complex64)):
        raise NotApplicable(f"adding {dtype}")
    if dtype != low.inference.types[value].dtype:
        raise NotApplicable("a value of another type")
    x, new = low.name(node.inputs[0]), low.name(value)
    names = tuple(low.name(v) for v in indices)
    element = low.dtype_name(x) if add else RAW[itemsize(low, x)]
    size = math.prod(low.shape(node.inputs[0]))
    make = functools.partial(kernels.put, selection, size, element, add=add)
    status = low.check(1)
    y = low.out(node.outputs[0])
    what = "add" if add else "set"
    low.add(nd.Loops(low.label(node), (x, new, *names), (y, status), what, make))


@lowers(SUBTENSOR, INDEXING_MULTI_AXIS_VEC, MESH_INDEXING, BATCHED_MESH_INDEXING)
def take(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, constant slices, index tensors of the run."""
    _take(low, node, *_selection(low, node, call, 1, KIND_OF[node.op.name]))


@lowers(SET_SUBTENSOR, INDEXING_SET_MULTI_AXIS_VEC, SET_MESH_INDEXING, BATCHED_SET_MESH_INDEXING)
def set_selection(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, constant slices, index tensors of the run; the last of equal positions stays."""
    _put(
        low, node, *_selection(low, node, call, 2, KIND_OF[node.op.name]), node.inputs[1], add=False
    )


@lowers(
    INCR_SUBTENSOR, INDEXING_INCR_MULTI_AXIS_VEC, INCR_MESH_INDEXING, BATCHED_INCR_MESH_INDEXING
)
def add_to_selection(low: Lowering, node: Node, call: Call) -> None:
    """Real numbers, constant slices, index tensors of the run; equal positions get the sum."""
    _put(
        low, node, *_selection(low, node, call, 2, KIND_OF[node.op.name]), node.inputs[1], add=True
    )


def _one_hot(low: Lowering, node: Node, call: Call) -> tuple[Selection, list[Value]]:
    shape, index = low.shape(node.inputs[0]), node.inputs[1]
    need_positions(shape)
    need_indices(low, index)
    axis = int(call.param.axis) % len(shape)
    strides = list(contiguous(shape))
    rest = (*shape[:axis], *shape[axis + 1 :])
    moves = list(contiguous(rest))
    step = strides[axis]
    moves.insert(axis, 0)
    strides[axis] = 0
    dims = (*shape[:axis], 1, *shape[axis + 1 :])
    dtype = low.inference.types[index].dtype.storage.name
    lookup = Lookup(dtype, tuple(moves), shape[axis], step, wraps=False)
    return Selection(dims, tuple(strides), 0, (lookup,)), [index]


@lowers(INDEXING_ONE_HOT)
def one_hot(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: one element of each line."""
    _take(low, node, *_one_hot(low, node, call))


@lowers(INDEXING_SET_ONE_HOT)
def set_one_hot(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: one element of each line is set."""
    _put(low, node, *_one_hot(low, node, call), node.inputs[2], add=False)


def _remapped(low: Lowering, source: Value, coordinates: Value) -> Selection:
    """Elements of a tensor at coordinates."""
    shape = low.shape(source)
    need_positions(shape)
    need_indices(low, coordinates)
    given = low.shape(coordinates)
    strides, moves = contiguous(shape), contiguous(given)[:-1]
    dtype = low.inference.types[coordinates].dtype.storage.name
    lookups = tuple(
        Lookup(dtype, moves, n, s, wraps=False, first=k)
        for k, (n, s) in enumerate(zip(shape, strides, strict=True))
    )
    return Selection(given[:-1], (0,) * len(moves), 0, lookups)


@lowers(INDEXING_REMAP)
def remap(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype: elements at coordinates."""
    source, coordinates = node.inputs
    selection = _remapped(low, source, coordinates)
    _take(low, node, selection, [coordinates] * len(selection.lookups))


@lowers(INDEXING_REMAP_BACKWARD)
def remap_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Real numbers: added at their coordinates, one after the other."""
    diff, coordinates, source = node.inputs
    dtype = low.inference.types[diff].dtype
    short = dtype.kind is DTypeEnum.BFloat16 and not low.half
    if short or dtype.kind in (DTypeEnum.Bool, DTypeEnum.Complex64):
        raise NotApplicable(f"adding {dtype}")
    selection = _remapped(low, source, coordinates)
    if math.prod(selection.dims) != math.prod(low.shape(diff)):
        raise NotApplicable("an unexpected shape")
    every = [coordinates] * len(selection.lookups)
    put_into_zeros(low, node, selection, diff, every, add=True)
