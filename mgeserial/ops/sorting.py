"""Operator records: sorting."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

ARGSORT = register(
    OpSpec(
        name="Argsort",
        runtime_name="ArgsortForward",
        names=(Name("Argsort", "v0.3.1", 3244937698553822362),),
        old_id=3966741638081812863,
        v2=(V2Id("Argsort", 1, 3966741638081812863),),
        params=(P.Argsort,),
        inputs=("x",),
        outputs=("values", "indices"),
        output_count=2,
        source="operators.json",
    )
)

ARGSORT_BACKWARD = register(
    OpSpec(
        name="ArgsortBackward",
        runtime_name="ArgsortBackward",
        names=(Name("ArgsortBackward", "v0.3.1", 14241058169696625695),),
        old_id=16444382987433252649,
        v2=(V2Id("ArgsortBackward", 1, 16444382987433252649),),
        params=(P.Empty,),
        inputs=("diff", "indices", "x_for_shape"),
        source="operators.json",
    )
)

TOP_K = register(
    OpSpec(
        name="TopK",
        runtime_name="TopK",
        names=(Name("TopK", "v0.3.1", 342229907871570751),),
        old_id=3492863564509811887,
        v2=(V2Id("TopK", 1, 3492863564509811887),),
        params=(P.TopK,),
        inputs=("x", "k"),
        outputs=("values", "indices"),
        output_count=counts.top_k,
        source="operators.json",
    )
)

COND_TAKE = register(
    OpSpec(
        name="CondTake",
        runtime_name="CondTake",
        names=(Name("CondTake", "v0.3.1", 10947600316762895964),),
        old_id=12716086571372722558,
        v2=(V2Id("CondTake", 1, 12716086571372722558),),
        params=(P.CondTake,),
        inputs=("data", "mask"),
        outputs=("values", "indices"),
        output_count=2,
        source="operators.json",
    )
)

NON_ZERO = register(
    OpSpec(
        name="NonZero",
        runtime_name="NonZero",
        names=(Name("NonZero", "v1.13.2", 5731591918063546029),),
        old_id=15030683494237557530,
        v2=(V2Id("NonZero", 1, 15030683494237557530),),
        params=(P.Empty,),
        inputs=("x",),
        source="operators.json",
    )
)

NMS_KEEP = register(
    OpSpec(
        name="NMSKeep",
        runtime_name="NMSKeep",
        names=(Name("NMSKeepMGB", "v1.0.0-rc1", 18144144210543198270),),
        old_id=10784269134792009564,
        v2=(V2Id("NMSKeepMGB", 1, 10784269134792009564),),
        params=(P.NMSKeep,),
        inputs=("boxes",),
        outputs=("indices", "max_output", "sizes"),
        output_count=2,
        source="operators.json",
    )
)
