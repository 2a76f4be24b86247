"""Reductions of integers and codes, and running sums, along one axis of (outer, n, inner).

Sums are of 64 bits, so they wrap as the reference code's do. Lanes are neighbours along the axis
where inner is 1 (folded at the end), else neighbouring inner positions; what is left of either is
done with registers of one element. Argument table: 0 input, 1 output.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu import emit_int
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, typed
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_STARTS = {"product": 1, "min": _MOST, "max": _LEAST}


@dataclass(frozen=True, slots=True)
class How:
    """What is computed: mode and types as in `nodes.Fold`."""

    mode: str
    source: str
    target: str
    zero: int = 0
    shift: int = 0
    limits: tuple[int, int] | None = None

    @property
    def start(self) -> int:
        """What no element changes."""
        return _STARTS.get(self.mode, 0)


def _binary(f: Func, how: str, a: str, b: str) -> str:
    return f.op(f"{how} {emit_int.wide(f)} {a}, {b}")


def _join(f: Func, mode: str, a: str, b: str) -> str:
    if mode in ("min", "max"):
        vt = emit_int.wide(f)
        test = f.op(f"icmp {'slt' if mode == 'min' else 'sgt'} {vt} {a}, {b}")
        return f.op(f"select {f.mt} {test}, {vt} {a}, {vt} {b}")
    return _binary(f, "mul" if mode == "product" else "add", a, b)


def _element(f: Func, how: How, base: str, at: Int) -> str:
    value = emit_int.widen(f, typed.load(f, how.source, base, at))
    if how.zero:
        value = _binary(f, "sub", value, emit_int.wide_const(f, how.zero))
    return _binary(f, "mul", value, value) if how.mode == "sum_sqr" else value


def _result(f: Func, how: How, total: str, n: int) -> str:
    """A register of the output's type."""
    vt = emit_int.wide(f)
    if how.mode == "mean":
        total = _binary(f, "sdiv", total, emit_int.wide_const(f, n))  # toward zero, as C does
    elif how.mode == "mean_code":
        real = f"<{f.lanes} x double>"
        count = f"<{', '.join([f'double {float(n)}'] * f.lanes)}>"
        mean = f.op(f"fdiv {real} {f.op(f'sitofp {vt} {total} to {real}')}, {count}")
        rounded = f.intrinsic(real, f"llvm.round.v{f.lanes}f64", (real, mean))
        total = f.op(f"fptosi {real} {rounded} to {vt}")
    if how.shift:
        total = _binary(f, "add", total, emit_int.wide_const(f, how.shift))
    if how.limits:
        low, high = (emit_int.wide_const(f, v) for v in how.limits)
        total = emit_int.limited(f, total, low, high)
    if how.target == "bool":
        some = f.op(f"icmp ne {vt} {total}, {emit_int.wide_const(f, 0)}")
        return f.op(f"zext {f.mt} {some} to {f.it}")
    return f.op(f"trunc {vt} {total} to {f.it}")


def fold(how: How, sizes: tuple[int, int, int], target: Target) -> Kernel:
    """(outer, n, inner) to (outer, inner)."""
    outer, n, inner = sizes
    if inner == 1:
        f, units = _rows(how, n, target), outer
    else:
        f, chunks = _columns(how, n, inner, target)
        units = outer * chunks
    return common.finish(f"reduce_{how.source}_{how.mode}", [f], [(f, units)])


