"""A small language for transforming an array: arithmetic, indexing and functions of numpy.

`(data - np.array([103.53, 116.28, 123.68])) / 57.4`, `data.astype(np.float32) / 255`,
`np.transpose(data, (0, 3, 1, 2))`. The text is parsed, never executed: names, functions and
methods that are not listed here do not exist, and no step may make an array of more than
`MAX_BYTES`.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import InputError

__all__ = ["MAX_BYTES", "evaluate"]

MAX_BYTES = 1 << 30
_MAX_TEXT = 2000
_MAX_PARTS = 300
_MAX_DEPTH = 40
_MAX_RANK = 16

_DTYPES = {
    name: np.dtype(name)
    for name in (
        "float16", "float32", "float64", "int8", "int16", "int32", "int64",
        "uint8", "uint16", "uint32", "uint64", "bool_",
    )
}  # fmt: skip
_CONSTANTS: dict[str, Any] = {
    "pi": math.pi,
    "e": math.e,
    "inf": math.inf,
    "nan": math.nan,
    "newaxis": None,
    **_DTYPES,
}

# Functions of one value for each element of their broadcast arguments.
_ELEMENTWISE = frozenset(
    """abs absolute add arctan arctan2 ceil clip cos divide equal exp expm1 fabs floor floor_divide
    fmax fmin greater greater_equal isfinite isinf isnan less less_equal log log10 log1p log2
    logical_and logical_not logical_or maximum minimum mod multiply negative not_equal power
    reciprocal remainder rint round sign sin sqrt square subtract tan tanh true_divide trunc
    where""".split()  # noqa: SIM905 - a paragraph is read more easily than 50 lines
)
# Functions whose result is no larger than their first argument.
_NO_LARGER = frozenset(
    """all amax amin any argmax argmin argsort array asarray ascontiguousarray astype copy cumsum
    expand_dims flatten flip fliplr flipud float16 float32 float64 int8 int16 int32 int64 max mean
    median min moveaxis nan_to_num ones_like prod ravel reshape roll rollaxis rot90 sort squeeze std
    sum swapaxes transpose uint8 uint16 uint32 uint64 var zeros_like""".split()  # noqa: SIM905 - a paragraph is read more easily than 50 lines
)
_METHODS = frozenset(
    """all any argmax argmin argsort astype clip copy cumsum flatten max mean min prod ravel repeat
    reshape round squeeze std sum swapaxes transpose var""".split()  # noqa: SIM905 - a paragraph is read more easily than 50 lines
)
_ATTRIBUTES = ("shape", "ndim", "size", "dtype", "T")
_FORBIDDEN = frozenset({"out", "order", "casting", "subok", "like", "where", "signature", "extobj"})

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluate(text: str, data: Array) -> Array:
    """Value of an expression over `data` and functions of `np`.

    Args:
        text: The expression.
        data: What `data` stands for; it is not changed.

    Returns:
        The array; a number becomes one of shape ().

    Raises:
        InputError: Not an expression of the language, or it fails: says where.
    """
    if len(text) > _MAX_TEXT:
        raise _error(text, f"it has {len(text)} characters, at most {_MAX_TEXT} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _error(text, f"not an expression: {reason}") from None
    parts = sum(1 for _ in ast.walk(tree))
    if parts > _MAX_PARTS:
        raise _error(text, f"it has {parts} parts, at most {_MAX_PARTS} are read")
    given = data.view()
    given.flags.writeable = False
    with np.errstate(all="ignore"):
        result = _Evaluator(text, given).value(tree.body, 0)
    if not isinstance(result, (np.ndarray, np.generic, int, float)):
        raise _error(text, f"it gives {_kind(result)}, an array is needed")
    return np.asarray(result)


def _error(text: str, why: str, node: ast.AST | None = None) -> InputError:
    place = text
    if isinstance(node, ast.expr):
        with contextlib.suppress(RecursionError):
            place = ast.unparse(node)
    shown = place if len(place) <= 60 else place[:60] + "..."
    return InputError(
        f"--input-transform `{shown}`: {why}",
        hint="an expression over `data` and functions of `np`, such as "
        "'data.astype(np.float32) / 255'",
    )


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, _Function):
        return f"the function np.{value.name}"
    return f"a {type(value).__name__}"


class _Function:
    """A function of numpy that may be called, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Evaluator:
    """Evaluates the nodes of one expression."""

    def __init__(self, text: str, data: Array) -> None:
        self.text = text
        self.data = data

    def value(self, node: ast.expr, depth: int) -> Any:
        """Value of a node.

        Raises:
            InputError: The node is not of the language, or its operation fails.
        """
        if depth > _MAX_DEPTH:
            raise _error(self.text, f"it is nested more than {_MAX_DEPTH} deep")
        rule: Callable[[Any, int], Any] | None = getattr(self, f"_{type(node).__name__}", None)
        if rule is None:
            raise _error(self.text, f"{type(node).__name__} is not part of the language", node)
        try:
            return self._checked(rule(node, depth + 1), node)
        except InputError:
            raise
        except MemoryError:
            raise _error(self.text, "out of memory", node) from None
        except Exception as error:
            # numpy and Python raise a dozen kinds for operands that do not fit.
            raise _error(self.text, str(error) or type(error).__name__, node) from error

    def _checked(self, value: Any, node: ast.expr) -> Any:
        """Refuse values beyond the language: huge integers, arrays of Python objects."""
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise _error(self.text, "an integer is beyond 64 bits", node)
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "fiub":
            raise _error(self.text, f"it gives {value.dtype}, not numbers", node)
        return value

    def _room(self, shape: Sequence[int], itemsize: int = 8) -> None:
        """Refuse a result of more than `MAX_BYTES` before it is made."""
        need = math.prod(shape) * itemsize
        if need > MAX_BYTES:
            raise ValueError(
                f"a step needs an array of shape {tuple(shape)}, more than {MAX_BYTES >> 20} MiB"
            )

    # -- literals and names ----------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, depth: int) -> Any:
        if node.value is None or isinstance(node.value, (bool, int, float, str)):
            return node.value
        raise ValueError("a number is needed")

    def _Name(self, node: ast.Name, depth: int) -> Any:
        if node.id == "data":
            return self.data
        if node.id in ("float", "int", "bool"):
            return {"float": np.dtype(float), "int": np.dtype(int), "bool": np.dtype(bool)}[node.id]
        if node.id == "np":
            raise ValueError("np is no value: write np.FUNCTION(...)")
        raise ValueError(f"no name {node.id!r}: `data` and `np` are known")

    def _Tuple(self, node: ast.Tuple, depth: int) -> Any:
        return tuple(self.value(n, depth) for n in node.elts)

    def _List(self, node: ast.List, depth: int) -> Any:
        return [self.value(n, depth) for n in node.elts]

    # -- operators -------------------------------------------------------------------------------

    def _operand(self, value: Any) -> Any:
        """An operand of arithmetic: a number or an array."""
        if isinstance(value, (np.ndarray, np.generic, int, float)):
            return value
        raise ValueError(f"{_kind(value)} is no number or array: write np.array([...])")

    def _BinOp(self, node: ast.BinOp, depth: int) -> Any:
        left = self._operand(self.value(node.left, depth))
        right = self._operand(self.value(node.right, depth))
        kind = type(node.op)
        if kind not in _BINARY:
            raise ValueError(f"{kind.__name__} is not part of the language")
        if kind is ast.MatMult:
            return self._product(left, right)
        if kind is ast.Pow and type(left) is int and type(right) is int:
            if right > 64 and abs(left) > 1:
                raise ValueError("an integer is beyond 64 bits")
            return left**right
        self._room(np.broadcast_shapes(np.shape(left), np.shape(right)))
        return _BINARY[kind](left, right)

    def _product(self, left: Any, right: Any) -> Any:
        a, b = np.shape(left), np.shape(right)
        if a and b:
            batch = np.broadcast_shapes(a[:-2], b[:-2])
            self._room((*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())))
        return np.matmul(left, right)

    def _UnaryOp(self, node: ast.UnaryOp, depth: int) -> Any:
        return _UNARY[type(node.op)](self._operand(self.value(node.operand, depth)))

    def _Compare(self, node: ast.Compare, depth: int) -> Any:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            raise ValueError("one comparison with <, <=, >, >=, == or != is read")
        left = self._operand(self.value(node.left, depth))
        right = self._operand(self.value(node.comparators[0], depth))
        self._room(np.broadcast_shapes(np.shape(left), np.shape(right)))
        return _COMPARE[type(node.ops[0])](left, right)

    # -- indexing --------------------------------------------------------------------------------

    def _Subscript(self, node: ast.Subscript, depth: int) -> Any:
        source = self.value(node.value, depth)
        index = self._index(node.slice, depth)
        if isinstance(source, (tuple, list)):
            if isinstance(index, (int, slice)):
                return source[index]
            raise ValueError("a tuple takes whole numbers as indices")
        if not isinstance(source, np.ndarray):
            raise ValueError(f"{_kind(source)} cannot be indexed")
        entries = index if isinstance(index, tuple) else (index,)
        arrays = [np.shape(i) for i in entries if isinstance(i, (np.ndarray, list))]
        if arrays:
            # Indices by arrays may repeat elements: at worst each picks all the other axes.
            picked = np.broadcast_shapes(*arrays)
            rest = max(source.size // max(min(source.shape, default=1), 1), 1)
            self._room((math.prod(picked), rest), source.itemsize)
        return source[index]

    def _index(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Slice):
            parts = [n and self.value(n, depth) for n in (node.lower, node.upper, node.step)]
            return slice(*parts)
        if isinstance(node, ast.Tuple):
            if len(node.elts) > _MAX_RANK:
                raise ValueError("too many indices")
            return tuple(self._index(n, depth) for n in node.elts)
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return Ellipsis
        return self.value(node, depth)

    # -- numpy -----------------------------------------------------------------------------------

    def _Attribute(self, node: ast.Attribute, depth: int) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "np":
            if node.attr in _CONSTANTS:
                return _CONSTANTS[node.attr]
            if node.attr in _FUNCTIONS:
                return _Function(node.attr)
            raise ValueError(f"np.{node.attr} is not part of the language")
        source = self.value(node.value, depth)
        if isinstance(source, (np.ndarray, np.generic)) and node.attr in _ATTRIBUTES:
            return getattr(source, node.attr)
        raise ValueError(f"no attribute {node.attr!r}: {', '.join(_ATTRIBUTES)} are known")

    def _Call(self, node: ast.Call, depth: int) -> Any:
        args = [self.value(n, depth) for n in node.args]
        keywords: dict[str, Any] = {}
        for item in node.keywords:
            if item.arg is None or item.arg in _FORBIDDEN:
                raise ValueError(f"argument {item.arg or '**'} is not part of the language")
            keywords[item.arg] = self.value(item.value, depth)
        name, function, args = self._function(node.func, args, depth)
        if any(isinstance(a, (str, _Function)) for a in (*args, *keywords.values())):
            args = [_named_dtype(a) for a in args]
            keywords = {k: _named_dtype(a) for k, a in keywords.items()}
        self._room(_result_shape(name, args, keywords))
        return function(*args, **keywords)

    def _function(
        self, node: ast.expr, args: list[Any], depth: int
    ) -> tuple[str, Callable[..., Any], list[Any]]:
        """Name of the function, the function, and its arguments with the array of a method."""
        if not isinstance(node, ast.Attribute):
            raise ValueError("functions are called as np.FUNCTION(...) or data.METHOD(...)")
        if isinstance(node.value, ast.Name) and node.value.id == "np":
            if node.attr in _DTYPES:
                return node.attr, lambda x: np.asarray(x).astype(_DTYPES[node.attr]), args
            found = self._Attribute(node, depth)
            if not isinstance(found, _Function):
                raise ValueError(f"np.{node.attr} is no function")
            return found.name, getattr(np, found.name), args
        source = self.value(node.value, depth)
        if not isinstance(source, (np.ndarray, np.generic)) or node.attr not in _METHODS:
            raise ValueError(f"no method {node.attr!r}: {', '.join(sorted(_METHODS))} are known")
        return node.attr, _method(node.attr), [np.asarray(source), *args]


def _method(name: str) -> Callable[..., Any]:
    def call(array: Array, *args: Any, **keywords: Any) -> Any:
        return getattr(array, name)(*args, **keywords)

    return call


def _named_dtype(value: Any) -> Any:
    """Texts are names of element types: `astype('float32')`, or modes of padding."""
    if isinstance(value, _Function):
        raise ValueError(f"np.{value.name} is a function, not a value")
    if isinstance(value, str) and value not in _MODES:
        if value not in _DTYPES and value != "bool":
            raise ValueError(f"{value!r} is no element type")
        return np.dtype(value)
    return value


# -- sizes of results -----------------------------------------------------------------------------

_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "mean", "minimum", "maximum")
_Size = Callable[[list[Any], Mapping[str, Any]], Sequence[int]]


