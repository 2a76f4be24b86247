"""The core of `GraphBuilder`: inputs, weights, constants, outputs, and one way to add an operator.

Types are inferred as operators are added, so a mistake is an error on the line that makes it.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from mgeserial import dtypes
from mgeserial import params as P
from mgeserial._record import Params
from mgeserial.arguments import shown, wholes
from mgeserial.dtypes import FLOAT32, INT32, Array, DType, DTypeEnum
from mgeserial.errors import GraphError, InputError, MgeError
from mgeserial.ir.copying import copy_graph
from mgeserial.ir.graph import Graph, Metadata, Node, Output, Value
from mgeserial.ir.inference import Inference, explain, infer_node
from mgeserial.ir.tensor import Tensor
from mgeserial.ops import registry
from mgeserial.ops.numerics import from_real
from mgeserial.ops.registry import OutputQuery

__all__ = ["BuilderCore", "Operand", "as_dtype", "enum_value", "need_list"]

# What operators take: a value of the graph, or an array or number that becomes one.
Operand = Value | Array | float | int | bool | Sequence[Any]
_E = TypeVar("_E", bound=enum.Enum)
_B = TypeVar("_B", bound="BuilderCore")

_BY_STORAGE = {
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.float16): dtypes.FLOAT16,
    np.dtype(np.int8): dtypes.INT8,
    np.dtype(np.uint8): dtypes.UINT8,
    np.dtype(np.int16): dtypes.INT16,
    np.dtype(np.uint16): dtypes.UINT16,
    np.dtype(np.int32): INT32,
    np.dtype(np.bool_): dtypes.BOOL,
    np.dtype(np.complex64): dtypes.COMPLEX64,
}


def as_dtype(dtype: DType | str | np.dtype[Any] | type) -> DType:
    """A `DType` from one, from its name (`Float32`, `float32`) or from a numpy dtype.

    Raises:
        InputError: Not an element type of the format, or a quantised one without its scale.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        for kind in DTypeEnum:
            if kind.name.lower() == dtype.lower():
                plain = DType(kind)
                if plain.is_quantized:
                    raise InputError(f"{kind.name} needs a scale: mgeserial.dtypes.quantized(...)")
                return plain
    try:
        found = _BY_STORAGE.get(np.dtype(dtype))
    except TypeError:
        found = None
    if found is None:
        known = ", ".join(k.name for k in DTypeEnum)
        raise InputError(f"no element type is called {dtype!r}", hint=f"known: {known}")
    return found


