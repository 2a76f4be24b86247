"""Operator records: image."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

IMAGES2_NEIBS = register(
    OpSpec(
        name="Images2Neibs",
        runtime_name="Images2NeibsForward",
        names=(Name("Images2Neibs", "v0.3.1", 2293385524318836233),),
        old_id=13723911081455815146,
        v2=(V2Id("Images2Neibs", 1, 13723911081455815146),),
        params=(P.Images2Neibs,),
        inputs=("src",),
        source="operators.json",
    )
)

IMAGES2_NEIBS_BACKWARD = register(
    OpSpec(
        name="Images2NeibsBackward",
        runtime_name="Images2NeibsBackward",
        names=(Name("Images2NeibsBackward", "v0.3.1", 9476654467761360860),),
        old_id=5626045858009237687,
        v2=(V2Id("Images2NeibsBackward", 1, 5626045858009237687),),
        params=(P.Images2Neibs,),
        inputs=("diff", "src_for_shape"),
        source="operators.json",
    )
)

SLIDING_WINDOW_TRANSPOSE = register(
    OpSpec(
        name="SlidingWindowTranspose",
        runtime_name="SlidingWindowTransposeForward",
        names=(Name("SlidingWindowTranspose", "v1.5.0", 10847035873523967705),),
        old_id=6568209881282440320,
        v2=(V2Id("SlidingWindowTranspose", 1, 6568209881282440320),),
        params=(P.SlidingWindowTranspose,),
        inputs=("src",),
        source="operators.json",
    )
)

SLIDING_WINDOW_TRANSPOSE_BACKWARD = register(
    OpSpec(
        name="SlidingWindowTransposeBackward",
        runtime_name="SlidingWindowTransposeBackward",
        names=(Name("SlidingWindowTransposeBackward", "v1.5.0", 2464509206276735534),),
        old_id=13813042794038566920,
        v2=(V2Id("SlidingWindowTransposeBackward", 1, 13813042794038566920),),
        params=(P.SlidingWindowTranspose,),
        inputs=("diff", "src_for_shape"),
        source="operators.json",
    )
)
