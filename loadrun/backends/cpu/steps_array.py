"""How operators on contiguous arrays become steps."""

from __future__ import annotations

import math

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.draft import Draft, contiguous
from loadrun.backends.cpu.kernels import conv, elementwise, matmul, recurrent, rowwise
from loadrun.backends.cpu.layout import plain
from loadrun.backends.cpu.plan import Arg, Array, HostStep, Place

_SHORT = 64  # elements of a row that is better joined with others
_MOST_WRITTEN = 1 << 14  # elements of a constant written out for several rows


def _operand_kind(shape: nd.Shape, out: nd.Shape) -> str:
    """How a blocked loop can read an input of this shape, '' if it cannot."""
    if len(shape) > 4:
        return ""
    dims = (1,) * (4 - len(shape)) + shape
    if dims == out:
        return "full"
    if all(d == 1 for d in dims):
        return "scalar"
    if dims[0] in (1, out[0]) and dims[1] == out[1] and dims[2:] == (1, 1):
        return "channel"
    if dims[0] in (1, out[0]) and dims[1] == 1 and dims[2:] == out[2:]:
        return "spatial"
    return ""


def _prefers_blocked(draft: Draft, node: nd.Eltwise) -> bool:
    """Blocked when a full input is there in that form only, and every input can be read so."""
    out = draft.network.shapes[node.outputs[0]]
    if len(out) != 4:
        return False
    kinds = [_operand_kind(draft.network.shapes[n], out) for n in node.inputs]
    if not all(kinds):
        return False
    full = [n for n, k in zip(node.inputs, kinds, strict=True) if k == "full"]
    return any(draft.only_blocked(n) for n in full)


def emit_eltwise(draft: Draft, node: nd.Node) -> None:
    """An elementwise expression, on blocked images where its inputs are."""
    assert isinstance(node, nd.Eltwise)
    net, t = draft.network, draft.target
    out = net.shapes[node.outputs[0]]
    kinds = [net.dtype(n) for n in (*node.inputs, *node.outputs)]
    if any(k != "float32" for k in kinds):
        _emit_typed(draft, node, kinds)
        return
    if not _prefers_blocked(draft, node):
        reads, shapes = _operands(draft, node, out)
        y = draft.add_plain(node.outputs[0])
        kernel = elementwise.elementwise(out, shapes, node.expr, t)
        draft.step(node.name, kernel, (*reads, y), reads, (y,), "elementwise")
        return
    args: list[str] = []
    operands: list[elementwise.Operand] = []
    for name in node.inputs:
        kind = _operand_kind(net.shapes[name], out)
        n, c, h, w = (1,) * (4 - len(net.shapes[name])) + net.shapes[name]
        if kind == "scalar":
            args.append(draft.need_plain(name))
            operands.append(elementwise.Operand(kind))
        elif kind == "spatial":
            args.append(draft.need_plain(name))
            operands.append(elementwise.Operand(kind, plain(n, c, h, w)))
        else:
            args.append(draft.need_blocked(name))
            operands.append(elementwise.Operand(kind, draft.image(args[-1])))
    y = draft.add_blocked(node.outputs[0])
    kernel, rows = elementwise.blocked_elementwise(draft.image(y), operands, node.expr, t)
    reads = tuple(dict.fromkeys(args))
    draft.step(node.name, kernel, (*args, y), reads, (y,), "elementwise", rows=rows)


def _operands(
    draft: Draft, node: nd.Eltwise, out: nd.Shape
) -> tuple[tuple[str, ...], list[nd.Shape]]:
    """Buffers and shapes of an expression's inputs.

    Where rows are short, as those of channels at the end, constants are written out for several
    rows, so that all of them together are one.
    """
    reads, shapes = [], []
    for name in node.inputs:
        shape = draft.network.shapes[name]
        const = draft.network.consts.get(name)
        if const is not None and const.size > 1 and len(out) > 1 and out[-1] < _SHORT:
            ends = out[-2:]
            few = (1,) * (2 - len(shape)) + tuple(shape)
            if few[-2] == 1 < out[-2] and math.prod(few[:-2]) * math.prod(ends) <= _MOST_WRITTEN:
                whole = np.broadcast_to(const, (*few[:-2], *ends))
                reads.append(draft.array_const(f"{node.name}:{name}:rows", whole))
                shapes.append(whole.shape)
                continue
        reads.append(draft.need_plain(name))
        shapes.append(shape)
    return tuple(reads), shapes


