"""Operator records: local."""

from __future__ import annotations

from mgeserial import params as P
from mgeserial.ops.registry import Name, OpSpec, V2Id, register

LOCAL = register(
    OpSpec(
        name="Local",
        runtime_name="LocalForward",
        names=(
            Name("LocalV1", "v0.3.1", 14560872023344114474, until="v1.2.0"),
            Name("LocalV2", "v1.3.0", 7946408596694905603),
        ),
        old_id=2438723524179139873,
        v2=(V2Id("LocalV2", 1, 2438723524179139873),),
        params=(P.Convolution,),
        inputs=("src", "filter"),
        source="operators.json",
    )
)

GROUP_LOCAL = register(
    OpSpec(
        name="GroupLocal",
        runtime_name="GroupLocalForward",
        names=(
            Name("GroupLocalV1", "v0.3.1", 2712770956440959482, until="v1.2.0"),
            Name("GroupLocalV2", "v1.3.0", 10329238344631404699),
        ),
        old_id=15239326506034504675,
        v2=(V2Id("GroupLocalV2", 1, 15239326506034504675),),
        params=(P.Convolution,),
        inputs=("src", "filter"),
        source="operators.json",
    )
)

LOCAL_SHARE_FORWARD = register(
    OpSpec(
        name="LocalShareForward",
        runtime_name="LocalShareForward",
        names=(
            Name("LocalShareForward", "v0.3.1", 11438370329554618081, until="v1.2.0"),
            Name("LocalShareForwardV1", "v1.3.0", 10347340852525272700),
        ),
        old_id=2371195947753554836,
        v2=(
            V2Id("LocalShareForwardV1", 1, 2371195947753554836),
            V2Id("LocalShareForward", 2, 11438370329554618081, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("src", "filter"),
        source="operators.json",
    )
)

LOCAL_BACKWARD_DATA = register(
    OpSpec(
        name="LocalBackwardData",
        runtime_name="LocalBackwardData",
        names=(
            Name("LocalBackwardDataV1", "v0.3.1", 4979913596762060349, until="v1.2.0"),
            Name("LocalBackwardDataV2", "v1.3.0", 11236956505945440406),
        ),
        old_id=9972912261408639702,
        v2=(V2Id("LocalBackwardDataV2", 1, 9972912261408639702),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "src_for_shape"),
        source="operators.json",
    )
)

LOCAL_BACKWARD_FILTER = register(
    OpSpec(
        name="LocalBackwardFilter",
        runtime_name="LocalBackwardFilter",
        names=(
            Name("LocalBackwardFilterV1", "v0.3.1", 4219838703179257482, until="v1.2.0"),
            Name("LocalBackwardFilterV2", "v1.3.0", 15367879496205277822),
        ),
        old_id=9359853999370134971,
        v2=(V2Id("LocalBackwardFilterV2", 1, 9359853999370134971),),
        params=(P.Convolution,),
        inputs=("src", "diff", "filter_for_shape"),
        source="operators.json",
    )
)

GROUP_LOCAL_BACKWARD_DATA = register(
    OpSpec(
        name="GroupLocalBackwardData",
        runtime_name="GroupLocalBackwardData",
        names=(
            Name("GroupLocalBackwardDataV1", "v0.3.1", 9512848693139773040, until="v1.2.0"),
            Name("GroupLocalBackwardDataV2", "v1.3.0", 13571385314475027707),
        ),
        old_id=5365194670146850456,
        v2=(V2Id("GroupLocalBackwardDataV2", 1, 5365194670146850456),),
        params=(P.Convolution,),
        inputs=("filter", "diff", "src_for_shape"),
        source="operators.json",
    )
)

GROUP_LOCAL_BACKWARD_FILTER = register(
    OpSpec(
        name="GroupLocalBackwardFilter",
        runtime_name="GroupLocalBackwardFilter",
        names=(
            Name("GroupLocalBackwardFilterV1", "v0.3.1", 14848169696548887945, until="v1.2.0"),
            Name("GroupLocalBackwardFilterV2", "v1.3.0", 16243421778898567956),
        ),
        old_id=4307071883370826827,
        v2=(V2Id("GroupLocalBackwardFilterV2", 1, 4307071883370826827),),
        params=(P.Convolution,),
        inputs=("src", "diff", "filter_for_shape"),
        source="operators.json",
    )
)

LOCAL_SHARE_BACKWARD_DATA = register(
    OpSpec(
        name="LocalShareBackwardData",
        runtime_name="LocalShareBackwardData",
        names=(
            Name("LocalShareBackwardData", "v0.3.1", 16656833054358668494, until="v1.2.0"),
            Name("LocalShareBackwardDataV1", "v1.3.0", 5910150237723349181),
        ),
        old_id=2338363324839077752,
        v2=(
            V2Id("LocalShareBackwardDataV1", 1, 2338363324839077752),
            V2Id("LocalShareBackwardData", 2, 16656833054358668494, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("filter", "diff", "src_for_shape"),
        source="operators.json",
    )
)

LOCAL_SHARE_BACKWARD_FILTER = register(
    OpSpec(
        name="LocalShareBackwardFilter",
        runtime_name="LocalShareBackwardFilter",
        names=(
            Name("LocalShareBackwardFilter", "v0.3.1", 4209085322356757619, until="v1.2.0"),
            Name("LocalShareBackwardFilterV1", "v1.3.0", 13456682729415625249),
        ),
        old_id=4732440832646828724,
        v2=(
            V2Id("LocalShareBackwardFilterV1", 1, 4732440832646828724),
            V2Id("LocalShareBackwardFilter", 2, 4209085322356757619, since="v1.10.0"),
        ),
        params=(P.LocalShare, P.ExecutionPolicy),
        inputs=("src", "diff", "filter_for_shape"),
        source="operators.json",
    )
)
