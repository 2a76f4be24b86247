"""Graphs to look at: a residual network of any size, and one whose names attack what shows them."""

from __future__ import annotations

import numpy as np

from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"><svg onload="window.hacked=1">',
    "a\u202eb\x00c\x1b[31m\nd",
    "]]>&amp;&lt;%TITLE%{{x}}${y}",
    '\\"; window.hacked=1; //',
    "\ud800 alone, \u2028 line, 名前 ✓",
)


def residual_network(blocks: int = 17, *, channels: int = 4, size: int = 8) -> Graph:
    """A network like ResNet: 26 operators a block and 6 more; 448 with 17 blocks.

    Each block is three times convolution, batch norm, relu, and a wire around them.
    """
    b = GraphBuilder()
    x = b.input("data", (1, channels, size, size))
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    for k in range(blocks):
        y = x
        for j, window in enumerate((1, 3, 1)):
            filters = np.full((channels, channels, window, window), 0.1, np.float32)
            weight = b.param(filters, name=f"block{k}.conv{j}.w")
            y = b.conv2d(y, weight, padding=window // 2, name=f"block{k}.conv{j}")
            y = b.batch_norm2d(y, ones, zeros, zeros, ones)
            y = b.relu(y)
        x = b.relu(b.add(x, y))
    x = b.flatten(b.max_pool2d(x, 2))
    flat = channels * (size // 2) ** 2
    x = b.matmul(x, b.param(np.zeros((flat, 10), np.float32), name="fc.w"))
    b.output(x, "prob")
    return b.graph()


def hostile_network() -> Graph:
    """A chain whose input, operators, values, weights and output carry hostile names."""
    b = GraphBuilder()
    x = b.input(HOSTILE[0], (1, 4, 8, 8))
    for name in HOSTILE[1:]:
        w = b.param(np.ones((4, 4, 1, 1), np.float32), name=f"weight {name}")
        x = b.conv2d(x, w)
        x.name = f"value {name}"
        x.node.name = f"node {name}"
    b.output(x, HOSTILE[2])
    return b.graph()
