"""The stack machine of pickles, carried out on inert records: what `pickles.read_pickle` runs.

No name that a file gives is looked up, no class is made, no function called but those of this
module, which build numbers, texts, lists, dicts and numpy arrays.

Source: Python's pickletools (opcodes), numpy's `__reduce__` of arrays, dtypes and scalars.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgeserial.dtypes import Array
from mgeserial.errors import FormatError, printable

__all__ = ["MAX_STEPS", "ArrayRecord", "DTypeRecord", "Dict", "Machine", "Name", "Record"]

MAX_STEPS = 2_000_000
_MAX_RANK = 32

_NUMPY_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMPY_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_BUILTINS = frozenset(
    """tuple list dict set frozenset int float bool str bytes bytearray complex slice range type
    object""".split()  # noqa: SIM905 - a paragraph is read more easily than 15 lines
)
_SCALAR_TYPES = frozenset(
    """float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ complex64
    bool""".split()  # noqa: SIM905 - as above
)
# Names that may occur, beside those of MegEngine's own modules. All of them stay names, but those
# in `_CALLS`, which build data here.
_ALLOWED: frozenset[tuple[str, str]] = frozenset(
    {
        *((m, n) for m in _NUMPY_MULTIARRAY for n in ("_reconstruct", "scalar")),
        *((m, "_frombuffer") for m in _NUMPY_NUMERIC),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        *(("numpy", n) for n in _SCALAR_TYPES),
        *((m, n) for m in ("builtins", "__builtin__") for n in _BUILTINS),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("copyreg", "_reconstructor"),
        ("copy_reg", "_reconstructor"),
        ("_codecs", "encode"),
        ("inspect", "FullArgSpec"),
    }
)
_DTYPE = re.compile(r"[<>=|]?([fiubc])(1|2|4|8)")


# -- what a pickle can hold -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A name that stands for a class or function, and is never looked up."""

    module: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Dict:
    """Keys and values in order; of all keys only texts are hashed, for deep tuples have no end."""

    items: list[tuple[Any, Any]] = field(default_factory=list)
    named: dict[str, Any] | None = None

    def extend(self, items: Sequence[tuple[Any, Any]]) -> None:
        self.items.extend(items)
        self.named = None

    def get(self, key: str) -> Any:
        if self.named is None:
            self.named = {k: v for k, v in self.items if isinstance(k, str)}
        return self.named.get(key)


@dataclass(slots=True, eq=False)
class Record:
    """An object of some class: what it would be made from, be set to, and hold as a list."""

    kind: Name
    args: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DTypeRecord:
    """A numpy dtype: its code, byte order and metadata."""

    code: str
    order: str = "="
    metadata: Any = None

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(">" if self.order == ">" else "<")


@dataclass(slots=True, eq=False)
class ArrayRecord:
    """A numpy array, empty until its state is set."""

    array: Array | None = None
    dtype: DTypeRecord | None = None


class _Mark:
    """Where a group of items begins on the stack."""


_MARK = _Mark()


# -- the machine ----------------------------------------------------------------------------------


