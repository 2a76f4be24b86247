"""Convolutions whose outputs count where a mask is set, and how such masks spread."""

from __future__ import annotations

import functools

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import program
from loadrun.backends.cpu.kernels import blocks as kernels
from loadrun.backends.cpu.kernels.blocks import Spreading
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.batchconv import write_image
from loadrun.backends.cpu.rules.conv import convolve
from loadrun.backends.cpu.rules.index import need_positions
from loadrun.backends.cpu.rules.order import need_plain
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.maskconv import MASK_CONVOLUTION, MASK_PROPAGATE
from mgeserial.ops.windows import Window


@lowers(MASK_CONVOLUTION)
def mask_convolution(low: Lowering, node: Node, call: Call) -> None:
    """float32, constant filter, any layout; what the mask leaves out is computed, then zero."""
    low.need_float32(*node.outputs)
    mask = node.inputs[2]
    need_plain(low, mask)
    name = low.name(mask)
    is_set = "k = flag_neq m 0.0" if low.dtype_name(name) == "float32" else "k = ineq m 0"
    y, g = convolve(low, node, call)
    expr = program("ym", is_set, "r = where k y 0.0")
    write_image(low, node.outputs[0], (y, name), expr, g.dst)


@lowers(MASK_PROPAGATE)
def mask_propagate(low: Lowering, node: Node, call: Call) -> None:
    """Numbers and bools."""
    value, out = node.inputs[0], node.outputs[0]
    need_plain(low, value)
    h, w = low.shape(value)
    oh, ow = low.shape(out)
    p = call.param
    window = Window.of(p, (int(p.kernel_h), int(p.kernel_w)))
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        window.kernel,
        window.stride,
        window.pad,
        window.dilate,
    )
    if max(ph, pw, sh, sw, dh, dw) * max(kh, kw, oh, ow) >= 1 << 30:
        raise NotApplicable("positions beyond 2**30")
    need_positions((h, w), (oh, ow))
    how = Spreading((h, w), (oh, ow), (kh, kw), (sh, sw), (ph, pw), (dh, dw))
    name = low.name(value)
    make = functools.partial(kernels.spread_mask, how, low.dtype_name(name))
    low.add(nd.Loops(low.label(node), (name,), (low.out(out),), "mask", make))
