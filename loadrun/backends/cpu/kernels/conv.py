"""Direct convolution on blocked (or planar) inputs, any stride, dilation, padding and groups."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cpu.kernels import micro
from loadrun.backends.cpu.kernels.common import Epilogue, needs_operand, pieces
from loadrun.backends.cpu.kernels.tiled import Choice, Grid, Tiled, Walk
from loadrun.backends.cpu.layout import Halo, Image
from loadrun.backends.cpu.plan import Array, Kernel, Rows
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.ways import DEFAULT, Way

# Reading what another core has written costs as much as this many times the bytes of weights, which
# every core holds in its own cache (cores with and without a common last-level cache, Zen 5).
_WORTH = 4


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """Geometry of a convolution; filters are (groups, oc, ic, kh, kw), oc and ic per group."""

    groups: int
    oc: int
    ic: int
    kh: int
    kw: int
    sh: int = 1
    sw: int = 1
    ph: int = 0
    pw: int = 0
    dh: int = 1
    dw: int = 1

    def out_size(self, h: int, w: int) -> tuple[int, int]:
        """Height and width of the output."""
        return (
            (h + 2 * self.ph - (self.kh - 1) * self.dh - 1) // self.sh + 1,
            (w + 2 * self.pw - (self.kw - 1) * self.dw - 1) // self.sw + 1,
        )

    def halo(self, h: int, w: int) -> Halo:
        """Halo that the input needs so that every tap of every output lies inside."""
        oh, ow = self.out_size(h, w)
        bottom = (oh - 1) * self.sh - self.ph + (self.kh - 1) * self.dh + 1 - h
        right = (ow - 1) * self.sw - self.pw + (self.kw - 1) * self.dw + 1 - w
        return Halo(self.ph, self.pw, max(bottom, 0), max(right, 0))

    def flops(self, n: int, h: int, w: int) -> float:
        """Operations, a multiply-add counting two."""
        oh, ow = self.out_size(h, w)
        return 2.0 * n * self.groups * self.oc * self.ic * self.kh * self.kw * oh * ow

    @property
    def depthwise(self) -> bool:
        """One input and one output channel per group."""
        return self.oc == 1 and self.ic == 1 and self.groups > 1

    def name(self) -> str:
        """Part of a kernel's name."""
        text = f"{self.kh}x{self.kw}s{self.sh}"
        text += f"x{self.sw}" if self.sw != self.sh else ""
        text += f"d{self.dh}" if self.dh > 1 or self.dw > 1 else ""
        return text + (f"g{self.groups}" if self.groups > 1 else "")


def merged(spec: ConvSpec, lanes: int) -> ConvSpec:
    """The same convolution with groups joined until each fills whole output vectors.

    Joined groups get zero weights between them, which costs no more instructions than
    vectors that are not full.
    """
    if spec.groups == 1 or spec.oc % lanes == 0:
        return spec
    join = lanes // math.gcd(spec.oc, lanes)
    if spec.groups % join:
        join = spec.groups
    return ConvSpec(
        spec.groups // join,
        spec.oc * join,
        spec.ic * join,
        *(spec.kh, spec.kw, spec.sh, spec.sw, spec.ph, spec.pw, spec.dh, spec.dw),
    )


def merge_filter(weights: Array, spec: ConvSpec, joined: ConvSpec) -> Array:
    """Filters (groups, oc, ic, kh, kw) for the joined groups."""
    join = spec.groups // joined.groups
    if join == 1:
        return weights
    shape = (joined.groups, join, spec.oc, join, spec.ic, spec.kh, spec.kw)
    out = np.zeros(shape, weights.dtype)
    given = weights.reshape(joined.groups, join, spec.oc, spec.ic, spec.kh, spec.kw)
    for k in range(join):
        out[:, k, :, k] = given[:, k]
    return out.reshape(joined.groups, joined.oc, joined.ic, spec.kh, spec.kw)


