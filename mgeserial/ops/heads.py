"""Geometry and arithmetic of multi-head attention, forwards and backwards, in float32.

Source: semantics section 11, checked against MegEngine 1.13.0; sizes of the reserves likewise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.errors import UnsupportedError
from mgeserial.ir.types import Shape
from mgeserial.ops.rules import need

__all__ = ["Attention", "Projection", "split_heads"]

Float32 = npt.NDArray[np.float32]


def _words(count: int) -> int:
    return -(-count // 4) * 4


@dataclass(frozen=True, slots=True)
class Projection:
    """One linear map y = x W + b; `size` 0 means there is none and y = x.

    Attributes:
        depth: Size of x's elements.
        size: Size of y's elements, 0 without the map.
        bias: Whether b exists.
    """

    depth: int
    size: int
    bias: bool

    @property
    def weights(self) -> int:
        """Elements of W."""
        return self.depth * self.size

    @property
    def biases(self) -> int:
        """Elements of b."""
        return self.size if self.bias else 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Sizes of one call, checked against its inputs.

    Attributes:
        batch, queries, keys: Batch size and lengths of the two sequences.
        heads: Number of heads.
        maps: Projections of q, k, v and the output, in the order of the flat weights.
        scale: Factor of the scores.
        reslink: Whether q is added to the result.
    """

    batch: int
    queries: int
    keys: int
    heads: int
    maps: tuple[Projection, ...]
    scale: float
    reslink: bool

    @classmethod
    def of(cls, param: Any, q: Shape, k: Shape, v: Shape, weights: int) -> Attention:
        """Sizes for these parameters, input shapes and number of weights.

        Raises:
            ShapeError: They do not fit.
            UnsupportedError: Options that no CPU build of MegEngine runs.
        """
        for name in ("add_zero_attn", "input_order"):
            if getattr(param, name):
                raise UnsupportedError(f"multi-head attention with {name} is not supported")
        need(len(q) == len(k) == len(v) == 3, f"q, k and v must be (n, s, e), got {q}, {k}, {v}")
        need(
            q[0] == k[0] == v[0] and k[1] == v[1],
            f"batches of q, k, v and lengths of k, v must agree, got {q}, {k}, {v}",
        )
        sizes = (param.embeding_size, param.k_size, param.v_size)
        found = (q[2], k[2], v[2])
        need(sizes == found, f"sizes of q, k, v are {found}, the parameters say {sizes}")
        heads, value = param.num_heads, param.vproj_size
        need(heads > 0, "num_heads must be at least 1")
        maps = (
            Projection(q[2], param.qproj_size, bool(param.qbias and param.qproj_size)),
            Projection(k[2], param.kproj_size, bool(param.kbias and param.kproj_size)),
            Projection(v[2], value, bool(param.vbias and value)),
            Projection(
                value or heads * v[2], param.oproj_size, bool(param.obias and param.oproj_size)
            ),
        )
        made = cls(q[0], q[1], k[1], heads, maps, float(param.sm_scaler), bool(param.reslink))
        made._check(weights, q)
        return made

    def _check(self, weights: int, q: Shape) -> None:
        for name, one in zip("qkv", self.maps[:3], strict=True):
            need(
                one.size % self.heads == 0,
                f"{name}proj_size {one.size} is not a multiple of {self.heads} heads",
            )
        need(
            self.depth(0) == self.depth(1),
            f"heads of q have {self.depth(0)} elements, heads of k {self.depth(1)}",
        )
        want = sum(one.weights + one.biases for one in self.maps)
        need(weights == want, f"qkvo_weight_bias must have {want} elements, got {weights}")
        if self.reslink:
            need(self.out_shape == q, f"reslink adds q {q} to an output of shape {self.out_shape}")

    def depth(self, which: int) -> int:
        """Elements of one head of q (0), k (1) or v (2); without projection each head has all."""
        one = self.maps[which]
        return one.size // self.heads if one.size else one.depth

    @property
    def out_shape(self) -> Shape:
        """(n, sq, o)."""
        last = self.maps[3].size or self.heads * self.depth(2)
        return self.batch, self.queries, last

    @property
    def weight_shape(self) -> Shape:
        """(n * heads, sq, sk) of the softmaxed scores."""
        return self.batch * self.heads, self.queries, self.keys

    def reserve(self, *, training: bool) -> int:
        """Elements of MegEngine's reserve: heads of q, k, v and what else it keeps, and one."""
        of_q = self.queries * self.depth(0) + self.keys * (self.depth(1) + self.depth(2))
        if training or self.maps[3].size:
            of_q += self.queries * self.depth(2)
        if training:
            of_q += self.queries * self.keys
        return self.batch * self.heads * of_q + 1

    @property
    def mask_parts(self) -> tuple[int, int]:
        """Bytes of the dropout masks of weights and output, each rounded up to 4."""
        return _words(math.prod(self.weight_shape)), _words(math.prod(self.out_shape))

    def unpack(self, flat: Float32) -> tuple[list[Float32 | None], list[Float32 | None]]:
        """Views of the four weight matrices and biases in the flat array, None where absent."""
        place = 0
        matrices: list[Float32 | None] = []
        biases: list[Float32 | None] = []
        for one in self.maps:
            part = flat[place : place + one.weights].reshape(one.depth, one.size)
            matrices.append(part if one.size else None)
            place += one.weights
        for one in self.maps:
            biases.append(flat[place : place + one.biases] if one.bias else None)
            place += one.biases
        return matrices, biases


def split_heads(x: Float32, heads: int, matrix: Float32 | None, bias: Float32 | None) -> Float32:
    """Heads (n, heads, s, d) of a sequence (n, s, e): contiguous chunks of its projection."""
    if matrix is None:
        return np.broadcast_to(x[:, None], (x.shape[0], heads, *x.shape[1:]))
    y = np.matmul(x, matrix)
    if bias is not None:
        y = y + bias
    return np.asarray(y.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3))
