"""Ways to compute a convolution or a product of matrices, and which are candidates for a node.

`candidates` is the one place that knows them. The first is what is taken without measuring; a
measurement may take any other, since all of them give a result that is right.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from loadrun.backends.cuda import nodes as nd

__all__ = [
    "Algorithm",
    "Choice",
    "Target",
    "Tile",
    "candidates",
    "inner_size",
    "pixels",
    "signature",
]

# Blocks that a large GPU runs at once; fewer leave parts of it idle.
_ENOUGH = 132
_SPLIT_DEPTH = 256  # least inner size of a part
_MOST_SPLITS = 32
# Products of this many multiplications and more go to the vendor's library where one can.
_LIBRARY = 1 << 21


class Algorithm(enum.Enum):
    """How the sums are computed."""

    DIRECT = "direct"  # an output element a thread
    GEMM = "gemm"  # tiles of any element type
    LIBRARY = "library"  # the vendor's product of matrices


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: `bm` rows (channels) by `bn` columns (pixels), `bk` deep at a time.

    Attributes:
        bm, bn, bk: Of a block.
        tm, tn: Of a thread, or of a group of `lanes` threads.
        lanes: 1, or 32 where a warp computes together.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    lanes: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.bm // self.tm * (self.bn // self.tn) * self.lanes


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to compute a node.

    Attributes:
        algorithm: Which kernel.
        tile: Its tile; None where it has none.
        splits: Parts of the inner dimension that blocks of their own sum up.
    """

    algorithm: Algorithm
    tile: Tile | None = None
    splits: int = 1

    def __str__(self) -> str:
        """As policy files and reports name it: `gemm 64x64x16 split 4`."""
        text = self.algorithm.value
        if self.tile is not None:
            text += f" {self.tile.bm}x{self.tile.bn}x{self.tile.bk}"
        return f"{text} split {self.splits}" if self.splits > 1 else text


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan is made for.

    Attributes:
        capability: The device's compute capability, as (8, 0); None: unknown or none.
        tf32: Whether float32 factors may be rounded to TF32's 10 bits.
    """

    capability: tuple[int, int] | None = None
    tf32: bool = False


_TILES = {
    Algorithm.GEMM: (
        Tile(128, 128, 8, 8, 8),
        Tile(64, 64, 16, 4, 4),
        Tile(32, 64, 16, 4, 4),
    )
}


def pixels(node: nd.Conv) -> int:
    """Columns of the product: output pixels of all images."""
    return node.batch * math.prod(node.out)


def inner_size(node: nd.Conv) -> int:
    """Products in a sum."""
    return node.depth * math.prod(node.kernel)


def signature(node: nd.Conv, net: nd.Network) -> str:
    """What a measured choice may depend on: types, sizes, strides; equal for equal layers."""
    types = [net.tensors[n].ctype for n in (node.x, node.w, node.outputs[0])]
    sizes = (
        (node.batch, node.groups, node.outputs_each, node.depth), node.size, node.out,
        node.kernel, node.stride, node.pad, node.dilate,
        node.x_strides, node.w_strides, node.y_strides,
    )  # fmt: skip
    numbers = " ".join("x".join(map(str, part)) for part in sizes)
    extras = f" +{len(node.extras)}" if node.extras else ""
    return f"{node.label} {','.join(types)} {numbers}{extras}"


def candidates(node: nd.Conv, net: nd.Network, target: Target) -> tuple[Choice, ...]:
    """All ways to compute a node on a target, the one that is taken unmeasured first."""
    found: list[Choice] = []
    if node.gemm is not None:
        g = node.gemm
        if g.batch * g.m * g.n * g.k >= _LIBRARY:
            found.append(Choice(Algorithm.LIBRARY))
    if _only_direct(node):
        return (Choice(Algorithm.DIRECT),)
    if _few_channels(node):
        found.append(Choice(Algorithm.DIRECT))
    found += _tiled(node, Algorithm.GEMM)
    return tuple(dict.fromkeys(found))


def _only_direct(node: nd.Conv) -> bool:
    """Whether groups begin within a block of channels, which tiles cannot reach."""
    return node.groups > 1 and bool(node.outputs_each % node.y_lanes or node.depth % node.x_lanes)


def _few_channels(node: nd.Conv) -> bool:
    few = min(node.outputs_each, inner_size(node)) < 8
    return node.groups > 1 and node.label != "matmul" and (few or node.depth < 4)


def _tiled(node: nd.Conv, algorithm: Algorithm) -> list[Choice]:
    """Choices of a tiled kernel: the best guess, then the other tiles, then other splits."""
    tiles = _TILES[algorithm]
    best = _best_tile(node, tiles)
    order = [best, *(t for t in tiles if t is not best)]
    guessed = [Choice(algorithm, t, _splits(node, t)) for t in order]
    deep = [
        Choice(algorithm, best, s)
        for s in (1, guessed[0].splits // 2, guessed[0].splits * 2)
        if 0 < s <= _most_splits(node)
    ]
    return [*guessed, *deep]


def _blocks(node: nd.Conv, tile: Tile) -> int:
    return -(-node.outputs_each // tile.bm) * -(-pixels(node) // tile.bn) * node.groups


def _best_tile(node: nd.Conv, tiles: tuple[Tile, ...]) -> Tile:
    large, middle, small = tiles[:3]
    if node.outputs_each <= 32:
        return small
    if node.outputs_each > 64 and _blocks(node, large) >= _ENOUGH:
        return large
    return middle


def _most_splits(node: nd.Conv) -> int:
    return max(1, min(inner_size(node) // _SPLIT_DEPTH, _MOST_SPLITS))


def _splits(node: nd.Conv, tile: Tile) -> int:
    blocks = _blocks(node, tile)
    if blocks * 2 > _ENOUGH:
        return 1
    return min(-(-_ENOUGH // blocks), _most_splits(node))
