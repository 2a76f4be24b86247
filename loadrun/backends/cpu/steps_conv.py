"""How convolutions, pooling and other image operators become steps."""

from __future__ import annotations

import functools

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.draft import Draft, Options
from loadrun.backends.cpu.kernels import conv, copy, deconv, depthwise, pool, resample, winograd
from loadrun.backends.cpu.kernels.conv import ConvSpec, DirectConv
from loadrun.backends.cpu.kernels.winograd_share import Sharing, share
from loadrun.backends.cpu.layout import Halo, Image
from loadrun.backends.cpu.target import Target

_Code = DirectConv | winograd.WinogradConv | depthwise.DepthwiseConv


def algorithm(spec: ConvSpec, oh: int, ow: int, options: Options) -> str:
    """direct, depthwise, winograd2 or winograd4.

    F(4) needs a quarter of the direct products and F(2) four ninths, but tiles overhang small maps
    and transformed weights are 4 and 16/9 times as large. Measured on Zen 5 with weights from far
    memory: 14x14 maps of 256 channels 360 us by F(4), 410 us by F(2), 890 us directly; 7x7 maps of
    512 channels 550 us by F(2), 980 us by F(4), 930 us directly.
    """
    if spec.depthwise:
        return "depthwise"
    if options.winograd and winograd.suits(spec) and spec.ic >= 16 and spec.oc >= 16:
        if oh * ow >= 12 * 12:
            return "winograd4"
        if oh * ow >= 6 * 6:
            return "winograd2"
    return "direct"


def algorithm_of(draft: Draft, node: nd.Conv) -> str:
    """The algorithm for a node."""
    wanted = draft.way(node).algorithm
    if wanted:
        return "direct" if wanted == "blocked" else wanted
    return default_algorithm(draft, node)


def default_algorithm(draft: Draft, node: nd.Conv) -> str:
    """The cost model's algorithm for a node."""
    _, _, h, w = draft.network.shapes[node.inputs[0]]
    options = Options(winograd=False) if node.exact else draft.options
    return algorithm(node.spec, *node.spec.out_size(h, w), options)


def wants_planar(draft: Draft, node: nd.Conv) -> bool:
    """A convolution of few channels of a plain tensor reads NCHW."""
    if node.spec.groups > 1 or node.spec.ic > 4 or node.spec.kw > 16:
        return False
    if draft.way(node).algorithm == "blocked":
        return False
    return not draft.only_blocked(node.inputs[0])


def find_halos(draft: Draft) -> None:
    """The halo that each tensor's blocked form needs for all its readers."""
    for node in draft.network.nodes:
        if not isinstance(node, nd.Conv):
            continue
        _, _, h, w = draft.network.shapes[node.inputs[0]]
        if isinstance(node, nd.TransposedConv):
            out = draft.network.shapes[node.outputs[0]]
            need = deconv.halo(node.spec, h, w, out[2], out[3])
            draft.halos[node.inputs[0]] = draft.halos.get(node.inputs[0], Halo()).union(need)
            continue
        how = algorithm_of(draft, node)
        if how.startswith("winograd"):
            need = winograd.halo(node.spec, h, w, int(how[-1]))
        else:
            need = node.spec.halo(h, w)
        if node.inputs[0] in draft.network.inputs and wants_planar(draft, node):
            continue  # reads its own padded copy
        if how == "direct" and uses_bytes(draft.target, node):
            continue  # likewise
        name = node.inputs[0]
        draft.halos[name] = draft.halos.get(name, Halo()).union(need)


