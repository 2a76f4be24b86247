"""Shapes that inference finds and a v2 file cannot tell are left out of it."""

from __future__ import annotations

import numpy as np

import mgeserial
from mgeserial.author import GraphBuilder


def test_a_dimension_beyond_32_bits_is_not_told() -> None:
    b = GraphBuilder()
    x = b.broadcast(b.input("x", (1,)), np.array([2**31 - 1], np.int32))
    b.output(b.cat([x, x, x], axis=0), "y")
    graph = b.graph()
    assert graph.outputs[0].shape == (3 * (2**31 - 1),)
    again = mgeserial.load(mgeserial.dumps(graph, format="v2")).graph
    assert again.outputs[0].shape == graph.outputs[0].shape
