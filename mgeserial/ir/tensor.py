"""Tensors stored with operators: read-only, decoded on first touch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgeserial.dtypes import Array, DType, check_fits, unpack
from mgeserial.errors import InputError, MgeError

__all__ = ["Tensor"]


class Tensor:
    """A value stored with an operator, or the description of an input (`data` None).

    A tensor of a file keeps a view of the file's bytes: nothing is read or copied until `numpy()`
    is called. Tensors are immutable; to change a value, replace the tensor.

    Attributes:
        name: Name in the file, None when not kept.
        shape: Dimensions; () for an input of any shape.
        dtype: Element type.
        comp_node: Locator of the computing node, None when absent.
        format: (number of TensorFormat, payload) when not the default format.
        unknown: Fields of a newer release, kept to be written back.
    """

    __slots__ = (
        "_array",
        "_raw",
        "_row_packed",
        "comp_node",
        "dtype",
        "format",
        "name",
        "offset",
        "shape",
        "unknown",
    )

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        dtype: DType,
        raw: memoryview | None = None,
        array: Array | None = None,
        name: str | None = None,
        comp_node: str | None = None,
        format: tuple[int, bytes] | None = None,
        offset: int | None = None,
        row_packed: bool = True,
        unknown: Any = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.comp_node = comp_node
        self.format = format
        self.offset = offset
        self.unknown = unknown
        self._raw = raw
        self._array = array
        self._row_packed = row_packed

    @classmethod
    def of(
        cls,
        array: Array,
        dtype: DType,
        *,
        name: str | None = None,
        comp_node: str | None = "xpux:0",
    ) -> Tensor:
        """Make a tensor that owns a copy of `array` (storage dtype of `dtype`; 0-d becomes (1,)).

        Raises:
            InputError: The array's dtype is not the storage of `dtype`, a value does not fit a type
                of fewer bits, or over 7 dimensions.
        """
        if not isinstance(array, np.ndarray) or not isinstance(dtype, DType):
            raise InputError(
                f"a tensor is made of a numpy array and a DType, got {type(array).__name__} and "
                f"{type(dtype).__name__}",
                hint="such as Tensor.of(numpy.zeros(3, 'float32'), mgeserial.dtypes.FLOAT32)",
            )
        check_fits(array, dtype)
        if array.ndim > 7:
            raise InputError(f"a tensor has at most 7 dimensions, got {array.ndim}")
        own = np.array(array, copy=True, order="C", ndmin=1)
        own.flags.writeable = False
        return cls(shape=own.shape, dtype=dtype, array=own, name=name, comp_node=comp_node)

    @property
    def has_value(self) -> bool:
        """Whether a value is stored."""
        return self._raw is not None or self._array is not None

    @property
    def nbytes(self) -> int:
        """Bytes of the value in a file (0 without a value)."""
        if not self.has_value:
            return 0
        return self.dtype.nbytes(self.shape, row_packed=self._row_packed)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def raw(self) -> memoryview | None:
        """The value's bytes as its file holds them; None for owned arrays or no value."""
        return self._raw

    @property
    def row_packed(self) -> bool:
        """Whether `raw` pads 4-bit rows to bytes (v1.5.0 and later)."""
        return self._row_packed

    def numpy(self) -> Array:
        """The value, read-only: a view of the file where the type allows.

        Raises:
            MgeError: No value is stored.
        """
        if self._array is None:
            if self._raw is None:
                raise MgeError(f"tensor {self.name or ''} has no value stored")
            self._array = unpack(self._raw, self.dtype, self.shape, row_packed=self._row_packed)
        return self._array

    def renamed(self, name: str | None) -> Tensor:
        """The same value under another name (nothing is copied)."""
        return Tensor(
            shape=self.shape,
            dtype=self.dtype,
            raw=self._raw,
            array=self._array,
            name=name,
            comp_node=self.comp_node,
            format=self.format,
            offset=self.offset,
            row_packed=self._row_packed,
            unknown=self.unknown,
        )

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}, {self.shape})"
