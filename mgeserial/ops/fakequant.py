"""Quantisation aware training: float32 values rounded to the grid of a quantised type, and back.

Scales and zero points broadcast to x. All arithmetic is float32. Gradients by scale have the shape
of x: the graph that uses them sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mgeserial import params as P
from mgeserial.dtypes import FLOAT32, Array, DType
from mgeserial.ir.types import Call, ShapeLike
from mgeserial.ops.numerics import rhaz
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import broadcast_shapes, need

__all__ = ["FAKE_QUANT", "FAKE_QUANT_BACKWARD", "LSQ", "LSQ_BACKWARD", "TQT", "TQT_BACKWARD"]

F = npt.NDArray[np.float32]

_LN2 = np.float32(np.log(2.0))


def _dtypes(call: Call) -> list[DType]:
    for t, name in zip(call.inputs, call.op.input_names, strict=True):
        need(t.dtype == FLOAT32, f"{name} must be Float32, got {t.dtype.name}")
    return [FLOAT32] * call.count


def _shapes(call: Call) -> list[ShapeLike]:
    names = call.op.input_names
    x = call.shape(names.index("x"))
    for i, name in enumerate(names):
        shape = call.shape(i)
        if name == "dy":
            need(shape == x, f"dy must have the shape of x {x}, got {shape}")
        else:
            need(broadcast_shapes([x, shape]) == x, f"{name} {shape} does not broadcast to x {x}")
    return [x] * call.count


def _limits(call: Call) -> tuple[np.float32, np.float32]:
    return np.float32(call.param.qmin), np.float32(call.param.qmax)


def _fake_quant(call: Call, x: F, scale: F, zero_point: F) -> Array:
    with np.errstate(all="ignore"):
        codes = np.clip(rhaz(x / scale) + zero_point, *_limits(call))
        return np.asarray((codes - zero_point) * scale)


def _fake_quant_backward(call: Call, dy: F, x: F, scale: F, zero_point: F) -> Array:
    low, high = _limits(call)
    with np.errstate(all="ignore"):
        codes = rhaz(x / scale) + zero_point
    return np.where((codes >= low) & (codes <= high), dy, np.float32(0))


def _tqt(call: Call, x: F, scale: F) -> Array:
    with np.errstate(all="ignore"):
        step = np.exp2(scale)
        return np.asarray(np.clip(rhaz(x / step), *_limits(call)) * step)


def _tqt_backward(call: Call, dy: F, x: F, scale: F) -> Sequence[Array]:
    low, high = _limits(call)
    half = np.float32(0.5)
    with np.errstate(all="ignore"):
        step = np.exp2(scale)
        scaled = x / step
        codes = np.clip(rhaz(scaled), low, high)
        outside = (scaled < low - half) | (scaled > high + half)
        by_scale = np.where(outside, codes, codes - scaled)
        return np.where(outside, np.float32(0), dy), np.asarray(dy * by_scale * step * _LN2)


def _lsq(call: Call, x: F, scale: F, zero_point: F, grad_scale: F) -> Array:
    with np.errstate(all="ignore"):
        codes = rhaz(np.clip(x / scale + zero_point, *_limits(call)))
        return np.asarray((codes - zero_point) * scale)


def _lsq_backward(
    call: Call, dy: F, x: F, scale: F, zero_point: F, grad_scale: F
) -> Sequence[Array]:
    low, high = _limits(call)
    with np.errstate(all="ignore"):
        codes = x / scale + zero_point
        below, above = codes < low, codes > high
        by_scale = np.where(below, low, np.where(above, high, rhaz(codes) - codes))
        grad_x = np.where(below | above, np.float32(0), dy)
        return grad_x, np.asarray(by_scale * grad_scale * dy)


FAKE_QUANT = register(
    OpSpec(
        name="FakeQuant",
        runtime_name="FakeQuantForward",
        names=(Name("FakeQuant", "v1.1.0", 147624489646671383),),
        old_id=13847006732235797939,
        v2=(V2Id("FakeQuant", 1, 13847006732235797939),),
        params=(P.FakeQuant,),
        inputs=("x", "scale", "zero_point"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_fake_quant,
        source="semantics section 12, checked against MegEngine 1.13.0",
    )
)

FAKE_QUANT_BACKWARD = register(
    OpSpec(
        name="FakeQuantBackward",
        runtime_name="FakeQuantBackward",
        names=(Name("FakeQuantBackward", "v1.1.0", 12782594184433173210),),
        old_id=11023552604250801146,
        v2=(V2Id("FakeQuantBackward", 1, 11023552604250801146),),
        params=(P.FakeQuant,),
        inputs=("dy", "x", "scale", "zero_point"),
        outputs=("grad_x",),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_fake_quant_backward,
        source="MegEngine v1.13 dnn/src/naive/fake_quant, checked against 1.13.0",
    )
)

TQT = register(
    OpSpec(
        name="TQT",
        runtime_name="TQTForward",
        names=(Name("TQT", "v1.2.0", 17944319229043899047),),
        old_id=18013660124381204544,
        v2=(V2Id("TQT", 1, 18013660124381204544),),
        params=(P.TQT,),
        inputs=("x", "scale"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_tqt,
        source="semantics section 12, checked against MegEngine 1.13.0",
    )
)

TQT_BACKWARD = register(
    OpSpec(
        name="TQTBackward",
        runtime_name="TQTBackward",
        names=(Name("TQTBackward", "v1.2.0", 7223974743004487028),),
        old_id=14922117621595654412,
        v2=(V2Id("TQTBackward", 1, 14922117621595654412),),
        params=(P.TQT,),
        inputs=("dy", "x", "scale"),
        outputs=("grad_x", "grad_scale"),
        output_count=2,
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_tqt_backward,
        source="gradients of MegEngine 1.13.0: TQT through GradManager",
    )
)

LSQ = register(
    OpSpec(
        name="LSQ",
        runtime_name="LSQForward",
        names=(Name("LSQ", "v1.5.0", 5135845397549390887),),
        old_id=5073413380495979713,
        v2=(V2Id("LSQ", 1, 5073413380495979713),),
        params=(P.LSQ,),
        inputs=("x", "scale", "zero_point", "grad_scale"),
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_lsq,
        source="semantics section 12, checked against MegEngine 1.13.0",
    )
)

LSQ_BACKWARD = register(
    OpSpec(
        name="LSQBackward",
        runtime_name="LSQBackward",
        names=(Name("LSQBackward", "v1.5.0", 4111817968217899653),),
        old_id=5505458523948615752,
        v2=(V2Id("LSQBackward", 1, 5505458523948615752),),
        params=(P.LSQ,),
        inputs=("dy", "x", "scale", "zero_point", "grad_scale"),
        outputs=("grad_x", "grad_s"),
        output_count=2,
        dtypes=_dtypes,
        shapes=_shapes,
        reference=_lsq_backward,
        source="MegEngine v1.13 dnn/src/naive/lsq, checked against 1.13.0",
    )
)
