"""Softmax and Dropout, with their gradients.

Source: semantics section 6, checked against MegEngine 1.13.0.
"""

from __future__ import annotations

import numpy as np

from mgeserial import params as P
from mgeserial.dtypes import Array, DType, DTypeEnum
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.generator import Generator
from mgeserial.ops.moments import Float32, total
from mgeserial.ops.numerics import narrow, to_real
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import dtype_of, need, normal_axis, of_floats

_SECTION = "semantics section 6"
_BYTE = DType(DTypeEnum.Byte)


def softmax(x: Float32, axis: int) -> Float32:
    """exp(x - max) divided by its sum along `axis`, in float32."""
    y = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    np.exp(y, out=y)
    y /= total(y, (axis,), keep=True)
    return np.asarray(y)


def _softmax_shapes(call: Call) -> list[ShapeLike]:
    normal_axis(call.param.axis, len(call.shape(0)))
    return [call.shape(0)]


def _softmax(call: Call, x: Array) -> Array:
    axis = normal_axis(call.param.axis, x.ndim)
    with np.errstate(invalid="ignore"):
        return narrow(softmax(to_real(x, call.dtype(0)), axis), call.dtype(0))


def _softmax_grad_shapes(call: Call) -> list[ShapeLike]:
    normal_axis(call.param.axis, len(call.shape(0)))
    need(
        call.shape(0) == call.shape(1),
        f"y and dy must have equal shapes, got {call.shape(0)} and {call.shape(1)}",
    )
    return [call.shape(0)]


def _softmax_grad(call: Call, y: Array, dy: Array) -> Array:
    axis = normal_axis(call.param.axis, y.ndim)
    out, diff = to_real(y, call.dtype(0)), to_real(dy, call.dtype(1))
    return narrow(out * (diff - total(out * diff, (axis,), keep=True)), call.dtype(0))


def _kept(call: Call) -> np.float32:
    """The share of elements that Dropout keeps."""
    need(
        0 <= call.param.drop_prob < 1,
        f"drop_prob must be at least 0 and below 1, got {call.param.drop_prob:g}",
    )
    return np.float32(1) - np.float32(call.param.drop_prob)


def _dropout_dtypes(call: Call) -> list[DType]:
    return [call.dtype(0), _BYTE]


def _dropout_shapes(call: Call) -> list[ShapeLike]:
    _kept(call)
    return [call.shape(0), (call.inputs[0].size,)]


def _dropout(call: Call, x: Array) -> tuple[Array, Array]:
    """y and one byte an element that says what was kept. Drops in every mode of use."""
    real = to_real(x, call.dtype(0))
    uniform = Generator.of(call.state, call.param.seed).uniform(x.size)
    mask = uniform >= np.float32(call.param.drop_prob)
    y = np.where(mask.reshape(x.shape), real / _kept(call), np.float32(0))
    return narrow(y, call.dtype(0)), mask.astype(np.uint8)


def _dropout_grad_shapes(call: Call) -> list[ShapeLike]:
    _kept(call)
    need(
        call.inputs[0].size == call.inputs[1].size,
        f"the mask has {call.inputs[1].size} bytes for {call.inputs[0].size} elements",
    )
    return [call.shape(0)]


def _dropout_grad(call: Call, dy: Array, mask: Array) -> Array:
    diff = to_real(dy, call.dtype(0)) / _kept(call)
    return narrow(np.where(mask.reshape(dy.shape) != 0, diff, np.float32(0)), call.dtype(0))


SOFTMAX = register(
    OpSpec(
        name="Softmax",
        runtime_name="SoftmaxForward",
        names=(Name("Softmax", "v1.8.0", 17433518091429734055),),
        old_id=7753381912106699036,
        v2=(
            V2Id("Softmax", 1, 7753381912106699036),
            V2Id("Softmax", 2, 17433518091429734055, since="v1.10.0"),
        ),
        params=(P.Softmax,),
        inputs=("x",),
        dtypes=of_floats(dtype_of(0)),
        shapes=_softmax_shapes,
        reference=_softmax,
        source=_SECTION,
    )
)

DROPOUT = register(
    OpSpec(
        name="Dropout",
        runtime_name="DropoutForward",
        names=(Name("Dropout", "v1.8.0", 3731628926224532141),),
        old_id=10141575378753535428,
        v2=(V2Id("Dropout", 1, 10141575378753535428),),
        params=(P.Dropout,),
        inputs=("x",),
        outputs=("y", "mask"),
        output_count=2,
        dtypes=of_floats(_dropout_dtypes),
        shapes=_dropout_shapes,
        reference=_dropout,
        is_pure=False,
        source=_SECTION,
    )
)

SOFTMAX_BACKWARD = register(
    OpSpec(
        name="SoftmaxBackward",
        runtime_name="SoftmaxBackward",
        names=(Name("SoftmaxBackward", "v1.8.0", 12781920760421177109),),
        old_id=6650393650207887242,
        v2=(V2Id("SoftmaxBackward", 1, 6650393650207887242),),
        params=(P.Softmax,),
        inputs=("y", "dy"),
        dtypes=of_floats(dtype_of(0)),
        shapes=_softmax_grad_shapes,
        reference=_softmax_grad,
        source=_SECTION,
    )
)

DROPOUT_BACKWARD = register(
    OpSpec(
        name="DropoutBackward",
        runtime_name="DropoutBackward",
        names=(Name("DropoutBackward", "v1.8.0", 13365805217621328180),),
        old_id=11345252934912805363,
        v2=(V2Id("DropoutBackward", 1, 11345252934912805363),),
        params=(P.Dropout,),
        inputs=("dy", "mask"),
        dtypes=of_floats(dtype_of(0), 1),
        shapes=_dropout_grad_shapes,
        reference=_dropout_grad,
        source=_SECTION,
    )
)
