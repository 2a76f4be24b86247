"""The networks that benchmarks use, authored with `GraphBuilder` from seeds.

    python benchmarks/models.py resnet18 --batch 8 -o resnet18.mge
    python benchmarks/models.py --list

Architectures follow the papers; weights are random (He-scaled), which keeps activations in range
and makes no difference to speed. Batch norm stands folded into convolutions, as exported inference
models have it, unless a network says otherwise.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadrun.session import Session
from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DType, quantized
from mgeserial.ir.graph import Graph, Value

__all__ = ["NETWORKS", "QUANTIZED", "build"]


class _Net:
    """A builder with random weights and the blocks that networks share."""

    def __init__(self, seed: int = 0) -> None:
        self.b = GraphBuilder()
        self._random = np.random.default_rng(seed)

    def weight(self, *shape: int, fan_in: int | None = None, gain: float = 2.0) -> Any:
        """He-scaled normal numbers of this shape, float32."""
        fan = fan_in if fan_in is not None else math.prod(shape[1:])
        return (self._random.standard_normal(shape) * math.sqrt(gain / fan)).astype(np.float32)

    def bias(self, n: int) -> Any:
        """Small numbers of shape (n,)."""
        return (self._random.standard_normal(n) * 0.05).astype(np.float32)

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
    ) -> Value:
        """Convolution of odd kernel, same padding, bias, activation (`none`, `relu`, ...)."""
        inner = self.b.shape_of(x)[1] // groups
        gain = 2.0 if act != "none" else 0.5
        y = self.b.conv2d(
            x,
            self.weight(channels, inner, kernel, kernel, gain=gain),
            self.bias(channels),
            stride=stride,
            padding=kernel // 2,
            groups=groups,
        )
        return self.act(y, act)

    def act(self, x: Value, act: str) -> Value:
        """Apply an activation by name."""
        if act == "none":
            return x
        method: Callable[[Value], Value] = getattr(self.b, act)
        return method(x)

    def depthwise(self, x: Value, kernel: int, *, stride: int = 1, act: str = "relu") -> Value:
        """Convolution with one filter a channel."""
        channels = self.b.shape_of(x)[1]
        return self.conv(x, channels, kernel, stride=stride, groups=channels, act=act)

    def linear(self, x: Value, n: int, name: str | None = None) -> Value:
        """Fully connected layer on the last axis."""
        inner = self.b.shape_of(x)[-1]
        return self.b.linear(x, self.weight(n, inner, gain=1.0), self.bias(n), name=name)

    def classifier(self, x: Value, classes: int = 1000) -> Graph:
        """Global average pooling, a linear layer, the output `prob` (softmax)."""
        flat = self.b.flatten(self.b.global_avg_pool2d(x))
        self.b.output(self.b.softmax_last(self.linear(flat, classes)), "prob")
        return self.b.graph()


def _image(net: _Net, batch: int, size: int) -> Value:
    return net.b.input("data", (batch, 3, size, size))


def _basic(net: _Net, x: Value, channels: int, stride: int) -> Value:
    b = net.b
    y = net.conv(x, channels, 3, stride=stride)
    y = net.conv(y, channels, 3, act="none")
    if stride != 1 or b.shape_of(x)[1] != channels:
        x = net.conv(x, channels, 1, stride=stride, act="none")
    return b.relu(b.add(y, x))


def _bottleneck(net: _Net, x: Value, channels: int, stride: int) -> Value:
    b = net.b
    y = net.conv(x, channels, 1)
    y = net.conv(y, channels, 3, stride=stride)
    y = net.conv(y, 4 * channels, 1, act="none")
    if stride != 1 or b.shape_of(x)[1] != 4 * channels:
        x = net.conv(x, 4 * channels, 1, stride=stride, act="none")
    return b.relu(b.add(y, x))


def _resnet(
    batch: int, block: Callable[[_Net, Value, int, int], Value], depths: tuple[int, ...]
) -> Graph:
    net = _Net(18)
    x = net.conv(_image(net, batch, 224), 64, 7, stride=2)
    x = net.b.max_pool2d(x, 3, stride=2, padding=1)
    for stage, depth in enumerate(depths):
        for i in range(depth):
            x = block(net, x, 64 << stage, 2 if stage and i == 0 else 1)
    return net.classifier(x)


def resnet18(batch: int = 1) -> Graph:
    """ResNet-18 at 224 (He et al. 2015)."""
    return _resnet(batch, _basic, (2, 2, 2, 2))


def resnet50(batch: int = 1) -> Graph:
    """ResNet-50 at 224, stride in the 3x3 convolution."""
    return _resnet(batch, _bottleneck, (3, 4, 6, 3))


def mobilenet_v1(batch: int = 1) -> Graph:
    """MobileNetV1 at 224 (Howard et al. 2017)."""
    net = _Net(1)
    x = net.conv(_image(net, batch, 224), 32, 3, stride=2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for channels, stride in plan:
        x = net.conv(net.depthwise(x, 3, stride=stride), channels, 1)
    return net.classifier(x)


def mobilenet_v2(batch: int = 1) -> Graph:
    """MobileNetV2 at 224 (Sandler et al. 2018)."""
    net = _Net(2)
    x = net.conv(_image(net, batch, 224), 32, 3, stride=2, act="relu6")
    plan = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for expand, channels, repeat, first in plan:
        for i in range(repeat):
            inner = net.b.shape_of(x)[1]
            stride = first if i == 0 else 1
            y = net.conv(x, inner * expand, 1, act="relu6") if expand != 1 else x
            y = net.depthwise(y, 3, stride=stride, act="relu6")
            y = net.conv(y, channels, 1, act="none")
            x = net.b.add(x, y) if stride == 1 and inner == channels else y
    return net.classifier(net.conv(x, 1280, 1, act="relu6"))


def _shuffle_unit(net: _Net, x: Value, channels: int, stride: int) -> Value:
    b = net.b
    half = channels // 2
    if stride == 1:
        left, right = b.split_sizes(x, (half, half), axis=1)
    else:
        left = net.conv(net.depthwise(x, 3, stride=2, act="none"), half, 1)
        right = x
    right = net.conv(right, half, 1)
    right = net.conv(net.depthwise(right, 3, stride=stride, act="none"), half, 1)
    n, c, h, w = b.shape_of(joined := b.cat([left, right]))
    mixed = b.transpose(b.reshape_to(joined, (n, 2, c // 2, h, w)), (0, 2, 1, 3, 4))
    return b.reshape_to(mixed, (n, c, h, w))


def shufflenet_v2(batch: int = 1) -> Graph:
    """ShuffleNetV2 1.0x at 224 (Ma et al. 2018)."""
    net = _Net(3)
    x = net.conv(_image(net, batch, 224), 24, 3, stride=2)
    x = net.b.max_pool2d(x, 3, stride=2, padding=1)
    for channels, repeat in ((116, 4), (232, 8), (464, 4)):
        for i in range(repeat):
            x = _shuffle_unit(net, x, channels, 2 if i == 0 else 1)
    return net.classifier(net.conv(x, 1024, 1))


def vgg16(batch: int = 1) -> Graph:
    """VGG-16 at 224 (Simonyan & Zisserman 2014)."""
    net = _Net(16)
    x = _image(net, batch, 224)
    for channels, repeat in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeat):
            x = net.conv(x, channels, 3)
        x = net.b.max_pool2d(x, 2)
    x = net.b.relu(net.linear(net.b.flatten(x), 4096))
    x = net.b.relu(net.linear(x, 4096))
    net.b.output(net.b.softmax_last(net.linear(x, 1000)), "prob")
    return net.b.graph()


def unet(batch: int = 1) -> Graph:
    """A U-Net of four levels at 256, transposed convolutions up (Ronneberger et al. 2015)."""
    net = _Net(4)
    b = net.b
    x = _image(net, batch, 256)
    skips = []
    for channels in (32, 64, 128):
        x = net.conv(net.conv(x, channels, 3), channels, 3)
        skips.append(x)
        x = b.max_pool2d(x, 2)
    x = net.conv(net.conv(x, 256, 3), 256, 3)
    for skip in reversed(skips):
        channels = b.shape_of(skip)[1]
        inner = b.shape_of(x)[1]
        up = net.weight(inner, channels, 2, 2, fan_in=inner)
        x = b.conv_transpose2d(x, up, net.bias(channels), stride=2)
        x = net.conv(net.conv(b.cat([skip, x]), channels, 3), channels, 3)
    b.output(b.sigmoid(net.conv(x, 1, 1, act="none")), "mask")
    return b.graph()


def _csp(net: _Net, x: Value, channels: int, repeat: int, *, shortcut: bool = True) -> Value:
    b = net.b
    half = channels // 2
    left, right = net.conv(x, half, 1, act="silu"), net.conv(x, half, 1, act="silu")
    for _ in range(repeat):
        y = net.conv(left, half, 1, act="silu")
        y = net.conv(net.depthwise(y, 3, act="silu"), half, 1, act="silu")
        left = b.add(left, y) if shortcut else y
    return net.conv(b.cat([left, right]), channels, 1, act="silu")


def _down(net: _Net, x: Value, channels: int) -> Value:
    return net.conv(net.depthwise(x, 3, stride=2, act="silu"), channels, 1, act="silu")


def yolox_nano(batch: int = 1) -> Graph:
    """Like YOLOX-nano at 416: CSP backbone, pyramid, decoupled heads (Ge et al. 2021)."""
    net = _Net(5)
    b = net.b
    x = _image(net, batch, 416)
    # Focus: four phases of the pixels become channels.
    rows = [b.slice_axis(x, 2, i, step=2) for i in (0, 1)]
    x = b.cat([b.slice_axis(r, 3, j, step=2) for j in (0, 1) for r in rows])
    x = net.conv(x, 16, 3, act="silu")
    x = _csp(net, _down(net, x, 32), 32, 1)
    c3 = _csp(net, _down(net, x, 64), 64, 3)
    c4 = _csp(net, _down(net, c3, 128), 128, 3)
    x = net.conv(_down(net, c4, 256), 128, 1, act="silu")
    pools = [x, *(b.max_pool2d(x, k, stride=1, padding=k // 2) for k in (5, 9, 13))]
    c5 = _csp(net, net.conv(b.cat(pools), 256, 1, act="silu"), 256, 1, shortcut=False)
    p5 = net.conv(c5, 128, 1, act="silu")
    p4 = _csp(net, b.cat([b.upsample2d(p5, 2), c4]), 128, 1, shortcut=False)
    q4 = net.conv(p4, 64, 1, act="silu")
    p3 = _csp(net, b.cat([b.upsample2d(q4, 2), c3]), 64, 1, shortcut=False)
    n4 = _csp(net, b.cat([_down(net, p3, 64), q4]), 128, 1, shortcut=False)
    n5 = _csp(net, b.cat([_down(net, n4, 128), p5]), 256, 1, shortcut=False)
    rows = [_yolox_head(net, level) for level in (p3, n4, n5)]
    b.output(b.transpose(b.cat(rows, axis=2), (0, 2, 1)), "boxes")
    return b.graph()


def _yolox_head(net: _Net, x: Value) -> Value:
    b = net.b
    x = net.conv(x, 64, 1, act="silu")
    branches = []
    for _ in range(2):
        y = x
        for _ in range(2):
            y = net.conv(net.depthwise(y, 3, act="silu"), 64, 1, act="silu")
        branches.append(y)
    scores = b.sigmoid(net.conv(branches[0], 80, 1, act="none"))
    box = net.conv(branches[1], 4, 1, act="none")
    objectness = b.sigmoid(net.conv(branches[1], 1, 1, act="none"))
    out = b.cat([box, objectness, scores])
    n, c, h, w = b.shape_of(out)
    return b.reshape_to(out, (n, c, h * w))


def super_resolution(batch: int = 1) -> Graph:
    """Sub-pixel super-resolution, x3 on 224 x 224 luma (Shi et al. 2016)."""
    net = _Net(6)
    x = net.b.input("data", (batch, 1, 224, 224))
    x = net.conv(x, 64, 5)
    x = net.conv(x, 64, 3)
    x = net.conv(x, 32, 3)
    x = net.conv(x, 9, 3, act="none")
    net.b.output(net.b.pixel_shuffle(x, 3), "image")
    return net.b.graph()


def transformer(
    batch: int = 1, *, layers: int = 12, width: int = 768, heads: int = 12, length: int = 128
) -> Graph:
    """An encoder of BERT-base shape on embedded tokens, GELU and post-norm (Devlin et al. 2018)."""
    net = _Net(7)
    b = net.b
    x = b.input("tokens", (batch, length, width))
    part = width // heads

    def split(y: Value) -> Value:
        y = b.reshape_to(y, (batch, length, heads, part))
        return b.reshape_to(b.transpose(y, (0, 2, 1, 3)), (batch * heads, length, part))

    def norm(y: Value) -> Value:
        return b.layer_norm_last(y, 1 + net.bias(width), net.bias(width), epsilon=1e-12)

    for _ in range(layers):
        q, k, v = (split(net.linear(x, width)) for _ in range(3))
        scores = b.mul(b.matmul(q, k, transpose_b=True), 1 / math.sqrt(part))
        mixed = b.matmul(b.softmax_last(scores), v)
        mixed = b.transpose(b.reshape_to(mixed, (batch, heads, length, part)), (0, 2, 1, 3))
        x = norm(b.add(x, net.linear(b.reshape_to(mixed, (batch, length, width)), width)))
        hidden = b.gelu(net.linear(x, 4 * width))
        x = norm(b.add(x, net.linear(hidden, width)))
    b.output(x, "hidden")
    return b.graph()


def lstm(
    batch: int = 1, *, length: int = 64, width: int = 128, hidden: int = 256, layers: int = 2
) -> Graph:
    """A sequence classifier: two LSTM layers, the last step's state through a linear layer."""
    net = _Net(8)
    b = net.b
    x = b.input("sequence", (length, batch, width))
    state = b.const(np.zeros((layers, batch, hidden), np.float32))
    parts = []
    for layer in range(layers):
        inner = width if layer == 0 else hidden
        parts += [net.weight(4 * hidden, inner, gain=1.0), net.weight(4 * hidden, hidden, gain=1.0)]
        parts += [net.bias(4 * hidden), net.bias(4 * hidden)]
    weights = np.concatenate([p.reshape(-1) for p in parts]).reshape(4 * hidden, -1)
    record = P.LSTM(
        num_layers=layers,
        bidirectional=False,
        bias=True,
        hidden_size=hidden,
        fwd_mode=P.BNFwdMode.INFERENCE,
    )
    y = b.apply("LSTMForward", [x, state, state, weights], (record,))[0]
    last = b.reshape_to(b.slice_axis(y, 0, -1), (batch, hidden))
    b.output(b.softmax_last(net.linear(last, 10)), "prob")
    return b.graph()


