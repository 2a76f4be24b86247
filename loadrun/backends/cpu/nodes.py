"""The engine's own operators: what a graph is lowered to before layouts and algorithms.

Tensors are named and have fixed shapes. Filters are arrays in the node; other constants are named
tensors in `Network.consts`. A graph in this form can be written by hand, which is how the engine is
tested without any file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadrun.backends.cpu.expr import Expr
from loadrun.backends.cpu.kernels.common import IDENTITY, Epilogue
from loadrun.backends.cpu.kernels.conv import ConvSpec
from loadrun.backends.cpu.kernels.pool import PoolSpec
from loadrun.backends.cpu.plan import Array, Kernel
from loadrun.backends.cpu.target import Target

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: reads `inputs`, writes `outputs` (tensor names)."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conv(Node):
    """Convolution of inputs[0]; an epilogue of two inputs takes inputs[1].

    Attributes:
        spec: Geometry.
        weights: (groups, oc, ic, kh, kw), oc and ic per group.
        bias: (groups * oc,) or None.
        epilogue: Fused operations.
        exact: All numbers are whole and every sum is below 2**24, so that float32 is exact; no
            algorithm or rewriting may leave the whole numbers.
        scale: Factor of each output channel (float64) that packing applies to the weights.
        byte: Inputs and weights are whole numbers in -128..127 (then sums are exact in i32 where
            the target has byte products, whatever their size).
    """

    spec: ConvSpec
    weights: Array = field(repr=False)
    bias: Array | None = field(default=None, repr=False)
    epilogue: Epilogue = IDENTITY
    exact: bool = False
    byte: bool = False
    scale: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TransposedConv(Conv):
    """Gradient of the input of a convolution with this geometry and filter.

    inputs[0] has groups * oc channels, the output groups * ic; the bias is per output channel.
    """


@dataclass(frozen=True, slots=True)
class Pooling(Node):
    """Pooling of inputs[0]."""

    spec: PoolSpec


@dataclass(frozen=True, slots=True)
class GlobalPooling(Node):
    """mean, max or sum over the pixels of inputs[0]: (n, c, 1, 1), or (n, c)."""

    mode: str


@dataclass(frozen=True, slots=True)
class Eltwise(Node):
    """An expression of the inputs, of any types, with numpy broadcasting to the output's shape."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Dense(Node):
    """inputs[0] (m, k) times weights (k, n), plus bias (n,), then an epilogue.

    An epilogue of two inputs takes inputs[1], of the output's shape. `exact` and `scale` are as in
    Conv.
    """

    weights: Array = field(repr=False)
    bias: Array | None = field(default=None, repr=False)
    epilogue: Epilogue = IDENTITY
    exact: bool = False
    scale: Array | None = field(default=None, repr=False)


def filters(node: Conv | Dense) -> Array:
    """The weights with their scale, float32, in the shape of `weights`."""
    if node.scale is None:
        return node.weights
    spec = node.spec if isinstance(node, Conv) else None
    if spec is None:
        factor = node.scale
    elif isinstance(node, TransposedConv):
        factor = node.scale.reshape(spec.groups, 1, spec.ic, 1, 1)
    else:
        factor = node.scale.reshape(spec.groups, spec.oc, 1, 1, 1)
    scaled: Array = (node.weights * factor).astype(np.float32)
    return scaled


@dataclass(frozen=True, slots=True)
class Reshape(Node):
    """The same elements in another shape."""


