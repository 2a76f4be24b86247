"""Float64 results of the ONNX twins of benchmark networks, from the definitions of the operators.

The yardstick for errors of engines that compute in float32. It knows the operators that
`benchmarks/onnx_twin.py` writes and no others.

Source: ONNX operator specification, opset 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

__all__ = ["evaluate"]

Array = np.ndarray[Any, np.dtype[Any]]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def evaluate(model: Any, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of a model, in its order, computed in float64 throughout.

    Raises:
        KeyError: An operator that no twin uses.
    """
    values: dict[str, Any] = {"": None}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        values[tensor.name] = array.astype(np.float64) if array.dtype.kind == "f" else array
    values |= {name: array.astype(np.float64) for name, array in feeds.items()}
    last = {name: node for node in model.graph.node for name in node.input}
    outputs = [o.name for o in model.graph.output]
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        found = _MEANING[node.op_type](attributes, *(values[n] for n in node.input))
        results = found if isinstance(found, tuple) else (found,)
        for name, result in zip(node.output, results, strict=False):
            values[name] = result
        for name in node.input:
            if name and last[name] is node and name not in outputs:
                values.pop(name, None)
                values.setdefault(name, None)
    return [values[name] for name in outputs]


def _conv(a: Mapping[str, Any], x: Array, w: Array, bias: Array | None = None) -> Array:
    top, left, bottom, right = a["pads"]
    (sh, sw), (dh, dw), groups = a["strides"], a["dilations"], a["group"]
    n, c = x.shape[:2]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    kh, kw = w.shape[2:]
    oh = (x.shape[2] - (kh - 1) * dh - 1) // sh + 1
    ow = (x.shape[3] - (kw - 1) * dw - 1) // sw + 1
    filters = w.reshape(groups, -1, c // groups, kh, kw)
    out = np.zeros((n, groups, filters.shape[1], oh * ow))
    for ky in range(kh):
        for kx in range(kw):
            rows = x[:, :, ky * dh : ky * dh + (oh - 1) * sh + 1 : sh]
            seen = rows[..., kx * dw : kx * dw + (ow - 1) * sw + 1 : sw]
            out += filters[..., ky, kx] @ seen.reshape(n, groups, c // groups, oh * ow)
    out = out.reshape(n, -1, oh, ow)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


def _conv_transpose(a: Mapping[str, Any], x: Array, w: Array, bias: Array | None = None) -> Array:
    top, left, bottom, right = a["pads"]
    sh, sw = a["strides"]
    n, c, h, width = x.shape
    kh, kw = w.shape[2:]
    out = np.zeros((n, w.shape[1], (h - 1) * sh + kh, (width - 1) * sw + kw))
    flat = x.reshape(n, c, h * width)
    for ky in range(kh):
        for kx in range(kw):
            part = (w[:, :, ky, kx].T @ flat).reshape(n, -1, h, width)
            rows = slice(ky, ky + (h - 1) * sh + 1, sh)
            out[:, :, rows, kx : kx + (width - 1) * sw + 1 : sw] += part
    out = out[:, :, top : out.shape[2] - bottom, left : out.shape[3] - right]
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


def _windows(a: Mapping[str, Any], x: Array, fill: float) -> list[Array]:
    """What each position of a pooling window sees, one array of the output's shape each."""
    top, left, bottom, right = a["pads"]
    (kh, kw), (sh, sw) = a["kernel_shape"], a["strides"]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    oh, ow = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
    return [
        x[:, :, ky : ky + (oh - 1) * sh + 1 : sh, kx : kx + (ow - 1) * sw + 1 : sw]
        for ky in range(kh)
        for kx in range(kw)
    ]


def _average_pool(a: Mapping[str, Any], x: Array) -> Array:
    total = sum(_windows(a, x, 0.0))
    counted = a.get("count_include_pad", 0)
    count = len(_windows(a, x, 0.0)) if counted else sum(_windows(a, np.ones_like(x), 0.0))
    return np.asarray(total / count)


def _max_pool(a: Mapping[str, Any], x: Array) -> Array:
    return np.asarray(np.max(np.stack(_windows(a, x, -np.inf)), axis=0))


def _gemm(a: Mapping[str, Any], x: Array, y: Array, bias: Array | None = None) -> Array:
    x, y = (x.T if a.get("transA") else x), (y.T if a.get("transB") else y)
    return np.asarray(x @ y if bias is None else x @ y + bias)


def _softmax(a: Mapping[str, Any], x: Array) -> Array:
    e = np.exp(x - x.max(axis=a["axis"], keepdims=True))
    return np.asarray(e / e.sum(axis=a["axis"], keepdims=True))


def _layer_norm(a: Mapping[str, Any], x: Array, scale: Array, bias: Array | None = None) -> Array:
    axes = tuple(range(a["axis"] % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=axes, keepdims=True) + a["epsilon"])
    return np.asarray(centred / deviation * scale + (0 if bias is None else bias))


def _slice(
    a: Mapping[str, Any], x: Array, begin: Array, end: Array, axes: Array, step: Array
) -> Array:
    where = [slice(None)] * x.ndim
    for b, e, axis, s in zip(begin, end, axes, step, strict=True):
        where[int(axis)] = slice(int(b), int(e), int(s))
    return x[tuple(where)]


def _split(a: Mapping[str, Any], x: Array, sizes: Array) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=a["axis"]))


def _resize(a: Mapping[str, Any], x: Array, _r: None, _s: None, sizes: Array) -> Array:
    """Linear, half-pixel centres."""
    for axis in (2, 3):
        before, after = x.shape[axis], int(sizes[axis])
        at = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, before - 1)
        part = (at - low).reshape((-1,) + (1,) * (3 - axis))
        x = x.take(low, axis) * (1 - part) + x.take(high, axis) * part
    return x


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _lstm(a: Mapping[str, Any], x: Array, w: Array, r: Array, bias: Array) -> Array:
    """One direction; gates in the order input, output, forget, cell."""
    hidden, batch = a["hidden_size"], x.shape[1]
    first, second = np.split(bias[0], 2)
    h, c = np.zeros((batch, hidden)), np.zeros((batch, hidden))
    out = []
    for step in x:
        gates = step @ w[0].T + h @ r[0].T + first + second
        i, o, f, g = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)[:, None]


_MEANING: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "Clip": lambda a, x, low, high: np.clip(x, low, high),
    "Concat": lambda a, *xs: np.concatenate(xs, axis=a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Exp": lambda a, x: np.exp(x),
    "Gelu": lambda a, x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean(axis=(2, 3), keepdims=True),
    "Identity": lambda a, x: x,
    "LSTM": _lstm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, x, y: x @ y,
    "Max": lambda a, x, y: np.maximum(x, y),
    "MaxPool": _max_pool,
    "Min": lambda a, x, y: np.minimum(x, y),
    "Mul": lambda a, x, y: x * y,
    "Relu": lambda a, x: np.maximum(x, 0),
    "Reshape": lambda a, x, shape: x.reshape(shape),
    "Resize": _resize,
    "Sigmoid": lambda a, x: _sigmoid(x),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": lambda a, x, axes: x.squeeze(tuple(int(k) for k in axes)),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: np.tanh(x),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
}
