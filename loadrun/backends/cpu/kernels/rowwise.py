"""Operators along one axis of a contiguous float32 array: reductions, softmax, normalisation.

The array is seen as (outer, n, inner). With inner = 1 a row is contiguous and its lanes are folded
at the end; with inner > 1 each vector holds `lanes` neighbouring inner positions and the axis is
walked with a stride. Argument table: 0 input, 1 output, more where stated. Units: rows, or (outer,
chunk of inner positions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadrun.backends.cpu import emit_math
from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction: its neutral element, how partial results join, what each element adds."""

    start: float
    join: Callable[[Func, str, str], str]
    scalar: str  # LLVM's reduction of lanes
    square: bool = False


def _larger(f: Func, a: str, b: str) -> str:
    """Maximum that keeps NaN, as reductions do."""
    return f.select(f.fcmp("uno", a, a), a, f.select(f.fcmp("ogt", a, b), a, b))


def _smaller(f: Func, a: str, b: str) -> str:
    return f.select(f.fcmp("uno", a, a), a, f.select(f.fcmp("olt", a, b), a, b))


FOLDS = {
    "sum": Fold(0.0, lambda f, a, b: f.fadd(a, b), "add"),
    "mean": Fold(0.0, lambda f, a, b: f.fadd(a, b), "add"),
    "sum_sqr": Fold(0.0, lambda f, a, b: f.fadd(a, b), "add", square=True),
    "product": Fold(1.0, lambda f, a, b: f.fmul(a, b), "mul"),
    "max": Fold(float("-inf"), _larger, "max"),
    "min": Fold(float("inf"), _smaller, "min"),
}


