"""What decides whether a convolution can be converted, and the conditions put on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.dtypes import DType, DTypeEnum
from mgeserial.errors import MgeError
from mgeserial.ir.graph import Node, Value
from mgeserial.ir.types import Shape
from mgeserial.ops.layouts import FilterLayout, TensorLayout, filter_layout
from mgeserial.passes.rules import Scope

__all__ = ["CHANNEL_WISE", "DENSE", "GROUP", "ConvFacts", "FirstLayer", "facts_of", "matches"]

_K = DTypeEnum
_NL = P.ConvBiasV0NonlineMode
DENSE, GROUP, CHANNEL_WISE = "dense", "group", "channel-wise"
_DECONV = "ConvolutionBackwardData"


@dataclass(frozen=True, slots=True)
class ConvFacts:
    """A convolution as conditions see it.

    Attributes:
        kind: `DENSE`, `GROUP` or `CHANNEL_WISE` (one input and one output channel a group).
        image, filter: Its operands (of a transposed convolution the image is the gradient).
        layout: Layout of the filter.
        dtypes: Element types of image, filter and result.
        groups, reads, writes: Groups, channels of one group that it reads and writes.
        kernel, stride, dilate: Of the window.
        size: Height and width of the image, None when not known.
        flips: Whether the filter is turned round.
        nonlinearity: That of ConvBias.
        bias: Its bias, None without one.
        bias_channels: Channels that the bias has, 0 when it has no channels of its own.
        has_full_bias: Whether the bias has the shape of the result.
        has_z: Whether a residual is added.
        is_packed: Whether its image is converted already.
    """

    kind: str
    image: Value
    filter: Value
    layout: FilterLayout
    dtypes: tuple[DType, DType, DType]
    groups: int
    reads: int
    writes: int
    kernel: Shape
    stride: Shape
    dilate: Shape
    size: Shape | None
    flips: bool
    nonlinearity: _NL
    bias: Value | None
    bias_channels: int
    has_full_bias: bool
    has_z: bool
    is_packed: bool


def facts_of(node: Node, scope: Scope, base: TensorLayout, *, is_packed: bool) -> ConvFacts | str:
    """Facts of a convolution whose image is stored as `base`, or why they are not known."""
    param = node.param
    transposed = node.op.name == _DECONV
    if transposed and len(node.inputs) > 2:
        return "its result has the shape of a third input"
    image, flt = (node.inputs[1], node.inputs[0]) if transposed else node.inputs[:2]
    if not scope.type(flt).is_static:
        return "the shape of its filter is not known"
    grouped = param.sparse == P.ConvolutionV0Sparse.GROUP
    try:
        layout = filter_layout(param.format, scope.type(flt).dims, grouped=grouped)
        groups, outputs, depth, *kernel = layout.logical(scope.type(flt).dims)
    except MgeError as error:
        return error.message
    kind = DENSE if not grouped else CHANNEL_WISE if outputs == depth == 1 else GROUP
    reads, writes = (outputs, depth) if transposed else (depth, outputs)
    source, result = scope.type(image), scope.type(node.outputs[0])
    size = tuple(base.logical(source.dims)[2:]) if source.is_static else None
    bias = node.inputs[2] if node.op.name == "ConvBiasForward" and len(node.inputs) > 2 else None
    bias_channels, full = 0, False
    if bias is not None:
        known = scope.type(bias)
        if not known.is_static:
            return "the shape of its bias is not known"
        if known.rank == base.rank:
            bias_channels = base.logical(known.dims)[1]
        full = known.shape == result.shape
    return ConvFacts(
        kind,
        image,
        flt,
        layout,
        (source.dtype, scope.type(flt).dtype, result.dtype),
        groups,
        reads,
        writes,
        tuple(kernel),
        (int(param.stride_h), int(param.stride_w)),
        (int(param.dilate_h), int(param.dilate_w)),
        size,
        param.mode == P.ConvolutionV0Mode.CONVOLUTION,
        getattr(param, "nonlineMode", _NL.IDENTITY),
        bias,
        bias_channels,
        full,
        len(node.inputs) > 3,
        is_packed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer:
    """What a convolution that reads plain NCHW and writes blocks must be, for one set of types.

    Attributes:
        dtypes: Kinds of image, filter and result.
        kernels: Sides of square kernels; None: any kernel.
        strides: Equal strides; None: any.
        point: Whether a kernel of one pixel is allowed, with stride 1.
        nonlinearities: Those allowed; None: any.
    """

    dtypes: tuple[DTypeEnum, DTypeEnum, DTypeEnum]
    kernels: frozenset[int] | None = frozenset({2, 3, 5, 7})
    strides: frozenset[int] | None = frozenset({1, 2})
    point: bool = False
    nonlinearities: frozenset[_NL] | None = frozenset({_NL.IDENTITY, _NL.RELU, _NL.H_SWISH})

    def reason(self, facts: ConvFacts) -> str | None:
        """Why a convolution of these types is not one of them."""
        return next(self._reasons(facts), None)

    def _reasons(self, facts: ConvFacts) -> Iterator[str]:
        (kh, kw), (sh, sw) = facts.kernel, facts.stride
        if facts.dilate != (1, 1):
            yield f"its dilation is {facts.dilate}"
        if facts.flips:
            yield "its filter is turned round"
        if facts.has_full_bias:
            yield "its bias has the shape of the result"
        if self.nonlinearities is not None and facts.nonlinearity not in self.nonlinearities:
            yield f"its nonlinearity is {facts.nonlinearity}"
        point = self.point and kh == kw == sh == sw == 1
        if self.kernels is not None and not point and (kh != kw or kh not in self.kernels):
            yield f"its kernel is {kh}x{kw}"
        if self.strides is not None and (sh != sw or sh not in self.strides):
            yield f"its stride is {sh}x{sw}"


def matches(kinds: frozenset[DTypeEnum] | None, dtype: DType) -> bool:
    """Whether a type is one of these kinds (None: any)."""
    return kinds is None or dtype.kind in kinds
