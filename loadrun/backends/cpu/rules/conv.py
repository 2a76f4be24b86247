"""Convolutions and pooling of float32 images, in any layout that is a permutation of NCHW."""

from __future__ import annotations

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.expr import Expr, Op, chain
from loadrun.backends.cpu.kernels import deconv
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.plan import Array
from mgeserial import params as P
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.conv import CONV_BIAS_FORWARD, CONVOLUTION, CONVOLUTION_BACKWARD_DATA
from mgeserial.ops.convrules import Geometry, geometry
from mgeserial.ops.layouts import NCHW, TensorLayout, single_layout
from mgeserial.ops.pooling import ADAPTIVE_POOLING, POOLING

_ADD = Expr(2, (Op("add", (0, 1)),))
NONLINEAR = {
    P.ConvBiasV0NonlineMode.RELU: chain(("relu",)),
    P.ConvBiasV0NonlineMode.SIGMOID: chain(("sigmoid",)),
    P.ConvBiasV0NonlineMode.H_SWISH: chain(("hswish",)),
}
POOL_MODES = {
    P.PoolingV0Mode.MAX_: "max",
    P.PoolingV0Mode.AVERAGE: "mean",
    P.PoolingV0Mode.AVERAGE_COUNT_EXCLUDE_PADDING: "mean_valid",
}


# Bounds on generated code: what a file asks for may cost memory in proportion, not code.
_WIDEST = 32
_TAPS = 1 << 20


def conv_spec(g: Geometry) -> ConvSpec:
    """The engine's geometry of a convolution of images."""
    if len(g.sizes) != 2:
        raise NotApplicable("not a convolution of images")
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        g.window.kernel,
        g.window.stride,
        g.window.pad,
        g.window.dilate,
    )
    if max(kw, sh, sw, dh, dw) > _WIDEST or kh * kw * g.depth > _TAPS:
        raise NotApplicable(f"a {kh}x{kw} filter would need too much code")
    if _padded_bytes(g) >= 1 << 31:
        raise NotApplicable("an image of 2 GiB or more")
    return ConvSpec(g.groups, g.outputs, g.depth, kh, kw, sh, sw, ph, pw, dh, dw)


def _padded_bytes(g: Geometry) -> int:
    """Largest blocked image of a convolution with its halo, in bytes."""
    sizes = [n + 2 * p + 8 for n, p in zip(g.sizes, g.window.pad, strict=True)]
    source = g.batch * (g.groups * g.depth + 15) * sizes[0] * sizes[1] * 4
    return max(source, g.batch * (g.groups * g.outputs + 15) * (g.out[0] + 8) * (g.out[1] + 8) * 4)


def _eltwise(low: Lowering, expr: Expr, inputs: tuple[str, ...], out: str) -> None:
    low.add(nd.Eltwise(low.unique("eltwise"), inputs, (out,), expr))


def convolve(low: Lowering, node: Node, call: Call) -> tuple[str, Geometry]:
    """Add the convolution of the first two inputs; returns its NCHW result, a tensor of its own."""
    low.need_float32(*node.inputs[:2], *node.outputs)
    for value in (*node.inputs[:2], *node.outputs):
        low.shape(value)
    g = geometry(call.param, call.shape(0), call.shape(1))
    spec = conv_spec(g)
    weights = np.asarray(g.kernel(low.need_array(node.inputs[1], "the filter")))
    y = low.temp((g.batch, g.groups * g.outputs, *g.out))
    x = low.image(node.inputs[0], g.src)
    low.add(nd.Conv(low.label(node), (x,), (y,), spec, weights))
    return y, g


def _publish(low: Lowering, value: Value, name: str, layout: TensorLayout) -> None:
    """Let a value be the NCHW tensor `name`."""
    if layout.name == NCHW.name:
        low.same(value, name)
    else:
        low.same_image(value, name, layout)


@lowers(CONVOLUTION)
def convolution(low: Lowering, node: Node, call: Call) -> None:
    """float32, constant filter, any stride, padding, dilation, groups and layout."""
    if len(node.inputs) != 2:
        raise NotApplicable("an unexpected number of inputs")
    y, g = convolve(low, node, call)
    _publish(low, node.outputs[0], y, g.dst)


