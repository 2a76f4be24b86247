"""Ways to compute a convolution or a product of matrices, and which are candidates for a node.

`candidates` is the one place that knows them. The first is what is taken without measuring; a
measurement may take any other, since all of them give a result that is right.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.plan import Convolution, Engine

__all__ = [
    "DEPTHWISE_ROWS",
    "WINOGRAD_POINTS",
    "Algorithm",
    "Choice",
    "Target",
    "Tile",
    "candidates",
    "chunk_elements",
    "depthwise_items",
    "inner_size",
    "pixels",
    "signature",
    "tensor_kind",
    "winograd_tiles",
]

# Multiprocessors of a large GPU; fewer blocks leave parts of it idle.
_ENOUGH = 132
_MANY_THREADS = 512  # threads that hide the time of a load
# Cycles: of a slice at least, of what a block does before and after, of one more launch.
_SLICE, _BLOCK, _LAUNCH = 450.0, 1500.0, 3000.0
_BYTES = 3000.0  # that the second cache gives in a cycle
DEPTHWISE_ROWS = 4  # rows that a thread computes
_SPLIT_DEPTH = 64  # least inner size of a part
_MOST_SPLITS = 32
# Products of this many multiplications and more go to the vendor's library where one can.
_LIBRARY = 1 << 21
# Products from which on three launches of Winograd's algorithm are faster than one.
_WINOGRAD = 1 << 28
_MOST_VALUES = 1 << 26  # float32 between its launches
WINOGRAD_POINTS = 36  # values of a tile


class Algorithm(enum.Enum):
    """How the sums are computed."""

    DIRECT = "direct"  # an output element a thread
    DEPTHWISE = "depthwise"  # some rows of a column a thread, of groups of one channel
    GEMM = "gemm"  # tiles of any element type
    SCALAR = "tile"  # tiles of float32, copied while others are multiplied
    TENSOR = "mma"  # the same on tensor cores
    WINOGRAD = "winograd"  # 3x3 windows by tiles of 4 x 4 pixels, multiplied as SCALAR
    LIBRARY = "library"  # the vendor's product of matrices
    CUDNN = "cudnn"  # the vendor's convolution


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
        spec, engine: What the vendor's library is asked for, and how it does it; None: it is not.
        fused: Whether what follows the sums is part of its call.
    """

    algorithm: Algorithm
    tile: Tile | None = None
    splits: int = 1
    spec: Convolution | None = None
    engine: Engine | None = None
    fused: bool = True

    def __str__(self) -> str:
        """As policy files and reports name it: `gemm 64x64x16 split 4`."""
        text = self.algorithm.value
        if self.tile is not None:
            text += f" {self.tile.bm}x{self.tile.bn}x{self.tile.bk}"
        if self.engine is not None:
            text += f" {'' if self.fused else 'sums '}{self.engine.name}"
        return f"{text} split {self.splits}" if self.splits > 1 else text


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan is made for.

    Attributes:
        capability: The device's compute capability, as (8, 0); None: unknown or none.
        tf32: Whether float32 factors may be rounded to TF32's 10 bits.
        library: Whether the vendor's products of matrices are there.
        engines: Gives the ways of the vendor's library to compute a convolution; None: it is not
            to be asked.
    """

    capability: tuple[int, int] | None = None
    tf32: bool = False
    library: bool = True
    engines: Callable[[Convolution], tuple[Engine, ...]] | None = None


# Tensor cores whose shapes and copies `tile.cu` uses.
_TENSOR_CORES = (8, 0)
_PLAIN = (Tile(128, 128, 8, 8, 8), Tile(64, 64, 16, 4, 4), Tile(32, 64, 16, 4, 4))
_SCALAR = (
    Tile(128, 128, 16, 8, 8),
    Tile(64, 64, 16, 8, 4),
    Tile(32, 64, 16, 4, 4),
    Tile(128, 64, 16, 8, 8),
    Tile(64, 128, 16, 8, 8),
    Tile(64, 32, 16, 4, 4),
    Tile(32, 32, 16, 4, 2),
)
# Depths in bytes: a tile is as deep as its element type makes it.
_TENSOR = (
    Tile(128, 128, 64, 64, 32, 32),
    Tile(64, 64, 64, 32, 32, 32),
    Tile(32, 64, 64, 16, 32, 32),
    Tile(128, 64, 64, 64, 32, 32),
    Tile(64, 128, 64, 32, 64, 32),
    Tile(64, 64, 128, 32, 32, 32),
    Tile(64, 32, 64, 32, 16, 32),
    Tile(32, 32, 64, 16, 16, 32),
)
_KINDS = {"f16": "Halves", "bf16": "Bfloats", "f32": "Tf32"}


def chunk_elements(node: nd.Conv, net: nd.Network) -> int:
    """Elements of the operands in 16 bytes."""
    return 16 // np.dtype(net.tensors[node.x].dtype).itemsize


def tensor_kind(node: nd.Conv, net: nd.Network) -> str | None:
    """The kind of products that tensor cores form of a node's types; None: they cannot."""
    left, right = (net.tensors[n].ctype for n in (node.w, node.x))
    if node.accumulator == "int":
        return f"Bytes<{left}, {right}>" if {left, right} <= {"i8", "u8"} else None
    return _KINDS.get(left) if left == right else None


