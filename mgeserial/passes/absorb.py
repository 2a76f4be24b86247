"""Operators that take constant factors and shifts of their input or result into their weights.

1. conv(x, w) * k = conv(x, w * k) with one number for each output channel, or one for all; the
   same for transposed convolutions and products of matrices. A bias is multiplied too.
2. conv(x * k, w) = conv(x, w * k) with one number for each input channel, or one for all.
3. conv(x + c, w) = conv(x, w) + sum(w * c), when there is no padding (it is 0, not c).
4. Left alone: weights that are no constants, not float32, in a packed layout or used by others as
   well (they would be stored twice); a nonlinearity inside, for the result's factors; a fused z.

Source: MegEngine 1.13.0 on small graphs; transposed convolutions are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mgeserial.dtypes import FLOAT32
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Shape
from mgeserial.ops.layouts import filter_layout, input_layout, output_layout
from mgeserial.passes.evaluate import HOLDERS
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Scope

__all__ = ["ABSORBERS", "Absorber", "absorber_of"]

Number = npt.NDArray[Any]
# Operator -> places of the data and of the weights among its inputs.
ABSORBERS = {
    "Convolution": (0, 1),
    "ConvBiasForward": (0, 1),
    "ConvolutionBackwardData": (1, 0),
    "MatrixMul": (0, 1),
}
_PLAIN = ("NCHW", "NHWC")


@dataclass(frozen=True, slots=True, eq=False)
class Absorber:
    """One such operator on its way into the new graph.

    Attributes:
        node: The operator in the graph of before.
        dims: Shape of its result.
        data_dims: Shape of its data input.
        weights: Its weights as they will be.
        data: New value of its data input.
        bias: New bias of a ConvBias, None when unchanged.
        changed: Whether the weights are new.
        shifted: Whether a shift of its input is now added to its result elsewhere.
    """

    node: Node
    dims: Shape
    data_dims: Shape
    weights: Number
    data: Value | None = None
    bias: Number | None = None
    changed: bool = False
    shifted: bool = False

    @property
    def _is_product(self) -> bool:
        return self.node.op.name == "MatrixMul"

    def _vector(self, array: Number, *, result: bool) -> Number | None:
        """A constant as one number for each channel (or one for all); None when it is neither."""
        dims = self.dims if result else self.data_dims
        if self._is_product:
            transposed = not result and self.node.param.transposeA
            axis = 0 if transposed else 1
        else:
            layout = _maps(self.node, len(self.data_dims))[result]
            axis = layout.axes.index("C")
        if array.ndim > len(dims):
            return None
        shape = (1,) * (len(dims) - array.ndim) + array.shape
        if any(n != 1 for i, n in enumerate(shape) if i != axis) or shape[axis] not in (
            1,
            dims[axis],
        ):
            return None
        return array.reshape(-1)

    def times(self, factor: Number, *, result: bool) -> Absorber | str:
        """The operator with its result, or its input, multiplied; else the reason why not."""
        if result and (reason := _result_reason(self.node)):
            return reason
        vector = self._vector(factor, result=result)
        if vector is None:
            return f"a factor of shape {factor.shape} is not one number for each channel"
        weights = (self.weights * self._along(vector, result=result)).astype(np.float32)
        if not np.isfinite(weights).all():
            return "weights would not be finite"
        bias = self.bias
        if result and bias is not None:
            bias = (bias * factor).astype(np.float32)
            if bias.shape != np.broadcast_shapes(self.bias_shape, bias.shape):
                return f"the bias would grow to {bias.shape}"
        return replace(self, weights=weights, bias=bias, changed=True)

    @property
    def bias_shape(self) -> Shape:
        """Shape of the bias."""
        return () if self.bias is None else tuple(self.bias.shape)

    def plus(self, shift: Number) -> Absorber | None:
        """The operator with a constant added to its result, if its bias takes it."""
        if self.bias is None or _result_reason(self.node):
            return None
        total = (self.bias + shift).astype(np.float32)
        return replace(self, bias=total, changed=True) if total.shape == self.bias.shape else None

    def of_shifted(self, shift: Number) -> tuple[Absorber, Number] | str:
        """The operator without a constant that is added to its input, and what is added instead."""
        name, param = self.node.op.name, self.node.param
        if name == "ConvolutionBackwardData":
            return "the borders of a transposed convolution see fewer of the shift"
        if name != "MatrixMul" and (param.pad_h or param.pad_w):
            return f"its padding of {param.pad_h} x {param.pad_w} is 0, not the shift"
        if name == "ConvBiasForward" and param.nonlineMode.name != "IDENTITY":
            return "its nonlinearity stands between the shift and what could be added"
        vector = self._vector(shift, result=False)
        if vector is None:
            return f"a shift of shape {shift.shape} is not one number for each channel"
        summed = self.weights * self._along(vector, result=False)
        if self._is_product:
            axis = 1 if param.transposeB else 0
            added = summed.sum(axis=axis, dtype=np.float64).reshape(1, -1)
        else:
            logical = _filter(self.node, self.weights.shape).to_goihw(summed)
            channels = logical.sum(axis=(2, 3, 4), dtype=np.float64).reshape(-1)
            layout = _maps(self.node, len(self.data_dims))[True]
            added = channels.reshape([-1 if a == "C" else 1 for a in layout.axes])
        return replace(self, shifted=True), added.astype(np.float32)

    def _along(self, vector: Number, *, result: bool) -> Number:
        """Numbers of channels in a shape that broadcasts over the stored weights."""
        if self._is_product:
            rows = self.node.param.transposeB == result
            return vector.reshape(-1, 1) if rows else vector.reshape(1, -1)
        layout = _filter(self.node, self.weights.shape)
        g, o, i, *_ = layout.logical(self.weights.shape)
        outputs = result != (self.node.op.name == "ConvolutionBackwardData")
        shape = (g, o, 1, 1, 1) if outputs else (g, 1, i, 1, 1)
        full = np.broadcast_to(vector, (g * (o if outputs else i),)).reshape(shape)
        logical = np.broadcast_to(full, (g, o, i, *layout.logical(self.weights.shape)[3:]))
        stored: Number = layout.from_goihw(logical)
        return stored

    def make(self, build: Rebuild) -> Value:
        """Add the operator to the new graph."""
        data, place = ABSORBERS[self.node.op.name]
        inputs = [build.values.get(v) for v in self.node.inputs]
        inputs[data] = self.data
        if self.changed:
            old = self.node.inputs[place]
            inputs[place] = build.weight(self.weights, FLOAT32, _holder(old))
            if self.bias is not None:
                bias = self.node.inputs[2]
                inputs[2] = build.weight(self.bias, FLOAT32, _holder(bias))
        known = [v for v in inputs if v is not None]
        return build.like(self.node, known).outputs[0]


def _holder(value: Value) -> Node | None:
    return value.node if value.node.op.name in HOLDERS else None


def _result_reason(node: Node) -> str | None:
    if node.op.name != "ConvBiasForward":
        return None
    if node.param.nonlineMode.name != "IDENTITY":
        return f"its nonlinearity {node.param.nonlineMode} stands between"
    return "a fourth input is added to its result" if len(node.inputs) > 3 else None


def _filter(node: Node, shape: Shape) -> Any:
    return filter_layout(node.param.format, shape, grouped=node.param.sparse.name == "GROUP")


def _maps(node: Node, rank: int) -> Sequence[Any]:
    """Layouts of data and result."""
    fmt = node.param.format
    found = input_layout(fmt, rank), output_layout(fmt)
    return found[::-1] if node.op.name == "ConvolutionBackwardData" else found


def absorber_of(node: Node, scope: Scope) -> Absorber | str:
    """The operator as an absorber, or the reason why it is none.

    The caller has made sure that it is one of `ABSORBERS` and that its result is float32.
    """
    data, place = ABSORBERS[node.op.name]
    weights = node.inputs[place]
    types = [scope.type(v) for v in (*node.inputs, *node.outputs)]
    if any(t.dtype != FLOAT32 or not t.is_static for t in types):
        return "its inputs are not all float32 of known shape"
    if node.op.name != "MatrixMul" and str(node.param.format) not in _PLAIN:
        return f"its format is {node.param.format}"
    if node.op.name == "MatrixMul" and str(node.param.format) != "DEFAULT":
        return f"its format is {node.param.format}"
    array = scope.constant(weights)
    if array is None:
        return "its weights are no constants"
    if scope.uses(weights) > 1:
        return f"its weights have {scope.uses(weights)} uses"
    bias = None
    if node.op.name == "ConvBiasForward" and len(node.inputs) > 2:
        bias = scope.constant(node.inputs[2])
        if bias is None:
            return "its bias is no constant"
    result = scope.type(node.outputs[0]).dims
    return Absorber(node, result, scope.type(node.inputs[data]).dims, array, bias=bias)