class BuilderCore:
    """Builds a graph operator by operator."""

    def __init__(self) -> None:
        self._graph = Graph()
        self._found = Inference()
        self._outputs: list[Output] = []
        self._names: set[str] = set()
        self._at: int | None = None

    @classmethod
    def within(cls: type[_B], graph: Graph, *, after: Node | None = None) -> _B:
        """A builder that adds to an existing graph instead of making one.

        Args:
            graph: The graph; it is changed in place. Its outputs stay as they are.
            after: New operators stand right after this node, in the order they are made; None: at
                the front (for weights, constants and inputs).
        """
        builder = cls()
        builder._graph = graph
        builder._found = graph.inference.copy()
        builder._names = set(graph.input_names)
        builder._at = 0 if after is None else graph.index_of(after) + 1
        return builder

    def _add(self, *args: Any, **kwargs: Any) -> Node:
        """Add a node at the builder's place."""
        node = self._graph.add(*args, at=self._at, **kwargs)
        if self._at is not None:
            self._at += 1
        return node

    # -- leaves ----------------------------------------------------------------------------------

    def input(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DType | str | np.dtype[Any] | type = FLOAT32,
    ) -> Value:
        """Add an input that callers feed under `name`.

        Args:
            name: Unique name.
            shape: Dimensions (scalars are (1,)); None: any shape, known only when fed.
            dtype: Element type.
        """
        if name in self._names:
            raise InputError(f"an input is called {name!r} already")
        if not isinstance(name, str):
            raise InputError(f"an input is fed by a name, got {shown(name)}")
        dims = wholes(shape, "dimensions") if shape is not None else ()
        if shape is not None and (not dims or len(dims) > 7 or min(dims) < 0):
            raise InputError(f"a shape has 1 to 7 dimensions, none below 0, got {dims}")
        tensor = Tensor(shape=dims, dtype=as_dtype(dtype), name=name, comp_node="xpux:0")
        (value,) = self._leaf("Host2DeviceCopy", tensor, name, (P.Host2DeviceCopy(),))
        self._names.add(name)
        return value

    def param(self, array: Any, name: str | None = None, dtype: DType | str | None = None) -> Value:
        """Add a weight (SharedDeviceTensor) that holds a copy of `array`.

        Args:
            array: Numbers; Python floats become float32, Python integers int32, float64 arrays
                float32. Quantised types take their stored integers, BFloat16 takes numbers, or its
                bits as an array of uint16.
            name: Name kept in the file with `keep_param_name`.
            dtype: Element type; None: that of the array.

        Raises:
            InputError: It is not made of numbers, or one does not fit the type.
        """
        tensor = self._tensor(array, name, dtype)
        return self._leaf("SharedDeviceTensor", tensor, name, ())[0]

    def const(self, array: Any, name: str | None = None, dtype: DType | str | None = None) -> Value:
        """Add a constant (ImmutableTensor): for shapes, indices and numbers that are no weights."""
        tensor = self._tensor(array, name, dtype)
        return self._leaf("ImmutableTensor", tensor, name, ())[0]

    def _tensor(self, array: Any, name: str | None, dtype: DType | str | None) -> Tensor:
        plain = _numbers(array)
        if dtype is None:
            if plain.dtype == np.float64:
                plain = plain.astype(np.float32)
            elif plain.dtype == np.int64:
                if plain.size and (plain.min() < -(2**31) or plain.max() >= 2**31):
                    raise InputError("integers of a graph have 32 bits; a value does not fit")
                plain = plain.astype(np.int32)
            kind = as_dtype(plain.dtype)
        else:
            kind = as_dtype(dtype)
            plain = _stored(plain, kind)
        return Tensor.of(plain, kind, name=name)

    def _leaf(
        self, op: str, tensor: Tensor, name: str | None, params: tuple[Params, ...]
    ) -> tuple[Value, ...]:
        spec = registry.by_name(op)
        node = self._add(spec, (), outputs=[name], params=params, tensors=(tensor,))
        self._infer(node)
        return node.outputs

    # -- operators -------------------------------------------------------------------------------

    def apply(
        self,
        op: str,
        inputs: Iterable[Operand],
        params: Sequence[Params] = (),
        *,
        name: str | None = None,
        output_dtype: DType | str | None = None,
    ) -> tuple[Value, ...]:
        """Add any operator by its record's name; return its outputs.

        The typed methods of the builder all end here.

        Args:
            op: Name of the record, such as `Convolution`.
            inputs: Values; arrays become weights, numbers and lists constants.
            params: Its parameter records; missing ones get their defaults.
            name: Name of the operator and of its first output.
            output_dtype: The output's element type, for operators that let one choose.

        Raises:
            ShapeError: The inputs do not fit together: says how.
            GraphError: No such operator, wrong number of inputs, a value of another graph.
            InputError: An input is no value and no number.
        """
        spec = registry.by_name(op)
        need_list(inputs, f"inputs of {op}")
        need_list(params, f"params of {op}")
        values = [self._value(x) for x in inputs]
        least, most = spec.arity
        if len(values) < least or (most is not None and len(values) > most):
            wanted = str(least) if least == most else f"{least} to {most or 'any number'}"
            raise GraphError(f"{op} takes {wanted} inputs, got {len(values)}")
        if len(params) > len(spec.params):
            known = ", ".join(cls.__name__ for cls in spec.params) or "none"
            raise GraphError(
                f"{op} takes {len(spec.params)} parameter records, got {len(params)}",
                hint=f"it takes: {known}",
            )
        records = (*params, *(cls() for cls in spec.params[len(params) :]))
        for given, cls in zip(records, spec.params, strict=True):
            if type(given) is not cls:
                raise GraphError(f"{op} takes parameters {cls.__name__}, got {given!r}")
        count = spec.output_count
        if not isinstance(count, int):
            count = count(
                OutputQuery(
                    inputs=len(values),
                    tensors=0,
                    param=lambda: records[0],
                    blobs=tuple,
                    names=None,
                    version=0,
                )
            )
        node = self._add(
            spec,
            values,
            outputs=[name if i == 0 else None for i in range(count)],
            params=records,
            name=name,
            output_dtype=None if output_dtype is None else as_dtype(output_dtype),
        )
        self._infer(node)
        return node.outputs

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            if operand.node.graph is not self._graph:
                raise GraphError(f"{operand!r} belongs to another builder")
            return operand
        if isinstance(operand, np.ndarray):
            return self.param(operand)
        return self.const(operand)

    def _infer(self, node: Node) -> None:
        inputs = [self._found.types[v] for v in node.inputs]
        try:
            infer_node(node, inputs, self._found, None)
        except MgeError as error:
            message = explain(error, node, inputs)
            self._graph.remove(node)
            if self._at is not None:
                self._at -= 1
            raise message from error.__cause__

    def type_of(self, value: Value) -> Any:
        """Type of a value of this builder: dtype and shape (None where unknown)."""
        return self._found.types[self._value(value)]

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """Static shape of a value (ShapeError when it is not fully known)."""
        dims: tuple[int, ...] = self.type_of(value).dims
        return dims

    # -- results ---------------------------------------------------------------------------------

    def output(self, value: Value, name: str | None = None) -> Value:
        """Make a value an output of the network, under `name`.

        Raises:
            GraphError: Another output has that name.
        """
        value = self._value(value)
        if name is not None:
            if not isinstance(name, str):
                raise InputError(f"an output is known by a name, got {shown(name)}")
            if any(o.name == name for o in self._outputs):
                raise GraphError(f"an output is called {name!r} already")
            value.name = name
        self._outputs.append(Output(value, name or value.name, len(self._outputs)))
        return value

    def graph(self) -> Graph:
        """A copy of the graph built so far; the builder can go on.

        Raises:
            GraphError: There is no output.
        """
        if not self._outputs:
            raise GraphError("the graph has no output", hint="call builder.output(value, name)")
        self._graph.set_outputs(self._outputs)
        new, _ = copy_graph(self._graph)
        new.metadata = Metadata(is_valid=True, user_info=b"")
        return new


