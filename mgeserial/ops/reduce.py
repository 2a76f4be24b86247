"""Operator records: reduce."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

REDUCE = register(
    OpSpec(
        name="Reduce",
        runtime_name="Reduce",
        names=(Name("ReduceV2", "v0.3.1", 16798497759448275553),),
        old_id=16815269931273165784,
        v2=(V2Id("ReduceV2", 1, 16815269931273165784),),
        params=(P.Reduce,),
        inputs=("x", "target_shape"),
        min_inputs=1,
        source="operators.json",
    )
)

ARGMAX = register(
    OpSpec(
        name="Argmax",
        runtime_name="Argmax",
        names=(Name("Argmax", "v0.3.1", 11529728997699271527),),
        old_id=13058155132752716377,
        v2=(V2Id("Argmax", 1, 13058155132752716377),),
        params=(P.Axis,),
        inputs=("x",),
        source="operators.json",
    )
)

ARGMIN = register(
    OpSpec(
        name="Argmin",
        runtime_name="Argmin",
        names=(Name("Argmin", "v0.3.1", 4505624168907520755),),
        old_id=7101073215918429656,
        v2=(V2Id("Argmin", 1, 7101073215918429656),),
        params=(P.Axis,),
        inputs=("x",),
        source="operators.json",
    )
)

CUMSUM = register(
    OpSpec(
        name="Cumsum",
        runtime_name="Cumsum",
        names=(Name("CumsumV1", "v0.3.1", 4254094950660026616),),
        old_id=4881526395661771330,
        v2=(V2Id("CumsumV1", 1, 4881526395661771330),),
        params=(P.Cumsum,),
        inputs=("x",),
        source="operators.json",
    )
)
