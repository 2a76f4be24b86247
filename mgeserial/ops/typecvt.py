"""Operator records: typecvt."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

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
        source="operators.json",
    )
)
