"""Depthwise convolution: one filter per channel, a vector of channels at a time.

Argument table: 0 input, 1 weights, 2 bias, 3 output, 4 operand. Units are output rows of an image
with all channel blocks inside, or for small maps channel blocks of an image or of some of its rows.
A tile is some pixels of an output row and gets a pointer to each row of its window, so that layers
share its code whatever the width of their images, and rows may lie in a ring (layout.py).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, rounds
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Array, Kernel, Part, Rows
from loadrun.backends.cpu.target import Target

_SMALL, _TINY = 28 * 28, 10 * 10  # most pixels, for blocks one by one; for all rows on a thread
UNROLL = 24  # taps that one tile function may hold; larger filters loop over their rows


@dataclass(frozen=True, slots=True)
class Tile:
    """What the code of a tile depends on.

    Attributes:
        width: Pixels.
        kh, kw: Taps.
        step, tap: Bytes from one pixel's input to the next one's, and from one tap to the next.
        pixel, res: Bytes from pixel to pixel of the output and of the epilogue's operand.
        epilogue: Applied before the store.
        row: Bytes from row to row of the input of a large filter; 0: there is a pointer for each.
    """

    width: int
    kh: int
    kw: int
    step: int
    tap: int
    pixel: int
    res: int
    epilogue: Epilogue
    row: int


@functools.lru_cache(maxsize=256)
def shared_tile(tile: Tile, target: Target) -> Part:
    """A tile's function; parameters are its rows, weights, bias, output and operand."""
    inputs = [f"in{k}" for k in range(1 if tile.row else tile.kh)]
    names = (*inputs, "w", "bias", "out", "res")
    f = Func("tile", [("ptr", n) for n in names], target, external=True)
    vb, start = target.vector_bytes, f.load("%bias")

    def taps(acc: list[str], rows: Sequence[str], weights: str) -> list[str]:
        for ky, source in enumerate(rows):
            for kx in range(tile.kw):
                w = f.load(weights, (ky * tile.kw + kx) * vb)
                for p in range(tile.width):
                    x = f.load(source, p * tile.step + kx * tile.tap)
                    acc[p] = f.fma(x, w, acc[p])
        return acc

    if tile.row:
        with f.loop(0, tile.kh, 1, [(f.vt, start)] * tile.width) as ky:
            weights = f.gep("%w", f.mul(ky.i, tile.kw * vb))
            ky.next = taps(list(ky.v), [f.gep("%in0", f.mul(ky.i, tile.row))], weights)
        acc = ky.out
    else:
        acc = taps([start] * tile.width, [f"%{name}" for name in inputs], "%w")
    for p in range(tile.width):
        other = f.load("%res", p * tile.res) if common.needs_operand(tile.epilogue) else ""
        f.store(common.apply(f, acc[p], tile.epilogue, other), "%out", p * tile.pixel)
    return common.shared(f"depthwise{tile.width}x{tile.kh}x{tile.kw}{tile.epilogue.tag()}", f)


