"""Layers in the words of networks: what several operators or a fixed set of parameters make up.

Each method is a few calls of the typed operator methods; shapes are NCHW unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from mgeserial import params as P
from mgeserial.arguments import whole, wholes
from mgeserial.author.core import Operand, as_dtype, enum_value, need_list
from mgeserial.author.operators import OperatorMethods
from mgeserial.dtypes import FLOAT32, INT32, Array, DType
from mgeserial.errors import ShapeError
from mgeserial.ir.graph import Graph, Value

__all__ = ["GraphBuilder", "pair"]


def pair(value: int | Sequence[int], what: str = "height and width") -> tuple[int, int]:
    """Height and width from one number or two.

    Raises:
        InputError: It is something else.
    """
    if isinstance(value, (Sequence, np.ndarray)):
        h, w = wholes(value, what, count=2)
        return h, w
    number = whole(value, what)
    return number, number


class GraphBuilder(OperatorMethods):
    """Builds a network.

    Example::

        b = GraphBuilder()
        x = b.input("data", (1, 3, 224, 224))
        y = b.relu(b.conv2d(x, weight, bias, stride=2, padding=3))
        b.output(y, "y")
        mgeserial.save(b.graph(), "net.mge")

    Arrays given where a value is expected become weights, numbers and lists constants.
    """

    def graph(self) -> Graph:
        """A copy of the graph built so far; see `BuilderCore.graph`."""
        return super().graph()

    # -- elementwise -----------------------------------------------------------------------------

    def _mode(self, mode: P.ElemwiseMode, *inputs: Operand, name: str | None) -> Value:
        return self.apply("Elemwise", inputs, (P.Elemwise(mode=mode),), name=name)[0]

    def add(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """x + y, broadcast."""
        return self._mode(P.ElemwiseMode.ADD, x, y, name=name)

    def sub(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """x - y, broadcast."""
        return self._mode(P.ElemwiseMode.SUB, x, y, name=name)

    def mul(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """x * y, broadcast."""
        return self._mode(P.ElemwiseMode.MUL, x, y, name=name)

    def div(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """x / y, broadcast."""
        return self._mode(P.ElemwiseMode.TRUE_DIV, x, y, name=name)

    def maximum(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """The larger of x and y, broadcast."""
        return self._mode(P.ElemwiseMode.MAX_, x, y, name=name)

    def minimum(self, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """The smaller of x and y, broadcast."""
        return self._mode(P.ElemwiseMode.MIN_, x, y, name=name)

    def relu(self, x: Operand, *, name: str | None = None) -> Value:
        """max(x, 0)."""
        return self._mode(P.ElemwiseMode.RELU, x, name=name)

    def relu6(self, x: Operand, *, name: str | None = None) -> Value:
        """min(max(x, 0), 6), as the two modes that every release has."""
        return self.minimum(self.maximum(x, 0.0), 6.0, name=name)

    def leaky_relu(self, x: Operand, slope: float = 0.01, *, name: str | None = None) -> Value:
        """max(x, 0) + slope * min(x, 0)."""
        value = self._value(x)
        low = self.mul(self.minimum(value, 0.0), self.const(slope, dtype=FLOAT32))
        return self.add(self.maximum(value, 0.0), low, name=name)

    def sigmoid(self, x: Operand, *, name: str | None = None) -> Value:
        """1 / (1 + exp(-x))."""
        return self._mode(P.ElemwiseMode.SIGMOID, x, name=name)

    def tanh(self, x: Operand, *, name: str | None = None) -> Value:
        """Hyperbolic tangent."""
        return self._mode(P.ElemwiseMode.TANH, x, name=name)

    def silu(self, x: Operand, *, name: str | None = None) -> Value:
        """x * sigmoid(x)."""
        return self._mode(P.ElemwiseMode.SILU, x, name=name)

    def gelu(self, x: Operand, *, name: str | None = None) -> Value:
        """x * Phi(x), with the error function."""
        return self._mode(P.ElemwiseMode.GELU, x, name=name)

    def hswish(self, x: Operand, *, name: str | None = None) -> Value:
        """x * clip(x + 3, 0, 6) / 6."""
        return self._mode(P.ElemwiseMode.H_SWISH, x, name=name)

    def exp(self, x: Operand, *, name: str | None = None) -> Value:
        """e to the power of x."""
        return self._mode(P.ElemwiseMode.EXP, x, name=name)

    def cast(self, x: Operand, dtype: DType | str, *, name: str | None = None) -> Value:
        """Convert to another element type (TypeCvt)."""
        return self.type_cvt(x, dtype=as_dtype(dtype), name=name)

    # -- convolutions and products ---------------------------------------------------------------

    def conv2d(
        self,
        x: Operand,
        weight: Operand,
        bias: Operand | None = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        name: str | None = None,
    ) -> Value:
        """Convolution of (n, c, h, w) with a filter (oc, c / groups, kh, kw), plus a bias.

        Args:
            x: Input.
            weight: Filter; (groups, oc / groups, c / groups, kh, kw) is taken as it is.
            bias: One number a channel: (oc,) or (1, oc, 1, 1).
            stride: Step in pixels, one number or (h, w).
            padding: Zeros around the input.
            dilation: Distance of filter taps.
            groups: Number of groups.
            name: Name of the result.
        """
        source, kernel = self._value(x), self._filter(weight, groups)
        (sh, sw), (ph, pw) = pair(stride, "stride"), pair(padding, "padding")
        dh, dw = pair(dilation, "dilation")
        sparse = P.ConvolutionV0Sparse.GROUP if groups > 1 else P.ConvolutionV0Sparse.DENSE
        result = self.convolution(
            source,
            kernel,
            sparse=sparse,
            stride_h=sh,
            stride_w=sw,
            pad_h=ph,
            pad_w=pw,
            dilate_h=dh,
            dilate_w=dw,
            name=name if bias is None else None,
        )
        return result if bias is None else self.add(result, self._channels(bias), name=name)

    def _filter(self, weight: Operand, groups: int) -> Value:
        """A filter value; a 4-d array is given its leading group axis."""
        if isinstance(weight, np.ndarray) and groups > 1 and weight.ndim == 4:
            if weight.shape[0] % groups:
                raise ShapeError(f"{weight.shape[0]} filters do not make {groups} groups")
            weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        return self._value(weight)

    def _weight(self, operand: Operand) -> Value:
        """A value; lists become weights, too."""
        return operand if isinstance(operand, Value) else self.param(operand)

    def _image(self, value: Value) -> tuple[int, int, int, int]:
        """Shape of an image (n, c, h, w).

        Raises:
            ShapeError: It has other dimensions, or they are not known.
        """
        shape = self.shape_of(value)
        if len(shape) != 4:
            raise ShapeError(f"images have a shape (n, c, h, w), {value!r} has {shape}")
        n, c, h, w = shape
        return n, c, h, w

    def _channels(self, bias: Operand) -> Value:
        """A bias that broadcasts over (n, c, h, w)."""
        if isinstance(bias, np.ndarray) and bias.ndim == 1:
            bias = bias.reshape(1, -1, 1, 1)
        return self._value(bias)

    def conv_transpose2d(
        self,
        x: Operand,
        weight: Operand,
        bias: Operand | None = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> Value:
        """Transposed convolution with a filter (c, oc, kh, kw)."""
        (sh, sw), (ph, pw) = pair(stride, "stride"), pair(padding, "padding")
        result = self.convolution_backward_data(
            self._value(weight),
            self._value(x),
            stride_h=sh,
            stride_w=sw,
            pad_h=ph,
            pad_w=pw,
            name=name if bias is None else None,
        )
        return result if bias is None else self.add(result, self._channels(bias), name=name)

    def matmul(
        self,
        a: Operand,
        b: Operand,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        name: str | None = None,
    ) -> Value:
        """Product of two matrices, or of two equal batches (b, m, k) x (b, k, n)."""
        left, right = self._value(a), self._value(b)
        rank = self.type_of(left).rank
        record = P.MatrixMul(transposeA=transpose_a, transposeB=transpose_b)
        op = "MatrixMul" if rank == 2 else "BatchedMatrixMul"
        return self.apply(op, [left, right], (record,), name=name)[0]

    def linear(
        self, x: Operand, weight: Operand, bias: Operand | None = None, *, name: str | None = None
    ) -> Value:
        """x (n, in) times weight (out, in) transposed, plus a bias (out,), taken as (1, out).

        Of an x with more dimensions the leading ones are kept.
        """
        value = self._value(x)
        shape = self.shape_of(value)
        flat = value if len(shape) == 2 else self.reshape_to(value, (-1, shape[-1]))
        last = name if bias is None and len(shape) == 2 else None
        result = self.matmul(flat, weight, transpose_b=True, name=last)
        if bias is not None:
            if isinstance(bias, np.ndarray) and bias.ndim == 1:
                bias = bias.reshape(1, -1)
            result = self.add(result, bias, name=name if len(shape) == 2 else None)
        if len(shape) == 2:
            return result
        return self.reshape_to(result, (*shape[:-1], self.shape_of(result)[-1]), name=name)

    # -- norms and pooling -----------------------------------------------------------------------

    def batch_norm2d(
        self,
        x: Operand,
        scale: Array,
        bias: Array,
        mean: Array,
        variance: Array,
        *,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> Value:
        """Inference batch norm over the channels of (n, c, h, w): statistics of shape (c,)."""
        weights = [
            self.param(np.asarray(a).reshape(1, -1, 1, 1)) for a in (scale, bias, mean, variance)
        ]
        record = P.BN(
            fwd_mode=P.BNFwdMode.INFERENCE, epsilon=epsilon, param_dim=P.BNParamDim.DIM_1C11
        )
        value = self.apply("BatchNorm", [x, *weights], (record,))[-1]
        value.name = name
        return value

    def layer_norm_last(
        self,
        x: Operand,
        weight: Operand,
        bias: Operand,
        *,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> Value:
        """Layer norm over the last axes, those of `weight`."""
        weight = self._weight(weight)
        bias = self._weight(bias)
        shape = self.shape_of(weight)
        record = P.LayerNorm(
            affine=True, eps=epsilon, normalized_dim=len(shape), normalized_size=math.prod(shape)
        )
        return self.apply("LayerNorm", [x, weight, bias], (record,), name=name)[0]

    def softmax_last(self, x: Operand, *, name: str | None = None) -> Value:
        """Softmax over the last axis."""
        return self.apply("Softmax", [x], (P.Softmax(axis=-1),), name=name)[0]

    def pool2d(
        self,
        x: Operand,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        mode: P.PoolingV0Mode | str = "MAX",
        name: str | None = None,
    ) -> Value:
        """Pooling over windows; the stride is the window unless given."""
        (kh, kw), (ph, pw) = pair(kernel, "kernel"), pair(padding, "padding")
        sh, sw = (kh, kw) if stride is None else pair(stride, "stride")
        return self.pooling(
            x,
            mode=enum_value(P.PoolingV0Mode, mode),
            window_h=kh,
            window_w=kw,
            stride_h=sh,
            stride_w=sw,
            pad_h=ph,
            pad_w=pw,
            name=name,
        )

    def max_pool2d(
        self,
        x: Operand,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> Value:
        """Largest value of each window."""
        return self.pool2d(x, kernel, stride=stride, padding=padding, mode="MAX", name=name)

    def avg_pool2d(
        self,
        x: Operand,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> Value:
        """Mean of each window, padding counted as zeros."""
        return self.pool2d(x, kernel, stride=stride, padding=padding, mode="AVERAGE", name=name)

    def global_avg_pool2d(self, x: Operand, *, name: str | None = None) -> Value:
        """Mean over height and width: (n, c, 1, 1)."""
        value = self._value(x)
        return self.avg_pool2d(value, self._image(value)[2:], name=name)

    def mean(self, x: Operand, axis: int, *, name: str | None = None) -> Value:
        """Mean over one axis, kept with size 1."""
        return self.reduce(x, mode=P.ReduceMode.MEAN, axis=axis, name=name)

    # -- shapes ----------------------------------------------------------------------------------

    def reshape_to(self, x: Operand, shape: Sequence[int], *, name: str | None = None) -> Value:
        """Reshape; one dimension may be -1 and is computed."""
        value = self._value(x)
        dims = list(wholes(shape, "dimensions"))
        if -1 in dims:
            rest = math.prod(n for n in dims if n != -1)
            size = math.prod(self.shape_of(value))
            if rest == 0 or size % rest or dims.count(-1) > 1:
                raise ShapeError(f"{size} elements do not make the shape {tuple(shape)}")
            dims[dims.index(-1)] = size // rest
        return self.reshape(value, self.const(np.array(dims), dtype=INT32), name=name)

    def flatten(self, x: Operand, *, name: str | None = None) -> Value:
        """(n, ...) -> (n, the rest)."""
        value = self._value(x)
        return self.reshape_to(value, (self.shape_of(value)[0], -1), name=name)

    def transpose(self, x: Operand, order: Sequence[int], *, name: str | None = None) -> Value:
        """Reorder the axes (Dimshuffle)."""
        pattern = wholes(order, "axes")
        return self.dimshuffle(x, pattern=pattern, ndim=len(pattern), name=name)

    def cat(self, values: Sequence[Operand], axis: int = 1, *, name: str | None = None) -> Value:
        """Join along an axis (Concat)."""
        need_list(values, "values to join")
        return self.concat(*values, axis=axis, name=name)

    def split_sizes(self, x: Operand, sizes: Sequence[int], axis: int = 1) -> tuple[Value, ...]:
        """Cut along an axis into parts of these sizes."""
        record = P.Axis(axis=axis)
        return self.apply("Split", [x, *wholes(sizes, "sizes")], (record,))

    def slice_axis(
        self,
        x: Operand,
        axis: int,
        begin: int | None = None,
        end: int | None = None,
        step: int | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """x[begin:end:step] along one axis (Subtensor)."""
        given = [n for n in (begin, end, step) if n is not None]
        item = P.IndexDescMaskItem(
            axis=axis, begin=begin is not None, end=end is not None, step=step is not None
        )
        return self.subtensor(x, *given, items=(item,), name=name)

    def take_rows(self, table: Operand, rows: Operand, *, name: str | None = None) -> Value:
        """Rows of a table by integer index (embedding): table (v, d), rows (k,) -> (k, d)."""
        item = P.IndexDescMaskItem(axis=0, idx=True)
        return self.indexing_multi_axis_vec(table, rows, items=(item,), name=name)

    def upsample2d(self, x: Operand, factor: int, *, name: str | None = None) -> Value:
        """Resize (n, c, h, w) by a whole factor, linear interpolation."""
        value = self._value(x)
        _, _, h, w = self._image(value)
        f = whole(factor, "the factor", least=1)
        size = self.const(np.array([h * f, w * f], np.int32))
        return self.resize(
            value,
            size,
            format=P.ConvolutionFormat.NCHW,
            imode=cast(Any, "LINEAR"),
            name=name,
        )

    def pixel_shuffle(self, x: Operand, factor: int, *, name: str | None = None) -> Value:
        """(n, c * f * f, h, w) -> (n, c, h * f, w * f)."""
        value = self._value(x)
        n, c, h, w = self._image(value)
        f = whole(factor, "the factor", least=1)
        if c % (f * f):
            raise ShapeError(f"{c} channels are no multiple of {f} * {f}")
        split = self.reshape_to(value, (n, c // (f * f), f, f, h, w))
        mixed = self.transpose(split, (0, 1, 4, 2, 5, 3))
        return self.reshape_to(mixed, (n, c // (f * f), h * f, w * f), name=name)
