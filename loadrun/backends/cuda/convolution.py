"""Convolutions by the vendor's library: which nodes it can compute, and the steps of those.

What follows the sums (bias, residual, nonlinearity) is part of the library's call where it knows
such a thing, or is computed by a kernel of our own right after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.emit_conv import extra_code, extras_of
from loadrun.backends.cuda.emit_pointwise import scalar_args, scalar_params, simple_launch
from loadrun.backends.cuda.expr import ACC, Expr, Ref, render
from loadrun.backends.cuda.plan import (
    Array,
    Convolution,
    Convolve,
    Launch,
    Layout,
    Pointer,
    Step,
)
from loadrun.backends.cuda.variants import Algorithm, Choice, Target

__all__ = ["Epilogue", "Memory", "choices", "emit_convolution", "epilogue_of", "specs_of"]

_DTYPES = {"f32": "float32", "f16": "float16"}
_ADD = "({0} + {1})"
_ADD_RELU = "({0} + {1} > 0.f ? {0} + {1} : 0.f)"
# C code of an operation on the sum -> the nonlinearity it is.
_ACTIVATIONS = {
    "({0} > 0.f ? {0} : 0.f)": "relu",
    "({0} > 0.f || {0} != {0} ? {0} : 0.f)": "relu",
    "({0} <= 0.f ? 0.f : {0} <= 6.f ? {0} : 6.f)": "relu6",
    "sigmoid({0})": "sigmoid",
    "(1.f / (1.f + expf(-{0})))": "sigmoid",
    "tanhf({0})": "tanh",
    "({0} * sigmoid({0}))": "silu",
}
# Rounding to the type of the result, which storing does as well.
_STORED = {"f16": "as_half({0})"}


class Memory(Protocol):
    """Where an emitter gets memory from."""

    def memory(self, name: str, dtype: str, count: int) -> str:
        """A buffer of a type for one node's own use."""
        ...

    def constant(self, name: str, array: Array) -> str:
        """A constant; equal ones of a name are one."""
        ...


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows the sums, in words that the library knows.

    Attributes:
        bias, addend: Numbers of the node's extras; None: none.
        activation: As of `Convolution`.
    """

    bias: int | None = None
    addend: int | None = None
    activation: str = ""


def epilogue_of(node: nd.Conv, net: nd.Network) -> Epilogue | None:
    """What a node does with its sums; None where the library has no words for it."""
    out = net.tensors[node.outputs[0]]
    if any(net.tensors[a.tensor].ctype != out.ctype for a in node.extras):
        return None
    found, at = Epilogue(), ACC
    stored = _STORED.get(out.ctype)
    for k, op in enumerate(node.expr.ops):
        if found.activation and op.code != stored:
            return None
        if op.code in (_ADD, _ADD_RELU):
            added = _added(node, out.shape, found, [a for a in op.args if a != at])
            if added is None or at not in op.args:
                return None
            found = replace(added, activation="relu" if op.code == _ADD_RELU else "")
        elif op.args != (at,):
            return None
        elif op.code == stored:
            if k != len(node.expr.ops) - 1:
                return None  # a rounding that is not the last: the library does it once
        elif op.code in _ACTIVATIONS:
            found = replace(found, activation=_ACTIVATIONS[op.code])
        else:
            return None
        at = ("t", k)
    return found if node.expr.result == at else None


def _added(node: nd.Conv, shape: nd.Shape, found: Epilogue, args: list[Ref]) -> Epilogue | None:
    """The epilogue with one more addition; None where that cannot be said."""
    if len(args) != 1 or args[0][0] != "i":
        return None
    number = args[0][1]
    access = node.extras[number]
    code = extra_code(access, shape, node.roles)
    if access.offset:
        return None
    if code == "ch" and found.bias is None:
        return replace(found, bias=number)
    if code == "o" and found.addend is None:
        return replace(found, addend=number)
    return None


def specs_of(
    node: nd.Conv, net: nd.Network, *, tf32: bool = False
) -> tuple[tuple[Convolution, bool], ...]:
    """What the library is asked for, each with whether that is all of the node; () if it cannot.

    Sums alone are stored as elements, so what follows must be the same for those.
    """
    out = net.tensors[node.outputs[0]]
    types = {net.tensors[n].ctype for n in (node.x, node.w)} | {out.ctype}
    dtype = _DTYPES.get(out.ctype)
    if dtype is None or len(types) > 1 or node.label != "conv" or not _is_plain(node):
        return ()
    layouts = _layouts(node, net)
    if layouts is None:
        return ()
    x, w, y = layouts
    first = 5 - len(x[0])
    sums = Convolution(
        dtype, x, w, y, node.stride[first:], node.pad[first:], node.dilate[first:],
        tf32=tf32 and dtype == "float32",
    )  # fmt: skip
    epilogue = epilogue_of(node, net)
    found = []
    if epilogue is not None:
        full = replace(
            sums,
            bias=epilogue.bias is not None,
            addend=y[1] if epilogue.addend is not None else (),
            activation=epilogue.activation,
        )
        found.append((full, True))
    if (sums, True) not in found and (dtype == "float32" or _rounds_first(node.expr)):
        found.append((sums, False))
    return tuple(found)


def _rounds_first(expr: Expr) -> bool:
    """Whether the sum is rounded to half precision before anything else reads it."""
    readers = [op for op in expr.ops if ACC in op.args]
    return expr.result != ACC and [op.code for op in readers] == ["as_half({0})"]


def _is_plain(node: nd.Conv) -> bool:
    """A forward convolution of single channels whose groups follow each other."""
    x, y, groups = node.x_strides, node.y_strides, node.groups
    return (
        not node.transposed
        and node.x_lanes == node.y_lanes == 1
        and node.accumulator == "float"
        and _is_dense((node.batch, groups * node.outputs_each, *node.out), (y[0], *y[2:]))
        and (groups == 1 or (x[1] == node.depth * x[2] and y[1] == node.outputs_each * y[2]))
    )


def _is_dense(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements fill memory without gaps, in whatever order of the dimensions."""
    step = 1
    for stride, size in sorted((s, n) for n, s in zip(sizes, strides, strict=True) if n > 1):
        if stride != step:
            return False
        step *= size
    return True


