"""Conversions of whole graphs to packed layouts."""

from __future__ import annotations

from dataclasses import replace

from mgeserial.passes.base import Fact, Pass
from mgeserial.passes.layout.padding import PADDINGS, PadChannels
from mgeserial.passes.layout.targets import TARGETS
from mgeserial.passes.layout.walk import ConvertLayout
from mgeserial.passes.options import Layout
from mgeserial.passes.preprocess import PREPROCESS

__all__ = ["passes_for"]

# Layouts that start from NCHW4.
_FROM_NCHW4 = frozenset({Layout.NCHW32, Layout.CHWN4})
# Layouts that bring the fusion of what stands before the first convolution with them.
_WITH_PREPROCESS = frozenset({Layout.NCHW32, Layout.NCHW64})
_NCHW4 = ConvertLayout(TARGETS[Layout.NCHW4], ensures=frozenset({Fact.NCHW4}))


def passes_for(layout: Layout) -> list[Pass]:
    """The passes that convert a graph to a layout, in order; none for `Layout.NONE`."""
    if layout is Layout.NONE:
        return []
    if layout is Layout.NCHW4:
        return [_NCHW4]
    convert = ConvertLayout(TARGETS[layout])
    passes: list[Pass] = [PadChannels(PADDINGS[layout])] if layout in PADDINGS else []
    if layout in _FROM_NCHW4:
        passes.append(_NCHW4)
        convert = replace(convert, needs=convert.needs | {Fact.NCHW4})
    passes.append(convert)
    if layout in _WITH_PREPROCESS:
        passes.append(PREPROCESS)
    return passes
