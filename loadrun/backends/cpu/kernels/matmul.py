"""Matrix products from the same register tiles as convolutions.

`Dense` has constant weights, packed ahead. `MatMul` packs its right operand on the fly, one panel
per unit, into a shared buffer, and then multiplies; both sides may be transposed, and a batch of
matrices is a batch of images.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu.emit import Func, Int
from loadrun.backends.cpu.kernels import common, micro
from loadrun.backends.cpu.kernels.common import IDENTITY, Epilogue
from loadrun.backends.cpu.kernels.conv import pack_panels
from loadrun.backends.cpu.kernels.relayout import transpose
from loadrun.backends.cpu.kernels.tiled import Choice, Grid, Tiled, Walk
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target
from loadrun.backends.cpu.ways import DEFAULT, Way


def _tiles(m: int, vectors: int, threads: int, target: Target, way: Way) -> tuple[int, int]:
    """Output vectors and rows of a tile."""
    if way.vectors:
        nb = min(vectors, way.vectors if m == 1 else min(way.vectors, 4))
        return nb, 1 if m == 1 else min(m, target.tile(nb))
    if m == 1:
        # Long stretches of weights suit the processor's own prefetching: 8 vectors 64 us, 4 with
        # explicit prefetching 83 us (1280 x 1000 on Zen 5).
        return next((c for c in (8, 4, 3, 2) if vectors >= c * 2 * threads), 1), 1
    nb = min(vectors, 2)
    if m <= target.tile(min(vectors, 4)):
        nb = min(vectors, 4)
    return nb, min(m, target.tile(nb))


class Dense:
    """(m, k) times constant (k, n); all matrices contiguous float32.

    Argument table: 0 left matrix, 1 packed weights, 2 bias, 3 output, 4 operand, 5 taps.
    """

    def __init__(
        self,
        m: int,
        k: int,
        n: int,
        epilogue: Epilogue,
        target: Target,
        *,
        threads: int = 1,
        way: Way = DEFAULT,
    ) -> None:
        """Choose tiles and generate the code."""
        self.target, self.n, self.k = target, n, k
        self.depth = math.gcd(k, micro.MAX_DEPTH)
        self.taps: Array = np.arange(0, k, self.depth, dtype=np.int32).reshape(1, -1) * 4
        vectors = -(-n // target.lanes)
        nb, width = _tiles(m, vectors, threads, target, way)
        grid = _grid(1, m, k, n, width, self.depth, target, bias=True)
        heavy = way.order == "panels" if way.order else 4 * n >= m
        choice = _choice(grid, nb, width, heavy=heavy)
        self.tiled = Tiled(f"dense_f32{epilogue.tag()}", grid, choice, epilogue, target)
        self.kernel: Kernel = self.tiled.kernel
        self.packed_bytes = self.tiled.group_bytes

    def pack(self, weights: Array, out: Array) -> None:
        """Write (k, n) in the order the kernel reads."""
        lanes = self.target.lanes
        columns = -(-self.n // lanes) * lanes
        pack_panels(weights[None], self.tiled.choice.nb * lanes, out, columns=columns)


def _grid(
    batch: int, m: int, k: int, n: int, width: int, depth: int, target: Target, *, bias: bool
) -> Grid:
    vb = target.vector_bytes
    vectors = -(-n // target.lanes)
    out = Walk(0, m * n * 4, width * n * 4, n * 4, vb)
    return Grid(
        images=batch,
        rows=m // width,
        cols=width,
        vectors=vectors,
        taps=k // depth,
        depth=depth,
        x=Walk(0, m * k * 4, width * k * 4, k * 4),
        y=out,
        res=out,
        last=m % width,
        tail=n % target.lanes,
        aligned=False,
        weight_image=0 if bias else k * vectors * vb,
        bias=bias,
    )


def _choice(grid: Grid, nb: int, width: int, *, heavy: bool) -> Choice:
    row_tiles = grid.rows + (1 if grid.last else 0)
    chunk = row_tiles if heavy else min(4, row_tiles)
    single = grid.images * (grid.rows * grid.cols + grid.last) == 1
    return Choice(nb, width, 1, chunk, heavy, fetch=heavy and not grid.weight_image and not single)


class MatMul:
    """A batch of (m, k) times (k, n), neither constant, contiguous float32.

    A transposed left operand must be copied by the caller; a transposed right one, (n, k), is
    packed from its transpose. The packing kernel's table is 0 right operand, 1 packed; the
    product's is Dense's, with bias unused.
    """

    def __init__(
        self,
        batch: int,
        m: int,
        k: int,
        n: int,
        target: Target,
        *,
        transposed: bool,
        threads: int = 1,
        epilogue: Epilogue = IDENTITY,
        way: Way = DEFAULT,
    ) -> None:
        """Choose tiles and generate the code."""
        self.target = target
        self.depth = math.gcd(k, micro.MAX_DEPTH)
        self.taps: Array = np.arange(0, k, self.depth, dtype=np.int32).reshape(1, -1) * 4
        vectors = -(-n // target.lanes)
        nb, width = _tiles(m, vectors, threads, target, way)
        grid = _grid(batch, m, k, n, width, self.depth, target, bias=False)
        choice = _choice(grid, nb, width, heavy=False)
        self.tiled = Tiled("matmul_f32", grid, choice, epilogue, target)
        self.kernel: Kernel = self.tiled.kernel
        self.packed_bytes = batch * self.tiled.group_bytes
        self.pack_kernel: Kernel = self._packing(batch, k, n, vectors, transposed)

    def _packing(self, batch: int, k: int, n: int, vectors: int, transposed: bool) -> Kernel:
        """Units: (image, output vector)."""
        t, lanes = self.target, self.target.lanes
        nb, vb = self.tiled.choice.nb, t.vector_bytes
        f = common.entry("", t)
        p = [f.load_ptr("%args", j) for j in range(2)]
        with f.loop("%begin", "%end") as unit:
            image, vector = f.div(unit.i, vectors), f.mod(unit.i, vectors)
            source = f.gep(p[0], f.mul(image, 4 * k * n))
            panel, inside = f.div(vector, nb), f.mod(vector, nb)
            wide = f.min(f.sub(vectors, f.mul(panel, nb)), nb) if vectors % nb else nb
            to = f.gep(p[1], f.mul(image, k * vectors * vb))
            to = f.gep(to, f.add(f.mul(panel, k * nb * vb), f.mul(inside, vb)))
            step = f.mul(wide, vb)
            first = f.mul(vector, lanes)
            left = f.sub(n, first)
            if transposed:
                self._columns(f, f.gep(source, f.mul(first, 4 * k)), to, step, k, left, n)
            else:
                mask = f.first_lanes(left) if n % lanes else ""
                base = f.gep(source, f.mul(first, 4))
                with f.loop(0, k) as row:
                    at = f.mul(row.i, 4 * n)
                    v = f.load_masked(base, at, mask) if mask else f.load(base, at, align=4)
                    f.store(v, to, f.mul(row.i, step))
        kind = "t" if transposed else "n"
        return common.finish(f"matmul_pack_{kind}_f32", [f], [(f, batch * vectors)])

    def _columns(self, f: Func, source: str, to: str, step: Int, k: int, left: Int, n: int) -> None:
        """`lanes` rows of the transposed operand become one vector per step of k."""
        lanes = f.lanes
        # Rows beyond the matrix repeat its last one; their lanes are never stored in the result.
        at = [
            f.mul(f.min(j, f.sub(left, 1)), 4 * k) if n % lanes else 4 * k * j for j in range(lanes)
        ]
        rows = [f.gep(source, a) for a in at]

        def square(first: Int, count: int) -> None:
            mask = f.first_lanes(count) if count < lanes else ""
            offset = f.mul(first, 4)
            loaded = [
                f.load_masked(r, offset, mask) if mask else f.load(r, offset, align=4) for r in rows
            ]
            for j, v in enumerate(transpose(f, loaded)[:count]):
                f.store(v, to, f.mul(f.add(first, j), step))

        if k // lanes:
            with f.loop(0, k // lanes) as i:
                square(f.mul(i.i, lanes), lanes)
        if k % lanes:
            square(k // lanes * lanes, k % lanes)
