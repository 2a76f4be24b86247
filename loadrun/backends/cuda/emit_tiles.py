"""Launches of `tile.cu`: operands multiplied as they are stored, scalar or on tensor cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.variants import (
    Algorithm,
    Choice,
    Tile,
    chunk_elements,
    inner_size,
    tensor_kind,
)

__all__ = ["Maker", "is_uniform", "places", "round_to_tf32", "tile_fields", "weights"]

_CHUNK = 16  # bytes that are copied at once
_SHARED = 48 << 10  # shared memory of a block that needs no asking, bytes
_MOST_STAGES = 3
# Finds the element of a place in the sum in the table `places`.
_FIND = """const run<int, 2> found = places[k];
    where = locate(j, found.v[1] >> 20, found.v[1] >> 10 & 1023, found.v[1] & 1023);
    from = where + found.v[0];"""


class Maker(Protocol):
    """What makes buffers while a plan is drafted."""

    def scratch(self, name: str, count: int) -> str:
        """A buffer of so many float32 or int32."""
        ...

    def constant(self, name: str, array: Array) -> str:
        """A constant; equal ones of a name are one."""
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """The left operand: a tensor, and its strides of group, row and place.

    `copied`: its rows can be copied in chunks; `prepared`: its elements are as they are multiplied.
    """

    name: str
    strides: tuple[int, int, int]
    copied: bool
    prepared: bool


def weights(node: nd.Conv, net: nd.Network, maker: Maker, choice: Choice) -> Weights:
    """The left operand of a tile kernel.

    Constants are turned round, rows filled up to chunks, and rounded where they are to be TF32.
    """
    wg, wo, wk = node.w_strides
    k, m = inner_size(node), node.outputs_each
    chunk = chunk_elements(node, net)
    array = net.consts.get(node.w)
    if array is None or (wg, wo, wk) != (k * m, 1, m):
        aligned = wk == 1 and not any(n % chunk for n in (k, wo, wg if node.groups > 1 else 0))
        return Weights(node.w, node.w_strides, aligned, not aligned)
    width = -(-k // chunk) * chunk
    turned = np.zeros((node.groups, m, width), array.dtype)
    turned[:, :, :k] = array.reshape(node.groups, k, m).swapaxes(1, 2)
    name = f"{node.w}:rows{chunk}"
    if choice.algorithm is Algorithm.TENSOR and tensor_kind(node, net) == "Tf32":
        turned, name = round_to_tf32(turned), f"{name}:tf32"
    return Weights(maker.constant(name, turned), (m * width, width, 1), True, True)


def round_to_tf32(array: Array) -> Array:
    """Float32 rounded to 10 bits of fraction, ties away from zero."""
    bits = array.view(np.uint32)
    return np.where(np.isfinite(array), (bits + 0x1000 & ~np.uint32(0x1FFF)), bits).view(np.float32)


def _run(node: nd.Conv, chunk: int) -> int:
    """Elements of the right operand that lie next to each other along the sum, aligned."""
    taps = math.prod(node.kernel)
    xn, xg, xc, *rest = node.x_strides
    if taps > 1 and not node.taps_first:
        return 1
    steps = [s for s, n in zip(rest, node.size, strict=True) if n > 1]
    steps += [xn] if node.batch > 1 else []
    steps += [xg] if node.groups > 1 else []
    if node.x_lanes > 1:
        steps += [node.x_lanes, xc]
    elif xc != 1:
        return 1
    fits = math.gcd(chunk, node.depth, *steps)
    return fits & -fits


def _span(node: nd.Conv, tile: Tile, chunk: int) -> int:
    """Neighbouring pixels that are loaded at once: of windows of one place on whole images."""
    sizes, strides = node.size, node.x_strides
    if math.prod(node.kernel) > 1 or node.out != sizes or any(node.pad) or strides[5] != 1:
        return 1
    steps = [s for s in node.stride if s != 1]
    rows = nd.contiguous(sizes)
    if steps or any(s != r for s, r, n in zip(strides[3:], rows, sizes, strict=True) if n > 1):
        return 1
    image = math.prod(sizes)
    own = tile.bn * (tile.bk // chunk) // tile.threads
    others = [strides[2], *([strides[0]] if node.batch > 1 else [])]
    others += [strides[1]] if node.groups > 1 else []
    return math.gcd(image, own, chunk, *others)


def _is_dense(node: nd.Conv) -> bool:
    """Whether the pixels of an image of the result are equally far from each other."""
    *_, yw = node.y_strides
    rows = nd.contiguous(node.out)
    return all(
        s == r * yw for s, r, n in zip(node.y_strides[3:], rows, node.out, strict=True) if n > 1
    )


def is_uniform(node: nd.Conv, tile: Tile) -> bool:
    """Whether a slice of the sum is of one place of the window."""
    return math.prod(node.kernel) == 1 or (node.taps_first and node.depth % tile.bk == 0)


def places(node: nd.Conv, tile: Tile) -> Array:
    """For each place in the sum, filled up to slices: the channel's offset in x, and the tap.

    A tap is d, h, w in 10 bits each.
    """
    _, kh, kw = node.kernel
    taps, size = math.prod(node.kernel), inner_size(node)
    k = np.minimum(np.arange(-(-size // tile.bk) * tile.bk), size - 1)
    c, t = (k % node.depth, k // node.depth) if node.taps_first else (k // taps, k % taps)
    offsets = c // node.x_lanes * node.x_strides[2] + c % node.x_lanes
    packed = t // (kh * kw) << 20 | t // kw % kh << 10 | t % kw
    return np.stack([offsets, packed], 1).astype(np.int32)


def _stages(tile: Tile, size: int) -> int:
    """Slices that shared memory holds."""
    per_slice = (tile.bm + tile.bn) * tile.bk * size
    return max(2, min(_MOST_STAGES, _SHARED // per_slice))


def tile_fields(node: nd.Conv, net: nd.Network, choice: Choice, left: Weights) -> dict[str, object]:
    """Values of the placeholders of `tile.cu` that the other kernels have not."""
    tile = choice.tile
    assert tile is not None
    chunk = chunk_elements(node, net)
    size = _CHUNK // chunk
    k = inner_size(node)
    depth = tile.bk // chunk
    uniform = is_uniform(node, tile)
    run = _run(node, chunk)
    shape = (tile.bm, tile.bn, depth, tile.tm, tile.tn)
    codes = node.accumulator == "int"
    zeros = (codes and node.x_zero != 0, codes and node.w_zero != 0)
    prepare, engine = "", f"Scalar<{_list(shape)}>"
    if choice.algorithm is Algorithm.TENSOR:
        kind = tensor_kind(node, net)
        prepare = "as_tf32" if kind == "Tf32" else ""
        flags = (not left.prepared, run == chunk, *zeros)
        engine = f"Tensor<{kind}, {_list(shape)}, {_list([int(f) for f in flags])}>"
    return {
        "BM": tile.bm, "BN": tile.bn, "CH": depth, "THREADS": tile.threads,
        "STAGES": _stages(tile, size), "ENGINE": engine,
        "RUN": run, "SPAN": _span(node, tile, chunk) if run == 1 else 1,
        "WCOPY": int(left.copied), "WHOLE": int(k % tile.bk == 0), "UNIFORM": int(uniform),
        "PLACES": "" if uniform else "const run<int, 2> *__restrict__ places,",
        "FIND": "" if uniform else _FIND, "ZX": int(zeros[0]), "PREPARE": prepare,
        "DENSE": int(_is_dense(node)), "SINGLE": int(node.batch == 1),
        "FLAT": int((node.size[0], node.out[0], node.kernel[0], node.pad[0]) == (1, 1, 1, 0)),
    }  # fmt: skip


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
