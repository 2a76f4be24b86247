"""From nodes to a plan: algorithms, layouts, halos, bands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from loadrun.backends.cpu import banding, fusion
from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.cache import digest
from loadrun.backends.cpu.kernels import (
    conv,
    depthwise,
    elementwise,
    matmul,
    pool,
    relayout,
    winograd,
)
from loadrun.backends.cpu.kernels.conv import ConvSpec, DirectConv
from loadrun.backends.cpu.layout import Halo, Image, blocked, plain, planar
from loadrun.backends.cpu.plan import (
    Arg,
    Array,
    Buffer,
    Const,
    HostStep,
    Kernel,
    Place,
    Plan,
    Rows,
    Step,
)
from loadrun.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class Options:
    """Choices that a caller may force (tests, experiments).

    Attributes:
        winograd: Allow Winograd's algorithm.
        bands: Allow running blocks band by band.
    """

    winograd: bool = True
    bands: bool = True


@dataclass(slots=True)
class _Draft:
    """A plan under construction."""

    network: nd.Network
    target: Target
    threads: int
    options: Options
    buffers: dict[str, Buffer] = field(default_factory=dict)
    consts: dict[str, Const] = field(default_factory=dict)
    steps: list[Step | HostStep] = field(default_factory=list)
    images: dict[tuple[str, str], str] = field(default_factory=dict)  # (tensor, kind) -> buffer
    halos: dict[str, Halo] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    by_rows: bool = False  # the node being emitted is part of a band


def algorithm(spec: ConvSpec, oh: int, ow: int, options: Options) -> str:
    """direct, depthwise, winograd2 or winograd4.

    Small maps are bound by reading the weights, which Winograd multiplies by 16/9 (F2) or 4 (F4).
    """
    if spec.depthwise:
        return "depthwise"
    if options.winograd and winograd.suits(spec) and spec.ic >= 16 and spec.oc >= 16:
        if oh * ow >= 12 * 12:
            return "winograd4"
        if oh * ow >= 6 * 6:
            return "winograd2"
    return "direct"


def make_plan(
    network: nd.Network, target: Target, *, threads: int, options: Options | None = None
) -> Plan:
    """Plan a network for a target and a number of threads."""
    draft = _Draft(fusion.fuse(network), target, threads, options or Options())
    _find_halos(draft)
    for name in draft.network.inputs:
        _add_plain(draft, name, Place.INPUT)
    bands = _emit_nodes(draft)
    for name in draft.network.outputs:
        _finish_output(draft, name)
    steps = tuple(draft.steps)
    return Plan(
        threads,
        draft.buffers,
        draft.consts,
        steps,
        tuple(bands),
        draft.network.inputs,
        draft.network.outputs,
    )


# -- layouts
def _image_shape(shape: nd.Shape) -> tuple[int, int, int, int]:
    """(n, c, h, w) of a tensor; matrices are images of one pixel."""
    if len(shape) == 4:
        n, c, h, w = shape
        return n, c, h, w
    if len(shape) == 2:
        return shape[0], shape[1], 1, 1
    if len(shape) < 4:
        n, c, h, w = (1,) * (4 - len(shape)) + shape
        return n, c, h, w
    raise ValueError(f"not an image: {shape}")


def _wants_planar(draft: _Draft, node: nd.Conv) -> bool:
    """A convolution of few channels reads NCHW."""
    return node.spec.groups == 1 and node.spec.ic <= 4 and node.inputs[0] in draft.network.inputs


def _find_halos(draft: _Draft) -> None:
    """The halo that each tensor's blocked form needs for all its readers."""
    for node in draft.network.nodes:
        if not isinstance(node, nd.Conv):
            continue
        _, _, h, w = draft.network.shapes[node.inputs[0]]
        oh, ow = node.spec.out_size(h, w)
        how = algorithm(node.spec, oh, ow, draft.options)
        if _wants_planar(draft, node):
            continue
        if how.startswith("winograd"):
            need = winograd.halo(node.spec, h, w, int(how[-1]))
        else:
            need = node.spec.halo(h, w)
        name = node.inputs[0]
        draft.halos[name] = draft.halos.get(name, Halo()).union(need)


def _add_buffer(draft: _Draft, buffer: Buffer) -> str:
    if buffer.name in draft.buffers:
        raise ValueError(f"buffer planned twice: {buffer.name}")
    draft.buffers[buffer.name] = buffer
    return buffer.name


def _add_plain(draft: _Draft, tensor: str, place: Place = Place.ARENA) -> str:
    shape, dtype = draft.network.shapes[tensor], draft.network.dtype(tensor)
    if place is Place.ARENA and tensor in draft.network.outputs:
        place = Place.OUTPUT
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    image = plain(*_image_shape(shape)) if len(shape) in (2, 4) and dtype == "float32" else None
    draft.images[tensor, "plain"] = tensor
    return _add_buffer(draft, Buffer(tensor, size, place, shape, dtype, image))


