"""Conversion between element types; the rules are `numerics.convert`."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.dtypes import Array, DType
from mgeserial.ir.types import Call
from mgeserial.ops.numerics import convert
from mgeserial.ops.registry import Name, OpSpec, V2Id, register
from mgeserial.ops.rules import shape_of

__all__ = ["TYPE_CVT"]


def _dtypes(call: Call) -> list[DType]:
    return [call.param.dtype]


def _reference(call: Call, x: Array) -> Array:
    return convert(x, call.dtype(0), call.param.dtype)


# uses the top level DType table (union 67), not param.DType
TYPE_CVT = register(
    OpSpec(
        name="TypeCvt",
        runtime_name="TypeCvt",
        names=(Name("TypeCvtV2", "v0.3.1", 8251275421617995665),),
        old_id=3667709622108589241,
        v2=(V2Id("TypeCvtV2", 1, 3667709622108589241),),
        params=(P.ElementType,),
        inputs=("x",),
        dtypes=_dtypes,
        shapes=shape_of(0),
        reference=_reference,
        partial=True,
        source="semantics section 1, checked against MegEngine 1.13.0",
    )
)