def _layouts(node: nd.Conv, net: nd.Network) -> tuple[Layout, Layout, Layout] | None:
    """Image, filter and result; None where the filter is not as the library wants it."""
    flat = node.size[0] == node.out[0] == node.kernel[0] == 1
    first = 1 if flat else 0

    def image(channels: int, size: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
        n, _, c, *rest = strides
        return (node.batch, channels, *size[first:]), (n, c, *rest[first:])

    x = image(node.groups * node.depth, node.size, node.x_strides)
    y = image(node.groups * node.outputs_each, node.out, node.y_strides)
    sizes = (node.groups * node.outputs_each, node.depth, *node.kernel[first:])
    last = node.x_strides[2] == 1 and node.groups * node.depth > 1
    if node.w not in net.consts:
        # A filter that is computed at run time is taken as it is stored, or not at all.
        turned = math.prod(node.kernel) > 1 and node.taps_first != last
        if turned or node.w_strides[1:] != (math.prod(sizes[1:]), 1):
            return None
    return x, (sizes, _filter_strides(sizes, last)), y


def _filter_strides(sizes: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Strides of a contiguous filter, with its channels last or not."""
    if not last:
        return nd.contiguous(sizes)
    outputs, depth, *taps = sizes
    k, *rest = nd.contiguous((outputs, *taps, depth))
    return (k, rest[-1], *rest[:-1])


def _packed(node: nd.Conv, net: nd.Network, layout: Layout) -> Array:
    """The node's constant filter in the library's order."""
    sizes, strides = layout
    array = np.ascontiguousarray(net.consts[node.w])
    inner = math.prod(sizes[1:])
    each = tuple(s * array.itemsize for s in node.w_strides)
    stored = np.lib.stride_tricks.as_strided(
        array, (node.groups, node.outputs_each, inner), each, writeable=False
    )
    plain = stored.reshape(sizes)
    if node.taps_first:
        outputs, depth, *taps = sizes
        plain = np.moveaxis(stored.reshape(outputs, *taps, depth), -1, 1)
    order = sorted(range(len(sizes)), key=lambda k: (-strides[k], k))
    return np.ascontiguousarray(np.transpose(plain, order))


def choices(node: nd.Conv, net: nd.Network, target: Target) -> tuple[Choice, ...]:
    """The library's ways to compute a node, where it is to be asked."""
    if target.engines is None:
        return ()
    return tuple(
        Choice(Algorithm.CUDNN, spec=spec, engine=engine, fused=fused)
        for spec, fused in specs_of(node, net, tf32=target.tf32)
        for engine in target.engines(spec)
    )


def emit_convolution(node: nd.Conv, net: nd.Network, memory: Memory, choice: Choice) -> list[Step]:
    """The library's call, and a kernel for what it does not do.

    Args:
        node: What to compute.
        net: Types and constants.
        memory: Where buffers come from.
        choice: One of `choices`.
    """
    spec, engine, full = choice.spec, choice.engine, choice.fused
    assert spec is not None
    assert engine is not None
    filter_name = node.w
    if node.w in net.consts:
        filter_name = memory.constant(f"{node.w}:filter", _packed(node, net, spec.w))
    epilogue = epilogue_of(node, net)
    reads = [node.x, filter_name]
    if full and epilogue is not None:
        reads += [node.extras[k].tensor for k in (epilogue.bias, epilogue.addend) if k is not None]
    out = node.outputs[0]
    items = math.prod(net.tensors[out].shape)
    y = out if full else memory.memory(f"{node.name}:sums", spec.dtype, items)
    writes: tuple[str, ...] = (y,)
    if engine.workspace:
        writes = (y, memory.memory(f"{node.name}:workspace", "uint8", engine.workspace))
    name = node.name if full else f"{node.name}:sums"
    call = Convolve(name, spec, engine, tuple(reads), writes)
    return [call] if full else [call, _after(node, net, y, items)]


def _after(node: nd.Conv, net: nd.Network, sums: str, items: int) -> Launch:
    """What follows the sums, element by element."""
    out = node.outputs[0]
    params, args, elements = extras_of(node, net)
    body, result = render(node.expr, elements)
    kernel = source.kernel(
        "gemm_epilogue", "gemm_epilogue", EXTRAS=params, XT=net.tensors[out].ctype,
        YT=net.tensors[out].ctype, SCALARS=scalar_params(node.expr), BODY="\n  ".join(body),
        RESULT=result,
    )  # fmt: skip
    channels = node.groups * node.outputs_each
    values = (items, channels, node.y_strides[2], *scalar_args(node.expr))
    return simple_launch(
        node, kernel, (Pointer(sums), *args, Pointer(out), *values), items,
        reads=tuple(dict.fromkeys((sums, *(a.tensor for a in node.extras)))),
    )  # fmt: skip
