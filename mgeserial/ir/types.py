"""What is known of a value (`TensorType`) and what an operator's rules are given (`Call`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mgeserial._record import Params
from mgeserial.dtypes import Array, DType
from mgeserial.errors import ShapeError

__all__ = [
    "ABSENT",
    "Call",
    "DTypes",
    "Operator",
    "Reference",
    "Shape",
    "ShapeLike",
    "Shapes",
    "TensorType",
    "static",
]

# None instead of a shape: not even the rank is known; None as a dimension: that one is not.
Shape = tuple[int, ...]
ShapeLike = tuple[int | None, ...] | None

# Stands for a value whose branch of conditional execution is disabled; known by identity. Whoever
# runs a graph skips operators that read it and gives them absent outputs, unless the record has
# the tag "reads-absent".
ABSENT: Array = np.empty(0, dtype=np.uint8)
_HINT = "give the inputs that it is computed from their shapes"


def static(shape: ShapeLike) -> bool:
    """Whether every dimension is known."""
    return shape is not None and all(n is not None for n in shape)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a value. Scalars have shape (1,); there are no 0-d tensors."""

    dtype: DType
    shape: ShapeLike

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return static(self.shape)

    @property
    def dims(self) -> Shape:
        """The shape of a static type (ShapeError otherwise)."""
        shape = self.shape
        if shape is None or not static(shape):
            raise ShapeError(f"the shape of {self} is not fully known", hint=_HINT)
        return tuple(n for n in shape if n is not None)

    @property
    def rank(self) -> int:
        """Number of dimensions (ShapeError when unknown)."""
        if self.shape is None:
            raise ShapeError(f"the number of dimensions of {self} is not known", hint=_HINT)
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of a static type."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} (?)"
        inner = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.dtype} ({inner}{',' if len(self.shape) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class Call:
    """One operator applied to inputs: what dtype rules, shape rules and reference code see.

    Attributes:
        op: The record.
        params: Parameter records in the order of the record's `params`.
        inputs: Types of the inputs. Shape rules and reference code get static shapes only, unless
            the record says `partial=True`.
        count: Number of outputs wanted by shape and dtype rules.
        output_dtype: The dtype stored with the operator, if any.
        output_types: The inferred types, for reference code; shapes are unknown where data decides
            them.
        values: For each input its value where it is known ahead of the run, else None; in shape
            and dtype rules it is computed when looked at.
        tensors: The operator's own tensors (weights, constants, input placeholders).
        blobs: The operator's opaque data.
        state: A dict that lives as long as one session and belongs to this operator: generators
            of random numbers, counters. Empty for shape and dtype rules.
    """

    op: Operator
    params: tuple[Params, ...] = ()
    inputs: tuple[TensorType, ...] = ()
    count: int = 1
    output_dtype: DType | None = None
    output_types: tuple[TensorType, ...] = ()
    values: Sequence[Array | None] = field(default=(), compare=False)
    tensors: tuple[Any, ...] = ()
    blobs: tuple[bytes, ...] = ()
    state: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def param(self) -> Any:
        """The first parameter record (IndexError when the operator has none)."""
        return self.params[0]

    def dtype(self, index: int) -> DType:
        """Element type of input `index`."""
        return self.inputs[index].dtype

    def shape(self, index: int) -> Shape:
        """Static shape of input `index`."""
        return self.inputs[index].dims

    def value(self, index: int) -> Array | None:
        """Value of input `index` where it is known ahead of the run."""
        return self.values[index] if index < len(self.values) else None

    def replace(self, **changes: Any) -> Call:
        """A copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


DTypes = Callable[[Call], Sequence[DType]]
Shapes = Callable[[Call], Sequence[ShapeLike]]
Reference = Callable[..., "Array | Sequence[Array]"]


class Operator(Protocol):
    """What the graph needs to know of an operator record (`mgeserial.ops.registry.OpSpec`)."""

    @property
    def name(self) -> str:
        """The project's name of the operator."""
        ...

    @property
    def param_types(self) -> tuple[type[Params], ...]:
        """Parameter records in file order."""
        ...

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs; the last one repeats when the arity is open."""
        ...

    @property
    def dtypes(self) -> DTypes | None:
        """Rule for the outputs' element types; None: not yet known."""
        ...

    @property
    def shapes(self) -> Shapes | None:
        """Rule for the outputs' shapes; None: not yet known."""
        ...

    @property
    def reference(self) -> Reference | None:
        """The meaning in numpy; None: cannot run here."""
        ...

    @property
    def partial(self) -> bool:
        """Whether the shape rule accepts inputs whose shapes are not fully known."""
        ...

    @property
    def tags(self) -> frozenset[str]:
        """Marks such as `input`, `reads-absent`, `unknown` (carried along, not understood)."""
        ...

    @property
    def is_pure(self) -> bool:
        """Whether equal inputs always give equal outputs (no random numbers, no state)."""
        ...
