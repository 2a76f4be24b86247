"""Launches of convolutions and products of matrices: implicit GEMM, split-K, direct, library."""

from __future__ import annotations

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda import source
from loadrun.backends.cuda.emit_pointwise import scalar_args, scalar_params, simple_launch
from loadrun.backends.cuda.emit_tiles import Maker, is_uniform, places, tile_fields, weights
from loadrun.backends.cuda.expr import ACC, Expr, render
from loadrun.backends.cuda.plan import Arg, Launch, Library, Pointer, Step
from loadrun.backends.cuda.variants import (
    DEPTHWISE_ROWS,
    Algorithm,
    Choice,
    Tile,
    depthwise_items,
    inner_size,
    pixels,
)

__all__ = ["common_fields", "emit_conv", "extra_code", "extras_of", "store_code"]


def extra_code(access: nd.Access, shape: nd.Shape, roles: nd.Roles) -> str | None:
    """Index of a further tensor's element for output `o` in channel `ch`, column `px`; or None."""
    steps = [(k, s) for k, (s, n) in enumerate(zip(access.strides, shape, strict=True)) if n > 1]
    plain = nd.contiguous(shape)
    moving = [(k, s) for k, s in steps if s]
    if not moving:
        return "0"
    if all(s == plain[k] for k, s in steps):
        return "o"
    if len(moving) == 1:
        dim, stride = moving[0]
        if dim == roles.channel and roles.lanes == 1:
            return f"ch * {stride}" if stride != 1 else "ch"
        if dim == roles.column:
            return f"px * {stride}" if stride != 1 else "px"
    if roles.lanes > 1 and {k for k, _ in moving} <= {roles.channel, roles.lane}:
        found = dict(moving)
        lane = found.get(roles.lane, 0)
        block = found.get(roles.channel, lane * roles.lanes if shape[roles.channel] == 1 else 0)
        if block == lane * roles.lanes:
            return f"ch * {lane}" if lane != 1 else "ch"
    return None


def extras_of(node: nd.Conv, net: nd.Network) -> tuple[str, list[Pointer], list[str]]:
    """Parameters, arguments and elements of what the expression reads besides the sum."""
    shape = net.tensors[node.outputs[0]].shape
    params, args, elements = "", [], []
    for k, access in enumerate(node.extras):
        info = net.tensors[access.tensor]
        code = extra_code(access, shape, node.roles)
        if code is None:
            raise AssertionError(f"{node.name}: {access} was fused and cannot be read")
        params += f"const {info.ctype} *__restrict__ more{k}, "
        size = np.dtype(info.dtype).itemsize
        args.append(Pointer(access.tensor, access.offset * size))
        elements.append(f"widen(more{k}[{code}])")
    return params, args, elements


def common_fields(node: nd.Conv, net: nd.Network) -> dict[str, object]:
    """Values of the placeholders that all kernels of convolutions have."""
    real = node.accumulator == "float"
    product = "fmaf({0}, {1}, {2})" if real else "(int)((u32){2} + (u32){0} * (u32){1})"
    zero_x, zero_w = ("v", "v") if real else ("v - zx", "v - zw")
    kd, kh, kw = node.kernel
    return {
        "XT": net.tensors[node.x].ctype,
        "WT": net.tensors[node.w].ctype,
        "YT": net.tensors[node.outputs[0]].ctype,
        "ACC": node.accumulator,
        "XL": node.x_lanes,
        "YL": node.y_lanes,
        "KD": kd,
        "KH": kh,
        "KW": kw,
        "TRANSPOSED": int(node.transposed),
        "TAPS_FIRST": int(node.taps_first),
        "MAC": product.format("a" if real else "(a - zx)", "b" if real else "(b - zw)", "acc"),
        "GEMM_MAC": product.format("a[i]", "b[j]", "sums[i][j]"),
        "XVALUE": zero_x,
        "WVALUE": zero_w,
    }


def emit_conv(node: nd.Conv, net: nd.Network, maker: Maker, choice: Choice) -> list[Step]:
    """The launches of a node.

    Args:
        node: What to compute.
        net: Types of the tensors.
        maker: Makes further buffers.
        choice: How; one of the node's candidates.
    """
    if choice.algorithm is Algorithm.LIBRARY:
        return _library(node, net, maker)
    if choice.algorithm is Algorithm.DIRECT:
        return [_direct(node, net)]
    if choice.algorithm is Algorithm.DEPTHWISE:
        return [_depthwise(node, net)]
    return _gemm(node, net, maker, choice)