def _tiles(node: nd.Conv, net: nd.Network, algorithm: Algorithm) -> tuple[Tile, ...]:
    if algorithm is Algorithm.TENSOR:
        size = 16 // chunk_elements(node, net)
        return tuple(replace(t, bk=t.bk // size) for t in _TENSOR)
    return _SCALAR if algorithm is Algorithm.SCALAR else _PLAIN


def pixels(node: nd.Conv) -> int:
    """Columns of the product: output pixels of all images."""
    return node.batch * math.prod(node.out)


def inner_size(node: nd.Conv) -> int:
    """Products in a sum."""
    return node.depth * math.prod(node.kernel)


def signature(node: nd.Conv, net: nd.Network) -> str:
    """What a measured choice may depend on: types, sizes, strides, and what follows the sums."""
    types = [net.tensors[n].ctype for n in (node.x, node.w, node.outputs[0])]
    sizes = (
        (node.batch, node.groups, node.outputs_each, node.depth), node.size, node.out,
        node.kernel, node.stride, node.pad, node.dilate,
        node.x_strides, node.w_strides, node.y_strides,
    )  # fmt: skip
    numbers = " ".join("x".join(map(str, part)) for part in sizes)
    extras = f" +{len(node.extras)}" if node.extras else ""
    after = "".join(op.code for op in node.expr.ops)
    if after:
        extras += f" then {zlib.crc32(after.encode()):08x}"
    return f"{node.label} {','.join(types)} {numbers}{extras}"


def candidates(node: nd.Conv, net: nd.Network, target: Target) -> tuple[Choice, ...]:
    """All ways to compute a node on a target, the one that is taken unmeasured first."""
    if _only_direct(node):
        return tuple(_by_element(node))
    found: list[Choice] = []
    kind = tensor_kind(node, net)
    tensor = kind is not None and _has_tensor_cores(kind, target)
    if node.gemm is not None and target.library and not tensor:
        g = node.gemm
        if g.batch * g.m * g.n * g.k >= _LIBRARY:
            found.append(Choice(Algorithm.LIBRARY))
    if _few_channels(node):
        found += _by_element(node)
    if tensor:
        found += _tiled(node, net, Algorithm.TENSOR)
    if kind == "Tf32":
        found += _winograd(node, net, found, _tiled(node, net, Algorithm.SCALAR))
    else:
        found += _tiled(node, net, Algorithm.GEMM)
    return tuple(dict.fromkeys(found))


def winograd_tiles(node: nd.Conv) -> tuple[int, int]:
    """Tiles of 4 x 4 pixels of an image, down and across."""
    _, h, w = node.out
    return -(-h // 4), -(-w // 4)


def _winograd(
    node: nd.Conv, net: nd.Network, before: list[Choice], tiled: list[Choice]
) -> list[Choice]:
    """Choices with Winograd's algorithm among them: first where it saves much, else at the end."""
    one, m, c = (1, 1, 1), node.outputs_each, node.depth
    window = (node.kernel, node.stride, node.dilate) == ((1, 3, 3), one, one)
    flat = (node.groups, node.size[0], node.out[0], node.pad[0]) == (1, 1, 1, 0)
    plain = node.x_lanes == node.y_lanes == 1 and not node.transposed
    packed = node.w in net.consts and node.w_strides[1] == 1
    tiles = node.batch * math.prod(winograd_tiles(node))
    memory = WINOGRAD_POINTS * (c + m) * tiles
    if not (window and flat and plain and packed and min(c, m) >= 16 and memory <= _MOST_VALUES):
        return tiled
    found = [Choice(Algorithm.WINOGRAD, t) for t in (_SCALAR[0], _SCALAR[1])]
    if m <= 64 or -(-m // 128) * -(-tiles // 128) * WINOGRAD_POINTS < _ENOUGH:
        found.reverse()
    saves = WINOGRAD_POINTS * c * m * tiles >= _WINOGRAD and min(c, m) >= 32
    return [*found, *tiled] if saves and not before else [*tiled, *found]


def _has_tensor_cores(kind: str, target: Target) -> bool:
    if target.capability is None or target.capability < _TENSOR_CORES:
        return False
    return target.tf32 or kind != "Tf32"


def _only_direct(node: nd.Conv) -> bool:
    """Whether groups begin within a block of channels, which tiles cannot reach."""
    return node.groups > 1 and bool(node.outputs_each % node.y_lanes or node.depth % node.x_lanes)


def depthwise_items(node: nd.Conv) -> tuple[int, int]:
    """Threads of a depthwise launch, and how many of them share a column of an image."""
    _, h, w = node.out
    strips = -(-h // DEPTHWISE_ROWS)
    return node.batch * node.groups * strips * w, strips


def _by_element(node: nd.Conv) -> list[Choice]:
    direct, rows = Choice(Algorithm.DIRECT), Choice(Algorithm.DEPTHWISE)
    flat = (node.size[0], node.out[0], node.kernel[0], node.pad[0]) == (1, 1, 1, 0)
    single = node.depth == node.outputs_each == 1 and not node.transposed
    window = math.prod(node.kernel) <= 49 and node.stride[1] <= 2 and node.dilate[1] <= 2
    if not (flat and single and window):
        return [direct]
    busy = depthwise_items(node)[0] >= _ENOUGH * _MANY_THREADS
    return [rows, direct] if busy else [direct, rows]


def _few_channels(node: nd.Conv) -> bool:
    few = min(node.outputs_each, inner_size(node)) < 8
    return node.groups > 1 and node.label != "matmul" and (few or node.depth < 4)


def _tiled(node: nd.Conv, net: nd.Network, algorithm: Algorithm) -> list[Choice]:
    """Choices of a tiled kernel, by the cost model: all tiles, then other splits of the best."""
    size = 16 // chunk_elements(node, net)

    def cost(choice: Choice) -> float:
        return _cycles(node, choice, size)

    found = [
        min((Choice(algorithm, tile, n) for n in _splits(node, tile)), key=cost)
        for tile in _tiles(node, net, algorithm)
    ]
    found.sort(key=cost)
    best = found[0]
    others = [n for n in (1, best.splits // 2, best.splits * 2) if 0 < n <= _MOST_SPLITS]
    return [*found, *(Choice(algorithm, best.tile, n) for n in others)]


def _rate(algorithm: Algorithm, tile: Tile, size: int) -> float:
    """Products that a multiprocessor forms in a cycle, with all that is done for them.

    Shared memory gives a warp 16 bytes a thread in 4 cycles: small tiles wait for it.
    """
    if algorithm is Algorithm.TENSOR:
        rows, columns = tile.tm // 16, tile.tn // 8
        full = {2: 700.0, 4: 400.0}.get(size, 1400.0)
        return full * min(1.0, rows * columns / (2 * rows + columns))
    rate = min(105.0, 32.0 * tile.tm * tile.tn / (tile.tm + tile.tn))
    return rate if algorithm is Algorithm.SCALAR else rate * 0.7


def _splits(node: nd.Conv, tile: Tile) -> list[int]:
    """Numbers of parts of the sum that are worth a thought."""
    most = max(1, min(inner_size(node) // _SPLIT_DEPTH, _MOST_SPLITS))
    return [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n <= most]


def _cycles(node: nd.Conv, choice: Choice, size: int) -> float:
    """Estimated time on a large GPU, in cycles: the busiest multiprocessor's, and the memory's.

    The constants are estimates from instruction counts and published latencies, not measured;
    `--fast-run` measures.
    """
    tile, splits = choice.tile, choice.splits
    assert tile is not None
    depth = -(-inner_size(node) // splits)
    slices = -(-depth // tile.bk)
    blocks = _blocks(node, tile) * splits
    share = -(-blocks // _ENOUGH)
    resident = max(1, _MANY_THREADS // tile.threads)
    rounds = -(-share // resident)
    warps = min(share, resident) * tile.threads / 32
    work = tile.bm * tile.bn * tile.bk / _rate(choice.algorithm, tile, size)
    work *= (warps + 2) / warps  # few warps wait for each other's results
    busy = slices * max(share * work, rounds * _SLICE) + rounds * _BLOCK
    read = blocks * slices * (tile.bm + tile.bn) * tile.bk * size / _BYTES
    sums = node.groups * node.outputs_each * pixels(node)
    finish = _LAUNCH + 8.0 * splits * sums / _BYTES if splits > 1 else 0.0
    return max(busy, read) + finish


def _blocks(node: nd.Conv, tile: Tile) -> int:
    return -(-node.outputs_each // tile.bm) * -(-pixels(node) // tile.bn) * node.groups
