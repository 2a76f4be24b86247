"""Random numbers.

Where the reference code defines the stream (uniform, normal and exponential numbers, permutations,
Dropout) the device draws the very same numbers of xoroshiro128+: threads jump to their place in it.
Gamma, beta, Poisson and multinomial numbers have a distribution only: they come from Philox 4x32-10
under the operator's seed, counted by element and run, so that a session can be repeated exactly.
Generators start anew with each program and go on from run to run, as on the other backends.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.elements import convert
from loadrun.backends.cuda.expr import Builder
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rearranged import RAW
from loadrun.backends.cuda.rules.order import sorted_rows
from mgeserial.dtypes import FLOAT16, INT32
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.activation import DROPOUT, DROPOUT_BACKWARD
from mgeserial.ops.generator import Generator, jump
from mgeserial.ops.random import (
    BETA_RNG,
    EXPONENTIAL_RNG,
    GAMMA_RNG,
    GAUSSIAN_RNG,
    MULTINOMIAL_RNG,
    PERMUTATION_RNG,
    POISSON_RNG,
    SHUFFLE_RNG,
    SHUFFLE_RNG_BACKWARD,
    UNIFORM_RNG,
)

__all__ = ["UNIFORM", "Stream"]

_MOST = (1 << 31) - 2  # numbers that a run can draw
_LONGEST = 1 << 26  # elements that one block exchanges
# Float numbers in (0, 1] of the upper 23 bits of a word, of the upper 10 for float16.
UNIFORM = "float u = 2.f - __int_as_float((int)(word >> 41) | 0x3f800000);"
_UNIFORM16 = "float u = 2.f - (1.f + (float)(int)(word >> 54) * 0.0009765625f);"
# Box and Muller: a number at an even place waits for the next one.
_NORMAL = """if (at % 2 == 0) {
      before = u;
      continue;
    }
    float radius = sqrtf(-2.f * logf(before)), angle = 6.2831854820251465f * u;
    narrow(y[at - 1], radius * cosf(angle) * std + mean);
    if (at < wanted) narrow(y[at], radius * sinf(angle) * std + mean);"""


def _jumps() -> Array:
    """Matrices of 1, 2, 4 ... steps, (31, 256) words."""
    return np.stack([np.concatenate(jump(k)) for k in range(31)])


class Stream:
    """The generator of an operator on the device: xoroshiro128+ and its place."""

    def __init__(self, low: Lowering, node: Node, seed: int) -> None:
        self._low, self._node = low, node
        self._table = low.table("jumps", _jumps, "u64")
        self._state = low.state(np.array(Generator(seed).state, np.uint64), "u64")

    def draw(
        self,
        count: int,
        emit: str,
        tensors: dict[str, nd.In | nd.Out],
        scalars: dict[str, int | float] | None = None,
    ) -> None:
        """Draw numbers and go on behind them.

        Args:
            count: Numbers to draw.
            emit: C code of what becomes of `word`, number `at`.
            tensors: What the code reads and writes, by name.
            scalars: Numbers that it uses, by name.

        Raises:
            NotApplicable: So many numbers cannot be counted.
        """
        low, node = self._low, self._node
        if count > _MOST:
            raise NotApplicable("more random numbers than 31 bits count")
        each = 64 if count >= 1 << 20 else 16 if count >= 1 << 14 else 4
        params, names, more = "", scalars or {}, ""
        for name, tensor in tensors.items():
            const = "const " if isinstance(tensor, nd.In) else ""
            params += f"{const}{low.tensors[tensor.tensor].ctype} *__restrict__ {name}, "
        for name, number in names.items():
            more += f", {'int' if isinstance(number, int) else 'float'} {name}"
        steps = source.text("rng_jump")
        low.kernel(
            node, "rng", (
                nd.In(self._state), nd.In(self._table), *tensors.values(), count, each,
                *names.values(),
            ), -(-count // each), JUMP=steps, PARAMS=params, SCALARS=more, EMIT=emit,
        )  # fmt: skip
        advance = (nd.In(self._table), nd.Out(self._state), 1, count)
        low.kernel(node, "rng_advance", advance, 1, per_block=32, block=32, JUMP=steps)

    def permutation(self, count: int, order: str) -> None:
        """Draw a permutation of 0 to count - 1 into an int32 tensor."""
        low = self._low
        if count > _LONGEST:
            raise NotApplicable(f"permutations of more than {_LONGEST} elements")
        target = low.constant(np.zeros(1, np.int32))
        claim = low.temp((count,), "int32", "i32")
        if count > 1:
            target = low.temp((count - 1,), "int32", "i32")
            code = "target[at] = (int)((word & 0x7fffffffffffffffull) % (u64)(count - at));"
            self.draw(count - 1, code, {"target": nd.Out(target)}, {"count": count})
        params = (nd.In(target), nd.Out(order), nd.Out(claim), 1, count)
        low.kernel(self._node, "shuffle", params, 1, per_block=1, block=1024)


@lowers(UNIFORM_RNG)
def uniform(low: Lowering, node: Node, call: Call) -> None:
    """The reference's numbers, of any floating type."""
    count = math.prod(low.shape(node.outputs[0]))
    code = _UNIFORM16 if call.output_types[0].dtype == FLOAT16 else UNIFORM
    y = low.out(node.outputs[0])
    stream = Stream(low, node, call.param.seed)
    stream.draw(count, f"{code} narrow(y[at], u);", {"y": nd.Out(y)})