@dataclass(frozen=True, slots=True)
class Host(Node):
    """A Python function of contiguous arrays.

    One that remembers something from run to run has methods `reset`, which begins anew, and
    `before`, what the operator's `Call.state` was before the last run.
    """

    run: Callable[[Sequence[Array]], Sequence[Array]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class View(Node):
    """A contiguous copy of a strided view of inputs[0]: transposes, slices, broadcasts.

    Attributes:
        strides: Of each output dimension, in elements of the input.
        offset: First element read.
    """

    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Join(Node):
    """The inputs one after the other along an axis."""

    axis: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an assembled tensor.

    Attributes:
        source: Number of the input that it is copied from.
        dims: Its shape.
        strides, offset: Which elements of the input are read.
        to_strides, to_offset: Where they are written.
    """

    source: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    to_strides: tuple[int, ...]
    to_offset: int


@dataclass(frozen=True, slots=True)
class Assemble(Node):
    """Pieces copied one after the other, which together write every element of the output."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Mapped(Node):
    """Expressions of elements of the inputs, each written to places of the output.

    Attributes:
        dims: What the loops go through.
        reads: For each input strides over `dims` and the first element.
        exprs: One program of all inputs per group of places.
        strides: Of the output over `dims`.
        offsets: For each program its first place in the output.
    """

    dims: tuple[int, ...]
    reads: tuple[tuple[tuple[int, ...], int], ...]
    exprs: tuple[Expr, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChannelMap(Node):
    """Output channel k of an image is channel channels[k][1] of inputs[channels[k][0]]."""

    channels: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Upsample(Node):
    """Every pixel of an image `factor` times in both directions."""

    factor: int


@dataclass(frozen=True, slots=True)
class Resample(Node):
    """An image mixed along rows and columns: (out, taps) indices of inputs, and their weights."""

    rows: Array = field(repr=False)
    columns: Array = field(repr=False)
    row_weights: Array = field(repr=False)
    column_weights: Array = field(repr=False)


@dataclass(frozen=True, slots=True)
class Recurrent(Node):
    """One direction of a recurrent layer: inputs pre-activations of x, first h (and c of an LSTM).

    Outputs are y (steps, batch, hidden) and the last h (and c), (batch, hidden).

    Attributes:
        kind: A key of kernels.recurrent.GATES.
        weights: Recurrent weights (gates * hidden, hidden).
        steps, batch: Sizes.
        reverse: Walk time backwards; outputs keep the order of the inputs.
    """

    kind: str
    weights: Array = field(repr=False)
    steps: int
    batch: int
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """Reduction of (outer, n, inner) to (outer, inner); modes of kernels.rowwise.FOLDS."""

    mode: str
    outer: int
    n: int
    inner: int


@dataclass(frozen=True, slots=True)
class Fold(Node):
    """Reduction of integers or codes (outer, n, inner) to (outer, inner); see kernels.fold.

    Attributes:
        mode: sum, sum_sqr, product, min, max, mean (of integers) or mean_code.
        sizes: outer, n, inner.
        zero: Taken off each element that is read.
        shift: Added to each result.
        limits: What results are limited to; None: they wrap.
    """

    mode: str
    sizes: tuple[int, int, int]
    zero: int = 0
    shift: int = 0
    limits: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Cumulate(Node):
    """Running sums along n of (outer, n, inner), float32 summed in float64, integers wrap."""

    sizes: tuple[int, int, int]
    reverse: bool = False
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Softmax(Node):
    """Softmax along n of (outer, n, inner)."""

    outer: int
    n: int
    inner: int


@dataclass(frozen=True, slots=True)
class LayerNorm(Node):
    """Normalisation of rows of n; outputs y, mean, reciprocal deviation; maybe weight and bias."""

    outer: int
    n: int
    eps: float


@dataclass(frozen=True, slots=True)
class MatMul(Node):
    """A batch of (m, k) times (k, n), or (n, k) when `transposed`."""

    batch: int
    m: int
    k: int
    n: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Loops(Node):
    """Generated loops over contiguous arrays; the argument table is the inputs, then the outputs.

    Attributes:
        what: For people, `warp` or the like.
        make: The kernel for a target.
    """

    what: str
    make: Callable[[Target], Kernel] = field(repr=False)


@dataclass(frozen=True, slots=True)
class WholeProduct(Node):
    """A batch of products of integers, int32 sums that wrap.

    Attributes:
        sizes: batch, m, k, n.
        zeros: Taken off the elements of the left and of the right operand.
    """

    sizes: tuple[int, int, int, int]
    zeros: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in order, shapes and dtypes of all tensors, names of inputs and outputs.

    `consts` holds the values of tensors that no node makes.
    """

    nodes: tuple[Node, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: dict[str, str] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)

    def dtype(self, name: str) -> str:
        """Numpy's name of a tensor's element type."""
        return self.dtypes.get(name, "float32")
