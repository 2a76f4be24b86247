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

from loadrun.backends.cpu.emit import Func, Int, float_bits
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.kernels.values import (
    BYTES,
    MANGLED,
    RAW,
    REAL,
    Lanes,
    Num,
    Tensor,
    Turn,
    Value,
)
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

__all__ = ["RAW", "Lanes", "Nest", "Num", "Tensor", "Turn", "Value", "chunks"]

_CHUNK = 2048  # positions of a work unit, a multiple of all vector lengths


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
            if kind in REAL:
                return Num(self, _literal(float(value), kind), kind)
            return Num(self, int(value), kind)
        if value.kind != kind:
            if value.wide or value.kind in REAL or kind in REAL:
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
        if a.kind in REAL:
            return self.made("f" + what, a, b)
        if not a.wide and a.kind == "i64" and what in _FOLDED:
            return Num(self, getattr(self.f, _FOLDED[what])(a.text, b.text), "i64")
        if not a.wide and isinstance(a.text, int) and isinstance(b.text, int):
            a = Num(self, self.f.op(f"add {a.kind} 0, {a.text}"), a.kind)
        return self.made(what, a, b)

    def compare(self, how: str, a: Num, b: Value) -> Num:
        """A condition of two numbers."""
        a, b = self._pair(a, b)
        if a.kind in REAL:
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
        if given in REAL:
            if kind not in REAL:
                raise AssertionError("floats become integers by `whole`")
            return self.cast("fpext" if kind == "double" else "fptrunc", value, kind)
        if kind in REAL:
            return self.cast("uitofp" if given == "i1" else "sitofp", value, kind)
        grows = given == "i1" or BYTES[kind] > BYTES[given]
        how = ("zext" if given == "i1" else "sext") if grows else "trunc"
        return self.cast(how, value, kind)

    # -- functions
    def unary(self, name: str, x: Num) -> Num:
        """An intrinsic of one float: `floor`, `ceil`, `trunc`, `rint`, `fabs`, `sqrt`."""
        ty = f"<{self.lanes} x {x.kind}>" if x.wide else x.kind
        mangled = f"v{self.lanes}{MANGLED[x.kind]}" if x.wide else MANGLED[x.kind]
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
        return found if value.kind in REAL or value.kind == "i1" else self.convert(found, "i64")

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

    def summed(self, count: int, many: int, body: Callable[[Lanes], Sequence[Num]]) -> list[Num]:
        """`many` sums in float64 of what `body` gives at positions 0..count-1; uniform."""
        start = [self.number(0.0, "double")] * many

        def add(p: Lanes, sums: list[Num]) -> list[Num]:
            return [s + self.kept(p, x, 0.0) for s, x in zip(sums, body(p), strict=True)]

        return [self.total(s) for s in self.folded(count, start, add)]

    def one(self, at: Num) -> Lanes:
        """A single position."""
        wide = self.splat(self.convert(at, "i32"))
        return Lanes(at, wide, self.f.first_lanes(1), single=True)

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