def _row_fold(
    f: Func,
    base: str,
    n: int,
    fold: Fold,
    value: Callable[[str], str] = lambda v: v,
    store: Callable[[str, Int, str], None] | None = None,
) -> str:
    """Fold `value` of each element of a contiguous row of n; returns the result in all lanes.

    `store(value, byte offset, mask)` may write what was computed.
    """
    lanes = f.lanes
    start = f.const(fold.start)
    groups = n // (lanes * _UNROLL)
    acc = [start] * _UNROLL

    def step(acc: str, at: Int, mask: str = "") -> str:
        x = f.load_masked(base, at, mask, other="") if mask else f.load(base, at, align=4)
        v = value(x)
        if store is not None:
            store(v, at, mask)
        v = f.fmul(v, v) if fold.square else v
        return fold.join(f, acc, f.select(mask, v, start) if mask else v)

    if groups:
        with f.loop(0, groups, 1, [(f.vt, a) for a in acc]) as g:
            at = f.mul(g.i, 4 * lanes * _UNROLL)
            g.next = [step(g.v[k], f.add(at, 4 * lanes * k)) for k in range(_UNROLL)]
        acc = g.out
    done = groups * _UNROLL
    for k in range(done, n // lanes):
        acc[k - done] = step(acc[k - done], 4 * lanes * k)
    if n % lanes:
        k = n // lanes
        acc[(k - done) % _UNROLL] = step(
            acc[(k - done) % _UNROLL], 4 * lanes * k, f.first_lanes(n % lanes)
        )
    acc = [fold.join(f, acc[0], acc[1]), fold.join(f, acc[2], acc[3])]
    total = fold.join(f, acc[0], acc[1])
    return _fold_lanes(f, total, fold)


def _fold_lanes(f: Func, total: str, fold: Fold) -> str:
    """All lanes hold the fold of all lanes (NaN included)."""
    size = f.lanes // 2
    while size:
        index = ", ".join(f"i32 {k ^ size}" for k in range(f.lanes))
        other = f.op(f"shufflevector {f.vt} {total}, {f.vt} poison, <{f.lanes} x i32> <{index}>")
        total = fold.join(f, total, other)
        size //= 2
    return total


def _each(f: Func, n: int, body: Callable[[Int, str], None]) -> None:
    """Run `body(byte offset, mask)` over a contiguous row of n."""
    lanes = f.lanes
    if n // lanes:
        with f.loop(0, n // lanes) as i:
            body(f.mul(i.i, 4 * lanes), "")
    if n % lanes:
        body(n // lanes * 4 * lanes, f.first_lanes(n % lanes))


def _write(f: Func, value: str, base: str, at: Int, mask: str) -> None:
    if mask:
        f.store_masked(value, base, at, mask)
    else:
        f.store(value, base, at, align=4)


def _read(f: Func, base: str, at: Int, mask: str) -> str:
    return f.load_masked(base, at, mask) if mask else f.load(base, at, align=4)


def reduce(mode: str, outer: int, n: int, inner: int, target: Target) -> Kernel:
    """(outer, n, inner) to (outer, inner); `mode` is a key of `FOLDS`."""
    fold = FOLDS[mode]
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]

    def final(v: str) -> str:
        return f.fdiv(v, f.const(float(n))) if mode == "mean" else v

    chunks = 1
    with f.loop("%begin", "%end") as unit:
        if inner == 1:
            total = _row_fold(f, f.gep(p[0], f.mul(unit.i, 4 * n)), n, fold)
            one = f.op(f"extractelement {f.vt} {final(total)}, i64 0")
            f.store_float(one, p[1], f.mul(unit.i, 4))
        else:
            chunks = -(-inner // target.lanes)
            row, chunk = f.div(unit.i, chunks), f.mod(unit.i, chunks)
            at = f.mul(chunk, target.vector_bytes)
            base = f.gep(p[0], f.add(f.mul(row, 4 * n * inner), at))
            to = f.gep(p[1], f.add(f.mul(row, 4 * inner), at))
            mask = ""
            if inner % target.lanes:
                mask = f.first_lanes(f.sub(inner, f.mul(chunk, target.lanes)))
            with f.loop(0, n, 1, [(f.vt, f.const(fold.start))]) as k:
                v = _read(f, base, f.mul(k.i, 4 * inner), mask)
                k.next = [fold.join(f, k.v[0], f.fmul(v, v) if fold.square else v)]
            _write(f, final(k.out[0]), to, 0, mask)
    return common.finish(f"reduce_f32_{mode}", [f], [(f, outer * chunks)])


def softmax(outer: int, n: int, inner: int, target: Target) -> Kernel:
    """Softmax along n: largest element, sum of exponentials, scale."""
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    largest, total = FOLDS["max"], FOLDS["sum"]
    chunks = 1
    with f.loop("%begin", "%end") as unit:
        if inner == 1:
            x, y = (f.gep(b, f.mul(unit.i, 4 * n)) for b in p)
            top = _row_fold(f, x, n, largest)
            low = _row_fold(
                f,
                x,
                n,
                total,
                lambda v: emit_math.exp(f, f.fsub(v, top)),
                lambda v, at, mask: _write(f, v, y, at, mask),
            )
            _each(
                f,
                n,
                lambda at, mask: _write(f, f.fdiv(_read(f, y, at, mask), low), y, at, mask),
            )
        else:
            chunks = -(-inner // target.lanes)
            row, chunk = f.div(unit.i, chunks), f.mod(unit.i, chunks)
            at = f.add(f.mul(row, 4 * n * inner), f.mul(chunk, target.vector_bytes))
            x, y = (f.gep(b, at) for b in p)
            mask = ""
            if inner % target.lanes:
                mask = f.first_lanes(f.sub(inner, f.mul(chunk, target.lanes)))
            with f.loop(0, n, 1, [(f.vt, f.const(largest.start))]) as k:
                v = _read(f, x, f.mul(k.i, 4 * inner), mask)
                k.next = [largest.join(f, k.v[0], v)]
            with f.loop(0, n, 1, [(f.vt, f.const(0.0))]) as s:
                v = _read(f, x, f.mul(s.i, 4 * inner), mask)
                e = emit_math.exp(f, f.fsub(v, k.out[0]))
                _write(f, e, y, f.mul(s.i, 4 * inner), mask)
                s.next = [f.fadd(s.v[0], e)]
            with f.loop(0, n) as d:
                v = _read(f, y, f.mul(d.i, 4 * inner), mask)
                _write(f, f.fdiv(v, s.out[0]), y, f.mul(d.i, 4 * inner), mask)
    return common.finish("softmax_f32", [f], [(f, outer * chunks)])


def layer_norm(outer: int, n: int, eps: float, affine: bool, target: Target) -> Kernel:
    """(x - mean) / sqrt(var + eps), times weight plus bias when `affine`; rows of n.

    Argument table: 0 input, 1 output, 2 mean, 3 reciprocal deviation (both of `outer` floats), then
    weight and bias. The variance is the mean of squared differences, in a second pass.
    """
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(6 if affine else 4)]
    with f.loop("%begin", "%end") as unit:
        x, y = (f.gep(p[k], f.mul(unit.i, 4 * n)) for k in range(2))
        count = f.const(float(n))
        mean = f.fdiv(_row_fold(f, x, n, FOLDS["sum"]), count)
        square = _row_fold(f, x, n, FOLDS["sum_sqr"], lambda v: f.fsub(v, mean))
        deviation = f.unary("sqrt", f.fadd(f.fdiv(square, count), f.const(eps)))
        scale = f.fdiv(f.const(1.0), deviation)
        for value, base in ((mean, p[2]), (scale, p[3])):
            one = f.op(f"extractelement {f.vt} {value}, i64 0")
            f.store_float(one, base, f.mul(unit.i, 4))

        def body(at: Int, mask: str) -> None:
            v = f.fmul(f.fsub(_read(f, x, at, mask), mean), scale)
            if affine:
                v = f.fma(v, _read(f, p[4], at, mask), _read(f, p[5], at, mask))
            _write(f, v, y, at, mask)

        _each(f, n, body)
    return common.finish("layer_norm_f32", [f], [(f, outer)])
