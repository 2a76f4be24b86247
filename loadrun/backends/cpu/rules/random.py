"""Random numbers: the streams of the reference code, drawn in native code.

A stream's state is kept by a Python step of some microseconds, which hands it to the kernel and
moves it ahead by as many numbers as the kernel draws. The integers are those of the reference
code; so are uniform numbers, while normal and exponential ones go through the engine's functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import Builder, narrowed, program
from loadrun.backends.cpu.kernels import index as taking
from loadrun.backends.cpu.kernels import random as kernels
from loadrun.backends.cpu.kernels.index import Lookup, Selection
from loadrun.backends.cpu.kernels.random import Cut
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from loadrun.backends.cpu.rules.index import itemsize, need_positions
from loadrun.backends.cpu.target import detect
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.activation import DROPOUT, DROPOUT_BACKWARD
from mgeserial.ops.generator import Generator, steps
from mgeserial.ops.random import (
    EXPONENTIAL_RNG,
    GAUSSIAN_RNG,
    PERMUTATION_RNG,
    SHUFFLE_RNG,
    UNIFORM_RNG,
)

_TURN = float(np.float32(2 * np.pi))
_MOST = {DTypeEnum.Float32: 1 << 24, DTypeEnum.Int16: 1 << 15, DTypeEnum.Int32: 1 << 26}
_MASK = (1 << 64) - 1


class Stream:
    """The state of a generator from run to run; each call takes `count` numbers.

    Results are the state before, (2,) of int64.
    """

    def __init__(self, seed: int, count: int) -> None:
        """Begin at the seed."""
        self._seed = seed
        low, high = steps(count)
        self._images = [int(a) | int(b) << 64 for a, b in zip(low, high, strict=True)]
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        low, high = Generator(self._seed).state
        self._given = self._state = low | high << 64

    def before(self) -> dict[str, Any]:
        """What an operator's state was before the last call, as its reference code keeps it."""
        found = Generator(self._seed)
        found.state = self._given & _MASK, self._given >> 64
        return {"generator": found}

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The state, which is then moved ahead."""
        del arrays
        given = self._given = self._state
        self._state = 0
        bits = given
        while bits:
            lowest = bits & -bits
            self._state ^= self._images[lowest.bit_length() - 1]
            bits ^= lowest
        return [np.array([given & _MASK, given >> 64], np.uint64).view(np.int64)]


def _draw(low: Lowering, node: Node, call: Call, count: int, kind: str = "uniform") -> str:
    """The next numbers of the operator's stream, (count,)."""
    need_positions((count,))
    cut = Cut.of(count, detect().lanes)
    state, y = low.temp((2,)), low.temp((count,))
    low.dtypes[state] = "int64"
    if kind == "integer":
        low.dtypes[y] = "int64"
    stream = Stream(call.param.seed, count)
    low.add(nd.Host(low.label(node), (), (state,), stream))
    table = cut.table() if cut.bits else np.zeros((1, 64, 4), np.int64)
    reads = (state, low.constant(table))
    make = functools.partial(kernels.draw, cut, kind)
    low.add(nd.Loops(low.unique("draw"), reads, (y,), "draw", make))
    return y


def _kind(call: Call) -> str:
    return "short" if call.output_types[0].dtype.kind is DTypeEnum.Float16 else "uniform"


@lowers(UNIFORM_RNG)
def uniform(low: Lowering, node: Node, call: Call) -> None:
    """Floats, the same as of the reference code."""
    out = node.outputs[0]
    low.need_float32(out)
    numbers = _draw(low, node, call, math.prod(low.shape(out)), _kind(call))
    low.add(nd.Reshape(low.label(node), (numbers,), (low.out(out),)))


