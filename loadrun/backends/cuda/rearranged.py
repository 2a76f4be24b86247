"""Tensors with the elements of another one in another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import Expr
from loadrun.backends.cuda.lower import Lowering, NotApplicable
from loadrun.backends.cuda.plan import Array
from mgeserial.ir.graph import Node

__all__ = ["RAW", "copied", "gathered", "rearranged", "view_of"]

# Elements that are moved only, by their size.
RAW = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_IDENTITY = Expr((), ("i", 0))
_TABLE_MOST = 1 << 26  # elements of a table


def view_of(stand_in: Array, result: Array) -> tuple[int, tuple[int, ...]] | None:
    """Offset and strides in elements of a view of an array of bytes; None for no view."""
    base = stand_in.__array_interface__["data"][0]
    at = result.__array_interface__["data"][0] - base
    steps = [(n - 1) * s for n, s in zip(result.shape, result.strides, strict=True)]
    first, last = at + sum(s for s in steps if s < 0), at + sum(s for s in steps if s > 0)
    if first < 0 or last >= stand_in.size:
        return None
    return at, tuple(result.strides)


def copied(low: Lowering, node: Node, name: str, view: tuple[int, Sequence[int]], out: str) -> None:
    """Write a strided view of a tensor to another tensor, whose shape it has."""
    at, strides = view
    shape = low.tensors[out].shape
    steps = tuple(0 if n == 1 else s for s, n in zip(strides, shape, strict=True))
    access = nd.Access(name, steps, at)
    low.add(nd.Pointwise(low.label(node), (out,), (access,), _IDENTITY))


def gathered(
    low: Lowering,
    node: Node,
    out: str,
    values: Sequence[tuple[str, int, int]],
    table: Array,
    fill: Array,
) -> None:
    """Write a tensor by a table that says of each element which one it is.

    Args:
        low: The walk.
        node: The operator.
        out: The tensor.
        values: What elements come from: a tensor, the number of its first element, their count.
        table: int32 number of an element, or -1 - k for element k of `fill`.
        fill: Further elements.
    """
    raw = RAW[fill.dtype.itemsize]
    sources, pick = [], ""
    for k in range(len(values)):
        sources.append(f"const {raw} *__restrict__ x{k}, int n{k}")
        last = k == len(values) - 1
        pick += f"x{k}[m - b{k}]" if last else f"m < b{k} + n{k} ? x{k}[m - b{k}] : "
    if len(values) > 8:
        raise NotApplicable("more than eight tensors at once")
    begins = "".join(f", int b{k}" for k in range(len(values)))
    params: list[nd.Param] = []
    for name, _, count in values:
        params += [nd.In(name), count]
    params += [begin for _, begin, _ in values]
    params += [nd.In(low.constant(table)), nd.In(low.constant(fill)), nd.Out(out), int(table.size)]
    fields: dict[str, Any] = {"SOURCES": ", ".join(sources) + begins, "T": raw, "PICK": pick}
    low.kernel(node, "gather", params, int(table.size), **fields)


def rearranged(
    low: Lowering, node: Node, name: str, make: Callable[[Array], Array], out: str = ""
) -> str:
    """A tensor with the elements of another one in another order; zeros may be between them.

    Args:
        low: The walk.
        node: The operator.
        name: The tensor whose elements they are, of static shape.
        make: Of an array of its shape the wanted array.
        out: The tensor to write; a new one, or `name` itself where nothing moves, without.
    """
    info = low.tensors[name]
    shape = info.shape
    stand_in = np.empty(shape, np.int8)  # never touched, so it costs address space only
    result = make(stand_in)
    view = view_of(stand_in, result) if np.may_share_memory(stand_in, result) else None
    plain = view is not None and view[0] == 0 and all(
        s == p
        for s, p, n in zip(view[1], nd.contiguous(result.shape), result.shape, strict=True)
        if n > 1
    )  # fmt: skip
    if plain and not out and result.size == stand_in.size:
        return name
    out = out or low.temp(result.shape, info.dtype, info.ctype)
    if view is not None:
        copied(low, node, name, view, out)
        return out
    if result.size > _TABLE_MOST:
        raise NotApplicable("the table would be too large")
    count = math.prod(shape)
    table = make(np.arange(1, count + 1, dtype=np.int32).reshape(shape)).reshape(-1) - 1
    gathered(low, node, out, [(name, 0, count)], table, np.zeros(1, info.dtype))
    return out
