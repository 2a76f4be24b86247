"""The register tile that every convolution and matrix product is made of.

    acc[p][o] += in[in_offset[p] + tap + step*i] * weights[tap][i][o][0:lanes]

`px` pixels (or rows) times `nb` output vectors stay in registers. The reduction is one loop over
a run-time table of byte offsets ("taps"), each good for `depth` successive steps, so 1x1, 3x3,
any stride, dilation or group, Winograd's products and matrix products differ in tables only.
Weights lie in exactly the order they are read.

The error of a sum in one register grows with the square root of its length. Long reductions are
therefore summed in parts. The order of a sum follows from its length alone, never from the tile, so
that results do not depend on threads or on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.kernels.common import Epilogue
from loadrun.backends.cpu.target import Target

LINE = 64
# Most reduction steps in straight line. On Zen 5, whose instruction supply long loops overtax,
# ResNet-50 runs 2 % faster with 4 than with 8, and compiles in 0.6 of the time.
MAX_DEPTH = 4
# Tiles of this many sums step one by one in a loop: as fast as in straight line, and in two thirds
# of the time to compile. Smaller ones would wait for the loop's own instructions.
_ROLLED = 16
# Longest sum in one register. Parts cost two accesses of the first-level cache per sum: 1 % of the
# products of 256 steps. Errors of ResNet-50 with one register per sum were 2.5 times as large.
MAX_SUM = 256
PARAMS = (
    ("ptr", "in"),
    ("ptr", "w"),
    ("ptr", "bias"),
    ("ptr", "out"),
    ("ptr", "res"),
    ("ptr", "taps"),
    ("i64", "ntaps"),
    ("i64", "obs"),
    ("i64", "rbs"),
    ("ptr", "next"),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """What a register tile computes.

    Attributes:
        in_offsets: Byte offset of each pixel's first input.
        out_offsets, res_offsets: Byte offset of each pixel's output and second operand.
        nb: Output vectors.
        depth: Reduction steps per tap.
        step: Bytes between the inputs of successive steps.
        bias: Start from the bias vectors instead of zero.
        accumulate: Start from what the output holds (a reduction in several parts).
        epilogue: Applied before the store.
        fetch_lines: 64-byte lines per tap to prefetch from `next`.
        aligned: Output and operand vectors are aligned to a whole vector.
        tail: Lanes of the last output vector that may be stored; 0 means all.
        part: Taps that are summed before they are added to the taps before; 0 means all.
        dot: Inputs and weights are signed bytes, four to a step; sums and bias are i32, exact; the
            epilogue gets them as float32. Needs `Target.dot_u8s8`.
    """

    in_offsets: tuple[int, ...]
    out_offsets: tuple[int, ...]
    nb: int
    depth: int
    step: int = 4
    res_offsets: tuple[int, ...] = ()
    bias: bool = True
    accumulate: bool = False
    epilogue: Epilogue = common.IDENTITY
    fetch_lines: int = 0
    aligned: bool = True
    tail: int = 0
    part: int = 0
    dot: bool = False

    @property
    def sums(self) -> int:
        """Output vectors of the tile."""
        return len(self.in_offsets) * self.nb


def part_of(taps: int, depth: int) -> int:
    """Taps of one of the equal parts that a long reduction is cut into; 0 for a short one."""
    if taps * depth * 2 <= MAX_SUM * 3:
        return 0
    return -(-taps // -(-taps * depth // MAX_SUM))


def emit_tile(name: str, tile: Tile, target: Target) -> Func:
    """Write the function; parameters are `PARAMS`.

    `obs` and `rbs` are the bytes from one output (operand) vector of a pixel to the next. All
    weight and bias vectors are aligned. The outputs may alias nothing that is read, except that the
    operand may be the output itself.
    """
    f = common.inner(name, PARAMS, target)
    out = ["%out"] + [f.gep("%out", f.mul("%obs", o)) for o in range(1, tile.nb)]
    acc = _start(f, tile, out)
    if tile.part:
        acc = _sum_parts(f, tile, acc)
    else:
        _, acc = _sum(f, tile, (0, "%ntaps"), ["%w", "%next"], acc)
    if tile.dot:
        acc = [f.op(f"sitofp {f.it} {a} to {f.vt}") for a in acc]
    _finish(f, tile, out, acc)
    return f


def _sum_parts(f: Func, tile: Tile, acc: Sequence[str]) -> list[str]:
    """The whole reduction, part by part; what was summed before waits on the stack."""
    vb = f.target.vector_bytes
    kept = f.op(f"alloca [{tile.sums * vb} x i8], align {vb}")
    for k, a in enumerate(acc):
        f.store(a, kept, k * vb)
    streams: list[tuple[str, Int]] = [("ptr", "%w"), ("ptr", "%next")]
    with f.loop(0, "%ntaps", tile.part, streams) as part:
        end = f.min(f.add(part.i, tile.part), "%ntaps")
        zeros = ["zeroinitializer"] * tile.sums
        part.next, acc = _sum(f, tile, (part.i, end), part.v, zeros)
        for k, a in enumerate(acc):
            f.store(f.fadd(f.load(kept, k * vb), a), kept, k * vb)
    return [f.load(kept, k * vb) for k in range(tile.sums)]


def _sum(
    f: Func, tile: Tile, taps: tuple[Int, Int], streams: Sequence[str], acc: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Add the products of a range of taps; returns the advanced streams and the sums."""
    vb = f.target.vector_bytes
    sums = f.it if tile.dot else f.vt
    carried = [*(("ptr", s) for s in streams), *((sums, a) for a in acc)]
    with f.loop(*taps, 1, carried) as tap:
        offset = f.load_i32("%taps", f.mul(tap.i, 4))
        source, weights = f.gep("%in", offset), tap.v[0]
        for line in range(tile.fetch_lines):
            f.prefetch(tap.v[1], line * LINE)
        if tile.sums >= _ROLLED and tile.depth > 1:
            inner = [("ptr", source), ("ptr", weights), *((sums, a) for a in tap.v[2:])]
            with f.loop(0, tile.depth, 1, inner) as step:
                source, weights, *found = step.v
                found = _products(f, tile, source, weights, 1, found)
                step.next = [f.gep(source, tile.step), f.gep(weights, tile.nb * vb), *found]
            _, weights, *found = step.out
        else:
            found = _products(f, tile, source, weights, tile.depth, tap.v[2:])
            weights = f.gep(weights, tile.depth * tile.nb * vb)
        tap.next = [weights, f.gep(tap.v[1], tile.fetch_lines * LINE), *found]
    return list(tap.out[:2]), list(tap.out[2:])