class DepthwiseConv:
    """The kernel and how weights are packed."""

    def __init__(
        self,
        spec: ConvSpec,
        x: Image,
        y: Image,
        res: Image | None,
        epilogue: Epilogue,
        target: Target,
        *,
        by_rows: bool = False,
        threads: int = 1,
    ) -> None:
        """Generate the code; `x` and `y` are blocked, `x` with the convolution's halo."""
        if not spec.depthwise or not x.halo.covers(spec.halo(x.h, x.w)):
            raise ValueError("depthwise needs one channel per group and a sufficient halo")
        if x.ring and not (by_rows and spec.kh * spec.kw <= UNROLL):
            raise ValueError("depthwise reads a ring by rows, and with small filters only")
        self.spec, self.x, self.y, self.res = spec, x, y, res
        self.epilogue, self.target = epilogue, target
        # The accumulators, and on small register files some room for weights and inputs.
        self.widths = pieces(y.w, 14 if target.registers >= 32 else 6)
        self._large = spec.kh * spec.kw > UNROLL
        f = common.entry("", target)
        tiles = {w: shared_tile(self._tile(w), target) for w, _ in self.widths}
        table = common.table(f)
        self._functions = {w: f.load_ptr(table, k) for k, w in enumerate(tiles)}
        by_blocks = not by_rows and y.h * y.w <= _SMALL and y.n * x.blocks >= threads
        self.rows: Rows | None = None
        if not by_blocks:
            window = (spec.kh - 1) * spec.dh + 1
            self.rows = Rows(y.h, 1, 1, window, spec.sh, spec.ph, wraps=x.ring > 0)
        # Threads that each keep to some rows read what they have written in the step before.
        shares = min(threads, y.h) if y.n == 1 and y.h * y.w > _TINY else 1
        height = -(-y.h // shares)
        shares = -(-y.h // height)
        units = y.n * (x.blocks * shares if by_blocks else y.h)
        p = [f.load_ptr("%args", k) for k in range(5)]
        if by_blocks:
            with f.loop("%begin", "%end") as unit:
                strip, block = f.div(unit.i, x.blocks), f.mod(unit.i, x.blocks)
                image, share = f.div(strip, shares), f.mod(strip, shares)
                top = f.mul(share, height)
                with f.loop(top, f.min(f.add(top, height), y.h)) as r:
                    self._row(f, p, image, block, r.i)
        else:
            # A block's rows follow each other, as windows of neighbouring rows overlap.
            after = f.add(f.div(f.sub("%end", 1), y.h), 1)
            with f.loop(f.div("%begin", y.h), after) as im:
                base = f.mul(im.i, y.h)
                top = f.max(f.sub("%begin", base), 0)
                bottom = f.min(f.sub("%end", base), y.h)
                first = f.max(f.sub(f.mul(top, spec.sh), spec.ph), 0)
                round_ = rounds.round_of(f, x, first)
                with f.loop(0, x.blocks) as b, f.loop(top, bottom) as r:
                    self._row(f, p, im.i, b.i, r.i, round_)
        name = f"depthwise_f32_{spec.name()}{epilogue.tag()}"
        self.kernel: Kernel = common.finish(name, [f], [(f, units)], parts=list(tiles.values()))

    def _tile(self, width: int) -> Tile:
        s, x, res = self.spec, self.x, 0
        if common.needs_operand(self.epilogue):
            assert self.res is not None
            res = self.res.pixel
        row = s.dh * x.row if self._large else 0
        steps = (s.sw * x.pixel, s.dw * x.pixel, self.y.pixel, res)
        return Tile(width, s.kh, s.kw, *steps, self.epilogue, row)

    def _sources(self, f: Func, base: str, row: Int, round_: Int) -> list[str]:
        """Where the rows of an output row's windows start, or the first of them."""
        s, x = self.spec, self.x
        first = f.mul(row, s.sh)
        if not x.ring:
            start = f.gep(base, f.sub(f.mul(first, x.row), s.ph * x.row))
            return [f.gep(start, ky * s.dh * x.row) for ky in range(1 if self._large else s.kh)]
        rows = [f.add(first, ky * s.dh - s.ph) for ky in range(s.kh)]
        return [f.gep(base, rounds.row_or_zeros(f, x, row, round_)) for row in rows]

    def _row(
        self,
        f: Func,
        p: list[str],
        image: Int,
        block: Int,
        row: Int,
        round_: Int = 0,
    ) -> None:
        s, x, y, res, vb = self.spec, self.x, self.y, self.res, self.target.vector_bytes
        start = x.origin - s.pw * x.pixel
        base = f.gep(p[0], f.add(f.add(f.mul(image, x.image), f.mul(block, x.block)), start))
        sources = self._sources(f, base, row, round_)
        out = f.gep(p[3], f.add(f.add(f.mul(image, y.image), f.mul(block, y.block)), y.origin))
        out = f.gep(out, f.mul(row, y.row))
        operand = p[4]
        if common.needs_operand(self.epilogue):
            assert res is not None
            at = f.add(f.add(f.mul(image, res.image), f.mul(block, res.block)), res.origin)
            operand = f.gep(f.gep(operand, at), f.mul(row, res.row))
        weights = f.gep(p[1], f.mul(block, s.kh * s.kw * vb))
        bias = f.gep(p[2], f.mul(block, vb))
        first = 0
        for width, count in self.widths:
            with f.loop(0, count) as t:
                at = f.add(f.mul(t.i, width), first)
                step = res.pixel if res is not None else 0
                pointers = [
                    *(f.gep(v, f.mul(at, s.sw * x.pixel)) for v in sources),
                    weights,
                    bias,
                    f.gep(out, f.mul(at, y.pixel)),
                    f.gep(operand, f.mul(at, step)),
                ]
                given = ", ".join(f"ptr {p}" for p in pointers)
                f.do(f"call void {self._functions[width]}({given})")
            first += width * count

    def pack(self, weights: Array, out: Array) -> None:
        """Write filters (groups, 1, 1, kh, kw) as [block][kh][kw][lanes]."""
        s, lanes = self.spec, self.target.lanes
        grown = np.zeros((self.x.blocks * lanes, s.kh * s.kw), np.float32)
        grown[: s.groups] = weights.reshape(s.groups, s.kh * s.kw)
        blocks = grown.reshape(self.x.blocks, lanes, s.kh * s.kw).transpose(0, 2, 1)
        out.reshape(blocks.shape)[...] = blocks
