"""Kernels in a few lines: numbers with operators, arrays with subscripts, loops by lanes.

What reads and writes single elements (images at other positions, selections, sorting) is written
with these instead of bare instructions:

    nest = Nest(("float32", "int32", "float32"), target)
    x, index, y = nest.arrays

    def third(p: Lanes, _: Num) -> None:
        y.put(p, x[index.line(p) * 3])

    nest.chunked(total, third)
    return nest.finish("every_third_float32")

A `Num` is either uniform (one number for all lanes; integers of 64 bits, known ones fold while
generating) or wide (one per lane; integers of 32 bits unless said otherwise). Operators splat the
uniform side; integers and floats never mix by themselves. Elements are widened when read: float32
stays, whole numbers become integers; they are cut to the element's width when written.

Loops by lanes run whole vectors and then once the rest, where lanes behind the end repeat the last
position: they may read, and their stores are masked. A wide subscript gathers; every lane's
address has to be inside the array, so what a file's numbers can influence is clamped first.
Positions within an array are below 2**31.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from loadrun.backends.cpu.emit import Func, Int, float_bits
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_CHUNK = 2048  # positions of a work unit, a multiple of all vector lengths
# Element: (stored as, computed as when uniform, when wide, extension).
_ELEMENTS = {
    "float32": ("float", "float", "float", ""),
    "float64": ("double", "double", "double", ""),
    "int8": ("i8", "i64", "i32", "sext"),
    "int16": ("i16", "i64", "i32", "sext"),
    "int32": ("i32", "i64", "i32", "sext"),
    "int64": ("i64", "i64", "i64", "sext"),
    "uint8": ("i8", "i64", "i32", "zext"),
    "uint16": ("i16", "i64", "i32", "zext"),
    "bool": ("i8", "i64", "i32", "zext"),
}
RAW = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}  # elements that are only moved, by bytes
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
_REAL = frozenset({"float", "double"})
_MANGLED = {"float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Num:
    """A number, or one per lane: `text` as LLVM writes it, `kind` its scalar type."""

    nest: Nest
    text: Int
    kind: str
    wide: bool = False

    def __add__(self, other: Value) -> Num:
        """Sum; integers wrap."""
        return self.nest.binary("add", self, other)

    def __radd__(self, other: Value) -> Num:
        """Sum; integers wrap."""
        return self.nest.binary("add", self.nest.same(other, self), self)

    def __sub__(self, other: Value) -> Num:
        """Difference; integers wrap."""
        return self.nest.binary("sub", self, other)

    def __rsub__(self, other: Value) -> Num:
        """Difference; integers wrap."""
        return self.nest.binary("sub", self.nest.same(other, self), self)

    def __mul__(self, other: Value) -> Num:
        """Product; integers wrap."""
        return self.nest.binary("mul", self, other)

    def __rmul__(self, other: Value) -> Num:
        """Product; integers wrap."""
        return self.nest.binary("mul", self.nest.same(other, self), self)

    def __truediv__(self, other: Value) -> Num:
        """Quotient of floats."""
        return self.nest.binary("div", self, other)

    def __floordiv__(self, other: Value) -> Num:
        """Quotient of whole numbers that are not negative."""
        return self.nest.binary("udiv", self, other)

    def __mod__(self, other: Value) -> Num:
        """Rest of whole numbers that are not negative."""
        return self.nest.binary("urem", self, other)

    def __and__(self, other: Value) -> Num:
        """Bits, or conditions, of both."""
        return self.nest.binary("and", self, other)

    def __or__(self, other: Value) -> Num:
        """Bits, or conditions, of either."""
        return self.nest.binary("or", self, other)

    def __xor__(self, other: Value) -> Num:
        """Bits that differ."""
        return self.nest.binary("xor", self, other)

    def __lshift__(self, count: int) -> Num:
        """Times 2**count."""
        return self.nest.binary("shl", self, count)

    def __rshift__(self, count: int) -> Num:
        """Divided by 2**count, rounded down."""
        return self.nest.binary("ashr", self, count)

    def __invert__(self) -> Num:
        """The opposite of a condition."""
        return self.nest.binary("xor", self, Num(self.nest, 1, "i1"))

    def __lt__(self, other: Value) -> Num:
        """Condition; false where either is NaN."""
        return self.nest.compare("lt", self, other)

    def __le__(self, other: Value) -> Num:
        """Condition; false where either is NaN."""
        return self.nest.compare("le", self, other)

    def __gt__(self, other: Value) -> Num:
        """Condition; false where either is NaN."""
        return self.nest.compare("gt", self, other)

    def __ge__(self, other: Value) -> Num:
        """Condition; false where either is NaN."""
        return self.nest.compare("ge", self, other)

    def eq(self, other: Value) -> Num:
        """Condition; false where either is NaN."""
        return self.nest.compare("eq", self, other)

    def is_nan(self) -> Num:
        """Condition: a float that is no number."""
        return self.nest.made("fcmp uno", self, self, "i1")

    def to(self, kind: str) -> Num:
        """Another kind: between floats, from integers to floats, between integers."""
        return self.nest.convert(self, kind)

    def whole(self) -> Num:
        """An integer of a float that has no fraction and fits (else the result is arbitrary)."""
        kind = "i32" if self.wide else "i64"
        return self.nest.cast("fptosi", self, kind)

    def bits(self) -> Num:
        """The bits of a float32 as a signed integer."""
        found = self.nest.cast("bitcast", self, "i32")
        return found if self.wide else self.nest.cast("sext", found, "i64")


Value: TypeAlias = Num | int | float


@dataclass(frozen=True, slots=True)
class Lanes:
    """Neighbouring positions of a loop by lanes.

    Attributes:
        start: The first, uniform.
        at: All, wide; those behind the end repeat the last one.
        mask: Which lanes are positions; None for all.
        single: There is one position. LLVM 22 makes of the masked store of one narrow element,
            where the mask is a constant, one of 32 bits: such positions are moved as one element.
    """

    start: Num
    at: Num
    mask: str | None = None
    single: bool = False


@dataclass(slots=True)
class Turn:
    """A loop under construction: counter `i`, carried `v`; the body sets `next`; then `out`."""

    i: Num
    v: list[Num]
    next: list[Num]
    out: list[Num]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A contiguous array of elements named as numpy does."""

    nest: Nest
    base: str
    dtype: str

    def move(self, elements: Value) -> Tensor:
        """The array that begins a uniform number of elements later."""
        at = self.nest.uniform(elements)
        offset = self.nest.f.mul(at, _BYTES[_ELEMENTS[self.dtype][0]])
        return Tensor(self.nest, self.nest.f.gep(self.base, offset), self.dtype)

    def __getitem__(self, index: Value) -> Num:
        """An element, or one for each lane of a wide index."""
        if isinstance(index, Num) and index.wide:
            return self._gather(index)
        stored, scalar, _, extend = _ELEMENTS[self.dtype]
        size = _BYTES[stored]
        p = self.move(index).base
        found = self.nest.f.op(f"load {stored}, ptr {p}, align {size}")
        if extend and stored != scalar:
            found = self.nest.f.op(f"{extend} {stored} {found} to {scalar}")
        return Num(self.nest, found, scalar)

    def _pointers(self, index: Num) -> tuple[str, str]:
        stored = _ELEMENTS[self.dtype][0]
        n, f = self.nest.lanes, self.nest.f
        kind = f"<{n} x {index.kind}>"
        return f.op(f"getelementptr {stored}, ptr {self.base}, {kind} {index.text}"), stored

    def _gather(self, index: Num) -> Num:
        n, f = self.nest.lanes, self.nest.f
        pointers, stored = self._pointers(index)
        kind, size = f"<{n} x {stored}>", _BYTES[stored]
        name = f"llvm.masked.gather.v{n}{_MANGLED.get(stored, stored)}.v{n}p0"
        f.declares.add(f"declare {kind} @{name}(<{n} x ptr>, i32, {f.mt}, {kind})")
        every = f.first_lanes(n)
        args = f"<{n} x ptr> {pointers}, i32 {size}, {f.mt} {every}, {kind} poison"
        return self._widened(f.op(f"call {kind} @{name}({args})"))

    def _widened(self, found: str) -> Num:
        stored, _, kind, extend = _ELEMENTS[self.dtype]
        n, f = self.nest.lanes, self.nest.f
        if extend and stored != kind:
            found = f.op(f"{extend} <{n} x {stored}> {found} to <{n} x {kind}>")
        return Num(self.nest, found, kind, wide=True)

    def line(self, p: Lanes) -> Num:
        """The elements at the positions of `p`, which are neighbours."""
        stored, _, number, _ = _ELEMENTS[self.dtype]
        if p.single:
            return self.nest.splat(self.nest.number(self[p.start], number))
        n, f = self.nest.lanes, self.nest.f
        size, kind = _BYTES[stored], f"<{n} x {stored}>"
        base = self.move(p.start).base
        if p.mask is None:
            return self._widened(f.op(f"load {kind}, ptr {base}, align {size}"))
        name = f"llvm.masked.load.v{n}{_MANGLED.get(stored, stored)}.p0"
        f.declares.add(f"declare {kind} @{name}(ptr, i32, {f.mt}, {kind})")
        return self._widened(
            f.op(
                f"call {kind} @{name}(ptr {base}, i32 {size}, {f.mt} {p.mask}, "
                f"{kind} zeroinitializer)"
            )
        )

    def put(self, where: Lanes | Value, value: Value) -> None:
        """Write elements at neighbouring positions, or one at a uniform position."""
        stored, scalar, kind, _ = _ELEMENTS[self.dtype]
        f, size = self.nest.f, _BYTES[stored]
        if isinstance(where, Lanes) and where.single:
            where, value = where.start, self.nest.first_of(value)
        if not isinstance(where, Lanes):
            one = self._cut(self.nest.number(value, scalar), stored)
            f.do(f"store {stored} {one.text}, ptr {self.move(where).base}, align {size}")
            return
        found = self._cut(self.nest.splat(self.nest.number(value, kind)), stored)
        base, n = self.move(where.start).base, self.nest.lanes
        vector = f"<{n} x {stored}>"
        if where.mask is None:
            f.do(f"store {vector} {found.text}, ptr {base}, align {size}")
            return
        name = f"llvm.masked.store.v{n}{_MANGLED.get(stored, stored)}.p0"
        f.declares.add(f"declare void @{name}({vector}, ptr, i32, {f.mt})")
        f.do(
            f"call void @{name}({vector} {found.text}, ptr {base}, i32 {size}, {f.mt} {where.mask})"
        )

    def scatter(self, index: Num, value: Num, p: Lanes) -> None:
        """Write one element for each lane that is a position of `p`; places must differ."""
        pointers, stored = self._pointers(index)
        n, f = self.nest.lanes, self.nest.f
        found = self._cut(self.nest.splat(value), stored)
        vector = f"<{n} x {stored}>"
        name = f"llvm.masked.scatter.v{n}{_MANGLED.get(stored, stored)}.v{n}p0"
        f.declares.add(f"declare void @{name}({vector}, <{n} x ptr>, i32, {f.mt})")
        f.do(
            f"call void @{name}({vector} {found.text}, <{n} x ptr> {pointers}, "
            f"i32 {_BYTES[stored]}, {f.mt} {p.mask or f.first_lanes(n)})"
        )

    def _cut(self, value: Num, stored: str) -> Num:
        if value.kind == stored:
            return value
        if value.kind in _REAL or stored in _REAL:
            raise AssertionError(f"a {value.kind} cannot be stored as {self.dtype}")
        return self.nest.convert(value, stored)


