"""What an index descriptor means: one place for Subtensor, multi-axis, mesh and batched forms.

A descriptor lists axes; each may carry begin, end and step (a slice) or an index, and the inputs
after the data (and the value) follow in that order. `read` pairs items with inputs,
`sliced_shape` and `selected_shape` give shapes, `slices` and `selector` the numpy indices of a run.

Slices are python's, except that a negative begin or end below minus the length is an error. Indices
may be negative; outside the axis they are an error.

Source: semantics section 9; limits of slices asked of MegEngine 1.13.0.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import ShapeError
from mgeserial.ir.types import Call, Shape, ShapeLike, static
from mgeserial.ops.operands import as_index, number
from mgeserial.ops.rules import broadcast_shapes, need, normal_axis

__all__ = [
    "Item",
    "Kind",
    "read",
    "selected_shape",
    "selector",
    "sliced_shape",
    "slices",
]


class Kind(enum.Enum):
    """How the indices of a descriptor work together."""

    SCALAR = "each index is one number and removes its axis"
    VECTORS = "index tensors broadcast together, as in numpy"
    MESH = "each axis has its own 1-d index: their outer product"
    BATCHED_MESH = "as MESH, with one row of indices for each element of axis 0"


@dataclass(frozen=True, slots=True)
class Item:
    """One axis of a descriptor, with the positions of the inputs that hold its numbers."""

    axis: int
    begin: int | None = None
    end: int | None = None
    step: int | None = None
    index: int | None = None


def read(call: Call, *, first: int) -> tuple[Item, ...]:
    """Pair the items of the call's descriptor with its inputs, from input `first` on.

    Axes stay as stored: they may be negative.

    Raises:
        ShapeError: The items ask for another number of inputs than there are.
    """
    items = []
    position = first
    for entry in call.param.items:
        places: list[int | None] = []
        for flag in (entry.begin, entry.end, entry.step, entry.idx):
            places.append(position if flag else None)
            position += bool(flag)
        items.append(Item(int(entry.axis), *places))
    given = len(call.inputs)
    need(
        position == given,
        f"the index descriptor asks for {position - first} index inputs, got {given - first}",
    )
    return tuple(items)


def _placed(items: Sequence[Item], rank: int) -> dict[int, Item]:
    placed: dict[int, Item] = {}
    for item in items:
        axis = normal_axis(item.axis, rank)
        need(axis not in placed, f"axis {axis} is indexed twice")
        has_slice = any(p is not None for p in (item.begin, item.end, item.step))
        need(
            item.index is None or not has_slice,
            f"axis {axis} has both an index and a slice",
        )
        placed[axis] = item
    return placed


def _resolved(item: Item, size: int, call: Call) -> range | None:
    """Positions that a slice takes of an axis; None when a number is not known."""
    numbers: list[int | None] = []
    for place in (item.begin, item.end, item.step):
        value = None if place is None else number(call, place)
        if place is not None and value is None:
            return None
        numbers.append(value)
    begin, end, step = numbers
    need(step != 0, f"the slice of axis {item.axis} has step 0")
    for name, value in (("begin", begin), ("end", end)):
        need(
            value is None or value >= -size,
            f"{name} {value} of the slice of axis {item.axis} is below -{size}",
        )
    return range(*slice(begin, end, step).indices(size))


def sliced_shape(call: Call, items: Sequence[Item]) -> list[int | None]:
    """Shape of input 0 after the slices; axes with an index keep their length."""
    shape = call.inputs[0].shape
    if shape is None:
        raise ShapeError("the rank of input 0 is not known")
    result = list(shape)
    for axis, item in _placed(items, len(shape)).items():
        size = shape[axis]
        if item.index is None:
            taken = None if size is None else _resolved(item, size, call)
            result[axis] = None if taken is None else len(taken)
    return result


def selected_shape(call: Call, items: Sequence[Item], kind: Kind) -> ShapeLike:
    """Shape of what a descriptor selects of input 0; unknown dimensions allowed.

    Raises:
        ShapeError: Axes, slices or index shapes do not fit.
    """
    if call.inputs[0].shape is None:
        return None
    shape = sliced_shape(call, items)
    points = {a: i.index for a, i in sorted(_placed(items, len(shape)).items())}
    indexed = {a: p for a, p in points.items() if p is not None}
    for place in indexed.values():
        dtype = call.dtype(place)
        need(dtype.is_integer, f"index input {place} must hold integers, got {dtype}")
    if kind is Kind.SCALAR:
        return _without(call, shape, indexed)
    if kind is Kind.VECTORS:
        return _with_vectors(call, shape, indexed)
    return _with_mesh(call, shape, indexed, batched=kind is Kind.BATCHED_MESH)


def _without(call: Call, shape: list[int | None], indexed: dict[int, int]) -> ShapeLike:
    for axis, place in indexed.items():
        value, size = number(call, place), shape[axis]
        if value is not None and size is not None:
            need(
                -size <= value < size,
                f"index {value} is outside axis {axis} of length {size}",
            )
    kept = tuple(n for axis, n in enumerate(shape) if axis not in indexed)
    return kept or (1,)


def _with_vectors(call: Call, shape: list[int | None], indexed: dict[int, int]) -> ShapeLike:
    if not indexed:
        return tuple(shape)
    given = [call.inputs[p].shape for p in indexed.values()]
    common: tuple[int | None, ...]
    if all(static(s) for s in given):
        common = broadcast_shapes([call.shape(p) for p in indexed.values()])
    else:
        ranks = [len(s) for s in given if s is not None]
        if len(ranks) < len(given):
            return None
        common = (None,) * max(ranks)
    axes = list(indexed)
    adjacent = axes[-1] - axes[0] == len(axes) - 1
    front = axes[0] if adjacent else 0
    kept = [n for axis, n in enumerate(shape) if axis not in indexed]
    return (*kept[:front], *common, *kept[front:])


def _with_mesh(
    call: Call, shape: list[int | None], indexed: dict[int, int], *, batched: bool
) -> ShapeLike:
    rank = 2 if batched else 1
    for axis, place in indexed.items():
        need(not (batched and axis == 0), "axis 0 is the batch and cannot be indexed")
        given = call.inputs[place].shape
        if given is None:
            shape[axis] = None
            continue
        need(len(given) == rank, f"index input {place} must have {rank} dimensions, got {given}")
        if batched and given[0] is not None and shape[0] is not None:
            need(
                given[0] == shape[0],
                f"index input {place} has {given[0]} rows for a batch of {shape[0]}",
            )
        shape[axis] = given[-1]
    return tuple(shape)


def slices(call: Call, items: Sequence[Item]) -> tuple[slice, ...]:
    """Numpy slices, one for each axis of input 0, of a call made by `during`."""
    shape = call.shape(0)
    result = [slice(None)] * len(shape)
    for axis, item in _placed(items, len(shape)).items():
        if item.index is not None:
            continue
        taken = _resolved(item, shape[axis], call)
        if taken is None:
            raise ShapeError(f"the slice of axis {axis} is not known")
        stop = None if taken.step < 0 and taken.stop < 0 else taken.stop
        result[axis] = slice(taken.start, stop, taken.step)
    return tuple(result)


def selector(call: Call, items: Sequence[Item], kind: Kind, shape: Shape) -> tuple[Any, ...]:
    """Numpy index for the array that `slices` leaves, of shape `shape`.

    Raises:
        ShapeError: An index is outside its axis.
    """
    placed = _placed(items, len(shape))
    indexed: dict[int, Array] = {}
    for axis, item in sorted(placed.items()):
        value = None if item.index is None else call.value(item.index)
        if value is not None:
            indexed[axis] = _checked(value, axis, shape[axis])
    if kind is Kind.SCALAR:
        return tuple(
            int(indexed[axis].reshape(-1)[0]) if axis in indexed else slice(None)
            for axis in range(len(shape))
        )
    if kind is Kind.VECTORS:
        return tuple(indexed.get(axis, slice(None)) for axis in range(len(shape)))
    if not indexed:
        return (slice(None),) * len(shape)
    batched = kind is Kind.BATCHED_MESH
    grid: list[Array] = []
    for axis, size in enumerate(shape):
        index = indexed.get(axis, np.arange(size))
        ends = (1,) * (len(shape) - axis - 1)
        if batched and index.ndim == 2:
            grid.append(index.reshape(index.shape[0], *(1,) * (axis - 1), index.shape[1], *ends))
        else:
            grid.append(index.reshape((1,) * axis + (index.size, *ends)))
    return tuple(grid)


def _checked(index: Array, axis: int, size: int) -> Array:
    found = as_index(index)
    if found.size:
        low, high = int(found.min()), int(found.max())
        wrong = low if low < -size else high
        need(
            -size <= low and high < size,
            f"index {wrong} is outside axis {axis} of length {size}",
        )
    return found
