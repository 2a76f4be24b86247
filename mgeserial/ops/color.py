"""Operator records: color."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

CVT_COLOR = register(
    OpSpec(
        name="CvtColor",
        runtime_name="CvtColorForward",
        names=(Name("CvtColor", "v0.3.1", 4813107610593414092),),
        old_id=17949433464099127521,
        v2=(V2Id("CvtColor", 1, 17949433464099127521),),
        params=(P.CvtColor,),
        inputs=("src",),
        source="operators.json",
    )
)

GAUSSIAN_BLUR = register(
    OpSpec(
        name="GaussianBlur",
        runtime_name="GaussianBlur",
        names=(Name("GaussianBlur", "v0.3.1", 7781154096106722127),),
        old_id=7386526580224061398,
        v2=(V2Id("GaussianBlur", 1, 7386526580224061398),),
        params=(P.GaussianBlur,),
        inputs=("src",),
        source="operators.json",
    )
)

DCT_CHANNEL_SELECT = register(
    OpSpec(
        name="DctChannelSelect",
        runtime_name="DctChannelSelect",
        names=(
            Name("DctChannelSelect", "v1.1.0", 10714849499801178988, until="v1.2.0"),
            Name("DctChannelSelectV1", "v1.3.0", 16452824271152006323),
        ),
        old_id=16182254079565348335,
        v2=(V2Id("DctChannelSelectV1", 1, 16182254079565348335),),
        params=(P.DctChannelSelect,),
        inputs=("src", "mask_offset", "mask_val"),
        min_inputs=1,
        source="operators.json",
    )
)