def _argument(args: list[Any], keywords: Mapping[str, Any], place: int, *names: str) -> Any:
    for name in names:
        if name in keywords:
            return keywords[name]
    if place >= len(args):
        raise ValueError(f"argument {names[0]!r} is missing")
    return args[place]


def _whole(value: Any) -> tuple[int, ...]:
    """Whole numbers of a shape or of counts."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iu" or numbers.ndim > 1 or numbers.size > _MAX_RANK:
        raise ValueError("whole numbers are needed for a shape or count")
    return tuple(int(n) for n in numbers.reshape(-1))


def _shape_given(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    return _whole(_argument(args, keywords, 0, "shape", "N"))


def _broadcast_to(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    return _whole(_argument(args, keywords, 1, "shape"))


def _square(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    (n,) = _whole(_argument(args, keywords, 0, "N"))
    columns = keywords.get("M", args[1] if len(args) > 1 else n)
    return n, n if columns is None else int(columns)


def _range(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    if keywords.keys() - {"dtype"} or not 1 <= len(args) <= 3:
        raise ValueError("write np.arange(stop), (start, stop) or (start, stop, step)")
    first, last = (0, args[0]) if len(args) == 1 else (args[0], args[1])
    step = args[2] if len(args) > 2 else 1
    count = math.ceil((last - first) / step)
    return (max(count, 0),)


def _spaced(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    count = keywords.get("num", args[2] if len(args) > 2 else 50)
    return (*_whole(count), *np.broadcast_shapes(np.shape(args[0]), np.shape(args[1])))


def _sum_of_parts(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    parts = _argument(args, keywords, 0, "arrays", "tup")
    return (sum(int(np.size(p)) for p in parts),)


def _tiled(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    counts = _whole(_argument(args, keywords, 1, "reps"))
    return (int(np.size(args[0])), *counts)


def _repeated(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    counts = np.asarray(_argument(args, keywords, 1, "repeats"))
    most = int(counts.max()) if counts.size else 0
    return int(np.size(args[0])), most


def _padded(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    widths = np.asarray(_argument(args, keywords, 1, "pad_width"))
    if widths.dtype.kind not in "iu":
        raise ValueError("widths of padding are whole numbers")
    array = np.asarray(args[0])
    pairs = np.broadcast_to(widths, (array.ndim, 2))
    return [n + int(a) + int(b) for n, (a, b) in zip(array.shape, pairs, strict=True)]


def _product_shape(args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    a: tuple[int, ...] = np.shape(args[0])
    b: tuple[int, ...] = np.shape(args[1])
    if not a or not b:
        return a or b
    return *a[:-1], *b[:-2], *(b[-1:] if len(b) > 1 else ())


_SIZES: dict[str, _Size] = {
    "zeros": _shape_given,
    "ones": _shape_given,
    "full": _shape_given,
    "eye": _square,
    "arange": _range,
    "linspace": _spaced,
    "broadcast_to": _broadcast_to,
    "concatenate": _sum_of_parts,
    "stack": _sum_of_parts,
    "hstack": _sum_of_parts,
    "vstack": _sum_of_parts,
    "tile": _tiled,
    "repeat": _repeated,
    "pad": _padded,
    "dot": _product_shape,
    "matmul": _product_shape,
}
_FUNCTIONS = _ELEMENTWISE | (_NO_LARGER - {"astype", "flatten"}) | frozenset(_SIZES)


def _result_shape(name: str, args: list[Any], keywords: Mapping[str, Any]) -> Sequence[int]:
    """Shape with at least as many elements as a call's result (ValueError where it cannot be)."""
    sizes = _SIZES.get(name)
    if sizes is not None:
        return sizes(args, keywords)
    shape: tuple[int, ...]
    if name in _ELEMENTWISE:
        shape = np.broadcast_shapes(*(np.shape(a) for a in (*args, *keywords.values())))
    elif args:
        shape = np.shape(args[0])
    else:
        raise ValueError(f"{name} needs an array")
    return shape
