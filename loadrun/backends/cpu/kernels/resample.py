"""Resizing of blocked images by tables: which inputs count how much in each row and column.

Argument table: 0 input, 1 output, 2 rows and 3 columns as i32 byte offsets (out, taps), 4 and 5
their float32 weights (out, taps). Units are output rows. Each input is multiplied by the weight of
its row, then of its column, and columns are summed within rows.
"""

from __future__ import annotations

from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Kernel
from loadrun.backends.cpu.target import Target

MOST_TAPS = 4


def resample(x: Image, y: Image, taps: tuple[int, int], target: Target) -> Kernel:
    """Blocked images; `taps` inputs count along rows and columns, at most 4 each."""
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(6)]
    down, across = taps
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, y.h), f.mod(unit.i, y.h)
        source = f.gep(p[0], f.add(f.mul(image, x.image), x.origin))
        out = f.gep(p[1], f.add(f.add(f.mul(image, y.image), f.mul(row, y.row)), y.origin))
        rows = [f.load_i32(p[2], f.mul(f.add(f.mul(row, down), k), 4)) for k in range(down)]
        lines = [f.gep(source, at) for at in rows]
        heavy = [
            f.broadcast(p[4], f.mul(f.add(f.mul(row, down), k), 4)) if down > 1 else ""
            for k in range(down)
        ]
        with f.loop(0, y.w) as c:
            first = f.mul(c.i, 4 * across)
            columns = [f.load_i32(p[3], f.add(first, 4 * j)) for j in range(across)]
            weights = [
                f.broadcast(p[5], f.add(first, 4 * j)) if across > 1 else "" for j in range(across)
            ]
            to = f.gep(out, f.mul(c.i, y.pixel))
            with f.loop(0, x.blocks) as b:
                shift = f.mul(b.i, x.block)
                total = ""
                for line, scale in zip(lines, heavy, strict=True):
                    base = f.gep(line, shift)
                    for column, weight in zip(columns, weights, strict=True):
                        value = f.load(base, column)
                        value = f.fmul(value, scale) if scale else value
                        value = f.fmul(value, weight) if weight else value
                        total = f.fadd(total, value) if total else value
                f.store(total, to, f.mul(b.i, y.block))
    return common.finish(f"resample_f32_{down}x{across}", [f], [(f, y.n * y.h)])