def enum_value(cls: type[_E], value: _E | str | int) -> _E:
    """An enum member from itself, its name (MAX or MAX_) or its number.

    Raises:
        InputError: There is none; close ones are listed.
    """
    if isinstance(value, cls):
        return value
    if isinstance(value, str):
        members: Mapping[str, _E] = cls.__members__
        for text in (value, value + "_", value.upper(), value.upper() + "_"):
            if text in members:
                return members[text]
        close = difflib.get_close_matches(value.upper(), members, n=4) or list(members)
        raise InputError(f"{cls.__name__} has no {value!r}", hint=_some(close))
    try:
        return cls(value)
    except ValueError:
        raise InputError(f"{cls.__name__} has no {value!r}", hint=_some(cls.__members__)) from None


def _some(members: Iterable[str]) -> str:
    return "known: " + ", ".join(list(members)[:12])


def need_list(given: object, what: str) -> None:
    """One value where several are expected is an error.

    Raises:
        GraphError: It is one.
    """
    if isinstance(given, (Value, Params)):
        raise GraphError(f"{what} are a list, got {shown(given)}", hint="write [...]")


def _numbers(given: Any) -> Array:
    """An array of numbers."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise InputError(f"lists of one level have the same length: {shown(given)}") from None
    if array.dtype.kind not in "biufc":
        if isinstance(given, int):
            raise InputError(f"integers of a graph have 32 bits, got {shown(given)}")
        raise InputError(
            "an operand is a value of the builder, an array, a number or a list of numbers, got "
            f"{shown(given) if array.ndim == 0 else f'an array of {array.dtype}'}"
        )
    return array


def _stored(array: Array, dtype: DType) -> Array:
    """Numbers as a type stores them; nothing is lost but digits of floating types."""
    if array.dtype == dtype.storage:
        return array
    if array.dtype.kind == "c" and dtype.kind is not DTypeEnum.Complex64:
        raise InputError(f"complex numbers do not fit {dtype.name}")
    if dtype.kind is DTypeEnum.BFloat16:
        return from_real(array.astype(np.float32), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        stored = array.astype(dtype.storage)
    if not (dtype.is_float or dtype.kind is DTypeEnum.Complex64):
        wrong = np.flatnonzero(stored != array)
        if wrong.size:
            first = array.reshape(-1)[wrong[0]]
            raise InputError(f"a value does not fit {dtype.name}: {first}")
    return stored
