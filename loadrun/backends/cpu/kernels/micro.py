"""The register tile that every convolution and matrix product is made of.

    acc[p][o] += in[pixel p + tap + step*i] * weights[tap][i][o][0:lanes]

`height` x `width` pixels (or rows) times `nb` output vectors stay in registers. The reduction is
one loop over a run-time table of byte offsets ("taps"), each good for `depth` successive steps, so
1x1, 3x3, any stride, dilation or group, Winograd's products and matrix products differ in tables
only. Weights lie in exactly the order they are read.

The error of a sum in one register grows with the square root of its length. Long reductions are
therefore summed in parts. The order of a sum follows from its length alone, never from the tile, so
that results do not depend on threads or on the batch.

What LLVM gets to see decides how long a model takes to compile: a tile's function is shared by all
layers that need the same, numbers that differ are arguments, and what is stored on the stack anyway
is worked off in loops.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.kernels.common import Epilogue
from loadrun.backends.cpu.plan import Part
from loadrun.backends.cpu.target import Target

LINE = 64
# Most reduction steps in straight line. On Zen 5, whose instruction supply long loops overtax,
# ResNet-50 runs 2 % faster with 4 than with 8, and compiles in 0.6 of the time.
MAX_DEPTH = 4
# Tiles of this many sums step one by one in a loop: as fast as in straight line, and in two thirds
# of the time to compile. Smaller ones would wait for the loop's own instructions.
_ROLLED = 16
# Epilogues of more instructions are computed in a loop over the pixels.
_STRAIGHT = 8
# Longest sum in one register. Parts cost two accesses of the first-level cache per sum: 1 % of the
# products of 256 steps. Errors of ResNet-50 with one register per sum were 2.5 times as large.
MAX_SUM = 256
# `frame` points to the words of `FRAME`, pointers all, `sizes` to those of `SIZES`. What a tile
# needs first travels in registers; `res` is the second operand, `next` what to prefetch.
PARAMS = (("ptr", "in"), ("ptr", "out"), ("ptr", "frame"), ("ptr", "sizes"))
FRAME = ("res", "next", "w", "bias", "taps")
SIZES = ("ntaps", "obs", "rbs", "part")
Walk = tuple[int, int]  # bytes from one row to the next, from one pixel to the next


@dataclass(frozen=True, slots=True)
class Tile:
    """What a register tile computes.

    Attributes:
        height, width: Pixels.
        x, y, res: Byte strides of the inputs, the outputs and the second operand.
        nb: Output vectors.
        depth: Reduction steps per tap; 0: there are no taps, the sums are the bias.
        step: Bytes between the inputs of successive steps.
        bias: Start from the bias vectors instead of zero.
        epilogue: Applied before the store.
        fetch_lines: 64-byte lines per tap to prefetch from `next`.
        aligned: Output and operand vectors are aligned to a whole vector.
        tail: Lanes of the last output vector that may be stored; 0 means all.
        parts: Add up `part` taps at a time.
        dot: Inputs and weights are signed bytes, four to a step; sums and bias are i32, exact; the
            epilogue gets them as float32. Needs `Target.dot_u8s8`.
    """

    height: int
    width: int
    x: Walk
    y: Walk
    nb: int
    depth: int
    step: int = 4
    res: Walk = (0, 0)
    bias: bool = True
    epilogue: Epilogue = common.IDENTITY
    fetch_lines: int = 0
    aligned: bool = True
    tail: int = 0
    parts: bool = False
    dot: bool = False

    @property
    def pixels(self) -> int:
        """Pixels of the tile."""
        return self.height * self.width

    @property
    def sums(self) -> int:
        """Output vectors of the tile."""
        return self.pixels * self.nb

    def offsets(self, walk: Walk) -> list[int]:
        """Byte offset of each pixel."""
        row, pixel = walk
        return [y * row + x * pixel for y in range(self.height) for x in range(self.width)]


def part_of(taps: int, depth: int) -> int:
    """Taps of one of the equal parts that a long reduction is cut into; 0 for a short one."""
    if taps * depth * 2 <= MAX_SUM * 3:
        return 0
    return -(-taps // -(-taps * depth // MAX_SUM))


@functools.lru_cache(maxsize=1024)
def shared_tile(tile: Tile, target: Target) -> Part:
    """A tile's function as code that kernels share."""
    f = Func("tile", PARAMS, target, external=True)
    _fill(f, tile)
    return common.shared(f"tile{tile.width}x{tile.height}x{tile.nb}{tile.epilogue.tag()}", f)


