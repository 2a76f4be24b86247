"""Copies between strided views: transposes, slices, broadcasts, joins; and channel maps.

Elements of 1, 2, 4 or 8 bytes are moved as integers, so that every bit pattern survives.
Argument table: 0 source, 1 destination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.kernels.elementwise import collapse
from loadrun.backends.cpu.kernels.relayout import transpose
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Kernel, Rows
from loadrun.backends.cpu.target import Target

_CHUNK = 16384  # elements of a work unit of a contiguous copy


def strided_copy(
    dims: Sequence[int],
    source: Sequence[int],
    destination: Sequence[int],
    itemsize: int,
    target: Target,
) -> Kernel:
    """Copy an array of shape `dims` between two sets of strides (in elements, any sign).

    The destination must not repeat an element. Units: all combinations of the dimensions but
    the innermost one or, for transposes, the two that are contiguous on either side.
    """
    dims, (src, dst) = collapse(dims, [source, destination])
    order = sorted(range(len(dims)), key=lambda k: (-abs(dst[k]), -abs(src[k])))
    dims, src, dst = ([v[k] for k in order] for v in (dims, src, dst))
    inner = len(dims) - 1
    across = next((k for k in range(inner) if src[k] == 1 and dims[k] >= target.lanes), None)
    square = itemsize == 4 and dst[inner] == 1 and src[inner] not in (0, 1) and across is not None
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    outer = [k for k in range(inner) if not (square and k == across)]
    chunks, part = 1, _CHUNK
    if square and across is not None:
        part = 16 * target.lanes
        chunks = -(-dims[across] // part)
    elif dims[inner] > _CHUNK:
        chunks = -(-dims[inner] // _CHUNK)
    with f.loop("%begin", "%end") as unit:
        rest, chunk = f.div(unit.i, chunks), f.mod(unit.i, chunks)
        a, b = p
        for k in reversed(outer):
            index: Int = f.mod(rest, dims[k]) if k != outer[0] else rest
            rest = f.div(rest, dims[k])
            a = f.gep(a, f.mul(index, src[k] * itemsize))
            b = f.gep(b, f.mul(index, dst[k] * itemsize))
        low = f.mul(chunk, part)
        if square and across is not None:
            count: Int = f.sub(f.min(f.add(low, part), dims[across]), low)
            a = f.gep(a, f.mul(low, itemsize))
            b = f.gep(b, f.mul(low, dst[across] * itemsize))
            _square(f, a, b, (count, dst[across]), (dims[inner], src[inner]))
        else:
            count = f.sub(f.min(f.add(low, part), dims[inner]), low) if chunks > 1 else dims[inner]
            a = f.gep(a, f.mul(low, src[inner] * itemsize))
            b = f.gep(b, f.mul(low, dst[inner] * itemsize))
            _line(f, a, b, count, (src[inner], dst[inner]), itemsize)
    units = math.prod(dims[k] for k in outer) * chunks
    return common.finish(f"copy_{itemsize}byte", [f], [(f, units)])


def _line(f: Func, a: str, b: str, count: Int, strides: tuple[int, int], itemsize: int) -> None:
    """One dimension: whole vectors where both sides are contiguous, else element by element."""
    kind = f"i{8 * itemsize}"
    done: Int = 0
    if strides[1] == 1 and strides[0] in (0, 1):
        per = 64 // itemsize
        vector = f"<{per} x {kind}>"
        groups = f.div(count, per)
        fixed = ""
        if not strides[0]:
            one = f.op(f"load {kind}, ptr {a}, align {itemsize}")
            first = f.op(f"insertelement {vector} poison, {kind} {one}, i64 0")
            zeros = f"<{per} x i32> zeroinitializer"
            fixed = f.op(f"shufflevector {vector} {first}, {vector} poison, {zeros}")
        with f.loop(0, groups) as g:
            at = f.mul(g.i, 64)
            value = fixed or f.load(a, at, align=itemsize, ty=vector)
            f.store(value, b, at, align=itemsize, ty=vector)
        done = f.mul(groups, per)
    with f.loop(done, count) as i:
        value = f.load(a, f.mul(i.i, strides[0] * itemsize), align=itemsize, ty=kind)
        f.store(value, b, f.mul(i.i, strides[1] * itemsize), align=itemsize, ty=kind)


def _square(f: Func, a: str, b: str, across: tuple[Int, int], down: tuple[int, int]) -> None:
    """Transpose: source contiguous along `across`, destination along `down`; (size, far stride)."""
    lanes = f.lanes
    (m, far_b), (n, far_a) = across, down
    whole_m, whole_n = f.mul(f.div(m, lanes), lanes), n // lanes * lanes

    def element(i: Int, j: Int) -> None:
        value = f.load(a, f.mul(f.add(f.mul(j, far_a), i), 4), align=4, ty="i32")
        f.store(value, b, f.mul(f.add(f.mul(i, far_b), j), 4), align=4, ty="i32")

    if whole_m != 0 and whole_n:
        with f.loop(0, whole_m, lanes) as i, f.loop(0, whole_n, lanes) as j:
            base = f.gep(a, f.mul(f.add(f.mul(j.i, far_a), i.i), 4))
            to = f.gep(b, f.mul(f.add(f.mul(i.i, far_b), j.i), 4))
            rows = [f.load(base, 4 * far_a * k, align=4) for k in range(lanes)]
            for k, row in enumerate(transpose(f, rows)):
                f.store(row, to, 4 * far_b * k, align=4)
    if whole_n < n:
        with f.loop(0, m) as i, f.loop(whole_n, n) as j:
            element(i.i, j.i)
    if whole_m != m:
        with f.loop(whole_m, m) as i, f.loop(0, whole_n) as j:
            element(i.i, j.i)


def channel_map(
    sources: Sequence[Image], channels: Sequence[tuple[int, int]], y: Image, target: Target
) -> tuple[Kernel, Rows]:
    """Blocked images: output channel k is channel `channels[k][1]` of source `channels[k][0]`.

    Joins, splits and shuffles of channels are all of this form. Argument table: the sources in
    order, then the output. Units are rows of an image. Unspecified lanes copy some other channel.
    """
    f = common.entry("", target)
    lanes = target.lanes
    p = [f.load_ptr("%args", k) for k in range(len(sources) + 1)]
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, y.h), f.mod(unit.i, y.h)
        bases = [
            f.gep(b, f.add(f.add(f.mul(image, i.image), f.mul(row, i.row)), i.origin))
            for b, i in zip(p, [*sources, y], strict=True)
        ]
        with f.loop(0, y.w) as x:
            at = f.mul(x.i, y.pixel)
            pixel = [f.gep(b, at) for b in bases]
            loaded: dict[tuple[int, int], str] = {}
            for block in range(y.blocks):
                wanted = list(channels[block * lanes : (block + 1) * lanes])
                wanted += [wanted[-1]] * (lanes - len(wanted))
                value = _gather(f, pixel, sources, wanted, loaded)
                f.store(value, pixel[-1], block * y.block)
    kernel = common.finish("channel_map_f32", [f], [(f, y.n * y.h)])
    return kernel, Rows(y.h)


def _gather(
    f: Func,
    pixel: Sequence[str],
    sources: Sequence[Image],
    wanted: Sequence[tuple[int, int]],
    loaded: dict[tuple[int, int], str],
) -> str:
    """One output vector from lanes of source vectors, by one shuffle per source vector."""
    lanes = f.lanes
    blocks = list(dict.fromkeys((s, c // lanes) for s, c in wanted))
    value = ""
    for s, b in blocks:
        if (s, b) not in loaded:
            if len(loaded) > 8:  # older ones are cheaper to load again than to keep
                loaded.clear()
            loaded[s, b] = f.load(pixel[s], b * sources[s].block)
        vector = loaded[s, b]
        here = [k for k, (ws, wc) in enumerate(wanted) if (ws, wc // lanes) == (s, b)]
        if not value:
            index = [wanted[k][1] % lanes if k in here else 0 for k in range(lanes)]
            if index == list(range(lanes)):
                value = vector
                continue
            value = _shuffle(f, vector, vector, index)
        else:
            index = [lanes + wanted[k][1] % lanes if k in here else k for k in range(lanes)]
            value = _shuffle(f, value, vector, index)
    return value


def _shuffle(f: Func, a: str, b: str, index: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in index)
    return f.op(f"shufflevector {f.vt} {a}, {f.vt} {b}, <{f.lanes} x i32> <{mask}>")


def upsample(x: Image, y: Image, factor: int, target: Target) -> tuple[Kernel, Rows | None]:
    """Blocked images: every pixel `factor` times in both directions. Units: input rows."""
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, x.h), f.mod(unit.i, x.h)
        source = f.gep(p[0], f.add(f.add(f.mul(image, x.image), f.mul(row, x.row)), x.origin))
        down = f.mul(row, factor * y.row)
        out = f.gep(p[1], f.add(f.add(f.mul(image, y.image), down), y.origin))
        with f.loop(0, x.blocks) as block:
            a = f.gep(source, f.mul(block.i, x.block))
            b = f.gep(out, f.mul(block.i, y.block))
            with f.loop(0, x.w) as c:
                value = f.load(a, f.mul(c.i, x.pixel))
                to = f.gep(b, f.mul(c.i, factor * y.pixel))
                for dy in range(factor):
                    for dx in range(factor):
                        f.store(value, to, dy * y.row + dx * y.pixel)
    return common.finish(f"upsample{factor}_f32", [f], [(f, x.n * x.h)]), None
