"""Pooling on blocked tensors: windows are cut at the image's border, no halo is needed.

Argument table: 0 input, which may be a ring for ranges of rows of one image, 1 output. Units are
(image, output row) with all channel blocks, or
(image, channel block) for the global kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, rounds
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Kernel, Rows
from loadrun.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Geometry; `mode` is max, mean (padding counts as zero) or mean_valid (it does not)."""

    mode: str
    kh: int
    kw: int
    sh: int
    sw: int
    ph: int = 0
    pw: int = 0

    def out_size(self, h: int, w: int) -> tuple[int, int]:
        """Height and width of the output."""
        return (
            (h + 2 * self.ph - self.kh) // self.sh + 1,
            (w + 2 * self.pw - self.kw) // self.sw + 1,
        )

    def name(self) -> str:
        """Part of a kernel's name."""
        return f"{self.mode}_{self.kh}x{self.kw}s{self.sh}"


class Pool:
    """A pooling kernel; x and y are blocked."""

    def __init__(self, spec: PoolSpec, x: Image, y: Image, target: Target) -> None:
        """Generate the code.

        Raises:
            ValueError: A window lies wholly in the padding.
        """
        if spec.ph >= spec.kh or spec.pw >= spec.kw:
            raise ValueError("a pooling window lies outside the image")
        self.spec, self.x, self.y, self.target = spec, x, y, target
        f = common.entry("", target)
        p = [f.load_ptr("%args", k) for k in range(2)]
        before = f.sub(f.mul(f.mod("%begin", y.h), spec.sh), spec.ph)
        self._round = rounds.round_of(f, x, f.max(before, 0))
        with f.loop("%begin", "%end") as unit:
            image, row = f.div(unit.i, y.h), f.mod(unit.i, y.h)
            low = f.sub(f.mul(row, spec.sh), spec.ph)
            high = f.min(f.add(low, spec.kh), x.h)
            low = f.max(low, 0)
            source = f.gep(p[0], f.add(f.mul(image, x.image), x.origin))
            out = f.gep(p[1], f.add(f.mul(image, y.image), f.add(f.mul(row, y.row), y.origin)))
            with f.loop(0, x.blocks) as block:
                self._row(
                    f,
                    f.gep(source, f.mul(block.i, x.block)),
                    f.gep(out, f.mul(block.i, y.block)),
                    low,
                    high,
                )
        self.rows = Rows(y.h, 1, 1, spec.kh, spec.sh, spec.ph, wraps=x.ring > 0)
        self.kernel: Kernel = common.finish(f"pool_f32_{spec.name()}", [f], [(f, y.n * y.h)])

    def _row(self, f: Func, source: str, out: str, low: Int, high: Int) -> None:
        """One output row of one channel block: border columns apart, the middle in a loop."""
        s, x, y = self.spec, self.x, self.y

        def whole(o: int) -> bool:
            return o * s.sw - s.pw >= 0 and o * s.sw - s.pw + s.kw <= x.w

        inside = [o for o in range(y.w) if whole(o)]
        group = 4
        first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
        for o in range(y.w):
            if not first <= o < last:
                self._pixels(f, source, out, low, high, o, 1, 0)
        groups, rest = divmod(last - first, group)
        if groups:
            with f.loop(0, groups) as g:
                self._pixels(f, source, out, low, high, first, group, f.mul(g.i, group))
        if rest:
            self._pixels(f, source, out, low, high, last - rest, rest, 0)

    def _pixels(
        self, f: Func, source: str, out: str, low: Int, high: Int, o: int, count: int, more: Int
    ) -> None:
        """Output columns more + o .. more + o + count."""
        s, x, y = self.spec, self.x, self.y
        left = [max((o + k) * s.sw - s.pw, 0) for k in range(count)]
        right = [min((o + k) * s.sw - s.pw + s.kw, x.w) for k in range(count)]
        source = f.gep(source, f.mul(more, s.sw * x.pixel))
        out = f.gep(out, f.mul(more, y.pixel))
        largest = s.mode == "max"
        start = f.const(float("-inf") if largest else 0.0)
        with f.loop(low, high, 1, [(f.vt, start)] * count) as row:
            base = f.gep(source, rounds.row_offset(f, x, row.i, self._round))
            acc = list(row.v)
            for k in range(count):
                for c in range(left[k], right[k]):
                    value = f.load(base, c * x.pixel)
                    acc[k] = f.fmax(acc[k], value) if largest else f.fadd(acc[k], value)
            row.next = acc
        scale = ""
        for k in range(count):
            value = row.out[k]
            if s.mode == "mean":
                value = f.fdiv(value, f.const(float(s.kh * s.kw)))
            elif s.mode == "mean_valid":
                if not scale or count == 1:
                    n = f.op(f"sitofp i64 {f.mul(f.sub(high, low), right[k] - left[k])} to float")
                    scale = f.splat(n)
                value = f.fdiv(value, scale)
            f.store(value, out, (o + k) * y.pixel)


class GlobalPool:
    """Mean, sum or maximum over all pixels; y is blocked with one pixel, or plain (n, c, 1, 1).

    `square` sums squares.
    """

    def __init__(self, mode: str, x: Image, y: Image, target: Target) -> None:
        """Generate the code."""
        f = common.entry("", target)
        source, out = f.load_ptr("%args", 0), f.load_ptr("%args", 1)
        largest = mode == "max"
        start = f.const(float("-inf") if largest else 0.0)
        width = min(8, x.w)
        with f.loop("%begin", "%end") as unit:
            image, block = f.div(unit.i, x.blocks), f.mod(unit.i, x.blocks)
            at = f.add(f.add(f.mul(image, x.image), f.mul(block, x.block)), x.origin)
            base = f.gep(source, at)

            def fold(a: str, b: str) -> str:
                return f.fmax(a, b) if largest else f.fadd(a, b)

            with f.loop(0, x.h, 1, [(f.vt, start)] * width) as row:
                line = f.gep(base, f.mul(row.i, x.row))
                with f.loop(0, x.w // width, 1, [(f.vt, v) for v in row.v]) as col:
                    p = f.gep(line, f.mul(col.i, width * x.pixel))
                    col.next = [fold(col.v[k], f.load(p, k * x.pixel)) for k in range(width)]
                acc = list(col.out)
                for k in range(x.w % width):
                    value = f.load(line, (x.w // width * width + k) * x.pixel)
                    acc[k] = fold(acc[k], value)
                row.next = acc
            acc = row.out
            while len(acc) > 1:
                acc = [fold(a, b) for a, b in zip(acc[::2], acc[1::2], strict=False)] + (
                    [acc[-1]] if len(acc) % 2 else []
                )
            value = acc[0]
            if mode == "mean":
                value = f.fdiv(value, f.const(float(x.h * x.w)))
            if y.lanes == 1:
                at = f.add(f.mul(image, y.image), f.mul(block, target.vector_bytes))
                to = f.gep(out, at)
                left = f.sub(x.c, f.mul(block, target.lanes))
                if x.c % target.lanes:
                    f.store_masked(value, to, 0, f.first_lanes(left))
                else:
                    f.store(value, to, align=4)
            else:
                at = f.add(f.add(f.mul(image, y.image), f.mul(block, y.block)), y.origin)
                f.store(value, out, at)
        self.kernel: Kernel = common.finish(f"global_pool_f32_{mode}", [f], [(f, x.n * x.blocks)])
