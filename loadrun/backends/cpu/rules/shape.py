"""Shapes, axes, slices and joins: views, copies, and channel maps of images."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import contiguous
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.indexing import SUBTENSOR
from mgeserial.ops.shape import AXIS_ADD_REMOVE, BROADCAST, CONCAT, DIMSHUFFLE, RESHAPE, SPLIT

MOST_CHANNELS = 4096  # of a channel map, whose code grows with them
_MOST = 1 << 31  # elements of a stand-in


@lowers(RESHAPE, AXIS_ADD_REMOVE, DIMSHUFFLE, SUBTENSOR, BROADCAST, SPLIT)
def views(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype, whatever is a strided view of the input; other operands constant.

    The reference code is run on a stand-in of the right shape; where its result is a view of that,
    the result's strides say which elements are wanted.
    """
    source = node.inputs[0]
    shape = low.shape(source)
    others = [low.need_array(v, "an operand") for v in node.inputs[1:]]
    wanted = [low.dims(v) for v in node.outputs]
    size = math.prod(shape)
    if size > _MOST:
        raise NotApplicable("too large")
    stand_in = np.empty(shape, np.int8)  # never touched, so it costs address space only
    results = _try_reference(call, stand_in, others)
    base = stand_in.__array_interface__["data"][0]
    plans = []
    for result, dims in zip(results, wanted, strict=True):
        at = result.__array_interface__["data"][0] - base
        last = sum((n - 1) * s for n, s in zip(result.shape, result.strides, strict=True) if s > 0)
        if result.shape != dims or (0 not in dims and (not at >= 0 or at + last >= size)):
            raise NotApplicable("not a view of the input")
        plans.append((at, tuple(result.strides)))
    name = low.name(source)
    for value, (at, strides) in zip(node.outputs, plans, strict=True):
        if 0 in low.dims(value):
            continue  # known already
        _add_view(low, node, value, name, at, strides)


def _try_reference(call: Call, stand_in: Array, others: list[Array]) -> tuple[Array, ...]:
    reference = call.op.reference
    if reference is None:
        raise NotApplicable("no reference code")
    try:
        found = reference(call, stand_in, *others)
    except MgeError as error:
        raise NotApplicable("not a view of the input") from error
    return (found,) if isinstance(found, np.ndarray) else tuple(found)


def _add_view(
    low: Lowering, node: Node, value: Value, name: str, at: int, strides: tuple[int, ...]
) -> None:
    shape = low.shape(value)
    picked = _channels(low, name, shape, at, strides)
    if picked is not None:
        y = low.out(value)
        low.add(nd.ChannelMap(low.label(node), (name,), (y,), picked))
        return
    y = low.out(value)
    if at == 0 and math.prod(shape) == math.prod(low.shapes[name]):
        steps = [s for s, n in zip(strides, shape, strict=True) if n > 1]
        dense = [s for s, n in zip(contiguous(shape), shape, strict=True) if n > 1]
        if steps == dense:
            low.add(nd.Reshape(low.label(node), (name,), (y,)))
            return
    low.add(nd.View(low.label(node), (name,), (y,), strides, at))


def _channels(
    low: Lowering, name: str, shape: tuple[int, ...], at: int, strides: tuple[int, ...]
) -> tuple[tuple[int, int], ...] | None:
    """The channels that a view of an image keeps, if it keeps whole ones and nothing else."""
    given = low.shapes[name]
    if max((0, *given[1:2], *shape[1:2])) > MOST_CHANNELS:
        return None
    if len(given) != 4 or len(shape) != 4 or low.dtypes.get(name, "float32") != "float32":
        return None
    plane = given[2] * given[3]
    if shape[0] != given[0] or shape[2:] != given[2:] or shape[1] == given[1] or plane == 1:
        return None
    full = contiguous(given)
    if any(strides[k] != full[k] for k in (0, 2, 3) if shape[k] > 1) or strides[1] % plane:
        return None
    if at % plane or at // plane >= given[1]:
        return None
    step = strides[1] // plane
    return tuple((0, at // plane + k * step) for k in range(shape[1]))


@lowers(CONCAT)
def concat(low: Lowering, node: Node, call: Call) -> None:
    """Any dtype; along channels of float32 images in the layout they are in."""
    shape = low.shape(node.outputs[0])
    axis = int(call.param.axis)
    axis += len(shape) if axis < 0 else 0
    values = [v for v in node.inputs if 0 not in low.dims(v)]
    shapes = [low.shape(v) for v in values]
    names = tuple(low.name(v) for v in values)
    y = low.out(node.outputs[0])
    image = len(shape) == 4 and axis == 1 and shape[2] * shape[3] > 1 and shape[1] <= MOST_CHANNELS
    if image and low.is_float32(*values):
        channels = tuple((k, c) for k, s in enumerate(shapes) for c in range(s[1]))
        low.add(nd.ChannelMap(low.label(node), names, (y,), channels))
    else:
        low.add(nd.Join(low.label(node), names, (y,), axis))