@lowers(CONV_BIAS_FORWARD)
def conv_bias(low: Lowering, node: Node, call: Call) -> None:
    """As Convolution, with a bias, an addend z and a nonlinearity."""
    mode = call.param.nonlineMode
    if mode != P.ConvBiasV0NonlineMode.IDENTITY and mode not in NONLINEAR:
        raise NotApplicable(f"nonlinearity {mode}")
    low.need_float32(*node.inputs[2:])
    for value in node.inputs[2:]:
        low.shape(value)
    y, g = convolve(low, node, call)
    for value in node.inputs[2:]:
        addend = _addend(low, value, g.dst)
        total = low.temp(low.shapes[y])
        _eltwise(low, _ADD, (y, addend), total)
        y = total
    if mode in NONLINEAR:
        total = low.temp(low.shapes[y])
        _eltwise(low, NONLINEAR[mode], (y,), total)
        y = total
    _publish(low, node.outputs[0], y, g.dst)


@lowers(CONVOLUTION_BACKWARD_DATA)
def transposed(low: Lowering, node: Node, call: Call) -> None:
    """float32, constant filter, any stride, padding and dilation; groups of whole vectors."""
    low.need_float32(*node.inputs[:2], *node.outputs)
    flt, diff, y = node.inputs[0], node.inputs[1], node.outputs[0]
    low.shape(diff)
    g = geometry(call.param, low.shape(y), low.shape(flt))
    if g.dst_shape != low.shape(diff):
        raise NotApplicable("an output that the filter does not fill")
    spec = conv_spec(g)
    if spec.sh * spec.sw > 64:
        raise NotApplicable(f"a stride of {spec.sh}x{spec.sw} would need too much code")
    if not deconv.suits(spec, 16):
        raise NotApplicable("groups smaller than a vector")
    weights = np.asarray(g.kernel(low.need_array(flt, "the filter")))
    x = low.image(diff, g.dst)
    out = low.out_image(y, g.src)
    low.add(nd.TransposedConv(low.label(node), (x,), (out,), spec, weights))


def _addend(low: Lowering, value: Value, layout: TensorLayout) -> str:
    array: Array | None = low.array(value)
    if array is not None and layout.name != NCHW.name:
        return low.constant(np.ascontiguousarray(layout.to_nchw(array)))
    return low.image(value, layout)


def _pool(low: Lowering, node: Node, spec: PoolSpec, layout: TensorLayout) -> None:
    low.need_float32(node.inputs[0])
    if layout.spatial != "HW":
        raise NotApplicable("not pooling of images")
    low.shape(node.outputs[0])
    if max(spec.kw, spec.sw) > _WIDEST:
        spec_is_whole = layout.logical(low.shape(node.inputs[0]))[2:] == (spec.kh, spec.kw)
        if not spec_is_whole or spec.pw:
            raise NotApplicable(f"a window {spec.kw} wide would need too much code")
    _, _, h, w = layout.logical(low.shape(node.inputs[0]))
    if spec.ph >= spec.kh or spec.pw >= spec.kw:
        raise NotApplicable("a window lies in the padding")
    oh, ow = spec.out_size(h, w)
    if (oh - 1) * spec.sh - spec.ph >= h or (ow - 1) * spec.sw - spec.pw >= w:
        raise NotApplicable("a window lies in the padding")
    x = low.image(node.inputs[0], layout)
    y = low.out_image(node.outputs[0], layout)
    if (spec.kh, spec.kw) == (h, w) and not (spec.ph or spec.pw) and (oh, ow) == (1, 1):
        mode = "max" if spec.mode == "max" else "mean"
        low.add(nd.GlobalPooling(low.label(node), (x,), (y,), mode))
    else:
        low.add(nd.Pooling(low.label(node), (x,), (y,), spec))


@lowers(POOLING)
def pooling(low: Lowering, node: Node, call: Call) -> None:
    """float32 maximum and both averages, any layout."""
    p = call.param
    mode = POOL_MODES[p.mode]
    sizes = (p.window_h, p.window_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w)
    _pool(low, node, PoolSpec(mode, *(int(v) for v in sizes)), single_layout(p.format))


@lowers(ADAPTIVE_POOLING)
def adaptive_pooling(low: Lowering, node: Node, call: Call) -> None:
    """As Pooling, with stride and window from the sizes."""
    layout = single_layout(call.param.format)
    _, _, h, w = layout.logical(low.shape(node.inputs[0]))
    _, _, oh, ow = layout.logical(low.shape(node.outputs[0]))
    sh, sw = h // oh, w // ow
    kh, kw = h - (oh - 1) * sh, w - (ow - 1) * sw
    _pool(low, node, PoolSpec(POOL_MODES[call.param.mode], kh, kw, sh, sw), layout)
