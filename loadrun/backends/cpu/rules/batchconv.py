"""BatchConvBias: a convolution with a filter of its own for each image."""

from __future__ import annotations

import math

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import Builder, from_real, narrowed, to_real
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.conv import NONLINEAR
from loadrun.backends.cpu.rules.order import need_plain
from loadrun.backends.cpu.rules.product import (
    columns,
    filter_of,
    multiply,
    need_room,
    sided,
    spaced,
)
from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Call
from mgeserial.ops.conv import BATCH_CONV_BIAS_FORWARD
from mgeserial.ops.convrules import Geometry, geometry, product_dtype, same_scale
from mgeserial.ops.layouts import TensorLayout

_IDENTITY = P.ConvBiasV0NonlineMode.IDENTITY
_RELU = P.ConvBiasV0NonlineMode.RELU


def _geometry(low: Lowering, node: Node, call: Call) -> Geometry:
    """Images as groups of one image."""
    for value in (*node.inputs, *node.outputs):
        need_plain(low, value)
    mode = call.param.nonlineMode
    if mode != _IDENTITY and mode not in NONLINEAR:
        raise NotApplicable(f"nonlinearity {mode}")
    n, *rest = call.shape(0)
    g = geometry(call.param, (1, n * rest[0], *rest[1:]), call.shape(1), grouped=True)
    if g.src.spatial != "HW":
        raise NotApplicable(f"images in {g.src.name}")
    return g


def _sums(low: Lowering, node: Node, call: Call, g: Geometry) -> str:
    """Sums of products, (images, outputs, *out): float32, or int32 that wrap."""
    src, flt = node.inputs[:2]
    kinds = call.dtype(0), call.dtype(1)
    is_real = low.is_float32(src, flt)
    if not is_real and any(d.is_float or d.storage.itemsize != 1 for d in kinds):
        raise NotApplicable(f"{kinds[0].name} times {kinds[1].name}")
    zeros = [d.zero_point or 0 for d in kinds]
    n, k, pixels = g.groups, g.depth * math.prod(g.window.kernel), math.prod(g.out)
    need_room(n, max(g.outputs * k, k * pixels))
    w = filter_of(low, flt, g, adjoint=False)
    sides = sided(g.window, g.sizes)
    image = low.plain_image(src, g.src)
    x = spaced(low, image, (n, g.depth), g.sizes, sides, fill=zeros[0])
    seen = columns(low, x, (1, n, g.depth, *sides.length), g.window, g.out)
    total = low.temp((n, g.outputs, *g.out))
    sizes = (n, g.outputs, k, pixels)
    if is_real:
        multiply(low, (w, seen), sizes, total, low.label(node))
    else:
        low.dtypes[total] = "int32"
        factors = (zeros[1], zeros[0])
        low.add(nd.WholeProduct(low.label(node), (w, seen), (total,), sizes, factors))
    return total


def _fused(call: Call) -> Expr:
    """From sums, a bias and an addend to the output's elements, as `ops.conv` adds and rounds."""
    try:
        product = product_dtype(call.dtype(0), call.dtype(1))
    except MgeError as error:
        raise NotApplicable("no such product") from error
    target, mode = call.output_types[0].dtype, call.param.nonlineMode
    given = len(call.inputs)
    b = Builder(given - 1)
    total, real = 0, None
    if given > 2:
        kind = call.dtype(2)
        if product.is_float:
            total = b.op("add", 0, 1)
        elif kind.is_float:
            real = b.op("add", to_real(b, 0, product), 1)
        else:
            bias = b.op("isub", 1, b.whole(kind.zero_point)) if kind.zero_point else 1
            total = b.op("iadd", 0, bias)
    is_whole = target.kind in (DTypeEnum.Int32, DTypeEnum.Int16) or same_scale(product, target)
    simple = mode in (_IDENTITY, _RELU) and not product.is_float and is_whole
    if real is None and given < 4 and simple:
        total = b.op("imax", total, b.whole(0)) if mode == _RELU else total
        stays = product.kind is target.kind or target.kind is DTypeEnum.Int16
        result = narrowed(b, total, target) if stays else None
        return b.done(
            from_real(b, to_real(b, total, product), target) if result is None else result
        )
    real = to_real(b, total, product) if real is None else real
    if given > 3:
        real = b.op("add", real, to_real(b, 2, call.dtype(3)))
    real = b.apply(NONLINEAR[mode], real) if mode != _IDENTITY else real
    return b.done(from_real(b, real, target))


def write_image(
    low: Lowering, value: Value, names: tuple[str, ...], expr: Expr, layout: TensorLayout
) -> None:
    """Let a value of a layout be a program of tensors in NCHW, the first one of its full size."""
    if layout.name == "NCHW":
        low.add(nd.Eltwise(low.unique("image"), names, (low.out(value),), expr))
        return
    y = low.temp(low.shapes[names[0]])
    is_real = low.is_float32(value)
    if not is_real:
        low.dtypes[y] = low.inference.types[value].dtype.storage.name
    low.add(nd.Eltwise(low.unique("image"), names, (y,), expr))
    if is_real:
        low.same_image(value, y, layout)
    else:
        low.same(value, low.stored_image(y, layout, low.shape(value)))


@lowers(BATCH_CONV_BIAS_FORWARD)
def batch_conv_bias(low: Lowering, node: Node, call: Call) -> None:
    """float32 and bytes, any layout: a product for each image; bias, addend and nonlinearity."""
    g = _geometry(low, node, call)
    expr = _fused(call)
    addends = [low.plain_image(v, g.dst) for v in node.inputs[2:]]
    total = _sums(low, node, call, g)
    write_image(low, node.outputs[0], (total, *addends), expr, g.dst)
