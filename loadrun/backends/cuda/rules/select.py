"""Selections by slices and by index tensors of the run: taken, set, added to.

An index out of range is an error of the run. Of positions that are selected more than once the
last value set stays, or all are added in order: the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.bounded import only_live
from loadrun.backends.cuda.emit_pointwise import collapse
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.linked import link, name_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.rearranged import RAW
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape
from mgeserial.ops.indexdesc import Kind, read, slices
from mgeserial.ops.indexing import INDEXING_REMAP, INDEXING_REMAP_BACKWARD
from mgeserial.ops.registry import OpSpec, by_name
from mgeserial.ops.sorting import ARGSORT_BACKWARD

_KINDS = {
    "Subtensor": Kind.SCALAR,
    "MultiAxisVec": Kind.VECTORS,
    "BatchedMesh": Kind.BATCHED_MESH,
    "BatchedSetMesh": Kind.BATCHED_MESH,
    "BatchedIncrMesh": Kind.BATCHED_MESH,
    "Mesh": Kind.MESH,
}
_LAST = """int last = -1;
  for (int j = heads[row]; j >= 0; j = next[j]) last = max(last, j);
  y[i] = last < 0 ? $FROM : value[last * inner + e];"""
_SUM = """$ACC acc = $FROM;
  for (int j = heads[row]; j >= 0; j = next[j]) acc = $PLUS;
  narrow(y[i], acc);"""


@dataclass(slots=True)
class _Picked:
    """An axis of the tensor that an index tensor picks from.

    Attributes:
        tensor: The index tensor.
        strides: Its strides along the dimensions of the selection, in elements.
        offset: Its first element.
        size: Length of the axis.
        step: Distance of two positions of the axis.
        wraps: Whether positions below 0 count from the end.
    """

    tensor: str
    strides: Shape
    size: int
    step: int
    offset: int = 0
    wraps: bool = True


@dataclass(slots=True)
class _Selection:
    """Places of a selection: base + sum of coordinate * linear + what index tensors say.

    Attributes:
        dims: Shape of the selection, `inner` left out.
        base, linear: The part that slices give.
        picked: The indexed axes.
        inner: Elements of one place.
    """

    dims: Shape
    base: int
    linear: Shape
    picked: list[_Picked] = field(default_factory=list)
    inner: int = 1

    def rows(self) -> _Selection:
        """The same with whole trailing dimensions as the inner part."""
        dims, linear = list(self.dims), list(self.linear)
        inner = 1
        while (
            dims and linear[-1] == inner and not any(p.strides[len(dims) - 1] for p in self.picked)
        ):
            steps = [*linear[:-1], self.base, *(p.step for p in self.picked)]
            if any(s % (inner * dims[-1]) for s in steps):
                break
            inner *= dims.pop()
            linear.pop()
        rank = len(dims)
        picked = [
            _Picked(p.tensor, p.strides[:rank], p.size, p.step // inner, p.offset, p.wraps)
            for p in self.picked
        ]
        return _Selection(
            tuple(dims), self.base // inner, tuple(n // inner for n in linear), picked, inner
        )


def _kind(name: str) -> Kind:
    return next(kind for word, kind in _KINDS.items() if word in name)


def _selection(low: Lowering, node: Node, call: Call, first: int) -> _Selection:
    """The selection of a descriptor, whose inputs begin at `first`."""
    shape = low.shape(node.inputs[0])
    run = call.replace(values=tuple(low.array(v) for v in node.inputs))
    try:
        items = read(run, first=first)
        cuts = slices(run, items)
    except MgeError as error:
        raise NotApplicable("a slice is computed at run time") from error
    chosen = {i.axis % len(shape): i.index for i in items if i.index is not None}
    for place in chosen.values():
        dtype = call.dtype(place)
        if not dtype.is_integer or dtype.kind is DTypeEnum.Bool:
            raise NotApplicable(f"an index of {dtype}")
    spans = [range(n)[cut] for n, cut in zip(shape, cuts, strict=True)]
    strides = nd.contiguous(shape)
    base = sum(
        r.start * s for a, (r, s) in enumerate(zip(spans, strides, strict=True)) if a not in chosen
    )
    kept = [a for a in range(len(shape)) if a not in chosen]
    kind = _kind(node.op.name)
    if kind in (Kind.SCALAR, Kind.VECTORS):
        given = [low.shape(node.inputs[p]) for p in chosen.values()]
        rank = max((len(g) for g in given), default=0)
        common: Shape = tuple(
            max(((1,) * (rank - len(g)) + g)[k] for g in given) for k in range(rank)
        )
        axes = sorted(chosen)
        adjacent = not axes or axes[-1] - axes[0] == len(axes) - 1
        front = 0 if kind is Kind.SCALAR or not axes else axes[0] if adjacent else 0
        common = () if kind is Kind.SCALAR else common
        dims = [len(spans[a]) for a in kept]
        linear = [spans[a].step * strides[a] for a in kept]
        all_dims = (*dims[:front], *common, *dims[front:])
        all_linear = (*linear[:front], *(0 for _ in common), *linear[front:])
        picked = []
        for axis in axes:
            place = chosen[axis]
            own = _aligned(low.shape(node.inputs[place]), len(common))
            along = (*(0 for _ in dims[:front]), *own, *(0 for _ in dims[front:]))
            picked.append(_Picked(low.name(node.inputs[place]), along, shape[axis], strides[axis]))
        return _Selection(all_dims, base, all_linear, picked)
    dims = [len(r) for r in spans]
    linear = [0 if a in chosen else spans[a].step * strides[a] for a in range(len(shape))]
    picked = []
    for axis, place in sorted(chosen.items()):
        given_shape = low.shape(node.inputs[place])
        dims[axis] = given_shape[-1]
        steps = [0] * len(shape)
        steps[axis] = 1
        if kind is Kind.BATCHED_MESH:
            steps[0] = given_shape[1]
        picked.append(
            _Picked(low.name(node.inputs[place]), tuple(steps), shape[axis], strides[axis])
        )
    return _Selection(tuple(dims), base, tuple(linear), picked)


def _aligned(shape: Shape, rank: int) -> Shape:
    """Strides of a tensor that is broadcast to dimensions of a rank; one number has none."""
    if not rank:
        return ()
    strides = tuple(0 if n == 1 else s for n, s in zip(shape, nd.contiguous(shape), strict=True))
    return (0,) * (rank - len(shape)) + strides


def _places(
    low: Lowering,
    node: Node,
    chosen: _Selection,
    data: str,
    params: tuple[nd.Param, ...],
    store: str,
    out: str,
) -> None:
    """Add the kernel that finds the places of a selection and does something with each."""
    sizes, strides = collapse(chosen.dims, [chosen.linear, *(p.strides for p in chosen.picked)])
    names, values, index = "", list[nd.Param](), ""
    if len(sizes) > 1:
        index = "int q = i; "
        for k in range(len(sizes) - 1, 0, -1):
            names += f", int d{k}"
            values.append(sizes[k])
            index += f"int j{k} = q; q /= d{k}; j{k} -= q * d{k}; "
        index += "int j0 = q;"
    elif sizes:
        index = "int j0 = i;"
    linear, find = "", ""
    for k, stride in enumerate(strides[0]):
        if stride:
            names += f", int u{k}"
            values.append(stride)
            linear += f" + j{k} * u{k}"
    for a, (item, own) in enumerate(zip(chosen.picked, strides[1:], strict=True)):
        kind = low.tensors[item.tensor].ctype
        names += f", const {kind} *__restrict__ k{a}, int n{a}, int s{a}"
        values += [nd.In(item.tensor, item.offset), item.size, item.step]
        terms = []
        for k, stride in enumerate(own):
            if stride:
                names += f", int w{a}_{k}"
                values.append(stride)
                terms.append(f"j{k} * w{a}_{k}")
        wrap = f"if (p < 0) p += n{a}; " if item.wraps else ""
        find += (
            f"{{ int p = (int)k{a}[{' + '.join(terms) or '0'}]; {wrap}"
            f"if ((unsigned)p >= (unsigned)n{a}) {{ *status = slot; p = 0; }} "
            f"at += p * s{a}; }}\n  "
        )
    items = math.prod(chosen.dims)
    check = nd.Check(f"{name_of(node)}: an index is outside its axis")
    fields = (
        ("DATA", data), ("PARAMS", names), ("INDEX", index), ("LINEAR", linear), ("FIND", find),
        ("STORE", store), ("WHAT", "kept" if store.startswith("keys") else "read"),
    )  # fmt: skip
    every = (*params, check, items, chosen.base, *values)
    low.add(nd.Custom(low.label(node), (out,), "select", fields, every, items, stem="select"))


def _take(low: Lowering, node: Node, chosen: _Selection) -> None:
    x = node.inputs[0]
    out = node.outputs[0]
    if math.prod(chosen.dims) != math.prod(low.shape(out)):
        raise NotApplicable("an unexpected shape")
    raw = RAW[low.dtype(x).storage.itemsize]
    name = low.name(x)
    y = low.out(out)
    data = f"const {raw} *__restrict__ x, {raw} *__restrict__ y,"
    _places(low, node, chosen, data, (nd.In(name), nd.Out(y)), "y[i] = x[at];", y)


def _put(
    low: Lowering,
    node: Node,
    chosen: _Selection,
    value: Value,
    base: Value | None,
    *,
    add: bool,
) -> None:
    """The output: `base` (or zeros) with a value set or added at the places of a selection."""
    out = node.outputs[0]
    shape = low.shape(out)
    dtype = low.dtype(out)
    rows = chosen.rows()
    entries = math.prod(rows.dims)
    if entries * rows.inner != math.prod(low.shape(value)):
        raise NotApplicable("an unexpected shape")
    if add and dtype.kind is DTypeEnum.Bool:
        raise NotApplicable("sums of truth values")
    total = math.prod(shape)
    keys = low.temp((entries,), "int32", "i32")
    _places(low, node, rows, "int *__restrict__ keys,", (nd.Out(keys),), "keys[i] = at;", keys)
    bound = low.bounds.get(value)
    if bound is not None:  # what lies behind the count goes nowhere
        if not rows.dims or rows.dims[0] != bound.shape[0]:
            raise NotApplicable("a length that is counted by the run, not in front")
        keys = only_live(low, node, keys, rows.dims, 0, bound.count, -1)
    heads, after = link(low, node, keys, entries, total // rows.inner, ordered=add)
    kind = c_type(dtype) if add else RAW[dtype.storage.itemsize]
    source = f"const {kind} *__restrict__ x," if base is not None else ""
    given: tuple[nd.Param, ...] = (nd.In(low.name(base)),) if base is not None else ()
    start = "0" if base is None else "widen(x[i])" if add else "x[i]"
    real = dtype.is_float
    fields = (
        ("SOURCE", source), ("XT", kind), ("BODY", _SUM if add else _LAST), ("FROM", start),
        ("ACC", "float" if real else "int"), ("WHAT", "sums" if add else "the last value counts"),
        ("PLUS", "acc + widen(value[j * inner + e])" if real else
         "(int)((u32)acc + (u32)widen(value[j * inner + e]))"),
    )  # fmt: skip
    name = low.name(value)
    y = low.out(out)
    params: tuple[nd.Param, ...] = (
        *given, nd.In(name), nd.In(heads), nd.In(after), nd.Out(y), total, rows.inner,
    )  # fmt: skip
    stem = "put_sum" if add else "put_last"
    low.add(nd.Custom(low.label(node), (y,), "put", fields, params, total, stem=stem))


def _ops(*names: str) -> list[OpSpec]:
    return [by_name(name) for name in names]


@lowers(*_ops("Subtensor", "IndexingMultiAxisVec", "MeshIndexing", "BatchedMeshIndexing"))
def take(low: Lowering, node: Node, call: Call) -> None:
    """Slices with constant ends and index tensors of the run, on any axes."""
    low.need_real(node.inputs[0])
    low.shape(node.outputs[0])
    _take(low, node, _selection(low, node, call, 1))


_SETS = (
    "SetSubtensor", "IndexingSetMultiAxisVec", "SetMeshIndexing", "BatchedSetMeshIndexing",
)  # fmt: skip
_INCREMENTS = (
    "IncrSubtensor", "IndexingIncrMultiAxisVec", "IncrMeshIndexing", "BatchedIncrMeshIndexing",
)  # fmt: skip


@lowers(*_ops(*_SETS, *_INCREMENTS))
def put(low: Lowering, node: Node, call: Call) -> None:
    """As for taking; what is selected is set or added to."""
    x, value = node.inputs[:2]
    low.need_real(x)
    if call.dtype(0) != call.dtype(1):
        raise NotApplicable("a value of another type")
    if 0 in low.dims(value):
        low.shape(x)
        low.same(node.outputs[0], low.name(x))
        return
    _put(low, node, _selection(low, node, call, 2), value, x, add=node.op.name in _INCREMENTS)


def _mapped(low: Lowering, source: Shape, coordinates: Value) -> _Selection:
    """The selection of a map (..., rank) of coordinates."""
    given = low.shape(coordinates)
    name = low.name(coordinates)
    if not low.dtype(coordinates).is_integer:
        raise NotApplicable("coordinates that are no integers")
    along = nd.contiguous(given)[:-1]
    picked = [
        _Picked(name, along, n, s, k, wraps=False)
        for k, (n, s) in enumerate(zip(source, nd.contiguous(source), strict=True))
    ]
    return _Selection(given[:-1], 0, (0,) * (len(given) - 1), picked)


@lowers(INDEXING_REMAP)
def remap(low: Lowering, node: Node, call: Call) -> None:
    """Elements at coordinates of the run."""
    low.need_real(node.inputs[0])
    low.shape(node.outputs[0])
    _take(low, node, _mapped(low, low.shape(node.inputs[0]), node.inputs[1]))


@lowers(INDEXING_REMAP_BACKWARD)
def remap_backward(low: Lowering, node: Node, call: Call) -> None:
    """Gradients added at coordinates of the run."""
    diff, coordinates, _ = node.inputs
    low.need_real(diff)
    chosen = _mapped(low, low.shape(node.outputs[0]), coordinates)
    _put(low, node, chosen, diff, None, add=True)


@lowers(ARGSORT_BACKWARD)
def argsort_backward(low: Lowering, node: Node, call: Call) -> None:
    """Each row's gradients back at the places that their values came from."""
    diff, indices, _ = node.inputs
    low.need_real(diff)
    rows, kept = low.shape(diff)
    width = low.shape(node.outputs[0])[1]
    low.shape(indices)
    index = _Picked(low.name(indices), (kept, 1), width, 1, wraps=False)
    chosen = _Selection((rows, kept), 0, (width, 0), [index])
    _put(low, node, chosen, diff, None, add=False)
