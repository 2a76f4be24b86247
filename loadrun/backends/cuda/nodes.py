"""The engine's own operators: what a graph is lowered to before fusion and launches.

Tensors are named, contiguous and stored as the graph stores them, packed layouts included: kernels
take strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loadrun.backends.cuda.expr import Expr
from loadrun.backends.cuda.plan import Array, Gemm
from mgeserial.ir.graph import Node as GraphNode

__all__ = [
    "Access",
    "Alias",
    "Check",
    "Conv",
    "Custom",
    "HostCode",
    "In",
    "MatMul",
    "Network",
    "Node",
    "Out",
    "Param",
    "Pointwise",
    "Roles",
    "TensorInfo",
    "contiguous",
]

Shape = tuple[int, ...]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(strides[::-1])


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor: shape, numpy's name of its storage, and the C type of an element."""

    shape: Shape
    dtype: str
    ctype: str


@dataclass(frozen=True, slots=True)
class Access:
    """How a tensor is read for an element of the output.

    Attributes:
        tensor: Its name.
        strides: Of each dimension of the output's shape, in elements.
        offset: First element.
    """

    tensor: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One operator; `inputs` and `outputs` are tensor names."""

    name: str
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors it reads."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Pointwise(Node):
    """An expression of elements, for every element of the one output."""

    accesses: tuple[Access, ...]
    expr: Expr

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors it reads."""
        return tuple(dict.fromkeys(a.tensor for a in self.accesses))


@dataclass(frozen=True, slots=True)
class Roles:
    """What dimensions of an output a channel and, of matrices, a column go along.

    Attributes:
        channel: Dimension of blocks of channels.
        lane: Dimension of the channels of a block; -1 without.
        lanes: Channels of a block.
        column: Dimension that counts the pixels of a matrix product; -1 for images.
    """

    channel: int
    lane: int = -1
    lanes: int = 1
    column: int = -1


@dataclass(frozen=True, slots=True)
class Conv(Node):
    """A sum of products of an image and a filter, and an expression of each sum.

    Sizes are logical. Strides are in elements; `c` is the stride of a block of channels, whose
    lanes are next to each other.

    Attributes:
        x, w: Tensor names.
        batch, groups, outputs_each, depth: Images, groups, output and input channels of a group.
        size, out: (d, h, w) of the input and the output.
        kernel, stride, pad, dilate: (d, h, w) of the window.
        x_strides: Of image, group, block of channels, d, h, w.
        w_strides: Of group, output channel, place in the sum.
        y_strides: As x_strides, for the output.
        x_lanes, y_lanes: Channels of a block.
        x_zero, w_zero: What stands for zero in codes.
        accumulator: `float` or `int`.
        transposed: Transposed convolution: the window's output is the input.
        roles: For what else reads the output's dimensions.
        extras: Further tensors that the expression reads.
        expr: Of the accumulator and the extras.
        taps_first: Whether the sum goes over the channels of a place of the window before the
            next place; else over the places of a channel.
        label: `conv`, `deconv` or `matmul`.
        gemm: Also a product of float32 matrices, that a library may compute.
    """

    x: str
    w: str
    batch: int
    groups: int
    outputs_each: int
    depth: int
    size: tuple[int, int, int]
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int]
    dilate: tuple[int, int, int]
    x_strides: tuple[int, int, int, int, int, int]
    w_strides: tuple[int, int, int]
    y_strides: tuple[int, int, int, int, int, int]
    expr: Expr
    x_lanes: int = 1
    y_lanes: int = 1
    x_zero: int = 0
    w_zero: int = 0
    accumulator: str = "float"
    transposed: bool = False
    roles: Roles = field(default_factory=lambda: Roles(1))
    extras: tuple[Access, ...] = ()
    taps_first: bool = False
    label: str = "conv"
    gemm: Gemm | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors it reads."""
        return tuple(dict.fromkeys((self.x, self.w, *(a.tensor for a in self.extras))))


MatMul = Conv


@dataclass(frozen=True, slots=True)
class In:
    """Argument of a custom kernel: the address of a tensor that it reads."""

    tensor: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Out:
    """Argument of a custom kernel: the address of a tensor that it writes."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Check:
    """Two arguments of a custom kernel: where it notes that its input is wrong, and what to note.

    Attributes:
        message: The error that is raised then.
    """

    message: str


Param = In | Out | Check | int | float


@dataclass(frozen=True, slots=True)
class Custom(Node):
    """A kernel of its own from a template.

    Attributes:
        template: Source file.
        fields: Values of its placeholders.
        params: Arguments; the number of items comes first of the scalars where the kernel asks.
        items: Work items.
        per_block: Items that one block covers.
        block: Threads of a block.
        stem: Name of the kernel.
        flops: Operations, for reports.
    """

    template: str
    fields: tuple[tuple[str, str], ...]
    params: tuple[Param, ...]
    items: int
    per_block: int = 256
    block: int = 256
    stem: str = ""
    flops: float = 0.0

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors it reads."""
        return tuple(dict.fromkeys(p.tensor for p in self.params if isinstance(p, In)))


@dataclass(frozen=True, slots=True)
class Alias(Node):
    """The same elements under another shape."""

    source: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensor it is."""
        return (self.source,)


@dataclass(frozen=True, slots=True)
class HostCode(Node):
    """A Python function of host arrays."""

    reads: tuple[str, ...]
    run: Callable[[Sequence[Array]], Sequence[Array]] = field(repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors it reads."""
        return self.reads


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in order, all tensors, constants' contents, names of inputs and outputs.

    `dynamic` are tensors whose shape only the run knows; `origins` are for each node's name the
    operators of the graph that it computes.
    """

    nodes: tuple[Node, ...]
    tensors: dict[str, TensorInfo]
    consts: dict[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic: frozenset[str] = frozenset()
    origins: dict[str, tuple[GraphNode, ...]] = field(default_factory=dict)
