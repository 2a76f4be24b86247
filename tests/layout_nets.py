"""Graphs for tests of layouts: those of MegEngine's own tests, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.dtypes import DType, DTypeEnum, quantized
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Graph, Value

Array = np.ndarray[Any, Any]
LAYOUTS = ("nchw4", "nchw32", "chwn4", "nchw88", "nchw44", "nchw44_dot", "hwcd4", "nchw64")


def s8(scale: float) -> DType:
    """QuantizedS8."""
    return quantized(DTypeEnum.QuantizedS8, float(np.float32(scale)))


def s32(scale: float) -> DType:
    """QuantizedS32."""
    return quantized(DTypeEnum.QuantizedS32, float(np.float32(scale)))


class Int8Builder(GraphBuilder):
    """A builder of quantised networks; all scales are 2.5 unless said otherwise."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def image(self, name: str, shape: tuple[int, ...], scale: float = 2.5) -> Value:
        """A float32 input in QuantizedS8."""
        return self.cast(self.input(name, shape), s8(scale))

    def int8(self, *shape: int, scale: float = 2.5) -> Value:
        """A weight."""
        return self.param(self.rng.integers(-20, 21, shape).astype(np.int8), dtype=s8(scale))

    def int32(self, *shape: int, scale: float = 6.25) -> Value:
        """A bias."""
        return self.param(self.rng.integers(-200, 201, shape).astype(np.int32), dtype=s32(scale))

    def layer(self, x: Value, shape: tuple[int, ...], **more: Any) -> Value:
        """ConvBias of 3x3 with RELU, format NCHW unless said otherwise."""
        fmt = more.pop("format", "NCHW")
        grouped = len(shape) == 5
        outputs = shape[0] * shape[1] if grouped else shape[0]
        z = more.pop("z", None)
        filter_shape = shape if fmt == "NCHW" else _blocked(shape)
        bias_shape = (1, outputs, 1, 1) if fmt == "NCHW" else (1, outputs // 4, 1, 1, 4)
        return self.conv_bias(
            x,
            self.int8(*filter_shape),
            self.int32(*bias_shape),
            z,
            format=fmt,
            sparse="GROUP" if grouped else "DENSE",
            nonlineMode="RELU",
            pad_h=1,
            pad_w=1,
            output_dtype=s8(2.5),
            **more,
        )

    def finish(self, x: Value) -> Graph:
        """The graph with one float32 output."""
        self.output(self.cast(x, "Float32"), "out")
        return self.graph()


def _blocked(shape: tuple[int, ...]) -> tuple[int, ...]:
    *ahead, channels, h, w = shape
    return (*ahead, channels // 4, h, w, 4)


def image_shape(fmt: str, *shape: int) -> tuple[int, ...]:
    """(n, c, h, w) as NCHW or NCHW4 stores it."""
    return shape if fmt == "NCHW" else _blocked(shape)


def chain() -> Graph:
    """Convolution (4 -> 8), Resize, WarpPerspective, Pooling, group convolution, QADD."""
    b = Int8Builder()
    first = b.layer(b.image("x", (2, 4, 16, 16)), (8, 4, 3, 3))
    resized = b.resize(first, b.const([32, 32]), format="NCHW")
    matrix = np.tile(np.array([[1, 0.1, 0], [0, 1, 0.2], [0, 0, 1]], np.float32), (2, 1, 1))
    warped = b.warp_perspective(resized, b.param(matrix), b.const([32, 32]))
    last = b.layer(b.pooling(warped), (2, 4, 4, 3, 3))
    return b.finish(b.elemwise_multi_type(first, last, mode="QADD", output_dtype=s8(1.2)))


def pair(channels: int = 4) -> Graph:
    """A dense and a group convolution."""
    b = Int8Builder()
    first = b.layer(b.image("x", (2, channels, 16, 16)), (8, channels, 3, 3))
    return b.finish(b.layer(first, (2, 4, 4, 3, 3)))


def tensor_core(fmt: str, *, grouped: bool = False) -> Graph:
    """Two dense convolutions of 64 channels, after a group convolution or not."""
    b = Int8Builder()
    x = b.image("x", image_shape(fmt, 2, 64, 16, 16))
    if grouped:
        x = b.layer(x, (2, 32, 32, 3, 3), format=fmt, z=b.int8(*image_shape(fmt, 2, 64, 16, 16)))
    for _ in range(2):
        x = b.layer(x, (64, 64, 3, 3), format=fmt, stride_h=2, stride_w=2)
    return b.finish(x)


def chwn4(fmt: str) -> Graph:
    """Two convolutions, with sums and differences of their results."""
    b = Int8Builder()
    x, other = (b.image(name, image_shape(fmt, 2, 64, 8, 8)) for name in ("x", "y"))
    first = b.layer(x, (64, 64, 3, 3), format=fmt)

    def mixed(mode: str, *values: Value) -> Value:
        return b.elemwise_multi_type(*values, mode=mode, output_dtype=s8(2.5))

    a = mixed("QFUSE_ADD_RELU", first, other)
    second = b.layer(first, (64, 64, 3, 3), format=fmt)
    difference = mixed("QSUB", first, other)
    return b.finish(mixed("QADD", difference, mixed("QADD", a, second)))


def nchw4_of(b: GraphBuilder, x: Value) -> Value:
    """NCHW to NCHW4 as networks write it themselves."""
    shape = b.get_var_shape(x)
    n, c, h, w = (_at(b, shape, k) for k in range(4))
    blocks = b.elemwise(c, b.const([4]), mode="FLOOR_DIV")
    split = b.reshape(x, b.concat(n, blocks, b.const([4]), h, w, axis=0))
    return b.transpose(split, (0, 1, 3, 4, 2))


def nchw_of(b: GraphBuilder, x: Value) -> Value:
    """NCHW4 to NCHW as networks write it themselves."""
    shape = b.get_var_shape(x)
    n, c, h, w = (_at(b, shape, k) for k in range(4))
    channels = b.mul(c, b.const([4]))
    return b.reshape(b.transpose(x, (0, 1, 4, 2, 3)), b.concat(n, channels, h, w, axis=0))


def _at(b: GraphBuilder, shape: Value, k: int) -> Value:
    return b.subtensor(shape, b.const([k]), items=(P.IndexDescMaskItem(axis=0, idx=True),))


class RandomNet:
    """A random network of what the layouts have rules for.

    Args:
        seed: Equal seeds give equal networks.
        int8: Whether it is quantised.
        channels: Numbers of channels that convolutions make.
    """

    def __init__(self, seed: int, *, int8: bool, channels: tuple[int, ...] | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.int8 = int8
        self.b = Int8Builder(seed)
        some = ((4, 8, 16, 32, 64), (3, 4, 6, 8, 12, 16, 32), (32, 64))
        self.channels = channels or some[self.rng.integers(3)]
        n, c = int(self.rng.integers(1, 3)), self._one(1, 3, 4, 8, 16)
        shape = (n, c, self._one(8, 12), self._one(8, 10))
        self.values = [self.b.image("x", shape, 0.05) if int8 else self.b.input("x", shape)]

    def _one(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def graph(self, layers: int | None = None) -> Graph:
        """The network; whatever nobody uses is an output."""
        steps: tuple[Callable[[Value], Value | None], ...] = (
            self._dense, self._dense, self._dense, self._group, self._channel_wise, self._pool,
            self._resize, self._two, self._two, self._concat, self._one_input, self._reduce,
            self._transposed, self._part, self._affine,
        )  # fmt: skip
        for _ in range(layers or int(self.rng.integers(3, 9))):
            recent = self.rng.random() < 0.75
            value = self.values[-1] if recent else self._one(*self.values)
            try:
                made = self._one(*steps)(value)
            except MgeError:  # such as a window that lies outside of the image
                continue
            if made is not None:
                self.values.append(made)
        ends = [v for v in self.values[1:] if not v.users] or self.values[-1:]
        for k, value in enumerate(ends):
            real = self.b.cast(value, "Float32") if self.int8 else self.b.relu(value)
            self.b.output(real, f"out{k}")
        return self.b.graph()

    def _dense(self, x: Value) -> Value:
        size = self._one(1, 3, 3, 5)
        return self._conv(x, (self._one(*self.channels), self.b.shape_of(x)[1], size, size))

    def _group(self, x: Value) -> Value | None:
        c, outputs = self.b.shape_of(x)[1], self._one(*self.channels)
        groups = [g for g in (2, 4, 8) if c % g == outputs % g == 0]
        if not groups:
            return None
        g = self._one(*groups)
        return self._conv(x, (g, outputs // g, c // g, 3, 3))

    def _channel_wise(self, x: Value) -> Value:
        return self._conv(x, (self.b.shape_of(x)[1], 1, 1, 3, 3))

    def _conv(self, x: Value, shape: tuple[int, ...]) -> Value:
        b, stride, pad = self.b, self._one(1, 1, 2), shape[-1] // 2
        window = {"pad_h": pad, "pad_w": pad, "stride_h": stride, "stride_w": stride}
        sparse = "GROUP" if len(shape) == 5 else "DENSE"
        outputs = int(np.prod(shape[: len(shape) - 3]))
        mode = self._one("IDENTITY", "RELU", "H_SWISH")
        has_bias = self.rng.random() < 0.8
        if self.int8:  # always with a bias: MegEngine runs none without
            scale = b.type_of(x).dtype.scale * np.float32(0.02)
            bias = b.int32(1, outputs, 1, 1, scale=scale)
            flt, dtype = b.int8(*shape, scale=0.02), s8(self._one(0.05, 0.1, 0.2))
            return b.conv_bias(
                x, flt, bias, sparse=sparse, nonlineMode=mode, output_dtype=dtype, **window
            )
        size = np.sqrt(np.prod(shape[len(shape) - 3 :]))
        flt = (self.rng.standard_normal(shape) / size).astype(np.float32)
        if self.rng.random() < 0.2:
            return b.convolution(x, flt, sparse=sparse, **window)
        bias = self._real(1, outputs, 1, 1) if has_bias else None
        return b.conv_bias(x, flt, bias, sparse=sparse, nonlineMode=mode, **window)

    def _real(self, *shape: int) -> Value:
        return self.b.param(self.rng.standard_normal(shape).astype(np.float32))

    def _transposed(self, x: Value) -> Value | None:
        if self.int8:
            return None
        flt = self._real(self.b.shape_of(x)[1], self._one(*self.channels), 2, 2)
        return self.b.convolution_backward_data(flt, x, stride_h=2, stride_w=2)

    def _pool(self, x: Value) -> Value:
        return self.b.pooling(x, mode=self._one("MAX", "AVERAGE"))

    def _resize(self, x: Value) -> Value | None:
        h, w = self.b.shape_of(x)[2:]
        if max(h, w) > 12:
            return None
        return self.b.resize(x, self.b.const([2 * h, 2 * w]), format="NCHW")

    def _two(self, x: Value) -> Value | None:
        known = self.b.type_of(x)
        alike = [v for v in self.values if v is not x and self.b.type_of(v).dims == known.dims]
        if not alike:
            return None
        other = self._one(*alike)
        if self.int8:
            mode = self._one("QADD", "QFUSE_ADD_RELU", "QMUL")
            return self.b.elemwise_multi_type(x, other, mode=mode, output_dtype=s8(0.15))
        return self.b.elemwise(x, other, mode=self._one("ADD", "MUL", "MAX", "FUSE_ADD_RELU"))

    def _one_input(self, x: Value) -> Value:
        if not self.int8:
            return self.b.elemwise(x, mode=self._one("RELU", "SIGMOID", "TANH", "ABS"))
        if self.rng.random() < 0.5:
            return self.b.cast(x, s8(0.08))
        return self.b.elemwise_multi_type(x, mode="QRELU", output_dtype=s8(0.1))

    def _affine(self, x: Value) -> Value | None:
        if self.int8:
            return None
        if self.rng.random() < 0.5:
            return self.b.mul(x, float(self._one(0.5, 2.0)))
        return self.b.add(x, self._real(1, self.b.shape_of(x)[1], 1, 1))

    def _concat(self, x: Value) -> Value:
        known = self.b.type_of(x)
        alike = [v for v in self.values if self.b.type_of(v).dtype == known.dtype]
        return self.b.concat(x, self._one(*alike), axis=self._one(1, 1, 1, 0, 2, 3))

    def _reduce(self, x: Value) -> Value | None:
        return None if self.int8 else self.b.reduce(x, mode="MEAN", axis=self._one(1, 2, 3))

    def _part(self, x: Value) -> Value | None:
        half = self.b.shape_of(x)[1] // 2
        if not half:
            return None
        item = P.IndexDescMaskItem(axis=1, begin=True, end=True)
        return self.b.subtensor(x, self.b.const([0]), self.b.const([half]), items=(item,))
