"""The ONNX twin of a network of `benchmarks/models.py`: same weights, in the words peers fuse best.

Bias additions become the bias of Conv and Gemm, max/min with constants become Clip, products of a
value and its sigmoid stay the pair that peers know as SiLU, full-size windows become
GlobalAveragePool. What the networks do not use is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mgeserial import params as P
from mgeserial.ir.graph import Graph, Node, Value, input_name

__all__ = ["onnx_model"]

_OPSET = 20
_UNARY = {
    P.ElemwiseMode.RELU: "Relu",
    P.ElemwiseMode.SIGMOID: "Sigmoid",
    P.ElemwiseMode.TANH: "Tanh",
    P.ElemwiseMode.EXP: "Exp",
    P.ElemwiseMode.GELU: "Gelu",
}
_BINARY = {
    P.ElemwiseMode.ADD: "Add",
    P.ElemwiseMode.SUB: "Sub",
    P.ElemwiseMode.MUL: "Mul",
    P.ElemwiseMode.TRUE_DIV: "Div",
    P.ElemwiseMode.MAX_: "Max",
    P.ElemwiseMode.MIN_: "Min",
}


class _Twin:
    """Builds the twin of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.names: dict[Value, str] = {}
        self.done: set[Node] = set()

    def model(self) -> Any:
        """The ONNX model."""
        inputs = []
        for value in self.graph.inputs:
            name = self.names[value] = input_name(value)
            kind = value.type
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, kind.dims))
        for node in self.graph.nodes:
            if node not in self.done and node.op.name != "Host2DeviceCopy":
                self.node(node)
        outputs = []
        for out, value in zip(self.graph.output_names, self.graph.outputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [self.name(value)], [f"{out}:out"]))
            info = helper.make_tensor_value_info(f"{out}:out", TensorProto.FLOAT, value.type.dims)
            outputs.append(info)
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        body = helper.make_graph(self.nodes, "twin", inputs, outputs, weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(body, opset_imports=opsets, ir_version=9)
        if model.ByteSize() < 2**31:
            onnx.checker.check_model(model)
        return model

    # -- helpers ---------------------------------------------------------------------------------

    def name(self, value: Value) -> str:
        """ONNX name of a value; constants become initializers when first used."""
        found = self.names.get(value)
        if found is None:
            if not value.node.tensors:
                raise KeyError(f"{value!r} was not translated")
            found = self.weight(value.node.tensors[value.index].numpy())
            self.names[value] = found
        return found

    def weight(self, array: Any) -> str:
        """Add an initializer."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.ascontiguousarray(array)
        return name

    def emit(
        self, op: str, inputs: Sequence[str], out: Value | None = None, **attributes: Any
    ) -> str:
        """Add a node; its output is the name of `out` or a new one."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        if out is not None:
            self.names[out] = name
        return name

    @staticmethod
    def constant(value: Value) -> Any:
        """The array of a constant, None of anything else."""
        node = value.node
        return (
            node.tensors[value.index].numpy()
            if node.tensors and node.tensors[0].has_value
            else None
        )

    def only_user(self, value: Value) -> Node | None:
        """The one node that uses a value, None for several or an output."""
        users = value.users
        is_output = any(value is v for v in self.graph.outputs)
        return users[0] if len(users) == 1 and not is_output else None

    def follow(self, value: Value, mode: P.ElemwiseMode) -> tuple[Node, Any] | None:
        """The elementwise node that alone uses a value with a constant, and the constant."""
        user = self.only_user(value)
        if user is None or user.op.name != "Elemwise" or user.param.mode != mode:
            return None
        others = [v for v in user.inputs if v is not value]
        array = self.constant(others[0]) if len(others) == 1 else None
        return None if array is None else (user, array)

    # -- operators -------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """Translate one operator."""
        if node.tensors:
            return
        method: Callable[[Node], None] | None = getattr(self, f"op_{node.op.name}", None)
        if method is None:
            raise NotImplementedError(f"the twin does not know {node.op.name}")
        method(node)

    def op_Convolution(self, node: Node) -> None:
        """Conv, with the bias that follows."""
        p, (x, w) = node.param, node.inputs
        weight = self.constant(w)
        group = 1
        if p.sparse == P.ConvolutionV0Sparse.GROUP:
            group = weight.shape[0]
            weight = weight.reshape(-1, *weight.shape[2:])
        inputs, result = [self.name(x), self.weight(weight)], node.outputs[0]
        bias = self.follow(result, P.ElemwiseMode.ADD)
        if bias is not None and bias[1].size == weight.shape[0]:
            inputs.append(self.weight(bias[1].reshape(-1)))
            self.done.add(bias[0])
            result = bias[0].outputs[0]
        self.emit(
            "Conv",
            inputs,
            result,
            strides=[p.stride_h, p.stride_w],
            pads=[p.pad_h, p.pad_w, p.pad_h, p.pad_w],
            dilations=[p.dilate_h, p.dilate_w],
            group=group,
        )

    def op_ConvolutionBackwardData(self, node: Node) -> None:
        """ConvTranspose, with the bias that follows."""
        p, (w, x) = node.param, node.inputs[:2]
        weight = self.constant(w)
        inputs, result = [self.name(x), self.weight(weight)], node.outputs[0]
        bias = self.follow(result, P.ElemwiseMode.ADD)
        if bias is not None and bias[1].size == weight.shape[1]:
            inputs.append(self.weight(bias[1].reshape(-1)))
            self.done.add(bias[0])
            result = bias[0].outputs[0]
        pads = [p.pad_h, p.pad_w, p.pad_h, p.pad_w]
        self.emit("ConvTranspose", inputs, result, strides=[p.stride_h, p.stride_w], pads=pads)

    def op_MatrixMul(self, node: Node) -> None:
        """Gemm, with the bias that follows."""
        p, (a, b) = node.param, node.inputs
        inputs, result = [self.name(a), self.name(b)], node.outputs[0]
        bias = self.follow(result, P.ElemwiseMode.ADD)
        if bias is not None:
            inputs.append(self.weight(bias[1].reshape(-1)))
            self.done.add(bias[0])
            result = bias[0].outputs[0]
        self.emit("Gemm", inputs, result, transA=int(p.transposeA), transB=int(p.transposeB))

    def op_BatchedMatrixMul(self, node: Node) -> None:
        """MatMul, transposed where asked for."""
        names = []
        for value, turned in zip(
            node.inputs, (node.param.transposeA, node.param.transposeB), strict=True
        ):
            name = self.name(value)
            names.append(self.emit("Transpose", [name], perm=[0, 2, 1]) if turned else name)
        self.emit("MatMul", names, node.outputs[0])

    def op_Elemwise(self, node: Node) -> None:
        """One of the plain functions; SiLU as a product, Max then Min with constants as Clip."""
        mode, out = node.param.mode, node.outputs[0]
        if mode == P.ElemwiseMode.MAX_:
            low = [a for a in map(self.constant, node.inputs) if a is not None]
            high = self.follow(out, P.ElemwiseMode.MIN_)
            if len(low) == 1 and low[0].size == 1 and high is not None and high[1].size == 1:
                (x,) = (v for v in node.inputs if self.constant(v) is None)
                bounds = [self.weight(a.reshape(())) for a in (low[0], high[1])]
                self.emit("Clip", [self.name(x), *bounds], high[0].outputs[0])
                self.done.add(high[0])
                return
        names = [self.name(v) for v in node.inputs]
        if mode == P.ElemwiseMode.SILU:
            self.emit("Mul", [names[0], self.emit("Sigmoid", names)], out)
        elif mode in _UNARY:
            self.emit(_UNARY[mode], names, out)
        elif mode in _BINARY:
            self.emit(_BINARY[mode], names, out)
        else:
            raise NotImplementedError(f"the twin does not know Elemwise {mode}")

    def op_Pooling(self, node: Node) -> None:
        """MaxPool, AveragePool or GlobalAveragePool."""
        p, x, out = node.param, node.inputs[0], node.outputs[0]
        window, pads = [p.window_h, p.window_w], [p.pad_h, p.pad_w, p.pad_h, p.pad_w]
        names, strides = [self.name(x)], [p.stride_h, p.stride_w]
        if p.mode == P.PoolingV0Mode.MAX_:
            self.emit("MaxPool", names, out, kernel_shape=window, strides=strides, pads=pads)
        elif tuple(window) == x.type.dims[2:] and not any(pads):
            self.emit("GlobalAveragePool", names, out)
        else:
            counted = int(p.mode == P.PoolingV0Mode.AVERAGE)
            more = {"kernel_shape": window, "strides": strides, "pads": pads}
            self.emit("AveragePool", names, out, count_include_pad=counted, **more)

    def op_Softmax(self, node: Node) -> None:
        """Softmax."""
        self.emit("Softmax", [self.name(node.inputs[0])], node.outputs[0], axis=node.param.axis)

    def op_LayerNorm(self, node: Node) -> None:
        """LayerNormalization."""
        names = [self.name(v) for v in node.inputs]
        axis = -int(node.param.normalized_dim)
        out = node.outputs[0]
        self.emit("LayerNormalization", names, out, axis=axis, epsilon=node.param.eps)

    def op_Reshape(self, node: Node) -> None:
        """Reshape."""
        shape = self.weight(np.array(node.outputs[0].type.dims, np.int64))
        self.emit("Reshape", [self.name(node.inputs[0]), shape], node.outputs[0])

    def op_Dimshuffle(self, node: Node) -> None:
        """Transpose."""
        order = list(node.param.pattern)
        self.emit("Transpose", [self.name(node.inputs[0])], node.outputs[0], perm=order)

    def op_Concat(self, node: Node) -> None:
        """Concat."""
        names = [self.name(v) for v in node.inputs]
        self.emit("Concat", names, node.outputs[0], axis=node.param.axis)

    def op_Split(self, node: Node) -> None:
        """Split."""
        axis = node.param.axis
        sizes = self.weight(np.array([v.type.dims[axis] for v in node.outputs], np.int64))
        names = [f"s{len(self.nodes)}_{i}" for i in range(len(node.outputs))]
        inputs = [self.name(node.inputs[0]), sizes]
        self.nodes.append(helper.make_node("Split", inputs, names, axis=axis))
        self.names.update(zip(node.outputs, names, strict=True))

    def op_Subtensor(self, node: Node) -> None:
        """Slice of one axis, or one element of it."""
        (item,) = node.param.items
        given = [int(self.constant(v).reshape(-1)[0]) for v in node.inputs[1:]]
        begin = given.pop(0) if item.begin else 0
        end = given.pop(0) if item.end else 2**31 - 1
        step = given.pop(0) if item.step else 1
        if item.idx:
            raise NotImplementedError("the twin does not know an index in Subtensor")
        parts = [self.weight(np.array([n], np.int64)) for n in (begin, end, item.axis, step)]
        self.emit("Slice", [self.name(node.inputs[0]), *parts], node.outputs[0])

    def op_Resize(self, node: Node) -> None:
        """Resize, linear with half-pixel centres."""
        sizes = self.weight(np.array(node.outputs[0].type.dims, np.int64))
        inputs = [self.name(node.inputs[0]), "", "", sizes]
        self.emit("Resize", inputs, node.outputs[0], mode="linear")

    def op_LSTMForward(self, node: Node) -> None:
        """One LSTM node a layer; gates i f g o become i o f g."""
        p, (x, hx, _, flat) = node.param, node.inputs
        layers, _, hidden = hx.type.dims
        numbers, at = self.constant(flat).reshape(-1), 0

        def take(*shape: int) -> Any:
            nonlocal at
            size = int(np.prod(shape))
            part = numbers[at : at + size].reshape(shape)
            at += size
            i, f, g, o = np.split(part, 4)
            return np.concatenate([i, o, f, g])[None]

        width = x.type.dims[2]
        shapes = [(width if k == 0 else hidden) for k in range(layers)]
        name = self.name(x)
        for width in shapes:
            wih, whh = take(4 * hidden, width), take(4 * hidden, hidden)
            biases = [take(4 * hidden) for _ in range(2)] if p.bias else [np.zeros(4 * hidden)] * 2
            bias = np.concatenate([b.reshape(1, -1) for b in biases], axis=1)
            inputs = [name, *(self.weight(a) for a in (wih, whh, bias))]
            name = self.emit("LSTM", inputs, hidden_size=hidden)
            name = self.emit("Squeeze", [name, self.weight(np.array([1], np.int64))])
        self.names[node.outputs[0]] = name


def onnx_model(graph: Graph) -> Any:
    """The ONNX twin of a graph of float32 values.

    Raises:
        NotImplementedError: An operator that no benchmark network uses.
    """
    return _Twin(graph).model()
