"""Weights that lie in one flat tensor: parts read, and gradients put together; sums along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import narrowed
from loadrun.backends.cuda.expr import Builder, Expr, c_type
from loadrun.backends.cuda.lower import Lowering
from loadrun.backends.cuda.rearranged import RAW
from mgeserial.ir.graph import Node, Value

__all__ = ["Piece", "column_sums", "joined", "part", "sums"]

# Where a part begins, the float32 tensor that holds it, and its number of elements.
Piece = tuple[int, str, int]


def part(low: Lowering, node: Node, value: Value, begin: int, count: int) -> str:
    """Elements begin to begin + count of a tensor as a tensor of their own, in its type."""
    array = low.array(value)
    if array is not None:
        found = np.asarray(array).reshape(-1)[begin : begin + count]
        return low.constant(np.ascontiguousarray(found), low.dtype(value))
    flat = low.name(value)
    info = low.tensors[flat]
    out = low.temp((count,), info.dtype, info.ctype)
    access = (nd.Access(flat, (1,), begin),)
    low.add(nd.Pointwise(low.label(node), (out,), access, Expr((), ("i", 0))))
    return out


def joined(low: Lowering, node: Node, value: Value, pieces: Sequence[Piece]) -> None:
    """Write an output that consists of pieces; it has no elements without them."""
    dtype = low.dtype(value)
    if not pieces:
        low.keep(value, np.empty(low.dims(value), dtype.storage))
        return
    y = low.out(value)
    for at, name, count in pieces:
        b = Builder()
        result = b.done(narrowed(b, ("i", 0), dtype))
        piece = low.temp((count,), dtype.storage.name, c_type(dtype))
        access = (nd.Access(name, (1,)),)
        low.add(nd.Pointwise(low.label(node), (piece,), access, result))
        params: list[nd.Param] = [nd.In(piece), nd.Out(y), count, count, count, at]
        low.kernel(node, "copy2d", params, count, stem="join", T=RAW[dtype.storage.itemsize])


def column_sums(low: Lowering, node: Node, x: str, rows: int, columns: int) -> str:
    """Sums of the columns of a float32 matrix, (columns,)."""
    return sums(low, node, x, (columns,), rows, (0, 1), columns)


def sums(
    low: Lowering,
    node: Node,
    x: str,
    shape: tuple[int, ...],
    count: int,
    strides: tuple[int, int],
    step: int,
) -> str:
    """Sums of float32 elements, in float64.

    Args:
        low: The lowering.
        node: The operator it is part of.
        x: The tensor.
        shape: Of the result, one or two dimensions.
        count: Elements of a sum.
        strides: Distance of two sums along the two dimensions.
        step: Distance of two elements of a sum.

    Returns:
        A float32 tensor.
    """
    out = low.temp(shape)
    d1 = shape[0] if len(shape) > 1 else 1
    params: list[nd.Param] = [
        nd.In(x), nd.Out(out), math.prod(shape), count, d1, shape[-1], 0, *strides, 1, count, 0, 0,
        step, 0, 0.0, 0,
    ]  # fmt: skip
    low.kernel(
        node, "reduce", params, math.prod(shape), stem="reduce_sum", XT="f32", YT="f32", LANES=1,
        SCALARS=", int zero, float scale, int shift", ACC="f64", START="0", STEP="acc + v",
        VALUE="(f64)e", RESULT="(float)(acc)",
    )  # fmt: skip
    return out
