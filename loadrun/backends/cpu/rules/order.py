"""Positions of extremes, sorting, suppression of boxes."""

from __future__ import annotations

import functools
import math

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.kernels import order as kernels
from loadrun.backends.cpu.kernels.order import Sorting
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.index import need_positions
from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.reduce import ARGMAX, ARGMIN
from mgeserial.ops.sorting import ARGSORT, NMS_KEEP, TOP_K

_LONGEST_ROW = 1 << 20  # of what is sorted: 16 bytes each of every thread's scratch memory


def need_plain(low: Lowering, value: Value) -> None:
    """Refuse elements that kernels cannot compute with: bfloat16, complex."""
    dtype = low.inference.types[value].dtype
    short = dtype.kind is DTypeEnum.BFloat16 and not low.half
    if short or dtype.kind is DTypeEnum.Complex64:
        raise NotApplicable(f"elements of {dtype}")
    need_positions(low.shape(value))


@lowers(ARGMAX, ARGMIN)
def extreme(low: Lowering, node: Node, call: Call) -> None:
    """Along any axis, numbers and codes."""
    need_plain(low, node.inputs[0])
    shape = low.shape(node.inputs[0])
    axis = int(call.param.axis) % len(shape)
    sizes = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    x = low.name(node.inputs[0])
    largest = node.op.name == "Argmax"
    make = functools.partial(kernels.extreme, sizes, low.dtype_name(x), largest=largest)
    y = low.out(node.outputs[0])
    low.add(nd.Loops(low.label(node), (x,), (y,), "extreme", make))


def _sort(
    low: Lowering, node: Node, kept: int, *, descending: bool, only_last: bool = False
) -> None:
    need_plain(low, node.inputs[0])
    rows, n = low.shape(node.inputs[0])
    for value in node.outputs:
        low.shape(value)
    if n > _LONGEST_ROW:
        raise NotApplicable(f"rows of more than {_LONGEST_ROW} elements")
    if len(node.outputs) != 2 - only_last:
        raise NotApplicable("an unexpected number of outputs")
    x = low.name(node.inputs[0])
    how = Sorting(rows, n, kept, low.dtype_name(x), descending, only_last)
    outs = tuple(low.out(v) for v in node.outputs)
    make = functools.partial(kernels.sort, how)
    low.add(nd.Loops(low.label(node), (x,), outs, "sort", make))


@lowers(ARGSORT)
def argsort(low: Lowering, node: Node, call: Call) -> None:
    """Numbers and codes, both orders."""
    descending = call.param.order == P.ArgsortOrder.DESCENDING
    _sort(low, node, low.shape(node.inputs[0])[1], descending=descending)


@lowers(TOP_K)
def top_k(low: Lowering, node: Node, call: Call) -> None:
    """Numbers and codes, k constant."""
    k = int(low.need_array(node.inputs[1], "k").reshape(-1)[0])
    kept = min(abs(k), low.shape(node.inputs[0])[1])
    only = call.param.mode == P.TopKMode.KTH_ONLY
    _sort(low, node, kept, descending=k < 0, only_last=only)


@lowers(NMS_KEEP)
def nms_keep(low: Lowering, node: Node, call: Call) -> None:
    """Batches of boxes."""
    batch, n, _ = low.shape(node.inputs[0])
    need_positions(low.shape(node.inputs[0]), *(low.shape(v) for v in node.outputs))
    boxes = low.name(node.inputs[0])
    outs = tuple(low.out(v) for v in node.outputs)
    limit, threshold = int(call.param.max_output), float(call.param.iou_thresh)
    make = functools.partial(kernels.nms, batch, n, limit, threshold)
    low.add(nd.Loops(low.label(node), (boxes,), outs, "suppression", make))
