"""Operator records: conv."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

CONVOLUTION = register(
    OpSpec(
        name="Convolution",
        runtime_name="ConvolutionForward",
        names=(
            Name("ConvolutionV1", "v0.3.1", 15423559447313452543, until="v1.2.0"),
            Name("ConvolutionV2", "v1.3.0", 398888935463796127),
        ),
        old_id=1005859804226725325,
        v2=(
            V2Id("ConvolutionV2", 1, 1005859804226725325),
            V2Id("Convolution", 2, 13553933750987029374, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter"),
        source="operators.json",
    )
)

# output dtype = Operator.output_dtype when set
CONV_BIAS_FORWARD = register(
    OpSpec(
        name="ConvBiasForward",
        runtime_name="ConvBiasForward",
        names=(
            Name("ConvBiasForwardV3", "v0.3.1", 16937884875251053145, until="v1.2.0"),
            Name("ConvBiasForwardV4", "v1.3.0", 3637775072465142873),
        ),
        old_id=17532003616627982465,
        v2=(
            V2Id("ConvBiasForwardV4", 1, 17532003616627982465),
            V2Id("ConvBiasForward", 2, 14020002824874596106, since="v1.10.0"),
        ),
        params=(P.ConvBias, P.ExecutionPolicy),
        inputs=("src", "filter", "bias", "z"),
        min_inputs=2,
        source="operators.json",
    )
)

# transposed convolution; note the order filter first
CONVOLUTION_BACKWARD_DATA = register(
    OpSpec(
        name="ConvolutionBackwardData",
        runtime_name="ConvolutionBackwardData",
        names=(
            Name("ConvolutionBackwardDataV1", "v0.3.1", 15097092262997302774, until="v1.2.0"),
            Name("ConvolutionBackwardDataV2", "v1.3.0", 9995886723833562949),
        ),
        old_id=16334703432944436329,
        v2=(
            V2Id("ConvolutionBackwardDataV2", 1, 16334703432944436329),
            V2Id("ConvolutionBackwardData", 2, 13385245508966352414, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("filter", "diff", "src_for_shape"),
        min_inputs=2,
        source="operators.json",
    )
)

BATCH_CONV_BIAS_FORWARD = register(
    OpSpec(
        name="BatchConvBiasForward",
        runtime_name="BatchConvBiasForward",
        names=(
            Name("BatchConvBiasForward", "v0.3.1", 4072610153149334073, until="v1.2.0"),
            Name("BatchConvBiasForwardV1", "v1.3.0", 18160310046911419454),
        ),
        old_id=7642445736364092188,
        v2=(
            V2Id("BatchConvBiasForwardV1", 1, 7642445736364092188),
            V2Id("BatchConvBiasForward", 2, 4072610153149334073, since="v1.10.0"),
        ),
        params=(P.BatchConvBias, P.ExecutionPolicy),
        inputs=("src", "filter", "bias", "z"),
        min_inputs=2,
        source="operators.json",
    )
)

MASK_CONVOLUTION = register(
    OpSpec(
        name="MaskConvolution",
        runtime_name="MaskConvolutionForward",
        names=(
            Name("MaskConvolutionV1", "v0.3.1", 2177457174929155043, until="v1.2.0"),
            Name("MaskConvolutionV2", "v1.3.0", 16385007121447595423),
        ),
        old_id=11635562412200372474,
        v2=(V2Id("MaskConvolutionV2", 1, 11635562412200372474),),
        params=(P.Convolution,),
        inputs=("src", "filter", "mask"),
        source="operators.json",
    )
)

MASK_PROPAGATE = register(
    OpSpec(
        name="MaskPropagate",
        runtime_name="MaskPropagate",
        names=(Name("MaskPropagate", "v0.3.1", 1779450258821787737),),
        old_id=835626953800924164,
        v2=(V2Id("MaskPropagate", 1, 835626953800924164),),
        params=(P.MaskPropagate,),
        inputs=("mask",),
        source="operators.json",
    )
)

REGION_RESTRICTED_CONVOLUTION = register(
    OpSpec(
        name="RegionRestrictedConvolution",
        runtime_name="RegionRestrictedConvolutionForward",
        names=(Name("RegionRestrictedConvolution", "v1.11.1", 7732187763437231794),),
        old_id=7048724479251623914,
        v2=(V2Id("RegionRestrictedConvolution", 1, 7048724479251623914),),
        params=(P.Convolution,),
        inputs=("src", "filter", "rin", "rout"),
        source="operators.json",
    )
)

# v0.3.1..v1.1.0 only; union 21 (param.Winograd: slot0 output_block_size uint=0, slot1 format
# MatrixMulFormat, slot2 compute_mode since v0.5.0)
WINOGRAD_FILTER_PREPROCESS = register(
    OpSpec(
        name="WinogradFilterPreprocess",
        runtime_name="WinogradFilterPreprocess",
        names=(Name("WinogradFilterPreprocess", "v0.3.1", 2222007361463953785, until="v1.1.0"),),
        old_id=16864803776621971166,
        v2=(),
        params=(P.DeprecatedParam,),
        inputs=("filter",),
        source="operators.json",
    )
)
