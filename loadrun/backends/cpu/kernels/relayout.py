"""Copies between NCHW and the blocked layout, with or without halo.

Argument table: 0 input, 1 output.
"""

from __future__ import annotations

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common
from loadrun.backends.cpu.layout import Image
from loadrun.backends.cpu.plan import Kernel, Rows
from loadrun.backends.cpu.target import Target


def transpose(f: Func, rows: list[str]) -> list[str]:
    """Transpose a square of `lanes` vectors with log2(lanes) rounds of shuffles."""
    n = f.lanes
    size = 1
    while size < n:
        out = list(rows)
        for i in range(n):
            if i & size:
                continue
            a, b = rows[i], rows[i + size]
            low = [k if not k & size else n + k - size for k in range(n)]
            high = [k + size if not k & size else n + k for k in range(n)]
            out[i], out[i + size] = _shuffle(f, a, b, low), _shuffle(f, a, b, high)
        rows = out
        size *= 2
    return rows


def _shuffle(f: Func, a: str, b: str, index: list[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in index)
    return f.op(f"shufflevector {f.vt} {a}, {f.vt} {b}, <{f.lanes} x i32> <{mask}>")


def relayout(x: Image, y: Image, target: Target) -> tuple[Kernel, Rows | None]:
    """A kernel that copies the pixels of x (n, c, h, w) to the layout of y.

    Units are rows of an image, all channels. Halos are not written; unspecified lanes of a blocked
    output get zeros.
    """
    if (x.n, x.c, x.h, x.w) != (y.n, y.c, y.h, y.w):
        raise ValueError("relayout keeps the shape")
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    # A map with contiguous pixels on both sides is one long row.
    flat = x.dense_rows and y.dense_rows and x.h * x.w < 4 * target.lanes * target.lanes
    rows, cols = (1, x.h * x.w) if flat else (x.h, x.w)
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, rows), f.mod(unit.i, rows)
        source = f.gep(p[0], f.add(f.mul(image, x.image), f.add(f.mul(row, x.row), x.origin)))
        out = f.gep(p[1], f.add(f.mul(image, y.image), f.add(f.mul(row, y.row), y.origin)))
        if x.lanes == y.lanes:
            with f.loop(0, x.blocks) as b:
                _copy_row(
                    f,
                    f.gep(source, f.mul(b.i, x.block)),
                    f.gep(out, f.mul(b.i, y.block)),
                    cols * x.lanes,
                    x.lanes > 1,
                )
        else:
            _transposed_row(f, source, out, x, y, cols)
    kind = {(True, False): "pack", (False, True): "unpack"}.get(
        (x.lanes == 1, y.lanes == 1), "copy"
    )
    kernel = common.finish(f"{kind}_f32", [f], [(f, x.n * rows)])
    return kernel, None if flat else Rows(x.h)


def _copy_row(f: Func, source: str, out: str, count: int, aligned: bool) -> None:
    lanes, align = f.lanes, 0 if aligned else 4
    whole = count // lanes
    if whole:
        with f.loop(0, whole) as i:
            at = f.mul(i.i, 4 * lanes)
            f.store(f.load(source, at, align=align), out, at, align=align)
    if count % lanes:
        mask = f.first_lanes(count % lanes)
        at = whole * lanes * 4
        f.store_masked(f.load_masked(source, at, mask), out, at, mask)


def _transposed_row(f: Func, source: str, out: str, x: Image, y: Image, cols: int) -> None:
    """All channels of one row: squares of lanes channels by lanes pixels."""
    lanes = f.lanes
    whole, rest = divmod(x.c, lanes)

    def block(index: Int, channels: int) -> None:
        if cols // lanes:
            with f.loop(0, cols // lanes) as i:
                square(index, channels, f.mul(i.i, lanes), lanes)
        if cols % lanes:
            square(index, channels, cols // lanes * lanes, cols % lanes)

    def square(index: Int, channels: int, first: Int, pixels: int) -> None:
        packing = x.lanes == 1
        one, many = (x, y) if packing else (y, x)
        a, b = (source, out) if packing else (out, source)
        thin = f.gep(a, f.add(f.mul(index, one.block * lanes), f.mul(first, one.pixel)))
        wide = f.gep(b, f.add(f.mul(index, many.block), f.mul(first, many.pixel)))
        mask = f.first_lanes(pixels)
        zero = f.const(0.0)
        if packing:
            rows = [
                zero
                if k >= channels
                else f.load(thin, k * one.block, align=4)
                if pixels == lanes
                else f.load_masked(thin, k * one.block, mask)
                for k in range(lanes)
            ]
            for k, value in enumerate(transpose(f, rows)[:pixels]):
                f.store(value, wide, k * many.pixel)
            return
        rows = [f.load(wide, k * many.pixel) if k < pixels else zero for k in range(lanes)]
        for k, value in enumerate(transpose(f, rows)[:channels]):
            if pixels == lanes:
                f.store(value, thin, k * one.block, align=4)
            else:
                f.store_masked(value, thin, k * one.block, mask)

    if whole:
        with f.loop(0, whole) as b:
            block(b.i, lanes)
    if rest:
        block(whole, rest)


def narrow(x: Image, y: Image, target: Target) -> tuple[Kernel, Rows]:
    """Blocked float32 whole numbers in -128..127 to blocked signed bytes. Units: rows."""
    f = common.entry("", target)
    p = [f.load_ptr("%args", k) for k in range(2)]
    small = f"<{target.lanes} x i8>"
    with f.loop("%begin", "%end") as unit:
        image, row = f.div(unit.i, x.h), f.mod(unit.i, x.h)
        source = f.gep(p[0], f.add(f.mul(image, x.image), f.add(f.mul(row, x.row), x.origin)))
        out = f.gep(p[1], f.add(f.mul(image, y.image), f.add(f.mul(row, y.row), y.origin)))
        with f.loop(0, x.blocks) as b, f.loop(0, x.w) as c:
            a = f.gep(source, f.add(f.mul(b.i, x.block), f.mul(c.i, x.pixel)))
            to = f.gep(out, f.add(f.mul(b.i, y.block), f.mul(c.i, y.pixel)))
            # Lanes that hold no channel may be anything; they meet zero weights.
            wide = f.op(f"fptosi {f.vt} {f.op(f'freeze {f.vt} {f.load(a)}')} to {f.it}")
            v = f.op(f"trunc {f.it} {f.op(f'freeze {f.it} {wide}')} to {small}")
            f.store(v, to, ty=small, align=target.lanes)
    return common.finish("narrow_f32_s8", [f], [(f, x.n * x.h)]), Rows(x.h)