class _Quantized(_Net):
    """Blocks of a quantised network; without `scales` the float network that scales come from.

    Both draw the same weights in the same order. In the float network `taps` collects the values
    whose ranges give the scales of the quantised one, in order.
    """

    def __init__(self, seed: int, scales: list[float] | None = None) -> None:
        super().__init__(seed)
        self.taps: list[Value] = []
        self._scales = None if scales is None else list(scales)

    def tap(self, value: Value) -> None:
        """Note a value of the float network."""
        self.taps.append(value)

    def type(self) -> DType:
        """The signed byte type of the next value."""
        assert self._scales is not None
        return quantized("QuantizedS8", self._scales.pop(0))

    @property
    def in_float(self) -> bool:
        """Whether this is the float network."""
        return self._scales is None

    def begin(self, x: Value) -> Value:
        """Quantise the input."""
        if self.in_float:
            self.tap(x)
            return x
        return self.b.cast(x, self.type())

    def end(self, x: Value) -> Value:
        """Back to float32."""
        return x if self.in_float else self.b.cast(x, "Float32")

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
    ) -> Value:
        """As in a float network; weights get one scale, the bias the product of both."""
        if self.in_float:
            y = super().conv(x, channels, kernel, stride=stride, groups=groups, act=act)
            self.tap(y)
            return y
        assert groups == 1
        inner = self.b.shape_of(x)[1]
        gain = 2.0 if act != "none" else 0.5
        weight = self.weight(channels, inner, kernel, kernel, gain=gain)
        bias = self.bias(channels)
        by = float(np.abs(weight).max() / 127)
        one = float(self.b.type_of(x).dtype.scale) * by
        codes = np.rint(weight / by).astype(np.int8)
        sums = np.rint(bias / one).astype(np.int32).reshape(1, channels, 1, 1)
        return self.b.conv_bias(
            x,
            self.b.param(codes, dtype=quantized("QuantizedS8", by)),
            self.b.param(sums, dtype=quantized("QuantizedS32", one)),
            nonlineMode="RELU" if act == "relu" else "IDENTITY",
            pad_h=kernel // 2,
            pad_w=kernel // 2,
            stride_h=stride,
            stride_w=stride,
            output_dtype=self.type(),
        )

    def add_relu(self, x: Value, y: Value) -> Value:
        """The end of a residual block."""
        if self.in_float:
            out = self.b.relu(self.b.add(x, y))
            self.tap(out)
            return out
        mode = "QFUSE_ADD_RELU"
        return self.b.elemwise_multi_type(x, y, mode=mode, output_dtype=self.type())