def _flops(node: nd.Conv) -> float:
    return 2.0 * pixels(node) * node.groups * node.outputs_each * inner_size(node)


def _geometry(node: nd.Conv) -> tuple[int, ...]:
    return (*node.size, *node.out, *node.stride, *node.pad, *node.dilate)


def _direct(node: nd.Conv, net: nd.Network) -> Launch:
    params, extra_args, elements = extras_of(node, net)
    body, result = render(node.expr, elements)
    kernel = source.kernel(
        "deconv_direct" if node.transposed else "conv_direct", "direct", **common_fields(node, net),
        EXTRAS=params, SCALARS=scalar_params(node.expr), BODY="\n  ".join(body), RESULT=result,
    )  # fmt: skip
    items = pixels(node) * node.groups * node.outputs_each
    xn, _, xc, xd, xh, xw = node.x_strides
    yn, _, yc, yd, yh, yw = node.y_strides
    ints = (
        items, node.outputs_each, node.depth, node.groups, *_geometry(node),
        xn, xc, xd, xh, xw, *node.w_strides, yn, yc, yd, yh, yw, node.x_zero, node.w_zero,
    )  # fmt: skip
    args: tuple[Arg, ...] = (
        Pointer(node.x), Pointer(node.w), *extra_args, Pointer(node.outputs[0]), *ints,
    )  # fmt: skip
    return simple_launch(
        node, kernel, (*args, *scalar_args(node.expr)), items,
        flops=_flops(node), algorithm="direct",
    )  # fmt: skip


def _depthwise(node: nd.Conv, net: nd.Network) -> Launch:
    params, extra_args, elements = extras_of(node, net)
    body, result = render(node.expr, elements)
    kernel = source.kernel(
        "conv_depthwise", "depthwise", **common_fields(node, net), EXTRAS=params,
        SCALARS=scalar_params(node.expr),
        ROWS=DEPTHWISE_ROWS, SH=node.stride[1], DH=node.dilate[1], BODY="\n    ".join(body),
        RESULT=result,
    )  # fmt: skip
    items, strips = depthwise_items(node)
    xn, _, xc, _, xh, xw = node.x_strides
    yn, _, yc, _, yh, yw = node.y_strides
    ints = (
        items, node.groups, strips, *node.size[1:], *node.out[1:], node.stride[2], *node.pad[1:],
        node.dilate[2], xn, xc, xh, xw, node.w_strides[0], node.w_strides[2], yn, yc, yh, yw,
        node.x_zero, node.w_zero,
    )  # fmt: skip
    args: tuple[Arg, ...] = (
        Pointer(node.x), Pointer(node.w), *extra_args, Pointer(node.outputs[0]), *ints,
    )  # fmt: skip
    return simple_launch(
        node, kernel, (*args, *scalar_args(node.expr)), items, per_block=128, block=128,
        flops=_flops(node), algorithm="depthwise",
    )  # fmt: skip


def store_code(expr: Expr, elements: list[str]) -> str:
    """Code that computes an element of the result from its sum `acc` and writes it."""
    body, result = render(expr, elements)
    lines = [
        "int ch = g * M + m;",
        "int o = pixel + (m / $YL) * yc + m % $YL;",
        *body,
        f"narrow(y[o], {result});",
    ]
    return "\n      ".join(lines)


def _is_checked(node: nd.Conv) -> bool:
    """Whether a window can reach out of the image."""
    if node.transposed or any(node.pad):
        return True
    return any(
        (o - 1) * s + (k - 1) * d >= n
        for n, o, k, s, d in zip(
            node.size, node.out, node.kernel, node.stride, node.dilate, strict=True
        )
    )


def _gemm_fields(node: nd.Conv, tile: Tile) -> dict[str, object]:
    return {
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "TM": tile.tm, "TN": tile.tn,
        "THREADS": tile.threads,
        "WROW": int(node.w_strides[2] == 1 and node.w_strides[1] != 1),
        "XROW": int(node.x_strides[2] == 1 and node.x_lanes == 1 and node.x_strides[5] != 1),
    }  # fmt: skip


def _type_of(node: nd.Conv, net: nd.Network, choice: Choice) -> str:
    """What is multiplied, for a kernel's name."""
    if choice.algorithm is not Algorithm.TENSOR:
        return "s32" if node.accumulator == "int" else "f32"
    kind = net.tensors[node.x].ctype
    return "tf32" if kind == "f32" else kind


