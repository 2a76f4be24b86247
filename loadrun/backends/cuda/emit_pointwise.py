"""Launches of elementwise nodes: dimensions are joined where all strides allow it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.expr import Expr, render
from loadrun.backends.cuda.plan import Kernel, Launch, Pointer

__all__ = ["collapse", "emit_pointwise", "scalar_args", "scalar_params"]


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Fewer dimensions that go through the same elements.

    Args:
        shape: Sizes of the dimensions.
        strides: For each tensor its strides.

    Returns:
        Sizes, none of them 1 (() for one element), and the strides of each tensor.
    """
    dims = [k for k, n in enumerate(shape) if n != 1]
    sizes = [shape[k] for k in dims]
    moved = [[s[k] for k in dims] for s in strides]
    k = len(sizes) - 2
    while k >= 0:
        if all(s[k] == s[k + 1] * sizes[k + 1] for s in moved):
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
            for s in moved:
                del s[k]
        k -= 1
    return tuple(sizes), [tuple(s) for s in moved]


def scalar_params(expr: Expr) -> str:
    """Parameters of an expression's numbers, each with a leading comma."""
    return "".join(f", {s.ctype} s{k}" for k, s in enumerate(expr.scalars))


def scalar_args(expr: Expr) -> tuple[int | float, ...]:
    """Values for `scalar_params`."""
    return tuple(float(s.value) if s.ctype == "float" else int(s.value) for s in expr.scalars)


@dataclass(frozen=True, slots=True)
class _Code:
    index: list[str]
    elements: list[str]
    params: list[str]
    args: list[int]


def _indexed(sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> _Code:
    """Code of the places of elements; sizes and strides are parameters."""
    code = _Code([], [], [], [])
    plain = nd.contiguous(sizes)
    direct = [s == plain for s in strides]
    constant = [not any(s) for s in strides]
    if not all(d or c for d, c in zip(direct, constant, strict=True)):
        last = len(sizes) - 1
        code.index.append("int q = i;")
        for k in range(last, 0, -1):
            code.params.append(f"int d{k}")
            code.args.append(sizes[k])
            code.index.append(f"int j{k} = q; q /= d{k}; j{k} -= q * d{k};")
        code.index.append("int j0 = q;")
    for a, (own, is_direct, is_constant) in enumerate(zip(strides, direct, constant, strict=True)):
        if is_constant or is_direct:
            code.elements.append(f"widen(p{a}[{'0' if is_constant else 'i'}])")
            continue
        terms = []
        for k, stride in enumerate(own):
            if stride == 0:
                continue
            code.params.append(f"int u{a}_{k}")
            code.args.append(stride)
            terms.append(f"j{k} * u{a}_{k}")
        code.elements.append(f"widen(p{a}[{' + '.join(terms)}])")
    return code


def _vector(
    node: nd.Pointwise, net: nd.Network, sizes: tuple[int, ...], strides: list[tuple[int, ...]]
) -> bool:
    """Whether four elements can be loaded and stored at once."""
    if len(sizes) != 1 or sizes[0] % 4:
        return False
    for access, own in zip(node.accesses, strides, strict=True):
        if own not in ((0,), (1,)) or (own == (1,) and access.offset % 4):
            return False
    return True


def emit_pointwise(node: nd.Pointwise, net: nd.Network) -> list[Launch]:
    """One launch."""
    (out,) = node.outputs
    info = net.tensors[out]
    items = math.prod(info.shape)
    sizes, strides = collapse(info.shape, [a.strides for a in node.accesses])
    types = [net.tensors[a.tensor].ctype for a in node.accesses]
    pointers = "".join(f"const {t} *__restrict__ p{k}, " for k, t in enumerate(types))
    fields = {"POINTERS": pointers, "YT": info.ctype, "SCALARS": scalar_params(node.expr)}
    args: list[Pointer | int | float] = [
        Pointer(a.tensor, a.offset * np.dtype(net.tensors[a.tensor].dtype).itemsize)
        for a in node.accesses
    ]
    args.append(Pointer(out))
    if _vector(node, net, sizes, strides):
        loads, elements = [], []
        for k, own in enumerate(strides):
            if own == (0,):
                elements.append(f"widen(p{k}[0])")
            else:
                loads.append(
                    f"four<{types[k]}> w{k} = reinterpret_cast<const four<{types[k]}> *>(p{k})[q];"
                )
                elements.append(f"widen(w{k}.v[e])")
        body, result = render(node.expr, elements)
        kernel = source.kernel(
            "elementwise4", "pointwise4", **fields,
            LOADS="\n  ".join(loads), BODY="\n    ".join(body), RESULT=result,
        )  # fmt: skip
        work, ints = items // 4, []
    else:
        code = _indexed(sizes, strides)
        body, result = render(node.expr, code.elements)
        kernel = source.kernel(
            "elementwise", "pointwise", **fields,
            INTS="".join(f", {p}" for p in code.params), INDEX="\n  ".join(code.index),
            BODY="\n  ".join(body), RESULT=result,
        )  # fmt: skip
        work, ints = items, code.args
    args += [work, *ints, *scalar_args(node.expr)]
    return [simple_launch(node, kernel, args, work)]


def simple_launch(
    node: nd.Node,
    kernel: Kernel,
    args: Sequence[Pointer | int | float],
    work: int,
    *,
    per_block: int = 256,
    block: int = 256,
    name: str = "",
    reads: tuple[str, ...] | None = None,
    writes: tuple[str, ...] | None = None,
    flops: float = 0.0,
    algorithm: str = "",
) -> Launch:
    """A launch along one dimension."""
    return Launch(
        name or node.name,
        kernel,
        (max(1, -(-work // per_block)), 1, 1),
        block,
        tuple(args),
        node.inputs if reads is None else reads,
        node.outputs if writes is None else writes,
        (work, 1, 1),
        (per_block, 1, 1),
        algorithm,
        flops,
    )
