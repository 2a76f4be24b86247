"""Operator records: convgrad."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

CONVOLUTION_BACKWARD_FILTER = register(
    OpSpec(
        name="ConvolutionBackwardFilter",
        runtime_name="ConvolutionBackwardFilter",
        names=(
            Name("ConvolutionBackwardFilterV1", "v0.3.1", 5551755036171413196, until="v1.2.0"),
            Name("ConvolutionBackwardFilterV2", "v1.3.0", 8736156641479298808),
        ),
        old_id=12258691570569605680,
        v2=(
            V2Id("ConvolutionBackwardFilterV2", 1, 12258691570569605680),
            V2Id("ConvolutionBackwardFilter", 2, 12806124319715940666, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        source="operators.json",
    )
)

CONVOLUTION3_D_BACKWARD_FILTER = register(
    OpSpec(
        name="Convolution3DBackwardFilter",
        runtime_name="Convolution3DBackwardFilter",
        names=(Name("Convolution3DBackwardFilter", "v0.3.1", 1410154108076074268),),
        old_id=11313922757585968924,
        v2=(
            V2Id("Convolution3DBackwardFilter", 1, 11313922757585968924),
            V2Id("Convolution3DBackwardFilter", 2, 1410154108076074268, since="v1.10.0"),
        ),
        params=(P.Convolution3D, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        source="operators.json",
    )
)

REGION_RESTRICTED_CONVOLUTION_BACKWARD_DATA = register(
    OpSpec(
        name="RegionRestrictedConvolutionBackwardData",
        runtime_name="RegionRestrictedConvolutionBackwardData",
        names=(Name("RegionRestrictedConvolutionBackwardData", "v1.11.1", 6435244233096308347),),
        old_id=11192933842546897750,
        v2=(V2Id("RegionRestrictedConvolutionBackwardData", 1, 11192933842546897750),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "rin", "rout", "src_for_shape"),
        min_inputs=4,
        source="operators.json",
    )
)

REGION_RESTRICTED_CONVOLUTION_BACKWARD_FILTER = register(
    OpSpec(
        name="RegionRestrictedConvolutionBackwardFilter",
        runtime_name="RegionRestrictedConvolutionBackwardFilter",
        names=(Name("RegionRestrictedConvolutionBackwardFilter", "v1.11.1", 647397193138151111),),
        old_id=5310852910838690953,
        v2=(V2Id("RegionRestrictedConvolutionBackwardFilter", 1, 5310852910838690953),),
        params=(P.Convolution,),
        inputs=("src", "diff", "rin", "rout", "filter_for_shape"),
        source="operators.json",
    )
)
