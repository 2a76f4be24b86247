"""Gradients and normalisations of the run, composed of elementwise programs and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_native import both

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.params import BNFwdMode

X = (3, 8, 5, 7)
STAT = (1, 8, 1, 1)


def run(op: str, inputs: dict[str, tuple[int, ...]], param: Any) -> None:
    """All inputs are of the run; those called `var` or `scale` are positive."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    feeds, values = {}, []
    for name, shape in inputs.items():
        values.append(b.input(name, shape, "Float32"))
        positive = name.startswith(("var", "rstd", "scale", "y"))
        drawn = rng.uniform(0.1, 2.0, shape) if positive else rng.normal(0, 2, shape)
        feeds[name] = drawn.astype(np.float32)
    for k, value in enumerate(b.apply(op, values, [param])):
        b.output(value, f"r{k}")
    both(b.graph(), feeds)


@pytest.mark.parametrize("mode", ["TRAINING", "INFERENCE"])
@pytest.mark.parametrize("dim", ["DIM_1C11", "DIM_111C"])
def test_batch_norm(mode: str, dim: str) -> None:
    stat = STAT if dim == "DIM_1C11" else (1, 1, 1, 7)
    param = P.BN(
        fwd_mode=BNFwdMode[mode], param_dim=P.BNParamDim[dim], epsilon=1e-5, avg_factor=0.1
    )
    run("BatchNorm", {"x": X, "scale": stat, "bias": stat, "mean": stat, "var": stat}, param)


def test_batch_norm_gradient() -> None:
    inputs = {"x": X, "dy": X, "mean": STAT, "rstd": STAT, "scale": STAT}
    run(
        "BatchNormBackward",
        inputs,
        P.BN(fwd_mode=BNFwdMode.TRAINING, param_dim=P.BNParamDim.DIM_1C11),
    )


@pytest.mark.parametrize("weight", [True, False])
def test_layer_norm_gradient(weight: bool) -> None:
    own = {"weight": (5, 7)} if weight else {}
    inputs = {"diff": X, "x": X, **own, "mean": (3, 8), "rstd": (3, 8)}
    run(
        "LayerNormBackward",
        inputs,
        P.LayerNorm(normalized_dim=2, normalized_size=35, affine=weight),
    )


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("op", ["GroupNormBackward", "InstanceNormBackward"])
def test_group_norm_gradient(op: str, weight: bool) -> None:
    groups = 8 if op.startswith("Inst") else 4
    own = {"weight": (8,)} if weight else {}
    inputs = {"diff": X, "x": X, **own, "mean": (3, groups), "var": (3, groups)}
    run(op, inputs, P.GroupNorm(group=groups, affine=weight, eps=1e-4))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_gradient(axis: int) -> None:
    run("SoftmaxBackward", {"y": (4, 9, 6), "dy": (4, 9, 6)}, P.Softmax(axis=axis))


@pytest.mark.parametrize(
    ("op", "more"),
    [
        ("FakeQuantBackward", {"scale": (1, 8, 1, 1), "zero": (1,)}),
        ("TQTBackward", {"exponent": (1,)}),
        ("LSQBackward", {"scale": (1,), "zero": (1,), "factor": (1,)}),
    ],
)
def test_gradients_of_rounding(op: str, more: dict[str, tuple[int, ...]]) -> None:
    param = {"F": P.FakeQuant, "T": P.TQT, "L": P.LSQ}[op[0]](qmin=-3, qmax=4)
    run(op, {"dy": X, "x": X, **more}, param)
