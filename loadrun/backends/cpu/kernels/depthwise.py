"""Depthwise convolution: one filter per channel, a vector of channels at a time.

Argument table: 0 input, 1 weights, 2 bias, 3 output, 4 operand. Units are output rows of an image
with all channel blocks inside, or for small maps channel blocks of an image or of some of its rows.
An input that is a ring (layout.py) is read by rows: each window has a pointer for every row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, rounds
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Array, Kernel, Rows
from loadrun.backends.cpu.target import Target

_SMALL, _TINY = 28 * 28, 10 * 10  # most pixels, for blocks one by one; for all rows on a thread
UNROLL = 24  # taps that one tile function may hold; larger filters loop over their rows


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
        f = common.entry("", target)
        tiles = {w: self._tile(w) for w, _ in self.widths}
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
                    self._row(f, p, tiles, image, block, r.i)
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
                    self._row(f, p, tiles, im.i, b.i, r.i, round_)
        name = f"depthwise_f32_{spec.name()}{epilogue.tag()}"
        self.kernel: Kernel = common.finish(name, [*tiles.values(), f], [(f, units)])

    def _tile(self, width: int) -> Func:
        s, x, vb = self.spec, self.x, self.target.vector_bytes
        inputs = [f"in{k}" for k in range(s.kh if x.ring else 1)]
        names = (*inputs, "w", "bias", "out", "res")
        f = common.inner(f"tile{width}", [("ptr", n) for n in names], self.target)
        start = f.load("%bias")

        def taps(acc: list[str], rows: Sequence[tuple[str, int]], weights: str) -> list[str]:
            for ky, (source, row) in enumerate(rows):
                for kx in range(s.kw):
                    w = f.load(weights, (ky * s.kw + kx) * vb)
                    for p in range(width):
                        at = row + (p * s.sw + kx * s.dw) * x.pixel
                        acc[p] = f.fma(f.load(source, at), w, acc[p])
            return acc

        if x.ring:
            acc = taps([start] * width, [(f"%{name}", 0) for name in inputs], "%w")
        elif s.kh * s.kw <= UNROLL:
            rows = [("%in0", ky * s.dh * x.row) for ky in range(s.kh)]
            acc = taps([start] * width, rows, "%w")
        else:
            with f.loop(0, s.kh, 1, [(f.vt, start)] * width) as ky:
                source = f.gep("%in0", f.mul(ky.i, s.dh * x.row))
                weights = f.gep("%w", f.mul(ky.i, s.kw * vb))
                ky.next = taps(list(ky.v), [(source, 0)], weights)
            acc = ky.out
        for p in range(width):
            other = ""
            if common.needs_operand(self.epilogue):
                assert self.res is not None
                other = f.load("%res", p * self.res.pixel)
            f.store(common.apply(f, acc[p], self.epilogue, other), "%out", p * self.y.pixel)
        return f

    def _sources(self, f: Func, base: str, row: Int, round_: Int) -> list[str]:
        """Where the input of an output row starts, or of each of its window's rows in a ring."""
        s, x = self.spec, self.x
        first = f.mul(row, s.sh)
        if not x.ring:
            return [f.gep(base, f.sub(f.mul(first, x.row), s.ph * x.row))]
        out = []
        for ky in range(s.kh):
            at = rounds.row_or_zeros(f, x, f.add(first, ky * s.dh - s.ph), round_)
            out.append(f.gep(base, at))
        return out

    def _row(
        self,
        f: Func,
        p: list[str],
        tiles: dict[int, Func],
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
                f.call(
                    tiles[width].name,
                    [
                        *(("ptr", f.gep(v, f.mul(at, s.sw * x.pixel))) for v in sources),
                        ("ptr", weights),
                        ("ptr", bias),
                        ("ptr", f.gep(out, f.mul(at, y.pixel))),
                        ("ptr", f.gep(operand, f.mul(at, step))),
                    ],
                )
            first += width * count

    def pack(self, weights: Array, out: Array) -> None:
        """Write filters (groups, 1, 1, kh, kw) as [block][kh][kw][lanes]."""
        s, lanes = self.spec, self.target.lanes
        grown = np.zeros((self.x.blocks * lanes, s.kh * s.kw), np.float32)
        grown[: s.groups] = weights.reshape(s.groups, s.kh * s.kw)
        blocks = grown.reshape(self.x.blocks, lanes, s.kh * s.kw).transpose(0, 2, 1)
        out.reshape(blocks.shape)[...] = blocks
