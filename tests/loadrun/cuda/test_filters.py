"""Blurs, cosine transforms, and gradients of fake quantisation and of diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgeserial import params as P
from mgeserial.author import GraphBuilder


@pytest.mark.parametrize("border", ["REPLICATE", "REFLECT", "REFLECT_101", "CONSTANT"])
@pytest.mark.parametrize("dtype", ["Uint8", "Float32"])
def test_gaussian_blur(agrees: Any, border: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 9, 12, 3))
    data: Any = x.astype(dtype.lower())
    for sizes, sigma in (((3, 5), 0.0), ((0, 0), 1.3), ((7, 1), 0.8)):
        param = P.GaussianBlur(
            border_mode=P.WarpPerspectiveV1BorderMode[border], kernel_height=sizes[0],
            kernel_width=sizes[1], sigma_x=sigma, sigma_y=sigma / 2,
        )  # fmt: skip
        b = GraphBuilder()
        b.output(b.apply("GaussianBlur", [b.input("x", x.shape, dtype=dtype)], (param,))[0], "y")
        agrees(b.graph(), [data], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_cosine_transform_of_blocks(agrees: Any, packed: bool, masked: bool) -> None:
    x = np.random.default_rng(1).integers(0, 256, (2, 2, 8, 12)).astype(np.uint8)
    param = P.DctChannelSelect(
        format=P.ConvolutionFormat.NCHW4 if packed else P.ConvolutionFormat.NCHW,
        fastImpl=P.DctChannelSelectV0FastImpl.NONE, dct_block_size=4,
    )  # fmt: skip
    b = GraphBuilder()
    inputs = [b.input("x", x.shape, dtype="Uint8")]
    if masked:
        inputs += [b.param(np.array(a, np.int32)) for a in ([0, 3, 8], [0, 5, 3, 1, 2, 15, 7, 8])]
    b.output(b.apply("DctChannelSelect", inputs, params=(param,))[0], "y")
    agrees(b.graph(), [x], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("name", ["FakeQuantBackward", "TQTBackward", "LSQBackward"])
def test_gradients_of_fake_quantisation(agrees: Any, name: str) -> None:
    random = np.random.default_rng(2)
    x, dy = (random.standard_normal((3, 40)).astype(np.float32) for _ in range(2))
    scale = np.array([[0.05], [0.1], [0.3]], np.float32)
    feeds: list[Any] = [dy, x * 5, scale if name != "TQTBackward" else np.log2(scale)]
    params: dict[str, Any] = {
        "FakeQuantBackward": P.FakeQuant, "TQTBackward": P.TQT, "LSQBackward": P.LSQ
    }  # fmt: skip
    if name != "TQTBackward":
        feeds.append(np.array([[1], [0], [-3]], np.float32))
    if name == "LSQBackward":
        feeds.append(np.array([0.02], np.float32))
    b = GraphBuilder()
    inputs = [b.input(f"i{k}", a.shape) for k, a in enumerate(feeds)]
    for k, value in enumerate(b.apply(name, inputs, params=(params[name](qmin=-8, qmax=7),))):
        b.output(value, f"y{k}")
    agrees(b.graph(), feeds)


@pytest.mark.parametrize("k", [-2, 0, 1])
@pytest.mark.parametrize("shape", [(4,), (5, 6)])
def test_gradient_of_a_diagonal(agrees: Any, k: int, shape: tuple[int, ...]) -> None:
    size = (4 + abs(k),) * 2 if len(shape) == 1 else (min(5 + min(k, 0), 6 - max(k, 0)),)
    diff = np.random.default_rng(3).standard_normal(size).astype(np.float32)
    b = GraphBuilder()
    given = b.param(np.array(shape, np.int32))
    y = b.apply("DiagBackward", [given, b.input("dy", diff.shape)], params=(P.Diag(k=k),))[0]
    b.output(y, "y")
    agrees(b.graph(), [diff], rtol=0, atol=0)
