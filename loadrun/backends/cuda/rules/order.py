"""Positions of extremes, running sums, sorting, suppression of boxes."""

from __future__ import annotations

import math

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.expr import c_type
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial import params as P
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.reduce import ARGMAX, ARGMIN, CUMSUM
from mgeserial.ops.sorting import ARGSORT, NMS_KEEP, TOP_K

__all__ = ["sorted_rows"]

# Counting takes n steps an element: longer rows are sorted in runs of so many, which are merged.
_RUN = 1024


@lowers(ARGMAX, ARGMIN)
def extreme(low: Lowering, node: Node, call: Call) -> None:
    """Along any axis, of any type; a thread a line."""
    shape = low.shape(node.inputs[0])
    low.need_real(node.inputs[0])
    axis = int(call.param.axis) % len(shape)
    items = math.prod(shape) // shape[axis]
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    params = (nd.In(x), nd.Out(y), items, shape[axis], math.prod(shape[axis + 1 :]))
    sign = ">" if node.op.name == "Argmax" else "<"
    fields = (("XT", c_type(call.dtype(0))), ("SIGN", sign))
    low.add(nd.Custom(low.label(node), (y,), "extreme", fields, params, items, stem="extreme"))


@lowers(CUMSUM)
def cumsum(low: Lowering, node: Node, call: Call) -> None:
    """Along any axis, of any type, reversed or exclusive; a thread a line."""
    shape = low.shape(node.inputs[0])
    low.need_real(node.inputs[0])
    dtype, p = call.dtype(0), call.param
    axis = int(p.axis) % len(shape)
    items = math.prod(shape) // shape[axis]
    x = low.name(node.inputs[0])
    y = low.out(node.outputs[0])
    result = "(int)(acc != 0)" if dtype.storage.kind == "b" else "(int)acc"
    fields = (
        ("XT", c_type(dtype)), ("ACC", "f64" if dtype.is_float else "i64"),
        ("RESULT", "(float)acc" if dtype.is_float else result),
    )  # fmt: skip
    params = (
        nd.In(x), nd.Out(y), items, shape[axis], math.prod(shape[axis + 1 :]),
        int(p.reverse), int(p.exclusive),
    )  # fmt: skip
    low.add(nd.Custom(low.label(node), (y,), "cumsum", fields, params, items, stem="cumsum"))


def _sort(
    low: Lowering, node: Node, call: Call, kept: int, *, descending: bool, only: bool
) -> None:
    rows, n = low.shape(node.inputs[0])
    low.need_real(node.inputs[0])
    for value in node.outputs:
        low.shape(value)
    x = low.name(node.inputs[0])
    values = low.out(node.outputs[0])
    indices = low.out(node.outputs[1]) if len(node.outputs) > 1 else low.temp((1,), "int32", "i32")
    size = (rows, n, kept)
    sorted_rows(low, node, x, (values, indices), size, descending=descending, only=only)


def sorted_rows(
    low: Lowering,
    node: Node,
    x: str,
    outs: tuple[str, str],
    size: tuple[int, int, int],
    *,
    descending: bool,
    only: bool = False,
) -> None:
    """Add the sorting of rows: NaN is greatest, equals keep their order, or turn it descending.

    Args:
        low: The lowering.
        node: The operator it is part of.
        x: Tensor (rows, n).
        outs: Tensors (rows, kept) of the first values and their int32 places.
        size: Rows, n, kept.
        descending: Whether the greatest come first.
        only: Write the last of the kept values alone, (rows,), and no places.
    """
    rows, n, kept = size
    items, info = rows * n, low.tensors[x]
    scalars = (n, kept, int(descending), int(only))
    if n <= _RUN:
        params: list[nd.Param] = [nd.In(x), *map(nd.Out, outs), items, *scalars]
        low.kernel(node, "sort", params, items, XT=info.ctype)
        return
    held = [
        (low.temp((rows, n), info.dtype, info.ctype), low.temp((rows, n), "int32", "i32"))
        for _ in range(2)
    ]
    width, at = _RUN, 0
    params = [nd.In(x), *map(nd.Out, held[at]), items, n, width]
    low.kernel(node, "sort_runs", params, items, XT=info.ctype)
    while width < n:
        params = [*map(nd.In, held[at]), *map(nd.Out, held[1 - at]), items, n, width]
        low.kernel(node, "sort_merge", params, items, XT=info.ctype)
        width, at = 2 * width, 1 - at
    params = [*map(nd.In, held[at]), *map(nd.Out, outs), rows * kept, *scalars]
    low.kernel(node, "sort_pick", params, rows * kept, XT=info.ctype)


@lowers(ARGSORT)
def argsort(low: Lowering, node: Node, call: Call) -> None:
    """Rows of any length: by counting, or merging where they are long."""
    descending = call.param.order == P.ArgsortOrder.DESCENDING
    _sort(low, node, call, low.shape(node.inputs[0])[1], descending=descending, only=False)


@lowers(TOP_K)
def top_k(low: Lowering, node: Node, call: Call) -> None:
    """As Argsort; k constant."""
    k = int(low.need_array(node.inputs[1], "k").reshape(-1)[0])
    kept = min(abs(k), low.shape(node.inputs[0])[1])
    only = call.param.mode == P.TopKMode.KTH_ONLY
    if not only and len(node.outputs) != 2:
        raise NotApplicable("an unexpected number of outputs")
    _sort(low, node, call, kept, descending=k < 0, only=only)


@lowers(NMS_KEEP)
def nms_keep(low: Lowering, node: Node, call: Call) -> None:
    """A block a batch, box after box."""
    batch, n, _ = low.shape(node.inputs[0])
    for value in node.outputs:
        low.shape(value)
    boxes = low.name(node.inputs[0])
    outs = (low.out(node.outputs[0]), low.out(node.outputs[1]))
    scratch = low.temp((batch, n), "uint8", "u8")
    params = (
        nd.In(boxes), nd.Out(outs[0]), nd.Out(outs[1]), nd.Out(scratch), batch, n,
        int(call.param.max_output), float(call.param.iou_thresh),
    )  # fmt: skip
    # As numpy: NaN wins.
    fields = (("MIN", "lesser"), ("MAX", "greater"))
    low.add(
        nd.Custom(
            low.label(node), (*outs, scratch), "nms", fields, params, batch, per_block=1, stem="nms"
        )
    )