def _products(
    f: Func, tile: Tile, source: str, weights: str, steps: int, acc: Sequence[str]
) -> list[str]:
    """`steps` successive steps in straight line."""
    px, nb, vb = len(tile.in_offsets), tile.nb, f.target.vector_bytes
    found = list(acc)
    # Where pixels' windows overlap, equal addresses appear twice; LLVM would keep those
    # values in registers and spill others.
    addresses = {o + i * tile.step for o in tile.in_offsets for i in range(steps)}
    overlap = len(addresses) < px * steps
    for i in range(steps):
        if overlap:
            source = f.hide(source)
        row = [f.load(weights, (i * nb + o) * vb, ty=f.it if tile.dot else f.vt) for o in range(nb)]
        for p in range(px):
            at = tile.in_offsets[p] + i * tile.step
            x = _four_bytes(f, source, at) if tile.dot else f.broadcast(source, at)
            for o in range(nb):
                k = o * px + p
                found[k] = (_dot if tile.dot else Func.fma)(f, x, row[o], found[k])
    return found


def _four_bytes(f: Func, base: str, offset: int) -> str:
    """Four signed bytes in every lane, each plus 128: the instruction wants them unsigned."""
    word = f.op(f"load i32, ptr {f.gep(base, offset)}, align 4")
    return f.op(f"xor {f.it} {f.splat(word, 'i32')}, {f.iconst(-2139062144)}")


def _dot(f: Func, x: str, w: str, acc: str) -> str:
    """acc + the four products of bytes in each lane, by one instruction."""
    wide = f"<{4 * f.lanes} x i8>"
    a, b = f.bitcast(x, f.it, wide), f.bitcast(w, f.it, wide)
    name = "llvm.x86.avx512.vpdpbusd.512"
    return f.intrinsic(f.it, name, (f.it, acc), (wide, a), (wide, b))


def _start(f: Func, tile: Tile, out: Sequence[str]) -> list[str]:
    acc: list[str] = []
    for o in range(tile.nb):
        if tile.accumulate:
            acc += [_load(f, tile, out[o], at, o) for at in tile.out_offsets]
        else:
            ty = f.it if tile.dot else f.vt
            at = o * f.target.vector_bytes
            first = f.load("%bias", at, ty=ty) if tile.bias else "zeroinitializer"
            acc += [first] * len(tile.in_offsets)
    return acc


def _load(f: Func, tile: Tile, base: str, offset: int, o: int) -> str:
    if tile.tail and o == tile.nb - 1:
        return f.load_masked(base, offset, f.first_lanes(tile.tail))
    return f.load(base, offset, align=0 if tile.aligned else 4)


def _finish(f: Func, tile: Tile, out: Sequence[str], acc: Sequence[str]) -> None:
    px = len(tile.in_offsets)
    operand = common.needs_operand(tile.epilogue)
    for o in range(tile.nb):
        base = f.gep("%res", f.mul("%rbs", o)) if operand else ""
        for p in range(px):
            other = _load(f, tile, base, tile.res_offsets[p], o) if operand else ""
            value = common.apply(f, acc[o * px + p], tile.epilogue, other)
            if tile.tail and o == tile.nb - 1:
                f.store_masked(value, out[o], tile.out_offsets[p], f.first_lanes(tile.tail))
            else:
                f.store(value, out[o], tile.out_offsets[p], align=0 if tile.aligned else 4)
