"""3x3 stride-1 convolution by Winograd's F(m x m, 3 x 3) on blocked tensors.

Per block of tiles: V = B^T d B (a vector is `lanes` input channels), M[point] = V[point] U[point]
(register tiles), y = A^T M A + bias, epilogue. Two ways to share the work:

* by rows: a unit is a few rows of tiles of one image; V and M are private scratch;
* by panels: first all of V is made (a shared buffer), then a unit is a panel of output vectors of
  one image and only M is private. For heavy weights: each is read from far memory once. Each thread
  may make a copy of V of its own: with more arithmetic, less goes from one core to another.

Argument table: 0 input, 1 U, 2 bias, 3 output, 4 operand, 5 taps, 6 V (by panels). The loops are in
winograd_driver.py.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu.kernels import common, micro, winograd_driver
from loadrun.backends.cpu.kernels import winograd_math as wm
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.winograd_share import Sharing, Sizes
from loadrun.backends.cpu.layout import Halo, Image
from loadrun.backends.cpu.plan import Array, Kernel, Part, Rows
from loadrun.backends.cpu.target import Target

_PIECE = 512  # columns of a product of transforms


def suits(spec: ConvSpec) -> bool:
    """Whether the algorithm computes this convolution at all."""
    one = spec.sh == spec.sw == spec.dh == spec.dw == spec.groups == 1
    return one and spec.kh == spec.kw == 3


def halo(spec: ConvSpec, h: int, w: int, m: int) -> Halo:
    """Halo of the input: the padding, and the overhang of the last tiles."""
    oh, ow = spec.out_size(h, w)
    down = -(-oh // m) * m + 2 - spec.ph - h
    right = -(-ow // m) * m + 2 - spec.pw - w
    return Halo(spec.ph, spec.pw, max(down, 0), max(right, 0))


def _apart(nbytes: int, unit: int) -> int:
    """A distance between streams of an odd number of units: it spreads them over all sets."""
    return (-(-nbytes // unit) | 1) * unit


def _panel(vectors: int) -> int:
    """Output vectors of a panel."""
    if vectors % 2:
        return 3 if vectors % 3 == 0 else 1
    return 2


def sizes(spec: ConvSpec, x: Image, y: Image, m: int, target: Target) -> Sizes:
    """What the cost of sharing depends on."""
    vectors = -(-spec.oc // target.lanes)
    down, across = -(-y.h // m), -(-y.w // m)
    return Sizes(
        y.n, down, across, (m + 2) ** 2, spec.ic, vectors, _panel(vectors), x.blocks * x.block
    )


def block_rows(spec: ConvSpec, y: Image, m: int, target: Target) -> int:
    """Rows of tiles that fill register tiles."""
    across, down = -(-y.w // m), -(-y.h // m)
    rows = -(-target.tile(min(-(-spec.oc // target.lanes), 2)) // across)
    for more in range(rows, min(2 * rows, down) + 1):
        if down % more == 0:
            return more
    return min(rows, down)


class WinogradConv:
    """The kernel, its taps, the size of V and how weights are packed."""

    def __init__(
        self,
        spec: ConvSpec,
        x: Image,
        y: Image,
        res: Image | None,
        epilogue: Epilogue,
        target: Target,
        *,
        m: int,
        sharing: Sharing,
    ) -> None:
        """Generate the code.

        Args:
            spec: A convolution that `suits`.
            x: Blocked, with at least `halo`.
            y: Blocked.
            res: Layout of the epilogue's operand.
            epilogue: Fused operations.
            target: Instruction set.
            m: Output tile, 2 or 4.
            sharing: By rows of tiles or by panels.
        """
        if not suits(spec) or not x.halo.covers(halo(spec, x.h, x.w, m)):
            raise ValueError("winograd needs 3x3, stride 1, one group and a sufficient halo")
        self.spec, self.x, self.y, self.res = spec, x, y, res
        self.epilogue, self.target, self.m = epilogue, target, m
        self.by_rows = by_rows = sharing.rows > 0
        lanes = target.lanes
        self.n = m + 2
        self.points = self.n * self.n
        self.across, self.down = -(-y.w // m), -(-y.h // m)
        self.block_rows = sharing.rows or self.down
        self.tiles = self.block_rows * self.across
        self.vectors = -(-spec.oc // lanes)
        self.nb = _panel(self.vectors)
        self.panels = self.vectors // self.nb
        self.depth = math.gcd(spec.ic, lanes, micro.MAX_DEPTH)
        self.blocks = x.blocks
        vb = target.vector_bytes
        self.v_point = _apart(self.blocks * self.tiles * vb, vb)
        self.m_point = _apart(self.nb * self.tiles * vb, vb)
        self.v_bytes = self.points * self.v_point  # of one image (by panels) or unit (by rows)
        self.copies = sharing.copies
        self.shared = 0 if by_rows else self.copies * y.n * self.v_bytes
        m_bytes = self.points * self.m_point
        self.scratch = m_bytes + (self.v_bytes if by_rows else 0)
        self.taps: Array = np.array(
            [
                (c // lanes) * self.tiles * vb + (c % lanes) * 4
                for c in range(0, spec.ic, self.depth)
            ],
            np.int32,
        ).reshape(1, -1)
        self.part = micro.part_of(self.taps.shape[1], self.depth)
        self.panel_bytes = spec.ic * self.nb * vb  # of one point
        widths = pieces(self.tiles, target.tile(self.nb))
        self.widths = widths
        heavy = self.points * spec.ic * spec.oc * 4 > target.l2 // 2
        per_tap = self.depth * self.nb * vb
        count = sum(n for _, n in widths)
        self.fetch = -(-per_tap // (micro.LINE * count)) if heavy else 0
        self.kernel: Kernel = self._build()
        self.rows: Rows | None = None
        step = self.block_rows * m
        if by_rows and y.h % step == 0:
            self.rows = Rows(y.h, step, 1, 3, 1, spec.ph)

    def _build(self) -> Kernel:
        t, m = self.target, self.m
        operand = common.needs_operand(self.epilogue)
        x, y, res = self.x, self.y, self.res if operand else None
        per = -(-self.down // self.block_rows)
        share = self.taps.shape[1] * self.fetch * micro.LINE
        fields = {
            "ntaps": self.taps.shape[1],
            "obs": self.tiles * t.vector_bytes,
            "rbs": 0,
            "part": max(self.part, 1),
            "x_row": x.row,
            "v_point": self.v_point,
            "m_point": self.m_point,
            "y_row": y.row,
            "res_row": res.row if res else 0,
            "m": m,
            "images": y.n,
            "units": per if self.by_rows else y.n * self.panels,
            "copies": self.copies,
            "span": y.n * self.blocks if self.copies > 1 else 1,
            "down": self.down,
            "across": self.across,
            "block_rows": self.block_rows,
            "full_rows": y.h // m,
            "full_tiles": y.w // m,
            "edge_tiles": int(y.w % m > 0),
            "blocks": self.blocks,
            "panels": self.panels,
            "nb": self.nb,
            "points": self.points,
            "panel_bytes": self.panel_bytes,
            "fetch_tile": share,
            "x_start": x.origin - self.spec.ph * x.row - self.spec.pw * x.pixel,
            "x_image": x.image,
            "x_block": x.block,
            "y_start": y.origin,
            "y_image": y.image,
            "y_block": y.block,
            "res_start": res.origin if res else 0,
            "res_image": res.image if res else 0,
            "res_block": res.block if res else 0,
            "v_image": self.v_bytes,
            "v_bytes": self.v_bytes,
        }
        source = winograd_driver.input_tile(m, t)
        outputs = self._outputs()
        runs, tiles = self._products()
        symbols = {key: part.symbol for key, part in outputs.items()}
        words = winograd_driver.words(fields, runs, symbols, source.symbol)
        entries = [(winograd_driver.by_rows(t), y.n * per)]
        if not self.by_rows:
            units = self.copies if self.copies > 1 else y.n * self.blocks
            first = winograd_driver.transform(t), units
            entries = [first, (winograd_driver.by_panels(t), y.n * self.panels)]
        parts = [source, *outputs.values(), *tiles]
        name = f"conv_f32_3x3s1_winograd{m}{self.epilogue.tag()}"
        return common.described(name, entries, words, parts, scratch=self.scratch)

    def _outputs(self) -> dict[tuple[int, int], Part]:
        """Output transforms by (1 for the edge row, 1 for the edge tile)."""
        m = self.m
        highs = {k: v for k, v in enumerate((m if self.y.h >= m else 0, self.y.h % m)) if v}
        wides = {k: v for k, v in enumerate((m if self.y.w >= m else 0, self.y.w % m)) if v}
        return {
            (i, j): winograd_driver.output_tile(m, high, wide, self.epilogue, self.target)
            for i, high in highs.items()
            for j, wide in wides.items()
        }

    def _products(self) -> tuple[list[winograd_driver.Run], list[Part]]:
        """Runs of register tiles, and their code."""
        vb = self.target.vector_bytes
        runs, parts = [], []
        for width, count in self.widths:
            walk = (0, vb if width > 1 else 0)
            tile = micro.Tile(
                1,
                width,
                walk,
                walk,
                self.nb,
                self.depth,
                bias=False,
                fetch_lines=self.fetch,
                parts=self.part > 0,
            )
            parts.append(micro.shared_tile(tile, self.target))
            runs.append((parts[-1].symbol, count, width * vb))
        return runs, parts

    def pack(self, weights: Array, out: Array) -> None:
        """Write filters (1, oc, ic, 3, 3) as U: [panel][point][ic][nb * lanes].

        In pieces that stay in the first caches, and are too small for the linear algebra library to
        start threads, which spin: ResNet-50 in 20 ms of processor time instead of 300.
        """
        s, width = self.spec, self.nb * self.target.lanes
        g = np.array([[float(v) for v in row] for row in wm.matrices(self.m)[1]])
        both = np.kron(g, g)
        rows = weights.reshape(s.oc, s.ic, 9)
        step = max(_PIECE // width, 1)
        for k, panel in enumerate(out.reshape(self.panels, self.points, s.ic, width)):
            mine = rows[k * width : (k + 1) * width]
            wide = len(mine)
            panel[:, :, wide:] = 0
            for low in range(0, s.ic, step):
                part = mine[:, low : low + step].transpose(2, 1, 0).astype(np.float64)
                u = both @ part.reshape(9, -1)
                panel[:, low : low + step, :wide] = u.reshape(self.points, -1, wide)
