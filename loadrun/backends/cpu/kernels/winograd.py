"""3x3 stride-1 convolution by Winograd's F(m x m, 3 x 3) on blocked tensors.

Per block of tiles: V = B^T d B (a vector is `lanes` input channels), M[point] = V[point] U[point]
(register tiles), y = A^T M A + bias, epilogue. Two ways to share the work:

* by rows: a unit is a few rows of tiles of one image; V and M are private scratch;
* by panels: first all of V is made (a shared buffer), then a unit is a panel of output vectors of
  one image and only M is private. For heavy weights: each is read from far memory once. Each thread
  may make a copy of V of its own: with more arithmetic, less goes from one core to another.

Argument table: 0 input, 1 U, 2 bias, 3 output, 4 operand, 5 taps, 6 V (by panels).
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.kernels import winograd_math as wm
from loadrun.backends.cpu.kernels.common import Epilogue, pieces
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.winograd_share import Sharing, Sizes
from loadrun.backends.cpu.layout import Halo, Image
from loadrun.backends.cpu.plan import Array, Kernel, Rows
from loadrun.backends.cpu.target import Target


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
        self.panel_bytes = spec.ic * self.nb * vb  # of one point
        widths = pieces(self.tiles, target.tile(self.nb))
        self.widths = widths
        heavy = self.points * spec.ic * spec.oc * 4 > target.l2 // 2
        per_tap = self.depth * self.nb * vb
        count = sum(n for _, n in widths)
        self.fetch = -(-per_tap // (micro.LINE * count)) if heavy else 0
        self._functions: list[Func] = []
        self.kernel: Kernel = self._build()
        self.rows: Rows | None = None
        step = self.block_rows * m
        if by_rows and y.h % step == 0:
            self.rows = Rows(y.h, step, 1, 3, 1, spec.ph)

    # -- the transforms
    def _input_tile(self) -> Func:
        f = common.inner("in", [("ptr", "in"), ("ptr", "v")], self.target)
        bt = wm.matrices(self.m)[2]
        n, x = self.n, self.x
        columns = [
            wm.apply_rows(f, bt, [f.load("%in", r * x.row + c * x.pixel) for r in range(n)])
            for c in range(n)
        ]
        for i in range(n):
            row = wm.apply_rows(f, bt, [columns[c][i] for c in range(n)])
            for j, value in enumerate(row):
                f.store(value, "%v", (i * n + j) * self.v_point)
        return f

    def _output_tile(self, high: int, wide: int) -> Func:
        """One tile of one output vector, of which `high` x `wide` pixels exist."""
        names = [("ptr", "m"), ("ptr", "bias"), ("ptr", "out"), ("ptr", "res")]
        f = common.inner(f"out{high}x{wide}", names, self.target)
        at = wm.matrices(self.m)[0]
        n = self.n
        columns = [
            wm.apply_columns(f, at, [f.load("%m", (r * n + c) * self.m_point) for r in range(n)])
            for c in range(n)
        ]
        bias = f.load("%bias")
        operand = common.needs_operand(self.epilogue)
        for r in range(high):
            row = wm.apply_columns(f, at, [columns[c][r] for c in range(n)])
            for c, value in enumerate(row[:wide]):
                value = f.fadd(value, bias)
                other = ""
                if operand:
                    assert self.res is not None
                    other = f.load("%res", r * self.res.row + c * self.res.pixel)
                value = common.apply(f, value, self.epilogue, other)
                f.store(value, "%out", r * self.y.row + c * self.y.pixel)
        return f

    def _make_outputs(self) -> dict[tuple[int, int], str]:
        rest_h, rest_w = self.y.h % self.m, self.y.w % self.m
        highs = ([self.m] if self.y.h >= self.m else []) + ([rest_h] if rest_h else [])
        wides = ([self.m] if self.y.w >= self.m else []) + ([rest_w] if rest_w else [])
        found = {}
        for high in highs:
            for wide in wides:
                f = self._output_tile(high, wide)
                self._functions.append(f)
                found[high, wide] = f.name
        return found

    def _make_products(self) -> dict[int, str]:
        vb = self.target.vector_bytes
        found = {}
        for width, _ in self.widths:
            offsets = tuple(p * vb for p in range(width))
            tile = micro.Tile(
                in_offsets=offsets,
                out_offsets=offsets,
                nb=self.nb,
                depth=self.depth,
                bias=False,
                fetch_lines=self.fetch,
                part=micro.part_of(self.taps.shape[1], self.depth),
            )
            f = micro.emit_tile(f"tile{width}", tile, self.target)
            self._functions.append(f)
            found[width] = f.name
        return found

    # -- the loops
    def _transform(self, f: Func, source: str, v: str, first: Int, block: Int) -> None:
        """Rows of tiles first.. of channel block `block` into V."""
        x, vb = self.x, self.target.vector_bytes
        base = f.gep(source, f.add(f.mul(block, x.block), x.origin))
        base = f.gep(base, -(self.spec.ph * x.row + self.spec.pw * x.pixel))
        v = f.gep(v, f.mul(block, self.tiles * vb))
        with f.loop(0, self.block_rows) as r:
            row = f.gep(base, f.mul(f.add(first, r.i), self.m * x.row))
            to = f.gep(v, f.mul(r.i, self.across * vb))
            with f.loop(0, self.across) as c:
                p = f.gep(row, f.mul(c.i, self.m * x.pixel))
                f.call(self._in, [("ptr", p), ("ptr", f.gep(to, f.mul(c.i, vb)))])

    def _products(self, f: Func, v: str, m: str, u: str, taps: str) -> None:
        """All points of one panel: M = V U."""
        vb = self.target.vector_bytes
        ntaps = self.taps.shape[1]
        share = ntaps * self.fetch * micro.LINE
        with f.loop(0, self.points) as point:
            vp = f.gep(v, f.mul(point.i, self.v_point))
            mp = f.gep(m, f.mul(point.i, self.m_point))
            up = f.gep(u, f.mul(point.i, self.panel_bytes))
            following = f.gep(up, self.panel_bytes)
            at = done = 0
            for width, count in self.widths:
                with f.loop(0, count) as tile:
                    o = f.mul(f.add(f.mul(tile.i, width), at), vb)
                    ahead = f.gep(following, f.mul(f.add(tile.i, done), share))
                    f.call(
                        self._tile[width],
                        [
                            ("ptr", f.gep(vp, o)),
                            ("ptr", up),
                            ("ptr", up),
                            ("ptr", f.gep(mp, o)),
                            ("ptr", up),
                            ("ptr", taps),
                            ("i64", ntaps),
                            ("i64", self.tiles * vb),
                            ("i64", 0),
                            ("ptr", ahead),
                        ],
                    )
                at += width * count
                done += count

    def _write(self, f: Func, m: str, p: dict[str, str], first: Int, panel: Int) -> None:
        """Output transform of one panel for rows of tiles first.. ."""
        vb, y = self.target.vector_bytes, self.y
        full = y.h // self.m
        with f.loop(0, self.nb) as b:
            vector = f.add(f.mul(panel, self.nb), b.i)
            bias = f.gep(p["bias"], f.mul(vector, vb))
            out = f.gep(p["out"], f.add(f.mul(vector, y.block), y.origin))
            res = p["res"]
            if self.res is not None:
                res = f.gep(res, f.add(f.mul(vector, self.res.block), self.res.origin))
            mb = f.gep(m, f.mul(b.i, self.tiles * vb))
            with f.loop(0, self.block_rows) as r:
                row = f.add(first, r.i)
                args = [f.gep(mb, f.mul(r.i, self.across * vb)), bias]
                args.append(f.gep(out, f.mul(row, self.m * y.row)))
                step = self.m * self.res.row if self.res is not None else 0
                args.append(f.gep(res, f.mul(row, step)))
                if full:
                    with f.when(f.icmp("slt", row, full)):
                        self._write_row(f, args, self.m)
                if y.h % self.m:
                    with f.when(f.icmp("eq", row, full)):
                        self._write_row(f, args, y.h % self.m)

    def _write_row(self, f: Func, args: list[str], high: int) -> None:
        vb, m = self.target.vector_bytes, self.m
        full = self.y.w // m
        res_pixel = self.res.pixel if self.res is not None else 0

        def one(x: Int, wide: int) -> None:
            f.call(
                self._out[high, wide],
                [
                    ("ptr", f.gep(args[0], f.mul(x, vb))),
                    ("ptr", args[1]),
                    ("ptr", f.gep(args[2], f.mul(x, m * self.y.pixel))),
                    ("ptr", f.gep(args[3], f.mul(x, m * res_pixel))),
                ],
            )

        if full:
            with f.loop(0, full) as c:
                one(c.i, m)
        if self.y.w % m:
            one(full, self.y.w % m)

    def _pointers(self, f: Func, image: Int, copy: Int = 0) -> dict[str, str]:
        names = ["in", "u", "bias", "out", "res", "taps"] + ([] if self.by_rows else ["v"])
        p = {name: f.load_ptr("%args", k) for k, name in enumerate(names)}
        p["in"] = f.gep(p["in"], f.mul(image, self.x.image))
        p["out"] = f.gep(p["out"], f.mul(image, self.y.image))
        if self.res is not None:
            p["res"] = f.gep(p["res"], f.mul(image, self.res.image))
        if not self.by_rows:
            at = f.add(f.mul(copy, self.y.n), image)
            p["v"] = f.gep(p["v"], f.mul(at, self.v_bytes))
        return p

    def _build(self) -> Kernel:
        it = self._input_tile()
        self._functions.append(it)
        self._in = it.name
        self._out = self._make_outputs()
        self._tile = self._make_products()
        name = f"conv_f32_3x3s1_winograd{self.m}{self.epilogue.tag()}"
        entries = self._by_rows() if self.by_rows else self._by_panels()
        return common.finish(name, self._functions, entries, scratch=self.scratch)

    def _by_rows(self) -> list[tuple[Func, int]]:
        f = common.entry("", self.target)
        per = -(-self.down // self.block_rows)
        with f.loop("%begin", "%end") as unit:
            p = self._pointers(f, f.div(unit.i, per))
            # The last block ends with the image; it may repeat rows of the one before.
            first = f.mul(f.mod(unit.i, per), self.block_rows)
            first = f.min(first, self.down - self.block_rows)
            m = f.gep("%scratch", self.v_bytes)
            with f.loop(0, self.blocks) as block:
                self._transform(f, p["in"], "%scratch", first, block.i)
            with f.loop(0, self.panels) as panel:
                u = f.gep(p["u"], f.mul(panel.i, self.points * self.panel_bytes))
                self._products(f, "%scratch", m, u, p["taps"])
                self._write(f, m, p, first, panel.i)
        self._functions.append(f)
        return [(f, self.y.n * per)]

    def _by_panels(self) -> list[tuple[Func, int]]:
        f1 = common.entry("transform", self.target)
        units, copies = self.y.n * self.panels, self.copies
        with f1.loop("%begin", "%end") as unit:
            if copies == 1:
                p = self._pointers(f1, f1.div(unit.i, self.blocks))
                self._transform(f1, p["in"], p["v"], 0, f1.mod(unit.i, self.blocks))
            else:
                with f1.loop(0, self.y.n) as image:
                    p = self._pointers(f1, image.i, unit.i)
                    with f1.loop(0, self.blocks) as block:
                        self._transform(f1, p["in"], p["v"], 0, block.i)
        f2 = common.entry("", self.target)
        with f2.loop("%begin", "%end") as unit:
            panel = f2.div(unit.i, self.y.n)
            # The share of the units that this thread most likely works on.
            copy = f2.div(f2.mul(unit.i, copies), units)
            p = self._pointers(f2, f2.mod(unit.i, self.y.n), copy)
            u = f2.gep(p["u"], f2.mul(panel, self.points * self.panel_bytes))
            self._products(f2, p["v"], "%scratch", u, p["taps"])
            self._write(f2, "%scratch", p, 0, panel)
        self._functions += [f1, f2]
        return [(f1, copies if copies > 1 else self.y.n * self.blocks), (f2, units)]

    def pack(self, weights: Array) -> Array:
        """Filters (1, oc, ic, 3, 3) as U: [panel][point][ic][nb * lanes]."""
        s, width = self.spec, self.nb * self.target.lanes
        g = np.array([[float(v) for v in row] for row in wm.matrices(self.m)[1]])
        both = np.kron(g, g)
        rows = weights.reshape(s.oc, s.ic, 9)
        out = np.zeros((self.panels, self.points, s.ic, width), np.float32)
        for k, panel in enumerate(out):  # one by one, so that the transposes stay in the cache
            part = rows[k * width : (k + 1) * width].transpose(2, 1, 0).astype(np.float64)
            u = both @ part.reshape(9, -1)
            panel[:, :, : part.shape[2]] = u.reshape(self.points, s.ic, -1)
        return out.reshape(-1)
