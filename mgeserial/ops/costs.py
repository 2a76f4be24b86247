"""What an operator costs: arithmetic operations and bytes, from its types alone.

One multiply-add counts as two operations; every elementwise function counts as one operation for
each element whatever it is made of (an exponential as much as a sum). All counts are Python
integers, so nothing overflows. Operators without a rule have no count rather than a guess.

Bytes are those of the inputs and outputs as they are stored, each once: what must move at least
when nothing stays in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mgeserial import params as P
from mgeserial.errors import MgeError
from mgeserial.ir.types import Call, TensorType
from mgeserial.ops.convrules import Geometry, geometry, geometry_of_gradient

__all__ = ["Cost", "cost_of"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one run of an operator.

    Attributes:
        flops: Arithmetic operations; None where there is no rule or a shape is not known.
        read_bytes: Bytes of the inputs; None where a shape is not known.
        written_bytes: Bytes of the outputs; None where a shape is not known.
    """

    flops: int | None
    read_bytes: int | None
    written_bytes: int | None

    @property
    def moved_bytes(self) -> int | None:
        """Bytes read and written."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


_Rule = Callable[[Call], int]


def cost_of(call: Call) -> Cost:
    """Cost of an operator at the types in `call.inputs` and `call.output_types`."""
    rule = _RULES.get(call.op.name)
    flops = None
    if rule is not None and all(t.is_static for t in (*call.inputs, *call.output_types)):
        try:
            flops = rule(call)
        except (MgeError, ValueError, IndexError, AttributeError):
            flops = None  # whoever runs the operator says what is wrong with it
    return Cost(flops, _bytes(call.inputs), _bytes(call.output_types))


def _bytes(types: tuple[TensorType, ...]) -> int | None:
    if not all(t.is_static for t in types):
        return None
    return sum(t.dtype.nbytes(t.dims) for t in types)


def _out(call: Call) -> int:
    return call.output_types[0].size


def _per_output(count: int) -> _Rule:
    """So many operations for each element of the first output."""
    return lambda call: count * _out(call)


def _per_input(count: int) -> _Rule:
    """So many operations for each element of the first input."""
    return lambda call: count * call.inputs[0].size


def _products(found: Geometry) -> int:
    each = found.depth * math.prod(found.window.kernel)
    return found.batch * found.groups * found.outputs * math.prod(found.out) * each


def _convolution(call: Call) -> int:
    return 2 * _products(geometry(call.param, call.shape(0), call.shape(1)))


def _conv_bias(call: Call) -> int:
    addends = len(call.inputs) - 2
    active = call.param.nonlineMode != P.ConvBiasV0NonlineMode.IDENTITY
    return _convolution(call) + (addends + int(active)) * _out(call)


def _batch_conv_bias(call: Call) -> int:
    image = (1, *call.shape(0)[1:])
    one = geometry(call.param, image, call.shape(1)[1:])
    return 2 * call.shape(0)[0] * _products(one) + (len(call.inputs) - 2) * _out(call)


def _transposed(call: Call) -> int:
    src = call.output_types[0].dims
    return 2 * _products(geometry_of_gradient(call.param, call.shape(0), call.shape(1), src))


def _filter_gradient(call: Call) -> int:
    return 2 * _products(geometry(call.param, call.shape(0), call.output_types[0].dims))


def _matrix(call: Call) -> int:
    """Products of (.., m, k) and (.., k, n), k found on the left side."""
    left = call.shape(0)
    return 2 * _out(call) * (left[-2] if call.param.transposeA else left[-1])


def _dot(call: Call) -> int:
    return 2 * max(call.inputs[0].size, call.inputs[1].size)


def _pooling(call: Call) -> int:
    return _out(call) * int(call.param.window_h) * int(call.param.window_w)


def _elementwise(call: Call) -> int:
    mode = str(call.param.mode.name)
    extra = 1 if "FUSE_" in mode else 0
    return (1 + extra) * _out(call)


def _concerning(names: str, rule: _Rule) -> dict[str, _Rule]:
    return dict.fromkeys(names.split(), rule)


# Operators that move data, or make it, and compute nothing.
_MOVES = """
Alloc AxisAddRemove Broadcast Concat Copy Dimshuffle Eye Flip GetVarShape Host2DeviceCopy Identity
ImmutableTensor IndexingMultiAxisVec IndexingOneHot IndexingRemap Images2Neibs MarkDynamicVar
MarkNoBroadcastElemwise MeshIndexing BatchedMeshIndexing MultipleDeviceTensorHolder
MultipleDeviceTensorWithFormatHolder Padding RelayoutFormat Reshape Rotate SetSubtensor
SharedDeviceTensor SharedDeviceTensorWithFormat SlidingWindowTranspose Split Subtensor TypeCvt
VirtualDep VolatileSharedDeviceTensor IndexingSetMultiAxisVec IndexingSetOneHot SetMeshIndexing
Diag ParamPackConcat PersistentOutputStorage
"""

_RULES: dict[str, _Rule] = {
    **_concerning(_MOVES, _per_output(0)),
    **_concerning("Convolution Convolution3D", _convolution),
    **_concerning("ConvolutionBackwardData Convolution3DBackwardData", _transposed),
    **_concerning("ConvolutionBackwardFilter Convolution3DBackwardFilter", _filter_gradient),
    **_concerning("MatrixMul BatchedMatrixMul", _matrix),
    # maximum, difference, exponential, sum, quotient
    **_concerning("Softmax", _per_output(5)),
    # mean (1), distance (1), its square and sum (2), scale (1), weight and bias (2)
    **_concerning("LayerNorm GroupNorm InstanceNorm GeneralNorm", _per_input(7)),
    **_concerning("Reduce Argmax Argmin Cumsum AdaptivePooling", _per_input(1)),
    # rounding to a step: quotient, rounding, two limits, product
    **_concerning("FakeQuant TQT LSQ", _per_output(5)),
    "ConvBiasForward": _conv_bias,
    "BatchConvBiasForward": _batch_conv_bias,
    "Dot": _dot,
    "Pooling": _pooling,
    "Elemwise": _elementwise,
    "ElemwiseMultiType": _elementwise,
    "PowC": _per_output(1),
    "Where": _per_output(1),
    "MaskedFill": _per_output(1),
    # As it runs in inference: one product and one sum with numbers of the channel.
    "BatchNorm": lambda call: 2 * call.inputs[0].size,
}