def _emit_typed(draft: Draft, node: nd.Eltwise, kinds: list[str]) -> None:
    from loadrun.backends.cpu.kernels import typed

    out = draft.network.shapes[node.outputs[0]]
    reads, shapes = _operands(draft, node, out)
    y = draft.add_plain(node.outputs[0])
    kernel = typed.elementwise(out, shapes, kinds, node.expr, draft.target)
    draft.step(node.name, kernel, (*reads, y), reads, (y,), "elementwise")


def emit_dense(draft: Draft, node: nd.Node) -> None:
    """A product with constant weights."""
    assert isinstance(node, nd.Dense)
    x = draft.need_plain(node.inputs[0])
    operand = draft.need_plain(node.inputs[1]) if len(node.inputs) > 1 else ""
    y = draft.add_plain(node.outputs[0])
    m, k = draft.network.shapes[node.inputs[0]]
    n = node.weights.shape[1]
    code = matmul.Dense(
        m, k, n, node.epilogue, draft.target, threads=draft.threads, way=draft.way(node)
    )
    w = draft.packed_const(f"{node.name}:w", code.packed_bytes, node, code.pack, code.kernel.name)
    b = draft.array_const(f"{node.name}:bias", conv.pad_bias(node.bias, n, draft.target.lanes))
    taps = draft.array_const(f"{node.name}:taps", code.taps)
    reads = (x, operand) if operand else (x,)
    args = (x, w, b, y, operand or y, taps)
    draft.step(node.name, code.kernel, args, reads, (y,), "dense", flops=2.0 * m * k * n)


def emit_matmul(draft: Draft, node: nd.Node) -> None:
    """A product of two computed matrices: pack the right one, then multiply."""
    assert isinstance(node, nd.MatMul)
    a, b = (draft.need_plain(n) for n in node.inputs)
    y = draft.add_plain(node.outputs[0])
    code = matmul.MatMul(
        node.batch,
        node.m,
        node.k,
        node.n,
        draft.target,
        transposed=node.transposed,
        threads=draft.threads,
        way=draft.way(node),
    )
    packed = draft.add_scratch(f"{node.name}:packed", code.packed_bytes)
    draft.step(f"{node.name}:pack", code.pack_kernel, (b, packed), (b,), (packed,), "pack")
    taps = draft.array_const(f"{node.name}:taps", code.taps)
    flops = 2.0 * node.batch * node.m * node.k * node.n
    args = (a, packed, packed, y, y, taps)
    draft.step(node.name, code.kernel, args, (a, packed), (y,), "matmul", flops=flops)


def emit_whole_product(draft: Draft, node: nd.Node) -> None:
    """A product of integers."""
    from loadrun.backends.cpu.kernels import product

    assert isinstance(node, nd.WholeProduct)
    reads = tuple(draft.need_plain(n) for n in node.inputs)
    y = draft.add_plain(node.outputs[0])
    left, right = (
        product.Side(draft.network.dtype(n), zero)
        for n, zero in zip(node.inputs, node.zeros, strict=True)
    )
    batch, m, k, n = node.sizes
    kernel = product.product(left, right, node.sizes, draft.target)
    flops = 2.0 * batch * m * k * n
    draft.step(node.name, kernel, (*reads, y), reads, (y,), "matmul", flops=flops)