@lowers(GAUSSIAN_RNG)
def gaussian(low: Lowering, node: Node, call: Call) -> None:
    """Floats: Box and Muller's pairs."""
    out = node.outputs[0]
    low.need_float32(out)
    shape = low.shape(out)
    count = math.prod(shape)
    half = -(-count // 2)
    numbers = _draw(low, node, call, 2 * half, _kind(call))
    std, mean = (float(np.float32(v)) for v in (call.param.std, call.param.mean))
    exprs = tuple(
        program(
            "uv", "l = log u", "m = mul l -2.0", "s = sqrt m", f"a = mul v {_TURN!r}",
            f"w = {wave} a", "n = mul s w", f"t = mul n {std!r}", f"r = add t {mean!r}",
        )
        for wave in ("cos", "sin")
    )  # fmt: skip
    pairs = low.temp((2 * half,))
    reads = (((2,), 0), ((2,), 1))
    names = (numbers, numbers)
    low.add(nd.Mapped(low.label(node), names, (pairs,), (half,), reads, exprs, (2,), (0, 1)))
    if count % 2:
        kept = low.temp((count,))
        low.add(nd.View(low.unique("numbers"), (pairs,), (kept,), (1,)))
        pairs = kept
    low.add(nd.Reshape(low.unique("numbers"), (pairs,), (low.out(out),)))


@lowers(EXPONENTIAL_RNG)
def exponential(low: Lowering, node: Node, call: Call) -> None:
    """Floats with a rate each."""
    low.need_float32(*node.inputs, *node.outputs)
    shape = low.shape(node.inputs[0])
    numbers = _draw(low, node, call, math.prod(shape))
    shaped = low.temp(shape)
    low.add(nd.Reshape(low.unique("numbers"), (numbers,), (shaped,)))
    expr = program("ux", "l = log u", "n = neg l", "r = div n x")
    names = (shaped, low.name(node.inputs[0]))
    low.add(nd.Eltwise(low.label(node), names, (low.out(node.outputs[0]),), expr))


@lowers(DROPOUT)
def dropout(low: Lowering, node: Node, call: Call) -> None:
    """Floats, and a byte an element that says what was kept."""
    low.need_float32(node.inputs[0], node.outputs[0])
    shape = low.shape(node.inputs[0])
    numbers = _draw(low, node, call, math.prod(shape))
    least = np.float32(call.param.drop_prob)
    kept = f"{float(np.float32(1) - least)!r}"
    chosen = f"k = flag_leq {float(least)!r} u"
    shaped = low.temp(shape)
    low.add(nd.Reshape(low.unique("numbers"), (numbers,), (shaped,)))
    expr = program("ux", chosen, f"d = div x {kept}", "r = where k d 0.0")
    names = (shaped, low.name(node.inputs[0]))
    low.add(nd.Eltwise(low.label(node), names, (low.out(node.outputs[0]),), expr))
    mask = low.out(node.outputs[1])
    low.add(nd.Eltwise(low.unique("mask"), (numbers,), (mask,), program("u", chosen)))


@lowers(DROPOUT_BACKWARD)
def dropout_gradient(low: Lowering, node: Node, call: Call) -> None:
    """Floats where the mask says so."""
    diff, mask = node.inputs
    low.need_float32(diff, node.outputs[0])
    name = low.name(mask)
    shaped = low.temp(low.shape(diff))
    low.dtypes[shaped] = low.dtype_name(name)
    if low.shape(mask) == () or low.dtype_name(name) == "float32":
        raise NotApplicable(f"a mask of {low.dtype_name(name)}")
    low.add(nd.Reshape(low.unique("mask"), (name,), (shaped,)))
    kept = float(np.float32(1) - np.float32(call.param.drop_prob))
    expr = program("dm", "k = ineq m 0", f"s = div d {kept!r}", "r = where k s 0.0")
    names = (low.name(diff), shaped)
    low.add(nd.Eltwise(low.label(node), names, (low.out(node.outputs[0]),), expr))


def _order(low: Lowering, node: Node, call: Call, count: int) -> str:
    """A permutation of 0 to count - 1, int32."""
    if count < 2:
        return low.constant(np.zeros(count, np.int32))
    draws = _draw(low, node, call, count - 1, "integer")
    order = low.temp((count,))
    low.dtypes[order] = "int32"
    make = functools.partial(kernels.permute, count)
    low.add(nd.Loops(low.unique("permute"), (draws,), (order,), "permute", make))
    return order


@lowers(PERMUTATION_RNG)
def permutation(low: Lowering, node: Node, call: Call) -> None:
    """Whole numbers that the type can hold, the same as of the reference code."""
    (count,) = low.shape(node.outputs[0])
    dtype = call.output_types[0].dtype
    if count > _MOST.get(dtype.kind, 0):
        raise NotApplicable(f"{count} numbers of {dtype.name}")
    order = _order(low, node, call, count)
    b = Builder(1)
    value = b.op("to_real", 0) if dtype.is_float else narrowed(b, 0, dtype)
    expr = b.done(value)
    low.add(nd.Eltwise(low.label(node), (order,), (low.out(node.outputs[0]),), expr))


@lowers(SHUFFLE_RNG)
def shuffle(low: Lowering, node: Node, call: Call) -> None:
    """Rows of any type in a random order, and where they came from."""
    shape = low.shape(node.inputs[0])
    need_positions(shape)
    count, each = shape[0], math.prod(shape[1:])
    order = _order(low, node, call, count)
    x = low.name(node.inputs[0])
    lookup = Lookup("int32", (1, 0), count, each)
    selection = Selection((count, each), (0, 1), 0, (lookup,))
    make = functools.partial(taking.take, selection, itemsize(low, x))
    status = low.check(taking.take_units(selection))
    y = low.out(node.outputs[0])
    low.add(nd.Loops(low.label(node), (x, order), (y, status), "take", make))
    low.add(nd.Reshape(low.unique("order"), (order,), (low.out(node.outputs[1]),)))