class Nest:
    """One entry point under construction, with its argument table as typed arrays."""

    def __init__(self, dtypes: Sequence[str], target: Target, *, entry: str = "") -> None:
        """Begin; `dtypes` are those of the arguments in order, `entry` as in `common.entry`."""
        self.f: Func = common.entry(entry, target)
        self.target, self.lanes = target, target.lanes
        self.units = 0
        self.arrays = [Tensor(self, self.f.load_ptr("%args", k), d) for k, d in enumerate(dtypes)]

    # -- values
    def number(self, value: Value, kind: str) -> Num:
        """A value of a kind; constants take it, numbers must have it."""
        if not isinstance(value, Num):
            if kind in _REAL:
                return Num(self, _literal(float(value), kind), kind)
            return Num(self, int(value), kind)
        if value.kind != kind:
            if value.wide or value.kind in _REAL or kind in _REAL:
                raise AssertionError(f"a {value.kind} where a {kind} is needed")
            return self.convert(value, kind)
        return value

    def same(self, value: Value, like: Num) -> Num:
        """A value as a number of the kind of another."""
        return self.number(value, like.kind)

    def uniform(self, value: Value) -> Int:
        """A uniform integer as `Func` takes it."""
        if not isinstance(value, Num):
            return int(value)
        if value.wide or value.kind != "i64":
            raise AssertionError(f"not a uniform integer: {value.kind}")
        return value.text

    def splat(self, value: Num) -> Num:
        """The value in every lane."""
        if value.wide:
            return value
        if isinstance(value.text, int) or value.text.startswith("0x"):
            one = str(value.text) if value.kind != "i1" else ("true" if value.text else "false")
            text = f"<{', '.join([f'{value.kind} {one}'] * self.lanes)}>"
            return Num(self, text, value.kind, wide=True)
        return Num(self, self.f.splat(value.text, value.kind), value.kind, wide=True)

    def ramp(self, start: Value = 0) -> Num:
        """start, start + 1, ... by lanes."""
        steps = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return Num(self, f"<{steps}>", "i32", wide=True) + start

    def _pair(self, a: Num, b: Value) -> tuple[Num, Num]:
        """Both of one kind and width; a uniform integer gives way to a wide one."""
        if not isinstance(b, Num):
            b = self.same(b, a)
        if a.wide != b.wide:
            wide, other = (a, b) if a.wide else (b, a)
            other = self.splat(self.number(other, wide.kind))
            return (wide, other) if a.wide else (other, wide)
        if a.kind != b.kind:
            raise AssertionError(f"{a.kind} and {b.kind} do not mix")
        return a, b

    def made(self, what: str, a: Num, b: Num, kind: str = "") -> Num:
        """An instruction of two operands of one type."""
        ty = f"<{self.lanes} x {a.kind}>" if a.wide else a.kind
        return Num(self, self.f.op(f"{what} {ty} {a.text}, {b.text}"), kind or a.kind, a.wide)

    def binary(self, what: str, a: Num, b: Value) -> Num:
        """An operation of two numbers; see the operators of `Num`."""
        a, b = self._pair(a, b)
        if a.kind in _REAL:
            return self.made("f" + what, a, b)
        if not a.wide and a.kind == "i64" and what in _FOLDED:
            return Num(self, getattr(self.f, _FOLDED[what])(a.text, b.text), "i64")
        if not a.wide and isinstance(a.text, int) and isinstance(b.text, int):
            a = Num(self, self.f.op(f"add {a.kind} 0, {a.text}"), a.kind)
        return self.made(what, a, b)

    def compare(self, how: str, a: Num, b: Value) -> Num:
        """A condition of two numbers."""
        a, b = self._pair(a, b)
        if a.kind in _REAL:
            return self.made(f"fcmp o{how}", a, b, "i1")
        return self.made(f"icmp {how if how == 'eq' else 's' + how}", a, b, "i1")

    def select(self, condition: Num, a: Value, b: Value) -> Num:
        """A where the condition holds, else b; at least one is a `Num`."""
        like = a if isinstance(a, Num) else b
        assert isinstance(like, Num)
        x, y = self._pair(self.same(a, like) if not isinstance(a, Num) else a, b)
        if condition.wide or x.wide:
            condition, x, y = (self.splat(v) for v in (condition, x, y))
        many = condition.wide
        cond, ty = (self.f.mt, f"<{self.lanes} x {x.kind}>") if many else ("i1", x.kind)
        text = f"select {cond} {condition.text}, {ty} {x.text}, {ty} {y.text}"
        return Num(self, self.f.op(text), x.kind, many)

    def cast(self, what: str, value: Num, kind: str) -> Num:
        """A conversion by one instruction."""
        if value.kind == kind:
            return value
        n = self.lanes
        source, to = (
            (f"<{n} x {value.kind}>", f"<{n} x {kind}>") if value.wide else (value.kind, kind)
        )
        return Num(self, self.f.op(f"{what} {source} {value.text} to {to}"), kind, value.wide)

    def convert(self, value: Num, kind: str) -> Num:
        """Another kind; see `Num.to`."""
        given = value.kind
        if given == kind:
            return value
        if isinstance(value.text, int) and not value.wide:
            return self.number(value.text, kind)
        if given in _REAL:
            if kind not in _REAL:
                raise AssertionError("floats become integers by `whole`")
            return self.cast("fpext" if kind == "double" else "fptrunc", value, kind)
        if kind in _REAL:
            return self.cast("uitofp" if given == "i1" else "sitofp", value, kind)
        grows = given == "i1" or _BYTES[kind] > _BYTES[given]
        how = ("zext" if given == "i1" else "sext") if grows else "trunc"
        return self.cast(how, value, kind)

    # -- functions
    def unary(self, name: str, x: Num) -> Num:
        """An intrinsic of one float: `floor`, `ceil`, `trunc`, `rint`, `fabs`, `sqrt`."""
        ty = f"<{self.lanes} x {x.kind}>" if x.wide else x.kind
        mangled = f"v{self.lanes}{_MANGLED[x.kind]}" if x.wide else _MANGLED[x.kind]
        return Num(
            self, self.f.intrinsic(ty, f"llvm.{name}.{mangled}", (ty, x.text)), x.kind, x.wide
        )

    def round_away(self, x: Num) -> Num:
        """The nearest whole number, halves away from zero."""
        size = self.unary("fabs", x)
        low = self.unary("trunc", size)
        near = low + self.select((size - low) >= 0.5, self.number(1.0, x.kind), 0.0)
        return self.select(x < 0.0, 0.0 - near, near)

    def minimum(self, a: Num, b: Value) -> Num:
        """The smaller; the second of floats if either is NaN."""
        return self.select(a < b, a, b)

    def maximum(self, a: Num, b: Value) -> Num:
        """The larger; the second of floats if either is NaN."""
        return self.select(a > b, a, b)

    def clamp(self, x: Num, low: Value, high: Value) -> Num:
        """Between two numbers; NaN becomes `low`."""
        return self.minimum(self.maximum(x, low), high)

    def floor_mod(self, x: Num, n: int) -> Num:
        """Rest of division by a positive constant, never negative."""
        rest = self.made("srem", *self._pair(x, n))
        return self.select(rest < 0, rest + n, rest)

    def total(self, x: Num) -> Num:
        """The sum of all lanes, the first ones first."""
        found = self.lane(x, 0)
        for k in range(1, self.lanes):
            found = found + self.lane(x, k)
        return found

    def kept(self, p: Lanes, x: Num, other: Value) -> Num:
        """`x` in the lanes that are positions, `other` in those behind the end."""
        return x if p.mask is None else self.select(Num(self, p.mask, "i1", wide=True), x, other)

    def any(self, condition: Num) -> Num:
        """Whether a condition holds in some lane."""
        if not condition.wide:
            return condition
        name = f"llvm.vector.reduce.or.v{self.lanes}i1"
        return Num(self, self.f.intrinsic("i1", name, (self.f.mt, condition.text)), "i1")

    def first_of(self, value: Value) -> Value:
        """The number of the first lane of a wide one; uniform ones as they are."""
        return self.lane(value, 0) if isinstance(value, Num) and value.wide else value

    def lane(self, value: Num, k: int) -> Num:
        """The number of one lane, uniform."""
        ty = f"<{self.lanes} x {value.kind}>"
        found = Num(
            self, self.f.op(f"extractelement {ty} {value.text}, i64 {k}"), value.kind, wide=False
        )
        return found if value.kind in _REAL or value.kind == "i1" else self.convert(found, "i64")

    # -- control
    @contextmanager
    def each_unit(self, units: int) -> Iterator[Num]:
        """The loop over the entry's work units, which are independent of each other."""
        self.units = units
        with self.f.loop("%begin", "%end") as unit:
            yield Num(self, unit.i, "i64")

    def by_lanes(self, low: Value, high: Value, body: Callable[[Lanes], None], rest: int) -> None:
        """Run `body` over positions low..high-1; `rest` is that length modulo the lanes if known.

        A `rest` of 0 says that whole vectors suffice, -1 that nothing is known.
        """
        f, n = self.f, self.lanes
        first, end = self.uniform(low), self.uniform(high)
        vectors = f.div(f.sub(end, first), n)
        stop = f.add(first, f.mul(vectors, n))
        if stop != first:
            with f.loop(first, stop, n) as v:
                start = Num(self, v.i, "i64")
                body(Lanes(start, self.ramp(start)))
        if rest == 0:
            return
        left = f.sub(end, stop)
        if isinstance(left, int):
            self._rest(stop, end, left, body)
        else:
            with f.when(f.icmp("sgt", left, 0)):
                self._rest(stop, end, left, body)

    def _rest(self, stop: Int, end: Int, left: Int, body: Callable[[Lanes], None]) -> None:
        start = Num(self, stop, "i64")
        last = Num(self, self.f.sub(end, 1), "i64")
        at = self.minimum(self.ramp(start), self.splat(self.convert(last, "i32")))
        body(Lanes(start, at, self.f.first_lanes(left), single=left == 1))

    def lines(self, count: int, body: Callable[[Lanes], None]) -> None:
        """Run `body` over positions 0..count-1."""
        self.by_lanes(0, count, body, count % self.lanes)

    def folded(
        self, count: int, start: Sequence[Num], body: Callable[[Lanes, list[Num]], list[Num]]
    ) -> list[Num]:
        """What `body` makes of wide numbers over positions 0..count-1, from `start` on.

        The rest repeats the last position, so `body` must not mind meeting one twice.
        """
        whole = count // self.lanes * self.lanes
        values = [self.splat(s) for s in start]
        if whole:
            with self.loop(0, whole, values, step=self.lanes) as turn:
                turn.next = body(Lanes(turn.i, self.ramp(turn.i)), turn.v)
            values = turn.out
        if whole < count:
            at = self.minimum(self.ramp(whole), count - 1)
            first = Num(self, whole, "i64")
            mask = self.f.first_lanes(count - whole)
            values = body(Lanes(first, at, mask, single=whole + 1 == count), values)
        return values

    def scratch(self, offset: int, dtype: str) -> Tensor:
        """The calling thread's own memory from a byte offset on, with any content."""
        return Tensor(self, self.f.gep("%scratch", offset), dtype)

    def chunked(
        self,
        total: int,
        body: Callable[[Lanes, Num], None],
        *,
        size: int = _CHUNK,
        before: Callable[[Num], None] | None = None,
    ) -> None:
        """Run `body(positions, unit)` over 0..total-1, `size` positions a unit (see `chunks`).

        `before` runs once at the start of each unit.
        """
        with self.each_unit(chunks(total, size)) as unit:
            if before is not None:
                before(unit)
            low = unit * size
            high = self.minimum(low + size, total)
            self.by_lanes(low, high, lambda p: body(p, unit), 0 if total % self.lanes == 0 else -1)

    @contextmanager
    def loop(
        self, start: Value, stop: Value, carried: Sequence[Num] = (), *, step: int = 1
    ) -> Iterator[Turn]:
        """For i in range(start, stop, step), with numbers that each turn hands to the next."""
        n = self.lanes
        pairs: list[tuple[str, Int]] = [
            (f"<{n} x {c.kind}>" if c.wide else c.kind, c.text) for c in carried
        ]
        with self.f.loop(self.uniform(start), self.uniform(stop), step, pairs) as inner:
            v = [Num(self, t, c.kind, c.wide) for t, c in zip(inner.v, carried, strict=True)]
            turn = Turn(Num(self, inner.i, "i64"), v, list(v), [])
            yield turn
            inner.next = [
                (self.splat(x) if c.wide else x).text
                for x, c in zip(turn.next, carried, strict=True)
            ]
        turn.out = [Num(self, t, c.kind, c.wide) for t, c in zip(inner.out, carried, strict=True)]

    @contextmanager
    def when(self, condition: Num) -> Iterator[None]:
        """Run the body if a uniform condition holds."""
        assert not condition.wide
        with self.f.when(str(condition.text)):
            yield

    def finish(self, name: str, *more: Nest, scratch: int = 0) -> Kernel:
        """The kernel, with the entry points of others after this one."""
        every = (self, *more)
        entries = [(n.f, n.units) for n in every]
        return common.finish(name, [n.f for n in every], entries, scratch=scratch)


_FOLDED = {"add": "add", "sub": "sub", "mul": "mul", "udiv": "div", "urem": "mod"}


def chunks(total: int, size: int = _CHUNK) -> int:
    """Work units of `Nest.chunked`."""
    return -(-total // size)


def _literal(value: float, kind: str) -> str:
    if kind == "float":
        return float_bits(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