def pad_bias(bias: Array | None, channels: int, lanes: int) -> Array:
    """Bias as float32, padded with zeros to whole vectors."""
    out = np.zeros(-(-channels // lanes) * lanes, np.float32)
    if bias is not None:
        out[:channels] = bias.reshape(-1)
    return out


class DirectConv:
    """A direct convolution: its kernel, its taps and how its weights are packed.

    Argument table: input, weights, bias, output, operand, taps.
    """

    def __init__(
        self,
        spec: ConvSpec,
        x: Image,
        y: Image,
        res: Image | None,
        epilogue: Epilogue,
        target: Target,
        *,
        threads: int = 1,
        by_rows: bool = False,
        dot: bool = False,
        way: Way = DEFAULT,
    ) -> None:
        """Choose tiles and generate the code.

        Args:
            spec: The convolution.
            x: Blocked, or planar (few channels, one group).
            y: Blocked.
            res: Layout of the epilogue's operand.
            epilogue: Fused operations.
            target: Instruction set.
            threads: Threads that will share the work.
            by_rows: Units must be whole rows in order (for bands).
            dot: `x` holds signed bytes; weights are bytes, the bias i32 (see `byte_bias`).
            way: Tile and order of units, where they are not left to the cost model.
        """
        if not x.halo.covers(spec.halo(x.h, x.w)):
            raise ValueError(f"halo of the input is too small: {x.halo}")
        if x.nbytes >= 1 << 31:
            raise ValueError(f"a convolution's input must be below 2 GiB; got: {x.nbytes}")
        self.given, self.target, self.way = spec, target, way
        self.spec = spec = merged(spec, target.lanes)
        self.planar = x.lanes == 1
        if self.planar and spec.groups > 1:
            raise ValueError("grouped convolution needs a blocked input")
        lanes = target.lanes
        self.vectors = -(-spec.oc // lanes)
        self.dot = dot
        self.depth = spec.kw if self.planar else math.gcd(spec.ic, lanes, micro.MAX_DEPTH)
        if dot:
            if spec.groups > 1 and spec.ic % 4:
                raise ValueError("groups of byte channels must be multiples of 4")
            self.words = -(-spec.ic // 4)  # of a group
            self.depth = math.gcd(self.words, lanes // 4)
        self.taps = self._taps(x)
        grid = self._grid(x, y, res, needs_operand(epilogue), by_rows)
        choice = self._choose(grid, x, threads, by_rows)
        kind = "s8" if dot else "f32"
        name = f"conv_{kind}_{spec.name()}{epilogue.tag()}"
        self.tiled = Tiled(name, grid, choice, epilogue, target)
        self.kernel: Kernel = self.tiled.kernel
        self.rows: Rows | None = None
        if grid.rows == y.h and not grid.last and not choice.panels_first:
            unit_rows = choice.height * choice.chunk
            if y.h % unit_rows == 0:
                self.rows = Rows(
                    y.h,
                    unit_rows,
                    grid.groups * self.tiled.panels,
                    (spec.kh - 1) * spec.dh + 1,
                    spec.sh,
                    spec.ph,
                )

    def _taps(self, x: Image) -> Array:
        """Byte offsets from a pixel's own input, (groups, taps)."""
        s = self.spec
        if self.planar:
            at = [c * x.block + ky * s.dh * x.row for c in range(s.ic) for ky in range(s.kh)]
            return np.array([at], np.int32)
        lanes = self.target.lanes
        rows = []
        step = 4 * self.depth if self.dot else self.depth
        for g in range(s.groups):
            first = [g * s.ic + k for k in range(0, s.ic, step)]
            rows.append(
                [
                    (c // lanes) * x.block
                    + (c % lanes) * x.item
                    + ky * s.dh * x.row
                    + kx * s.dw * x.pixel
                    for c in first
                    for ky in range(s.kh)
                    for kx in range(s.kw)
                ]
            )
        return np.array(rows, np.int32)

    def _grid(self, x: Image, y: Image, res: Image | None, operand: bool, by_rows: bool) -> Grid:
        s = self.spec
        pixel = x.pixel * s.sw
        xw = Walk(x.origin - s.ph * x.row - s.pw * x.pixel, x.image, x.row * s.sh, pixel)
        yw = Walk(y.origin, y.image, y.row, y.pixel, y.block)
        rw = Walk(0, 0, 0, 0)
        if operand:
            assert res is not None
            rw = Walk(res.origin, res.image, res.row, res.pixel, res.block)
        rows, cols, last = y.h, y.w, 0
        if (
            not by_rows
            and s.kh == s.kw == s.sh == s.sw == 1
            and x.dense_rows
            and y.dense_rows
            and (not operand or (res is not None and res.dense_rows))
        ):
            rows, cols, last = self._flat(y.h * y.w)
            xw = Walk(xw.start, xw.image, cols * x.pixel, pixel)
            yw = Walk(yw.start, yw.image, cols * y.pixel, y.pixel, y.block)
            rw = Walk(rw.start, rw.image, cols * rw.pixel, rw.pixel, rw.vector)
        return Grid(
            y.n,
            rows,
            cols,
            self.vectors,
            self.taps.shape[1],
            self.depth,
            xw,
            yw,
            rw,
            groups=s.groups,
            last=last,
            step=4 * s.dw if self.planar else 4,
            dot=self.dot,
        )

    def _flat(self, pixels: int) -> tuple[int, int, int]:
        """A 1x1 convolution's pixels as rows of whole tiles: (rows, cols, last)."""
        most = self.target.tile(min(self._nb(), 4))
        if pixels <= most:
            return 1, pixels, 0
        low = pieces(pixels, most)
        width = low[-1][0]
        return pixels // width, width, pixels % width

    def _nb(self) -> int:
        """Output vectors of a tile: 3 beat 2 where they divide (3 % of MobileNetV2 on Zen 5)."""
        if self.way.vectors:
            return min(self.vectors, self.way.vectors)
        return 3 if self.vectors % 3 == 0 else min(self.vectors, 2)

    def _choose(self, grid: Grid, x: Image, threads: int, by_rows: bool) -> Choice:
        """Tile shape, order of units and their size, from sizes and cache capacities."""
        s, t = self.spec, self.target
        nb = self._nb()
        if grid.rows * grid.cols * grid.images == 1 and self.vectors >= 8 and not self.way.vectors:
            nb = 4
        most = t.tile(min(nb, 4))
        width = min(grid.cols, most)
        height = 1
        if not grid.last and grid.cols <= most // 2:
            height = min(most // grid.cols, grid.rows)
        row_tiles = -(-grid.rows // height) + (1 if grid.last else 0)
        panels = -(-self.vectors // nb) * s.groups
        weight_bytes = 4 * s.groups * s.oc * s.ic * s.kh * s.kw
        used = x.nbytes if s.kh > 1 else x.blocks * x.pixel * grid.rows * grid.cols * s.sh
        # Between threads, what the one before wrote by rows goes from core to core; weights do not.
        heavy = 4 * weight_bytes >= used if threads == 1 else weight_bytes >= 2 * used
        shareable = panels % threads == 0 or panels >= 8 * threads
        stream = not by_rows and not self.planar and heavy
        own = -(-row_tiles // threads)
        order = "rows"
        if (
            stream
            and grid.images == 1 < threads
            and weight_bytes < _WORTH * used <= _WORTH * 0.65 * t.l2 * threads
            and own * threads <= 1.1 * row_tiles
        ):
            order = "own"
        elif stream and shareable and used <= (0.85 if threads == 1 else 0.65) * t.l2:
            order = "panels"
        if self.way.order and not by_rows:
            order = self.way.order
        if order == "own":
            # Every thread reads all weights, but only inputs that it has written itself.
            return Choice(nb, width, height, own, False, fetch=True)
        if order == "panels":
            return Choice(nb, width, height, row_tiles, True, fetch=True)
        chunk = 1 if by_rows else min(self.way.chunk or 4, row_tiles)
        while (
            not self.way.chunk and chunk > 1 and -(-row_tiles // chunk) * grid.images < 4 * threads
        ):
            chunk -= 1
        return Choice(nb, width, height, chunk, False, fetch=False)

    def pack(self, weights: Array, out: Array) -> None:
        """Write filters (groups, oc, ic, kh, kw) in the order the kernel reads them."""
        s, lanes, nb = self.spec, self.target.lanes, self.tiled.choice.nb
        w = merge_filter(weights.astype(np.float32, copy=False), self.given, s)
        padded = self.vectors * lanes
        if self.dot:
            self._pack_bytes(w, out.view(np.int32))
            return
        if self.planar:
            w = w.transpose(0, 2, 3, 4, 1)
        else:
            k = s.ic // self.depth
            w = w.reshape(s.groups, s.oc, k, self.depth, s.kh, s.kw)
            w = w.transpose(0, 2, 4, 5, 3, 1)
        pack_panels(w, nb * lanes, out, columns=padded)

    def _pack_bytes(self, w: Array, out: Array) -> None:
        """Whole numbers (groups, oc, ic, kh, kw) as bytes, four channels to a column."""
        s, padded = self.spec, self.vectors * self.target.lanes
        grown = np.zeros((s.groups, padded, 4 * self.words, s.kh, s.kw), np.int8)
        grown[:, : s.oc, : s.ic] = w
        k = self.words // self.depth
        grown = grown.reshape(s.groups, padded, k, self.depth, 4, s.kh, s.kw)
        columns = np.ascontiguousarray(grown.transpose(0, 2, 5, 6, 3, 1, 4))
        words = columns.view(np.int32)[..., 0]
        pack_panels(words, self.tiled.choice.nb * self.target.lanes, out)

    def byte_bias(self, weights: Array, bias: Array | None) -> Array:
        """The i32 start of the sums: the bias, less what 128 added to every input contributes."""
        lanes = self.target.lanes
        channels = self.given.groups * self.given.oc
        out = np.zeros(-(-channels // lanes) * lanes, np.int32)
        sums = weights.astype(np.int64).sum(axis=(2, 3, 4)).reshape(-1)
        whole = np.zeros(channels) if bias is None else bias.astype(np.float64).reshape(-1)
        out[:channels] = whole.astype(np.int64) - 128 * sums
        return out


def pack_panels(w: Array, width: int, out: Array, *, columns: int = 0) -> None:
    """Write (groups, k..., n) as panels of `width` columns, each (k, width), the last one narrower.

    The k axes count in order. With `columns` more than n, columns of zeros follow. `out` is flat.
    """
    groups, n, dims = w.shape[0], w.shape[-1], w.shape[1:-1]
    columns = columns or n
    flat = out.reshape(groups, math.prod(dims) * columns)
    main = n // width
    split = flat.shape[1] // columns * main * width
    # One copy, whatever the strides; temporary memory would cost more than the work.
    whole = w[..., : main * width].reshape(groups, *dims, main, width)
    flat[:, :split].reshape(groups, main, *dims, width)[...] = np.moveaxis(whole, -2, 1)
    left = columns - main * width
    while left:
        wide = min(left, width)
        size = flat.shape[1] // columns * wide
        part = flat[:, split : split + size].reshape(groups, *dims, wide)
        real = w[..., columns - left : columns - left + wide]
        part[..., : real.shape[-1]] = real
        part[..., real.shape[-1] :] = 0
        left, split = left - wide, split + size
