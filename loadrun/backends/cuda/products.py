"""Nodes that are also plain products of matrices, which the vendor's library can compute.

Products themselves, and 1x1 convolutions of images whose channels come before their pixels: there
one matrix of weights is multiplied by every image.
"""

from __future__ import annotations

import math
from dataclasses import replace

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.plan import Gemm
from loadrun.backends.cuda.variants import Algorithm, Choice, Target, inner_size

__all__ = ["as_product", "choices", "product_of"]

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_ONES = ((1, 1, 1),) * 3
# Less is not worth a call and a kernel for what follows it.
_LEAST = 1 << 16


def product_of(node: nd.Conv, net: nd.Network) -> Gemm | None:
    """The product of matrices that a node is; None where it is none."""
    dtype = _DTYPES.get(net.tensors[node.x].ctype)
    if node.accumulator != "float" or dtype is None or not _is_flat(node):
        return None
    if net.tensors[node.w].ctype != net.tensors[node.x].ctype:
        return None
    m, n, k = node.outputs_each, math.prod(node.out), inner_size(node)
    batch = node.batch if node.groups == 1 else node.groups
    which = 0 if node.groups == 1 else 1  # strides of images, or of groups
    left = _turned(node.w_strides[1], node.w_strides[2], (m, k))
    right = _turned(node.x_strides[2], node.x_strides[5], (k, n))
    result = _turned(node.y_strides[2], node.y_strides[5], (m, n))
    if left is None or right is None or result is not False:
        return None
    shared = batch > 1 and (node.groups == 1 or node.w_strides[0] == 0)
    steps = (node.x_strides[which], node.y_strides[which])
    if batch > 1 and (steps != (k * n, m * n) or not (shared or node.w_strides[0] == m * k)):
        return None
    return Gemm(batch, m, n, k, left, right, dtype=dtype, shared_a=shared)


def _is_flat(node: nd.Conv) -> bool:
    """A window of one element, over rows and planes that follow each other without gaps."""
    plain = (node.kernel, node.stride, node.dilate) == _ONES and not any(node.pad)
    return (
        plain
        and not node.transposed
        and node.size == node.out
        and node.x_lanes == node.y_lanes == 1
        and (node.batch == 1 or node.groups == 1)
        and _joined(node.out, node.x_strides[3:])
        and _joined(node.out, node.y_strides[3:])
    )


def _joined(size: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether all pixels are one dimension of the last one's stride."""
    step = strides[-1] if size[-1] > 1 else None
    whole = 1
    for n, stride in zip(reversed(size), reversed(strides), strict=True):
        if n == 1:
            continue
        if step is None or stride != step * whole:
            return False
        whole *= n
    return True


def _turned(row: int, column: int, size: tuple[int, int]) -> bool | None:
    """Whether a matrix is stored by columns; None where it is neither that nor stored by rows."""
    rows, columns = size
    if (column == 1 or columns == 1) and (row == columns or rows == 1):
        return False
    if (row == 1 or rows == 1) and (column == rows or columns == 1):
        return True
    return None


def as_product(node: nd.Conv, net: nd.Network) -> nd.Conv:
    """The node with the product that it is."""
    return node if node.gemm is not None else replace(node, gemm=product_of(node, net))


def choices(
    node: nd.Conv, net: nd.Network, target: Target, found: tuple[Choice, ...]
) -> tuple[Choice, ...]:
    """The library's product, where the node is one and it is no candidate yet."""
    choice = Choice(Algorithm.LIBRARY)
    if not target.library or choice in found:
        return ()
    g = product_of(node, net)
    if g is None or g.batch * g.m * g.n * g.k < _LEAST:
        return ()
    return (choice,)