def emit_reduce(draft: Draft, node: nd.Node) -> None:
    """A reduction along one axis."""
    assert isinstance(node, nd.Reduce)
    x, y = draft.need_plain(node.inputs[0]), draft.add_plain(node.outputs[0])
    kernel = rowwise.reduce(node.mode, node.outer, node.n, node.inner, draft.target)
    draft.step(node.name, kernel, (x, y), (x,), (y,), "reduce")


def emit_softmax(draft: Draft, node: nd.Node) -> None:
    """Softmax along one axis."""
    assert isinstance(node, nd.Softmax)
    x, y = draft.need_plain(node.inputs[0]), draft.add_plain(node.outputs[0])
    kernel = rowwise.softmax(node.outer, node.n, node.inner, draft.target)
    draft.step(node.name, kernel, (x, y), (x,), (y,), "softmax")


def emit_layer_norm(draft: Draft, node: nd.Node) -> None:
    """Normalisation of rows; mean and deviation get memory even if nothing reads them."""
    assert isinstance(node, nd.LayerNorm)
    reads = tuple(draft.need_plain(n) for n in node.inputs)
    writes = tuple(draft.add_plain(n) for n in node.outputs)
    affine = len(reads) == 3
    kernel = rowwise.layer_norm(node.outer, node.n, node.eps, affine, draft.target)
    args = (reads[0], *writes, *reads[1:])
    draft.step(node.name, kernel, args, reads, writes, "layer norm")


def emit_recurrent(draft: Draft, node: nd.Node) -> None:
    """One direction of one recurrent layer."""
    assert isinstance(node, nd.Recurrent)
    reads = tuple(draft.need_plain(n) for n in node.inputs)
    writes = tuple(draft.add_plain(n) for n in node.outputs)
    hidden = node.weights.shape[1]
    code = recurrent.Recurrent(
        node.kind,
        node.steps,
        node.batch,
        hidden,
        draft.target,
        reverse=node.reverse,
        threads=draft.threads,
    )
    weights = node.weights

    def key() -> str:
        return digest(code.kernel.name, draft.contents.key(weights))

    def write(out: Array) -> None:
        code.pack(weights, out.view(np.float32))

    w = draft.const(f"{node.name}:w", code.packed_bytes, write, key)
    taps = draft.array_const(f"{node.name}:taps", code.taps)
    pre, h, c = reads[0], reads[1], reads[-1]
    args = (pre, w, h, c, writes[0], writes[1], writes[-1], taps)
    draft.step(node.name, code.kernel, args, reads, writes, "recurrent")


def emit_view(draft: Draft, node: nd.Node) -> None:
    """A strided copy."""
    assert isinstance(node, nd.View)
    x, y = draft.need_plain(node.inputs[0]), draft.add_plain(node.outputs[0])
    dims = draft.network.shapes[node.outputs[0]]
    if 0 not in dims:
        draft.copy(node.name, dims, (x, node.offset, node.strides), (y, 0, contiguous(dims)))


def emit_join(draft: Draft, node: nd.Node) -> None:
    """One strided copy per input."""
    assert isinstance(node, nd.Join)
    reads = [draft.need_plain(n) for n in node.inputs]
    y = draft.add_plain(node.outputs[0])
    strides = contiguous(draft.network.shapes[node.outputs[0]])
    at = 0
    for k, (name, x) in enumerate(zip(node.inputs, reads, strict=True)):
        dims = draft.network.shapes[name]
        first = at * strides[node.axis]
        draft.copy(f"{node.name}:{k}", dims, (x, 0, contiguous(dims)), (y, first, strides))
        at += dims[node.axis]


def emit_assemble(draft: Draft, node: nd.Node) -> None:
    """One strided copy per piece."""
    assert isinstance(node, nd.Assemble)
    reads = [draft.need_plain(n) for n in node.inputs]
    y = draft.add_plain(node.outputs[0])
    for k, p in enumerate(node.pieces):
        source = (reads[p.source], p.offset, p.strides)
        draft.copy(f"{node.name}:{k}", p.dims, source, (y, p.to_offset, p.to_strides))


