"""Write LLVM IR as text, in SSA form, with the unrolling already done.

A kernel is thousands of straight-line instructions; as text one costs about a
microsecond, and no optimisation pass runs afterwards: the emitter writes what shall be
executed and LLVM only allocates registers and schedules.

Values are strings (`%v12` or a constant); integers that are known while generating are
Python ints and fold. All integer arithmetic is i64. Names come from counters and from
`Func` arguments that this package chose, never from a file.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from loadrun.backends.cpu.target import Target

Int = int | str
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def float_bits(value: float) -> str:
    """A float32 constant as IR writes it (the bits of the same value as a double)."""
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


@dataclass(slots=True)
class Loop:
    """A loop under construction.

    Attributes:
        i: The counter.
        v: Carried values at the start of an iteration.
        next: Carried values for the next iteration; the body replaces it.
        out: Carried values after the loop.
    """

    i: str
    v: list[str]
    next: Sequence[Int]
    out: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """A value that may be replaced: the body of `Func.either` sets `other`."""

    other: str = ""
    value: str = ""


class Func:
    """One function under construction; returns nothing, arguments are typed pairs."""

    def __init__(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        target: Target,
        *,
        external: bool = False,
        noalias: bool = True,
    ) -> None:
        if not _NAME.match(name):
            raise ValueError(f"unsafe function name: {name!r}")
        self.name = name
        self.target = target
        self.lanes = target.lanes
        self.declares: set[str] = set()
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        mark = " noalias" if noalias else ""
        signature = ", ".join(f"{t}{mark if t == 'ptr' else ''} %{n}" for t, n in params)
        linkage = "" if external else "internal "
        self._head = f"define {linkage}void @{name}({signature}) nounwind {{"

    # -- plumbing
    def op(self, text: str) -> str:
        """Append an instruction that gives a value; returns the value's name."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a value."""
        self._lines.append("  " + text)

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name

    @property
    def size(self) -> int:
        """Instructions so far."""
        return len(self._lines)

    def text(self) -> str:
        """The finished definition."""
        return "\n".join([self._head, "entry:", *self._lines, "  ret void", "}"])

    def intrinsic(self, result: str, name: str, *args: tuple[str, Int]) -> str:
        """Call an intrinsic or C function, declaring it; returns its value ('' for void)."""
        self.declares.add(f"declare {result} @{name}({', '.join(t for t, _ in args)})")
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.do(text)
            return ""
        return self.op(text)

    def call(self, name: str, args: Iterable[tuple[str, Int]]) -> None:
        """Call another generated function of the same module."""
        self.do(f"call void @{name}({', '.join(f'{t} {v}' for t, v in args)})")

    # -- integers and pointers
    def add(self, a: Int, b: Int) -> Int:
        """A + b."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return b if a == 0 else self.op(f"add i64 {a}, {b}")

    def sub(self, a: Int, b: Int) -> Int:
        """A - b."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.op(f"sub i64 {a}, {b}")

    def mul(self, a: Int, b: Int) -> Int:
        """A * b."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if b == 1:
            return a
        return b if a == 1 else self.op(f"mul i64 {a}, {b}")

    def div(self, a: Int, b: Int) -> Int:
        """Unsigned a // b."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self.op(f"udiv i64 {a}, {b}")

    def mod(self, a: Int, b: Int) -> Int:
        """Unsigned a % b."""
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        return 0 if b == 1 else self.op(f"urem i64 {a}, {b}")

    def min(self, a: Int, b: Int) -> Int:
        """Smaller of two signed numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.op(f"select i1 {self.icmp('slt', a, b)}, i64 {a}, i64 {b}")

    def max(self, a: Int, b: Int) -> Int:
        """Larger of two signed numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.op(f"select i1 {self.icmp('sgt', a, b)}, i64 {a}, i64 {b}")

    def icmp(self, how: str, a: Int, b: Int) -> str:
        """Compare two i64 (`slt`, `eq`, ...)."""
        return self.op(f"icmp {how} i64 {a}, {b}")

    def gep(self, base: str, offset: Int) -> str:
        """Base + offset bytes."""
        if offset == 0:
            return base
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load_ptr(self, base: str, index: int) -> str:
        """Entry `index` of a table of pointers."""
        return self.op(f"load ptr, ptr {self.gep(base, 8 * index)}, align 8")

    def load_i64(self, base: str, offset: Int) -> str:
        """An i64 at base + offset."""
        return self.op(f"load i64, ptr {self.gep(base, offset)}, align 8")

    def load_i32(self, base: str, offset: Int) -> str:
        """An i32 at base + offset, sign extended."""
        narrow = self.op(f"load i32, ptr {self.gep(base, offset)}, align 4")
        return self.op(f"sext i32 {narrow} to i64")

    def hide(self, pointer: str) -> str:
        """The same pointer, but unknown to LLVM: equal loads through it are not merged."""
        return self.op(f'call ptr asm "", "=r,0"(ptr {pointer})')

    # -- float vectors
    @property
    def vt(self) -> str:
        """Type of a full vector of floats."""
        return f"<{self.lanes} x float>"

    @property
    def it(self) -> str:
        """Type of a full vector of i32."""
        return f"<{self.lanes} x i32>"

    @property
    def mt(self) -> str:
        """Type of a mask of a full vector."""
        return f"<{self.lanes} x i1>"

    def load(self, base: str, offset: Int = 0, *, align: int = 0, ty: str = "") -> str:
        """Load a vector; `align` in bytes, 0 for a full vector's own."""
        align = align or 4 * self.lanes
        return self.op(f"load {ty or self.vt}, ptr {self.gep(base, offset)}, align {align}")

    def store(
        self, value: str, base: str, offset: Int = 0, *, align: int = 0, ty: str = ""
    ) -> None:
        """Store a vector; `align` in bytes, 0 for a full vector's own."""
        align = align or 4 * self.lanes
        self.do(f"store {ty or self.vt} {value}, ptr {self.gep(base, offset)}, align {align}")

    def load_masked(self, base: str, offset: Int, mask: str, *, other: str = "") -> str:
        """Load the lanes of `mask` (others: `other` or zero); touches no other memory."""
        n, p = self.lanes, self.gep(base, offset)
        name = f"llvm.masked.load.v{n}f32.p0"
        self.declares.add(f"declare {self.vt} @{name}(ptr, i32, {self.mt}, {self.vt})")
        other = other or "zeroinitializer"
        return self.op(
            f"call {self.vt} @{name}(ptr {p}, i32 4, {self.mt} {mask}, {self.vt} {other})"
        )

    def store_masked(self, value: str, base: str, offset: Int, mask: str) -> None:
        """Store the lanes of `mask` only."""
        n, p = self.lanes, self.gep(base, offset)
        name = f"llvm.masked.store.v{n}f32.p0"
        self.declares.add(f"declare void @{name}({self.vt}, ptr, i32, {self.mt})")
        self.do(f"call void @{name}({self.vt} {value}, ptr {p}, i32 4, {self.mt} {mask})")

    def first_lanes(self, count: Int) -> str:
        """Mask of lanes 0..count-1; a constant when `count` is known."""
        if isinstance(count, int):
            bits = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(self.lanes))
            return f"<{bits}>"
        low = self.op(f"trunc i64 {self.min(count, self.lanes)} to i32")
        lanes = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return self.op(f"icmp slt {self.it} <{lanes}>, {self.splat(low, 'i32')}")

    def load_float(self, base: str, offset: Int = 0) -> str:
        """One float."""
        return self.op(f"load float, ptr {self.gep(base, offset)}, align 4")

    def store_float(self, value: str, base: str, offset: Int = 0) -> None:
        """One float."""
        self.do(f"store float {value}, ptr {self.gep(base, offset)}, align 4")

    def splat(self, scalar: str, ty: str = "float") -> str:
        """A scalar in every lane."""
        vt = f"<{self.lanes} x {ty}>"
        one = self.op(f"insertelement {vt} poison, {ty} {scalar}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.op(f"shufflevector {vt} {one}, {vt} poison, {zeros}")

    def broadcast(self, base: str, offset: Int = 0) -> str:
        """One float from memory in every lane."""
        return self.splat(self.load_float(base, offset))

    def const(self, value: float) -> str:
        """A float32 constant in every lane."""
        if value == 0 and math.copysign(1, value) > 0:
            return "zeroinitializer"  # a twentieth of the text, which has to be parsed
        return f"splat (float {float_bits(value)})"

    def iconst(self, value: int) -> str:
        """An i32 constant in every lane."""
        return f"splat (i32 {value})"

    def fma(self, a: str, b: str, c: str) -> str:
        """A * b + c, fused where the hardware has it."""
        if not self.target.fma:
            return self.fadd(self.fmul(a, b), c)
        vt = self.vt
        return self.intrinsic(vt, f"llvm.fma.v{self.lanes}f32", (vt, a), (vt, b), (vt, c))

    def _binary(self, name: str, a: str, b: str) -> str:
        return self.op(f"{name} {self.vt} {a}, {b}")

    def fadd(self, a: str, b: str) -> str:
        """A + b."""
        return self._binary("fadd", a, b)

    def fsub(self, a: str, b: str) -> str:
        """A - b."""
        return self._binary("fsub", a, b)

    def fmul(self, a: str, b: str) -> str:
        """A * b."""
        return self._binary("fmul", a, b)

    def fdiv(self, a: str, b: str) -> str:
        """A / b."""
        return self._binary("fdiv", a, b)

    def fcmp(self, how: str, a: str, b: str) -> str:
        """Compare lane by lane (`ogt`, `olt`, `oeq`, `uno`, ...)."""
        return self.op(f"fcmp {how} {self.vt} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """A where the mask holds, else b."""
        return self.op(f"select {self.mt} {mask}, {self.vt} {a}, {self.vt} {b}")

    def fmax(self, a: str, b: str) -> str:
        """A > b ? a : b, so b when either is NaN: one instruction on x86.

        `llvm.maxnum` would add a compare and a mask for its own NaN rule.
        """
        return self.select(self.fcmp("ogt", a, b), a, b)

    def fmin(self, a: str, b: str) -> str:
        """A < b ? a : b, so b when either is NaN."""
        return self.select(self.fcmp("olt", a, b), a, b)

    def unary(self, name: str, a: str) -> str:
        """A unary float intrinsic (`sqrt`, `fabs`, `floor`, `ceil`, ...)."""
        return self.intrinsic(self.vt, f"llvm.{name}.v{self.lanes}f32", (self.vt, a))

    def bitcast(self, value: str, src: str, dst: str) -> str:
        """Reinterpret a value."""
        return self.op(f"bitcast {src} {value} to {dst}")

    def prefetch(self, base: str, offset: Int = 0, *, level: int = 2) -> None:
        """Ask for a cache line to read; level 3 is the nearest cache, 1 the farthest."""
        p = self.gep(base, offset)
        self.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {p}, i32 0, i32 {level}, i32 1)")

    def reduce(self, how: str, value: str) -> str:
        """Fold a vector's lanes into a scalar float: `add`, `mul`, `max` or `min`."""
        n, vt = self.lanes, self.vt
        if how in ("add", "mul"):
            start = "0x8000000000000000" if how == "add" else "1.0"
            name = f"llvm.vector.reduce.f{how}.v{n}f32"
            self.declares.add(f"declare float @{name}(float, {vt})")
            return self.op(f"call reassoc float @{name}(float {start}, {vt} {value})")
        return self.intrinsic("float", f"llvm.vector.reduce.f{how}.v{n}f32", (vt, value))

    # -- control flow
    @contextmanager
    def loop(
        self,
        start: Int,
        stop: Int,
        step: Int = 1,
        carried: Sequence[tuple[str, Int]] = (),
        *,
        sure: bool = False,
    ) -> Iterator[Loop]:
        """For i in range(start, stop, step); skips nothing when bounds are known.

        Args:
            start: First value.
            stop: Bound, exclusive.
            step: Positive increment.
            carried: (type, first value) of each carried value.
            sure: There is at least one iteration, although the bounds do not tell.
        """
        tag = self._fresh("L")
        pre, end = self._block, tag + "e"
        state = Loop(f"%{tag}i", [f"%{tag}c{k}" for k in range(len(carried))], [])
        state.next = list(state.v)
        known = isinstance(start, int) and isinstance(stop, int)
        guarded = not sure and not (known and int(start) < int(stop))
        if guarded:
            self.do(f"br i1 {self.icmp('slt', start, stop)}, label %{tag}, label %{end}")
        else:
            self.do(f"br label %{tag}")
        self._label(tag)
        at = len(self._lines)
        yield state
        following = self.op(f"add nsw i64 {state.i}, {step}")
        last = self._block
        phis = [f"  {state.i} = phi i64 [ {start}, %{pre} ], [ {following}, %{last} ]"]
        for name, new, (ty, first) in zip(state.v, state.next, carried, strict=True):
            phis.append(f"  {name} = phi {ty} [ {first}, %{pre} ], [ {new}, %{last} ]")
        self._lines[at:at] = phis
        self.do(f"br i1 {self.icmp('slt', following, stop)}, label %{tag}, label %{end}")
        self._label(end)
        if not guarded:
            state.out = [str(x) for x in state.next]
            return
        for new, (ty, first) in zip(state.next, carried, strict=True):
            state.out.append(self.op(f"phi {ty} [ {first}, %{pre} ], [ {new}, %{last} ]"))

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the body if the i1 holds."""
        tag = self._fresh("W")
        self.do(f"br i1 {condition}, label %{tag}, label %{tag}e")
        self._label(tag)
        yield
        self.do(f"br label %{tag}e")
        self._label(tag + "e")

    @contextmanager
    def either(self, condition: str, ty: str, value: str) -> Iterator[Choice]:
        """`value`, or what the body sets as `other` if the i1 holds."""
        tag, before = self._fresh("E"), self._block
        self.do(f"br i1 {condition}, label %{tag}, label %{tag}e")
        self._label(tag)
        choice = Choice()
        yield choice
        inside = self._block
        self.do(f"br label %{tag}e")
        self._label(tag + "e")
        choice.value = self.op(f"phi {ty} [ {value}, %{before} ], [ {choice.other}, %{inside} ]")


def module(functions: Iterable[Func]) -> str:
    """Functions as one module, with the declarations they need."""
    functions = list(functions)
    declares = sorted(set().union(*(f.declares for f in functions)))
    return "\n".join([*declares, *(f.text() for f in functions)]) + "\n"