class Machine:
    """Carries out a pickle's program on records."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.arrays: list[ArrayRecord] = []
        self.offset = 0
        self.steps = 0
        self.room = 0
        self.text_room = 0

    def run(self, data: bytes) -> Any:
        """The object that the program leaves."""
        self.room = self.text_room = len(data)
        try:
            for opcode, arg, position in pickletools.genops(data):
                self.offset = position or 0
                self._spend(1)
                if opcode.name == "STOP":
                    return self._pop()
                self._step(opcode.name, arg)
        except (ValueError, IndexError, TypeError, OverflowError, UnicodeError) as error:
            # pickletools raises these for opcodes and lengths that are not what they should be.
            raise self._refuse(f"damaged: {error}") from error
        raise self._refuse("it ends before its end")

    def _refuse(self, why: str, *, hint: str | None = None) -> FormatError:
        return FormatError(f"the pickle cannot be read: {why}", offset=self.offset, hint=hint)

    def _spend(self, steps: int) -> None:
        """Count work, so that a small file cannot ask for much."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise self._refuse(f"it takes more than {MAX_STEPS} steps")

    def _take(self, nbytes: int) -> None:
        """Count bytes of values: each is in the file once, so they are not more than it has."""
        self.room -= nbytes
        if self.room < 0:
            raise self._refuse("its arrays have more bytes than the file")

    def _step(self, name: str, arg: Any) -> None:
        if name in _LITERALS:
            self.stack.append(arg)
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        else:
            rule = _RULES.get(name)
            if rule is None:
                raise self._refuse(f"opcode {name} has no place in a file of weights")
            rule(self, arg)

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("the stack is empty")
        return self.stack.pop()

    def _group(self) -> list[Any]:
        """Everything since the last mark."""
        place = len(self.stack) - 1
        while place >= 0 and self.stack[place] is not _MARK:
            place -= 1
        if place < 0:
            raise ValueError("a group without its beginning")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("the stack is empty")
        return self.stack[-1]

    # -- containers ------------------------------------------------------------------------------

    def do_mark(self, arg: Any) -> None:
        self.stack.append(_MARK)

    def do_tuple(self, arg: Any) -> None:
        self.stack.append(tuple(self._group()))

    def do_tuple1(self, arg: Any) -> None:
        self.stack.append((self._pop(),))

    def do_tuple2(self, arg: Any) -> None:
        b, a = self._pop(), self._pop()
        self.stack.append((a, b))

    def do_tuple3(self, arg: Any) -> None:
        c, b, a = self._pop(), self._pop(), self._pop()
        self.stack.append((a, b, c))

    def do_list(self, arg: Any) -> None:
        self.stack.append(self._group())

    def do_dict(self, arg: Any) -> None:
        self.stack.append(Dict(_pairs(self._group())))

    def do_append(self, arg: Any) -> None:
        self._extend([self._pop()])

    def do_appends(self, arg: Any) -> None:
        self._extend(self._group())

    def _extend(self, items: Sequence[Any]) -> None:
        target = self._top()
        held = target.items if isinstance(target, Record) else target
        if not isinstance(held, list):
            raise ValueError("items for something that is no list")
        held.extend(items)

    def setitem(self, arg: Any) -> None:
        value, key = self._pop(), self._pop()
        self._update([(key, value)])

    def setitems(self, arg: Any) -> None:
        self._update(_pairs(self._group()))

    def _update(self, items: Sequence[tuple[Any, Any]]) -> None:
        target = self._top()
        if not isinstance(target, Dict):
            raise ValueError("keys for something that is no dict")
        target.extend(items)

    # -- stack and memo --------------------------------------------------------------------------

    def do_pop(self, arg: Any) -> None:
        if not self.stack:
            raise ValueError("the stack is empty")
        self.stack.pop()

    def pop_mark(self, arg: Any) -> None:
        self._group()

    def do_dup(self, arg: Any) -> None:
        self.stack.append(self._top())

    def do_put(self, arg: Any) -> None:
        self.memo[arg] = self._top()

    def memoize(self, arg: Any) -> None:
        self.memo[len(self.memo)] = self._top()

    def do_get(self, arg: Any) -> None:
        if arg not in self.memo:
            raise ValueError(f"memo {arg} was not set")
        self.stack.append(self.memo[arg])

    def ignore(self, arg: Any) -> None:
        """Frames and the protocol say nothing about the data."""

    # -- names and objects -----------------------------------------------------------------------

    def do_name(self, arg: Any) -> None:
        module, _, name = str(arg).partition(" ")
        self.stack.append(self._allowed(module, name))

    def stack_name(self, arg: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name that is no text")
        self.stack.append(self._allowed(module, name))

    def _allowed(self, module: str, name: str) -> Name:
        ours = module == "megengine" or module.startswith("megengine.")
        if not ours and (module, name) not in _ALLOWED:
            shown = printable(f"{module}.{name}", limit=100)
            raise self._refuse(
                f"it asks for {shown}, which is not on the list of what weights need",
                hint="nothing was executed; if the file is yours, save state_dict() with arrays "
                "only, or export them with numpy.savez",
            )
        return Name(module, name)

    def reduce(self, arg: Any) -> None:
        args, function = self._pop(), self._pop()
        self.stack.append(self._call(function, args))

    def newobj(self, arg: Any) -> None:
        args, kind = self._pop(), self._pop()
        self.stack.append(self._make(kind, args))

    def newobj_ex(self, arg: Any) -> None:
        keywords, args, kind = self._pop(), self._pop(), self._pop()
        if isinstance(keywords, Dict) and keywords.items:
            raise self._refuse("an object is made with named arguments")
        self.stack.append(self._make(kind, args))

    def _make(self, kind: Any, args: Any) -> Any:
        if not isinstance(kind, Name) or not isinstance(args, tuple):
            raise ValueError("an object of something that is no class")
        if kind.module == "numpy":
            raise self._refuse(f"it makes a {kind.text} in a way that numpy does not")
        return self._call(kind, args)

    def _call(self, function: Any, args: Any) -> Any:
        """What calling a name would give, as data."""
        if not isinstance(function, Name) or not isinstance(args, tuple):
            raise ValueError("a call of something that is no name")
        rule = _CALLS.get((function.module, function.name))
        if rule is not None:
            return rule(self, args)
        if function.module in ("numpy", *_NUMPY_MULTIARRAY):
            raise self._refuse(f"it calls {function.text}")
        return Record(function, args)

    def build(self, arg: Any) -> None:
        state, target = self._pop(), self._top()
        if isinstance(target, ArrayRecord):
            self._fill(target, state)
        elif isinstance(target, DTypeRecord):
            self._set_dtype(target, state)
        elif isinstance(target, Record):
            target.state = state
        elif not isinstance(target, Dict):
            raise ValueError("a state for something that has none")

    # -- numpy -----------------------------------------------------------------------------------

    def _reconstruct(self, args: tuple[Any, ...]) -> ArrayRecord:
        if not args or args[0] != Name("numpy", "ndarray"):
            raise self._refuse("an array of a class that is not numpy.ndarray")
        record = ArrayRecord()
        self.arrays.append(record)
        return record

    def _fill(self, record: ArrayRecord, state: Any) -> None:
        """Give an array its shape, type and bytes; their sizes must agree."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise self._refuse("the state of an array has 5 parts")
        _, shape, dtype, by_columns, raw = state
        self._set_array(record, shape, dtype, raw, by_columns=bool(by_columns))

    def _from_buffer(self, args: tuple[Any, ...]) -> ArrayRecord:
        """How protocol 5 keeps an array: (bytes, type, shape, order)."""
        if len(args) != 4:
            raise self._refuse("an array in a buffer has 4 parts")
        record = ArrayRecord()
        self.arrays.append(record)
        self._set_array(record, args[2], args[1], args[0], by_columns=args[3] == "F")
        return record

    def _set_array(
        self, record: ArrayRecord, shape: Any, dtype: Any, raw: Any, *, by_columns: bool
    ) -> None:
        if not isinstance(dtype, DTypeRecord):
            raise self._refuse("an array without an element type")
        if not isinstance(shape, tuple) or len(shape) > _MAX_RANK:
            raise self._refuse(f"the shape of an array has up to {_MAX_RANK} numbers")
        if not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
            raise self._refuse("the shape of an array is made of whole numbers")
        record.array = self._array(dtype, shape, raw, by_columns=by_columns)
        record.dtype = dtype

    def _array(
        self, dtype: DTypeRecord, shape: tuple[int, ...], raw: Any, *, by_columns: bool
    ) -> Array:
        if not isinstance(raw, (bytes, bytearray, str)):
            raise self._refuse("an array holds Python objects, not numbers")
        self._take(len(raw))
        if isinstance(raw, str):  # bytes of Python 2
            raw = raw.encode("latin-1")
        kind = dtype.numpy()
        need = math.prod(shape) * kind.itemsize
        if need != len(raw):
            raise self._refuse(f"an array of {kind} {shape} needs {need} bytes, has {len(raw)}")
        try:
            array = np.frombuffer(bytes(raw), kind) if need else np.empty(0, kind)
            array = array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)
        except ValueError as error:
            raise self._refuse(f"an array of shape {shape}: {error}") from error
        return np.ascontiguousarray(array, kind.newbyteorder("=")).reshape(shape)

    def _dtype(self, args: tuple[Any, ...]) -> DTypeRecord:
        code = args[0] if args else None
        if isinstance(code, bytes):
            code = code.decode("latin-1")
        if isinstance(code, Name) and code.module == "numpy":
            code = np.dtype(code.name).str
        if not isinstance(code, str) or not _DTYPE.fullmatch(code):
            shown = printable(code, limit=40) if isinstance(code, str) else type(code).__name__
            raise self._refuse(f"an array of element type {shown!r}")
        if code in ("f1", "c1", "c2", "c4", "b2", "b4", "b8"):
            raise self._refuse(f"there is no element type {code!r}")
        return DTypeRecord(code)

    def _set_dtype(self, record: DTypeRecord, state: Any) -> None:
        """Byte order and metadata: (version, order, subdtype, names, fields, ..., metadata)."""
        if not isinstance(state, tuple) or len(state) < 8:
            raise self._refuse("the state of an element type has 8 parts or more")
        order, rest = state[1], state[2:5]
        if isinstance(order, bytes):
            order = order.decode("latin-1")
        if order not in ("<", ">", "=", "|") or any(part is not None for part in rest):
            raise self._refuse("an element type with fields")
        record.order = order
        record.metadata = state[8] if len(state) > 8 else None

    def _scalar(self, args: tuple[Any, ...]) -> Any:
        """A numpy scalar as a Python number."""
        if len(args) != 2 or not isinstance(args[0], DTypeRecord):
            raise self._refuse("a number of numpy has a type and bytes")
        return self._array(args[0], (), args[1], by_columns=False)[()].item()

    # -- other calls -----------------------------------------------------------------------------

    def _ordered(self, args: tuple[Any, ...]) -> Dict:
        items = args[0] if args else []
        if isinstance(items, Dict):
            return items
        if not isinstance(items, list):
            raise self._refuse("an OrderedDict of something that is no list")
        self._spend(len(items))
        if not all(isinstance(i, (list, tuple)) and len(i) == 2 for i in items):
            raise self._refuse("an OrderedDict of something that is no list of pairs")
        return Dict([(i[0], i[1]) for i in items])

    def _default(self, args: tuple[Any, ...]) -> Dict:
        return Dict()

    def _encode(self, args: tuple[Any, ...]) -> bytes:
        """How protocol 2 keeps bytes: a text of latin-1."""
        if len(args) != 2 or not isinstance(args[0], str) or args[1] not in ("latin1", "latin-1"):
            raise self._refuse("bytes are kept as a text of latin-1")
        self.text_room -= len(args[0])
        if self.text_room < 0:
            raise self._refuse("its bytes are more than the file has")
        return args[0].encode("latin-1")

    def _bytes(self, args: tuple[Any, ...]) -> bytes:
        """How protocol 2 keeps no bytes."""
        if args:
            raise self._refuse("bytes are kept as a text of latin-1")
        return b""

    def _reconstructor(self, args: tuple[Any, ...]) -> Record:
        if len(args) != 3 or not isinstance(args[0], Name):
            raise self._refuse("an object of something that is no class")
        return Record(args[0], args[1:])


def _pairs(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(items) % 2:
        raise ValueError("a key without its value")
    return list(zip(items[::2], items[1::2], strict=True))


_CALLS: dict[tuple[str, str], Callable[[Machine, tuple[Any, ...]], Any]] = {
    **{(m, "_reconstruct"): Machine._reconstruct for m in _NUMPY_MULTIARRAY},
    **{(m, "scalar"): Machine._scalar for m in _NUMPY_MULTIARRAY},
    **{(m, "_frombuffer"): Machine._from_buffer for m in _NUMPY_NUMERIC},
    ("numpy", "dtype"): Machine._dtype,
    ("collections", "OrderedDict"): Machine._ordered,
    ("collections", "defaultdict"): Machine._default,
    ("_codecs", "encode"): Machine._encode,
    **{(m, "bytes"): Machine._bytes for m in ("builtins", "__builtin__")},
    ("copyreg", "_reconstructor"): Machine._reconstructor,
    ("copy_reg", "_reconstructor"): Machine._reconstructor,
}
_LITERALS = frozenset(
    """INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING
    SHORT_BINSTRING BINBYTES BINBYTES8 SHORT_BINBYTES BYTEARRAY8 UNICODE SHORT_BINUNICODE BINUNICODE
    BINUNICODE8""".split()  # noqa: SIM905 - a paragraph is read more easily than 20 lines
)
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": Dict,
}
_RULES: dict[str, Callable[[Machine, Any], None]] = {
    "PROTO": Machine.ignore,
    "FRAME": Machine.ignore,
    "MARK": Machine.do_mark,
    "TUPLE": Machine.do_tuple,
    "TUPLE1": Machine.do_tuple1,
    "TUPLE2": Machine.do_tuple2,
    "TUPLE3": Machine.do_tuple3,
    "LIST": Machine.do_list,
    "DICT": Machine.do_dict,
    "FROZENSET": Machine.do_list,
    "APPEND": Machine.do_append,
    "APPENDS": Machine.do_appends,
    "ADDITEMS": Machine.do_appends,
    "SETITEM": Machine.setitem,
    "SETITEMS": Machine.setitems,
    "POP": Machine.do_pop,
    "POP_MARK": Machine.pop_mark,
    "DUP": Machine.do_dup,
    "PUT": Machine.do_put,
    "BINPUT": Machine.do_put,
    "LONG_BINPUT": Machine.do_put,
    "MEMOIZE": Machine.memoize,
    "GET": Machine.do_get,
    "BINGET": Machine.do_get,
    "LONG_BINGET": Machine.do_get,
    "GLOBAL": Machine.do_name,
    "STACK_GLOBAL": Machine.stack_name,
    "REDUCE": Machine.reduce,
    "NEWOBJ": Machine.newobj,
    "NEWOBJ_EX": Machine.newobj_ex,
    "BUILD": Machine.build,
}
