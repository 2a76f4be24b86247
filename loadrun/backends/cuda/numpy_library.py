"""What the vendor's libraries compute, by numpy: for the emulated device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loadrun.backends.cuda.plan import Array, Convolution, Gemm, Layout

__all__ = ["Bytes", "convolve", "matrix_product"]

# Memory at an address as bytes.
Bytes = Callable[[int, int], Array]
_FLOAT = np.float32


def matrix_product(spec: Gemm, memory: Bytes, a: int, b: int) -> Array:
    """The products of a batch, float32 and contiguous."""
    batch = 1 if spec.shared_a else spec.batch
    left = _matrix(spec.dtype, memory, a, (batch, spec.m, spec.k), turned=spec.transpose_a)
    right = _matrix(spec.dtype, memory, b, (spec.batch, spec.k, spec.n), turned=spec.transpose_b)
    return np.ascontiguousarray(np.matmul(left, right))


def _matrix(
    dtype: str, memory: Bytes, address: int, shape: tuple[int, int, int], *, turned: bool
) -> Array:
    """Matrices at an address as float32."""
    count = math.prod(shape)
    if dtype == "bfloat16":
        bits = memory(address, 2 * count).view(np.uint16).astype(np.uint32) << np.uint32(16)
        flat: Array = bits.view(_FLOAT)
    else:
        size = np.dtype(dtype).itemsize
        flat = memory(address, size * count).view(dtype).astype(_FLOAT)
    batch, rows, columns = shape
    if turned:
        return flat.reshape(batch, columns, rows).swapaxes(1, 2)
    return flat.reshape(shape)


def convolve(spec: Convolution, memory: Bytes, tensors: Sequence[int]) -> None:
    """Sums in float32, one tap of the window after the other, then what follows them.

    Args:
        spec: What.
        memory: Gives the bytes at an address.
        tensors: Addresses of image, filter, [bias,] [addend,] result.
    """
    places = list(tensors)
    x = _tensor(spec, memory, places.pop(0), spec.x)
    w = _tensor(spec, memory, places.pop(0), spec.w)
    sums = _sums(spec, x.astype(_FLOAT), w.astype(_FLOAT))
    if spec.bias:
        channels = spec.y[0][1]
        bias = _tensor(spec, memory, places.pop(0), ((channels,), (1,)))
        sums += bias.astype(_FLOAT).reshape(channels, *(1,) * (sums.ndim - 2))
    if spec.addend:
        layout = (spec.y[0], spec.addend)
        sums += _tensor(spec, memory, places.pop(0), layout).astype(_FLOAT)
    y = _tensor(spec, memory, places.pop(0), spec.y)
    with np.errstate(all="ignore"):
        y[...] = _ACTIVATE[spec.activation](sums).astype(y.dtype)


def _tensor(spec: Convolution, memory: Bytes, address: int, layout: Layout) -> Array:
    sizes, strides = layout
    dtype = np.dtype(spec.dtype)
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    flat = memory(address, (last + 1) * dtype.itemsize).view(dtype)
    steps = tuple(s * dtype.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat, sizes, steps)


def _sums(spec: Convolution, x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in spec.pad)))
    batch, outputs, *out = spec.y[0]
    groups, depth = spec.groups, w.shape[1]
    images = padded.reshape(batch, groups, depth, *padded.shape[2:])
    filters = w.reshape(groups, outputs // groups, depth, *w.shape[2:])
    total: Array = np.zeros((batch, groups, outputs // groups, *out), _FLOAT)
    for tap in itertools.product(*map(range, w.shape[2:])):
        window = [
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, spec.dilate, spec.stride, out, strict=True)
        ]
        pixels, weights = images[_index(window)], filters[_index(tap)]
        total += np.einsum("ngd...,god->ngo...", pixels, weights, optimize=False)
    return total.reshape(batch, outputs, *out)


def _index(last: Sequence[Any]) -> Any:
    return (..., *last)


def _sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


_ACTIVATE: dict[str, Callable[[Array], Array]] = {
    "": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "silu": lambda v: v * _sigmoid(v),
}
