"""Selections by index tensors that are computed at run time; an index out of range is an error."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rearranged import RAW
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.indexdesc import read
from mgeserial.ops.indexing import INDEXING_MULTI_AXIS_VEC, INDEXING_ONE_HOT, INDEXING_SET_ONE_HOT


def _check(node: Node) -> nd.Check:
    return nd.Check(f"{node.display_name or node.op.name}: an index is outside its axis")


def _integers(low: Lowering, node: Node, places: list[int]) -> None:
    for k in places:
        dtype = low.dtype(node.inputs[k])
        if not dtype.is_integer or dtype.kind is DTypeEnum.Bool:
            raise NotApplicable(f"an index of {dtype}")


@lowers(INDEXING_MULTI_AXIS_VEC)
def take(low: Lowering, node: Node, call: Call) -> None:
    """Index tensors of one shape on axes that are next to each other, no slices."""
    shape, wanted = low.shape(node.inputs[0]), low.shape(node.outputs[0])
    low.need_real(node.inputs[0])
    items = read(call, first=1)
    if any(i.index is None for i in items):
        raise NotApplicable("slices together with an index that is computed at run time")
    chosen = {i.axis % len(shape): i.index for i in items if i.index is not None}
    axes = sorted(chosen)
    if axes != list(range(axes[0], axes[-1] + 1)):
        raise NotApplicable("indexed axes apart from each other")
    places = [chosen[a] for a in axes]
    _integers(low, node, places)
    dims = [low.shape(node.inputs[k]) for k in places]
    largest = max(dims, key=math.prod)
    if any(d not in (largest, (1,)) for d in dims):
        raise NotApplicable("index tensors of different shapes")
    count = math.prod(largest)
    inner = math.prod(shape[axes[-1] + 1 :])
    outer_stride = math.prod(shape[axes[0] :])
    total = math.prod(wanted)
    if total != math.prod(shape[: axes[0]]) * count * inner:
        raise NotApplicable("an unexpected shape")
    raw = RAW[call.dtype(0).storage.itemsize]
    code, find = "", ""
    tail: list[nd.Param] = []
    for k, (axis, place, dim) in enumerate(zip(axes, places, dims, strict=True)):
        name = low.name(node.inputs[place])
        code += f", const {low.tensors[name].ctype} *__restrict__ k{k}, int n{k}, int s{k}"
        at = "j" if math.prod(dim) == count else "0"
        find += (
            f"{{ int p = (int)k{k}[{at}]; if (p < 0) p += n{k}; "
            f"if ((unsigned)p >= (unsigned)n{k}) {{ *status = slot; p = 0; }} at += p * s{k}; }} "
        )
        tail += [nd.In(name), shape[axis], math.prod(shape[axis + 1 :])]
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    params: tuple[nd.Param, ...] = (
        nd.In(x), nd.Out(y), _check(node), total, count, inner, outer_stride, *tail,
    )  # fmt: skip
    fields = (("T", raw), ("INDICES", code), ("FIND", find))
    low.add(nd.Custom(low.label(node), (y,), "take", fields, params, total, stem="take"))


_GET = """int a = i / inner, e = i - a * inner, p = (int)index[i];
  if ((unsigned)p >= (unsigned)n) { *status = slot; p = 0; }
  y[i] = x[((i64)a * n + p) * inner + e];"""
_SET = """int q = i / inner, e = i - q * inner, a = q / n, k = q - a * n;
  int p = (int)index[a * inner + e];
  if ((unsigned)p >= (unsigned)n) *status = slot;
  y[i] = p == k ? value[a * inner + e] : x[i];"""


@lowers(INDEXING_ONE_HOT, INDEXING_SET_ONE_HOT)
def one_hot(low: Lowering, node: Node, call: Call) -> None:
    """One element of each line, taken or set."""
    for value in (*node.inputs, *node.outputs):
        low.shape(value)
    low.need_real(node.inputs[0])
    _integers(low, node, [1])
    shape = low.shape(node.inputs[0])
    axis = int(call.param.axis) % len(shape)
    sets = node.op.name == "IndexingSetOneHot"
    items = math.prod(shape if sets else low.shape(node.outputs[0]))
    raw = RAW[call.dtype(0).storage.itemsize]
    x, index = low.name(node.inputs[0]), low.name(node.inputs[1])
    more: tuple[nd.Param, ...] = (nd.In(low.name(node.inputs[2])),) if sets else ()
    y = low.out(node.outputs[0])
    params: tuple[nd.Param, ...] = (
        nd.In(x), nd.In(index), *more, nd.Out(y), _check(node), items, shape[axis],
        math.prod(shape[axis + 1 :]),
    )  # fmt: skip
    fields = (
        ("T", raw), ("IT", low.tensors[index].ctype), ("WHAT", "set" if sets else "taken"),
        ("VALUE", f"const {raw} *__restrict__ value," if sets else ""),
        ("BODY", _SET if sets else _GET),
    )  # fmt: skip
    low.add(nd.Custom(low.label(node), (y,), "one_hot", fields, params, items, stem="one_hot"))