def _add_blocked(draft: _Draft, tensor: str) -> str:
    n, c, h, w = _image_shape(draft.network.shapes[tensor])
    halo = draft.halos.get(tensor, Halo())
    image = blocked(n, c, h, w, draft.target.lanes, halo)
    name = f"{tensor}:b"
    draft.images[tensor, "blocked"] = name
    place = Place.HALO if halo else Place.ARENA
    return _add_buffer(draft, Buffer(name, image.nbytes, place, (n, c, h, w), "float32", image))


def _image(draft: _Draft, buffer: str) -> Image:
    found = draft.buffers[buffer].image
    if found is None:
        raise ValueError(f"{buffer} has no image layout")
    return found


def pack_image(array: Array, image: Image) -> Array:
    """An image tensor's elements at their places in the layout, as flat float32."""
    out = np.zeros(image.nbytes // 4, np.float32)
    n, c, y, x = np.ix_(*(np.arange(k) for k in (image.n, image.c, image.h, image.w)))
    at = image.origin + n * image.image + (c // image.lanes) * image.block + y * image.row
    at = (at + x * image.pixel) // 4 + c % image.lanes
    out[at] = array.reshape(image.n, image.c, image.h, image.w)
    return out


def _convert(draft: _Draft, source: str, to: str, name: str) -> None:
    kernel, rows = relayout.relayout(_image(draft, source), _image(draft, to), draft.target)
    _step(draft, name, kernel, (source, to), (source,), (to,), "relayout", rows=rows)


def _need_plain(draft: _Draft, tensor: str) -> str:
    found = draft.images.get((tensor, "plain"))
    const = draft.network.consts.get(tensor)
    if found is None and const is not None:
        found = _array_const(draft, tensor, const)
        draft.images[tensor, "plain"] = found
    elif found is None:
        found = _add_plain(draft, tensor)
        _convert(draft, draft.images[tensor, "blocked"], found, f"{tensor}:unpack")
    return found


def _need_blocked(draft: _Draft, tensor: str) -> str:
    found = draft.images.get((tensor, "blocked"))
    const = draft.network.consts.get(tensor)
    if found is None and const is not None:
        image = blocked(*_image_shape(const.shape), draft.target.lanes, draft.halos.get(tensor))
        found = _array_const(draft, f"{tensor}:b", pack_image(const, image))
        draft.buffers[found] = replace(draft.buffers[found], image=image)
        draft.images[tensor, "blocked"] = found
    elif found is None:
        source = draft.images[tensor, "plain"]
        found = _add_blocked(draft, tensor)
        _convert(draft, source, found, f"{tensor}:pack")
    return found


def _need_planar(draft: _Draft, tensor: str, halo: Halo) -> str:
    key = f"planar{halo.top}_{halo.left}_{halo.bottom}_{halo.right}"
    found = draft.images.get((tensor, key))
    if found is None:
        n, c, h, w = draft.network.shapes[tensor]
        image = planar(n, c, h, w, halo, draft.target.lanes)
        found = f"{tensor}:{key}"
        _add_buffer(draft, Buffer(found, image.nbytes, Place.HALO, (n, c, h, w), "float32", image))
        draft.images[tensor, key] = found
        _convert(draft, _need_plain(draft, tensor), found, f"{tensor}:pad")
    return found


# -- steps
def _step(
    draft: _Draft,
    name: str,
    kernel: Kernel,
    args: tuple[str, ...],
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    how: str,
    *,
    flops: float = 0.0,
    rows: Rows | None = None,
) -> None:
    kernel = draft.kernels.setdefault(kernel.name, kernel)
    table = tuple(Arg(a) for a in args)
    draft.steps.append(Step(name, kernel, table, reads, writes, how, flops, rows))


def _const(draft: _Draft, name: str, nbytes: int, make: Callable[[], Array], key: str) -> str:
    draft.consts[name] = Const(nbytes, make, key)
    _add_buffer(draft, Buffer(name, nbytes, Place.CONST, (nbytes,), "uint8"))
    return name


def _array_const(draft: _Draft, name: str, array: Array) -> str:
    data = np.ascontiguousarray(array)
    return _const(draft, name, data.nbytes, lambda: data, digest(data.tobytes()))


def _conv(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.Conv)
    spec, t = node.spec, draft.target
    n, _, h, w = draft.network.shapes[node.inputs[0]]
    oh, ow = spec.out_size(h, w)
    how = algorithm(spec, oh, ow, draft.options)
    if _wants_planar(draft, node):
        x = _need_planar(draft, node.inputs[0], spec.halo(h, w))
    else:
        x = _need_blocked(draft, node.inputs[0])
    operand = _need_blocked(draft, node.inputs[1]) if len(node.inputs) > 1 else ""
    y = _add_blocked(draft, node.outputs[0])
    xi, yi = _image(draft, x), _image(draft, y)
    ri = _image(draft, operand) if operand else None
    code: DirectConv | winograd.WinogradConv | depthwise.DepthwiseConv
    extra: tuple[str, ...] = ()
    if how == "depthwise":
        code = depthwise.DepthwiseConv(
            spec, xi, yi, ri, node.epilogue, t, threads=draft.threads, by_rows=draft.by_rows
        )
    elif how.startswith("winograd"):
        code = _winograd(draft, node, xi, yi, ri, int(how[-1]))
        if code.shared:
            name = f"{node.name}:v"
            extra = (
                _add_buffer(draft, Buffer(name, code.shared, Place.ARENA, (code.shared,), "uint8")),
            )
    else:
        code = DirectConv(
            spec, xi, yi, ri, node.epilogue, t, threads=draft.threads, by_rows=draft.by_rows
        )
    weights, bias = node.weights, node.bias
    key = digest(how, code.kernel.name, weights.tobytes())
    sample = code.pack
    size = _packed_bytes(code, spec, t)
    consts = [_const(draft, f"{node.name}:w", size, lambda: sample(weights), key)]
    padded = conv.pad_bias(bias, spec.groups * spec.oc, t.lanes)
    consts.append(_array_const(draft, f"{node.name}:bias", padded))
    args = (x, *consts, y, operand or y)
    if not isinstance(code, depthwise.DepthwiseConv):
        args = (*args, _array_const(draft, f"{node.name}:taps", code.taps), *extra)
    reads = (x, operand) if operand else (x,)
    flops = spec.flops(n, h, w)
    _step(draft, node.name, code.kernel, args, reads, (y, *extra), how, flops=flops, rows=code.rows)


def _packed_bytes(
    code: DirectConv | winograd.WinogradConv | depthwise.DepthwiseConv, spec: ConvSpec, t: Target
) -> int:
    if isinstance(code, depthwise.DepthwiseConv):
        return code.x.blocks * t.lanes * spec.kh * spec.kw * 4
    if isinstance(code, winograd.WinogradConv):
        return code.points * spec.ic * code.vectors * t.vector_bytes
    return code.tiled.group_bytes * code.spec.groups


def _winograd(
    draft: _Draft, node: nd.Conv, x: Image, y: Image, res: Image | None, m: int
) -> winograd.WinogradConv:
    """By rows when the transformed weights stay in the cache while rows go by."""
    points = (m + 2) ** 2
    u_bytes = 4 * points * node.spec.ic * node.spec.oc
    tiles = -(-y.h // m) * -(-y.w // m)
    v_bytes = 4 * points * node.spec.ic * tiles
    by_rows = u_bytes <= draft.target.l2 * 0.75 or v_bytes > 2 * draft.target.l2
    return winograd.WinogradConv(
        node.spec, x, y, res, node.epilogue, draft.target, m=m, by_rows=by_rows
    )


def _pooling(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.Pooling)
    x = _need_blocked(draft, node.inputs[0])
    y = _add_blocked(draft, node.outputs[0])
    code = pool.Pool(node.spec, _image(draft, x), _image(draft, y), draft.target)
    _step(draft, node.name, code.kernel, (x, y), (x,), (y,), "pool", rows=code.rows)


def _global_pooling(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.GlobalPooling)
    x = _need_blocked(draft, node.inputs[0])
    y = _add_plain(draft, node.outputs[0])
    code = pool.GlobalPool(node.mode, _image(draft, x), _image(draft, y), draft.target)
    _step(draft, node.name, code.kernel, (x, y), (x,), (y,), "global pool")


def _dense(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.Dense)
    x = _need_plain(draft, node.inputs[0])
    operand = _need_plain(draft, node.inputs[1]) if len(node.inputs) > 1 else ""
    y = _add_plain(draft, node.outputs[0])
    m, k = draft.network.shapes[node.inputs[0]]
    n = node.weights.shape[1]
    code = matmul.Dense(m, k, n, node.epilogue, draft.target, threads=draft.threads)
    weights = node.weights
    key = digest(code.kernel.name, weights.tobytes())
    w = _const(draft, f"{node.name}:w", code.packed_bytes, lambda: code.pack(weights), key)
    b = _array_const(draft, f"{node.name}:bias", conv.pad_bias(node.bias, n, draft.target.lanes))
    taps = _array_const(draft, f"{node.name}:taps", code.taps)
    _step(
        draft,
        node.name,
        code.kernel,
        (x, w, b, y, operand or y, taps),
        (x, operand) if operand else (x,),
        (y,),
        "dense",
        flops=2.0 * m * k * n,
    )


def _operand_kind(shape: nd.Shape, out: nd.Shape) -> str:
    """How a blocked loop can read an input of this shape, '' if it cannot."""
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


def _prefers_blocked(draft: _Draft, node: nd.Eltwise) -> bool:
    """Blocked when a full input is there in that form only, and every input can be read so."""
    out = draft.network.shapes[node.outputs[0]]
    if len(out) != 4:
        return False
    shapes = [draft.network.shapes[n] for n in node.inputs]
    kinds = [_operand_kind(s, out) if len(s) <= 4 else "" for s in shapes]
    if not all(kinds):
        return False
    full = [n for n, k in zip(node.inputs, kinds, strict=True) if k == "full"]
    return any((n, "blocked") in draft.images and (n, "plain") not in draft.images for n in full)


def _eltwise(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.Eltwise)
    net, t = draft.network, draft.target
    out = net.shapes[node.outputs[0]]
    if not _prefers_blocked(draft, node):
        reads = tuple(_need_plain(draft, n) for n in node.inputs)
        y = _add_plain(draft, node.outputs[0])
        shapes = [net.shapes[n] for n in node.inputs]
        kernel = elementwise.elementwise(out, shapes, node.expr, t)
        _step(draft, node.name, kernel, (*reads, y), reads, (y,), "elementwise")
        return
    args: list[str] = []
    operands: list[elementwise.Operand] = []
    for name in node.inputs:
        kind = _operand_kind(net.shapes[name], out)
        shape = (1,) * (4 - len(net.shapes[name])) + net.shapes[name]
        if kind == "scalar":
            args.append(_need_plain(draft, name))
            operands.append(elementwise.Operand(kind))
        elif kind == "spatial":
            args.append(_need_plain(draft, name))
            operands.append(elementwise.Operand(kind, plain(*shape)))
        else:
            args.append(_need_blocked(draft, name))
            operands.append(elementwise.Operand(kind, _image(draft, args[-1])))
    y = _add_blocked(draft, node.outputs[0])
    kernel, rows = elementwise.blocked_elementwise(_image(draft, y), operands, node.expr, t)
    reads = tuple(dict.fromkeys(args))
    _step(draft, node.name, kernel, (*args, y), reads, (y,), "elementwise", rows=rows)


def _reshape(draft: _Draft, node: nd.Node) -> None:
    x = _need_plain(draft, node.inputs[0])
    name = node.outputs[0]
    if name in draft.network.outputs or draft.buffers[x].place is not Place.ARENA:
        raise NotImplementedError
    draft.images[name, "plain"] = x


def _host(draft: _Draft, node: nd.Node) -> None:
    assert isinstance(node, nd.Host)
    reads = tuple(_need_plain(draft, n) for n in node.inputs)
    writes = tuple(_add_plain(draft, n) for n in node.outputs)
    draft.steps.append(HostStep(node.name, node.run, reads, writes))


def _finish_output(draft: _Draft, tensor: str) -> None:
    _need_plain(draft, tensor)


_EMIT: dict[type[nd.Node], Callable[[_Draft, nd.Node], None]] = {
    nd.Conv: _conv,
    nd.Pooling: _pooling,
    nd.GlobalPooling: _global_pooling,
    nd.Dense: _dense,
    nd.Eltwise: _eltwise,
    nd.Reshape: _reshape,
    nd.Host: _host,
}


def _bandable(draft: _Draft, node: nd.Node) -> bool:
    """Whether a node's kernel works row by row."""
    if isinstance(node, nd.Pooling):
        return True
    if isinstance(node, nd.Eltwise):
        return False
    if not isinstance(node, nd.Conv):
        return False
    _, _, h, w = draft.network.shapes[node.inputs[0]]
    how = algorithm(node.spec, *node.spec.out_size(h, w), draft.options)
    return how in ("direct", "depthwise")


def _emit_nodes(draft: _Draft) -> list[tuple[int, int]]:
    """Emit all nodes in order; returns the ranges of steps that run in bands."""
    net = draft.network
    ranges: list[tuple[int, int]] = []
    if draft.options.bands:
        ranges = banding.find_bands(net, draft.target, functools.partial(_bandable, draft))
    inside = {k: last for first, last in ranges for k in range(first, last)}
    starts = {first for first, _ in ranges}
    bands: list[tuple[int, int]] = []
    begin = 0
    for k, node in enumerate(net.nodes):
        draft.by_rows = k in inside
        _EMIT[type(node)](draft, node)
        if k in starts:
            begin = len(draft.steps) - 1
        if k in inside and k + 1 == inside[k]:
            group = draft.steps[begin:]
            if all(isinstance(s, Step) and s.rows is not None for s in group):
                bands.append((begin, len(draft.steps)))
    return bands
