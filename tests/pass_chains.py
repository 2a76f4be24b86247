"""Random networks of arithmetic, convolutions and moves of elements: what the passes rewrite."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mgeserial.author import GraphBuilder
from mgeserial.ir.graph import Graph, Value
from mgeserial.passes.evaluate import compute

SHAPE = (2, 4, 6, 6)
_SIDES = ((1,), (4, 1, 1), (1, 4, 1, 1), (1, 1, 6, 6), SHAPE)
_UNARY = ("RELU", "SIGMOID", "TANH", "H_SWISH", "NEGATE", "ABS")
_BINARY = ("ADD", "ADD", "SUB", "MUL", "MAX")


def _constant(draw: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = draw(st.sampled_from(_SIDES))
    kind = draw(st.sampled_from(("any", "any", "0", "1", "-1")))
    if kind != "any":
        return np.full(shape, float(kind), np.float32)
    sign = rng.choice([-1.0, 1.0], shape)
    return (sign * rng.uniform(0.5, 1.5, shape)).astype(np.float32)


def _elemwise(b: GraphBuilder, mode: str, *inputs: Any) -> Value:
    return b.elemwise(*inputs, mode=mode)


def _conv(draw: Any, b: GraphBuilder, rng: Any, x: Value) -> Value:
    groups = draw(st.sampled_from((1, 1, 2, 4)))
    size = draw(st.sampled_from((1, 3)))
    weight = (rng.uniform(-1, 1, (4, 4 // groups, size, size)) / size).astype(np.float32)
    transposed = draw(st.booleans()) and groups == 1
    if transposed:
        return b.conv_transpose2d(x, weight, padding=size // 2)
    bias = rng.uniform(-1, 1, 4).astype(np.float32) if draw(st.booleans()) else None
    return b.conv2d(x, weight, bias, padding=size // 2, groups=groups)


def _norm(b: GraphBuilder, rng: Any, x: Value) -> Value:
    scale, bias, mean = (rng.uniform(-1, 1, 4).astype(np.float32) for _ in range(3))
    return b.batch_norm2d(x, scale, bias, mean, rng.uniform(0.5, 2, 4).astype(np.float32))


def _moved(draw: Any, b: GraphBuilder, x: Value) -> Value:
    """There and back by some way."""
    kind = draw(st.sampled_from(("transpose", "reshape", "blocks", "half")))
    if kind == "transpose":
        return b.transpose(b.transpose(x, (0, 2, 3, 1)), (0, 3, 1, 2))
    if kind == "reshape":
        return b.reshape_to(b.reshape_to(x, (2, 16, 9)), SHAPE)
    if kind == "blocks":
        packed = b.relayout_format(x, mode="NCHW_NCHW4")
        return b.relayout_format(packed, mode="NCHW4_NCHW")
    turned = b.transpose(b.reshape_to(x, (2, 4, 36)), (1, 0, 2))
    return b.transpose(b.reshape_to(turned, (4, 2, 6, 6)), (1, 0, 2, 3))


def _step(draw: Any, b: GraphBuilder, rng: Any, values: list[Value]) -> Value:
    x = draw(st.sampled_from(values[-3:]))
    kind = draw(st.sampled_from(("side", "side", "side", "two", "one", "conv", "norm", "move")))
    if kind == "side":
        mode = draw(st.sampled_from(("ADD", "SUB", "MUL", "TRUE_DIV")))
        constant = _constant(draw, rng)
        if mode == "TRUE_DIV" and not constant.all():
            mode = "ADD"
        swapped = mode != "TRUE_DIV" and draw(st.booleans())
        return _elemwise(b, mode, *((constant, x) if swapped else (x, constant)))
    if kind == "two":
        y = draw(st.sampled_from(values))
        return _elemwise(b, draw(st.sampled_from(_BINARY)), x, y)
    if kind == "one":
        return _elemwise(b, draw(st.sampled_from(_UNARY)), x)
    if kind == "conv":
        return _conv(draw, b, rng, x)
    return _norm(b, rng, x) if kind == "norm" else _moved(draw, b, x)


@st.composite
def chains(draw: Any, *, max_steps: int = 12) -> Graph:
    """A network of one input `x` of `SHAPE` and one to three outputs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    b = GraphBuilder()
    values = [b.input("x", SHAPE)]
    for _ in range(draw(st.integers(1, max_steps))):
        made = _step(draw, b, rng, values)
        if b.type_of(made).dims == SHAPE:
            values.append(made)
    inner = values[1:] or [b.relu(values[0])]
    for i, value in enumerate(
        dict.fromkeys([*draw(st.lists(st.sampled_from(inner), max_size=2)), inner[-1]])
    ):
        b.output(value, f"out{i}")
    return b.graph()


def feed(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """An input for such a network."""
    rng = np.random.default_rng(seed)
    return {"x": rng.uniform(-1, 1, SHAPE).astype(np.float32)}


def assert_same_outputs(before: Graph, after: Graph, *, tolerance: float = 2e-3) -> None:
    """Computed outputs agree, relative to the largest number among them."""
    inputs = feed()
    for a, b in zip(compute(before, inputs), compute(after, inputs), strict=True):
        finite = np.abs(a[np.isfinite(a)])
        scale = max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale)