def emit_conv(draft: Draft, node: nd.Node) -> None:
    """A convolution by the chosen algorithm."""
    assert isinstance(node, nd.Conv)
    spec, t = node.spec, draft.target
    n, _, h, w = draft.network.shapes[node.inputs[0]]
    how = algorithm_of(draft, node)
    dot = how == "direct" and uses_bytes(draft.target, node)
    if dot:
        x = draft.need_bytes(node.inputs[0], spec.halo(h, w))
    elif wants_planar(draft, node) and how == "direct":
        x = draft.need_planar(node.inputs[0], spec.halo(h, w))
    else:
        x = draft.need_blocked(node.inputs[0])
    operand = draft.need_blocked(node.inputs[1]) if len(node.inputs) > 1 else ""
    y = draft.add_blocked(node.outputs[0])
    xi, yi = draft.image(x), draft.image(y)
    ri = draft.image(operand) if operand else None
    code: _Code
    extra: tuple[str, ...] = ()
    if how == "depthwise":
        code = draft.once(
            depthwise.DepthwiseConv,
            spec,
            xi,
            yi,
            ri,
            node.epilogue,
            t,
            threads=draft.threads,
            by_rows=draft.by_rows,
        )
    elif how.startswith("winograd"):
        code = _winograd(draft, node, xi, yi, ri, int(how[-1]))
        if code.shared:
            extra = (draft.add_scratch(f"{node.name}:v", code.shared),)
    else:
        by_rows = draft.by_rows and not dot
        code = draft.once(
            DirectConv,
            spec,
            xi,
            yi,
            ri,
            node.epilogue,
            t,
            threads=draft.threads,
            by_rows=by_rows,
            dot=dot,
            way=draft.way(node),
        )
    size = _packed_bytes(code, spec, t)
    packing = f"{how} {code.kernel.name}"
    consts = [draft.packed_const(f"{node.name}:w", size, node, code.pack, packing)]
    if dot and isinstance(code, DirectConv):
        padded = code.byte_bias(node.weights, node.bias)
    else:
        padded = conv.pad_bias(node.bias, spec.groups * spec.oc, t.lanes)
    consts.append(draft.array_const(f"{node.name}:bias", padded))
    args = (x, *consts, y, operand or y)
    if not isinstance(code, depthwise.DepthwiseConv):
        args = (*args, draft.array_const(f"{node.name}:taps", code.taps), *extra)
    reads = (x, operand) if operand else (x,)
    writes = (y, *extra)
    flops = spec.flops(n, h, w)
    how = "direct bytes" if dot else how
    draft.step(node.name, code.kernel, args, reads, writes, how, flops=flops, rows=code.rows)


def uses_bytes(target: Target, node: nd.Conv) -> bool:
    """Whether a convolution of bytes runs on byte products: it pays from some depth on."""
    spec = node.spec
    if not node.byte or target.dot_u8s8 != "avx512" or spec.depthwise:
        return False
    joined = conv.merged(spec, target.lanes)
    if joined.groups > 1 and joined.ic % 4:
        return False
    return spec.ic * spec.kh * spec.kw >= 64 and (spec.ic > 2 or spec.groups > 1)


def _packed_bytes(code: _Code, spec: ConvSpec, t: Target) -> int:
    if isinstance(code, depthwise.DepthwiseConv):
        return code.x.blocks * t.lanes * spec.kh * spec.kw * 4
    if isinstance(code, winograd.WinogradConv):
        return code.points * spec.ic * code.vectors * t.vector_bytes
    return code.tiled.group_bytes * code.spec.groups


