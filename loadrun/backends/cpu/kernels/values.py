"""Numbers and arrays as kernels see them that are written with a `Nest` (see there)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from loadrun.backends.cpu.emit import Int

if TYPE_CHECKING:
    from loadrun.backends.cpu.kernels.nest import Nest

# Element: (stored as, computed as when uniform, when wide, extension).
ELEMENTS = {
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
BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
REAL = frozenset({"float", "double"})
MANGLED = {"float": "f32", "double": "f64"}


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

    def shifted_down(self, count: int) -> Num:
        """Bits moved down, with zeros coming in."""
        return self.nest.binary("lshr", self, count)

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
        offset = self.nest.f.mul(at, BYTES[ELEMENTS[self.dtype][0]])
        return Tensor(self.nest, self.nest.f.gep(self.base, offset), self.dtype)

    def __getitem__(self, index: Value) -> Num:
        """An element, or one for each lane of a wide index."""
        if isinstance(index, Num) and index.wide:
            return self._gather(index)
        stored, scalar, _, extend = ELEMENTS[self.dtype]
        size = BYTES[stored]
        p = self.move(index).base
        found = self.nest.f.op(f"load {stored}, ptr {p}, align {size}")
        if extend and stored != scalar:
            found = self.nest.f.op(f"{extend} {stored} {found} to {scalar}")
        return Num(self.nest, found, scalar)

    def _pointers(self, index: Num) -> tuple[str, str]:
        stored = ELEMENTS[self.dtype][0]
        n, f = self.nest.lanes, self.nest.f
        kind = f"<{n} x {index.kind}>"
        return f.op(f"getelementptr {stored}, ptr {self.base}, {kind} {index.text}"), stored

    def _gather(self, index: Num) -> Num:
        n, f = self.nest.lanes, self.nest.f
        pointers, stored = self._pointers(index)
        kind, size = f"<{n} x {stored}>", BYTES[stored]
        name = f"llvm.masked.gather.v{n}{MANGLED.get(stored, stored)}.v{n}p0"
        f.declares.add(f"declare {kind} @{name}(<{n} x ptr>, i32, {f.mt}, {kind})")
        every = f.first_lanes(n)
        args = f"<{n} x ptr> {pointers}, i32 {size}, {f.mt} {every}, {kind} poison"
        return self._widened(f.op(f"call {kind} @{name}({args})"))

    def _widened(self, found: str) -> Num:
        stored, _, kind, extend = ELEMENTS[self.dtype]
        n, f = self.nest.lanes, self.nest.f
        if extend and stored != kind:
            found = f.op(f"{extend} <{n} x {stored}> {found} to <{n} x {kind}>")
        return Num(self.nest, found, kind, wide=True)

    def line(self, p: Lanes) -> Num:
        """The elements at the positions of `p`, which are neighbours."""
        stored, _, number, _ = ELEMENTS[self.dtype]
        if p.single:
            return self.nest.splat(self.nest.number(self[p.start], number))
        n, f = self.nest.lanes, self.nest.f
        size, kind = BYTES[stored], f"<{n} x {stored}>"
        base = self.move(p.start).base
        if p.mask is None:
            return self._widened(f.op(f"load {kind}, ptr {base}, align {size}"))
        name = f"llvm.masked.load.v{n}{MANGLED.get(stored, stored)}.p0"
        f.declares.add(f"declare {kind} @{name}(ptr, i32, {f.mt}, {kind})")
        return self._widened(
            f.op(
                f"call {kind} @{name}(ptr {base}, i32 {size}, {f.mt} {p.mask}, "
                f"{kind} zeroinitializer)"
            )
        )

    def put(self, where: Lanes | Value, value: Value) -> None:
        """Write elements at neighbouring positions, or one at a uniform position."""
        stored, scalar, kind, _ = ELEMENTS[self.dtype]
        f, size = self.nest.f, BYTES[stored]
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
        name = f"llvm.masked.store.v{n}{MANGLED.get(stored, stored)}.p0"
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
        name = f"llvm.masked.scatter.v{n}{MANGLED.get(stored, stored)}.v{n}p0"
        f.declares.add(f"declare void @{name}({vector}, <{n} x ptr>, i32, {f.mt})")
        f.do(
            f"call void @{name}({vector} {found.text}, <{n} x ptr> {pointers}, "
            f"i32 {BYTES[stored]}, {f.mt} {p.mask or f.first_lanes(n)})"
        )

    def _cut(self, value: Num, stored: str) -> Num:
        if value.kind == stored:
            return value
        if value.kind in REAL or stored in REAL:
            raise AssertionError(f"a {value.kind} cannot be stored as {self.dtype}")
        return self.nest.convert(value, stored)
