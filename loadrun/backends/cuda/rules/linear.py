"""Inner and cross products, inverses, equal steps, looks for numbers that are not finite.

Singular values stay with the reference code: which of the many sets of singular vectors is the
result is LAPACK's choice.
"""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import from_real, to_real
from loadrun.backends.cuda.expr import Builder, c_type
from loadrun.backends.cuda.linked import fill, name_of
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from mgeserial.dtypes import DTypeEnum
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.control import CHECK_HAS_INF, CHECK_NON_FINITE
from mgeserial.ops.create import LINSPACE
from mgeserial.ops.linalg import CROSS, DOT, MATRIX_INVERSE

# A block inverts a matrix: larger ones are for the reference code.
_LARGEST = 512
_CHUNK = 1 << 14  # products that a block sums
_MOST = (1 << 31) - 1


@lowers(DOT)
def dot(low: Lowering, node: Node, call: Call) -> None:
    """Sums in float64 or int64, by blocks, whose sums one block adds."""
    a, b = call.dtype(0), call.dtype(1)
    target = call.output_types[0].dtype
    counts = [math.prod(low.shape(v)) for v in node.inputs]
    low.need_real(*node.inputs)
    integer = a.is_integer and b.is_integer and target.is_integer
    if not integer and not (a.is_float and b.is_float and target.is_float):
        raise NotApplicable(f"products of {a.name} as {target.name}")
    names = [low.name(v) for v in node.inputs]
    y = low.out(node.outputs[0])
    count = max(counts)
    blocks = -(-count // _CHUNK)
    acc = "i64" if integer else "f64"
    parts = low.temp((blocks,), "int64" if integer else "float64", acc)
    code = "".join(
        f"const {low.tensors[n].ctype} *__restrict__ {k}, "
        for n, k in zip(names, "ab", strict=True)
    )
    steps = [0 if n == 1 else 1 for n in counts]
    params: list[nd.Param] = [*map(nd.In, names), nd.Out(parts), blocks, count, _CHUNK, *steps]
    low.kernel(
        node, "dot", params, blocks, per_block=1, INPUTS=code, YT=acc, ACC=acc,
        SCALARS=", int step_a, int step_b", STORE="y[blockIdx.x] = sums[0]",
        VALUE=f"({acc})widen(a[k * step_a]) * ({acc})widen(b[k * step_b])",
    )  # fmt: skip
    result = "(float)sums[0]" if target.is_float else "(int)sums[0]"
    if target.kind is DTypeEnum.Bool:
        result = "(int)(sums[0] != 0)"
    params = [nd.In(parts), nd.Out(y), 1, blocks, blocks]
    low.kernel(
        node, "dot", params, 1, per_block=1, stem="dot_sum", YT=c_type(target), ACC=acc,
        INPUTS=f"const {acc} *__restrict__ a, ", SCALARS="", VALUE="a[k]",
        STORE=f"narrow(y[0], {result})",
    )  # fmt: skip


@lowers(MATRIX_INVERSE)
def matrix_inverse(low: Lowering, node: Node, call: Call) -> None:
    """Matrices of moderate size, in float64; a singular one is an error."""
    x = node.inputs[0]
    low.need_float(x)
    shape = low.shape(x)
    n = shape[-1]
    count = math.prod(shape[:-2])
    if n > _LARGEST or 2 * math.prod(shape) > _MOST:
        raise NotApplicable(f"matrices of more than {_LARGEST} rows")
    name, y = low.name(x), low.out(node.outputs[0])
    work = low.temp((count, n, 2 * n), "float64", "f64")
    check = nd.Check(f"{name_of(node)}: a matrix to invert is singular")
    params: list[nd.Param] = [nd.In(name), nd.Out(y), nd.Out(work), check, count, n]
    low.kernel(node, "inverse", params, count, per_block=1, XT=low.tensors[name].ctype)


@lowers(CROSS)
def cross(low: Lowering, node: Node, call: Call) -> None:
    """Along any axes, with broadcasting, by tables of places."""
    low.need_float(*node.inputs)
    shapes = [low.shape(v) for v in (*node.inputs, *node.outputs)]
    p = call.param
    axes = [int(a) % len(s) for a, s in zip((p.axisa, p.axisb, p.axisc), shapes, strict=True)]
    rest = shapes[2][: axes[2]] + shapes[2][axes[2] + 1 :]
    items = math.prod(rest)
    steps, tables = [], []
    for shape, axis in zip(shapes, axes, strict=True):
        steps.append(math.prod(shape[axis + 1 :]))
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        first = np.broadcast_to(places.take(0, axis), rest)
        tables.append(nd.In(low.constant(np.ascontiguousarray(first))))
    names = [low.name(v) for v in node.inputs]
    y = low.out(node.outputs[0])
    params: list[nd.Param] = [*map(nd.In, names), *tables, nd.Out(y), items, *steps]
    kinds = [low.tensors[n].ctype for n in (*names, y)]
    low.kernel(node, "cross", params, items, AT=kinds[0], BT=kinds[1], YT=kinds[2])


@lowers(LINSPACE)
def linspace(low: Lowering, node: Node, call: Call) -> None:
    """Ends of the run, a constant number of points."""
    (count,) = low.shape(node.outputs[0])
    ends = node.inputs[:2]
    for value in ends:
        low.shape(value)
        low.need_real(value)
        if low.dtype(value).is_quantized:
            raise NotApplicable(f"ends of {low.dtype(value).name}")
    names = [low.name(v) for v in ends]
    y = low.out(node.outputs[0])
    parts = max(count - 1 if call.param.endpoint else count, 1)
    params: list[nd.Param] = [*map(nd.In, names), nd.Out(y), count, parts]
    low.kernel(node, "linspace", params, count, AT=low.tensors[names[0]].ctype,
               BT=low.tensors[names[1]].ctype)  # fmt: skip


def _flag(low: Lowering, node: Node, value: Value, values: list[Value], test: str) -> None:
    """Whether an element of some values passes a test, as an int32."""
    flag = low.out(value)
    fill(low, node, flag, 1, 0)
    for looked in values:
        if not low.dtype(looked).is_float:
            continue  # integers and codes are finite
        items = math.prod(low.shape(looked))
        x = low.name(looked)
        params: list[nd.Param] = [nd.In(x), nd.Out(flag), items]
        low.kernel(node, "flag", params, items, XT=low.tensors[x].ctype, TEST=test)


@lowers(CHECK_HAS_INF)
def check_has_inf(low: Lowering, node: Node, call: Call) -> None:
    """Whether any element is infinite."""
    low.shape(node.inputs[0])
    low.need_real(node.inputs[0])
    _flag(low, node, node.outputs[0], [node.inputs[0]], "fabsf(v) == INFINITY")


@lowers(CHECK_NON_FINITE)
def check_non_finite(low: Lowering, node: Node, call: Call) -> None:
    """Scaled copies, where the operator makes them, and a flag."""
    for value in node.inputs:
        low.shape(value)
        low.need_real(value)
    _flag(low, node, node.outputs[-1], list(node.inputs), "!(fabsf(v) < INFINITY)")
    if len(node.outputs) == 1:
        return
    scale = np.float32(call.param.scale)
    for k, (x, y) in enumerate(zip(node.inputs, node.outputs, strict=False)):
        if scale == 1:
            low.same(y, low.name(x))
            continue
        b = Builder()
        real = to_real(b, ("i", 0), call.dtype(k))
        code = "(fabsf({0}) < INFINITY ? {0} * {1} : {0})"
        result = from_real(b, b.op("float", code, real, b.scalar(float(scale))), call.dtype(k))
        access = (low.access(x, low.shape(x)),)
        low.add(nd.Pointwise(low.label(node), (low.out(y),), access, b.done(result)))
