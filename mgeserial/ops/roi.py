"""Operator records: roi."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

ROI_ALIGN = register(
    OpSpec(
        name="ROIAlign",
        runtime_name="ROIAlignForward",
        names=(
            Name("ROIAlign", "v0.3.1", 4519579229346339379, until="v1.2.0"),
            Name("ROIAlignV1", "v1.3.0", 8505717436424151153),
        ),
        old_id=9748224881588153795,
        v2=(V2Id("ROIAlignV1", 1, 9748224881588153795),),
        params=(P.ROIAlign,),
        inputs=("src", "rois"),
        outputs=("dst", "index"),
        output_count=2,
        source="operators.json",
    )
)

ROI_ALIGN_BACKWARD = register(
    OpSpec(
        name="ROIAlignBackward",
        runtime_name="ROIAlignBackward",
        names=(
            Name("ROIAlignBackward", "v0.3.1", 15525152254302464307, until="v1.2.0"),
            Name("ROIAlignBackwardV1", "v1.3.0", 5726539317058003271),
        ),
        old_id=10738715206676276898,
        v2=(V2Id("ROIAlignBackwardV1", 1, 10738715206676276898),),
        params=(P.ROIAlign,),
        inputs=("diff", "src", "rois", "index"),
        source="operators.json",
    )
)

ROI_POOLING = register(
    OpSpec(
        name="ROIPooling",
        runtime_name="ROIPoolingForward",
        names=(Name("ROIPooling", "v0.3.1", 8650335971001880726),),
        old_id=11499575622644166993,
        v2=(V2Id("ROIPooling", 1, 11499575622644166993),),
        params=(P.ROIPooling,),
        inputs=("src", "rois", "dst_shape"),
        outputs=("dst", "argmax"),
        output_count=2,
        source="operators.json",
    )
)

ROI_POOLING_BACKWARD = register(
    OpSpec(
        name="ROIPoolingBackward",
        runtime_name="ROIPoolingBackward",
        names=(Name("ROIPoolingBackward", "v0.3.1", 11449337228882832106),),
        old_id=7898184470633738587,
        v2=(V2Id("ROIPoolingBackward", 1, 7898184470633738587),),
        params=(P.ROIPooling,),
        inputs=("diff", "src", "rois", "index"),
        source="operators.json",
    )
)

CORRELATION_FORWARD = register(
    OpSpec(
        name="CorrelationForward",
        runtime_name="CorrelationForward",
        names=(Name("CorrelationForward", "v1.4.0", 52762848157198920),),
        old_id=14184642478375232292,
        v2=(V2Id("CorrelationForward", 1, 14184642478375232292),),
        params=(P.Correlation,),
        inputs=("data1", "data2"),
        source="operators.json",
    )
)

CORRELATION_BACKWARD_DATA1 = register(
    OpSpec(
        name="CorrelationBackwardData1",
        runtime_name="CorrelationBackwardData1",
        names=(Name("CorrelationBackwardData1", "v1.4.0", 4628037995308390275),),
        old_id=9848618973553339130,
        v2=(V2Id("CorrelationBackwardData1", 1, 9848618973553339130),),
        params=(P.Correlation,),
        inputs=("diff", "data1", "data2"),
        source="operators.json",
    )
)

CORRELATION_BACKWARD_DATA2 = register(
    OpSpec(
        name="CorrelationBackwardData2",
        runtime_name="CorrelationBackwardData2",
        names=(Name("CorrelationBackwardData2", "v1.4.0", 6701417277286718905),),
        old_id=358897463290573568,
        v2=(V2Id("CorrelationBackwardData2", 1, 358897463290573568),),
        params=(P.Correlation,),
        inputs=("diff", "data1", "data2"),
        source="operators.json",
    )
)
