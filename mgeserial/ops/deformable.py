"""Operator records: deformable."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

DEFORMABLE_CONV_FORWARD = register(
    OpSpec(
        name="DeformableConvForward",
        runtime_name="DeformableConvForward",
        names=(
            Name("DeformableConvForward", "v0.3.1", 10684543513979984201, until="v1.2.0"),
            Name("DeformableConvForwardV1", "v1.3.0", 8691128236371122633),
        ),
        old_id=11017218381981369915,
        v2=(
            V2Id("DeformableConvForwardV1", 1, 11017218381981369915),
            V2Id("DeformableConvForward", 2, 10684543513979984201, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask"),
        source="operators.json",
    )
)

DEFORMABLE_CONV_BACKWARD_DATA = register(
    OpSpec(
        name="DeformableConvBackwardData",
        runtime_name="DeformableConvBackwardData",
        names=(
            Name("DeformableConvBackwardData", "v0.3.1", 11316236038236221845, until="v1.2.0"),
            Name("DeformableConvBackwardDataV1", "v1.3.0", 4624099368777492032),
        ),
        old_id=3499073165613604512,
        v2=(
            V2Id("DeformableConvBackwardDataV1", 1, 3499073165613604512),
            V2Id("DeformableConvBackwardData", 2, 11316236038236221845, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask", "diff"),
        outputs=("src", "offset", "mask"),
        output_count=3,
        source="operators.json",
    )
)

DEFORMABLE_CONV_BACKWARD_FILTER = register(
    OpSpec(
        name="DeformableConvBackwardFilter",
        runtime_name="DeformableConvBackwardFilter",
        names=(
            Name("DeformableConvBackwardFilter", "v0.3.1", 5092355273122972759, until="v1.2.0"),
            Name("DeformableConvBackwardFilterV1", "v1.3.0", 10628912337376787276),
        ),
        old_id=16662057334206134718,
        v2=(
            V2Id("DeformableConvBackwardFilterV1", 1, 16662057334206134718),
            V2Id("DeformableConvBackwardFilter", 2, 5092355273122972759, since="v1.10.0"),
        ),
        params=(P.Convolution, P.ExecutionPolicy),
        inputs=("src", "filter", "offset", "mask", "diff"),
        source="operators.json",
    )
)

DEFORMABLE_PSROI_POOLING_FORWARD = register(
    OpSpec(
        name="DeformablePSROIPoolingForward",
        runtime_name="DeformablePSROIPoolingForward",
        names=(Name("DeformablePSROIPoolingForward", "v0.3.1", 15815594817998156736),),
        old_id=3465573809365759356,
        v2=(V2Id("DeformablePSROIPoolingForward", 1, 3465573809365759356),),
        params=(P.DeformablePSROIPooling,),
        inputs=("data", "rois", "trans"),
        outputs=("out", "out_count"),
        output_count=2,
        source="operators.json",
    )
)

DEFORMABLE_PSROI_POOLING_BACKWARD = register(
    OpSpec(
        name="DeformablePSROIPoolingBackward",
        runtime_name="DeformablePSROIPoolingBackward",
        names=(Name("DeformablePSROIPoolingBackward", "v0.3.1", 14446203659294951529),),
        old_id=16193483768192678153,
        v2=(V2Id("DeformablePSROIPoolingBackward", 1, 16193483768192678153),),
        params=(P.DeformablePSROIPooling,),
        inputs=("data", "rois", "trans", "out_diff", "out_count"),
        outputs=("data", "trans"),
        output_count=2,
        source="operators.json",
    )
)
