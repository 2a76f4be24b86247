"""Small hand-made networks in the engine's own nodes, and their meaning in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from loadrun.backends.cpu import nodes as nd
from loadrun.backends.cpu.expr import Expr, Op, chain
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.plan import Array


class Builder:
    """Collects nodes; every method returns the name of its result."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.nodes: list[nd.Node] = []
        self.consts: dict[str, Array] = {}

    def add(self, shape: tuple[int, ...], make: Callable[[str, str], nd.Node]) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(make(f"n{len(self.nodes)}", name))
        self.shapes[name] = shape
        return name

    def conv(
        self,
        x: str,
        oc: int,
        k: int,
        s: int = 1,
        p: int = 0,
        groups: int = 1,
        d: int = 1,
        bias: bool = True,
    ) -> str:
        n, c, h, w = self.shapes[x]
        spec = ConvSpec(groups, oc // groups, c // groups, k, k, s, s, p, p, d, d)
        scale = np.sqrt(2.0 / (spec.ic * k * k))
        wt = (self.rng.standard_normal((groups, spec.oc, spec.ic, k, k)) * scale).astype(np.float32)
        b = self.rng.standard_normal(oc).astype(np.float32) * 0.1 if bias else None
        oh, ow = spec.out_size(h, w)
        return self.add((n, oc, oh, ow), lambda a, o: nd.Conv(a, (x,), (o,), spec, wt, b))

    def deconv(
        self, x: str, oc: int, k: int, s: int = 1, p: int = 0, groups: int = 1, d: int = 1
    ) -> str:
        n, c, h, w = self.shapes[x]
        spec = ConvSpec(groups, c // groups, oc // groups, k, k, s, s, p, p, d, d)
        shape = (groups, spec.oc, spec.ic, k, k)
        wt = (self.rng.standard_normal(shape) / np.sqrt(spec.oc * k * k)).astype(np.float32)
        b = self.rng.standard_normal(oc).astype(np.float32)
        oh, ow = ((v - 1) * s + (k - 1) * d + 1 - 2 * p for v in (h, w))
        return self.add((n, oc, oh, ow), lambda a, o: nd.TransposedConv(a, (x,), (o,), spec, wt, b))

    def act(self, x: str, kind: str = "relu", *numbers: float) -> str:
        e = chain((kind, *numbers))
        return self.add(self.shapes[x], lambda a, o: nd.Eltwise(a, (x,), (o,), e))

    def both(self, kind: str, x: str, y: str) -> str:
        shape = np.broadcast_shapes(self.shapes[x], self.shapes[y])
        e = Expr(2, (Op(kind, (0, 1)),))
        return self.add(shape, lambda a, o: nd.Eltwise(a, (x, y), (o,), e))

    def plus(self, x: str, y: str) -> str:
        return self.both("add", x, y)

    def const(self, array: Array) -> str:
        name = f"c{len(self.consts)}"
        self.consts[name] = array.astype(np.float32)
        self.shapes[name] = array.shape
        return name

    def norm(self, x: str) -> str:
        """A batch normalisation with constant statistics."""
        c = (1, self.shapes[x][1], 1, 1)
        scale = self.const(self.rng.uniform(0.5, 1.5, c))
        return self.both("add", self.both("mul", x, scale), self.const(self.rng.normal(size=c)))

    def pool(self, x: str, mode: str, k: int, s: int, p: int = 0) -> str:
        n, c, h, w = self.shapes[x]
        spec = PoolSpec(mode, k, k, s, s, p, p)
        return self.add((n, c, *spec.out_size(h, w)), lambda a, o: nd.Pooling(a, (x,), (o,), spec))

    def upsample(self, x: str, factor: int) -> str:
        n, c, h, w = self.shapes[x]
        shape = (n, c, h * factor, w * factor)
        return self.add(shape, lambda a, o: nd.Upsample(a, (x,), (o,), factor))

    def gap(self, x: str, mode: str = "mean") -> str:
        n, c = self.shapes[x][:2]
        return self.add((n, c), lambda a, o: nd.GlobalPooling(a, (x,), (o,), mode))

    def dense(self, x: str, n: int) -> str:
        m, k = self.shapes[x]
        w = (self.rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
        b = self.rng.standard_normal(n).astype(np.float32)
        return self.add((m, n), lambda a, o: nd.Dense(a, (x,), (o,), w, b))

    def network(self, *outputs: str) -> nd.Network:
        return nd.Network(tuple(self.nodes), self.shapes, ("x",), outputs, consts=self.consts)


def view(x: Array, node: nd.View, shape: tuple[int, ...]) -> Array:
    flat = np.ascontiguousarray(x).reshape(-1)
    size = flat.itemsize
    strides = [s * size for s in node.strides]
    return np.lib.stride_tricks.as_strided(flat[node.offset :], shape, strides).copy()


def resnet18(size: int = 224, batch: int = 1, width: int = 64) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = b.pool(b.act(b.conv("x", width, 7, 2, 3)), "max", 3, 2, 1)
    for stage in range(4):
        c = width << stage
        for block in range(2):
            s = 2 if stage and not block else 1
            y = b.conv(b.act(b.conv(x, c, 3, s, 1)), c, 3, 1, 1)
            short = b.conv(x, c, 1, s) if s > 1 else x
            x = b.act(b.plus(y, short))
    return b.network(b.dense(b.gap(x), 1000))


def resnet50(size: int = 224, batch: int = 1) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = b.pool(b.act(b.conv("x", 64, 7, 2, 3)), "max", 3, 2, 1)
    for stage, count in enumerate((3, 4, 6, 3)):
        c = 64 << stage
        for block in range(count):
            s = 2 if stage and not block else 1
            y = b.act(b.conv(x, c, 1))
            y = b.conv(b.act(b.conv(y, c, 3, s, 1)), 4 * c, 1)
            short = x if block else b.conv(x, 4 * c, 1, s)
            x = b.act(b.plus(y, short))
    return b.network(b.dense(b.gap(x), 1000))


def mobilenetv2(size: int = 224, batch: int = 1) -> nd.Network:
    six = ("clip", 0.0, 6.0)
    b = Builder((batch, 3, size, size))
    x = b.act(b.conv("x", 32, 3, 2, 1), *six)
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for t, c, n, s in (*blocks, (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(n):
            stride = s if not i else 1
            inner = b.shapes[x][1] * t
            y = b.act(b.conv(x, inner, 1), *six) if t > 1 else x
            y = b.conv(b.act(b.conv(y, inner, 3, stride, 1, groups=inner), *six), c, 1)
            x = b.plus(y, x) if stride == 1 and b.shapes[x][1] == c else y
    x = b.act(b.conv(x, 1280, 1), *six)
    return b.network(b.dense(b.gap(x), 1000))


def mobilenetv1(size: int = 224, batch: int = 1) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = b.act(b.conv("x", 32, 3, 2, 1))
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for c, s in [*plan, *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        x = b.act(b.conv(x, b.shapes[x][1], 3, s, 1, groups=b.shapes[x][1]))
        x = b.act(b.conv(x, c, 1))
    return b.network(b.dense(b.gap(x), 1000))


def vgg16(size: int = 224, batch: int = 1) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = "x"
    for c, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = b.act(b.conv(x, c, 3, 1, 1))
        x = b.pool(x, "max", 2, 2)
    n, c, h, w = b.shapes[x]
    x = b.add((n, c * h * w), lambda a, o: nd.Reshape(a, (x,), (o,)))
    x = b.act(b.dense(b.act(b.dense(x, 4096)), 4096))
    return b.network(b.dense(x, 1000))


def join(b: Builder, *xs: str) -> str:
    n, _, h, w = b.shapes[xs[0]]
    picked = tuple((k, c) for k, x in enumerate(xs) for c in range(b.shapes[x][1]))
    return b.add((n, len(picked), h, w), lambda a, o: nd.ChannelMap(a, xs, (o,), picked))


def pick(b: Builder, x: str, channels: range) -> str:
    n, _, h, w = b.shapes[x]
    picked = tuple((0, c) for c in channels)
    return b.add((n, len(picked), h, w), lambda a, o: nd.ChannelMap(a, (x,), (o,), picked))


def shufflenetv2(size: int = 224, batch: int = 1) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = b.pool(b.act(b.conv("x", 24, 3, 2, 1)), "max", 3, 2, 1)

    def branch(y: str, c: int, s: int) -> str:
        y = b.act(b.conv(y, c, 1))
        return b.act(b.conv(b.conv(y, c, 3, s, 1, groups=c), c, 1))

    for c, count in ((116, 4), (232, 8), (464, 4)):
        h = c // 2
        for i in range(count):
            if not i:
                k = b.shapes[x][1]
                left = b.act(b.conv(b.conv(x, k, 3, 2, 1, groups=k), h, 1))
                right = branch(x, h, 2)
            else:
                left, right = pick(b, x, range(h)), branch(pick(b, x, range(h, c)), h, 1)
            n, _, hh, ww = b.shapes[right]
            mixed = tuple((k, j) for j in range(h) for k in (0, 1))
            x = b.add(
                (n, c, hh, ww),
                lambda a, o, p=(left, right), m=mixed: nd.ChannelMap(a, p, (o,), m),
            )
    x = b.act(b.conv(x, 1024, 1))
    return b.network(b.dense(b.gap(x), 1000))


def unet(size: int = 256, batch: int = 1, width: int = 32) -> nd.Network:
    b = Builder((batch, 3, size, size))

    def double(x: str, c: int) -> str:
        return b.act(b.conv(b.act(b.conv(x, c, 3, 1, 1)), c, 3, 1, 1))

    skips, x = [], "x"
    for k in range(4):
        x = double(x, width << k)
        skips.append(x)
        x = b.pool(x, "max", 2, 2)
    x = double(x, width << 4)
    for k in reversed(range(4)):
        x = b.upsample(x, 2)
        x = double(join(b, skips[k], b.conv(x, width << k, 1)), width << k)
    return b.network(b.conv(x, 2, 1))


def yolox_nano(size: int = 416, batch: int = 1) -> nd.Network:
    """A detector of depthwise blocks, cross-stage joins and three scales, like YOLOX-Nano."""
    b = Builder((batch, 3, size, size))

    def conv(x: str, c: int, k: int = 1, s: int = 1) -> str:
        return b.act(b.conv(x, c, k, s, k // 2), "silu")

    def dw(x: str, c: int, k: int = 3, s: int = 1) -> str:
        i = b.shapes[x][1]
        return conv(b.act(b.conv(x, i, k, s, k // 2, groups=i), "silu"), c)

    def csp(x: str, c: int, n: int, add: bool = True) -> str:
        h = c // 2
        left, right = conv(x, h), conv(x, h)
        for _ in range(n):
            y = dw(conv(left, h), h)
            left = b.plus(y, left) if add else y
        return conv(join(b, left, right), c)

    x = conv("x", 16, 3, 2)
    x = csp(dw(x, 32, 3, 2), 32, 1)
    c3 = csp(dw(x, 64, 3, 2), 64, 3)
    c4 = csp(dw(c3, 128, 3, 2), 128, 3)
    x = conv(dw(c4, 256, 3, 2), 128)
    pools = [b.pool(x, "max", k, 1, k // 2) for k in (5, 9, 13)]
    c5 = csp(conv(join(b, x, *pools), 256), 256, 1, False)
    p5 = conv(c5, 128)
    f4 = csp(join(b, b.upsample(p5, 2), c4), 128, 1, False)
    p4 = conv(f4, 64)
    f3 = csp(join(b, b.upsample(p4, 2), c3), 64, 1, False)
    n4 = csp(join(b, dw(f3, 64, 3, 2), p4), 128, 1, False)
    n5 = csp(join(b, dw(n4, 128, 3, 2), p5), 256, 1, False)
    outs = []
    for x in (f3, n4, n5):
        stem = conv(x, 64)
        outs += [b.conv(dw(dw(stem, 64), 64), last, 1) for last in (80, 5)]
    return b.network(*outs)


def super_resolution(size: int = 128, batch: int = 1) -> nd.Network:
    b = Builder((batch, 3, size, size))
    x = b.act(b.conv("x", 64, 5, 1, 2))
    x = b.act(b.conv(x, 64, 3, 1, 1))
    x = b.act(b.conv(x, 32, 3, 1, 1))
    return b.network(b.conv(x, 12, 3, 1, 1))


PERMS: dict[str, tuple[list[int], list[int]]] = {}  # of View nodes: shape before, axes


def transformer(t: int = 128, d: int = 512, heads: int = 8, layers: int = 4) -> nd.Network:
    b = Builder((t, d))
    k = d // heads

    def permuted(x: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
        steps, strides = 1, []
        for size in reversed(shape):
            strides.insert(0, steps)
            steps *= size
        out = tuple(shape[a] for a in axes)
        PERMS[f"n{len(b.nodes)}"] = (list(shape), list(axes))
        return b.add(out, lambda a, o: nd.View(a, (x,), (o,), tuple(strides[i] for i in axes)))

    def norm(x: str) -> str:
        w, c = b.const(b.rng.uniform(0.5, 1.5, d)), b.const(b.rng.normal(size=d) * 0.1)
        name = f"t{len(b.nodes)}"
        b.shapes |= {name: (t, d), name + "m": (t, 1), name + "r": (t, 1)}
        outs = (name, name + "m", name + "r")
        b.nodes.append(nd.LayerNorm(f"n{len(b.nodes)}", (x, w, c), outs, t, d, 1e-5))
        return name

    x = "x"
    scale = b.const(np.full(1, k**-0.5))
    for _ in range(layers):
        q, v, kk = (permuted(b.dense(x, d), (t, heads, k), (1, 0, 2)) for _ in range(3))
        args = (heads, t, k, t, True)
        s = b.add((heads, t, t), lambda a, o, i=(q, kk), g=args: nd.MatMul(a, i, (o,), *g))
        s = b.both("mul", s, scale)
        s = b.add((heads, t, t), lambda a, o, i=s: nd.Softmax(a, (i,), (o,), heads * t, t, 1))
        args = (heads, t, t, k)
        y = b.add((heads, t, k), lambda a, o, i=(s, v), g=args: nd.MatMul(a, i, (o,), *g))
        y = permuted(y, (heads, t, k), (1, 0, 2))
        y = b.add((t, d), lambda a, o, i=y: nd.Reshape(a, (i,), (o,)))
        x = norm(b.plus(b.dense(y, d), x))
        y = b.act(b.dense(x, 4 * d), "gelu")
        x = norm(b.plus(b.dense(y, d), x))
    return b.network(x)


# -- meaning
def evaluate(network: nd.Network, x: Array) -> list[Array]:
    """Float64 results of all outputs, from the definition of each node."""
    values: dict[str, Array] = {"x": x.astype(np.float64)}
    values |= {k: v.astype(np.float64) for k, v in network.consts.items()}
    for node in network.nodes:
        args = [values[n] for n in node.inputs]
        if isinstance(node, nd.View):
            values[node.outputs[0]] = view(args[0], node, network.shapes[node.outputs[0]])
            continue
        if isinstance(node, nd.Reshape):
            values[node.outputs[0]] = args[0].reshape(network.shapes[node.outputs[0]])
            continue
        found = _MEANING[type(node)](node, args)
        results = found if isinstance(found, tuple) else (found,)
        for name, value in zip(node.outputs, results, strict=True):
            values[name] = value.reshape(network.shapes.get(name, value.shape))
    return [values[n] for n in network.outputs]


def _sig(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf)
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "copy": lambda x: x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fma": lambda x, y, z: x * y + z,
    "max": np.maximum,
    "min": np.minimum,
    "relu": lambda x: np.maximum(x, 0),
    "clip": np.clip,
    "leaky": lambda x, s: np.where(x > 0, x, x * s),
    "sigmoid": _sig,
    "silu": lambda x: x * _sig(x),
    "tanh": np.tanh,
    "exp": np.exp,
    "hswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sqrt": np.sqrt,
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2))),
    "abs": np.abs,
}


def compute(expr: Expr, inputs: list[Array]) -> Array:
    values: list[Array] = list(inputs)
    for op in expr.ops:
        if op.kind == "const":
            values.append(np.float64(op.value))
        else:
            values.append(_FUNCTIONS[op.kind](*(values[a] for a in op.args)))
    return values[-1]


def conv2d(x: Array, w: Array, b: Array | None, s: ConvSpec) -> Array:
    """Convolution (n, c, h, w) by (groups, oc, ic, kh, kw) in float64."""
    n = x.shape[0]
    xp = np.pad(x, ((0, 0), (0, 0), (s.ph, s.ph), (s.pw, s.pw)))
    span = ((s.kh - 1) * s.dh + 1, (s.kw - 1) * s.dw + 1)
    win = sliding_window_view(xp, span, axis=(2, 3))[:, :, :: s.sh, :: s.sw, :: s.dh, :: s.dw]
    win = win.reshape(n, s.groups, s.ic, *win.shape[2:])
    out = np.empty((n, s.groups, s.oc, *win.shape[3:5]))
    for g in range(s.groups):
        got = np.tensordot(win[:, g], w[g].astype(np.float64), axes=((1, 4, 5), (1, 2, 3)))
        out[:, g] = got.transpose(0, 3, 1, 2)
    out = out.reshape(n, s.groups * s.oc, *out.shape[3:])
    return out if b is None else out + b.astype(np.float64).reshape(1, -1, 1, 1)


def _transposed(node: nd.TransposedConv, args: list[Array]) -> Array:
    s, x = node.spec, args[0]
    n, _, h, w = x.shape
    high, wide = (h - 1) * s.sh + (s.kh - 1) * s.dh + 1, (w - 1) * s.sw + (s.kw - 1) * s.dw + 1
    out = np.zeros((n, s.groups, s.ic, high, wide))
    xs = x.reshape(n, s.groups, s.oc, h, w)
    wt = node.weights.astype(np.float64)
    for ky in range(s.kh):
        for kx in range(s.kw):
            part = np.einsum("ngohw,goi->ngihw", xs, wt[:, :, :, ky, kx])
            y0, x0 = ky * s.dh, kx * s.dw
            out[..., y0 : y0 + h * s.sh : s.sh, x0 : x0 + w * s.sw : s.sw] += part
    out = out[..., s.ph : high - s.ph, s.pw : wide - s.pw]
    out = out.reshape(n, s.groups * s.ic, *out.shape[3:])
    if node.bias is not None:
        out = out + node.bias.astype(np.float64).reshape(1, -1, 1, 1)
    return compute(node.epilogue, [out, *args[1:]])


def _conv(node: nd.Conv, args: list[Array]) -> Array:
    y = conv2d(args[0], node.weights, node.bias, node.spec)
    return compute(node.epilogue, [y, *args[1:]])


def pool2d(x: Array, s: PoolSpec) -> Array:
    fill = -np.inf if s.mode == "max" else 0.0
    pads = ((0, 0), (0, 0), (s.ph, s.ph), (s.pw, s.pw))
    win = sliding_window_view(np.pad(x, pads, constant_values=fill), (s.kh, s.kw), axis=(2, 3))
    win = win[:, :, :: s.sh, :: s.sw]
    if s.mode == "max":
        return win.max((4, 5))
    if s.mode == "mean":
        return win.mean((4, 5))
    ones = np.pad(np.ones_like(x), pads)
    count = sliding_window_view(ones, (s.kh, s.kw), axis=(2, 3))[:, :, :: s.sh, :: s.sw]
    return win.sum((4, 5)) / count.sum((4, 5))


def _dense(node: nd.Dense, args: list[Array]) -> Array:
    y = args[0] @ node.weights.astype(np.float64)
    y = y if node.bias is None else y + node.bias.astype(np.float64)
    return compute(node.epilogue, [y, *args[1:]])


def _gap(node: nd.GlobalPooling, args: list[Array]) -> Array:
    return {"mean": np.mean, "max": np.max, "sum": np.sum}[node.mode](args[0], axis=(2, 3))


def _reduce(node: nd.Reduce, args: list[Array]) -> Array:
    x = args[0].reshape(node.outer, node.n, node.inner)
    how = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "product": np.prod}
    return (x * x).sum(1) if node.mode == "sum_sqr" else how[node.mode](x, axis=1)


def _softmax(node: nd.Softmax, args: list[Array]) -> Array:
    x = args[0].reshape(node.outer, node.n, node.inner)
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _layer_norm(node: nd.LayerNorm, args: list[Array]) -> tuple[Array, ...]:
    x = args[0].reshape(node.outer, node.n)
    mean = x.mean(1)
    rstd = 1 / np.sqrt(x.var(1) + node.eps)
    y = (x - mean[:, None]) * rstd[:, None]
    if len(args) == 3:
        y = y * args[1].reshape(-1) + args[2].reshape(-1)
    return y, mean, rstd


def _matmul(node: nd.MatMul, args: list[Array]) -> Array:
    a = args[0].reshape(node.batch, node.m, node.k)
    b = args[1].reshape(node.batch, *((node.n, node.k) if node.transposed else (node.k, node.n)))
    return a @ (b.transpose(0, 2, 1) if node.transposed else b)


def _recurrent(node: nd.Recurrent, args: list[Array]) -> tuple[Array, ...]:
    hidden = node.weights.shape[1]
    pre = args[0].reshape(node.steps, node.batch, -1)
    h = args[1]
    c = args[2] if len(args) > 2 else None
    y = np.empty((node.steps, node.batch, hidden))
    order = range(node.steps)
    for t in reversed(order) if node.reverse else order:
        gates = pre[t] + h @ node.weights.astype(np.float64).T
        if c is None:
            h = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}[node.kind](gates)
        else:
            i, f, g, o = np.split(gates, 4, axis=1)
            c = _sig(f) * c + _sig(i) * np.tanh(g)
            h = _sig(o) * np.tanh(c)
        y[t] = h
    return (y, h) if c is None else (y, h, c)


def _resample(node: nd.Resample, args: list[Array]) -> Array:
    x = args[0]
    x = sum(x[:, :, r] * w[:, None] for r, w in zip(node.rows.T, node.row_weights.T, strict=True))
    return sum(x[..., c] * w for c, w in zip(node.columns.T, node.column_weights.T, strict=True))


def _channel_map(node: nd.ChannelMap, args: list[Array]) -> Array:
    return np.stack([args[s][:, c] for s, c in node.channels], axis=1)


_MEANING: dict[type[nd.Node], Callable[..., Array]] = {
    nd.Conv: _conv,
    nd.Eltwise: lambda node, a: compute(node.expr, a),
    nd.Pooling: lambda node, a: pool2d(a[0], node.spec),
    nd.GlobalPooling: _gap,
    nd.Dense: _dense,
    nd.TransposedConv: _transposed,
    nd.Reduce: _reduce,
    nd.Softmax: _softmax,
    nd.LayerNorm: _layer_norm,
    nd.MatMul: _matmul,
    nd.Join: lambda node, a: np.concatenate(a, axis=node.axis),
    nd.ChannelMap: _channel_map,
    nd.Resample: _resample,
    nd.Recurrent: _recurrent,
    nd.Upsample: lambda node, a: a[0].repeat(node.factor, 2).repeat(node.factor, 3),
    nd.Host: lambda node, a: tuple(node.run(a)),
}
