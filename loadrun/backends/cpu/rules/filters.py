"""Images filtered by lines of weights, and transformed block by block."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.elements import Builder, from_real
from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.kernels import blocks
from loadrun.backends.cpu.kernels.blocks import Transform
from loadrun.backends.cpu.kernels.interpolate import PLAIN, Planes, Result
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cpu.rules.batchconv import write_image
from loadrun.backends.cpu.rules.image import Tables, add_resize
from loadrun.backends.cpu.rules.index import need_positions
from mgeserial import params as P
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops.filters import (
    DCT_CHANNEL_SELECT,
    GAUSSIAN_BLUR,
    KERNEL_BITS,
    blur_lines,
    cosines,
    selected,
)
from mgeserial.ops.layouts import NCHW, single_layout
from mgeserial.ops.lines import Line, correlated

_MOST_TAPS = 1 << 22


def _line(
    weights: npt.NDArray[np.number], size: int, border: P.WarpPerspectiveV1BorderMode
) -> Line:
    """The pixels that a correlation reads along an axis."""
    if len(weights) * size > _MOST_TAPS:
        raise NotApplicable("tables would be too large")
    try:
        return correlated(weights, size, border)
    except MgeError as error:
        raise NotApplicable(f"border mode {border}") from error


@lowers(GAUSSIAN_BLUR)
def gaussian_blur(low: Lowering, node: Node, call: Call) -> None:
    """float32 and bytes, all borders: columns first, then rows."""
    value, out = node.inputs[0], node.outputs[0]
    n, h, w, c = low.shape(value)
    need_positions((n, h, w, c))
    is_real = call.dtype(0).is_float
    border = call.param.border_mode
    lines = [_line(k, size, border) for k, size in zip(blur_lines(call), (h, w), strict=True)]
    planes = Planes(n, 1, h, 1, w, c)
    x = low.name(value)
    if is_real:
        how = Tables(lines[0], lines[1], PLAIN)
        add_resize(low, node, x, low.out(out), (planes, planes), how)
        return
    # Whole numbers: columns to sums of 32 bits, and then rows.
    sums = low.temp((n, h, w, c))
    low.dtypes[sums] = "int32"
    still = Line(np.arange(h)[:, None], np.ones((h, 1), np.int64))
    first = Tables(still, lines[1], Result("fixed", -(1 << 31), (1 << 31) - 1), fixed=True)
    add_resize(low, node, x, sums, (planes, planes), first)
    one = Line(np.zeros((1, 1), np.intp), np.ones((1, 1), np.int64))
    result = Result("fixed", shift=2 * KERNEL_BITS)
    second = Tables(lines[0], one, result, fixed=True, rows_only=True)
    add_resize(low, node, sums, low.out(out), (planes, planes), second)


@lowers(DCT_CHANNEL_SELECT)
def cosine_transform(low: Lowering, node: Node, call: Call) -> None:
    """Bytes to floats or codes, NCHW and NCHW4, constant choices."""
    value, out = node.inputs[0], node.outputs[0]
    n, c, h, w = low.shape(value)
    size = int(call.param.dct_block_size)
    masks = [low.need_array(v, "the choice of coefficients") for v in node.inputs[1:]]
    try:
        chosen = selected(c, size * size, *masks) if masks else np.arange(c * size * size)
    except MgeError as error:
        raise NotApplicable("coefficients that do not exist") from error
    layout = (
        NCHW
        if call.param.format == P.ConvolutionFormat.NCHW
        else single_layout(P.ConvolutionFormat.NCHW4)
    )
    target = call.output_types[0].dtype
    shape = (n, len(chosen), h // size, w // size)
    need_positions((n, c, h, w), shape)
    if not (target.is_quantized or low.is_float32(out)):
        raise NotApplicable(f"coefficients as {target}")
    found = low.temp(shape)
    matrix = low.constant(cosines(size).astype(np.float64))
    numbers = low.constant(chosen.astype(np.int32))
    how = Transform(n, c, (h // size, w // size), size, len(chosen))
    reads = (low.name(value), matrix, numbers)
    make = functools.partial(blocks.transform, how)
    low.add(nd.Loops(low.label(node), reads, (found,), "cosines", make))
    b = Builder(1)
    expr = b.done(from_real(b, 0, target)) if target.is_quantized else Expr(1)
    write_image(low, out, (found,), expr, layout)
