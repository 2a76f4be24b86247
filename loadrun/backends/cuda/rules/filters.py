"""Images filtered: Gaussian blur, and cosine transforms of blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadrun.backends.cuda import nodes as nd
from loadrun.backends.cuda.elements import quantize
from loadrun.backends.cuda.emit_pointwise import scalar_args, scalar_params
from loadrun.backends.cuda.expr import ACC, Builder, render
from loadrun.backends.cuda.lower import Lowering, NotApplicable, lowers
from loadrun.backends.cuda.plan import Array
from loadrun.backends.cuda.rules.image import MIXED, ONE, resampled
from mgeserial import params as P
from mgeserial.dtypes import DTypeEnum
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
from mgeserial.ops.lines import Line, correlated


def _line(weights: Array, size: int, border: Any) -> Line:
    """What each element of an axis is made of; pixels outside count nothing."""
    try:
        return correlated(weights, size, border)
    except MgeError as error:
        raise NotApplicable(f"border mode {border}") from error


@lowers(GAUSSIAN_BLUR)
def gaussian_blur(low: Lowering, node: Node, call: Call) -> None:
    """Along the width, then along the height."""
    x, out = node.inputs[0], node.outputs[0]
    n, h, w, c = low.shape(x)
    rows, columns = blur_lines(call)
    byte = call.dtype(0).kind is DTypeEnum.Uint8
    middle = low.temp((n, h, w, c), *(("int32", "i32") if byte else ()))
    along_w, along_h = (
        _line(line, size, call.param.border_mode) for line, size in ((columns, w), (rows, h))
    )
    half, bits = 1 << (2 * KERNEL_BITS - 1), 2 * KERNEL_BITS
    first, last = ("(int)total", f"clamp64((total + {half}) >> {bits}, 0, 255)")
    sizes = (n * h, 1, 1, w, c, 1, w)
    name = low.name(x)
    resampled(
        low, node, name, middle, sizes, ONE, along_w, MIXED, first if byte else "total",
        integer=byte,
    )  # fmt: skip
    sizes = (n, 1, 1, h, w * c, 1, h)
    resampled(
        low, node, middle, low.out(out), sizes, ONE, along_h, MIXED, last if byte else "total",
        integer=byte,
    )  # fmt: skip


@lowers(DCT_CHANNEL_SELECT)
def dct_channel_select(low: Lowering, node: Node, call: Call) -> None:
    """All coefficients or those of constant masks."""
    x, out = node.inputs[0], node.outputs[0]
    _, c, height, width = low.shape(x)
    shape = low.shape(out)
    size = int(call.param.dct_block_size)
    masks = [low.need_array(v, "a mask") for v in node.inputs[1:]]
    chosen = np.arange(c * size * size)
    if masks:
        try:
            chosen = selected(c, size * size, *masks)
        except MgeError as error:
            raise NotApplicable("masks that do not fit") from error
    target = call.output_types[0].dtype
    b = Builder()
    expr = b.done(quantize(b, ACC, target) if target.is_quantized else ACC)
    body, result = render(expr, [])
    y = low.out(out)
    items = math.prod(shape)
    params: list[nd.Param] = [
        nd.In(low.name(x)), nd.In(low.constant(chosen.astype(np.int32))),
        nd.In(low.constant(cosines(size))), nd.Out(y), items, c, height // size, width // size,
        len(chosen), size, *scalar_args(expr),
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "YT": low.tensors[y].ctype, "L": 4 if call.param.format == P.ConvolutionFormat.NCHW4 else 1,
        "SCALARS": scalar_params(expr), "BODY": "\n  ".join(body), "RESULT": result,
    }  # fmt: skip
    low.kernel(node, "dct", params, items, **fields)