def emit_tile(name: str, tile: Tile, target: Target) -> Func:
    """Write the function for one kernel; parameters are `PARAMS`.

    `obs` and `rbs` are the bytes from one output (operand) vector of a pixel to the next, `ntaps`
    the number of taps and `part` that of one part. All weight and bias vectors are aligned. The
    outputs may alias nothing that is read, except that the operand may be the output itself.
    """
    f = common.inner(name, PARAMS, target)
    _fill(f, tile)
    return f


def _size(f: Func, name: str) -> str:
    return f.load_i64("%sizes", 8 * SIZES.index(name))


def frame(f: Func) -> str:
    """Memory for a frame; to be asked for outside of all loops."""
    return f.op(f"alloca [{len(FRAME)} x i64], align 16")


def fill_frame(f: Func, frame: str, **pointers: str) -> None:
    """Set pointers of a frame by name."""
    for name, value in pointers.items():
        f.do(f"store ptr {value}, ptr {f.gep(frame, 8 * FRAME.index(name))}, align 8")


def _pointer(f: Func, name: str) -> str:
    return f.load_ptr("%frame", FRAME.index(name))


def _fill(f: Func, tile: Tile) -> None:
    acc = _start(f, tile)
    heavy = tile.sums > 2 and _epilogue_size(tile.epilogue, f.target) > _STRAIGHT
    if tile.depth and tile.parts:
        kept = _keep(f, tile)
        _fill_kept(f, tile, kept, acc)
        _sum_parts(f, tile, kept)
        _finish_kept(f, tile, kept)
        return
    if tile.depth:
        taken = [("ptr", v) for v in _streams(f, tile)]
        every = [a for a in acc for _ in range(tile.pixels)]
        _, found = _sum(f, tile, (0, _size(f, "ntaps")), taken, every)
    else:
        found = [a for a in acc for _ in range(tile.pixels)]
    if tile.dot:
        found = [f.op(f"sitofp {f.it} {a} to {f.vt}") for a in found]
    if heavy:
        kept = _keep(f, tile)
        _store_sums(f, tile, kept, found)
        _finish_kept(f, tile, kept)
    else:
        _finish(f, tile, found)


@functools.lru_cache(maxsize=256)
def _epilogue_size(epilogue: Epilogue, target: Target) -> int:
    """Instructions of the epilogue for one vector."""
    f = common.inner("", [("ptr", "x")], target)
    common.apply(f, "%x", epilogue, "%y")
    return f.size


# -- sums that wait on the stack: [pixel][output vector]
def _keep(f: Func, tile: Tile) -> str:
    vb = f.target.vector_bytes
    return f.op(f"alloca [{tile.sums * vb} x i8], align {vb}")


def _store_sums(f: Func, tile: Tile, kept: str, acc: Sequence[str]) -> None:
    for p in range(tile.pixels):
        for o in range(tile.nb):
            at = (p * tile.nb + o) * f.target.vector_bytes
            f.store(acc[o * tile.pixels + p], kept, at)


def _fill_kept(f: Func, tile: Tile, kept: str, first: Sequence[str]) -> None:
    """The same start for all pixels."""
    vb = f.target.vector_bytes
    with f.loop(0, tile.pixels, 1, [("ptr", kept)]) as p:
        for o, value in enumerate(first):
            f.store(value, p.v[0], o * vb)
        p.next = [f.gep(p.v[0], tile.nb * vb)]


def _sum_parts(f: Func, tile: Tile, kept: str) -> None:
    """The whole reduction, part by part; what was summed before waits on the stack."""
    vb = f.target.vector_bytes
    streams = [("ptr", v) for v in _streams(f, tile)]
    taps, most = _size(f, "ntaps"), _size(f, "part")
    with f.loop(0, taps, most, streams, sure=True) as part:
        end = f.min(f.add(part.i, most), taps)
        zeros = ["zeroinitializer"] * tile.sums
        taken = [("ptr", v) for v in part.v]
        part.next, acc = _sum(f, tile, (part.i, end), taken, zeros)
        for p in range(tile.pixels):
            for o in range(tile.nb):
                at, a = (p * tile.nb + o) * vb, acc[o * tile.pixels + p]
                f.store(f.fadd(f.load(kept, at), a), kept, at)


