"""Operator records: normgrad."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops import counts
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

BATCH_NORM_BACKWARD = register(
    OpSpec(
        name="BatchNormBackward",
        runtime_name="BatchNormBackward",
        names=(
            Name("BatchNormBackward", "v0.3.1", 4983233913945283999, until="v1.6.0"),
            Name("BatchNormBackwardV1", "v1.7.0", 9278179531671652757),
        ),
        old_id=14247817637904332910,
        v2=(V2Id("BatchNormBackwardV1", 1, 14247817637904332910),),
        params=(P.BN,),
        inputs=("dy", "saved_mean", "saved_inv_var", "scale", "reserve", "x5"),
        min_inputs=5,
        outputs=("d_scale", "d_bias", "dx"),
        output_count=3,
        source="operators.json",
    )
)

LAYER_NORM_BACKWARD = register(
    OpSpec(
        name="LayerNormBackward",
        runtime_name="LayerNormBackward",
        names=(Name("LayerNormBackward", "v1.8.0", 9820026231933009626),),
        old_id=7951835110806963716,
        v2=(V2Id("LayerNormBackward", 1, 7951835110806963716),),
        params=(P.LayerNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        outputs=("dx", "dweight", "dbias"),
        output_count=counts.norm_backward,
        source="operators.json",
    )
)

GROUP_NORM_BACKWARD = register(
    OpSpec(
        name="GroupNormBackward",
        runtime_name="GroupNormBackward",
        names=(Name("GroupNormBackward", "v1.12.0", 7616803679176141388),),
        old_id=9096201994587381269,
        v2=(
            V2Id("GroupNormBackward", 1, 9096201994587381269),
            V2Id("GroupNormBackward", 2, 7616803679176141388, since="v1.12.0"),
        ),
        params=(P.GroupNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        output_count=counts.norm_backward,
        source="operators.json",
    )
)

INSTANCE_NORM_BACKWARD = register(
    OpSpec(
        name="InstanceNormBackward",
        runtime_name="InstanceNormBackward",
        names=(Name("InstanceNormBackward", "v1.12.2", 13369857338834719890),),
        old_id=15223581390441750595,
        v2=(
            V2Id("InstanceNormBackward", 1, 15223581390441750595),
            V2Id("InstanceNormBackward", 2, 13369857338834719890, since="v1.12.2"),
        ),
        params=(P.GroupNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        output_count=counts.norm_backward,
        source="operators.json",
    )
)

GENERAL_NORM_BACKWARD = register(
    OpSpec(
        name="GeneralNormBackward",
        runtime_name="GeneralNormBackward",
        names=(Name("GeneralNormBackward", "v1.12.3", 13439261500949241223),),
        old_id=11953123197678799914,
        v2=(V2Id("GeneralNormBackward", 1, 11953123197678799914),),
        params=(P.GeneralNorm,),
        inputs=("diff", "x", "weight", "mean", "rstd"),
        min_inputs=4,
        output_count=counts.norm_backward,
        source="operators.json",
    )
)

LRN_BACKWARD = register(
    OpSpec(
        name="LRNBackward",
        runtime_name="LRNBackward",
        names=(Name("LRNBackward", "v0.3.1", 17804540914232709868),),
        old_id=10804590891393433679,
        v2=(V2Id("LRNBackward", 1, 10804590891393433679),),
        params=(P.LRN,),
        inputs=("x", "y", "dy"),
        source="operators.json",
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
        source="operators.json",
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
        source="operators.json",
    )
)