def _resnet18_int8(batch: int, scales: list[float] | None) -> tuple[_Quantized, Graph]:
    net = _Quantized(18, scales)
    x = net.conv(net.begin(_image(net, batch, 224)), 64, 7, stride=2)
    x = net.b.max_pool2d(x, 3, stride=2, padding=1)
    for stage in range(4):
        for i in range(2):
            channels, stride = 64 << stage, 2 if stage and i == 0 else 1
            y = net.conv(x, channels, 3, stride=stride)
            y = net.conv(y, channels, 3, act="none")
            if stride != 1:
                x = net.conv(x, channels, 1, stride=stride, act="none")
            x = net.add_relu(y, x)
    return net, net.classifier(net.end(x))


def resnet18_int8(batch: int = 1) -> Graph:
    """ResNet-18 with signed bytes and one scale a tensor, from the ranges of one float run."""
    net, _ = _resnet18_int8(1, None)
    values = [net.b.output(value, f"tap{k}") for k, value in enumerate(net.taps)]
    random = np.random.default_rng(0)
    with Session(net.b.graph(), "auto") as session:
        image = random.standard_normal((1, 3, 224, 224), dtype=np.float32)
        found = session.run({"data": image})
    names = [f"tap{k}" for k in range(len(values))]
    scales = [float(np.abs(found[name]).max()) / 127 for name in names]
    return _resnet18_int8(batch, scales)[1]


# Networks without an ONNX twin; `scripts/verify/cpu_int8.py` compares them with their float ones.
QUANTIZED: dict[str, Callable[[int], Graph]] = {"resnet18_int8": resnet18_int8}

NETWORKS: dict[str, Callable[[int], Graph]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "shufflenet_v2": shufflenet_v2,
    "vgg16": vgg16,
    "unet": unet,
    "yolox_nano": yolox_nano,
    "super_resolution": super_resolution,
    "transformer": transformer,
    "lstm": lstm,
}


def build(name: str, batch: int = 1) -> Graph:
    """Build a network by name (KeyError when unknown)."""
    return {**NETWORKS, **QUANTIZED}[name](batch)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="author a benchmark network")
    parser.add_argument("network", nargs="?", choices=sorted({**NETWORKS, **QUANTIZED}))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--list", action="store_true", help="list the networks")
    args = parser.parse_args()
    if args.list or args.network is None:
        for name, make in {**NETWORKS, **QUANTIZED}.items():
            print(f"{name:18} {(make.__doc__ or '').splitlines()[0]}")
        return 0
    graph = build(args.network, args.batch)
    print(graph)
    if args.output:
        import mgeserial

        mgeserial.save(graph, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
