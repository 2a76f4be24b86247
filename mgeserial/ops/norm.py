"""Operator records: norm."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

BATCH_NORM = register(
    OpSpec(
        name="BatchNorm",
        runtime_name="BatchNormForward",
        names=(
            Name("BatchNorm", "v0.3.1", 17826892814338639291, until="v1.6.0"),
            Name("BatchNormV1", "v1.7.0", 8412279353930197262),
        ),
        old_id=6032777997293313103,
        v2=(V2Id("BatchNormV1", 1, 6032777997293313103),),
        params=(P.BN,),
        inputs=("x", "scale", "bias", "mean", "variance"),
        min_inputs=3,
        output_count=counts.batch_norm,
        source="operators.json",
    )
)

LAYER_NORM = register(
    OpSpec(
        name="LayerNorm",
        runtime_name="LayerNormForward",
        names=(Name("LayerNorm", "v1.8.0", 17564392905013364699),),
        old_id=7219531316962817841,
        v2=(V2Id("LayerNorm", 1, 7219531316962817841),),
        params=(P.LayerNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        source="operators.json",
    )
)

GROUP_NORM = register(
    OpSpec(
        name="GroupNorm",
        runtime_name="GroupNormForward",
        names=(Name("GroupNorm", "v1.12.0", 13415324093269581296),),
        old_id=17015953218772758475,
        v2=(
            V2Id("GroupNorm", 1, 17015953218772758475),
            V2Id("GroupNorm", 2, 13415324093269581296, since="v1.12.0"),
        ),
        params=(P.GroupNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        source="operators.json",
    )
)

INSTANCE_NORM = register(
    OpSpec(
        name="InstanceNorm",
        runtime_name="InstanceNormForward",
        names=(Name("InstanceNorm", "v1.12.2", 15322463570856234020),),
        old_id=13670649785787407526,
        v2=(
            V2Id("InstanceNorm", 1, 13670649785787407526),
            V2Id("InstanceNorm", 2, 15322463570856234020, since="v1.12.2"),
        ),
        params=(P.GroupNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        source="operators.json",
    )
)

GENERAL_NORM = register(
    OpSpec(
        name="GeneralNorm",
        runtime_name="GeneralNormForward",
        names=(Name("GeneralNorm", "v1.12.3", 5406691552895662385),),
        old_id=229545222685796468,
        v2=(V2Id("GeneralNorm", 1, 229545222685796468),),
        params=(P.GeneralNorm,),
        inputs=("x", "weight", "bias"),
        min_inputs=1,
        outputs=("y", "mean", "rstd"),
        output_count=3,
        source="operators.json",
    )
)

LRN = register(
    OpSpec(
        name="LRN",
        runtime_name="LRNForward",
        names=(Name("LRN", "v0.3.1", 1059971726246193068),),
        old_id=16961886508966845526,
        v2=(V2Id("LRN", 1, 16961886508966845526),),
        params=(P.LRN,),
        inputs=("x",),
        source="operators.json",
    )
)

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
        source="operators.json",
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
        source="operators.json",
    )
)