def _winograd(
    draft: Draft, node: nd.Conv, x: Image, y: Image, res: Image | None, m: int
) -> winograd.WinogradConv:
    """Shared among the threads as was chosen, or as the cost model says."""
    way, target = draft.way(node), draft.target
    if way.order == "rows":
        rows = min(way.chunk, -(-y.h // m))
        chosen = Sharing(rows or winograd.block_rows(node.spec, y, m, target))
    elif way.order:
        chosen = Sharing(0, draft.threads if way.order == "copies" else 1)
    else:
        sizes = winograd.sizes(node.spec, x, y, m, target)
        chosen = share(sizes, draft.threads, target)
    return draft.once(
        winograd.WinogradConv,
        node.spec,
        x,
        y,
        res,
        node.epilogue,
        draft.target,
        m=m,
        sharing=chosen,
    )


def emit_transposed(draft: Draft, node: nd.Node) -> None:
    """A transposed convolution: one step per remainder of the stride."""
    assert isinstance(node, nd.TransposedConv)
    spec, t = node.spec, draft.target
    n, _, h, w = draft.network.shapes[node.inputs[0]]
    x = draft.need_blocked(node.inputs[0])
    operand = draft.need_blocked(node.inputs[1]) if len(node.inputs) > 1 else ""
    y = draft.add_blocked(node.outputs[0])
    ri = draft.image(operand) if operand else None
    code = draft.once(
        deconv.TransposedConv, spec, draft.image(x), draft.image(y), ri, node.epilogue, t
    )
    padded = conv.pad_bias(node.bias, spec.groups * spec.ic, t.lanes)
    bias = draft.array_const(f"{node.name}:bias", padded)
    reads = (x, operand) if operand else (x,)
    flops = 2.0 * n * spec.groups * spec.oc * spec.ic * spec.kh * spec.kw * h * w
    for k, part in enumerate(code.parts):
        packing = f"deconv {k} {part.kernel.name}"
        pack = functools.partial(code.pack, part)
        w_name = draft.packed_const(f"{node.name}:w{k}", part.packed_bytes, node, pack, packing)
        taps = draft.array_const(f"{node.name}:taps{k}", part.taps)
        args = (x, w_name, bias, y, operand or y, taps)
        share = flops / len(code.parts)
        draft.step(f"{node.name}:{k}", part.kernel, args, reads, (y,), "deconv", flops=share)


def emit_pooling(draft: Draft, node: nd.Node) -> None:
    """Pooling of a blocked image."""
    assert isinstance(node, nd.Pooling)
    x = draft.need_blocked(node.inputs[0])
    y = draft.add_blocked(node.outputs[0])
    code = draft.once(pool.Pool, node.spec, draft.image(x), draft.image(y), draft.target)
    draft.step(node.name, code.kernel, (x, y), (x,), (y,), "pool", rows=code.rows)


def emit_global_pooling(draft: Draft, node: nd.Node) -> None:
    """A whole image to one value per channel."""
    assert isinstance(node, nd.GlobalPooling)
    x = draft.need_blocked(node.inputs[0])
    y = draft.add_plain(node.outputs[0])
    code = pool.GlobalPool(node.mode, draft.image(x), draft.image(y), draft.target)
    draft.step(node.name, code.kernel, (x, y), (x,), (y,), "global pool")


def emit_channel_map(draft: Draft, node: nd.Node) -> None:
    """Channels picked from blocked images, or joined and sliced as arrays."""
    assert isinstance(node, nd.ChannelMap)
    reads = tuple(draft.need_blocked(n) for n in node.inputs)
    if node.outputs[0] in draft.joins:
        return  # the parts are where they belong
    y = draft.add_blocked(node.outputs[0])
    images = [draft.image(r) for r in reads]
    kernel, rows = copy.channel_map(images, node.channels, draft.image(y), draft.target)
    draft.step(node.name, kernel, (*reads, y), reads, (y,), "channel map", rows=rows)


def emit_upsample(draft: Draft, node: nd.Node) -> None:
    """Pixels repeated in a blocked image."""
    assert isinstance(node, nd.Upsample)
    x = draft.need_blocked(node.inputs[0])
    y = draft.add_blocked(node.outputs[0])
    kernel, rows = copy.upsample(draft.image(x), draft.image(y), node.factor, draft.target)
    draft.step(node.name, kernel, (x, y), (x,), (y,), "upsample", rows=rows)


def emit_resample(draft: Draft, node: nd.Node) -> None:
    """An image resized by tables of indices and weights."""
    assert isinstance(node, nd.Resample)
    x = draft.need_blocked(node.inputs[0])
    y = draft.add_blocked(node.outputs[0])
    xi, yi = draft.image(x), draft.image(y)
    tables = [
        draft.array_const(f"{node.name}:rows", (node.rows * xi.row).astype(np.int32)),
        draft.array_const(f"{node.name}:columns", (node.columns * xi.pixel).astype(np.int32)),
        draft.array_const(f"{node.name}:row_weights", node.row_weights),
        draft.array_const(f"{node.name}:column_weights", node.column_weights),
    ]
    taps = (node.rows.shape[1], node.columns.shape[1])
    kernel = resample.resample(xi, yi, taps, draft.target)
    draft.step(node.name, kernel, (x, y, *tables), (x,), (y,), "resize")
