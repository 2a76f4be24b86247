"""Values one of whose lengths is counted by the run: how operators go on with them on the device.

Operators that work on each row alone are run for the largest length: what comes out of the rows
behind the count means nothing, as the rows do. What an operator must not see of them (indices, rows
that are written) is taken away first. Nothing of this needs the host; it reads the counts with the
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import Builder, register_of
from loadrun.backends.cuda.plan import Array
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call, Shape, ShapeLike, TensorType

if TYPE_CHECKING:
    from loadrun.backends.cuda.lower import Bound, Lowering

__all__ = ["apply", "cut", "cuts", "only_live"]

_ELEMENTWISE = frozenset({"Elemwise", "ElemwiseMultiType", "TypeCvt", "PowC", "Where", "AffineInt"})
_VIEWS = frozenset({"Dimshuffle", "AxisAddRemove", "Identity", "Copy", "MarkDynamicVar"})
_ROWS = frozenset({"Reduce", "Concat", "Softmax", "Argmax", "Argmin", "Cumsum"})  # along others
_TAKES = frozenset({"IndexingMultiAxisVec"})
_PUTS = frozenset({"IndexingSetMultiAxisVec", "IndexingIncrMultiAxisVec"})


def cut(array: Array, axis: int, count: Array) -> Array:
    """The part of a tensor that means something."""
    index: list[slice] = [slice(None)] * array.ndim
    index[axis] = slice(0, int(count.reshape(-1)[0]))
    return array[tuple(index)]


def cuts(low: Lowering, values: Sequence[Value]) -> list[tuple[int, int, str]]:
    """For each counted value its number, its axis and the tensor of its count."""
    found = []
    for k, value in enumerate(values):
        bound = low.bounds.get(value)
        if bound is not None:
            found.append((k, bound.axis, bound.count))
    return found


def only_live(
    low: Lowering, node: Node, name: str, shape: Shape, axis: int, count: str, other: float
) -> str:
    """A copy of a tensor with `other` for all elements behind a count along an axis."""
    info = low.tensors[name]
    out = low.temp(shape, info.dtype, info.ctype)
    places = low.constant(np.arange(shape[axis], dtype=np.int32))
    along = tuple(int(k == axis) for k in range(len(shape)))
    b = Builder()
    real = register_of(info.ctype) == "float"
    fill = b.scalar(float(other) if real else int(other))
    slots = (("i", 0), ("i", 1), ("i", 2))
    result = b.op("float" if real else "int", "({1} < {2} ? {0} : {3})", *slots, fill)
    accesses = (
        nd.Access(name, nd.contiguous(shape)),
        nd.Access(places, along),
        nd.Access(count, (0,) * len(shape)),
    )
    low.add(nd.Pointwise(low.label(node), (out,), accesses, b.done(result)))
    return out


def apply(
    low: Lowering, node: Node, call: Call, rules: Callable[[Node, Call], str | None]
) -> str | None:
    """Run the rules of an operator for the largest shapes of its counted inputs.

    Args:
        low: The walk.
        node: The operator.
        call: Its call.
        rules: Apply the operator's rules; the reason when none does.

    Returns:
        None, or why this operator cannot go on with such inputs.
    """
    reason = "a shape is known only at run time"
    bound = _common(low, node)
    if bound is None:
        return f"{reason}, in several places"
    largest = _largest(low, node, call, bound)
    if largest is None:
        return reason
    wide, outputs = largest
    if not _fits(low, node, bound, outputs):
        return reason
    names = dict(low._names)
    count = len(low.nodes)
    low.bounds.update((v, b) for v, b in zip(node.outputs, outputs, strict=True) if b is not None)
    low.loose = True
    try:
        _clean(low, node, bound)
        found = rules(node, wide)
    finally:
        low.loose = False
    if found is None and node.op.name not in _TAKES | _PUTS and _checks(low.nodes[count:]):
        found = "elements behind the count would be checked"
    made = {v: low._names[v] for v in node.outputs if v in low._names}
    low._names.clear()
    low._names.update(names)
    if found is None:
        low._names.update(made)
        return None
    del low.nodes[count:]
    for value in node.outputs:
        low.bounds.pop(value, None)
    return found


def _common(low: Lowering, node: Node) -> Bound | None:
    """The one count of all counted inputs."""
    bounds = [low.bounds[v] for v in node.inputs if v in low.bounds]
    same = {b.count for b in bounds}
    return bounds[0] if len(same) == 1 else None


def _largest(
    low: Lowering, node: Node, call: Call, bound: Bound
) -> tuple[Call, list[Bound | None]] | None:
    """The call for the largest shapes, and which outputs are counted."""
    from loadrun.backends.cuda.lower import Bound as Made

    op: Any = node.op
    types = tuple(
        TensorType(t.dtype, low.bounds[v].shape) if v in low.bounds else t
        for v, t in zip(node.inputs, call.inputs, strict=True)
    )
    if not all(t.is_static for t in types):
        return None
    wide = call.replace(inputs=types)
    try:
        shapes: Sequence[ShapeLike] = op.shapes(wide)
    except MgeError:
        return None
    outputs: list[Bound | None] = []
    made = []
    for value, shape, known in zip(node.outputs, shapes, call.output_types, strict=True):
        if shape is None or None in shape or known.shape is None:
            return None
        full = tuple(n for n in shape if n is not None)
        made.append(TensorType(known.dtype, full))
        open_axes = [k for k, n in enumerate(known.shape) if n is None]
        if len(open_axes) > 1 or (open_axes and full[open_axes[0]] != bound.shape[bound.axis]):
            return None
        outputs.append(Made(full, open_axes[0], bound.count) if open_axes else None)
        del value
    return wide.replace(output_types=tuple(made)), outputs


def _fits(low: Lowering, node: Node, bound: Bound, outputs: Sequence[Bound | None]) -> bool:
    """Whether an operator works on each row alone, and its inputs have their rows alike."""
    name, first = node.op.name, outputs[0]
    if name in _VIEWS:
        return len(outputs) == 1 and first is not None
    if name in _ROWS:
        along = int(node.params[0].axis) % len(bound.shape)
        rows = all(v in low.bounds for v in node.inputs) and first is not None
        return len(outputs) == 1 and rows and along != bound.axis
    if name in _ELEMENTWISE:
        return len(outputs) == 1 and first is not None and _aligned(low, node, first)
    index = node.inputs[1:] if name in _TAKES else node.inputs[2:]
    if name not in _TAKES | _PUTS or node.inputs[0] in low.bounds:
        return False
    rows = all(
        v in low.bounds and len(low.bounds[v].shape) == 1
        for v in index
        if low.array(v) is None
    )  # fmt: skip
    if name in _TAKES:
        return rows and first is not None
    value = low.bounds.get(node.inputs[1])
    return rows and first is None and value is not None and value.axis == 0


def _aligned(low: Lowering, node: Node, out: Bound) -> bool:
    """Whether the counted axis is the same one of all inputs, and nothing else lies along it."""
    behind = len(out.shape) - out.axis
    for value in node.inputs:
        bound = low.bounds.get(value)
        if bound is not None:
            if len(bound.shape) - bound.axis != behind:
                return False
            continue
        shape = low.dims(value)
        if len(shape) >= behind and shape[len(shape) - behind] != 1:
            return False
    return True


def _clean(low: Lowering, node: Node, bound: Bound) -> None:
    """Let index tensors be zero behind the count: no index of theirs is out of range."""
    first = 1 if node.op.name in _TAKES else 2
    if node.op.name not in _TAKES | _PUTS:
        return
    for value in node.inputs[first:]:
        own = low.bounds.get(value)
        if own is not None:
            name = only_live(low, node, low.name(value), own.shape, own.axis, bound.count, 0)
            low._names[value] = name


def _checks(nodes: Sequence[nd.Node]) -> bool:
    return any(isinstance(p, nd.Check) for n in nodes if isinstance(n, nd.Custom) for p in n.params)