def _rows(how: How, n: int, target: Target) -> Func:
    f = common.entry("", target)
    x, y = (f.load_ptr("%args", k) for k in range(2))
    vt, start = emit_int.wide(f), emit_int.wide_const(f, how.start)
    size = typed.STORED[how.source].size
    whole = n // f.lanes * f.lanes
    with f.loop("%begin", "%end") as unit:
        base = f.gep(x, f.mul(unit.i, n * size))
        total = start
        if whole:
            with f.loop(0, whole, f.lanes, [(vt, start)]) as i:
                i.next = [_join(f, how.mode, i.v[0], _element(f, how, base, i.i))]
            total = i.out[0]
        lanes = [f.op(f"extractelement {vt} {total}, i64 {k}") for k in range(f.lanes)]
        with typed.one_lane(f):
            one = emit_int.wide(f)
            parts = [f.op(f"insertelement {one} poison, i64 {v}, i64 0") for v in lanes]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [_join(f, how.mode, parts[k], parts[k + half]) for k in range(half)]
            if whole < n:
                with f.loop(whole, n, 1, [(one, parts[0])]) as i:
                    i.next = [_join(f, how.mode, i.v[0], _element(f, how, base, i.i))]
                parts = i.out
            typed.store(f, _result(f, how, parts[0], n), how.target, y, unit.i)
    return f


def _columns(how: How, n: int, inner: int, target: Target) -> tuple[Func, int]:
    """The function, and units per outer element: whole vectors, then single positions."""
    f = common.entry("", target)
    x, y = (f.load_ptr("%args", k) for k in range(2))
    vectors, rest = divmod(inner, f.lanes)
    chunks = vectors + (1 if rest else 0)
    size = typed.STORED[how.source].size

    def column(base: str, out: Int, at: Int) -> None:
        first = emit_int.wide_const(f, how.start)
        with f.loop(0, n, 1, [(emit_int.wide(f), first)]) as k:
            value = _element(f, how, base, f.add(f.mul(k.i, inner), at))
            k.next = [_join(f, how.mode, k.v[0], value)]
        typed.store(f, _result(f, how, k.out[0], n), how.target, y, f.add(out, at))

    with f.loop("%begin", "%end") as unit:
        row, chunk = f.div(unit.i, chunks), f.mod(unit.i, chunks)
        base = f.gep(x, f.mul(row, n * inner * size))
        out = f.mul(row, inner)
        at = f.mul(chunk, f.lanes)
        high = f.min(f.add(at, f.lanes), inner)
        typed.each(f, at, high, lambda i: column(base, out, i))
    return f, chunks


def cumulate(
    dtype: str, sizes: tuple[int, int, int], target: Target, *, reverse: bool, exclusive: bool
) -> Kernel:
    """Running sums along n; float32 is summed in float64."""
    outer, n, inner = sizes
    f = common.entry("", target)
    x, y = (f.load_ptr("%args", k) for k in range(2))
    size = typed.STORED[dtype].size
    chunks = -(-inner // f.lanes)
    real = dtype == "float32"

    def column(row: Int, at: Int) -> None:
        vt = f"<{f.lanes} x double>" if real else f.it
        a, b = (f.gep(p, f.mul(row, n * inner * size)) for p in (x, y))
        with f.loop(0, n, 1, [(vt, "zeroinitializer")]) as k:
            step = f.sub(n - 1, k.i) if reverse else k.i
            place = f.add(f.mul(step, inner), at)
            value = typed.load(f, dtype, a, place)
            if real:
                value = f.op(f"fpext {f.vt} {value} to {vt}")
            total = f.op(f"{'fadd' if real else 'add'} {vt} {k.v[0]}, {value}")
            k.next = [total]
            shown = k.v[0] if exclusive else total
            if real:
                shown = f.op(f"fptrunc {vt} {shown} to {f.vt}")
            if dtype == "bool":
                some = f.op(f"icmp ne {f.it} {shown}, zeroinitializer")
                shown = f.op(f"zext {f.mt} {some} to {f.it}")
            typed.store(f, shown, dtype, b, place)

    with f.loop("%begin", "%end") as unit:
        row, chunk = f.div(unit.i, chunks), f.mod(unit.i, chunks)
        low = f.mul(chunk, f.lanes)
        typed.each(f, low, f.min(f.add(low, f.lanes), inner), lambda i: column(row, i))
    return common.finish(f"cumulate_{dtype}", [f], [(f, outer * chunks)])
