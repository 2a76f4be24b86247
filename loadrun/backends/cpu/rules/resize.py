"""Resizing of float32 images."""

from __future__ import annotations

import numpy as np

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.lower import Lowering, NotApplicable, lowers
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node
from mgeserial.ir.types import Call
from mgeserial.ops import lines
from mgeserial.ops.layouts import single_layout
from mgeserial.ops.resize import RESIZE
from mgeserial.ops.subpixel import Mode


@lowers(RESIZE)
def resize(low: Lowering, node: Node, call: Call) -> None:
    """float32, nearest and linear, to a size known ahead of the run, any layout."""
    low.need_float32(node.inputs[0], node.outputs[0])
    try:
        layout = single_layout(call.param.format)
    except MgeError as error:
        raise NotApplicable(f"format {call.param.format}") from error
    if layout.spatial != "HW":
        raise NotApplicable("not an image")
    kinds = {Mode.NEAREST: lines.nearest, Mode.LINEAR: lines.linear}
    kind = kinds.get(call.param.imode)
    if kind is None:
        raise NotApplicable(f"interpolation {call.param.imode}")
    given, wanted = (layout.logical(low.shape(v)) for v in (node.inputs[0], node.outputs[0]))
    rows, columns = (kind(o, s) for o, s in zip(wanted[2:], given[2:], strict=True))
    x = low.image(node.inputs[0], layout)
    y = low.out_image(node.outputs[0], layout)
    low.add(
        nd.Resample(
            low.label(node),
            (x,),
            (y,),
            rows.index.astype(np.int32),
            columns.index.astype(np.int32),
            rows.weight.astype(np.float32),
            columns.weight.astype(np.float32),
        )
    )