def emit_mapped(draft: Draft, node: nd.Node) -> None:
    """Elements from places to places."""
    from loadrun.backends.cpu.kernels import typed

    assert isinstance(node, nd.Mapped)
    net = draft.network
    reads = [draft.need_plain(n) for n in node.inputs]
    y = draft.add_plain(node.outputs[0])
    inputs = [
        typed.Operand(net.dtype(n), strides)
        for n, (strides, _) in zip(node.inputs, node.reads, strict=True)
    ]
    kind = net.dtype(node.outputs[0])
    outputs = [typed.Operand(kind, node.strides)] * len(node.exprs)
    kernel = typed.pointwise(node.dims, inputs, outputs, node.exprs, draft.target)
    args = [
        Arg(x, first * typed.STORED[i.dtype].size)
        for x, i, (_, first) in zip(reads, inputs, node.reads, strict=True)
    ]
    args += [Arg(y, first * typed.STORED[kind].size) for first in node.offsets]
    draft.step(node.name, kernel, args, tuple(dict.fromkeys(reads)), (y,), "elementwise")


def emit_fold(draft: Draft, node: nd.Node) -> None:
    """A reduction of integers."""
    from loadrun.backends.cpu.kernels import fold

    assert isinstance(node, nd.Fold)
    x, y = draft.need_plain(node.inputs[0]), draft.add_plain(node.outputs[0])
    kinds = (draft.network.dtype(node.inputs[0]), draft.network.dtype(node.outputs[0]))
    how = fold.How(node.mode, *kinds, node.zero, node.shift, node.limits)
    draft.step(node.name, fold.fold(how, node.sizes, draft.target), (x, y), (x,), (y,), "reduce")


def emit_cumulate(draft: Draft, node: nd.Node) -> None:
    """Running sums."""
    from loadrun.backends.cpu.kernels import fold

    assert isinstance(node, nd.Cumulate)
    x, y = draft.need_plain(node.inputs[0]), draft.add_plain(node.outputs[0])
    kind = draft.network.dtype(node.inputs[0])
    kernel = fold.cumulate(
        kind, node.sizes, draft.target, reverse=node.reverse, exclusive=node.exclusive
    )
    draft.step(node.name, kernel, (x, y), (x,), (y,), "cumulate")


def emit_reshape(draft: Draft, node: nd.Node) -> None:
    """Another name for the same memory; a copy where the caller owns either side."""
    x, name = draft.need_plain(node.inputs[0]), node.outputs[0]
    if name not in draft.network.outputs:
        draft.add_alias(name, x)
        return
    y = draft.add_plain(name)
    size = draft.network.shapes[node.inputs[0]]
    draft.copy(node.name, size, (x, 0, contiguous(size)), (y, 0, contiguous(size)))


def emit_loops(draft: Draft, node: nd.Node) -> None:
    """Loops that were written for this node."""
    assert isinstance(node, nd.Loops)
    reads = tuple(draft.need_plain(n) for n in node.inputs)
    writes = tuple(draft.add_plain(n) for n in node.outputs)
    kernel = node.make(draft.target)
    draft.step(node.name, kernel, (*reads, *writes), reads, writes, node.what)


def emit_host(draft: Draft, node: nd.Node) -> None:
    """A Python function; tensors of unknown shape stay with Python and have no buffer."""
    assert isinstance(node, nd.Host)
    known = draft.network.shapes
    reads = tuple(draft.need_plain(n) if n in known else n for n in node.inputs)
    writes = tuple(draft.add_plain(n) if n in known else n for n in node.outputs)
    draft.steps.append(HostStep(node.name, node.run, reads, writes))


def finish_output(draft: Draft, tensor: str) -> None:
    """Make sure that an output is in memory of the caller."""
    if tensor not in draft.network.shapes:
        return
    found = draft.need_plain(tensor)
    if draft.buffers[found].place is not Place.OUTPUT:
        raise ValueError(f"an output must be made by a node: {tensor}")
