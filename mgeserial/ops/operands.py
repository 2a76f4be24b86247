"""Inputs that say a shape or a number: known ahead of a run, or read while it runs.

Shape operands are 1-d integer tensors, numbers are tensors of one element. A shape rule sees them
as `call.value(i)`; reference code makes the same call from its arrays (`during`) so that the rule
that infers a shape is also the one that is followed.

Source: semantics sections 1 and 9; tensors have at most 7 dimensions.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mgeserial.dtypes import Array
from mgeserial.errors import ShapeError
from mgeserial.ir.types import Call, Shape, ShapeLike, TensorType
from mgeserial.ops.numerics import to_real
from mgeserial.ops.rules import need, normal_axis

__all__ = [
    "MAX_RANK",
    "MOST_ELEMENTS",
    "as_index",
    "dims",
    "during",
    "integers",
    "known_dims",
    "number",
    "ruled_shape",
    "unknown",
]

MAX_RANK = 7
# No tensor of a model comes near this; a larger product is a broken or hostile shape operand.
MOST_ELEMENTS = 1 << 31


def during(call: Call, *arrays: Array) -> Call:
    """The call with the arrays of a run: their shapes as input shapes, themselves as values."""
    types = tuple(
        TensorType(t.dtype, tuple(int(n) for n in a.shape))
        for t, a in zip(call.inputs, arrays, strict=True)
    )
    return call.replace(inputs=types, values=arrays)


def ruled_shape(call: Call, *arrays: Array) -> Shape:
    """Shape of output 0 that the operator's own shape rule finds from the arrays of a run."""
    rule = call.op.shapes
    if rule is None:
        raise ShapeError(f"{call.op.name} has no shape rule")
    found = rule(during(call, *arrays))[0]
    return TensorType(call.inputs[0].dtype, found).dims


def unknown(rank: int | None) -> ShapeLike:
    """A shape of which only the rank, or nothing, is known."""
    return None if rank is None else (None,) * rank


def integers(call: Call, index: int) -> tuple[int, ...] | None:
    """The elements of a 1-d input, cut to integers; None when its value is not known.

    Raises:
        ShapeError: It is not 1-d, too long for a shape, or holds no numbers (NaN, quantised).
    """
    given = call.inputs[index]
    need(
        given.dtype.is_integer or given.dtype.is_float,
        f"input {index} must hold numbers, got {given.dtype}",
    )
    value = call.value(index)
    if value is None:
        return None
    need(value.ndim <= 1, f"input {index} must have 1 dimension, got shape {value.shape}")
    need(value.size <= MAX_RANK, f"input {index} has {value.size} numbers, at most {MAX_RANK} fit")
    real = to_real(value, given.dtype) if given.dtype.is_float else value
    found = [float(v) if given.dtype.is_float else int(v) for v in real.reshape(-1)]
    sensible = all(abs(v) <= MOST_ELEMENTS for v in found)
    need(sensible, f"input {index} must hold numbers of sensible size, got {found}")
    return tuple(int(v) for v in found)


def number(call: Call, index: int) -> int | None:
    """The one number of an input, cut to an integer; None when its value is not known.

    Raises:
        ShapeError: It has another number of elements, or is no number (NaN, quantised).
    """
    given = call.inputs[index]
    if given.is_static:
        need(given.size == 1, f"input {index} must be one number, got shape {given.shape}")
    value = call.value(index)
    if value is None:
        return None
    need(value.size == 1, f"input {index} must be one number, got shape {value.shape}")
    found = integers(call.replace(values=(None,) * index + (value.reshape(-1),)), index)
    return None if found is None else found[0]


def dims(
    call: Call, index: int, *, count: int | None = None, ignored: int | None = None
) -> ShapeLike:
    """The shape that an input says; dimensions are None where its value is not known.

    Args:
        call: The call.
        index: The input with the dimensions.
        count: How many dimensions the operator wants; None: any number.
        ignored: A dimension (may count from the back) whose number has no meaning: None in the
            result.

    Raises:
        ShapeError: It is not a shape, or one of another rank than wanted.
    """
    found = integers(call, index)
    if found is None:
        shape = call.inputs[index].shape
        length = shape[0] if shape is not None and len(shape) == 1 else None
        _check_count(index, count, length)
        return unknown(count if length is None else length)
    _check_count(index, count, len(found))
    if ignored is not None:
        place = normal_axis(ignored, len(found))
        checked = _dims_of(index, (*found[:place], *found[place + 1 :]))
        return (*checked[:place], None, *checked[place:])
    return _dims_of(index, found)


def known_dims(call: Call, index: int, *, count: int | None = None) -> Shape:
    """The shape that an input of a call made by `during` says."""
    return TensorType(call.dtype(index), dims(call, index, count=count)).dims


def _dims_of(index: int, found: tuple[int, ...]) -> Shape:
    """The numbers of input `index` as dimensions, after a check."""
    need(all(n >= 0 for n in found), f"input {index} says the shape {found}: below zero")
    need(math.prod(found) <= MOST_ELEMENTS, f"input {index} says the shape {found}: too large")
    return found


def _check_count(index: int, count: int | None, length: int | None) -> None:
    if length is None:
        return
    need(
        1 <= length <= MAX_RANK and (count is None or length == count),
        f"input {index} must say {count or f'1 to {MAX_RANK}'} dimensions, got {length}",
    )


def as_index(array: Array) -> npt.NDArray[np.intp]:
    """An integer array as numpy's indexing wants it."""
    return array.astype(np.intp, copy=False)
