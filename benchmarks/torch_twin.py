"""A benchmark network as PyTorch calls, to compare with on the same GPU.

Only the operators of convolutional networks and transformers are known; others are an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgeserial import params as P
from mgeserial.ir.graph import Graph, Node
from mgeserial.ir.inference import call_of
from mgeserial.ir.types import Call

__all__ = ["TorchTwin"]

_M = P.ElemwiseMode


def _elemwise(torch: Any, call: Call, *x: Any) -> Any:
    f = torch.nn.functional
    table: dict[Any, Callable[..., Any]] = {
        _M.ADD: torch.add,
        _M.SUB: torch.sub,
        _M.MUL: torch.mul,
        _M.TRUE_DIV: torch.div,
        _M.RELU: torch.relu,
        _M.SIGMOID: torch.sigmoid,
        _M.TANH: torch.tanh,
        _M.GELU: f.gelu,
        _M.SILU: f.silu,
        _M.H_SWISH: f.hardswish,
        _M.MAX_: torch.maximum,
        _M.MIN_: torch.minimum,
        _M.RELU6: f.relu6,
        _M.CLIP: lambda a, low, high: torch.minimum(torch.maximum(a, low), high),
        _M.FUSE_ADD_RELU: lambda a, b: torch.relu(a + b),
    }
    return table[call.param.mode](*x)


def _convolution(torch: Any, call: Call, x: Any, w: Any) -> Any:
    p = call.param
    groups = 1
    if w.dim() == 5:
        groups, w = w.shape[0], w.flatten(0, 1)
    return torch.nn.functional.conv2d(
        x, w, None, (p.stride_h, p.stride_w), (p.pad_h, p.pad_w), (p.dilate_h, p.dilate_w), groups
    )


def _pooling(torch: Any, call: Call, x: Any) -> Any:
    p, f = call.param, torch.nn.functional
    window = (p.window_h, p.window_w), (p.stride_h, p.stride_w), (p.pad_h, p.pad_w)
    if p.mode == P.PoolingV0Mode.MAX_:
        return f.max_pool2d(x, *window)
    inside = p.mode == P.PoolingV0Mode.AVERAGE
    return f.avg_pool2d(x, *window, count_include_pad=inside)


def _matrix(torch: Any, call: Call, a: Any, b: Any) -> Any:
    p = call.param
    return torch.matmul(a.mT if p.transposeA else a, b.mT if p.transposeB else b)


def _layer_norm(torch: Any, call: Call, x: Any, *affine: Any) -> Any:
    shape = x.shape[x.dim() - call.param.normalized_dim :]
    weights = [a.reshape(shape) for a in affine]
    return torch.nn.functional.layer_norm(x, shape, *weights, eps=float(call.param.eps))


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Elemwise": _elemwise,
    "Convolution": _convolution,
    "Pooling": _pooling,
    "MatrixMul": _matrix,
    "BatchedMatrixMul": _matrix,
    "LayerNorm": _layer_norm,
    "Softmax": lambda torch, call, x: torch.softmax(x, call.param.axis),
    "Reshape": lambda torch, call, x, *_: x.reshape(call.output_types[0].dims),
    "Concat": lambda torch, call, *x: torch.cat(x, call.param.axis),
}


class TorchTwin:
    """A graph of one output as a function of its inputs; weights live on the device.

    Args:
        graph: The network, with static shapes.
        device: `cuda` or `cpu`.
        half: Compute in float16.

    Raises:
        ValueError: An operator that is not known here.
    """

    def __init__(self, graph: Graph, *, device: str = "cuda", half: bool = False) -> None:
        import torch

        self._torch = torch
        self._inputs = list(graph.inputs)
        self._output = graph.outputs[0]
        self._fixed: dict[Any, Any] = {}
        self._steps: list[tuple[Node, Call, Callable[..., Any]]] = []
        inference = graph.inference
        for node in graph.nodes:
            call = call_of(node, inference)
            if node.tensors and not node.inputs and node.outputs[0] not in self._inputs:
                for value, tensor in zip(node.outputs, node.tensors, strict=True):
                    self._keep(value, tensor.numpy(), device, half)
                continue
            if node.op.name == "Host2DeviceCopy":
                continue
            known = inference.value(node.outputs[0])
            if known is not None:
                self._keep(node.outputs[0], known, device, half)
                continue
            run = self._dimshuffle if node.op.name == "Dimshuffle" else _OPERATORS.get(node.op.name)
            if run is None:
                raise ValueError(f"{node.op.name} is not known here")
            self._steps.append((node, call, run))

    def _keep(self, value: Any, array: Any, device: str, half: bool) -> None:
        tensor = self._torch.from_numpy(np.array(array)).to(device)
        self._fixed[value] = tensor.half() if half and tensor.dtype.is_floating_point else tensor

    @staticmethod
    def _dimshuffle(torch: Any, call: Call, x: Any) -> Any:
        return x.permute(tuple(int(k) for k in call.param.pattern))

    def __call__(self, *inputs: Any) -> Any:
        """The output for tensors on the device."""
        values = dict(self._fixed)
        values.update(zip(self._inputs, inputs, strict=True))
        for node, call, run in self._steps:
            result = run(self._torch, call, *(values[v] for v in node.inputs))
            values[node.outputs[0]] = result
        return values[self._output]
