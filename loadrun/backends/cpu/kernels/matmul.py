"""Products of a row-major matrix with constant weights, from the same register tiles.

Argument table: 0 left matrix (m, k), 1 packed weights, 2 bias, 3 output (m, n), 4 operand, 5 taps.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu.kernels import micro
from loadrun.backends.cpu.kernels.common import Epilogue
from loadrun.backends.cpu.kernels.conv import pack_panels
from loadrun.backends.cpu.kernels.tiled import Choice, Grid, Tiled, Walk
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target


class Dense:
    """(m, k) times (k, n): rows of the left matrix are the tile's pixels."""

    def __init__(
        self, m: int, k: int, n: int, epilogue: Epilogue, target: Target, *, threads: int = 1
    ) -> None:
        """Choose tiles and generate the code; all matrices are contiguous float32."""
        lanes, vb = target.lanes, target.vector_bytes
        self.target, self.n, self.k = target, n, k
        vectors = -(-n // lanes)
        if m == 1:
            nb = next((c for c in (4, 3, 2) if vectors >= c * 2 * threads), 1)
        else:
            nb = min(vectors, 2)
        most = target.tile(nb)
        width = min(m, most)
        self.depth = math.gcd(k, micro.MAX_DEPTH)
        self.taps: Array = np.arange(0, k, self.depth, dtype=np.int32).reshape(1, -1) * 4
        grid = Grid(
            images=1,
            rows=m // width,
            cols=width,
            vectors=vectors,
            taps=self.taps.shape[1],
            depth=self.depth,
            x=Walk(0, 0, width * k * 4, k * 4),
            y=Walk(0, 0, width * n * 4, n * 4, vb),
            res=Walk(0, 0, width * n * 4, n * 4, vb),
            last=m % width,
            tail=n % lanes,
            aligned=False,
        )
        row_tiles = grid.rows + (1 if grid.last else 0)
        panels_first = 4 * k * n * 4 >= m * k * 4
        chunk = row_tiles if panels_first else min(4, row_tiles)
        choice = Choice(nb, width, 1, chunk, panels_first, fetch=panels_first)
        self.tiled = Tiled(f"dense_f32{epilogue.tag()}", grid, choice, epilogue, target)
        self.kernel: Kernel = self.tiled.kernel
        self.packed_bytes = self.tiled.group_bytes

    def pack(self, weights: Array) -> Array:
        """(k, n) in the order the kernel reads."""
        lanes = self.target.lanes
        grown = np.zeros((1, self.k, -(-self.n // lanes) * lanes), np.float32)
        grown[0, :, : self.n] = weights
        return pack_panels(grown, self.tiled.choice.nb * lanes)