@lowers(GAUSSIAN_RNG)
def gaussian(low: Lowering, node: Node, call: Call) -> None:
    """Of the reference's uniform numbers, of any floating type."""
    count = math.prod(low.shape(node.outputs[0]))
    code = _UNIFORM16 if call.output_types[0].dtype == FLOAT16 else UNIFORM
    y = low.out(node.outputs[0])
    numbers: dict[str, int | float] = {
        "wanted": count, "std": float(call.param.std), "mean": float(call.param.mean),
    }  # fmt: skip
    stream = Stream(low, node, call.param.seed)
    stream.draw(count + count % 2, f"{code} {_NORMAL}", {"y": nd.Out(y)}, numbers)


@lowers(EXPONENTIAL_RNG)
def exponential(low: Lowering, node: Node, call: Call) -> None:
    """Of the reference's uniform numbers."""
    low.need_float(node.inputs[0])
    count = math.prod(low.shape(node.inputs[0]))
    rate, y = low.name(node.inputs[0]), low.out(node.outputs[0])
    code = f"{UNIFORM} narrow(y[at], -logf(u) / widen(rate[at]));"
    stream = Stream(low, node, call.param.seed)
    stream.draw(count, code, {"rate": nd.In(rate), "y": nd.Out(y)})


@lowers(DROPOUT)
def dropout(low: Lowering, node: Node, call: Call) -> None:
    """Keeps what the reference keeps, and says so in the mask."""
    low.need_float(node.inputs[0])
    count = math.prod(low.shape(node.inputs[0]))
    x, y = low.name(node.inputs[0]), low.out(node.outputs[0])
    mask = low.out(node.outputs[1])
    dropped = np.float32(call.param.drop_prob)
    code = (
        f"{UNIFORM} bool keeps = u >= dropped; mask[at] = keeps; "
        "narrow(y[at], keeps ? widen(x[at]) / kept : 0.f);"
    )
    stream = Stream(low, node, call.param.seed)
    stream.draw(
        count, code, {"x": nd.In(x), "y": nd.Out(y), "mask": nd.Out(mask)},
        {"dropped": float(dropped), "kept": float(np.float32(1) - dropped)},
    )  # fmt: skip


@lowers(DROPOUT_BACKWARD)
def dropout_backward(low: Lowering, node: Node, call: Call) -> None:
    """The gradient where the mask is set."""
    diff, mask = node.inputs
    low.need_float(diff)
    shape = low.shape(diff)
    low.shape(mask)
    b = Builder()
    kept = b.scalar(float(np.float32(1) - np.float32(call.param.drop_prob)))
    result = b.op("float", "({1} ? {0} / {2} : 0.f)", ("i", 0), ("i", 1), kept)
    strides = nd.contiguous(shape)
    accesses = (nd.Access(low.name(diff), strides), nd.Access(low.name(mask), strides))
    low.add(nd.Pointwise(low.label(node), (low.out(node.outputs[0]),), accesses, b.done(result)))


@lowers(PERMUTATION_RNG)
def permutation(low: Lowering, node: Node, call: Call) -> None:
    """The reference's permutation."""
    value = node.outputs[0]
    (count,) = low.shape(value)
    dtype = call.output_types[0].dtype
    stream = Stream(low, node, call.param.seed)
    if dtype == INT32:
        stream.permutation(count, low.out(value))
        return
    order = low.temp((count,), "int32", "i32")
    stream.permutation(count, order)
    b = Builder()
    result = convert(b, ("i", 0), INT32, dtype)
    access = (nd.Access(order, (1,)),)
    low.add(nd.Pointwise(low.label(node), (low.out(value),), access, b.done(result)))