def _finish_kept(f: Func, tile: Tile, kept: str) -> None:
    """Epilogue and stores, one pixel after the other."""
    operand = common.needs_operand(tile.epilogue)
    starts = [("ptr", kept), ("ptr", "%out")]
    starts += [("ptr", _pointer(f, "res"))] if operand else []
    obs = _size(f, "obs") if tile.nb > 1 else 0
    rbs = _size(f, "rbs") if tile.nb > 1 and operand else 0

    def pixels(before: Sequence[str]) -> list[str]:
        with f.loop(0, tile.width, 1, [("ptr", p) for p in before]) as c:
            sums, out, *other = c.v
            for o in range(tile.nb):
                value = f.load(sums, o * f.target.vector_bytes)
                res = [_load(f, tile, f.gep(r, f.mul(rbs, o)), 0, o) for r in other]
                value = common.apply(f, value, tile.epilogue, "".join(res))
                _store(f, tile, value, f.gep(out, f.mul(obs, o)), 0, o)
            moves = [tile.nb * f.target.vector_bytes, tile.y[1], tile.res[1]]
            c.next = [f.gep(v, m) for v, m in zip(c.v, moves, strict=False)]
        return c.out

    if tile.height == 1:
        pixels([v for _, v in starts])
        return
    with f.loop(0, tile.height, 1, starts) as r:
        sums, *_ = pixels(r.v)
        moves = [tile.y[0], tile.res[0]]
        r.next = [sums, *(f.gep(v, m) for v, m in zip(r.v[1:], moves, strict=False))]


# -- the reduction
def _streams(f: Func, tile: Tile) -> list[str]:
    """Weights, and what is prefetched."""
    w = _pointer(f, "w")
    return [w, _pointer(f, "next") if tile.fetch_lines else w]


def _sum(
    f: Func,
    tile: Tile,
    taps: tuple[Int, Int],
    streams: Sequence[tuple[str, str]],
    acc: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Add the products of a range of taps; returns the advanced streams and the sums."""
    vb = f.target.vector_bytes
    sums = f.it if tile.dot else f.vt
    carried = [*streams, *((sums, a) for a in acc)]
    table = _pointer(f, "taps")
    with f.loop(*taps, 1, carried, sure=True) as tap:
        offset = f.load_i32(table, f.mul(tap.i, 4))
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
    px, nb, vb = tile.pixels, tile.nb, f.target.vector_bytes
    places = tile.offsets(tile.x)
    found = list(acc)
    # Where pixels' windows overlap, equal addresses appear twice; LLVM would keep those
    # values in registers and spill others.
    addresses = {o + i * tile.step for o in places for i in range(steps)}
    overlap = len(addresses) < px * steps
    for i in range(steps):
        if overlap:
            source = f.hide(source)
        row = [f.load(weights, (i * nb + o) * vb, ty=f.it if tile.dot else f.vt) for o in range(nb)]
        for p in range(px):
            at = places[p] + i * tile.step
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


# -- first and last
def _start(f: Func, tile: Tile) -> list[str]:
    """What each output vector's sums start from."""
    ty = f.it if tile.dot else f.vt
    if not tile.bias:
        return ["zeroinitializer"] * tile.nb
    bias = _pointer(f, "bias")
    return [f.load(bias, o * f.target.vector_bytes, ty=ty) for o in range(tile.nb)]


def _load(f: Func, tile: Tile, base: str, offset: int, o: int) -> str:
    if tile.tail and o == tile.nb - 1:
        return f.load_masked(base, offset, f.first_lanes(tile.tail))
    return f.load(base, offset, align=0 if tile.aligned else 4)


def _store(f: Func, tile: Tile, value: str, base: str, offset: int, o: int) -> None:
    if tile.tail and o == tile.nb - 1:
        f.store_masked(value, base, offset, f.first_lanes(tile.tail))
    else:
        f.store(value, base, offset, align=0 if tile.aligned else 4)


def _finish(f: Func, tile: Tile, acc: Sequence[str]) -> None:
    """Epilogue and stores in straight line."""
    operand = common.needs_operand(tile.epilogue)
    outs, others = tile.offsets(tile.y), tile.offsets(tile.res)
    obs = _size(f, "obs") if tile.nb > 1 else 0
    rbs = _size(f, "rbs") if tile.nb > 1 and operand else 0
    more = _pointer(f, "res") if operand else ""
    for o in range(tile.nb):
        out = f.gep("%out", f.mul(obs, o))
        base = f.gep(more, f.mul(rbs, o)) if operand else ""
        for p in range(tile.pixels):
            other = _load(f, tile, base, others[p], o) if operand else ""
            value = common.apply(f, acc[o * tile.pixels + p], tile.epilogue, other)
            _store(f, tile, value, out, outs[p], o)
