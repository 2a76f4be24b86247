"""Operator records: fakequant."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

FAKE_QUANT = register(
    OpSpec(
        name="FakeQuant",
        runtime_name="FakeQuantForward",
        names=(Name("FakeQuant", "v1.1.0", 147624489646671383),),
        old_id=13847006732235797939,
        v2=(V2Id("FakeQuant", 1, 13847006732235797939),),
        params=(P.FakeQuant,),
        inputs=("x", "scale", "zero_point"),
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
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
        output_count=2,
        source="operators.json",
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
        source="operators.json",
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
        output_count=2,
        source="operators.json",
    )
)