def _rows(low: Lowering, node: Node, x: str, order: str, value: Value) -> None:
    """Rows of a tensor in the order of an index."""
    shape = low.shape(value)
    items = math.prod(shape)
    raw = RAW[low.dtype(value).storage.itemsize]
    params = (nd.In(x), nd.In(order), nd.Out(low.out(value)), items, items // shape[0])
    low.kernel(node, "rows", params, items, T=raw)


@lowers(SHUFFLE_RNG)
def shuffle(low: Lowering, node: Node, call: Call) -> None:
    """Rows in the reference's order."""
    low.need_real(node.inputs[0])
    shape = low.shape(node.inputs[0])
    order = low.out(node.outputs[1])
    Stream(low, node, call.param.seed).permutation(shape[0], order)
    _rows(low, node, low.name(node.inputs[0]), order, node.outputs[0])


@lowers(SHUFFLE_RNG_BACKWARD)
def unshuffle(low: Lowering, node: Node, call: Call) -> None:
    """Rows back to where they came from."""
    diff, index = node.inputs[:2]
    low.need_real(diff)
    rows = low.shape(node.outputs[0])[0]
    name = low.name(index)
    back = low.temp((rows,), "int32", "i32")
    check = nd.Check(f"{node.display_name or node.op.name}: an index is outside its axis")
    params = (nd.In(name), nd.Out(back), check, 1, rows, low.shape(index)[0])
    low.kernel(
        node, "inverse_order", params, 1, per_block=1, block=1024, IT=low.tensors[name].ctype
    )
    _rows(low, node, low.name(diff), back, node.outputs[0])


# -- distributions of numbers that nobody has fixed

_POSITIVE = "bool valid = p0 > 0.f && p0 < INFINITY && p1 > 0.f && p1 < INFINITY;\n  "
_GAMMA = _POSITIVE + "narrow(y[i], valid ? (float)(exp(random.log_gamma(p0)) * p1) : NAN);"
_BETA = _POSITIVE + (
    "double a = valid ? random.log_gamma(p0) : 0.0, b = valid ? random.log_gamma(p1) : 0.0;\n"
    "  narrow(y[i], valid ? (float)(1.0 / (1.0 + exp(b - a))) : NAN);"
)
_POISSON = (
    "bool valid = p0 >= 0.f && p0 < INFINITY;\n"
    "  narrow(y[i], valid ? (float)random.poisson(p0) : NAN);"
)
_CODES = {"GammaRNG": _GAMMA, "BetaRNG": _BETA, "PoissonRNG": _POISSON}
# The first class whose running sum is above a number below the sum of all.
_CHOOSE = """const double *row = sums + (i64)(i / samples) * classes;
  double wanted = random.uniform() * row[classes - 1];
  int low = 0, high = classes - 1;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (row[middle] > wanted) high = middle;
    else low = middle + 1;
  }
  y[i] = low;"""
# The largest of logarithms that are moved by numbers of the Gumbel distribution.
_PERTURB = "y[i] = (float)(log((double)widen(weights[i])) - log(-log(random.uniform())));"


def _draw(
    low: Lowering,
    node: Node,
    seed: int,
    inputs: dict[str, str],
    y: str,
    items: int,
    body: str,
    scalars: dict[str, int] | None = None,
) -> None:
    turn = low.state(np.zeros(1, np.int32), "i32")
    code, numbers = "", scalars or {}
    for name, tensor in inputs.items():
        code += f"const {low.tensors[tensor].ctype} *__restrict__ {name}, "
    keys = np.array([seed % (1 << 64)], np.uint64).view(np.int32)
    params: list[nd.Param] = [
        *map(nd.In, inputs.values()), nd.In(turn), nd.Out(y), items, int(keys[0]),
        int(keys[1]), *numbers.values(),
    ]  # fmt: skip
    low.kernel(
        node, "draw", params, items, PHILOX=source.text("philox"), INPUTS=code,
        YT=low.tensors[y].ctype, BODY=body, SCALARS="".join(f", int {n}" for n in numbers),
    )  # fmt: skip
    low.kernel(node, "turn", (nd.Out(turn), 1), 1, per_block=32, block=32)


@lowers(GAMMA_RNG, BETA_RNG, POISSON_RNG)
def distribution(low: Lowering, node: Node, call: Call) -> None:
    """The same distribution, not the same numbers; NaN where a parameter is out of its range."""
    low.need_float(*node.inputs)
    items = math.prod(low.shape(node.outputs[0]))
    names = {f"x{k}": low.name(v) for k, v in enumerate(node.inputs)}
    load = "".join(f"float p{k} = widen(x{k}[i]);\n  " for k in range(len(names)))
    y = low.out(node.outputs[0])
    _draw(low, node, call.param.seed, names, y, items, load + _CODES[node.op.name])


@lowers(MULTINOMIAL_RNG)
def multinomial(low: Lowering, node: Node, call: Call) -> None:
    """The same distribution, not the same numbers, with and without replacement."""
    probs = node.inputs[0]
    low.need_float(probs)
    shape, samples = low.shape(probs), int(call.param.num_samples)
    classes = shape[-1]
    rows = math.prod(shape) // classes
    x, again = low.name(probs), bool(call.param.replacement)
    y = low.out(node.outputs[0])
    kind = low.tensors[x].ctype
    check = nd.Check(
        f"{node.display_name or node.op.name}: probabilities must be finite and at least "
        "0, and enough of them above 0"
    )
    needed = 1 if again else samples
    low.shape(node.outputs[0])
    sums = low.temp((rows, classes), "float64", "f64")
    params: list[nd.Param] = [nd.In(x), nd.Out(sums), check, rows, classes, needed]
    low.kernel(node, "weights_check", params, rows, XT=kind)
    seed = call.param.seed
    if again:
        numbers = {"classes": classes, "samples": samples}
        _draw(low, node, seed, {"sums": sums}, y, rows * samples, _CHOOSE, numbers)
        return
    keys = low.temp((rows, classes))
    _draw(low, node, seed, {"weights": x}, keys, rows * classes, _PERTURB)
    best = low.temp((rows, samples))
    sorted_rows(low, node, keys, (best, y), (rows, classes, samples), descending=True)