def _gemm(node: nd.Conv, net: nd.Network, maker: Maker, choice: Choice) -> list[Step]:
    tile, splits = choice.tile, choice.splits
    assert tile is not None
    m, p, k = node.outputs_each, pixels(node), inner_size(node)
    part_depth = -(-k // splits)
    step = -(-part_depth // tile.bk) * tile.bk
    params, extra_args, elements = extras_of(node, net)
    scalars, values = scalar_params(node.expr), scalar_args(node.expr)
    store = store_code(node.expr, elements)
    common = common_fields(node, net)
    template, w, w_strides = "gemm", node.w, node.w_strides
    table: tuple[str, ...] = ()
    fields = {**common, "CHECKED": int(_is_checked(node))}
    if choice.algorithm is Algorithm.GEMM:
        fields |= _gemm_fields(node, tile)
    else:
        left = weights(node, net, maker, choice)
        template, w, w_strides = "tile", left.name, left.strides
        fields |= tile_fields(node, net, choice, left)
        if not is_uniform(node, tile):
            table = (maker.constant(f"{node.name}:places{tile.bk}", places(node, tile)),)
    y = node.outputs[0]
    ints = (m, p, k, splits, step, *_geometry(node), *node.x_strides, *w_strides)
    tail = (*node.y_strides, node.x_zero, node.w_zero)
    grid = (-(-p // tile.bn), -(-m // tile.bm), node.groups * splits)
    work, per = (p, m, node.groups * splits), (tile.bn, tile.bm, 1)
    stem = f"{node.label}_{_type_of(node, net, choice)}_{tile.bm}x{tile.bn}"
    algorithm = choice.algorithm.value
    operands = (Pointer(node.x), Pointer(w), *map(Pointer, table))
    reads = (node.x, w, *table)
    if splits == 1:
        kernel = source.kernel(
            stem, template, **fields, EXTRAS=params, SCALARS=scalars, STORE=store
        )
        args = (*operands, *extra_args, Pointer(y), *ints, *tail, *values)
        every = tuple(dict.fromkeys((*reads, *(a.tensor for a in node.extras))))
        return [
            Launch(
                node.name, kernel, grid, tile.threads, args, every, node.outputs,
                work, per, algorithm, _flops(node),
            )
        ]  # fmt: skip
    part = maker.scratch(f"{node.name}:parts", node.groups * splits * m * p)
    write = "y[((int)blockIdx.z * M + m) * P + px] = acc;"
    fields["YT"] = node.accumulator
    kernel = source.kernel(f"{stem}_split", template, **fields, EXTRAS="", SCALARS="", STORE=write)
    args = (*operands, Pointer(part), *ints, *tail)
    every = tuple(dict.fromkeys(reads))
    first = Launch(
        f"{node.name}:split", kernel, grid, tile.threads, args, every, (part,),
        work, per, f"{algorithm} split {splits}", _flops(node),
    )  # fmt: skip
    finish = source.kernel(
        "gemm_finish", "gemm_finish", **common, EXTRAS=params, SCALARS=scalars, STORE=store
    )
    items = node.groups * m * p
    rest = (items, m, p, splits, *node.out, *node.y_strides, *values)
    second = simple_launch(
        node, finish, (Pointer(part), *extra_args, Pointer(y), *rest), items,
        reads=tuple(dict.fromkeys((part, *(a.tensor for a in node.extras)))),
    )  # fmt: skip
    return [first, second]


def _library(node: nd.Conv, net: nd.Network, maker: Maker) -> list[Step]:
    """The library's product, then the rest of the expression element by element."""
    assert node.gemm is not None
    g = node.gemm
    y = node.outputs[0]
    pair = (node.w, node.x)
    if not node.extras and node.expr.result == ACC and net.tensors[y].ctype == "f32":
        return [Library(node.name, g, pair, (y,))]
    sums = maker.scratch(f"{node.name}:product", g.batch * g.m * g.n)
    params, extra_args, elements = extras_of(node, net)
    body, result = render(node.expr, elements)
    kernel = source.kernel(
        "gemm_epilogue", "gemm_epilogue", EXTRAS=params, XT="f32", YT=net.tensors[y].ctype,
        SCALARS=scalar_params(node.expr), BODY="\n  ".join(body), RESULT=result,
    )  # fmt: skip
    items = g.batch * g.m * g.n
    channels = node.groups * node.outputs_each
    args = (Pointer(sums), *extra_args, Pointer(y), items, channels, g.n, *scalar_args(node.expr))
    after = simple_launch(
        node, kernel, args, items,
        reads=tuple(dict.fromkeys((sums, *(a.tensor for a in node.extras)))),
    )  # fmt: skip
    return [Library(f"{node.name}:product", g, pair, (sums,)), after]
