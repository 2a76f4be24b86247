"""Small dtype and shape rules that many operator records share, and checks in the user's words."""

from __future__ import annotations

from collections.abc import Sequence

from mgeserial.dtypes import DType
from mgeserial.errors import ShapeError, UnsupportedError
from mgeserial.ir.types import Call, DTypes, Shape, ShapeLike, Shapes

__all__ = [
    "broadcast_known",
    "broadcast_shapes",
    "constant_shape",
    "dtype_of",
    "fixed_dtype",
    "need",
    "need_gradient",
    "normal_axis",
    "of_floats",
    "output_or",
    "shape_of",
]


def dtype_of(index: int) -> DTypes:
    """Every output has the element type of input `index`."""

    def rule(call: Call) -> list[DType]:
        return [call.dtype(index)] * call.count

    return rule


def fixed_dtype(*dtypes: DType) -> DTypes:
    """Outputs have these element types, in order (the last repeats)."""

    def rule(call: Call) -> list[DType]:
        return [dtypes[min(i, len(dtypes) - 1)] for i in range(call.count)]

    return rule


def output_or(index: int) -> DTypes:
    """The dtype stored with the operator, else that of input `index`."""

    def rule(call: Call) -> list[DType]:
        return [call.output_dtype or call.dtype(index)] * call.count

    return rule


def of_floats(rule: DTypes, count: int | None = None) -> DTypes:
    """The rule, for inputs (the first `count`) that must be floating point numbers."""

    def checked(call: Call) -> Sequence[DType]:
        for index, found in enumerate(call.inputs[:count]):
            if not found.dtype.is_float:
                names = call.op.input_names
                name = names[min(index, len(names) - 1)]
                raise UnsupportedError(
                    f"{call.op.name} needs floating point numbers, {name} is {found.dtype}"
                )
        return rule(call)

    return checked


def shape_of(index: int) -> Shapes:
    """Every output has the shape of input `index`."""

    def rule(call: Call) -> list[ShapeLike]:
        return [call.inputs[index].shape] * call.count

    return rule


def constant_shape(*shape: int) -> Shapes:
    """Every output has this shape."""

    def rule(call: Call) -> list[ShapeLike]:
        return [tuple(shape)] * call.count

    return rule


def need(condition: bool, message: str) -> None:
    """Raise a ShapeError with `message` unless `condition` holds.

    The caller's context (operator, name, place in the file, input types) is added by the driver.
    """
    if not condition:
        raise ShapeError(message)


def need_gradient(call: Call, index: int, wanted: ShapeLike) -> None:
    """The gradient that input `index` is has the shape of the result that it is for."""
    given = call.shape(index)
    need(given == wanted, f"the gradient must have shape {wanted}, got {given}")


def normal_axis(axis: int, rank: int, *, extra: int = 0) -> int:
    """Axis counted from the front; ShapeError when it is outside -rank..rank-1 (+ `extra`)."""
    size = rank + extra
    need(-size <= axis < size, f"axis {axis} is outside a tensor of {rank} dimensions")
    return axis + size if axis < 0 else axis


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Common shape of numpy-style broadcasting, aligned at the right.

    Dimensions are plain integers: their product may be more than numpy can count.
    """
    rank = max((len(s) for s in shapes), default=0)
    found = [1] * rank
    for shape in shapes:
        for axis, n in enumerate(shape, rank - len(shape)):
            if n != 1 and found[axis] not in (1, n):
                shown = " and ".join(str(s) for s in shapes)
                raise ShapeError(f"shapes {shown} do not broadcast")
            found[axis] = n if n != 1 else found[axis]
    return tuple(found)


def broadcast_known(shapes: Sequence[ShapeLike]) -> ShapeLike:
    """`broadcast_shapes` where some dimensions, or whole shapes, are not known yet.

    A dimension of the result is known when one operand has more than 1 there, or all are known.

    Raises:
        ShapeError: Known dimensions do not fit.
    """
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max(len(s) for s in known)
    padded = [(1,) * (rank - len(s)) + s for s in known]
    # Unknown dimensions count as 1 for the check; what they turn out to be is checked when run.
    fixed = broadcast_shapes([tuple(1 if n is None else n for n in s) for s in padded])
    open_axes = [any(s[i] is None for s in padded) for i in range(rank)]
    return tuple(None if hole and n == 1 else n for n, hole in zip(fixed, open_axes, strict=True))
