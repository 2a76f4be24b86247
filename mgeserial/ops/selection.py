"""Rules of the operators that take, set or add to a selection of a tensor (`indexdesc` says which).

Source: semantics section 9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgeserial.dtypes import Array, DType
from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Call, Reference, Shape, ShapeLike, Shapes, TensorType, static
from mgeserial.ops.indexdesc import Item, Kind, read, selected_shape, selector, slices
from mgeserial.ops.numerics import narrow, widen
from mgeserial.ops.operands import during
from mgeserial.ops.rules import need

__all__ = ["accumulate_dtypes", "put", "put_shapes", "same_dtypes", "take", "take_shapes"]


def take_shapes(kind: Kind) -> Shapes:
    """Shape rule of an operator that takes a selection of input 0."""

    def rule(call: Call) -> list[ShapeLike]:
        return [selected_shape(call, read(call, first=1), kind)]

    return rule


def take(kind: Kind) -> Reference:
    """Reference of an operator that takes a selection of input 0; a view where slices suffice."""

    def reference(call: Call, *arrays: Array) -> Array:
        run = during(call, *arrays)
        items = read(run, first=1)
        wanted = _dims(run, items, kind)
        view = arrays[0][slices(run, items)]
        return np.asarray(view[selector(run, items, kind, view.shape)]).reshape(wanted)

    return reference


def put_shapes(kind: Kind) -> Shapes:
    """Shape rule of an operator that changes a selection of input 0 by input 1."""

    def rule(call: Call) -> list[ShapeLike]:
        wanted = selected_shape(call, read(call, first=2), kind)
        given = call.inputs[1].shape
        if static(wanted) and static(given):
            need(
                wanted == given,
                f"the value must have the shape {wanted} of the selection, got {given}",
            )
        return [call.inputs[0].shape]

    return rule


def put(kind: Kind, *, add: bool) -> Reference:
    """Reference of an operator that sets (or adds to) a selection of input 0.

    Positions selected more than once get the last value set, or the sum of all that are added.
    """

    def reference(call: Call, x: Array, value: Array, *rest: Array) -> Array:
        run = during(call, x, value, *rest)
        items = read(run, first=2)
        put_shapes(kind)(run)
        if not add:
            return _changed(run, x.copy(), value, items, kind, add=False)
        dtype = call.dtype(0)
        total = _changed(run, widen(x, dtype).copy(), widen(value, dtype), items, kind, add=True)
        return narrow(total, dtype)

    return reference


def _changed(
    run: Call, y: Array, value: Array, items: Sequence[Item], kind: Kind, *, add: bool
) -> Array:
    view = y[slices(run, items)]
    index = selector(run, items, kind, view.shape)
    # A scalar selection is 1-d as a tensor and 0-d to numpy.
    value = value.reshape(view[index].shape)
    if not add:
        view[index] = value
    elif kind is Kind.SCALAR:
        view[index] += value
    else:
        np.add.at(view, index, value)
    return y


def _dims(run: Call, items: Sequence[Item], kind: Kind) -> Shape:
    return TensorType(run.dtype(0), selected_shape(run, items, kind)).dims


def accumulate_dtypes(call: Call) -> list[DType]:
    """The type of input 0; adding has no meaning for quantised codes, and both types must agree.

    Raises:
        UnsupportedError: A quantised type.
    """
    dtype = call.dtype(0)
    if dtype.is_quantized:
        raise UnsupportedError(f"{call.op.name} cannot add {dtype}")
    return same_dtypes(call)


def same_dtypes(call: Call) -> list[DType]:
    """The type of input 0, which input 1 must have too."""
    need(
        call.dtype(1) == call.dtype(0),
        f"the value must be {call.dtype(0)} as the tensor it goes into, got {call.dtype(1)}",
    )
    return [call.dtype(0)]
